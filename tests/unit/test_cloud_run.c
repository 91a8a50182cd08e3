/* The way of a run through a wall on somebody else's machines, over a provider of this process: what is said of every
 * fault at every step, and what is left behind. */
#include "cloud_fixture.h"

#include "core/log.h"

#define REFUSAL(name) PLIMSOLL__BACKEND__REFUSAL__REFUSAL_##name
#define OUTCOME(name) PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_##name

/* --- one run --- */

typedef struct {
    Plimsoll__V1__RunRequest request;
    Plimsoll__V1__JavaScriptRun snippet;
    Plimsoll__V1__ProjectRun project;
    Plimsoll__V1__ProjectFile file;
    Plimsoll__V1__ProjectFile *files[1];
    char *steps[4], *artifacts[3];
    backend_kind_t kind;
    backend_run_t run;
    co_t *co;
    bool is_over;
    char order[ORDER_MAX]; /* at its end */
    uint64_t ended_us;
} job_t;

static void job_init(job_t *job, uint32_t timeout_ms)
{
    memset(job, 0, sizeof(*job));
    plimsoll__v1__run_request__init(&job->request);
    job->kind = (backend_kind_t){.supported = true, .max_timeout_ms = 120000};
    job->run = (backend_run_t){.run_id = "0123456789abcdef0123456789abcdef",
                               .caller = "team",
                               .request = &job->request,
                               .kind = &job->kind,
                               .tier = TIER_VM,
                               .started_us = clock_mono_us()};
    job->run._step_us = job->run.started_us;
    job->run.deadline_us = job->run.started_us + timeout_ms * UINT64_C(1000);
}

static void snippet_init(job_t *job, uint32_t timeout_ms)
{
    job_init(job, timeout_ms);
    plimsoll__v1__java_script_run__init(&job->snippet);
    job->snippet.code = (char *)"console.log(1)";
    job->request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT;
    job->request.javascript = &job->snippet;
}

static void project_init(job_t *job, uint32_t timeout_ms, size_t steps, size_t artifacts)
{
    static char *const names[] = {"out/a.txt", "out/b.txt", "out/c.txt"};
    job_init(job, timeout_ms);
    plimsoll__v1__project_run__init(&job->project);
    plimsoll__v1__project_file__init(&job->file);
    job->file.path = (char *)"src/main.js";
    job->file.content = (ProtobufCBinaryData){2, (uint8_t *)"1;"};
    job->files[0] = &job->file;
    job->project.files = job->files;
    job->project.n_files = 1;
    for (size_t i = 0; i < steps; ++i)
        job->steps[i] = (char *)"node src/main.js";
    memcpy(job->artifacts, names, sizeof(names));
    job->project.steps = job->steps;
    job->project.n_steps = steps;
    job->project.artifacts = job->artifacts;
    job->project.n_artifacts = artifacts;
    job->request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
    job->request.project = &job->project;
}

static void run_main(void *arg)
{
    job_t *job = arg;
    cloud_run(cloud, &job->run);
}

static void run_ended(void *arg)
{
    job_t *job = arg;
    job->is_over = true;
    job->co = NULL;
    job->ended_us = clock_mono_us();
    memcpy(job->order, cloudy.order, sizeof(job->order));
}

static void begin(job_t *job)
{
    job->co = co_start(fx.loop, run_main, job, run_ended);
}

static void await(job_t *job)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    while (!job->is_over) {
        loop_run_once(fx.loop, 5);
        assert_true(clock_mono_ms() < until);
    }
    assert_int_not_equal(job->run.outcome, RUN_OPEN);
}

static void serve(job_t *job)
{
    begin(job);
    await(job);
}

static void job_free(job_t *job)
{
    if (job->run.response != NULL)
        plimsoll__v1__run_response__free_unpacked(job->run.response, NULL);
    job->run.response = NULL;
}

static const Plimsoll__V1__JavaScriptResult *js(const job_t *job)
{
    assert_int_equal(job->run.outcome, RUN_DONE);
    assert_int_equal(job->run.response->result_case, PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT);
    return job->run.response->javascript;
}

static const Plimsoll__V1__ProjectResult *pr(const job_t *job)
{
    assert_int_equal(job->run.outcome, RUN_DONE);
    assert_int_equal(job->run.response->result_case, PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT);
    return job->run.response->project;
}

static void assert_bytes(const ProtobufCBinaryData *bytes, const char *text)
{
    assert_int_equal(bytes->len, strlen(text));
    assert_memory_equal(bytes->data != NULL ? bytes->data : (const uint8_t *)"", text, bytes->len);
}

/* --- what goes well --- */

