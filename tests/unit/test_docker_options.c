/* The settings of the walls on a Docker Engine: spec callers 8.4, 3.2 and 4 (rules 7, 8, 13), backend-docker 1.2, 4.4
 * and 8 (rows 7 and 8). */
#include "tests/unit/options_fixture.h"

#include <inttypes.h>
#include <unistd.h>

#include "config/docker.h"
#include "config/options_rules.h"

static int enabled_both(void **state)
{
    fresh(state);
    setenv("SANDBOX_PROVIDER", "docker,gvisor", 1);
    return 0;
}

static void set_int(const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, value);
    setenv(name, text, 1);
}

static void defaults(void **state)
{
    (void)state;
    expect_fine();
    assert_string_equal(docker_socket_path(), "/var/run/docker.sock");
    assert_string_equal(option_str(OPT_SANDBOX_DOCKER_IMAGE), "plimsoll/snippet:latest");
    assert_string_equal(option_str(OPT_SANDBOX_DOCKER_PROJECT_IMAGE), "plimsoll/project:latest");
    assert_string_equal(option_str(OPT_SANDBOX_DOCKER_RUNTIME), "runc");
    assert_string_equal(option_str(OPT_SANDBOX_GVISOR_RUNTIME), "runsc");
    assert_int_equal(option_int(OPT_SANDBOX_DOCKER_POOL_IDLE), 30 * 60 * 1000);
    assert_int_equal(docker_pids(), 256);
    assert_int_equal(docker_nano_cpus(), 1000000000);
    assert_int_equal(docker_disk_mb(), 160);
    assert_int_equal(docker_work_mb(), 128);
}

static void the_socket_is_a_local_path(void **state)
{
    char text[200] = "unix://";

    (void)state;
    memset(text + 7, 'd', sizeof(text) - 7);
    text[7] = '/';
    text[7 + 107] = '\0';
    setenv("SANDBOX_DOCKER_SOCKET", text, 1);
    expect_fine();
    assert_string_equal(docker_socket_path(), text + 7);
    setenv("SANDBOX_DOCKER_SOCKET", text + 7, 1);
    expect_fine();
    text[7 + 107] = 'd';
    text[7 + 108] = '\0';
    setenv("SANDBOX_DOCKER_SOCKET", text, 1);
    expect_problem("the path of a socket takes at most 107 bytes");
    setenv("SANDBOX_DOCKER_SOCKET", "tcp://127.0.0.1:2375", 1);
    expect_only_problem(
        "SANDBOX_DOCKER_SOCKET is \"tcp://127.0.0.1:2375\": it takes an absolute path, or unix:// and one");
    setenv("SANDBOX_DOCKER_SOCKET", "unix://docker.sock", 1);
    expect_problem("it takes an absolute path");
    setenv("SANDBOX_PROVIDER", "wasm", 1); /* how it is written is checked all the same */
    expect_problem("it takes an absolute path");
}

static void a_pinned_image_names_its_digest(void **state)
{
    char good[128], name[256];

    (void)state;
    memset(good, 'a', 64);
    good[64] = '\0';
    snprintf(name, sizeof(name), "registry.example:5000/a/b:1@sha256:%s", good);
    assert_true(docker_image_is_pinned(name));
    name[strlen(name) - 1] = '\0'; /* 63 digits */
    assert_false(docker_image_is_pinned(name));
    snprintf(name, sizeof(name), "a@sha256:%sa", good); /* 65 */
    assert_false(docker_image_is_pinned(name));
    snprintf(name, sizeof(name), "@sha256:%s", good);
    assert_false(docker_image_is_pinned(name));
    good[5] = 'A';
    snprintf(name, sizeof(name), "a@sha256:%s", good);
    assert_false(docker_image_is_pinned(name));
    assert_false(docker_image_is_pinned("plimsoll/snippet:latest"));

    setenv("SANDBOX_REQUIRE_PINNED_IMAGES", "on", 1);
    expect_problem("SANDBOX_DOCKER_IMAGE is \"plimsoll/snippet:latest\", which SANDBOX_REQUIRE_PINNED_IMAGES does not");
    expect_problem("SANDBOX_DOCKER_PROJECT_IMAGE is");
    good[5] = 'a';
    snprintf(name, sizeof(name), "a@sha256:%s", good);
    setenv("SANDBOX_DOCKER_IMAGE", name, 1);
    setenv("SANDBOX_DOCKER_PROJECT_IMAGE", name, 1);
    expect_fine();
}

