/* Claims, slots, rate and settling against a real Redis. Runs read back: test_store_runs.c; trouble:
 * test_store_faults.c. */
#include "tests/unit/store_fixture.h"

/* ---- claims ---- */

static void a_free_id_is_admitted_and_then_joined(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), again = ids_next_run(ids);
    store_admitted_t said = admit(&ids);
    assert_int_equal(said.outcome, ADMIT_OK);
    assert_int_equal(said.rate_limit, 0);
    assert_int_equal(said.slots_in_use, 1);
    said = admit(&again);
    assert_int_equal(said.outcome, ADMIT_JOIN);
    assert_string_equal(said.run_id, ids.run_id);
    said = look(&again);
    assert_int_equal(said.outcome, ADMIT_JOIN);
    assert_string_equal(said.run_id, ids.run_id);
}

static void the_claims_key_is_the_documented_one(void **state)
{
    (void)state;
    char key[STORE_CLAIM_KEY_MAX];
    /* SHA-256 of "alice", as coreutils computes it */
    store_claim_key(fx.store, "alice", "0123456789abcdef0123456789abcdef", key);
    assert_string_equal(key,
                        "plimsoll:2:{test}:2bd806c97f0e00af1a1fc3328fa763a9:claim:0123456789abcdef0123456789abcdef");
}

static void two_callers_may_use_the_same_id(void **state)
{
    (void)state;
    ids_t one = ids_fresh(), two = ids_fresh();
    memcpy(two.request_id, one.request_id, sizeof(one.request_id));
    assert_int_equal(admit(&one).outcome, ADMIT_OK);
    assert_int_equal(admit(&two).outcome, ADMIT_OK);
}

static void another_digest_is_a_conflict_in_every_state(void **state)
{
    (void)state;
    for (int verdict = -1; verdict <= VERDICT_UNKNOWN; ++verdict) {
        if (verdict == VERDICT_REFUSED)
            continue;
        ids_t ids = ids_fresh(), other = ids_next_run(ids);
        random_hex(other.digest, 32);
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        if (verdict >= 0)
            assert_true(settle(&ids, (verdict_t)verdict));
        store_admitted_t said = admit(&other);
        assert_int_equal(said.outcome, ADMIT_CONFLICT);
        assert_null(said.answer);
        assert_int_equal(look(&other).outcome, ADMIT_CONFLICT);
    }
}

static void an_answered_id_gives_the_stored_answer(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), again = ids_next_run(ids);
    uint8_t answer[256];
    for (size_t i = 0; i != sizeof(answer); ++i)
        answer[i] = (uint8_t)i; /* every byte, NUL and separators too */
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.answer = answer;
    s.answer_len = sizeof(answer);
    assert_true(settle_now(&s));
    store_admission_t admission = admission_of(&again);
    for (int has_place = 0; has_place != 2; ++has_place) {
        admission.has_place = has_place != 0;
        store_admitted_t said = admit_now(&admission);
        assert_int_equal(said.outcome, ADMIT_ANSWERED);
        assert_string_equal(said.run_id, ids.run_id);
        assert_string_equal(said.record_sha256, ids.digest);
        assert_string_equal(said.backend, "docker");
        assert_int_equal(said.answer_len, sizeof(answer));
        assert_memory_equal(said.answer, answer, sizeof(answer));
    }
    assert_int_equal(look(&again).outcome, ADMIT_ANSWERED);
    assert_int_equal(direct_int("EXISTS %sslots", ids.prefix), 0);
}

static void an_answer_past_the_limit_keeps_its_record_only(void **state)
{
    (void)state;
    for (int past = -1; past <= 1; ++past) {
        ids_t ids = ids_fresh();
        size_t len = (size_t)(STORE_ANSWER_MAX + past);
        uint8_t *answer = mem_alloc(len);
        memset(answer, 'x', len);
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
        s.answer = answer;
        s.answer_len = len;
        assert_true(settle_now(&s));
        store_admitted_t said = admit(&ids);
        assert_int_equal(said.outcome, past > 0 ? ADMIT_ANSWER_GONE : ADMIT_ANSWERED);
        assert_string_equal(said.record_sha256, ids.digest);
        assert_string_equal(said.run_id, ids.run_id);
        assert_string_equal(said.backend, "docker");
        if (past <= 0) {
            assert_int_equal(said.answer_len, len);
            assert_memory_equal(said.answer, answer, len);
        }
        free(answer);
    }
}

