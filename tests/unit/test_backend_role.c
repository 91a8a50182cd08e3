/*
 * A backend role as its own process, talked to as a front does: evidence, refusals, one answer a run, cancel, capacity,
 * drain, and what is left of it after kill -9. The wall is a scripted one, and in the end the real wasm wall.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/wasm_harness.h"

#include "backends/backend.h"
#include "backends/meters.h"
#include "backends/role.h"
#include "backends/wasm/wasm.h"
#include "config/options.h"
#include "core/ipc.h"
#include "core/log.h"
#include "core/mem.h"

/* Frame types, as backend.proto numbers them. */
enum { ANNOUNCE = 16, START = 17, REFUSED = 18, DONE = 19, FAILED = 20, ANSWERS_MAX = 64 };

/* --- the scripted wall, in the role's process; seen and moved by the test --- */

typedef struct {
    volatile int is_provable, is_untried, is_misconfigured, proofs, running, most_running, canceled, stopped;
} script_t;

static script_t *script;

static void *scripted_setup(const backend_host_t *host)
{
    return (void *)host;
}

static const char *scripted_check(void *self)
{
    (void)self;
    return script->is_misconfigured ? "a setting it cannot enforce" : NULL;
}

static void scripted_describe(void *self, backend_facts_t *facts)
{
    (void)self;
    memset(facts, 0, sizeof(*facts));
    facts->javascript = (backend_kind_t){.supported = true,
                                         .max_timeout_ms = 2000,
                                         .default_timeout_ms = 300,
                                         .environment = "scripted:sha256:1",
                                         .software_identity = "scripted:1",
                                         .languages = {"javascript"}};
}

static bool scripted_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    ++script->proofs;
    scripted_describe(self, facts);
    facts->tier = TIER_CONTAINER;
    snprintf(failure, BACKEND_TEXT_MAX, "told to fail");
    facts->is_untried = script->is_untried;
    return script->is_provable;
}

static void scripted_answer(backend_run_t *run, size_t len, bool is_canceled)
{
    Plimsoll__V1__RunResponse *response = mem_alloc(sizeof(*response));
    Plimsoll__V1__JavaScriptResult *js = mem_alloc(sizeof(*js));
    plimsoll__v1__run_response__init(response);
    plimsoll__v1__java_script_result__init(js);
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT;
    response->javascript = js;
    js->stdout.len = len;
    js->stdout.data = mem_alloc(len + 1);
    backend_run_done(run, "scripted", response, is_canceled);
}

/* "sleep", "refuse", "fail", "answer N bytes". */
static void scripted_run(void *self, backend_run_t *run)
{
    const char *code = run->request->javascript->code;
    size_t len = 0;
    bool is_canceled = false;
    (void)self;
    backend_step(run, STEP_CREATE);
    meter_inc(METER_CLAIMS_COLD);
    meter_inc(METER_SANDBOXES_RUNNING);
    if (++script->running > script->most_running)
        script->most_running = script->running;
    backend_step(run, STEP_EXECUTE);
    if (strcmp(code, "sleep") == 0) {
        uint64_t now_us = clock_mono_us();
        is_canceled = co_sleep(run->deadline_us > now_us ? (run->deadline_us - now_us + 999) / 1000 : 0) == CO_CANCELED;
    }
    --script->running;
    meter_add(METER_SANDBOXES_RUNNING, -1);
    if (is_canceled)
        ++script->canceled;
    if (strcmp(code, "refuse") == 0) {
        backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_ENVIRONMENT, "not today", "for the log");
    } else if (strcmp(code, "fail") == 0) {
        backend_run_fail(run, "unavailable", "lost", "for the log");
    } else {
        sscanf(code, "answer %zu bytes", &len);
        scripted_answer(run, len, is_canceled);
    }
    backend_step(run, STEP_DELETE);
}

static void scripted_stop(void *self)
{
    (void)self;
    ++script->stopped;
}

static const backend_ops_t SCRIPTED = {
    .name = "scripted",
    .billed = true,
    .setup = scripted_setup,
    .check = scripted_check,
    .describe = scripted_describe,
    .prove = scripted_prove,
    .run = scripted_run,
    .stop = scripted_stop,
};

/* --- the role's process --- */

static char dir[] = "/tmp/plimsoll-role-XXXXXX", path[64];
static pid_t role_pid;
static int parent_end = -1;

