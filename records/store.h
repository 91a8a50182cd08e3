/*
 * The record store: request-ID claims, per-caller rate, slots and counts, and the runs' records, in Redis. One Lua
 * script admits (claim + limits, or nothing), one settles (verdict + record + release). Keys and their lifetimes:
 * docs/redis-keys.md. One store a loop thread; callbacks come on it, exactly once, never before the call returned.
 *
 * A claim's life: free -> live (written before any dispatch) -> answered | unknown; a refusal frees it. A live claim
 * whose lease has run out is unknown: its owner died, and the run may have happened.
 */
#ifndef RECORDS_STORE_H
#define RECORDS_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"
#include "core/redis.h"

typedef struct store store_t;

enum {
    STORE_DEADLINE_MS = 250,         /* per script: an answer is due within 300 ms whatever Redis does */
    STORE_LEASE_MARGIN_MS = 15000,   /* a lease outlives the run's own timeout by this */
    STORE_ANSWER_MAX = 1024 * 1024,  /* larger answers keep their record, not their output */
    STORE_CLAIM_TTL_S = 24 * 3600,   /* how long a settled claim answers again */
    STORE_RUN_TTL_S = 7 * 24 * 3600, /* how long a run's record is kept */
    STORE_RUNS_KEPT = 10000,         /* newest runs kept in a caller's index */
};

typedef struct {
    const char *caller;         /* identity; any bytes of valid UTF-8, 1 to 256 */
    const char *request_id;     /* 32 hex, or NULL: unkeyed */
    const char *request_sha256; /* 64 hex */
    const char *run_id;         /* 32 hex, fresh */
    uint32_t lease_ms;          /* run timeout + STORE_LEASE_MARGIN_MS */
    bool has_place; /* whether this process has a global slot for it: without one only an existing claim is answered */
    uint32_t rate_per_min; /* 0 = no rate limit */
    uint32_t burst;        /* >= 1 when rate_per_min > 0 */
    uint32_t slots;        /* per caller; 0 = no cap */
} store_admission_t;

typedef enum {
    ADMIT_OK,              /* the claim is ours and the slot taken: dispatch */
    ADMIT_JOIN,            /* the same request is live under `run_id`: wait for it */
    ADMIT_ANSWERED,        /* `answer` is the stored answer */
    ADMIT_ANSWER_GONE,     /* answered, but the output was too large to keep; run_id and record_sha256 are known */
    ADMIT_OUTCOME_UNKNOWN, /* it may have run; `unknown_code` is the Connect code to repeat */
    ADMIT_CONFLICT,        /* the ID was used with another digest */
    ADMIT_NO_PLACE,        /* has_place was false and the claim is free */
    ADMIT_NO_SLOT,         /* the caller's slots are taken */
    ADMIT_NO_RATE,         /* the caller's rate is spent */
    ADMIT_NO_STORE,        /* certainly nothing was written */
    ADMIT_STORE_UNKNOWN    /* Redis was asked and did not answer: a claim may exist. The store undoes it when it can;
                              refuse the run. */
} admit_outcome_t;

typedef struct {
    admit_outcome_t outcome;
    char run_id[33];       /* JOIN, ANSWERED, ANSWER_GONE, OUTCOME_UNKNOWN: the run that has the claim */
    const uint8_t *answer; /* plimsoll.v1.RunResponse, valid during the callback */
    size_t answer_len;
    char backend[33]; /* of the stored answer */
    char record_sha256[65];
    char unknown_code[32];
    /* The rate's state after this decision, for RateLimit fields; limit 0 = unlimited. */
    uint32_t rate_limit; /* burst */
    uint32_t rate_remaining;
    uint32_t rate_reset_ms;  /* until full */
    uint32_t retry_after_ms; /* NO_RATE: until one more is allowed; NO_SLOT: a hint */
    uint32_t slots_in_use;
} store_admitted_t;

typedef void (*store_admitted_cb)(void *data, const store_admitted_t *admitted);

typedef enum { VERDICT_ANSWERED, VERDICT_REFUSED, VERDICT_UNKNOWN } verdict_t;
const char *verdict_name(verdict_t verdict); /* "answered", "refused", "unknown" */

