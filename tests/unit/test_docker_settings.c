/* From the settings to the container that is asked for (spec backend-docker 1.2). */
#include "options_fixture.h"

#include "backends/docker/docker_internal.h"

static const image_t IMAGE = {.id = "sha256:1"};

static docker_t read_settings(const char *name, bool is_gvisor)
{
    docker_t docker = {.magic = DOCKER_MAGIC, .name = name, .is_gvisor = is_gvisor};
    problems_t problems = load();
    problems_dispose(&problems);
    docker_settings_read(&docker);
    return docker;
}

static void forget(docker_t *docker)
{
    free(docker->settings.seccomp);
}

static void defaults_are_the_specification_s(void **state)
{
    container_spec_t spec;
    (void)state;
    docker_t docker = read_settings("docker", false);
    assert_string_equal(docker.problem, "");
    docker_spec(&docker, DOCKER_SNIPPET, &IMAGE, &spec);
    assert_string_equal(spec.image, "sha256:1");
    assert_string_equal(spec.runtime, "runc");
    assert_int_equal(spec.uid, 61000);
    assert_int_equal(spec.memory_bytes, 256 * 1024 * 1024);
    assert_int_equal(spec.nano_cpus, 1000000000);
    assert_int_equal(spec.pids, 256);
    assert_int_equal(spec.tmp_mb, 16);
    assert_int_equal(spec.shm_mb, 16);
    assert_int_equal(spec.work_mb, 0); /* a snippet has no /work */
    assert_int_equal(spec.preboot, GUEST_PREBOOT_JAVASCRIPT);
    assert_non_null(strstr(spec.seccomp, "SCMP_ACT_ERRNO"));
    assert_true(docker.settings.promise.has_profile && docker.settings.promise.has_filter);
    docker_spec(&docker, DOCKER_PROJECT, &IMAGE, &spec);
    assert_int_equal(spec.work_mb, 128);
    assert_int_equal(spec.preboot, GUEST_PREBOOT_NONE);
    assert_int_equal(docker.settings.pool_sizes[DOCKER_SNIPPET], 4);
    assert_int_equal(docker.settings.pool_sizes[DOCKER_PROJECT], 1);
    assert_int_equal(docker.settings.idle_ms, 30 * 60 * 1000);
    forget(&docker);
}

static void gvisor_gets_no_profile_and_its_own_runtime(void **state)
{
    container_spec_t spec;
    (void)state;
    setenv("SANDBOX_DOCKER_RUNTIME", "runc-other", 1);
    docker_t docker = read_settings("gvisor", true);
    docker_spec(&docker, DOCKER_SNIPPET, &IMAGE, &spec);
    assert_string_equal(spec.runtime, "runsc");
    assert_null(spec.seccomp);
    assert_false(docker.settings.promise.has_profile || docker.settings.promise.has_filter);
    docker = read_settings("docker", false);
    docker_spec(&docker, DOCKER_SNIPPET, &IMAGE, &spec);
    assert_string_equal(spec.runtime, "runc-other");
    forget(&docker);
}

static void what_is_set_is_asked_for(void **state)
{
    container_spec_t spec;
    (void)state;
    setenv("SANDBOX_MEMORY_MB", "512", 1);
    setenv("SANDBOX_CPUS", "0.5", 1);
    setenv("SANDBOX_PIDS", "300", 1);
    setenv("SANDBOX_GUEST_UID", "61100", 1);
    docker_t docker = read_settings("docker", false);
    docker_spec(&docker, DOCKER_PROJECT, &IMAGE, &spec);
    assert_int_equal(spec.memory_bytes, 512 * 1024 * 1024);
    assert_int_equal(spec.nano_cpus, 500000000);
    assert_int_equal(spec.pids, 300);
    assert_int_equal(spec.uid, 61100);
    forget(&docker);
}

/* One budget: 16 and 16, and /work has the rest, at least 1 MiB. */
static void the_disk_is_one_budget(void **state)
{
    static const struct {
        const char *disk;
        unsigned work_mb;
    } rows[] = {{"32", 0}, {"33", 1}, {"34", 2}, {"160", 128}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        container_spec_t spec;
        setenv("SANDBOX_DISK_MB", rows[i].disk, 1);
        docker_t docker = read_settings("docker", false);
        docker_spec(&docker, DOCKER_PROJECT, &IMAGE, &spec);
        assert_int_equal(spec.work_mb, rows[i].work_mb);
        assert_int_equal(docker.problem[0] != '\0', rows[i].work_mb == 0);
        forget(&docker);
    }
}

static void the_seccomp_setting_decides_what_is_sent(void **state)
{
    (void)state;
    setenv("SANDBOX_DOCKER_SECCOMP", "unconfined", 1);
    docker_t docker = read_settings("docker", false);
    assert_string_equal(docker.settings.seccomp, "unconfined");
    assert_false(docker.settings.promise.has_filter);
    forget(&docker);
    setenv("SANDBOX_DOCKER_SECCOMP", "default", 1);
    docker = read_settings("docker", false);
    assert_null(docker.settings.seccomp);
    assert_true(docker.settings.promise.has_filter && !docker.settings.promise.has_profile);
    assert_string_equal(docker.problem, "");
    setenv("SANDBOX_DOCKER_SECCOMP", "/nowhere/profile.json", 1);
    docker = read_settings("docker", false);
    assert_null(docker.settings.seccomp);
    assert_string_not_equal(docker.problem, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_the_specification_s),
        TEST(gvisor_gets_no_profile_and_its_own_runtime),
        TEST(what_is_set_is_asked_for),
        TEST(the_disk_is_one_budget),
        TEST(the_seccomp_setting_decides_what_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
