/*
 * The one interface of a wall. The role (role.c) owns the connections to the front, the evidence's age, the capacity
 * and the checks that are the same for every wall; a wall owns its sandboxes. What it does for one run reads as five
 * steps (create, stage, execute, collect, delete), each announced with backend_step, so a log line, a metric and a
 * fault point speak of the same thing.
 */
#ifndef BACKENDS_BACKEND_H
#define BACKENDS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.pb-c.h"
#include "backends/role_ledger.h"
#include "core/loop.h"
#include "records/plimsoll.pb-c.h"
#include "records/tier.h"

enum {
    BACKEND_TEXT_MAX = 256,     /* bytes of a text with its NUL: failures, messages, details */
    BACKEND_IDENTITY_MAX = 257, /* the protocol's 256 and the NUL */
    BACKEND_LANGUAGES_MAX = 4,
    BACKENDS_MAX = 12, /* walls known to this program */
};

typedef enum { STEP_NONE, STEP_CREATE, STEP_STAGE, STEP_EXECUTE, STEP_COLLECT, STEP_DELETE, STEP_COUNT } backend_step_t;
/* "create", ...; "" for STEP_NONE. */
const char *backend_step_name(backend_step_t step);

/* One payload kind as the wall serves it. */
typedef struct {
    bool supported;
    uint32_t max_timeout_ms, default_timeout_ms;
    char environment[BACKEND_IDENTITY_MAX];       /* content-addressed, or empty: never a mutable name */
    char software_identity[BACKEND_IDENTITY_MAX]; /* empty unless it can be shown */
    const char *languages[BACKEND_LANGUAGES_MAX]; /* literals; NULL ends the list early */
} backend_kind_t;

/* What a proof established, and what is fixed by the configuration. */
typedef struct {
    tier_t tier;
    bool is_untried; /* of a proof that did not succeed: it could not even be tried, so older evidence keeps its age */
    backend_kind_t javascript, project, module;
    uint32_t memory_mb, pids, disk_mb; /* per run; 0 = the wall's own default */
    double cpus;
    char policy[BACKEND_IDENTITY_MAX];
    const char *evidence; /* a literal: what the tier rests on beside the startup tests; NULL for nothing */
} backend_facts_t;

typedef enum { RUN_OPEN, RUN_DONE, RUN_REFUSED, RUN_FAILED } backend_outcome_t;

/* One run. The role fills the first half, the wall the second through the functions below, exactly once. */
typedef struct {
    const char *run_id, *caller;
    const Plimsoll__V1__RunRequest *request;
    const backend_kind_t *kind; /* of the request's payload, supported */
    tier_t tier;                /* to be stated in the answer */
    uint64_t started_us;        /* monotonic: when the request reached the role */
    uint64_t deadline_us;       /* started_us and the effective timeout */
    uint64_t price_micro_hour;  /* of a billed wall; 0 = none known */

    backend_outcome_t outcome;
    Plimsoll__V1__RunResponse *response; /* RUN_DONE; owned */
    bool is_canceled;                    /* RUN_DONE */
    uint64_t billable_ms;                /* RUN_DONE, billed walls: what the provider counts, as far as known by now */
    Plimsoll__Backend__Refusal refusal;  /* RUN_REFUSED */
    uint32_t retry_after_ms;
    const char *code; /* RUN_FAILED: a Connect code, literal */
    char message[BACKEND_TEXT_MAX], detail[BACKEND_TEXT_MAX];
    backend_step_t step;
    backend_step_t ended_in; /* the last step but the deletion: where a run that failed did so */
    uint64_t _step_us;       /* when the step began */
    uint64_t step_us[STEP_COUNT];
} backend_run_t;

/* Begins a step. True when a fault point armed for it ("backend.create", ...) wants the step to act as failed. */
bool backend_step(backend_run_t *run, backend_step_t step);
/* The answer. Takes the response; sandbox, isolation, environment, software identity and duration are filled in here.
 */
void backend_run_done(backend_run_t *run, const char *name, Plimsoll__V1__RunResponse *response, bool is_canceled);
/* Nothing ran and nothing will. `message` is for the caller, `detail` (may be NULL) for the log; both are cut to fit.
 */
void backend_run_refuse(backend_run_t *run, Plimsoll__Backend__Refusal reason, const char *message, const char *detail);
/* It may have run. */
void backend_run_fail(backend_run_t *run, const char *code, const char *message, const char *detail);

/* What a wall may ask of the role. */
typedef struct {
    loop_t *loop;
    uint32_t capacity;     /* runs at once */
    const char *instance;  /* 16 hex digits: this process, on sandboxes and in the ledger */
    role_ledger_t *ledger; /* NULL for a wall without `sandboxes` */
    /* What the evidence was about has changed (a process was replaced): prove it anew as soon as possible. */
    void (*reprove)(void *data);
    void *data;
} backend_host_t;

/* What of root's a wall's process needs after root was dropped; nothing else is kept. */
typedef struct {
    int group;           /* the only supplementary group; -1 for none */
    bool sees_processes; /* CAP_SYS_PTRACE alone, for links in /proc/PID of other users; ptrace itself stays fatal */
} backend_privileges_t;

typedef struct {
    const char *name;
    bool billed;
    unsigned proof_ms; /* a proof that takes longer has failed; 0 = 30 s */
    /* Of a wall whose sandboxes can outlive this process: the ledger is kept. NULL: they end with it. As
     * provider_keeps_ledger says. */
    const backend_sandboxes_t *sandboxes;
    /* Reads the configuration and takes what must be taken before root is dropped; starts nothing. `host` outlives the
     * wall. Never NULL: what is wrong is told by `check`. */
    void *(*setup)(const backend_host_t *host);
    /* May be NULL: nothing. Asked once, as root, after `setup`; `keep` comes as nothing to keep. */
    void (*privileges)(void *self, backend_privileges_t *keep);
    /* The configuration as a local check: NULL, or a text for the operator. Costs nothing and may be asked at any time.
     */
    const char *(*check)(void *self);
    /* Facts that need no proof, tier TIER_UNKNOWN: what may be announced while there is no evidence. */
    void (*describe)(void *self, backend_facts_t *facts);
    /* In a coroutine: tries the wall for real. True with `facts`, or false with the reason, for the operator;
     * facts->is_untried then says that nothing was learnt. */
    bool (*prove)(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX]);
    /* In a coroutine, which a cancel means the caller has gone. Answers through the functions above before it returns,
     * leaves nothing running. */
    void (*run)(void *self, backend_run_t *run);
    /* No run is left: ends what is still there. The wall is gone when it returns. */
    void (*stop)(void *self);
} backend_ops_t;

#ifdef PLIMSOLL_STANDIN
/* Walls that run nothing and do what their request's code says; of loadtest/, in the test and bench builds alone. */
extern const backend_ops_t STANDIN_BACKEND, STANDIN2_BACKEND, STANDINPAID_BACKEND;
#endif

/* Makes a wall known; the built-in ones need no call. */
void backend_add(const backend_ops_t *ops);
/* NULL when this program has no wall of that name. */
const backend_ops_t *backend_find(const char *name);

/*
 * The process of one wall (never returns before its end): serves fronts on `listen_fd` until SIGTERM or the end
 * of `parent_fd`, then lets runs in flight finish for PLIMSOLL_DRAIN and returns the exit status. Options must have
 * been loaded, logging started. Drops root to PLIMSOLL_USER and confines itself.
 */
int backend_role_main(const char *name, int listen_fd, int parent_fd);

#endif
