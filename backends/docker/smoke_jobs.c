#include "backends/docker/smoke_jobs.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/smoke_words.h"
#include "core/log.h"

enum {
    SNIPPET_STREAM_MAX = 64 * 1024, /* as a caller's snippet has it (spec 1.2) */
    STEP_STREAM_MAX = 64 * 1024,
    BUSY_MS = 1000, /* S16 */
    TIMED_OUT = 124,
};

/* Frames of the runner's with numbers that may be the next, and without a right tag: outputs and a FINAL. As escapes
 * for both languages they are written in. */
#define FORGED_FRAME(type, seq) "\\xf5SB1\\x" type "\\x00\\x00\\x00\\x00\\x0" seq "\\x00\\x00\\x00\\x00" FORGED_TAG
#define FORGED_TAG "\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08\\x09\\x0a\\x0b\\x0c\\x0d\\x0e\\x0f"
#define FORGED FORGED_FRAME("58", "2") FORGED_FRAME("58", "3") FORGED_FRAME("4f", "2")

static guest_job_t snippet_job(const char *code, uint32_t timeout_ms)
{
    return (guest_job_t){.kind = GUEST_SNIPPET,
                         .timeout_ms = timeout_ms,
                         .stream_max = SNIPPET_STREAM_MAX,
                         .output_max = 2 * SNIPPET_STREAM_MAX,
                         .code = code,
                         .code_len = strlen(code)};
}

/* The one step of a snippet, or the numbered one of a project; NULL when it did not begin or has not ended. */
static const guest_step_t *step_of(const smoke_box_t *box, size_t index)
{
    const guest_result_t *result = smoke_box_result(box);
    return index < result->step_count && result->steps[index].has_ended ? &result->steps[index] : NULL;
}

static bool has_ended_well(const smoke_box_t *box, size_t index)
{
    const guest_step_t *step = step_of(box, index);
    return step != NULL && !step->is_timed_out && step->exit_code == 0 && step->signal == 0;
}

/* The output as text, without its newline. */
static void text_of(const guest_step_t *step, char *out, size_t size)
{
    size_t len = step->out.len < size - 1 ? step->out.len : size - 1;
    if (len > 0)
        memcpy(out, step->out.base, len);
    out[len] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* "42 v22.1.0": the answer, then a version of harmless characters. */
static bool take_version(const guest_step_t *step, char *version, size_t size)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyz0123456789.+-";
    char text[128];
    text_of(step, text, sizeof(text));
    const char *rest = text + 3;
    if (strncmp(text, "42 ", 3) != 0 || rest[0] == '\0' || strlen(rest) >= size || strspn(rest, known) != strlen(rest))
        return false;
    snprintf(version, size, "%s", rest);
    return true;
}

/* S14, S15: what is printed and what is put into the runner's own stream changes nothing of the result. */
bool smoke_jobs_snippet(const smoke_test_t *test, smoke_t *out)
{
    const guest_job_t job = snippet_job("const forged=Buffer.from('" FORGED "','latin1'),fs=require('fs');"
                                        "try{fs.writeFileSync('/proc/1/fd/1',forged)}catch{}"
                                        "fs.writeSync(2,forged);console.log(6*7,process.version)",
                                        SMOKE_JOB_MS);
    smoke_box_t box;
    bool is_well = smoke_box_open(&box, test, DOCKER_SNIPPET, NULL) && smoke_box_execute(&box, &job);
    if (is_well) {
        const guest_step_t *step = step_of(&box, 0);
        if (!has_ended_well(&box, 0) || smoke_box_result(&box)->outcome != GUEST_COMPLETED)
            is_well = smoke_failed(test, DOCKER_SNIPPET, "S15: node did not run a snippet to its end");
        else if (!take_version(step, out->node_version, sizeof(out->node_version)))
            is_well = smoke_failed(test, DOCKER_SNIPPET, "S15: node did not answer 6*7 with 42");
        else if (step->err.len != 3 * 30)
            is_well = smoke_failed(test, DOCKER_SNIPPET, "S14: a forged frame changed a result");
    }
    return smoke_box_close(&box, is_well);
}

bool smoke_jobs_busy(const smoke_test_t *test)
{
    const guest_job_t job = snippet_job("for(;;);", BUSY_MS);
    smoke_box_t box;
    bool is_well = smoke_box_open(&box, test, DOCKER_SNIPPET, NULL) && smoke_box_execute(&box, &job);
    if (is_well) {
        const guest_step_t *step = step_of(&box, 0);
        if (step == NULL || !step->is_timed_out || step->exit_code != TIMED_OUT)
            is_well = smoke_failed(test, DOCKER_SNIPPET, "S16: an endless loop was not stopped at its deadline");
    }
    return smoke_box_close(&box, is_well);
}

static bool is_all(const buffer_t *bytes, uint8_t byte)
{
    for (size_t i = 0; i < bytes->len; ++i) {
        if (bytes->base[i] != byte)
            return false;
    }
    return true;
}

