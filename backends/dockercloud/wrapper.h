/*
 * The command around every guest command. Neither API bounds a command's time or output, so this does, inside the
 * sandbox (spec 4.3): `timeout` kills it at its limit, `head` keeps the first bytes of each stream, and the command's
 * own exit status is the result's. The host does not depend on it: its own deadline and bounds follow behind.
 */
#ifndef BACKENDS_DOCKERCLOUD_WRAPPER_H
#define BACKENDS_DOCKERCLOUD_WRAPPER_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud_plan.h"

enum {
    WRAPPER_ARGV_MAX = 6 + CLOUD_ARGV_MAX,
    WRAPPER_NUMBER_MAX = 24,
    WRAPPER_LIMIT_MIN_MS = 100,
    WRAPPER_TOOL_MISSING = 127, /* as of a command that is not there */
    WRAPPER_KILLED = 137,       /* the limit, or the command's own doing */
    WRAPPER_EXIT_TIMEOUT = 124,
};

typedef struct {
    const char *argv[WRAPPER_ARGV_MAX + 1]; /* NULL-terminated; borrows the command's */
    char limit[WRAPPER_NUMBER_MAX], cap[WRAPPER_NUMBER_MAX];
} wrapper_t;

/* The command for `limit_ms`, of whose streams `cap` bytes come back: one more than are kept, so that a whole one is
 * told from one that was cut. The limit has milliseconds; a guest whose `timeout` knows only whole seconds rounds it
 * down, to at least one. */
void wrapper_make(wrapper_t *out, const cloud_command_t *command, uint32_t limit_ms, size_t cap);

/* Script of the one command that verifies what was uploaded: `sh -c SCRIPT gwv SHA256 LIST`, with a LIST of "SHA256
 * PATH" lines that is checked itself first. Exit 0: all are as they were sent; 1 with "PATH: FAILED" lines on stdout.
 */
extern const char WRAPPER_VERIFY[];

#endif
