/* The store with a spool: what Redis does not take is on the disk before anybody is answered, and reaches Redis once
 * and in order. */
#include "tests/unit/store_fixture.h"

#include "core/fault.h"
#include "records/spool_record.h"
#include "records/store_internal.h"

static struct {
    char dir[128], faults[128];
    spool_t *spool;
} sp;

static spool_stats_t stats_now(void)
{
    spool_stats_t stats;
    spool_stats(sp.spool, &stats);
    return stats;
}

static bool is_spool_empty(void)
{
    return stats_now().records == 0;
}

static void arm(const char *point, const char *action)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", sp.faults, point);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(action, f);
    fclose(f);
}

static void disarm(const char *point)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", sp.faults, point);
    unlink(path);
}

static int open_both(void **state)
{
    (void)state;
    snprintf(sp.dir, sizeof(sp.dir), "%s/spool-XXXXXX", fx.dir);
    assert_non_null(mkdtemp(sp.dir));
    snprintf(sp.faults, sizeof(sp.faults), "%s/faults", sp.dir);
    assert_int_equal(mkdir(sp.faults, 0700), 0);
    fault_init(sp.faults);
    sp.spool = spool_open(sp.dir, 4 * 1024 * 1024, SPOOL_RECORD_MAX);
    store_use_spool(fx.store, sp.spool, true);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    if (fx.pid != 0)
        kill(fx.pid, SIGCONT);
    store_destroy(fx.store);
    spool_close(sp.spool);
    loop_run_once(fx.loop, 0);
    fault_init(NULL);
    fx.store = NULL;
    if (fx.direct != NULL)
        direct_do("FLUSHALL");
    store_open();
    return 0;
}

/* A front that starts anew: another store and another spool over the same directory. */
static void start_anew(void)
{
    store_destroy(fx.store);
    spool_close(sp.spool);
    loop_run_once(fx.loop, 0);
    sp.spool = spool_open(sp.dir, 4 * 1024 * 1024, SPOOL_RECORD_MAX);
    fx.store = store_create(fx.loop, &fx.address, &(store_settings_t){.installation = "test"},
                            &(store_callbacks_t){.on_settled = note_settled});
    store_use_spool(fx.store, sp.spool, true);
}

static void expect_run(const ids_t *ids, const char *verdict)
{
    const seen_t *seen = get_run(ids->caller, ids->run_id);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_string_equal(seen->runs[0].verdict, verdict);
}

/* Newest first, each once. */
static void expect_order(const ids_t *ids, size_t count)
{
    const seen_t *seen = list_runs(ids[0].caller, 100, NULL);
    assert_int_equal(seen->found, STORE_FOUND);
    assert_int_equal(seen->count, count);
    for (size_t i = 0; i != count; ++i)
        assert_string_equal(seen->runs[i].run_id, ids[count - 1 - i].run_id);
}

static void what_redis_takes_never_sees_the_disk(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    assert_true(settle(&ids, VERDICT_ANSWERED));
    assert_int_equal(stats_now().appended_total, 0);
}

static void what_a_frozen_redis_does_not_take_is_on_the_disk_first_and_in_redis_later(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    kill(fx.pid, SIGSTOP);
    uint64_t began = clock_mono_ms();
    assert_false(settle(&ids, VERDICT_ANSWERED));
    assert_true(clock_mono_ms() - began < STORE_DEADLINE_MS + 500);
    assert_int_equal(stats_now().appended_total, 1);
    assert_int_equal(stats_now().records, 1);
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    expect_run(&ids, "answered");
    store_admitted_t again = admit(&ids);
    assert_int_equal(again.outcome, ADMIT_ANSWERED);
    assert_int_equal(again.answer_len, strlen("packed answer"));
    assert_memory_equal(again.answer, "packed answer", again.answer_len);
    assert_int_equal(stats_now().replayed_total, 1);
    expect_order(&ids, 1);
}

static void once_redis_is_silent_nobody_waits_for_it_again(void **state)
{
    (void)state;
    ids_t ids[3] = {ids_fresh()};
    ids[1] = ids_next_request(ids_fresh());
    assert_int_equal(admit(&ids[0]).outcome, ADMIT_OK);
    kill(fx.pid, SIGSTOP);
    assert_false(settle(&ids[0], VERDICT_ANSWERED));
    uint64_t began = clock_mono_ms();
    assert_false(settle(&ids[1], VERDICT_UNKNOWN));
    assert_true(clock_mono_ms() - began < STORE_DEADLINE_MS);
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    expect_run(&ids[1], "unknown");
}

