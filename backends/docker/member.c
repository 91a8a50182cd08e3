#include "backends/docker/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/attach.h"
#include "backends/docker/docker_internal.h"
#include "backends/meters.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"

enum {
    MEMBER_MAGIC = 0x6d656d62,
    HELLO_MAX = 64 * 1024, /* the environment of an image, and the frames around it */
    END_LOOK_MS = 50,      /* between looks at a container whose stream has ended */
};

struct member {
    unsigned magic;
    docker_t *docker;
    container_spec_t spec;
    const char *role;
    char name[sizeof(REAPER_NAME_PREFIX) + LEDGER_STAMP];
    char id[ENGINE_ID_BYTES + 1];
    char seal[SHA256_HEX + 1]; /* of the first read-back after the start */
    attach_t *attach;
    guest_t *guest;
    bool is_born;    /* the Engine may know it */
    bool has_ended;  /* its stream */
    const char *why; /* it ended; static */
    bool has_job;    /* given, in part or whole */
    guest_state_t seen;
    co_t *waiter;
    int64_t pid;
    uint64_t ready_ms;
    void (*on_spoilt)(void *data, member_t *member, const char *why);
    void *spoilt_data;
    member_t *next, *next_of_holder;
};

static void check(const member_t *member)
{
    if (member->magic != MEMBER_MAGIC)
        mem_fatal("not a member");
}

/* --- what comes over its stream --- */

static void wake(member_t *member)
{
    if (member->waiter != NULL)
        co_wake(member->waiter);
}

static bool spoil(member_t *member, const char *why)
{
    void (*on_spoilt)(void *, member_t *, const char *) = member->on_spoilt;
    if (on_spoilt == NULL)
        return false;
    member->on_spoilt = NULL;
    on_spoilt(member->spoilt_data, member, why);
    return true;
}

static void on_bytes(void *data, int stream, const uint8_t *bytes, size_t len)
{
    member_t *member = data;
    check(member);
    if (spoil(member, "bytes nobody asked for"))
        return;
    /* The runner has nothing to say on its stderr, and guests have pipes of their own; gVisor lets them write there. */
    if (stream == 1)
        guest_take(member->guest, bytes, len);
    else
        guest_skip(member->guest, len);
    if (guest_state(member->guest) != member->seen) {
        member->seen = guest_state(member->guest);
        wake(member);
    }
}

static void on_end(void *data, const char *why)
{
    member_t *member = data;
    check(member);
    member->has_ended = true;
    member->why = why;
    if (!spoil(member, why))
        wake(member);
}

static void on_sent(void *data)
{
    member_t *member = data;
    check(member);
    wake(member);
}

/* --- the start --- */

static bool fail(char failure[ENGINE_TEXT_MAX], const char *step, const char *text)
{
    snprintf(failure, ENGINE_TEXT_MAX, "%s: %s", step, text);
    return false;
}

static bool fail_answer(char failure[ENGINE_TEXT_MAX], const char *step, const engine_answer_t *answer)
{
    snprintf(failure, ENGINE_TEXT_MAX, "%s: %s (%d) %s", step, engine_outcome_name(answer->outcome), answer->status,
             answer->text);
    return false;
}

/* Whether the Engine may have made a container although it did not say so. */
static bool may_exist(engine_outcome_t outcome)
{
    return outcome != ENGINE_UNSENT && outcome != ENGINE_ABSENT && outcome != ENGINE_CONFLICT &&
           outcome != ENGINE_REFUSED;
}

static bool create(member_t *member, uint32_t life_s, char failure[ENGINE_TEXT_MAX])
{
    docker_t *docker = member->docker;
    container_labels_t labels = {.instance = docker->instance,
                                 .host = docker->host_id,
                                 .installation = role_ledger_installation(docker->host->ledger),
                                 .role = member->role,
                                 .expires_s = clock_wall_ms() / 1000 + life_s + MEMBER_LIFE_MARGIN_S};
    json_t *body = container_body(&member->spec, &labels);
    engine_answer_t answer;

    engine_container_create(docker->engine, member->name, body, MEMBER_CREATE_MS, member->id, &answer);
    json_decref(body);
    member->is_born = may_exist(answer.outcome);
    bool is_made = answer.outcome == ENGINE_OK || fail_answer(failure, "create", &answer);
    if (is_made)
        role_ledger_name(docker->host->ledger, docker_stamp_of(member->name), member->id);
    engine_answer_dispose(&answer);
    return is_made;
}

/* Unknown keys in what was asked are ignored by the Engine without a word, so what counts is what it says afterwards
 * (spec 1.1). */