static void an_unknown_outcome_keeps_the_id_and_its_code(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), again = ids_next_run(ids);
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_UNKNOWN));
    for (int i = 0; i != 2; ++i) {
        store_admitted_t said = admit(&again);
        assert_int_equal(said.outcome, ADMIT_OUTCOME_UNKNOWN);
        assert_string_equal(said.unknown_code, "deadline_exceeded");
        assert_string_equal(said.run_id, ids.run_id);
    }
}

static void a_refusal_frees_the_id(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), again = ids_next_run(ids);
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_REFUSED));
    assert_int_equal(look(&again).outcome, ADMIT_OK);
    assert_int_equal(admit(&again).outcome, ADMIT_OK);
    /* the first refusal, repeated late, does not touch the second run's claim */
    assert_true(settle(&ids, VERDICT_REFUSED));
    assert_int_equal(look(&again).outcome, ADMIT_JOIN);
    assert_int_equal(direct_int("ZCARD %sslots", ids.prefix), 1);
}

static void without_a_place_only_an_existing_claim_is_answered(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.has_place = false;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_PLACE);
    assert_int_equal(direct_int("EXISTS %sslots %srate %sclaim:%s", ids.prefix, ids.prefix, ids.prefix, ids.request_id),
                     0);
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_int_equal(admit_now(&admission).outcome, ADMIT_JOIN);
    admission.request_id = NULL;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_PLACE);
}

static void looking_takes_nothing(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(look(&ids).outcome, ADMIT_OK);
    assert_int_equal(direct_int("EXISTS %sslots %srate %sclaim:%s", ids.prefix, ids.prefix, ids.prefix, ids.request_id),
                     0);
}

static void two_hundred_at_once_make_one_run(void **state)
{
    (void)state;
    enum { AT_ONCE = 200 };
    static admitted_t out[AT_ONCE];
    memset(out, 0, sizeof(out));
    ids_t ids = ids_fresh(), each[AT_ONCE];
    for (int i = 0; i != AT_ONCE; ++i) {
        each[i] = ids_next_run(ids);
        store_admission_t admission = admission_of(&each[i]);
        store_admit(fx.store, &admission, note_admitted, &out[i]);
    }
    unsigned ok = 0, joined = 0;
    const char *winner = NULL;
    for (int i = 0; i != AT_ONCE; ++i) {
        await_calls(&out[i].calls);
        ok += out[i].said.outcome == ADMIT_OK;
        joined += out[i].said.outcome == ADMIT_JOIN;
        if (out[i].said.outcome == ADMIT_OK)
            winner = each[i].run_id;
    }
    assert_int_equal(ok, 1);
    assert_int_equal(joined, AT_ONCE - 1);
    for (int i = 0; i != AT_ONCE; ++i) {
        if (out[i].said.outcome == ADMIT_JOIN)
            assert_string_equal(out[i].said.run_id, winner);
    }
    assert_int_equal(direct_int("ZCARD %sslots", ids.prefix), 1);
}

static void unkeyed_runs_take_slots_and_rate_but_no_claim(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.request_id = NULL;
    admission.caps.slots = 1;
    admission.caps.rate_per_min = 1;
    admission.caps.burst = 2;
    store_admitted_t said = admit_now(&admission);
    assert_int_equal(said.outcome, ADMIT_OK);
    assert_int_equal(said.rate_remaining, 1);
    assert_int_equal(admit_now(&admission).outcome, ADMIT_CAPPED);
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.request_id = NULL;
    assert_true(settle_now(&s));
    redisReply *keys = direct("KEYS %s*", ids.prefix);
    assert_int_equal(keys->elements, 4); /* rate, runs, the run, the day */
    freeReplyObject(keys);
    const seen_t *seen = get_run(ids.caller, ids.run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_string_equal(seen->runs[0].request_id, "");
}

static void ids_that_are_none_are_refused_unasked(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdef0",
                                      "0123456789ABCDEF0123456789abcdef", "0123456789abcdef0123456789abcde:"};
    ids_t ids = ids_fresh();
    for (size_t i = 0; i != sizeof(bad) / sizeof(bad[0]); ++i) {
        store_admission_t admission = admission_of(&ids);
        admission.request_id = bad[i];
        assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
        admission = admission_of(&ids);
        admission.run_id = bad[i];
        assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
        store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
        s.run_id = bad[i];
        assert_false(settle_now(&s));
    }
    store_admission_t admission = admission_of(&ids);
    admission.request_sha256 = "abc";
    assert_int_equal(admit_now(&admission).outcome, ADMIT_NO_STORE);
    assert_true(store_idle());
    redisReply *keys = direct("KEYS %s*", ids.prefix);
    assert_int_equal(keys->elements, 0);
    freeReplyObject(keys);
}

