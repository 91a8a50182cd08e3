/*
 * The settings, row by row: types and ranges, what is read and how, what each role is given, and the texts for people.
 * The rules between rows have tests of their own.
 */
#include "config/options_rules.h"
#include "config/provider.h"
#include "tests/unit/options_fixture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/option_text.h"

static void the_defaults_are_the_specs(void **state)
{
    (void)state;
    expect_fine();
    assert_string_equal(option_str(OPT_PLIMSOLL_ADDR), ":8746");
    assert_string_equal(option_str(OPT_PLIMSOLL_METRICS_ADDR), "127.0.0.1:9464");
    assert_null(option_str(OPT_PLIMSOLL_GUARD_ADDR));
    assert_string_equal(option_str(OPT_PLIMSOLL_LOG_FORMAT), "json");
    assert_null(option_str(OPT_PLIMSOLL_CLIENTS_FILE));
    assert_false(option_bool(OPT_PLIMSOLL_INSECURE));
    assert_false(option_bool(OPT_PLIMSOLL_HARDENED));
    assert_int_equal(option_int(OPT_SANDBOX_MAX_CONCURRENT), 8);
    assert_int_equal(options_per_caller_concurrent(), 4);
    assert_int_equal(option_int(OPT_SANDBOX_RATE_PER_MIN), 30);
    assert_int_equal(options_rate_burst(), 30);
    assert_int_equal(option_int(OPT_SANDBOX_PAID_SECONDS_PER_DAY), 0);
    assert_int_equal(option_int(OPT_SANDBOX_TOTAL_MEMORY_MB), 0);
    assert_int_equal(option_int(OPT_SANDBOX_MEMORY_MB), 256);
    assert_int_equal(option_int(OPT_SANDBOX_MAX_SESSIONS), 0);
    assert_int_equal(option_int(OPT_SANDBOX_SESSION_LIFETIME), 1800000);
    assert_int_equal(option_int(OPT_SANDBOX_SESSION_IDLE), 300000);
    assert_int_equal(option_int(OPT_SANDBOX_SESSION_DISK_MB), 1024);
    assert_int_equal(option_int(OPT_PLIMSOLL_HEADER_TIMEOUT), 5000);
    assert_int_equal(option_int(OPT_PLIMSOLL_READ_TIMEOUT), 30000);
    assert_int_equal(option_int(OPT_PLIMSOLL_WRITE_TIMEOUT), 360000);
    assert_int_equal(option_int(OPT_PLIMSOLL_IDLE_TIMEOUT), 120000);
    assert_int_equal(option_int(OPT_PLIMSOLL_DRAIN), 360000);
    assert_int_equal(option_int(OPT_PLIMSOLL_BUFFER_MB), 256);
    assert_true(option_bool(OPT_PLIMSOLL_SERVER_TIMING));
    assert_string_equal(option_list(OPT_SANDBOX_PROVIDER)[0], "wasm");
    assert_null(option_list(OPT_SANDBOX_PROVIDER)[1]);
    assert_null(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES)[0]);
    assert_false(option_is_set(OPT_PLIMSOLL_ADDR));
    assert_true(option_is_set(OPT_PLIMSOLL_TOKEN));
}

/* Whether the row itself (not a rule between rows) refuses the text. */
static bool row_refuses(option_id_t id, const char *text)
{
    char takes[OPTION_TAKES_MAX], start[128];
    problems_t problems;
    int64_t number;
    bool refused;

    setenv(OPTIONS[id].name, text, 1);
    snprintf(start, sizeof(start), "%s is \"%s\": it takes", OPTIONS[id].name, text);
    problems = load();
    refused = says(&problems, start);
    assert_int_equal(refused, option_text_parse(id, text, &number, takes) != NULL);
    problems_dispose(&problems);
    unsetenv(OPTIONS[id].name);
    return refused;
}

