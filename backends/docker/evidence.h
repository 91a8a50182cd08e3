/*
 * Host-side evidence for the tier `kernel` (spec backend-docker 3.4). What a guest says of its kernel is imitated in a
 * line; which file the sandbox's process runs, and that no task of this machine runs the guest's program, is not.
 */
#ifndef BACKENDS_DOCKER_EVIDENCE_H
#define BACKENDS_DOCKER_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "backends/backend.h"

enum {
    EVIDENCE_PATH_MAX = 512,
    EVIDENCE_FLAGS_MAX = 16,
    EVIDENCE_FLAG_BYTES_MAX = 128,
    EVIDENCE_VERSION_MAX = 64,
};

/* The registered runtime (E1) and its file (E2). */
typedef struct {
    bool is_gvisor; /* E1: the registered path's base name is runsc */
    char path[EVIDENCE_PATH_MAX];
    char flags[EVIDENCE_FLAGS_MAX][EVIDENCE_FLAG_BYTES_MAX];
    size_t flag_count;
    /* of gVisor's file, read and never run; is_file false when it cannot be read (another machine's, or no right) */
    bool is_file;
    dev_t device;
    ino_t inode;
    char sha256[65];
    char version[EVIDENCE_VERSION_MAX]; /* "" when the file does not say it plainly */
} evidence_runtime_t;

/* How sure the tier is. */
typedef enum { EVIDENCE_NONE, EVIDENCE_REGISTERED, EVIDENCE_OBSERVED } evidence_t;
/* "none", "registered", "observed" */
const char *evidence_name(evidence_t evidence);

/* E1: `info` is the Engine's answer, `name` the runtime's. False when it is not registered there. */
bool evidence_registered(const json_t *info, const char *name, evidence_runtime_t *out);
/* E2. Reads the file in slices, giving way between them when in a coroutine; a file with the device, inode, size and
 * times of the last one read is not read again (one file is remembered in this process). */
void evidence_read_file(evidence_runtime_t *runtime);
/* The value a flag was registered with ("--name=value", "-name=value"; "true" for one without a value); NULL when it
 * was not. `name` is without dashes. */
const char *evidence_flag(const evidence_runtime_t *runtime, const char *name);
/* Whether the registration lets sockets of the host in: --host-uds=open or all, in older releases --fsgofer-host-uds.
 */
bool evidence_has_host_sockets(const evidence_runtime_t *runtime);

/* Where the host's files are: "/proc" and "/sys/fs/cgroup", or a test's. */
typedef struct {
    const char *proc, *cgroup;
} evidence_host_t;
extern const evidence_host_t EVIDENCE_HOST;

/* What a look showed. Only what cannot be seen may be replaced by a registration (SANDBOX_GVISOR_EVIDENCE). */
typedef enum { EVIDENCE_HOLDS, EVIDENCE_UNSEEN, EVIDENCE_REFUTED } evidence_look_t;

/* E3: the process `pid` (State.Pid) is the registered file's, of this container, with the registered flags. `why` says
 * what is not so, or could not be seen. */
evidence_look_t evidence_sandbox_process(const evidence_host_t *host, const evidence_runtime_t *runtime, pid_t pid,
                                         const char *container_id, char why[BACKEND_TEXT_MAX]);
/* E4: the tasks of this machine that run what a guest runs. Under runc they are found; where there are none while the
 * sandbox's runner waits and its probe runs, they are another kernel's. */
typedef struct {
    int by_program;   /* in the container's cgroup, with `program` of the guest image as their program */
    int by_name;      /* anywhere, with the name that the probe gave itself (no right is needed to see that) */
    bool saw_sandbox; /* the look itself works: State.Pid was among them, and its program could be read */
} evidence_tasks_t;
/* In a coroutine or not: gives way between slices when in one. `name` may be NULL. False with the reason when the look
 * was cut short. */
bool evidence_tasks(const evidence_host_t *host, pid_t pid, const char *container_id, const char *program,
                    const char *name, evidence_tasks_t *out, char why[BACKEND_TEXT_MAX]);

/* S10, S11: the limits that hold for the container of `pid`, as the cgroup files of this machine say, version 1 or 2.
 * UINT64_MAX: no limit. False with the reason. */
typedef struct {
    uint64_t pids_max, memory_max;
    uint64_t memory_and_swap_max; /* version 2: memory_max and swap.max */
    bool has_swap_limit;          /* false: this kernel does not account for swap of a group */
} evidence_limits_t;
bool evidence_limits(const evidence_host_t *host, pid_t pid, const char *container_id, evidence_limits_t *out,
                     char why[BACKEND_TEXT_MAX]);

#endif