/* ---- leases ---- */

static void a_lease_that_ran_out_is_unknown_for_good(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), again = ids_next_run(ids);
    store_admission_t admission = admission_of(&ids);
    admission.lease_ms = 60;
    admission.caps.slots = 1;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    assert_int_equal(admit(&again).outcome, ADMIT_JOIN);
    usleep(61 * 1000);
    store_admitted_t said = admit(&again);
    assert_int_equal(said.outcome, ADMIT_OUTCOME_UNKNOWN);
    assert_string_equal(said.unknown_code, "unavailable");
    assert_string_equal(said.run_id, ids.run_id);
    /* the answer comes after all: the claim keeps what somebody was told, the run's record has the truth */
    assert_true(settle(&ids, VERDICT_ANSWERED));
    assert_int_equal(admit(&again).outcome, ADMIT_OUTCOME_UNKNOWN);
    const seen_t *seen = get_run(ids.caller, ids.run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_string_equal(seen->runs[0].verdict, "answered");
    /* a late refusal does not free it either */
    assert_true(settle(&ids, VERDICT_REFUSED));
    assert_int_equal(admit(&again).outcome, ADMIT_OUTCOME_UNKNOWN);
}

static void an_answer_in_time_counts_though_the_lease_has_run_out(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.lease_ms = 1;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    usleep(5000);
    assert_true(settle(&ids, VERDICT_ANSWERED)); /* nobody was told otherwise */
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
}

static void looking_ends_a_lease_that_ran_out_too(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_admission_t admission = admission_of(&ids);
    admission.lease_ms = 1;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    usleep(5000);
    assert_int_equal(look(&ids).outcome, ADMIT_OUTCOME_UNKNOWN);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    assert_int_equal(look(&ids).outcome, ADMIT_OUTCOME_UNKNOWN);
}

static void slots_of_the_dead_free_themselves(void **state)
{
    (void)state;
    ids_t first = ids_fresh();
    for (int i = 0; i != 10; ++i) {
        ids_t ids = ids_next_request(first);
        store_admission_t admission = admission_of(&ids);
        admission.lease_ms = 100;
        admission.caps.slots = 10;
        assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    }
    usleep(101 * 1000);
    ids_t next = ids_next_request(first);
    store_admission_t admission = admission_of(&next);
    admission.caps.slots = 10;
    store_admitted_t said = admit_now(&admission);
    assert_int_equal(said.outcome, ADMIT_OK);
    assert_int_equal(said.slots_in_use, 1);
}

static void a_short_lease_does_not_end_a_long_one(void **state)
{
    (void)state;
    ids_t first = ids_fresh(), second = ids_next_request(first), third = ids_next_request(first);
    assert_int_equal(admit(&first).outcome, ADMIT_OK);
    store_admission_t admission = admission_of(&second);
    admission.lease_ms = 20;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    usleep(25 * 1000);
    admission = admission_of(&third);
    admission.caps.slots = 1;
    store_admitted_t said = admit_now(&admission);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_int_equal(said.slots_in_use, 1);
}

/* ---- slots and rate ---- */

static void slots_are_exact(void **state)
{
    (void)state;
    enum { SLOTS = 3 };
    ids_t first = ids_fresh(), ids[SLOTS + 1];
    for (int i = 0; i <= SLOTS; ++i) {
        ids[i] = ids_next_request(first);
        store_admission_t admission = admission_of(&ids[i]);
        admission.caps.slots = SLOTS;
        store_admitted_t said = admit_now(&admission);
        assert_int_equal(said.outcome, i < SLOTS ? ADMIT_OK : ADMIT_CAPPED);
        assert_int_equal(said.slots_in_use, i < SLOTS ? i + 1 : SLOTS);
        if (i == SLOTS)
            assert_in_range(said.retry_after_ms, 1, 60000);
    }
    assert_int_equal(look(&ids[SLOTS]).outcome, ADMIT_OK); /* the refused id is still free */
    assert_true(settle(&ids[1], VERDICT_UNKNOWN));
    store_admission_t admission = admission_of(&ids[SLOTS]);
    admission.caps.slots = SLOTS;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    assert_int_equal(direct_int("ZCARD %sslots", first.prefix), SLOTS);
}