static void a_callers_later_settlement_does_not_overtake_what_is_on_the_disk(void **state)
{
    (void)state;
    enum { RUNS = 40 };
    ids_t ids[RUNS];
    ids[0] = ids_fresh();
    kill(fx.pid, SIGSTOP);
    for (int i = 0; i != RUNS; ++i) {
        if (i != 0)
            ids[i] = ids_next_request(ids[0]);
        if (i == RUNS / 2)
            kill(fx.pid, SIGCONT); /* from here on Redis would take them */
        settle(&ids[i], VERDICT_ANSWERED);
    }
    turn_until(is_spool_empty);
    turn_until(store_idle);
    expect_order(ids, RUNS);
}

/* Several settlements of one caller are always under way: what waits for the spool is not added to it. */
static void a_caller_that_never_pauses_leaves_the_spool(void **state)
{
    (void)state;
    enum { AT_ONCE = 8, RUNS = 400 };
    static settled_t out[RUNS];
    static ids_t ids[RUNS];
    memset(out, 0, sizeof(out));
    ids[0] = ids_fresh();
    for (int i = 1; i != RUNS; ++i)
        ids[i] = ids_next_request(ids[0]);
    kill(fx.pid, SIGSTOP);
    int begun = 0, ended = 0, taken = 0;
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (ended != RUNS) {
        for (; begun != RUNS && begun - ended < AT_ONCE; ++begun) {
            store_settlement_t s = settlement_of(&ids[begun], VERDICT_ANSWERED);
            store_settle(fx.store, &s, note_stored, &out[begun]);
        }
        loop_run_once(fx.loop, 5);
        if (ended >= 2 * AT_ONCE)
            kill(fx.pid, SIGCONT);
        while (ended != begun && out[ended].calls == 1)
            taken += out[ended++].stored;
        assert_true(clock_mono_ms() < until);
    }
    turn_until(is_spool_empty);
    turn_until(store_idle);
    assert_true(taken > RUNS / 2);
    assert_true(stats_now().appended_total < RUNS / 2);
    assert_int_equal(direct_int("LLEN %sruns", ids[0].prefix), RUNS);
}

static void memory_gives_what_the_disk_did_not_take_back_to_it(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    kill(fx.pid, SIGSTOP);
    arm("spool.sync", "fail");
    assert_false(settle(&ids, VERDICT_ANSWERED));
    assert_int_equal(store_backlog(fx.store), 1);
    disarm("spool.sync");
    turn_until(store_idle);
    assert_int_equal(stats_now().records, 1);
    start_anew(); /* as after a kill: the disk has it */
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    expect_run(&ids, "answered");
}

static void a_redis_that_comes_back_empty_handed_gets_everything(void **state)
{
    (void)state;
    enum { RUNS = 300 };
    static ids_t ids[RUNS];
    ids[0] = ids_fresh();
    server_kill();
    turn_until(store_down);
    for (int i = 0; i != RUNS; ++i) {
        if (i != 0)
            ids[i] = ids_next_request(ids[0]);
        assert_false(settle(&ids[i], VERDICT_ANSWERED));
    }
    assert_int_equal(stats_now().records, RUNS);
    /* memory holds none of them but for what was read ahead */
    assert_true(fx.store->settling <= 2 * SPOOL_BATCH_RECORDS);
    assert_int_equal(store_backlog(fx.store), 0);
    server_start();
    turn_until(is_spool_empty);
    assert_int_equal(direct_int("LLEN %sruns", ids[0].prefix), RUNS);
    for (int i = 0; i < RUNS; i += 37)
        expect_run(&ids[i], "answered");
    assert_int_equal(stats_now().replayed_total, RUNS);
}

static void an_end_waits_for_what_redis_takes_and_not_for_a_redis_that_is_away(void **state)
{
    (void)state;
    enum { RUNS = 300 };
    ids_t ids = ids_fresh();
    kill(fx.pid, SIGSTOP);
    for (int i = 0; i != RUNS; ++i) {
        ids = ids_next_request(ids);
        assert_false(settle(&ids, VERDICT_ANSWERED));
    }
    assert_true(store_may_end(fx.store)); /* all of it is on the disk */
    fx.store->spool.end_asked_ms = 0;
    kill(fx.pid, SIGCONT);
    bool waited = false;
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (!is_spool_empty()) {
        loop_run_once(fx.loop, 5);
        waited = waited || !store_may_end(fx.store);
        assert_true(clock_mono_ms() < until);
    }
    assert_true(waited);
    turn_until(store_idle);
    assert_true(store_may_end(fx.store));
}

