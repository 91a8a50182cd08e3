/*
 * The engine: QuickJS-ng as a WebAssembly module, translated to C. Booted and completed once, in the template; each
 * worker is given randomness of its own, evaluates one script and ends.
 */
#ifndef TEMPLATE_ENGINE_H
#define TEMPLATE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENGINE_STACK_MAX = 512 * 1024 }; /* of the module's 1 MiB; recursion past it is a RangeError */

/* In the template: instantiates the module with at most `max_pages` of memory. False when it trapped. */
bool engine_boot(uint32_t max_pages);
/* In the template: makes the runtime and the context, and what the guest finds in it, by the compiled set-up script.
 * Every worker begins with a copy, so the one thing that must differ between them, what Math.random goes on from, is
 * found here and replaced by engine_freshen(). False when the memory does not suffice or the engine keeps that nowhere
 * it can be found. */
bool engine_prepare(const uint8_t *shim, size_t shim_len);
/* In a worker, before any guest code: randomness of the kernel's for this process alone. False when there is none. */
bool engine_freshen(void);
/* In a process that ends afterwards: a script in the engine's compiled form, in the module's memory; NULL when it does
 * not compile. */
const uint8_t *engine_compile(const char *source, size_t source_len, size_t *len);
/* In the worker, confined: room in guest memory for the code's bytes, NULL when there is none. */
uint8_t *engine_code_room(uint32_t len);
/* Evaluates the code in the room, runs its jobs and ends the process with its output. `deadline_ns` is monotonic. */
void engine_run(uint32_t len, uint64_t deadline_ns) __attribute__((noreturn));
/* When there was no room: the same end as any out-of-memory. */
void engine_run_without_room(void) __attribute__((noreturn));
/* For the probe of the trap path: executes an instruction that traps, and ends the process as a run would that did. */
void engine_abort(void) __attribute__((noreturn));
/* For the probe of the memory cap: whether linear memory grows past it. */
bool engine_exceeds_memory(void);
uint64_t engine_clock_ns(void);

#endif
