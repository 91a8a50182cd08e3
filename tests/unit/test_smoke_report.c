/* The probe's report: recorded ones are taken, and each single thing changed in one is refused by its check's name. */
#include <stdbool.h>

#include "tests/unit/proof_fixture.h"
#include "tests/unit/smoke_reports.h"

#include "backends/docker/smoke_places.h"
#include "backends/docker/smoke_report.h"

enum { MIB = 1024 * 1024 };

static const docker_promise_t PROMISE = {.uid = 61000,
                                         .memory_bytes = 256 * MIB,
                                         .pids = 256,
                                         .tmp_bytes = 16 * MIB,
                                         .shm_bytes = 16 * MIB,
                                         .work_bytes = 128 * MIB,
                                         .has_profile = true,
                                         .has_filter = true};

static smoke_expect_t expect_of(docker_kind_t kind, bool is_gvisor)
{
    return (smoke_expect_t){.promise = &PROMISE,
                            .kind = kind,
                            .is_gvisor = is_gvisor,
                            .fill_max = smoke_fill_max(&PROMISE),
                            .has_calls = true};
}

static bool judge(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    why[0] = '\0';
    return smoke_report_judge(report, expect, why);
}

static void test_recorded_reports_are_taken(void **state)
{
    static const struct {
        const char *text;
        docker_kind_t kind;
        bool is_gvisor, is_protected;
        const char *banner;
    } cases[] = {
        {RUNC_PROJECT, DOCKER_PROJECT, false, true, ""},
        {RUNSC_SNIPPET, DOCKER_SNIPPET, true, false, "<6>[   0.000000] Starting gVisor..."},
        {RUNSC_PROJECT, DOCKER_PROJECT, true, false, "<6>[   0.000000] Starting gVisor..."},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char why[BACKEND_TEXT_MAX], banner[128];
        smoke_expect_t expect = expect_of(cases[i].kind, cases[i].is_gvisor);
        json_t *report = smoke_report_read(cases[i].text, strlen(cases[i].text), why);
        assert_non_null(report);
        if (!judge(report, &expect, why))
            fail_msg("case %zu: %s", i, why);
        assert_int_equal(smoke_report_has_protected_fds(report), cases[i].is_protected);
        assert_false(smoke_report_has_socket(report));
        smoke_report_banner(report, banner, sizeof(banner));
        assert_string_equal(banner, cases[i].banner);
        json_decref(report);
    }
}

