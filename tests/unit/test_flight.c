/* Requests with one ID within one process: who leads, who follows, who is refused, and that each follower gets exactly
 * one outcome, on its own loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "gateway/flight.h"

#define SHA_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SHA_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

typedef struct {
    flight_member_t member;
    pthread_t thread; /* that the outcome came on */
    int outcomes;
    bool answered;
    char body[8];
} waiter_t;

static void on_outcome(flight_member_t *member, outcome_t *outcome)
{
    waiter_t *w = member->data;
    assert_ptr_equal(&w->member, member);
    w->thread = pthread_self();
    w->outcomes++;
    w->answered = outcome->answered;
    if (outcome->response != NULL)
        memcpy(w->body, outcome->response, outcome->response_len);
    outcome_unref(outcome);
}

static void prepare(waiter_t *w, loop_t *loop)
{
    *w = (waiter_t){.member = {.loop = loop, .on_outcome = on_outcome}};
    w->member.data = w;
}

static outcome_t *answer(const char *body)
{
    outcome_t *o = outcome_create();
    o->answered = true;
    o->response_len = strlen(body);
    o->response = (uint8_t *)mem_strdup(body);
    return o;
}

static void turn(loop_t *loop)
{
    for (int i = 0; i < 3; i++)
        loop_run_once(loop, 0);
}

static void the_first_leads_and_the_same_follow(void **state)
{
    flights_t *f = flights_create();
    loop_t *loop = loop_create();
    waiter_t w[3];
    flight_t *flight = NULL, *none = NULL;
    (void)state;
    for (int i = 0; i < 3; i++)
        prepare(&w[i], loop);
    assert_int_equal(flights_enter(f, "caller/1", SHA_A, &w[0].member, &flight), FLIGHT_LEADS);
    assert_non_null(flight);
    assert_false(flights_has_followers(f, flight));
    assert_int_equal(flights_enter(f, "caller/1", SHA_A, &w[1].member, &none), FLIGHT_FOLLOWS);
    assert_int_equal(flights_enter(f, "caller/1", SHA_A, &w[2].member, &none), FLIGHT_FOLLOWS);
    assert_null(none);
    assert_true(flights_has_followers(f, flight));
    turn(loop);
    assert_int_equal(w[1].outcomes + w[2].outcomes, 0);
    outcome_t *o = answer("done");
    flights_land(f, flight, o);
    outcome_unref(o);
    assert_int_equal(w[1].outcomes + w[2].outcomes, 0); /* never inside the leader's call */
    turn(loop);
    assert_int_equal(w[0].outcomes, 0);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(w[i].outcomes, 1);
        assert_true(w[i].answered);
        assert_string_equal(w[i].body, "done");
    }
    flights_destroy(f);
    loop_destroy(loop);
}

static void another_request_under_the_id_is_a_conflict(void **state)
{
    flights_t *f = flights_create();
    loop_t *loop = loop_create();
    waiter_t w[4];
    flight_t *a = NULL, *b = NULL, *c = NULL, *none = NULL;
    (void)state;
    for (int i = 0; i < 4; i++)
        prepare(&w[i], loop);
    assert_int_equal(flights_enter(f, "caller/1", SHA_A, &w[0].member, &a), FLIGHT_LEADS);
    assert_int_equal(flights_enter(f, "caller/1", SHA_B, &w[1].member, &none), FLIGHT_CONFLICTS);
    assert_false(flights_has_followers(f, a));
    /* another ID, and another caller's */
    assert_int_equal(flights_enter(f, "caller/2", SHA_B, &w[2].member, &b), FLIGHT_LEADS);
    assert_int_equal(flights_enter(f, "caller2/1", SHA_B, &w[3].member, &c), FLIGHT_LEADS);
    outcome_t *o = outcome_create();
    flights_land(f, a, o);
    flights_land(f, b, o);
    flights_land(f, c, o);
    outcome_unref(o);
    turn(loop);
    for (int i = 0; i < 4; i++)
        assert_int_equal(w[i].outcomes, 0);
    flights_destroy(f);
    loop_destroy(loop);
}

static void a_landed_id_is_free(void **state)
{
    flights_t *f = flights_create();
    waiter_t w;
    flight_t *flight = NULL;
    (void)state;
    prepare(&w, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(flights_enter(f, "caller/1", i % 2 != 0 ? SHA_A : SHA_B, &w.member, &flight), FLIGHT_LEADS);
        outcome_t *o = outcome_create();
        flights_land(f, flight, o);
        outcome_unref(o);
    }
    flights_destroy(f);
}

/* First, middle, last and only one of the list. */
static void a_follower_may_leave(void **state)
{
    (void)state;
    for (unsigned leaving = 0; leaving < 8; leaving++) {
        flights_t *f = flights_create();
        loop_t *loop = loop_create();
        waiter_t lead, w[3];
        flight_t *flight = NULL, *none = NULL;
        prepare(&lead, loop);
        assert_int_equal(flights_enter(f, "k", SHA_A, &lead.member, &flight), FLIGHT_LEADS);
        for (int i = 0; i < 3; i++) {
            prepare(&w[i], loop);
            assert_int_equal(flights_enter(f, "k", SHA_A, &w[i].member, &none), FLIGHT_FOLLOWS);
        }
        for (unsigned i = 0; i < 3; i++)
            if ((leaving & 1u << i) != 0) {
                assert_true(flights_leave(f, &w[i].member));
                assert_false(flights_leave(f, &w[i].member));
            }
        assert_int_equal(flights_has_followers(f, flight), leaving != 7);
        outcome_t *o = answer("x");
        flights_land(f, flight, o);
        outcome_unref(o);
        for (unsigned i = 0; i < 3; i++)
            assert_false(flights_leave(f, &w[i].member)); /* gone, or its outcome is on the way */
        turn(loop);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(w[i].outcomes, (leaving & 1u << i) != 0 ? 0 : 1);
        flights_destroy(f);
        loop_destroy(loop);
    }
}

