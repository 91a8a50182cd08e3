/*
 * The smoke test over sandboxes that are made of frames: the right answers prove a container, one wrong or missing
 * answer at a time is told by its check's name, with every sandbox that was started disposed of; and a wall of gVisor's
 * has the tier that a machine made by hand shows.
 */
#include "tests/unit/fake_engine.h"
#include "tests/unit/guest_fixture.h"
#include "tests/unit/proof_fixture.h"
#include "tests/unit/smoke_reports.h"

#include "backends/docker/smoke.h"
#include "core/log.h"

/* The one thing that is not as it should be. */
typedef enum {
    NOTHING_WRONG,
    NO_LAUNCH,
    NOT_GIVEN,
    NO_ANSWER,
    ANSWER_LATE,
    BROKEN_FRAME,
    PROBE_FAILED,
    PROBE_CUT,
    NO_REPORT,
    REPORT_OTHER,
    LIMIT_OTHER,
    SNIPPET_EXIT,
    SNIPPET_OTHER,
    SNIPPET_FORGED,
    PROJECT_STEP,
    PROJECT_FORGED,
    PROJECT_LEFT,
    PROJECT_NO_LEAVER,
    NO_PYTHON,
    BUSY_ENDED,
    FLOOD_SHORT,
    FLOOD_UNCUT,
    FLOOD_OTHER,
    NOT_GONE,
    CANCELED,
    TOO_FAST,
} wrong_t;

static struct {
    wrong_t wrong;
    int launched, disposed, jobs;
    int pid; /* of the sandboxes' process; 0: the Engine does not say */
    bool is_gvisor;
} wall;

enum { SANDBOX = 4242, GUEST = 4343 };

static co_t *test_co;

static void *wall_launch(void *data, docker_kind_t kind, const image_t *image, const char *bind,
                         char failure[ENGINE_TEXT_MAX])
{
    assert_ptr_equal(data, &wall);
    assert_null(bind);
    assert_string_equal(image->id, kind == DOCKER_SNIPPET ? "sha256:1" : "sha256:2");
    if (wall.wrong == NO_LAUNCH) {
        snprintf(failure, ENGINE_TEXT_MAX, "start: no such thing");
        return NULL;
    }
    ++wall.launched;
    guest_destroy(guest);
    buffer_dispose(&sent);
    set_up(NULL);
    ready();
    return &wall;
}

static const char *wall_container_id(void *sandbox)
{
    (void)sandbox;
    return ID;
}

static int wall_pid(void *sandbox)
{
    (void)sandbox;
    return wall.pid;
}

static guest_t *wall_guest(void *sandbox)
{
    (void)sandbox;
    return guest;
}

static bool wall_dispose(void *sandbox)
{
    (void)sandbox;
    ++wall.disposed;
    return wall.wrong != NOT_GONE;
}

static void output(char stream, int step, const void *bytes, size_t len)
{
    uint8_t chunk[4048];
    for (size_t done = 0; done < len;) {
        size_t n = len - done < sizeof(chunk) - 1 ? len - done : sizeof(chunk) - 1;
        chunk[0] = (uint8_t)step;
        memcpy(chunk + 1, (const uint8_t *)bytes + done, n);
        frame(stream, chunk, n + 1);
        done += n;
    }
}

/* One step that ended with 0. */
static void step(int number, const char *out, size_t err_len)
{
    static const uint8_t err[256];
    output('O', number, out, strlen(out));
    output('E', number, err, err_len);
    step_end((end_t){.step = number, .out = (unsigned)strlen(out), .err = (unsigned)err_len});
}