static void a_snippet_is_made_checked_staged_run_and_its_sandbox_goes(void **state)
{
    job_t job;
    (void)state;
    cloudy.steps[0] = (step_act_t){.out = "6\n", .err = "warned\n", .exit_code = 3};
    snippet_init(&job, 2000);
    serve(&job);
    assert_string_equal(job.order, "create check stage step leave");
    assert_int_equal(js(&job)->exit_code, 3);
    assert_false(js(&job)->timed_out);
    assert_bytes(&js(&job)->stdout, "6\n");
    assert_bytes(&js(&job)->stderr, "warned\n");
    assert_string_equal(job.run.response->sandbox, "standinpaid");
    assert_string_equal(job.run.response->isolation, "vm");
    /* staging 15 s, its time 2 s, collecting 15 s, 10 s more */
    assert_int_equal(cloudy.life_ms, 15000 + 2000 + 15000 + 10000);
    uint64_t answered_us = job.ended_us;
    assert_nothing_is_left();
    assert_true(cloudy.removed_us >= answered_us && cloudy.removed_us - answered_us < 500000);
    assert_int_equal(cloudy.removals, 1);
    assert_int_equal(cloudy.leaves, 1);
    job_free(&job);
}

static void the_time_of_a_run_begins_with_its_code(void **state)
{
    job_t job;
    (void)state;
    cloudy.create.sleep_ms = cloudy.stage.sleep_ms = 300;
    cloudy.steps[0] = (step_act_t){.act.sleep_ms = 100, .out = "late start"};
    snippet_init(&job, 250);
    serve(&job);
    assert_int_equal(js(&job)->exit_code, 0);
    assert_bytes(&js(&job)->stdout, "late start");
    assert_true(job.run.billable_ms >= 700 && job.run.billable_ms < 5000);
    job_free(&job);
    assert_nothing_is_left();
}

/* --- a read-back beside the files --- */

static void nothing_begins_before_a_read_back_beside_the_files_is_over(void **state)
{
    job_t job;
    (void)state;
    fake_ops.is_checked_beside = true;
    cloudy.check.sleep_ms = 400;
    snippet_init(&job, 2000);
    serve(&job);
    assert_string_equal(job.order, "create check stage step leave");
    assert_int_equal(js(&job)->exit_code, 0);
    assert_true(job.ended_us - job.run.started_us >= 400000);
    /* the wait for it was not the files' time */
    assert_in_range(cloudy.stage_left_ms, 15000 - 200, 15000);
    job_free(&job);
    assert_nothing_is_left();
}

static void a_wrong_sandbox_is_told_as_such_whatever_became_of_the_files(void **state)
{
    static const struct {
        act_t check, stage;
    } cases[] = {
        {{.fault = CLOUD_DIFFERS, .sleep_ms = 200}, {.fault = CLOUD_PROTOCOL}}, /* the files first */
        {{.fault = CLOUD_DIFFERS, .sleep_ms = 200}, {.fault = CLOUD_FINE}},
        {{.fault = CLOUD_DIFFERS}, {.fault = CLOUD_FINE, .sleep_ms = 200}}, /* the read-back first */
        {{.fault = CLOUD_DIFFERS}, {.fault = CLOUD_MISSING, .sleep_ms = 200}},
    };
    (void)state;
    fake_ops.is_checked_beside = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        job_t job;
        cloud->is_suspect = false;
        cloudy.order[0] = '\0';
        cloudy.check = cases[i].check;
        cloudy.stage = cases[i].stage;
        snippet_init(&job, 2000);
        serve(&job);
        assert_int_equal(job.run.outcome, RUN_REFUSED);
        assert_int_equal(job.run.refusal, REFUSAL(ISOLATION));
        assert_true(cloud->is_suspect);
        assert_null(strstr(job.order, "step"));
        assert_nothing_is_left();
    }
}

static void files_that_fail_at_a_right_sandbox_are_no_other_wall(void **state)
{
    job_t job;
    (void)state;
    fake_ops.is_checked_beside = true;
    cloudy.check.sleep_ms = 100;
    cloudy.stage.fault = CLOUD_PROTOCOL;
    snippet_init(&job, 2000);
    serve(&job);
    assert_int_equal(job.run.outcome, RUN_REFUSED);
    assert_int_equal(job.run.refusal, REFUSAL(CAPACITY));
    assert_false(cloud->is_suspect);
    assert_nothing_is_left();
}

