/* The settings that say where the record store is. */
#include "tests/unit/options_fixture.h"

#include "config/redis_settings.h"

static void the_address_has_a_key_of_the_installation(void **state)
{
    (void)state;
    redis_address_t address;
    problems_t problems = {NULL, 0};
    setenv("PLIMSOLL_REDIS_URL", "redis://h", 1);
    setenv("PLIMSOLL_INSTALLATION", "blue-2", 1);
    problems = load();
    assert_int_equal(problems.count, 0);
    assert_true(redis_settings_read(&address, &problems));
    assert_string_equal(address.home, "plimsoll:2:{blue-2}:stamp");
    assert_null(address.tls);
    redis_address_dispose(&address);
}

static void tls_is_made_ready_from_the_system_when_no_file_is_named(void **state)
{
    (void)state;
    redis_address_t address;
    setenv("PLIMSOLL_REDIS_URL", "rediss://h", 1);
    problems_t problems = load();
    assert_true(redis_settings_read(&address, &problems));
    assert_non_null(address.tls);
    redis_address_dispose(&address);
}

static void files_that_cannot_be_used_are_problems(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"PLIMSOLL_REDIS_CA", "PLIMSOLL_REDIS_CERT", "PLIMSOLL_REDIS_KEY"};
    for (size_t i = 0; i < 3; i++) {
        fresh(NULL);
        setenv("PLIMSOLL_REDIS_URL", "rediss://u:hunter2@h", 1);
        setenv(NAMES[i], "/nonexistent/file", 1);
        problems_t problems = load();
        assert_true(says(&problems, "PLIMSOLL_REDIS_C"));
        assert_false(says(&problems, "hunter2"));
        problems_dispose(&problems);
        /* for TLS, and there is none */
        setenv("PLIMSOLL_REDIS_URL", "redis://h", 1);
        problems = load();
        assert_true(says(&problems, "rediss://"));
        problems_dispose(&problems);
    }
}

static void a_url_that_leaves_the_machine_without_tls_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        bool in_the_clear;
    } CASES[] = {
        {"redis://localhost", false},       {"redis://127.0.0.1:1/2", false},
        {"redis://[::1]", false},           {"redis+unix:///run/redis.sock", false},
        {"rediss://redis.example", false},  {"redis+sentinel://127.0.0.1,localhost/m", false},
        {"rediss+sentinel://a,b/m", false}, {"redis://redis.example", true},
        {"redis://10.0.0.1", true},         {"redis+sentinel://127.0.0.1,10.0.0.1/m", true},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        problems_t warnings = {NULL, 0};
        fresh(NULL);
        setenv("PLIMSOLL_REDIS_URL", CASES[i].url, 1);
        problems_t problems = load();
        assert_int_equal(problems.count, 0);
        options_warnings(&warnings);
        assert_int_equal(says(&warnings, "without TLS"), CASES[i].in_the_clear);
        problems_dispose(&warnings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_address_has_a_key_of_the_installation, fresh),
        cmocka_unit_test_setup(tls_is_made_ready_from_the_system_when_no_file_is_named, fresh),
        cmocka_unit_test_setup(files_that_cannot_be_used_are_problems, fresh),
        cmocka_unit_test_setup(a_url_that_leaves_the_machine_without_tls_is_said, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
