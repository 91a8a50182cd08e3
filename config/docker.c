#include "config/docker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/quote.h"

static const char UNIX_SCHEME[] = "unix://";

const uid_band_t GUEST_UID_TAKEN[GUEST_UID_BANDS] = {{60001, 60513}, {60578, 60705}, {61184, 65519}};

bool docker_is_enabled(const provider_t *const *enabled, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (enabled[i]->docker)
            return true;
    return false;
}

const char *docker_socket_path(void)
{
    const char *text = option_str(OPT_SANDBOX_DOCKER_SOCKET);

    return strncmp(text, UNIX_SCHEME, strlen(UNIX_SCHEME)) == 0 ? text + strlen(UNIX_SCHEME) : text;
}

uint32_t docker_disk_mb(void)
{
    if (option_is_set(OPT_SANDBOX_DISK_MB))
        return (uint32_t)option_int(OPT_SANDBOX_DISK_MB);
    return DOCKER_TMP_MB + DOCKER_SHM_MB + DOCKER_WORK_DEFAULT_MB;
}

uint32_t docker_work_mb(void)
{
    uint32_t disk = docker_disk_mb();

    return disk > DOCKER_TMP_MB + DOCKER_SHM_MB ? disk - DOCKER_TMP_MB - DOCKER_SHM_MB : 0;
}

int64_t docker_nano_cpus(void)
{
    const char *text = option_str(OPT_SANDBOX_CPUS);
    int64_t nano = 0, scale = INT64_C(1000000000);

    if (text == NULL)
        return scale;
    for (; *text >= '0' && *text <= '9'; text++)
        nano = nano * 10 + (*text - '0') * scale;
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9'; text++)
            nano += (*text - '0') * (scale /= 10);
    return nano;
}

uint32_t docker_pids(void)
{
    return option_is_set(OPT_SANDBOX_PIDS) ? (uint32_t)option_int(OPT_SANDBOX_PIDS) : DOCKER_PIDS_DEFAULT;
}

int64_t docker_pools_mb(void)
{
    const provider_t *enabled[PROVIDERS_MAX];
    size_t count = providers_enabled(enabled);
    int64_t members = option_int(OPT_SANDBOX_DOCKER_POOL) + option_int(OPT_SANDBOX_DOCKER_PROJECT_POOL), sum = 0;

    for (size_t i = 0; i < count; i++)
        if (enabled[i]->docker)
            sum += members * (provider_is_gvisor(enabled[i]) ? GVISOR_IDLE_MB : DOCKER_IDLE_MB);
    return sum;
}

bool docker_image_is_pinned(const char *reference)
{
    static const char mark[] = "@sha256:";
    const char *at = strchr(reference, '@');

    return at != NULL && at != reference && strncmp(at, mark, strlen(mark)) == 0 &&
           strspn(at + strlen(mark), "0123456789abcdef") == 64 && at[strlen(mark) + 64] == '\0';
}

static const char *quoted(char out[QUOTE_BYTES], option_id_t id)
{
    const char *text = option_str(id);
    return quote(out, text, strlen(text));
}

/* An Engine at the other end of a network could not be cleaned up after, nor its sandboxes be looked at (1.1). */
static void check_socket(problems_t *problems)
{
    const char *path = docker_socket_path();
    char text[QUOTE_BYTES];

    if (path[0] != '/')
        problems_add(problems, "SANDBOX_DOCKER_SOCKET is %s: it takes an absolute path, or unix:// and one",
                     quoted(text, OPT_SANDBOX_DOCKER_SOCKET));
    else if (strlen(path) > DOCKER_SOCKET_MAX)
        problems_add(problems, "SANDBOX_DOCKER_SOCKET is %s: the path of a socket takes at most %d bytes",
                     quoted(text, OPT_SANDBOX_DOCKER_SOCKET), DOCKER_SOCKET_MAX);
}

/* What a registry's or the Engine's grammar of a reference can never hold: it goes into a URL and into log lines. */
static bool is_reference(const char *text)
{
    return text[0] != '-' && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                               "._-/:@")] == '\0';
}

/* A default that nobody uses need not be pinned for the sake of another backend's images. */
static void check_image(problems_t *problems, option_id_t id, bool is_used)
{
    char text[QUOTE_BYTES];

    if (!is_reference(option_str(id)))
        problems_add(problems, "%s is %s: it takes an image's name, such as plimsoll/snippet:latest", OPTIONS[id].name,
                     quoted(text, id));
    else if (option_bool(OPT_SANDBOX_REQUIRE_PINNED_IMAGES) && (is_used || option_is_set(id)) &&
             !docker_image_is_pinned(option_str(id)))
        problems_add(problems,
                     "%s is %s, which SANDBOX_REQUIRE_PINNED_IMAGES does not take: it must end in @sha256: and 64 "
                     "hex digits",
                     OPTIONS[id].name, quoted(text, id));
}

