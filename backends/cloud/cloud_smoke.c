/*
 * A wall's trial of itself: a sandbox of its own, made, read back, given a snippet and removed as a run's is. The
 * snippet tells what it runs on and whether it reaches anything outside. Billed, so it comes last: after everything
 * that can be told for nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_internal.h"
#include "backends/cloud/cloud_json.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    GONE_LOOK_MS = 20,
    GONE_MARGIN_MS = 2000, /* of CLOUD_SMOKE_MS: the role ends a proof that takes longer */
    EXIT_NOT_FOUND = 127,
    VERSION_MAX = 64,
};

/*
 * A connection that opens proves nothing: some walls take it and reset it at the first byte, so what counts is an
 * answer's byte. Names are asked for at public resolvers and not at the guest's own, which may well answer. All at
 * once, each for at most 4 s.
 */
static const char PROBE[] =
    "'use strict';\n"
    "const net = require('net'), tls = require('tls'), dgram = require('dgram'), cp = require('child_process');\n"
    "const LIMIT = 4000, open = [];\n"
    "const dns = Buffer.from([0,1,1,0,0,1,0,0,0,0,0,0,7,101,120,97,109,112,108,101,3,99,111,109,0,0,1,0,1]);\n"
    "const get = (host) => 'GET / HTTP/1.0\\r\\nHost: ' + host + '\\r\\n\\r\\n';\n"
    "const reach = (name, start) => new Promise((done) => {\n"
    "  let stop = () => {};\n"
    "  const end = (is) => { clearTimeout(timer); try { stop(); } catch {} if (is) open.push(name); done(); };\n"
    "  const timer = setTimeout(() => end(false), LIMIT);\n"
    "  try { stop = start(end) || stop; } catch { end(false); }\n"
    "});\n"
    "const tcp = (host, port, bytes) => (end) => {\n"
    "  const s = net.connect({host, port}, () => s.write(bytes));\n"
    "  s.on('data', () => end(true)).on('error', () => end(false)).on('close', () => end(false));\n"
    "  return () => s.destroy();\n"
    "};\n"
    "const secure = (host, servername) => (end) => {\n"
    "  const s = tls.connect({host, port: 443, servername, rejectUnauthorized: false}, () => end(true));\n"
    "  s.on('error', () => end(false)).on('close', () => end(false));\n"
    "  return () => s.destroy();\n"
    "};\n"
    "const udp = (host) => (end) => {\n"
    "  const s = dgram.createSocket('udp4');\n"
    "  s.on('message', () => end(true)).on('error', () => end(false));\n"
    "  s.send(dns, 53, host, (e) => { if (e) end(false); });\n"
    "  return () => s.close();\n"
    "};\n"
    "const framed = Buffer.concat([Buffer.from([0, dns.length]), dns]);\n"
    "const python = () => {\n"
    "  const p = cp.spawnSync('python3', ['--version'], {encoding: 'utf8', timeout: LIMIT});\n"
    "  const m = /^Python (\\d+\\.\\d+\\.\\d+)/.exec(p.stdout || '');\n"
    "  return m ? m[1] : '';\n"
    "};\n"
    "Promise.all([\n"
    "  reach('http to an address', tcp('1.1.1.1', 80, get('1.1.1.1'))),\n"
    "  reach('http to a name', tcp('example.com', 80, get('example.com'))),\n"
    "  reach('https to an address', secure('1.1.1.1', undefined)),\n"
    "  reach('https to a name', secure('example.com', 'example.com')),\n"
    "  reach('https to an IPv6 address', secure('2606:4700:4700::1111', undefined)),\n"
    "  reach('http to link-local', tcp('169.254.169.254', 80, get('169.254.169.254'))),\n"
    "  reach('dns over udp', udp('8.8.8.8')),\n"
    "  reach('dns over tcp', tcp('8.8.8.8', 53, framed)),\n"
    "]).then(() => console.log(JSON.stringify(\n"
    "  {probe: 1, node: process.version, cwd: process.cwd(), python: python(), egressOpen: open})));\n";

