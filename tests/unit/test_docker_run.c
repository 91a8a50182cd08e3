/* One run, by what its sandbox does: the table of outcomes of spec backend-docker 2.4, the limits of time (U05), what
 * is kept of the output (U09, U11-U13), streams that end without a verdict (U14), and the read-back (1.7). */
#include "tests/unit/docker_fixture.h"

#include "backends/docker/run.h"

static docker_t *docker;
static backend_kind_t kind = {.supported = true, .max_timeout_ms = 30000, .default_timeout_ms = 5000};

typedef struct {
    Plimsoll__V1__RunRequest request;
    Plimsoll__V1__JavaScriptRun javascript;
    Plimsoll__V1__ProjectRun project;
    backend_run_t run;
    task_t task;
    co_t *co;
} case_t;

static char *steps[] = {"one", "two"};

static void case_init(case_t *c, bool is_project, uint32_t timeout_ms)
{
    memset(c, 0, sizeof(*c));
    plimsoll__v1__run_request__init(&c->request);
    plimsoll__v1__java_script_run__init(&c->javascript);
    plimsoll__v1__project_run__init(&c->project);
    c->javascript.code = "1";
    c->project.steps = steps;
    c->project.n_steps = 2;
    if (is_project) {
        c->request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
        c->request.project = &c->project;
    } else {
        c->request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT;
        c->request.javascript = &c->javascript;
    }
    c->run.request = &c->request;
    c->run.run_id = "r";
    c->run.caller = "a";
    c->run.kind = &kind;
    c->run.tier = TIER_CONTAINER;
    c->run.started_us = c->run._step_us = clock_mono_us();
    c->run.deadline_us = c->run.started_us + (uint64_t)timeout_ms * 1000;
}

static void case_dispose(case_t *c)
{
    if (c->run.response != NULL)
        plimsoll__v1__run_response__free_unpacked(c->run.response, NULL);
}

static void run_main(void *data)
{
    case_t *c = data;
    docker_run(docker, &c->run);
}

static bool has_ended(void *data)
{
    return ((case_t *)data)->task.has_ended;
}

static bool has_job(void *data)
{
    const fake_t *fake = data;
    return fake->hello_len > 0 && fake->sent_len > fake->hello_len;
}

static void up(void)
{
    container_spec_t snippet = fake_spec(), project = fake_spec();
    member_plan_t plan = {.spec = &project, .role = "pool", .life_s = 60};
    project.preboot = GUEST_PREBOOT_NONE;
    project.work_mb = 128;
    docker = fake_wall(0, 3600 * 1000);
    fake_pool_set(docker, &snippet);
    pool_set(docker->pools[DOCKER_PROJECT], &plan);
}

static bool is_one(void *data)
{
    (void)data;
    return fake_count > 0;
}

/* Starts the run and returns its sandbox, which has the job by then. */
static fake_t *begin(case_t *c, bool is_project, uint32_t timeout_ms)
{
    case_init(c, is_project, timeout_ms);
    c->co = task_start(&c->task, run_main, c);
    spin_until(is_one, NULL);
    fake_t *fake = fakes[fake_count - 1];
    spin_until(has_job, fake);
    return fake;
}

static void end(case_t *c)
{
    spin_until(has_ended, c);
    case_dispose(c);
    assert_int_equal(docker->running, 0);
    fake_wall_destroy(docker);
    assert_int_equal(fake_existing(), 0);
}

/* --- frames of the runner's (backends/guest/job.h) --- */

static void says(fake_t *fake, int step, char stream, const char *bytes, size_t len)
{
    uint8_t payload[4048];
    payload[0] = (uint8_t)step;
    memcpy(payload + 1, bytes, len);
    fake_frame(fake, stream, payload, len + 1);
}

static void step_ends(fake_t *fake, int step, uint8_t flags, int exit_code, uint32_t out, uint32_t err)
{
    uint8_t payload[39] = {(uint8_t)step, flags};
    test_put32(payload + 2, (uint32_t)exit_code);
    test_put32(payload + 7, out);
    test_put32(payload + 11, err);
    test_put64(payload + 15, out + ((flags & 2) != 0));
    test_put64(payload + 23, err + ((flags & 4) != 0));
    test_put64(payload + 31, 1000);
    fake_frame(fake, 'T', payload, sizeof(payload));
}

