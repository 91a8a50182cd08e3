/*
 * What the walls on somebody else's machines share: the way of a run from its request to its answer and of its sandbox
 * from the ledger to its end, a wall's trial of itself, and the rule which trouble means that nothing ran. A provider
 * implements cloud_ops_t, in calls that each honour a deadline and a cancel; its backend_ops_t passes run and prove on.
 */
#ifndef BACKENDS_CLOUD_CLOUD_H
#define BACKENDS_CLOUD_CLOUD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/cloud/cloud_http.h"
#include "backends/cloud/cloud_plan.h"
#include "backends/guest/host.h"
#include "config/provider.h"

enum {
    CLOUD_LIFE_MARGIN_MS = 10 * 1000, /* of a sandbox's life beyond what it is for: a dead gateway costs no more */
    CLOUD_SMOKE_MS = 120 * 1000,      /* a wall's trial of itself, its sandbox's end included: backend_ops_t.proof_ms */
    CLOUD_SMOKE_STEP_MS = 20 * 1000,  /* of the code of the trial */
};

typedef struct cloud cloud_t;

/* --- one sandbox: of a run, or of a wall's trial of itself (run == NULL) --- */
typedef struct {
    char stamp[LEDGER_STAMP + 1];        /* in the ledger, and on the sandbox at its provider */
    char id[LEDGER_PROVIDER_ID_MAX + 1]; /* "" until known; set by `create` through cloud_box_name */
    backend_run_t *run;                  /* NULL: the trial */
    const char *kind;                    /* "run", "smoke": for the provider's labels */
    uint32_t timeout_ms;                 /* of the code: counted from the moment execution begins */
    uint64_t life_ms;                    /* to ask of the provider: how long it may exist if nobody ever ends it */
    uint64_t asked_us;                   /* monotonic: before the create was sent */
    uint64_t deadline_us;                /* monotonic, of the present step */
    uint64_t began_us;                   /* monotonic: execution; 0 before */
    bool is_seen;                        /* `create` was answered: it is or was there */
    struct cloud_look *look;             /* its read-back under way; NULL: over, and it was right */
    void *own;                           /* box_size bytes of the provider's, zeroed */
    cloud_t *cloud;
} cloud_box_t;

/* An answer told its ID: into the box and the ledger. At once, before anything else is made of the answer. False when
 * it is no ID that could go into a path: 1 to 128 of [A-Za-z0-9._:-], not only dots. */
bool cloud_box_name(cloud_box_t *box, const char *id);
/* Waits for the read-back that is under way beside `stage` (cloud_ops_t.is_checked_beside): whether the sandbox is what
 * was asked for. Before anything is started in it. The read-back has the create's deadline; what is waited for it here
 * is added to the box's own. */
bool cloud_box_is_right(cloud_box_t *box, cloud_trouble_t *trouble);
/* It has already said that it is not. */
bool cloud_box_is_wrong(const cloud_box_t *box);
/* Whether another sandbox of this process' ledger has that ID: then an answer that names it is about none of ours. */
bool cloud_box_is_known(const cloud_box_t *box, const char *id);
/* The installation's identity and this process', for labels. */
const char *cloud_box_installation(const cloud_box_t *box);
const char *cloud_box_instance(const cloud_box_t *box);

/* What may still be kept of a run's output. */
typedef struct {
    uint32_t stream_max;  /* of each stream of this step */
    uint32_t output_left; /* of all the run's */
} cloud_limits_t;
/* Keeps what fits and sets the flag when something did not. */
void cloud_output_add(guest_step_t *step, cloud_limits_t *limits, bool is_err, const void *bytes, size_t len);
/* Output past what is carried at all: both flags, exit 153, ended. */
void cloud_output_flood(guest_step_t *step);