/* What is kept of a run. Strings may be NULL (= empty) and are copied. */
typedef struct {
    const char *caller;
    const char *request_id; /* NULL when unkeyed */
    const char *run_id;
    verdict_t verdict;
    bool give_back_rate; /* a refusal costs nothing */
    const char *backend;
    const char *tier;
    const char *kind; /* "javascript", ... */
    const char *request_sha256;
    const char *result_sha256;
    const char *record_sha256;
    int64_t started_unix_ms;
    int64_t ended_unix_ms;
    int32_t exit_code;
    uint8_t project_outcome; /* number of a project's outcome; 0 for other kinds */
    bool timed_out;
    bool canceled;
    const char *unknown_code; /* VERDICT_UNKNOWN: Connect code */
    const char *reason;       /* VERDICT_REFUSED: mark name */
    const char *trace_id;
    const uint8_t *record; /* packed plimsoll.v1.RunRecord */
    size_t record_len;
    const uint8_t *answer; /* VERDICT_ANSWERED: packed plimsoll.v1.RunResponse, stored up to STORE_ANSWER_MAX */
    size_t answer_len;
} store_settlement_t;

/* `stored` false: Redis did not take it within the deadline; the store keeps it and tries again until it is taken
 * (bounded by STORE_RETRY_MAX, counted when dropped). */
typedef void (*store_settled_cb)(void *data, bool stored);
enum { STORE_RETRY_MAX = 4096 };

/* One settled run as listed. Strings are valid during the callback, never NULL. */
typedef struct {
    const char *run_id, *request_id, *verdict, *backend, *tier, *kind, *request_sha256, *result_sha256, *record_sha256,
        *unknown_code, *reason, *trace_id, *caller;
    int64_t started_unix_ms, ended_unix_ms;
    int32_t exit_code;
    uint8_t project_outcome;
    bool timed_out, canceled;
    const uint8_t *record; /* packed RunRecord, empty unless asked for one run */
    size_t record_len;
} store_run_t;

typedef enum { STORE_FOUND, STORE_NOT_FOUND, STORE_AWAY } store_lookup_t;
typedef void (*store_runs_cb)(void *data, store_lookup_t found, const store_run_t *runs, size_t count,
                              const char *next_cursor);

/* `on_settled` is called for each claim any copy settles (key as store_claim_key gives it), so waiters need no polling;
 * after a lost subscription, and every second at most, waiters look for themselves with store_claim_look. `on_state`
 * tells when Redis is up. */
typedef struct {
    void (*on_settled)(void *data, const char *claim_key);
    void (*on_state)(void *data, bool up, const char *reason);
    void *data;
} store_callbacks_t;

store_t *store_create(loop_t *loop, const redis_address_t *address, const store_callbacks_t *callbacks);
void store_destroy(store_t *store);
bool store_is_up(const store_t *store);
/* Settlements not yet taken by Redis. */
size_t store_backlog(const store_t *store);
/* Settlements given up for want of room (STORE_RETRY_MAX), since the start. */
uint64_t store_dropped(const store_t *store);

void store_admit(store_t *store, const store_admission_t *admission, store_admitted_cb cb, void *data);
void store_settle(store_t *store, const store_settlement_t *settlement, store_settled_cb cb, void *data);
/* The state of a claim without taking anything: JOIN, ANSWERED, ANSWER_GONE, OUTCOME_UNKNOWN, CONFLICT; ADMIT_OK =
 * free. */
void store_claim_look(store_t *store, const char *caller, const char *request_id, const char *request_sha256,
                      store_admitted_cb cb, void *data);
/* Newest first, `limit` cut to 1..STORE_LIST_MAX, without the packed records' bytes. `cursor` is NULL or "" for the
 * newest, else the `next_cursor` of the page before (a run id); `next_cursor` is NULL on the last page. A page may hold
 * fewer runs than asked for. NOT_FOUND: the cursor is none. */
enum { STORE_LIST_MAX = 100 };
void store_runs_list(store_t *store, const char *caller, uint32_t limit, const char *cursor, store_runs_cb cb,
                     void *data);
/* Any text as `run_id`; another caller's run is NOT_FOUND. */
void store_run_get(store_t *store, const char *caller, const char *run_id, store_runs_cb cb, void *data);

enum { STORE_CLAIM_KEY_MAX = 128 };
void store_claim_key(const char *caller, const char *request_id, char out[STORE_CLAIM_KEY_MAX]);

/* The scripts, for the benchmark and the tests. */
extern const char STORE_LUA_ADMIT[], STORE_LUA_SETTLE[];

#endif
