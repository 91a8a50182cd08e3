/* The settings of the backend e2b: what is refused before anything is sent, and what follows from the rest. */
#include "tests/unit/options_fixture.h"

#include "config/e2b.h"

#define KEY "e2b_0123456789abcdef"

static int enabled(void **state)
{
    fresh(state);
    setenv("SANDBOX_PROVIDER", "e2b", 1);
    setenv("E2B_API_KEY", KEY, 1);
    return 0;
}

/* Whether the load says `text`; NULL: that it says nothing. */
static void expect(const char *name, const char *value, const char *text)
{
    setenv(name, value, 1);
    problems_t problems = load();
    if (text == NULL ? problems.count != 0 : !says(&problems, text)) {
        show(&problems);
        print_message("  %s=%s\n", name, value);
        fail();
    }
    problems_dispose(&problems);
    unsetenv(name);
}

static void test_a_key_is_all_it_needs(void **state)
{
    (void)state;
    char api[BASE_URL_MAX + 1], sandbox[BASE_URL_MAX + 1];
    expect("E2B_TEMPLATE", "team/node-22:stable.1_x", NULL);
    problems_t problems = load();
    assert_int_equal(problems.count, 0);
    e2b_api_url(api);
    e2b_sandbox_url(sandbox);
    assert_string_equal(api, "https://api.e2b.app");
    assert_string_equal(sandbox, "https://sandbox.e2b.app");
    assert_false(e2b_is_flavour_v1());
    assert_true(e2b_cpus_max() == 0 && e2b_memory_max_mb() == 0 && e2b_disk_max_mb() == 0); /* the template's */
    problems_dispose(&problems);
    unsetenv("E2B_API_KEY");
    problems = load();
    assert_true(says(&problems, "E2B_API_KEY is not set"));
    problems_dispose(&problems);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    expect("E2B_API_KEY", "e2b_01234567 89ab", "E2B_API_KEY holds a character");
    expect("E2B_API_KEY",
           "e2b_\x01"
           "234567",
           "E2B_API_KEY holds a character");
    setenv("E2B_API_KEY", KEY, 1);
    expect("E2B_TEMPLATE", "a b", "E2B_TEMPLATE is \"a b\"");
    expect("E2B_TEMPLATE", "a\"b", "E2B_TEMPLATE is");
    static const char *const domains[] = {"e2b.app:443", "https://e2b.app", ".e2b.app", "e2b..app", "e2b.app.", "-a.b",
                                          "a-.b",        "E2B.app"};
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        expect("E2B_DOMAIN", domains[i], "E2B_DOMAIN is");
        expect("E2B_OTHER_DOMAINS", domains[i], "E2B_OTHER_DOMAINS names");
    }
    expect("E2B_API_URL", "http://api.example", "E2B_API_URL is");
    expect("E2B_API_URL", "https://user@api.example", "E2B_API_URL is");
    expect("E2B_SANDBOX_URL", "http://10.0.0.1", "E2B_SANDBOX_URL is");
    expect("E2B_SANDBOX_HOST", "both", "it takes shared or own");
    expect("E2B_API_FLAVOUR", "v3", "it takes v2 or v1");
    expect("E2B_CA_FILE", "/nonexistent/ca.pem", "E2B_CA_FILE is \"/nonexistent/ca.pem\", which cannot be read");
    expect("SANDBOX_CPUS", "1.5", "a whole number of processors");
    expect("SANDBOX_CPUS", "2.0", NULL);
    expect("SANDBOX_PIDS", "100", "SANDBOX_PIDS");
    expect("E2B_MAX_CONCURRENT", "0", "E2B_MAX_CONCURRENT");
    expect("E2B_CREATES_PER_SECOND", "0", "E2B_CREATES_PER_SECOND");
}

static void test_addresses(void **state)
{
    (void)state;
    char api[BASE_URL_MAX + 1], sandbox[BASE_URL_MAX + 1];
    setenv("E2B_API_URL", "http://127.0.0.1:8080/x//", 1);
    setenv("E2B_SANDBOX_HOST", "own", 1);
    setenv("E2B_API_FLAVOUR", "v1", 1);
    setenv("SANDBOX_CPUS", "4", 1);
    setenv("SANDBOX_MEMORY_MB", "1024", 1);
    setenv("SANDBOX_DISK_MB", "20480", 1);
    problems_t problems = load();
    assert_int_equal(problems.count, 0);
    problems_dispose(&problems);
    e2b_api_url(api);
    e2b_sandbox_url(sandbox);
    assert_string_equal(api, "http://127.0.0.1:8080/x");
    assert_string_equal(sandbox, ""); /* each its own */
    assert_true(e2b_is_flavour_v1());
    assert_true(e2b_cpus_max() == 4 && e2b_memory_max_mb() == 1024 && e2b_disk_max_mb() == 20480);
    setenv("E2B_SANDBOX_URL", "http://localhost:1", 1); /* is for every sandbox */
    problems = load();
    assert_int_equal(problems.count, 0);
    problems_dispose(&problems);
    e2b_sandbox_url(sandbox);
    assert_string_equal(sandbox, "http://localhost:1");
}

static void test_the_hardened_mode_wants_a_template(void **state)
{
    (void)state;
    setenv("PLIMSOLL_HARDENED", "on", 1);
    problems_t problems = load();
    assert_true(says(&problems, "hardened: E2B_TEMPLATE must be set"));
    problems_dispose(&problems);
    setenv("E2B_TEMPLATE", "base", 1); /* the default's name, and said */
    problems = load();
    assert_false(says(&problems, "E2B_TEMPLATE"));
    problems_dispose(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_key_is_all_it_needs, enabled),
        cmocka_unit_test_setup(test_what_is_refused, enabled),
        cmocka_unit_test_setup(test_addresses, enabled),
        cmocka_unit_test_setup(test_the_hardened_mode_wants_a_template, enabled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