static char *report_text(void)
{
    json_t *report = fixture_parse(!wall.is_gvisor ? RUNC_PROJECT : wall.jobs == 0 ? RUNSC_SNIPPET : RUNSC_PROJECT);
    if (wall.jobs == 0 && !wall.is_gvisor) { /* the snippet's sandbox has no /work */
        fixture_change(report, "mounts.16", NULL);
        fixture_change(report, "writes.16", NULL);
        fixture_change(report, "writes.33.outcome", "\"EROFS\"");
        fixture_change(report, "fills.0", NULL);
        fixture_change(report, "execs.0", NULL);
    }
    if (wall.wrong == REPORT_OTHER)
        fixture_change(report, "interfaces.+", "\"eth0\"");
    if (wall.wrong == LIMIT_OTHER)
        fixture_change(report, "limits.pids", "\"257\"");
    char *text = wall.wrong == NO_REPORT ? strdup("bash: no such command") : json_dumps(report, JSON_COMPACT);
    json_decref(report);
    return text;
}

static void answer_probe(void)
{
    char *text = report_text();
    unsigned len = (unsigned)strlen(text);
    bool is_cut = wall.wrong == PROBE_CUT;
    output('O', 0, text, len);
    free(text);
    step_end(
        (end_t){.out = len, .code = wall.wrong == PROBE_FAILED, .flags = is_cut ? 2 : 0, .out_total = len + is_cut});
    final(0, 0, 1, 0, "");
}

static void answer_flood(void)
{
    static char bytes[64 * 1024];
    unsigned len = sizeof(bytes) - (wall.wrong == FLOOD_SHORT);
    bool is_cut = wall.wrong != FLOOD_UNCUT;
    memset(bytes, 'a', sizeof(bytes));
    bytes[sizeof(bytes) / 2] = wall.wrong == FLOOD_OTHER ? 'b' : 'a';
    output('O', 0, bytes, len);
    step_end((end_t){.out = len, .flags = is_cut ? 2 : 0, .out_total = is_cut ? 100 * 1000 * 1000 : len});
    final(0, 0, 1, 0, "");
}

static void answer_snippet(const guest_job_t *job)
{
    if (strstr(job->code, "for(;;);") == job->code) {
        bool is_ended = wall.wrong == BUSY_ENDED;
        step_end((end_t){.code = is_ended ? 0 : 124, .flags = is_ended ? 0 : 1});
        final(is_ended ? 0 : 2, 0, 1, 0, "");
    } else if (strstr(job->code, "alloc(1e6") != NULL) {
        answer_flood();
    } else if (wall.wrong == SNIPPET_EXIT) {
        step_end((end_t){.code = 1});
        final(0, 0, 1, 0, "");
    } else {
        step(0, wall.wrong == SNIPPET_OTHER ? "41 v22.23.5\n" : "42 v22.23.5\n",
             wall.wrong == SNIPPET_FORGED ? 60 : 90);
        final(0, 0, 1, 0, "");
    }
}

static void answer_project(void)
{
    if (wall.wrong == PROJECT_STEP) {
        step_end((end_t){.code = 127});
        final(0, 0, 1, 0, "");
        return;
    }
    step(0, "42 v22.23.5\n", wall.wrong == PROJECT_FORGED ? 0 : 90);
    step(1, wall.wrong == PROJECT_NO_LEAVER ? "" : "left\n", 0);
    step(2, wall.wrong == PROJECT_LEFT ? "runner\nsh\nsleep\ncat\n" : "runner\nsh\ncat\n", 0);
    step(3, "1\n", 0);
    step(4, wall.wrong == NO_PYTHON ? "" : "42 3.11.2\n", 0);
    final(0, 0, 5, 0, "");
}

/* While a probe runs, the machine is looked at beside it. */
static void let_look(const guest_job_t *job)
{
    if (wall.is_gvisor && job->kind == GUEST_PROBE && wall.wrong != TOO_FAST)
        co_sleep(300);
}

