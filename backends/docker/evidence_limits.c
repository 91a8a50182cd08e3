/* The limits that hold for a container, as the kernel of this machine has them (S10, S11): cgroup version 1, where each
 * controller is a tree of its own, and version 2 (cgroups(7)). On a machine with both, the controllers are version 1's.
 */
#include "backends/docker/evidence.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/evidence_file.h"

typedef struct {
    char text[8192]; /* /proc/PID/cgroup */
    const char *root;
} groups_t;

static bool fail(char why[BACKEND_TEXT_MAX], const char *what, const char *which)
{
    snprintf(why, BACKEND_TEXT_MAX, "%s: %.160s", what, which);
    return false;
}

/* Whether a comma-separated list has the word. */
static bool has_word(const char *list, size_t len, const char *word)
{
    for (const char *end = list + len; list < end;) {
        size_t part = strcspn(list, ",");
        if (part > (size_t)(end - list))
            part = (size_t)(end - list);
        if (part == strlen(word) && strncmp(list, word, part) == 0)
            return true;
        list += part + 1;
    }
    return false;
}

/* The path in the line "N:controllers:path" that has the controller; "" names version 2's line. */
static bool find_path(const groups_t *groups, const char *controller, char *out, size_t size)
{
    for (const char *line = groups->text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *controllers = memchr(line, ':', len);
        const char *path =
            controllers != NULL ? memchr(controllers + 1, ':', len - (size_t)(controllers + 1 - line)) : NULL;
        if (path != NULL) {
            size_t list_len = (size_t)(path - controllers - 1);
            if (controller[0] == '\0' ? list_len == 0 : has_word(controllers + 1, list_len, controller)) {
                ++path;
                size_t path_len = len - (size_t)(path - line);
                if (path_len >= size || path[0] != '/')
                    return false;
                snprintf(out, size, "%.*s", (int)path_len, path);
                return true;
            }
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

/* "max", or version 1's largest number rounded to a page, is no limit. */
static bool parse_limit(const char *text, uint64_t *out)
{
    char *end;
    if (strcmp(text, "max\n") == 0) {
        *out = UINT64_MAX;
        return true;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || strcmp(end, "\n") != 0 || errno != 0 || text[0] == '-')
        return false;
    *out = value >= UINT64_C(0x7ffffffffffff000) ? UINT64_MAX : value;
    return true;
}

typedef enum { LIMIT_READ, LIMIT_ABSENT, LIMIT_UNREADABLE } limit_read_t;

static limit_read_t read_limit(const groups_t *groups, const char *tree, const char *path, const char *file,
                               uint64_t *out)
{
    char name[EVIDENCE_PATH_MAX * 2], text[64];
    snprintf(name, sizeof(name), "%s%s%s/%s", groups->root, tree, path, file);
    if (evidence_file_read(name, text, sizeof(text)) < 0)
        return errno == ENOENT ? LIMIT_ABSENT : LIMIT_UNREADABLE;
    return parse_limit(text, out) ? LIMIT_READ : LIMIT_UNREADABLE;
}

static bool limits_v1(const groups_t *groups, const char *pids, const char *memory, evidence_limits_t *out,
                      char why[BACKEND_TEXT_MAX])
{
    if (read_limit(groups, "/pids", pids, "pids.max", &out->pids_max) != LIMIT_READ)
        return fail(why, "the container's process limit cannot be read", "pids.max");
    if (read_limit(groups, "/memory", memory, "memory.limit_in_bytes", &out->memory_max) != LIMIT_READ)
        return fail(why, "the container's memory limit cannot be read", "memory.limit_in_bytes");
    limit_read_t swap = read_limit(groups, "/memory", memory, "memory.memsw.limit_in_bytes", &out->memory_and_swap_max);
    out->has_swap_limit = swap == LIMIT_READ;
    return swap != LIMIT_UNREADABLE ||
           fail(why, "the container's swap limit cannot be read", "memory.memsw.limit_in_bytes");
}

static bool limits_v2(const groups_t *groups, const char *path, evidence_limits_t *out, char why[BACKEND_TEXT_MAX])
{
    uint64_t swap_max = 0;
    if (read_limit(groups, "", path, "pids.max", &out->pids_max) != LIMIT_READ)
        return fail(why, "the container's process limit cannot be read", "pids.max");
    if (read_limit(groups, "", path, "memory.max", &out->memory_max) != LIMIT_READ)
        return fail(why, "the container's memory limit cannot be read", "memory.max");
    limit_read_t swap = read_limit(groups, "", path, "memory.swap.max", &swap_max);
    out->has_swap_limit = swap == LIMIT_READ;
    out->memory_and_swap_max = swap_max > UINT64_MAX - out->memory_max ? UINT64_MAX : out->memory_max + swap_max;
    return swap != LIMIT_UNREADABLE || fail(why, "the container's swap limit cannot be read", "memory.swap.max");
}

bool evidence_limits(const evidence_host_t *host, pid_t pid, const char *container_id, evidence_limits_t *out,
                     char why[BACKEND_TEXT_MAX])
{
    char name[EVIDENCE_PATH_MAX], pids[EVIDENCE_PATH_MAX], memory[EVIDENCE_PATH_MAX];
    groups_t groups = {.root = host->cgroup};
    memset(out, 0, sizeof(*out));
    snprintf(name, sizeof(name), "%s/%d/cgroup", host->proc, (int)pid);
    if (pid <= 0 || evidence_file_read(name, groups.text, sizeof(groups.text)) <= 0)
        return fail(why, "the sandbox's process is not to be found on this machine", "its cgroup cannot be read");
    bool is_v1 = find_path(&groups, "pids", pids, sizeof(pids)) && find_path(&groups, "memory", memory, sizeof(memory));
    if (!is_v1 && !find_path(&groups, "", pids, sizeof(pids)))
        return fail(why, "the sandbox's process has no cgroup for its processes and memory", "is the controller on?");
    if (strstr(pids, container_id) == NULL || (is_v1 && strstr(memory, container_id) == NULL))
        return fail(why, "the sandbox's process is not in the container's cgroup", pids);
    return is_v1 ? limits_v1(&groups, pids, memory, out, why) : limits_v2(&groups, pids, out, why);
}