static void test_each_single_violation_under_runc_is_named(void **state)
{
    static const change_t changes[] = {
        {"uids.2", "0", "S1"},
        {"uids", "[61000]", "S1"},
        {"uids", "null", "S1"},
        {"gids.0", "61001", "S1"},
        {"gids.0", "\"61000\"", "S1"},
        {"groups", "[61000,107]", "S1"},
        {"groups", "[]", NULL},
        {"groups", NULL, "S1"},
        {"capabilities.permitted", "\"0000000000080000\"", "S2"},
        {"capabilities.effective", "\"0000000000000001\"", "S2"},
        {"capabilities.bounding", "\"000001ffffffffff\"", "S2"},
        {"capabilities.inheritable", "\"\"", "S2"},
        {"capabilities.ambient", "\"0000000000000400\"", "S2"},
        {"capabilities.ambient", NULL, NULL}, /* kernels before 4.3 */
        {"capabilities.bounding", NULL, "S2"},
        {"capabilities", "null", "S2"},
        {"no_new_privs", "\"0\"", "S2"},
        {"no_new_privs", "null", "S2"},
        {"seccomp", "\"0\"", "S3"},
        {"seccomp", "null", "S3"},
        {"seccomp_filters", "\"0\"", "S3"},
        {"seccomp_filters", "null", NULL},
        {"interfaces.+", "\"eth0\"", "S4: the sandbox has the network interface eth0"},
        {"interfaces.+", "\"e\\u0000th0\"", "S4"},
        {"interfaces.+", "7", "S4"},
        {"interfaces", "[]", "S4"},
        {"interfaces", "{}", "S4"},
        {"interfaces_read", "\"EACCES\"", "S4"},
        {"writes.31.outcome", "\"EACCES\"", "S5"},
        {"writes.31.outcome", "\"ENOENT\"", "S5: the image has no /var/tmp"},
        {"writes.31.outcome", "\"ok\"", "S8: a guest can write to /var/tmp"},
        {"mounts_whole", "false", "S6"},
        {"mounts_whole", "1", "S6"},
        {"mounts", "[]", "S6"},
        {"mounts.17.type", "\"ext4\"", "S6: not exactly one tmpfs is mounted at /tmp"},
        {"mounts.17.at", "\"/tmp2\"", "S6"},
        {"mounts.+", "{\"at\":\"/tmp\",\"type\":\"tmpfs\",\"options\":\"rw,noexec,nosuid,nodev,size=16m\"}", "S6"},
        {"mounts.17.options", "\"rw,nosuid,nodev,relatime,size=16384k\"", "S6: not mounted rw and noexec"},
        {"mounts.17.options", "\"ro,nosuid,nodev,noexec,size=16384k\"", "S6"},
        {"mounts.17.options", "\"rw,nodev,noexec,size=16384k\"", "S6: not mounted nosuid and nodev"},
        {"mounts.17.options", "\"rw,nosuid,noexec,size=16384k\"", "S6"},
        {"mounts.17.options", "\"rw,nosuid,nodev,noexec\"", "S6: the tmpfs at /tmp takes 0 bytes"},
        {"mounts.17.options", "\"rw,nosuid,nodev,noexec,size=16385k\"", "S6"},
        {"mounts.17.options", "\"rw,nosuid,nodev,noexec,size=16M\"", NULL},
        {"mounts.17.options", "\"rw,nosuid,nodev,noexec,size=50%\"", "S6"},
        {"mounts.16.options", "\"rw,nosuid,nodev,noexec,size=262144k\"", "S6: the tmpfs at /work"},
        {"mounts.21", NULL, "S6: not exactly one tmpfs is mounted at /dev/shm"},
        {"mounts.+", "{\"at\":\"/data\",\"type\":\"ext4\",\"options\":\"rw\"}",
         "S6: something is mounted that was not asked for, at /data"},
        {"mounts.+", "{\"at\":\"/etc/shadow\",\"type\":\"ext4\",\"options\":\"ro\"}", "S6"},
        {"mounts.+", "{\"at\":\"/processes\",\"type\":\"ext4\",\"options\":\"ro\"}", "S6"},
        {"mounts.+", "{\"at\":\"/run/host-api.sock\",\"type\":\"ext4\",\"options\":\"rw\"}", "S6"},
        {"mounts.+", "{\"at\":\"/dev/x\",\"type\":\"ext4\",\"options\":\"rw\"}",
         "S8: no write was tried at the mount /dev/x"},
        {"mounts.+", "7", "S6"},
        {"fills.1.bytes", "16777215", "S7: /tmp took 16777215 bytes"},
        {"fills.1.bytes", "16777217", "S7"},
        {"fills.1.bytes", "16777216.0", "S7"},
        {"fills.0.end", "\"ENOMEM\"", "S7"},
        {"fills.0.end", "\"limit\"", "S7"},
        {"fills", NULL, "S7"},
        {"fills.+", "{\"at\":\"/tmp\",\"bytes\":16777216,\"end\":\"ENOSPC\"}", "S7"},
        {"writes.0", "{\"at\":\"/\",\"outcome\":\"ok\"}", "S8: a guest can write to /"},
        {"writes.10.outcome", "\"ok\"", "S8"},
        {"writes.15.outcome", "\"ok\"", "S8: a guest can write to /dev/mqueue"},
        {"writes.17.outcome", "\"EACCES\"", "S8: a guest cannot write to /tmp"},
        {"writes.17.outcome", "\"device\"", "S8"},
        {"writes.2.outcome", "\"no answer\"", "S8: whether a guest can write is not known of /dev"},
        {"writes.2.outcome", "null", "S8"},
        {"writes.2.outcome", "\"socket\"", "S8: a socket is mounted at /dev"},
        {"writes.2.outcome", "\"Eacces\"", "S8"},
        {"writes.33", NULL, "S8: no write was tried at /home"},
        {"writes", "{}", "S8"},
        {"writes.+", "{\"at\":\"/anywhere\",\"outcome\":\"ok\"}", "S8: a guest can write to /anywhere"},
        {"execs.1.outcome", "\"ENOENT\"", "S9"}, /* it was let through to its missing interpreter */
        {"execs.1.outcome", "\"ok\"", "S9"},
        {"execs.2", NULL, "S9"},
        {"execs.0.mapped", "\"ok\"", "S9"},
        {"runner.mem", "\"ok\"", "S13"},
        {"runner.mem", NULL, "S13"},
        {"runner.ptrace", "\"ok\"", "S13"},
        {"runner.ptrace", "\"no answer\"", "S13"},
        {"runner.process_vm_readv", "\"EFAULT\"", "S13"},
        {"runner.process_vm_readv", "\"ok\"", "S13"},
        {"runner.pidfd_getfd", "\"ok\"", "S13"},
        {"runner.fd0", "\"ok\"", NULL}, /* recorded only (2.4) */
        {"calls.ptrace", "\"ESRCH\"", "S19: the seccomp profile does not deny ptrace"},
        {"calls.io_uring_setup", "\"ok\"", "S19"},
        {"calls.keyctl", NULL, "S19"},
        {"calls.pkey_alloc", "\"EINVAL\"", "S19"},
        {"calls.memfd_create", "\"EFAULT\"", "S19"},
        {"calls", "null", "S19"},
        {"sockets.inet", "\"ok\"", "S19"},
        {"sockets.vsock", "\"EAFNOSUPPORT\"", "S19"},
        {"namespaces.user", "\"ok\"", "S19"},
        {"nodes.mknodat", "\"EFAULT\"", "S19"},
    };
    smoke_expect_t expect = expect_of(DOCKER_PROJECT, false);
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); ++i) {
        char why[BACKEND_TEXT_MAX];
        json_t *report = fixture_changed(RUNC_PROJECT, &changes[i]);
        bool is_taken = judge(report, &expect, why);
        json_decref(report);
        fixture_expect(&changes[i], is_taken, why);
    }
}

