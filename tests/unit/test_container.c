/* What is asked of the Engine, and what it says it made (spec backend-docker 1.2, 1.7). The answers in engine_answers/
 * are a real Engine's (20.10.24, API 1.41), of started containers that were made from these very specs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "backends/docker/container.h"
#include "core/mem.h"

#define PROFILE                                                                                                        \
    "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"ptrace\"],\"action\":\"SCMP_ACT_ERRNO\"}]}\n"

/* The spec an answer was made from. The image's ID is the answer's own: it is the Engine's name for what was built. */
static container_spec_t spec_of(const json_t *inspect, bool is_gvisor, bool is_project)
{
    container_spec_t spec = {.uid = 61000,
                             .memory_bytes = 268435456,
                             .nano_cpus = 1000000000,
                             .pids = 256,
                             .tmp_mb = 16,
                             .shm_mb = 16,
                             .work_mb = is_project ? 128 : 0,
                             .seccomp = is_gvisor ? NULL : PROFILE,
                             .preboot = is_project ? GUEST_PREBOOT_NONE : GUEST_PREBOOT_JAVASCRIPT};
    snprintf(spec.image, sizeof(spec.image), "%s", json_string_value(json_object_get(inspect, "Image")));
    snprintf(spec.runtime, sizeof(spec.runtime), "%s", is_gvisor ? "runsc" : "runc");
    return spec;
}

static json_t *answer(const char *name)
{
    char path[128];
    json_error_t error;
    snprintf(path, sizeof(path), "tests/unit/engine_answers/inspect-%s.json", name);
    json_t *json = json_load_file(path, 0, &error);
    if (json == NULL)
        fail_msg("%s: %s", path, error.text);
    return json;
}

static const char *difference_of(const json_t *inspect, const container_spec_t *spec)
{
    static char text[CONTAINER_TEXT_MAX];
    return container_matches(inspect, spec, text) ? "" : text;
}

