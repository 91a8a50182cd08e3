#include "config/callers_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/callers_edit.h"
#include "config/callers_set.h"
#include "config/quote.h"
#include "core/mem.h"
#include "core/random.h"

enum {
    STORE_MAGIC = 0x43535452,
    NEW_FILE_MODE = 0600,
    TEMP_RANDOM = 8,
    TEMP_SUFFIX_MAX = sizeof(".tmp.") + 2 * TEMP_RANDOM
};

struct callers_store {
    uint32_t _magic;
    int _dir; /* the file's directory, so that every step names the same place even when the path is moved meanwhile */
    char *_path; /* as given, for texts */
    char *_name; /* in the directory */
    char *_lock; /* likewise */
    bool _locked;
    bool _is_new;
    struct stat _old; /* unless new */
    callers_t *_callers;
};

static void path_problem(problems_t *problems, const char *path, const char *what)
{
    char quoted[QUOTE_BYTES];
    problems_add(problems, "%s: %s", quote(quoted, path, strlen(path)), what);
}

static void path_problem_errno(problems_t *problems, const char *path, const char *what)
{
    int why = errno;
    char text[160];

    snprintf(text, sizeof(text), "%s: %s", what, strerror(why));
    path_problem(problems, path, text);
}

/* Splits the path into an open directory and a name in it. The directory is followed through links; the name never is.
 */
static bool place_open(callers_store_t *store, const char *path, problems_t *problems)
{
    const char *slash = strrchr(path, '/');
    char *dir;

    store->_path = mem_strdup(path);
    store->_name = mem_strdup(slash != NULL ? slash + 1 : path);
    store->_lock = mem_alloc(strlen(store->_name) + sizeof(".lock"));
    sprintf(store->_lock, "%s.lock", store->_name);
    if (store->_name[0] == '\0' || strcmp(store->_name, ".") == 0 || strcmp(store->_name, "..") == 0) {
        path_problem(problems, path, "is not the path of a file");
        return false;
    }
    if (slash == NULL)
        dir = mem_strdup(".");
    else
        dir = mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    store->_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (store->_dir < 0)
        path_problem_errno(problems, path, "its directory cannot be opened");
    return store->_dir >= 0;
}

static bool lock(callers_store_t *store, problems_t *problems)
{
    if (mkdirat(store->_dir, store->_lock, 0700) == 0) {
        store->_locked = true;
        return true;
    }
    if (errno == EEXIST)
        path_problem(
            problems, store->_path,
            "is being edited by another command. If none is running, remove the empty directory of the same name with "
            ".lock after it");
    else
        path_problem_errno(problems, store->_path, "cannot be locked");
    return false;
}

static bool stat_old(callers_store_t *store, bool may_create, problems_t *problems)
{
    if (fstatat(store->_dir, store->_name, &store->_old, AT_SYMLINK_NOFOLLOW) != 0) {
        store->_is_new = errno == ENOENT && may_create;
        if (!store->_is_new)
            path_problem_errno(problems, store->_path, "cannot be read");
        return store->_is_new;
    }
    if (!S_ISREG(store->_old.st_mode)) {
        path_problem(problems, store->_path, "is not a regular file");
        return false;
    }
    return true;
}

/* Reads what stat_old saw: through the directory, not through links, and the very same file. */
static bool read_old(callers_store_t *store, problems_t *problems)
{
    char *text = NULL;
    bool same = false;
    struct stat st;
    size_t len = 0;
    int fd;

    if (store->_is_new) {
        store->_callers = callers_edit_empty();
        return true;
    }
    fd = openat(store->_dir, store->_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        path_problem_errno(problems, store->_path, "cannot be read");
        return false;
    }
    same = fstat(fd, &st) == 0 && st.st_dev == store->_old.st_dev && st.st_ino == store->_old.st_ino;
    if (!same)
        path_problem(problems, store->_path, "changed while it was opened");
    else
        text = callers_read_fd(fd, store->_path, &len, problems);
    close(fd);
    if (text == NULL)
        return false;
    store->_callers = callers_parse(text, len, true, problems);
    free(text);
    return store->_callers != NULL;
}

static callers_store_t *begin(void)
{
    callers_store_t *store = mem_alloc(sizeof(*store));

    store->_magic = STORE_MAGIC;
    store->_dir = -1;
    return store;
}

callers_store_t *callers_store_open(const char *path, bool may_create, problems_t *problems)
{
    callers_store_t *store = begin();

    if (place_open(store, path, problems) && lock(store, problems) && stat_old(store, may_create, problems) &&
        read_old(store, problems))
        return store;
    callers_store_close(store, problems);
    return NULL;
}