/* Stopped while the files are on their way, and while only the read-back is waited for. */
static void a_run_stopped_beside_its_read_back_ends_at_once(void **state)
{
    (void)state;
    fake_ops.is_checked_beside = true;
    for (uint32_t stage_ms = 0; stage_ms <= 4000; stage_ms += 4000) {
        job_t job;
        cloudy.check.sleep_ms = 4000;
        cloudy.stage.sleep_ms = stage_ms;
        snippet_init(&job, 2000);
        begin(&job);
        for (int i = 0; i < 20; ++i)
            loop_run_once(fx.loop, 5);
        assert_false(job.is_over);
        co_cancel(job.co);
        uint64_t canceled_us = clock_mono_us();
        await(&job);
        assert_true(job.ended_us - canceled_us < 1500000);
        assert_int_equal(job.run.outcome, RUN_REFUSED);
        assert_int_equal(job.run.refusal, REFUSAL(CAPACITY));
        assert_false(cloud->is_suspect);
        assert_nothing_is_left();
    }
}

static void steps_go_in_order_and_stop_at_the_first_that_fails(void **state)
{
    job_t job;
    (void)state;
    cloudy.steps[0] = (step_act_t){.out = "one"};
    cloudy.steps[1] = (step_act_t){.out = "two", .exit_code = 7};
    cloudy.artifacts[1] = "kept";
    project_init(&job, 2000, 3, 3);
    serve(&job);
    assert_string_equal(job.order, "create check stage step step collect leave");
    assert_int_equal(pr(&job)->outcome, OUTCOME(COMPLETED));
    assert_int_equal(pr(&job)->n_steps, 2);
    assert_int_equal(pr(&job)->steps[0]->exit_code, 0);
    assert_int_equal(pr(&job)->steps[1]->exit_code, 7);
    assert_int_equal(pr(&job)->n_artifacts, 1);
    assert_string_equal(pr(&job)->artifacts[0]->path, "out/b.txt");
    assert_bytes(&pr(&job)->artifacts[0]->content, "kept");
    assert_false(pr(&job)->artifacts_truncated);
    job_free(&job);
    assert_nothing_is_left();
}

/* A timeout that the backend does not know of ends the run all the same, with what was printed, on time. */
static void a_run_whose_time_is_over_ends_then_with_its_output(void **state)
{
    job_t job;
    (void)state;
    cloudy.steps[0] = (step_act_t){.out = "A", .act.sleep_ms = 5000};
    snippet_init(&job, 300);
    serve(&job);
    uint64_t took_ms = (job.ended_us - job.run.started_us) / 1000;
    assert_true(took_ms >= 300 && took_ms < 1500);
    assert_true(js(&job)->timed_out);
    assert_int_equal(js(&job)->exit_code, 124);
    assert_bytes(&js(&job)->stdout, "A");
    assert_false(js(&job)->stdout_truncated);
    job_free(&job);
    assert_nothing_is_left();
    assert_true(cloudy.removed_us - job.ended_us < 500000);
}

static void after_a_timeout_no_step_begins_and_artifacts_are_collected(void **state)
{
    job_t job;
    (void)state;
    cloudy.steps[0] = (step_act_t){.out = "A", .is_timed_out = true, .exit_code = 124};
    cloudy.artifacts[0] = "made in time";
    project_init(&job, 300, 3, 1);
    serve(&job);
    assert_string_equal(job.order, "create check stage step collect leave");
    assert_int_equal(pr(&job)->outcome, OUTCOME(TIMED_OUT));
    assert_int_equal(pr(&job)->n_steps, 1);
    assert_true(pr(&job)->steps[0]->timed_out);
    assert_int_equal(pr(&job)->n_artifacts, 1);
    job_free(&job);
    /* a transport that breaks just when the time is up is no other fault */
    cloudy.step = 0;
    cloudy.steps[0] = (step_act_t){.act = {.sleep_ms = 5000}};
    project_init(&job, 100, 2, 0);
    serve(&job);
    assert_int_equal(pr(&job)->outcome, OUTCOME(TIMED_OUT));
    job_free(&job);
    assert_nothing_is_left();
}

static void output_is_cut_at_its_limit_and_no_byte_earlier(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        job_t job;
        cloudy.step = 0;
        cloudy.steps[0] = (step_act_t){.flood = (size_t)(CLOUD_SNIPPET_STREAM_MAX + over)};
        snippet_init(&job, 5000);
        serve(&job);
        assert_int_equal(js(&job)->stdout.len, over <= 0 ? CLOUD_SNIPPET_STREAM_MAX + over : CLOUD_SNIPPET_STREAM_MAX);
        assert_int_equal(js(&job)->stdout_truncated, over > 0);
        assert_false(js(&job)->stderr_truncated);
        assert_int_equal(js(&job)->exit_code, 0);
        job_free(&job);
    }
    job_t flood;
    cloudy.step = 0;
    cloudy.steps[0] = (step_act_t){.is_flood = true, .out = "some"};
    snippet_init(&flood, 5000);
    serve(&flood);
    assert_int_equal(js(&flood)->exit_code, 153);
    assert_true(js(&flood)->stdout_truncated && js(&flood)->stderr_truncated && !js(&flood)->timed_out);
    job_free(&flood);
    assert_nothing_is_left();
}

