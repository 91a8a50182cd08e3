#define _GNU_SOURCE
#include "backends/wasm/template/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "engine-module.h" /* made by wasm2c */
#include "wasm-rt-impl.h"

#include "backends/wasm/template/output.h"
#include "backends/wasm/template/shim.h"
#include "backends/wasm/wire.h"

/* The module's imports name these; both sides are this one process, so neither carries anything. */
struct Z_env_instance_t {
    int unused;
};
struct Z_wasi_snapshot_preview1_instance_t {
    int unused;
};

/* A JSValue in the module's memory, which it hands out as the address of a box; 0 is none. */
typedef uint32_t handle_t;
/* An address in the module's memory. */
typedef uint32_t guest_t;

/* WASI's error numbers (snapshot preview 1, `errno`). */
enum { WASI_SUCCESS = 0, WASI_BADF = 8, WASI_FAULT = 21, WASI_INVAL = 28, WASI_IO = 29, WASI_NOSYS = 52 };
enum { WASI_CLOCK_REALTIME = 0, WASI_CLOCK_MONOTONIC = 1 };

enum {
    REJECTIONS_MAX =
        65536, /* promises rejected and not yet handled that are watched; 12 bytes each, touched only when used */
    JOBS_PER_LOOK = 64,         /* jobs between two looks at the clock */
    ALTSTACK_BYTES = 64 * 1024, /* for signal frames, which grow with the processor's registers */
};

static Z_quickjs_instance_t module;
static struct Z_env_instance_t env_imports;
static struct Z_wasi_snapshot_preview1_instance_t wasi_imports;

static uint64_t started_ns;  /* monotonic; 0 while the context is being made */
static uint64_t deadline_ns; /* UINT64_MAX until the run starts */
static bool is_interrupted;  /* the deadline stopped the engine */
static guest_t scratch;      /* four bytes the engine writes lengths to */
static guest_t code_at;
static uint32_t memory_cap; /* pages */
static guest_t name_stack, name_exec_argv, name_file;

static struct {
    handle_t promise, reason;
    guest_t identity;
} rejections[REJECTIONS_MAX];
static size_t rejection_count;

uint64_t engine_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The host's view of `len` bytes at `at`; an address the module has no right to ends it as any wild access would. */
static uint8_t *guest_bytes(guest_t at, uint64_t len)
{
    if ((uint64_t)at + len > module.w2c_memory.size)
        wasm_rt_trap(WASM_RT_TRAP_OOB);
    return module.w2c_memory.data + at;
}

static guest_t guest_strndup(const char *text, size_t len)
{
    guest_t at = Z_quickjsZ_wasm_malloc(&module, (uint32_t)len + 1);
    if (at != 0) {
        memcpy(guest_bytes(at, len + 1), text, len);
        *guest_bytes(at + (guest_t)len, 1) = 0;
    }
    return at;
}

/* ---- imports of the module ---- */

uint32_t Z_wasi_snapshot_preview1Z_clock_time_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, uint32_t id,
                                                  uint64_t precision, guest_t result_at)
{
    uint64_t ns;
    (void)wasi, (void)precision;
    if (id == WASI_CLOCK_REALTIME && started_ns == 0) {
        /* The engine seeds Math.random with the wall clock when it makes a context, and asks the clock for nothing else
         * then. Workers made in the same microsecond would share a sequence: give it the kernel's randomness. */
        if (getrandom(&ns, sizeof(ns), 0) != sizeof(ns))
            return WASI_IO;
    } else if (id == WASI_CLOCK_REALTIME) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    } else if (id == WASI_CLOCK_MONOTONIC) {
        /* Counted from the start of the run, so that a worker's time in waiting is not seen. */
        ns = started_ns == 0 ? 0 : engine_clock_ns() - started_ns;
    } else {
        return WASI_INVAL;
    }
    memcpy(guest_bytes(result_at, sizeof(ns)), &ns, sizeof(ns));
    return WASI_SUCCESS;
}

uint32_t Z_wasi_snapshot_preview1Z_random_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, guest_t at,
                                              uint32_t len)
{
    (void)wasi;
    uint8_t *to = guest_bytes(at, len);
    /* Asked once, by the module's start in the template. A confined worker has no such call. */
    if (deadline_ns != UINT64_MAX)
        return WASI_NOSYS;
    while (len > 0) {
        ssize_t n = getrandom(to, len < 256 ? len : 256, 0);
        if (n <= 0)
            return WASI_IO;
        to += n;
        len -= (uint32_t)n;
    }
    return WASI_SUCCESS;
}

