/*
 * The record store: request-ID claims, per-caller rate, slots and counts, and the runs' records, in Redis. One Lua
 * script admits (claim + limits, or nothing), one settles (verdict + record + release). Keys and their lifetimes:
 * docs/redis-keys.md. One store a loop thread; callbacks come on it, exactly once, never before the call returned.
 *
 * A claim's life: free -> live (written before any dispatch) -> answered | unknown; a refusal frees it. A live claim
 * whose lease has run out is unknown: its owner died, and the run may have happened. Leases are short, and renewed
 * while the run is under way.
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
    STORE_DEADLINE_MS = 250,      /* per script: an answer is due within 300 ms whatever Redis does */
    STORE_LIFE_MARGIN_MS = 15000, /* what a run and its end may take beside its own timeout, without a wall's ways */
    /* A lease is renewed when a third of it is over. What is left then, 13 s, holds a pause of 10 s, the next look of
     * 0.5 s and a renewal of 2 s; a copy that died holds its keys and slots for no longer than this. */
    STORE_LEASE_MS = 20000,
    STORE_LEASE_LEAST_MS = 5000,     /* less than renewing in time ever leaves: with less nothing is dispatched */
    STORE_ANSWER_MAX = 1024 * 1024,  /* larger answers keep their record, not their output */
    STORE_RUN_TTL_S = 7 * 24 * 3600, /* how long a run's record is kept, and a settled claim answers again */
    STORE_ANSWER_TTL_S = 24 * 3600,  /* how long the claim has the output, too */
    STORE_RUNS_KEPT = 10000,         /* newest runs kept in a caller's index */
    STORE_RECEIPTS_KEPT = 1000,      /* newest receipts of a caller */
    STORE_RECEIPTS_PER_S = 50,       /* of one process */
    STORE_DAYS_KEPT = 40,            /* days of amounts, UTC */
};

/* Of one amount and one cap; larger ones are cut to it. Sums of it stay exact in Lua's numbers (2^53) up to 90. */
#define STORE_AMOUNT_MAX INT64_C(100000000000000)

/* What counts against budgets. Times are sandbox time in ms; cost is in millionths of the price table's currency. */
typedef struct {
    uint64_t seconds_ms;
    uint64_t paid_ms;
    uint64_t cost_micro;
} store_amounts_t;

/* One scope's caps, the caller's or the whole gateway's; 0 = no cap. */
typedef struct {
    uint32_t slots;           /* runs at once */
    uint32_t rate_per_min;    /* starts */
    uint32_t burst;           /* >= 1 when rate_per_min > 0 */
    uint32_t runs_per_window; /* starts in a fixed window of `window_s` */
    store_amounts_t per_day;  /* UTC days of Redis' clock */
} store_caps_t;

/* Which cap refused. */
typedef enum {
    CAP_NONE,
    CAP_SLOTS,
    CAP_RATE,
    CAP_RUNS,
    CAP_SECONDS,
    CAP_PAID,
    CAP_COST,
    CAP_COUNT,
} store_cap_t;
const char *store_cap_name(store_cap_t cap); /* "slots", "rate", "runs", "seconds", "paid", "cost" */

typedef struct {
    const char *caller;         /* identity; any bytes of valid UTF-8, 1 to 256 */
    const char *request_id;     /* the claim's key: 32 hex, or NULL: unkeyed */
    const char *request_sha256; /* 64 hex */
    const char *run_id;         /* 32 hex, fresh */
    uint32_t lease_ms;          /* of claim and slot, STORE_LEASE_MS at most; renewed by store_lease_hold */
    uint32_t life_ms; /* the longest the run may take, to its settlement: the claim's key is kept for no less, renewed
                         or not; at least lease_ms */
    bool has_place; /* whether this process has a global slot for it: without one only an existing claim is answered */
    store_caps_t caps;       /* the caller's */
    store_caps_t total_caps; /* the whole gateway's, over all copies */
    uint32_t window_s;       /* of runs_per_window */
    store_amounts_t hold;    /* the run's worst case, held until it is settled; where there is a cap a day, paid time or
                                cost, else nothing is */
    uint32_t hold_ms;        /* how long an unsettled hold is waited for before all of it is charged */
} store_admission_t;