static void a_front_that_starts_anew_sends_what_the_last_one_left_before_what_comes(void **state)
{
    (void)state;
    ids_t ids[4] = {ids_fresh()};
    kill(fx.pid, SIGSTOP);
    for (int i = 0; i != 3; ++i) {
        if (i != 0)
            ids[i] = ids_next_request(ids[0]);
        assert_false(settle(&ids[i], VERDICT_ANSWERED));
    }
    ids[3] = ids_next_request(ids[0]);
    start_anew();
    assert_int_equal(stats_now().records, 3);
    kill(fx.pid, SIGCONT);
    turn_until(store_up);
    settle(&ids[3], VERDICT_ANSWERED);
    turn_until(is_spool_empty);
    turn_until(store_idle);
    expect_order(ids, 4);
}

static void what_was_taken_and_not_marked_is_recorded_once(void **state)
{
    (void)state;
    ids_t ids[2] = {ids_fresh()};
    ids[1] = ids_next_request(ids[0]);
    kill(fx.pid, SIGSTOP);
    assert_false(settle(&ids[0], VERDICT_ANSWERED));
    assert_false(settle(&ids[1], VERDICT_ANSWERED));
    arm("spool.mark", "fail");
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    expect_order(ids, 2);
    /* the marks never reached the disk: the next one sends both again; the active file was emptied when all were taken,
     * so this writes them anew as a crash before that leaves them */
    disarm("spool.mark");
    kill(fx.pid, SIGSTOP);
    assert_false(settle(&ids[0], VERDICT_ANSWERED));
    assert_false(settle(&ids[1], VERDICT_ANSWERED));
    start_anew();
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    expect_order(ids, 2);
}

static void a_disk_that_takes_nothing_leaves_the_record_in_memory_and_says_so(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    kill(fx.pid, SIGSTOP);
    arm("spool.sync", "fail");
    assert_false(settle(&ids, VERDICT_ANSWERED));
    assert_int_equal(stats_now().failures_total, 1);
    assert_false(spool_has_room(sp.spool, 1));
    assert_int_equal(store_backlog(fx.store), 1);
    disarm("spool.sync");
    kill(fx.pid, SIGCONT);
    turn_until(store_idle);
    expect_run(&ids, "answered");
    assert_false(spool_is_held(sp.spool, spool_order_key(ids.caller)));
}

static void a_disk_that_takes_long_holds_the_answer_a_second_at_most(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    kill(fx.pid, SIGSTOP);
    arm("spool.sync", "block");
    uint64_t began = clock_mono_ms();
    assert_false(settle(&ids, VERDICT_ANSWERED));
    uint64_t took = clock_mono_ms() - began;
    assert_true(took >= STORE_SPOOL_WAIT_MS && took < STORE_DEADLINE_MS + STORE_SPOOL_WAIT_MS + 500);
    assert_int_equal(stats_now().late_total, 1);
    assert_int_equal(store_backlog(fx.store), 1);
    disarm("spool.sync");
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    turn_until(store_idle);
    expect_run(&ids, "answered");
}

static void without_room_the_output_goes_and_the_record_stays(void **state)
{
    (void)state;
    enum { RUNS = 10 };
    static uint8_t big[STORE_ANSWER_MAX];
    ids_t ids[RUNS];
    ids[0] = ids_fresh();
    memset(big, 'a', sizeof(big));
    kill(fx.pid, SIGSTOP);
    for (int i = 0; i != RUNS; ++i) {
        if (i != 0)
            ids[i] = ids_next_request(ids[0]);
        store_settlement_t s = settlement_of(&ids[i], VERDICT_ANSWERED);
        s.answer = big;
        s.answer_len = sizeof(big);
        assert_false(settle_now(&s));
    }
    assert_true(spool_has_room(sp.spool, 1));
    kill(fx.pid, SIGCONT);
    turn_until(is_spool_empty);
    int whole = 0;
    for (int i = 0; i != RUNS; ++i) {
        store_admitted_t a = admit(&ids[i]);
        assert_true(a.outcome == ADMIT_ANSWERED || a.outcome == ADMIT_ANSWER_GONE);
        whole += a.outcome == ADMIT_ANSWERED;
    }
    assert_int_equal(whole, 3); /* of 4 MiB, less what the runs in flight may need */
    expect_order(ids, RUNS);
}