/* The engine's own diagnostics: printf and assertions inside the module. */
uint32_t Z_wasi_snapshot_preview1Z_fd_write(struct Z_wasi_snapshot_preview1_instance_t *wasi, uint32_t fd,
                                            guest_t vectors, uint32_t count, guest_t written_at)
{
    uint32_t total = 0;
    (void)wasi;
    if (fd != 1 && fd != 2)
        return WASI_BADF;
    for (uint32_t i = 0; i < count; ++i) {
        const uint8_t *vector = guest_bytes(vectors, ((uint64_t)i + 1) * 8) + (size_t)i * 8;
        uint32_t len = wire_get32(vector + 4);
        output_append(fd == 1 ? OUTPUT_STDOUT : OUTPUT_STDERR, guest_bytes(wire_get32(vector), len), len);
        total += len;
    }
    wire_put32(guest_bytes(written_at, 4), total);
    return WASI_SUCCESS;
}

uint32_t Z_wasi_snapshot_preview1Z_fd_close(struct Z_wasi_snapshot_preview1_instance_t *wasi, uint32_t fd)
{
    (void)wasi, (void)fd;
    return WASI_NOSYS;
}

uint32_t Z_wasi_snapshot_preview1Z_fd_seek(struct Z_wasi_snapshot_preview1_instance_t *wasi, uint32_t fd,
                                           uint64_t offset, uint32_t whence, guest_t result_at)
{
    (void)wasi, (void)fd, (void)offset, (void)whence, (void)result_at;
    return WASI_NOSYS;
}

uint32_t Z_wasi_snapshot_preview1Z_fd_fdstat_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, uint32_t fd,
                                                 guest_t stat_at)
{
    (void)wasi;
    if (fd != 1 && fd != 2)
        return WASI_BADF;
    /* fdstat: u8 file type (2 = character device), u16 flags at 2, u64 rights at 8 and 16. */
    uint8_t *stat = guest_bytes(stat_at, 24);
    memset(stat, 0, 24);
    stat[0] = 2;
    return WASI_SUCCESS;
}

uint32_t Z_envZ_host_interrupt(struct Z_env_instance_t *env)
{
    (void)env;
    uint64_t now = engine_clock_ns();
    output_tick(now);
    if (now >= deadline_ns)
        is_interrupted = true;
    return is_interrupted;
}

uint32_t Z_envZ_host_get_timezone_offset(struct Z_env_instance_t *env, uint32_t high, uint32_t low)
{
    (void)env, (void)high, (void)low;
    return 0; /* UTC */
}

/* Never asked: no module loader is set. */
uint32_t Z_envZ_host_module_load(struct Z_env_instance_t *env, guest_t name, guest_t length_at)
{
    (void)env, (void)name, (void)length_at;
    return 0;
}

uint32_t Z_envZ_host_module_normalize(struct Z_env_instance_t *env, guest_t base, guest_t name)
{
    (void)env, (void)base, (void)name;
    return 0;
}

void Z_envZ_host_promise_rejection(struct Z_env_instance_t *env, handle_t promise, handle_t reason, uint32_t is_handled)
{
    (void)env;
    guest_t identity = Z_quickjsZ_qjs_get_value_ptr(&module, promise);
    if (!is_handled && rejection_count < REJECTIONS_MAX) {
        /* Both handles are kept, so the identity cannot be given to another object meanwhile. */
        rejections[rejection_count].promise = promise;
        rejections[rejection_count].reason = reason;
        rejections[rejection_count].identity = identity;
        ++rejection_count;
        return;
    }
    if (is_handled) {
        for (size_t i = rejection_count; i-- > 0;) { /* a handler mostly comes soon after the rejection */
            if (rejections[i].identity != identity)
                continue;
            Z_quickjsZ_qjs_free_value(&module, rejections[i].promise);
            Z_quickjsZ_qjs_free_value(&module, rejections[i].reason);
            memmove(&rejections[i], &rejections[i + 1], (rejection_count - i - 1) * sizeof(rejections[0]));
            --rejection_count;
            break;
        }
    }
    Z_quickjsZ_qjs_free_value(&module, promise);
    Z_quickjsZ_qjs_free_value(&module, reason);
}

/* ---- what guest code can call ---- */

static handle_t new_undefined(void)
{
    return Z_quickjsZ_qjs_dup_value(&module, Z_quickjsZ_qjs_get_undefined(&module));
}

/* Appends the value's string form. False with the exception pending when it has none. */
static bool append_string_of(output_stream_t stream, handle_t value)
{
    guest_t text = Z_quickjsZ_qjs_get_string_len(&module, value, scratch);
    if (text == 0)
        return false;
    uint32_t len = wire_get32(guest_bytes(scratch, 4));
    output_append(stream, guest_bytes(text, len), len);
    Z_quickjsZ_qjs_free_cstring(&module, text);
    return true;
}

