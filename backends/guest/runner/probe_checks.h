/* Private to the probe: its groups of checks. Each adds one or more fields to the report and ends within its limit. */
#ifndef BACKENDS_GUEST_RUNNER_PROBE_CHECKS_H
#define BACKENDS_GUEST_RUNNER_PROBE_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PROBE_GUARD_S = 4,       /* for one risky call, in a process of its own */
    PROBE_FILL_S = 20,       /* for filling one place */
    PROBE_MOUNTS_MAX = 256,  /* lines of the mount table that are looked at */
    PROBE_PATH_MAX = 512,    /* bytes of one mount point */
    PROBE_OPTIONS_MAX = 512, /* bytes of one mount's options */
    PROBE_NONCE_MAX = 16,    /* a task's name and its NUL (prctl(2), PR_SET_NAME) */
    PROBE_SOCKET_MAX = 108,  /* unix(7) */
    PROBE_FILE_MAX = 64 * 1024,
};

typedef struct {
    char nonce[PROBE_NONCE_MAX]; /* becomes the name of every task of the probe */
    char socket[PROBE_SOCKET_MAX];
    uint64_t fill_max; /* most bytes put into one place; 0: nothing is filled */
    uint32_t hold_ms;  /* the probe takes at least this long, so the host can look for its name */
    bool has_calls;    /* tries the calls that the seccomp profile removes */
} probe_spec_t;

/* Reads at most size - 1 bytes; "" with *error set when it cannot be read. */
size_t probe_read_file(const char *path, char *out, size_t size, int *error);

/* Runs fn(arg) in a forked child that is killed after `seconds`. Whatever it writes to `fd` (at most size bytes) comes
 * back; the return value is its length. *signal is what ended it, 0 for an exit. */
size_t probe_guarded(void (*fn)(const void *arg, int fd), const void *arg, unsigned seconds, void *out, size_t size,
                     int *signal);

void probe_self(void);                       /* ids, capabilities, seccomp, interfaces, limits, kernel */
void probe_places(const probe_spec_t *spec); /* mounts, writes, fills, exec */
void probe_runner(void);                     /* what of PID 1 can be reached */
void probe_host_socket(const char *path);    /* S12 */
void probe_calls(void);                      /* S19, and what else a profile decides by argument */

#endif
