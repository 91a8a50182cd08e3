/* The leases of what lives here are renewed, all of them and nobody else's; what others have made of a run stands. */
#include "store_fixture.h"

#include "records/store_internal.h"

#define ROOT "plimsoll:2:{test}:"

enum { SHORT_MS = 30, LONG_MS = 20000, LIFE_MS = 3600 * 1000 };

static store_admission_t short_of(const ids_t *ids, bool keyed)
{
    store_admission_t a = admission_of(ids);
    a.lease_ms = SHORT_MS;
    a.life_ms = LIFE_MS;
    a.total_caps.slots = 1000;
    if (!keyed)
        a.request_id = NULL;
    return a;
}

/* Admitted for a moment; what is renewed is so for LONG_MS. */
static void hold(store_lease_t *lease, const ids_t *ids, bool keyed)
{
    store_admission_t a = short_of(ids, keyed);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    a.lease_ms = LONG_MS;
    *lease = (store_lease_t){._store = NULL};
    store_lease_hold(fx.store, lease, &a, clock_mono_us());
}

static bool none_due(void)
{
    const store_renew_t *renew = &fx.store->renew;
    uint64_t now = clock_mono_us();
    for (const store_lease_t *l = renew->_head; l != NULL; l = l->_next)
        if (l->_due_us <= now)
            return false;
    return !renew->in_flight;
}

/* As if a third of each had passed. */
static void renew_now(void)
{
    for (store_lease_t *l = fx.store->renew._head; l != NULL; l = l->_next)
        l->_due_us = 0;
    loop_timer_start(fx.loop, &fx.store->renew.timer, 0);
    turn_until(none_due);
}

static char *text(const char *format, const char *a, const char *b)
{
    static char out[512];
    redisReply *reply = direct(format, a, b);
    out[0] = '\0';
    if (reply->type == REDIS_REPLY_STRING)
        memcpy(out, reply->str, reply->len < sizeof(out) ? reply->len + 1 : 0);
    freeReplyObject(reply);
    return out;
}

static int64_t now_ms(void)
{
    redisReply *reply = direct("TIME");
    int64_t ms = atoll(reply->element[0]->str) * 1000 + atoll(reply->element[1]->str) / 1000;
    freeReplyObject(reply);
    return ms;
}

/* Where a run's lease stands, the ends it has there in ms from now; 0 = not there. */
typedef struct {
    int64_t claim, live, slot, total;
    char letter;
} lease_at_t;

static int64_t from_now(const char *ends)
{
    return ends[0] != '\0' ? atoll(ends) - now_ms() : 0;
}

static lease_at_t lease_of(const ids_t *ids)
{
    lease_at_t at = {0};
    redisReply *claim = direct("GET %sclaim:%s", ids->prefix, ids->request_id);
    if (claim->type == REDIS_REPLY_STRING && claim->len > STORE_CLAIM_HEAD) {
        at.letter = claim->str[0];
        if (at.letter == 'L' || at.letter == 'J')
            at.claim = from_now(claim->str + STORE_CLAIM_HEAD);
    }
    freeReplyObject(claim);
    at.live = from_now(text("HGET " ROOT "live %s%s", ids->run_id, ""));
    at.slot = from_now(text("ZSCORE %sslots %s", ids->prefix, ids->run_id));
    at.total = from_now(text("ZSCORE " ROOT "slots %s%s", ids->run_id, ""));
    return at;
}

static void assert_renewed(int64_t left)
{
    assert_in_range(left, LONG_MS - 5000, LONG_MS);
}

static long long evals(void)
{
    redisReply *info = direct("INFO commandstats");
    const char *at = strstr(info->str, "cmdstat_evalsha:calls=");
    long long calls = at != NULL ? atoll(at + strlen("cmdstat_evalsha:calls=")) : 0;
    freeReplyObject(info);
    return calls;
}

static int clean(void **state)
{
    (void)state;
    while (fx.store->renew._head != NULL)
        store_lease_drop(fx.store->renew._head);
    direct_do("FLUSHALL");
    return 0;
}

