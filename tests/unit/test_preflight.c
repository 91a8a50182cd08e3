/* What the Engine tells of itself, and the guests' number: each single reason for which a wall is not ready, by name.
 */
#include <stdbool.h>
#include <unistd.h>

#include "tests/unit/proof_fixture.h"

#include "backends/docker/preflight.h"
#include "core/log.h"

/* An Engine 20.10's answer, less what nothing here reads. */
static const char INFO[] =
    "{\"ID\":\"6EJD:NAS3:TNGI:YSXX\",\"Driver\":\"overlay2\",\"DriverStatus\":[[\"Backing Filesystem\",\"extfs\"]],"
    "\"MemoryLimit\":true,\"SwapLimit\":true,\"CpuCfsPeriod\":true,\"CpuCfsQuota\":true,\"PidsLimit\":true,"
    "\"CgroupDriver\":\"cgroupfs\",\"CgroupVersion\":\"1\",\"OSType\":\"linux\",\"Architecture\":\"x86_64\","
    "\"NCPU\":2,\"ServerVersion\":\"20.10.24+dfsg1\","
    "\"Runtimes\":{\"runc\":{\"path\":\"runc\"},\"renamed\":{\"path\":\"/opt/bin/runsc\"},"
    "\"posing\":{\"path\":\"/usr/bin/runc\"},"
    "\"runsc\":{\"path\":\"/usr/bin/runsc\",\"runtimeArgs\":[\"--network=none\",\"--platform=ptrace\","
    "\"--fsgofer-host-uds\"]}},\"DefaultRuntime\":\"runc\","
    "\"SecurityOptions\":[\"name=seccomp,profile=default\"],\"Warnings\":null}";

static const docker_promise_t PROMISE = {.uid = 61000,
                                         .memory_bytes = 256 * 1024 * 1024,
                                         .nano_cpus = 1000000000,
                                         .pids = 256,
                                         .tmp_bytes = 16 * 1024 * 1024,
                                         .shm_bytes = 16 * 1024 * 1024,
                                         .work_bytes = 128 * 1024 * 1024};

static preflight_want_t want_of(const char *runtime, bool is_gvisor)
{
    return (preflight_want_t){.runtime = runtime, .is_gvisor = is_gvisor, .promise = PROMISE};
}

static bool vet(const json_t *info, const preflight_want_t *want, preflight_t *out, char failure[BACKEND_TEXT_MAX])
{
    memset(out, 0, sizeof(*out));
    failure[0] = '\0';
    return preflight_vet_info(info, want, out, failure);
}

static void test_both_walls_are_taken(void **state)
{
    char failure[BACKEND_TEXT_MAX];
    preflight_t found;
    preflight_want_t runc = want_of("runc", false), runsc = want_of("runsc", true), renamed = want_of("renamed", true);
    json_t *info = fixture_parse(INFO);
    (void)state;
    assert_true(vet(info, &runc, &found, failure));
    assert_false(found.runtime.is_gvisor);
    assert_string_equal(found.arch, "amd64");
    assert_int_equal(found.cgroup_version, 1);
    assert_string_equal(found.engine_id, "6EJD:NAS3:TNGI:YSXX");
    assert_true(vet(info, &runsc, &found, failure));
    assert_true(found.runtime.is_gvisor);
    assert_string_equal(found.runtime.path, "/usr/bin/runsc");
    assert_string_equal(evidence_flag(&found.runtime, "network"), "none");
    assert_true(evidence_has_host_sockets(&found.runtime));
    assert_true(vet(info, &renamed, &found, failure));
    assert_true(found.runtime.is_gvisor);
    assert_false(evidence_has_host_sockets(&found.runtime));
    json_decref(info);
}

typedef struct {
    const char *runtime;
    bool is_gvisor, needs_host_socket;
    change_t change;
} info_case_t;