static void test_what_gvisor_does_not_report_is_not_asked_for(void **state)
{
    static const change_t changes[] = {
        {"no_new_privs", "\"0\"", "S2"},
        {"no_new_privs", "\"1\"", NULL},
        {"capabilities.bounding", "\"00000000a80425fb\"", "S2"},
        {"interfaces.+", "\"eth0\"", "S4"},
        {"mounts.3.options", "\"rw,size=16m,mode=1777\"", "S6"},
        {"mounts.3.options", "\"rw,noexec,size=17m\"", "S6"},
        {"execs.0.outcome", "\"ENOENT\"", "S9"},
        {"runner.mem", "\"ok\"", "S13"},
        {"calls", "null", NULL},
        {"seccomp", "null", NULL},
    };
    smoke_expect_t expect = expect_of(DOCKER_PROJECT, true), as_runc = expect_of(DOCKER_PROJECT, false);
    char why[BACKEND_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); ++i) {
        json_t *report = fixture_changed(RUNSC_PROJECT, &changes[i]);
        bool is_taken = judge(report, &expect, why);
        json_decref(report);
        fixture_expect(&changes[i], is_taken, why);
    }
    json_t *report = fixture_parse(RUNSC_PROJECT);
    assert_false(judge(report, &as_runc, why));
    json_decref(report);
}

static void test_only_the_kinds_own_places_may_be_written(void **state)
{
    smoke_expect_t snippet = expect_of(DOCKER_SNIPPET, true), project = expect_of(DOCKER_PROJECT, true);
    char why[BACKEND_TEXT_MAX];
    json_t *of_project = fixture_parse(RUNSC_PROJECT), *of_snippet = fixture_parse(RUNSC_SNIPPET);
    (void)state;
    assert_false(judge(of_project, &snippet, why));
    assert_non_null(strstr(why, "S6: something is mounted that was not asked for, at /work"));
    assert_false(judge(of_snippet, &project, why));
    assert_non_null(strstr(why, "S6"));
    json_decref(of_project);
    json_decref(of_snippet);
}

