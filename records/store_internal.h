/* What the store's files share. Nothing outside records/ includes this. */
#ifndef RECORDS_STORE_INTERNAL_H
#define RECORDS_STORE_INTERNAL_H

#include "records/store.h"
#include "records/store_spool_internal.h"

enum {
    STORE_MAGIC = 0x73746f72,
    STORE_ID = 32,                                       /* run and request ids: 16 bytes as lowercase hex */
    STORE_SHA = 64,                                      /* digests: 32 bytes as lowercase hex */
    STORE_ROOT_MAX = 12 + STORE_INSTALLATION_MAX + 2,    /* "plimsoll:2:{" installation "}:" */
    STORE_PREFIX_MAX = STORE_ROOT_MAX + STORE_ID + 1,    /* root, a caller's tag, ":" */
    STORE_CLAIM_HEAD = 1 + STORE_SHA / 2 + STORE_ID / 2, /* state, digest, run id */
    STORE_BACKEND_MAX = 32,
    STORE_NUMBER_MAX = 24,
    STORE_CODE_MAX = 31,
    STORE_WITHDRAWN_TTL_MS = 60 * 1000,    /* how long a late admission may still be under way on a dead connection */
    STORE_LEASE_MAX_MS = 24 * 3600 * 1000, /* longer leases are cut: the slots key is sure to live this long */
    STORE_SLOT_RETRY_MS = 1000,            /* the hint of NO_SLOT: nobody knows when a run ends */
    STORE_RETRY_WINDOW = 64,               /* settlements sent again and in flight, once one was taken */
    STORE_RETRY_WINDOW_BYTES = 2 * 1024 * 1024, /* of them; one alone may be larger */
    STORE_RETRY_DEADLINE_MS =
        2000,                      /* nobody waits for these, and a large one on a slow disk must get through at last */
    STORE_RETRY_PAUSE_MS = 200,    /* between probes of a Redis that does not take them */
    STORE_RETRY_REFUSED_MS = 1000, /* one that Redis answered with an error lets the others pass for this long */
    STORE_RETRY_BYTES_MAX = 64 * 1024 * 1024, /* kept settlements past this keep their record and lose their output */
};
/* Half the room is for records alone: an admission not taken back ends with its lease, a record not kept is lost. */
enum { STORE_WITHDRAWALS_MAX = STORE_RETRY_MAX / 2 };
/* Interval * burst. With Redis' time (1.8e15 us) it stays far below 2^53, where Lua's numbers stop being exact. */
#define STORE_RATE_WINDOW_MAX_US INT64_C(1000000000000000)

/* The scripts' answers: admit_outcome_t where they are the same. */
typedef enum {
    STORE_STATUS_WITHDRAWN = 9,
    STORE_STATUS_CLAIM_CORRUPT = 20,
    STORE_STATUS_KEY_CORRUPT = 21,
} store_status_t;

enum {
    STORE_BAD_CLAIM = 1,
    STORE_BAD_SLOTS = 2,
    STORE_BAD_RATE = 4,
    STORE_BAD_RUNS = 8,
    STORE_BAD_LOG = 16,
    STORE_BAD_TOTAL_RATE = 32,
    STORE_BAD_BILL = 64, /* day, holds or held */
    STORE_BAD_RUN = 128,
    STORE_BAD_ALL = 255,
};

typedef struct store_settling store_settling_t;

/* Settlements Redis has not taken yet, oldest first. */
typedef struct {
    store_settling_t *_head, *_tail;
    size_t count;       /* at most STORE_RETRY_MAX */
    size_t withdrawals; /* of those; at most STORE_WITHDRAWALS_MAX */
    size_t bytes;
    size_t in_flight, bytes_in_flight; /* of those listed */
    size_t window;                     /* 1 while probing */
    redis_t *redis;                    /* the connection they share, so that they arrive in order */
    uint64_t dropped;                  /* refused for want of room */
    loop_timer_t timer;
} store_retry_t;

/* Redis reads about 20 KB of one connection before it syncs its file, ten runs' worth, and serves all connections
 * between two syncs: several make the group that shares a sync larger. What concerns one run goes over one connection
 * while that is up, so it arrives in order; while it is not, over another. */
enum { STORE_LINKS = 12 };
typedef struct {
    store_t *store;
    redis_t *redis;
    bool up;
} store_link_t;

typedef struct {
    size_t len;
    char text[STORE_PREFIX_MAX + 1];
} store_prefix_t;

/* Looking for what dead copies left: how often, and for how long the store must have been up. */
enum { STORE_SWEEP_MS = 3000, STORE_SWEEP_UP_MS = 3 * STORE_SWEEP_MS };
typedef struct {
    redis_script_t script;
    loop_timer_t timer;
    uint32_t up_ms; /* that the store has been up, in whole looks; at most STORE_SWEEP_UP_MS */
} store_sweep_t;