static store_admitted_t admit_limited(const ids_t *ids, uint32_t rate, uint32_t burst, uint32_t slots)
{
    store_admission_t admission = admission_of(ids);
    admission.caps.rate_per_min = rate;
    admission.caps.burst = burst;
    admission.caps.slots = slots;
    return admit_now(&admission);
}

static void the_burst_is_exact(void **state)
{
    (void)state;
    enum { BURST = 60 };
    ids_t first = ids_fresh();
    uint64_t began = clock_mono_ms();
    for (int i = 0; i <= BURST; ++i) { /* 60 a minute, 61 at once */
        ids_t ids = ids_next_request(first);
        store_admitted_t said = admit_limited(&ids, 60, BURST, 0);
        assert_true(clock_mono_ms() - began < 900); /* else a further one is right */
        assert_int_equal(said.outcome, i < BURST ? ADMIT_OK : ADMIT_CAPPED);
        assert_int_equal(said.rate_limit, BURST);
        assert_int_equal(said.rate_remaining, i < BURST ? BURST - 1 - i : 0);
        uint32_t most = (uint32_t)(i < BURST ? i + 1 : BURST) * 1000;
        assert_in_range(said.rate_reset_ms, most - 900, most);
        if (i == BURST) {
            assert_in_range(said.retry_after_ms, 1, 1000);
            assert_int_equal(look(&ids).outcome, ADMIT_OK); /* the refused id is still free */
        }
    }
}

static void waiting_exactly_as_told_succeeds(void **state)
{
    (void)state;
    /* 7 and 700 do not divide a minute; 1000 us steps end between milliseconds of Redis' clock */
    static const uint32_t rates[] = {60000, 7000, 700, 300};
    for (size_t i = 0; i != sizeof(rates) / sizeof(rates[0]); ++i) {
        ids_t first = ids_fresh();
        unsigned refused = 0;
        for (int round = 0; round != 6; ++round) {
            store_admitted_t said;
            for (int tries = 0;; ++tries) { /* spend the burst */
                ids_t ids = ids_next_request(first);
                said = admit_limited(&ids, rates[i], 2, 0);
                if (said.outcome == ADMIT_CAPPED)
                    break;
                assert_int_equal(said.outcome, ADMIT_OK);
                assert_true(tries < 1000);
                if (tries == 100)
                    break; /* a machine slower than this rate */
            }
            if (said.outcome != ADMIT_CAPPED)
                continue;
            ++refused;
            assert_in_range(said.retry_after_ms, 1, 60000 / rates[i] + 1);
            usleep(said.retry_after_ms * 1000);
            ids_t ids = ids_next_request(first);
            assert_int_equal(admit_limited(&ids, rates[i], 2, 0).outcome, ADMIT_OK);
        }
        if (rates[i] <= 7000)
            assert_true(refused > 0);
    }
}

static void waiting_less_than_told_does_not(void **state)
{
    (void)state;
    ids_t first = ids_fresh(), second = ids_next_request(first);
    assert_int_equal(admit_limited(&first, 60, 1, 0).outcome, ADMIT_OK);
    store_admitted_t said = admit_limited(&second, 60, 1, 0);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_true(said.retry_after_ms > 500);
    usleep((said.retry_after_ms - 500) * 1000);
    uint32_t before = said.retry_after_ms;
    said = admit_limited(&second, 60, 1, 0);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_in_range(said.retry_after_ms, 1, 500);
    assert_true(said.retry_after_ms < before);
}

/* U19: rate 2 a minute, one slot. A runs, B is refused for want of a slot, A ends, C is admitted. */
static void a_run_refused_for_a_slot_spends_no_rate(void **state)
{
    (void)state;
    ids_t a = ids_fresh(), b = ids_next_request(a), c = ids_next_request(a), d = ids_next_request(a);
    assert_int_equal(admit_limited(&a, 2, 2, 1).rate_remaining, 1);
    store_admitted_t said = admit_limited(&b, 2, 2, 1);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_int_equal(said.rate_remaining, 1);
    assert_true(settle(&a, VERDICT_ANSWERED));
    said = admit_limited(&c, 2, 2, 1);
    assert_int_equal(said.outcome, ADMIT_OK);
    assert_int_equal(said.rate_remaining, 0);
    assert_true(settle(&c, VERDICT_ANSWERED));
    assert_int_equal(admit_limited(&d, 2, 2, 1).outcome, ADMIT_CAPPED);
}

