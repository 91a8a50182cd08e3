#define _GNU_SOURCE
#include "backends/wasm/template/engine.h"

#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/wasm/template/module.h"
#include "backends/wasm/template/shim.h"
#include "backends/wasm/wire.h"

enum {
    JOBS_PER_LOOK = 64,         /* jobs between two looks at the clock */
    ALTSTACK_BYTES = 64 * 1024, /* for signal frames, which grow with the processor's registers */
    SEED_SPARE_BITS = 14,       /* so that a thousand of it are a clock's 64 bits of nanoseconds */
    RANDOM_BYTES = 12,
    RANDOM_ALIGN = 8,
};

static uint32_t memory_cap; /* pages */
static guest_t random_state_at;
static guest_t code_at;
static guest_t name_stack, name_exec_argv, name_file;

/* ---- template ---- */

bool engine_boot(uint32_t max_pages)
{
    static uint8_t altstack[ALTSTACK_BYTES] __attribute__((aligned(64)));
    stack_t on = {.ss_sp = altstack, .ss_size = sizeof(altstack)};

    wasm_rt_init();
    if (sigaltstack(&on, NULL) != 0)
        return false;
    if (wasm_rt_impl_try() != 0)
        return false;
    Z_quickjs_init_module();
    /* What the module imports is this process; there is no instance of it to pass. */
    Z_quickjs_instantiate(&module, NULL, NULL);
    /* Growth past the cap fails inside the module, and the engine reports it as out of memory. */
    memory_cap = module.w2c_memory.max_pages = max_pages;
    Z_quickjsZ__initialize(&module);
    return true;
}

static bool is_value(handle_t value)
{
    return value != 0 && !Z_quickjsZ_qjs_is_exception(&module, value);
}

static guest_t guest_name(const char *name)
{
    return guest_strndup(name, strlen(name));
}

static handle_t new_function(const char *function)
{
    guest_t name = guest_name(function);
    return name != 0 ? Z_quickjsZ_qjs_new_host_function(&module, name, (uint32_t)strlen(function), 0) : 0;
}

/* Calls the set-up script's function with what it needs of the host. */
static bool furnish(const uint8_t *shim, size_t shim_len)
{
    guest_t code = guest_strndup((const char *)shim, shim_len), argv = Z_quickjsZ_wasm_malloc(&module, 8);
    if (code == 0 || argv == 0)
        return false;
    handle_t function = Z_quickjsZ_qjs_eval_bytecode(&module, code, (uint32_t)shim_len);
    handle_t arguments[2] = {new_function(FUNCTION_PRINT), new_function(FUNCTION_HOST_CALL)};
    if (!is_value(function) || !is_value(arguments[0]) || !is_value(arguments[1]))
        return false;
    for (size_t i = 0; i < 2; ++i)
        wire_put32(guest_bytes(argv + (guest_t)(4 * i), 4), arguments[i]);
    handle_t done = Z_quickjsZ_qjs_call(&module, function, Z_quickjsZ_qjs_get_undefined(&module), 2, argv);
    Z_quickjsZ_wasm_free(&module, code);
    return is_value(done);
}

/* What the engine makes of a seed: the state Math.random goes on from (xorshift64*, one step taken), and beside it the
 * step's low half, with which it hashes the keys of collections. */
static void expand_seed(uint64_t seed, uint8_t out[RANDOM_BYTES])
{
    uint64_t state = seed;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    memcpy(out, &state, sizeof(state));
    wire_put32(out + sizeof(state), (uint32_t)(state * UINT64_C(0x2545F4914F6CDD1D)));
}

/* Where in the module's memory the context keeps that: the one place that holds what became of the seed it was given,
 * which no other place holds by accident. False when it is not one place. */
static bool find_random_state(uint64_t seed)
{
    const uint8_t *memory = module.w2c_memory.data;
    uint8_t sought[RANDOM_BYTES];
    size_t found = 0;
    expand_seed(seed, sought);
    for (uint64_t at = 0; at + RANDOM_BYTES <= module.w2c_memory.size; at += RANDOM_ALIGN) {
        if (memcmp(memory + at, sought, RANDOM_BYTES) == 0) {
            random_state_at = (guest_t)at;
            ++found;
        }
    }
    return found == 1;
}

bool engine_prepare(const uint8_t *shim, size_t shim_len)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return false;
    module_seed_ns = (seed >> SEED_SPARE_BITS | UINT64_C(1) << (63 - SEED_SPARE_BITS)) * 1000;
    if (wasm_rt_impl_try() != 0 || Z_quickjsZ_qjs_init(&module) != 0 || !find_random_state(module_seed_ns / 1000))
        return false;
    Z_quickjsZ_qjs_set_max_stack_size(&module, ENGINE_STACK_MAX);
    Z_quickjsZ_qjs_set_interrupt_handler(&module, 1);
    Z_quickjsZ_qjs_set_promise_rejection_handler(&module, 1);
    scratch = Z_quickjsZ_wasm_malloc(&module, 8);
    name_stack = guest_name("stack");
    name_exec_argv = guest_name("execArgv");
    name_file = guest_name("<cmdline>");
    return scratch != 0 && name_stack != 0 && name_exec_argv != 0 && name_file != 0 && furnish(shim, shim_len);
}

const uint8_t *engine_compile(const char *source, size_t source_len, size_t *len)
{
    if (wasm_rt_impl_try() != 0 || Z_quickjsZ_qjs_init(&module) != 0)
        return NULL;
    guest_t code = guest_strndup(source, source_len), file = guest_name("<shim>"),
            len_at = Z_quickjsZ_wasm_malloc(&module, 4);
    guest_t bytes = Z_quickjsZ_qjs_compile(&module, code, (uint32_t)source_len, file, 0, 0, len_at);
    if (bytes == 0)
        return NULL;
    *len = wire_get32(guest_bytes(len_at, 4));
    return guest_bytes(bytes, *len);
}