typedef enum {
    ADMIT_OK,              /* the claim is ours and the slot taken: dispatch */
    ADMIT_JOIN,            /* the same request is live under `run_id`: wait for it */
    ADMIT_ANSWERED,        /* `answer` is the stored answer */
    ADMIT_ANSWER_GONE,     /* answered, but the output was too large to keep or its time is over; run_id is known, and
                              record_sha256 while the record is kept */
    ADMIT_OUTCOME_UNKNOWN, /* it may have run; `unknown_code` is the Connect code to repeat */
    ADMIT_CONFLICT,        /* the ID was used with another digest */
    ADMIT_NO_PLACE,        /* has_place was false and the claim is free */
    ADMIT_CAPPED,          /* a cap would be passed: `cap`, `is_total` and the numbers say which */
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
    store_amounts_t spent; /* ANSWERED: what the run was charged */
    bool has_spent;        /* false: the claim does not say */
    bool is_cost_known;
    /* The rate's state after this decision, for RateLimit fields; limit 0 = unlimited. */
    uint32_t rate_limit; /* burst */
    uint32_t rate_remaining;
    uint32_t rate_reset_ms; /* until full */
    uint32_t slots_in_use;  /* the caller's */
    /* CAPPED */
    store_cap_t cap;
    bool is_total;           /* the whole gateway's, not the caller's */
    uint64_t cap_limit;      /* in the cap's own unit (runs, ms, micros) */
    uint64_t cap_used;       /* settled and held; 0 of a rate */
    uint32_t retry_after_ms; /* until it may be sent again: exact for the rate, to the window's or day's end for counts,
                                a hint for slots */
} store_admitted_t;

typedef void (*store_admitted_cb)(void *data, const store_admitted_t *admitted);

typedef enum { VERDICT_ANSWERED, VERDICT_REFUSED, VERDICT_UNKNOWN } verdict_t;
const char *verdict_name(verdict_t verdict); /* "answered", "refused", "unknown" */

