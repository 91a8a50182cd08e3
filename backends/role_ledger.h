/*
 * The role's part of the ledger: what a wall calls around each of its sandboxes, and the janitor, which sees to it that
 * every sandbox of the installation ends (docs/ledger.md). One a role; on its loop.
 *
 * A wall asks before it sends a create, says the provider's ID when it knows it, and says when the sandbox is
 * confirmed gone. What happens to the process in between does not matter: the entry stays until somebody has confirmed
 * the absence.
 */
#ifndef BACKENDS_ROLE_LEDGER_H
#define BACKENDS_ROLE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/loop.h"
#include "records/ledger_entry.h"

typedef struct role_ledger role_ledger_t;

enum {
    ROLE_LEDGER_ITEMS_MAX = 8192,     /* sandboxes of one role not known to be gone; no further one is asked for */
    ROLE_LEDGER_FIRST_WAIT_MS = 2000, /* at the start an ask waits this long for Redis to be connected */
    ROLE_LEDGER_RETRY_MIN_MS = 200,   /* pause after a write that Redis did not take; doubles, with jitter */
    ROLE_LEDGER_RETRY_MAX_MS = 5 * 1000,
    ROLE_LEDGER_END_MS = 3 * 1000,  /* at the end: for the last removals to be written */
    JANITOR_ROUND_MS = 5 * 1000,    /* between two looks at the ledger */
    JANITOR_LIST_MS = 60 * 1000,    /* between two listings at the provider */
    JANITOR_LISTED_MAX = 4096,      /* sandboxes of one listing that are looked at */
    JANITOR_ADOPTED_AT_ONCE = 64,   /* adoptions a round */
    JANITOR_WORKERS = 4,            /* removals at once, unless the wall says otherwise */
    JANITOR_ATTEMPT_MS = 15 * 1000, /* one removal, and one listing */
    JANITOR_RETRY_MIN_MS = 1000,    /* after a removal that did not confirm; doubles, with jitter */
    JANITOR_RETRY_MAX_MS = 60 * 1000,
    JANITOR_UNSEEN_MS = 2 * 1000,              /* between looks for one that may still come to be */
    JANITOR_EXPIRED_MARGIN_MS = 5 * 60 * 1000, /* past its deadline a sandbox of a host that is gone is anybody's */
    JANITOR_FLUSH_MS = 15 * 1000,              /* at the end, for removals under way */
};

/* What a wall knows after one try to remove a sandbox. */
typedef enum {
    SANDBOX_GONE,   /* the provider confirmed that it is not there */
    SANDBOX_UNSEEN, /* not seen, which proves nothing yet: its creation or its end may still be under way */
    SANDBOX_THERE,  /* there, or not known */
} sandbox_removal_t;

/* One found by listing. */
typedef struct {
    char stamp[LEDGER_STAMP + 1];
    char id[LEDGER_PROVIDER_ID_MAX + 1];
} sandbox_seen_t;
typedef void (*sandbox_seen_cb)(void *data, const sandbox_seen_t *seen);

/* What a wall that keeps the ledger can do (backend_ops_t.sandboxes). `self` is the wall. */
typedef struct {
    bool is_local; /* its sandboxes are this machine's: only a role of the same host can reach them */
    /* A sandbox that is not seen counts as gone when its creation was asked for this long ago: later than its provider
     * may still bring it forth. */
    uint32_t unseen_ms;
    /* An entry younger than this is left alone when its instance is dead: its creation may be under way. */
    uint32_t settle_ms;
    uint32_t workers; /* removals at once; 0 = JANITOR_WORKERS */
    /* In a coroutine that may be canceled: one try to delete it and to confirm that it is gone, by its ID, or by its
     * stamp where the ID is not known. An ID that was found goes to `id`. */
    sandbox_removal_t (*remove)(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                char why[LEDGER_ERROR_MAX + 1]);
    /* Instead of `remove`, for a wall with a removal of its own: sees to it that it goes, and says role_ledger_gone.
     * May be told of one more than once. */
    void (*condemn)(void *self, const ledger_entry_t *entry);
    /* In a coroutine; NULL: the wall looks by itself. Every sandbox that carries `installation`; false when the listing
     * is not whole. */
    bool (*list)(void *self, const char *installation, sandbox_seen_cb found, void *data,
                 char why[LEDGER_ERROR_MAX + 1]);
    /* NULL: only the lease tells. False: an instance of this host is certainly dead. */
    bool (*is_alive)(void *self, const char *instance);
    /* NULL: everywhere. What IDs are names in, as in ledger_entry_t.place; "" = not known yet. */
    const char *(*place)(void *self);
} backend_sandboxes_t;