/* More IDs than the table has buckets: each keeps its own followers. */
static void many_ids(void **state)
{
    enum { IDS = 6000 };
    flights_t *f = flights_create();
    loop_t *loop = loop_create();
    waiter_t lead, *w = calloc(IDS, sizeof(*w));
    flight_t **flights = calloc(IDS, sizeof(*flights)), *none = NULL;
    char key[32];
    (void)state;
    assert_non_null(w);
    assert_non_null(flights);
    prepare(&lead, loop);
    for (int i = 0; i < IDS; i++) {
        snprintf(key, sizeof(key), "caller/%d", i);
        assert_int_equal(flights_enter(f, key, SHA_A, &lead.member, &flights[i]), FLIGHT_LEADS);
    }
    for (int i = 0; i < IDS; i++) {
        snprintf(key, sizeof(key), "caller/%d", i);
        prepare(&w[i], loop);
        assert_int_equal(flights_enter(f, key, SHA_A, &w[i].member, &none), FLIGHT_FOLLOWS);
    }
    for (int i = 0; i < IDS; i++) {
        snprintf(key, sizeof(key), "%d", i);
        outcome_t *o = answer(key);
        flights_land(f, flights[i], o);
        outcome_unref(o);
    }
    turn(loop);
    for (int i = 0; i < IDS; i++) {
        snprintf(key, sizeof(key), "%d", i);
        assert_int_equal(w[i].outcomes, 1);
        assert_string_equal(w[i].body, key);
    }
    free(w);
    free(flights);
    flights_destroy(f);
    loop_destroy(loop);
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 300, STEADY = 20 };

typedef struct {
    flights_t *flights;
    pthread_t thread;
    loop_t *loop;
    unsigned seed;
    int led, followed, left, got;
    const char *problem;
} lane_t;

/* Everybody enters under one of a few IDs again and again, leads or follows, leaves or waits; the sums must agree. */
static void *lane_main(void *arg)
{
    lane_t *lane = arg;
    waiter_t w[STEADY];
    lane->loop = loop_create();
    for (int round = 0; round < ROUNDS; round++) {
        flight_t *led[STEADY];
        bool waits[STEADY];
        for (int i = 0; i < STEADY; i++) {
            char key[8];
            led[i] = NULL;
            prepare(&w[i], lane->loop);
            snprintf(key, sizeof(key), "%d", (int)(rand_r(&lane->seed) % 5));
            flight_place_t place = flights_enter(lane->flights, key, SHA_A, &w[i].member, &led[i]);
            waits[i] = place == FLIGHT_FOLLOWS;
            lane->led += place == FLIGHT_LEADS;
            lane->followed += place == FLIGHT_FOLLOWS;
            if (place == FLIGHT_CONFLICTS)
                lane->problem = "a conflict between equal requests";
        }
        for (int i = 0; i < STEADY; i++)
            if (waits[i] && rand_r(&lane->seed) % 4 == 0 && flights_leave(lane->flights, &w[i].member)) {
                waits[i] = false;
                lane->left++;
            }
        for (int i = 0; i < STEADY; i++)
            if (led[i] != NULL) {
                outcome_t *o = answer("x");
                flights_land(lane->flights, led[i], o);
                outcome_unref(o);
            }
        uint64_t until = clock_mono_ms() + 30000;
        for (int i = 0; i < STEADY; i++) {
            while (waits[i] && w[i].outcomes == 0 && clock_mono_ms() < until)
                loop_run_once(lane->loop, 10);
            if (w[i].outcomes != (waits[i] ? 1 : 0))
                lane->problem = "an outcome too few or too many";
            if (waits[i] && !pthread_equal(w[i].thread, lane->thread))
                lane->problem = "an outcome on another's loop";
            lane->got += w[i].outcomes;
        }
    }
    return NULL;
}

static void followers_on_many_threads(void **state)
{
    flights_t *f = flights_create();
    lane_t lanes[THREADS];
    int led = 0, followed = 0, ended = 0;
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        lanes[i] = (lane_t){.flights = f, .seed = (unsigned)i + 1};
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        if (lanes[i].problem != NULL)
            fail_msg("%s", lanes[i].problem);
        loop_destroy(lanes[i].loop); /* the other lanes post to it until they end */
        led += lanes[i].led;
        followed += lanes[i].followed;
        ended += lanes[i].left + lanes[i].got;
    }
    assert_int_equal(led + followed, THREADS * ROUNDS * STEADY);
    assert_int_equal(followed, ended);
    assert_true(led > 0 && followed > 0);
    flights_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_leads_and_the_same_follow),
        cmocka_unit_test(another_request_under_the_id_is_a_conflict),
        cmocka_unit_test(a_landed_id_is_free),
        cmocka_unit_test(a_follower_may_leave),
        cmocka_unit_test(many_ids),
        cmocka_unit_test(followers_on_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
