#include "backends/docker/smoke.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/member.h"
#include "backends/docker/smoke_box.h"
#include "backends/docker/smoke_jobs.h"
#include "backends/docker/smoke_look.h"
#include "backends/docker/smoke_report.h"
#include "backends/docker/smoke_socket.h"
#include "core/co.h"
#include "core/log.h"
#include "core/random.h"

enum {
    PROBE_MS = SMOKE_JOB_MS * 2, /* fills three places, and tries some hundred calls in processes of their own */
    /* The least time a probe takes, so that it is there while the machine's tasks are looked through. */
    PROBE_HOLD_MS = 400,
    NONCE_RANDOM_BYTES = 7, /* 14 digits: a task's name takes 15 bytes */
};

/* One image's probe: what is asked, and what was found. */
typedef struct {
    smoke_expect_t expect;
    char nonce[NONCE_RANDOM_BYTES * 2 + 1];
    char spec[256];
    smoke_look_t look;
    smoke_t *out;
} probe_t;

static void prepare(probe_t *probe, const smoke_want_t *want, docker_kind_t kind, bool has_socket, smoke_t *out)
{
    memset(probe, 0, sizeof(*probe));
    probe->out = out;
    probe->expect = (smoke_expect_t){.promise = &want->want->promise,
                                     .kind = kind,
                                     .is_gvisor = want->preflight->runtime.is_gvisor,
                                     .has_socket = has_socket,
                                     .fill_max = smoke_fill_max(&want->want->promise),
                                     .has_calls = !want->is_canary};
    random_hex(probe->nonce, NONCE_RANDOM_BYTES);
    snprintf(probe->spec, sizeof(probe->spec), "nonce=%s\nfill_max=%llu\nhold_ms=%d\ncalls=%d\nsocket=%s\n",
             probe->nonce, (unsigned long long)probe->expect.fill_max, PROBE_HOLD_MS, probe->expect.has_calls ? 1 : 0,
             has_socket ? SMOKE_HOST_SOCKET : "");
}

/* S10 and S11: the machine's word where it can be had. Under runc the guest's own view is the same file. */
static bool judge_limits(const probe_t *probe, const json_t *report, char why[BACKEND_TEXT_MAX])
{
    const docker_promise_t *promise = probe->expect.promise;
    smoke_inner_limits_t inner;
    smoke_report_limits(report, &inner);
    if (!probe->expect.is_gvisor && inner.has_pids && inner.pids != promise->pids) {
        snprintf(why, BACKEND_TEXT_MAX, "S10: the guest's process limit is %llu, not %u",
                 (unsigned long long)inner.pids, (unsigned)promise->pids);
        return false;
    }
    if (!probe->expect.is_gvisor && inner.has_memory && inner.memory != promise->memory_bytes) {
        snprintf(why, BACKEND_TEXT_MAX, "S11: the guest's memory limit is %llu, not %llu",
                 (unsigned long long)inner.memory, (unsigned long long)promise->memory_bytes);
        return false;
    }
    if (probe->look.has_limits)
        return smoke_look_judge_limits(&probe->look.limits, promise, why);
    if (!probe->expect.is_gvisor && inner.has_pids && inner.has_memory)
        return true;
    snprintf(why, BACKEND_TEXT_MAX, "S10: %.200s", probe->look.limits_why);
    return false;
}

/* S12 decides only about grants. */
static bool judge_socket(const probe_t *probe, const smoke_test_t *test, const json_t *report,
                         char why[BACKEND_TEXT_MAX])
{
    if (!probe->expect.has_socket)
        return true;
    probe->out->has_host_socket = smoke_report_has_socket(report);
    if (probe->out->has_host_socket || !test->want->want->needs_host_socket)
        return true;
    snprintf(why, BACKEND_TEXT_MAX, "S12: a mounted host socket does not answer%s",
             probe->expect.is_gvisor
                 ? ": register runsc with --host-uds=open (releases before 2023: --fsgofer-host-uds)"
                 : "");
    return false;
}

static bool judge(probe_t *probe, smoke_box_t *box)
{
    const guest_result_t *result = smoke_box_result(box);
    char why[BACKEND_TEXT_MAX];
    bool is_well = false;
    if (result->step_count != 1 || !result->steps[0].has_ended || result->steps[0].exit_code != 0 ||
        result->steps[0].is_out_truncated)
        return smoke_failed(box->test, box->kind, "S1: the probe did not run to its end");
    json_t *report = smoke_report_read(result->steps[0].out.base, result->steps[0].out.len, why);
    if (report != NULL) {
        is_well = smoke_report_judge(report, &probe->expect, why) && judge_limits(probe, report, why) &&
                  judge_socket(probe, box->test, report, why);
        probe->out->are_runner_fds_protected = smoke_report_has_protected_fds(report);
        smoke_report_banner(report, probe->out->banner, sizeof(probe->out->banner));
    }
    json_decref(report);
    return is_well || smoke_failed(box->test, box->kind, why);
}

/* E5: what the Engine says it runs this very container with. */
static bool is_runtime_read_back(smoke_box_t *box)
{
    const smoke_want_t *want = box->test->want;
    char why[BACKEND_TEXT_MAX];
    engine_answer_t answer;
    engine_container_inspect(want->engine, want->launcher.container_id(box->sandbox), MEMBER_INSPECT_MS, &answer);
    const char *runtime = json_string_value(json_object_get(json_object_get(answer.json, "HostConfig"), "Runtime"));
    bool is_right = runtime != NULL && strcmp(runtime, want->want->runtime) == 0;
    if (answer.outcome != ENGINE_OK)
        snprintf(why, sizeof(why), "E5: the container could not be inspected: %s %.120s",
                 engine_outcome_name(answer.outcome), answer.text);
    else
        snprintf(why, sizeof(why), "E5: the Engine says that the container has another runtime");
    *box->test->is_untried = answer.outcome == ENGINE_UNKNOWN || answer.outcome == ENGINE_CANCELED;
    engine_answer_dispose(&answer);
    return is_right || smoke_failed(box->test, box->kind, why);
}