static bool wall_execute(void *sandbox, const guest_job_t *job, uint64_t deadline_us, char failure[ENGINE_TEXT_MAX])
{
    (void)sandbox;
    assert_true(deadline_us > clock_mono_us() + (uint64_t)job->timeout_ms * 1000);
    if (wall.wrong == NOT_GIVEN) {
        snprintf(failure, ENGINE_TEXT_MAX, "the stream has ended");
        return false;
    }
    give(job);
    frame('A', job_digest, 32);
    if (wall.wrong == BROKEN_FRAME)
        frame('T', "", 0);
    if (wall.wrong == CANCELED)
        co_cancel(test_co);
    if (wall.wrong == NO_ANSWER || wall.wrong == BROKEN_FRAME || wall.wrong == CANCELED)
        return true;
    let_look(job);
    if (job->kind == GUEST_PROBE)
        answer_probe();
    else if (job->kind == GUEST_SNIPPET)
        answer_snippet(job);
    else
        answer_project();
    ++wall.jobs;
    return true;
}

/* --- the tests --- */

static const char *runtime_said = "runc";

typedef struct {
    bool is_canary, is_proven, is_untried, has_ended;
    bool is_registered_enough;
    const evidence_runtime_t *runtime; /* NULL: runc */
    const evidence_host_t *host;
    smoke_t found;
    char failure[BACKEND_TEXT_MAX];
} tried_t;

static void try_smoke(void *arg)
{
    static const smoke_launcher_t launcher = {.wall = &wall,
                                              .launch = wall_launch,
                                              .container_id = wall_container_id,
                                              .pid = wall_pid,
                                              .execute = wall_execute,
                                              .guest = wall_guest,
                                              .dispose = wall_dispose};
    static const preflight_want_t asked = {.runtime = "runc",
                                           .promise = {.uid = 61000,
                                                       .memory_bytes = 256 * 1024 * 1024,
                                                       .nano_cpus = 1000000000,
                                                       .pids = 256,
                                                       .tmp_bytes = 16 * 1024 * 1024,
                                                       .shm_bytes = 16 * 1024 * 1024,
                                                       .work_bytes = 128 * 1024 * 1024,
                                                       .has_filter = true,
                                                       .has_profile = true}};
    static preflight_t preflight;
    tried_t *tried = arg;
    char reason[ENGINE_TEXT_MAX];
    preflight.runtime = tried->runtime != NULL ? *tried->runtime : (evidence_runtime_t){.is_gvisor = false};
    snprintf(preflight.images[DOCKER_SNIPPET].id, IMAGE_ID_MAX, "sha256:1");
    snprintf(preflight.images[DOCKER_PROJECT].id, IMAGE_ID_MAX, "sha256:2");
    const smoke_want_t want = {.engine = engine,
                               .want = &asked,
                               .preflight = &preflight,
                               .launcher = launcher,
                               .host = tried->host,
                               .is_registered_enough = tried->is_registered_enough,
                               .is_canary = tried->is_canary};
    /* Once: the scripted server takes a limited number of connections. */
    if (engine_api_version(engine)[0] == '\0' && !engine_negotiate(engine, 5000, reason)) {
        snprintf(tried->failure, sizeof(tried->failure), "negotiate: %.200s", reason);
        return;
    }
    tried->is_proven = docker_smoke(&want, &tried->found, &tried->is_untried, tried->failure);
}

static void on_tried(void *arg)
{
    tried_t *tried = arg;
    tried->has_ended = true;
}

static void try_wrong(wrong_t wrong, tried_t *tried)
{
    memset(&wall, 0, sizeof(wall));
    wall.wrong = wrong;
    wall.is_gvisor = tried->runtime != NULL;
    wall.pid = wall.is_gvisor ? SANDBOX : 0;
    tried->has_ended = false;
    tried->failure[0] = '\0';
    test_co = co_start(loop, try_smoke, tried, on_tried);
    wait_for(tried->has_ended);
    assert_int_equal(wall.launched, wall.disposed);
}