static void real_answers_match_what_was_asked(void **state)
{
    static const struct {
        const char *name;
        bool is_gvisor, is_project;
    } rows[] = {{"runc-snippet", false, false}, {"runc-project", false, true}, {"runsc-snippet", true, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        json_t *inspect = answer(rows[i].name);
        container_spec_t spec = spec_of(inspect, rows[i].is_gvisor, rows[i].is_project);
        container_state_t running;
        assert_string_equal(difference_of(inspect, &spec), "");
        assert_true(container_state(inspect, &running));
        assert_true(running.is_running && !running.is_paused && !running.is_oom_killed && running.pid > 0);
        json_decref(inspect);
    }
}

/* The body of spec 1.2, written down a second time; but for WorkingDir, where an image's own would take the place of an
 * empty one. */
static void the_body_is_the_specification_s(void **state)
{
    static const char want[] =
        "{\"Image\":\"sha256:0\",\"Entrypoint\":[\"/opt/sbx/runner\"],\"Cmd\":[\"--mode=run\",\"--preboot=node\"],"
        "\"User\":\"61000:61000\",\"WorkingDir\":\"/\",\"Env\":[],\"Tty\":false,\"OpenStdin\":true,\"StdinOnce\":true,"
        "\"AttachStdin\":true,\"AttachStdout\":true,\"AttachStderr\":true,\"Healthcheck\":{\"Test\":[\"NONE\"]},"
        "\"StopSignal\":\"SIGKILL\",\"StopTimeout\":0,\"HostConfig\":{\"Runtime\":\"runsc\",\"NetworkMode\":\"none\","
        "\"ReadonlyRootfs\":true,\"Privileged\":false,\"CapAdd\":[],\"CapDrop\":[\"ALL\"],\"SecurityOpt\":["
        "\"no-new-privileges\"],\"PidsLimit\":256,\"Memory\":268435456,\"MemorySwap\":268435456,"
        "\"NanoCpus\":1000000000,\"Tmpfs\":{\"/tmp\":\"rw,noexec,nosuid,nodev,size=16m,mode=1777\",\"/dev/shm\":"
        "\"rw,noexec,nosuid,nodev,size=16m,mode=1777\",\"/work\":\"rw,noexec,nosuid,nodev,size=128m,mode=1777\"},"
        "\"ShmSize\":16777216,\"Ulimits\":[{\"Name\":\"core\",\"Soft\":0,\"Hard\":0},{\"Name\":\"nofile\",\"Soft\":"
        "4096,\"Hard\":4096}],\"LogConfig\":{\"Type\":\"none\"},\"IpcMode\":\"private\",\"CgroupnsMode\":\"private\","
        "\"Init\":false,\"AutoRemove\":false,\"RestartPolicy\":{\"Name\":\"no\"},\"Binds\":"
        "[\"/run/x/broker.sock:/run/host-api.sock\"]}}";
    (void)state;
    json_t *inspect = answer("runc-project"), *expected = json_loads(want, 0, NULL);
    container_spec_t spec = spec_of(inspect, true, true);
    container_labels_t labels = {
        .instance = "0011223344556677", .host = "boot.1", .role = "pool", .expires_s = 1795984800};
    char digest[SHA256_HEX + 1];

    snprintf(spec.image, sizeof(spec.image), "sha256:0");
    spec.preboot = GUEST_PREBOOT_JAVASCRIPT;
    spec.bind = "/run/x/broker.sock:/run/host-api.sock";
    assert_non_null(expected);
    container_spec_digest(&spec, digest);
    json_object_set_new(expected, "Labels",
                        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "sbx.gateway", "1", "sbx.instance",
                                  "0011223344556677", "sbx.host", "boot.1", "sbx.role", "pool", "sbx.expires",
                                  "1795984800", "sbx.spec", digest));
    json_t *body = container_body(&spec, &labels);
    assert_true(json_equal(body, expected));
    /* the installation's identity, once it is known */
    labels.installation = "0123456789abcdef0123456789abcdef";
    json_t *labelled = container_body(&spec, &labels);
    json_object_set_new(json_object_get(expected, "Labels"), "sbx.installation", json_string(labels.installation));
    assert_true(json_equal(labelled, expected));
    json_decref(labelled);
    /* sbx.spec: SHA-256 of the HostConfig, sorted and without spaces */
    char *text = json_dumps(json_object_get(expected, "HostConfig"), JSON_SORT_KEYS | JSON_COMPACT),
         again[SHA256_HEX + 1];
    sha256_hex(text, strlen(text), again);
    assert_string_equal(digest, again);
    free(text);
    json_decref(body);
    json_decref(expected);
    json_decref(inspect);
}

/* Puts `value` (JSON) where `path` (a key and one below, or one key) leads, and expects that difference. */
static void refused(const char *name, const char *outer, const char *key, const char *value, const char *difference)
{
    json_t *inspect = answer(name), *changed = json_loads(value, JSON_DECODE_ANY, NULL);
    container_spec_t spec = spec_of(inspect, strncmp(name, "runsc", 5) == 0, strstr(name, "project") != NULL);
    char seal[SHA256_HEX + 1], changed_seal[SHA256_HEX + 1];

    assert_non_null(changed);
    container_seal(inspect, seal);
    json_t *in = outer != NULL ? json_object_get(inspect, outer) : inspect;
    assert_false(json_equal(json_object_get(in, key), changed));
    json_object_set_new(in, key, changed);
    assert_string_equal(difference_of(inspect, &spec), difference);
    container_seal(inspect, changed_seal);
    /* the seal is over what the Engine enforces, so of these it sees all but the configuration of the process */
    if (outer != NULL && strcmp(outer, "HostConfig") == 0)
        assert_string_not_equal(seal, changed_seal);
    json_decref(inspect);
}

