/*
 * One prepared sandbox: created, attached to, started, its runner READY (spec backend-docker 1.5, 2.2). It serves one
 * job and is then torn down, used or not; whoever holds a member hands it to member_release. The smoke test starts its
 * containers through here as runs do.
 */
#ifndef BACKENDS_DOCKER_MEMBER_H
#define BACKENDS_DOCKER_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/docker/container.h"
#include "backends/docker/engine.h"
#include "backends/guest/host.h"

typedef struct docker docker_t;
typedef struct member member_t;

enum {
    /* What each step of a start may take. The Engine takes some 20 ms to create and 150 to 600 to start, longer when
     * several start at once (spec 4.2, 4.4). */
    MEMBER_CREATE_MS = 10 * 1000,
    MEMBER_INSPECT_MS = 5 * 1000,
    MEMBER_ATTACH_MS = 5 * 1000,
    MEMBER_START_MS = 20 * 1000,
    MEMBER_READY_MS = 20 * 1000, /* spec 2.3 */
    MEMBER_ACCEPTED_MS = 5 * 1000,
    MEMBER_END_MS = 1000,
    MEMBER_LIFE_MARGIN_S = 60, /* beside the idle time and the longest run: starts, answers, removal */
};

typedef struct {
    const container_spec_t *spec; /* copied, but for the texts it borrows */
    const char *role;             /* the label; a literal */
    const char *const *env;       /* the guests' whole environment, vetted; borrowed until member_start returns */
    size_t env_count;
    uint32_t life_s; /* for sbx.expires: how long it may wait and run */
} member_plan_t;

/* In a coroutine: create -> read-back -> attach -> start -> HELLO -> READY. NULL with the reason, and then whatever had
 * come to be is with the teardown. A cancel ends it as a failure. */
member_t *member_start(docker_t *docker, const member_plan_t *plan, char failure[ENGINE_TEXT_MAX]);

typedef enum {
    MEMBER_SAME,      /* running, and what was asked for */
    MEMBER_CHANGED,   /* somebody changed it, or it does not run */
    MEMBER_UNCHECKED, /* the Engine did not say */
} member_check_t;
/* In a coroutine: the read-back of spec 1.7. `why` names the first difference. */
member_check_t member_check(member_t *member, uint32_t deadline_ms, char why[ENGINE_TEXT_MAX]);

typedef enum {
    MEMBER_GIVEN,     /* the whole job has been written to the sandbox's stdin */
    MEMBER_NOT_GIVEN, /* not completely: nothing ran and nothing will */
} member_give_t;
/* In a coroutine: makes the job and waits until its last byte is written, at most until `until_us` (monotonic). `why`
 * is static text. */
member_give_t member_give(member_t *member, const guest_job_t *job, uint64_t until_us, const char **why);

typedef enum {
    MEMBER_FINISHED, /* FINAL verified */
    MEMBER_ACCEPTED, /* as asked: the runner has the job */
    MEMBER_LATE,     /* the time is over */
    MEMBER_ENDED,    /* the stream ended, or what came makes no sense */
    MEMBER_CANCELED, /* the coroutine was */
} member_wait_t;
/* In a coroutine: until FINAL verifies, or with `is_accept_enough` also until ACCEPTED. `why` (MEMBER_ENDED) is static
 * text in our own words. */
member_wait_t member_wait(member_t *member, bool is_accept_enough, uint64_t until_us, const char **why);

/* In a coroutine, after MEMBER_ENDED: how the container ended, as far as the Engine knows it within MEMBER_END_MS.
 * False when it does not know, or it still runs. */
bool member_end_state(member_t *member, container_state_t *out);

/* While it waits for its job: `on_spoilt` is called once when its stream ends or anything comes over it, neither of
 * which a waiting runner does. May release the member. NULL ends the watch. */
void member_watch(member_t *member, void (*on_spoilt)(void *data, member_t *member, const char *why), void *data);

/* Dies with the member. */
guest_t *member_guest(member_t *member);
const char *member_id(const member_t *member);
const char *member_name(const member_t *member);
/* State.Pid as the last read-back had it. */
int64_t member_pid(const member_t *member);
/* Monotonic: when it became ready. */
uint64_t member_ready_ms(const member_t *member);
/* For lists of those who hold members. */
member_t *member_next(const member_t *member);
void member_set_next(member_t *member, member_t *next);
/* Whether one of that name exists. */
bool member_exists(const docker_t *docker, const char *name);

/* Never used again: its stream is closed and the container goes to the teardown, which answers for it from here on. */
void member_release(member_t *member);

#endif
