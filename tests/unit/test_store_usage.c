/* Receipts, filters, usage, leaves and keys of the store: what is read back of what was counted. */
#include "tests/unit/store_clock.h"

static int clean(void **state)
{
    (void)state;
    direct_do("FLUSHALL");
    return 0;
}

static const seen_t *list_query(const char *caller, const store_runs_query_t *query)
{
    static seen_t out;
    memset(&out, 0, sizeof(out));
    store_runs_list(fx.store, caller, query, note_runs, &out);
    assert_int_equal(out.calls, 0);
    await_calls(&out.calls);
    return &out;
}

/* ---- receipts ---- */

static void await_receipts(const char *prefix, long long count)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (direct_int("LLEN %sreceipts", prefix) < count) {
        loop_run_once(fx.loop, 5);
        assert_true(clock_mono_ms() < until);
    }
}

static void receipts_come_back_newest_first(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    ids_t first = ids_fresh(), ids[COUNT];
    uint64_t dropped = store_receipts_dropped(fx.store);
    for (int i = 0; i != COUNT; ++i) {
        ids[i] = ids_next_request(first);
        store_settlement_t s = settlement_of(&ids[i], VERDICT_REFUSED);
        s.limits = "rate=30/min;retry_after_ms=1200";
        s.client_request_id = ids[i].request_id;
        s.idempotency_key = "the \"key\"";
        s.request_id = NULL;
        store_receipt(fx.store, &s);
    }
    await_receipts(first.prefix, COUNT);
    assert_int_equal(store_receipts_dropped(fx.store), dropped);
    char cursor[64] = "";
    int next = COUNT;
    do {
        const seen_t *seen =
            list_query(first.caller, &(store_runs_query_t){.limit = 2, .receipts = true, .cursor = cursor});
        assert_int_equal(seen->found, STORE_FOUND);
        for (size_t i = 0; i != seen->count; ++i) {
            assert_string_equal(seen->runs[i].run_id, ids[--next].run_id);
            assert_string_equal(seen->runs[i].verdict, "refused");
            assert_string_equal(seen->runs[i].reason, "capacity");
            assert_string_equal(seen->runs[i].limits, "rate=30/min;retry_after_ms=1200");
            assert_string_equal(seen->runs[i].client_request_id, ids[next].request_id);
            assert_string_equal(seen->runs[i].idempotency_key, "the \"key\"");
            assert_true(seen->runs[i].log_index == -1);
        }
        strcpy(cursor, seen->next);
    } while (cursor[0] != '\0');
    assert_int_equal(next, 0);
    /* they are no runs, and no runs are they */
    assert_int_equal(list_runs(first.caller, 10, NULL)->count, 0);
    assert_int_equal(get_run(first.caller, ids[0].run_id)->found, STORE_NOT_FOUND);
    assert_in_range(direct_int("PTTL %sreceipts", first.prefix), 604800000 - 5000, 604800000);
    assert_int_equal(
        list_query(first.caller, &(store_runs_query_t){.limit = 2, .receipts = true, .cursor = "x"})->found,
        STORE_NOT_FOUND);
}

static void the_newest_receipts_are_kept(void **state)
{
    (void)state;
    for (int past = -1; past <= 1; ++past) {
        usleep(1000 * 1000 / STORE_RECEIPTS_PER_S);
        ids_t ids = ids_fresh();
        direct_do("EVAL %s 1 %sreceipts %d",
                  "for i = 1, ARGV[1] do redis.call('LPUSH', KEYS[1], string.rep('x', 100)) end", ids.prefix,
                  STORE_RECEIPTS_KEPT + past - 1);
        store_settlement_t s = settlement_of(&ids, VERDICT_REFUSED);
        store_receipt(fx.store, &s);
        uint64_t until = clock_mono_ms() + WAIT_MS;
        while (direct_int("PTTL %sreceipts", ids.prefix) < 0) {
            loop_run_once(fx.loop, 5);
            assert_true(clock_mono_ms() < until);
        }
        assert_int_equal(direct_int("LLEN %sreceipts", ids.prefix),
                         past <= 0 ? STORE_RECEIPTS_KEPT + past : STORE_RECEIPTS_KEPT);
    }
}

