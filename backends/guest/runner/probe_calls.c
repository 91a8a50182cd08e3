/*
 * The system calls that the seccomp profile removes (spec backend-docker 6.2, items 3 and 4), each made so that it does
 * no harm where it is allowed: with bad addresses, closed descriptors, and values that change nothing. What one does is
 * told by its errno: a filter says EPERM or ENOSYS, a kernel that took the call mostly something else.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/guest/runner/probe_checks.h"
#include "backends/guest/runner/probe_json.h"

#define BAD ((long)1) /* an address nothing is at */

typedef struct {
    const char *name;
    long number, args[6];
} call_t;

#define CALL(name, ...)                                                                                                \
    {                                                                                                                  \
#name, SYS_##name,                                                                                             \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static const call_t CALLS[] = {
    CALL(ptrace, 9999, 0), /* no such request */
    CALL(process_vm_readv, 1, BAD, 1, BAD, 1, 0),
    CALL(process_vm_writev, 1, BAD, 1, BAD, 1, 0),
    CALL(kcmp, 1, 1, 0, 0, 0),
    CALL(pidfd_getfd, -1, 0, 0),
    CALL(process_madvise, -1, BAD, 1, 0, 0),
    CALL(io_uring_setup, 0, BAD),
    CALL(io_uring_enter, -1, 0, 0, 0, 0, 0),
    CALL(io_uring_register, -1, 0, 0, 0),
    CALL(bpf, 0, BAD, 1),
    CALL(perf_event_open, BAD, 0, -1, -1, 0),
    CALL(userfaultfd, -1),
    CALL(keyctl, 0, -1, 0), /* KEYCTL_GET_KEYRING_ID, without making one */
    CALL(add_key, BAD, BAD, 0, 0, 0),
    CALL(request_key, BAD, BAD, 0, 0),
    CALL(unshare, 0x10000000 /* CLONE_NEWUSER */),
    CALL(setns, -1, 0),
    CALL(mount, BAD, BAD, BAD, 0, 0),
    CALL(umount2, BAD, 0),
    CALL(open_tree, -1, BAD, 0),
    CALL(move_mount, -1, BAD, -1, BAD, 0),
    CALL(fsopen, BAD, 0),
    CALL(fsconfig, -1, 0, 0, 0, 0),
    CALL(fsmount, -1, 0, 0),
    CALL(fspick, -1, BAD, 0),
    CALL(mount_setattr, -1, BAD, 0, BAD, 0),
    CALL(chroot, BAD),
    CALL(pivot_root, BAD, BAD),
    CALL(name_to_handle_at, -1, BAD, BAD, BAD, 0),
    CALL(open_by_handle_at, -1, BAD, 0),
#ifdef SYS_modify_ldt
    CALL(modify_ldt, 0, BAD, 0),
#endif
    CALL(init_module, BAD, 0, BAD),
    CALL(finit_module, -1, BAD, 0),
    CALL(delete_module, BAD, 0),
    CALL(kexec_load, 0, 0, BAD, 0),
#ifdef SYS_kexec_file_load
    CALL(kexec_file_load, -1, -1, 0, BAD, 0),
#endif
    CALL(reboot, 0, 0, 0, 0), /* without its magic numbers */
    CALL(swapon, BAD, 0),
    CALL(swapoff, BAD),
    CALL(settimeofday, BAD, 0),
    CALL(clock_settime, 0, BAD),
    CALL(adjtimex, BAD),
    CALL(clock_adjtime, 0, BAD),
    CALL(shmget, 0, 0, 0), /* of no size */
    CALL(shmat, -1, 0, 0),
    CALL(shmctl, -1, 0, 0),
    CALL(shmdt, BAD),
    CALL(semget, 0, -1, 0),
    CALL(semop, -1, BAD, 1),
    CALL(semtimedop, -1, BAD, 1, 0),
    CALL(semctl, -1, 0, 0, 0),
    CALL(msgget, 0x7fffffff, 0), /* a queue that is not there */
    CALL(msgsnd, -1, BAD, 0, 0),
    CALL(msgrcv, -1, BAD, 0, 0, 0),
    CALL(msgctl, -1, 0, 0),
    CALL(mq_open, BAD, 0, 0, 0),
    CALL(mq_unlink, BAD),
    CALL(mq_timedsend, -1, BAD, 0, 0, 0),
    CALL(mq_timedreceive, -1, BAD, 0, 0, 0),
    CALL(mq_notify, -1, 0),
    CALL(mq_getsetattr, -1, 0, 0),
    CALL(seccomp, 2, 0, BAD), /* SECCOMP_GET_ACTION_AVAIL */
    CALL(setuid, -1),         /* no user has that number */
    CALL(setgid, -1),
    CALL(setreuid, -1, -1),
    CALL(setregid, -1, -1),
    CALL(setresuid, -1, -1, -1),
    CALL(setresgid, -1, -1, -1),
    CALL(setfsuid, -1),
    CALL(setfsgid, -1),
    CALL(setgroups, -1, BAD),
    CALL(capset, BAD, BAD),
    CALL(vmsplice, -1, BAD, 0, 0),
    CALL(io_setup, 0, BAD),
    CALL(io_destroy, 0),
    CALL(io_submit, 0, 0, 0),
    CALL(io_cancel, 0, BAD, BAD),
    CALL(io_getevents, 0, 0, 0, 0, 0),
    CALL(io_pgetevents, 0, 0, 0, 0, 0, 0),
    CALL(landlock_create_ruleset, BAD, 0, 0),
    CALL(landlock_add_rule, -1, 0, BAD, 0),
    CALL(landlock_restrict_self, -1, 0),
    CALL(memfd_create, BAD, 0),
    CALL(execveat, -1, BAD, 0, 0, 0),
    CALL(fanotify_init, -1, 0),
    CALL(acct, BAD),
    CALL(syslog, 99, 0, 0), /* no such action */
    CALL(sethostname, BAD, -1),
    CALL(setxattr, BAD, BAD, BAD, 0, 0),
    CALL(migrate_pages, -1, 0, 0, 0),
    CALL(move_pages, -1, 0, 0, 0, 0, 0),
    /* By argument (6.1). */
    CALL(personality, 0x0040000 /* ADDR_NO_RANDOMIZE */),
    CALL(pkey_alloc, 0, 0),
    CALL(clone3, BAD, 0),
};

