#include "backends/dockercloud/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dockercloud/wrapper.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/sha256.h"

/* Two whole streams fit in what REST captures of both together (spec 2.6 and 4.4). */
_Static_assert(CLOUD_STEP_STREAM_MAX <= 1900 * 1024 && CLOUD_SNIPPET_STREAM_MAX <= 1900 * 1024,
               "a stream's limit is past what the service carries");

/* --- one command --- */

/* The way there and back of the quickest command yet: what a command's answer needs beside the command. */
static void note_way(cloud_box_t *box, uint64_t took_us)
{
    dc_box_t *own = dc_own(box);
    if (own->exec_us == 0 || took_us < own->exec_us)
        own->exec_us = took_us;
}

static bool exec(dc_t *dc, cloud_box_t *box, const dc_command_t *command, dc_exec_t *out, bool *is_flood,
                 uint64_t *took_ms, cloud_trouble_t *trouble)
{
    uint64_t began_us = clock_mono_us();
    bool is_done = dc->api->exec(dc, box, command, out, is_flood, trouble);
    *took_ms = (clock_mono_us() - began_us) / 1000;
    if (is_done)
        note_way(box, clock_mono_us() - began_us);
    return is_done;
}

/* --- a step of a run --- */

uint32_t dc_guest_limit_ms(uint32_t left_ms, uint64_t way_ms)
{
    uint32_t spare_ms = way_ms < DC_SPARE_MAX_MS ? (uint32_t)way_ms : DC_SPARE_MAX_MS;
    if (spare_ms > left_ms / 4)
        spare_ms = left_ms / 4;
    left_ms -= spare_ms;
    return left_ms > WRAPPER_LIMIT_MIN_MS ? left_ms : WRAPPER_LIMIT_MIN_MS;
}

/* The limit that a guest which knows only whole seconds made of it. */
static uint32_t least_limit_ms(uint32_t limit_ms)
{
    return limit_ms >= 1000 ? limit_ms / 1000 * 1000 : limit_ms;
}

void dc_step_read(const dc_exec_t *exec, bool is_flood, uint32_t limit_ms, uint64_t took_ms, cloud_limits_t *limits,
                  guest_step_t *out)
{
    if (is_flood || exec->is_incomplete) {
        cloud_output_flood(out);
        return;
    }
    cloud_output_add(out, limits, false, exec->out.base, exec->out.len);
    cloud_output_add(out, limits, true, exec->err.base, exec->err.len);
    out->has_ended = true;
    out->exit_code = exec->exit_code;
    /* A program can end that way by itself; not, however, after so long. */
    bool is_killed = exec->exit_code == WRAPPER_KILLED || exec->exit_code == WRAPPER_EXIT_TIMEOUT;
    if (is_killed && took_ms >= least_limit_ms(limit_ms)) {
        out->is_timed_out = true;
        out->exit_code = WRAPPER_EXIT_TIMEOUT;
    }
}

bool dc_step(dc_t *dc, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits, guest_step_t *out,
             cloud_trouble_t *trouble)
{
    uint32_t limit_ms = dc_guest_limit_ms(cloud_left_ms(box->deadline_us), dc_own(box)->exec_us / 1000);
    size_t cap = (size_t)limits->stream_max + 1;
    uint64_t took_ms;
    bool is_flood;
    dc_exec_t done;
    wrapper_t wrapper;

    wrapper_make(&wrapper, command, limit_ms, cap);
    const dc_command_t wrapped = {.argv = wrapper.argv,
                                  .cwd = command->cwd,
                                  .stream_cap = cap,
                                  .deadline_us = box->deadline_us + (uint64_t)DC_LATE_MS * 1000};
    uint64_t way_us = dc_own(box)->exec_us;
    bool has_ended = exec(dc, box, &wrapped, &done, &is_flood, &took_ms, trouble);
    dc_own(box)->exec_us = way_us; /* a program's own time says nothing about the way */
    if (!has_ended)
        return false;
    dc_step_read(&done, is_flood, limit_ms, took_ms, limits, out);
    dc_exec_dispose(&done);
    return true;
}

