#define _GNU_SOURCE
#include "backends/wasm/template/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/wasm/template/confine.h"
#include "backends/wasm/template/engine.h"
#include "backends/wasm/template/output.h"
#include "backends/wasm/wire.h"

/* Some output, and then deaf to its deadline: for the test of the role's own kill. */
static void hang(void) __attribute__((noreturn));
static void hang(void)
{
    sigset_t all;
    output_append(OUTPUT_STDOUT, "still here\n", 11);
    output_flush();
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (;;)
        ;
}

/* Tries natively what the filter must make fatal. Coming back at all, with whatever result, is reported. */
static void probe(uint8_t what) __attribute__((noreturn));
static void probe(uint8_t what)
{
    static uint8_t page[4096] __attribute__((aligned(4096)));
    switch (what) {
    case WASM_PROBE_OPEN:
        syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY, 0);
        break;
    case WASM_PROBE_SOCKET:
        syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
        break;
    case WASM_PROBE_FORK:
        if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0)
            _exit(0);
        break;
    case WASM_PROBE_EXEC:
        syscall(SYS_execve, "/bin/true", NULL, NULL);
        break;
    case WASM_PROBE_KILL:
        syscall(SYS_kill, 0, 0);
        break;
    case WASM_PROBE_PTRACE:
        syscall(SYS_ptrace, 0, 0, 0, 0);
        break;
    case WASM_PROBE_MMAP:
        syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
        break;
    case WASM_PROBE_EXECUTABLE_PAGE:
        syscall(SYS_mprotect, page, sizeof(page), PROT_READ | PROT_EXEC);
        break;
    case WASM_PROBE_OTHER_FD:
        syscall(SYS_write, 2, "", 0);
        break;
    case WASM_PROBE_GROW:
        if (engine_exceeds_memory())
            break;
        output_end(WASM_EXIT_OK);
    case WASM_PROBE_TRAP:
        engine_abort();
    case WASM_PROBE_HANG:
        hang();
    default:
        _exit(WASM_STATUS_BROKEN);
    }
    output_frame(WASM_FRAME_SURVIVED, &what, 1);
    _exit(0);
}

static void probe_main(void) __attribute__((noreturn));
static void probe_main(void)
{
    enum { PROBE_MS = 1000 };
    uint8_t what;
    input_read(&what, 1);
    if (!confine_worker(PROBE_MS))
        _exit(WASM_STATUS_BROKEN);
    probe(what);
}

void worker_main(int fd, int template_pid, bool is_probe)
{
    struct sigaction alarm_action = {.sa_handler = output_on_alarm, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct sigaction as_ever = {.sa_handler = SIG_DFL};
    uint8_t head[WASM_FRAME_HEADER];

    if (!confine_worker_early(fd, template_pid) || sigaction(SIGALRM, &alarm_action, NULL) != 0 ||
        sigaction(SIGXCPU, &as_ever, NULL) != 0)
        _exit(WASM_STATUS_BROKEN);
    if (!engine_freshen())
        _exit(WASM_STATUS_BROKEN);

    input_read(head, sizeof(head));
    uint64_t read_ns = engine_clock_ns();
    uint32_t len = wire_get32(head + 1);
    if (is_probe && head[0] == WASM_FRAME_PROBE && len == 1)
        probe_main();
    if (is_probe || head[0] != WASM_FRAME_START || len < 8 || len > 8 + WASM_CODE_MAX)
        _exit(WASM_STATUS_BROKEN);
    uint8_t start[8];
    input_read(start, sizeof(start));
    uint32_t timeout_ms = wire_get32(start), code_len = wire_get32(start + 4);
    if (code_len != len - 8 || timeout_ms > WASM_TIMEOUT_MAX_MS || !confine_worker(timeout_ms))
        _exit(WASM_STATUS_BROKEN);

    uint8_t *room = engine_code_room(code_len);
    if (room == NULL)
        engine_run_without_room();
    input_read(room, code_len);
    engine_run(code_len, read_ns + (uint64_t)timeout_ms * 1000000u);
}
