/* A cloud wall's evidence: what costs nothing is looked at each time, a sandbox of its own is tried at the start, when
 * something was suspected and every so often, and what that trial must find. */
#include "cloud_fixture.h"

#define REPORT(node, cwd, python, open)                                                                                \
    "{\"probe\":1,\"node\":\"" node "\",\"cwd\":\"" cwd "\",\"python\":\"" python "\",\"egressOpen\":" open "}\n"
#define GOOD REPORT("v20.1.0", "/home/user/project", "3.11.2", "[]")

typedef struct {
    backend_facts_t facts;
    bool is_proven;
    char failure[BACKEND_TEXT_MAX];
} proof_t;

static void prove_main(void *arg)
{
    proof_t *proof = arg;
    proof->is_proven = cloud_prove(cloud, &proof->facts, proof->failure);
}

static proof_t prove(void)
{
    proof_t proof = {.failure = ""};
    cloudy.order[0] = '\0';
    cloudy.step = 0;
    is_over = false;
    co_start(fx.loop, prove_main, &proof, ended);
    turn_until(over);
    return proof;
}

static void good(void)
{
    cloudy.steps[0] = (step_act_t){.out = GOOD};
}

static void assert_fails(const proof_t *proof, const char *text, bool is_untried)
{
    if (strstr(proof->failure, text) == NULL)
        print_error("failure: %s\n", proof->failure);
    assert_false(proof->is_proven);
    assert_non_null(strstr(proof->failure, text));
    assert_int_equal(proof->facts.is_untried, is_untried);
}

static void the_first_proof_tries_a_sandbox_and_the_next_does_not(void **state)
{
    (void)state;
    good();
    proof_t proof = prove();
    assert_true(proof.is_proven);
    assert_string_equal(cloudy.order, "preflight create check probe stage step leave remove");
    assert_int_equal(proof.facts.tier, TIER_VM);
    assert_string_equal(proof.facts.javascript.environment, "template:sha256:1234");
    assert_string_equal(proof.facts.project.languages[0], "javascript");
    assert_string_equal(proof.facts.project.languages[1], "python");
    assert_null(proof.facts.javascript.languages[1]);
    assert_int_equal(proof.facts.javascript.max_timeout_ms, 120000);
    assert_int_equal(proof.facts.javascript.default_timeout_ms, 30000);
    assert_nothing_is_left();
    /* what was just read back need not be asked for again */
    proof = prove();
    assert_true(proof.is_proven);
    assert_string_equal(cloudy.order, "");
    cloud->seen_us = 1;
    proof = prove();
    assert_true(proof.is_proven);
    assert_string_equal(cloudy.order, "preflight");
    assert_int_equal(cloudy.made, 1);
    /* and when its time has come, a sandbox again */
    cloud->smoke_us = 1;
    cloud->smoke_interval_ms = 1;
    cloud->smoke_next_us = 0;
    proof = prove();
    assert_true(proof.is_proven);
    assert_int_equal(cloudy.made, 2);
    assert_nothing_is_left();
}

static void what_costs_nothing_comes_first(void **state)
{
    static const struct {
        cloud_fault_t fault;
        bool is_untried;
    } cases[] = {{CLOUD_DENIED, false}, {CLOUD_MISSING, false}, {CLOUD_DIFFERS, false}, {CLOUD_NOTHING, true},
                 {CLOUD_BUSY, true},    {CLOUD_UNKNOWN, true},  {CLOUD_LATE, true},     {CLOUD_PROTOCOL, true}};
    (void)state;
    good();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        cloudy.preflight.fault = cases[i].fault;
        proof_t proof = prove();
        assert_fails(&proof, "the cloud says no (in detail)", cases[i].is_untried);
        assert_string_equal(cloudy.order, "preflight");
    }
    assert_int_equal(cloudy.made, 0);
    cloud->settings.problem = "no key";
    proof_t proof = prove();
    assert_fails(&proof, "no key", false);
    assert_string_equal(cloudy.order, "");
}

static void the_trial_must_find_what_was_asked_for(void **state)
{
    static const struct {
        step_act_t step;
        const char *text;
    } cases[] = {
        {{.out = REPORT("v20.1.0", "/home/user/project", "", "[\"https to a name\"]")}, "reaches the network: 1 ways"},
        {{.out = REPORT("v20.1.0", "/", "", "[]")}, "another directory"},
        {{.out = REPORT("", "/home/user/project", "", "[]")}, "Node's version"},
        {{.out = REPORT("v20.1.0", "/home/user/project", "", "0")}, "does not tell what it reached"},
        {{.out = "{}"}, "Node's version"},
        {{.out = ""}, "cannot be read: it has no body"},
        {{.out = "hello"}, "it is not JSON"},
        {{.out = GOOD "x"}, "it is not JSON"},
        {{.out = GOOD, .exit_code = 1}, "exit code 1"},
        {{.out = "", .exit_code = 127}, "has no node"},
        {{.out = GOOD, .is_timed_out = true}, "did not end in its time"},
        {{.is_flood = true}, "exit code 153"},
        {{.out = GOOD, .is_without_end = true}, "gave no verdict"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        cloudy.steps[0] = cases[i].step;
        cloud->smoke_next_us = 0;
        proof_t proof = prove();
        assert_fails(&proof, cases[i].text, false);
        assert_nothing_is_left();
    }
    assert_int_equal(cloudy.made, sizeof(cases) / sizeof(cases[0]));
}

static void a_trial_that_met_a_bad_moment_has_learnt_nothing(void **state)
{
    act_t *const acts[] = {&cloudy.create, &cloudy.check, &cloudy.probe, &cloudy.stage, &cloudy.steps[0].act};
    (void)state;
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); ++i) {
        for (cloud_fault_t fault = CLOUD_NOTHING; fault < CLOUD_CANCELED; ++fault) {
            memset(&cloudy, 0, sizeof(cloudy));
            good();
            acts[i]->fault = fault;
            cloud->smoke_next_us = 0;
            cloud->is_suspect = false;
            proof_t proof = prove();
            bool is_definite =
                fault == CLOUD_DENIED || fault == CLOUD_MISSING || fault == CLOUD_DIFFERS || fault == CLOUD_PROTOCOL;
            assert_fails(&proof, "(in detail)", !is_definite);
            assert_nothing_is_left();
        }
    }
}