static void what_lives_is_renewed_wherever_its_lease_stands(void **state)
{
    ids_t keyed = ids_fresh(), unkeyed = ids_fresh(), joined = ids_fresh(), foreign = ids_fresh();
    static store_lease_t leases[3];
    (void)state;
    store_admission_t a = short_of(&foreign, true);
    a.lease_ms = 8000;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK); /* another copy's */
    a = short_of(&joined, true);
    hold(&leases[0], &keyed, true);
    hold(&leases[1], &unkeyed, false);
    hold(&leases[2], &joined, true);
    assert_int_equal(look(&joined).outcome, ADMIT_JOIN);
    char *live = mem_strdup(text("HGET " ROOT "live %s%s", keyed.run_id, ""));
    renew_now();
    lease_at_t at = lease_of(&keyed);
    assert_int_equal(at.letter, 'L');
    assert_renewed(at.claim), assert_renewed(at.live), assert_renewed(at.slot), assert_renewed(at.total);
    at = lease_of(&joined);
    assert_int_equal(at.letter, 'J');
    assert_renewed(at.claim), assert_renewed(at.live), assert_renewed(at.slot), assert_renewed(at.total);
    at = lease_of(&unkeyed);
    assert_renewed(at.live), assert_renewed(at.slot), assert_renewed(at.total);
    at = lease_of(&foreign);
    assert_true(at.claim < 8001 && at.live < 8001 && at.slot < 8001 && at.total < 8001);
    /* when it began and whose it is stays */
    assert_string_equal(strchr(text("HGET " ROOT "live %s%s", keyed.run_id, ""), ' '), strchr(live, ' '));
    free(live);
    for (size_t i = 0; i != 3; ++i)
        assert_in_range(store_lease_left_ms(&leases[i]), LONG_MS - 5000, LONG_MS);
    /* past the first lease it is still the run's own */
    turn_for(2 * SHORT_MS);
    assert_int_equal(look(&keyed).outcome, ADMIT_JOIN);
    assert_true(settle(&keyed, VERDICT_ANSWERED));
    assert_int_equal(look(&keyed).outcome, ADMIT_ANSWERED);
}

static void what_is_over_is_not_brought_back(void **state)
{
    const verdict_t verdicts[] = {VERDICT_ANSWERED, VERDICT_REFUSED, VERDICT_UNKNOWN};
    (void)state;
    for (size_t i = 0; i != 6; ++i) {
        ids_t ids = ids_fresh();
        static store_lease_t lease;
        bool keyed = i < 3;
        hold(&lease, &ids, keyed);
        store_settlement_t s = settlement_of(&ids, verdicts[i % 3]);
        if (!keyed)
            s.request_id = NULL;
        assert_true(settle_now(&s));
        char before = text("GET %sclaim:%s", ids.prefix, ids.request_id)[0];
        renew_now(); /* as one that was sent before the settlement and came after it */
        assert_int_equal(text("GET %sclaim:%s", ids.prefix, ids.request_id)[0], before);
        assert_int_equal(before, !keyed ? '\0' : "A\0U"[i % 3]);
        assert_int_equal(direct_int("EXISTS %sslots " ROOT "slots " ROOT "live", ids.prefix), 0);
        assert_int_equal(store_lease_left_ms(&lease), 0);
        assert_null(lease._store);
    }
}

static void a_run_that_has_the_key_after_a_refusal_keeps_its_own_lease(void **state)
{
    ids_t first = ids_fresh(), second = ids_next_run(first);
    static store_lease_t lease;
    (void)state;
    hold(&lease, &first, true);
    assert_true(settle(&first, VERDICT_REFUSED));
    store_admission_t a = short_of(&second, true);
    a.lease_ms = 8000;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    renew_now();
    lease_at_t at = lease_of(&second);
    assert_true(at.claim > 0 && at.claim < 8001 && at.live < 8001 && at.slot < 8001);
    assert_int_equal(direct_int("ZCARD %sslots", second.prefix), 1);
    assert_int_equal(store_lease_left_ms(&lease), 0);
}

static void a_lease_that_ran_out_is_renewed_until_somebody_takes_note(void **state)
{
    ids_t unseen = ids_fresh(), seen = ids_fresh(), swept = ids_fresh();
    static store_lease_t leases[3];
    (void)state;
    hold(&leases[0], &unseen, true);
    hold(&leases[1], &seen, true);
    hold(&leases[2], &swept, false);
    turn_for(2 * SHORT_MS);
    assert_int_equal(look(&seen).outcome, ADMIT_OUTCOME_UNKNOWN);
    store_settlement_t s = settlement_of(&swept, VERDICT_UNKNOWN);
    s.request_id = NULL;
    assert_true(settle_now(&s));
    renew_now();
    assert_renewed(lease_of(&unseen).claim);
    assert_int_equal(look(&unseen).outcome, ADMIT_JOIN);
    lease_at_t at = lease_of(&seen);
    assert_true(at.letter == 'U' && at.live <= 0 && at.slot <= 0);
    assert_int_equal(look(&seen).outcome, ADMIT_OUTCOME_UNKNOWN);
    at = lease_of(&swept);
    assert_true(at.live == 0 && at.slot == 0);
    assert_int_equal(store_lease_left_ms(&leases[1]) + store_lease_left_ms(&leases[2]), 0);
    /* the owner's verdict comes, and is not believed of the key; its record is the first */
    assert_true(settle(&seen, VERDICT_ANSWERED));
    assert_int_equal(look(&seen).outcome, ADMIT_OUTCOME_UNKNOWN);
    assert_int_equal(admit(&seen).outcome, ADMIT_OUTCOME_UNKNOWN);
}