static void all_steps_share_one_budget_of_output(void **state)
{
    job_t job;
    (void)state;
    for (size_t i = 0; i < 4; ++i)
        cloudy.steps[i] = (step_act_t){.flood = CLOUD_STEP_STREAM_MAX};
    project_init(&job, 20000, 4, 0);
    serve(&job);
    size_t kept = 0;
    for (size_t i = 0; i < pr(&job)->n_steps; ++i)
        kept += pr(&job)->steps[i]->stdout.len;
    assert_int_equal(kept, CLOUD_OUTPUT_MAX);
    assert_true(pr(&job)->steps[3]->stdout_truncated && !pr(&job)->steps[2]->stdout_truncated);
    job_free(&job);
    assert_nothing_is_left();
}

/* Characters that come in two reads, and bytes that are no characters: what is kept is what came. */
static void output_is_bytes(void **state)
{
    static const uint8_t raw[] = {0xff, 0xfe, 0x00, 0x80, 0xe2, 0x98};
    cloud_limits_t limits = {.stream_max = 7, .output_left = 9};
    guest_step_t step = {.exit_code = 0};
    (void)state;
    buffer_init(&step.out, 7);
    buffer_init(&step.err, 7);
    cloud_output_add(&step, &limits, false, raw, sizeof(raw));
    cloud_output_add(&step, &limits, false, "\x95", 1);
    assert_int_equal(step.out.len, 7);
    assert_memory_equal(step.out.base, "\xff\xfe\x00\x80\xe2\x98\x95", 7);
    assert_false(step.is_out_truncated);
    cloud_output_add(&step, &limits, false, "", 0);
    assert_false(step.is_out_truncated);
    cloud_output_add(&step, &limits, false, "x", 1);
    assert_true(step.is_out_truncated && !step.is_err_truncated);
    cloud_output_add(&step, &limits, true, "ab", 2);
    assert_false(step.is_err_truncated);
    cloud_output_add(&step, &limits, true, "c", 1); /* the run's own budget is used up */
    assert_true(step.is_err_truncated && step.err.len == 2 && limits.output_left == 0);
    buffer_dispose(&step.out);
    buffer_dispose(&step.err);
}

static void artifacts_fit_whole_or_not_at_all(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        const char *names[] = {"a", "b", "c"};
        cloud_plan_t plan = {.artifacts = names, .artifact_count = 3, .artifacts_max = 100};
        guest_result_t result;
        buffer_t content;
        cloud_result_init(&result, &plan);
        buffer_init(&content, 200);
        assert_non_null(buffer_reserve(&content, 60));
        buffer_commit(&content, 60);
        assert_true(cloud_artifact_add(&result, &plan, 0, &content));
        assert_int_equal(cloud_artifacts_left(&result, &plan), 40);
        assert_non_null(buffer_reserve(&content, (size_t)(40 + over)));
        buffer_commit(&content, (size_t)(40 + over));
        assert_int_equal(cloud_artifact_add(&result, &plan, 1, &content), over <= 0);
        assert_int_equal(result.is_artifacts_truncated, over > 0);
        assert_true(cloud_artifact_add(&result, &plan, 2, &content)); /* an empty one always does */
        assert_int_equal(result.artifact_count, over <= 0 ? 3 : 2);
        assert_string_equal(result.artifacts[result.artifact_count - 1].path, "c");
        cloud_result_dispose(&result);
    }
}

/* --- every fault at every step --- */

typedef enum { AT_CREATE, AT_CREATE_MADE, AT_CREATE_NAMED, AT_CHECK, AT_STAGE, AT_STEP, AT_COLLECT } at_t;

static void arm(at_t at, cloud_fault_t fault)
{
    const act_t how = {.fault = fault, .retry_after_ms = fault == CLOUD_BUSY ? 7000 : 0};
    cloudy.has_effect = at == AT_CREATE_MADE || at == AT_CREATE_NAMED;
    cloudy.is_named = at == AT_CREATE_NAMED;
    if (at <= AT_CREATE_NAMED)
        cloudy.create = how;
    else if (at == AT_CHECK)
        cloudy.check = how;
    else if (at == AT_STAGE)
        cloudy.stage = how;
    else if (at == AT_STEP)
        cloudy.steps[0] = (step_act_t){.act = how, .out = "seen"};
    else
        cloudy.collect = how;
}