/* Socket families: local ones only. Types are what each family is mostly asked for. */
static const struct {
    const char *name;
    int family, type, protocol;
} SOCKETS[] = {
    {"unix", AF_UNIX, SOCK_STREAM, 0},
    {"inet", AF_INET, SOCK_STREAM, 0},
    {"inet_datagram", AF_INET, SOCK_DGRAM, 0},
    {"inet_raw", AF_INET, SOCK_RAW, 1},
    {"inet6", AF_INET6, SOCK_STREAM, 0},
    {"netlink", AF_NETLINK, SOCK_RAW, 0},
    {"packet", AF_PACKET, SOCK_RAW, 0},
    {"vsock", AF_VSOCK, SOCK_STREAM, 0},
    {"alg", AF_ALG, SOCK_SEQPACKET, 0},
    {"bluetooth", AF_BLUETOOTH, SOCK_RAW, 1},
    {"key", AF_KEY, SOCK_RAW, 2},
    {"xdp", AF_XDP, SOCK_RAW, 0},
    {"can", AF_CAN, SOCK_RAW, 1},
    {"tipc", AF_TIPC, SOCK_RDM, 0},
};

/* Namespaces through clone, in the raw call: the child ends at once. */
static const struct {
    const char *name;
    unsigned long flag;
} NAMESPACES[] = {{"user", CLONE_NEWUSER}, {"net", CLONE_NEWNET},       {"pid", CLONE_NEWPID}, {"mount", CLONE_NEWNS},
                  {"ipc", CLONE_NEWIPC},   {"cgroup", CLONE_NEWCGROUP}, {"uts", CLONE_NEWUTS}};

typedef struct {
    int32_t index, error; /* 0: it did not fail */
} told_t;

enum {
    CALL_COUNT = sizeof(CALLS) / sizeof(CALLS[0]),
    SOCKET_COUNT = sizeof(SOCKETS) / sizeof(SOCKETS[0]),
    NAMESPACE_COUNT = sizeof(NAMESPACES) / sizeof(NAMESPACES[0]),
    TOLD_MAX = 128,
};
_Static_assert(CALL_COUNT <= TOLD_MAX, "room for every call");

static long make_call(size_t i)
{
    const call_t *call = &CALLS[i];
    return syscall(call->number, call->args[0], call->args[1], call->args[2], call->args[3], call->args[4],
                   call->args[5]);
}

static long make_socket(size_t i)
{
    int fd = socket(SOCKETS[i].family, SOCKETS[i].type | SOCK_CLOEXEC, SOCKETS[i].protocol);
    if (fd >= 0)
        close(fd);
    return fd;
}

static long make_namespace(size_t i)
{
    long pid = syscall(SYS_clone, NAMESPACES[i].flag | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid;
}

typedef struct {
    long (*fn)(size_t index);
    size_t first, count;
} batch_t;

static void try_batch(const void *arg, int fd)
{
    const batch_t *batch = arg;
    for (size_t i = batch->first; i < batch->count; ++i) {
        errno = 0;
        long result = batch->fn(i);
        told_t told = {.index = (int32_t)i, .error = result < 0 ? errno : 0};
        if (write(fd, &told, sizeof(told)) < 0)
            _exit(1);
    }
}

/* In one child as long as it lives; where a call ends it, the next child goes on behind that call. */
static void run_batch(const char *field, long (*fn)(size_t), size_t count, const char *(*name_of)(size_t))
{
    static told_t told[TOLD_MAX];
    probe_open(field, '{');
    for (size_t first = 0; first < count;) {
        int signal;
        size_t len = probe_guarded(try_batch, &(batch_t){.fn = fn, .first = first, .count = count}, PROBE_GUARD_S, told,
                                   sizeof(told), &signal);
        size_t told_count = len / sizeof(told_t);
        for (size_t i = 0; i < told_count && first < count; ++i, ++first)
            probe_outcome(name_of(first), told[i].error == 0 ? 0 : -1, told[i].error);
        if (first < count) {
            probe_text(name_of(first), signal != 0 ? "killed" : "no answer");
            ++first;
        }
    }
    probe_close('}');
}

static const char *call_name(size_t i)
{
    return CALLS[i].name;
}

static const char *socket_name(size_t i)
{
    return SOCKETS[i].name;
}

static const char *namespace_name(size_t i)
{
    return NAMESPACES[i].name;
}

/* A device node; a FIFO is what is allowed. */
static long make_node(size_t i)
{
    (void)i;
    return syscall(SYS_mknodat, -1, BAD, S_IFCHR | 0600, 0x0103);
}

static const char *node_name(size_t i)
{
    (void)i;
    return "mknodat";
}

void probe_calls(void)
{
    run_batch("calls", make_call, CALL_COUNT, call_name);
    run_batch("nodes", make_node, 1, node_name);
    run_batch("sockets", make_socket, SOCKET_COUNT, socket_name);
    run_batch("namespaces", make_namespace, NAMESPACE_COUNT, namespace_name);
}
