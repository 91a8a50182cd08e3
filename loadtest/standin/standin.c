/*
 * A wall that runs nothing: it does what the first lines of the code tell it, so tests and benchmarks decide when it
 * answers, refuses, fails, lies or dies. It exists in the test and bench builds alone (PLIMSOLL_STANDIN).
 *
 * Each line "standin: VERB ..." at the top of a snippet, or of a project's first step, is one act, taken in order.
 * Acts that end the run:
 *   - answer [EXIT]: stdout "ok\n"; also what happens when no line answered
 *   - bytes N: stdout of N bytes, every value of a byte among them
 *   - refuse REASON [RETRY_MS]: request permission protocol unsupported isolation capacity environment none
 *   - fail CODE: a Connect code
 *   - lie tier|kind|name|record|garbage: an answer that does not hold
 *   - exit: the role's process ends
 * Acts that wait; one that meets the deadline ends as a run of code would, exit code 124, timed_out:
 *   - hold MS
 *   - hold until PATH is gone
 *   - deaf MS: whatever the deadline or a cancel says
 * Acts of the wall that bills, which the others pass over: loadtest/standin/paid.c.
 * Acts that say what a project came to: loadtest/standin/project.h.
 *
 * PLIMSOLL_STANDIN1 (of "standin") and PLIMSOLL_STANDIN2 (of "standin2") hold words, comma-separated:
 *     tier=NAME software=IDENTITY policy=TEXT ceiling=MS kinds=javascript+project then=LINE
 * where `then` is the act of a run whose code holds none. PLIMSOLL_STANDIN_LOG names a file that gets a line for each
 * run that came this far: run ID, caller, wall.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/backend.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/fault.h"
#include "core/mem.h"
#include "loadtest/standin/project.h"
#include "loadtest/standin/standin.h"

enum {
    STANDIN_MAGIC = 0x7374616e,
    CEILING_MS = 5 * 60 * 1000,
    DEFAULT_TIMEOUT_MS = 10 * 1000,
    EXIT_DEADLINE = 124,
    EXIT_CANCELED = 130,
    LINE_MAX_BYTES = 512,
    BYTES_MAX = 31 * 1024 * 1024, /* of output: below the 32 MiB a client accepts */
    GONE_LOOK_MS = 5,
    HUNG_LOOK_MS = 20, /* a proof held by its fault point looks this often whether it still is */
};

#define PREFIX STANDIN_PREFIX

typedef struct {
    unsigned magic;
    const char *name;
    const char *prove_point, *hang_point;
    tier_t tier;
    bool has_javascript, has_project;
    uint32_t ceiling_ms;
    const char *software, *policy, *then;
    int log_fd;
    char problem[BACKEND_TEXT_MAX];
} standin_t;

/* One run on its way through its lines. */
typedef struct {
    standin_t *wall;
    backend_run_t *run;
    bool is_canceled, is_late;
    standin_plan_t plan;
} play_t;

static standin_t *standin_check(void *self)
{
    standin_t *wall = self;
    if (wall->magic != STANDIN_MAGIC)
        mem_fatal("not the stand-in");
    return wall;
}

/* --- settings --- */

