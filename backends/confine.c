#include "backends/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_FILTER 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_FILTER 0
#endif
#endif
#ifndef HAS_FILTER
#define HAS_FILTER 1
#endif

/* Calls that change the machine, look into other processes or are known for kernel bugs, and that no role has a use
 * for. Making one is a sign of something else running in this process: it ends. */
static const int FATAL_CALLS[] = {
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(reboot),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(process_madvise),
    SCMP_SYS(kcmp),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(setns),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(vhangup),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(migrate_pages),
    SCMP_SYS(move_pages),
    SCMP_SYS(mknod),
    SCMP_SYS(mknodat),
    SCMP_SYS(lookup_dcookie),
    SCMP_SYS(syslog),
    SCMP_SYS(personality),
};

/* Flags of clone that make a namespace. CLONE_NEWTIME shares its bit with the exit signal and is left to unshare, which
 * is refused. */
static const unsigned long NEW_NAMESPACES[] = {CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC,   CLONE_NEWNS,
                                               CLONE_NEWPID,  CLONE_NEWUTS, CLONE_NEWCGROUP};
/* The one combination the wasm template makes for itself. */
enum { TEMPLATE_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC };

bool backend_confine_has_filter(void)
{
    return HAS_FILTER;
}

static bool limit_core(void)
{
    const struct rlimit none = {0, 0};
    struct rlimit files;
    /* Three descriptors a run and more: as many as the machine's owner gave. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return setrlimit(RLIMIT_CORE, &none) == 0;
}

/* capabilities(7), version 3: two words of 32 for each set. */
typedef struct {
    struct __user_cap_header_struct header;
    struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];
} capabilities_t;

static bool has_capability(int capability)
{
    capabilities_t has = {.header = {.version = _LINUX_CAPABILITY_VERSION_3}};
    return syscall(SYS_capget, &has.header, has.words) == 0 &&
           (has.words[CAP_TO_INDEX(capability)].permitted & CAP_TO_MASK(capability)) != 0;
}

/* Effective and permitted only: a program that is started gets none of it. */
static bool take_only(int capability)
{
    capabilities_t want = {.header = {.version = _LINUX_CAPABILITY_VERSION_3}};
    want.words[CAP_TO_INDEX(capability)].permitted = CAP_TO_MASK(capability);
    want.words[CAP_TO_INDEX(capability)].effective = CAP_TO_MASK(capability);
    return syscall(SYS_capset, &want.header, want.words) == 0 &&
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 && prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) == 0;
}

static bool set_groups(int group)
{
    const gid_t only = (gid_t)group;
    return group >= 0 ? setgroups(1, &only) == 0 : setgroups(0, NULL) == 0;
}

static bool drop_root(int uid, int gid, const backend_privileges_t *keep)
{
    if (geteuid() != 0)
        return true;
    bool keeps_capability = keep->sees_processes && has_capability(CAP_SYS_PTRACE);
    if (keeps_capability && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
        return false;
    return uid > 0 && gid > 0 && set_groups(keep->group) && setresgid((gid_t)gid, (gid_t)gid, (gid_t)gid) == 0 &&
           setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) == 0 && (!keeps_capability || take_only(CAP_SYS_PTRACE)) &&
           setuid(0) != 0;
}

static bool install_filter(void)
{
    bool ok = false;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL)
        return false;
    for (size_t i = 0; i < sizeof(FATAL_CALLS) / sizeof(FATAL_CALLS[0]); ++i) {
        int error = seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, FATAL_CALLS[i], 0);
        if (error != 0 && error != -EDOM && error != -EINVAL) /* a call this machine does not have */
            goto Exit;
    }
    for (size_t i = 0; i < sizeof(NEW_NAMESPACES) / sizeof(NEW_NAMESPACES[0]); ++i) {
        if (seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, NEW_NAMESPACES[i], NEW_NAMESPACES[i])) != 0)
            goto Exit;
    }
    /* Its flags are out of a filter's sight; the C library goes back to clone. */
    if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) != 0 ||
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 1,
                         SCMP_CMP(0, SCMP_CMP_NE, TEMPLATE_NAMESPACES, 0)) != 0)
        goto Exit;
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree instead of a list */
    ok = seccomp_load(filter) == 0;

Exit:
    seccomp_release(filter);
    return ok;
}

const char *backend_confine(int uid, int gid)
{
    return backend_confine_keeping(uid, gid, NULL);
}

const char *backend_confine_keeping(int uid, int gid, const backend_privileges_t *keep)
{
    static const backend_privileges_t nothing = {.group = -1};
    if (!limit_core())
        return "core dumps could not be turned off";
    if (!drop_root(uid, gid, keep != NULL ? keep : &nothing))
        return "root could not be given up";
    /* After the change of user, which sets it by itself and could set it back. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return "dumpable could not be turned off";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return "no_new_privs could not be set";
    if (HAS_FILTER && !install_filter())
        return "the system call filter could not be installed";
    return NULL;
}