static void receipts_past_the_rate_are_dropped_and_counted(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    uint64_t dropped = store_receipts_dropped(fx.store), began;
    store_settlement_t s = settlement_of(&ids, VERDICT_REFUSED);
    do { /* within one second */
        while (clock_mono_ms() % 1000 > 100)
            turn_for(10);
        dropped = store_receipts_dropped(fx.store);
        began = clock_mono_ms() / 1000;
        for (int i = 0; i != 2 * STORE_RECEIPTS_PER_S; ++i)
            store_receipt(fx.store, &s);
    } while (clock_mono_ms() / 1000 != began);
    turn_for(50);
    assert_in_range(store_receipts_dropped(fx.store) - dropped, STORE_RECEIPTS_PER_S, 2 * STORE_RECEIPTS_PER_S);
    assert_in_range(direct_int("LLEN %sreceipts", ids.prefix), 0, STORE_RECEIPTS_PER_S);
    dropped = store_receipts_dropped(fx.store);
    turn_for(1000);
    s.verdict = VERDICT_ANSWERED; /* is none */
    store_receipt(fx.store, &s);
    s.verdict = VERDICT_REFUSED;
    s.run_id = "x";
    store_receipt(fx.store, &s);
    assert_int_equal(store_receipts_dropped(fx.store), dropped + 2);
}

static void corrupt_receipts_are_named(void **state)
{
    (void)state;
    turn_for(1000);
    ids_t ids = ids_fresh();
    store_settlement_t s = settlement_of(&ids, VERDICT_REFUSED);
    store_receipt(fx.store, &s);
    await_receipts(ids.prefix, 1);
    const store_runs_query_t query = {.limit = 10, .receipts = true};
    direct_do("LPUSH %sreceipts 0123456789abcdefjunk", ids.prefix);
    assert_int_equal(list_query(ids.caller, &query)->count, 1);
    direct_do("LPUSH %sreceipts short", ids.prefix);
    assert_int_equal(list_query(ids.caller, &query)->found, STORE_AWAY);
    direct_do("DEL %sreceipts", ids.prefix);
    direct_do("SET %sreceipts x", ids.prefix);
    assert_int_equal(list_query(ids.caller, &query)->found, STORE_AWAY);
    uint64_t dropped = store_receipts_dropped(fx.store), until = clock_mono_ms() + WAIT_MS;
    store_receipt(fx.store, &s);
    while (store_receipts_dropped(fx.store) == dropped && clock_mono_ms() < until)
        loop_run_once(fx.loop, 5);
    assert_int_equal(store_receipts_dropped(fx.store), dropped + 1);
}

/* ---- filters ---- */

static ids_t made(ids_t first, verdict_t verdict, const char *backend, const char *kind, int64_t started)
{
    ids_t ids = ids_next_request(first);
    store_settlement_t s = settlement_of(&ids, verdict);
    s.backend = backend;
    s.kind = kind;
    s.started_unix_ms = started;
    assert_true(settle_now(&s));
    return ids;
}

static void each_filter_picks_its_own(void **state)
{
    (void)state;
    ids_t first = ids_fresh();
    made(first, VERDICT_ANSWERED, "docker", "javascript", 1000);
    made(first, VERDICT_UNKNOWN, "e2b", "project", 2000);
    made(first, VERDICT_REFUSED, "docker", "cell", 3000);
    made(first, VERDICT_ANSWERED, "e2b", "javascript", 4000);
    static const struct {
        store_runs_query_t query;
        size_t count;
    } rows[] = {
        {{.verdict = "answered"}, 2},
        {{.verdict = "unknown"}, 1},
        {{.verdict = "refused"}, 1},
        {{.verdict = "else"}, 0},
        {{.verdict = ""}, 4},
        {{.backend = "docker"}, 2},
        {{.backend = "dock"}, 0},
        {{.kind = "javascript"}, 2},
        {{.kind = "javascript", .backend = "e2b"}, 1},
        {{.since_unix_ms = 2000}, 3},
        {{.since_unix_ms = 2001}, 2},
        {{.until_unix_ms = 3000}, 2},
        {{.until_unix_ms = 3001}, 3},
        {{.since_unix_ms = 2000, .until_unix_ms = 3000}, 1},
        {{.backend = "a name that is longer than any backend's may be, by far"}, 0},
    };
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i) {
        store_runs_query_t query = rows[i].query;
        for (query.limit = 1; query.limit <= 5; ++query.limit) {
            char cursor[64] = "";
            size_t count = 0;
            do {
                query.cursor = cursor;
                const seen_t *seen = list_query(first.caller, &query);
                assert_int_equal(seen->found, STORE_FOUND);
                assert_true(seen->count <= query.limit);
                count += seen->count;
                strcpy(cursor, seen->next);
            } while (cursor[0] != '\0');
            assert_int_equal(count, rows[i].count);
        }
    }
}

