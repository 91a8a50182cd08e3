/* Every place of the file system that could be written to: what the mount table says, and what happens. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backends/guest/runner/probe_checks.h"
#include "backends/guest/runner/probe_json.h"

enum { FILL_CHUNK = 256 * 1024, FILL_LAST_CHUNK = 4096, FILLS_MAX = 8 };

typedef struct {
    char at[PROBE_PATH_MAX], type[64], options[PROBE_OPTIONS_MAX];
} place_t;

static place_t places[PROBE_MOUNTS_MAX];
static size_t place_count;
/* Where a file could be written and that is a directory, in the table's order, each once. */
static const char *writable[FILLS_MAX];
static size_t writable_count;
static char file_name[PROBE_NONCE_MAX + 16];

static bool is_octal(const char *p)
{
    return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7';
}

/* Space, tab, newline and backslash are \ooo there (proc(5), fstab(5)). */
static void unescape(char *out, size_t size, const char *in)
{
    size_t len = 0;
    while (*in != '\0' && len < size - 1) {
        if (in[0] == '\\' && is_octal(in + 1)) {
            out[len++] = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
            in += 4;
        } else {
            out[len++] = *in++;
        }
    }
    out[len] = '\0';
}

/* False when lines were left out or cut: then the table is not whole, and nothing can be concluded from it. */
static bool read_table(int *error)
{
    static char text[PROBE_FILE_MAX];
    bool is_whole = probe_read_file("/proc/self/mounts", text, sizeof(text), error) < sizeof(text) - 1;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *fields[4];
        size_t count = 0;
        for (char *field; count < 4 && (field = strsep(&line, " ")) != NULL;)
            fields[count++] = field;
        if (count < 4)
            continue;
        /* An overlay's options name all its layers; what counts stands first. A tmpfs' are short. */
        bool is_cut = strcmp(fields[2], "tmpfs") == 0 && strlen(fields[3]) >= PROBE_OPTIONS_MAX;
        if (place_count == PROBE_MOUNTS_MAX || strlen(fields[1]) >= PROBE_PATH_MAX || is_cut) {
            is_whole = false;
            continue;
        }
        place_t *place = &places[place_count++];
        unescape(place->at, sizeof(place->at), fields[1]);
        snprintf(place->type, sizeof(place->type), "%.63s", fields[2]);
        snprintf(place->options, sizeof(place->options), "%.*s", PROBE_OPTIONS_MAX - 1, fields[3]);
    }
    return is_whole;
}

static void mounts(void)
{
    int error;
    bool is_whole = read_table(&error);
    probe_bool("mounts_whole", is_whole && error == 0 && place_count > 0);
    probe_open("mounts", '[');
    for (size_t i = 0; i < place_count; ++i) {
        struct statvfs held;
        probe_open(NULL, '{');
        probe_text("at", places[i].at);
        probe_text("type", places[i].type);
        probe_text("options", places[i].options);
        if (strcmp(places[i].type, "tmpfs") == 0 && statvfs(places[i].at, &held) == 0)
            probe_number("bytes", (uint64_t)held.f_blocks * held.f_frsize);
        probe_close('}');
    }
    probe_close(']');
}

