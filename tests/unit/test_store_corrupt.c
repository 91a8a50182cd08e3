/* A value of another form in each key of the counts, the budgets and the log: named, set aside, never guessed at. */
#include "tests/unit/store_clock.h"

#include <sys/stat.h>

/* What was logged since log_catch, to the end of the next one; stderr is a file for the time. */
static int log_kept = -1, log_file = -1;

static void log_catch(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/log", fx.dir);
    log_file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(log_file >= 0);
    log_kept = dup(2);
    dup2(log_file, 2);
}

static bool log_names(const char *key)
{
    static char text[64 * 1024];
    dup2(log_kept, 2);
    close(log_kept);
    ssize_t len = pread(log_file, text, sizeof(text) - 1, 0);
    close(log_file);
    assert_true(len >= 0);
    text[len] = '\0';
    return strstr(text, "store_key_corrupt") != NULL && strstr(text, key) != NULL;
}

static store_admission_t capped(const ids_t *ids)
{
    store_admission_t a = admission_of(ids);
    a.window_s = 60;
    a.hold = (store_amounts_t){10, 10, 10};
    a.hold_ms = 60000;
    a.caps = (store_caps_t){
        .slots = 10, .rate_per_min = 60, .burst = 60, .runs_per_window = 10, .per_day = {1000, 1000, 1000}};
    a.total_caps = a.caps;
    return a;
}

static void make(const char *key, const char *form)
{
    if (strcmp(form, "list") == 0)
        direct_do("LPUSH %s junk", key);
    else if (strcmp(form, "string") == 0)
        direct_do("SET %s junk", key);
    else if (strcmp(form, "long") == 0)
        direct_do("SET %s %s", key, "12345678901234567890123456789012345678901234567890 1 1 11111111111");
    else
        direct_do("HSET %s %s junk", key, form);
}

static const struct {
    const char *name, *form;
} ROWS[] = {
    {"slots", "list"},
    {"slots", "string"},
    {"rate", "list"},
    {"rate", "string"},
    {"window", "list"},
    {"window", "string"},
    {"window", "long"},
    {"day:20261130", "string"},
    {"day:20261130", "runs"},
    {"day:20261130", "seconds_ms"},
    {"day:20261130", "cost_micro"},
    {"holds", "string"},
    {"holds", "paid_ms"},
};

static void a_count_that_is_none_refuses_and_is_named(void **state)
{
    for (int is_total = 0; is_total != 2; ++is_total) {
        for (size_t i = 0; i != sizeof(ROWS) / sizeof(ROWS[0]); ++i) {
            clock_clean(state);
            ids_t ids = ids_fresh();
            char key[STORE_CLAIM_KEY_MAX];
            snprintf(key, sizeof(key), "%s%s", is_total ? ROOT : ids.prefix, ROWS[i].name);
            make(key, ROWS[i].form);
            store_admission_t a = capped(&ids);
            log_catch();
            store_admitted_t said = admit_now(&a);
            assert_true(log_names(key));
            assert_int_equal(said.outcome, ADMIT_NO_STORE);
            /* its time may have been set, its value was not, and nothing else was written */
            redisReply *keys = direct("KEYS " ROOT "*");
            assert_int_equal(keys->elements, 1);
            freeReplyObject(keys);
            assert_writes_nothing(assert_int_equal(admit_now(&a).outcome, ADMIT_NO_STORE));
            log_catch();
            const usage_seen_t *seen = usage_seen(is_total ? NULL : ids.caller, &a.caps, 60);
            assert_true(log_names(key));
            assert_int_equal(seen->found, STORE_AWAY);
        }
    }
}