/* An object whose own toString fails is shown by its class, as the engine's command line does. */
static bool append_class_of(output_stream_t stream, handle_t value)
{
    uint64_t raw, text_value;
    guest_t context = Z_quickjsZ_qjs_get_context_ptr(&module);
    memcpy(&raw, guest_bytes(value, sizeof(raw)), sizeof(raw));
    text_value = Z_quickjsZ_JS_ToObjectString(&module, context, raw);
    guest_t text = Z_quickjsZ_JS_ToCStringLen2(&module, context, scratch, text_value, 0);
    if (text == 0)
        return false;
    uint32_t len = wire_get32(guest_bytes(scratch, 4));
    output_append(stream, guest_bytes(text, len), len);
    Z_quickjsZ_JS_FreeCString(&module, context, text);
    Z_quickjsZ_JS_FreeValue(&module, context, text_value);
    return true;
}

static void drop_exception(void)
{
    Z_quickjsZ_qjs_free_value(&module, Z_quickjsZ_qjs_get_exception(&module));
}

/* console.*: the arguments' string forms with a space between them, and a newline, on stdout. */
static handle_t call_print(uint32_t argc, const uint8_t *argv)
{
    for (uint32_t i = 0; i < argc; ++i) {
        handle_t value = wire_get32(argv + (size_t)i * 4);
        if (i > 0)
            output_append(OUTPUT_STDOUT, " ", 1);
        if (output_is_full(OUTPUT_STDOUT) && Z_quickjsZ_qjs_is_string(&module, value))
            continue; /* a flood of output costs no conversion */
        if (append_string_of(OUTPUT_STDOUT, value))
            continue;
        if (is_interrupted || !Z_quickjsZ_qjs_is_object(&module, value))
            return 0;
        drop_exception();
        if (!append_class_of(OUTPUT_STDOUT, value))
            return 0;
    }
    output_append(OUTPUT_STDOUT, "\n", 1);
    output_tick(engine_clock_ns());
    return new_undefined();
}

static handle_t new_string(const void *text, size_t len)
{
    guest_t at = guest_strndup(text, len);
    if (at == 0)
        return 0;
    handle_t value = Z_quickjsZ_qjs_new_string(&module, at, (uint32_t)len);
    Z_quickjsZ_wasm_free(&module, at);
    return value;
}

/* One exchange with the role. The answer is three digits of status and the body; the number 0 says the request was too
 * large. */
static handle_t call_host(uint32_t argc, const uint8_t *argv)
{
    handle_t value = argc > 0 ? wire_get32(argv) : 0;
    guest_t text = value != 0 ? Z_quickjsZ_qjs_get_string_len(&module, value, scratch) : 0;
    if (text == 0)
        return 0;
    uint32_t len = wire_get32(guest_bytes(scratch, 4));
    if (len == 0 || len > WASM_CALL_MAX) {
        Z_quickjsZ_qjs_free_cstring(&module, text);
        return len == 0 ? new_string("413", 3) : Z_quickjsZ_qjs_new_number(&module, 0);
    }
    output_frame(WASM_FRAME_CALL, guest_bytes(text, len), len);
    Z_quickjsZ_qjs_free_cstring(&module, text);

    uint8_t head[WASM_FRAME_HEADER + 8];
    input_read(head, sizeof(head));
    uint32_t frame_len = wire_get32(head + 1), status = wire_get32(head + 5), body_len = wire_get32(head + 9);
    if (head[0] != WASM_FRAME_REPLY || body_len > WASM_REPLY_BODY_MAX || frame_len != body_len + 8 || status < 100 ||
        status > 599)
        _exit(WASM_STATUS_BROKEN);
    guest_t answer = Z_quickjsZ_wasm_malloc(&module, 3 + body_len);
    if (answer == 0) {
        /* The answer must still be taken from the socket, or the next one would be misread. */
        uint8_t lost[4096];
        for (uint32_t left = body_len; left > 0;) {
            uint32_t n = left < sizeof(lost) ? left : (uint32_t)sizeof(lost);
            input_read(lost, n);
            left -= n;
        }
        return new_string("500", 3);
    }
    uint8_t *to = guest_bytes(answer, (uint64_t)body_len + 3);
    to[0] = (uint8_t)('0' + status / 100);
    to[1] = (uint8_t)('0' + status / 10 % 10);
    to[2] = (uint8_t)('0' + status % 10);
    input_read(to + 3, body_len);
    handle_t result = Z_quickjsZ_qjs_new_string(&module, answer, 3 + body_len);
    Z_quickjsZ_wasm_free(&module, answer);
    return result;
}

/* The names the engine hands back at a call; the guest sees them as `name` and in stacks. */
static const char FUNCTION_PRINT[] = "log", FUNCTION_HOST_CALL[] = "host_call";