static const char *value_of(const char *word, const char *key)
{
    size_t len = strlen(key);
    return strncmp(word, key, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

static void take_word(standin_t *wall, const char *word)
{
    const char *value;
    if ((value = value_of(word, "tier")) != NULL) {
        wall->tier = tier_parse(value);
    } else if ((value = value_of(word, "software")) != NULL) {
        wall->software = value;
    } else if ((value = value_of(word, "policy")) != NULL) {
        wall->policy = value;
    } else if ((value = value_of(word, "ceiling")) != NULL) {
        wall->ceiling_ms = (uint32_t)strtoul(value, NULL, 10);
    } else if ((value = value_of(word, "kinds")) != NULL) {
        wall->has_javascript = strstr(value, "javascript") != NULL;
        wall->has_project = strstr(value, "project") != NULL;
    } else if ((value = value_of(word, "then")) != NULL) {
        wall->then = value;
    } else if (!standin_paid_takes(word)) {
        snprintf(wall->problem, sizeof(wall->problem), "the stand-in knows no setting %s", word);
    }
}

void *standin_create(const char *name, const char *prove_point, const char *hang_point, option_id_t words, tier_t tier)
{
    standin_t *wall = mem_alloc(sizeof(*wall));
    const char *path = option_str(OPT_PLIMSOLL_STANDIN_LOG);
    *wall = (standin_t){
        .magic = STANDIN_MAGIC,
        .name = name,
        .prove_point = prove_point,
        .hang_point = hang_point,
        .tier = tier,
        .has_javascript = true,
        .has_project = true,
        .ceiling_ms = CEILING_MS,
        .software = "",
        .policy = "",
        .then = "answer",
        .log_fd = -1,
    };
    for (const char *const *word = option_list(words); *word != NULL; ++word)
        take_word(wall, *word);
    /* Opened here, before root is dropped. */
    if (path != NULL && (wall->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
        snprintf(wall->problem, sizeof(wall->problem), "PLIMSOLL_STANDIN_LOG: %s", strerror(errno));
    return wall;
}

static void *setup_first(const backend_host_t *host)
{
    (void)host;
    return standin_create(STANDIN_BACKEND.name, "standin.prove", "standin.prove.hang", OPT_PLIMSOLL_STANDIN1,
                          TIER_CONTAINER);
}

static void *setup_second(const backend_host_t *host)
{
    (void)host;
    return standin_create(STANDIN2_BACKEND.name, "standin2.prove", "standin2.prove.hang", OPT_PLIMSOLL_STANDIN2,
                          TIER_VM);
}

const char *standin_problem(void *self)
{
    standin_t *wall = standin_check(self);
    return wall->problem[0] != '\0' ? wall->problem : NULL;
}

/* --- facts --- */

static void kind_fill(const standin_t *wall, backend_kind_t *kind, const char *language)
{
    kind->supported = true;
    kind->max_timeout_ms = wall->ceiling_ms;
    kind->default_timeout_ms = wall->ceiling_ms < DEFAULT_TIMEOUT_MS ? wall->ceiling_ms : DEFAULT_TIMEOUT_MS;
    kind->languages[0] = language;
    snprintf(kind->environment, sizeof(kind->environment), "standin:%s", wall->name);
    snprintf(kind->software_identity, sizeof(kind->software_identity), "%s", wall->software);
}

void standin_describe(void *self, backend_facts_t *facts)
{
    standin_t *wall = standin_check(self);
    memset(facts, 0, sizeof(*facts));
    facts->tier = TIER_UNKNOWN;
    if (wall->has_javascript)
        kind_fill(wall, &facts->javascript, "javascript");
    if (wall->has_project)
        kind_fill(wall, &facts->project, "shell");
    facts->memory_mb = (uint32_t)option_int(OPT_SANDBOX_MEMORY_MB);
    snprintf(facts->policy, sizeof(facts->policy), "%s", wall->policy);
}

bool standin_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    standin_t *wall = standin_check(self);
    if (wall->problem[0] != '\0' || fault_point(wall->prove_point)) {
        snprintf(failure, BACKEND_TEXT_MAX, "%s", wall->problem[0] != '\0' ? wall->problem : "fault point");
        return false;
    }
    while (fault_point(wall->hang_point)) {
        if (co_sleep(HUNG_LOOK_MS) == CO_CANCELED)
            return false;
    }
    standin_describe(wall, facts);
    facts->tier = wall->tier;
    return true;
}

/* --- answers --- */

static bool is_project(const play_t *play)
{
    return play->run->request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
}

static Plimsoll__V1__RunResponse *response_of(const play_t *play, bool as_project, int32_t exit_code, bool is_timed_out,
                                              uint8_t *out, size_t len)
{
    Plimsoll__V1__RunResponse *response = mem_alloc(sizeof(*response));
    plimsoll__v1__run_response__init(response);
    if (!as_project) {
        Plimsoll__V1__JavaScriptResult *js = mem_alloc(sizeof(*js));
        plimsoll__v1__java_script_result__init(js);
        js->exit_code = exit_code;
        js->timed_out = is_timed_out;
        js->stdout = (ProtobufCBinaryData){len, out};
        response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT;
        response->javascript = js;
        return response;
    }
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT;
    response->project = standin_plan_result(&play->plan, is_project(play) ? play->run->request->project : NULL,
                                            exit_code, is_timed_out, out, len);
    return response;
}

/* Ends the run with these bytes, which it takes, and with what the waits before met. */
static void finish(play_t *play, int32_t exit_code, uint8_t *out, size_t len)
{
    const char *name = play->wall->name;
    if (backend_step(play->run, STEP_COLLECT)) {
        free(out);
        backend_run_fail(play->run, "internal", "the stand-in lost the result", "fault point");
        return;
    }
    if (play->is_late || play->is_canceled)
        exit_code = play->is_late ? EXIT_DEADLINE : EXIT_CANCELED;
    backend_run_done(play->run, name, response_of(play, is_project(play), exit_code, play->is_late, out, len),
                     play->is_canceled);
}

static bool act_answer(play_t *play, const char *rest)
{
    uint8_t *ok = (uint8_t *)mem_strdup("ok\n");
    finish(play, (int32_t)strtol(rest, NULL, 10), ok, strlen("ok\n"));
    return true;
}

static bool act_bytes(play_t *play, const char *rest)
{
    size_t len = strtoul(rest, NULL, 10);
    if (len > BYTES_MAX)
        len = BYTES_MAX;
    uint8_t *out = mem_alloc(len + 1);
    for (size_t i = 0; i < len; ++i)
        out[i] = (uint8_t)i;
    finish(play, 0, out, len);
    return true;
}

static bool act_refuse(play_t *play, const char *rest)
{
    static const char *const names[] = {"none",        "request",   "permission", "protocol",
                                        "unsupported", "isolation", "capacity",   "environment"};
    size_t len = strcspn(rest, " ");
    unsigned reason = 0;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
        if (strlen(names[i]) == len && strncmp(rest, names[i], len) == 0)
            reason = i;
    play->run->retry_after_ms = (uint32_t)strtoul(rest + len, NULL, 10);
    backend_run_refuse(play->run, (Plimsoll__Backend__Refusal)reason, "the stand-in was told to refuse", "told to");
    return true;
}

static bool act_fail(play_t *play, const char *rest)
{
    static const char *const codes[] = {"internal", "unavailable", "canceled", "deadline_exceeded"};
    const char *code = "unheard_of";
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); ++i)
        if (strcmp(rest, codes[i]) == 0)
            code = codes[i];
    backend_run_fail(play->run, code, "the stand-in was told to fail", "detail that is not the caller's");
    return true;
}

static void replace(char **field, const char *value)
{
    if (*field != protobuf_c_empty_string)
        free(*field);
    *field = mem_strdup(value);
}

static bool act_lie(play_t *play, const char *rest)
{
    bool wrong_kind = strcmp(rest, "kind") == 0;
    Plimsoll__V1__RunResponse *response =
        response_of(play, is_project(play) != wrong_kind, 0, false, (uint8_t *)mem_strdup("lie\n"), strlen("lie\n"));
    backend_run_done(play->run, strcmp(rest, "name") == 0 ? "somebody" : play->wall->name, response, false);
    if (strncmp(rest, "tier ", 5) == 0)
        replace(&response->isolation, rest + 5);
    if (strcmp(rest, "garbage") == 0)
        replace(&response->instance, "\xff\xfe"); /* no UTF-8, so no protobuf string */
    if (strcmp(rest, "record") == 0) {
        response->record = mem_alloc(sizeof(*response->record));
        plimsoll__v1__run_record__init(response->record);
        response->record->version = 2;
    }
    return true;
}

static void __attribute__((format(printf, 2, 3))) leave_line(const standin_t *wall, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    if (wall->log_fd < 0)
        return;
    va_start(args, fmt);
    int len = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    /* One write a line, in append mode: lines of two processes do not mix. */
    if (len >= (int)sizeof(line) || write(wall->log_fd, line, (size_t)len) != len)
        mem_fatal("PLIMSOLL_STANDIN_LOG cannot be written");
}

static bool act_note(play_t *play, const char *rest)
{
    leave_line(play->wall, "note %.64s\n", rest);
    return false;
}

static bool act_paid(play_t *play, const char *rest)
{
    (void)play;
    (void)rest;
    return false;
}

static bool act_exit(play_t *play, const char *rest)
{
    (void)play;
    (void)rest;
    _exit(1);
}

/* --- waits --- */

static uint64_t left_ms(const play_t *play)
{
    uint64_t now_us = clock_mono_us();
    return now_us < play->run->deadline_us ? (play->run->deadline_us - now_us + 999) / 1000 : 0;
}

/* True when the wait is over for good: the deadline or a cancel ended it. */
static bool wait_ms(play_t *play, uint64_t ms)
{
    uint64_t left = left_ms(play);
    play->is_canceled = co_sleep(ms < left ? ms : left) == CO_CANCELED;
    play->is_late = !play->is_canceled && left_ms(play) == 0;
    return play->is_canceled || play->is_late;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0 || errno != ENOENT;
}

static bool act_hold(play_t *play, const char *rest)
{
    char path[LINE_MAX_BYTES];
    bool is_over = false;
    if (sscanf(rest, "until %511s is gone", path) == 1) {
        while (!is_over && is_there(path))
            is_over = wait_ms(play, GONE_LOOK_MS);
    } else {
        is_over = wait_ms(play, strtoul(rest, NULL, 10));
    }
    if (is_over)
        finish(play, 0, NULL, 0);
    return is_over;
}

static bool act_deaf(play_t *play, const char *rest)
{
    (void)play;
    co_shield_begin();
    co_sleep(strtoul(rest, NULL, 10));
    co_shield_end();
    return false;
}

/* --- a run --- */

/* True when the act answered the run. */
static bool act(play_t *play, const char *line)
{
    static const struct {
        const char *verb;
        bool (*act)(play_t *play, const char *rest);
    } acts[] = {{"answer", act_answer}, {"bytes", act_bytes}, {"refuse", act_refuse}, {"fail", act_fail},
                {"lie", act_lie},       {"exit", act_exit},   {"hold", act_hold},     {"deaf", act_deaf},
                {"note", act_note},     {"paid", act_paid}};
    size_t len = strcspn(line, " ");
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); ++i)
        if (strlen(acts[i].verb) == len && strncmp(line, acts[i].verb, len) == 0)
            return acts[i].act(play, line[len] == ' ' ? line + len + 1 : "");
    if (standin_plan_take(&play->plan, line, len, line[len] == ' ' ? line + len + 1 : ""))
        return false;
    backend_run_fail(play->run, "internal", "the stand-in knows no such act", line);
    return true;
}