static void answer_as_engine(conn_t *conn)
{
    char answer[512];
    if (!read_request(conn))
        return;
    const char *row = find_row(negotiable, target_of(conn));
    snprintf(answer, sizeof(answer),
             JSON_HEAD("200 OK") "{\"Id\":\"" ID
                                 "\",\"State\":{\"Running\":true},\"Config\":{},\"HostConfig\":{\"Runtime\":\"%s\"}}",
             runtime_said);
    say(conn, row != NULL ? row : answer);
}

static void test_right_answers_prove_a_container(void **state)
{
    tried_t tried = {.is_canary = false};
    (void)state;
    serve(answer_as_engine, NULL);
    try_wrong(NOTHING_WRONG, &tried);
    if (!tried.is_proven)
        fail_msg("%s", tried.failure);
    assert_int_equal(tried.found.tier, TIER_CONTAINER);
    assert_int_equal(tried.found.evidence, EVIDENCE_NONE);
    assert_string_equal(tried.found.node_version, "v22.23.5");
    assert_true(tried.found.has_python);
    assert_string_equal(tried.found.python_version, "3.11.2");
    assert_true(tried.found.are_runner_fds_protected);
    assert_int_equal(wall.launched, 6); /* two probes, a snippet, a project, an endless loop, a flood */
    /* The canary is the probes alone, and keeps what it does not look at. */
    tried.is_canary = true;
    try_wrong(NOTHING_WRONG, &tried);
    assert_true(tried.is_proven);
    assert_int_equal(wall.launched, 2);
    assert_true(tried.found.has_python);
    assert_string_equal(tried.found.node_version, "v22.23.5");
    /* An image without python3 is a good one. */
    tried.is_canary = false;
    try_wrong(NO_PYTHON, &tried);
    assert_true(tried.is_proven);
    assert_false(tried.found.has_python);
}

static void test_each_wrong_answer_is_named(void **state)
{
    static const struct {
        wrong_t wrong;
        bool is_untried;
        const char *words;
    } cases[] = {
        {NO_LAUNCH, false, "a sandbox did not start: start: no such thing"},
        {NOT_GIVEN, false, "a job could not be given: the stream has ended"},
        {NO_ANSWER, false, "a job ended without a result"},
        {BROKEN_FRAME, false, "a job ended without a result"},
        {PROBE_FAILED, false, "S1: the probe did not run to its end"},
        {PROBE_CUT, false, "S1: the probe did not run to its end"},
        {NO_REPORT, false, "the probe's report is not one"},
        {REPORT_OTHER, false, "S4: the sandbox has the network interface eth0"},
        {LIMIT_OTHER, false, "S10: the guest's process limit is 257, not 256"},
        {SNIPPET_EXIT, false, "S15: node did not run a snippet"},
        {SNIPPET_OTHER, false, "S15: node did not answer 6*7 with 42"},
        {SNIPPET_FORGED, false, "S14"},
        {PROJECT_STEP, false, "S15: step 1 of the project"},
        {PROJECT_FORGED, false, "S14"},
        {PROJECT_NO_LEAVER, false, "S17: the step that leaves a process"},
        {PROJECT_LEFT, false, "S17: a process lived on"},
        {BUSY_ENDED, false, "S16: an endless loop"},
        {FLOOD_SHORT, false, "S18"},
        {FLOOD_UNCUT, false, "S18"},
        {FLOOD_OTHER, false, "S18"},
        {NOT_GONE, false, "S16: the container was not gone"},
        {CANCELED, true, "the smoke test"},
    };
    (void)state;
    serve(answer_as_engine, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        tried_t tried = {.is_canary = false};
        try_wrong(cases[i].wrong, &tried);
        if (tried.is_proven || tried.is_untried != cases[i].is_untried || strstr(tried.failure, cases[i].words) == NULL)
            fail_msg("case %zu: proven %d, untried %d: %s, expected %s", i, tried.is_proven, tried.is_untried,
                     tried.failure, cases[i].words);
        assert_non_null(strstr(tried.failure, "the smoke test of the "));
        assert_int_equal(tried.found.tier, TIER_UNKNOWN); /* a failure tells nothing */
    }
}

