/* Which settings of a Redis are warned about, by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "records/store_check.h"

/* As redis-server 7.0 words it, shortened. */
static const char INFO[] = "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\n"
                           "\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
                           "# Persistence\r\nloading:0\r\naof_enabled:1\r\naof_last_write_status:ok\r\n"
                           "# Replication\r\nrole:master\r\nconnected_slaves:1\r\nslave0:ip=1.2.3.4,state=online\r\n";

static store_seen_values_t good(void)
{
    store_seen_values_t seen = {0};
    store_check_take_info(&seen, INFO, sizeof(INFO) - 1);
    store_check_take_config(&seen, "appendonly", "yes");
    store_check_take_config(&seen, "appendfsync", "always");
    store_check_take_config(&seen, "maxmemory-policy", "noeviction");
    store_check_take_config(&seen, "min-replicas-to-write", "1");
    store_check_take_config(&seen, "save", "");
    store_check_take_config(&seen, "requirepass", "hunter2");
    return seen;
}

static void put(store_seen_values_t *seen, store_seen_t which, const char *value)
{
    snprintf(seen->values[which], sizeof(seen->values[which]), "%s", value);
}

/* The names of all warnings, with a space after each. */
static const char *warnings_of(const store_seen_values_t *seen)
{
    static char names[256];
    names[0] = '\0';
    for (unsigned i = 0; i < WARN_COUNT; i++) {
        store_judgment_t j = store_check_judge(seen, (store_warning_t)i);
        assert_true(j.setting != NULL && j.wanted != NULL && j.value != NULL);
        if (j.why == NULL)
            continue;
        strcat(names, j.setting);
        strcat(names, " ");
    }
    return names;
}

static void a_server_as_recommended_is_not_warned_about(void **state)
{
    (void)state;
    store_seen_values_t seen = good();
    assert_string_equal(warnings_of(&seen), "");
    for (unsigned i = 0; i < SEEN_COUNT; i++)
        assert_null(strstr(seen.values[i], "hunter"));
}

static void each_setting_is_named(void **state)
{
    (void)state;
    static const struct {
        store_seen_t seen;
        const char *value, *warnings;
    } CASES[] = {
        {SEEN_VERSION, "6.2.0", ""},
        {SEEN_VERSION, "6.2", ""},
        {SEEN_VERSION, "6.1.99", "version "},
        {SEEN_VERSION, "6.0.16", "version "},
        {SEEN_VERSION, "5.0.3", "version "},
        {SEEN_VERSION, "10.0.1", ""},
        {SEEN_ROLE, "slave", "role "},
        {SEEN_APPENDONLY, "yes", ""},
        {SEEN_APPENDFSYNC, "everysec", "appendfsync "},
        {SEEN_APPENDFSYNC, "no", "appendfsync "},
        {SEEN_POLICY, "allkeys-lru", "maxmemory-policy "},
        {SEEN_POLICY, "volatile-ttl", "maxmemory-policy "},
        {SEEN_MIN_REPLICAS, "0", "min-replicas-to-write "},
        {SEEN_AOF_STATUS, "err", "aof_last_write_status "},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        store_seen_values_t seen = good();
        put(&seen, CASES[i].seen, CASES[i].value);
        assert_string_equal(warnings_of(&seen), CASES[i].warnings);
    }
}

static void a_server_without_its_log_is_warned_about_for_that_alone(void **state)
{
    (void)state;
    store_seen_values_t seen = good();
    put(&seen, SEEN_APPENDONLY, "no");
    put(&seen, SEEN_AOF_ENABLED, "0");
    put(&seen, SEEN_APPENDFSYNC, "everysec");
    assert_string_equal(warnings_of(&seen), "appendonly ");
    assert_non_null(strstr(store_check_judge(&seen, WARN_APPENDONLY).why, "nothing"));
    put(&seen, SEEN_SAVE, "3600 1 300 100");
    assert_string_equal(warnings_of(&seen), "appendonly ");
    assert_non_null(strstr(store_check_judge(&seen, WARN_APPENDONLY).why, "snapshots"));
}

static void replicas_that_need_not_have_it_matter_only_where_there_are_some(void **state)
{
    (void)state;
    store_seen_values_t seen = good();
    put(&seen, SEEN_REPLICAS, "0");
    put(&seen, SEEN_MIN_REPLICAS, "0");
    assert_string_equal(warnings_of(&seen), "");
}

static void what_is_not_told_is_not_judged(void **state)
{
    (void)state;
    store_seen_values_t seen = {0};
    assert_string_equal(warnings_of(&seen), "");
    seen.config_denied = true;
    assert_string_equal(warnings_of(&seen), "config ");
    seen.info_denied = true;
    assert_string_equal(warnings_of(&seen), "info config ");
    /* without CONFIG, INFO says the most important */
    seen = (store_seen_values_t){.config_denied = true};
    store_check_take_info(&seen, INFO, sizeof(INFO) - 1);
    put(&seen, SEEN_AOF_ENABLED, "0");
    assert_string_equal(warnings_of(&seen), "appendonly config ");
    assert_string_equal(store_check_judge(&seen, WARN_APPENDONLY).value, "no");
}

static void lines_of_any_form_and_length_are_survived(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"",      "\r\n",        "\n\n",          ":",      "role",
                                        "role:", "role:master", "role:\nrole:x", "#role:x"};
    char line[256];
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        store_seen_values_t seen = {0};
        store_check_take_info(&seen, TEXTS[i], strlen(TEXTS[i]));
        assert_true(strlen(seen.values[SEEN_ROLE]) <= 6);
    }
    for (int over = -1; over <= 1; over++) {
        store_seen_values_t seen = {0};
        int len = snprintf(line, sizeof(line), "role:%0*d\r\n", STORE_CHECK_VALUE_MAX + over, 0);
        store_check_take_info(&seen, line, (size_t)len);
        assert_int_equal(strlen(seen.values[SEEN_ROLE]), STORE_CHECK_VALUE_MAX + (over < 0 ? over : 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_as_recommended_is_not_warned_about),
        cmocka_unit_test(each_setting_is_named),
        cmocka_unit_test(a_server_without_its_log_is_warned_about_for_that_alone),
        cmocka_unit_test(replicas_that_need_not_have_it_matter_only_where_there_are_some),
        cmocka_unit_test(what_is_not_told_is_not_judged),
        cmocka_unit_test(lines_of_any_form_and_length_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
