/*
 * The stream of one Start, from its frames to its verdict (3.2, steps 6 and 7). A state machine without descriptors or
 * clocks: whoever moves the bytes says how they ended. Once a guest's code runs, all of it is the guest's word; what it
 * may cost us is bounded here.
 */
#ifndef BACKENDS_E2B_START_H
#define BACKENDS_E2B_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud.h"
#include "backends/e2b/event.h"

typedef enum {
    START_OPEN,
    START_ENDED,   /* the end frame came; nothing may follow */
    START_FLOODED, /* more came than a run may send */
    START_BROKEN,  /* it makes no sense: `problem` */
} e2b_start_state_t;

typedef struct {
    e2b_start_state_t state;
    guest_step_t *step;             /* output goes here as it comes */
    const cloud_secrets_t *secrets; /* to be taken out of texts; NULL = none */
    cloud_limits_t *limits;         /* what may still be kept */
    size_t *transfer;               /* bytes of streams that may still come, of all the run's */
    bool has_begun, has_end;
    int exit_code, signal;
    e2b_eos_t eos;
    const char *problem; /* static text */
} e2b_start_t;

/* `step` has empty buffers whose limits are set here. */
void e2b_start_init(e2b_start_t *start, guest_step_t *step, cloud_limits_t *limits, size_t *transfer);
/* So many bytes of the stream came, headers of frames included; before their frames. False: it is over. */
bool e2b_start_count(e2b_start_t *start, size_t bytes);
/* The next frame was announced to be larger than one may be. */
void e2b_start_oversize(e2b_start_t *start);
/* A frame that its flags or form rule out. `problem` is static. */
void e2b_start_break(e2b_start_t *start, const char *problem);
/* A message. False: it is over. */
bool e2b_start_message(e2b_start_t *start, const void *payload, size_t len);
/* The end-of-stream frame. */
bool e2b_start_eos(e2b_start_t *start, const void *payload, size_t len);

/* How the exchange ended. */
typedef enum {
    START_CLOSED, /* a complete HTTP answer */
    START_CUT,    /* the connection went away */
    START_UNSENT, /* nothing of the request left */
    START_SILENT, /* E2B_SILENCE_MS without a byte */
    START_LATE,   /* our own deadline */
    START_CANCELED,
    START_STOPPED, /* by us, the machine being over */
} e2b_start_close_t;

/* Monotonic moments of an exchange, in microseconds. */
typedef struct {
    uint64_t deadline_us; /* of the run */
    uint64_t heard_us;    /* the last byte, or the sending */
    uint64_t ended_us;    /* the end frame; 0 = not yet */
} e2b_start_times_t;
/* Whether we have listened for long enough, and then what ended it; else `next_us` is when to ask again at the latest.
 */
bool e2b_start_is_over(const e2b_start_times_t *times, uint64_t now_us, e2b_start_close_t *closed, uint64_t *next_us);

typedef enum {
    VERDICT_EXIT, /* step->exit_code */
    VERDICT_TIMED_OUT,
    VERDICT_FLOODED,
    VERDICT_UNSENT,   /* the command certainly did not begin */
    VERDICT_LOST,     /* the sandbox or its stream went away */
    VERDICT_PROTOCOL, /* what came makes no sense */
    VERDICT_DENIED,   /* the daemon or the edge did not take our token */
    VERDICT_CANCELED,
} e2b_verdict_end_t;

typedef struct {
    e2b_verdict_end_t end;
    char message[E2B_TEXT_MAX]; /* for the caller, in our own words */
    char detail[E2B_TEXT_MAX];  /* for the log: may hold a guest's words */
} e2b_verdict_t;

/* `status` of the HTTP answer, 0 when none came; `body` of one that is not 200. `is_past` says that the run's own time
 * is over. For EXIT, TIMED_OUT and FLOODED the step's end is filled in. */
void e2b_start_judge(e2b_start_t *start, e2b_start_close_t closed, uint64_t left_us, int status, const void *body,
                     size_t body_len, e2b_verdict_t *out);

#endif