static void every_number_is_checked_at_its_limits(void **state)
{
    const char *unit;
    char text[64];
    int checked = 0;

    (void)state;
    for (int i = 0; i < OPTION_COUNT; i++) {
        option_id_t id = (option_id_t)i;
        const option_t *option = &OPTIONS[i];
        if (option->type != OPTION_INT && option->type != OPTION_DURATION)
            continue;
        unit = option->type == OPTION_DURATION ? "ms" : "";
        snprintf(text, sizeof(text), "%" PRId64 "%s", option->min - 1, unit);
        assert_true(row_refuses(id, text));
        snprintf(text, sizeof(text), "%" PRId64 "%s", option->min, unit);
        assert_false(row_refuses(id, text));
        snprintf(text, sizeof(text), "%" PRId64 "%s", option->max, unit);
        assert_false(row_refuses(id, text));
        snprintf(text, sizeof(text), "%" PRId64 "%s", option->max + 1, unit);
        assert_true(row_refuses(id, text));
        assert_true(row_refuses(id, "99999999999999999999999"));
        assert_true(row_refuses(id, "1x"));
        checked++;
    }
    assert_true(checked > 20);
}

static void the_ranges_are_the_specs(void **state)
{
    static const struct {
        option_id_t id;
        int64_t min, max;
    } rows[] = {
        {OPT_SANDBOX_MAX_CONCURRENT, 1, 8192},   {OPT_PLIMSOLL_THREADS, 0, 64},
        {OPT_PLIMSOLL_BUFFER_MB, 8, 65536},      {OPT_SANDBOX_SESSION_LIFETIME, 1000, 43200000},
        {OPT_SANDBOX_SESSION_IDLE, 0, 43200000}, {OPT_SANDBOX_SESSION_DISK_MB, 0, 1048576},
        {OPT_PLIMSOLL_TOKEN, 32, 4096},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(OPTIONS[rows[i].id].min, rows[i].min);
        assert_int_equal(OPTIONS[rows[i].id].max, rows[i].max);
    }
}

static void texts_are_checked_at_their_limits(void **state)
{
    char text[300];

    (void)state;
    memset(text, 'a', sizeof(text));
    text[0] = '/';
    text[255] = '\0';
    setenv("PLIMSOLL_PATH_PREFIX", text, 1);
    expect_fine();
    text[255] = 'a';
    text[256] = '\0';
    setenv("PLIMSOLL_PATH_PREFIX", text, 1);
    expect_problem("PLIMSOLL_PATH_PREFIX is \"/aaa");
    setenv("PLIMSOLL_PATH_PREFIX", "/a\nb", 1);
    expect_only_problem("PLIMSOLL_PATH_PREFIX is \"/a?b\": it takes 1 to 255 bytes without control characters");
}