static void role_process(const char *name, int listen_fd, int parent_fd) __attribute__((noreturn));
static void role_process(const char *name, int listen_fd, int parent_fd)
{
    problems_t problems = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    options_load_role(ROLE_BACKEND, &problems, NULL);
    if (problems.count != 0)
        _exit(99);
    log_init("backend", LOG_FORMAT_TEXT, LOG_ERROR);
    backend_add(&SCRIPTED);
    int status = backend_role_main(name, listen_fd, parent_fd);
    /* The leak check at exit looks into this process. */
    prctl(PR_SET_DUMPABLE, 1);
    problems_dispose(&problems);
    exit(status);
}

static void role_start(const char *name)
{
    int pair[2], listen_fd = ipc_listen(path);
    assert_true(listen_fd >= 0);
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    role_pid = fork();
    if (role_pid == 0) {
        close(pair[1]);
        role_process(name, listen_fd, pair[0]);
    }
    close(listen_fd);
    close(pair[0]);
    parent_end = pair[1];
}

static int role_wait(uint32_t within_ms)
{
    uint64_t until_ms = clock_mono_ms() + within_ms;
    int status = -1;
    while (clock_mono_ms() < until_ms) {
        pid_t got = waitpid(role_pid, &status, WNOHANG);
        if (got == role_pid) {
            role_pid = 0;
            return status;
        }
        loop_run_once(harness_loop, 2);
    }
    return -1;
}

/* --- the test's front --- */

typedef struct {
    uint64_t call;
    uint16_t type;
    Plimsoll__Backend__RunDone *done;
    Plimsoll__Backend__RunRefused *refused;
    Plimsoll__Backend__RunFailed *failed;
    Plimsoll__V1__RunResponse *response;
} answer_t;

typedef struct {
    ipc_t *ipc;
    Plimsoll__Backend__Announce *announce;
    size_t announces;
    int64_t cold, running; /* as the role counts */
    answer_t answers[ANSWERS_MAX];
    size_t count;
    bool is_closed;
} front_t;

/* Closed by tear_down when a test did not come to it. */
static front_t front, other;

static void front_on_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    front_t *f = data;
    (void)ipc;
    if (type == ANNOUNCE) {
        if (f->announce != NULL)
            plimsoll__backend__announce__free_unpacked(f->announce, NULL);
        f->announce = plimsoll__backend__announce__unpack(NULL, len, body);
        ++f->announces;
        return;
    }
    if (type == ROLE_METERS) {
        Plimsoll__Backend__Meters *meters = plimsoll__backend__meters__unpack(NULL, len, body);
        assert_int_equal(meters->n_values, METER_COUNT);
        f->cold = meters->values[METER_CLAIMS_COLD];
        f->running = meters->values[METER_SANDBOXES_RUNNING];
        plimsoll__backend__meters__free_unpacked(meters, NULL);
        return;
    }
    if (f->count == ANSWERS_MAX)
        abort();
    answer_t *a = &f->answers[f->count++];
    a->call = call;
    a->type = type;
    if (type == DONE) {
        a->done = plimsoll__backend__run_done__unpack(NULL, len, body);
        a->response = plimsoll__v1__run_response__unpack(NULL, a->done->response.len, a->done->response.data);
    } else if (type == REFUSED) {
        a->refused = plimsoll__backend__run_refused__unpack(NULL, len, body);
    } else if (type == FAILED) {
        a->failed = plimsoll__backend__run_failed__unpack(NULL, len, body);
    }
}

static void front_on_close(void *data, ipc_t *ipc, const char *reason)
{
    (void)ipc, (void)reason;
    ((front_t *)data)->is_closed = true;
}

static const ipc_callbacks_t FRONT_CALLBACKS = {.on_message = front_on_message, .on_close = front_on_close};

static void front_open(front_t *f)
{
    memset(f, 0, sizeof(*f));
    f->ipc = ipc_create(harness_loop, ipc_connect(path), &FRONT_CALLBACKS, f);
    assert_non_null(f->ipc);
}

