/*
 * An Engine without a socket, for the parts of the Docker walls: the calls of engine.h and attach.h as functions of the
 * test, over a table of containers, each with a runner of the test's (guest_frames.h). Whoever includes it links
 * neither of the real ones. Calls wait a millisecond, so everything that can come in between does. Included by tests
 * only, hence static.
 */
#ifndef TESTS_DOCKER_FIXTURE_H
#define TESTS_DOCKER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/attach.h"
#include "backends/docker/docker_internal.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/mem.h"
#include "core/random.h"
#include "tests/unit/guest_frames.h"

enum { FAKE_MAX = 256, FAKE_SENT_MAX = 64 * 1024 };

typedef struct fake {
    char name[ENGINE_NAME_MAX], id[ENGINE_ID_BYTES + 1], role[16];
    bool exists, is_running, is_paused, is_oom_killed, is_muted;
    json_t *body;
    attach_t *attach;
    test_runner_t *runner;       /* towards the gateway */
    uint8_t sent[FAKE_SENT_MAX]; /* what the runner's stdin got */
    size_t sent_len, hello_len;
    unsigned removals, unpauses, kills, waits, forced; /* forced: removed while it ran */
} fake_t;

struct attach {
    fake_t *fake;
    attach_events_t events;
    void *data;
    size_t unsent;
    bool is_ended;
};

/* What the Engine and the runners do; a test changes it. */
typedef struct {
    engine_outcome_t create, inspect, start, wait, remove;
    bool creates_anyway; /* although `create` is no success */
    bool is_attach_refused, is_runner_silent, is_job_stuck;
    unsigned ready_ms;     /* from HELLO to READY */
    unsigned end_ms;       /* what a wait for a container's end takes */
    unsigned remove_fails; /* so many removals do nothing and answer `remove` */
    unsigned starting, starting_max;
    void (*on_made)(fake_t *fake);
} fake_engine_t;

static loop_t *loop;
static fake_t *fakes[FAKE_MAX];
static size_t fake_count;
static fake_engine_t fake_engine;
static unsigned reproofs;

static __attribute__((unused)) void fake_reset(void)
{
    for (size_t i = 0; i < fake_count; ++i) {
        json_decref(fakes[i]->body);
        free(fakes[i]->runner);
        free(fakes[i]);
    }
    fake_count = 0;
    fake_engine = (fake_engine_t){.inspect = ENGINE_OK, .remove = ENGINE_OK};
    reproofs = 0;
}

static fake_t *fake_find(const char *id_or_name)
{
    for (size_t i = 0; i < fake_count; ++i) {
        if (fakes[i]->exists && (strcmp(fakes[i]->id, id_or_name) == 0 || strcmp(fakes[i]->name, id_or_name) == 0))
            return fakes[i];
    }
    return NULL;
}

static __attribute__((unused)) size_t fake_existing(void)
{
    size_t count = 0;
    for (size_t i = 0; i < fake_count; ++i)
        count += fakes[i]->exists;
    return count;
}

/* --- engine.h --- */

static void answer_set(engine_answer_t *out, engine_outcome_t outcome)
{
    memset(out, 0, sizeof(*out));
    out->outcome = outcome;
    snprintf(out->text, sizeof(out->text), "of the test");
}

/* The time of a call. */
static bool call_waits(engine_answer_t *out)
{
    if (co_sleep(1) == CO_CANCELED) {
        answer_set(out, ENGINE_CANCELED);
        return false;
    }
    return true;
}

engine_t *engine_create(loop_t *its_loop, const char *socket_path)
{
    (void)its_loop;
    (void)socket_path;
    return mem_alloc(1);
}

void engine_destroy(engine_t *engine)
{
    free(engine);
}

const char *engine_socket(const engine_t *engine)
{
    (void)engine;
    return "";
}

void engine_answer_dispose(engine_answer_t *answer)
{
    json_decref(answer->json);
    answer->json = NULL;
}

const char *engine_outcome_name(engine_outcome_t outcome)
{
    (void)outcome;
    return "outcome";
}

void engine_info(engine_t *engine, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    answer_set(out, ENGINE_UNSENT);
}

void engine_image_inspect(engine_t *engine, const char *ref, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)ref;
    engine_info(engine, deadline_ms, out);
}