static void a_slot_that_was_given_away_is_not_taken_back(void **state)
{
    ids_t ids = ids_fresh(), next = ids_next_request(ids);
    static store_lease_t lease;
    (void)state;
    hold(&lease, &ids, true);
    turn_for(2 * SHORT_MS);
    store_admission_t a = short_of(&next, true);
    a.lease_ms = LONG_MS;
    a.caps.slots = 1;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    renew_now();
    assert_renewed(lease_of(&ids).claim);
    assert_int_equal(lease_of(&ids).slot, 0);
    assert_int_equal(direct_int("ZCARD %sslots", ids.prefix), 1);
}

/* What is noticed while the run may go on is kept for as long as the run may take: no retry finds the key free. */
static void a_claim_outlives_the_longest_run_whoever_takes_note(void **state)
{
    ids_t ids = ids_fresh();
    (void)state;
    store_admission_t a = short_of(&ids, true);
    a.life_ms = 2 * LIFE_MS;
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    long long kept = (long long)STORE_RUN_TTL_S * 1000 + 2 * LIFE_MS;
    assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), kept - 5000, kept);
    turn_for(2 * SHORT_MS);
    assert_int_equal(look(&ids).outcome, ADMIT_OUTCOME_UNKNOWN);
    assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), kept - 5000, kept);
    /* and one that was nearly over is kept anew */
    ids_t late = ids_fresh();
    a = short_of(&late, true);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    turn_for(2 * SHORT_MS);
    direct_do("PEXPIRE %sclaim:%s 5000", late.prefix, late.request_id);
    assert_int_equal(look(&late).outcome, ADMIT_OUTCOME_UNKNOWN);
    kept = (long long)STORE_RUN_TTL_S * 1000;
    assert_in_range(direct_int("PTTL %sclaim:%s", late.prefix, late.request_id), kept - 5000, kept);
}

static void a_renewal_keeps_the_claims_own_end(void **state)
{
    ids_t ids = ids_fresh();
    static store_lease_t lease;
    (void)state;
    hold(&lease, &ids, true);
    long long before = direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id);
    renew_now();
    assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), before - 5000, before);
}

static void values_that_are_not_ours_are_left_alone(void **state)
{
    ids_t claim = ids_fresh(), lost = ids_fresh(), live = ids_fresh(), slots = ids_fresh();
    static store_lease_t leases[4];
    (void)state;
    hold(&leases[0], &claim, true);
    hold(&leases[1], &lost, true);
    hold(&leases[2], &live, false);
    hold(&leases[3], &slots, true);
    direct_do("SET %sclaim:%s nonsense", claim.prefix, claim.request_id);
    direct_do("DEL %sclaim:%s", lost.prefix, lost.request_id);
    direct_do("DEL %sslots", slots.prefix);
    direct_do("SET %sslots nonsense", slots.prefix);
    renew_now();
    assert_string_equal(text("GET %sclaim:%s", claim.prefix, claim.request_id), "nonsense");
    assert_renewed(lease_of(&claim).slot);
    assert_int_equal(direct_int("EXISTS %sclaim:%s", lost.prefix, lost.request_id), 0);
    assert_renewed(lease_of(&lost).slot);
    assert_string_equal(text("GET %sslots%s", slots.prefix, ""), "nonsense");
    assert_renewed(from_now(text("GET %sclaim:%s", slots.prefix, slots.request_id) + STORE_CLAIM_HEAD));
    /* a table of the wrong type: claims and slots alone say who lives */
    direct_do("DEL " ROOT "live");
    direct_do("SET " ROOT "live nonsense");
    direct_do("ZADD %sslots 1 %s", live.prefix, live.run_id);
    renew_now();
    assert_renewed(from_now(text("ZSCORE %sslots %s", live.prefix, live.run_id)));
    for (size_t i = 0; i != 4; ++i)
        assert_int_equal(leases[i]._store != NULL, i == 2 || i == 3);
    assert_string_equal(text("GET " ROOT "live%s%s", "", ""), "nonsense");
}