static void final(fake_t *fake, int outcome, int step_count, const char *detail)
{
    uint8_t payload[256] = {(uint8_t)outcome, 0, 0, (uint8_t)step_count};
    unsigned n = 32;
    EVP_Digest(fake->runner->payloads, fake->runner->payload_len, payload + 6, &n, EVP_sha256(), NULL);
    memcpy(payload + 38, detail, strlen(detail));
    fake_frame(fake, 'X', payload, 38 + strlen(detail));
}

/* --- a verdict --- */

static void bytes_come_back_as_they_were(void **state)
{
    static const char out[] = "\xff\xfe\x00\x80\xe2\x98\x95";
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, false, 5000);
    fake_accepts(fake);
    says(fake, 0, 'O', out, 5); /* the character is cut between two frames */
    says(fake, 0, 'O', out + 5, 2);
    says(fake, 0, 'E', "\0", 1);
    step_ends(fake, 0, 4, 3, 7, 1);
    final(fake, 0, 1, "");
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_DONE);
    const Plimsoll__V1__JavaScriptResult *js = c.run.response->javascript;
    assert_int_equal(js->stdout.len, 7);
    assert_memory_equal(js->stdout.data, out, 7);
    assert_int_equal(js->stderr.len, 1);
    assert_int_equal(js->exit_code, 3);
    assert_true(!js->timed_out && !js->stdout_truncated && js->stderr_truncated);
    assert_string_equal(c.run.response->sandbox, "docker");
    end(&c);
}

static void a_verdict_stands_whatever_comes_after(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, false, 5000);
    fake_accepts(fake);
    step_ends(fake, 0, 0, 0, 0, 0);
    final(fake, 0, 1, "");
    fake_ends(fake); /* U14 (c), in the same tick */
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_DONE);
    assert_int_equal(c.run.response->javascript->exit_code, 0);
    end(&c);
}

static void a_project_s_steps_come_back(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, true, 5000);
    fake_accepts(fake);
    says(fake, 0, 'O', "a", 1);
    step_ends(fake, 0, 0, 0, 1, 0);
    says(fake, 1, 'E', "b", 1);
    step_ends(fake, 1, 0, 2, 0, 1);
    final(fake, 0, 2, "");
    spin_until(has_ended, &c);
    const Plimsoll__V1__ProjectResult *p = c.run.response->project;
    assert_int_equal(p->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED);
    assert_string_equal(p->outcome_detail, "");
    assert_int_equal(p->n_steps, 2);
    assert_string_equal(p->steps[0]->command, "one");
    assert_string_equal(p->steps[1]->command, "two");
    assert_int_equal(p->steps[0]->stdout.len, 1);
    assert_int_equal(p->steps[1]->exit_code, 2);
    assert_int_equal(p->steps[1]->duration_ms, 1);
    end(&c);
}

static void outcomes_of_the_runner_are_the_project_s(void **state)
{
    static const struct {
        int outcome;
        const char *detail;
        int expected;
        const char *text;
    } rows[] = {
        {1, "a path", PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_SETUP_FAILED, "a path"},
        {2, "", PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT,
         "the run's time was over before its first step"},
        {3, "no end", PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_RUNNER_FAILED, "the runner failed: no end"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        case_t c;
        up();
        fake_t *fake = begin(&c, true, 5000);
        fake_accepts(fake);
        final(fake, rows[i].outcome, 0, rows[i].detail);
        spin_until(has_ended, &c);
        assert_int_equal(c.run.outcome, RUN_DONE);
        assert_int_equal(c.run.response->project->outcome, rows[i].expected);
        assert_string_equal(c.run.response->project->outcome_detail, rows[i].text);
        end(&c);
        fake_reset();
    }
}

/* --- time --- */

/* U05: between a run's limit and 400 ms past it. The rest is for what a busy machine adds. */
_Static_assert(DOCKER_MARGIN_MS <= 300, "an answer past its limit comes within 400 ms");

/* U05 and U09: 124, with what had come, and not before the limit; and the sandbox goes. */
static void a_silent_sandbox_is_late(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, false, 500);
    fake_accepts(fake);
    says(fake, 0, 'O', "A", 1);
    spin_until(has_ended, &c);
    assert_in_range(clock_mono_us() - c.run.started_us, 500 * 1000, 3000 * 1000);
    const Plimsoll__V1__JavaScriptResult *js = c.run.response->javascript;
    assert_int_equal(js->exit_code, 124);
    assert_true(js->timed_out && !js->stdout_truncated);
    assert_int_equal(js->stdout.len, 1);
    end(&c);
}