/* Each costs money. */
static void a_trial_that_failed_is_not_repeated_at_once(void **state)
{
    (void)state;
    cloudy.steps[0] = (step_act_t){.exit_code = 127};
    proof_t proof = prove();
    assert_fails(&proof, "has no node", false);
    good();
    proof = prove();
    assert_fails(&proof, "has no node (tried again in", false);
    assert_int_equal(cloudy.made, 1);
    uint64_t pause_us = cloud->smoke_next_us - clock_mono_us();
    assert_true(pause_us > 50 * 1000000ull && pause_us <= 60 * 1000000ull);
    cloudy.steps[0] = (step_act_t){.exit_code = 127};
    for (unsigned s = 120; s <= 960; s *= 2) {
        cloud->smoke_next_us = 0;
        proof = prove();
        pause_us = cloud->smoke_next_us - clock_mono_us();
        unsigned most = s < 900 ? s : 900;
        assert_true(pause_us > (most - 10) * 1000000ull && pause_us <= most * 1000000ull);
    }
    cloud->smoke_next_us = 0;
    good();
    assert_true(prove().is_proven);
    assert_int_equal(cloud->smoke_pause_ms, 60000);
    assert_nothing_is_left();
}

/* Also when it has learnt nothing: a sandbox was made. */
static void a_trial_that_made_a_sandbox_is_not_repeated_at_once(void **state)
{
    (void)state;
    good();
    cloudy.stage.fault = CLOUD_LATE;
    proof_t proof = prove();
    assert_fails(&proof, "were not handed over: the cloud says no", true);
    cloudy.stage.fault = CLOUD_FINE;
    proof = prove();
    assert_fails(&proof, "(tried again in", true); /* older evidence keeps its age meanwhile */
    assert_int_equal(cloudy.made, 1);
    cloud->smoke_next_us = 0;
    cloudy.create.fault = CLOUD_BUSY; /* none was made: there is nothing to save */
    proof = prove();
    assert_fails(&proof, "the cloud says no", true);
    cloudy.create.fault = CLOUD_FINE;
    assert_true(prove().is_proven);
    assert_nothing_is_left();
}

static void what_is_suspected_is_tried_before_it_serves_again(void **state)
{
    (void)state;
    good();
    assert_true(prove().is_proven);
    cloud_suspect(cloud, "its network is open");
    assert_int_equal(cloudy.reproves, 1);
    /* the last one was a moment ago */
    proof_t proof = prove();
    assert_fails(&proof, "its network is open (tried again in", false);
    cloud->smoke_next_us = 0;
    cloudy.create.fault = CLOUD_BUSY;
    proof = prove();
    assert_fails(&proof, "the cloud says no", false); /* nothing was learnt, and it stays suspected */
    cloudy.create.fault = CLOUD_FINE;
    assert_true(prove().is_proven);
    assert_false(cloud->is_suspect);
    assert_nothing_is_left();
}

static void a_trial_whose_sandbox_does_not_go_has_failed(void **state)
{
    (void)state;
    good();
    cloudy.deletes_failing = 1;
    proof_t proof = prove(); /* the second try, a second later */
    assert_true(proof.is_proven);
    assert_nothing_is_left();
    assert_int_equal(cloudy.removals, 2);
}

static void without_the_ledger_nothing_is_tried(void **state)
{
    (void)state;
    good();
    kill(fx.pid, SIGSTOP);
    proof_t proof = prove();
    kill(fx.pid, SIGCONT);
    assert_fails(&proof, "no sandbox could be asked for", true);
    assert_int_equal(cloudy.made, 0);
    turn_until(ledger_up);
    assert_nothing_is_left();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, each, close_each)
    const struct CMUnitTest tests[] = {
        TEST(the_first_proof_tries_a_sandbox_and_the_next_does_not),
        TEST(what_costs_nothing_comes_first),
        TEST(the_trial_must_find_what_was_asked_for),
        TEST(a_trial_that_met_a_bad_moment_has_learnt_nothing),
        TEST(a_trial_that_failed_is_not_repeated_at_once),
        TEST(a_trial_that_made_a_sandbox_is_not_repeated_at_once),
        TEST(what_is_suspected_is_tried_before_it_serves_again),
        TEST(a_trial_whose_sandbox_does_not_go_has_failed),
        TEST(without_the_ledger_nothing_is_tried),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
