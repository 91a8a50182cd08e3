/* The rules between settings, those of the hardened mode included, and the values that follow from several. */
#include "tests/unit/options_fixture.h"

#include <unistd.h>

#include "config/options_rules.h"

static void providers_are_known_and_named_once(void **state)
{
    (void)state;
    setenv("SANDBOX_PROVIDER", "wasm", 1);
    expect_fine();
    setenv("SANDBOX_PROVIDER", "e3b", 1);
    expect_only_problem("SANDBOX_PROVIDER names \"e3b\", which is not built in: there is wasm, docker, gvisor, e2b, "
                        "dockercloud, openshell");
    setenv("SANDBOX_PROVIDER", "docker,gvisor,wasm", 1);
    expect_fine();
    setenv("SANDBOX_PROVIDER", "WASM", 1);
    expect_problem("\"WASM\"");
    setenv("SANDBOX_PROVIDER", "wasm, wasm", 1);
    expect_only_problem("SANDBOX_PROVIDER names \"wasm\" more than once");
    setenv("SANDBOX_PROVIDER", "wasm,e3b,opensell", 1);
    expect_problem("\"e3b\"");
    expect_problem("\"opensell\"");
}

/* Asking for a sandbox, staging and collecting come on top of a run's own time. */
static void an_answer_that_would_be_cut_off_is_warned_of(void **state)
{
    static const struct {
        const char *most, *cut;
        bool is_said;
    } cases[] = {{"120s", "6m", false}, {"300s", "6m", true}, {"300s", "432s", false}, {"300s", "431s", true}};
    (void)state;
    setenv("SANDBOX_PROVIDER", "wasm,e2b", 1);
    setenv("E2B_API_KEY", "e2b_0123456789abcdef", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        problems_t warnings = {NULL, 0};
        setenv("SANDBOX_CLOUD_TIMEOUT_MAX", cases[i].most, 1);
        setenv("PLIMSOLL_WRITE_TIMEOUT", cases[i].cut, 1);
        problems_t problems = load();
        problems_dispose(&problems);
        options_warnings(&warnings);
        assert_int_equal(says(&warnings, "an answer of the backend e2b may take"), cases[i].is_said);
        assert_false(says(&warnings, "backend wasm may take"));
        problems_dispose(&warnings);
    }
}

static void without_a_token_it_does_not_start(void **state)
{
    problems_t warnings = {NULL, 0};

    (void)state;
    unsetenv("PLIMSOLL_TOKEN");
    expect_problem("nobody is asked for a token");
    assert_int_equal(options_callers_mode(), CALLERS_OPEN);
    setenv("PLIMSOLL_INSECURE", "0", 1);
    expect_problem("nobody is asked for a token");
    setenv("PLIMSOLL_INSECURE", "1", 1);
    expect_fine();
    options_warnings(&warnings);
    assert_true(says(&warnings, "everybody who can connect"));
    problems_dispose(&warnings);
    unsetenv("PLIMSOLL_INSECURE");
    setenv("PLIMSOLL_CLIENTS_FILE", "/etc/plimsoll/clients.json", 1);
    expect_fine();
    assert_int_equal(options_callers_mode(), CALLERS_FROM_FILE);
    options_warnings(&warnings);
    assert_int_equal(warnings.count, 0);
    setenv("PLIMSOLL_TOKEN", TOKEN, 1);
    expect_fine();
    assert_int_equal(options_callers_mode(), CALLERS_FROM_FILE);
    options_warnings(&warnings);
    assert_true(says(&warnings, "PLIMSOLL_TOKEN is ignored"));
    problems_dispose(&warnings);
    unsetenv("PLIMSOLL_CLIENTS_FILE");
    expect_fine();
    assert_int_equal(options_callers_mode(), CALLERS_SHARE_TOKEN);
}

