/* The sandbox's process and the machine's tasks, in /proc: E3 and E4. */
#include "backends/docker/evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/docker/evidence_file.h"
#include "core/co.h"
#include "core/mem.h"

enum {
    COMMAND_MAX = 16 * 1024, /* bytes of a command line that are looked at */
    TASKS_A_SLICE = 128,     /* looked at before giving way: some milliseconds */
    TASKS_MAX = 1000 * 1000,
};

ssize_t evidence_file_read(const char *path, char *out, size_t size)
{
    size_t len = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    while (len < size - 1 && (n = read(fd, out + len, size - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    out[len] = '\0';
    return n < 0 ? -1 : (ssize_t)len;
}

static bool fail(char why[BACKEND_TEXT_MAX], const char *what)
{
    snprintf(why, BACKEND_TEXT_MAX, "%s", what);
    return false;
}

/* --- E3 --- */

typedef struct {
    char text[COMMAND_MAX];
    size_t len;
} command_t;

static bool has_argument(const command_t *command, const char *argument)
{
    for (const char *p = command->text; p < command->text + command->len; p += strlen(p) + 1) {
        if (strcmp(p, argument) == 0)
            return true;
    }
    return false;
}

/* "--name=value"; one without a value is passed on with or without its "=true". */
static bool has_flag(const command_t *command, const char *name, const char *value)
{
    char with_value[EVIDENCE_FLAG_BYTES_MAX + 64], alone[EVIDENCE_FLAG_BYTES_MAX + 64];
    snprintf(with_value, sizeof(with_value), "--%s=%s", name, value);
    snprintf(alone, sizeof(alone), "--%s", name);
    return has_argument(command, with_value) || (strcmp(value, "true") == 0 && has_argument(command, alone));
}

static evidence_look_t see(evidence_look_t look, char why[BACKEND_TEXT_MAX], const char *what)
{
    snprintf(why, BACKEND_TEXT_MAX, "%s", what);
    return look;
}

static evidence_look_t look_at_program(const evidence_host_t *host, const evidence_runtime_t *runtime, pid_t pid,
                                       char why[BACKEND_TEXT_MAX])
{
    char path[EVIDENCE_PATH_MAX];
    struct stat program;
    if (!runtime->is_file) {
        snprintf(why, BACKEND_TEXT_MAX, "%.160s, the registered runtime, cannot be read on this machine",
                 runtime->path);
        return EVIDENCE_UNSEEN;
    }
    snprintf(path, sizeof(path), "%s/%d/exe", host->proc, (int)pid);
    if (stat(path, &program) == 0) {
        if (program.st_dev == runtime->device && program.st_ino == runtime->inode)
            return EVIDENCE_HOLDS;
        return see(EVIDENCE_REFUTED, why, "the sandbox's process does not run the registered runtime's file");
    }
    if (errno == EACCES || errno == EPERM)
        return see(EVIDENCE_UNSEEN, why,
                   "no right to see which program the sandbox's process runs: start plimsolld as root, or set "
                   "SANDBOX_GVISOR_EVIDENCE=registered");
    return see(EVIDENCE_UNSEEN, why, "the sandbox's process is not to be found among this machine's");
}

static evidence_look_t look_at_command(const evidence_host_t *host, const evidence_runtime_t *runtime, pid_t pid,
                                       const char *container_id, char why[BACKEND_TEXT_MAX])
{
    /* Flags that decide what a guest reaches. Others may be missing there: a default is not passed on. */
    static const char *const flags[] = {"network", "host-uds", "fsgofer-host-uds"};
    char path[EVIDENCE_PATH_MAX];
    command_t *command = mem_alloc(sizeof(*command));
    evidence_look_t look = EVIDENCE_HOLDS;
    snprintf(path, sizeof(path), "%s/%d/cmdline", host->proc, (int)pid);
    ssize_t len = evidence_file_read(path, command->text, sizeof(command->text));
    command->len = len > 0 ? (size_t)len : 0;
    if (len < 0)
        look = see(EVIDENCE_UNSEEN, why, "the command line of the sandbox's process cannot be read");
    else if (strcmp(command->text, "runsc-sandbox") != 0 || !has_argument(command, "boot") ||
             !has_argument(command, container_id))
        look =
            see(EVIDENCE_REFUTED, why, "the sandbox's process does not say it is gVisor's sandbox of this container");
    for (size_t i = 0; look == EVIDENCE_HOLDS && i < sizeof(flags) / sizeof(flags[0]); ++i) {
        const char *value = evidence_flag(runtime, flags[i]);
        if (value != NULL && !has_flag(command, flags[i], value)) {
            snprintf(why, BACKEND_TEXT_MAX, "the sandbox's process was started without the registered flag --%s",
                     flags[i]);
            look = EVIDENCE_REFUTED;
        }
    }
    free(command);
    return look;
}

static bool is_in_cgroup(const evidence_host_t *host, pid_t pid, const char *container_id)
{
    char path[EVIDENCE_PATH_MAX], groups[8192];
    snprintf(path, sizeof(path), "%s/%d/cgroup", host->proc, (int)pid);
    return evidence_file_read(path, groups, sizeof(groups)) > 0 && strstr(groups, container_id) != NULL;
}

evidence_look_t evidence_sandbox_process(const evidence_host_t *host, const evidence_runtime_t *runtime, pid_t pid,
                                         const char *container_id, char why[BACKEND_TEXT_MAX])
{
    if (pid <= 0)
        return see(EVIDENCE_UNSEEN, why, "the Engine names no process of the sandbox");
    evidence_look_t look = look_at_program(host, runtime, pid, why);
    if (look == EVIDENCE_HOLDS)
        look = look_at_command(host, runtime, pid, container_id, why);
    if (look == EVIDENCE_HOLDS && !is_in_cgroup(host, pid, container_id))
        look = see(EVIDENCE_REFUTED, why, "the sandbox's process is not in the container's cgroup");
    return look;
}

/* --- E4 --- */

static bool is_program(const evidence_host_t *host, pid_t pid, const char *program, bool *is_readable)
{
    char path[EVIDENCE_PATH_MAX], target[EVIDENCE_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%d/exe", host->proc, (int)pid);
    ssize_t len = readlink(path, target, sizeof(target) - 1);
    *is_readable = len > 0;
    if (len <= 0)
        return false;
    target[len] = '\0';
    /* The kernel marks a file that has no name any more. */
    return strncmp(target, program, strlen(program)) == 0 &&
           (target[strlen(program)] == '\0' || strcmp(target + strlen(program), " (deleted)") == 0);
}

static bool is_named(const evidence_host_t *host, pid_t pid, const char *name)
{
    char path[EVIDENCE_PATH_MAX], held[64];
    snprintf(path, sizeof(path), "%s/%d/comm", host->proc, (int)pid);
    if (evidence_file_read(path, held, sizeof(held)) <= 0)
        return false;
    held[strcspn(held, "\n")] = '\0';
    return strcmp(held, name) == 0;
}

static pid_t pid_of(const char *name)
{
    char *end;
    long pid = strtol(name, &end, 10);
    return name[0] >= '1' && name[0] <= '9' && *end == '\0' && pid <= INT32_MAX ? (pid_t)pid : 0;
}

static void look_at(const evidence_host_t *host, pid_t task, pid_t sandbox, const char *container_id,
                    const char *program, const char *name, evidence_tasks_t *out)
{
    bool is_readable = false;
    /* The program first: most tasks are out after one call, and only a match needs its cgroup. */
    bool is_guests = is_program(host, task, program, &is_readable);
    if (is_guests && is_in_cgroup(host, task, container_id))
        ++out->by_program;
    if (task == sandbox)
        out->saw_sandbox = is_readable;
    if (name != NULL && is_named(host, task, name))
        ++out->by_name;
}

bool evidence_tasks(const evidence_host_t *host, pid_t pid, const char *container_id, const char *program,
                    const char *name, evidence_tasks_t *out, char why[BACKEND_TEXT_MAX])
{
    DIR *dir = opendir(host->proc);
    struct dirent *entry;
    size_t seen = 0;
    memset(out, 0, sizeof(*out));
    if (dir == NULL)
        return fail(why, "the machine's processes cannot be listed");
    while ((entry = readdir(dir)) != NULL && seen < TASKS_MAX) {
        pid_t task = pid_of(entry->d_name);
        if (task == 0)
            continue;
        look_at(host, task, pid, container_id, program, name, out);
        if (++seen % TASKS_A_SLICE == 0 && co_self() != NULL && co_sleep(0) == CO_CANCELED)
            break;
    }
    closedir(dir);
    return entry == NULL || fail(why, "the look at the machine's processes was cut short");
}