static bool is_as_asked(member_t *member, char failure[ENGINE_TEXT_MAX])
{
    char difference[CONTAINER_TEXT_MAX];
    engine_answer_t answer;
    bool is_same = false;

    engine_container_inspect(member->docker->engine, member->id, MEMBER_INSPECT_MS, &answer);
    if (answer.outcome != ENGINE_OK) {
        fail_answer(failure, "inspect", &answer);
    } else if (!container_matches(answer.json, &member->spec, difference)) {
        snprintf(failure, ENGINE_TEXT_MAX, "the Engine made something else than it was asked for: %s", difference);
    } else {
        is_same = true;
    }
    engine_answer_dispose(&answer);
    return is_same;
}

static bool attach_to(member_t *member, char failure[ENGINE_TEXT_MAX])
{
    static const attach_events_t events = {on_bytes, on_end, on_sent};
    char text[ENGINE_TEXT_MAX];
    member->attach = attach_open(member->docker->engine, member->docker->host->loop, member->id, &events, member,
                                 MEMBER_ATTACH_MS, text);
    return member->attach != NULL || fail(failure, "attach", text);
}

static bool start(member_t *member, char failure[ENGINE_TEXT_MAX])
{
    engine_answer_t answer;
    engine_container_start(member->docker->engine, member->id, MEMBER_START_MS, &answer);
    /* "unchanged" would mean that somebody else had started it */
    bool is_started = answer.outcome == ENGINE_OK || fail_answer(failure, "start", &answer);
    engine_answer_dispose(&answer);
    return is_started;
}

static bool greet(member_t *member, const member_plan_t *plan, char failure[ENGINE_TEXT_MAX])
{
    guest_hello_t hello = {
        .preboot = member->spec.preboot, .run_id = member->name, .env = plan->env, .env_count = plan->env_count};
    buffer_t bytes;
    buffer_init(&bytes, HELLO_MAX);
    bool is_sent =
        guest_make_hello(member->guest, &hello, &bytes) && attach_write(member->attach, bytes.base, bytes.len);
    /* the key was in it */
    if (bytes.base != NULL)
        explicit_bzero(bytes.base, bytes.len);
    buffer_dispose(&bytes);
    return is_sent || fail(failure, "hello", member->has_ended ? member->why : "it does not fit its frame");
}

/* Waits for anything to happen, at most until then. */
static co_wake_t wait_until(member_t *member, uint64_t until_us)
{
    uint64_t now_us = clock_mono_us();
    if (now_us >= until_us)
        return CO_TIMED_OUT;
    member->waiter = co_self();
    co_wake_t woken = co_wait((until_us - now_us + 999) / 1000);
    member->waiter = NULL;
    return woken;
}

static bool await_ready(member_t *member, char failure[ENGINE_TEXT_MAX])
{
    uint64_t until_us = clock_mono_us() + (uint64_t)MEMBER_READY_MS * 1000;
    for (;;) {
        guest_state_t state = guest_state(member->guest);
        if (member->has_ended)
            return fail(failure, "ready", member->why);
        if (state == GUEST_READY)
            return true;
        if (state != GUEST_NEW)
            return fail(failure, "ready",
                        state == GUEST_BROKEN ? guest_problem(member->guest) : "the runner went ahead of its job");
        switch (wait_until(member, until_us)) {
        case CO_WOKEN:
            break;
        case CO_TIMED_OUT:
            return fail(failure, "ready", "the runner did not get ready in time");
        case CO_CANCELED:
            return fail(failure, "ready", "canceled");
        }
    }
}

static bool prepare(member_t *member, const member_plan_t *plan, char failure[ENGINE_TEXT_MAX])
{
    return create(member, plan->life_s, failure) && is_as_asked(member, failure) && attach_to(member, failure) &&
           start(member, failure) && greet(member, plan, failure) && await_ready(member, failure) &&
           member_check(member, MEMBER_INSPECT_MS, failure) == MEMBER_SAME;
}

/* Before the Engine is asked: the entry stands in the ledger. */
static bool ask(docker_t *docker, const member_plan_t *plan, char stamp[LEDGER_STAMP + 1],
                char failure[ENGINE_TEXT_MAX])
{
    role_ledger_ask_t asked = {.life_ms = ((uint64_t)plan->life_s + MEMBER_LIFE_MARGIN_S) * 1000,
                               .is_trial = strcmp(plan->role, "smoke") == 0};
    char why[LEDGER_ERROR_MAX + 1];
    if (docker->host->ledger != NULL)
        return role_ledger_ask(docker->host->ledger, &asked, stamp, why) || fail(failure, "create", why);
    random_hex(stamp, LEDGER_STAMP / 2);
    return true;
}