static void a_token_has_32_to_4096_visible_characters(void **state)
{
    char text[4100];

    (void)state;
    memset(text, 'x', sizeof(text));
    text[31] = '\0';
    setenv("PLIMSOLL_TOKEN", text, 1);
    /* said once, and not as if there were none; the text itself is never repeated */
    expect_only_problem("PLIMSOLL_TOKEN is malformed: it takes 32 to 4096 bytes");
    text[31] = 'x';
    text[4096] = '\0';
    setenv("PLIMSOLL_TOKEN", text, 1);
    expect_fine();
    assert_string_equal(option_str(OPT_PLIMSOLL_TOKEN), text);
    text[4096] = 'x';
    text[4097] = '\0';
    setenv("PLIMSOLL_TOKEN", text, 1);
    expect_only_problem("PLIMSOLL_TOKEN is malformed: it takes 32 to 4096 bytes");
    setenv("PLIMSOLL_TOKEN", "0123456789abcdef 0123456789abcdef", 1);
    expect_only_problem("PLIMSOLL_TOKEN must be of visible ASCII characters, without spaces");
    setenv("PLIMSOLL_TOKEN",
           "0123456789abcdef\xc3\xa9"
           "0123456789abcdef",
           1);
    expect_only_problem("PLIMSOLL_TOKEN must be of visible ASCII characters, without spaces");
}

static void tls_takes_both_files_and_they_must_be_readable(void **state)
{
    char file[] = "/tmp/test_options_XXXXXX";
    int fd = mkstemp(file);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    setenv("PLIMSOLL_TLS_CERT", file, 1);
    expect_only_problem("PLIMSOLL_TLS_CERT is set without PLIMSOLL_TLS_KEY: TLS takes both");
    setenv("PLIMSOLL_TLS_KEY", file, 1);
    expect_fine();
    unsetenv("PLIMSOLL_TLS_CERT");
    expect_only_problem("PLIMSOLL_TLS_KEY is set without PLIMSOLL_TLS_CERT: TLS takes both");
    setenv("PLIMSOLL_TLS_CERT", "/tmp", 1);
    expect_only_problem("PLIMSOLL_TLS_CERT is \"/tmp\", which is not a regular file");
    unlink(file);
    setenv("PLIMSOLL_TLS_CERT", "/nowhere/cert.pem", 1);
    expect_problem("PLIMSOLL_TLS_CERT is \"/nowhere/cert.pem\", which cannot be read: No such file or directory");
    expect_problem("PLIMSOLL_TLS_KEY is \"/tmp/test_options_");
}

static void a_startup_floor_above_the_wall_is_refused(void **state)
{
    (void)state;
    setenv("SANDBOX_MIN_ISOLATION", "process", 1);
    expect_fine();
    setenv("SANDBOX_MIN_ISOLATION", "container", 1);
    expect_only_problem("SANDBOX_MIN_ISOLATION is \"container\", and the wall of the backend wasm is at most process");
    setenv("SANDBOX_MIN_ISOLATION", "vm", 1);
    expect_problem("SANDBOX_MIN_ISOLATION is \"vm\"");
    setenv("SANDBOX_MIN_ISOLATION", "none", 1);
    expect_only_problem("SANDBOX_MIN_ISOLATION is \"none\": it takes process, container, kernel or vm");
    setenv("SANDBOX_MIN_ISOLATION", "Process", 1);
    expect_problem("SANDBOX_MIN_ISOLATION is \"Process\": it takes");
}

static void a_limit_that_cannot_be_enforced_is_refused(void **state)
{
    static const char *const names[] = {"SANDBOX_CPUS", "SANDBOX_PIDS", "SANDBOX_DISK_MB"};
    char wanted[128];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        setenv(names[i], "1", 1);
        snprintf(wanted, sizeof(wanted), "%s is set, and the backend wasm cannot enforce it", names[i]);
        expect_only_problem(wanted);
        unsetenv(names[i]);
    }
}

/* It was found by the wall, after Redis and the backend had been started. */
static void memory_too_small_for_a_wall_is_refused(void **state)
{
    (void)state;
    setenv("SANDBOX_MEMORY_MB", "3", 1);
    expect_only_problem("SANDBOX_MEMORY_MB is 3, and the backend wasm needs at least 4");
    setenv("SANDBOX_MEMORY_MB", "4", 1);
    expect_fine();
    setenv("SANDBOX_MEMORY_MB", "5", 1);
    expect_fine();
    unsetenv("SANDBOX_MEMORY_MB");
}

static void numbers_of_processors(void **state)
{
    static const char *const good[] = {"1", "0.5", "1024", "1024.0", "0.000000001", "1023.999999999", "02"};
    static const char *const bad[] = {"",   "0",   "0.0", ".5",  "1.",           "1025", "1024.1",
                                      "-1", "1e3", "1,5", "inf", "0.0000000001", "00001"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!is_cpu_count(good[i]))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (is_cpu_count(bad[i]))
            fail_msg("accepted: %s", bad[i]);
}