static void names_of_images_and_runtimes(void **state)
{
    static const char *const bad[] = {"a b", "a?b", "a%2fb", "-a", "a\\b", "\"a\""};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SANDBOX_DOCKER_IMAGE", bad[i], 1);
        expect_problem("it takes an image's name");
    }
    unsetenv("SANDBOX_DOCKER_IMAGE");
    setenv("SANDBOX_GVISOR_RUNTIME", "io.containerd.runsc.v1", 1);
    expect_fine();
    setenv("SANDBOX_GVISOR_RUNTIME", "/usr/bin/runsc", 1);
    expect_problem("SANDBOX_GVISOR_RUNTIME is \"/usr/bin/runsc\": it takes the name of a runtime");
}

static void words_that_are_chosen_from(void **state)
{
    char file[] = "/tmp/test_docker_XXXXXX";
    int fd = mkstemp(file);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    setenv("SANDBOX_GVISOR_EVIDENCE", "registered", 1);
    expect_fine();
    setenv("SANDBOX_GVISOR_EVIDENCE", "trusted", 1);
    expect_only_problem("SANDBOX_GVISOR_EVIDENCE is \"trusted\": it takes observed or registered");
    unsetenv("SANDBOX_GVISOR_EVIDENCE");
    setenv("SANDBOX_DOCKER_SECCOMP", "default", 1);
    expect_fine();
    setenv("SANDBOX_DOCKER_SECCOMP", "unconfined", 1);
    expect_fine();
    setenv("SANDBOX_DOCKER_SECCOMP", "profile.json", 1);
    expect_only_problem("SANDBOX_DOCKER_SECCOMP is \"profile.json\": it takes builtin, default, unconfined or an "
                        "absolute path");
    setenv("SANDBOX_DOCKER_SECCOMP", file, 1);
    expect_fine();
    setenv("SANDBOX_DOCKER_SECCOMP", "/tmp", 1);
    expect_only_problem("SANDBOX_DOCKER_SECCOMP is \"/tmp\", which is not a regular file");
    unlink(file);
    setenv("SANDBOX_DOCKER_SECCOMP", "/nowhere/profile.json", 1);
    expect_problem("which cannot be read: No such file");
}

/* Each band at both ends; the number after the guest's is kept too, so a band begins one earlier. */
static void the_guest_is_nobody_of_this_machine(void **state)
{
    static const int64_t taken[] = {60000, 60001, 60513, 60577, 60578, 60705, 61183, 61184, 65519};
    static const int64_t free_[] = {59999, 60514, 60576, 60706, 61000, 61182, 65520, 65532};

    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        set_int("SANDBOX_GUEST_UID", taken[i]);
        expect_problem("neither it nor the next number may be in");
    }
    for (size_t i = 0; i < sizeof(free_) / sizeof(free_[0]); i++) {
        set_int("SANDBOX_GUEST_UID", free_[i]);
        expect_fine();
    }
    set_int("SANDBOX_GUEST_UID", 65533);
    expect_problem("SANDBOX_GUEST_UID is \"65533\"");
    set_int("SANDBOX_GUEST_UID", 0);
    expect_problem("SANDBOX_GUEST_UID is \"0\"");
    set_int("SANDBOX_GUEST_UID", 1); /* daemon; every system of ours has it */
    expect_problem("this machine has a user or group of the number 1");
    expect_problem("this machine has a user or group of the number 2");
    setenv("SANDBOX_PROVIDER", "wasm", 1); /* nobody runs under it */
    expect_fine();
}

static void memory_and_processes_of_each_runtime(void **state)
{
    static const struct {
        const char *provider, *runtime, *name;
        unsigned memory, pids;
    } rows[] = {
        {"docker", "runc", "docker", 16, 16},          {"docker", "runsc", "docker", 128, 256},
        {"docker", "runsc-kvm", "docker", 128, 256},   {"gvisor", "runc", "gvisor", 128, 256},
        {"docker,gvisor", "runc", "gvisor", 128, 256},
    };
    char text[128];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setenv("SANDBOX_PROVIDER", rows[i].provider, 1);
        setenv("SANDBOX_DOCKER_RUNTIME", rows[i].runtime, 1);
        setenv("SANDBOX_DISK_MB", "33", 1);
        set_int("SANDBOX_MEMORY_MB", rows[i].memory);
        set_int("SANDBOX_PIDS", rows[i].pids);
        expect_fine();
        set_int("SANDBOX_MEMORY_MB", rows[i].memory - 1);
        snprintf(text, sizeof(text), "SANDBOX_MEMORY_MB is %u, and the backend %s needs at least %u",
                 rows[i].memory - 1, rows[i].name, rows[i].memory);
        expect_only_problem(text);
        set_int("SANDBOX_MEMORY_MB", rows[i].memory);
        set_int("SANDBOX_PIDS", rows[i].pids - 1);
        snprintf(text, sizeof(text), "SANDBOX_PIDS is %u, and the backend %s needs at least %u", rows[i].pids - 1,
                 rows[i].name, rows[i].pids);
        expect_only_problem(text);
    }
}

