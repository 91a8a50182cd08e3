/* Stored exchanges out of files, one JSON object a line, as entries for a bundle. */
#ifndef CLI_ATTEST_INPUT_H
#define CLI_ATTEST_INPUT_H

#include "core/buffer.h"
#include "records/attest_key.h"
#include "records/attest_statement.h"

enum { ATTEST_INPUT_FILES_MAX = 1024 };

typedef struct attest_input attest_input_t;

/* Reads the files in order ("-" is standard input, once). The paths must stay. */
attest_input_t *attest_input_open(char **paths, int count);
void attest_input_close(attest_input_t *input);
/* An attest_next_t; `data` is the input. Why there is no next names file and line, and is kept until closed. */
const char *attest_input_next(void *data, const attest_key_t *key, attest_prefix_t prefix, buffer_t *entry,
                              bool *is_end);

/* Writes a text and a newline to a file that was not there (mode 0600), synced. NULL, or why not. */
const char *attest_write_new(const char *path, const buffer_t *text);

#endif