static void a_value_in_a_text_is_cut(void **state)
{
    char text[200], wanted[256];

    (void)state;
    memset(text, '7', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    setenv("SANDBOX_MAX_CONCURRENT", text, 1);
    snprintf(wanted, sizeof(wanted), "SANDBOX_MAX_CONCURRENT is \"%.64s\"...: it takes a whole number from 1 to 8192",
             text);
    expect_only_problem(wanted);
}

static void whole_numbers_are_strict(void **state)
{
    static const char *const bad[] = {
        "0", "8193", "-1", "+8", "8.0", "0x8", "8 8", "eight", "1e2", "-", "9223372036854775808"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SANDBOX_MAX_CONCURRENT", bad[i], 1);
        expect_problem("SANDBOX_MAX_CONCURRENT is");
        assert_int_equal(option_int(OPT_SANDBOX_MAX_CONCURRENT), 8);
        assert_true(option_is_set(OPT_SANDBOX_MAX_CONCURRENT));
    }
}

static void booleans_have_eight_spellings(void **state)
{
    static const char *const on[] = {"1", "true", "YES", "On"}, *const off[] = {"0", "False", "no", "oFF"};
    static const char *const bad[] = {"2", "y", "t", "enabled", "true1"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        setenv("PLIMSOLL_REQUIRE_REQUEST_ID", on[i], 1);
        expect_fine();
        assert_true(option_bool(OPT_PLIMSOLL_REQUIRE_REQUEST_ID));
        setenv("PLIMSOLL_REQUIRE_REQUEST_ID", off[i], 1);
        expect_fine();
        assert_false(option_bool(OPT_PLIMSOLL_REQUIRE_REQUEST_ID));
    }
    for (size_t i = 0; i < 5; i++) {
        setenv("PLIMSOLL_REQUIRE_REQUEST_ID", bad[i], 1);
        expect_problem("it takes 1 true yes on, or 0 false no off");
    }
}

static void durations(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"0", 0},        {"250ms", 250}, {"5s", 5000},       {"30m", 1800000},
                {"2h", 7200000}, {"90s", 90000}, {"1h30m", 5400000}, {"1m1s1ms", 61001},
                {"0s", 0},       {"007s", 7000}, {"1h5ms", 3600005}, {"9223372036854775807ms", INT64_MAX}};
    static const char *const bad[] = {"",
                                      "5",
                                      "s",
                                      "5 s",
                                      "-5s",
                                      "5d",
                                      "1.5s",
                                      "5S",
                                      "1s1m",
                                      "1m1m",
                                      "1ms1s",
                                      "5sec",
                                      "1h30",
                                      "00",
                                      "9223372036854775808ms",
                                      "9223372036854776s"};
    char text[DURATION_TEXT_MAX];
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(duration_parse(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
        assert_true(duration_parse(duration_format(ms, text), &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (duration_parse(bad[i], &ms))
            fail_msg("accepted: %s", bad[i]);
}

static void values_are_trimmed_and_empty_is_unset(void **state)
{
    (void)state;
    setenv("SANDBOX_MAX_CONCURRENT", " \t12\r\n", 1);
    setenv("SANDBOX_PROVIDER", "   ", 1);
    setenv("SANDBOX_RATE_PER_MIN", "", 1);
    expect_fine();
    assert_int_equal(option_int(OPT_SANDBOX_MAX_CONCURRENT), 12);
    assert_false(option_is_set(OPT_SANDBOX_PROVIDER));
    assert_string_equal(option_str(OPT_SANDBOX_PROVIDER), "wasm");
    assert_false(option_is_set(OPT_SANDBOX_RATE_PER_MIN));
    assert_int_equal(option_int(OPT_SANDBOX_RATE_PER_MIN), 30);
}

static void a_second_load_forgets_the_first(void **state)
{
    (void)state;
    setenv("SANDBOX_MAX_CONCURRENT", "12", 1);
    expect_fine();
    unsetenv("SANDBOX_MAX_CONCURRENT");
    expect_fine();
    assert_int_equal(option_int(OPT_SANDBOX_MAX_CONCURRENT), 8);
    assert_false(option_is_set(OPT_SANDBOX_MAX_CONCURRENT));
}

static void lists(void **state)
{
    (void)state;
    setenv("PLIMSOLL_TRUSTED_PROXIES", "10.0.0.7 , 10.1.0.0/16,fd00::/8", 1);
    expect_fine();
    assert_string_equal(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES)[0], "10.0.0.7");
    assert_string_equal(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES)[1], "10.1.0.0/16");
    assert_string_equal(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES)[2], "fd00::/8");
    assert_null(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES)[3]);
    setenv("PLIMSOLL_TRUSTED_PROXIES", "10.0.0.7,,10.0.0.8", 1);
    expect_problem("PLIMSOLL_TRUSTED_PROXIES is \"10.0.0.7,,10.0.0.8\": it takes words");
    setenv("PLIMSOLL_TRUSTED_PROXIES", "10.0.0.7,", 1);
    expect_problem("PLIMSOLL_TRUSTED_PROXIES is");
    setenv("PLIMSOLL_TRUSTED_PROXIES", "10.0.0.1/8,proxy.example", 1);
    expect_problem("PLIMSOLL_TRUSTED_PROXIES names \"10.0.0.1/8\"");
    expect_problem("PLIMSOLL_TRUSTED_PROXIES names \"proxy.example\"");
}