member_t *member_start(docker_t *docker, const member_plan_t *plan, char failure[ENGINE_TEXT_MAX])
{
    char stamp[LEDGER_STAMP + 1];

    if (teardown_count(docker->teardown) >= TEARDOWN_LIST_MAX) {
        fail(failure, "create", "too many sandboxes are not known to be gone");
        return NULL;
    }
    if (!ask(docker, plan, stamp, failure)) {
        log_event(LOG_WARN, "sandbox not started", log_str("backend", docker->name), log_str("role", plan->role),
                  log_str("reason", failure));
        return NULL;
    }
    member_t *member = mem_alloc(sizeof(*member));
    member->magic = MEMBER_MAGIC;
    member->docker = docker;
    member->spec = *plan->spec;
    member->role = plan->role;
    member->guest = guest_create();
    snprintf(member->name, sizeof(member->name), "%s%s", REAPER_NAME_PREFIX, stamp);
    /* Before the Engine is asked: what is not in this list is taken for a leftover. */
    member->next = docker->members;
    docker->members = member;
    if (!prepare(member, plan, failure)) {
        log_event(LOG_WARN, "sandbox not started", log_str("backend", docker->name), log_str("name", member->name),
                  log_str("container", member->id), log_str("role", plan->role), log_str("reason", failure));
        member_release(member);
        return NULL;
    }
    member->ready_ms = clock_mono_ms();
    return member;
}

/* --- the read-back (spec 1.7) --- */

static member_check_t judge(member_t *member, const json_t *inspect, char why[ENGINE_TEXT_MAX])
{
    char difference[CONTAINER_TEXT_MAX], seal[SHA256_HEX + 1];
    container_state_t state;

    if (!container_state(inspect, &state)) {
        snprintf(why, ENGINE_TEXT_MAX, "its state has not its shape");
        return MEMBER_UNCHECKED;
    }
    member->pid = state.pid;
    if (!container_matches(inspect, &member->spec, difference)) {
        snprintf(why, ENGINE_TEXT_MAX, "it was changed: %s", difference);
        return MEMBER_CHANGED;
    }
    if (!state.is_running || state.is_paused || state.pid <= 0) {
        snprintf(why, ENGINE_TEXT_MAX, "%s", state.is_paused ? "it was paused" : "it does not run");
        return MEMBER_CHANGED;
    }
    container_seal(inspect, seal);
    if (member->seal[0] == '\0')
        memcpy(member->seal, seal, sizeof(seal));
    if (seal[0] == '\0' || strcmp(seal, member->seal) != 0) {
        snprintf(why, ENGINE_TEXT_MAX, "it was changed in something that was not asked for");
        return MEMBER_CHANGED;
    }
    return MEMBER_SAME;
}

member_check_t member_check(member_t *member, uint32_t deadline_ms, char why[ENGINE_TEXT_MAX])
{
    engine_answer_t answer;
    member_check_t outcome = MEMBER_UNCHECKED;

    check(member);
    engine_container_inspect(member->docker->engine, member->id, deadline_ms, &answer);
    if (answer.outcome == ENGINE_OK)
        outcome = judge(member, answer.json, why);
    else if (answer.outcome == ENGINE_ABSENT)
        outcome = MEMBER_CHANGED;
    if (answer.outcome != ENGINE_OK)
        fail_answer(why, "inspect", &answer);
    engine_answer_dispose(&answer);
    return outcome;
}

bool member_end_state(member_t *member, container_state_t *out)
{
    uint64_t until_ms = clock_mono_ms() + MEMBER_END_MS;
    engine_answer_t answer;

    check(member);
    for (;;) {
        engine_container_inspect(member->docker->engine, member->id, MEMBER_END_MS, &answer);
        bool is_told = answer.outcome == ENGINE_OK && container_state(answer.json, out);
        engine_answer_dispose(&answer);
        if (!is_told)
            return false;
        if (!out->is_running)
            return true;
        if (clock_mono_ms() + END_LOOK_MS >= until_ms || co_sleep(END_LOOK_MS) == CO_CANCELED)
            return false;
    }
}

/* --- its job --- */

