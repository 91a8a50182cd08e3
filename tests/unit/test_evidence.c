/*
 * The evidence about a sandbox, looked for in a /proc and a cgroup tree made by hand: what is believed, what refutes
 * it, and what cannot be seen. The command line and the cgroup lists are those of runsc 20221219 and runc 1.1.5 under
 * an Engine 20.10.
 */
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/proof_fixture.h"

#include "backends/docker/evidence.h"

#define ID "6804d4ca6386c4614cb2e9e124b28531b790b80cdc4f9dcaea4f766f376e8f57"
#define RUNNER "/opt/sbx/runner"
enum { SANDBOX = 23570, GUEST = 23594, OTHER = 801 };

static char root[64], proc_dir[128], cgroup_dir[128];
static evidence_host_t host;

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static void put(const char *path, const void *bytes, size_t len)
{
    char whole[512], command[600];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", whole);
    run(command);
    unlink(whole);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    fclose(file);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static void drop(const char *path)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    assert_int_equal(unlink(whole), 0);
}

static void link_to(const char *target, int pid)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/proc/%d/exe", root, pid);
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

static const char CGROUPS_V1[] = "9:name=systemd:/docker/" ID "\n8:pids:/docker/" ID "\n5:devices:/docker/" ID
                                 "\n4:memory:/docker/" ID "\n1:cpu,cpuacct:/docker/" ID "\n0::/\n";
static const char CGROUPS_V2[] = "0::/system.slice/docker-" ID ".scope\n";

static void command_line(const char *name, const char *network, const char *uds, const char *verb, const char *id)
{
    char line[1024], path[64];
    size_t len = 0;
    const char *const words[] = {name, "--root=/run/runsc", network, uds, "--log-fd=3", verb, "--cpu-num", "2", id};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        memcpy(line + len, words[i], strlen(words[i]) + 1);
        len += strlen(words[i]) + 1;
    }
    snprintf(path, sizeof(path), "proc/%d/cmdline", SANDBOX);
    put(path, line, len);
}

static void usual_command_line(void)
{
    command_line("runsc-sandbox", "--network=none", "--fsgofer-host-uds=true", "boot", ID);
}

/* The registered runtime, as a file of this test. */
static void registered(evidence_runtime_t *out)
{
    char info[512];
    snprintf(info, sizeof(info),
             "{\"Runtimes\":{\"runsc\":{\"path\":\"%s/bin/runsc\",\"runtimeArgs\":[\"--network=none\","
             "\"--platform=ptrace\",\"--fsgofer-host-uds\"]}}}",
             root);
    json_t *json = fixture_parse(info);
    assert_true(evidence_registered(json, "runsc", out));
    json_decref(json);
    evidence_read_file(out);
}

