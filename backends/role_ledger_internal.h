/* What the files of the role's ledger share. */
#ifndef BACKENDS_ROLE_LEDGER_INTERNAL_H
#define BACKENDS_ROLE_LEDGER_INTERNAL_H

#include "backends/role_ledger.h"
#include "core/co.h"
#include "records/ledger.h"

enum {
    ROLE_LEDGER_MAGIC = 0x726c6467,
    ITEM_MAGIC = 0x6974656d,
    ITEM_BUCKETS = 4096,   /* by the last three digits of the stamp, which are random */
    METERS_ALL_MAX = 256,  /* with more sandboxes than these they are not counted at every change ... */
    METERS_PAUSE_MS = 100, /* ... but as often as this, and at the next tick */
};

/* A sandbox not known to be gone, as this role knows it; Redis follows. */
typedef struct item {
    unsigned magic;
    role_ledger_t *ledger;
    ledger_entry_t entry;
    uint64_t asked_ms; /* monotonic, of its creation */
    uint64_t life_ms;
    uint64_t released_ms; /* monotonic; 0 = the wall has use for it */
    /* Redis */
    bool is_written; /* as far as known an entry stands there */
    bool may_be_written;
    bool is_dirty; /* it does not say what this does */
    bool is_writing;
    bool is_seen;        /* in the janitor's present reading */
    bool is_taken;       /* another instance answers for it */
    bool never_was;      /* and is gone */
    bool is_gone;        /* absence confirmed: the entry is to go */
    uint64_t written_ms; /* monotonic, of the last write that was taken */
    uint64_t write_due_ms;
    uint32_t write_pause_ms;
    co_t *asker; /* waits for the first write */
    bool has_answer;
    ledger_status_t answer;
    /* the janitor's */
    co_t *worker;
    uint64_t due_ms;
    uint32_t pause_ms;
    sandbox_removal_t removal;
    bool has_been_tried; /* to be removed */
    char found_id[LEDGER_PROVIDER_ID_MAX + 1], why[LEDGER_ERROR_MAX + 1];
    bool is_operators; /* somebody condemned it while the wall had use for it */
    struct item *next, *next_in_bucket;
} item_t;

/* One round of the janitor: what was listed and what stands in the ledger. */
typedef struct {
    sandbox_seen_t *seen;
    bool *is_known; /* of each seen: the ledger or this role has it */
    size_t seen_count;
    bool is_listed;
    ledger_entry_t *others; /* of other instances */
    bool *is_other_alive;
    size_t other_count, other_cap;
    /* the call under way */
    bool has_answer, is_read;
    uint64_t next_cursor;
    int64_t now_ms;
    ledger_status_t status;
    bool alive[LEDGER_INSTANCES_MAX];
} janitor_round_t;

struct role_ledger {
    unsigned magic;
    loop_t *loop;
    role_ledger_settings_t settings;
    void *wall; /* NULL: no hook is called */
    redis_address_t address;
    char name[LEDGER_BACKEND_MAX + 1]; /* PLIMSOLL_INSTALLATION */
    char host[LEDGER_HOST_MAX + 1];
    char installation[LEDGER_STAMP + 1];
    bool serves_without_redis;
    ledger_t *store;
    bool is_up; /* connected, and the identity is known */
    uint64_t begun_ms;
    item_t *items, *buckets[ITEM_BUCKETS];
    uint64_t metered_ms;           /* monotonic: when they were counted */
    size_t item_count, live_count; /* live: not confirmed to be gone */
    void (*on_gone)(void *data);
    void *on_gone_data;
    loop_timer_t beat_timer, write_timer, work_timer;
    co_t *janitor;
    bool is_ending, has_left;
    unsigned ticks;
    bool is_look_wanted;
    uint64_t listed_ms; /* monotonic, of the last whole listing; 0 = never */
    janitor_round_t *round;
    size_t working;
    co_t *waiter;           /* for the end */
    uint64_t unreleased_ms; /* sum */
};

void role_ledger_check(const role_ledger_t *ledger);

/* role_ledger_items.c */
item_t *role_ledger_find(const role_ledger_t *ledger, const char *stamp);
/* A new item of this instance; NULL past ROLE_LEDGER_ITEMS_MAX. */
item_t *role_ledger_item(role_ledger_t *ledger, const char *stamp);
/* Its absence is confirmed. May free it. */
void role_ledger_item_gone(item_t *item);
/* Writes what Redis has not taken of it, when that can be. May free it. */
void role_ledger_item_send(item_t *item);
void role_ledger_send_all(role_ledger_t *ledger);
void role_ledger_on_write_timer(loop_timer_t *timer);
/* What it says has changed. */
void role_ledger_item_changed(item_t *item);
void role_ledger_meters(role_ledger_t *ledger);
/* Jitter: between a half and the whole. */
uint32_t role_ledger_jitter(uint32_t ms);

/* role_ledger_janitor.c */
void janitor_begin(role_ledger_t *ledger);
/* A look as soon as possible. */
void janitor_look(role_ledger_t *ledger);
void janitor_end(role_ledger_t *ledger);
/* Whether a dead instance's entry is this role's to take over. Pure. */
typedef struct {
    const char *host, *place;
    bool is_local, is_lease_over, is_surely_dead;
    int64_t now_ms;
    uint32_t settle_ms;
} janitor_view_t;
bool janitor_is_due(const ledger_entry_t *entry, const janitor_view_t *view);

/* role_ledger_remove.c: removals of walls that have none of their own. */
void removal_pump(role_ledger_t *ledger);
void removal_on_timer(loop_timer_t *timer);
/* Released ones that are not known to be gone. */
size_t removal_pending(const role_ledger_t *ledger);
/* Cancels what is under way and waits for it. */
void removal_end(role_ledger_t *ledger);
/* The pause before a further try, after so many. */
uint32_t removal_pause_ms(uint32_t tries);

#endif