const char *standin_code(const Plimsoll__V1__RunRequest *request)
{
    if (request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT)
        return request->project->n_steps != 0 ? request->project->steps[0] : "";
    return request->javascript->code;
}

static void follow_lines(play_t *play)
{
    const char *at = standin_code(play->run->request);
    char line[LINE_MAX_BYTES];
    if (strncmp(at, PREFIX, strlen(PREFIX)) != 0 && act(play, play->wall->then))
        return;
    while (strncmp(at, PREFIX, strlen(PREFIX)) == 0) {
        at += strlen(PREFIX);
        size_t len = strcspn(at, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)(len < sizeof(line) ? len : sizeof(line) - 1), at);
        if (act(play, line))
            return;
        at += len + (at[len] == '\n');
    }
    act_answer(play, "");
}

void standin_run(void *self, backend_run_t *run)
{
    standin_t *wall = standin_check(self);
    play_t play = {.wall = wall, .run = run};
    leave_line(wall, "%s %.256s %s\n", run->run_id, run->caller, wall->name);
    if (backend_step(run, STEP_CREATE)) {
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY, "no stand-in could be made",
                           "fault point");
        return;
    }
    if (backend_step(run, STEP_EXECUTE)) {
        backend_run_fail(run, "internal", "the stand-in failed", "fault point");
        return;
    }
    follow_lines(&play);
}

void standin_stop(void *self)
{
    standin_t *wall = standin_check(self);
    if (wall->log_fd >= 0)
        close(wall->log_fd);
    wall->magic = 0;
    free(wall);
}

const backend_ops_t STANDIN_BACKEND = {
    .name = "standin",
    .setup = setup_first,
    .check = standin_problem,
    .describe = standin_describe,
    .prove = standin_prove,
    .run = standin_run,
    .stop = standin_stop,
};

const backend_ops_t STANDIN2_BACKEND = {
    .name = "standin2",
    .setup = setup_second,
    .check = standin_problem,
    .describe = standin_describe,
    .prove = standin_prove,
    .run = standin_run,
    .stop = standin_stop,
};