static bool is_runtime_name(const char *text)
{
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

static void check_runtime(problems_t *problems, option_id_t id)
{
    char text[QUOTE_BYTES];

    if (!is_runtime_name(option_str(id)))
        problems_add(problems, "%s is %s: it takes the name of a runtime the Engine knows, such as %s",
                     OPTIONS[id].name, quoted(text, id), OPTIONS[id].fallback);
}

static void check_evidence(problems_t *problems)
{
    const char *evidence = option_str(OPT_SANDBOX_GVISOR_EVIDENCE);
    char text[QUOTE_BYTES];

    if (strcmp(evidence, "observed") != 0 && strcmp(evidence, "registered") != 0)
        problems_add(problems, "SANDBOX_GVISOR_EVIDENCE is %s: it takes observed or registered",
                     quoted(text, OPT_SANDBOX_GVISOR_EVIDENCE));
}

static bool names_a_profile(const char *text)
{
    return strcmp(text, "builtin") != 0 && strcmp(text, "default") != 0 && strcmp(text, "unconfined") != 0;
}

static void check_seccomp(problems_t *problems, bool is_used)
{
    const char *path = option_str(OPT_SANDBOX_DOCKER_SECCOMP);
    char text[QUOTE_BYTES];
    struct stat st;
    int fd = -1;

    if (!names_a_profile(path))
        return;
    if (path[0] != '/')
        problems_add(problems,
                     "SANDBOX_DOCKER_SECCOMP is %s: it takes builtin, default, unconfined or an absolute path",
                     quoted(text, OPT_SANDBOX_DOCKER_SECCOMP));
    /* O_NONBLOCK: a FIFO at the path must not stop the start */
    else if (is_used && (fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) < 0)
        problems_add(problems, "SANDBOX_DOCKER_SECCOMP is %s, which cannot be read: %s",
                     quoted(text, OPT_SANDBOX_DOCKER_SECCOMP), strerror(errno));
    else if (is_used && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)))
        problems_add(problems, "SANDBOX_DOCKER_SECCOMP is %s, which is not a regular file",
                     quoted(text, OPT_SANDBOX_DOCKER_SECCOMP));
    if (fd >= 0)
        close(fd);
}

/* The account files themselves: a name service could know every number there is. */
static bool is_known_user(int64_t uid)
{
    FILE *file = fopen("/etc/passwd", "re");
    const struct passwd *entry;
    bool found = false;

    while (file != NULL && !found && (entry = fgetpwent(file)) != NULL)
        found = entry->pw_uid == (uid_t)uid || entry->pw_gid == (gid_t)uid;
    if (file != NULL)
        fclose(file);
    return found;
}

static bool is_known_group(int64_t gid)
{
    FILE *file = fopen("/etc/group", "re");
    const struct group *entry;
    bool found = false;

    while (file != NULL && !found && (entry = fgetgrent(file)) != NULL)
        found = entry->gr_gid == (gid_t)gid;
    if (file != NULL)
        fclose(file);
    return found;
}

/* Guest code has this number on the host too where the Engine maps none: it must be nobody there. The next one is for
 * checks of a run from outside it. */
static void check_guest_uid(problems_t *problems, bool is_used)
{
    int64_t uid = option_int(OPT_SANDBOX_GUEST_UID);

    for (size_t i = 0; i < GUEST_UID_BANDS; i++)
        if (uid + 1 >= GUEST_UID_TAKEN[i].first && uid <= GUEST_UID_TAKEN[i].last)
            problems_add(problems,
                         "SANDBOX_GUEST_UID is %" PRId64 ": neither it nor the next number may be in %" PRId64
                         "-%" PRId64 ", which systemd gives away",
                         uid, GUEST_UID_TAKEN[i].first, GUEST_UID_TAKEN[i].last);
    for (int64_t n = uid; is_used && n <= uid + 1; n++)
        if (is_known_user(n) || is_known_group(n))
            problems_add(problems,
                         "SANDBOX_GUEST_UID is %" PRId64 ", and this machine has a user or group of the number %" PRId64
                         ": choose one that is nobody's, nor the next one",
                         uid, n);
}

static void check_disk(problems_t *problems)
{
    enum { DISK_MIN_MB = DOCKER_TMP_MB + DOCKER_SHM_MB + DOCKER_WORK_MIN_MB };

    if (docker_disk_mb() < DISK_MIN_MB)
        problems_add(problems,
                     "SANDBOX_DISK_MB is %u: /tmp takes %d of it, /dev/shm %d, and /work needs at least %d, together "
                     "%d",
                     docker_disk_mb(), DOCKER_TMP_MB, DOCKER_SHM_MB, DOCKER_WORK_MIN_MB, DISK_MIN_MB);
}

void docker_rules(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    bool is_used = docker_is_enabled(enabled, count);

    /* how a value is written is checked whether it is used or not, so enabling a backend brings no surprise */
    check_socket(problems);
    check_image(problems, OPT_SANDBOX_DOCKER_IMAGE, is_used);
    check_image(problems, OPT_SANDBOX_DOCKER_PROJECT_IMAGE, is_used);
    check_runtime(problems, OPT_SANDBOX_DOCKER_RUNTIME);
    check_runtime(problems, OPT_SANDBOX_GVISOR_RUNTIME);
    check_evidence(problems);
    check_seccomp(problems, is_used);
    check_guest_uid(problems, is_used);
    if (is_used)
        check_disk(problems);
}