static void problems_are_bounded(void **state)
{
    problems_t problems = {NULL, 0};

    (void)state;
    for (int i = 0; i < PROBLEMS_MAX; i++)
        problems_add(&problems, "%d", i);
    assert_int_equal(problems.count, PROBLEMS_MAX);
    assert_string_equal(problems.texts[PROBLEMS_MAX - 1], "999");
    problems_add(&problems, "one more");
    problems_add(&problems, "and another");
    assert_int_equal(problems.count, PROBLEMS_MAX + 1);
    assert_string_equal(problems.texts[PROBLEMS_MAX], "there are more problems than these");
    problems_dispose(&problems);
    assert_int_equal(problems.count, 0);
}

static void unknown_names_are_reported(void **state)
{
    (void)state;
    setenv("PLIMSOLL_ADRR", "x", 1);
    setenv("SANDBOX_", "", 1);
    setenv("SANDBOX_MAX_CONCURRENT", "4", 1);
    setenv("PLIMSOLL_CALLER_TOKEN", TOKEN, 1); /* the command's, and known */
    setenv("PLIMSOL_ADDR", "x", 1);
    setenv("MY_SANDBOX_X", "x", 1);
    expect_fine();
    assert_int_equal(unknown_count, 2);
    assert_true(strcmp(unknown[0], "PLIMSOLL_ADRR") == 0 || strcmp(unknown[1], "PLIMSOLL_ADRR") == 0);
    assert_true(strcmp(unknown[0], "SANDBOX_") == 0 || strcmp(unknown[1], "SANDBOX_") == 0);
}

