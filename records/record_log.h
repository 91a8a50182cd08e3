/*
 * The append-only log of records, as every copy of the gateway reads it: the Redis list that each settlement appends a
 * record's digest to (docs/redis-keys.md) is the one order, and RFC 6962's tree over it says so in one hash. Nothing is
 * written here.
 *
 * The log is followed in pages, each with a deadline and hashed in slices, and what was read once is never believed
 * anew: the newest leaves are read again with every look, those below a proof with the proof, the others by turns. A
 * log that is shorter than it was, or that holds another leaf where one was read, is named in the log (event
 * `record_log_changed`) and answered from no more, until the process ends: any answer would cover it up.
 */
#ifndef RECORDS_RECORD_LOG_H
#define RECORDS_RECORD_LOG_H

#include "core/loop.h"
#include "core/redis.h"
#include "records/merkle.h"

enum {
    RECORD_LOG_PAGE = 2048,         /* leaves of one read: 64 KiB */
    RECORD_LOG_SLICE = 512,         /* leaves hashed at a time: below 1 ms */
    RECORD_LOG_DEADLINE_MS = 1000,  /* of one read */
    RECORD_LOG_WAIT_MS = 3000,      /* a question waits so long for a log that is still being read */
    RECORD_LOG_LOOK_MS = 1000,      /* how often a log nobody asks about is looked at */
    RECORD_LOG_CHECK = 4 * 256,     /* leaves read again with each such look: a million in 17 minutes */
    RECORD_LOG_QUESTIONS_MAX = 256, /* waiting; each holds up to two tiles, 32 KiB */
    RECORD_LOG_PROBLEM_MAX = 160,
};

typedef enum {
    RECORD_LOG_OK,
    RECORD_LOG_AWAY,     /* Redis does not answer */
    RECORD_LOG_READING,  /* after a start: `size` leaves have been read so far */
    RECORD_LOG_BUSY,     /* RECORD_LOG_QUESTIONS_MAX */
    RECORD_LOG_TOO_LONG, /* the question speaks of more leaves than the `size` there are */
    RECORD_LOG_NO_PROOF, /* it is none: index >= size, first > second */
    RECORD_LOG_CHANGED,  /* not the log it was; `problem` says where */
} record_log_status_t;

typedef enum { RECORD_LOG_HEAD, RECORD_LOG_INCLUSION, RECORD_LOG_CONSISTENCY } record_log_kind_t;

typedef struct {
    record_log_kind_t kind;
    bool is_newest; /* `size` is that of the newest head */
    uint64_t size;  /* of the tree that is spoken of */
    uint64_t first; /* INCLUSION: the leaf's index; CONSISTENCY: the older tree's size */
} record_log_question_t;

typedef struct {
    record_log_status_t status;
    const char *problem;  /* of CHANGED; valid during the callback */
    uint64_t size;        /* OK: of the tree that is spoken of, else leaves known */
    merkle_hash_t root;   /* of that tree */
    int64_t time_unix_ms; /* when the log was looked at */
    uint64_t first;
    uint8_t leaf[SHA256_BYTES]; /* INCLUSION: the leaf's data */
    merkle_hash_t first_root;   /* CONSISTENCY */
    merkle_hash_t path[MERKLE_CONSISTENCY_MAX];
    size_t path_count;
} record_log_answer_t;

typedef void (*record_log_cb)(void *data, const record_log_answer_t *answer);

/* Told on every change: leaves read, whether the newest look reached the log's end, whether the log is not what it was.
 */
typedef void (*record_log_state_cb)(void *data, uint64_t size, bool is_current, bool is_changed);

typedef struct record_log record_log_t;

/* `key` is the list's name, copied. `on_state` may be NULL. */
record_log_t *record_log_create(loop_t *loop, const redis_address_t *address, const char *key,
                                record_log_state_cb on_state, void *data);
/* Questions under way are answered AWAY before this returns. Not inside a callback. */
void record_log_destroy(record_log_t *log);
/* Exactly one callback, never before the call returned: what was in the log when this was called is in the answer. On
 * the log's loop. */
void record_log_ask(record_log_t *log, const record_log_question_t *question, record_log_cb cb, void *data);

#endif
