/*
 * The probe's report (backends/guest/runner/probe.c), read and judged: S1 to S9, S13 and S19 of spec backend-docker
 * 3.2. It comes out of a sandbox, so it is a stranger's text: bounded, and every field may be of any type or missing.
 * What is missing has not been shown, and is a failure.
 */
#ifndef BACKENDS_DOCKER_SMOKE_REPORT_H
#define BACKENDS_DOCKER_SMOKE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "backends/docker/preflight.h"

enum {
    SMOKE_REPORT_MAX = 256 * 1024,
    SMOKE_REPORT_DEPTH_MAX = 8, /* the report's own depth is 3; a parser's recursion is bounded by it */
    SMOKE_WORD_MAX = 64,        /* bytes of a report's text that are repeated in a sentence */
};

#define SMOKE_HOST_SOCKET "/run/host-api.sock" /* where a host socket is mounted in a sandbox (1.2) */

typedef struct {
    const docker_promise_t *promise;
    docker_kind_t kind;
    bool is_gvisor;
    bool has_socket;   /* a host socket was mounted, and S12 was asked for */
    uint64_t fill_max; /* what the probe was told; 0: no place was filled */
    bool has_calls;    /* S19 was asked for */
} smoke_expect_t;

/* json_decref it. NULL with the reason for anything that is not a report within its limits. */
json_t *smoke_report_read(const void *bytes, size_t len, char why[BACKEND_TEXT_MAX]);
/* False with the first check that does not hold, such as "S4: the sandbox has the network interface eth0". */
bool smoke_report_judge(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX]);

/* The largest number of bytes one place is filled with: half the memory limit and a little, as its pages
 * are charged to it. */
uint64_t smoke_fill_max(const docker_promise_t *promise);
/* S12: the throwaway host socket said its word. */
bool smoke_report_has_socket(const json_t *report);
/* S13, what is only recorded: the runner's stdin and stdout could not be opened. */
bool smoke_report_has_protected_fds(const json_t *report);
/* S10 and S11 as the guest sees them; -1 when it sees nothing, UINT64_MAX is "max". */
typedef struct {
    bool has_pids, has_memory;
    uint64_t pids, memory;
} smoke_inner_limits_t;
void smoke_report_limits(const json_t *report, smoke_inner_limits_t *out);
/* S20, printable ASCII; "" without one. */
void smoke_report_banner(const json_t *report, char *out, size_t size);

#endif
