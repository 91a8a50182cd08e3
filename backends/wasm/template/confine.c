#define _GNU_SOURCE
#include "backends/wasm/template/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "backends/wasm/wire.h"
#include "core/slice.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call filter knows x86-64 and aarch64"
#endif

/* seccomp_data is read in 32-bit words; the low word of an argument comes first on the machines above. */
#define ARG_LOW(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define ARG_HIGH(n) (ARG_LOW(n) + 4)

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), RETURN(SECCOMP_RET_ALLOW)
/* Allowed only when argument `n` is exactly `value`; leaves the call's number loaded for the next rule. */
#define ALLOW_WITH(name, n, value)                                                                                     \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 6), LOAD(ARG_HIGH(n)),                                          \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3), LOAD(ARG_LOW(n)),                                                \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1), RETURN(SECCOMP_RET_ALLOW),                                 \
        RETURN(SECCOMP_RET_KILL_PROCESS)
/* The wrong architecture, and on x86-64 the x32 calls (numbers with bit 30), match nothing and die. */
#define PROLOGUE                                                                                                       \
    LOAD(offsetof(struct seccomp_data, arch)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),                 \
        RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(offsetof(struct seccomp_data, nr))

static bool filter_install(struct sock_filter *rules, size_t count)
{
    struct sock_fprog program = {.len = (unsigned short)count, .filter = rules};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* A new user namespace comes with all capabilities over itself: none is wanted. */
static bool drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    return syscall(SYS_capset, &header, none) == 0;
}

static bool limit_to(int resource, rlim_t value)
{
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};
    return setrlimit(resource, &limit) == 0;
}

bool confine_template_early(bool *has_namespaces)
{
    slice_set(SLICE_DEFAULT_US, WASM_NICE);
    *has_namespaces = unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) == 0;
    /* The death signal last: a change of credentials, such as the new user namespace, clears it. */
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && limit_to(RLIMIT_CORE, 0) && drop_capabilities() &&
           prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
}

bool confine_template(void)
{
    struct sock_filter rules[] = {
        PROLOGUE,
        ALLOW(recvmsg),
        ALLOW(sendmsg),
        ALLOW(ppoll),
#ifdef SYS_poll
        ALLOW(poll),
#endif
        ALLOW(read),
        ALLOW(write),
        ALLOW(clone), /* fork */
        ALLOW(wait4),
        ALLOW(pidfd_open),
        ALLOW(close),
        ALLOW(close_range),
        ALLOW(dup3),
        ALLOW(getppid),
        ALLOW(getpid),
        ALLOW(gettid),
        ALLOW(prctl),
        ALLOW(prlimit64),
        ALLOW(setitimer),
        ALLOW(seccomp),
        ALLOW(getrandom),
        ALLOW(clock_gettime),
        ALLOW(mprotect),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(brk),
        ALLOW(set_robust_list),
        ALLOW(rseq),
        ALLOW(rt_sigaction),
        ALLOW(rt_sigreturn),
        ALLOW(rt_sigprocmask),
        ALLOW(sigaltstack),
        ALLOW(restart_syscall),
        ALLOW(exit),
        ALLOW(exit_group),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    return filter_install(rules, sizeof(rules) / sizeof(rules[0]));
}

bool confine_worker_early(int fd, int template_pid)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != template_pid)
        return false; /* the template died between the fork and here */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return false;
    /* The new descriptor is inherited by nothing: there is no exec. */
    if (fd != WORKER_FD && dup3(fd, WORKER_FD, 0) != WORKER_FD)
        return false;
    for (int i = 0; i < WORKER_FD; ++i)
        close(i);
    if (close_range(WORKER_FD + 1, ~0U, 0) != 0)
        return false;
    return limit_to(RLIMIT_NOFILE, 0) && limit_to(RLIMIT_NPROC, 0) && limit_to(RLIMIT_CORE, 0) &&
           limit_to(RLIMIT_FSIZE, 0);
}

bool confine_worker(uint32_t timeout_ms)
{
    struct sock_filter rules[] = {
        PROLOGUE,
        ALLOW_WITH(write, 0, WORKER_FD),
        ALLOW_WITH(read, 0, WORKER_FD),
        ALLOW_WITH(mprotect, 2, PROT_READ | PROT_WRITE), /* growth of linear memory */
        ALLOW(clock_gettime),
        ALLOW(rt_sigreturn),
        ALLOW(rt_sigprocmask),
        ALLOW(exit),
        ALLOW(exit_group),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    uint64_t late_ms = (uint64_t)timeout_ms + WASM_ALARM_MS;
    struct itimerval alarm_at = {
        .it_value = {.tv_sec = (time_t)(late_ms / 1000), .tv_usec = (suseconds_t)(late_ms % 1000) * 1000}};
    /* At the soft limit the kernel sends SIGXCPU, whose default ends the process; the hard one is a second later. */
    rlim_t cpu_s = ((rlim_t)timeout_ms + 999) / 1000 + 1;
    struct rlimit cpu = {.rlim_cur = cpu_s, .rlim_max = cpu_s + 1};
    return setrlimit(RLIMIT_CPU, &cpu) == 0 && setitimer(ITIMER_REAL, &alarm_at, NULL) == 0 &&
           filter_install(rules, sizeof(rules) / sizeof(rules[0]));
}
