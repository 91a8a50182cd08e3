#include "backends/docker/smoke_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/smoke_places.h"
#include "backends/docker/smoke_words.h"

/* Brackets outside of strings: the parser recurses for each, on a coroutine's small stack. */
static bool is_shallow(const char *text, size_t len)
{
    int depth = 0;
    bool is_string = false;
    for (size_t i = 0; i < len; ++i) {
        if (is_string && text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            is_string = !is_string;
        else if (!is_string && (text[i] == '{' || text[i] == '[') && ++depth > SMOKE_REPORT_DEPTH_MAX)
            return false;
        else if (!is_string && (text[i] == '}' || text[i] == ']'))
            --depth;
    }
    return true;
}

json_t *smoke_report_read(const void *bytes, size_t len, char why[BACKEND_TEXT_MAX])
{
    json_t *report;
    if (len == 0 || len > SMOKE_REPORT_MAX || !is_shallow(bytes, len)) {
        snprintf(why, BACKEND_TEXT_MAX, "the probe's report is %s",
                 len == 0                 ? "empty"
                 : len > SMOKE_REPORT_MAX ? "too long"
                                          : "nested too deep");
        return NULL;
    }
    report = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL);
    if (json_integer_value(json_object_get(report, "probe")) == 1)
        return report;
    snprintf(why, BACKEND_TEXT_MAX, "the probe's report is not one");
    json_decref(report);
    return NULL;
}

/* --- S1 to S4 --- */

static bool are_all(const json_t *list, size_t count_min, uint32_t id)
{
    size_t i;
    json_t *element;
    if (!json_is_array(list) || json_array_size(list) < count_min)
        return false;
    json_array_foreach(list, i, element)
    {
        if (!json_is_integer(element) || json_integer_value(element) != (json_int_t)id)
            return false;
    }
    return true;
}

/* Real, effective, saved and file system's. */
static bool judge_ids(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    uint32_t uid = expect->promise->uid;
    if (are_all(json_object_get(report, "uids"), 4, uid) && are_all(json_object_get(report, "gids"), 4, uid) &&
        are_all(json_object_get(report, "groups"), 0, uid))
        return true;
    snprintf(why, BACKEND_TEXT_MAX, "S1: the guest is not user and group %u alone", (unsigned)uid);
    return false;
}

static bool is_zero(const json_t *sets, const char *name, bool is_needed)
{
    const char *text = json_string_value(json_object_get(sets, name));
    if (text == NULL)
        return !is_needed;
    return text[0] != '\0' && strspn(text, "0") == strlen(text);
}

static bool judge_capabilities(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    const json_t *sets = json_object_get(report, "capabilities");
    const char *no_new = json_string_value(json_object_get(report, "no_new_privs"));
    if (!is_zero(sets, "permitted", true) || !is_zero(sets, "effective", true) || !is_zero(sets, "bounding", true) ||
        !is_zero(sets, "inheritable", true) || !is_zero(sets, "ambient", false))
        return smoke_fail(why, "S2: the guest has capabilities");
    /* gVisor 20221219 has no such line. */
    if (no_new != NULL ? strcmp(no_new, "1") != 0 : !expect->is_gvisor)
        return smoke_fail(why, "S2: the guest may gain privileges, NoNewPrivs is not 1");
    return true;
}

static bool judge_filter(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    const char *mode = json_string_value(json_object_get(report, "seccomp"));
    const char *filters = json_string_value(json_object_get(report, "seccomp_filters"));
    if (expect->is_gvisor || !expect->promise->has_filter)
        return true;
    /* Kernels before 5.9 do not count the filters. */
    if (mode == NULL || strcmp(mode, "2") != 0 || (filters != NULL && strcmp(filters, "0") == 0))
        return smoke_fail(why, "S3: no seccomp filter is in force");
    return true;
}

static bool judge_network(const json_t *report, char why[BACKEND_TEXT_MAX])
{
    const json_t *interfaces = json_object_get(report, "interfaces");
    size_t i;
    json_t *element;
    if (strcmp(smoke_word(report, "interfaces_read"), "ok") != 0 || !json_is_array(interfaces) ||
        json_array_size(interfaces) == 0)
        return smoke_fail(why, "S4: the sandbox' network interfaces could not be read");
    json_array_foreach(interfaces, i, element)
    {
        const char *name = json_string_value(element);
        if (name == NULL || strcmp(name, "lo") != 0)
            return smoke_fail_word(why, "S4: the sandbox has the network interface ", name);
    }
    return true;
}

/* --- S13 --- */

static bool judge_runner(const json_t *report, char why[BACKEND_TEXT_MAX])
{
    /* EFAULT would mean that it was allowed to look. */
    static const char *const must_fail[] = {"mem", "ptrace", "process_vm_readv", "pidfd_getfd"};
    const json_t *runner = json_object_get(report, "runner");
    for (size_t i = 0; i < sizeof(must_fail) / sizeof(must_fail[0]); ++i) {
        const char *word = smoke_word(runner, must_fail[i]);
        if (!smoke_is_errno(word) || strcmp(word, "EFAULT") == 0) {
            snprintf(why, BACKEND_TEXT_MAX, "S13: a guest can reach the runner's memory or descriptors: %s",
                     must_fail[i]);
            return false;
        }
    }
    return true;
}