static bool is_certain(cloud_fault_t fault)
{
    return fault == CLOUD_NOTHING || fault == CLOUD_BUSY || fault == CLOUD_DENIED || fault == CLOUD_MISSING;
}

/* What says that the wall may not be what was proven: nothing a caller can bring about. */
static bool is_suspicious(at_t at, cloud_fault_t fault)
{
    if (fault == CLOUD_MISSING)
        return at <= AT_CREATE_NAMED;
    if (fault == CLOUD_DENIED)
        return at <= AT_CHECK;
    return fault == CLOUD_DIFFERS && (at == AT_CHECK || at == AT_CREATE_NAMED);
}

static void assert_refused(const job_t *job, cloud_fault_t fault, at_t at)
{
    bool is_isolation = fault == CLOUD_DIFFERS && at != AT_STAGE;
    assert_int_equal(job->run.outcome, RUN_REFUSED);
    assert_int_equal(job->run.refusal, is_isolation ? REFUSAL(ISOLATION) : REFUSAL(CAPACITY));
    if (!is_isolation)
        assert_int_equal(job->run.retry_after_ms, fault == CLOUD_BUSY ? 7000 : 1000);
}

/* The verdict, and what is sure: before the create nothing ran, once a step may have begun nothing is refused. */
static void every_fault_at_every_step_is_told_as_what_it_is(void **state)
{
    (void)state;
    for (at_t at = AT_CREATE; at <= AT_COLLECT; ++at) {
        for (cloud_fault_t fault = CLOUD_NOTHING; fault <= CLOUD_CANCELED; ++fault) {
            job_t job;
            if (at == AT_CREATE_MADE && is_certain(fault))
                continue; /* a provider that says so of one it made lies: its listing finds that */
            memset(&cloudy, 0, sizeof(cloudy));
            arm(at, fault);
            project_init(&job, 2000, 1, 1);
            serve(&job);
            if (at == AT_COLLECT) {
                assert_int_equal(job.run.outcome, RUN_DONE);
                if (fault == CLOUD_CANCELED) {
                    assert_true(job.run.is_canceled);
                } else {
                    assert_int_equal(pr(&job)->outcome, OUTCOME(COMPLETED));
                    assert_true(pr(&job)->artifacts_truncated && pr(&job)->n_artifacts == 0);
                    assert_int_equal(pr(&job)->steps[0]->exit_code, 0);
                }
            } else if (at == AT_STEP) {
                /* whatever it was, the code may have run: a project says so with the output so far */
                assert_int_equal(pr(&job)->outcome, OUTCOME(PROTOCOL_ERROR));
                assert_int_equal(job.run.is_canceled, fault == CLOUD_CANCELED);
                assert_bytes(&pr(&job)->steps[0]->stdout, "seen");
                assert_int_not_equal(pr(&job)->steps[0]->exit_code, 0);
            } else if ((at == AT_CREATE || at == AT_CREATE_MADE) && !is_certain(fault)) {
                assert_int_equal(job.run.outcome, RUN_FAILED);
                assert_string_equal(job.run.code, fault == CLOUD_CANCELED ? "canceled" : "unavailable");
            } else {
                assert_refused(&job, fault, at);
                /* whoever is told is not told before the sandbox was told to end */
                assert_int_equal(strstr(job.order, "remove") != NULL, at != AT_CREATE);
            }
            assert_int_equal(cloud->is_suspect, is_suspicious(at, fault));
            cloud->is_suspect = false;
            assert_int_equal(cloudy.made, at == AT_CREATE ? 0 : 1);
            if (at < AT_STEP)
                assert_null(strstr(job.order, "step"));
            job_free(&job);
            assert_nothing_is_left();
        }
    }
}

