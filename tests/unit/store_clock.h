/*
 * A clock of the test's own in place of Redis': the scripts' texts are changed so that they read it from a key. And a
 * digest of all that is in the database but that key, to see that nothing was written.
 */
#ifndef TESTS_STORE_CLOCK_H
#define TESTS_STORE_CLOCK_H

#include "tests/unit/store_fixture.h"

#include "records/store_internal.h"

#define CLOCK_KEY "clock"
#define ROOT "plimsoll:2:{test}:"

static const char CLOCK_TIME[] = "call('TIME')", CLOCK_READ[] = "call('HMGET', '" CLOCK_KEY "', 's', 'us')";

/* The text with the clock's key in place of Redis' time. The caller frees. */
static __attribute__((unused)) char *clock_text(const char *body)
{
    size_t len = strlen(body), count = 0;
    for (const char *at = body; (at = strstr(at, CLOCK_TIME)) != NULL; at += sizeof(CLOCK_TIME) - 1)
        ++count;
    assert_true(count > 0);
    char *out = mem_alloc(len + count * sizeof(CLOCK_READ) + 1), *to = out;
    for (;;) {
        const char *at = strstr(body, CLOCK_TIME);
        size_t until = at != NULL ? (size_t)(at - body) : strlen(body);
        memcpy(to, body, until);
        to += until;
        if (at == NULL)
            break;
        memcpy(to, CLOCK_READ, sizeof(CLOCK_READ) - 1);
        to += sizeof(CLOCK_READ) - 1;
        body = at + sizeof(CLOCK_TIME) - 1;
    }
    *to = '\0';
    /* Keys' ends are Redis' own time: far enough off that no key ends while this clock stands still. */
    for (char *at = out; (at = strstr(at, "'PX'")) != NULL;)
        at[1] = 'E';
    return out;
}

static int64_t clock_now_us;

static __attribute__((unused)) void clock_set_us(int64_t us)
{
    clock_now_us = us;
    direct_do("HSET " CLOCK_KEY " s %lld us %lld", (long long)(us / 1000000), (long long)(us % 1000000));
}

static __attribute__((unused)) void clock_set(int64_t ms)
{
    clock_set_us(ms * 1000);
}

static __attribute__((unused)) void clock_add(int64_t ms)
{
    clock_set_us(clock_now_us + ms * 1000);
}

static char *clock_bodies[4];

/* From here on the store lives in this clock. Texts stay until the program ends its group (clock_off). */
static __attribute__((unused)) void clock_on(store_t *store)
{
    loop_timer_stop(&store->sweep.timer); /* its time is the real one */
    redis_script_t *scripts[] = {&store->admit, &store->settle, &store->usage, &store->usage_all};
    for (size_t i = 0; i != 4; ++i) {
        if (clock_bodies[i] == NULL)
            clock_bodies[i] = clock_text(scripts[i]->body);
        redis_script_init(scripts[i], scripts[i]->name, clock_bodies[i]);
    }
}

static __attribute__((unused)) void clock_off(void)
{
    for (size_t i = 0; i != 4; ++i) {
        free(clock_bodies[i]);
        clock_bodies[i] = NULL;
    }
}

/* 40 hex over every key's name, value and end. */
static __attribute__((unused)) const char *db_digest(void)
{
    static char out[41];
    redisReply *reply =
        direct("EVAL %s 0", "local all = redis.call('KEYS', '*') table.sort(all) local t = {}"
                            "for _, k in ipairs(all) do if k ~= '" CLOCK_KEY "' then "
                            "t[#t + 1] = k .. redis.call('DUMP', k) .. redis.call('PEXPIRETIME', k) end end "
                            "return redis.sha1hex(table.concat(t, '|'))");
    assert_int_equal(reply->len, 40);
    memcpy(out, reply->str, 41);
    freeReplyObject(reply);
    return out;
}

/* The call writes nothing. */
#define assert_writes_nothing(call)                                                                                    \
    do {                                                                                                               \
        char digest_before_[41];                                                                                       \
        strcpy(digest_before_, db_digest());                                                                           \
        call;                                                                                                          \
        assert_string_equal(db_digest(), digest_before_);                                                              \
    } while (0)

typedef struct {
    unsigned calls;
    store_lookup_t found;
    size_t count;
    store_usage_t first;
    char callers[STORE_LIST_MAX][260];
    store_usage_t rows[STORE_LIST_MAX];
    char next[300];
} usage_seen_t;

static void note_usage(void *data, store_lookup_t found, const store_usage_t *usage, size_t count, const char *next)
{
    usage_seen_t *out = data;
    ++out->calls;
    out->found = found;
    out->count = count;
    assert_true(count <= STORE_LIST_MAX);
    for (size_t i = 0; i != count; ++i) {
        out->rows[i] = usage[i];
        snprintf(out->callers[i], sizeof(out->callers[i]), "%s", usage[i].caller != NULL ? usage[i].caller : "");
    }
    if (count != 0)
        out->first = usage[0];
    snprintf(out->next, sizeof(out->next), "%s", next != NULL ? next : "");
}

static __attribute__((unused)) const usage_seen_t *usage_seen(const char *caller, const store_caps_t *caps,
                                                              uint32_t window_s)
{
    static usage_seen_t out;
    memset(&out, 0, sizeof(out));
    store_usage(fx.store, caller, caps, window_s, note_usage, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    return &out;
}

/* Of today; NULL: the gateway's. */
static __attribute__((unused)) store_usage_t usage_of(const char *caller)
{
    const usage_seen_t *seen = usage_seen(caller, &(store_caps_t){.slots = 0}, 0);
    assert_int_equal(seen->found, STORE_FOUND);
    return seen->first;
}

static __attribute__((unused)) const usage_seen_t *usage_all(const char *day, const char *cursor)
{
    static usage_seen_t out;
    memset(&out, 0, sizeof(out));
    store_usage_all(fx.store, day, cursor, note_usage, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    return &out;
}

static __attribute__((unused)) bool amounts_are(const store_amounts_t *a, uint64_t seconds_ms, uint64_t paid_ms,
                                                uint64_t cost_micro)
{
    return a->seconds_ms == seconds_ms && a->paid_ms == paid_ms && a->cost_micro == cost_micro;
}

#define assert_amounts(have, seconds, paid, cost)                                                                      \
    do {                                                                                                               \
        store_amounts_t have_ = (have);                                                                                \
        if (!amounts_are(&have_, seconds, paid, cost))                                                                 \
            fail_msg("%llu %llu %llu", (unsigned long long)have_.seconds_ms, (unsigned long long)have_.paid_ms,        \
                     (unsigned long long)have_.cost_micro);                                                            \
    } while (0)

/* A group whose tests each begin with an empty database, at noon. */
static const int64_t CLOCK_NOON = INT64_C(1796040000000); /* 2026-11-30 12:00:00 UTC */

static __attribute__((unused)) int clock_setup(void **state)
{
    fixture_setup(state);
    clock_on(fx.store);
    return 0;
}

static __attribute__((unused)) int clock_teardown(void **state)
{
    clock_off();
    return fixture_teardown(state);
}

static __attribute__((unused)) int clock_clean(void **state)
{
    (void)state;
    direct_do("FLUSHALL");
    clock_set(CLOCK_NOON);
    return 0;
}

#endif