static void test_each_single_reason_is_named(void **state)
{
    static const info_case_t cases[] = {
        {"runc", false, false, {"OSType", "\"windows\"", "does not run Linux containers"}},
        {"runc", false, false, {"OSType", NULL, "does not run Linux containers"}},
        {"runc", false, false, {"Architecture", "\"mips\"", "is a mips"}},
        {"runc", false, false, {"Architecture", "\"aarch64\"", NULL}},
        {"runc", false, false, {"MemoryLimit", "false", "cannot limit memory"}},
        {"runc", false, false, {"MemoryLimit", "\"true\"", "cannot limit memory"}},
        {"runc", false, false, {"SwapLimit", "false", "swapaccount=1"}},
        {"runc", false, false, {"PidsLimit", NULL, "cannot limit processes"}},
        {"runc", false, false, {"CpuCfsQuota", "false", "cannot limit processors"}},
        {"runc", false, false, {"SecurityOptions", "[]", "has no seccomp"}},
        {"runc", false, false, {"SecurityOptions", "[\"name=apparmor\",7]", "has no seccomp"}},
        {"runsc", true, false, {"SecurityOptions", "[]", NULL}}, /* it filters in its own kernel */
        {"runc", false, false, {"Runtimes.runc", NULL, "set SANDBOX_DOCKER_RUNTIME to one of: renamed, posing, runsc"}},
        {"runc", false, false, {"Runtimes", "null", "SANDBOX_DOCKER_RUNTIME"}},
        {"runsc", true, false, {"Runtimes.runsc", NULL, "run backends/docker/install-gvisor"}},
        {"runsc", true, false, {"Runtimes.runsc.path", "\"/usr/bin/runc\"", "not named runsc"}},
        {"runsc", true, false, {"Runtimes.runsc.path", "\"/usr/bin/runsc-wrapper\"", "not named runsc"}},
        {"runsc", true, false, {"Runtimes.runsc.path", "\"/usr/bin/runsc/\"", "not named runsc"}},
        {"runsc", true, false, {"Runtimes.runsc.path", NULL, "not named runsc"}},
        {"runsc", false, false, {"Runtimes.runsc.path", "\"/usr/bin/runc\"", "not named runsc"}},
        {"posing", true, false, {"Warnings", "[]", "not named runsc"}},
        {"runsc", true, true, {"Runtimes.runsc.runtimeArgs", "[\"--network=none\"]", "--host-uds=open"}},
        {"runsc", true, true, {"Runtimes.runsc.runtimeArgs", "[\"--host-uds=create\"]", "--host-uds=open"}},
        {"runsc", true, true, {"Runtimes.runsc.runtimeArgs", "[\"--host-uds=open\"]", NULL}},
        {"runsc", true, true, {"Runtimes.runsc.runtimeArgs", "[\"-host-uds=all\"]", NULL}},
        {"runsc", true, true, {"Runtimes.runsc.runtimeArgs", "[\"--fsgofer-host-uds=true\"]", NULL}},
        {"runsc", true, true, {"Runtimes.runsc.runtimeArgs", "[\"--fsgofer-host-uds=false\"]", "--host-uds=open"}},
        {"runsc", true, false, {"Runtimes.runsc.runtimeArgs", "null", NULL}},
        {"runsc", true, false, {"CgroupVersion", "\"2\"", NULL}},
        {"runc", false, false, {"Warnings", "[\"No blkio throttle support\",7]", NULL}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char failure[BACKEND_TEXT_MAX];
        preflight_t found;
        preflight_want_t want = want_of(cases[i].runtime, cases[i].is_gvisor);
        want.needs_host_socket = cases[i].needs_host_socket;
        json_t *info = fixture_changed(INFO, &cases[i].change);
        bool is_taken = vet(info, &want, &found, failure);
        json_decref(info);
        fixture_expect(&cases[i].change, is_taken, failure);
    }
}

static void test_limits_that_end_gvisor_itself_are_refused(void **state)
{
    static const struct {
        const char *runtime;
        uint64_t memory_bytes;
        uint32_t pids;
        uint64_t work_bytes;
        const char *refusal;
    } cases[] = {
        {"runsc", 128 * 1048576 - 1, 256, 1048576, "SANDBOX_MEMORY_MB is below 128"},
        {"runsc", 128 * 1048576, 256, 1048576, NULL},
        {"runsc", 128 * 1048576 + 1, 257, 1048577, NULL},
        {"runsc", 256 * 1048576, 255, 1048576, "SANDBOX_PIDS is below 256"},
        {"runc", 16 * 1048576, 16, 1048576, NULL},
        {"runc", 256 * 1048576, 256, 1048575, "SANDBOX_DISK_MB leaves less than 1 MiB"},
        {"runc", 256 * 1048576, 256, 0, "SANDBOX_DISK_MB leaves less than 1 MiB"},
    };
    json_t *info = fixture_parse(INFO);
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char failure[BACKEND_TEXT_MAX];
        preflight_t found;
        preflight_want_t want = want_of(cases[i].runtime, false);
        want.promise.memory_bytes = cases[i].memory_bytes;
        want.promise.pids = cases[i].pids;
        want.promise.work_bytes = cases[i].work_bytes;
        assert_int_equal(vet(info, &want, &found, failure), cases[i].refusal == NULL);
        if (cases[i].refusal != NULL)
            assert_non_null(strstr(failure, cases[i].refusal));
    }
    json_decref(info);
}

/* --- the guests' number --- */

static char account_dir[64];