static void a_refused_run_costs_no_rate_however_often_it_is_settled(void **state)
{
    (void)state;
    ids_t first = ids_fresh();
    for (int i = 0; i != 5; ++i) {
        ids_t ids = ids_next_request(first);
        store_admitted_t said = admit_limited(&ids, 1, 2, 0);
        assert_int_equal(said.outcome, ADMIT_OK);
        assert_int_equal(said.rate_remaining, 1);
        assert_true(settle(&ids, VERDICT_REFUSED));
        assert_true(settle(&ids, VERDICT_REFUSED));
    }
    /* one given back once: of two taken, one is left */
    ids_t kept = ids_next_request(first), back = ids_next_request(first), next = ids_next_request(first);
    assert_int_equal(admit_limited(&kept, 1, 2, 0).outcome, ADMIT_OK);
    assert_int_equal(admit_limited(&back, 1, 2, 0).outcome, ADMIT_OK);
    for (int i = 0; i != 3; ++i)
        assert_true(settle(&back, VERDICT_REFUSED));
    assert_int_equal(admit_limited(&next, 1, 2, 0).outcome, ADMIT_OK);
    next = ids_next_request(first);
    assert_int_equal(admit_limited(&next, 1, 2, 0).outcome, ADMIT_CAPPED);
}

static void replays_and_conflicts_cost_nothing(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), other = ids_next_run(ids);
    random_hex(other.digest, 32);
    assert_int_equal(admit_limited(&ids, 1, 2, 1).rate_remaining, 1);
    assert_int_equal(admit_limited(&ids, 1, 2, 1).outcome, ADMIT_JOIN);
    assert_int_equal(admit_limited(&other, 1, 2, 1).outcome, ADMIT_CONFLICT);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    for (int i = 0; i != 3; ++i) {
        store_admitted_t said = admit_limited(&ids, 1, 2, 1);
        assert_int_equal(said.outcome, ADMIT_ANSWERED);
        assert_int_equal(said.rate_remaining, 1);
        assert_int_equal(said.rate_limit, 2);
    }
}

static void extreme_limits_stay_exact(void **state)
{
    (void)state;
    static const struct {
        uint32_t rate, burst, limit;
    } rows[] = {
        {1, 1, 1},
        {1, UINT32_MAX, 16666666}, /* 10^15 us of window / 60 s */
        {1, 16666665, 16666665},
        {1, 16666666, 16666666},
        {1, 16666667, 16666666},
        {UINT32_MAX, UINT32_MAX, UINT32_MAX}, /* 1 us apart: the window holds every burst there is */
        {60000001, 3, 3},
    };
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i) {
        ids_t ids = ids_fresh();
        store_admitted_t said = admit_limited(&ids, rows[i].rate, rows[i].burst, UINT32_MAX);
        assert_int_equal(said.outcome, ADMIT_OK);
        assert_int_equal(said.rate_limit, rows[i].limit);
        assert_int_equal(said.rate_remaining, said.rate_limit - 1);
        assert_true(direct_int("PTTL %srate", ids.prefix) != -1); /* it ends, or has ended */
        ids_t next = ids_next_request(ids);
        said = admit_limited(&next, rows[i].rate, rows[i].burst, UINT32_MAX);
        assert_int_equal(said.outcome, said.rate_limit == 1 ? ADMIT_CAPPED : ADMIT_OK);
        if (said.outcome == ADMIT_OK && rows[i].rate == 1)
            assert_int_equal(said.rate_remaining, said.rate_limit - 2);
    }
}

static void a_smaller_limit_costs_at_most_its_own_window(void **state)
{
    (void)state;
    ids_t first = ids_fresh();
    for (int i = 0; i != 5; ++i) {
        ids_t ids = ids_next_request(first);
        assert_int_equal(admit_limited(&ids, 1, 5, 0).outcome, ADMIT_OK); /* five minutes ahead */
    }
    ids_t ids = ids_next_request(first);
    store_admitted_t said = admit_limited(&ids, 60, 1, 0);
    assert_int_equal(said.outcome, ADMIT_CAPPED);
    assert_in_range(said.retry_after_ms, 1, 1000);
}

