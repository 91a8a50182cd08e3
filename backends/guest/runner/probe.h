/*
 * The probe job (GUEST_PROBE): checks of the sandbox from inside, by code of our own where a guest's code would be.
 * The runner calls probe_main in a forked child that is set up as any step is: the guest's uid, /work as working
 * directory, a session of its own, the guests' environment in `environ`, standard streams that are pipes of the
 * runner's, the runner's key erased. What it writes to stdout is the step's output, one JSON document; what it returns
 * is the step's exit code (0 to 255), and the job's deadline is kept by the runner.
 */
#ifndef BACKENDS_GUEST_RUNNER_PROBE_H
#define BACKENDS_GUEST_RUNNER_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* `spec` is the job's code: what to look at; at most JOB_CODE_MAX bytes, not NUL-terminated. libc and libsodium only.
 */
int probe_main(const uint8_t *spec, size_t len);

#endif