static void many_go_in_bounded_batches(void **state)
{
    enum { MANY = 2 * STORE_RENEW_BATCH + 1 };
    static store_lease_t leases[MANY];
    static ids_t ids[MANY];
    (void)state;
    for (int i = 0; i != MANY; ++i) {
        ids[i] = ids_fresh();
        hold(&leases[i], &ids[i], i % 2 == 0);
    }
    renew_now(); /* the script is known from here on */
    long long before = evals();
    renew_now();
    assert_int_equal(evals() - before, 3);
    for (int i = 0; i != MANY; ++i)
        assert_renewed(lease_of(&ids[i]).slot);
    /* those that leave while their renewal is on its way, too: nobody waits for it, and nothing is left of it */
    for (store_lease_t *l = fx.store->renew._head; l != NULL; l = l->_next)
        l->_due_us = 0;
    loop_timer_start(fx.loop, &fx.store->renew.timer, 0);
    while (!fx.store->renew.in_flight)
        loop_run_once(fx.loop, 1);
    for (int i = 0; i != MANY; ++i)
        if (i % 3 != 0)
            store_lease_drop(&leases[i]);
    turn_until(none_due);
    assert_int_equal(fx.store->renew.count, (MANY + 2) / 3);
    for (int i = 0; i != MANY; ++i)
        assert_true((leases[i]._store == NULL) == (i % 3 != 0));
}

static bool is_held_longer(void)
{
    return store_lease_left_ms(fx.store->renew._head) > LONG_MS - 1000 && !fx.store->renew.in_flight;
}

static void a_renewal_that_was_not_taken_is_tried_again(void **state)
{
    ids_t ids = ids_fresh();
    static store_lease_t lease;
    (void)state;
    hold(&lease, &ids, true);
    turn_for(2 * SHORT_MS);
    /* an answer that is an error: the run goes on, and so do the tries */
    direct_do("CONFIG SET maxmemory 1");
    lease._ends_us = clock_mono_us() + 5000000;
    lease._due_us = 0;
    loop_timer_start(fx.loop, &fx.store->renew.timer, 0);
    turn_for(200);
    assert_true(lease._store != NULL && store_lease_left_ms(&lease) < 5000);
    direct_do("CONFIG SET maxmemory 0");
    turn_until(is_held_longer);
    assert_renewed(lease_of(&ids).claim);
    /* no answer at all */
    server_kill();
    lease._ends_us = clock_mono_us() + 5000000;
    lease._due_us = 0;
    turn_for(700);
    assert_true(lease._store != NULL && store_lease_left_ms(&lease) < 5000);
    server_start();
    turn_until(is_held_longer);
    assert_renewed(lease_of(&ids).claim);
}

static void a_lease_is_due_between_a_quarter_and_a_third_of_it(void **state)
{
    (void)state;
    uint64_t since = clock_mono_us(), least = UINT64_MAX, most = 0;
    for (int i = 0; i != 200; ++i) {
        ids_t ids = ids_fresh();
        store_admission_t a = admission_of(&ids);
        static store_lease_t lease = {._store = NULL};
        a.lease_ms = STORE_LEASE_MS;
        store_lease_hold(fx.store, &lease, &a, since);
        uint64_t due = lease._due_us - since;
        least = due < least ? due : least;
        most = due > most ? due : most;
        assert_int_equal(lease._ends_us - since, STORE_LEASE_MS * 1000);
        store_lease_drop(&lease);
        store_lease_drop(&lease); /* of one that is not held */
        assert_int_equal(store_lease_left_ms(&lease), 0);
    }
    assert_true(least >= STORE_LEASE_MS * 1000 / 4 && most <= STORE_LEASE_MS * 1000 / 3);
    assert_true(most - least > STORE_LEASE_MS * 1000 / 24); /* spread */
}

static void what_is_over_before_it_is_due_costs_nothing(void **state)
{
    ids_t ids = ids_fresh();
    static store_lease_t lease;
    (void)state;
    hold(&lease, &ids, true);
    long long before = evals();
    turn_for(1100); /* two looks */
    assert_int_equal(evals() - before, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        T(what_lives_is_renewed_wherever_its_lease_stands),
        T(what_is_over_is_not_brought_back),
        T(a_run_that_has_the_key_after_a_refusal_keeps_its_own_lease),
        T(a_lease_that_ran_out_is_renewed_until_somebody_takes_note),
        T(a_slot_that_was_given_away_is_not_taken_back),
        T(a_claim_outlives_the_longest_run_whoever_takes_note),
        T(a_renewal_keeps_the_claims_own_end),
        T(values_that_are_not_ours_are_left_alone),
        T(many_go_in_bounded_batches),
        T(a_renewal_that_was_not_taken_is_tried_again),
        T(a_lease_is_due_between_a_quarter_and_a_third_of_it),
        T(what_is_over_before_it_is_due_costs_nothing),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
