#include "cli/project.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "core/mem.h"
#include "core/utf8.h"

typedef struct {
    project_t *project;
    char *why;
    char path[PATH_BYTES_MAX + 1]; /* of what is being looked at, below the project's directory */
    size_t path_len, entries;
} walk_t;

/* Always false. */
static bool __attribute__((format(printf, 2, 3))) fail(walk_t *walk, const char *fmt, ...)
{
    char path[PATH_BYTES_MAX + 1];
    va_list args;
    /* a name may hold anything */
    terminal_copy(path, sizeof(path), walk->path_len != 0 ? walk->path : ".", walk->path_len != 0 ? walk->path_len : 1);
    int n = snprintf(walk->why, PROJECT_ERROR_MAX, "%s: ", path);
    va_start(args, fmt);
    vsnprintf(walk->why + n, PROJECT_ERROR_MAX - (size_t)n, fmt, args);
    va_end(args);
    return false;
}

const char *project_path_problem(const char *path)
{
    switch (path_check(path)) {
    case PATH_HOLDS:
        return NULL;
    case PATH_LENGTH:
        return "a path has 1 to 1024 bytes";
    case PATH_ENCODING:
        return "a path must be valid UTF-8";
    case PATH_SEGMENTS:
        return "a path must be relative, without empty, . and .. parts";
    case PATH_CHARACTERS:
        break;
    }
    return "a path must not hold a backslash or a control character";
}

/* ---- one file ---- */

/* At most `room` bytes, read to the end whatever the file's size was said to be. */
static bool read_content(walk_t *walk, int fd, size_t room, ProtobufCBinaryData *out)
{
    size_t cap = 0;
    for (;;) {
        if (out->len == cap) {
            cap = cap == 0 ? 4096 : 2 * cap;
            if (cap > room + 1)
                cap = room + 1; /* one more byte tells a file that is too large from one that fits */
            out->data = mem_realloc(out->data, cap);
        }
        ssize_t n = read(fd, out->data + out->len, cap - out->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(walk, "cannot be read: %s", strerror(errno));
        if (n == 0)
            return true;
        out->len += (size_t)n;
        if (out->len > room)
            return fail(walk, "with it the project's files hold more than %d bytes together, which is the most",
                        FILES_BYTES_MAX);
    }
}

static bool add_file(walk_t *walk, int fd)
{
    project_t *project = walk->project;
    if (project->count == FILES_MAX)
        return fail(walk, "is one file too many: a project has at most %d", FILES_MAX);
    Plimsoll__V1__ProjectFile *file = mem_alloc(sizeof(*file));
    plimsoll__v1__project_file__init(file);
    project->files = mem_realloc(project->files, (project->count + 1) * sizeof(project->files[0]));
    project->files[project->count++] = file;
    file->path = mem_strdup(walk->path);
    if (!read_content(walk, fd, FILES_BYTES_MAX - project->bytes, &file->content))
        return false;
    project->bytes += file->content.len;
    if (file->content.len != 0 && !utf8_is_valid(file->content.data, file->content.len))
        return fail(walk, "is not valid UTF-8: a project holds text files");
    return true;
}

/* ---- the walk ---- */

static bool walk_directory(walk_t *walk, int fd, int depth);

static bool is_left_out(const char *name)
{
    return strcmp(name, ".git") == 0 || strcmp(name, "node_modules") == 0;
}

/* What the name is, is decided by what was opened: it may be replaced at any time. */
static bool walk_entry(walk_t *walk, int dir, const char *name, int depth)
{
    struct stat st;
    if (is_left_out(name))
        return true;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return fail(walk, "is a symbolic link: a project holds plain files");
    if (fd < 0 && errno == ENXIO)
        return fail(walk, "is no plain file and no directory");
    if (fd < 0)
        return fail(walk, "cannot be opened: %s", strerror(errno));
    bool ok = false;
    if (fstat(fd, &st) != 0)
        fail(walk, "cannot be looked at: %s", strerror(errno));
    else if (S_ISDIR(st.st_mode))
        return walk_directory(walk, fd, depth + 1);
    else if (!S_ISREG(st.st_mode))
        fail(walk, "is no plain file and no directory");
    else
        ok = add_file(walk, fd);
    close(fd);
    return ok;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The directory's names but . and .., sorted; NULL with the failure told. */
static char **list_names(walk_t *walk, DIR *dir, size_t *count)
{
    char **names = mem_alloc(sizeof(*names));
    const struct dirent *entry;
    *count = 0;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (++walk->entries > PROJECT_ENTRIES_MAX) {
            fail(walk, "more than %d files and directories are below the project's directory", PROJECT_ENTRIES_MAX);
            goto Fail;
        }
        names = mem_realloc(names, (*count + 1) * sizeof(*names));
        names[(*count)++] = mem_strdup(entry->d_name);
    }
    if (errno == 0) {
        qsort(names, *count, sizeof(*names), by_name);
        return names;
    }
    fail(walk, "cannot be read: %s", strerror(errno));
Fail:
    while (*count > 0)
        free(names[--*count]);
    free(names);
    return NULL;
}

static bool enter_name(walk_t *walk, const char *name)
{
    size_t len = strlen(name), slash = walk->path_len != 0;
    if (walk->path_len + slash + len > PATH_BYTES_MAX)
        return fail(walk, "holds a name with which the path is longer than %d bytes", PATH_BYTES_MAX);
    if (slash)
        walk->path[walk->path_len++] = '/';
    memcpy(walk->path + walk->path_len, name, len + 1);
    walk->path_len += len;
    const char *problem = project_path_problem(walk->path);
    return problem == NULL || fail(walk, "%s", problem);
}

/* Takes the descriptor. */
static bool walk_directory(walk_t *walk, int fd, int depth)
{
    size_t count = 0, before = walk->path_len;
    char **names = NULL;
    bool ok = false;
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return fail(walk, "cannot be read: %s", strerror(errno));
    }
    if (depth > PROJECT_DEPTH_MAX)
        fail(walk, "is nested deeper than %d directories", PROJECT_DEPTH_MAX);
    else
        names = list_names(walk, dir, &count);
    ok = names != NULL;
    for (size_t i = 0; i < count; i++) {
        ok = ok && enter_name(walk, names[i]) && walk_entry(walk, dirfd(dir), names[i], depth);
        free(names[i]);
        if (ok) {
            walk->path_len = before;
            walk->path[before] = '\0';
        }
    }
    free(names);
    closedir(dir);
    return ok;
}

static int by_path(const void *a, const void *b)
{
    const Plimsoll__V1__ProjectFile *const *x = a, *const *y = b;
    return strcmp((*x)->path, (*y)->path);
}

bool project_read(const char *dir, project_t *project, char why[PROJECT_ERROR_MAX])
{
    *project = (project_t){.files = NULL};
    walk_t walk = {.project = project, .why = why};
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        snprintf(why, PROJECT_ERROR_MAX, "%s", strerror(errno));
        return false;
    }
    if (!walk_directory(&walk, fd, 0)) {
        project_dispose(project);
        return false;
    }
    if (project->count != 0)
        qsort(project->files, project->count, sizeof(project->files[0]), by_path);
    return true;
}

void project_dispose(project_t *project)
{
    for (size_t i = 0; i < project->count; i++)
        plimsoll__v1__project_file__free_unpacked(project->files[i], NULL);
    free(project->files);
    *project = (project_t){.files = NULL};
}