static void note_appended(spool_append_t *append, bool durable)
{
    assert_true(durable);
    *(bool *)append->data = true;
}

static bool is_all_but_one_sent(void)
{
    return stats_now().records == 1 && stats_now().stuck == 1;
}

static void what_this_version_cannot_read_stays_and_lets_the_rest_pass(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    bool done = false;
    uint32_t key = spool_order_key(ids.caller);
    spool_append_t append = {.loop = fx.loop,
                             .cb = note_appended,
                             .data = &done,
                             .order_key = key,
                             .pieces = {{"from another version", 20}, {"", 0}}};
    kill(fx.pid, SIGSTOP);
    spool_append(sp.spool, &append);
    assert_false(settle(&ids, VERDICT_ANSWERED));
    assert_true(done);
    kill(fx.pid, SIGCONT);
    turn_until(is_all_but_one_sent);
    expect_run(&ids, "answered");
    assert_false(spool_is_held(sp.spool, key));
    assert_true(store_spool_is_empty(fx.store)); /* of what can be sent */
    start_anew();
    turn_until(is_all_but_one_sent); /* the other version will find it */
    turn_until(store_up);
}

static void what_no_frame_holds_is_kept_in_memory(void **state)
{
    (void)state;
    static uint8_t record[SPOOL_PAYLOAD_MAX];
    ids_t ids = ids_fresh(), small = ids_fresh();
    kill(fx.pid, SIGSTOP);
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.record = record;
    s.record_len = sizeof(record);
    assert_false(settle_now(&s));
    assert_int_equal(stats_now().appended_total + stats_now().failures_total, 0);
    assert_true(spool_has_room(sp.spool, 1));
    assert_int_equal(store_backlog(fx.store), 1);
    assert_false(settle(&small, VERDICT_ANSWERED));
    assert_int_equal(stats_now().appended_total, 1);
    kill(fx.pid, SIGCONT);
    turn_until(store_idle);
    turn_until(is_spool_empty);
    expect_run(&small, "answered");
}

static void every_field_survives_the_spool(void **state)
{
    (void)state;
    static const uint8_t record[] = {1, 2, 0, 3}, answer[] = {9, 0, 8};
    char hex[65];
    random_hex(hex, 32);
    store_settlement_t s = {
        .caller = "c\xc3\xa4ller",
        .request_id = "0123456789abcdef0123456789abcdef",
        .client_request_id = "fedcba9876543210fedcba9876543210",
        .idempotency_key = "a \"key\"",
        .run_id = "00112233445566778899aabbccddeeff",
        .verdict = VERDICT_UNKNOWN,
        .give_back_rate = true,
        .spent = {UINT64_MAX, 1, 2},
        .is_cost_known = true,
        .keeps_hold = true,
        .limits = "rate=30/min",
        .backend = "docker",
        .tier = "container",
        .kind = "project",
        .request_sha256 = hex,
        .result_sha256 = hex,
        .record_sha256 = hex,
        .started_unix_ms = -5,
        .ended_unix_ms = INT64_MAX,
        .exit_code = -1,
        .project_outcome = 3,
        .timed_out = true,
        .canceled = true,
        .unknown_code = "unavailable",
        .reason = "capacity",
        .trace_id = "trace",
        .record = record,
        .record_len = sizeof(record),
    };
    for (size_t answer_len = 0; answer_len <= sizeof(answer); answer_len += sizeof(answer)) {
        uint8_t *base;
        size_t bare, len = spool_record_pack(&s, answer_len, &base, &bare);
        uint8_t *whole = mem_alloc(len + answer_len);
        memcpy(whole, base, len);
        memcpy(whole + len, answer, answer_len);
        spool_record_t r;
        assert_null(spool_record_unpack(whole, len + answer_len, &r));
        const store_settlement_t *t = &r.settlement;
#define same_text(field) assert_string_equal(t->field, s.field)
        same_text(caller), same_text(request_id), same_text(client_request_id), same_text(idempotency_key);
        same_text(run_id), same_text(limits), same_text(backend), same_text(tier), same_text(kind);
        same_text(request_sha256), same_text(result_sha256), same_text(record_sha256), same_text(unknown_code);
        same_text(reason), same_text(trace_id);
        assert_true(t->verdict == s.verdict && t->give_back_rate && t->is_cost_known && t->keeps_hold);
        assert_memory_equal(&t->spent, &s.spent, sizeof(s.spent));
        assert_true(t->started_unix_ms == -5 && t->ended_unix_ms == INT64_MAX && t->exit_code == -1);
        assert_true(t->project_outcome == 3 && t->timed_out && t->canceled);
        assert_int_equal(t->record_len, sizeof(record));
        assert_memory_equal(t->record, record, sizeof(record));
        assert_int_equal(t->answer_len, answer_len);
        if (answer_len != 0)
            assert_memory_equal(t->answer, answer, answer_len);
        spool_record_dispose(&r);
        if (answer_len != 0) {
            /* the same, its output left out after all */
            assert_null(spool_record_unpack(whole, bare, &r));
            assert_int_equal(r.settlement.answer_len, 0);
            assert_string_equal(r.settlement.trace_id, "trace");
            spool_record_dispose(&r);
        }
        free(whole);
        free(base);
    }
}