static void each_field_of_the_host_config_that_differs_is_named(void **state)
{
    static const char *const fields[][2] = {
        {"Runtime", "\"runsc\""},
        {"NetworkMode", "\"bridge\""},
        {"ReadonlyRootfs", "false"},
        {"Privileged", "true"},
        {"CapAdd", "[\"NET_ADMIN\"]"},
        {"CapDrop", "[]"},
        {"CapDrop", "null"},
        {"CapDrop", "[\"NET_RAW\"]"},
        {"SecurityOpt", "[\"no-new-privileges\"]"},
        {"SecurityOpt", "[\"seccomp=unconfined\"]"},
        {"SecurityOpt", "null"},
        {"PidsLimit", "257"},
        {"PidsLimit", "null"},
        {"Memory", "268435457"},
        {"Memory", "0"},
        {"MemorySwap", "-1"},
        {"MemorySwap", "536870912"},
        {"NanoCpus", "0"},
        {"NanoCpus", "2000000000"},
        {"Tmpfs", "null"},
        {"Tmpfs", "{\"/tmp\":\"rw,size=16m,mode=1777\"}"},
        {"ShmSize", "67108864"},
        {"Ulimits", "null"},
        {"Ulimits", "[{\"Name\":\"core\",\"Soft\":0,\"Hard\":0}]"},
        {"Ulimits", "[{\"Name\":\"core\",\"Soft\":0,\"Hard\":-1},{\"Name\":\"nofile\",\"Soft\":4096,\"Hard\":4096}]"},
        {"LogConfig", "{\"Type\":\"json-file\",\"Config\":{}}"},
        {"LogConfig", "{\"Type\":\"none\",\"Config\":{\"max-size\":\"1\"}}"},
        {"IpcMode", "\"host\""},
        {"IpcMode", "\"shareable\""},
        {"CgroupnsMode", "\"host\""},
        {"Init", "true"},
        {"AutoRemove", "true"},
        {"RestartPolicy", "{\"Name\":\"always\",\"MaximumRetryCount\":0}"},
        {"Binds", "[\"/:/host\"]"},
        /* not sent, so to be as the Engine leaves them */
        {"PidMode", "\"host\""},
        {"UTSMode", "\"host\""},
        {"UsernsMode", "\"host\""},
        {"Devices", "[{\"PathOnHost\":\"/dev/kvm\",\"PathInContainer\":\"/dev/kvm\",\"CgroupPermissions\":\"rwm\"}]"},
        {"DeviceRequests", "[{\"Driver\":\"\",\"Count\":1}]"},
        {"DeviceCgroupRules", "[\"a *:* rwm\"]"},
        {"VolumesFrom", "[\"other\"]"},
        {"Mounts", "[{\"Type\":\"bind\",\"Source\":\"/\",\"Target\":\"/host\"}]"},
        {"GroupAdd", "[\"0\"]"},
        {"Links", "[\"a:b\"]"},
        {"ExtraHosts", "[\"a:127.0.0.1\"]"},
        {"PortBindings", "{\"80/tcp\":[{\"HostPort\":\"80\"}]}"},
        {"PublishAllPorts", "true"},
        {"OomKillDisable", "true"},
        {"OomScoreAdj", "-500"},
        {"Sysctls", "{\"kernel.shmmax\":\"1\"}"},
        {"CgroupParent", "\"/other\""},
        {"CpusetCpus", "\"0\""},
        {"CpuQuota", "1000"},
        {"KernelMemory", "1"},
        {"MemoryReservation", "1"},
        {"MemorySwappiness", "60"},
        {"StorageOpt", "{\"size\":\"10G\"}"},
        {"SomethingNew", "{\"deep\":[{\"in\":1}]}"},
        {"MaskedPaths", "[]"},
        {"MaskedPaths", "null"},
        {"ReadonlyPaths", "[\"/proc/bus\",\"/proc/fs\",\"/proc/irq\",\"/proc/sysrq-trigger\"]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        char name[64];
        snprintf(name, sizeof(name), "HostConfig.%s", fields[i][0]);
        refused("runc-project", "HostConfig", fields[i][0], fields[i][1], name);
    }
    /* a profile under gVisor was not asked for either */
    refused("runsc-snippet", "HostConfig", "SecurityOpt", "[\"no-new-privileges\",\"seccomp=unconfined\"]",
            "HostConfig.SecurityOpt");
    refused("runsc-snippet", "HostConfig", "Runtime", "\"runc\"", "HostConfig.Runtime");
}

static void the_rest_of_a_container_is_compared_too(void **state)
{
    (void)state;
    refused("runc-snippet", NULL, "Image", "\"sha256:other\"", "Image");
    refused("runc-snippet", NULL, "Image", "null", "Image");
    refused("runc-snippet", NULL, "HostConfig", "[]", "HostConfig");
    refused("runc-snippet", NULL, "Mounts", "null", "Mounts");
    refused("runc-snippet", NULL, "Mounts",
            "[{\"Type\":\"volume\",\"Name\":\"x\",\"Source\":\"/v\",\"Destination\":\"/data\",\"RW\":true}]", "Mounts");
    refused("runc-snippet", "NetworkSettings", "Networks", "{\"bridge\":{}}", "NetworkSettings.Networks");
    refused("runc-snippet", "NetworkSettings", "Networks", "{\"none\":{},\"bridge\":{}}", "NetworkSettings.Networks");
    refused("runc-snippet", "NetworkSettings", "Networks", "null", "NetworkSettings.Networks");
    refused("runc-snippet", "Config", "User", "\"0:0\"", "Config.User");
    refused("runc-snippet", "Config", "User", "\"\"", "Config.User");
    refused("runc-snippet", "Config", "Entrypoint", "[\"/bin/sh\"]", "Config.Entrypoint");
    refused("runc-snippet", "Config", "Cmd", "null", "Config.Cmd");
    refused("runc-snippet", "Config", "Healthcheck", "{\"Test\":[\"CMD\",\"true\"]}", "Config.Healthcheck");
    refused("runc-snippet", "Config", "Healthcheck", "{\"Interval\":5000000000}", "Config.Healthcheck");
    refused("runc-snippet", "Config", "WorkingDir", "\"/work\"", "Config.WorkingDir");
    refused("runc-snippet", "Config", "WorkingDir", "\"\"", "Config.WorkingDir");
    refused("runc-snippet", "Config", "Tty", "true", "Config.Tty");
    refused("runc-snippet", "Config", "Labels", "{}", "Config.Labels.sbx.spec");
    refused("runc-snippet", "Config", "Labels", "{\"sbx.spec\":\"00\"}", "Config.Labels.sbx.spec");
}

static void what_an_engine_may_add_is_no_difference(void **state)
{
    static const char *const fields[][2] = {
        {"Binds", "null"},
        {"CapAdd", "null"},
        {"OomKillDisable", "null"},
        {"SomethingNew", "[0, 0, \"\", {\"a\": null}]"},
        {"Annotations", "{}"},
        {"Ulimits", "[{\"Name\":\"memlock\",\"Soft\":-1,\"Hard\":-1},{\"Name\":\"nofile\",\"Hard\":4096,\"Soft\":4096},"
                    "{\"Name\":\"core\",\"Soft\":0,\"Hard\":0}]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); ++i) {
        json_t *inspect = answer("runc-project");
        container_spec_t spec = spec_of(inspect, false, true);
        json_object_set_new(json_object_get(inspect, "HostConfig"), fields[i][0],
                            json_loads(fields[i][1], JSON_DECODE_ANY, NULL));
        assert_string_equal(difference_of(inspect, &spec), "");
        json_decref(inspect);
    }
}

/* The Engine puts the intervals of an image's own check beside the "NONE" it was sent. */
static void an_images_health_check_that_is_off_is_no_difference(void **state)
{
    (void)state;
    json_t *inspect = answer("runc-snippet"),
           *check = json_object_get(json_object_get(inspect, "Config"), "Healthcheck");
    container_spec_t spec = spec_of(inspect, false, false);
    json_object_set_new(check, "Interval", json_integer(5000000000));
    json_object_set_new(check, "Retries", json_integer(3));
    assert_string_equal(difference_of(inspect, &spec), "");
    json_decref(inspect);
}

/* Newer APIs leave out what is empty; what is not empty must be told. */
static void what_is_empty_may_be_left_out(void **state)
{
    static const char *const empty[] = {"Binds", "CapAdd", "Privileged", "Init", "AutoRemove"};
    static const char *const told[] = {"Runtime",     "NetworkMode",   "ReadonlyRootfs", "CapDrop",  "SecurityOpt",
                                       "PidsLimit",   "Memory",        "MemorySwap",     "NanoCpus", "Tmpfs",
                                       "ShmSize",     "Ulimits",       "LogConfig",      "IpcMode",  "CgroupnsMode",
                                       "MaskedPaths", "ReadonlyPaths", "RestartPolicy"};
    (void)state;
    json_t *inspect = answer("runc-project"), *host = json_object_get(inspect, "HostConfig");
    container_spec_t spec = spec_of(inspect, false, true);
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); ++i)
        assert_int_equal(json_object_del(host, empty[i]), 0);
    json_object_del(json_object_get(inspect, "Config"), "Tty");
    assert_string_equal(difference_of(inspect, &spec), "");
    json_decref(inspect);
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); ++i) {
        char name[64];
        inspect = answer("runc-project");
        snprintf(name, sizeof(name), "HostConfig.%s", told[i]);
        assert_int_equal(json_object_del(json_object_get(inspect, "HostConfig"), told[i]), 0);
        assert_string_equal(difference_of(inspect, &spec), name);
        json_decref(inspect);
    }
    inspect = answer("runc-project");
    json_object_del(json_object_get(inspect, "Config"), "User");
    assert_string_equal(difference_of(inspect, &spec), "Config.User");
    json_decref(inspect);
}

