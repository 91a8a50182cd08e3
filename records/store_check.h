/*
 * Looks at how the record store's Redis is set up and warns by name of what would let it lose a claim or a record: one
 * `redis_setting` line for each, again only when the server is another one or the setting was right in between. It
 * changes nothing and refuses nothing. What is looked at and why: docs/redis.md.
 */
#ifndef RECORDS_STORE_CHECK_H
#define RECORDS_STORE_CHECK_H

#include <stdbool.h>

#include "core/loop.h"
#include "core/redis.h"

enum {
    STORE_CHECK_EVERY_MS = 60 * 1000, /* settings change and disks fill while the gateway runs */
    STORE_CHECK_DEADLINE_MS = 2000,   /* nobody waits for it */
    STORE_CHECK_VALUE_MAX = 63,       /* bytes of a value that are looked at and shown */
};

/* --- what is seen --- */

/* "" = not told. */
typedef enum {
    SEEN_VERSION,
    SEEN_RUN_ID,
    SEEN_ROLE,
    SEEN_REPLICAS, /* attached */
    SEEN_AOF_ENABLED,
    SEEN_AOF_STATUS,
    SEEN_APPENDONLY,
    SEEN_APPENDFSYNC,
    SEEN_POLICY,
    SEEN_MIN_REPLICAS,
    SEEN_SAVE,
    SEEN_COUNT,
} store_seen_t;

typedef struct {
    char values[SEEN_COUNT][STORE_CHECK_VALUE_MAX + 1];
    bool info_denied, config_denied;
} store_seen_values_t;

/* Takes the lines it knows out of an answer to INFO. */
void store_check_take_info(store_seen_values_t *seen, const char *text, size_t len);
/* Takes one setting of an answer to CONFIG GET; unknown ones are passed over. */
void store_check_take_config(store_seen_values_t *seen, const char *name, const char *value);

/* --- what is warned about --- */

typedef enum {
    WARN_VERSION,
    WARN_ROLE,
    WARN_APPENDONLY,
    WARN_APPENDFSYNC,
    WARN_POLICY,
    WARN_MIN_REPLICAS,
    WARN_AOF_STATUS,
    WARN_INFO_DENIED,
    WARN_CONFIG_DENIED,
    WARN_COUNT,
} store_warning_t;

typedef struct {
    const char *setting; /* the name it has at Redis; stable */
    const char *wanted;
    const char *value; /* what it is now; of `seen` or static */
    const char *why;   /* NULL: it is as it should be, or it was not told */
} store_judgment_t;

store_judgment_t store_check_judge(const store_seen_values_t *seen, store_warning_t warning);

/* --- the check --- */

typedef struct store_check store_check_t;

/* A connection of its own, looked over whenever it came up and every STORE_CHECK_EVERY_MS. `on_count` (may be NULL) is
 * told how many warnings hold, after each look. */
store_check_t *store_check_create(loop_t *loop, const redis_address_t *address,
                                  void (*on_count)(void *data, unsigned warnings), void *data);
/* NULL is harmless. */
void store_check_destroy(store_check_t *check);

#endif