static void what_is_no_settlement_is_named(void **state)
{
    (void)state;
    static const struct {
        store_settlement_t s;
        const char *why;
    } rows[] = {
        {{.run_id = "00112233445566778899aabbccddeeff"}, "no caller"},
        {{.caller = "c", .run_id = "00112233445566778899aabbccddeef"}, "no run ID"},
        {{.caller = "c", .run_id = "00112233445566778899aabbccddeefg"}, "no run ID"},
        {{.caller = "c", .run_id = "00112233445566778899aabbccddeeff", .request_id = "x"}, "a claim that is none"},
        {{.caller = "c", .run_id = "00112233445566778899aabbccddeeff", .verdict = (verdict_t)3}, "an unknown verdict"},
        {{.caller = "c", .run_id = "00112233445566778899aabbccddeeff", .project_outcome = 200},
         "an unknown outcome of a project"},
        {{.caller = "c", .run_id = "00112233445566778899aabbccddeeff"}, NULL},
    };
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i) {
        uint8_t *base;
        size_t bare, len = spool_record_pack(&rows[i].s, 0, &base, &bare);
        spool_record_t r;
        const char *why = spool_record_unpack(base, len, &r);
        if (rows[i].why == NULL) {
            assert_null(why);
            spool_record_dispose(&r);
        } else {
            assert_string_equal(why, rows[i].why);
        }
        free(base);
    }
    spool_record_t r;
    assert_string_equal(spool_record_unpack((const uint8_t *)"\xff\xff\xff", 3, &r), "malformed");
}

#define with_spool(test) cmocka_unit_test_setup_teardown(test, open_both, close_both)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_survives_the_spool),
        cmocka_unit_test(what_is_no_settlement_is_named),
        with_spool(what_redis_takes_never_sees_the_disk),
        with_spool(what_a_frozen_redis_does_not_take_is_on_the_disk_first_and_in_redis_later),
        with_spool(once_redis_is_silent_nobody_waits_for_it_again),
        with_spool(a_callers_later_settlement_does_not_overtake_what_is_on_the_disk),
        with_spool(a_caller_that_never_pauses_leaves_the_spool),
        with_spool(memory_gives_what_the_disk_did_not_take_back_to_it),
        with_spool(a_redis_that_comes_back_empty_handed_gets_everything),
        with_spool(an_end_waits_for_what_redis_takes_and_not_for_a_redis_that_is_away),
        with_spool(a_front_that_starts_anew_sends_what_the_last_one_left_before_what_comes),
        with_spool(what_was_taken_and_not_marked_is_recorded_once),
        with_spool(a_disk_that_takes_nothing_leaves_the_record_in_memory_and_says_so),
        with_spool(a_disk_that_takes_long_holds_the_answer_a_second_at_most),
        with_spool(what_this_version_cannot_read_stays_and_lets_the_rest_pass),
        with_spool(what_no_frame_holds_is_kept_in_memory),
        with_spool(without_room_the_output_goes_and_the_record_stays),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