static void a_snippet_without_a_verdict_is_never_an_exit_code(void **state)
{
    /* a provider that is silent is no timeout of the code's */
    static const struct {
        cloud_fault_t fault;
        const char *code;
    } cases[] = {{CLOUD_LATE, "unavailable"},    {CLOUD_LOST, "unavailable"},   {CLOUD_UNKNOWN, "unavailable"},
                 {CLOUD_NOTHING, "unavailable"}, {CLOUD_DENIED, "unavailable"}, {CLOUD_BUSY, "unavailable"},
                 {CLOUD_MISSING, "unavailable"}, {CLOUD_PROTOCOL, "internal"},  {CLOUD_DIFFERS, "internal"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        job_t job;
        memset(&cloudy, 0, sizeof(cloudy));
        arm(AT_STEP, cases[i].fault);
        snippet_init(&job, 2000);
        serve(&job);
        assert_int_equal(job.run.outcome, RUN_FAILED);
        assert_string_equal(job.run.code, cases[i].code);
        assert_string_equal(job.run.message, "the cloud lost the sandbox");
        assert_string_equal(job.run.detail, "in detail");
        assert_nothing_is_left();
    }
    /* a provider that says "ended" without an end */
    job_t job;
    memset(&cloudy, 0, sizeof(cloudy));
    cloudy.steps[0].is_without_end = true;
    snippet_init(&job, 2000);
    serve(&job);
    assert_int_equal(job.run.outcome, RUN_FAILED);
    assert_string_equal(job.run.code, "internal");
    assert_nothing_is_left();
}

/* --- sandboxes that do not go --- */

static void an_answer_does_not_wait_for_a_deletion_that_fails(void **state)
{
    job_t job;
    (void)state;
    cloudy.deletes_failing = 1;
    snippet_init(&job, 2000);
    serve(&job);
    assert_int_equal(js(&job)->exit_code, 0);
    assert_true((job.ended_us - job.run.started_us) / 1000 < 500);
    turn_for(100);
    assert_int_equal(cloudy.removals, 1);
    assert_int_equal(direct_int("HLEN " LEDGER_HASH), 1);
    assert_int_equal(role_ledger_live(ledger), 1);
    job_free(&job);
    assert_nothing_is_left();
    assert_int_equal(cloudy.removals, 2);
}

/* An answer after a failure waits for the first deletion's answer, and for no further one. */
static void a_failure_waits_for_one_deletion_and_no_more(void **state)
{
    job_t job;
    (void)state;
    cloudy.deletes_failing = 1;
    cloudy.stage.fault = CLOUD_LOST;
    snippet_init(&job, 2000);
    serve(&job);
    assert_int_equal(job.run.outcome, RUN_REFUSED);
    assert_string_equal(job.order, "create check stage leave remove");
    assert_true((job.ended_us - job.run.started_us) / 1000 < 400);
    assert_nothing_is_left();
    assert_int_equal(cloudy.removals, 2);
}

static void an_id_that_is_none_is_not_used(void **state)
{
    static const char *const ids[] = {"", "..", "a/b", "a b", "../../x", "caf\xc3\xa9", "a?b", "a%2fb", "."};
    (void)state;
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); ++i) {
        job_t job;
        memset(&cloudy, 0, sizeof(cloudy));
        cloudy.id = ids[i];
        snippet_init(&job, 2000);
        serve(&job);
        assert_int_equal(job.run.outcome, RUN_REFUSED);
        assert_int_equal(cloudy.made, 1);
        assert_nothing_is_left(); /* found by its stamp */
    }
    char longest[LEDGER_PROVIDER_ID_MAX + 2];
    for (int over = -1; over <= 1; ++over) {
        job_t job;
        memset(&cloudy, 0, sizeof(cloudy));
        memset(longest, 'a', sizeof(longest));
        longest[LEDGER_PROVIDER_ID_MAX + over] = '\0';
        cloudy.id = longest;
        snippet_init(&job, 2000);
        serve(&job);
        assert_int_equal(job.run.outcome, over <= 0 ? RUN_DONE : RUN_REFUSED);
        job_free(&job);
        assert_nothing_is_left();
    }
}

/* --- stopped --- */

static void a_run_stopped_at_any_step_leaves_nothing(void **state)
{
    (void)state;
    for (at_t at = AT_CREATE; at <= AT_COLLECT; ++at) {
        job_t job;
        if (at == AT_CREATE_MADE || at == AT_CREATE_NAMED)
            continue;
        memset(&cloudy, 0, sizeof(cloudy));
        cloudy.has_effect = true;
        (at == AT_CREATE  ? &cloudy.create
         : at == AT_CHECK ? &cloudy.check
         : at == AT_STAGE ? &cloudy.stage
         : at == AT_STEP  ? &cloudy.steps[0].act
                          : &cloudy.collect)
            ->sleep_ms = 3000;
        project_init(&job, 5000, 1, 1);
        begin(&job);
        turn_for(60);
        assert_false(job.is_over);
        co_cancel(job.co);
        await(&job);
        if (at == AT_CREATE) {
            assert_int_equal(job.run.outcome, RUN_FAILED);
            assert_string_equal(job.run.code, "canceled");
        } else if (at < AT_STEP) {
            assert_int_equal(job.run.outcome, RUN_REFUSED);
        } else {
            assert_int_equal(job.run.outcome, RUN_DONE);
            assert_true(job.run.is_canceled);
        }
        assert_true((job.ended_us - job.run.started_us) / 1000 < 1500);
        job_free(&job);
        assert_nothing_is_left();
    }
}

