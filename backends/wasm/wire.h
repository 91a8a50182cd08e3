/*
 * What the wasm role says to its template process and to the workers forked from it: numbers only, shared by both
 * sides.
 *
 * Worker socket (stream): frames of u8 type | u32 length, little-endian | bytes. Control socket (SOCK_SEQPACKET): one
 * wasm_control_t a message, with descriptors beside it where the comment says so.
 */
#ifndef BACKENDS_WASM_WIRE_H
#define BACKENDS_WASM_WIRE_H

#include <stdint.h>

enum {
    /* To the worker. */
    WASM_FRAME_START = 0,  /* u32 milliseconds to the deadline, u32 code length, code */
    WASM_FRAME_REPLY = 4,  /* u32 status, u32 length, body: answers one WASM_FRAME_CALL */
    WASM_FRAME_PROBE = 16, /* u8 wasm_probe_t; only a worker forked with WASM_FORK_PROBE takes it */
    /* To the role. */
    WASM_FRAME_STDOUT = 1,
    WASM_FRAME_STDERR = 2,
    WASM_FRAME_CALL = 3,      /* host-call envelope */
    WASM_FRAME_END = 5,       /* i32 exit code; the last frame */
    WASM_FRAME_SURVIVED = 17, /* u8 wasm_probe_t: what had to be fatal was not */

    WASM_FRAME_HEADER = 5,
    WASM_STREAM_FRAME_MAX = 64 * 1024,           /* bytes of output in one frame */
    WASM_CALL_MAX = 1024 * 1024 + 64 * 1024,     /* envelope: 1 MiB of body and what wraps it */
    WASM_REPLY_BODY_MAX = 4 * 1024 * 1024,       /* bytes of one host-call answer */
    WASM_CODE_MAX = 256 * 1024,                  /* the protocol's limit on a snippet */
    WASM_STREAM_KEEP = 64 * 1024,                /* bytes of a stream that are returned */
    WASM_STREAM_SEND_MAX = WASM_STREAM_KEEP + 1, /* a worker sends one more, which tells of the cut, and then no more */
};

/* Exit codes a worker can state (spec section 2.2). */
enum {
    WASM_EXIT_OK = 0,
    WASM_EXIT_EXCEPTION = 1,
    WASM_EXIT_DEADLINE = 124,
    WASM_EXIT_TRAP = 134,
};

/* What a worker's own exit status says when it ended without WASM_FRAME_END. */
enum {
    WASM_STATUS_DEADLINE = 90, /* past the deadline, inside a write: no frame could be sent */
    WASM_STATUS_BROKEN = 91,   /* socket closed, malformed frame from the role, or no engine */
};

/* What the template's own exit status says when it does not come up. */
enum {
    WASM_TEMPLATE_ARGUMENTS = 2,
    WASM_TEMPLATE_SETUP = 3,   /* the kernel or the engine refused a part of it */
    WASM_TEMPLATE_CONTEXT = 4, /* no context, or what must differ between runs was not found in it */
};

enum { WASM_TIMEOUT_MAX_MS = 30 * 1000, WASM_TIMEOUT_DEFAULT_MS = 5 * 1000 };

/* The worker's own last resort for native code that never asks for the time: past the deadline by this, in
 * milliseconds. The role's kill comes later still. */
enum { WASM_ALARM_MS = 50 };

typedef enum {
    WASM_PROBE_OPEN = 1,
    WASM_PROBE_SOCKET,
    WASM_PROBE_FORK,
    WASM_PROBE_EXEC,
    WASM_PROBE_KILL,
    WASM_PROBE_PTRACE,
    WASM_PROBE_MMAP,
    WASM_PROBE_EXECUTABLE_PAGE, /* mprotect, allowed to grow memory, for code */
    WASM_PROBE_OTHER_FD,        /* write, allowed on the socket, on another descriptor */
    WASM_PROBE_LAST = WASM_PROBE_OTHER_FD,
    /* Not the filter's. Linear memory up to its cap, which may succeed, and one page beyond, which must not; exit 0: */
    WASM_PROBE_GROW,
    WASM_PROBE_TRAP, /* an unreachable instruction in the engine: exit 134 */
    WASM_PROBE_HANG, /* some output, then deaf to its deadline and its alarm */
} wasm_probe_t;

enum {
    /* To the template. */
    WASM_CONTROL_FORK = 1, /* serial, value = WASM_FORK_*; beside it the worker's end of its socket */
    /* To the role. */
    WASM_CONTROL_HELLO =
        16, /* once, when ready; value = bits WASM_HELLO_*; identity = the engine module's SHA-256, hex */
    WASM_CONTROL_FORKED = 17,   /* serial, value = pid; beside it the worker's pidfd */
    WASM_CONTROL_UNFORKED = 18, /* serial, value = errno */
    WASM_CONTROL_EXITED = 19,   /* serial, value = wait status */
};
enum { WASM_FORK_RUN = 0, WASM_FORK_PROBE = 1 };
enum { WASM_HELLO_NAMESPACES = 1 }; /* the template is in a user and network namespace of its own */

typedef struct {
    uint32_t op;
    uint32_t serial;
    int32_t value;
    char identity[68]; /* NUL-terminated */
} wasm_control_t;

/* The arguments of the template: control descriptor, most pages of 64 KiB, most workers at once. */
enum {
    WASM_PAGES_MIN = 64,       /* 4 MiB: below this the engine cannot start */
    WASM_PAGES_DEFAULT = 4096, /* 256 MiB */
    /* wabt 1.0.32 keeps a memory's size in 32 bits: 65,536 pages would be 0. */
    WASM_PAGES_MAX = 65535,
    WASM_PAGES_PER_MB = 16,
    WASM_WORKERS_MAX = 4096,
};

#endif