static void a_late_project_tells_its_step(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, true, 300);
    fake_accepts(fake);
    step_ends(fake, 0, 0, 0, 0, 0);
    says(fake, 1, 'O', "b", 1);
    spin_until(has_ended, &c);
    const Plimsoll__V1__ProjectResult *p = c.run.response->project;
    assert_int_equal(p->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT);
    assert_string_equal(p->outcome_detail, "step 2 used up the run's time");
    assert_int_equal(p->n_steps, 2);
    assert_int_equal(p->steps[1]->exit_code, 124);
    assert_true(p->steps[1]->timed_out && !p->steps[0]->timed_out);
    assert_in_range(p->steps[1]->duration_ms, 200, 3000);
    end(&c);
}

/* A first step that had begun, and was too busy to show anything, was told as one that never began; a second one's time
 * was laid to the first, which had ended well. */
static void a_late_project_says_no_more_than_is_known(void **state)
{
    static const char *const texts[] = {"the run's time was over, and nothing was heard of its first step",
                                        "the run's time was over, and nothing was heard of it after step 1"};
    (void)state;
    for (int ended = 0; ended < 2; ++ended) {
        case_t c;
        up();
        fake_t *fake = begin(&c, true, 200);
        fake_accepts(fake);
        if (ended == 1)
            step_ends(fake, 0, 0, 0, 0, 0);
        spin_until(has_ended, &c);
        const Plimsoll__V1__ProjectResult *p = c.run.response->project;
        assert_int_equal(p->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT);
        assert_string_equal(p->outcome_detail, texts[ended]);
        assert_int_equal(p->n_steps, ended);
        end(&c);
        fake_reset();
    }
}

static void a_runner_out_of_time_between_steps_blames_none(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, true, 5000);
    fake_accepts(fake);
    step_ends(fake, 0, 0, 0, 0, 0);
    final(fake, 2, 1, "");
    spin_until(has_ended, &c);
    const Plimsoll__V1__ProjectResult *p = c.run.response->project;
    assert_int_equal(p->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT);
    assert_string_equal(p->outcome_detail, "the run's time was over before step 2");
    assert_int_equal(p->steps[0]->exit_code, 0);
    end(&c);
}

static void time_that_is_over_runs_nothing(void **state)
{
    case_t c;
    (void)state;
    fake_engine.ready_ms = 100;
    up();
    case_init(&c, false, 50);
    task_start(&c.task, run_main, &c);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_REFUSED);
    assert_int_equal(c.run.refusal, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY);
    assert_true(c.run.retry_after_ms > 0);
    end(&c);
}

/* --- no verdict --- */

static void an_end_without_a_verdict_is_never_zero(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, false, 5000);
    fake_accepts(fake);
    says(fake, 0, 'O', "A", 1);
    step_ends(fake, 0, 0, 0, 1, 0); /* an exit, and no FINAL: U14 (b) */
    fake_ends(fake);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_FAILED); /* not marked: it may have run */
    assert_string_equal(c.run.code, "internal");
    assert_string_equal(c.run.message, "the sandbox ended without a result (exit code 137)");
    end(&c);
}

static void a_project_keeps_what_it_had(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, true, 5000);
    fake_accepts(fake);
    says(fake, 0, 'O', "A", 1);
    step_ends(fake, 0, 0, 0, 1, 0);
    says(fake, 1, 'O', "B", 1);
    fake->is_oom_killed = true;
    fake_ends(fake);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_DONE);
    const Plimsoll__V1__ProjectResult *p = c.run.response->project;
    assert_int_equal(p->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_PROTOCOL_ERROR);
    assert_string_equal(p->outcome_detail, "the sandbox ended without a result (exit code 137, out of memory)");
    assert_int_equal(p->n_steps, 2);
    assert_int_equal(p->steps[0]->exit_code, 0);
    assert_int_equal(p->steps[1]->exit_code, -1);
    assert_int_equal(p->steps[1]->stdout.len, 1);
    end(&c);
}