static void test_the_engine_must_say_the_runtime(void **state)
{
    tried_t tried = {.is_canary = true};
    (void)state;
    runtime_said = "runc2";
    serve(answer_as_engine, NULL);
    try_wrong(NOTHING_WRONG, &tried);
    runtime_said = "runc";
    assert_false(tried.is_proven);
    assert_non_null(strstr(tried.failure, "E5"));
    assert_int_equal(wall.jobs, 0); /* nothing is run in what is not known */
}

/* --- the tier of a wall of gVisor's, by what a machine made by hand shows --- */

static char machine[64];

static void put(const char *path, const char *bytes, size_t len)
{
    char whole[256], command[320];
    snprintf(whole, sizeof(whole), "%s/%s", machine, path);
    snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", whole);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    fclose(file);
}

static void link_program(int pid, const char *program)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/proc/%d/exe", machine, pid);
    unlink(path);
    if (program != NULL)
        assert_int_equal(symlink(program, path), 0);
}

#define GROUPS "0::/docker/" ID "\n"
#define COMMAND "runsc-sandbox\0--network=none\0boot\0" ID

static void make_machine(char runsc[128], evidence_runtime_t *runtime)
{
    static const char info[] = "{\"Runtimes\":{\"runc\":{\"path\":\"/x/runsc\",\"runtimeArgs\":[\"--network=none\"]}}}";
    snprintf(machine, sizeof(machine), "/tmp/plimsoll-machine-XXXXXX");
    assert_non_null(mkdtemp(machine));
    put("runsc", "release-20260907.0", 18);
    put("proc/4242/cgroup", GROUPS, strlen(GROUPS));
    put("proc/4242/cmdline", COMMAND, sizeof(COMMAND));
    put("proc/4242/comm", "exe\n", 4);
    put("proc/4343/cgroup", GROUPS, strlen(GROUPS));
    put("proc/4343/comm", "exe\n", 4);
    put("cgroup/docker/" ID "/pids.max", "256\n", 4);
    put("cgroup/docker/" ID "/memory.max", "268435456\n", 10);
    put("cgroup/docker/" ID "/memory.swap.max", "0\n", 2);
    snprintf(runsc, 128, "%s/runsc", machine);
    link_program(SANDBOX, runsc);
    link_program(GUEST, runsc);
    json_t *json = fixture_parse(info);
    assert_true(evidence_registered(json, "runc", runtime));
    json_decref(json);
    snprintf(runtime->path, sizeof(runtime->path), "%s", runsc);
    evidence_read_file(runtime);
    assert_true(runtime->is_file && runtime->is_gvisor);
}

