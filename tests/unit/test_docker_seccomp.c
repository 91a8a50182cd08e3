/* The guests' seccomp profile: what is built in, and what a setting may name. */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <jansson.h>

#include "backends/docker/seccomp.h"

static char dir[] = "/tmp/seccomp-XXXXXX";
static char path[64];
static char digest[SECCOMP_DIGEST_MAX], failure[SECCOMP_FAILURE_MAX];

static void write_profile(const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void refuse(const char *setting, const char *why)
{
    memset(digest, 'x', sizeof(digest));
    assert_null(docker_seccomp_load(setting, digest, failure));
    assert_string_equal(digest, "");
    if (strstr(failure, why) == NULL)
        fail_msg("%s: %s", setting, failure);
}

static void refuse_text(const char *text, const char *why)
{
    write_profile(text, strlen(text));
    refuse(path, why);
}

/* A profile of `size` bytes: its end is blank. */
static void write_sized(size_t size)
{
    static const char PROFILE[] = "{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"syscalls\": [{}]}";
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, ' ', size);
    memcpy(text, PROFILE, sizeof(PROFILE) - 1);
    write_profile(text, size);
    free(text);
}

static bool allows(const json_t *profile, const char *name)
{
    size_t i, j;
    const json_t *rule, *allowed;
    json_array_foreach(json_object_get(profile, "syscalls"), i, rule)
    {
        json_array_foreach(json_object_get(rule, "names"), j, allowed)
        {
            if (strcmp(json_string_value(allowed), name) == 0 &&
                strcmp(json_string_value(json_object_get(rule, "action")), "SCMP_ACT_ALLOW") == 0)
                return json_object_get(rule, "args") == NULL;
        }
    }
    return false;
}

static void test_the_builtin_profile(void **state)
{
    (void)state;
    json_error_t error;
    json_t *profile = json_loads(docker_seccomp_builtin(), JSON_REJECT_DUPLICATES, &error);
    assert_non_null(profile);
    assert_string_equal(json_string_value(json_object_get(profile, "defaultAction")), "SCMP_ACT_ERRNO");
    /* a string of C in between must not change it */
    json_t *file = json_load_file("backends/docker/seccomp.json", 0, &error);
    assert_non_null(file);
    assert_true(json_equal(profile, file));
    assert_true(allows(profile, "read") && allows(profile, "kill") && allows(profile, "utimes"));
    static const char *const REMOVED[] = {"ptrace", "bpf",     "keyctl", "unshare",      "setns",         "mount",
                                          "setuid", "seccomp", "shmget", "memfd_create", "io_uring_setup"};
    for (size_t i = 0; i < sizeof(REMOVED) / sizeof(REMOVED[0]); ++i)
        assert_false(allows(profile, REMOVED[i]));
    /* by argument only */
    assert_false(allows(profile, "socket") || allows(profile, "clone") || allows(profile, "mknod") ||
                 allows(profile, "personality"));
    json_decref(file);
    json_decref(profile);
}

static void test_the_words(void **state)
{
    (void)state;
    char *text = docker_seccomp_load("builtin", digest, failure);
    assert_string_equal(text, docker_seccomp_builtin());
    assert_int_equal(strlen(digest), 64);
    assert_string_equal(failure, "");
    free(text);
    assert_null(docker_seccomp_load("default", digest, failure));
    assert_string_equal(digest, "");
    assert_string_equal(failure, "");
    text = docker_seccomp_load("unconfined", digest, failure);
    assert_string_equal(text, "unconfined");
    /* printf unconfined | sha256sum */
    assert_string_equal(digest, "042e026efc41192293063c65bcec16e73244ef09f09a68f5982a5bef04906185");
    free(text);
    refuse("", "an absolute path");
    refuse("profile.json", "an absolute path");
}

static void test_a_file(void **state)
{
    (void)state;
    static const char *const DENYING[] = {"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
                                          "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"};
    for (size_t i = 0; i < sizeof(DENYING) / sizeof(DENYING[0]); ++i) {
        char text[128];
        snprintf(text, sizeof(text), "{\"defaultAction\": \"%s\",\n\"syscalls\": [{\"names\": []}]}\n", DENYING[i]);
        write_profile(text, strlen(text));
        char *loaded = docker_seccomp_load(path, digest, failure);
        assert_non_null(loaded);
        assert_string_equal(loaded, text);
        free(loaded);
    }
}

static void test_a_file_that_is_none(void **state)
{
    (void)state;
    refuse("/nonexistent/profile.json", "No such file");
    refuse(dir, "not a regular file");
    refuse_text("", "not a JSON object");
    refuse_text("[]", "not a JSON object");
    refuse_text("{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"syscalls\": [{}]", "not a JSON object");
    refuse_text("{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{}]}",
                "not a JSON object");
    refuse_text("{\"syscalls\": [{}]}", "no defaultAction");
    refuse_text("{\"defaultAction\": 7, \"syscalls\": [{}]}", "no defaultAction");
    refuse_text("{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{}]}", "allows what no rule names");
    refuse_text("{\"defaultAction\": \"SCMP_ACT_LOG\", \"syscalls\": [{}]}", "allows what no rule names");
    refuse_text("{\"defaultAction\": \"SCMP_ACT_ERRNO\"}", "no syscalls");
    refuse_text("{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"syscalls\": []}", "no syscalls");
    write_profile("{}\0x", 4);
    refuse(path, "not text");
}

static void test_a_fifo_does_not_hold_the_start_up(void **state)
{
    (void)state;
    char fifo[80];
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refuse(fifo, "not a regular file");
    unlink(fifo);
}

static void test_a_file_at_its_limit(void **state)
{
    (void)state;
    static const size_t FITS[] = {SECCOMP_PROFILE_MAX - 1, SECCOMP_PROFILE_MAX};
    for (size_t i = 0; i < 2; ++i) {
        write_sized(FITS[i]);
        char *text = docker_seccomp_load(path, digest, failure);
        assert_non_null(text);
        assert_int_equal(strlen(text), FITS[i]);
        free(text);
    }
    write_sized(SECCOMP_PROFILE_MAX + 1);
    refuse(path, "larger than 256 KiB");
}

static void test_a_long_path_is_cut_in_the_failure_only(void **state)
{
    (void)state;
    char longest[4096];
    memset(longest, 'a', sizeof(longest));
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    refuse(longest, "cannot be used: File name too long");
}

static int make_dir(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/profile.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_builtin_profile),
        cmocka_unit_test(test_the_words),
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_a_file_that_is_none),
        cmocka_unit_test(test_a_fifo_does_not_hold_the_start_up),
        cmocka_unit_test(test_a_file_at_its_limit),
        cmocka_unit_test(test_a_long_path_is_cut_in_the_failure_only),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
