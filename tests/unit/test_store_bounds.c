/* What is written and read has bounds: refusals, which cost their caller nothing, and values that nobody of us wrote.
 */
#include "tests/unit/store_fixture.h"

#include "records/store_internal.h"

static void a_refused_run_was_kept_for_days_however_many_there_were(void **state)
{
    (void)state;
    ids_t ids = ids_fresh(), kept = ids, refused = ids, newest;
    random_hex(kept.run_id, 16);
    random_hex(refused.run_id, 16);
    assert_true(settle(&kept, VERDICT_ANSWERED));
    refused.request_id[0] ^= 1; /* another key */
    assert_true(settle(&refused, VERDICT_REFUSED));
    assert_int_equal(get_run(ids.caller, refused.run_id)->found, STORE_FOUND);
    /* the two are the oldest of an index that is full */
    direct_do("EVAL %s 1 %sruns", "for i = 1, 10013 do redis.call('LPUSH', KEYS[1], string.format('%%016d', i)) end",
              ids.prefix);
    newest = ids_next_request(ids);
    assert_true(settle(&newest, VERDICT_REFUSED));
    assert_int_equal(direct_int("LLEN %sruns", ids.prefix), STORE_RUNS_KEPT);
    assert_int_equal(get_run(ids.caller, refused.run_id)->found, STORE_NOT_FOUND);
    assert_int_equal(get_run(ids.caller, newest.run_id)->found, STORE_FOUND);
    /* what ran has its record for its whole time */
    assert_int_equal(get_run(ids.caller, kept.run_id)->found, STORE_FOUND);
}

static void a_refusal_freed_its_id_and_a_sweep_that_came_later_took_it_for_ever(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    long long leaves = direct_int("LLEN plimsoll:2:{test}:log");
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_REFUSED));
    store_settlement_t late = settlement_of(&ids, VERDICT_UNKNOWN);
    late.unknown_code = "unavailable";
    assert_true(settle_now(&late));
    assert_int_equal(look(&ids).outcome, ADMIT_OK);
    assert_string_equal(get_run(ids.caller, ids.run_id)->runs[0].verdict, "refused");
    assert_int_equal(direct_int("LLEN plimsoll:2:{test}:log"), leaves);
    /* a claim that Redis lost of a run that was made is a claim again */
    ids_t made = ids_fresh();
    assert_int_equal(admit(&made).outcome, ADMIT_OK);
    assert_true(settle(&made, VERDICT_ANSWERED));
    direct_do("DEL %sclaim:%s", made.prefix, made.request_id);
    assert_true(settle(&made, VERDICT_ANSWERED));
    assert_int_equal(look(&made).outcome, ADMIT_ANSWERED);
}

static void put(const char *key, const ids_t *ids, const char *id, size_t len)
{
    char *value = mem_alloc(len + 1);
    memset(value, 'x', len);
    direct_do("SET %s%s%s %b", ids->prefix, key, id, value, len);
    free(value);
}

static void values_are_read_up_to_their_bounds(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    for (int more = -1; more <= 1; ++more) {
        put("answer:", &ids, ids.run_id, (size_t)(STORE_ANSWER_MAX + more));
        store_admitted_t said = admit(&ids);
        assert_int_equal(said.outcome, more <= 0 ? ADMIT_ANSWERED : ADMIT_ANSWER_GONE);
        if (more <= 0)
            assert_int_equal(said.answer_len, STORE_ANSWER_MAX + more);
        assert_string_equal(said.record_sha256, ids.digest);
    }
    direct_do("DEL %sanswer:%s", ids.prefix, ids.run_id);
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWER_GONE);
    /* a record ends with bytes of its own */
    long long has = direct_int("STRLEN %srun:%s", ids.prefix, ids.run_id);
    for (int more = -1; more <= 1; ++more) {
        direct_do("SETRANGE %srun:%s %lld x", ids.prefix, ids.run_id, (long long)STORE_RUN_MAX + more - 1);
        assert_true(direct_int("STRLEN %srun:%s", ids.prefix, ids.run_id) > has);
        assert_int_equal(get_run(ids.caller, ids.run_id)->found, more <= 0 ? STORE_FOUND : STORE_AWAY);
        assert_string_equal(admit(&ids).record_sha256, more <= 0 ? ids.digest : "");
        assert_int_equal(list_runs(ids.caller, 10, NULL)->count, more <= 0 ? 1 : 0);
    }
}

static void values_of_hundreds_of_megabytes_ended_every_connection(void **state)
{
    (void)state;
    static const char *const keys[] = {"answer:", "run:"};
    for (size_t i = 0; i != sizeof(keys) / sizeof(keys[0]); ++i) {
        ids_t ids = ids_fresh(), other = ids_fresh();
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        assert_true(settle(&ids, VERDICT_ANSWERED));
        direct_do("DEL %s%s%s", ids.prefix, keys[i], ids.run_id);
        direct_do("SETRANGE %s%s%s 40000000 x", ids.prefix, keys[i], ids.run_id);
        assert_int_equal(admit(&ids).outcome, i == 0 ? ADMIT_ANSWER_GONE : ADMIT_ANSWERED);
        (void)get_run(ids.caller, ids.run_id);
        (void)list_runs(ids.caller, 10, NULL);
        assert_true(store_is_up(fx.store));
        assert_int_equal(admit(&other).outcome, ADMIT_OK);
        direct_do("DEL %s%s%s", ids.prefix, keys[i], ids.run_id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_run_was_kept_for_days_however_many_there_were),
        cmocka_unit_test(a_refusal_freed_its_id_and_a_sweep_that_came_later_took_it_for_ever),
        cmocka_unit_test(values_are_read_up_to_their_bounds),
        cmocka_unit_test(values_of_hundreds_of_megabytes_ended_every_connection),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