/* The step that failed decides: a file that can be made but not written to is no place to keep anything. */
static void try_write(const void *arg, int fd)
{
    const char *at = arg;
    char path[PROBE_PATH_MAX + sizeof(file_name) + 1], outcome[32];
    struct stat found;
    const char *word = NULL;
    int file = -1;

    if (stat(at, &found) != 0) {
        word = probe_errno(errno);
    } else if (S_ISDIR(found.st_mode)) {
        snprintf(path, sizeof(path), "%s/%s", at, file_name);
        file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    } else if (S_ISREG(found.st_mode)) {
        file = open(at, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    } else {
        word = S_ISSOCK(found.st_mode) ? "socket" : "device";
    }
    if (word == NULL && file < 0)
        word = probe_errno(errno);
    else if (word == NULL && S_ISDIR(found.st_mode))
        word = write(file, "x", 1) == 1 ? "ok" : probe_errno(errno);
    else if (word == NULL)
        word = "ok"; /* a file of somebody's: that it opened says enough */
    if (file >= 0)
        close(file);
    if (file >= 0 && S_ISDIR(found.st_mode))
        unlink(path);
    snprintf(outcome, sizeof(outcome), "%s%s", word != NULL && S_ISDIR(found.st_mode) ? "/" : "", word);
    if (write(fd, outcome, strlen(outcome) + 1) < 0)
        _exit(1);
}

static void note_writable(const char *at)
{
    for (size_t i = 0; i < writable_count; ++i) {
        if (strcmp(writable[i], at) == 0)
            return;
    }
    if (writable_count < FILLS_MAX)
        writable[writable_count++] = at;
}

static void one_write(const char *at)
{
    char outcome[32] = "";
    int signal;
    size_t len = probe_guarded(try_write, at, PROBE_GUARD_S, outcome, sizeof(outcome) - 1, &signal);
    bool is_directory = outcome[0] == '/';
    const char *word = len == 0 ? "no answer" : outcome + is_directory;
    probe_open(NULL, '{');
    probe_text("at", at);
    probe_text("outcome", word);
    probe_close('}');
    if (is_directory && strcmp(word, "ok") == 0)
        note_writable(at);
}

static void writes(void)
{
    /* Places no mount covers; a directory that all may write to shows the read-only root best (S5). */
    static const char *const others[] = {"/",    "/var/tmp", "/run", "/home", "/work", "/etc",
                                         "/opt", "/usr",     "/var", "/root", "/mnt",  "/srv"};
    probe_open("writes", '[');
    for (size_t i = 0; i < place_count; ++i)
        one_write(places[i].at);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
        one_write(others[i]);
    probe_close(']');
}

typedef struct {
    const char *at;
    uint64_t max;
} fill_t;

typedef struct {
    uint64_t bytes;
    char end[24];
} filled_t;

/* Writes and keeps nothing: the file has no name any more when it is full. */
static void try_fill(const void *arg, int fd)
{
    static const char chunk[FILL_CHUNK];
    const fill_t *fill = arg;
    filled_t filled = {.end = "limit"};
    char path[PROBE_PATH_MAX + sizeof(file_name) + 1];
    snprintf(path, sizeof(path), "%s/%s", fill->at, file_name);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    unlink(path);
    size_t size = FILL_CHUNK;
    while (filled.bytes < fill->max) {
        ssize_t n = file >= 0 ? write(file, chunk, size) : -1;
        if (n > 0) {
            filled.bytes += (uint64_t)n;
        } else if (n < 0 && errno == ENOSPC && size > FILL_LAST_CHUNK) {
            size = FILL_LAST_CHUNK; /* the last pages */
        } else {
            snprintf(filled.end, sizeof(filled.end), "%.23s", n < 0 ? probe_errno(errno) : "nothing written");
            break;
        }
    }
    if (write(fd, &filled, sizeof(filled)) < 0)
        _exit(1);
}

static void fills(uint64_t max)
{
    probe_open("fills", '[');
    for (size_t i = 0; i < writable_count; ++i) {
        filled_t filled = {.end = ""};
        int signal;
        size_t len = probe_guarded(try_fill, &(fill_t){.at = writable[i], .max = max}, PROBE_FILL_S, &filled,
                                   sizeof(filled), &signal);
        probe_open(NULL, '{');
        probe_text("at", writable[i]);
        probe_number("bytes", filled.bytes);
        probe_text("end", len == sizeof(filled) ? filled.end : "no answer");
        probe_close('}');
    }
    probe_close(']');
}

/* Its interpreter does not exist, so only the mount can be the reason of EACCES. */
static void try_exec(const void *arg, int fd)
{
    static const char script[] = "#!/nonexistent/interpreter\n";
    char path[PROBE_PATH_MAX + sizeof(file_name) + 1], *argv[] = {path, NULL}, *envp[] = {NULL}, outcome[64];
    char ran[24] = "", mapped[24] = "";
    snprintf(path, sizeof(path), "%s/%s", (const char *)arg, file_name);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0700);
    if (file < 0 || write(file, script, sizeof(script) - 1) < 0) {
        snprintf(ran, sizeof(ran), "%.23s", probe_errno(errno));
    } else {
        void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        snprintf(mapped, sizeof(mapped), "%.23s", code == MAP_FAILED ? probe_errno(errno) : "ok");
        if (code != MAP_FAILED)
            munmap(code, 4096); /* it holds the file open for writing */
        close(file);
        execve(path, argv, envp);
        snprintf(ran, sizeof(ran), "%.23s", probe_errno(errno));
    }
    unlink(path);
    snprintf(outcome, sizeof(outcome), "%s %s", ran, mapped);
    if (write(fd, outcome, strlen(outcome) + 1) < 0)
        _exit(1);
}

static void execs(void)
{
    probe_open("execs", '[');
    for (size_t i = 0; i < writable_count; ++i) {
        char outcome[64] = "";
        int signal;
        probe_guarded(try_exec, writable[i], PROBE_GUARD_S, outcome, sizeof(outcome) - 1, &signal);
        char *mapped = strchr(outcome, ' ');
        if (mapped != NULL)
            *mapped++ = '\0';
        probe_open(NULL, '{');
        probe_text("at", writable[i]);
        probe_text("outcome", outcome[0] != '\0' ? outcome : "no answer");
        probe_text("mapped", mapped);
        probe_close('}');
    }
    probe_close(']');
}

void probe_places(const probe_spec_t *spec)
{
    snprintf(file_name, sizeof(file_name), ".probe-%s", spec->nonce);
    mounts();
    writes();
    if (spec->fill_max > 0)
        fills(spec->fill_max);
    execs();
}
