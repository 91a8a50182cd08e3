/*
 * What only a trial looks at (spec backend-openshell 4.7, "startup smoke test"): the sandbox from inside, by programs
 * of our own. What a gateway says of a sandbox was compared already; this is whether it is so.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_json.h"
#include "backends/openshell/openshell_internal.h"
#include "core/clock.h"
#include "core/mem.h"

enum {
    REPORT_MAX = 64 * 1024,
    PLACES_MIN = 100, /* tried for writing */
    FILE_BYTES = GUEST_FILES_BYTES_MAX,
    MARK_SECONDS = 86301,    /* a sleep nobody else asks for */
    CANCELED_MS = 15 * 1000, /* a canceled exec's processes are gone by then */
    CPU_PERMILLE = 1000,
    PERCENT_OFF = 1, /* thousandths the processor limit may be off */
};

static const char *const NODE[] = {"node", "-", NULL};

/* Files and directories that can be written, by trying, at every mount point and in the usual places. Devices are no
 * storage, and /proc has no places of its own. */
static const char LOOK[] =
    "'use strict';\n"
    "const fs = require('fs'), path = require('path');\n"
    "const read = (f) => { try { return fs.readFileSync(f, 'utf8').trim(); } catch (e) { return ''; } };\n"
    "const plain = (s) => s.replace(/\\\\([0-7]{3})/g, (m, o) => String.fromCharCode(parseInt(o, 8)));\n"
    "const mounts = read('/proc/mounts').split('\\n').map((l) => l.split(' ')).filter((m) => m.length >= 4);\n"
    "const places = new Set(mounts.map((m) => plain(m[1])));\n"
    "const usual = ['/', '/bin', '/boot', '/dev', '/dev/shm', '/dev/mqueue', '/etc', '/home', '/lib', '/lib64', "
    "'/media',\n"
    "  '/mnt', '/opt', '/root', '/run', '/run/lock', '/sbin', '/srv', '/sys', '/sys/fs/cgroup', '/usr', '/usr/bin',\n"
    "  '/usr/lib', '/usr/local', '/usr/local/bin', '/usr/local/lib', '/usr/share', '/usr/libexec', '/var', "
    "'/var/cache',\n"
    "  '/var/lib', '/var/log', '/var/mail', '/var/spool', '/var/tmp', '/work', '/sandbox', '/workspace', '/app'];\n"
    "for (const p of usual) places.add(p);\n"
    "for (const top of ['/', '/usr', '/etc', '/var', '/usr/share', '/usr/lib', '/opt', '/home', '/run', '/dev'])\n"
    "  try { for (const e of fs.readdirSync(top, {withFileTypes: true}).slice(0, 80)) if (e.isDirectory()) "
    "places.add(path.join(top, e.name)); } catch (e) {}\n"
    "const isTmp = (p) => p === '/tmp' || p.startsWith('/tmp/');\n"
    "const write = (p) => {\n"
    "  try {\n"
    "    const s = fs.statSync(p);\n"
    "    if (s.isDirectory()) { const f = path.join(p, '.plimsoll-' + process.pid); fs.writeFileSync(f, 'x'); "
    "fs.unlinkSync(f); return true; }\n"
    "    if (s.isFile() && !p.startsWith('/proc/')) { fs.closeSync(fs.openSync(p, 'r+')); return true; }\n"
    "  } catch (e) {}\n"
    "  return false;\n"
    "};\n"
    "const open = [...places].filter((p) => !isTmp(p) && write(p)).slice(0, 5);\n"
    "const net = read('/proc/net/dev').split('\\n').slice(2).map((l) => l.split(':')[0].trim()).filter((n) => n !== "
    "'');\n"
    "const tmp = mounts.filter((m) => m[1] === '/tmp').pop();\n"
    "console.log(JSON.stringify({tried: places.size, open, tmpWritable: write('/tmp'), net,\n"
    "  memory: read('/sys/fs/cgroup/memory.max'), cpu: read('/sys/fs/cgroup/cpu.max'), tmp: tmp ? tmp[2] + ' ' + "
    "tmp[3] : ''}));\n";