static void more_hidden_paths_are_no_difference(void **state)
{
    (void)state;
    json_t *inspect = answer("runc-project");
    container_spec_t spec = spec_of(inspect, false, true);
    json_array_append_new(json_object_get(json_object_get(inspect, "HostConfig"), "MaskedPaths"),
                          json_string("/sys/devices/virtual/powercap"));
    assert_string_equal(difference_of(inspect, &spec), "");
    json_decref(inspect);
}

/* Every number and text that decides what a container is reaches the digest, so no pool holds two kinds. */
static void each_part_of_a_spec_changes_its_digest(void **state)
{
    (void)state;
    json_t *inspect = answer("runc-project");
    container_spec_t spec = spec_of(inspect, false, true), other;
    char digest[SHA256_HEX + 1], changed[SHA256_HEX + 1];
    container_spec_digest(&spec, digest);
#define CHANGED(field, value)                                                                                          \
    do {                                                                                                               \
        other = spec;                                                                                                  \
        other.field = value;                                                                                           \
        container_spec_digest(&other, changed);                                                                        \
        assert_string_not_equal(digest, changed);                                                                      \
        assert_string_not_equal(difference_of(inspect, &other), "");                                                   \
    } while (0)
    CHANGED(memory_bytes, 268435457);
    CHANGED(nano_cpus, 999999999);
    CHANGED(pids, 255);
    CHANGED(tmp_mb, 17);
    CHANGED(shm_mb, 15);
    CHANGED(work_mb, 0);
    CHANGED(seccomp, NULL);
    CHANGED(seccomp, "unconfined");
    CHANGED(bind, "/a:/b");
    CHANGED(runtime[3], 'x');
#undef CHANGED
    /* these two are compared as fields of their own */
    other = spec;
    other.uid = 61001;
    assert_string_equal(difference_of(inspect, &other), "Config.User");
    other = spec;
    other.preboot = GUEST_PREBOOT_JAVASCRIPT;
    assert_string_equal(difference_of(inspect, &other), "Config.Cmd");
    json_decref(inspect);
}