static void a_filter_looks_at_so_many_and_says_where_to_go_on(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    ids_t wanted = made(ids, VERDICT_UNKNOWN, "e2b", "cell", 1);
    /* newer entries, all of one other run's value */
    ids_t other = made(ids, VERDICT_ANSWERED, "docker", "javascript", 1);
    direct_do("EVAL %s 0 %s %srun:%s %d",
              "local v = redis.call('GET', ARGV[2]) for i = 1, ARGV[3] do "
              "redis.call('SET', ARGV[1] .. 'run:' .. string.format('%032x', i), v) "
              "redis.call('LPUSH', ARGV[1] .. 'runs', string.rep('\\0', 12) .. struct.pack('>I4', i)) end",
              ids.prefix, ids.prefix, other.run_id, 1500);
    char cursor[64] = "";
    unsigned pages = 0;
    size_t count = 0;
    do {
        const seen_t *seen =
            list_query(ids.caller, &(store_runs_query_t){.limit = 5, .verdict = "unknown", .cursor = cursor});
        ++pages;
        count += seen->count;
        if (seen->count == 1)
            assert_string_equal(seen->runs[0].run_id, wanted.run_id);
        strcpy(cursor, seen->next);
    } while (cursor[0] != '\0');
    assert_int_equal(count, 1);
    assert_int_equal(pages, 2); /* 1,000 at a time */
}

/* ---- usage ---- */

static void usage_of_nobody_is_zero(void **state)
{
    (void)state;
    const usage_seen_t *seen = usage_seen("nobody", &(store_caps_t){.rate_per_min = 30, .burst = 10}, 60);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_int_equal(seen->count, 1);
    assert_string_equal(seen->callers[0], "nobody");
    assert_int_equal(seen->first.rate_remaining, 10);
    assert_int_equal(seen->first.rate_reset_ms, 0);
    assert_int_equal(seen->first.window_runs, 0);
    assert_in_range(seen->first.window_reset_ms, 1, 60000);
    assert_in_range(seen->first.day_reset_ms, 1, 86400000);
    assert_int_equal(strspn(seen->first.day, "0123456789"), 8);
    assert_int_equal(usage_all(NULL, NULL)->count, 0);
    assert_int_equal(usage_all("20200101", NULL)->count, 0);
    assert_int_equal(usage_all("2020010", NULL)->found, STORE_NOT_FOUND);
    assert_int_equal(usage_all("2020010x", NULL)->found, STORE_NOT_FOUND);
    redisReply *keys = direct("KEYS *");
    assert_int_equal(keys->elements, 0); /* looking is not writing */
    freeReplyObject(keys);
}

static void every_caller_is_listed_once_by_name(void **state)
{
    (void)state;
    enum { CALLERS = STORE_LIST_MAX + 1 };
    for (int i = CALLERS; i-- != 0;) {
        for (int runs = 0; runs != 1 + i % 2; ++runs) {
            ids_t ids = ids_fresh();
            snprintf(ids.caller, sizeof(ids.caller), i % 10 == 0 ? "caller {%03d}" : "caller %03d", i);
            store_admission_t a = admission_of(&ids);
            assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
            store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
            s.ended_unix_ms = clock_wall_ms() + 1000;
            s.spent.seconds_ms = (uint64_t)i;
            assert_true(settle_now(&s));
        }
    }
    char cursor[300] = "", last[300] = "";
    size_t count = 0, pages = 0;
    do {
        const usage_seen_t *seen = usage_all(NULL, cursor);
        assert_int_equal(seen->found, STORE_FOUND);
        for (size_t i = 0; i != seen->count; ++i) {
            assert_true(strcmp(last, seen->callers[i]) < 0);
            strcpy(last, seen->callers[i]);
            int n = atoi(strpbrk(last, "0123456789"));
            assert_int_equal(seen->rows[i].runs, 1 + n % 2);
            assert_int_equal(seen->rows[i].spent.seconds_ms, n * (1 + n % 2));
        }
        count += seen->count;
        strcpy(cursor, seen->next);
        ++pages;
    } while (cursor[0] != '\0');
    assert_int_equal(count, CALLERS);
    assert_int_equal(pages, 2);
    /* a name that another's begins with */
    assert_int_equal(usage_all(NULL, "caller 09")->count, 9 + 11); /* "{" comes later */
    char long_name[300];
    memset(long_name, 'z', sizeof(long_name));
    for (size_t len = 255; len <= 257; ++len) {
        long_name[len] = '\0';
        assert_int_equal(usage_all(NULL, long_name)->found, len <= 256 ? STORE_FOUND : STORE_NOT_FOUND);
        long_name[len] = 'z';
    }
}

