/*
 * Private to the smoke test: what the machine shows of a sandbox from outside while its probe runs (S10, S11, E3, E4).
 * The look at the machine's tasks goes on beside the probe, in a coroutine of its own: a sandbox whose tasks are not
 * there proves something only while they are known to run.
 */
#ifndef BACKENDS_DOCKER_SMOKE_LOOK_H
#define BACKENDS_DOCKER_SMOKE_LOOK_H

#include "backends/docker/smoke_box.h"
#include "core/co.h"

typedef struct {
    bool has_limits;
    evidence_limits_t limits;
    char limits_why[BACKEND_TEXT_MAX];
    evidence_look_t kernel; /* E3 and E4 together; gVisor only */
    bool is_undecided;      /* the machine was too busy to be looked at in time: nothing was learnt */
    char kernel_why[BACKEND_TEXT_MAX];
    evidence_tasks_t tasks; /* the most that any look found */

    const smoke_box_t *_box;
    const char *_name;
    co_t *_co, *_waiter;
    bool _is_over;
    unsigned _looks; /* that lay wholly within the probe's time */
    uint64_t _first_us, _last_us;
    char _why[BACKEND_TEXT_MAX];
} smoke_look_t;

/* The sandbox is ready, and gets the probe next. `box` and `name`, the tasks' name inside, outlive the look. */
void smoke_look_begin(smoke_look_t *look, const smoke_box_t *box, const char *name);
/* In a coroutine, once the probe has ended however: ends the look and concludes. */
void smoke_look_end(smoke_look_t *look);

bool smoke_look_judge_limits(const evidence_limits_t *limits, const docker_promise_t *promise,
                             char why[BACKEND_TEXT_MAX]);

#endif