static void front_forget_answers(front_t *f)
{
    for (size_t i = 0; i < f->count; ++i) {
        answer_t *a = &f->answers[i];
        if (a->done != NULL)
            plimsoll__backend__run_done__free_unpacked(a->done, NULL);
        if (a->refused != NULL)
            plimsoll__backend__run_refused__free_unpacked(a->refused, NULL);
        if (a->failed != NULL)
            plimsoll__backend__run_failed__free_unpacked(a->failed, NULL);
        if (a->response != NULL)
            plimsoll__v1__run_response__free_unpacked(a->response, NULL);
    }
    f->count = 0;
    memset(f->answers, 0, sizeof(f->answers));
}

static void front_close(front_t *f)
{
    front_forget_answers(f);
    if (f->announce != NULL)
        plimsoll__backend__announce__free_unpacked(f->announce, NULL);
    ipc_destroy(f->ipc);
    memset(f, 0, sizeof(*f));
}

typedef struct {
    const char *code, *floor, *software;
    uint32_t timeout_ms;
    bool is_project, is_empty, is_garbage;
} ask_t;

static void front_ask(front_t *f, uint64_t call, ask_t ask)
{
    Plimsoll__V1__RunRequest request = PLIMSOLL__V1__RUN_REQUEST__INIT;
    Plimsoll__V1__JavaScriptRun js = PLIMSOLL__V1__JAVA_SCRIPT_RUN__INIT;
    Plimsoll__V1__ProjectRun project = PLIMSOLL__V1__PROJECT_RUN__INIT;
    Plimsoll__V1__SoftwareRule rule = PLIMSOLL__V1__SOFTWARE_RULE__INIT;
    Plimsoll__Backend__RunStart start = PLIMSOLL__BACKEND__RUN_START__INIT;
    uint8_t packed[4096];
    request.protocol = 4;
    js.code = (char *)(ask.code != NULL ? ask.code : "answer 0 bytes");
    if (ask.is_project) {
        request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
        request.project = &project;
    } else if (!ask.is_empty) {
        request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT;
        request.javascript = &js;
    }
    if (ask.software != NULL) {
        rule.mode = "exact";
        rule.identities = (char **)&ask.software;
        rule.n_identities = 1;
        request.software_rule = &rule;
    }
    start.run_id = "0123456789abcdef0123456789abcdef";
    start.caller = "tests";
    start.minimum_isolation = (char *)(ask.floor != NULL ? ask.floor : "");
    start.timeout_ms = ask.timeout_ms;
    start.request.len = plimsoll__v1__run_request__pack(&request, packed);
    start.request.data = packed;
    if (ask.is_garbage)
        memset(packed, 0xff, start.request.len = 16);
    assert_int_equal(ipc_send(f->ipc, START, call, &start.base), IPC_SENT);
}

static void front_turn(front_t *f, size_t answers, uint32_t within_ms)
{
    uint64_t until_ms = clock_mono_ms() + within_ms;
    while (f->count < answers && !f->is_closed && clock_mono_ms() < until_ms)
        loop_run_once(harness_loop, 5);
    assert_int_equal(f->count, answers);
}

static void front_turn_for(uint32_t ms)
{
    uint64_t until_ms = clock_mono_ms() + ms;
    while (clock_mono_ms() < until_ms)
        loop_run_once(harness_loop, 2);
}

static void front_until_state(front_t *f, Plimsoll__Backend__State state)
{
    uint64_t until_ms = clock_mono_ms() + 5000;
    while (f->announce == NULL || f->announce->state != state) {
        assert_true(clock_mono_ms() < until_ms);
        loop_run_once(harness_loop, 5);
    }
}

static answer_t *front_answer(front_t *f, uint64_t call)
{
    answer_t *found = NULL;
    for (size_t i = 0; i < f->count; ++i) {
        if (f->answers[i].call == call) {
            assert_null(found); /* one answer a run */
            found = &f->answers[i];
        }
    }
    assert_non_null(found);
    return found;
}

static void expect_refused(front_t *f, ask_t ask, Plimsoll__Backend__Refusal reason)
{
    static uint64_t call = 1000000;
    front_ask(f, ++call, ask);
    front_turn(f, 1, 2000);
    assert_int_equal(f->answers[0].type, REFUSED);
    assert_int_equal(f->answers[0].refused->reason, reason);
    front_forget_answers(f);
}

#define REFUSAL(name) PLIMSOLL__BACKEND__REFUSAL__REFUSAL_##name
#define STATE(name) PLIMSOLL__BACKEND__STATE__STATE_##name