/* store_renew.c: leases held here, those renewed longest ago first, and the batch of them that is under way. */
enum { STORE_RENEW_BATCH = 32 }; /* Redis serves nobody else for less than 1 ms */
typedef struct {
    redis_script_t script;
    loop_timer_t timer;
    store_lease_t *_head, *_tail;
    size_t count;
    bool in_flight;
    uint64_t sent_us;
    size_t batch_count;
    store_lease_t *batch[STORE_RENEW_BATCH]; /* NULL: dropped meanwhile */
} store_renew_t;

struct store {
    uint32_t magic;
    loop_t *loop;
    store_prefix_t root;
    store_link_t links[STORE_LINKS];
    unsigned links_up;
    redis_subscription_t *subscription;
    store_callbacks_t callbacks;
    redis_script_t admit, settle, runs, receipts, receipt, usage, usage_all;
    uint64_t run_ttl_ms, answer_ttl_ms;
    size_t answer_max;
    store_retry_t retry;
    store_spool_t spool;
    store_sweep_t sweep;
    store_renew_t renew;
    size_t settling; /* settlements alive: in flight or listed */
    /* A command timed out and nothing was answered since. While something waits to be retried, and so probes,
     * admissions are not even sent: each would only be one more to take back. */
    bool silent;
    bool refusing; /* Redis answers, and takes no run: store_refused */
    loop_timer_t refusing_timer;
    uint64_t receipts_dropped;
    bool closing;
};

/* store_error.c */
typedef enum {
    STORE_ERROR_COMMAND, /* what was asked for, or a key of it */
    STORE_ERROR_NODE,    /* the node asked; the connection sees to it by itself */
    STORE_ERROR_SERVER,  /* the whole of Redis, over any connection: full, MISCONF, no right */
} store_error_t;
store_error_t store_error_of(const char *err);

/* store.c: an admission was answered with an error. Of STORE_ERROR_SERVER the store
 * counts as away, as nothing can run, until a write of nothing is taken, which is tried every
 * STORE_REFUSING_MS. */
enum { STORE_REFUSING_MS = 500 };
void store_refused(store_t *store, const char *why);
/* store.c: the connection for what is named by an id (lowercase hex); one that is up if any is. */
redis_t *store_redis_for(store_t *store, const char *id);

/* store_keys.c */
/* Of a caller's keys; `caller` NULL: of the installation's own. */
store_prefix_t store_prefix(const store_t *store, const char *caller);
/* prefix + name + id; all of it must fit, which it does for ids of STORE_ID. `id` may be "". Returns the length. */
size_t store_key(char out[STORE_CLAIM_KEY_MAX], const store_prefix_t *prefix, const char *name, const char *id);
/* Exactly `len` lowercase hex digits and the end. */
bool store_is_hex(const char *text, size_t len);
bool store_is_hexn(const char *base, size_t have, size_t len);
/* 2 * `bytes` lowercase hex digits to bytes and back; the text gets a NUL. */
void store_raw_of(const char *hex, size_t bytes, uint8_t *out);
void store_hex_of(const uint8_t *raw, size_t bytes, char *out);
uint64_t store_amount(uint64_t amount); /* cut to STORE_AMOUNT_MAX */
/* 1 to max of [a-z0-9_-]. */
bool store_is_word(const char *base, size_t len, size_t max);
void store_log_corrupt(const char *key);
/* 1 to STORE_INSTALLATION_MAX of [a-z0-9-]. */
bool store_is_installation(const char *name);

/* Keys first, then arguments; not owned. */
enum { STORE_ARGS_MAX = 3 + 29 };
typedef struct {
    int nkeys, argc;
    const char *base[STORE_ARGS_MAX];
    size_t len[STORE_ARGS_MAX];
} store_argv_t;
void store_argv_add(store_argv_t *args, const char *base, size_t len);
/* `text` is the caller's, 24 bytes. */
void store_argv_add_number(store_argv_t *args, char text[STORE_NUMBER_MAX], uint64_t number);