/* What a step of a project can do to the runner, whose uid it has: nothing but see that it is there. */
static const char REACH[] =
    "for f in maps mem auxv fd/0 fd/1; do (exec 3</proc/$PPID/$f) 2>/dev/null && echo $f; "
    "(exec 3>>/proc/$PPID/$f) 2>/dev/null && echo write $f; done; ls /proc/$PPID/fd 2>/dev/null; "
    "cat /proc/$PPID/comm";

/* Whether the marked sleep is there, looked for until it is not. */
static const char GONE[] = "'use strict';\n"
                           "const fs = require('fs');\n"
                           "const there = () => fs.readdirSync('/proc').some((p) => { try {\n"
                           "  return /^[0-9]+$/.test(p) && fs.readFileSync('/proc/' + p + '/cmdline', 'latin1') === "
                           "'sleep\\x00MARK\\x00'; } catch (e) { return false; } });\n"
                           "const until = Date.now() + LIMIT;\n"
                           "const look = () => { if (!there()) console.log('gone'); else if (Date.now() < until) "
                           "setTimeout(look, 50); else console.log('there'); };\n"
                           "look();\n";

static bool differs(cloud_trouble_t *trouble, const char *message, const char *detail)
{
    char scrubbed[CLOUD_TEXT_LOG_MAX + 1];
    cloud_text_scrub(NULL, detail, strlen(detail), CLOUD_TEXT_LOG_MAX, scrubbed);
    return cloud_trouble(trouble, CLOUD_DIFFERS, message, scrubbed);
}

/* --- a program, and what it prints --- */

/* True: it ended with 0, and all it printed is in `out`. */
static bool run(openshell_t *openshell, const char *name, const char *code, size_t len, uint64_t until_us,
                buffer_t *out, cloud_trouble_t *trouble)
{
    const command_t command = {.argv = NODE, .workdir = OPENSHELL_DIRECTORY};
    exec_t *exec = exec_open(openshell, name, &command, until_us);
    const uint8_t *bytes;
    size_t bytes_len;
    int32_t exit_code = 0;
    exec_event_t event;
    char said[CLOUD_TEXT_LOG_MAX + 1] = "";
    bool fits = true;

    exec_write(exec, code, len);
    exec_finish(exec);
    while ((event = exec_next(exec, until_us, &bytes, &bytes_len, &exit_code)) == EXEC_OUT || event == EXEC_ERR) {
        if (event == EXEC_ERR && said[0] != '\0')
            continue;
        if (event == EXEC_ERR)
            cloud_text_scrub(NULL, bytes, bytes_len, CLOUD_TEXT_LOG_MAX, said);
        else
            fits = fits && buffer_append(out, bytes, bytes_len);
    }
    if (event == EXEC_ENDED)
        exec_trouble(exec, trouble);
    else if (event == EXEC_CANCELED)
        cloud_trouble(trouble, CLOUD_CANCELED, "the trial was stopped", NULL);
    else if (event == EXEC_LATE)
        cloud_trouble(trouble, CLOUD_LATE, "the trial took too long", NULL);
    else if (exit_code != 0 || !fits)
        cloud_trouble(trouble, CLOUD_DIFFERS, "the trial's own program failed in the sandbox", said);
    else
        trouble->fault = CLOUD_FINE;
    exec_close(exec);
    return trouble->fault == CLOUD_FINE;
}

/* --- places, interfaces, limits --- */

static bool is_only_loopback(const json_t *net)
{
    const char *name = json_string_value(json_array_get(net, 0));
    return json_array_size(net) == 1 && name != NULL && strcmp(name, "lo") == 0;
}

/* "QUOTA PERIOD" of cgroup v2. */
static bool is_cpu_limit(const char *text, double cpus)
{
    char *end;
    double quota = strtod(text, &end), period = *end == ' ' ? strtod(end + 1, &end) : 0;
    return *end == '\0' && quota > 0 && period > 0 && fabs(quota / period - cpus) * CPU_PERMILLE <= PERCENT_OFF;
}