static int group_up(void **state)
{
    (void)state;
    random_init();
    link_template();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    log_init("test", LOG_FORMAT_TEXT, LOG_ERROR);
    script = mmap(NULL, sizeof(*script), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (script == MAP_FAILED || mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/role", dir);
    setenv("SANDBOX_MAX_CONCURRENT", "3", 1);
    setenv("SANDBOX_MEMORY_MB", "64", 1);
    setenv("PLIMSOLL_PROOF_INTERVAL", "1h", 1);
    setenv("PLIMSOLL_EVIDENCE_MAX_AGE", "2h", 1);
    setenv("PLIMSOLL_DRAIN", "500ms", 1);
    harness_loop = loop_create();
    return 0;
}

static int group_down(void **state)
{
    (void)state;
    loop_destroy(harness_loop);
    unlink(path);
    rmdir(dir);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    memset(script, 0, sizeof(*script));
    script->is_provable = 1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (front.ipc != NULL)
        front_close(&front);
    if (other.ipc != NULL)
        front_close(&other);
    if (role_pid > 0) {
        kill(role_pid, SIGKILL);
        waitpid(role_pid, NULL, 0);
        role_pid = 0;
    }
    if (parent_end >= 0)
        close(parent_end);
    parent_end = -1;
    return 0;
}

static void expect_clean_end(uint32_t within_ms)
{
    int status = role_wait(within_ms);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(script->stopped, 1);
}

static void test_announce_and_run(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    assert_string_equal(front.announce->name, "scripted");
    assert_string_equal(front.announce->tier, "container");
    assert_true(front.announce->evidence_age_ms < 5000);
    assert_true(front.announce->billed);
    assert_int_equal(front.announce->capacity, 3);
    assert_true(front.announce->javascript->supported);
    assert_int_equal(front.announce->javascript->max_timeout_ms, 2000);
    assert_int_equal(front.announce->javascript->n_languages, 1);
    assert_false(front.announce->project->supported);

    front_ask(&front, 7, (ask_t){.code = "answer 5 bytes", .floor = "container", .software = "scripted:1"});
    front_turn(&front, 1, 2000);
    answer_t *a = front_answer(&front, 7);
    assert_int_equal(a->type, DONE);
    assert_string_equal(a->response->sandbox, "scripted");
    assert_string_equal(a->response->isolation, "container");
    assert_string_equal(a->response->environment, "scripted:sha256:1");
    assert_string_equal(a->response->software_identity, "scripted:1");
    assert_int_equal(a->response->javascript->stdout.len, 5);
    assert_null(a->response->record);
    assert_false(a->done->canceled);
    assert_int_equal(a->done->n_steps, 5);
    assert_string_equal(a->done->steps[0]->name, "create");
    assert_string_equal(a->done->steps[4]->name, "delete");
    front_close(&front);
    kill(role_pid, SIGTERM);
    expect_clean_end(3000);
}

static void test_refusals(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    expect_refused(&front, (ask_t){.is_garbage = true}, REFUSAL(REQUEST));
    expect_refused(&front, (ask_t){.is_empty = true}, REFUSAL(REQUEST));
    expect_refused(&front, (ask_t){.floor = "none"}, REFUSAL(REQUEST));
    expect_refused(&front, (ask_t){.floor = "kernel"}, REFUSAL(ISOLATION));
    expect_refused(&front, (ask_t){.is_project = true, .floor = "vm"}, REFUSAL(ISOLATION)); /* the floor comes first */
    expect_refused(&front, (ask_t){.is_project = true}, REFUSAL(UNSUPPORTED));
    expect_refused(&front, (ask_t){.software = "scripted:2"}, REFUSAL(ENVIRONMENT));
    expect_refused(&front, (ask_t){.code = "refuse"}, REFUSAL(ENVIRONMENT));
    script->is_misconfigured = 1;
    expect_refused(&front, (ask_t){.code = NULL}, REFUSAL(UNSUPPORTED));
    expect_refused(&front, (ask_t){.floor = "vm"}, REFUSAL(ISOLATION));
    script->is_misconfigured = 0;
    front_ask(&front, 1, (ask_t){.code = "fail"});
    front_turn(&front, 1, 2000);
    assert_int_equal(front.answers[0].type, FAILED);
    assert_string_equal(front.answers[0].failed->code, "unavailable");
    assert_string_equal(front.answers[0].failed->detail, "for the log");
    assert_string_equal(front.answers[0].failed->step, "execute");
    front_close(&front);
}

static void test_a_first_proof_that_could_not_be_tried_is_tried_again(void **state)
{
    (void)state;
    script->is_provable = 0;
    script->is_untried = 1;
    role_start("scripted");
    front_open(&front);
    for (int i = 0; i < 3000 && script->proofs < ROLE_UNTRIED_MAX - 1; i += 10) {
        front_turn_for(10);
        assert_true(front.announce == NULL || front.announce->state == STATE(STARTING));
    }
    assert_int_equal(script->proofs, ROLE_UNTRIED_MAX - 1);
    expect_refused(&front, (ask_t){.code = NULL}, REFUSAL(CAPACITY));
    script->is_provable = 1;
    front_until_state(&front, STATE(READY));
    front_close(&front);
}

static void test_first_proofs_that_cannot_be_tried_are_a_failure_in_the_end(void **state)
{
    (void)state;
    script->is_provable = 0;
    script->is_untried = 1;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(FAILED));
    assert_true(script->proofs >= ROLE_UNTRIED_MAX);
    front_close(&front);
}

static void test_failed_proof(void **state)
{
    (void)state;
    script->is_provable = 0;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(FAILED));
    assert_string_equal(front.announce->failure, "told to fail");
    assert_string_equal(front.announce->tier, "unknown");
    expect_refused(&front, (ask_t){.floor = "process"}, REFUSAL(ISOLATION));
    expect_refused(&front, (ask_t){.code = NULL}, REFUSAL(CAPACITY));
    script->is_provable = 1; /* tried again by itself, soon */
    front_until_state(&front, STATE(READY));
    assert_string_equal(front.announce->failure, "");
    front_close(&front);
}

