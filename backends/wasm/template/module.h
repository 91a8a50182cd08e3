/*
 * Private to the engine's parts: the module as one instance, its memory seen from the host, and the state of the one
 * run this process makes.
 */
#ifndef TEMPLATE_MODULE_H
#define TEMPLATE_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine-module.h" /* made by wasm2c */
#include "wasm-rt-impl.h"

#include "backends/wasm/template/output.h"

/* A JSValue in the module's memory, which it hands out as the address of a box; 0 is none. */
typedef uint32_t handle_t;
/* An address in the module's memory. */
typedef uint32_t guest_t;

enum {
    REJECTIONS_MAX =
        65536, /* promises rejected and not yet handled that are watched; 12 bytes each, touched only when used */
};

extern Z_quickjs_instance_t module;

/* The run. */
extern uint64_t started_ns;     /* monotonic; 0 while the context is being made */
extern uint64_t deadline_ns;    /* UINT64_MAX until the run starts */
extern uint64_t module_seed_ns; /* the wall clock's answer while the context is being made */
extern bool is_interrupted;     /* the deadline stopped the engine */
extern guest_t scratch;         /* eight bytes the engine writes lengths to */

/* --- module.c: imports of the module --- */

/* The host's view of `len` bytes at `at`; an address the module has no right to ends it as any wild access would. */
uint8_t *guest_bytes(guest_t at, uint64_t len);
/* A copy in the module's memory with a NUL behind it; 0 when there is no room. */
guest_t guest_strndup(const char *text, size_t len);
/* Looks at the clock: sends output that is old, and sets is_interrupted past the deadline. Returns it. */
bool module_look_at_clock(void);
size_t rejections_count(void);
handle_t rejections_reason(size_t i);

/* --- functions.c: what guest code can call --- */

/* The names the engine hands back at a call; the guest sees them as `name` and in stacks. */
extern const char FUNCTION_PRINT[], FUNCTION_HOST_CALL[];
/* Appends the value's string form. False with the exception pending when it has none. */
bool append_string_of(output_stream_t stream, handle_t value);
void drop_exception(void);
handle_t new_string(const void *text, size_t len);

#endif