bool smoke_report_has_protected_fds(const json_t *report)
{
    const json_t *runner = json_object_get(report, "runner");
    return smoke_is_errno(smoke_word(runner, "fd0")) && smoke_is_errno(smoke_word(runner, "fd1"));
}

/* --- S19 --- */

static bool are_denied(const json_t *report, const char *group, const char *const *names, size_t count,
                       char why[BACKEND_TEXT_MAX])
{
    const json_t *told = json_object_get(report, group);
    for (size_t i = 0; i < count; ++i) {
        if (!smoke_is_denied(smoke_word(told, names[i]))) {
            snprintf(why, BACKEND_TEXT_MAX, "S19: the seccomp profile does not deny %s (%s): %.64s", names[i], group,
                     smoke_is_errno(smoke_word(told, names[i])) ? smoke_word(told, names[i]) : "it was let through");
            return false;
        }
    }
    return true;
}

static bool judge_calls(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    /* Spec 6.2, items 3 and 4. */
    static const char *const calls[] = {"ptrace",
                                        "process_vm_readv",
                                        "process_vm_writev",
                                        "kcmp",
                                        "pidfd_getfd",
                                        "io_uring_setup",
                                        "io_uring_enter",
                                        "io_uring_register",
                                        "bpf",
                                        "perf_event_open",
                                        "userfaultfd",
                                        "keyctl",
                                        "add_key",
                                        "request_key",
                                        "unshare",
                                        "setns",
                                        "mount",
                                        "umount2",
                                        "open_tree",
                                        "move_mount",
                                        "fsopen",
                                        "fsconfig",
                                        "fsmount",
                                        "fspick",
                                        "mount_setattr",
                                        "chroot",
                                        "pivot_root",
                                        "name_to_handle_at",
                                        "open_by_handle_at",
                                        "init_module",
                                        "finit_module",
                                        "delete_module",
                                        "kexec_load",
                                        "reboot",
                                        "swapon",
                                        "swapoff",
                                        "settimeofday",
                                        "clock_settime",
                                        "adjtimex",
                                        "clock_adjtime",
                                        "shmget",
                                        "shmat",
                                        "shmctl",
                                        "shmdt",
                                        "semget",
                                        "semop",
                                        "semtimedop",
                                        "semctl",
                                        "msgget",
                                        "msgsnd",
                                        "msgrcv",
                                        "msgctl",
                                        "mq_open",
                                        "mq_unlink",
                                        "mq_timedsend",
                                        "mq_timedreceive",
                                        "mq_notify",
                                        "mq_getsetattr",
                                        "seccomp",
                                        "setuid",
                                        "setgid",
                                        "setreuid",
                                        "setregid",
                                        "setresuid",
                                        "setresgid",
                                        "setfsuid",
                                        "setfsgid",
                                        "setgroups",
                                        "capset",
                                        "vmsplice",
                                        "io_setup",
                                        "io_destroy",
                                        "io_submit",
                                        "io_cancel",
                                        "io_getevents",
                                        "io_pgetevents",
                                        "landlock_create_ruleset",
                                        "landlock_add_rule",
                                        "landlock_restrict_self",
                                        "memfd_create",
                                        "execveat",
                                        "personality",
                                        "pkey_alloc",
                                        "clone3"};
    static const char *const sockets[] = {"inet", "inet_datagram", "inet_raw", "inet6", "netlink", "packet", "vsock",
                                          "alg",  "bluetooth",     "key",      "xdp",   "can",     "tipc"};
    static const char *const namespaces[] = {"user", "net", "pid", "mount", "ipc", "cgroup", "uts"};
    static const char *const nodes[] = {"mknodat"};
    if (!expect->has_calls || expect->is_gvisor || !expect->promise->has_profile)
        return true;
    return are_denied(report, "calls", calls, sizeof(calls) / sizeof(calls[0]), why) &&
           are_denied(report, "sockets", sockets, sizeof(sockets) / sizeof(sockets[0]), why) &&
           are_denied(report, "namespaces", namespaces, sizeof(namespaces) / sizeof(namespaces[0]), why) &&
           are_denied(report, "nodes", nodes, 1, why);
}

bool smoke_report_judge(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    return judge_ids(report, expect, why) && judge_capabilities(report, expect, why) &&
           judge_filter(report, expect, why) && judge_network(report, why) && smoke_places_judge(report, expect, why) &&
           judge_runner(report, why) && judge_calls(report, expect, why);
}

/* --- what is read, not judged here --- */

bool smoke_report_has_socket(const json_t *report)
{
    return strcmp(smoke_word(report, "host_socket"), "ok") == 0;
}

static bool inner_limit(const json_t *report, const char *name, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(json_object_get(report, "limits"), name));
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

void smoke_report_limits(const json_t *report, smoke_inner_limits_t *out)
{
    memset(out, 0, sizeof(*out));
    out->has_pids = inner_limit(report, "pids", &out->pids);
    out->has_memory = inner_limit(report, "memory", &out->memory);
}

void smoke_report_banner(const json_t *report, char *out, size_t size)
{
    const char *banner = json_string_value(json_object_get(json_object_get(report, "kernel"), "banner"));
    smoke_printable(banner != NULL ? banner : "", out, size);
}