static void test_the_tier_is_what_the_machine_shows(void **state)
{
    typedef enum { OBSERVED, OTHER_FILE, NO_FILE, NO_PROGRAM, GUEST_SEEN, OTHER_PROCESS } shown_t;
    static const struct {
        shown_t shown;
        bool is_registered_enough;
        tier_t tier;
        evidence_t evidence;
        const char *gap;
    } cases[] = {
        {OBSERVED, false, TIER_KERNEL, EVIDENCE_OBSERVED, ""},
        {OBSERVED, true, TIER_KERNEL, EVIDENCE_OBSERVED, ""},
        {OTHER_FILE, false, TIER_CONTAINER, EVIDENCE_NONE, "does not run the registered runtime's file"},
        {OTHER_FILE, true, TIER_CONTAINER, EVIDENCE_NONE, "does not run the registered runtime's file"},
        {GUEST_SEEN, false, TIER_CONTAINER, EVIDENCE_NONE, "the guest's own program runs on this machine's kernel"},
        {GUEST_SEEN, true, TIER_CONTAINER, EVIDENCE_NONE, "the guest's own program runs on this machine's kernel"},
        {OTHER_PROCESS, true, TIER_CONTAINER, EVIDENCE_NONE, "does not say it is gVisor's sandbox"},
        /* Only what cannot be seen may be taken on the registration's word. */
        {NO_FILE, false, TIER_CONTAINER, EVIDENCE_NONE, "cannot be read on this machine"},
        {NO_FILE, true, TIER_KERNEL, EVIDENCE_REGISTERED, "cannot be read on this machine"},
        {NO_PROGRAM, false, TIER_CONTAINER, EVIDENCE_NONE, "not to be found"},
        {NO_PROGRAM, true, TIER_KERNEL, EVIDENCE_REGISTERED, "not to be found"},
    };
    char runsc[128], proc[128], cgroup[128], command[128];
    (void)state;
    serve(answer_as_engine, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        evidence_runtime_t runtime;
        make_machine(runsc, &runtime);
        snprintf(proc, sizeof(proc), "%s/proc", machine);
        snprintf(cgroup, sizeof(cgroup), "%s/cgroup", machine);
        const evidence_host_t host = {.proc = proc, .cgroup = cgroup};
        tried_t tried = {.is_canary = true,
                         .runtime = &runtime,
                         .host = &host,
                         .is_registered_enough = cases[i].is_registered_enough};
        if (cases[i].shown == OTHER_FILE)
            link_program(SANDBOX, "/bin/sh");
        else if (cases[i].shown == NO_FILE)
            runtime.is_file = false;
        else if (cases[i].shown == NO_PROGRAM)
            link_program(SANDBOX, NULL);
        else if (cases[i].shown == GUEST_SEEN)
            link_program(GUEST, "/opt/sbx/runner");
        else if (cases[i].shown == OTHER_PROCESS)
            put("proc/4242/cmdline", "runsc\0", 6);
        try_wrong(NOTHING_WRONG, &tried);
        snprintf(command, sizeof(command), "rm -rf '%s'", machine);
        assert_int_equal(system(command), 0);
        if (!tried.is_proven || tried.found.tier != cases[i].tier || tried.found.evidence != cases[i].evidence ||
            strstr(tried.found.evidence_gap, cases[i].gap) == NULL)
            fail_msg("case %zu: proven %d, %s, %s: %s %s", i, tried.is_proven, tier_name(tried.found.tier),
                     evidence_name(tried.found.evidence), tried.found.evidence_gap, tried.failure);
    }
}

/* A probe that is over before the machine was looked at: older evidence keeps its age, and none is made up. */
static void test_a_look_that_came_too_late_learns_nothing(void **state)
{
    char runsc[128], proc[128], cgroup[128], command[128];
    evidence_runtime_t runtime;
    (void)state;
    serve(answer_as_engine, NULL);
    make_machine(runsc, &runtime);
    snprintf(proc, sizeof(proc), "%s/proc", machine);
    snprintf(cgroup, sizeof(cgroup), "%s/cgroup", machine);
    const evidence_host_t host = {.proc = proc, .cgroup = cgroup};
    tried_t tried = {.is_canary = true, .runtime = &runtime, .host = &host, .is_registered_enough = true};
    try_wrong(TOO_FAST, &tried);
    snprintf(command, sizeof(command), "rm -rf '%s'", machine);
    assert_int_equal(system(command), 0);
    assert_false(tried.is_proven);
    assert_true(tried.is_untried);
    assert_non_null(strstr(tried.failure, "E4: the machine's processes could not be looked through"));
}

static int fresh(void **state)
{
    log_init("test", LOG_FORMAT_JSON, LOG_ERROR);
    set_up(state);
    return setup(state);
}

static int gone(void **state)
{
    tear_down(state);
    return teardown(state);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, fresh, gone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(test_right_answers_prove_a_container),          FRESH(test_each_wrong_answer_is_named),
        FRESH(test_the_engine_must_say_the_runtime),          FRESH(test_the_tier_is_what_the_machine_shows),
        FRESH(test_a_look_that_came_too_late_learns_nothing),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