static void settling_keeps_the_record_whatever_the_counts_are(void **state)
{
    for (int is_total = 0; is_total != 2; ++is_total) {
        for (size_t i = 0; i != sizeof(ROWS) / sizeof(ROWS[0]); ++i) {
            for (int verdict = VERDICT_ANSWERED; verdict <= VERDICT_UNKNOWN; ++verdict) {
                clock_clean(state);
                ids_t ids = ids_fresh();
                char key[STORE_CLAIM_KEY_MAX];
                store_admission_t a = capped(&ids);
                assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
                snprintf(key, sizeof(key), "%s%s", is_total ? ROOT : ids.prefix, ROWS[i].name);
                direct_do("DEL %s", key);
                make(key, ROWS[i].form);
                store_settlement_t s = settlement_of(&ids, (verdict_t)verdict);
                s.ended_unix_ms = INT64_MAX;
                s.spent = (store_amounts_t){5, 5, 5};
                assert_true(settle_now(&s));
                assert_int_equal(get_run(ids.caller, ids.run_id)->found, STORE_FOUND);
                assert_int_equal(direct_int("EXISTS " ROOT "held"), 0);
                assert_int_equal(direct_int("LLEN " ROOT "log"), verdict == VERDICT_REFUSED ? 0 : 1);
                redisReply *type = direct("TYPE %s", key);
                assert_string_equal(type->str, strcmp(ROWS[i].form, "list") == 0             ? "list"
                                               : strstr("string long", ROWS[i].form) != NULL ? "string"
                                                                                             : "hash");
                freeReplyObject(type);
                assert_writes_nothing(assert_true(settle_now(&s)));
            }
        }
    }
}

static void what_runs_hold_is_named_when_it_is_none(void **state)
{
    static const char *const names[] = {"held", "held:ends"};
    for (size_t i = 0; i != 2; ++i) {
        clock_clean(state);
        ids_t ids = ids_fresh();
        store_admission_t a = capped(&ids);
        direct_do("SET " ROOT "%s junk", names[i]);
        log_catch();
        assert_int_equal(admit_now(&a).outcome, ADMIT_NO_STORE);
        assert_true(log_names(ROOT "held"));
        redisReply *keys = direct("KEYS " ROOT "*");
        assert_int_equal(keys->elements, 1);
        freeReplyObject(keys);
        /* without day caps nobody sweeps, but a slot is noted there too */
        a.caps.per_day = a.total_caps.per_day = a.hold = (store_amounts_t){0, 0, 0};
        assert_writes_nothing(assert_int_equal(admit_now(&a).outcome, ADMIT_NO_STORE));
        /* a run that has nothing there goes on */
        a = admission_of(&ids);
        assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
        store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
        assert_true(settle_now(&s));
        assert_int_equal(get_run(ids.caller, ids.run_id)->found, STORE_FOUND);
    }
}

static void a_hold_that_is_none_is_set_aside(void **state)
{
    static const char *const values[] = {
        "",
        "junk",
        "H0123456789abcdef0123456789abcdef 1 1 1 1 1 1",                  /* no window */
        "H0123456789abcdef0123456789abcde 1 1 1 1 1 1 1",                 /* a short tag */
        "H0123456789abcdef0123456789abcdef 1 1 1 1 1 8 1",                /* took what there is not */
        "Y0123456789abcdef0123456789abcdef 1 1 1 1 1 1 1",                /* no such state */
        "H0123456789abcdef0123456789abcdef 1 1 -1 1 1 1 1",               /* less than nothing */
        "H0123456789abcdef0123456789abcdef 1 1 1 1 1 1 1 junk",           /* more than there is */
        "H0123456789abcdef0123456789abcdef 1 1 1000000000000000 1 1 1 1", /* longer than an amount is */
        /* its days were counted one by one, and Redis did nothing else for ever */
        "H0123456789abcdef0123456789abcdef 1 1 9999999999999999999999999 1 1 1 1",
    };
    for (size_t i = 0; i != sizeof(values) / sizeof(values[0]); ++i) {
        clock_clean(state);
        ids_t ids = ids_fresh(), next = ids_fresh();
        store_admission_t a = capped(&ids);
        assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
        direct_do("HSET " ROOT "held %s %s", ids.run_id, values[i]);
        clock_add(60000);
        a = capped(&next);
        log_catch();
        assert_int_equal(admit_now(&a).outcome, ADMIT_NO_STORE);
        assert_true(log_names(ROOT "held"));
        redisReply *kept = direct("HGET " ROOT "held %s", ids.run_id);
        assert_string_equal(kept->str, values[i]);
        freeReplyObject(kept);
        /* once; what it held stays held, as nobody knows how much it was */
        assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
        assert_amounts(usage_of(NULL).held, 20, 20, 20);
        log_catch();
        store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
        s.ended_unix_ms = INT64_MAX;
        s.spent = (store_amounts_t){5, 5, 5};
        assert_true(settle_now(&s));
        assert_true(log_names("held"));
        assert_amounts(usage_of(ids.caller).spent, 5, 5, 5);
    }
}

