/* Private to the wall `openshell`: what its parts share. One openshell_t a role. */
#ifndef BACKENDS_OPENSHELL_INTERNAL_H
#define BACKENDS_OPENSHELL_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud.h"
#include "backends/openshell/messages.h"
#include "core/grpc.h"

enum {
    OPENSHELL_MAGIC = 0x6f706e73,
    OPENSHELL_CONNECT_MS = 10 * 1000, /* lookup, connection, TLS and the first SETTINGS (spec 1.1) */
    OPENSHELL_READ_MS = 10 * 1000,    /* one try of a call that changes nothing */
    OPENSHELL_DELETE_MS = 10 * 1000,  /* one delete; the gateway goes on with it when we do not wait */
    OPENSHELL_READS_MAX = 3,          /* tries of a call that changes nothing */
    OPENSHELL_PAUSE_MIN_MS = 50,      /* between them, with jitter */
    OPENSHELL_PAUSE_MAX_MS = 400,
    OPENSHELL_POLL_MS = 50,       /* readiness, in the first second of waiting */
    OPENSHELL_POLL_SLOW_MS = 200, /* and later */
    OPENSHELL_POLL_FAST_FOR_MS = 1000,
    OPENSHELL_GONE_POLL_MS = 100,              /* for the end of a deletion */
    OPENSHELL_OVER_MS = 500,                   /* a deletion that is said to be over is looked for so long */
    OPENSHELL_INFO_MS = 5 * 1000,              /* an answer about the gateway is used again for so long */
    OPENSHELL_UNSEEN_MS = 30 * 1000,           /* later a create that was lost brings nothing forth any more */
    OPENSHELL_SETTLE_MS = 15 * 1000,           /* an entry of a dead instance's this young is left alone */
    OPENSHELL_WORKERS = 16,                    /* removals at once: each is a few seconds of waiting */
    OPENSHELL_PAGES_MAX = 50,                  /* of one listing */
    OPENSHELL_STALE_MARGIN_MS = 5 * 60 * 1000, /* past its lifetime a sandbox of another installation is anybody's */
    OPENSHELL_REAPED_MAX = 64,                 /* of those, after one listing; the next one finds the rest */
    OPENSHELL_EXEC_STARTS_MAX = 3,             /* tries to begin an exec of which nothing has left */
    OPENSHELL_BACKSTOP_S = 10,                 /* the gateway's own limit of an exec lies so much behind ours */
    OPENSHELL_TAIL_MS = 1000,                  /* after the exit event: for the stream's end */
    OPENSHELL_GRACE_MS = 5 * 1000,             /* after a project's time: for its runner's report */
    OPENSHELL_SANDBOX_MAX =
        256 * 1024, /* bytes of an answer with one sandbox; a page of them may have GRPC_MESSAGE_MAX */
    OPENSHELL_SECURE_HEAP = 64 * 1024, /* locked memory for the client key */
    OPENSHELL_SECURE_MIN = 32,
};

#define OPENSHELL_RUNNER "/usr/libexec/plimsoll/runner"
#define OPENSHELL_DIRECTORY "/tmp"
#define OPENSHELL_WORK "/tmp/work"

typedef struct {
    cloud_wall_t wall; /* first */
    unsigned magic;
    const backend_host_t *host;
    struct ssl_ctx_st *tls;
    grpc_channel_t *channel; /* NULL with a problem */
    shape_t shape;
    const char *other_version; /* NULL, or one more that is accepted */
    char environment[BACKEND_IDENTITY_MAX], policy[BACKEND_IDENTITY_MAX];
    uint32_t memory_mb, disk_mb;
    double cpus;
    uint64_t info_us;          /* when the gateway was last seen to be what it must be; 0 = never */
    bool is_asking;            /* somebody is asking it now */
    int64_t gateway_ms;        /* what the gateway's clock said, ms since 1970 */
    uint64_t gateway_as_of_us; /* when, monotonic; 0 = it is not known */
} openshell_t;

openshell_t *openshell_check(void *self);

/* --- calls.c --- */

typedef enum {
    CALL_READ, /* changes nothing: repeated after UNAVAILABLE and RESOURCE_EXHAUSTED, and no trouble of it is UNKNOWN */
    CALL_DELETE, /* changes something, and as often as one likes; the caller repeats it */
    CALL_ONCE,   /* never repeated */
} call_kind_t;

