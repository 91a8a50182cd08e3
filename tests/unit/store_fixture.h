/*
 * A private redis-server for one test program, and the store's calls made synchronous: each turns the loop until its
 * callback came. The server is started and ended by process id and keeps its files in a directory of its own.
 */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>

#include "core/clock.h"
#include "core/loop.h"
#include "core/mem.h"
#include "core/random.h"
#include "core/sha256.h"
#include "records/store.h"

enum { WAIT_MS = 10000 }; /* longer than anything here takes; a test that waits this long fails */

typedef struct {
    char dir[64], sock[96];
    pid_t pid;
    redisContext *direct; /* to look behind the store's back */
    redis_address_t address;
    loop_t *loop;
    store_t *store;
    unsigned settled_seen;
    char settled_key[STORE_CLAIM_KEY_MAX];
} fixture_t;

static fixture_t fx;

static __attribute__((unused)) void server_connect(void)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    for (;;) {
        fx.direct = redisConnectUnix(fx.sock);
        if (fx.direct != NULL && fx.direct->err == 0) {
            redisReply *pong = redisCommand(fx.direct, "PING");
            bool ready = pong != NULL && pong->type == REDIS_REPLY_STATUS;
            if (pong != NULL)
                freeReplyObject(pong);
            if (ready)
                return;
        }
        if (fx.direct != NULL)
            redisFree(fx.direct);
        assert_true(clock_mono_ms() < until);
        usleep(5000);
    }
}

static __attribute__((unused)) void server_start(void)
{
    fx.pid = fork();
    assert_true(fx.pid >= 0);
    if (fx.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves no server */
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", fx.sock, "--appendonly", "yes",
               "--appendfsync", "always", "--save", "", "--dir", fx.dir, "--logfile", "", (char *)NULL);
        _exit(127);
    }
    server_connect();
}

static __attribute__((unused)) void server_kill(void)
{
    redisFree(fx.direct);
    fx.direct = NULL;
    kill(fx.pid, SIGKILL);
    waitpid(fx.pid, NULL, 0);
    fx.pid = 0;
}

static void note_settled(void *data, const char *key)
{
    (void)data;
    ++fx.settled_seen;
    snprintf(fx.settled_key, sizeof(fx.settled_key), "%s", key);
}

static __attribute__((unused)) void turn_until(bool (*done)(void))
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (!done()) {
        loop_run_once(fx.loop, 5);
        assert_true(clock_mono_ms() < until);
    }
}

static __attribute__((unused)) void turn_for(uint32_t ms)
{
    uint64_t until = clock_mono_ms() + ms;
    while (clock_mono_ms() < until)
        loop_run_once(fx.loop, 1);
}

static bool store_up(void)
{
    return store_is_up(fx.store);
}

static __attribute__((unused)) bool store_down(void)
{
    return !store_is_up(fx.store);
}

static __attribute__((unused)) bool store_idle(void)
{
    return store_backlog(fx.store) == 0;
}

static __attribute__((unused)) void store_open(void)
{
    fx.store = store_create(fx.loop, &fx.address, &(store_settings_t){.installation = "test"},
                            &(store_callbacks_t){.on_settled = note_settled});
    turn_until(store_up);
}