static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += len) {
        if ((at == list || at[-1] == ',' || at[-1] == ' ') && (at[len] == '\0' || at[len] == ','))
            return true;
    }
    return false;
}

static bool is_disk_limit(const char *mount, uint32_t disk_mb)
{
    char size[32];
    snprintf(size, sizeof(size), "size=%uk", disk_mb * 1024);
    return strncmp(mount, "tmpfs ", 6) == 0 && has_word(mount, size) && has_word(mount, "noexec") &&
           has_word(mount, "nosuid") && has_word(mount, "nodev");
}

static bool judge_limits(const openshell_t *openshell, const json_t *report, cloud_trouble_t *trouble)
{
    const char *memory = cloud_json_text(report, "memory"), *cpu = cloud_json_text(report, "cpu"),
               *tmp = cloud_json_text(report, "tmp");
    char want[32];
    snprintf(want, sizeof(want), "%llu", (unsigned long long)openshell->memory_mb * 1024 * 1024);
    if (memory == NULL || strcmp(memory, want) != 0)
        return differs(trouble, "the sandbox's memory limit is not the one asked for", memory != NULL ? memory : "");
    if (cpu == NULL || !is_cpu_limit(cpu, openshell->cpus))
        return differs(trouble, "the sandbox's processor limit is not the one asked for", cpu != NULL ? cpu : "");
    if (openshell->disk_mb > 0 && (tmp == NULL || !is_disk_limit(tmp, openshell->disk_mb)))
        return differs(trouble, "the sandbox's disk limit is not the one asked for", tmp != NULL ? tmp : "");
    return true;
}

static bool judge_look(const openshell_t *openshell, const json_t *report, cloud_trouble_t *trouble)
{
    const json_t *open = json_object_get(report, "open");
    uint64_t tried;
    if (!cloud_json_u64(json_object_get(report, "tried"), &tried) || tried < PLACES_MIN)
        return differs(trouble, "the trial found too few places to try writing", "");
    if (!json_is_array(open) || json_array_size(open) > 0) {
        const char *first = json_string_value(json_array_get(open, 0));
        return differs(trouble, "the sandbox can be written to outside /tmp", first != NULL ? first : "");
    }
    if (!json_is_true(json_object_get(report, "tmpWritable")))
        return differs(trouble, "the sandbox's /tmp cannot be written to", "");
    if (!is_only_loopback(json_object_get(report, "net")))
        return differs(trouble, "the sandbox has a network interface beside its loopback", "");
    return judge_limits(openshell, report, trouble);
}

static bool look(openshell_t *openshell, const char *name, uint64_t until_us, cloud_trouble_t *trouble)
{
    const char *why;
    buffer_t out;
    buffer_init(&out, REPORT_MAX);
    bool holds = run(openshell, name, LOOK, sizeof(LOOK) - 1, until_us, &out, trouble);
    json_t *report = holds ? cloud_json_read(out.base, out.len, &why) : NULL;
    if (holds && report == NULL)
        holds = differs(trouble, "the trial's report cannot be read", why);
    holds = holds && judge_look(openshell, report, trouble);
    json_decref(report);
    buffer_dispose(&out);
    return holds;
}

/* --- a project of the largest size --- */

static bool judge_project(const guest_result_t *result, const uint8_t *content, cloud_trouble_t *trouble)
{
    if (result->outcome != GUEST_COMPLETED || result->step_count != 2 || result->steps[0].exit_code != 0)
        return differs(trouble, "the trial's project did not complete", result->detail);
    if (result->artifact_count != 1 || result->artifacts[0].len != FILE_BYTES ||
        memcmp(result->artifacts[0].content, content, FILE_BYTES) != 0)
        return differs(trouble, "the trial's project came back with another file", "");
    const buffer_t *out = &result->steps[1].out;
    if (out->len != strlen("runner\n") || memcmp(out->base, "runner\n", out->len) != 0)
        return differs(trouble, "the sandbox's runner can be reached by the code it runs",
                       out->base != NULL ? (const char *)out->base : "");
    return true;
}