static const char *entry_of(char **env, const char *name)
{
    size_t len = strlen(name);
    for (; *env != NULL; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

static size_t entries(char **env)
{
    size_t count = 0;
    while (env[count] != NULL)
        count++;
    return count;
}

static void a_role_gets_the_rows_it_reads_and_no_other(void **state)
{
    char **env;

    (void)state;
    setenv("PLIMSOLL_REDIS_URL", "redis://:hunter2@127.0.0.1:6379/0", 1);
    setenv("SANDBOX_MAX_CONCURRENT", " 12 ", 1);
    setenv("PLIMSOLL_LOG_FORMAT", "text", 1);
    setenv("PLIMSOLL_CALLER_TOKEN", TOKEN, 1);
    setenv("HOME", "/root", 1);
    setenv("LD_PRELOAD_OF_NO_MEANING", "x", 1);
    expect_fine();

    env = options_environ(ROLE_BACKEND);
    assert_int_equal(entries(env), 3);
    assert_string_equal(entry_of(env, "PATH"), "/usr/bin:/bin");
    assert_string_equal(entry_of(env, "SANDBOX_MAX_CONCURRENT"), "12");
    assert_string_equal(entry_of(env, "PLIMSOLL_LOG_FORMAT"), "text");
    options_environ_free(env);

    env = options_environ(ROLE_FRONT);
    assert_int_equal(entries(env), 5);
    assert_string_equal(entry_of(env, "PLIMSOLL_TOKEN"), TOKEN);
    assert_string_equal(entry_of(env, "PLIMSOLL_REDIS_URL"), "redis://:hunter2@127.0.0.1:6379/0");
    assert_null(entry_of(env, "PLIMSOLL_CALLER_TOKEN"));
    options_environ_free(env);

    env = options_environ(ROLE_BROKER);
    assert_int_equal(entries(env), 2);
    options_environ_free(env);

    unsetenv("PATH");
    env = options_environ(ROLE_BROKER);
    assert_string_equal(entry_of(env, "PATH"), "/usr/local/bin:/usr/bin:/bin");
    options_environ_free(env);
    options_environ_free(NULL);
}

/* No secret of the callers' side may ever be readable where a backend's code runs, nor the reverse. */
static void no_secret_is_shared_between_front_and_backends(void **state)
{
    (void)state;
    for (int id = 0; id < OPTION_COUNT; id++)
        if (OPTIONS[id].type == OPTION_SECRET)
            assert_false((OPTIONS[id].roles & ROLE_FRONT) != 0 && (OPTIONS[id].roles & ROLE_BACKEND) != 0);
}

/* A provider's credential is read by the parent, which checks it, and by the role of that backend; by nobody else. */
static void a_credential_of_a_backend_is_given_to_its_role_alone(void **state)
{
    static const char *const backends[] = {"e2b", "dockercloud", "openshell"};
    const unsigned walls = ROLE_E2B | ROLE_DOCKERCLOUD | ROLE_OPENSHELL;
    (void)state;
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        const provider_t *provider = provider_find(backends[i]);
        assert_non_null(provider);
        assert_int_equal(provider_roles(backends[i]), ROLE_BACKEND | ROLE_LEDGER | provider->roles);
        assert_int_equal(provider->roles & ~walls, 0);
        assert_int_equal(provider->roles & (provider->roles - 1), 0);
        assert_int_not_equal(provider->roles, 0);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(provider->roles, provider_find(backends[j])->roles);
    }
    assert_int_equal(provider_roles("wasm"), ROLE_BACKEND);
    assert_int_equal(provider_roles("docker"), ROLE_BACKEND | ROLE_LEDGER);
    assert_int_equal(provider_roles("nobody"), ROLE_BACKEND);
    for (int id = 0; id < OPTION_COUNT; id++) {
        unsigned wall = OPTIONS[id].roles & walls;
        if (wall == 0 || OPTIONS[id].type != OPTION_SECRET)
            continue;
        assert_int_equal(OPTIONS[id].roles, ROLE_PARENT | wall);
        assert_int_equal(wall & (wall - 1), 0);
    }
}

static bool dies_reading(unsigned role, option_id_t id);

/* A wall whose guests are its own children has no use for the records' Redis, and one that keeps the ledger has. */
static void redis_is_given_to_the_roles_that_keep_a_ledger(void **state)
{
    char **env;

    (void)state;
    clearenv();
    setenv("PLIMSOLL_INSECURE", "1", 1);
    setenv("PLIMSOLL_REDIS_URL", "redis://:hunter2@127.0.0.1:6379/0", 1);
    setenv("PLIMSOLL_INSTALLATION", "left-wing", 1);
    expect_fine();
    assert_true(provider_keeps_ledger("docker"));
    assert_true(provider_keeps_ledger("gvisor"));
    assert_false(provider_keeps_ledger("wasm"));
    assert_false(provider_keeps_ledger("nobody"));
    env = options_environ(ROLE_BACKEND);
    assert_null(entry_of(env, "PLIMSOLL_REDIS_URL"));
    assert_null(entry_of(env, "PLIMSOLL_INSTALLATION"));
    options_environ_free(env);
    env = options_environ(ROLE_BACKEND | ROLE_LEDGER);
    assert_string_equal(entry_of(env, "PLIMSOLL_REDIS_URL"), "redis://:hunter2@127.0.0.1:6379/0");
    assert_string_equal(entry_of(env, "PLIMSOLL_INSTALLATION"), "left-wing");
    options_environ_free(env);
    assert_true(dies_reading(ROLE_BACKEND, OPT_PLIMSOLL_REDIS_URL));
    assert_false(dies_reading(ROLE_BACKEND | ROLE_LEDGER, OPT_PLIMSOLL_REDIS_URL));
}

static void an_installation_is_named_in_letters_digits_and_dashes(void **state)
{
    (void)state;
    assert_true(is_installation_name("a"));
    assert_true(is_installation_name("abcdefghijklmnopqrstuvwxyz012345"));
    assert_false(is_installation_name("abcdefghijklmnopqrstuvwxyz0123456"));
    assert_false(is_installation_name(""));
    assert_false(is_installation_name("A"));
    assert_false(is_installation_name("a}b"));
    assert_false(is_installation_name("a_b"));
}

static void use_environment(char **env)
{
    clearenv();
    for (; *env != NULL; env++) {
        char *equals = strchr(*env, '=');
        *equals = '\0';
        setenv(*env, equals + 1, 1);
        *equals = '=';
    }
}

static void values_survive_the_way_to_a_role(void **state)
{
    problems_t problems = {NULL, 0};
    char *text[OPTION_COUNT];
    int64_t number[OPTION_COUNT];
    char **env;

    (void)state;
    setenv("PLIMSOLL_REDIS_URL", "redis://:p%40ss=w%20rd@127.0.0.1:6379/0", 1);
    setenv("SANDBOX_PROVIDER", " wasm ", 1);
    setenv("PLIMSOLL_TRUSTED_PROXIES", "10.0.0.7 , 10.0.0.8", 1);
    setenv("PLIMSOLL_DRAIN", "1m30s", 1);
    setenv("PLIMSOLL_SERVER_TIMING", "No", 1);
    setenv("PLIMSOLL_ADDR", "127.0.0.1:0", 1);
    expect_fine();
    options_set(OPT_PLIMSOLL_STATE_DIR, "/tmp/state");
    for (int id = 0; id < OPTION_COUNT; id++)
        if ((OPTIONS[id].roles & ROLE_FRONT) != 0) {
            const char *now = option_str((option_id_t)id);
            text[id] = now != NULL ? strdup(now) : NULL;
            number[id] = option_int((option_id_t)id);
        }
    env = options_environ(ROLE_FRONT);
    use_environment(env);
    options_environ_free(env);
    options_load_role(ROLE_FRONT, &problems, note_unknown);
    assert_int_equal(problems.count, 0);
    assert_int_equal(unknown_count, 0);
    for (int id = 0; id < OPTION_COUNT; id++)
        if ((OPTIONS[id].roles & ROLE_FRONT) != 0) {
            const char *now = option_str((option_id_t)id);
            assert_int_equal(now == NULL, text[id] == NULL);
            if (now != NULL)
                assert_string_equal(now, text[id]);
            assert_int_equal(option_int((option_id_t)id), number[id]);
            free(text[id]);
        }
    assert_string_equal(option_str(OPT_PLIMSOLL_STATE_DIR), "/tmp/state");
    assert_string_equal(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES)[1], "10.0.0.8");
    assert_int_equal(option_int(OPT_PLIMSOLL_DRAIN), 90000);
    assert_false(option_bool(OPT_PLIMSOLL_SERVER_TIMING));
}