static bool fail(char failure[BACKEND_TEXT_MAX], const char *what, const cloud_trouble_t *trouble)
{
    char text[CLOUD_TEXT_CALLER_MAX + CLOUD_TEXT_LOG_MAX + 64];
    if (trouble != NULL)
        snprintf(text, sizeof(text), "%s: %s (%s)", what, trouble->message, trouble->detail);
    else
        snprintf(text, sizeof(text), "%s", what);
    snprintf(failure, BACKEND_TEXT_MAX, "%s", text);
    return false;
}

/* What says nothing of the wall: it was busy, away or slow. */
static bool is_of_the_moment(cloud_fault_t fault)
{
    return fault == CLOUD_NOTHING || fault == CLOUD_BUSY || fault == CLOUD_UNKNOWN || fault == CLOUD_LATE ||
           fault == CLOUD_LOST || fault == CLOUD_CANCELED;
}

/* --- the report --- */

static bool is_version(const char *text)
{
    return text != NULL && text[0] == 'v' && strlen(text) < VERSION_MAX &&
           strspn(text + 1, "0123456789.-abcdefghijklmnopqrstuvwxyz") == strlen(text + 1);
}

static bool judge_report(cloud_t *cloud, const json_t *report, const cloud_plan_t *plan, char failure[BACKEND_TEXT_MAX])
{
    const json_t *open = json_object_get(report, "egressOpen");
    const char *cwd = cloud_json_text(report, "cwd"), *python = cloud_json_text(report, "python");
    char text[BACKEND_TEXT_MAX], scrubbed[CLOUD_TEXT_CALLER_MAX + 1];
    if (!is_version(cloud_json_text(report, "node")))
        return fail(failure, "the trial's report does not name Node's version", NULL);
    if (cwd == NULL || strcmp(cwd, plan->project_directory) != 0)
        return fail(failure, "the trial ran in another directory than it was told to", NULL);
    if (!json_is_array(open))
        return fail(failure, "the trial's report does not tell what it reached", NULL);
    if (json_array_size(open) > 0) {
        const char *first = json_string_value(json_array_get(open, 0));
        cloud_text_scrub(NULL, first != NULL ? first : "", first != NULL ? strlen(first) : 0, 80, scrubbed);
        snprintf(text, sizeof(text), "the sandbox reaches the network: %zu ways, such as %s", json_array_size(open),
                 scrubbed);
        return fail(failure, text, NULL);
    }
    cloud->has_python = python != NULL && python[0] != '\0';
    return true;
}

static bool judge_step(cloud_t *cloud, const guest_step_t *step, const cloud_plan_t *plan,
                       char failure[BACKEND_TEXT_MAX])
{
    const char *why;
    char text[BACKEND_TEXT_MAX];
    if (step->is_timed_out)
        return fail(failure, "the trial's code did not end in its time", NULL);
    if (step->exit_code == EXIT_NOT_FOUND)
        return fail(failure, "the trial's code did not start (exit 127): the sandbox's image has no node", NULL);
    if (step->exit_code != 0 || step->is_out_truncated) {
        snprintf(text, sizeof(text), "the trial's code ended with exit code %d", step->exit_code);
        return fail(failure, text, NULL);
    }
    json_t *report = cloud_json_read(step->out.base, step->out.len, &why);
    if (report == NULL) {
        snprintf(text, sizeof(text), "the trial's report cannot be read: %s", why);
        return fail(failure, text, NULL);
    }
    bool holds = judge_report(cloud, report, plan, failure);
    json_decref(report);
    return holds;
}

/* --- the trial --- */