/* --- what is never asked for --- */

static void what_cannot_run_here_makes_no_sandbox(void **state)
{
    job_t job;
    (void)state;
    snippet_init(&job, 1000);
    job.snippet.grant_profile = (char *)"crm";
    serve(&job);
    assert_int_equal(job.run.refusal, REFUSAL(PERMISSION));
    project_init(&job, 1000, 1, 0);
    job.file.path = (char *)"../x";
    serve(&job);
    assert_int_equal(job.run.refusal, REFUSAL(REQUEST));
    project_init(&job, 1000, 1, 0);
    job.file.path = (char *)"a\"b";
    serve(&job);
    assert_int_equal(job.run.refusal, REFUSAL(UNSUPPORTED));
    project_init(&job, 1000, 1, 1);
    Plimsoll__V1__ProjectFile other = job.file, *both[] = {&job.file, &other};
    job.file.path = (char *)"src";
    job.project.files = both;
    job.project.n_files = 2;
    serve(&job);
    assert_int_equal(pr(&job)->outcome, OUTCOME(SETUP_FAILED));
    assert_string_equal(pr(&job)->outcome_detail, "src is a file and a directory of other files");
    job_free(&job);
    cloud->settings.problem = "no key";
    snippet_init(&job, 1000);
    serve(&job);
    assert_int_equal(job.run.refusal, REFUSAL(UNSUPPORTED));
    assert_string_equal(cloudy.order, "");
    assert_nothing_is_left();
}

/* Without the ledger's entry there is no create. */
static void without_redis_nothing_is_asked_for(void **state)
{
    job_t job;
    (void)state;
    kill(fx.pid, SIGSTOP);
    snippet_init(&job, 1000);
    serve(&job);
    kill(fx.pid, SIGCONT);
    assert_int_equal(job.run.outcome, RUN_REFUSED);
    assert_int_equal(job.run.refusal, REFUSAL(CAPACITY));
    assert_string_equal(cloudy.order, "");
    turn_until(ledger_up);
    assert_nothing_is_left();
}

/* --- places --- */

static void no_more_sandboxes_than_there_may_be(void **state)
{
    job_t jobs[6];
    (void)state;
    close_cloud();
    open_cloud(2, 0);
    for (size_t i = 0; i < STEPS_SCRIPTED; ++i)
        cloudy.steps[i].act.sleep_ms = 80;
    for (size_t i = 0; i < 6; ++i) {
        snippet_init(&jobs[i], 2000);
        begin(&jobs[i]);
    }
    for (size_t i = 0; i < 6; ++i) {
        await(&jobs[i]);
        assert_int_equal(jobs[i].run.outcome, RUN_DONE);
        job_free(&jobs[i]);
    }
    assert_int_equal(cloudy.there_max, 2);
    assert_int_equal(cloudy.made, 6);
    assert_nothing_is_left();
}

/* One that cannot be deleted still takes its place. */
static void what_is_not_confirmed_gone_takes_a_place(void **state)
{
    job_t first, second;
    (void)state;
    close_cloud();
    open_cloud(1, 0);
    cloudy.deletes_failing = 1;
    snippet_init(&first, 2000);
    serve(&first);
    snippet_init(&second, 2000);
    begin(&second);
    turn_for(150);
    assert_false(second.is_over);
    assert_int_equal(cloudy.made, 1);
    await(&second);
    assert_int_equal(second.run.outcome, RUN_DONE);
    assert_int_equal(cloudy.there_max, 1);
    job_free(&first);
    job_free(&second);
    assert_nothing_is_left();
}

typedef struct {
    const char *caller;
    uint32_t wait_ms;
    bool is_granted, is_over;
    const char *why;
    co_t *co;
} turn_t;

static char granted[64];

static void take_main(void *arg)
{
    turn_t *turn = arg;
    turn->is_granted =
        cloud_place_take(cloud, turn->caller, clock_mono_us() + turn->wait_ms * UINT64_C(1000), &turn->why);
    turn->is_over = true;
    if (turn->is_granted)
        strncat(granted, turn->caller, sizeof(granted) - strlen(granted) - 1);
}

