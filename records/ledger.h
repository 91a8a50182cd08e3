/*
 * The ledger of sandboxes in Redis: one entry from before a sandbox's creation is asked for until its absence is
 * confirmed, and a lease for each process that answers for entries. Shared by every copy of an installation; a hash a
 * backend. Keys, words and lifetimes: docs/ledger.md. Callbacks come on the loop, exactly once, never before the call
 * returned. What is written here is written by scripts that may be repeated.
 */
#ifndef RECORDS_LEDGER_H
#define RECORDS_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"
#include "core/redis.h"
#include "records/ledger_entry.h"

typedef struct ledger ledger_t;

enum {
    LEDGER_LEASE_MS = 15 * 1000, /* an instance not heard of for this long is dead */
    LEDGER_BEAT_MS = 5 * 1000,   /* three beats a lease: two may be lost */
    LEDGER_WRITE_MS = 1000,      /* one write or look */
    LEDGER_ENTRIES_MAX = 16384,  /* of a backend; no further sandbox is asked for */
    LEDGER_PAGE = 200,           /* entries about, of one look */
    LEDGER_PAGE_MAX = 2048,      /* more than that at once is not read: a page of a small hash is all of it (512) */
    LEDGER_INSTANCES_MAX = 256,  /* asked about at once */
};

typedef enum {
    LEDGER_DONE = 0,
    LEDGER_ABSENT = 1,    /* there is no such entry */
    LEDGER_TAKEN = 2,     /* another instance has it */
    LEDGER_FULL = 3,      /* LEDGER_ENTRIES_MAX */
    LEDGER_CORRUPT = 4,   /* what stands there is no entry; left as it is, named in the log */
    LEDGER_ALIVE = 5,     /* its instance's lease has not ended */
    LEDGER_NOT_WRITTEN,   /* Redis refused, or was not asked */
    LEDGER_MAYBE_WRITTEN, /* Redis was asked and did not answer */
} ledger_status_t;
const char *ledger_status_name(ledger_status_t status);

/* `address` and `installation` are copied; `on_state` as redis_create. */
ledger_t *ledger_create(loop_t *loop, const redis_address_t *address, const char *installation,
                        void (*on_state)(void *data, bool up, const char *reason), void *data);
/* Calls under way are told LEDGER_MAYBE_WRITTEN. */
void ledger_destroy(ledger_t *ledger);
bool ledger_is_up(const ledger_t *ledger);

/* The installation's identity on its sandboxes, made by whoever asks first. NULL: Redis did not say, or it is none.
 * `known`: what it was ("" = not known yet), which is put back into a Redis that has lost its data. */
typedef void (*ledger_identity_cb)(void *data, const char *stamp);
void ledger_identity(ledger_t *ledger, const char *known, ledger_identity_cb cb, void *data);

/* `created_ms`: Redis' clock, as the entry has it. */
typedef struct {
    ledger_status_t status;
    int64_t created_ms, now_ms;
    bool is_condemned;                  /* PUT: somebody wants it gone */
    uint64_t existed_ms, unreleased_ms; /* REMOVE */
} ledger_answer_t;
typedef void (*ledger_cb)(void *data, const ledger_answer_t *answer);

/* Writes an entry as its instance knows it: instance, host, place, is_billed, run, caller, id, tries, error and state
 * (whether it is condemned) count. One that is not there is made, created `age_ms` ago and to be gone `life_ms` after
 * that; `is_new` says that this is its first. */
void ledger_put(ledger_t *ledger, const char *backend, const ledger_entry_t *entry, uint64_t age_ms, uint64_t life_ms,
                bool is_new, ledger_cb cb, void *data);
/* Its absence is confirmed, and it is charged for. `unreleased_ms`: since it was to go, as far as the caller knows.
 * `never_was`: its create was certainly not sent or certainly refused, so it costs nothing. */
void ledger_remove(ledger_t *ledger, const char *backend, const char *stamp, uint64_t unreleased_ms, bool never_was,
                   ledger_cb cb, void *data);
/* `entry` as it was read. `is_dead`: known by more than its lease. */
void ledger_adopt(ledger_t *ledger, const char *backend, const ledger_entry_t *entry, const char *instance,
                  const char *host, bool is_dead, ledger_cb cb, void *data);
void ledger_condemn(ledger_t *ledger, const char *backend, const char *stamp, ledger_cb cb, void *data);

/* A page; entries are valid during the callback. `cursor` 0 begins, `next_cursor` 0 ends. An entry may come twice.
 * Corrupt ones are left out, counted and named in the log. */
typedef struct {
    bool is_read; /* false: Redis did not say */
    int64_t now_ms;
    uint64_t next_cursor;
    const ledger_entry_t *entries;
    size_t count, corrupt;
} ledger_page_t;
typedef void (*ledger_page_cb)(void *data, const ledger_page_t *page);
void ledger_scan(ledger_t *ledger, const char *backend, uint64_t cursor, ledger_page_cb cb, void *data);

/* Which of up to LEDGER_INSTANCES_MAX instances have a lease; `alive` NULL: Redis did not say. */
typedef void (*ledger_instances_cb)(void *data, const bool *alive, size_t count);
void ledger_instances(ledger_t *ledger, const char (*ids)[LEDGER_INSTANCE + 1], size_t count, ledger_instances_cb cb,
                      void *data);
/* Renews an instance's lease; fire and forget. Ends it. */
void ledger_beat(ledger_t *ledger, const char *instance);
void ledger_leave(ledger_t *ledger, const char *instance, ledger_cb cb, void *data);

/* The scripts, for the tests: FORM stands before each of the others but SCAN's use of it too. */
extern const char LEDGER_LUA_FORM[], LEDGER_LUA_PUT[], LEDGER_LUA_ADOPT[], LEDGER_LUA_CONDEMN[], LEDGER_LUA_REMOVE[],
    LEDGER_LUA_SCAN[];

#endif