/* The worst of what the sandboxes showed. */
static void take_evidence(probe_t *probe, const smoke_want_t *want)
{
    smoke_t *out = probe->out;
    evidence_t evidence = EVIDENCE_NONE;
    if (!probe->expect.is_gvisor)
        return;
    if (probe->look.kernel == EVIDENCE_HOLDS)
        evidence = EVIDENCE_OBSERVED;
    else if (probe->look.kernel == EVIDENCE_UNSEEN && want->is_registered_enough)
        evidence = EVIDENCE_REGISTERED;
    if (evidence < out->evidence) {
        out->evidence = evidence;
        snprintf(out->evidence_gap, sizeof(out->evidence_gap), "%s", probe->look.kernel_why);
    }
}

/* S12 is tried with the project's probe. Where a sandbox would not even start with a host socket, it goes without. */
static smoke_socket_t *open_socket(const smoke_want_t *want, docker_kind_t kind)
{
    const evidence_runtime_t *runtime = &want->preflight->runtime;
    bool is_let_in = !runtime->is_gvisor || evidence_has_host_sockets(runtime);
    if (kind != DOCKER_PROJECT || want->socket_dir == NULL || want->is_canary || !is_let_in)
        return NULL;
    return smoke_socket_open(co_loop(co_self()), want->socket_dir);
}

static bool run_probe(const smoke_test_t *test, docker_kind_t kind, const smoke_socket_t *host_socket, smoke_t *out)
{
    smoke_box_t box;
    probe_t probe;
    prepare(&probe, test->want, kind, host_socket != NULL, out);
    const guest_job_t job = {.kind = GUEST_PROBE,
                             .timeout_ms = PROBE_MS,
                             .stream_max = SMOKE_REPORT_MAX,
                             .output_max = SMOKE_REPORT_MAX,
                             .code = probe.spec,
                             .code_len = strlen(probe.spec)};
    bool is_well = smoke_box_open(&box, test, kind, host_socket != NULL ? smoke_socket_bind(host_socket) : NULL) &&
                   is_runtime_read_back(&box);
    if (is_well) {
        smoke_look_begin(&probe.look, &box, probe.nonce);
        is_well = smoke_box_execute(&box, &job);
        smoke_look_end(&probe.look);
    }
    if (is_well)
        is_well = judge(&probe, &box);
    if (is_well && probe.look.is_undecided) {
        *test->is_untried = true;
        is_well = smoke_failed(test, kind, probe.look.kernel_why);
    }
    if (is_well)
        take_evidence(&probe, test->want);
    return smoke_box_close(&box, is_well);
}

static bool probe_image(const smoke_test_t *test, docker_kind_t kind, smoke_t *out)
{
    smoke_socket_t *host_socket = open_socket(test->want, kind);
    bool is_well = run_probe(test, kind, host_socket, out);
    if (host_socket != NULL)
        smoke_socket_close(host_socket);
    return is_well;
}

static void conclude(const smoke_want_t *want, smoke_t *out)
{
    const evidence_runtime_t *runtime = &want->preflight->runtime;
    out->tier = runtime->is_gvisor && out->evidence != EVIDENCE_NONE ? TIER_KERNEL : TIER_CONTAINER;
    log_event(want->is_canary ? LOG_DEBUG : LOG_INFO, "docker smoke test", log_str("runtime", want->want->runtime),
              log_str("tier", tier_name(out->tier)), log_str("evidence", evidence_name(out->evidence)),
              log_str("runsc_sha256", runtime->sha256), log_str("runsc_version", runtime->version),
              log_str("node", out->node_version), log_str("python", out->python_version),
              log_bool("runner_fds_protected", out->are_runner_fds_protected),
              log_bool("host_socket", out->has_host_socket), log_str("banner", out->banner));
    if (runtime->is_gvisor && out->evidence != EVIDENCE_OBSERVED)
        log_event(LOG_WARN, "gvisor not observed", log_str("runtime", want->want->runtime),
                  log_str("tier", tier_name(out->tier)), log_str("reason", out->evidence_gap));
}

bool docker_smoke(const smoke_want_t *want, smoke_t *out, bool *is_untried, char failure[BACKEND_TEXT_MAX])
{
    const smoke_test_t test = {.want = want, .is_untried = is_untried, .failure = failure};
    smoke_t found;
    memset(&found, 0, sizeof(found));
    *is_untried = false;
    if (want->is_canary)
        found = *out;
    found.evidence = want->preflight->runtime.is_gvisor ? EVIDENCE_OBSERVED : EVIDENCE_NONE;
    found.evidence_gap[0] = '\0';
    for (int kind = 0; kind < DOCKER_KINDS; ++kind) {
        if (!probe_image(&test, (docker_kind_t)kind, &found))
            return false;
    }
    if (!want->is_canary && (!smoke_jobs_snippet(&test, &found) || !smoke_jobs_project(&test, &found) ||
                             !smoke_jobs_busy(&test) || !smoke_jobs_flood(&test)))
        return false;
    conclude(want, &found);
    *out = found;
    return true;
}