/* Spec section 3.2: fit = total / memory of a run - pool; the per-caller default follows the lowered number. */
static void total_memory_lowers_the_concurrency(void **state)
{
    problems_t warnings = {NULL, 0};

    (void)state;
    setenv("SANDBOX_TOTAL_MEMORY_MB", "2047", 1); /* 7 of 256, and 255 over */
    expect_fine();
    assert_int_equal(options_max_concurrent(), 7);
    assert_int_equal(options_per_caller_concurrent(), 3);
    options_warnings(&warnings);
    assert_true(says(&warnings, "SANDBOX_MAX_CONCURRENT is lowered from 8 to 7"));
    problems_dispose(&warnings);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "2048", 1);
    expect_fine();
    assert_int_equal(options_max_concurrent(), 8);
    options_warnings(&warnings);
    assert_int_equal(warnings.count, 0);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "4096", 1);
    expect_fine();
    assert_int_equal(options_max_concurrent(), 8);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "256", 1);
    expect_fine();
    assert_int_equal(options_max_concurrent(), 1);
    assert_int_equal(options_per_caller_concurrent(), 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "255", 1);
    expect_only_problem(
        "SANDBOX_TOTAL_MEMORY_MB is 255, in which not one run of 256 MiB (SANDBOX_MEMORY_MB) fits beside 0 pooled "
        "sessions");
    assert_int_equal(options_max_concurrent(), 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "1024", 1);
    setenv("SANDBOX_MEMORY_MB", "128", 1);
    setenv("SANDBOX_MAX_SESSIONS", "5", 1); /* refused for wasm, and its pool counts all the same */
    setenv("SANDBOX_SESSION_POOL", "5", 1);
    expect_problem("no configured backend keeps sessions");
    assert_int_equal(options_max_concurrent(), 3);
}

static void a_callers_share(void **state)
{
    (void)state;
    setenv("SANDBOX_MAX_CONCURRENT", "1", 1);
    expect_fine();
    assert_int_equal(options_per_caller_concurrent(), 1);
    setenv("SANDBOX_MAX_CONCURRENT", "9", 1);
    expect_fine();
    assert_int_equal(options_per_caller_concurrent(), 4);
    setenv("SANDBOX_PER_KEY_CONCURRENT", "0", 1);
    expect_fine();
    assert_int_equal(options_per_caller_concurrent(), 0);
    setenv("SANDBOX_PER_KEY_CONCURRENT", "9", 1);
    expect_fine();
    assert_int_equal(options_per_caller_concurrent(), 9);
    setenv("SANDBOX_PER_KEY_CONCURRENT", "10", 1);
    expect_only_problem("SANDBOX_PER_KEY_CONCURRENT is 10, above SANDBOX_MAX_CONCURRENT, which is 9");
    setenv("SANDBOX_PER_KEY_CONCURRENT", "9", 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "1024", 1);
    expect_fine();
    assert_int_equal(options_per_caller_concurrent(), 4);
}

static void the_burst_follows_the_rate(void **state)
{
    (void)state;
    setenv("SANDBOX_RATE_PER_MIN", "7", 1);
    expect_fine();
    assert_int_equal(options_rate_burst(), 7);
    setenv("SANDBOX_RATE_BURST", "0", 1);
    expect_fine();
    assert_int_equal(options_rate_burst(), 7);
    setenv("SANDBOX_RATE_BURST", "50", 1);
    expect_fine();
    assert_int_equal(options_rate_burst(), 50);
    setenv("SANDBOX_RATE_PER_MIN", "0", 1);
    unsetenv("SANDBOX_RATE_BURST");
    expect_fine();
    assert_int_equal(options_rate_burst(), 0);
}

static void what_no_backend_does_is_refused(void **state)
{
    (void)state;
    setenv("SANDBOX_PAID_SECONDS_PER_DAY", "0", 1);
    expect_fine();
    setenv("SANDBOX_PAID_SECONDS_PER_DAY", "1", 1);
    expect_only_problem("SANDBOX_PAID_SECONDS_PER_DAY is set, and no configured backend bills");
    unsetenv("SANDBOX_PAID_SECONDS_PER_DAY");
    setenv("PLIMSOLL_GUARD_ADDR", ":8747", 1);
    expect_only_problem("PLIMSOLL_GUARD_ADDR is set, and no configured backend serves a guard");
    unsetenv("PLIMSOLL_GUARD_ADDR");
    setenv("PLIMSOLL_GRANTS_FILE", "/etc/plimsoll/grants.json", 1);
    expect_only_problem("PLIMSOLL_GRANTS_FILE is set, and this build has no broker that could serve a grant");
    unsetenv("PLIMSOLL_GRANTS_FILE");
    setenv("SANDBOX_MAX_SESSIONS", "1", 1);
    expect_only_problem("SANDBOX_MAX_SESSIONS is 1, and no configured backend keeps sessions");
}

