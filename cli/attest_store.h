/*
 * The bundle that `attest run` and `attest bundle` append to: which file may be one, and how a run that has happened is
 * not lost when it cannot be appended (attest section 9.1).
 */
#ifndef CLI_ATTEST_STORE_H
#define CLI_ATTEST_STORE_H

#include "cli/attest.h"

enum {
    ATTEST_LOCK_WAIT_MS = 2 * 60 * 1000, /* section 9.1, step 4 */
    ATTEST_STORE_ERROR_MAX = 1024,
    ATTEST_UNSEALED_PATH_MAX = 4096 + 64, /* the bundle's path and ".unsealed-YYYYMMDDTHHMMSSZ-xxxxxxxx.jsonl" */
};

/* Whether the bundle of -bundle can be continued under this key, or made. NULL, or why not, in `error`. */
const char *attest_store_check(const attest_options_t *options, const attest_key_t *key,
                               char error[ATTEST_STORE_ERROR_MAX]);

/* Writes the next entry, signed, to `entry`, which holds nothing before; NULL. Or sets *is_end; or why there is none.
 */
typedef const char *attest_next_t(void *data, const attest_key_t *key, attest_prefix_t prefix, buffer_t *entry,
                                  bool *is_end);
/* Appends every entry `next` gives and a checkpoint under the bundle's lock, or nothing. Signals that would end the
 * process wait meanwhile. NULL, or why not, in `error`. `written` counts the entries. */
const char *attest_store_append(const attest_options_t *options, const attest_key_t *key, attest_next_t *next,
                                void *data, uint64_t *written, char error[ATTEST_STORE_ERROR_MAX]);

/* Keeps a signed entry beside the bundle, in a file that was not there before. NULL and its path, or why not. */
const char *attest_store_unsealed(const char *bundle, const buffer_t *entry, char path[ATTEST_UNSEALED_PATH_MAX]);

#endif