static void test_old_evidence_is_none(void **state)
{
    (void)state;
    setenv("PLIMSOLL_PROOF_INTERVAL", "1h", 1);
    setenv("PLIMSOLL_EVIDENCE_MAX_AGE", "1s", 1);
    role_start("scripted");
    setenv("PLIMSOLL_EVIDENCE_MAX_AGE", "2h", 1);
    front_open(&front);
    front_until_state(&front, STATE(READY));
    assert_string_equal(front.announce->tier, "container");
    front_turn_for(1200);
    assert_int_equal(front.announce->state, STATE(READY));
    assert_string_equal(front.announce->tier, "unknown");
    expect_refused(&front, (ask_t){.floor = "process"}, REFUSAL(ISOLATION));
    front_ask(&front, 1, (ask_t){.code = NULL}); /* without a floor it runs, and says what is known */
    front_turn(&front, 1, 2000);
    assert_int_equal(front.answers[0].type, DONE);
    assert_string_equal(front.answers[0].response->isolation, "unknown");
    front_close(&front);
}

static void test_proof_is_repeated(void **state)
{
    (void)state;
    setenv("PLIMSOLL_PROOF_INTERVAL", "1s", 1);
    role_start("scripted");
    setenv("PLIMSOLL_PROOF_INTERVAL", "1h", 1);
    front_open(&front);
    front_until_state(&front, STATE(READY));
    front_turn_for(2300);
    assert_in_range(script->proofs, 3, 4);
    /* One that could not be tried says nothing against the wall... */
    script->is_provable = 0;
    script->is_untried = 1;
    front_turn_for(1200);
    assert_int_equal(front.announce->state, STATE(READY));
    assert_string_equal(front.announce->tier, "container");
    assert_in_range(front.announce->evidence_age_ms, 900, 3000);
    /* ...and one that was tried and failed says all. */
    script->is_untried = 0;
    front_until_state(&front, STATE(FAILED));
    front_close(&front);
}

static void test_capacity(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    for (uint64_t call = 1; call <= 4; ++call)
        front_ask(&front, call, (ask_t){.code = "sleep", .timeout_ms = 400});
    front_turn(&front, 1, 300);
    assert_int_equal(front.answers[0].call, 4);
    assert_int_equal(front.answers[0].refused->reason, REFUSAL(CAPACITY));
    assert_true(front.answers[0].refused->retry_after_ms > 0);
    front_turn(&front, 4, 2000);
    for (uint64_t call = 1; call <= 3; ++call)
        assert_int_equal(front_answer(&front, call)->type, DONE);
    assert_int_equal(script->most_running, 3);
    front_forget_answers(&front);
    front_ask(&front, 5, (ask_t){.code = NULL}); /* and the places are free again */
    front_turn(&front, 1, 1000);
    assert_int_equal(front.answers[0].type, DONE);
    front_close(&front);
}