/* What is kept of a run. Strings may be NULL (= empty) and are copied. */
typedef struct {
    const char *caller;
    const char *request_id;        /* the claim's key; NULL when unkeyed */
    const char *client_request_id; /* Plimsoll-Request-Id as it was sent, when another key has the claim */
    const char *idempotency_key;   /* as it was sent, decoded */
    const char *run_id;
    verdict_t verdict;
    bool give_back_rate;   /* a refusal costs nothing: rate, runs of the window and hold go back too */
    store_amounts_t spent; /* what is charged instead of the hold */
    bool is_cost_known;    /* false: no price, or a stale one; never shown as zero */
    bool keeps_hold;       /* UNKNOWN on a billed backend: the ledger charges what its sandbox came to */
    const char *limits;    /* REFUSED: the limits seen, "rate=30/min;retry_after_ms=1200" */
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

/* `stored` false: Redis did not take it within the deadline; the store keeps it and tries again until it is taken. With
 * a spool (records/store_spool.h) it is on the disk by then, or STORE_SPOOL_WAIT_MS have passed; without one, or when
 * the disk does not take it, it is in memory (bounded by STORE_RETRY_MAX, counted when dropped). */
typedef void (*store_settled_cb)(void *data, bool stored);
enum { STORE_RETRY_MAX = 4096 };

/* One settled run as listed. Strings are valid during the callback, never NULL. */
typedef struct {
    const char *run_id, *request_id, *verdict, *backend, *tier, *kind, *request_sha256, *result_sha256, *record_sha256,
        *unknown_code, *reason, *trace_id, *caller, *client_request_id, *idempotency_key, *limits;
    int64_t started_unix_ms, ended_unix_ms;
    store_amounts_t spent;
    bool is_cost_known;
    int64_t log_index; /* of its leaf in the log; -1 = none (refused) */
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

/* Copied. */
typedef struct {
    const char *installation; /* names the keys: [a-z0-9-], 1 to STORE_INSTALLATION_MAX */
    uint32_t run_ttl_s;       /* how long records and claims are kept; 0 = STORE_RUN_TTL_S */
    uint32_t answer_ttl_s;    /* how long an answer's output is kept; 0 = STORE_ANSWER_TTL_S; at most run_ttl_s */
    size_t answer_max;        /* bytes; 0 = STORE_ANSWER_MAX, which it cannot pass */
} store_settings_t;

store_t *store_create(loop_t *loop, const redis_address_t *address, const store_settings_t *settings,
                      const store_callbacks_t *callbacks);
void store_destroy(store_t *store);
bool store_is_up(const store_t *store);
/* Settlements not yet taken by Redis. */
size_t store_backlog(const store_t *store);
/* Settlements given up for want of room (STORE_RETRY_MAX), since the start. */
uint64_t store_dropped(const store_t *store);

void store_admit(store_t *store, const store_admission_t *admission, store_admitted_cb cb, void *data);
void store_settle(store_t *store, const store_settlement_t *settlement, store_settled_cb cb, void *data);
/* A lease that is renewed for as long as it is held. Embedded in the run, zeroed before its first use. */
enum { STORE_LEASE_ENTRY = 120 };
typedef struct store_lease {
    store_t *_store; /* NULL = not held */
    struct store_lease *_next, *_prev;
    uint64_t _ends_us, _due_us; /* monotonic */
    uint32_t _lease_ms;
    int _place; /* in the batch that is under way; -1 = in none */
    char _entry[STORE_LEASE_ENTRY];
} store_lease_t;
/* What `admission` took (ADMIT_OK) is renewed from here on, its lease reckoned from `since_us` (monotonic), which is
 * before the admission was sent. Until store_lease_drop, right before the settlement; or until Redis says that others
 * have taken note of its end. A renewal is never waited for. */
void store_lease_hold(store_t *store, store_lease_t *lease, const store_admission_t *admission, uint64_t since_us);
void store_lease_drop(store_lease_t *lease); /* also of one that is not held */
/* How long others leave the run alone at least, as far as this process knows; 0 = they need not any more. */
uint32_t store_lease_left_ms(const store_lease_t *lease);
/* The state of a claim without taking anything: JOIN, ANSWERED, ANSWER_GONE, OUTCOME_UNKNOWN, CONFLICT; ADMIT_OK =
 * free. */
void store_claim_look(store_t *store, const char *caller, const char *request_id, const char *request_sha256,
                      store_admitted_cb cb, void *data);
/* The same for whatever request has the key: never CONFLICT. */
void store_claim_find(store_t *store, const char *caller, const char *request_id, store_admitted_cb cb, void *data);
/* A run refused before any claim was taken: kept in a list of its own, fire and forget. Bounded; counted when dropped.
 */
void store_receipt(store_t *store, const store_settlement_t *refusal);
uint64_t store_receipts_dropped(const store_t *store);

/* What /v1/usage shows of one scope. */
typedef struct {
    const char *caller; /* NULL: the whole gateway */
    char day[9];        /* YYYYMMDD, UTC */
    uint64_t runs;      /* settled today, answered or unknown */
    store_amounts_t spent, held;
    uint64_t unpriced_ms; /* of spent.paid_ms: what had no known price, so spent.cost_micro is not all it cost */
    uint32_t slots_in_use;
    uint32_t rate_remaining, rate_reset_ms; /* by the caps given */
    uint64_t window_runs;
    uint32_t window_reset_ms, day_reset_ms;
} store_usage_t;
typedef void (*store_usage_cb)(void *data, store_lookup_t found, const store_usage_t *usage, size_t count,
                               const char *next_cursor);
/* `caller` NULL: the whole gateway's own numbers. Slots and runs of the window count what was admitted under a cap on
 * them, but for a caller's slots, which are always counted. */
void store_usage(store_t *store, const char *caller, const store_caps_t *caps, uint32_t window_s, store_usage_cb cb,
                 void *data);
/* The callers with runs settled, or held, on a day of the last STORE_DAYS_KEPT, by name, a page at a time; `day` NULL =
 * today, else YYYYMMDD. `cursor` is NULL or a page's `next_cursor`: a caller's name. What is held and in use is today's
 * alone. NOT_FOUND: the day or the cursor is none. */
void store_usage_all(store_t *store, const char *day, const char *cursor, store_usage_cb cb, void *data);

/* Which of a caller's runs are listed; zero and NULL = all. */
typedef struct {
    uint32_t limit;
    const char *cursor;
    bool receipts;       /* the refused-before-admission ones instead */
    const char *verdict; /* "answered", "refused", "unknown" */
    const char *backend, *kind;
    int64_t since_unix_ms, until_unix_ms; /* of the start; until is exclusive */
} store_runs_query_t;
/* Newest first, `limit` cut to 1..STORE_LIST_MAX, without the packed records' bytes. `cursor` is NULL or "" for the
 * newest, else the `next_cursor` of the page before (a run id); `next_cursor` is NULL on the last page. A page may hold
 * fewer runs than asked for. NOT_FOUND: the cursor is none. */
enum { STORE_LIST_MAX = 100 };
void store_runs_list(store_t *store, const char *caller, const store_runs_query_t *query, store_runs_cb cb, void *data);
/* Any text as `run_id`; another caller's run is NOT_FOUND. */
void store_run_get(store_t *store, const char *caller, const char *run_id, store_runs_cb cb, void *data);

enum { STORE_CLAIM_KEY_MAX = 160, STORE_INSTALLATION_MAX = 32 };
void store_claim_key(const store_t *store, const char *caller, const char *request_id, char out[STORE_CLAIM_KEY_MAX]);
/* The claim's key of an Idempotency-Key: 32 hex. */
void store_claim_id_of_key(const char *key, size_t len, char out[33]);
/* "plimsoll:2:{NAME}:" NAME of whoever writes keys beside the store. */
void store_key_prefix(const char *installation, char out[STORE_CLAIM_KEY_MAX]);

/* The leaf of a run that has no record of its own: SHA-256 of its receipt, domain plimsoll.run-receipt.v1
 * (docs/redis-keys.md), from the run as it is listed. 32 bytes. */
void store_receipt_sha256(const char *caller, const store_run_t *run, uint8_t out[32]);
/* The same by the caller's tag: the first 32 hex of the SHA-256 of its ID. */
void store_receipt_sha256_of(const char *tag, const store_run_t *run, uint8_t out[32]);

/* The scripts, for the benchmark and the tests. */
extern const char STORE_LUA_ADMIT[], STORE_LUA_SETTLE[];

#endif