static void test_the_host_socket_is_where_it_was_mounted(void **state)
{
    smoke_expect_t without = expect_of(DOCKER_PROJECT, false), with = without;
    char why[BACKEND_TEXT_MAX];
    json_t *report = fixture_parse(RUNC_PROJECT);
    (void)state;
    with.has_socket = true;
    fixture_change(report, "mounts.+", "{\"at\":\"/run/host-api.sock\",\"type\":\"ext4\",\"options\":\"rw\"}");
    fixture_change(report, "writes.+", "{\"at\":\"/run/host-api.sock\",\"outcome\":\"socket\"}");
    assert_true(judge(report, &with, why));
    assert_false(judge(report, &without, why));
    assert_false(smoke_report_has_socket(report));
    fixture_change(report, "host_socket", "\"ok\"");
    assert_true(smoke_report_has_socket(report));
    json_decref(report);
}

static void test_without_our_profile_its_denials_are_not_asserted(void **state)
{
    static const change_t allowed = {"calls.keyctl", "\"ok\"", NULL};
    docker_promise_t promise = PROMISE;
    smoke_expect_t expect = expect_of(DOCKER_PROJECT, false);
    char why[BACKEND_TEXT_MAX];
    json_t *report = fixture_changed(RUNC_PROJECT, &allowed);
    (void)state;
    expect.promise = &promise;
    assert_false(judge(report, &expect, why));
    promise.has_profile = false;
    assert_true(judge(report, &expect, why));
    fixture_change(report, "seccomp", "\"0\"");
    assert_false(judge(report, &expect, why));
    promise.has_filter = false; /* SANDBOX_DOCKER_SECCOMP=unconfined */
    assert_true(judge(report, &expect, why));
    json_decref(report);
}

/* A place larger than half the memory limit cannot be filled: its size stands in the mount table. */
static void test_a_place_beyond_the_memory_is_filled_to_the_limit(void **state)
{
    docker_promise_t promise = PROMISE;
    smoke_expect_t expect = expect_of(DOCKER_PROJECT, false);
    char why[BACKEND_TEXT_MAX], bytes[32];
    json_t *report = fixture_parse(RUNC_PROJECT);
    (void)state;
    promise.work_bytes = UINT64_C(512) * MIB;
    expect.promise = &promise;
    fixture_change(report, "mounts.16.options", "\"rw,nosuid,nodev,noexec,size=524288k\"");
    fixture_change(report, "fills.0.end", "\"limit\"");
    assert_int_equal(expect.fill_max, 129 * MIB);
    for (int more = -1; more <= 1; ++more) {
        snprintf(bytes, sizeof(bytes), "%d", 129 * MIB + more);
        fixture_change(report, "fills.0.bytes", bytes);
        assert_int_equal(judge(report, &expect, why), more >= 0);
    }
    fixture_change(report, "fills.0.end", "\"ENOSPC\"");
    assert_false(judge(report, &expect, why));
    json_decref(report);
}

