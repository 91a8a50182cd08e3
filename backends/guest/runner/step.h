/*
 * One step of a job: a process of the guest's from its start to the end of everything it left behind, its streams
 * forwarded up to their limits and drained past them (spec backend-docker 2.2). It ends when its main process has
 * ended or the job's time is up, never because of what a pipe does.
 */
#ifndef BACKENDS_GUEST_RUNNER_STEP_H
#define BACKENDS_GUEST_RUNNER_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/guest/runner/link.h"
#include "backends/guest/runner/process.h"

enum {
    /* Output goes out as it comes, until a guest that writes in crumbs would make more frame than output: then small
     * frames wait. Two streams at the last pace for JOB_TIMEOUT_MS_MAX make 18 000: with the 10 000 before and 800
     * full ones below the 32 768 that the gateway counts on. */
    STEP_FRAMES_AT_ONCE = 1000,
    STEP_FRAMES_SOON = 10000,
    STEP_SOON_US = 20 * 1000,
    STEP_LATER_US = 100 * 1000,
};

/* What the steps of a job share. */
typedef struct {
    link_t *link;
    process_world_t *world;
    int timer;            /* a timerfd that is readable from the job's deadline on */
    uint32_t stream_max;  /* bytes kept of one stream */
    uint32_t output_left; /* bytes kept of all streams to come */
} step_limits_t;

typedef enum { STEP_ENDED, STEP_TIMED_OUT } step_verdict_t;

typedef struct {
    step_verdict_t verdict;
    int exit_code;     /* as in job_step_end_t */
    bool is_all_ended; /* false: processes were left that would not end */
} step_end_t;

/* A timer for `timeout_ms` from now; -1 when there is none to be had. */
int step_timer(uint32_t timeout_ms);
bool step_is_time_up(int timer);
/* Takes the started process to its end and reports it. `input` is written to its stdin, which is then closed. */
step_end_t step_run(step_limits_t *limits, uint8_t number, process_t *process, const void *input, size_t input_len);

#endif