static __attribute__((unused)) int fixture_setup(void **state)
{
    (void)state;
    random_init();
    /* In memory where that can be: a busy disk takes longer for a sync than an admission may wait. */
    snprintf(fx.dir, sizeof(fx.dir), "%s/plimsoll-store-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(fx.dir));
    snprintf(fx.sock, sizeof(fx.sock), "%s/redis.sock", fx.dir);
    server_start();
    fx.address = (redis_address_t){.path = fx.sock};
    fx.loop = loop_create();
    store_open();
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static __attribute__((unused)) int fixture_teardown(void **state)
{
    (void)state;
    store_destroy(fx.store);
    loop_run_once(fx.loop, 0);
    loop_destroy(fx.loop);
    if (fx.pid != 0)
        server_kill();
    return nftw(fx.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Behind the store's back. The caller frees. */
static __attribute__((unused)) redisReply *direct(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    redisReply *reply = redisvCommand(fx.direct, format, ap);
    va_end(ap);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s", reply->str);
    return reply;
}

#define direct_do(...) freeReplyObject(direct(__VA_ARGS__))
#define direct_int(...)                                                                                                \
    ({                                                                                                                 \
        redisReply *direct_reply_ = direct(__VA_ARGS__);                                                               \
        long long direct_value_ = direct_reply_->integer;                                                              \
        assert_int_equal(direct_reply_->type, REDIS_REPLY_INTEGER);                                                    \
        freeReplyObject(direct_reply_);                                                                                \
        direct_value_;                                                                                                 \
    })

/* A caller, a request and a run nobody else in the program uses. */
typedef struct {
    char caller[33], request_id[33], digest[65], run_id[33], prefix[96];
} ids_t;

static __attribute__((unused)) ids_t ids_fresh(void)
{
    ids_t ids;
    char sha[65];
    random_hex(ids.caller, 16);
    random_hex(ids.request_id, 16);
    random_hex(ids.digest, 32);
    random_hex(ids.run_id, 16);
    sha256_hex(ids.caller, 32, sha);
    snprintf(ids.prefix, sizeof(ids.prefix), "plimsoll:2:{test}:%.32s:", sha);
    return ids;
}

/* The same caller and request, another run. */
static __attribute__((unused)) ids_t ids_next_run(ids_t ids)
{
    random_hex(ids.run_id, 16);
    return ids;
}

/* The same caller, all else new. */
static __attribute__((unused)) ids_t ids_next_request(ids_t ids)
{
    random_hex(ids.request_id, 16);
    random_hex(ids.digest, 32);
    random_hex(ids.run_id, 16);
    return ids;
}

static __attribute__((unused)) store_admission_t admission_of(const ids_t *ids)
{
    return (store_admission_t){.caller = ids->caller,
                               .request_id = ids->request_id,
                               .request_sha256 = ids->digest,
                               .run_id = ids->run_id,
                               .lease_ms = 20000,
                               .has_place = true};
}

typedef struct {
    store_admitted_t said;
    uint8_t *answer; /* a copy */
    unsigned calls;
} admitted_t;

static __attribute__((unused)) void note_admitted(void *data, const store_admitted_t *admitted)
{
    admitted_t *out = data;
    ++out->calls;
    out->said = *admitted;
    if (admitted->answer != NULL) {
        out->answer = mem_alloc(admitted->answer_len + 1);
        if (admitted->answer_len != 0)
            memcpy(out->answer, admitted->answer, admitted->answer_len);
        out->said.answer = out->answer;
    }
}

static __attribute__((unused)) void await_calls(const unsigned *calls)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (*calls == 0) {
        loop_run_once(fx.loop, 5);
        assert_true(clock_mono_ms() < until);
    }
    assert_int_equal(*calls, 1);
}

/* `answer` of the result stays valid until the next call. */
static __attribute__((unused)) store_admitted_t admit_now(const store_admission_t *admission)
{
    static admitted_t out;
    free(out.answer);
    out = (admitted_t){.calls = 0};
    store_admit(fx.store, admission, note_admitted, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    store_admitted_t said = out.said;
    static uint8_t *kept;
    free(kept);
    kept = out.answer;
    out.answer = NULL;
    return said;
}

static __attribute__((unused)) store_admitted_t admit(const ids_t *ids)
{
    store_admission_t admission = admission_of(ids);
    return admit_now(&admission);
}

static __attribute__((unused)) store_admitted_t look(const ids_t *ids)
{
    admitted_t out = {.calls = 0};
    store_claim_look(fx.store, ids->caller, ids->request_id, ids->digest, note_admitted, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    free(out.answer);
    out.said.answer = NULL;
    return out.said;
}

static __attribute__((unused)) store_settlement_t settlement_of(const ids_t *ids, verdict_t verdict)
{
    static const uint8_t record[] = {8, 2, 18, 0}, answer[] = "packed answer";
    store_settlement_t s = {.caller = ids->caller,
                            .request_id = ids->request_id,
                            .run_id = ids->run_id,
                            .verdict = verdict,
                            .backend = "docker",
                            .tier = "container",
                            .kind = "javascript",
                            .request_sha256 = ids->digest,
                            .started_unix_ms = 1790000000000,
                            .ended_unix_ms = 1790000004210,
                            .trace_id = "trace-1"};
    if (verdict == VERDICT_ANSWERED) {
        s.result_sha256 = ids->digest;
        s.record_sha256 = ids->digest;
        s.record = record;
        s.record_len = sizeof(record);
        s.answer = answer;
        s.answer_len = sizeof(answer) - 1;
    }
    if (verdict == VERDICT_UNKNOWN)
        s.unknown_code = "deadline_exceeded";
    if (verdict == VERDICT_REFUSED) {
        s.reason = "capacity";
        s.give_back_rate = true;
    }
    return s;
}

typedef struct {
    unsigned calls;
    bool stored;
} settled_t;

static __attribute__((unused)) void note_stored(void *data, bool stored)
{
    settled_t *out = data;
    ++out->calls;
    out->stored = stored;
}

static __attribute__((unused)) bool settle_now(const store_settlement_t *settlement)
{
    settled_t out = {.calls = 0};
    store_settle(fx.store, settlement, note_stored, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    return out.stored;
}

static __attribute__((unused)) bool settle(const ids_t *ids, verdict_t verdict)
{
    store_settlement_t s = settlement_of(ids, verdict);
    return settle_now(&s);
}

enum { SEEN_MAX = 128 };
typedef struct {
    unsigned calls;
    store_lookup_t found;
    size_t count;
    struct {
        char run_id[33], request_id[33], verdict[16], backend[40], tier[16], kind[16], request_sha256[65],
            result_sha256[65], record_sha256[65], unknown_code[40], reason[40], trace_id[300], caller[300],
            client_request_id[300], idempotency_key[300], limits[300];
        store_amounts_t spent;
        bool cost_known;
        int64_t log_index;
        int64_t started, ended;
        int32_t exit_code;
        bool timed_out, canceled;
        uint8_t record[64];
        size_t record_len;
    } runs[SEEN_MAX];
    char next[64]; /* "" = none */
} seen_t;

#define copy_text(to, from) assert_true((size_t)snprintf(to, sizeof(to), "%s", from) < sizeof(to))

static __attribute__((unused)) void note_runs(void *data, store_lookup_t found, const store_run_t *runs, size_t count,
                                              const char *next)
{
    seen_t *out = data;
    ++out->calls;
    out->found = found;
    out->count = count;
    assert_true(count <= SEEN_MAX);
    for (size_t i = 0; i != count; ++i) {
        copy_text(out->runs[i].run_id, runs[i].run_id);
        copy_text(out->runs[i].request_id, runs[i].request_id);
        copy_text(out->runs[i].verdict, runs[i].verdict);
        copy_text(out->runs[i].backend, runs[i].backend);
        copy_text(out->runs[i].tier, runs[i].tier);
        copy_text(out->runs[i].kind, runs[i].kind);
        copy_text(out->runs[i].request_sha256, runs[i].request_sha256);
        copy_text(out->runs[i].result_sha256, runs[i].result_sha256);
        copy_text(out->runs[i].record_sha256, runs[i].record_sha256);
        copy_text(out->runs[i].unknown_code, runs[i].unknown_code);
        copy_text(out->runs[i].reason, runs[i].reason);
        copy_text(out->runs[i].trace_id, runs[i].trace_id);
        copy_text(out->runs[i].caller, runs[i].caller);
        copy_text(out->runs[i].client_request_id, runs[i].client_request_id);
        copy_text(out->runs[i].idempotency_key, runs[i].idempotency_key);
        copy_text(out->runs[i].limits, runs[i].limits);
        out->runs[i].spent = runs[i].spent;
        out->runs[i].cost_known = runs[i].is_cost_known;
        out->runs[i].log_index = runs[i].log_index;
        out->runs[i].started = runs[i].started_unix_ms;
        out->runs[i].ended = runs[i].ended_unix_ms;
        out->runs[i].exit_code = runs[i].exit_code;
        out->runs[i].timed_out = runs[i].timed_out;
        out->runs[i].canceled = runs[i].canceled;
        out->runs[i].record_len = runs[i].record_len;
        if (runs[i].record_len != 0 && runs[i].record_len <= sizeof(out->runs[i].record))
            memcpy(out->runs[i].record, runs[i].record, runs[i].record_len);
    }
    snprintf(out->next, sizeof(out->next), "%s", next != NULL ? next : "");
}

static __attribute__((unused)) const seen_t *list_runs(const char *caller, uint32_t limit, const char *cursor)
{
    static seen_t out;
    memset(&out, 0, sizeof(out));
    store_runs_list(fx.store, caller, &(store_runs_query_t){.limit = limit, .cursor = cursor}, note_runs, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    return &out;
}

static __attribute__((unused)) const seen_t *get_run(const char *caller, const char *run_id)
{
    static seen_t out;
    memset(&out, 0, sizeof(out));
    store_run_get(fx.store, caller, run_id, note_runs, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    return &out;
}

#endif