/* ---- the log ---- */

static void each_settled_run_is_one_leaf(void **state)
{
    (void)state;
    ids_t answered = ids_fresh(), refused = ids_fresh(), unknown = ids_fresh();
    ids_t *all[] = {&answered, &refused, &unknown};
    for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
        assert_int_equal(admit(all[verdict]).outcome, ADMIT_OK);
        for (int again = 0; again != 2; ++again)
            assert_true(settle(all[verdict], (verdict_t)verdict));
    }
    assert_int_equal(direct_int("LLEN " ROOT "log"), 2);
    assert_true(get_run(answered.caller, answered.run_id)->runs[0].log_index == 0);
    assert_true(get_run(refused.caller, refused.run_id)->runs[0].log_index == -1);
    assert_true(get_run(unknown.caller, unknown.run_id)->runs[0].log_index == 1);
    redisReply *leaf = direct("LINDEX " ROOT "log 0");
    uint8_t record[32];
    store_raw_of(answered.digest, 32, record);
    assert_int_equal(leaf->len, 32);
    assert_memory_equal(leaf->str, record, 32);
    freeReplyObject(leaf);
    assert_int_equal(direct_int("PTTL " ROOT "log"), -1); /* it does not end */
}

/* By Python's hashlib over length-prefixed fields, as the comment of store_leaf.c has them. */
static void the_leaf_of_an_unknown_run_is_its_receipt(void **state)
{
    (void)state;
    store_settlement_t s = {.caller = "alice",
                            .run_id = "0123456789abcdef0123456789abcdef",
                            .verdict = VERDICT_UNKNOWN,
                            .request_sha256 = "585a1b46c55ebacc1dfdd4336e302328c32ed3e2e7e8a8b460d252d0454be8fc",
                            .backend = "e2b",
                            .unknown_code = "unavailable",
                            .started_unix_ms = 1790000000000,
                            .ended_unix_ms = -1};
    uint8_t leaf[32];
    char hex[65];
    store_leaf(&s, leaf);
    store_hex_of(leaf, 32, hex);
    assert_string_equal(hex, "55c07fc7d8cd120f511b3bea42971f32a7dfd731b79efa2eead5a5c3d810a03b");
    s.backend = NULL;
    s.unknown_code = NULL;
    store_leaf(&s, leaf);
    store_hex_of(leaf, 32, hex);
    assert_string_equal(hex, "01b6809c8420bb3bc2237a735ba4928dc8f1c09511ee91ba2bb2ca221c5097d1");
}

/* ---- claims by key ---- */

static void a_key_is_a_claims_id(void **state)
{
    (void)state;
    char id[33];
    /* printf 'plimsoll.idempotency-key.v1\0order 17' | sha256sum */
    store_claim_id_of_key("order 17", 8, id);
    assert_string_equal(id, "8059a009be98354bcd182cd7ee8c37b4");
    store_claim_id_of_key("", 0, id);
    assert_string_equal(id, "487207dc7f4cb1408995a948e0d90ad7");
}

static store_admitted_t find(const ids_t *ids)
{
    admitted_t out = {.calls = 0};
    store_claim_find(fx.store, ids->caller, ids->request_id, note_admitted, &out);
    await_calls(&out.calls);
    free(out.answer);
    return out.said;
}

