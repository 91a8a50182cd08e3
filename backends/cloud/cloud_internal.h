/* Inside the shared part of the cloud walls: what its files share. */
#ifndef BACKENDS_CLOUD_CLOUD_INTERNAL_H
#define BACKENDS_CLOUD_CLOUD_INTERNAL_H

#include "backends/cloud/cloud.h"
#include "core/co.h"

enum {
    CLOUD_MAGIC = 0x636c6f75,
    CLOUD_RETRY_MS = 1000,   /* when to come again, of a refusal that does not know better */
    CLOUD_DROP_MS = 500,     /* an answer after a failure waits this long for the first deletion to be answered */
    CLOUD_DROP_LOOK_MS = 5,  /* between two looks at that */
    CLOUD_RATE_SECONDS = 10, /* so many seconds' worth of creates may be asked for at once */
    CLOUD_TIMEOUT_DEFAULT_MS = 30 * 1000,
    CLOUD_SMOKE_PAUSE_MIN_MS = 60 * 1000, /* between two trials, which are billed; doubles while they fail */
    CLOUD_SMOKE_PAUSE_MAX_MS = 15 * 60 * 1000,
    CLOUD_PREFLIGHT_MS = 15 * 1000,
};

/* One that waits for a sandbox's place. */
typedef struct cloud_waiter {
    co_t *co;
    const char *caller;
    unsigned rank; /* how many of its caller's waited already: the turn goes round the callers */
    bool has_place;
    struct cloud_waiter *next;
} cloud_waiter_t;

struct cloud {
    unsigned magic;
    cloud_settings_t settings;
    uint32_t capacity, timeout_max_ms;
    uint64_t smoke_interval_ms;
    /* places */
    cloud_waiter_t *waiters;
    size_t reserved; /* places that were given and are not in the ledger yet */
    uint32_t creates_per_minute;
    uint64_t tokens_milli; /* thousandths of a create that may be asked for now */
    uint64_t tokens_ms;    /* monotonic: as of */
    loop_timer_t token_timer;
    /* evidence */
    uint64_t seen_us;       /* monotonic: the last read-back that held; 0 = none */
    uint64_t smoke_us;      /* the last trial that held */
    uint64_t smoke_next_us; /* none before this */
    uint32_t smoke_pause_ms, smoke_pause_min_ms, smoke_pause_max_ms;
    bool is_suspect;
    bool has_python;
    char smoke_failure[BACKEND_TEXT_MAX]; /* of the last one, if it failed */
    bool is_smoke_untried;                /* and had learnt nothing */
    char suspicion[BACKEND_TEXT_MAX];
};

void cloud_check(const cloud_t *cloud);

/* cloud_place.c */
void cloud_place_init(cloud_t *cloud);
void cloud_place_end(cloud_t *cloud);
/* In a coroutine: waits for a place and for the rate of creates; in turn. True: reserved until cloud_place_used. False
 * with a text. */
bool cloud_place_take(cloud_t *cloud, const char *caller, uint64_t until_us, const char **why);
/* The ledger counts it now, or it is not used. */
void cloud_place_used(cloud_t *cloud);

/* cloud_box.c: a sandbox from the ledger to its release, of a run or a trial. */
/* Asks for a place and for the ledger's entry. False with a text: nothing was asked of the provider. */
bool cloud_box_open(cloud_t *cloud, cloud_box_t *box, char why[LEDGER_ERROR_MAX + 1]);
typedef enum { BOX_MADE, BOX_NONE, BOX_MAYBE } cloud_made_t;
/* BOX_NONE: certainly none was made, and the ledger's entry is gone. BOX_MAYBE: it is released. BOX_MADE may come with
 * a trouble: it was made and is of no use; release it. */
cloud_made_t cloud_box_create(cloud_box_t *box, cloud_trouble_t *trouble);
/* For the janitor to delete. Waits, when `is_first_tried`, for its first try. */
void cloud_box_release(cloud_box_t *box, bool is_first_tried);

/* cloud_look.c: the check of a sandbox in a coroutine of its own. */
typedef struct cloud_look {
    cloud_box_t *box;
    co_t *co, *waiter; /* co: NULL when it is over */
    cloud_trouble_t trouble;
    bool holds;
} cloud_look_t;
/* In a coroutine; cloud_look_end follows before it ends. */
void cloud_look_begin(cloud_look_t *look, cloud_box_t *box);
/* Cancels what is still under way and waits for its end. False: it has said nothing. */
bool cloud_look_end(cloud_look_t *look);

/* cloud_steps.c */
typedef struct {
    cloud_trouble_t trouble; /* CLOUD_FINE: the result is whole */
    bool is_canceled;
} cloud_executed_t;
/* Steps in order, until one fails, the time is over or no verdict will come. Fills result->steps and outcome. */
void cloud_execute(cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result, cloud_executed_t *out);
void cloud_result_init(guest_result_t *result, const cloud_plan_t *plan);
void cloud_result_dispose(guest_result_t *result);

/* cloud_smoke.c: a sandbox of our own, tried for real. False with the reason. */
typedef struct {
    bool is_untried; /* nothing was learnt of the wall */
    bool is_billed;  /* a sandbox may have been made */
} cloud_smoked_t;
bool cloud_smoke(cloud_t *cloud, cloud_smoked_t *out, char failure[BACKEND_TEXT_MAX]);

#endif