/* ---- worker ---- */

bool engine_freshen(void)
{
    uint64_t seed = 0;
    while (seed == 0) { /* from which the generator would never move */
        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
            return false;
    }
    expand_seed(seed, module.w2c_memory.data + random_state_at);
    return true;
}

uint8_t *engine_code_room(uint32_t len)
{
    if (wasm_rt_impl_try() != 0)
        return NULL;
    /* A newline in front, where the reference has its own line of set-up code: a guest's line numbers are its own plus
     * one. */
    code_at = Z_quickjsZ_wasm_malloc(&module, len + 2);
    if (code_at == 0)
        return NULL;
    uint8_t *room = guest_bytes(code_at, (uint64_t)len + 2);
    room[0] = '\n';
    room[len + 1] = 0;
    return room + 1;
}

static void append_text(const char *text)
{
    output_append(OUTPUT_STDERR, text, strlen(text));
}

static void end_if_interrupted(void)
{
    if (is_interrupted)
        output_end(WASM_EXIT_DEADLINE);
}

/* `Name: message` and the stack. Asking a guest's value for its text may run guest code, and take until the deadline.
 */
static void report_value(handle_t value)
{
    if (!append_string_of(OUTPUT_STDERR, value)) {
        end_if_interrupted();
        drop_exception();
        append_text("exception without a text");
    }
    append_text("\n");
    if (Z_quickjsZ_qjs_is_error(&module, value)) {
        handle_t stack = Z_quickjsZ_qjs_get_prop_string(&module, value, name_stack);
        if (is_value(stack) && Z_quickjsZ_qjs_is_string(&module, stack))
            append_string_of(OUTPUT_STDERR, stack);
    }
    end_if_interrupted();
}

static void end_with_exception(void) __attribute__((noreturn));
static void end_with_exception(void)
{
    end_if_interrupted();
    report_value(Z_quickjsZ_qjs_get_exception(&module));
    output_end(WASM_EXIT_EXCEPTION);
}

static void end_with_trap(wasm_rt_trap_t trap) __attribute__((noreturn));
static void end_with_trap(wasm_rt_trap_t trap)
{
    if (output_is_empty(OUTPUT_STDERR)) {
        append_text("guest aborted: wasm error: ");
        append_text(wasm_rt_strerror(trap));
        append_text("\n");
    }
    output_end(WASM_EXIT_TRAP);
}

/* execArgv, the command line as the reference shows it: ["qjs", "-e", source]. False when memory ran out. */
static bool set_exec_argv(guest_t source, uint32_t len)
{
    handle_t list = Z_quickjsZ_qjs_new_array(&module), global = Z_quickjsZ_qjs_get_global(&module);
    handle_t words[3] = {new_string("qjs", 3), new_string("-e", 2), Z_quickjsZ_qjs_new_string(&module, source, len)};
    if (!is_value(list) || !is_value(global))
        return false;
    for (uint32_t i = 0; i < 3; ++i) {
        if (!is_value(words[i]) || (int32_t)Z_quickjsZ_qjs_set_prop_uint32(&module, list, i, words[i]) < 0)
            return false;
    }
    return (int32_t)Z_quickjsZ_qjs_set_prop_string(&module, global, name_exec_argv, list) >= 0;
}

static void run_jobs(void)
{
    for (uint32_t done = 1; Z_quickjsZ_qjs_is_job_pending(&module); ++done) {
        if ((int32_t)Z_quickjsZ_qjs_execute_pending_job(&module) < 0)
            end_with_exception();
        /* A job that only queues the next may never reach the engine's own look at the clock. */
        if (done % JOBS_PER_LOOK == 0)
            module_look_at_clock();
        end_if_interrupted();
    }
}

void engine_run(uint32_t len, uint64_t until_ns)
{
    started_ns = engine_clock_ns();
    deadline_ns = until_ns;
    output_tick(started_ns);
    wasm_rt_trap_t trap = (wasm_rt_trap_t)wasm_rt_impl_try();
    if (trap != WASM_RT_TRAP_NONE)
        end_with_trap(trap);
    if (!set_exec_argv(code_at + 1, len) || !is_value(Z_quickjsZ_qjs_eval(&module, code_at, len + 1, name_file, 0)))
        end_with_exception();
    run_jobs();
    for (size_t i = 0, count = rejections_count(); i < count; ++i) {
        append_text("Possibly unhandled promise rejection: ");
        report_value(rejections_reason(i));
    }
    output_end(rejections_count() > 0 ? WASM_EXIT_EXCEPTION : WASM_EXIT_OK);
}

void engine_run_without_room(void)
{
    append_text("InternalError: out of memory\n");
    output_end(WASM_EXIT_EXCEPTION);
}

bool engine_exceeds_memory(void)
{
    const uint32_t refused = UINT32_MAX;
    uint32_t left = memory_cap - module.w2c_memory.pages;
    if (wasm_rt_grow_memory(&module.w2c_memory, left + 1) != refused)
        return true;
    /* All of it may be more than the machine commits to; then the cap is not what stops the growth. */
    return wasm_rt_grow_memory(&module.w2c_memory, left) != refused &&
           wasm_rt_grow_memory(&module.w2c_memory, 1) != refused;
}

void engine_abort(void)
{
    wasm_rt_trap_t trap = (wasm_rt_trap_t)wasm_rt_impl_try();
    if (trap != WASM_RT_TRAP_NONE)
        end_with_trap(trap);
    Z_quickjsZ_abort(&module);
    output_end(WASM_EXIT_OK);
}