static bool run_probe(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan, bool *is_untried,
                      char failure[BACKEND_TEXT_MAX])
{
    guest_result_t result;
    cloud_executed_t executed;
    cloud_result_init(&result, plan);
    cloud_execute(box, plan, &result, &executed);
    bool holds;
    if (executed.trouble.fault != CLOUD_FINE) {
        *is_untried = is_of_the_moment(executed.trouble.fault);
        holds = fail(failure, "the trial's code gave no verdict", &executed.trouble);
    } else if (result.step_count == 0) {
        holds = fail(failure, "the trial's code was not run", NULL);
    } else {
        holds = judge_step(cloud, &result.steps[0], plan, failure);
    }
    cloud_result_dispose(&result);
    return holds;
}

static bool try_box(cloud_t *cloud, cloud_box_t *box, const cloud_plan_t *plan, cloud_smoked_t *out,
                    char failure[BACKEND_TEXT_MAX])
{
    const cloud_ops_t *ops = cloud->settings.ops;
    cloud_trouble_t trouble;
    const char *what = "the trial's sandbox was not made";
    cloud_made_t made = cloud_box_create(box, &trouble);
    bool is_fine = made == BOX_MADE && trouble.fault == CLOUD_FINE;
    out->is_billed = made != BOX_NONE;
    if (is_fine) {
        what = "the trial's sandbox does not hold";
        is_fine = ops->check(cloud->settings.self, box, &trouble);
    }
    if (is_fine && ops->probe != NULL) {
        box->deadline_us = clock_mono_us() + CLOUD_SMOKE_STEP_MS * UINT64_C(1000);
        is_fine = ops->probe(cloud->settings.self, box, &trouble);
    }
    if (is_fine) {
        what = "the trial's files were not handed over";
        box->deadline_us = clock_mono_us() + CLOUD_STAGE_MS * UINT64_C(1000);
        is_fine = ops->stage(cloud->settings.self, box, plan, &trouble);
    }
    if (!is_fine) {
        out->is_untried = is_of_the_moment(trouble.fault);
        return fail(failure, what, &trouble);
    }
    return run_probe(cloud, box, plan, &out->is_untried, failure);
}

/* That it goes is part of the trial. */
static bool await_gone(const cloud_t *cloud, const char *stamp, uint64_t until_us)
{
    while (role_ledger_is_live(cloud->settings.host->ledger, stamp) && clock_mono_us() < until_us)
        if (co_sleep(GONE_LOOK_MS) == CO_CANCELED)
            return false;
    return !role_ledger_is_live(cloud->settings.host->ledger, stamp);
}

bool cloud_smoke(cloud_t *cloud, cloud_smoked_t *out, char failure[BACKEND_TEXT_MAX])
{
    cloud_box_t box = {.kind = "smoke", .timeout_ms = CLOUD_SMOKE_STEP_MS};
    cloud_plan_t plan;
    char why[LEDGER_ERROR_MAX + 1];
    uint64_t until_us = clock_mono_us() + (CLOUD_SMOKE_MS - GONE_MARGIN_MS) * UINT64_C(1000);
    *out = (cloud_smoked_t){.is_untried = false};
    if (!cloud_box_open(cloud, &box, why)) {
        out->is_untried = true;
        snprintf(failure, BACKEND_TEXT_MAX, "no sandbox could be asked for: %s", why);
        return false;
    }
    cloud_plan_snippet(&plan, &cloud->settings.ops->layout, PROBE, sizeof(PROBE) - 1);
    bool holds = try_box(cloud, &box, &plan, out, failure);
    cloud_plan_dispose(&plan);
    cloud_box_release(&box, false);
    if (holds && !await_gone(cloud, box.stamp, until_us)) {
        out->is_untried = co_is_canceled(co_self());
        holds = fail(failure, "the trial's sandbox was not confirmed to be gone", NULL);
    }
    log_event(holds ? LOG_INFO : LOG_WARN, "wall tried", log_str("backend", cloud->settings.ops->name),
              log_bool("holds", holds), log_str("reason", holds ? "" : failure), log_str("stamp", box.stamp));
    return holds;
}