/* store_settle.c */
struct store_settling {
    uint32_t magic;
    store_t *store;
    store_settling_t *_next, *_prev;
    bool listed, in_flight, withdraws;
    store_settled_cb cb; /* NULL once called */
    void *data;
    loop_task_t task;    /* an answer without Redis */
    char link_id[2];     /* chooses the connection: as the run's admission */
    uint64_t not_before; /* monotonic ms */
    int nkeys, argc;
    size_t at[STORE_ARGS_MAX], len[STORE_ARGS_MAX]; /* in `block` */
    size_t answer_len;                              /* of the last argument, if not 0; at the end of the block */
    int age_at;                                     /* the argument that each sending sets */
    char age[STORE_NUMBER_MAX];
    int64_t ended_unix_ms;
    size_t size; /* bytes it costs to keep */
    char *block;
    store_spooled_t spooled;
};
void store_settling_send(store_settling_t *s, redis_t *redis, uint32_t deadline_ms);
void store_settling_free(store_settling_t *s);
/* One that is sent to Redis; the settlement is copied. */
store_settling_t *store_settling_of(store_t *store, const store_settlement_t *settlement);
/* The stored output, `answer_len` bytes. */
const char *store_settling_answer(const store_settling_t *s);
/* Gives the stored output up, keeps the record. */
void store_settling_drop_answer(store_settling_t *s);
/* Takes back an admission that Redis did not answer; `request_id` NULL = unkeyed. */
void store_withdraw(store_t *store, const store_settlement_t *refusal);

/* store_sweep.c */
void store_sweep_init(store_t *store);
void store_sweep_dispose(store_t *store);

/* store_renew.c */
extern const char STORE_LUA_RENEW[];
void store_renew_init(store_t *store);
void store_renew_dispose(store_t *store);

/* store_retry.c */
void store_retry_init(store_t *store);
void store_retry_dispose(store_t *store);
/* Takes the settlement over; false: no room, the caller frees it. */
bool store_retry_add(store_t *store, store_settling_t *s);
/* Sends what is due, in order. */
void store_retry_step(store_t *store);
/* What became of a listed one that was in flight: taken ones leave the list and are freed. */
void store_retry_taken(store_t *store, store_settling_t *s);
void store_retry_failed(store_t *store, store_settling_t *s, bool answered);

/* store_run.c: the value of a run's key. */
/* What the settling script writes before the value handed to it: version and place in the log. */
enum { STORE_RUN_HEAD = 7 };
enum { STORE_RUN_MAX = 64 * 1024 }; /* bytes of a value that are read; the largest written has a quarter of it */
enum { STORE_RUN_TEXTS = 13, STORE_TEXT_RECORD_SHA256 = 6 };
/* A record that is not kept as it is has at most 5 digests, 2 names and 4 texts of 256 bytes each and some numbers; of
 * it the 4 texts and two bytes are kept. */
enum {
    STORE_RECORD_TEXTS = 4,
    STORE_RECORD_MAX = 4096,
    STORE_RECORD_CODED_MAX = 2 + STORE_RECORD_TEXTS * (2 + 256),
};
enum { STORE_STRING_MAX = 256 }; /* bytes of one text of a run that are kept */
typedef struct {
    store_run_t run;
    char text[STORE_RUN_TEXTS][STORE_STRING_MAX + 1];
    uint8_t packed[STORE_RECORD_MAX]; /* the record, where it had to be made again */
} store_run_text_t;
/* The value with no place in the log; `*out` is the caller's to free. */
void store_run_pack(const store_settlement_t *settlement, uint8_t **out, size_t *len);
/* NULL, or why the bytes are not a run. `record` points into `base` or `out`; `caller` is "": the key knows. */
const char *store_run_unpack(const char *run_id, const uint8_t *base, size_t len, store_run_text_t *out);

/* store_text.c. Reading gives NULL when the text does not end within `end` or has more than a text may. */
uint8_t *store_text_put(uint8_t *at, const char *text); /* at most 2 + STORE_STRING_MAX bytes */
const uint8_t *store_text_get(const uint8_t *at, const uint8_t *end, char out[STORE_STRING_MAX + 1]);

/* store_run_record.c. NULL: it is to be kept as it is. `is_derived`: its digest need not be kept. */
uint8_t *store_run_record_put(uint8_t *at, const store_settlement_t *settlement, bool *is_derived);
/* From the run's texts and what was kept; NULL, or what is wrong. */
const char *store_run_record_get(const uint8_t *at, const uint8_t *end, bool is_derived, store_run_text_t *out);

/* store_leaf.c: what the log has of a run: 32 bytes. */
void store_leaf(const store_settlement_t *settlement, uint8_t out[STORE_SHA / 2]);

/* The caps' numbers as the scripts take them. */
typedef struct {
    int64_t interval_us; /* between two runs at the rate; 0 = no limit */
    uint32_t burst;
} store_pace_t;
store_pace_t store_pace(uint32_t rate_per_min, uint32_t burst);
/* us of Redis time as whole ms, rounded up: waiting that long is always enough. */
uint32_t store_ceil_ms(long long us);

/* store_read_lua.c */
extern const char STORE_LUA_RUNS[], STORE_LUA_RECEIPTS[], STORE_LUA_RECEIPT[], STORE_LUA_USAGE[], STORE_LUA_USAGE_ALL[];

#endif