static void a_log_that_is_none_takes_no_leaf(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    direct_do("SET " ROOT "log junk");
    assert_int_equal(admit(&ids).outcome, ADMIT_OK);
    log_catch();
    assert_true(settle(&ids, VERDICT_ANSWERED));
    assert_true(log_names(ROOT "log"));
    assert_true(get_run(ids.caller, ids.run_id)->runs[0].log_index == -1);
    assert_int_equal(admit(&ids).outcome, ADMIT_ANSWERED);
}

static void a_record_that_is_none_stays_and_is_named(void **state)
{
    for (int form = 0; form != 2; ++form) {
        clock_clean(state);
        ids_t ids = ids_fresh();
        assert_int_equal(admit(&ids).outcome, ADMIT_OK);
        direct_do(form ? "SET %srun:%s junk" : "LPUSH %srun:%s junk", ids.prefix, ids.run_id);
        log_catch();
        assert_true(settle(&ids, VERDICT_ANSWERED));
        assert_true(log_names(ids.run_id));
        assert_int_equal(direct_int("EXISTS " ROOT "log %sslots", ids.prefix), 0);
        assert_int_equal(get_run(ids.caller, ids.run_id)->found, STORE_AWAY);
    }
}

static bool receipt_dropped(void)
{
    return store_receipts_dropped(fx.store) != 0;
}

static void receipts_that_are_none_are_named_and_end(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    char key[128];
    snprintf(key, sizeof(key), "%sreceipts", ids.prefix);
    direct_do("SET %s junk", key);
    store_settlement_t s = settlement_of(&ids, VERDICT_REFUSED);
    log_catch();
    store_receipt(fx.store, &s);
    turn_until(receipt_dropped);
    assert_true(log_names(key));
    assert_in_range(direct_int("PTTL %s", key), 1, 86400000);
    redisReply *kept = direct("GET %s", key);
    assert_string_equal(kept->str, "junk");
    freeReplyObject(kept);
}

static void callers_that_are_none_are_named(void **state)
{
    (void)state;
    ids_t ids = ids_fresh();
    direct_do("SET " ROOT "callers:20261130 junk");
    store_admission_t a = capped(&ids);
    assert_int_equal(admit_now(&a).outcome, ADMIT_OK);
    store_settlement_t s = settlement_of(&ids, VERDICT_ANSWERED);
    s.ended_unix_ms = INT64_MAX;
    assert_true(settle_now(&s));
    log_catch();
    assert_int_equal(usage_all("20261130", NULL)->found, STORE_AWAY);
    assert_true(log_names("callers:20261130"));
    direct_do("DEL " ROOT "callers:20261130");
    direct_do("ZADD " ROOT "callers:20261130 0 junk");
    assert_int_equal(usage_all(NULL, NULL)->found, STORE_AWAY);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, clock_clean)
    const struct CMUnitTest tests[] = {
        T(a_count_that_is_none_refuses_and_is_named), T(settling_keeps_the_record_whatever_the_counts_are),
        T(what_runs_hold_is_named_when_it_is_none),   T(a_hold_that_is_none_is_set_aside),
        T(a_log_that_is_none_takes_no_leaf),          T(a_record_that_is_none_stays_and_is_named),
        T(callers_that_are_none_are_named),           T(receipts_that_are_none_are_named_and_end),
    };
    return cmocka_run_group_tests(tests, clock_setup, clock_teardown);
}