/* --- stage --- */

/* One of the gateway's own commands; false with the trouble. */
static bool run_own(dc_t *dc, cloud_box_t *box, const char *const *argv, dc_exec_t *out, cloud_trouble_t *trouble)
{
    const dc_command_t command = {.argv = argv, .stream_cap = DC_QUIET_CAP, .deadline_us = box->deadline_us};
    uint64_t took_ms;
    bool is_flood;
    if (!exec(dc, box, &command, out, &is_flood, &took_ms, trouble))
        return false;
    if (!is_flood && !out->is_incomplete)
        return true;
    dc_exec_dispose(out);
    return dc_senseless(trouble, "a command of the gateway's own flooded");
}

static bool make_directories(dc_t *dc, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    enum { WORDS = 4 };
    const char **argv = mem_alloc_array(plan->directory_count + WORDS + 1, sizeof(*argv));
    dc_exec_t done;
    argv[0] = "mkdir";
    argv[1] = "-p";
    argv[2] = "--";
    argv[3] = plan->scripts_directory; /* for the list of sums, whether there are scripts or not */
    for (size_t i = 0; i < plan->directory_count; ++i)
        argv[WORDS + i] = plan->directories[i];
    bool is_done = run_own(dc, box, argv, &done, trouble);
    free(argv);
    if (!is_done)
        return false;
    if (done.exit_code != 0)
        is_done =
            cloud_trouble(trouble, CLOUD_PROTOCOL, "the directories could not be made in the sandbox", "mkdir failed");
    dc_exec_dispose(&done);
    return is_done;
}

/* "SHA256  PATH" lines, as sha256sum reads them: no path has a backslash or a line's end. */
static void list_sums(const cloud_plan_t *plan, buffer_t *out)
{
    char hex[SHA256_HEX + 1];
    for (size_t i = 0; i < plan->file_count; ++i) {
        sha256_hex(plan->files[i].content, plan->files[i].len, hex);
        if (!buffer_printf(out, "%s  %s\n", hex, plan->files[i].path))
            mem_fatal("a plan's list of sums is larger than a plan can be");
    }
}

/* The path that a line "PATH: FAILED..." names, when it is one of the plan's; else NULL. */
static const char *failed_path(const cloud_plan_t *plan, const dc_exec_t *done)
{
    const char *text = (const char *)done->out.base;
    for (size_t i = 0; text != NULL && i < plan->file_count; ++i) {
        const char *path = plan->files[i].path;
        size_t len = strlen(path);
        for (const char *at = strstr(text, path); at != NULL; at = strstr(at + 1, path))
            if ((at == text || at[-1] == '\n') && strncmp(at + len, ": FAILED", 8) == 0)
                return plan->files[i].is_ours ? NULL : path;
    }
    return NULL;
}

static bool judge_sums(const cloud_plan_t *plan, const dc_exec_t *done, cloud_trouble_t *trouble)
{
    char message[CLOUD_TEXT_CALLER_MAX + 1];
    const char *path;
    if (done->exit_code == 0)
        return true;
    if (done->exit_code == WRAPPER_TOOL_MISSING)
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "the sandbox's image cannot check what it was sent",
                             "no sha256sum");
    path = failed_path(plan, done);
    if (path != NULL && strncmp(path, plan->project_directory, strlen(plan->project_directory)) == 0)
        path += strlen(plan->project_directory) + 1;
    snprintf(message, sizeof(message),
             path != NULL ? "a file did not arrive whole in the sandbox: %s"
                          : "what was sent did not arrive whole in the sandbox",
             path);
    return cloud_trouble(trouble, CLOUD_PROTOCOL, message, "sha256sum found a difference");
}