static void turns_go_round_the_callers(void **state)
{
    static const char *const order[] = {"a", "a", "a", "b", "c", "b"};
    turn_t turns[6], holder = {.caller = "a", .wait_ms = 100};
    (void)state;
    close_cloud();
    open_cloud(1, 0);
    granted[0] = '\0';
    co_start(fx.loop, take_main, &holder, NULL);
    assert_true(holder.is_granted);
    granted[0] = '\0';
    for (size_t i = 0; i < 6; ++i) {
        turns[i] = (turn_t){.caller = order[i], .wait_ms = 5000};
        co_start(fx.loop, take_main, &turns[i], NULL);
    }
    turn_for(20);
    assert_string_equal(granted, "");
    for (size_t i = 0; i < 6; ++i) {
        cloud_place_used(cloud);
        turn_for(5);
    }
    assert_string_equal(granted, "abcaba");
    cloud_place_used(cloud);
    assert_nothing_is_left();
}

static void nobody_waits_for_ever(void **state)
{
    turn_t holder = {.caller = "a", .wait_ms = 100}, late = {.caller = "b", .wait_ms = 60},
           stopped = {.caller = "c", .wait_ms = 5000}, next = {.caller = "d", .wait_ms = 5000};
    (void)state;
    close_cloud();
    open_cloud(1, 0);
    co_start(fx.loop, take_main, &holder, NULL);
    co_start(fx.loop, take_main, &late, NULL);
    stopped.co = co_start(fx.loop, take_main, &stopped, NULL);
    co_start(fx.loop, take_main, &next, NULL);
    turn_for(100);
    assert_true(late.is_over && !late.is_granted);
    assert_string_equal(late.why, "there are as many sandboxes as there may be");
    co_cancel(stopped.co);
    turn_for(10);
    assert_true(stopped.is_over && !stopped.is_granted && !next.is_over);
    cloud_place_used(cloud);
    turn_for(10);
    assert_true(next.is_granted);
    cloud_place_used(cloud);
    assert_nothing_is_left();
}

/* 600 a minute: ten a second, a hundred at once, then one each 100 ms. */
static void creates_are_spread_over_time(void **state)
{
    turn_t turns[102];
    (void)state;
    close_cloud();
    open_cloud(1000, 600);
    for (size_t i = 0; i < 102; ++i) {
        turns[i] = (turn_t){.caller = "a", .wait_ms = 5000};
        co_start(fx.loop, take_main, &turns[i], NULL);
    }
    assert_true(turns[99].is_granted && !turns[100].is_over);
    uint64_t began = clock_mono_ms();
    while (!turns[101].is_over)
        loop_run_once(fx.loop, 5);
    assert_true(turns[101].is_granted);
    assert_true(clock_mono_ms() - began >= 150 && clock_mono_ms() - began < 1000);
    for (size_t i = 0; i < 102; ++i)
        cloud_place_used(cloud);
    assert_nothing_is_left();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, each, close_each)
    const struct CMUnitTest tests[] = {
        TEST(a_snippet_is_made_checked_staged_run_and_its_sandbox_goes),
        TEST(the_time_of_a_run_begins_with_its_code),
        TEST(nothing_begins_before_a_read_back_beside_the_files_is_over),
        TEST(a_wrong_sandbox_is_told_as_such_whatever_became_of_the_files),
        TEST(files_that_fail_at_a_right_sandbox_are_no_other_wall),
        TEST(a_run_stopped_beside_its_read_back_ends_at_once),
        TEST(steps_go_in_order_and_stop_at_the_first_that_fails),
        TEST(a_run_whose_time_is_over_ends_then_with_its_output),
        TEST(after_a_timeout_no_step_begins_and_artifacts_are_collected),
        TEST(output_is_cut_at_its_limit_and_no_byte_earlier),
        TEST(all_steps_share_one_budget_of_output),
        TEST(output_is_bytes),
        TEST(artifacts_fit_whole_or_not_at_all),
        TEST(every_fault_at_every_step_is_told_as_what_it_is),
        TEST(a_snippet_without_a_verdict_is_never_an_exit_code),
        TEST(an_answer_does_not_wait_for_a_deletion_that_fails),
        TEST(a_failure_waits_for_one_deletion_and_no_more),
        TEST(an_id_that_is_none_is_not_used),
        TEST(a_run_stopped_at_any_step_leaves_nothing),
        TEST(what_cannot_run_here_makes_no_sandbox),
        TEST(without_redis_nothing_is_asked_for),
        TEST(no_more_sandboxes_than_there_may_be),
        TEST(what_is_not_confirmed_gone_takes_a_place),
        TEST(turns_go_round_the_callers),
        TEST(nobody_waits_for_ever),
        TEST(creates_are_spread_over_time),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