static void a_claim_is_found_whatever_its_request(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_writes_nothing(assert_int_equal(find(&ids).outcome, ADMIT_OK));
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    store_admitted_t said = find(&ids);
    assert_int_equal(said.outcome, ADMIT_JOIN);
    assert_string_equal(said.run_id, ids.run_id);
    fx.settled_seen = 0;
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.spent = (store_amounts_t){1, 2, 3};
    s.is_cost_known = true;
    assert_true(settle_now(&s));
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (fx.settled_seen == 0 && clock_mono_ms() < until)
        loop_run_once(fx.loop, 5);
    assert_int_equal(fx.settled_seen, 1); /* who found it live is told */
    assert_writes_nothing(said = find(&ids));
    assert_int_equal(said.outcome, ADMIT_ANSWERED);
    assert_int_equal(said.answer_len, 13);
    assert_true(said.has_spent);
    assert_true(said.is_cost_known);
    assert_amounts(said.spent, 1, 2, 3);
    assert_string_equal(said.record_sha256, ids.digest);
}

static void an_answer_ends_before_its_record(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    direct_do("DEL %sanswer:%s", ids.prefix, ids.run_id);
    store_admitted_t said = admit(&ids);
    assert_int_equal(said.outcome, ADMIT_ANSWER_GONE);
    assert_string_equal(said.record_sha256, ids.digest);
    assert_string_equal(said.backend, "docker");
    direct_do("LPUSH %sanswer:%s x", ids.prefix, ids.run_id);
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWER_GONE);
    direct_do("DEL %srun:%s", ids.prefix, ids.run_id);
    said = admit(&ids);
    assert_int_equal(said.outcome, ADMIT_ANSWER_GONE);
    assert_false(said.has_spent);
    direct_do("SET %srun:%s junk", ids.prefix, ids.run_id);
    said = admit(&ids);
    assert_int_equal(said.outcome, ADMIT_ANSWER_GONE);
    assert_string_equal(said.run_id, ids.run_id);
    assert_string_equal(said.record_sha256, "");
}

static void lifetimes_and_sizes_are_the_settings(void **state)
{
    (void)state;
    store_t *real = fx.store;
    fx.store = store_create(
        fx.loop, &fx.address,
        &(store_settings_t){.installation = "test", .run_ttl_s = 100, .answer_ttl_s = 50, .answer_max = 1000},
        &(store_callbacks_t){.on_settled = NULL});
    turn_until(store_up);
    for (size_t len = 999; len <= 1001; ++len) {
        uint8_t answer[1001] = {1};
        ids_t ids = ids_fresh();
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
        s.answer = answer;
        s.answer_len = len;
        assert_true(settle_now(&s));
        assert_int_equal(admit(&ids).outcome, len <= 1000 ? ADMIT_ANSWERED : ADMIT_ANSWER_GONE);
        assert_in_range(direct_int("PTTL %srun:%s", ids.prefix, ids.run_id), 95000, 100000);
        assert_in_range(direct_int("PTTL %sclaim:%s", ids.prefix, ids.request_id), 115000, 120000);
        if (len <= 1000)
            assert_in_range(direct_int("PTTL %sanswer:%s", ids.prefix, ids.run_id), 45000, 50000);
    }
    store_destroy(fx.store);
    fx.store = real;
}

static void caps_have_names(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "slots", "rate", "runs", "seconds", "paid", "cost"};
    for (int cap = CAP_NONE; cap != CAP_COUNT; ++cap)
        assert_string_equal(store_cap_name((store_cap_t)cap), names[cap]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        T(receipts_come_back_newest_first),
        T(the_newest_receipts_are_kept),
        T(receipts_past_the_rate_are_dropped_and_counted),
        T(corrupt_receipts_are_named),
        T(each_filter_picks_its_own),
        T(a_filter_looks_at_so_many_and_says_where_to_go_on),
        T(usage_of_nobody_is_zero),
        T(every_caller_is_listed_once_by_name),
        T(each_settled_run_is_one_leaf),
        T(the_leaf_of_an_unknown_run_is_its_receipt),
        T(a_key_is_a_claims_id),
        T(a_claim_is_found_whatever_its_request),
        T(an_answer_ends_before_its_record),
        T(lifetimes_and_sizes_are_the_settings),
        T(caps_have_names),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