static bool try_project(openshell_t *openshell, const char *name, uint64_t until_us, cloud_trouble_t *trouble)
{
    const char *const steps[] = {"cp in out", REACH}, *const artifacts[] = {"out"};
    uint8_t *content = mem_alloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; ++i)
        content[i] = (uint8_t)(i * 31 + i / 251);
    guest_file_t file = {.path = "in", .content = content, .len = FILE_BYTES};
    guest_job_t job = {.kind = GUEST_PROJECT,
                       .stream_max = CLOUD_STEP_STREAM_MAX,
                       .output_max = CLOUD_OUTPUT_MAX,
                       .artifacts_max = CLOUD_ARTIFACTS_MAX_BYTES,
                       .files = &file,
                       .file_count = 1,
                       .steps = steps,
                       .step_count = 2,
                       .artifacts = artifacts,
                       .artifact_count = 1};
    guest_t *guest = guest_create();
    bool holds = openshell_run_job(openshell, name, "trial", &job, until_us, guest, trouble) &&
                 judge_project(guest_result(guest), content, trouble);
    guest_destroy(guest);
    free(content);
    return holds;
}

/* --- a canceled exec --- */

/* True when it printed. */
static bool await_start(exec_t *exec, uint64_t until_us, cloud_trouble_t *trouble)
{
    const uint8_t *bytes;
    size_t len;
    int32_t code;
    exec_event_t event = exec_next(exec, until_us, &bytes, &len, &code);
    if (event == EXEC_OUT)
        return true;
    if (event == EXEC_ENDED)
        return exec_trouble(exec, trouble);
    if (event == EXEC_CANCELED)
        return cloud_trouble(trouble, CLOUD_CANCELED, "the trial was stopped", NULL);
    return cloud_trouble(trouble, CLOUD_LATE, "the trial's program did not start", NULL);
}

static bool look_gone(openshell_t *openshell, const char *name, const char *mark, uint64_t until_us,
                      cloud_trouble_t *trouble)
{
    char code[sizeof(GONE) + 32], limit[16];
    buffer_t out;
    const char *mark_at = strstr(GONE, "MARK"), *limit_at = strstr(GONE, "LIMIT");
    snprintf(limit, sizeof(limit), "%u", (unsigned)CANCELED_MS);
    snprintf(code, sizeof(code), "%.*s%s%.*s%s%s", (int)(mark_at - GONE), GONE, mark, (int)(limit_at - mark_at - 4),
             mark_at + 4, limit, limit_at + 5);
    buffer_init(&out, REPORT_MAX);
    bool holds = run(openshell, name, code, strlen(code), until_us, &out, trouble);
    if (holds && (out.len != 5 || memcmp(out.base, "gone\n", 5) != 0))
        holds = differs(trouble, "a canceled command's process goes on in the sandbox", "");
    buffer_dispose(&out);
    return holds;
}

static bool try_cancel(openshell_t *openshell, const char *name, uint64_t until_us, cloud_trouble_t *trouble)
{
    char mark[16], line[64];
    const char *const argv[] = {"sh", "-c", line, NULL};
    const command_t command = {.argv = argv};
    snprintf(mark, sizeof(mark), "%u", (unsigned)MARK_SECONDS);
    snprintf(line, sizeof(line), "echo started; sleep %s & wait", mark);
    exec_t *exec = exec_open(openshell, name, &command, until_us);
    exec_finish(exec);
    bool has_started = await_start(exec, until_us, trouble);
    exec_close(exec);
    return has_started && look_gone(openshell, name, mark, until_us, trouble);
}

bool openshell_probe(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    openshell_t *openshell = openshell_check(self);
    char name[OPENSHELL_NAME + 1];
    openshell_name(box->stamp, name);
    return look(openshell, name, box->deadline_us, trouble) &&
           try_project(openshell, name, box->deadline_us, trouble) &&
           try_cancel(openshell, name, box->deadline_us, trouble);
}