static void sessions_are_checked_even_when_off(void **state)
{
    (void)state;
    setenv("SANDBOX_SESSION_POOL", "1", 1);
    expect_only_problem("SANDBOX_SESSION_POOL is 1, above SANDBOX_MAX_SESSIONS, which is 0");
    unsetenv("SANDBOX_SESSION_POOL");
    setenv("SANDBOX_SESSION_IDLE", "999ms", 1);
    expect_only_problem("SANDBOX_SESSION_IDLE is 999ms: it takes 0, or 1s to 12h");
    setenv("SANDBOX_SESSION_IDLE", "1s", 1);
    expect_fine();
    setenv("SANDBOX_SESSION_IDLE", "0", 1);
    expect_fine();
    setenv("SANDBOX_SESSION_LIFETIME", "12h1ms", 1);
    expect_problem("SANDBOX_SESSION_LIFETIME is \"12h1ms\"");
}

static void times_that_exclude_each_other(void **state)
{
    (void)state;
    setenv("PLIMSOLL_HEADER_TIMEOUT", "10s", 1);
    setenv("PLIMSOLL_READ_TIMEOUT", "9999ms", 1);
    expect_only_problem("PLIMSOLL_READ_TIMEOUT is shorter than PLIMSOLL_HEADER_TIMEOUT, which is a part of it");
    setenv("PLIMSOLL_READ_TIMEOUT", "10s", 1);
    expect_fine();
    setenv("PLIMSOLL_PROOF_INTERVAL", "5m", 1);
    expect_problem("PLIMSOLL_EVIDENCE_MAX_AGE is not longer than PLIMSOLL_PROOF_INTERVAL");
    setenv("PLIMSOLL_PROOF_INTERVAL", "299999ms", 1);
    expect_fine();
}

static void path_prefixes(void **state)
{
    static const char *const good[] = {"/a", "/sandbox/v1", "/a.b-c_d~e", "/.a", "/..."};
    static const char *const bad[] = {"a",    "/",    "/a/", "//a",     "/a//b", "/a%20",
                                      "/a b", "/a?b", "/.",  "/a/../b", "/a/..", "/\xc3\xa9"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        setenv("PLIMSOLL_PATH_PREFIX", good[i], 1);
        expect_fine();
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("PLIMSOLL_PATH_PREFIX", bad[i], 1);
        expect_problem("PLIMSOLL_PATH_PREFIX is");
    }
}

static void the_state_directory_leaves_room_for_a_socket(void **state)
{
    char text[100];

    (void)state;
    memset(text, 'd', sizeof(text));
    text[0] = '/';
    text[80] = '\0'; /* 108 bytes of a socket's path - its NUL - 27 for "/name.sock" */
    setenv("PLIMSOLL_STATE_DIR", text, 1);
    expect_fine();
    text[80] = 'd';
    text[81] = '\0';
    setenv("PLIMSOLL_STATE_DIR", text, 1);
    expect_problem("it takes at most 80 bytes");
    setenv("PLIMSOLL_STATE_DIR", "var/lib", 1);
    expect_only_problem("PLIMSOLL_STATE_DIR is \"var/lib\": it takes an absolute path");
}

static void the_redis_url_is_checked_and_never_told(void **state)
{
    problems_t problems;

    (void)state;
    setenv("PLIMSOLL_REDIS_URL", "redis://u:hunter2@redis.example:6379/1", 1);
    expect_fine();
    setenv("PLIMSOLL_REDIS_URL", "http://u:hunter2@redis.example", 1);
    problems = load();
    assert_int_equal(problems.count, 1);
    assert_true(says(&problems, "PLIMSOLL_REDIS_URL"));
    assert_false(says(&problems, "hunter2"));
    problems_dispose(&problems);
}