static void test_sizes_of_a_mount_table(void **state)
{
    static const struct {
        const char *options;
        bool is_read;
        uint64_t bytes;
    } cases[] = {
        {"size=16384k", true, 16777216},
        {"rw,size=16m,mode=1777", true, 16777216},
        {"rw,size=16M", true, 16777216},
        {"size=16777216", true, 16777216},
        {"size=1g", true, 1073741824},
        {"size=0", true, 0},
        {"rw,mysize=5,size=4", true, 4},
        {"size=18446744073709551615", true, UINT64_MAX},
        {"size=18446744073709551616", false, 0},
        {"size=17179869184g", false, 0},
        {"size=", false, 0},
        {"size=k", false, 0},
        {"size=-1", false, 0},
        {"size=4kk", false, 0},
        {"size=50%", false, 0},
        {"size", false, 0},
        {"", false, 0},
        {"rw,", false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        uint64_t bytes = 0;
        if (smoke_places_size(cases[i].options, &bytes) != cases[i].is_read || bytes != cases[i].bytes)
            fail_msg("%s: %llu", cases[i].options, (unsigned long long)bytes);
    }
}

static bool is_report(const char *text, size_t len)
{
    char why[BACKEND_TEXT_MAX];
    json_t *report = smoke_report_read(text, len, why);
    bool is_one = report != NULL;
    json_decref(report);
    return is_one;
}

static void test_only_a_bounded_report_is_read(void **state)
{
    static const char *const refused[] = {"",
                                          "x",
                                          "[]",
                                          "{}",
                                          "{\"probe\":2}",
                                          "{\"probe\":\"1\"}",
                                          "{\"probe\":1",
                                          "{\"probe\":1} x",
                                          "{\"probe\":1,\"probe\":1}",
                                          "{\"probe\":1,\"a\":\"\\uD800\"}",
                                          "{\"probe\":1,\"a\":\"\xff\"}",
                                          "null"};
    char *text = malloc(SMOKE_REPORT_MAX + 64);
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i)
        assert_false(is_report(refused[i], strlen(refused[i])));
    /* Nesting: the report itself is one. Brackets in a text are none. */
    for (int depth = SMOKE_REPORT_DEPTH_MAX - 1; depth <= SMOKE_REPORT_DEPTH_MAX + 1; ++depth) {
        size_t len = (size_t)sprintf(text, "{\"probe\":1,\"t\":\"[[[[[[[[[[\\\"[[[[\",\"a\":");
        for (int i = 1; i < depth; ++i)
            text[len++] = '[';
        for (int i = 1; i < depth; ++i)
            text[len++] = ']';
        text[len++] = '}';
        assert_int_equal(is_report(text, len), depth <= SMOKE_REPORT_DEPTH_MAX);
    }
    /* Nor does a parser's recursion decide: this would overflow a coroutine's stack. */
    memset(text, '[', SMOKE_REPORT_MAX);
    assert_false(is_report(text, SMOKE_REPORT_MAX));
    for (size_t size = SMOKE_REPORT_MAX - 1; size <= SMOKE_REPORT_MAX + 1; ++size) {
        memset(text, ' ', size);
        memcpy(text, "{\"probe\":1}", 11);
        assert_int_equal(is_report(text, size), size <= SMOKE_REPORT_MAX);
    }
    free(text);
}

static void test_limits_a_guest_sees(void **state)
{
    smoke_inner_limits_t limits;
    json_t *report = fixture_parse(RUNC_PROJECT);
    (void)state;
    smoke_report_limits(report, &limits);
    assert_true(limits.has_pids && limits.has_memory);
    assert_int_equal(limits.pids, 256);
    assert_int_equal(limits.memory, 256 * MIB);
    fixture_change(report, "limits.pids", "\"max\"");
    fixture_change(report, "limits.memory", "\"99999999999999999999999\"");
    smoke_report_limits(report, &limits);
    assert_false(limits.has_pids || limits.has_memory);
    json_decref(report);
    report = fixture_parse(RUNSC_PROJECT);
    smoke_report_limits(report, &limits);
    assert_false(limits.has_pids || limits.has_memory);
    json_decref(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_reports_are_taken),
        cmocka_unit_test(test_each_single_violation_under_runc_is_named),
        cmocka_unit_test(test_what_gvisor_does_not_report_is_not_asked_for),
        cmocka_unit_test(test_only_the_kinds_own_places_may_be_written),
        cmocka_unit_test(test_the_host_socket_is_where_it_was_mounted),
        cmocka_unit_test(test_without_our_profile_its_denials_are_not_asserted),
        cmocka_unit_test(test_a_place_beyond_the_memory_is_filled_to_the_limit),
        cmocka_unit_test(test_sizes_of_a_mount_table),
        cmocka_unit_test(test_only_a_bounded_report_is_read),
        cmocka_unit_test(test_limits_a_guest_sees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