void engine_container_create(engine_t *engine, const char *name, const json_t *body, uint32_t deadline_ms,
                             char id[ENGINE_ID_BYTES + 1], engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    id[0] = '\0';
    answer_set(out, fake_engine.create);
    if (fake_engine.create == ENGINE_OK || fake_engine.creates_anyway) {
        assert_true(fake_count < FAKE_MAX);
        fake_t *fake = mem_alloc(sizeof(*fake));
        snprintf(fake->name, sizeof(fake->name), "%s", name);
        snprintf(fake->role, sizeof(fake->role), "%s",
                 json_string_value(json_object_get(json_object_get(body, "Labels"), "sbx.role")));
        random_hex(fake->id, ENGINE_ID_BYTES / 2);
        fake->body = json_deep_copy(body);
        fake->exists = true;
        fakes[fake_count++] = fake;
        if (fake_engine.on_made != NULL)
            fake_engine.on_made(fake);
        if (fake_engine.create == ENGINE_OK)
            memcpy(id, fake->id, sizeof(fake->id));
    }
    if (!call_waits(out))
        id[0] = '\0';
}

void engine_container_start(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    fake_t *fake = fake_find(id);
    ++fake_engine.starting;
    if (fake_engine.starting > fake_engine.starting_max)
        fake_engine.starting_max = fake_engine.starting;
    answer_set(out, fake == NULL ? ENGINE_ABSENT : fake_engine.start);
    if (call_waits(out) && out->outcome == ENGINE_OK)
        fake->is_running = true;
    --fake_engine.starting;
}

