#include "backends/dockercloud/wrapper.h"

#include <inttypes.h>
#include <stdio.h>

/*
 * Why it is as it is: the tools are looked for first, as a FIFO would be opened for ever with `head` missing. The
 * command runs in the background and the shell's own stderr goes nowhere, so no shell's "Killed" gets into the output.
 * Descriptor 3 is the real stderr. A writer past the cap gets SIGPIPE, so a flood ends by itself; the length that comes
 * back is what says that it was cut. A descendant that keeps a stream open holds the end back: the host's deadline is
 * the bound then.
 */
static const char WRAPPER[] =
    "lim=$1; cap=$2; shift 2\n"
    "for t in timeout head mktemp mkfifo rm; do command -v \"$t\" >/dev/null 2>&1 || exit 127; done\n"
    "exec 3>&2 2>/dev/null\n"
    "case $lim in *.*) timeout 9.5 sh -c : || { lim=${lim%.*}; [ \"$lim\" -ge 1 ] || lim=1; };; esac\n"
    "d=$(mktemp -d /tmp/.gwx.XXXXXX) && mkfifo \"$d/1\" \"$d/2\" || exit 125\n"
    "head -c \"$cap\" <\"$d/1\" 3>&- & a=$!\n"
    "head -c \"$cap\" <\"$d/2\" >&3 3>&- & b=$!\n"
    "timeout -s KILL \"$lim\" \"$@\" >\"$d/1\" 2>\"$d/2\" </dev/null 3>&- & c=$!\n"
    "wait \"$c\"; st=$?\n"
    "wait \"$a\" \"$b\"\n"
    "rm -rf \"$d\"\n"
    "exit \"$st\"\n";

const char WRAPPER_VERIFY[] =
    "command -v sha256sum >/dev/null 2>&1 || exit 127\n"
    "printf '%s  %s\\n' \"$1\" \"$2\" | sha256sum -c - >/dev/null 2>&1 || { printf '%s: FAILED\\n' \"$2\"; exit 1; }\n"
    "sha256sum -c \"$2\" 2>/dev/null && rm -f \"$2\" || exit 1\n";

void wrapper_make(wrapper_t *out, const cloud_command_t *command, uint32_t limit_ms, size_t cap)
{
    size_t n = 0;
    if (limit_ms < WRAPPER_LIMIT_MIN_MS)
        limit_ms = WRAPPER_LIMIT_MIN_MS;
    if (limit_ms % 1000 == 0)
        snprintf(out->limit, sizeof(out->limit), "%" PRIu32, limit_ms / 1000);
    else
        snprintf(out->limit, sizeof(out->limit), "%" PRIu32 ".%03" PRIu32, limit_ms / 1000, limit_ms % 1000);
    snprintf(out->cap, sizeof(out->cap), "%zu", cap);
    out->argv[n++] = "sh";
    out->argv[n++] = "-c";
    out->argv[n++] = WRAPPER;
    out->argv[n++] = "gwx";
    out->argv[n++] = out->limit;
    out->argv[n++] = out->cap;
    for (size_t i = 0; i < command->argc; ++i)
        out->argv[n++] = command->argv[i];
    out->argv[n] = NULL;
}