static void a_frame_that_makes_no_sense_ends_it(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, true, 5000);
    fake_accepts(fake);
    fake_frame(fake, 'Z', "", 0);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.response->project->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_PROTOCOL_ERROR);
    assert_string_equal(c.run.response->project->outcome_detail, "the sandbox broke the protocol");
    end(&c);
}

/* The whole job was written and nobody confirmed it: it may have run, so it is not marked, and it is no timeout. */
static void an_unconfirmed_job_is_no_timeout(void **state)
{
    case_t c;
    (void)state;
    up();
    begin(&c, false, 200);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_FAILED);
    assert_string_equal(c.run.message, "the sandbox did not confirm its job");
    end(&c);
}

static void another_job_s_confirmation_is_none(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, true, 5000);
    fake_frame(fake, 'A', "01234567890123456789012345678901", 32);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.response->project->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_PROTOCOL_ERROR);
    assert_int_equal(c.run.response->project->n_steps, 0);
    end(&c);
}

static void bytes_that_are_no_frames_change_nothing(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, false, 5000);
    fake_accepts(fake);
    fake_says(fake, "\xf5SB1X\0\0\0\0\1\0\0\0\0forged, without a key!", 36);
    step_ends(fake, 0, 0, 7, 0, 0);
    final(fake, 0, 1, "");
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_DONE);
    assert_int_equal(c.run.response->javascript->exit_code, 7);
    end(&c);
}

/* --- nothing ran --- */

static bool has_attach_stuck(void *data)
{
    const fake_t *fake = data;
    return fake->attach != NULL && fake->attach->unsent > 0;
}

static void a_job_not_wholly_written_is_refused(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_engine.is_job_stuck = true;
    fake_t *fake = begin(&c, false, 5000);
    spin_until(has_attach_stuck, fake);
    fake_ends(fake);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_REFUSED);
    assert_string_equal(c.run.message, "the job was not handed over");
    end(&c);
}

static void an_engine_that_starts_nothing_refuses_the_run(void **state)
{
    static const engine_outcome_t outcomes[] = {ENGINE_ABSENT, ENGINE_CONFLICT, ENGINE_REFUSED,  ENGINE_FAILED,
                                                ENGINE_UNSENT, ENGINE_UNKNOWN,  ENGINE_UNCHANGED};
    (void)state;
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); ++i) {
        case_t c;
        up();
        fake_engine.start = outcomes[i];
        case_init(&c, false, 5000);
        task_start(&c.task, run_main, &c);
        spin_until(has_ended, &c);
        assert_int_equal(c.run.outcome, RUN_REFUSED);
        assert_int_equal(c.run.refusal, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY);
        end(&c);
        fake_reset();
    }
}

static void make_privileged(fake_t *fake)
{
    json_object_set_new(json_object_get(fake->body, "HostConfig"), "Privileged", json_true());
}

static void what_was_not_asked_for_is_not_started(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_engine.on_made = make_privileged;
    case_init(&c, false, 5000);
    task_start(&c.task, run_main, &c);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_REFUSED);
    assert_non_null(strstr(c.run.detail, "HostConfig.Privileged"));
    assert_int_equal(fake_engine.starting_max, 0);
    end(&c);
}

static bool is_pool_ready(void *data)
{
    (void)data;
    return pool_idle(docker->pools[DOCKER_SNIPPET]) == 1;
}

/* A ready one that somebody changed is thrown away, and the run gets another. */
static void a_changed_one_is_not_used(void **state)
{
    container_spec_t spec = fake_spec();
    case_t c;
    (void)state;
    docker = fake_wall(1, 3600 * 1000);
    fake_pool_set(docker, &spec);
    spin_until(is_pool_ready, NULL);
    fake_t *changed = fakes[0];
    json_object_set_new(json_object_get(changed->body, "HostConfig"), "Memory", json_integer(1 << 30));
    case_init(&c, false, 5000);
    task_start(&c.task, run_main, &c);
    uint64_t until_ms = clock_mono_ms() + 5000;
    fake_t *used = NULL;
    while (used == NULL && clock_mono_ms() < until_ms) {
        loop_run_once(loop, 1);
        for (size_t i = 0; i < fake_count; ++i)
            used = has_job(fakes[i]) ? fakes[i] : used;
    }
    assert_non_null(used);
    assert_ptr_not_equal(used, changed);
    assert_int_equal(reproofs, 1);
    fake_accepts(used);
    step_ends(used, 0, 0, 0, 0, 0);
    final(used, 0, 1, "");
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_DONE);
    end(&c);
}