static void a_bind_is_the_one_asked_for(void **state)
{
    static const struct {
        const char *mounts;
        bool is_same;
    } rows[] = {
        {"[{\"Type\":\"bind\",\"Source\":\"/run/x/s\",\"Destination\":\"/run/host-api.sock\",\"RW\":true}]", true},
        {"[]", false},
        {"[{\"Type\":\"bind\",\"Source\":\"/run/x\",\"Destination\":\"/run/host-api.sock\"}]", false},
        {"[{\"Type\":\"bind\",\"Source\":\"/run/x/s\",\"Destination\":\"/run/host-api\"}]", false},
        {"[{\"Type\":\"bind\",\"Source\":\"/run/x/s2\",\"Destination\":\"/run/host-api.sock\"}]", false},
        {"[{\"Type\":\"volume\",\"Source\":\"/run/x/s\",\"Destination\":\"/run/host-api.sock\"}]", false},
        {"[{\"Type\":\"bind\",\"Source\":\"/run/x/s\",\"Destination\":\"/run/host-api.sock\"},{\"Type\":\"bind\"}]",
         false},
        {"[{\"Type\":\"bind\",\"Source\":\"/run/x/s:/run/host-api.sock\",\"Destination\":\"/run/host-api.sock\"}]",
         false},
        {"[{}]", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        json_t *inspect = answer("runc-snippet"),
               *labels = json_object_get(json_object_get(inspect, "Config"), "Labels");
        container_spec_t spec = spec_of(inspect, false, false);
        char digest[SHA256_HEX + 1];
        spec.bind = "/run/x/s:/run/host-api.sock";
        container_spec_digest(&spec, digest);
        json_object_set_new(labels, "sbx.spec", json_string(digest));
        json_object_set_new(json_object_get(inspect, "HostConfig"), "Binds", json_pack("[s]", spec.bind));
        json_object_set_new(inspect, "Mounts", json_loads(rows[i].mounts, 0, NULL));
        assert_string_equal(difference_of(inspect, &spec), rows[i].is_same ? "" : "Mounts");
        json_decref(inspect);
    }
}

static void a_state_without_its_shape_is_none(void **state)
{
    container_state_t out;
    (void)state;
    static const char *const texts[] = {"{}", "{\"State\":null}",
                                        "{\"State\":{\"Running\":true,\"Paused\":false,\"Pid\":\"1\",\"ExitCode\":0}}",
                                        "{\"State\":{\"Running\":1,\"Paused\":false,\"Pid\":1,\"ExitCode\":0}}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
        json_t *json = json_loads(texts[i], 0, NULL);
        assert_false(container_state(json, &out));
        json_decref(json);
    }
    json_t *json = json_loads(
        "{\"State\":{\"Running\":false,\"Paused\":true,\"OOMKilled\":true,\"Pid\":0,\"ExitCode\":137}}", 0, NULL);
    assert_true(container_state(json, &out));
    assert_true(!out.is_running && out.is_paused && out.is_oom_killed && out.exit_code == 137);
    json_decref(json);
}

/* The name of a field comes from the Engine and goes into a log line. */
static void a_field_s_name_is_cut_and_printable(void **state)
{
    (void)state;
    json_t *inspect = answer("runc-snippet");
    container_spec_t spec = spec_of(inspect, false, false);
    char key[300], text[CONTAINER_TEXT_MAX];
    memset(key, 'x', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    memcpy(key, "a\n\x1b\xc3\xa9", 5);
    json_object_set_new(json_object_get(inspect, "HostConfig"), key, json_true());
    assert_false(container_matches(inspect, &spec, text));
    assert_int_equal(strlen(text), CONTAINER_TEXT_MAX - 1);
    assert_int_equal(strncmp(text, "HostConfig.a????xxx", 19), 0);
    json_decref(inspect);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_answers_match_what_was_asked),
        cmocka_unit_test(the_body_is_the_specification_s),
        cmocka_unit_test(each_field_of_the_host_config_that_differs_is_named),
        cmocka_unit_test(the_rest_of_a_container_is_compared_too),
        cmocka_unit_test(what_an_engine_may_add_is_no_difference),
        cmocka_unit_test(an_images_health_check_that_is_off_is_no_difference),
        cmocka_unit_test(what_is_empty_may_be_left_out),
        cmocka_unit_test(more_hidden_paths_are_no_difference),
        cmocka_unit_test(each_part_of_a_spec_changes_its_digest),
        cmocka_unit_test(a_bind_is_the_one_asked_for),
        cmocka_unit_test(a_state_without_its_shape_is_none),
        cmocka_unit_test(a_field_s_name_is_cut_and_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