/* The backend was not given the token; that it has none is no open mode there. */
static void a_role_checks_no_rule_about_rows_it_lacks(void **state)
{
    problems_t problems = {NULL, 0};

    (void)state;
    clearenv();
    setenv("PLIMSOLL_HARDENED", "1", 1);
    setenv("SANDBOX_MAX_CONCURRENT", "3", 1);
    options_load_role(ROLE_BACKEND, &problems, NULL);
    assert_int_equal(problems.count, 0);
    assert_int_equal(options_max_concurrent(), 3);
    setenv("SANDBOX_MAX_CONCURRENT", "0", 1);
    options_load_role(ROLE_BACKEND, &problems, NULL);
    assert_int_equal(problems.count, 1);
    problems_dispose(&problems);
}

static bool dies_reading(unsigned role, option_id_t id)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        problems_t problems = {NULL, 0};
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        options_load_role(role, &problems, NULL);
        option_str(id);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void reading_a_row_of_another_role_ends_the_process(void **state)
{
    (void)state;
    assert_true(dies_reading(ROLE_BACKEND, OPT_PLIMSOLL_TOKEN));
    assert_true(dies_reading(ROLE_FRONT, OPT_PLIMSOLL_CALLER_TOKEN));
    assert_true(dies_reading(ROLE_CLI, OPT_PLIMSOLL_TOKEN));
    assert_false(dies_reading(ROLE_FRONT, OPT_PLIMSOLL_TOKEN));
    assert_false(dies_reading(ROLE_CLI, OPT_PLIMSOLL_CALLER_TOKEN));
}