/* As a real Engine completes what it was asked for, as far as the read-back looks. */
static json_t *fake_inspect(const fake_t *fake)
{
    json_t *config = json_deep_copy(fake->body), *host = json_incref(json_object_get(config, "HostConfig"));
    json_object_del(config, "HostConfig");
    json_object_set_new(host, "MaskedPaths",
                        json_pack("[s, s, s, s, s, s, s, s, s]", "/proc/asound", "/proc/acpi", "/proc/kcore",
                                  "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug",
                                  "/proc/scsi", "/sys/firmware"));
    json_object_set_new(
        host, "ReadonlyPaths",
        json_pack("[s, s, s, s, s]", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"));
    return json_pack("{s:s, s:O, s:o, s:o, s:[], s:{s:{s:{}}}, s:{s:b, s:b, s:b, s:i, s:i}}", "Id", fake->id, "Image",
                     json_object_get(fake->body, "Image"), "Config", config, "HostConfig", host, "Mounts",
                     "NetworkSettings", "Networks", "none", "State", "Running", fake->is_running, "Paused",
                     fake->is_paused, "OOMKilled", fake->is_oom_killed, "Pid", fake->is_running ? 4242 : 0, "ExitCode",
                     fake->is_running ? 0 : 137);
}

void engine_container_inspect(engine_t *engine, const char *id_or_name, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    answer_set(out, fake_engine.inspect);
    if (!call_waits(out) || out->outcome != ENGINE_OK)
        return;
    const fake_t *fake = fake_find(id_or_name);
    if (fake == NULL)
        answer_set(out, ENGINE_ABSENT);
    else
        out->json = fake_inspect(fake);
}

void engine_container_kill(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    fake_t *fake = fake_find(id);
    answer_set(out, fake != NULL ? ENGINE_OK : ENGINE_ABSENT);
    if (fake != NULL)
        ++fake->kills;
    call_waits(out);
}

void engine_container_unpause(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    fake_t *fake = fake_find(id);
    answer_set(out, fake != NULL ? ENGINE_OK : ENGINE_ABSENT);
    if (fake != NULL) {
        ++fake->unpauses;
        fake->is_paused = false;
    }
    call_waits(out);
}

void engine_container_wait(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    fake_t *fake = fake_find(id);
    bool is_late = fake_engine.end_ms > deadline_ms;
    answer_set(out, fake == NULL ? ENGINE_ABSENT : is_late ? ENGINE_UNKNOWN : fake_engine.wait);
    if (fake_engine.end_ms > 0)
        co_sleep(is_late ? deadline_ms : fake_engine.end_ms);
    if (fake != NULL) {
        ++fake->waits;
        if (out->outcome == ENGINE_OK)
            fake->is_running = false;
    }
    call_waits(out);
}

void engine_container_remove(engine_t *engine, const char *id_or_name, uint32_t deadline_ms, engine_answer_t *out)
{
    (void)engine;
    (void)deadline_ms;
    fake_t *fake = fake_find(id_or_name);
    answer_set(out, fake == NULL ? ENGINE_ABSENT : fake_engine.remove);
    if (fake != NULL) {
        assert_string_equal(id_or_name, fake->id); /* never by a name */
        ++fake->removals;
        fake->forced += fake->is_running;
        if (fake_engine.remove_fails > 0)
            --fake_engine.remove_fails;
        else
            fake->exists = fake->is_running = false;
    }
    call_waits(out);
}

void engine_container_list(engine_t *engine, const char *const *labels, size_t label_count, uint32_t deadline_ms,
                           engine_answer_t *out)
{
    (void)labels;
    (void)label_count;
    engine_info(engine, deadline_ms, out);
}

/* --- attach.h, and the runner --- */

attach_t *attach_open(engine_t *engine, loop_t *its_loop, const char *id, const attach_events_t *events, void *data,
                      uint32_t deadline_ms, char failure[ENGINE_TEXT_MAX])
{
    engine_answer_t answer;
    (void)engine;
    (void)its_loop;
    (void)deadline_ms;
    fake_t *fake = fake_find(id);
    assert_false(fake != NULL && fake->is_running); /* attach before start (spec 1.4) */
    if (!call_waits(&answer) || fake == NULL || fake_engine.is_attach_refused) {
        snprintf(failure, ENGINE_TEXT_MAX, "no stream of the test");
        return NULL;
    }
    attach_t *attach = mem_alloc(sizeof(*attach));
    attach->fake = fake;
    attach->events = *events;
    attach->data = data;
    fake->attach = attach;
    return attach;
}

void attach_mute(attach_t *attach)
{
    attach->fake->is_muted = true;
}

void attach_close(attach_t *attach)
{
    attach->fake->attach = NULL;
    free(attach);
}

size_t attach_unsent(const attach_t *attach)
{
    return attach->unsent;
}

static __attribute__((unused)) void fake_says(fake_t *fake, const void *bytes, size_t len)
{
    if (fake->attach != NULL && !fake->is_muted)
        fake->attach->events.on_bytes(fake->attach->data, 1, bytes, len);
}

static __attribute__((unused)) void fake_frame(fake_t *fake, char type, const void *payload, size_t len)
{
    uint8_t bytes[4096];
    assert_true(len + 30 <= sizeof(bytes));
    fake_says(fake, bytes, test_frame(fake->runner, bytes, type, payload, len));
}

static __attribute__((unused)) void fake_ends(fake_t *fake)
{
    fake->is_running = false;
    if (fake->attach != NULL && !fake->attach->is_ended) {
        fake->attach->is_ended = true;
        if (!fake->is_muted)
            fake->attach->events.on_end(fake->attach->data, "the stream ended");
    }
}

typedef struct {
    loop_timer_t timer;
    char id[ENGINE_ID_BYTES + 1];
} later_t;

static void on_ready_time(loop_timer_t *timer)
{
    later_t *later = timer->data;
    fake_t *fake = fake_find(later->id);
    if (fake != NULL && fake->attach != NULL) {
        bool has_node = fake->sent[14 + 4 + 2] == 1;
        fake_frame(fake, 'R', has_node ? "\0\1\1\0\2" : "\0\1\0\0\1", 5);
    }
    free(later);
}

/* HELLO is the first thing: its head, the message's length, version, pre-boot, key (backends/guest/job.h). */
static void take_hello(fake_t *fake)
{
    assert_memory_equal(fake->sent, "\xf5SB1H", 5);
    fake->runner = mem_alloc(sizeof(*fake->runner));
    test_runner_init(fake->runner, fake->sent + 14 + 7, "r2h");
    fake->hello_len = fake->sent_len;
    if (fake_engine.is_runner_silent)
        return;
    later_t *later = mem_alloc(sizeof(*later));
    memcpy(later->id, fake->id, sizeof(later->id));
    loop_timer_init(&later->timer, on_ready_time, later);
    loop_timer_start(loop, &later->timer, fake_engine.ready_ms);
}

bool attach_write(attach_t *attach, const void *bytes, size_t len)
{
    fake_t *fake = attach->fake;
    if (attach->is_ended || len > FAKE_SENT_MAX - fake->sent_len)
        return false;
    memcpy(fake->sent + fake->sent_len, bytes, len);
    fake->sent_len += len;
    if (fake->runner == NULL)
        take_hello(fake);
    else if (fake_engine.is_job_stuck)
        attach->unsent = len;
    return true;
}

/* The job's digest as the runner would tell it: SHA-256 of the message, here of one frame (head 14, length 4, tag 16).
 */
static __attribute__((unused)) void fake_accepts(fake_t *fake)
{
    uint8_t digest[32];
    unsigned n = sizeof(digest);
    size_t len = fake->sent_len - fake->hello_len;
    assert_true(len > 14 + 4 + 16 && len <= 14 + 4048 + 16);
    EVP_Digest(fake->sent + fake->hello_len + 18, len - 34, digest, &n, EVP_sha256(), NULL);
    fake_frame(fake, 'A', digest, sizeof(digest));
}

/* --- the wall around it --- */

static void on_reprove(void *data)
{
    (void)data;
    ++reproofs;
}

static backend_host_t fake_host = {.capacity = 8, .reprove = on_reprove};

/* A wall without a configuration, a proof or a reaper. */
static __attribute__((unused)) docker_t *fake_wall(uint32_t pool_size, uint64_t idle_ms)
{
    static const char *const names[DOCKER_KINDS] = {"snippet", "project"};
    docker_t *docker = mem_alloc(sizeof(*docker));
    fake_host.loop = loop;
    docker->magic = DOCKER_MAGIC;
    docker->name = "docker";
    docker->host = &fake_host;
    docker->processors = 2;
    turns_init(&docker->turns, loop, 2);
    snprintf(docker->instance, sizeof(docker->instance), "00112233445566%02x", 7);
    docker->engine = engine_create(loop, "");
    docker->teardown = teardown_create(loop, docker->engine, NULL, NULL);
    for (int kind = 0; kind < DOCKER_KINDS; ++kind) {
        pool_limits_t limits = {
            .size = kind == DOCKER_SNIPPET ? pool_size : 0, .idle_ms = idle_ms, .name = names[kind]};
        docker->pools[kind] = pool_create(docker, &limits);
    }
    return docker;
}

static __attribute__((unused)) container_spec_t fake_spec(void)
{
    container_spec_t spec = {.image = "sha256:1",
                             .runtime = "runc",
                             .uid = 61000,
                             .memory_bytes = 268435456,
                             .nano_cpus = 1000000000,
                             .pids = 256,
                             .tmp_mb = 16,
                             .shm_mb = 16,
                             .preboot = GUEST_PREBOOT_JAVASCRIPT};
    return spec;
}

static __attribute__((unused)) void fake_pool_set(docker_t *docker, const container_spec_t *spec)
{
    static const char *const env[] = {"PATH=/bin"};
    member_plan_t plan = {.spec = spec, .role = "pool", .env = env, .env_count = 1, .life_s = 60};
    pool_set(docker->pools[DOCKER_SNIPPET], &plan);
}

static void fake_wall_end(void *data)
{
    docker_t *docker = data;
    for (int kind = 0; kind < DOCKER_KINDS; ++kind)
        pool_destroy(docker->pools[kind]);
    teardown_flush(docker->teardown, 2000);
    teardown_destroy(docker->teardown);
    engine_destroy(docker->engine);
    assert_null(docker->members);
    free(docker);
}

/* --- coroutines and time --- */

typedef struct {
    void (*fn)(void *data);
    void *data;
    bool has_ended;
} task_t;

static void task_main(void *arg)
{
    task_t *task = arg;
    task->fn(task->data);
}

static void on_task_end(void *arg)
{
    ((task_t *)arg)->has_ended = true;
}

static __attribute__((unused)) void spin(uint32_t ms)
{
    uint64_t until_ms = clock_mono_ms() + ms;
    do
        loop_run_once(loop, 1);
    while (clock_mono_ms() < until_ms);
}

/* Until it holds; fails after ten seconds. */
static __attribute__((unused)) void spin_until(bool (*holds)(void *data), void *data)
{
    uint64_t until_ms = clock_mono_ms() + 10 * 1000;
    while (!holds(data)) {
        assert_true(clock_mono_ms() < until_ms);
        loop_run_once(loop, 1);
    }
}

static __attribute__((unused)) bool task_has_ended(void *data)
{
    return ((task_t *)data)->has_ended;
}

static __attribute__((unused)) co_t *task_start(task_t *task, void (*fn)(void *data), void *data)
{
    *task = (task_t){.fn = fn, .data = data};
    return co_start(loop, task_main, task, on_task_end);
}

static __attribute__((unused)) void in_coroutine(void (*fn)(void *data), void *data)
{
    task_t task;
    task_start(&task, fn, data);
    spin_until(task_has_ended, &task);
}

static __attribute__((unused)) void fake_wall_destroy(docker_t *docker)
{
    in_coroutine(fake_wall_end, docker);
}

static __attribute__((unused)) int fixture_set_up(void **state)
{
    (void)state;
    fake_reset();
    loop = loop_create();
    return 0;
}

static __attribute__((unused)) int fixture_tear_down(void **state)
{
    (void)state;
    loop_destroy(loop);
    fake_reset();
    return 0;
}

#endif
