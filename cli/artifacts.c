#include "cli/artifacts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/input.h"
#include "cli/project.h"
#include "cli/terminal.h"
#include "core/random.h"

const char *artifacts_check(const Plimsoll__V1__ProjectResult *result, char *const *asked, size_t asked_count)
{
    size_t next = 0;
    for (size_t i = 0; i < result->n_artifacts; i++) {
        while (next < asked_count && strcmp(asked[next], result->artifacts[i]->path) != 0)
            next++;
        if (next++ >= asked_count)
            return "an artifact in the answer was not asked for, or stands in another place";
    }
    return NULL;
}

/* The directory below `dir` for one part of a path, made if it is not there; -1 with errno. Takes `dir`. */
static int enter(int dir, const char *name)
{
    int below = -1;
    if (mkdirat(dir, name, 0777) == 0 || errno == EEXIST)
        below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    close(dir);
    errno = error;
    return below;
}

/* Under a name of its own first, then in its place at once: a link there is replaced and not followed. */
static bool put(int dir, const char *name, const ProtobufCBinaryData *content)
{
    char temporary[64], random[17];
    random_hex(random, 8);
    snprintf(temporary, sizeof(temporary), ".plimsoll-%s", random);
    int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool ok = output_write(fd, content->data, content->len);
    int error = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && renameat(dir, temporary, dir, name) != 0) {
        ok = false;
        error = errno;
    }
    if (!ok)
        unlinkat(dir, temporary, 0);
    errno = error;
    return ok;
}

static bool write_one(int root, const Plimsoll__V1__Artifact *artifact)
{
    char path[PATH_BYTES_MAX + 1];
    snprintf(path, sizeof(path), "%s", artifact->path); /* checked: it fits */
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
    char *name = path;
    for (char *slash; dir >= 0 && (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        *slash = '\0';
        dir = enter(dir, name);
    }
    if (dir < 0)
        return false;
    bool ok = put(dir, name, &artifact->content);
    int error = errno;
    close(dir);
    errno = error;
    return ok;
}

static bool fail(const char *path, const char *problem, char why[ARTIFACTS_ERROR_MAX])
{
    char shown[PATH_BYTES_MAX + 1];
    terminal_copy(shown, sizeof(shown), path, strlen(path));
    snprintf(why, ARTIFACTS_ERROR_MAX, "%s: %s", shown, problem);
    return false;
}

static const char *problem_of(int error)
{
    switch (error) {
    case ELOOP:
    case ENOTDIR:
        return "a directory of its path is a symbolic link or a file";
    case EISDIR:
    case ENOTEMPTY:
    case EEXIST:
        return "a directory is in its place";
    default:
        return strerror(error);
    }
}

bool artifacts_write(const Plimsoll__V1__ProjectResult *result, const char *dir, char why[ARTIFACTS_ERROR_MAX])
{
    int root = -1;
    if (mkdir(dir, 0777) == 0 || errno == EEXIST)
        root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return fail(dir, strerror(errno), why);
    bool ok = true;
    for (size_t i = 0; i < result->n_artifacts && ok; i++) {
        const Plimsoll__V1__Artifact *artifact = result->artifacts[i];
        const char *problem = project_path_problem(artifact->path);
        if (problem == NULL && !write_one(root, artifact))
            problem = problem_of(errno);
        ok = problem == NULL || fail(artifact->path, problem, why);
    }
    close(root);
    return ok;
}