/* An Engine that does not say what a ready sandbox is: it is not used, and nothing ran. */
static void an_unchecked_one_is_not_used(void **state)
{
    container_spec_t spec = fake_spec();
    case_t c;
    (void)state;
    docker = fake_wall(1, 3600 * 1000);
    fake_pool_set(docker, &spec);
    spin_until(is_pool_ready, NULL);
    fake_engine.inspect = ENGINE_UNKNOWN;
    case_init(&c, false, 5000);
    task_start(&c.task, run_main, &c);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_REFUSED);
    assert_int_equal(c.run.refusal, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY);
    assert_false(has_job(fakes[0]));
    fake_engine.inspect = ENGINE_OK;
    end(&c);
}

static void a_grant_is_refused(void **state)
{
    case_t c;
    (void)state;
    up();
    case_init(&c, false, 5000);
    c.javascript.grant_profile = "p";
    task_start(&c.task, run_main, &c);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.refusal, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_PERMISSION);
    assert_int_equal(fake_count, 0);
    end(&c);
}

/* --- the caller goes --- */

static void a_canceled_run_is_stopped(void **state)
{
    case_t c;
    (void)state;
    up();
    fake_t *fake = begin(&c, false, 5000);
    fake_accepts(fake);
    says(fake, 0, 'O', "A", 1);
    co_cancel(c.co);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_DONE);
    assert_true(c.run.is_canceled);
    assert_int_equal(c.run.response->javascript->exit_code, 137);
    spin(100);
    assert_false(fake->exists);
    end(&c);
}

static void canceled_before_it_had_its_job_is_refused(void **state)
{
    case_t c;
    (void)state;
    fake_engine.ready_ms = 100;
    up();
    case_init(&c, true, 5000);
    c.co = task_start(&c.task, run_main, &c);
    spin(20);
    co_cancel(c.co);
    spin_until(has_ended, &c);
    assert_int_equal(c.run.outcome, RUN_REFUSED);
    end(&c);
}

/* Code of one second with a budget of twenty came back as timed out: it had waited nineteen for a sandbox. */
static void a_run_that_waited_too_long_for_a_sandbox_is_refused(void **state)
{
    case_t c;
    (void)state;
    fake_engine.ready_ms = 800;
    up();
    case_init(&c, false, 900);
    c.co = task_start(&c.task, run_main, &c);
    spin_until(has_ended, &c);
    uint64_t waited_us = clock_mono_us() - c.run.started_us;
    assert_int_equal(c.run.outcome, RUN_REFUSED);
    assert_int_equal(c.run.refusal, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY);
    assert_true(waited_us >= 590 * 1000 && waited_us < 790 * 1000); /* 600, and what a timer may be off */
    spin(600); /* the sandbox that came too late is ready, and stays for the next run */
    end(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(bytes_come_back_as_they_were),
        TEST(a_verdict_stands_whatever_comes_after),
        TEST(a_project_s_steps_come_back),
        TEST(outcomes_of_the_runner_are_the_project_s),
        TEST(a_silent_sandbox_is_late),
        TEST(a_late_project_tells_its_step),
        TEST(a_late_project_says_no_more_than_is_known),
        TEST(a_runner_out_of_time_between_steps_blames_none),
        TEST(time_that_is_over_runs_nothing),
        TEST(an_end_without_a_verdict_is_never_zero),
        TEST(a_project_keeps_what_it_had),
        TEST(a_frame_that_makes_no_sense_ends_it),
        TEST(an_unconfirmed_job_is_no_timeout),
        TEST(another_job_s_confirmation_is_none),
        TEST(bytes_that_are_no_frames_change_nothing),
        TEST(a_job_not_wholly_written_is_refused),
        TEST(an_engine_that_starts_nothing_refuses_the_run),
        TEST(what_was_not_asked_for_is_not_started),
        TEST(a_changed_one_is_not_used),
        TEST(an_unchecked_one_is_not_used),
        TEST(a_grant_is_refused),
        TEST(a_canceled_run_is_stopped),
        TEST(canceled_before_it_had_its_job_is_refused),
        TEST(a_run_that_waited_too_long_for_a_sandbox_is_refused),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