static void operation(void **state)
{
    (void)state;
    setenv("PLIMSOLL_LOG_LEVEL", "warning", 1);
    expect_only_problem("PLIMSOLL_LOG_LEVEL is \"warning\": it takes debug, info, warn or error");
    setenv("PLIMSOLL_LOG_LEVEL", "debug", 1);
    setenv("PLIMSOLL_LOG_FORMAT", "logfmt", 1); /* unknown is json (spec section 8.1) */
    setenv("PLIMSOLL_METRICS_ADDR", "OFF", 1);
    expect_fine();
    setenv("PLIMSOLL_ADDR", "off", 1);
    expect_only_problem("PLIMSOLL_ADDR is \"off\": it takes host:port, [IPv6]:port or :port");
    unsetenv("PLIMSOLL_ADDR");
    setenv("PLIMSOLL_USER", "nobody-of-this-name", 1);
    if (geteuid() == 0)
        expect_only_problem("PLIMSOLL_USER is \"nobody-of-this-name\", and this machine has no such user");
    else
        expect_fine();
}

static void everything_wrong_is_told_at_once(void **state)
{
    problems_t problems;

    (void)state;
    unsetenv("PLIMSOLL_TOKEN");
    setenv("PLIMSOLL_ADDR", "nowhere", 1);
    setenv("SANDBOX_MAX_CONCURRENT", "many", 1);
    setenv("SANDBOX_PROVIDER", "e3b", 1);
    setenv("SANDBOX_MAX_SESSIONS", "3", 1);
    setenv("PLIMSOLL_TLS_KEY", "/nowhere/key.pem", 1);
    problems = load();
    assert_int_equal(problems.count, 7);
    assert_true(says(&problems, "PLIMSOLL_ADDR is \"nowhere\""));
    assert_true(says(&problems, "SANDBOX_MAX_CONCURRENT is \"many\""));
    assert_true(says(&problems, "SANDBOX_PROVIDER names \"e3b\""));
    assert_true(says(&problems, "SANDBOX_MAX_SESSIONS is 3"));
    assert_true(says(&problems, "PLIMSOLL_TLS_KEY is set without"));
    assert_true(says(&problems, "PLIMSOLL_TLS_KEY is \"/nowhere/key.pem\""));
    assert_true(says(&problems, "nobody is asked for a token"));
    problems_dispose(&problems);
}

/* Spec section 4; wasm alone can never pass, as its wall is only a process (rule 1) and the envelope (13) cannot be
 * enforced. */
static void hardened_mode_tells_every_rule(void **state)
{
    problems_t problems;

    (void)state;
    setenv("PLIMSOLL_HARDENED", "1", 1);
    setenv("PLIMSOLL_INSECURE", "0", 1);
    setenv("PLIMSOLL_METRICS_ADDR", ":9464", 1);
    setenv("SANDBOX_RATE_PER_MIN", "0", 1);
    setenv("SANDBOX_RATE_BURST", "1", 1);
    setenv("SANDBOX_PER_KEY_CONCURRENT", "0", 1);
    problems = load();
    assert_true(says(&problems, "hardened: the wall of the backend wasm is only process"));        /* 1 */
    assert_true(says(&problems, "hardened: PLIMSOLL_CLIENTS_FILE must be set"));                   /* 2 */
    assert_true(says(&problems, "hardened: PLIMSOLL_INSECURE must not be set"));                   /* 3 */
    assert_true(says(&problems, "hardened: PLIMSOLL_ADDR is \":8746\""));                          /* 4 */
    assert_true(says(&problems, "hardened: PLIMSOLL_METRICS_ADDR is \":9464\""));                  /* 5 */
    assert_true(says(&problems, "hardened: SANDBOX_MEMORY_MB must be set"));                       /* 13 */
    assert_true(says(&problems, "hardened: SANDBOX_CPUS must be set"));                            /* 13 */
    assert_true(says(&problems, "hardened: SANDBOX_DISK_MB must be set"));                         /* 13 */
    assert_true(says(&problems, "hardened: SANDBOX_RATE_PER_MIN must be above zero"));             /* 14 */
    assert_true(says(&problems, "hardened: SANDBOX_RATE_BURST is 1, above SANDBOX_RATE_PER_MIN")); /* 15 */
    assert_true(says(&problems, "hardened: SANDBOX_PER_KEY_CONCURRENT must be above zero"));       /* 16 */
    assert_int_equal(problems.count, 11);
    problems_dispose(&problems);
    setenv("PLIMSOLL_HARDENED", "perhaps", 1); /* 20 */
    expect_problem("PLIMSOLL_HARDENED is \"perhaps\"");
}