member_give_t member_give(member_t *member, const guest_job_t *job, uint64_t until_us, const char **why)
{
    buffer_t bytes;
    bool is_queued;

    check(member);
    member->on_spoilt = NULL;
    buffer_init(&bytes, ATTACH_UNSENT_MAX);
    *why = member->has_ended ? member->why : guest_make_job(member->guest, job, &bytes);
    if (*why != NULL) {
        buffer_dispose(&bytes);
        return MEMBER_NOT_GIVEN;
    }
    member->seen = guest_state(member->guest);
    member->has_job = true;
    is_queued = attach_write(member->attach, bytes.base, bytes.len);
    buffer_dispose(&bytes);
    if (!is_queued) {
        *why = "its stream does not take the job";
        return MEMBER_NOT_GIVEN;
    }
    while (attach_unsent(member->attach) > 0) {
        if (member->has_ended) {
            *why = member->why;
            return MEMBER_NOT_GIVEN;
        }
        switch (wait_until(member, until_us)) {
        case CO_WOKEN:
            break;
        case CO_TIMED_OUT:
            *why = "the job was not written in time";
            return MEMBER_NOT_GIVEN;
        case CO_CANCELED:
            *why = "canceled before the job was written";
            return MEMBER_NOT_GIVEN;
        }
    }
    return MEMBER_GIVEN;
}

member_wait_t member_wait(member_t *member, bool is_accept_enough, uint64_t until_us, const char **why)
{
    check(member);
    *why = NULL;
    for (;;) {
        switch (guest_state(member->guest)) {
        case GUEST_FINISHED:
            return MEMBER_FINISHED;
        case GUEST_BROKEN:
            *why = guest_problem(member->guest);
            return MEMBER_ENDED;
        case GUEST_ACCEPTED:
            if (is_accept_enough)
                return MEMBER_ACCEPTED;
            break;
        default:
            break;
        }
        if (member->has_ended) {
            *why = member->why;
            return MEMBER_ENDED;
        }
        switch (wait_until(member, until_us)) {
        case CO_WOKEN:
            break;
        case CO_TIMED_OUT:
            return MEMBER_LATE;
        case CO_CANCELED:
            return MEMBER_CANCELED;
        }
    }
}

/* --- the rest --- */

void member_watch(member_t *member, void (*on_spoilt)(void *data, member_t *member, const char *why), void *data)
{
    check(member);
    member->on_spoilt = on_spoilt;
    member->spoilt_data = data;
    if (member->has_ended)
        spoil(member, member->why);
}

guest_t *member_guest(member_t *member)
{
    check(member);
    return member->guest;
}

const char *member_id(const member_t *member)
{
    check(member);
    return member->id;
}

const char *member_name(const member_t *member)
{
    check(member);
    return member->name;
}

int64_t member_pid(const member_t *member)
{
    check(member);
    return member->pid;
}

uint64_t member_ready_ms(const member_t *member)
{
    check(member);
    return member->ready_ms;
}

member_t *member_next(const member_t *member)
{
    check(member);
    return member->next_of_holder;
}

void member_set_next(member_t *member, member_t *next)
{
    check(member);
    member->next_of_holder = next;
}

bool member_exists(const docker_t *docker, const char *name)
{
    for (const member_t *member = docker->members; member != NULL; member = member->next) {
        if (strcmp(member->name, name) == 0)
            return true;
    }
    return false;
}

void member_release(member_t *member)
{
    docker_t *docker = member->docker;
    check(member);
    bool may_run = member->has_job && guest_state(member->guest) != GUEST_FINISHED;
    uint64_t unframed = guest_unframed_bytes(member->guest);
    meter_add(METER_UNFRAMED_BYTES, unframed < INT64_MAX ? (int64_t)unframed : INT64_MAX);
    if (unframed > 0)
        log_event(LOG_INFO, "sandbox wrote what is no frame", log_str("name", member->name),
                  log_uint("unframed_bytes", unframed));
    bool is_whole = guest_state(member->guest) == GUEST_FINISHED && !member->has_ended;
    if (member->attach != NULL && !is_whole)
        attach_close(member->attach);
    guest_destroy(member->guest);
    if (member->is_born) {
        role_ledger_release(docker->host->ledger, docker_stamp_of(member->name));
        teardown_add(docker->teardown, member->name, member->id, may_run ? TEARDOWN_NOW : TEARDOWN_IDLE);
        if (member->attach != NULL && is_whole)
            teardown_hold(docker->teardown, member->name, member->attach);
    } else {
        role_ledger_void(docker->host->ledger, docker_stamp_of(member->name));
    }
    for (member_t **at = &docker->members; *at != NULL; at = &(*at)->next) {
        if (*at == member) {
            *at = member->next;
            break;
        }
    }
    member->magic = 0;
    free(member);
}