/* 16 MiB of /tmp, 16 of /dev/shm, at least 1 of /work. */
static void the_disk_is_one_budget(void **state)
{
    problems_t warnings = {NULL, 0};

    (void)state;
    setenv("SANDBOX_DISK_MB", "32", 1);
    expect_only_problem("SANDBOX_DISK_MB is 32: /tmp takes 16 of it, /dev/shm 16, and /work needs at least 1, together "
                        "33");
    setenv("SANDBOX_DISK_MB", "33", 1);
    expect_fine();
    assert_int_equal(docker_work_mb(), 1);
    setenv("SANDBOX_DISK_MB", "256", 1);
    expect_fine();
    assert_int_equal(docker_work_mb(), 224);
    options_warnings(&warnings);
    assert_int_equal(warnings.count, 0);
    setenv("SANDBOX_DISK_MB", "257", 1);
    expect_fine();
    options_warnings(&warnings);
    assert_true(says(&warnings, "what a run writes counts as its memory"));
    problems_dispose(&warnings);
}

static void processors_in_the_engines_unit(void **state)
{
    static const struct {
        const char *text;
        int64_t nano;
    } rows[] = {{"1", 1000000000},    {"0.5", 500000000},   {"0.000000001", 1}, {"1024", INT64_C(1024000000000)},
                {"2.25", 2250000000}, {"03.10", 3100000000}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setenv("SANDBOX_CPUS", rows[i].text, 1);
        expect_fine();
        assert_int_equal(docker_nano_cpus(), rows[i].nano);
    }
}

/* 5 sandboxes kept by each: 22 MiB under runc, 35 under gVisor, so 285 in all. */
static void sandboxes_kept_started_count_in_the_total(void **state)
{
    (void)state;
    setenv("SANDBOX_TOTAL_MEMORY_MB", "540", 1); /* 285 + 255 */
    expect_only_problem("SANDBOX_TOTAL_MEMORY_MB is 540, in which not one run of 256 MiB (SANDBOX_MEMORY_MB) fits "
                        "beside 0 pooled sessions and the sandboxes that SANDBOX_DOCKER_POOL and "
                        "SANDBOX_DOCKER_PROJECT_POOL keep started");
    setenv("SANDBOX_TOTAL_MEMORY_MB", "541", 1);
    expect_fine();
    assert_int_equal(options_max_concurrent(), 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "797", 1);
    expect_fine();
    assert_int_equal(options_max_concurrent(), 2);
    setenv("SANDBOX_PROVIDER", "docker", 1); /* 110 */
    setenv("SANDBOX_TOTAL_MEMORY_MB", "366", 1);
    expect_fine();
    setenv("SANDBOX_TOTAL_MEMORY_MB", "365", 1);
    expect_problem("in which not one run");
    setenv("SANDBOX_DOCKER_RUNTIME", "runsc", 1); /* 175 */
    setenv("SANDBOX_TOTAL_MEMORY_MB", "430", 1);
    expect_problem("in which not one run");
    setenv("SANDBOX_DOCKER_POOL", "0", 1); /* 35 */
    expect_fine();
    setenv("SANDBOX_PROVIDER", "wasm", 1);
    setenv("SANDBOX_DOCKER_POOL", "256", 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "256", 1);
    expect_fine();
}

static void a_startup_floor_knows_the_runtime(void **state)
{
    (void)state;
    setenv("SANDBOX_MIN_ISOLATION", "kernel", 1);
    expect_only_problem("SANDBOX_MIN_ISOLATION is \"kernel\", and the wall of the backend docker is at most container");
    setenv("SANDBOX_DOCKER_RUNTIME", "runsc", 1);
    expect_fine();
    setenv("SANDBOX_DOCKER_RUNTIME", "runscx", 1);
    expect_problem("the wall of the backend docker is at most container");
    setenv("SANDBOX_PROVIDER", "gvisor", 1);
    expect_fine();
    setenv("SANDBOX_MIN_ISOLATION", "vm", 1);
    expect_only_problem("SANDBOX_MIN_ISOLATION is \"vm\", and the wall of the backend gvisor is at most kernel");
}

static void what_wasm_cannot_enforce_is_refused_beside_docker(void **state)
{
    (void)state;
    setenv("SANDBOX_PIDS", "256", 1);
    setenv("SANDBOX_CPUS", "1", 1);
    setenv("SANDBOX_DISK_MB", "160", 1);
    expect_fine();
    setenv("SANDBOX_PROVIDER", "docker,gvisor,wasm", 1);
    expect_problem("SANDBOX_PIDS is set, and the backend wasm cannot enforce it");
    expect_problem("SANDBOX_CPUS is set, and the backend wasm cannot enforce it");
    expect_problem("SANDBOX_DISK_MB is set, and the backend wasm cannot enforce it");
}