static void test_timeouts_are_clamped(void **state)
{
    static const struct {
        uint32_t asked_ms, least_ms, most_ms;
    } cases[] = {{0, 300, 700}, {100, 100, 500}, {60000, 2000, 2400}};
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    for (size_t i = 0; i < 3; ++i) {
        uint64_t started_ms = clock_mono_ms();
        front_ask(&front, i + 1, (ask_t){.code = "sleep", .timeout_ms = cases[i].asked_ms});
        front_turn(&front, 1, 4000);
        assert_in_range(clock_mono_ms() - started_ms, cases[i].least_ms, cases[i].most_ms);
        front_forget_answers(&front);
    }
    front_close(&front);
}

static void test_cancel(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    ipc_cancel(front.ipc, 99); /* of nothing: harmless */
    front_ask(&front, 1, (ask_t){.code = "sleep", .timeout_ms = 2000});
    front_ask(&front, 2, (ask_t){.code = "sleep", .timeout_ms = 500});
    front_turn_for(50);
    ipc_cancel(front.ipc, 1);
    ipc_cancel(front.ipc, 1);
    front_turn(&front, 1, 300);
    assert_true(front_answer(&front, 1)->done->canceled);
    front_turn(&front, 2, 1000);
    assert_false(front_answer(&front, 2)->done->canceled);
    front_close(&front);
}

static void test_what_a_wall_counts_is_told(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    assert_int_equal(front.cold, 0);
    front_ask(&front, 1, (ask_t){.code = "sleep", .timeout_ms = 1000});
    front_ask(&front, 2, (ask_t){.code = "sleep", .timeout_ms = 1000});
    for (int i = 0; i < 900 && front.running != 2; i += 10)
        front_turn_for(10);
    assert_int_equal(front.running, 2);
    front_turn(&front, 2, 3000);
    for (int i = 0; i < 2000 && front.running != 0; i += 10)
        front_turn_for(10);
    assert_int_equal(front.running, 0);
    assert_int_equal(front.cold, 2);
    /* one that comes later is told at once what has been counted */
    front_open(&other);
    front_until_state(&other, STATE(READY));
    front_turn_for(50);
    assert_int_equal(other.cold, 2);
    front_close(&other);
    front_close(&front);
}

static void test_lost_front_cancels_its_runs(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_open(&other);
    front_until_state(&front, STATE(READY));
    front_until_state(&other, STATE(READY));
    front_ask(&front, 1, (ask_t){.code = "sleep", .timeout_ms = 2000});
    front_ask(&other, 1, (ask_t){.code = "sleep", .timeout_ms = 600}); /* the same number: another front's */
    front_turn_for(100);
    front_close(&front);
    front_turn_for(200);
    assert_int_equal(script->canceled, 1);
    assert_int_equal(script->running, 1);
    front_turn(&other, 1, 2000);
    assert_false(other.answers[0].done->canceled);
    front_close(&other);
}

static void test_bad_front_is_dropped(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_open(&other);
    front_until_state(&front, STATE(READY));
    front_until_state(&other, STATE(READY));
    ipc_send(front.ipc, 77, 1, NULL);
    uint64_t until_ms = clock_mono_ms() + 1000;
    while (!front.is_closed && clock_mono_ms() < until_ms)
        loop_run_once(harness_loop, 5);
    assert_true(front.is_closed);
    front_close(&front);
    front_ask(&other, 1, (ask_t){.code = NULL});
    front_turn(&other, 1, 1000);
    front_close(&other);
}

/* Answers a front does not take wait, and are not lost. */
static void test_slow_front(void **state)
{
    enum { BIG = 30 * 1000 * 1000 };
    char code[64];
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    snprintf(code, sizeof(code), "answer %d bytes", BIG);
    for (uint64_t call = 1; call <= 3; ++call)
        front_ask(&front, call, (ask_t){.code = code});
    /* Not reading for a while: two answers fill the queue, the third waits. */
    loop_run_once(harness_loop, 0);
    ipc_pause(front.ipc);
    front_turn_for(500);
    ipc_resume(front.ipc);
    front_turn(&front, 3, 10000);
    for (uint64_t call = 1; call <= 3; ++call)
        assert_int_equal(front_answer(&front, call)->response->javascript->stdout.len, BIG);
    front_forget_answers(&front);
    /* What no frame can carry is a failure, not silence. */
    front_ask(&front, 4, (ask_t){.code = "answer 45000000 bytes"});
    front_turn(&front, 1, 5000);
    assert_int_equal(front.answers[0].type, FAILED);
    front_close(&front);
}