static int setup(void **state)
{
    char path[256];
    (void)state;
    snprintf(root, sizeof(root), "/tmp/plimsoll-evidence-XXXXXX");
    if (mkdtemp(root) == NULL)
        return 1;
    snprintf(proc_dir, sizeof(proc_dir), "%s/proc", root);
    snprintf(cgroup_dir, sizeof(cgroup_dir), "%s/cgroup", root);
    host = (evidence_host_t){.proc = proc_dir, .cgroup = cgroup_dir};
    put_text("bin/runsc", "\177ELF...0.0~20221219.0...");
    put_text("bin/runc", "\177ELF...");
    put_text("proc/23570/cgroup", CGROUPS_V1);
    put_text("proc/23570/comm", "exe\n");
    put_text("proc/23594/cgroup", CGROUPS_V1);
    put_text("proc/23594/comm", "exe\n");
    put_text("proc/801/cgroup", "0::/\n");
    put_text("proc/801/comm", "sshd\n");
    put_text("proc/self/comm", "test\n");
    usual_command_line();
    snprintf(path, sizeof(path), "%s/bin/runsc", root);
    link_to(path, SANDBOX);
    link_to(path, GUEST);
    link_to("/usr/sbin/sshd", OTHER);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

/* --- E1, E2 --- */

static void test_the_registered_file_is_read_not_run(void **state)
{
    evidence_runtime_t runtime;
    (void)state;
    registered(&runtime);
    assert_true(runtime.is_gvisor && runtime.is_file);
    assert_string_equal(runtime.version, "20221219.0");
    /* sha256sum of the file's 24 bytes */
    char command[256], expected[65];
    snprintf(command, sizeof(command), "sha256sum '%s/bin/runsc'", root);
    FILE *pipe = popen(command, "r");
    assert_int_equal(fread(expected, 1, 64, pipe), 64);
    expected[64] = '\0';
    pclose(pipe);
    assert_string_equal(runtime.sha256, expected);
    /* Replaced, it is read anew. */
    put_text("bin/runsc", "\177ELF...release-20260907.1...");
    registered(&runtime);
    assert_string_equal(runtime.version, "20260907.1");
    assert_string_not_equal(runtime.sha256, expected);
    /* One that lies across two slices of the reading is found; what only looks like one is none. */
    size_t size = 1024 * 1024 + 100;
    char *big = malloc(size);
    memset(big, 'x', size);
    memcpy(big + 100, "release-2x260907.0 0.0~20260907x", 32);
    memcpy(big + 1024 * 1024 - 9, "release-20240102.3", 18);
    put("bin/runsc", big, size);
    free(big);
    registered(&runtime);
    assert_string_equal(runtime.version, "20240102.3");
    drop("bin/runsc");
    registered(&runtime);
    assert_false(runtime.is_file);
    assert_string_equal(runtime.sha256, "");
}

/* --- E3 --- */

static evidence_look_t look(char why[BACKEND_TEXT_MAX])
{
    evidence_runtime_t runtime;
    why[0] = '\0';
    registered(&runtime);
    return evidence_sandbox_process(&host, &runtime, SANDBOX, ID, why);
}

static void test_the_sandbox_process_is_the_registered_runtimes(void **state)
{
    char why[BACKEND_TEXT_MAX], path[256];
    (void)state;
    assert_int_equal(look(why), EVIDENCE_HOLDS);
    /* Another file, of the same name even. */
    put_text("elsewhere/runsc", "\177ELF...");
    snprintf(path, sizeof(path), "%s/elsewhere/runsc", root);
    link_to(path, SANDBOX);
    assert_int_equal(look(why), EVIDENCE_REFUTED);
    assert_non_null(strstr(why, "does not run the registered runtime's file"));
    snprintf(path, sizeof(path), "%s/bin/runsc", root);
    link_to(path, SANDBOX);
    assert_int_equal(look(why), EVIDENCE_HOLDS);
}

static void test_the_sandbox_process_says_so(void **state)
{
    static const struct {
        const char *name, *network, *uds, *verb, *id;
        evidence_look_t look;
    } cases[] = {
        {"runsc-sandbox", "--network=none", "--fsgofer-host-uds", "boot", ID, EVIDENCE_HOLDS},
        {"runsc-gofer", "--network=none", "--fsgofer-host-uds=true", "boot", ID, EVIDENCE_REFUTED},
        {"runsc-sandboxed", "--network=none", "--fsgofer-host-uds=true", "boot", ID, EVIDENCE_REFUTED},
        {"runsc-sandbox", "--network=sandbox", "--fsgofer-host-uds=true", "boot", ID, EVIDENCE_REFUTED},
        {"runsc-sandbox", "--network=nonesuch", "--fsgofer-host-uds=true", "boot", ID, EVIDENCE_REFUTED},
        {"runsc-sandbox", "--network=none", "--fsgofer-host-uds=false", "boot", ID, EVIDENCE_REFUTED},
        {"runsc-sandbox", "--network=none", "--fsgofer-host-uds=true", "gofer", ID, EVIDENCE_REFUTED},
        {"runsc-sandbox", "--network=none", "--fsgofer-host-uds=true", "boot", "another", EVIDENCE_REFUTED},
    };
    char why[BACKEND_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        command_line(cases[i].name, cases[i].network, cases[i].uds, cases[i].verb, cases[i].id);
        if (look(why) != cases[i].look)
            fail_msg("case %zu: %s", i, why);
    }
    usual_command_line();
    put_text("proc/23570/cgroup", "8:pids:/docker/another\n0::/\n");
    assert_int_equal(look(why), EVIDENCE_REFUTED);
    assert_non_null(strstr(why, "cgroup"));
}

/* Only these may be made up for by SANDBOX_GVISOR_EVIDENCE=registered. */
static void test_what_cannot_be_seen_is_not_refuted(void **state)
{
    evidence_runtime_t runtime;
    char why[BACKEND_TEXT_MAX];
    (void)state;
    registered(&runtime);
    assert_int_equal(evidence_sandbox_process(&host, &runtime, 0, ID, why), EVIDENCE_UNSEEN);
    assert_int_equal(evidence_sandbox_process(&host, &runtime, 99999, ID, why), EVIDENCE_UNSEEN);
    runtime.is_file = false;
    assert_int_equal(evidence_sandbox_process(&host, &runtime, SANDBOX, ID, why), EVIDENCE_UNSEEN);
    drop("proc/23570/cmdline");
    registered(&runtime);
    assert_int_equal(evidence_sandbox_process(&host, &runtime, SANDBOX, ID, why), EVIDENCE_UNSEEN);
}

/* --- E4 --- */

static void count(evidence_tasks_t *out)
{
    char why[BACKEND_TEXT_MAX];
    assert_true(evidence_tasks(&host, SANDBOX, ID, RUNNER, "f00f00f00f00f0", out, why));
}

static void test_guests_of_another_kernel_are_not_among_the_tasks(void **state)
{
    evidence_tasks_t tasks;
    char why[BACKEND_TEXT_MAX];
    (void)state;
    count(&tasks);
    assert_true(tasks.saw_sandbox);
    assert_int_equal(tasks.by_program, 0);
    assert_int_equal(tasks.by_name, 0);
    /* As under runc. */
    link_to(RUNNER, GUEST);
    count(&tasks);
    assert_int_equal(tasks.by_program, 1);
    link_to(RUNNER " (deleted)", GUEST);
    count(&tasks);
    assert_int_equal(tasks.by_program, 1);
    link_to(RUNNER "-2", GUEST);
    count(&tasks);
    assert_int_equal(tasks.by_program, 0);
    /* Another container's runner is not this one's. */
    link_to(RUNNER, OTHER);
    count(&tasks);
    assert_int_equal(tasks.by_program, 0);
    /* The name the probe gave itself counts wherever it is seen. */
    put_text("proc/801/comm", "f00f00f00f00f0\n");
    count(&tasks);
    assert_int_equal(tasks.by_name, 1);
    put_text("proc/801/comm", "f00f00f00f00f\n");
    count(&tasks);
    assert_int_equal(tasks.by_name, 0);
    /* A look that does not see the sandbox itself, or its program, is none. */
    drop("proc/23570/exe");
    count(&tasks);
    assert_false(tasks.saw_sandbox);
    assert_true(evidence_tasks(&host, 4711, ID, RUNNER, NULL, &tasks, why));
    assert_false(tasks.saw_sandbox);
    evidence_host_t nowhere = {.proc = "/nonexistent", .cgroup = cgroup_dir};
    assert_false(evidence_tasks(&nowhere, SANDBOX, ID, RUNNER, NULL, &tasks, why));
}

/* --- S10, S11 --- */

#define V1_PIDS "cgroup/pids/docker/" ID "/pids.max"
#define V1_MEMORY "cgroup/memory/docker/" ID "/memory.limit_in_bytes"
#define V1_SWAP "cgroup/memory/docker/" ID "/memory.memsw.limit_in_bytes"
#define V2 "cgroup/system.slice/docker-" ID ".scope/"

static bool limits(evidence_limits_t *out, char why[BACKEND_TEXT_MAX])
{
    why[0] = '\0';
    return evidence_limits(&host, SANDBOX, ID, out, why);
}

static void test_limits_of_cgroup_version_1(void **state)
{
    evidence_limits_t found;
    char why[BACKEND_TEXT_MAX];
    (void)state;
    put_text(V1_PIDS, "256\n");
    put_text(V1_MEMORY, "268435456\n");
    put_text(V1_SWAP, "268435456\n");
    assert_true(limits(&found, why));
    assert_int_equal(found.pids_max, 256);
    assert_int_equal(found.memory_max, 268435456);
    assert_true(found.has_swap_limit);
    assert_int_equal(found.memory_and_swap_max, 268435456);
    put_text(V1_PIDS, "max\n");
    put_text(V1_MEMORY, "9223372036854771712\n"); /* as the kernel says "none" */
    drop(V1_SWAP);
    assert_true(limits(&found, why));
    assert_true(found.pids_max == UINT64_MAX && found.memory_max == UINT64_MAX);
    assert_false(found.has_swap_limit);
    put_text(V1_MEMORY, "-1\n");
    assert_false(limits(&found, why));
    assert_non_null(strstr(why, "memory.limit_in_bytes"));
    put_text(V1_MEMORY, "268435456\n");
    drop(V1_PIDS);
    assert_false(limits(&found, why));
    assert_non_null(strstr(why, "pids.max"));
}

static void test_limits_of_cgroup_version_2(void **state)
{
    evidence_limits_t found;
    char why[BACKEND_TEXT_MAX];
    (void)state;
    put_text("proc/23570/cgroup", CGROUPS_V2);
    put_text(V2 "pids.max", "256\n");
    put_text(V2 "memory.max", "268435456\n");
    put_text(V2 "memory.swap.max", "0\n");
    assert_true(limits(&found, why));
    assert_int_equal(found.pids_max, 256);
    assert_int_equal(found.memory_max, 268435456);
    assert_int_equal(found.memory_and_swap_max, 268435456);
    put_text(V2 "memory.swap.max", "4096\n");
    assert_true(limits(&found, why));
    assert_int_equal(found.memory_and_swap_max, 268435456 + 4096);
    put_text(V2 "memory.swap.max", "max\n");
    assert_true(limits(&found, why));
    assert_true(found.memory_and_swap_max == UINT64_MAX);
    drop(V2 "memory.swap.max");
    assert_true(limits(&found, why));
    assert_false(found.has_swap_limit);
    put_text(V2 "memory.max", "268435456");
    assert_false(limits(&found, why));
}

static void test_limits_of_somebody_else_are_not_the_containers(void **state)
{
    evidence_limits_t found;
    char why[BACKEND_TEXT_MAX];
    (void)state;
    put_text("cgroup/pids/pids.max", "256\n");
    put_text("cgroup/memory/memory.limit_in_bytes", "268435456\n");
    put_text("proc/23570/cgroup", "8:pids:/\n4:memory:/\n0::/\n");
    assert_false(limits(&found, why));
    assert_non_null(strstr(why, "not in the container's cgroup"));
    put_text("proc/23570/cgroup", "8:pids:/docker/" ID "\n4:memory:/\n0::/\n");
    assert_false(limits(&found, why));
    put_text("proc/23570/cgroup", "rubbish\n");
    assert_false(limits(&found, why));
    put_text("proc/23570/cgroup", "");
    assert_false(limits(&found, why));
    assert_false(evidence_limits(&host, 0, ID, &found, why));
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(test_the_registered_file_is_read_not_run),
        FRESH(test_the_sandbox_process_is_the_registered_runtimes),
        FRESH(test_the_sandbox_process_says_so),
        FRESH(test_what_cannot_be_seen_is_not_refuted),
        FRESH(test_guests_of_another_kernel_are_not_among_the_tasks),
        FRESH(test_limits_of_cgroup_version_1),
        FRESH(test_limits_of_cgroup_version_2),
        FRESH(test_limits_of_somebody_else_are_not_the_containers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