callers_t *callers_store_read(const char *path, problems_t *problems)
{
    callers_store_t *store = begin();
    callers_t *callers = NULL;

    if (place_open(store, path, problems) && stat_old(store, false, problems) && read_old(store, problems))
        callers = callers_ref(store->_callers);
    callers_store_close(store, problems);
    return callers;
}

void callers_store_close(callers_store_t *store, problems_t *problems)
{
    if (store == NULL)
        return;
    if (store->_magic != STORE_MAGIC)
        mem_fatal("not a store of callers");
    if (store->_locked && unlinkat(store->_dir, store->_lock, AT_REMOVEDIR) != 0)
        path_problem_errno(problems, store->_path, "its lock cannot be removed");
    if (store->_dir >= 0)
        close(store->_dir);
    callers_unref(store->_callers);
    free(store->_path);
    free(store->_name);
    free(store->_lock);
    store->_magic = 0;
    free(store);
}

const callers_t *callers_store_callers(const callers_store_t *store)
{
    return store->_callers;
}

bool callers_store_is_new(const callers_store_t *store)
{
    return store->_is_new;
}

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t done = write(fd, text, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        text += done;
        len -= (size_t)done;
    }
    return true;
}

/* The old file's owner and mode, so the daemon that could read it still can. The mode comes last: a change of owner
 * clears bits. */
static bool keep_owner_and_mode(const callers_store_t *store, int fd)
{
    struct stat st;

    if (store->_is_new)
        return fchmod(fd, NEW_FILE_MODE) == 0; /* whatever the umask */
    if (fstat(fd, &st) != 0)
        return false;
    if ((st.st_uid != store->_old.st_uid || st.st_gid != store->_old.st_gid) &&
        fchown(fd, store->_old.st_uid, store->_old.st_gid) != 0)
        return false;
    return fchmod(fd, store->_old.st_mode & 07777) == 0;
}

/* Whether the name still holds what was read: a file put there by somebody without the lock is not overwritten unseen.
 */
static bool is_unchanged(const callers_store_t *store)
{
    struct stat st;

    if (fstatat(store->_dir, store->_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return store->_is_new && errno == ENOENT;
    return !store->_is_new && st.st_dev == store->_old.st_dev && st.st_ino == store->_old.st_ino &&
           st.st_mtim.tv_sec == store->_old.st_mtim.tv_sec && st.st_mtim.tv_nsec == store->_old.st_mtim.tv_nsec &&
           st.st_size == store->_old.st_size;
}

/* The finished temporary file, on disk; false with a problem and without a file. */
static bool temp_write(const callers_store_t *store, const char *temp, const callers_t *callers, problems_t *problems)
{
    char *text = callers_format(callers);
    size_t len = strlen(text);
    bool ok = false;
    int fd = -1;

    if (len > CALLERS_FILE_MAX) {
        path_problem(problems, store->_path, "would become larger than 16 MiB");
        goto out;
    }
    fd = openat(store->_dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, NEW_FILE_MODE);
    if (fd < 0) {
        path_problem_errno(problems, store->_path, "a temporary file beside it cannot be made");
        goto out;
    }
    ok = write_all(fd, text, len) && keep_owner_and_mode(store, fd) && fsync(fd) == 0;
    if (!ok)
        path_problem_errno(problems, store->_path, "the new file beside it cannot be finished");
    if (close(fd) != 0 && ok) {
        path_problem_errno(problems, store->_path, "the new file beside it cannot be finished");
        ok = false;
    }
    if (!ok)
        unlinkat(store->_dir, temp, 0);
out:
    free(text);
    return ok;
}

callers_written_t callers_store_write(callers_store_t *store, const callers_t *callers, problems_t *problems)
{
    callers_written_t written = CALLERS_UNTOUCHED;
    char random[2 * TEMP_RANDOM + 1], *temp;

    if (store->_magic != STORE_MAGIC)
        mem_fatal("not a store of callers");
    random_hex(random, TEMP_RANDOM);
    temp = mem_alloc(strlen(store->_name) + TEMP_SUFFIX_MAX);
    sprintf(temp, "%s.tmp.%s", store->_name, random);
    if (!temp_write(store, temp, callers, problems))
        goto out;
    if (!is_unchanged(store)) {
        path_problem(problems, store->_path, "was changed by something else meanwhile; nothing was written");
        unlinkat(store->_dir, temp, 0);
    } else if (renameat(store->_dir, temp, store->_dir, store->_name) != 0) {
        path_problem_errno(problems, store->_path, "cannot be replaced");
        unlinkat(store->_dir, temp, 0);
    } else if (fsync(store->_dir) != 0) {
        path_problem_errno(problems, store->_path, "was replaced, but may not survive a power cut");
        written = CALLERS_REPLACED;
    } else
        written = CALLERS_WRITTEN;
out:
    free(temp);
    return written;
}