static bool verify(dc_t *dc, cloud_box_t *box, const cloud_plan_t *plan, const char *list, const char *list_sum,
                   cloud_trouble_t *trouble)
{
    const cloud_command_t command = {.argv = {"sh", "-c", WRAPPER_VERIFY, "gwv", list_sum, list}, .argc = 6};
    wrapper_t wrapper;
    dc_exec_t done;
    wrapper_make(&wrapper, &command, dc_guest_limit_ms(cloud_left_ms(box->deadline_us), 0), DC_QUIET_CAP);
    if (!run_own(dc, box, wrapper.argv, &done, trouble))
        return false;
    bool is_whole = judge_sums(plan, &done, trouble);
    dc_exec_dispose(&done);
    return is_whole;
}

bool dc_stage(dc_t *dc, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    enum { LIST_MODE = 0644, LIST_MAX = 1024 * 1024 };
    char list[CLOUD_PATH_MAX * 2], sum[SHA256_HEX + 1];
    cloud_file_t *files = mem_alloc_array(plan->file_count + 1, sizeof(*files));
    buffer_t sums;

    buffer_init(&sums, LIST_MAX);
    list_sums(plan, &sums);
    sha256_hex(sums.base, sums.len, sum);
    snprintf(list, sizeof(list), "%s/sums", plan->scripts_directory);
    memcpy(files, plan->files, plan->file_count * sizeof(*files));
    files[plan->file_count] =
        (cloud_file_t){.path = list, .content = sums.base, .len = sums.len, .mode = LIST_MODE, .is_ours = true};
    bool is_done = make_directories(dc, box, plan, trouble) &&
                   dc->api->upload(dc, box, files, plan->file_count + 1, trouble) &&
                   verify(dc, box, plan, list, sum, trouble);
    buffer_dispose(&sums);
    free(files);
    return is_done;
}

/* --- the trial's own commands: the bounds in the guest hold --- */

static bool run_wrapped(dc_t *dc, cloud_box_t *box, const cloud_command_t *command, uint32_t limit_ms, size_t cap,
                        guest_step_t *step, cloud_trouble_t *trouble)
{
    cloud_limits_t limits = {.stream_max = (uint32_t)cap, .output_left = (uint32_t)cap * 2};
    dc_exec_t done;
    wrapper_t wrapper;
    uint64_t took_ms;
    bool is_flood;

    wrapper_make(&wrapper, command, limit_ms, cap);
    const dc_command_t wrapped = {.argv = wrapper.argv, .stream_cap = cap, .deadline_us = box->deadline_us};
    if (!exec(dc, box, &wrapped, &done, &is_flood, &took_ms, trouble))
        return false;
    buffer_init(&step->out, cap);
    buffer_init(&step->err, cap);
    dc_step_read(&done, is_flood, limit_ms, took_ms, &limits, step);
    dc_exec_dispose(&done);
    return true;
}

static void step_dispose(guest_step_t *step)
{
    buffer_dispose(&step->out);
    buffer_dispose(&step->err);
}

bool dc_probe(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    enum { FLOOD_CAP = 1024 };
    static const cloud_command_t sleeps = {.argv = {"sleep", "30"}, .argc = 2};
    static const cloud_command_t floods = {.argv = {"yes"}, .argc = 1};
    guest_step_t step = {.exit_code = 0};

    if (!run_wrapped(dc, box, &sleeps, 1000, FLOOD_CAP, &step, trouble))
        return false;
    bool holds =
        step.is_timed_out ||
        cloud_trouble(trouble, CLOUD_DIFFERS, "a command outlived its limit in the sandbox", "sleep was not ended");
    step_dispose(&step);
    if (!holds)
        return false;
    step = (guest_step_t){.exit_code = 0};
    if (!run_wrapped(dc, box, &floods, 10 * 1000, FLOOD_CAP, &step, trouble))
        return false;
    holds = (!step.is_timed_out && step.exit_code != 0 && step.out.len == FLOOD_CAP) ||
            cloud_trouble(trouble, CLOUD_DIFFERS, "a command's output was not bounded in the sandbox",
                          "yes was not cut at its limit");
    step_dispose(&step);
    return holds;
}