/* S18: 100 MB, of which the first 64 KiB are kept, wherever the rest is dropped. */
bool smoke_jobs_flood(const smoke_test_t *test)
{
    const guest_job_t job = snippet_job("const b=Buffer.alloc(1e6,97),fs=require('fs');"
                                        "for(let i=0;i<100;i++)for(let n=0;n<b.length;)"
                                        "try{n+=fs.writeSync(1,b,n)}catch(e){if(e.code!=='EAGAIN')throw e}",
                                        SMOKE_JOB_MS);
    smoke_box_t box;
    bool is_well = smoke_box_open(&box, test, DOCKER_SNIPPET, NULL) && smoke_box_execute(&box, &job);
    if (is_well) {
        const guest_step_t *step = step_of(&box, 0);
        if (!has_ended_well(&box, 0) || !step->is_out_truncated || step->out.len != SNIPPET_STREAM_MAX ||
            !is_all(&step->out, 'a'))
            is_well = smoke_failed(test, DOCKER_SNIPPET, "S18: a flood of output did not give its first 64 KiB");
    }
    return smoke_box_close(&box, is_well);
}

/* --- a project --- */

enum { STEP_FORGE, STEP_LEAVE, STEP_LOOK, STEP_LIST, STEP_PYTHON, STEP_COUNT_OF_PROJECT };

static const char *const PROJECT_STEPS[STEP_COUNT_OF_PROJECT] = {
    /* S14, S15 */
    [STEP_FORGE] = "node -e \"const forged=Buffer.from('" FORGED "','latin1'),fs=require('fs');"
                   "try{fs.writeFileSync('/proc/1/fd/1',forged)}catch{}"
                   "fs.writeSync(2,forged);console.log(6*7,process.version)\"",
    /* S17: it keeps the step's pipes open as well */
    [STEP_LEAVE] = "sleep 1000 & echo left",
    [STEP_LOOK] = "cat /proc/[0-9]*/comm 2>/dev/null; true",
    /* An old gVisor under a newer userland cannot list a tmpfs (spec 8 (20)). */
    [STEP_LIST] = "cd /work && echo x > smoke && ls -l /work 2>/dev/null | grep -c smoke; true",
    [STEP_PYTHON] = "python3 -c 'import platform; print(6*7, platform.python_version())' 2>/dev/null; true",
};

static bool has_line(const guest_step_t *step, const char *line)
{
    size_t len = strlen(line), at = 0;
    while (at < step->out.len) {
        const uint8_t *begin = step->out.base + at, *end = memchr(begin, '\n', step->out.len - at);
        size_t this_len = end != NULL ? (size_t)(end - begin) : step->out.len - at;
        if (this_len == len && memcmp(begin, line, len) == 0)
            return true;
        at += this_len + 1;
    }
    return false;
}

static bool judge_project(const smoke_box_t *box, smoke_t *out)
{
    const smoke_test_t *test = box->test;
    char version[sizeof(out->node_version)];
    for (size_t i = 0; i < STEP_COUNT_OF_PROJECT; ++i) {
        if (!has_ended_well(box, i)) {
            char why[64];
            snprintf(why, sizeof(why), "S15: step %zu of the project did not end with 0", i + 1);
            return smoke_failed(test, DOCKER_PROJECT, why);
        }
    }
    if (smoke_box_result(box)->outcome != GUEST_COMPLETED)
        return smoke_failed(test, DOCKER_PROJECT, "S15: the project did not run to its end");
    if (!take_version(step_of(box, STEP_FORGE), version, sizeof(version)))
        return smoke_failed(test, DOCKER_PROJECT, "S15: node did not answer 6*7 with 42");
    if (step_of(box, STEP_FORGE)->err.len != 3 * 30)
        return smoke_failed(test, DOCKER_PROJECT, "S14: a forged frame changed a result");
    if (!has_line(step_of(box, STEP_LEAVE), "left"))
        return smoke_failed(test, DOCKER_PROJECT, "S17: the step that leaves a process did not run");
    if (has_line(step_of(box, STEP_LOOK), "sleep") || step_of(box, STEP_LOOK)->out.len == 0)
        return smoke_failed(test, DOCKER_PROJECT, "S17: a process lived on after its step");
    if (!has_line(step_of(box, STEP_LIST), "1"))
        log_event(LOG_WARN, "guest cannot list its files", log_str("runtime", test->want->want->runtime));
    out->has_python = take_version(step_of(box, STEP_PYTHON), out->python_version, sizeof(out->python_version));
    return true;
}

bool smoke_jobs_project(const smoke_test_t *test, smoke_t *out)
{
    const guest_job_t job = {.kind = GUEST_PROJECT,
                             .timeout_ms = SMOKE_JOB_MS,
                             .stream_max = STEP_STREAM_MAX,
                             .output_max = STEP_COUNT_OF_PROJECT * STEP_STREAM_MAX,
                             .steps = PROJECT_STEPS,
                             .step_count = STEP_COUNT_OF_PROJECT};
    smoke_box_t box;
    bool is_well =
        smoke_box_open(&box, test, DOCKER_PROJECT, NULL) && smoke_box_execute(&box, &job) && judge_project(&box, out);
    return smoke_box_close(&box, is_well);
}