typedef struct {
    const char *method;  /* "GetSandbox" */
    const char *service; /* NULL: the gateway's own */
    call_kind_t kind;
    uint32_t limit_ms; /* of one try */
    size_t answer_max;
} call_t;

/* In a coroutine. True: the answer is in `answer`, which the caller initialised with call->answer_max. */
bool openshell_call(openshell_t *openshell, const call_t *call, const buffer_t *request, uint64_t until_us,
                    buffer_t *answer, cloud_trouble_t *trouble);
/* The trouble of a call that ended so. False always. */
bool openshell_trouble(const char *method, call_kind_t kind, const grpc_end_t *end, cloud_trouble_t *trouble);

/* --- sandboxes.c: one sandbox, from its creation to its end --- */

bool openshell_create(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
bool openshell_check_box(void *self, cloud_box_t *box, cloud_trouble_t *trouble);
/* The gateway, asked at most every OPENSHELL_INFO_MS. DIFFERS: not one to stand behind. */
bool openshell_ask_info(openshell_t *openshell, bool is_fresh, uint64_t until_us, cloud_trouble_t *trouble);
/* A sandbox by its name; freed by the caller. NULL with the trouble, MISSING when there is none. */
Plimsoll__Openshell__Sandbox *openshell_get(openshell_t *openshell, const char *name, uint64_t until_us,
                                            cloud_trouble_t *trouble);

/* --- removal.c --- */

extern backend_sandboxes_t OPENSHELL_SANDBOXES;

typedef void (*openshell_seen_cb)(void *data, const Plimsoll__Openshell__Sandbox *sandbox);
/* Every sandbox that carries the gateway's mark and `installation` (NULL: any or none), as far as the gateway's own
 * selection goes: labels are for `found` to look at. It must not wait. False when the listing is not whole. */
bool openshell_walk(openshell_t *openshell, const char *installation, openshell_seen_cb found, void *data,
                    char why[LEDGER_ERROR_MAX + 1]);
/* False: the gateway did not take the deletion. An answer alone, whatever it says, proves no absence; `is_over` when it
 * says that there is nothing to wait for. */
bool openshell_delete(openshell_t *openshell, const char *name, uint64_t until_us, bool *is_over,
                      cloud_trouble_t *trouble);

/* --- reaper.c: what installations left that are no more --- */

/* A sandbox that was asked for at that monotonic time is READY: what this tells of the gateway's clock. */
void openshell_note_clock(openshell_t *openshell, const Plimsoll__Openshell__Sandbox *sandbox, uint64_t asked_us);
/* One walk; its troubles go to the log. */
void openshell_reap(openshell_t *openshell, const char *installation);

/* --- exec.c: one command in a sandbox --- */

typedef struct exec exec_t;

typedef enum {
    EXEC_OUT,
    EXEC_ERR,
    EXEC_EXIT,     /* the command's end; `code` */
    EXEC_ENDED,    /* the stream's, however: exec_trouble */
    EXEC_LATE,     /* until_us */
    EXEC_CANCELED, /* the coroutine was */
} exec_event_t;

/* Begins it; nothing is waited for. `until_us` is when the gateway is asked to give up, less OPENSHELL_BACKSTOP_S. */
exec_t *exec_open(openshell_t *openshell, const char *name, const command_t *command, uint64_t until_us);
/* To its stdin. False: it has ended, or takes no more. */
bool exec_write(exec_t *exec, const void *bytes, size_t len);
void exec_finish(exec_t *exec);
exec_event_t exec_next(exec_t *exec, uint64_t until_us, const uint8_t **bytes, size_t *len, int32_t *code);
/* Whether anybody can have acted on it. */
bool exec_may_have_run(const exec_t *exec);
/* After EXEC_ENDED. False always. */
bool exec_trouble(const exec_t *exec, cloud_trouble_t *trouble);
/* A command that runs is canceled, which kills its process group. NULL is harmless. */
void exec_close(exec_t *exec);

/* --- run.c --- */

bool openshell_execute(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                       cloud_trouble_t *trouble);
/* A job of the runner's in a sandbox, to its end, or until `until_us`. True: `guest` has finished. */
bool openshell_run_job(openshell_t *openshell, const char *name, const char *run_id, const guest_job_t *job,
                       uint64_t until_us, guest_t *guest, cloud_trouble_t *trouble);

/* --- probe.c: what only a trial looks at --- */

bool openshell_probe(void *self, cloud_box_t *box, cloud_trouble_t *trouble);

#endif