static void test_drain_finishes_runs(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    front_ask(&front, 1, (ask_t){.code = "sleep", .timeout_ms = 300});
    front_turn_for(50);
    kill(role_pid, SIGTERM);
    front_until_state(&front, STATE(DRAINING));
    expect_refused(&front, (ask_t){.code = NULL}, REFUSAL(CAPACITY));
    front_turn(&front, 1, 1000);
    assert_false(front_answer(&front, 1)->done->canceled);
    expect_clean_end(2000);
    front_close(&front);
}

static void test_drain_has_an_end(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    front_ask(&front, 1, (ask_t){.code = "sleep", .timeout_ms = 2000});
    front_turn_for(50);
    uint64_t asked_ms = clock_mono_ms();
    close(parent_end); /* the parent's end is asked the same way */
    parent_end = -1;
    front_turn(&front, 1, 1500);
    assert_in_range(clock_mono_ms() - asked_ms, 500, 1000);
    assert_true(front_answer(&front, 1)->done->canceled);
    expect_clean_end(2000);
    front_close(&front);
}

static void test_second_signal_does_not_wait(void **state)
{
    (void)state;
    role_start("scripted");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    front_ask(&front, 1, (ask_t){.code = "sleep", .timeout_ms = 2000});
    front_turn_for(50);
    kill(role_pid, SIGTERM);
    front_until_state(&front, STATE(DRAINING));
    kill(role_pid, SIGTERM);
    front_turn(&front, 1, 300);
    assert_true(front_answer(&front, 1)->done->canceled);
    expect_clean_end(2000);
    front_close(&front);
}

/* --- the real wall in the role --- */

