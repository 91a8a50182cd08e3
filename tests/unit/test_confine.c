/*
 * What is left of root in a role: nothing, or exactly the one group and the one capability its wall asked for. Read
 * from /proc in a child that confined itself.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "backends/confine.h"

enum {
    UID = 61010,
    GID = 61011,
    GROUP = 61012,
    SYS_PTRACE_BIT = 1 << 19, /* capabilities(7) */
};

typedef struct {
    const backend_privileges_t *keep;
    pid_t other; /* a process of another user */
} asked_t;

static const backend_privileges_t KEEP_ALL = {.group = GROUP, .sees_processes = true};
static const backend_privileges_t KEEP_GROUP = {.group = GROUP};

static bool has_line(const char *status, const char *line)
{
    char whole[128];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    return strstr(status, whole) != NULL;
}

static void read_status(char *out, size_t size)
{
    FILE *file = fopen("/proc/self/status", "r");
    size_t len = file != NULL ? fread(out, 1, size - 1, file) : 0;
    out[len] = '\0';
    if (file != NULL)
        fclose(file);
}

static bool has_sets(const char *status, uint64_t bits)
{
    char permitted[64], effective[64];
    snprintf(permitted, sizeof(permitted), "CapPrm:\t%016llx", (unsigned long long)bits);
    snprintf(effective, sizeof(effective), "CapEff:\t%016llx", (unsigned long long)bits);
    return has_line(status, permitted) && has_line(status, effective) &&
           has_line(status, "CapInh:\t0000000000000000") && has_line(status, "CapAmb:\t0000000000000000");
}

/* A child's exit code is the number of the first thing that is not so. */
static int in_child(int (*fn)(const asked_t *), const asked_t *asked)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fn(asked));
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int keeps_exactly_those(const asked_t *asked)
{
    char status[8192], path[64], link[256];
    struct stat exe, own;
    if (backend_confine_keeping(UID, GID, &KEEP_ALL) != NULL)
        return 1;
    read_status(status, sizeof(status));
    if (!has_line(status, "Uid:\t61010\t61010\t61010\t61010") || !has_line(status, "Gid:\t61011\t61011\t61011\t61011"))
        return 2;
    if (!has_line(status, "Groups:\t61012 "))
        return 3;
    if (!has_sets(status, SYS_PTRACE_BIT))
        return 4;
    if (!has_line(status, "NoNewPrivs:\t1"))
        return 5;
    /* What it is for: the program of another user's process. */
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)asked->other);
    if (readlink(path, link, sizeof(link)) <= 0 || stat(path, &exe) != 0 || stat("/proc/self/exe", &own) != 0 ||
        exe.st_ino != own.st_ino || exe.st_dev != own.st_dev)
        return 6;
    return setuid(0) == 0 || seteuid(0) == 0 || setgid(0) == 0 ? 7 : 0;
}

static int keeps_the_group_alone(const asked_t *asked)
{
    char status[8192], path[64], link[256];
    if (backend_confine_keeping(UID, GID, &KEEP_GROUP) != NULL)
        return 1;
    read_status(status, sizeof(status));
    if (!has_line(status, "Groups:\t61012 ") || !has_sets(status, 0))
        return 2;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)asked->other);
    return readlink(path, link, sizeof(link)) < 0 && errno == EACCES ? 0 : 3;
}

static int keeps_nothing(const asked_t *asked)
{
    char status[8192];
    if ((asked->keep == NULL ? backend_confine(UID, GID) : backend_confine_keeping(UID, GID, asked->keep)) != NULL)
        return 1;
    read_status(status, sizeof(status));
    if (!has_line(status, "Uid:\t61010\t61010\t61010\t61010") || !has_line(status, "Gid:\t61011\t61011\t61011\t61011"))
        return 2;
    if (!has_line(status, "Groups:\t "))
        return 3;
    return has_sets(status, 0) && setuid(0) != 0 ? 0 : 4;
}

static int a_program_gets_nothing(const asked_t *asked)
{
    (void)asked;
    if (backend_confine_keeping(UID, GID, &KEEP_ALL) != NULL)
        return 1;
    execl("/bin/sh", "sh", "-c",
          "grep -q '^CapPrm:.0000000000000000$' /proc/self/status && "
          "grep -q '^CapEff:.0000000000000000$' /proc/self/status",
          (char *)NULL);
    return 2;
}

static int traces(const asked_t *asked)
{
    if (backend_confine_keeping(UID, GID, &KEEP_ALL) != NULL)
        return 1;
    return ptrace(PTRACE_SEIZE, asked->other, NULL, NULL) == 0 ? 2 : 3;
}

static int without_the_capability(const asked_t *asked)
{
    (void)asked;
    prctl(PR_CAPBSET_DROP, 19, 0, 0, 0);
    execl("/proc/self/exe", "test_confine", "--confined", (char *)NULL);
    return 1;
}

/* Started again without CAP_SYS_PTRACE in reach: what was never there is not kept, and the role still starts. */
static int confined_again(void)
{
    char status[8192];
    if (backend_confine_keeping(UID, GID, &KEEP_ALL) != NULL)
        return 11;
    read_status(status, sizeof(status));
    return has_sets(status, 0) && has_line(status, "Groups:\t61012 ") ? 0 : 12;
}

static pid_t other_user(void)
{
    int ready[2];
    char byte = 1;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        /* dumpable, as a sandbox's process is */
        if (setgid(GID + 100) != 0 || setuid(UID + 100) != 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void root_only(void)
{
    if (geteuid() != 0)
        skip(); /* only root has anything to give up */
}

static void test_role_keeps_exactly_group_and_capability(void **state)
{
    (void)state;
    root_only();
    asked_t asked = {.other = other_user()};
    int all = in_child(keeps_exactly_those, &asked), group = in_child(keeps_the_group_alone, &asked);
    kill(asked.other, SIGKILL);
    waitpid(asked.other, NULL, 0);
    assert_int_equal(all, 0);
    assert_int_equal(group, 0);
}

static void test_other_roles_keep_nothing(void **state)
{
    static const backend_privileges_t none = {.group = -1};
    (void)state;
    root_only();
    assert_int_equal(in_child(keeps_nothing, &(asked_t){.keep = NULL}), 0);
    assert_int_equal(in_child(keeps_nothing, &(asked_t){.keep = &none}), 0);
}

static void test_a_started_program_has_no_capability(void **state)
{
    (void)state;
    root_only();
    assert_int_equal(in_child(a_program_gets_nothing, &(asked_t){0}), 0);
}

static void test_tracing_is_fatal_with_the_capability_too(void **state)
{
    (void)state;
    root_only();
    asked_t asked = {.other = other_user()};
    int outcome = in_child(traces, &asked);
    kill(asked.other, SIGKILL);
    waitpid(asked.other, NULL, 0);
    assert_int_equal(outcome, backend_confine_has_filter() ? 1000 + SIGSYS : 2);
}

static void test_a_capability_that_is_not_there_is_not_kept(void **state)
{
    (void)state;
    root_only();
    assert_int_equal(in_child(without_the_capability, &(asked_t){0}), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_role_keeps_exactly_group_and_capability),
        cmocka_unit_test(test_other_roles_keep_nothing),
        cmocka_unit_test(test_a_started_program_has_no_capability),
        cmocka_unit_test(test_tracing_is_fatal_with_the_capability_too),
        cmocka_unit_test(test_a_capability_that_is_not_there_is_not_kept),
    };
    if (argc == 2 && strcmp(argv[1], "--confined") == 0)
        return confined_again();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