/* ---- settling ---- */

static void every_verdict_may_be_settled_twice(void **state)
{
    (void)state;
    for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
        ids_t ids = ids_fresh();
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        assert_true(settle(&ids, (verdict_t)verdict));
        assert_true(settle(&ids, (verdict_t)verdict));
        const seen_t *seen = list_runs(ids.caller, 10, NULL);
        assert_int_equal(seen->count, 1);
        assert_string_equal(seen->runs[0].verdict, verdict_name((verdict_t)verdict));
        assert_int_equal(direct_int("EXISTS %sslots", ids.prefix), 0);
    }
}

static void the_first_final_verdict_stays(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    assert_true(settle(&ids, VERDICT_UNKNOWN));
    assert_true(settle(&ids, VERDICT_REFUSED));
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
    assert_string_equal(get_run(ids.caller, ids.run_id)->runs[0].verdict, "answered");
}

static void a_run_whose_claim_was_lost_uses_its_id_up(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_true(settle(&ids, VERDICT_ANSWERED)); /* as after a Redis that lost its data */
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
    assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), 604800000 - 5000, 604800000);
}

static void waiters_are_told(void **state)
{
    (void)state;
    char key[STORE_CLAIM_KEY_MAX];
    for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
        ids_t ids = ids_fresh();
        for (int waits = 0; waits <= 2; ++waits) {
            ids = ids_next_request(ids);
            store_claim_key(fx.store, ids.caller, ids.request_id, key);
            assert_int_equal(admit(&ids).outcome, ADMIT_OK);
            if (waits > 0)
                assert_int_equal(waits == 1 ? admit(&ids).outcome : look(&ids).outcome, ADMIT_JOIN);
            fx.settled_seen = 0;
            assert_true(settle(&ids, (verdict_t)verdict));
            turn_for(50);
            assert_int_equal(fx.settled_seen, waits > 0 ? 1 : 0);
            if (waits > 0)
                assert_string_equal(fx.settled_key, key);
            if (verdict != VERDICT_REFUSED) /* the claim is the same for having been waited for */
                assert_int_equal(admit(&ids).outcome,
                                 verdict == VERDICT_ANSWERED ? ADMIT_ANSWERED : ADMIT_OUTCOME_UNKNOWN);
        }
    }
    ids_t dead = ids_fresh(); /* a lease that ran out */
    store_admission_t admission = admission_of(&dead);
    admission.lease_ms = 50;
    assert_int_equal(admit_now(&admission).outcome, ADMIT_OK);
    assert_int_equal(look(&dead).outcome, ADMIT_JOIN);
    usleep(51 * 1000);
    fx.settled_seen = 0;
    assert_int_equal(look(&dead).outcome, ADMIT_OUTCOME_UNKNOWN);
    turn_for(50);
    assert_int_equal(fx.settled_seen, 1);
    fx.settled_seen = 0;
    char *big = mem_alloc(STORE_CLAIM_KEY_MAX + 1);
    for (size_t len = STORE_CLAIM_KEY_MAX - 1; len <= STORE_CLAIM_KEY_MAX + 1; ++len) {
        memset(big, 'x', len);
        direct_do("PUBLISH plimsoll:2:{test}:settled %b", big, len);
    }
    free(big);
    direct_do("PUBLISH plimsoll:2:{test}:settled %b", "a\0b", (size_t)3);
    turn_for(50);
    assert_int_equal(fx.settled_seen, 1); /* only the one that fits */
}