static const char *account_file(const char *name, const char *text)
{
    static char paths[2][128];
    static int next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof(paths[0]), "%s/%s", account_dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void test_the_guests_number_is_nobodys(void **state)
{
    static const char nobody[] = "root:x:0:0:root:/root:/bin/sh\n", no_group[] = "root:x:0:\n";
    static const struct {
        uint32_t uid;
        const char *passwd, *group, *refusal;
    } cases[] = {
        {61000, nobody, no_group, NULL},
        {61000, "a:x:61000:100::/:/bin/sh\n", no_group, "belongs to the user a"},
        {61000, "a:x:61001:100::/:/bin/sh\n", no_group, "belongs to the user a"},
        {61000, "a:x:500:61000::/:/bin/sh\n", no_group, "belongs to the user a"},
        {61000, "a:x:61002:61002::/:/bin/sh\n", no_group, NULL},
        {61000, "a:x:60999:60999::/:/bin/sh\n", no_group, NULL},
        {61000, nobody, "g:x:61000:\n", "belongs to the group g"},
        {61000, nobody, "g:x:61001:\n", "belongs to the group g"},
        /* systemd's bands, and the number after the guests' (spec 1.2) */
        {59999, nobody, no_group, NULL},
        {60000, nobody, no_group, "60001 to 60513"},
        {60513, nobody, no_group, "60001 to 60513"},
        {60514, nobody, no_group, NULL},
        {60577, nobody, no_group, "60578 to 60705"},
        {60705, nobody, no_group, "60578 to 60705"},
        {60706, nobody, no_group, NULL},
        {61182, nobody, no_group, NULL},
        {61183, nobody, no_group, "61184 to 65519"},
        {65519, nobody, no_group, "61184 to 65519"},
        {65520, nobody, no_group, NULL},
        {0, nobody, no_group, "cannot be a guest's"},
        {UINT32_MAX - 1, nobody, no_group, "cannot be a guest's"},
        {UINT32_MAX, nobody, no_group, "cannot be a guest's"},
    };
    char failure[BACKEND_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const char *passwd = account_file("passwd", cases[i].passwd), *group = account_file("group", cases[i].group);
        bool is_free = preflight_vet_uid(cases[i].uid, passwd, group, failure);
        if (is_free != (cases[i].refusal == NULL) || (!is_free && strstr(failure, cases[i].refusal) == NULL))
            fail_msg("%u: %s", (unsigned)cases[i].uid, is_free ? "taken" : failure);
    }
    assert_false(preflight_vet_uid(61000, "/nonexistent/passwd", account_file("group", no_group), failure));
    assert_non_null(strstr(failure, "cannot be read"));
}

/* --- what makes a full test due --- */

static void test_what_was_proven_is_what_is_there(void **state)
{
    preflight_t *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    (void)state;
    snprintf(a->images[DOCKER_PROJECT].id, IMAGE_ID_MAX, "sha256:1");
    snprintf(a->engine_id, sizeof(a->engine_id), "E");
    snprintf(a->runtime.path, sizeof(a->runtime.path), "/usr/bin/runsc");
    snprintf(a->runtime.sha256, sizeof(a->runtime.sha256), "ab");
    snprintf(a->runtime.flags[0], EVIDENCE_FLAG_BYTES_MAX, "--network=none");
    a->runtime.flag_count = 1;
    a->images[DOCKER_SNIPPET].env[0] = a->images[DOCKER_SNIPPET]._env;
    a->images[DOCKER_SNIPPET].env_count = 1;
    preflight_copy(b, a);
    assert_ptr_equal(b->images[DOCKER_SNIPPET].env[0], b->images[DOCKER_SNIPPET]._env);
    assert_true(preflight_is_same(a, b));
#define DIFFERS(field, value)                                                                                          \
    do {                                                                                                               \
        preflight_copy(b, a);                                                                                          \
        snprintf(b->field, sizeof(b->field), "%s", value);                                                             \
        assert_false(preflight_is_same(a, b));                                                                         \
    } while (0)
    DIFFERS(images[DOCKER_SNIPPET].id, "sha256:2");
    DIFFERS(images[DOCKER_PROJECT].id, "sha256:2");
    DIFFERS(images[DOCKER_PROJECT].software_identity, "oci-manifest:x");
    DIFFERS(engine_id, "F");
    DIFFERS(engine_version, "2");
    DIFFERS(runtime.path, "/opt/runsc");
    DIFFERS(runtime.sha256, "cd");
    DIFFERS(runtime.flags[0], "--network=host");
    preflight_copy(b, a);
    b->runtime.inode = 7; /* replaced by a file of the same content */
    assert_false(preflight_is_same(a, b));
    free(a);
    free(b);
}

static int make_account_dir(void **state)
{
    (void)state;
    log_init("test", LOG_FORMAT_JSON, LOG_ERROR);
    snprintf(account_dir, sizeof(account_dir), "/tmp/plimsoll-accounts-XXXXXX");
    return mkdtemp(account_dir) == NULL;
}

static int remove_account_dir(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof(path), "%s/passwd", account_dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/group", account_dir);
    unlink(path);
    return rmdir(account_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_walls_are_taken),
        cmocka_unit_test(test_each_single_reason_is_named),
        cmocka_unit_test(test_limits_that_end_gvisor_itself_are_refused),
        cmocka_unit_test(test_the_guests_number_is_nobodys),
        cmocka_unit_test(test_what_was_proven_is_what_is_there),
    };
    return cmocka_run_group_tests(tests, make_account_dir, remove_account_dir);
}
