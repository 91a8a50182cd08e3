#define _GNU_SOURCE
#include "backends/wasm/template/module.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "backends/wasm/template/engine.h"
#include "backends/wasm/wire.h"

/* WASI's error numbers (snapshot preview 1, `errno`) and clocks. */
enum { WASI_SUCCESS = 0, WASI_BADF = 8, WASI_INVAL = 28, WASI_IO = 29, WASI_NOSYS = 52 };
enum { WASI_CLOCK_REALTIME = 0, WASI_CLOCK_MONOTONIC = 1 };

Z_quickjs_instance_t module;
uint64_t started_ns, deadline_ns = UINT64_MAX, module_seed_ns;
bool is_interrupted;
guest_t scratch;

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

uint8_t *guest_bytes(guest_t at, uint64_t len)
{
    if ((uint64_t)at + len > module.w2c_memory.size)
        wasm_rt_trap(WASM_RT_TRAP_OOB);
    return module.w2c_memory.data + at;
}

guest_t guest_strndup(const char *text, size_t len)
{
    guest_t at = Z_quickjsZ_wasm_malloc(&module, (uint32_t)len + 1);
    if (at != 0) {
        memcpy(guest_bytes(at, len + 1), text, len);
        *guest_bytes(at + (guest_t)len, 1) = 0;
    }
    return at;
}

uint32_t Z_wasi_snapshot_preview1Z_clock_time_get(struct Z_wasi_snapshot_preview1_instance_t *wasi, uint32_t id,
                                                  uint64_t precision, guest_t result_at)
{
    uint64_t ns;
    (void)wasi, (void)precision;
    if (id == WASI_CLOCK_REALTIME && started_ns == 0) {
        /* The engine seeds Math.random with the wall clock's microseconds when it makes a context, and asks the clock
         * for nothing else then. */
        ns = module_seed_ns;
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

bool module_look_at_clock(void)
{
    uint64_t now = engine_clock_ns();
    output_tick(now);
    if (now >= deadline_ns)
        is_interrupted = true;
    return is_interrupted;
}

uint32_t Z_envZ_host_interrupt(struct Z_env_instance_t *env)
{
    (void)env;
    return module_look_at_clock();
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

size_t rejections_count(void)
{
    return rejection_count;
}

handle_t rejections_reason(size_t i)
{
    return rejections[i].reason;
}