static void secrets_are_wiped_from_the_environment(void **state)
{
    (void)state;
    setenv("PLIMSOLL_REDIS_URL", "redis://:hunter2@127.0.0.1:6379/0", 1);
    setenv("PLIMSOLL_LOG_FORMAT", "text", 1);
    expect_fine();
    options_scrub_environment();
    assert_string_equal(getenv("PLIMSOLL_TOKEN"), "");
    assert_string_equal(getenv("PLIMSOLL_REDIS_URL"), "");
    assert_string_equal(getenv("PLIMSOLL_LOG_FORMAT"), "text");
    assert_string_equal(option_str(OPT_PLIMSOLL_TOKEN), TOKEN);
    assert_string_equal(option_str(OPT_PLIMSOLL_REDIS_URL), "redis://:hunter2@127.0.0.1:6379/0");
}

static void the_help_names_every_variable_and_no_secret(void **state)
{
    buffer_t help, markdown;
    char wanted[128];

    (void)state;
    setenv("PLIMSOLL_REDIS_URL", "redis://:hunter2@127.0.0.1:6379/0", 1);
    expect_fine();
    buffer_init(&help, 1024 * 1024);
    buffer_init(&markdown, 1024 * 1024);
    options_print_help(&help);
    options_print_markdown(&markdown);
    for (int id = 0; id < OPTION_COUNT; id++) {
        snprintf(wanted, sizeof(wanted), "\n  %s (", OPTIONS[id].name);
        assert_non_null(strstr((char *)help.base, wanted));
        snprintf(wanted, sizeof(wanted), "| `%s` |", OPTIONS[id].name);
        assert_int_equal(strstr((char *)markdown.base, wanted) == NULL,
                         strcmp(OPTIONS[id].group, OPTIONS_STANDIN_GROUP) == 0);
        assert_true(OPTIONS[id].roles != 0);
        assert_true(OPTIONS[id].doc[strlen(OPTIONS[id].doc) - 1] == '.');
    }
    assert_null(strstr((char *)help.base, "hunter2"));
    assert_null(strstr((char *)markdown.base, "hunter2"));
    assert_null(strstr((char *)help.base, TOKEN));
    assert_non_null(strstr((char *)help.base, "whole number, 1 to 8192; default 8"));
    for (char *line = strtok((char *)help.base, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (strlen(line) > 110)
            fail_msg("too wide: %s", line);
    buffer_dispose(&help);
    buffer_dispose(&markdown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_defaults_are_the_specs, fresh),
        cmocka_unit_test_setup(every_number_is_checked_at_its_limits, fresh),
        cmocka_unit_test_setup(the_ranges_are_the_specs, fresh),
        cmocka_unit_test_setup(texts_are_checked_at_their_limits, fresh),
        cmocka_unit_test_setup(a_value_in_a_text_is_cut, fresh),
        cmocka_unit_test_setup(whole_numbers_are_strict, fresh),
        cmocka_unit_test_setup(booleans_have_eight_spellings, fresh),
        cmocka_unit_test_setup(durations, fresh),
        cmocka_unit_test_setup(values_are_trimmed_and_empty_is_unset, fresh),
        cmocka_unit_test_setup(a_second_load_forgets_the_first, fresh),
        cmocka_unit_test_setup(lists, fresh),
        cmocka_unit_test_setup(problems_are_bounded, fresh),
        cmocka_unit_test_setup(unknown_names_are_reported, fresh),
        cmocka_unit_test_setup(a_role_gets_the_rows_it_reads_and_no_other, fresh),
        cmocka_unit_test_setup(no_secret_is_shared_between_front_and_backends, fresh),
        cmocka_unit_test_setup(a_credential_of_a_backend_is_given_to_its_role_alone, fresh),
        cmocka_unit_test_setup(redis_is_given_to_the_roles_that_keep_a_ledger, fresh),
        cmocka_unit_test_setup(an_installation_is_named_in_letters_digits_and_dashes, fresh),
        cmocka_unit_test_setup(values_survive_the_way_to_a_role, fresh),
        cmocka_unit_test_setup(a_role_checks_no_rule_about_rows_it_lacks, fresh),
        cmocka_unit_test_setup(reading_a_row_of_another_role_ends_the_process, fresh),
        cmocka_unit_test_setup(secrets_are_wiped_from_the_environment, fresh),
        cmocka_unit_test_setup(the_help_names_every_variable_and_no_secret, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