/* --- what a wall calls; all but ask at any time, and harmless with NULL for the ledger --- */

typedef struct {
    uint64_t life_ms;         /* how long it may exist */
    const char *run, *caller; /* NULL: none yet */
    uint64_t price_micro;     /* an hour; 0 = none known */
    bool is_trial;            /* the wall's own proof of itself: on a local, unbilled wall it needs no Redis */
} role_ledger_ask_t;

/* In a coroutine: the entry is confirmed written, and `stamp` names the sandbox. False with the reason: no create may
 * be sent. On a local wall that does not bill the sandbox's own labels can stand in while Redis is away
 * (PLIMSOLL_REDIS_DOWN=serve, and trials): then it is true as well, and the entry follows. */
bool role_ledger_ask(role_ledger_t *ledger, const role_ledger_ask_t *ask, char stamp[LEDGER_STAMP + 1],
                     char why[LEDGER_ERROR_MAX + 1]);
/* The provider's ID. */
void role_ledger_name(role_ledger_t *ledger, const char *stamp, const char *id);
/* Whether a sandbox other than `stamp` that is not confirmed gone has the provider's ID `id`. */
bool role_ledger_knows(const role_ledger_t *ledger, const char *stamp, const char *id);
/* It now serves this run. */
void role_ledger_serve(role_ledger_t *ledger, const char *stamp, const char *run, const char *caller);
/* So much of its time the run's answer told. */
void role_ledger_report(role_ledger_t *ledger, const char *stamp, uint64_t reported_ms);
/* The wall has no more use for it: of a wall with `remove` the janitor deletes it from here on. */
void role_ledger_release(role_ledger_t *ledger, const char *stamp);
/* A try to remove it did not confirm its absence. */
void role_ledger_failed(role_ledger_t *ledger, const char *stamp, const char *why);
/* Its absence is confirmed. Also of one that this role never knew. */
void role_ledger_gone(role_ledger_t *ledger, const char *stamp);
/* Its create was certainly not sent, or certainly refused: there never was one, and it costs nothing. */
void role_ledger_void(role_ledger_t *ledger, const char *stamp);
/* Ms since its creation was asked for; 0 when it is not known. */
uint64_t role_ledger_age_ms(role_ledger_t *ledger, const char *stamp);
/* Whether one of this role is not confirmed to be gone, and how many are not: those in use, those being removed, and
 * those that were taken over. */
bool role_ledger_is_live(const role_ledger_t *ledger, const char *stamp);
size_t role_ledger_live(const role_ledger_t *ledger);
/* Whether one that was released is gone, or its first removal has been tried: the provider was told. */
bool role_ledger_is_tried(const role_ledger_t *ledger, const char *stamp);
/* `on_gone` (NULL: nobody) is called whenever one is gone; it may only wake somebody. */
void role_ledger_on_gone(role_ledger_t *ledger, void (*on_gone)(void *data), void *data);
/* The installation's identity, for labels; "" while it is not known. */
const char *role_ledger_installation(const role_ledger_t *ledger);
/* Whether an identity is another installation's. False while ours is not known. */
bool role_ledger_is_foreign(const role_ledger_t *ledger, const char *installation);

/* --- what the role calls --- */

typedef struct {
    const char *backend; /* literals */
    bool is_billed;
    const backend_sandboxes_t *sandboxes;
    char instance[LEDGER_INSTANCE + 1];
    void (*on_up)(void *data); /* Redis is there (again); may be NULL */
    void *data;
} role_ledger_settings_t;

/* Reads the settings of the records' Redis, files included: before root is dropped. Opens nothing. NULL with the
 * reason. */
role_ledger_t *role_ledger_create(loop_t *loop, const role_ledger_settings_t *settings, char why[LEDGER_ERROR_MAX + 1]);
/* Connects, and starts the janitor. `wall` until role_ledger_end. */
void role_ledger_begin(role_ledger_t *ledger, void *wall);
/* In a coroutine: no run is left. Removals under way get JANITOR_FLUSH_MS; after that no hook is called any more. */
void role_ledger_end(role_ledger_t *ledger);
/* In a coroutine, the wall being gone: what it said last is written, and what it could not remove is left to others. */
void role_ledger_leave(role_ledger_t *ledger);
void role_ledger_destroy(role_ledger_t *ledger);

#endif