/* --- what a provider implements; each in a coroutine --- */
typedef struct {
    const char *name;  /* the backend's: "e2b" */
    const char *title; /* for texts: "E2B" */
    size_t box_size;
    cloud_layout_t layout;
    uint32_t create_ms;  /* at most CLOUD_CREATE_MS */
    uint32_t stage_ms;   /* at most CLOUD_STAGE_MS; 0 = that */
    uint32_t collect_ms; /* at most CLOUD_COLLECT_MS; 0 = that */

    /* True: it runs, and its ID is known. False: NOTHING, BUSY, DENIED, MISSING say that certainly none was made; every
     * other fault that one may be. */
    bool (*create)(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
    /* Reads back what was made, before any byte of a caller's leaves or, with is_checked_beside, while files are handed
     * over. DIFFERS: not the wall that was asked for. */
    bool (*check)(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
    /* The provider's `stage` calls cloud_box_is_right before it starts anything, so `check` may be under way beside it.
     */
    bool is_checked_beside;
    /* Files and directories; verified by size and hash. */
    bool (*stage)(void *self, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble);
    /* One command, to its end or box->deadline_us. True: out->has_ended, with exit code, out->is_timed_out when the
     * provider or the guest ended it for its time; the duration is set by the caller. False: CLOUD_LATE: the deadline
     * came first, and its processes were told to end; else no verdict. What was printed until then is in `out` either
     * way. */
    bool (*step)(void *self, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits,
                 guest_step_t *out, cloud_trouble_t *trouble);
    /* The artifacts there are, into result->artifacts (cloud_artifact_add), and is_artifacts_truncated. A missing one
     * is no trouble. */
    bool (*collect)(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                    cloud_trouble_t *trouble);
    /* Instead of step and collect, for a provider whose guest runner does both; NULL otherwise. Fills result->steps,
     * artifacts, outcome. */
    bool (*execute)(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                    cloud_trouble_t *trouble);
    /* Before the sandbox is released, whatever came: credentials dropped, streams closed. Must not wait. May be NULL.
     */
    void (*leave)(void *self, cloud_box_t *box);

    /* What costs nothing: the credential is accepted, the API answers. UNKNOWN, BUSY, NOTHING and LATE say that nothing
     * was learnt. */
    bool (*preflight)(void *self, uint64_t deadline_us, cloud_trouble_t *trouble);
    /* Of the trial's sandbox, after `check`: what a caller's run never tries (an unauthenticated upload must be
     * refused). May be NULL. */
    bool (*probe)(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
    /* Facts that the configuration and the trial establish (environment, resources, policy), onto what cloud_facts set.
     * May be NULL. */
    void (*facts)(void *self, backend_facts_t *facts);
} cloud_ops_t;

/* Takes the bytes. False (and freed) when they are past what is left of plan->artifacts_max; the flag is then set.
 * Whether later ones are read after that is the provider's. */
bool cloud_artifact_add(guest_result_t *result, const cloud_plan_t *plan, size_t index, buffer_t *content);
/* Bytes of artifacts that still fit. */
size_t cloud_artifacts_left(const guest_result_t *result, const cloud_plan_t *plan);

/* --- the wall --- */

typedef struct {
    const backend_host_t *host;
    const cloud_ops_t *ops;
    void *self; /* of every op */
    tier_t tier;
    uint32_t capacity;           /* sandboxes at once; 0 = host->capacity, which also is the most */
    uint32_t creates_per_minute; /* 0 = SANDBOX_CLOUD_CREATES_PER_MINUTE */
    const char *problem;         /* NULL, or why the configuration runs nothing; borrowed */
} cloud_settings_t;

/* Reads the group "Clouds" of the options. */
cloud_t *cloud_create(const cloud_settings_t *settings);
/* No run and no proof is left. */
void cloud_destroy(cloud_t *cloud);

/* backend_ops_t.describe, prove, run. prove: the free check each time; the billed trial at the start, when something
 * was suspected, and every SANDBOX_CLOUD_SMOKE_INTERVAL. */
void cloud_describe(const cloud_t *cloud, backend_facts_t *facts);
bool cloud_prove(cloud_t *cloud, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX]);
void cloud_run(cloud_t *cloud, backend_run_t *run);
/* What each wall's own object begins with, so that backend_ops_t's functions are the same for all of them. */
typedef struct {
    unsigned magic;
    cloud_t *cloud;
    char
        problem[BACKEND_TEXT_MAX]; /* of the configuration; empty when there is none. Written before cloud_wall_begin */
} cloud_wall_t;
/* cloud_create, `problem` being the wall's. At its end: cloud_destroy(wall->cloud). */
void cloud_wall_begin(cloud_wall_t *wall, cloud_settings_t settings);
/* backend_ops_t.check, describe, prove, run; `self` begins with a cloud_wall_t. */
const char *cloud_wall_problem(void *self);
void cloud_wall_describe(void *self, backend_facts_t *facts);
bool cloud_wall_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX]);
void cloud_wall_run(void *self, backend_run_t *run);

/* The wall may not be what was proven: the next proof tries it for real, and comes soon. */
void cloud_suspect(cloud_t *cloud, const char *why);
/* backend_sandboxes_t.unseen_ms: `usual`, or what the test builds' PLIMSOLL_CLOUD_UNSEEN says. */
uint32_t cloud_unseen_ms(uint32_t usual);
/* For a provider's own long waits: coroutine sleeps until `deadline_us` at most; false when canceled. */
bool cloud_sleep_ms(uint32_t ms, uint64_t deadline_us);

#endif
