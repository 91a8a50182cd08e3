/* Runs read back: every field, order, pages, bounds, other callers, ended and corrupt entries. */
#include "tests/unit/store_fixture.h"

#include "records/store_internal.h"

static void every_field_comes_back(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    uint8_t record[] = {0, 1, 2, 255, '.', ':', 10};
    char result[65], record_sha[65];
    random_hex(result, 32);
    random_hex(record_sha, 32);
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.result_sha256 = result;
    s.record_sha256 = record_sha;
    s.started_unix_ms = INT64_MIN;
    s.ended_unix_ms = INT64_MAX;
    s.exit_code = INT32_MIN;
    s.timed_out = true;
    s.record = record;
    s.record_len = sizeof(record);
    s.trace_id = "00f067aa0ba902b7"; /* kept as bytes */
    assert_true(settle_now(&s));
    const seen_t *seen = get_run(ids.caller, ids.run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_int_equal(seen->count, 1);
    assert_string_equal(seen->next, "");
    assert_string_equal(seen->runs[0].run_id, ids.run_id);
    assert_string_equal(seen->runs[0].request_id, ids.request_id);
    assert_string_equal(seen->runs[0].verdict, "answered");
    assert_string_equal(seen->runs[0].backend, "docker");
    assert_string_equal(seen->runs[0].tier, "container");
    assert_string_equal(seen->runs[0].kind, "javascript");
    assert_string_equal(seen->runs[0].request_sha256, ids.digest);
    assert_string_equal(seen->runs[0].result_sha256, result);
    assert_string_equal(seen->runs[0].record_sha256, record_sha);
    assert_string_equal(seen->runs[0].unknown_code, "");
    assert_string_equal(seen->runs[0].reason, "");
    assert_string_equal(seen->runs[0].trace_id, "00f067aa0ba902b7");
    assert_true(seen->runs[0].started == INT64_MIN);
    assert_true(seen->runs[0].ended == INT64_MAX);
    assert_true(seen->runs[0].exit_code == INT32_MIN);
    assert_true(seen->runs[0].timed_out);
    assert_false(seen->runs[0].canceled);
    assert_int_equal(seen->runs[0].record_len, sizeof(record));
    assert_memory_equal(seen->runs[0].record, record, sizeof(record));
}

static void a_refused_run_leaves_a_small_record_with_its_reason(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_settlement_t s = settlement_of(&ids, VERDICT_REFUSED);
    s.canceled = true;
    assert_true(settle_now(&s));
    const seen_t *seen = get_run(ids.caller, ids.run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_string_equal(seen->runs[0].verdict, "refused");
    assert_string_equal(seen->runs[0].reason, "capacity");
    assert_string_equal(seen->runs[0].trace_id, "trace-1");
    assert_string_equal(seen->runs[0].caller, ids.caller);
    assert_true(seen->runs[0].canceled);
    assert_false(seen->runs[0].timed_out);
    assert_int_equal(seen->runs[0].record_len, 0);
    assert_in_range(direct_int("STRLEN %srun:%s", ids.prefix, ids.run_id), 1, 224);
}

static void nothing_given_is_nothing_kept(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_true(
        settle_now(&(store_settlement_t){.caller = ids.caller, .run_id = ids.run_id, .verdict = VERDICT_UNKNOWN}));
    const seen_t *seen = get_run(ids.caller, ids.run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_string_equal(seen->runs[0].verdict, "unknown");
    assert_string_equal(seen->runs[0].request_id, "");
    assert_string_equal(seen->runs[0].backend, "");
    assert_string_equal(seen->runs[0].trace_id, "");
}

static void texts_are_cut_at_their_limit(void **state)
{
    (void)state;
    for (size_t len = STORE_STRING_MAX - 1; len <= STORE_STRING_MAX + 1; ++len) {
        for (int hex = 0; hex != 2; ++hex) {
            char text[STORE_STRING_MAX + 2] = {0};
            memset(text, hex ? 'a' : 'z', len);
            ids_t ids = ids_fresh();
            store_settlement_t s = settlement_of(&ids, VERDICT_UNKNOWN);
            s.trace_id = text;
            assert_true(settle_now(&s));
            const seen_t *seen = get_run(ids.caller, ids.run_id);
            assert_int_equal(seen->found, STORE_FOUND);
            assert_int_equal(strlen(seen->runs[0].trace_id), len > STORE_STRING_MAX ? STORE_STRING_MAX : len);
            assert_memory_equal(seen->runs[0].trace_id, text, strlen(seen->runs[0].trace_id));
        }
    }
}

static void make_runs(ids_t *ids, size_t count)
{
    ids[0] = ids_fresh();
    for (size_t i = 0; i != count; ++i) {
        if (i != 0)
            ids[i] = ids_next_request(ids[0]);
        assert_true(settle(&ids[i], VERDICT_UNKNOWN));
    }
}

static void pages_go_from_the_newest_to_the_oldest(void **state)
{
    (void)state;
    enum { RUNS = 7 };
    ids_t ids[RUNS];
    make_runs(ids, RUNS);
    for (uint32_t limit = 1; limit <= RUNS + 1; ++limit) {
        char cursor[64] = "";
        size_t next = RUNS, pages = 0;
        do {
            const seen_t *seen = list_runs(ids[0].caller, limit, cursor);
            assert_int_equal(seen->found, STORE_FOUND);
            assert_int_equal(seen->count, limit < next ? limit : next);
            for (size_t i = 0; i != seen->count; ++i) {
                assert_string_equal(seen->runs[i].run_id, ids[--next].run_id);
                assert_int_equal(seen->runs[i].record_len, 0);
            }
            strcpy(cursor, seen->next);
            ++pages;
        } while (cursor[0] != '\0');
        assert_int_equal(next, 0);
        assert_int_equal(pages, (RUNS + limit - 1) / limit);
    }
}

static void a_page_stays_where_it_is_while_runs_are_added(void **state)
{
    (void)state;
    ids_t ids[4];
    make_runs(ids, 4);
    char cursor[64];
    strcpy(cursor, list_runs(ids[0].caller, 2, NULL)->next);
    ids_t later = ids_next_request(ids[0]);
    assert_true(settle(&later, VERDICT_UNKNOWN));
    const seen_t *seen = list_runs(ids[0].caller, 2, cursor);
    assert_int_equal(seen->count, 2);
    assert_string_equal(seen->runs[0].run_id, ids[1].run_id);
    assert_string_equal(seen->runs[1].run_id, ids[0].run_id);
}

static void pages_have_a_limit(void **state)
{
    (void)state;
    static ids_t ids[STORE_LIST_MAX + 1];
    make_runs(ids, STORE_LIST_MAX + 1);
    static const struct {
        uint32_t asked, given;
    } rows[] = {{0, 1},
                {STORE_LIST_MAX - 1, STORE_LIST_MAX - 1},
                {STORE_LIST_MAX, STORE_LIST_MAX},
                {STORE_LIST_MAX + 1, STORE_LIST_MAX},
                {UINT32_MAX, STORE_LIST_MAX}};
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i)
        assert_int_equal(list_runs(ids[0].caller, rows[i].asked, NULL)->count, rows[i].given);
}

static void cursors_that_are_none(void **state)
{
    (void)state;
    ids_t ids[2];
    make_runs(ids, 2);
    static const char *const bad[] = {"x", "0123456789abcdef0123456789abcdeG", "0123456789abcdef0123456789abcdef0",
                                      "-"};
    for (size_t i = 0; i != sizeof(bad) / sizeof(bad[0]); ++i)
        assert_int_equal(list_runs(ids[0].caller, 10, bad[i])->found, STORE_NOT_FOUND);
    /* a run that left the index, or never was in it: nothing stands behind it */
    const seen_t *seen = list_runs(ids[0].caller, 10, "0123456789abcdef0123456789abcdef");
    assert_int_equal(seen->found, STORE_FOUND);
    assert_int_equal(seen->count, 0);
    assert_string_equal(seen->next, "");
}

static void another_callers_run_is_not_there(void **state)
{
    (void)state;
    ids_t mine = ids_fresh(), theirs = ids_fresh();
    assert_true(settle(&theirs, VERDICT_ANSWERED));
    assert_int_equal(get_run(mine.caller, theirs.run_id)->found, STORE_NOT_FOUND);
    assert_int_equal(list_runs(mine.caller, 10, NULL)->count, 0);
    assert_int_equal(list_runs(mine.caller, 10, NULL)->found, STORE_FOUND);
    assert_int_equal(list_runs(mine.caller, 10, theirs.run_id)->count, 0);
    static const char *const odd[] = {"", "x", "}:run:", "0123456789abcdef0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i != sizeof(odd) / sizeof(odd[0]); ++i)
        assert_int_equal(get_run(mine.caller, odd[i])->found, STORE_NOT_FOUND);
}

/* Cut at every sixteenth run past the limit; never shown past it. */
static void the_index_keeps_the_newest(void **state)
{
    (void)state;
    static const int rows[][2] = {{-1, -1}, {0, 0}, {1, 1}, {15, 15}, {16, 0}, {17, 0}};
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i) {
        ids_t ids = ids_fresh();
        direct_do(
            "EVAL %s 1 %sruns %d",
            "for i = 1, ARGV[1] do redis.call('LPUSH', KEYS[1], string.rep('\\0', 12) .. struct.pack('>I4', i)) end",
            ids.prefix, STORE_RUNS_KEPT + rows[i][0] - 1);
        assert_true(settle(&ids, VERDICT_UNKNOWN));
        assert_int_equal(direct_int("LLEN %sruns", ids.prefix), STORE_RUNS_KEPT + rows[i][1]);
        const seen_t *seen = list_runs(ids.caller, 1, NULL);
        assert_int_equal(seen->count, 1);
        assert_string_equal(seen->runs[0].run_id, ids.run_id);
        assert_string_equal(seen->next, ids.run_id);
    }
}

static void nothing_is_shown_past_the_limit(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    char last[33], past[33];
    assert_true(settle(&ids, VERDICT_UNKNOWN));
    redisReply *value = direct("GET %srun:%s", ids.prefix, ids.run_id);
    /* positions count from the newest: the entry made as number i of N stands at N - i */
    snprintf(last, sizeof(last), "%032x", 12);
    snprintf(past, sizeof(past), "%032x", 11);
    direct_do("DEL %sruns", ids.prefix);
    direct_do("EVAL %s 1 %sruns %d",
              "for i = 1, ARGV[1] do redis.call('LPUSH', KEYS[1], string.rep('\\0', 12) .. struct.pack('>I4', i)) end",
              ids.prefix, STORE_RUNS_KEPT + 10);
    direct_do("SET %srun:%032x %b", ids.prefix, 11, value->str, value->len);
    direct_do("SET %srun:%032x %b", ids.prefix, 10, value->str, value->len);
    freeReplyObject(value);
    const seen_t *seen = list_runs(ids.caller, 10, last);
    assert_int_equal(seen->count, 1); /* the last one within the limit */
    assert_string_equal(seen->runs[0].run_id, past);
    assert_string_equal(seen->next, "");
    seen = list_runs(ids.caller, 10, past);
    assert_int_equal(seen->count, 0);
}

/* An index that could end before its runs is renewed. */
static void the_index_is_renewed(void **state)
{
    (void)state;
    static const struct {
        int kept;
        bool renewed;
    } rows[] = {{1, true}, {15, true}, {16, true}, {17, false}, {31, false}, {32, true}, {33, false}, {10000, true}};
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i) {
        ids_t ids = ids_fresh();
        if (rows[i].kept > 1) {
            direct_do("EVAL %s 1 %sruns %d",
                      "for i = 1, ARGV[1] do redis.call('LPUSH', KEYS[1], string.rep('\\0', 12) .. struct.pack('>I4', "
                      "i)) end",
                      ids.prefix, rows[i].kept - 1);
            direct_do("PEXPIRE %sruns 1000000", ids.prefix);
        }
        assert_true(settle(&ids, VERDICT_UNKNOWN));
        assert_int_equal(direct_int("PTTL %sruns", ids.prefix) > 1000000, rows[i].renewed);
    }
}

static void ended_runs_leave_the_index(void **state)
{
    (void)state;
    ids_t ids[4];
    make_runs(ids, 4);
    direct_do("DEL %srun:%s", ids[0].prefix, ids[0].run_id);
    direct_do("DEL %srun:%s", ids[0].prefix, ids[1].run_id);
    const seen_t *seen = list_runs(ids[0].caller, 3, NULL);
    assert_int_equal(seen->count, 2);
    assert_string_equal(seen->next, ids[1].run_id);
    seen = list_runs(ids[0].caller, 3, ids[1].run_id);
    assert_int_equal(seen->count, 0);
    assert_string_equal(seen->next, "");
    seen = list_runs(ids[0].caller, 3, ids[2].run_id);
    assert_int_equal(seen->count, 0);
    assert_int_equal(direct_int("LLEN %sruns", ids[0].prefix), 2);
    direct_do("DEL %srun:%s", ids[0].prefix, ids[2].run_id);
    direct_do("DEL %srun:%s", ids[0].prefix, ids[3].run_id);
    assert_int_equal(list_runs(ids[0].caller, 3, NULL)->count, 0);
    assert_int_equal(direct_int("EXISTS %sruns", ids[0].prefix), 0);
}

static void corrupt_runs_are_passed_over(void **state)
{
    (void)state;
    ids_t ids[4];
    make_runs(ids, 4);
    direct_do("SET %srun:%s %s", ids[0].prefix, ids[1].run_id, "junk");
    direct_do("DEL %srun:%s", ids[0].prefix, ids[2].run_id);
    direct_do("LPUSH %srun:%s a", ids[0].prefix, ids[2].run_id);
    const seen_t *seen = list_runs(ids[0].caller, 10, NULL);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_int_equal(seen->count, 2);
    assert_string_equal(seen->runs[0].run_id, ids[3].run_id);
    assert_string_equal(seen->runs[1].run_id, ids[0].run_id);
    assert_int_equal(get_run(ids[0].caller, ids[1].run_id)->found, STORE_AWAY);
    assert_int_equal(get_run(ids[0].caller, ids[2].run_id)->found, STORE_AWAY);
    direct_do("DEL %sruns", ids[0].prefix);
    direct_do("SET %sruns junk", ids[0].prefix);
    assert_int_equal(list_runs(ids[0].caller, 10, NULL)->found, STORE_AWAY);
    ids_t later = ids_next_request(ids[0]);
    assert_true(settle(&later, VERDICT_UNKNOWN)); /* the record is kept without its entry */
    assert_int_equal(get_run(later.caller, later.run_id)->found, STORE_FOUND);
    direct_do("DEL %sruns", ids[0].prefix);
    direct_do("LPUSH %sruns junk", ids[0].prefix);
    assert_int_equal(list_runs(ids[0].caller, 10, NULL)->found, STORE_AWAY);
}

static void cut_and_changed_values_are_named_not_read(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.record = NULL;
    s.record_len = 0;
    uint8_t *value;
    size_t len;
    store_run_pack(&s, &value, &len);
    store_run_text_t *text = mem_alloc(sizeof(*text));
    assert_null(store_run_unpack(ids.run_id, value, len, text));
    assert_string_equal(text->run.kind, "javascript");
    for (size_t cut = 0; cut != len; ++cut) { /* each in memory of its own length */
        uint8_t *part = mem_alloc(cut != 0 ? cut : 1);
        memcpy(part, value, cut);
        assert_non_null(store_run_unpack(ids.run_id, part, cut, text));
        free(part);
    }
    for (size_t at = 0; at != len; ++at) {
        for (int bit = 0; bit != 8; ++bit) {
            value[at] ^= (uint8_t)(1 << bit);
            store_run_unpack(ids.run_id, value, len, text); /* no more than the sanitizers ask */
            value[at] ^= (uint8_t)(1 << bit);
        }
    }
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{0, 0},   {0, 1},    {0, 3},    {7, 3},   {8, 6 << 2}, {8, 64},
               {8, 255}, {29, 255}, {47, 255}, {47, 32}, {47, 64}};
    for (size_t i = 0; i != sizeof(bad) / sizeof(bad[0]); ++i) {
        uint8_t was = value[bad[i].at];
        value[bad[i].at] = bad[i].value;
        assert_non_null(store_run_unpack(ids.run_id, value, len, text));
        value[bad[i].at] = was;
    }
    free(text);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_comes_back),
        cmocka_unit_test(a_refused_run_leaves_a_small_record_with_its_reason),
        cmocka_unit_test(nothing_given_is_nothing_kept),
        cmocka_unit_test(texts_are_cut_at_their_limit),
        cmocka_unit_test(pages_go_from_the_newest_to_the_oldest),
        cmocka_unit_test(a_page_stays_where_it_is_while_runs_are_added),
        cmocka_unit_test(pages_have_a_limit),
        cmocka_unit_test(cursors_that_are_none),
        cmocka_unit_test(another_callers_run_is_not_there),
        cmocka_unit_test(the_index_keeps_the_newest),
        cmocka_unit_test(nothing_is_shown_past_the_limit),
        cmocka_unit_test(the_index_is_renewed),
        cmocka_unit_test(ended_runs_leave_the_index),
        cmocka_unit_test(corrupt_runs_are_passed_over),
        cmocka_unit_test(cut_and_changed_values_are_named_not_read),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