static void hardened_mode_keeps_quiet_about_what_holds(void **state)
{
    problems_t problems;

    (void)state;
    unsetenv("PLIMSOLL_TOKEN");
    setenv("PLIMSOLL_HARDENED", "1", 1);
    setenv("PLIMSOLL_CLIENTS_FILE", "/etc/plimsoll/clients.json", 1);
    setenv("PLIMSOLL_ADDR", "[::1]:8746", 1);
    setenv("PLIMSOLL_METRICS_ADDR", "off", 1);
    setenv("SANDBOX_MEMORY_MB", "256", 1);
    setenv("SANDBOX_CPUS", "1", 1);
    setenv("SANDBOX_DISK_MB", "512", 1);
    setenv("SANDBOX_PER_KEY_CONCURRENT", "7", 1);
    problems = load();
    assert_true(says(&problems, "hardened: the wall of the backend wasm is only process"));
    assert_true(says(&problems, "SANDBOX_CPUS is set, and the backend wasm cannot enforce it"));
    assert_true(says(&problems, "SANDBOX_DISK_MB is set, and the backend wasm cannot enforce it"));
    assert_int_equal(problems.count, 3);
    problems_dispose(&problems);
    setenv("SANDBOX_PER_KEY_CONCURRENT", "8", 1); /* 17 */
    expect_problem("hardened: one caller may hold 8 of 8 runs");
    setenv("SANDBOX_PER_KEY_CONCURRENT", "7", 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "1792", 1); /* the effective number counts: 7 */
    expect_problem("hardened: one caller may hold 7 of 7 runs");
    setenv("SANDBOX_MAX_SESSIONS", "2", 1); /* 18 */
    expect_problem("hardened: SANDBOX_MAX_SESSIONS_PER_CALLER must be above zero when sessions are on");
}

static void hardened_mode_takes_tls_for_a_public_listener(void **state)
{
    char file[] = "/tmp/test_options_XXXXXX";
    int fd = mkstemp(file);
    problems_t problems;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    setenv("PLIMSOLL_HARDENED", "1", 1);
    setenv("PLIMSOLL_METRICS_ADDR", "0.0.0.0:9464", 1);
    setenv("PLIMSOLL_TLS_CERT", file, 1);
    setenv("PLIMSOLL_TLS_KEY", file, 1);
    problems = load();
    assert_false(says(&problems, "without TLS"));
    problems_dispose(&problems);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(providers_are_known_and_named_once, fresh),
        cmocka_unit_test_setup(an_answer_that_would_be_cut_off_is_warned_of, fresh),
        cmocka_unit_test_setup(without_a_token_it_does_not_start, fresh),
        cmocka_unit_test_setup(a_token_has_32_to_4096_visible_characters, fresh),
        cmocka_unit_test_setup(tls_takes_both_files_and_they_must_be_readable, fresh),
        cmocka_unit_test_setup(a_startup_floor_above_the_wall_is_refused, fresh),
        cmocka_unit_test_setup(a_limit_that_cannot_be_enforced_is_refused, fresh),
        cmocka_unit_test_setup(memory_too_small_for_a_wall_is_refused, fresh),
        cmocka_unit_test_setup(numbers_of_processors, fresh),
        cmocka_unit_test_setup(total_memory_lowers_the_concurrency, fresh),
        cmocka_unit_test_setup(a_callers_share, fresh),
        cmocka_unit_test_setup(the_burst_follows_the_rate, fresh),
        cmocka_unit_test_setup(what_no_backend_does_is_refused, fresh),
        cmocka_unit_test_setup(sessions_are_checked_even_when_off, fresh),
        cmocka_unit_test_setup(times_that_exclude_each_other, fresh),
        cmocka_unit_test_setup(path_prefixes, fresh),
        cmocka_unit_test_setup(the_state_directory_leaves_room_for_a_socket, fresh),
        cmocka_unit_test_setup(the_redis_url_is_checked_and_never_told, fresh),
        cmocka_unit_test_setup(operation, fresh),
        cmocka_unit_test_setup(everything_wrong_is_told_at_once, fresh),
        cmocka_unit_test_setup(hardened_mode_tells_every_rule, fresh),
        cmocka_unit_test_setup(hardened_mode_keeps_quiet_about_what_holds, fresh),
        cmocka_unit_test_setup(hardened_mode_takes_tls_for_a_public_listener, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
