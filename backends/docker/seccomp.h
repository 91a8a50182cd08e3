/*
 * The system calls that guests of a shared kernel may make (spec backend-docker 6): our own profile, built in, or what
 * the operator chose. Text in the Engine's format of profiles; how ours is derived is docs/seccomp.md.
 */
#ifndef BACKENDS_DOCKER_SECCOMP_H
#define BACKENDS_DOCKER_SECCOMP_H

enum {
    SECCOMP_PROFILE_MAX = 256 * 1024, /* bytes of a profile's file; ours has 4 KiB, the Engine's own some 20 */
    SECCOMP_FAILURE_MAX = 256,
    SECCOMP_DIGEST_MAX = 65,
};

/* backends/docker/seccomp.json as it was when this was built. */
const char *docker_seccomp_builtin(void);

/* What SANDBOX_DOCKER_SECCOMP asks for: "builtin", "default" (the Engine's), "unconfined" or an absolute path. Returns
 * the text behind `seccomp=`, to be freed, and the hex SHA-256 of it; for "default" NULL and two empty texts: nothing
 * is sent. NULL with a `failure`, in words for the operator, when the profile cannot be used: no regular file, too
 * large, no JSON object, or one that denies nothing by default. */
char *docker_seccomp_load(const char *setting, char digest[SECCOMP_DIGEST_MAX], char failure[SECCOMP_FAILURE_MAX]);

#endif
