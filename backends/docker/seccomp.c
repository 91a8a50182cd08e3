#include "backends/docker/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "core/mem.h"
#include "core/sha256.h"
#include "seccomp-builtin.h"

_Static_assert(SECCOMP_DIGEST_MAX == SHA256_HEX + 1, "a digest in hex and its end");
_Static_assert(sizeof(SECCOMP_BUILTIN) <= SECCOMP_PROFILE_MAX, "ours is held to the limit of others");

const char *docker_seccomp_builtin(void)
{
    return SECCOMP_BUILTIN;
}

/* The file's text, or NULL with the reason. */
static char *read_file(const char *path, const char **reason)
{
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    /* without waiting for the other end, should it be a FIFO */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) != 0) {
        *reason = strerror(errno);
        goto Exit;
    }
    if (!S_ISREG(st.st_mode)) {
        *reason = "it is not a regular file";
        goto Exit;
    }
    /* one more than is allowed, and one for the end: a file may grow while it is read */
    text = mem_alloc(SECCOMP_PROFILE_MAX + 2);
    for (;;) {
        ssize_t n = read(fd, text + len, SECCOMP_PROFILE_MAX + 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            *reason = strerror(errno);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    if (len > SECCOMP_PROFILE_MAX)
        *reason = "it is larger than 256 KiB";
    else if (memchr(text, '\0', len) != NULL)
        *reason = "it is not text";
    text[len] = '\0';

Exit:
    if (fd >= 0)
        close(fd);
    if (*reason != NULL) {
        free(text);
        text = NULL;
    }
    return text;
}

/* The actions of libseccomp under which a call that no rule names does not happen. */
static bool is_denying(const char *action)
{
    static const char *const DENYING[] = {"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
                                          "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"};
    for (size_t i = 0; i < sizeof(DENYING) / sizeof(DENYING[0]); ++i) {
        if (strcmp(action, DENYING[i]) == 0)
            return true;
    }
    return false;
}

/* NULL, or why it is none. Its rules are the Engine's to judge, which refuses the container. */
static const char *profile_problem(const char *text)
{
    const char *reason = NULL;
    json_t *profile = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *action = json_string_value(json_object_get(profile, "defaultAction"));

    if (!json_is_object(profile))
        reason = "it is not a JSON object";
    else if (action == NULL)
        reason = "it has no defaultAction";
    else if (!is_denying(action))
        reason = "its defaultAction allows what no rule names";
    else if (json_array_size(json_object_get(profile, "syscalls")) == 0)
        reason = "it has no syscalls";
    json_decref(profile);
    return reason;
}

char *docker_seccomp_load(const char *setting, char digest[SECCOMP_DIGEST_MAX], char failure[SECCOMP_FAILURE_MAX])
{
    const char *reason = NULL;
    char *text = NULL;

    digest[0] = '\0';
    failure[0] = '\0';
    if (strcmp(setting, "default") == 0)
        return NULL;
    if (strcmp(setting, "builtin") == 0)
        text = mem_strdup(SECCOMP_BUILTIN);
    else if (strcmp(setting, "unconfined") == 0)
        text = mem_strdup("unconfined");
    else if (setting[0] != '/')
        reason = "it is builtin, default, unconfined or an absolute path";
    else if ((text = read_file(setting, &reason)) != NULL)
        reason = profile_problem(text);

    if (reason != NULL) {
        snprintf(failure, SECCOMP_FAILURE_MAX, "the seccomp profile %.120s cannot be used: %s", setting, reason);
        free(text);
        return NULL;
    }
    sha256_hex(text, strlen(text), digest);
    return text;
}