uint32_t Z_envZ_host_call(struct Z_env_instance_t *env, guest_t name, uint32_t name_len, handle_t this_value,
                          uint32_t argc, guest_t argv)
{
    (void)env, (void)this_value;
    const uint8_t *function = guest_bytes(name, name_len);
    /* The array stays where it is during the call; memory grows in place. */
    const uint8_t *arguments = guest_bytes(argv, (uint64_t)argc * 4);
    if (name_len == sizeof(FUNCTION_PRINT) - 1 && memcmp(function, FUNCTION_PRINT, name_len) == 0)
        return call_print(argc, arguments);
    if (name_len == sizeof(FUNCTION_HOST_CALL) - 1 && memcmp(function, FUNCTION_HOST_CALL, name_len) == 0)
        return call_host(argc, arguments);
    return new_undefined();
}

/* ---- template ---- */

bool engine_boot(uint32_t max_pages)
{
    static uint8_t altstack[ALTSTACK_BYTES] __attribute__((aligned(64)));
    stack_t on = {.ss_sp = altstack, .ss_size = sizeof(altstack)};

    deadline_ns = UINT64_MAX;
    wasm_rt_init();
    if (sigaltstack(&on, NULL) != 0)
        return false;
    if (wasm_rt_impl_try() != 0)
        return false;
    Z_quickjs_init_module();
    Z_quickjs_instantiate(&module, &env_imports, &wasi_imports);
    /* Growth past the cap fails inside the module, and the engine reports it as out of memory. */
    memory_cap = module.w2c_memory.max_pages = max_pages;
    Z_quickjsZ__initialize(&module);
    return true;
}

/* ---- worker ---- */

static handle_t new_function(const char *function)
{
    guest_t name = guest_strndup(function, strlen(function));
    return name != 0 ? Z_quickjsZ_qjs_new_host_function(&module, name, (uint32_t)strlen(function), 0) : 0;
}

static bool is_value(handle_t value)
{
    return value != 0 && !Z_quickjsZ_qjs_is_exception(&module, value);
}

static handle_t evaluate(guest_t code, uint32_t len, guest_t file)
{
    return Z_quickjsZ_qjs_eval(&module, code, len, file, 0);
}

static guest_t guest_name(const char *name)
{
    return guest_strndup(name, strlen(name));
}

static bool furnish(void)
{
    static const char define_source[] = "Object.defineProperty";
    guest_t shim = guest_strndup(SHIM_SOURCE, sizeof(SHIM_SOURCE) - 1), shim_name = guest_name("<shim>");
    guest_t define = guest_strndup(define_source, sizeof(define_source) - 1),
            argv = Z_quickjsZ_wasm_malloc(&module, 12);
    if (shim == 0 || shim_name == 0 || define == 0 || argv == 0)
        return false;
    handle_t function = evaluate(shim, sizeof(SHIM_SOURCE) - 1, shim_name);
    handle_t arguments[3] = {new_function(FUNCTION_PRINT), new_function(FUNCTION_HOST_CALL),
                             evaluate(define, sizeof(define_source) - 1, shim_name)};
    if (!is_value(function) || !is_value(arguments[0]) || !is_value(arguments[1]) || !is_value(arguments[2]))
        return false;
    for (size_t i = 0; i < 3; ++i)
        wire_put32(guest_bytes(argv + (guest_t)(4 * i), 4), arguments[i]);
    handle_t done = Z_quickjsZ_qjs_call(&module, function, Z_quickjsZ_qjs_get_undefined(&module), 3, argv);
    Z_quickjsZ_wasm_free(&module, shim);
    return is_value(done);
}

bool engine_prepare(void)
{
    if (wasm_rt_impl_try() != 0 || Z_quickjsZ_qjs_init(&module) != 0)
        return false;
    Z_quickjsZ_qjs_set_max_stack_size(&module, ENGINE_STACK_MAX);
    Z_quickjsZ_qjs_set_interrupt_handler(&module, 1);
    Z_quickjsZ_qjs_set_promise_rejection_handler(&module, 1);
    scratch = Z_quickjsZ_wasm_malloc(&module, 8);
    name_stack = guest_name("stack");
    name_exec_argv = guest_name("execArgv");
    name_file = guest_name("<cmdline>");
    return scratch != 0 && name_stack != 0 && name_exec_argv != 0 && name_file != 0 && furnish();
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
            Z_envZ_host_interrupt(&env_imports);
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
    if (!set_exec_argv(code_at + 1, len) || !is_value(evaluate(code_at, len + 1, name_file)))
        end_with_exception();
    run_jobs();
    for (size_t i = 0, count = rejection_count; i < count; ++i) {
        append_text("Possibly unhandled promise rejection: ");
        report_value(rejections[i].reason);
    }
    output_end(rejection_count > 0 ? WASM_EXIT_EXCEPTION : WASM_EXIT_OK);
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