static void every_key_has_an_end(void **state)
{
    (void)state;
    ids_t live = ids_fresh(), done = ids_next_request(live), unknown = ids_next_request(live),
          refused = ids_next_request(live);
    assert_int_equal(admit_limited(&live, 60, 60, 10).outcome, ADMIT_OK);
    assert_int_equal(admit_limited(&done, 60, 60, 10).outcome, ADMIT_OK);
    assert_int_equal(admit_limited(&unknown, 60, 60, 10).outcome, ADMIT_OK);
    assert_int_equal(admit_limited(&refused, 60, 60, 10).outcome, ADMIT_OK);
    assert_true(settle(&done, VERDICT_ANSWERED));
    assert_true(settle(&unknown, VERDICT_UNKNOWN));
    assert_true(settle(&refused, VERDICT_REFUSED));
    redisReply *keys = direct("KEYS %s*", live.prefix);
    assert_int_equal(keys->elements, 11); /* slots, rate, runs, the day, an answer, three claims, three runs */
    for (size_t i = 0; i != keys->elements; ++i)
        assert_true(direct_int("PTTL %s", keys->element[i]->str) > 0);
    freeReplyObject(keys);
    /* to the second: a claim outlives its lease by the time a settled one is kept */
    assert_in_range(direct_int("PTTL %sclaim:%s", live.prefix, live.request_id), 604800000 + 19000, 604800000 + 20000);
    assert_in_range(direct_int("PTTL %sclaim:%s", live.prefix, done.request_id), 604800000 + 19000, 604800000 + 20000);
    assert_in_range(direct_int("PTTL %sanswer:%s", live.prefix, done.run_id), 86400000 - 1000, 86400000);
    keys = direct("KEYS %sday:*", live.prefix);
    assert_int_equal(keys->elements, 1);
    assert_in_range(direct_int("PTTL %s", keys->element[0]->str), INT64_C(3456000000) - 10000, INT64_C(3456000000));
    freeReplyObject(keys);
    assert_in_range(direct_int("PTTL %srun:%s", live.prefix, done.run_id), 604800000 - 1000, 604800000);
    assert_in_range(direct_int("PTTL %sruns", live.prefix), INT64_C(34560000000) - 10000, INT64_C(34560000000));
    assert_in_range(direct_int("PTTL %sslots", live.prefix), 86400000, 172800000);
}

static void flushed_scripts_are_sent_again(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    direct_do("SCRIPT FLUSH");
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    direct_do("SCRIPT FLUSH");
    assert_true(settle(&ids, VERDICT_ANSWERED));
    direct_do("SCRIPT FLUSH");
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
    direct_do("SCRIPT FLUSH");
    assert_int_equal(list_runs(ids.caller, 10, NULL)->count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_free_id_is_admitted_and_then_joined),
        cmocka_unit_test(the_claims_key_is_the_documented_one),
        cmocka_unit_test(two_callers_may_use_the_same_id),
        cmocka_unit_test(another_digest_is_a_conflict_in_every_state),
        cmocka_unit_test(an_answered_id_gives_the_stored_answer),
        cmocka_unit_test(an_answer_past_the_limit_keeps_its_record_only),
        cmocka_unit_test(an_unknown_outcome_keeps_the_id_and_its_code),
        cmocka_unit_test(a_refusal_frees_the_id),
        cmocka_unit_test(without_a_place_only_an_existing_claim_is_answered),
        cmocka_unit_test(looking_takes_nothing),
        cmocka_unit_test(two_hundred_at_once_make_one_run),
        cmocka_unit_test(unkeyed_runs_take_slots_and_rate_but_no_claim),
        cmocka_unit_test(ids_that_are_none_are_refused_unasked),
        cmocka_unit_test(a_lease_that_ran_out_is_unknown_for_good),
        cmocka_unit_test(an_answer_in_time_counts_though_the_lease_has_run_out),
        cmocka_unit_test(looking_ends_a_lease_that_ran_out_too),
        cmocka_unit_test(slots_of_the_dead_free_themselves),
        cmocka_unit_test(a_short_lease_does_not_end_a_long_one),
        cmocka_unit_test(slots_are_exact),
        cmocka_unit_test(the_burst_is_exact),
        cmocka_unit_test(waiting_exactly_as_told_succeeds),
        cmocka_unit_test(waiting_less_than_told_does_not),
        cmocka_unit_test(a_run_refused_for_a_slot_spends_no_rate),
        cmocka_unit_test(a_refused_run_costs_no_rate_however_often_it_is_settled),
        cmocka_unit_test(replays_and_conflicts_cost_nothing),
        cmocka_unit_test(extreme_limits_stay_exact),
        cmocka_unit_test(a_smaller_limit_costs_at_most_its_own_window),
        cmocka_unit_test(every_verdict_may_be_settled_twice),
        cmocka_unit_test(the_first_final_verdict_stays),
        cmocka_unit_test(a_run_whose_claim_was_lost_uses_its_id_up),
        cmocka_unit_test(waiters_are_told),
        cmocka_unit_test(every_key_has_an_end),
        cmocka_unit_test(flushed_scripts_are_sent_again),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