static void test_wasm_in_the_role(void **state)
{
    (void)state;
    role_start("wasm");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    assert_string_equal(front.announce->tier, "process");
    assert_string_equal(front.announce->javascript->environment,
                        "quickjs-wasm:sha256:c0bd8f296e18cf074969f6401b9ecb72609a1323818ec2b9bf7a8f8d740d1363");
    assert_string_equal(front.announce->javascript->software_identity, "");
    assert_int_equal(front.announce->javascript->max_timeout_ms, 30000);
    assert_int_equal(front.announce->memory_mb, 64);
    front_ask(&front, 1, (ask_t){.code = "console.log('wasm', 6 * 7)", .floor = "process"});
    front_turn(&front, 1, 3000);
    answer_t *a = front_answer(&front, 1);
    assert_int_equal(a->type, DONE);
    assert_string_equal(a->response->sandbox, "wasm");
    assert_int_equal(a->response->javascript->exit_code, 0);
    assert_int_equal(a->response->javascript->stdout.len, 8);
    assert_memory_equal(a->response->javascript->stdout.data, "wasm 42\n", 8);
    front_forget_answers(&front);
    expect_refused(&front, (ask_t){.code = "1", .floor = "kernel"}, REFUSAL(ISOLATION));
    expect_refused(&front, (ask_t){.is_project = true}, REFUSAL(UNSUPPORTED));
    expect_refused(&front, (ask_t){.is_project = true, .floor = "vm"}, REFUSAL(ISOLATION));
    expect_refused(&front, (ask_t){.code = "1", .software = "quickjs-wasm"}, REFUSAL(ENVIRONMENT));
    uint64_t started_ms = clock_mono_ms();
    front_ask(&front, 2, (ask_t){.code = "for (;;);", .timeout_ms = 1000});
    front_turn(&front, 1, 3000);
    assert_in_range(clock_mono_ms() - started_ms, 1000, 1400);
    assert_true(front.answers[0].response->javascript->timed_out);
    front_close(&front);
    kill(role_pid, SIGTERM);
    int status = role_wait(3000);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_wasm_refuses_what_it_cannot_enforce(void **state)
{
    static const char *const names[] = {"SANDBOX_CPUS", "SANDBOX_PIDS", "SANDBOX_DISK_MB"};
    (void)state;
    for (size_t i = 0; i < 3; ++i) {
        setenv(names[i], "2", 1);
        role_start("wasm");
        unsetenv(names[i]);
        front_open(&front);
        front_until_state(&front, STATE(FAILED));
        assert_non_null(strstr(front.announce->failure, names[i]));
        expect_refused(&front, (ask_t){.code = "1"}, REFUSAL(UNSUPPORTED));
        front_close(&front);
        tear_down(NULL);
    }
}

/* 8192 MB is more than a module can address, 3 MB less than its engine needs. */
static void test_wasm_memory_setting(void **state)
{
    static const struct {
        const char *setting;
        uint32_t announced;
        bool runs;
    } cases[] = {{"8192", 4095, true}, {"4095", 4095, true}, {"4094", 4094, true}, {"4", 4, true}, {"3", 3, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        setenv("SANDBOX_MEMORY_MB", cases[i].setting, 1);
        role_start("wasm");
        setenv("SANDBOX_MEMORY_MB", "64", 1);
        front_open(&front);
        front_until_state(&front, cases[i].runs ? STATE(READY) : STATE(FAILED));
        assert_int_equal(front.announce->memory_mb, cases[i].announced);
        if (cases[i].runs) {
            front_ask(&front, 1, (ask_t){.code = "console.log(1)"});
            front_turn(&front, 1, 3000);
            assert_int_equal(front.answers[0].type, DONE);
            assert_int_equal(front.answers[0].response->javascript->exit_code, 0);
        } else {
            assert_non_null(strstr(front.announce->failure, "SANDBOX_MEMORY_MB"));
            expect_refused(&front, (ask_t){.code = "1"}, REFUSAL(UNSUPPORTED));
        }
        front_close(&front);
        tear_down(NULL);
    }
}

static size_t children_of(pid_t parent, pid_t out[], size_t max)
{
    DIR *proc = opendir("/proc");
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        char file[300], line[512];
        int ppid = 0;
        snprintf(file, sizeof(file), "/proc/%s/stat", entry->d_name);
        FILE *f = strspn(entry->d_name, "0123456789") == strlen(entry->d_name) ? fopen(file, "r") : NULL;
        if (f == NULL)
            continue;
        if (fgets(line, sizeof(line), f) != NULL && sscanf(strrchr(line, ')') + 1, " %*c %d", &ppid) == 1 &&
            ppid == parent && count < max)
            out[count++] = atoi(entry->d_name);
        fclose(f);
    }
    closedir(proc);
    return count;
}

/* kill -9 of the role leaves neither template nor worker. */
static void test_wasm_role_killed(void **state)
{
    pid_t template_pid, worker_pids[16];
    (void)state;
    role_start("wasm");
    front_open(&front);
    front_until_state(&front, STATE(READY));
    front_ask(&front, 1, (ask_t){.code = "for (;;);", .timeout_ms = 20000});
    front_turn_for(100);
    assert_int_equal(children_of(role_pid, &template_pid, 1), 1);
    size_t count = children_of(template_pid, worker_pids, 16);
    assert_in_range(count, 1, 16);
    kill(role_pid, SIGKILL);
    waitpid(role_pid, NULL, 0);
    role_pid = 0;
    /* Orphans come to this process, which set itself up to take them: all of them end, and soon. */
    uint64_t until_ms = clock_mono_ms() + 1000;
    size_t ended = 0;
    while (ended < count + 1 && clock_mono_ms() < until_ms) {
        if (waitpid(-1, NULL, WNOHANG) > 0)
            ++ended;
        else
            front_turn_for(2);
    }
    assert_int_equal(ended, count + 1);
    front_turn_for(50);
    assert_true(front.is_closed);
    front_close(&front);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_announce_and_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_first_proof_that_could_not_be_tried_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_first_proofs_that_cannot_be_tried_are_a_failure_in_the_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_failed_proof, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_evidence_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_proof_is_repeated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_capacity, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_timeouts_are_clamped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_a_wall_counts_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_front_cancels_its_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_front_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_slow_front, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_drain_finishes_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_drain_has_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_second_signal_does_not_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wasm_in_the_role, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wasm_refuses_what_it_cannot_enforce, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wasm_memory_setting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wasm_role_killed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, group_up, group_down);
}