static void hardened_rules(void **state)
{
    char image[128] = "a@sha256:";
    problems_t problems;

    (void)state;
    unsetenv("PLIMSOLL_TOKEN");
    setenv("PLIMSOLL_HARDENED", "1", 1);
    setenv("PLIMSOLL_CLIENTS_FILE", "/etc/plimsoll/clients.json", 1);
    setenv("PLIMSOLL_ADDR", "[::1]:8746", 1);
    setenv("SANDBOX_DOCKER_SECCOMP", "unconfined", 1);
    problems = load();
    assert_true(says(&problems, "hardened: the wall of the backend docker is only container")); /* 1 */
    assert_true(says(&problems, "hardened: SANDBOX_REQUIRE_PINNED_IMAGES must be on"));         /* 7 */
    assert_true(says(&problems, "hardened: SANDBOX_DOCKER_SECCOMP must not be unconfined"));    /* 8 */
    assert_true(says(&problems, "hardened: SANDBOX_MEMORY_MB must be set above zero"));         /* 13 */
    assert_true(says(&problems, "hardened: SANDBOX_CPUS must be set above zero"));
    assert_true(says(&problems, "hardened: SANDBOX_DISK_MB must be set above zero"));
    assert_true(says(&problems, "hardened: SANDBOX_PIDS must be set above zero"));
    assert_true(says(&problems, "hardened: SANDBOX_TOTAL_MEMORY_MB must be set above zero"));
    assert_int_equal(problems.count, 8);
    problems_dispose(&problems);
    memset(image + 9, '0', 64);
    setenv("SANDBOX_DOCKER_IMAGE", image, 1);
    setenv("SANDBOX_DOCKER_PROJECT_IMAGE", image, 1);
    setenv("SANDBOX_REQUIRE_PINNED_IMAGES", "1", 1);
    unsetenv("SANDBOX_DOCKER_SECCOMP");
    setenv("SANDBOX_DOCKER_RUNTIME", "runsc", 1);
    setenv("SANDBOX_MEMORY_MB", "256", 1);
    setenv("SANDBOX_CPUS", "1", 1);
    setenv("SANDBOX_DISK_MB", "160", 1);
    setenv("SANDBOX_PIDS", "256", 1);
    setenv("SANDBOX_TOTAL_MEMORY_MB", "4096", 1);
    expect_fine();
}

static void everything_wrong_is_told_at_once(void **state)
{
    problems_t problems;

    (void)state;
    setenv("SANDBOX_DOCKER_SOCKET", "here", 1);
    setenv("SANDBOX_DOCKER_IMAGE", "a b", 1);
    setenv("SANDBOX_DOCKER_RUNTIME", "a/b", 1);
    setenv("SANDBOX_GVISOR_EVIDENCE", "none", 1);
    setenv("SANDBOX_DOCKER_SECCOMP", "x", 1);
    setenv("SANDBOX_GUEST_UID", "60100", 1);
    setenv("SANDBOX_DISK_MB", "10", 1);
    setenv("SANDBOX_PIDS", "15", 1);
    setenv("SANDBOX_DOCKER_POOL", "257", 1);
    problems = load();
    show(&problems);
    assert_int_equal(problems.count, 10); /* the processes are too few for both */
    problems_dispose(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(defaults, enabled_both),
        cmocka_unit_test_setup(the_socket_is_a_local_path, enabled_both),
        cmocka_unit_test_setup(a_pinned_image_names_its_digest, enabled_both),
        cmocka_unit_test_setup(names_of_images_and_runtimes, enabled_both),
        cmocka_unit_test_setup(words_that_are_chosen_from, enabled_both),
        cmocka_unit_test_setup(the_guest_is_nobody_of_this_machine, enabled_both),
        cmocka_unit_test_setup(memory_and_processes_of_each_runtime, enabled_both),
        cmocka_unit_test_setup(the_disk_is_one_budget, enabled_both),
        cmocka_unit_test_setup(processors_in_the_engines_unit, enabled_both),
        cmocka_unit_test_setup(sandboxes_kept_started_count_in_the_total, enabled_both),
        cmocka_unit_test_setup(a_startup_floor_knows_the_runtime, enabled_both),
        cmocka_unit_test_setup(what_wasm_cannot_enforce_is_refused_beside_docker, enabled_both),
        cmocka_unit_test_setup(hardened_rules, enabled_both),
        cmocka_unit_test_setup(everything_wrong_is_told_at_once, enabled_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
