/*
 * Spec section 6. The names and their order are the format; the comments name the part of it a function writes.
 */
#include "records/digest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

enum {
    IDENTITY_MAX = 256,      /* bytes of one software identity, spec section 2.2 */
    DOUBLES_AT_ONCE = 64,    /* turned to big-endian in one piece */
    RECORD_VERSION_LAST = 4, /* spec section 6.4 has 1 to 3; 4 is docs/protocol-notes.md */
};

/* ---- encoding, section 6.1 ---- */

static const uint64_t NAN_BITS = 0x7ff8000000000000u;

static void put_u64(uint8_t out[8], uint64_t v)
{
    for (int i = 7; i >= 0; i--, v >>= 8)
        out[i] = (uint8_t)v;
}

static void add_value(sha256_t *s, const void *data, size_t len)
{
    uint8_t prefix[8];
    put_u64(prefix, len);
    sha256_add(s, prefix, sizeof(prefix));
    if (len != 0)
        sha256_add(s, data, len);
}

static sha256_t *begin(const char *domain)
{
    sha256_t *s = sha256_begin();
    add_value(s, domain, strlen(domain));
    return s;
}

static void add_field(sha256_t *s, const char *name, const void *data, size_t len)
{
    add_value(s, name, strlen(name));
    add_value(s, data, len);
}

/* A text that was never set is sent as empty, so it digests as empty. */
static void add_text(sha256_t *s, const char *name, const char *text)
{
    add_field(s, name, text, text != NULL ? strlen(text) : 0);
}

static void add_bytes(sha256_t *s, const char *name, const ProtobufCBinaryData *bytes)
{
    add_field(s, name, bytes->data, bytes->len);
}

static void add_int(sha256_t *s, const char *name, int64_t value)
{
    char text[24];
    add_field(s, name, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, value));
}

static void add_uint(sha256_t *s, const char *name, uint64_t value)
{
    char text[24];
    add_field(s, name, text, (size_t)snprintf(text, sizeof(text), "%" PRIu64, value));
}

static void add_bool(sha256_t *s, const char *name, protobuf_c_boolean value)
{
    add_text(s, name, value ? "true" : "false");
}

static void add_doubles(sha256_t *s, const char *name, const double *values, size_t count)
{
    uint8_t piece[DOUBLES_AT_ONCE * 8];
    add_value(s, name, strlen(name));
    put_u64(piece, (uint64_t)count * 8);
    sha256_add(s, piece, 8);
    for (size_t i = 0; i < count;) {
        size_t n = 0;
        for (; n < DOUBLES_AT_ONCE && i < count; n++, i++) {
            uint64_t bits = NAN_BITS; /* attest section 3.2: one NaN, whatever payload a binary message carries */
            if (!isnan(values[i]))
                memcpy(&bits, &values[i], sizeof(bits));
            put_u64(piece + n * 8, bits);
        }
        sha256_add(s, piece, n * 8);
    }
}

/* ---- requests, section 6.2 ---- */

static sha256_t *begin_request(uint32_t protocol, const char *floor, int32_t timeout_ms,
                               const Plimsoll__V1__SoftwareRule *rule)
{
    int has_rule_fields = protocol >= 2;
    sha256_t *s = begin(has_rule_fields ? "plimsoll.run-request.v2" : "plimsoll.run-request.v1");
    add_uint(s, "protocol", protocol);
    add_text(s, "minimum_isolation", floor);
    add_int(s, "timeout_ms", timeout_ms);
    if (has_rule_fields) {
        add_text(s, "software_mode", rule != NULL ? rule->mode : "");
        add_uint(s, "software_identities", rule != NULL ? rule->n_identities : 0);
        for (size_t i = 0; rule != NULL && i < rule->n_identities; i++)
            add_text(s, "software_identity", rule->identities[i]);
    }
    return s;
}

static void add_files(sha256_t *s, Plimsoll__V1__ProjectFile **files, size_t count)
{
    add_uint(s, "files", count);
    for (size_t i = 0; i < count; i++) {
        add_text(s, "file_path", files[i]->path);
        add_bytes(s, "file_content", &files[i]->content);
    }
}

static void add_javascript(sha256_t *s, const Plimsoll__V1__JavaScriptRun *run)
{
    add_text(s, "kind", "javascript");
    add_text(s, "code", run->code);
    add_text(s, "grant_profile", run->grant_profile);
}

static void add_project(sha256_t *s, const Plimsoll__V1__ProjectRun *run)
{
    add_text(s, "kind", "project");
    add_text(s, "grant_profile", run->grant_profile);
    add_files(s, run->files, run->n_files);
    add_uint(s, "steps", run->n_steps);
    for (size_t i = 0; i < run->n_steps; i++)
        add_text(s, "step_command", run->steps[i]);
    add_uint(s, "artifacts", run->n_artifacts);
    for (size_t i = 0; i < run->n_artifacts; i++)
        add_text(s, "artifact_path", run->artifacts[i]);
}

static void add_module(sha256_t *s, const Plimsoll__V1__ModuleRun *run)
{
    add_text(s, "kind", "module");
    add_text(s, "model", run->model);
    add_doubles(s, "end_time", &run->end_time, 1);
    add_doubles(s, "step", &run->step, 1);
    add_uint(s, "rows", run->n_rows);
    for (size_t i = 0; i < run->n_rows; i++)
        add_doubles(s, "row_values", run->rows[i]->values, run->rows[i]->n_values);
}

static void add_cell(sha256_t *s, const Plimsoll__V1__CellRun *run)
{
    add_text(s, "kind", "cell");
    add_text(s, "language", run->language);
    add_text(s, "code", run->code);
    add_files(s, run->files, run->n_files);
}

void digest_request(const Plimsoll__V1__RunRequest *q, char out[SHA256_HEX + 1])
{
    sha256_t *s = begin_request(q->protocol, q->minimum_isolation, q->timeout_ms, q->software_rule);
    switch (q->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        add_javascript(s, q->javascript);
        break;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        add_project(s, q->project);
        break;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE:
        add_module(s, q->module);
        break;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_CELL:
        add_cell(s, q->cell);
        break;
    default:
        add_text(s, "kind", "");
    }
    sha256_end_hex(s, out);
}

void digest_session_request(const Plimsoll__V1__SessionRunRequest *q, char out[SHA256_HEX + 1])
{
    sha256_t *s = begin_request(q->protocol, q->minimum_isolation, q->timeout_ms, q->software_rule);
    switch (q->payload_case) {
    case PLIMSOLL__V1__SESSION_RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        add_javascript(s, q->javascript);
        break;
    case PLIMSOLL__V1__SESSION_RUN_REQUEST__PAYLOAD_PROJECT:
        add_project(s, q->project);
        break;
    case PLIMSOLL__V1__SESSION_RUN_REQUEST__PAYLOAD_CELL:
        add_cell(s, q->cell);
        break;
    default:
        add_text(s, "kind", "");
    }
    sha256_end_hex(s, out);
}

/* ---- results, section 6.3 ---- */

static void add_javascript_result(sha256_t *s, const Plimsoll__V1__JavaScriptResult *r)
{
    add_text(s, "kind", "javascript");
    add_int(s, "exit_code", r->exit_code);
    add_bool(s, "timed_out", r->timed_out);
    add_bytes(s, "stdout", &r->stdout);
    add_bytes(s, "stderr", &r->stderr);
    add_bool(s, "stdout_truncated", r->stdout_truncated);
    add_bool(s, "stderr_truncated", r->stderr_truncated);
}

static void add_project_result(sha256_t *s, const Plimsoll__V1__ProjectResult *r)
{
    add_text(s, "kind", "project");
    add_int(s, "outcome", (int32_t)r->outcome);
    add_text(s, "outcome_detail", r->outcome_detail);
    add_bool(s, "artifacts_truncated", r->artifacts_truncated);
    add_uint(s, "steps", r->n_steps);
    for (size_t i = 0; i < r->n_steps; i++) {
        const Plimsoll__V1__StepResult *step = r->steps[i];
        add_text(s, "step_command", step->command);
        add_int(s, "step_exit_code", step->exit_code);
        add_bool(s, "step_timed_out", step->timed_out);
        add_bytes(s, "step_stdout", &step->stdout);
        add_bytes(s, "step_stderr", &step->stderr);
        add_bool(s, "step_stdout_truncated", step->stdout_truncated);
        add_bool(s, "step_stderr_truncated", step->stderr_truncated);
    }
    add_uint(s, "artifacts", r->n_artifacts);
    for (size_t i = 0; i < r->n_artifacts; i++) {
        add_text(s, "artifact_path", r->artifacts[i]->path);
        add_bytes(s, "artifact_content", &r->artifacts[i]->content);
    }
}

static void add_module_result(sha256_t *s, const Plimsoll__V1__ModuleResult *r)
{
    add_text(s, "kind", "module");
    add_int(s, "outcome", (int32_t)r->outcome);
    add_text(s, "outcome_detail", r->outcome_detail);
    add_int(s, "width", r->width);
    add_bytes(s, "stdout", &r->stdout);
    add_bytes(s, "stderr", &r->stderr);
    add_uint(s, "runs", r->n_runs);
    for (size_t i = 0; i < r->n_runs; i++) {
        add_int(s, "run_status", r->runs[i]->status);
        add_doubles(s, "run_outputs", r->runs[i]->outputs, r->runs[i]->n_outputs);
    }
}

static void add_cell_result(sha256_t *s, const Plimsoll__V1__CellResult *r)
{
    add_text(s, "kind", "cell");
    add_int(s, "exit_code", r->exit_code);
    add_bool(s, "timed_out", r->timed_out);
    add_bytes(s, "stdout", &r->stdout);
    add_bytes(s, "stderr", &r->stderr);
    add_bool(s, "stdout_truncated", r->stdout_truncated);
    add_bool(s, "stderr_truncated", r->stderr_truncated);
    add_bool(s, "interpreter_started", r->interpreter_started);
    add_bool(s, "interpreter_ended", r->interpreter_ended);
}

void digest_result(const Plimsoll__V1__RunResponse *a, char out[SHA256_HEX + 1])
{
    sha256_t *s = begin("plimsoll.run-result.v1");
    switch (a->result_case) {
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT:
        add_javascript_result(s, a->javascript);
        break;
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT:
        add_project_result(s, a->project);
        break;
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE:
        add_module_result(s, a->module);
        break;
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_CELL:
        add_cell_result(s, a->cell);
        break;
    default:
        add_text(s, "kind", "");
    }
    sha256_end_hex(s, out);
}

/* ---- records, section 6.4; sessions, 6.6 ---- */

const char *digest_record(const Plimsoll__V1__RunRecord *r, char out[SHA256_HEX + 1])
{
    if (r->version < 1 || r->version > RECORD_VERSION_LAST)
        return "a record version nobody has defined";
    char domain[32];
    snprintf(domain, sizeof(domain), "plimsoll.run-record.v%" PRIu32, r->version);
    sha256_t *s = begin(domain);
    add_text(s, "request_sha256", r->request_sha256);
    add_text(s, "result_sha256", r->result_sha256);
    if (r->version >= 3)
        add_text(s, "unanswered", r->unanswered);
    add_text(s, "provider", r->provider);
    add_text(s, "isolation", r->isolation);
    add_text(s, "environment", r->environment);
    add_text(s, "policy", r->policy);
    if (r->version >= 2) {
        add_text(s, "software_identity", r->software_identity);
        add_text(s, "software_rule_id", r->software_rule_id);
    }
    if (r->version >= 4)
        add_text(s, "instance", r->instance);
    add_int(s, "started_unix_ms", r->started_unix_ms);
    add_int(s, "ended_unix_ms", r->ended_unix_ms);
    add_text(s, "session", r->session);
    add_uint(s, "sequence", r->sequence);
    add_text(s, "previous_sha256", r->previous_sha256);
    sha256_end_hex(s, out);
    return NULL;
}

void digest_session_id(const char *session_id, char out[SHA256_HEX + 1])
{
    sha256_hex(session_id, strlen(session_id), out);
}

/* ---- software rules, sections 2.2 and 6.5 ---- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void software_rule_id(const Plimsoll__V1__SoftwareRule *rule, char out[SOFTWARE_RULE_ID_MAX])
{
    static const char APPROVED[] = "approved:sha256:";
    _Static_assert(sizeof(APPROVED) + SHA256_HEX <= SOFTWARE_RULE_ID_MAX, "an approved rule's id has room");
    out[0] = '\0';
    size_t count = rule != NULL ? rule->n_identities : 0;
    if (count == 0)
        return;
    if (count == 1) {
        snprintf(out, SOFTWARE_RULE_ID_MAX, "exact:%.*s", IDENTITY_MAX, rule->identities[0]);
        return;
    }
    const char **sorted = mem_alloc_array(count, sizeof(*sorted));
    for (size_t i = 0; i < count; i++)
        sorted[i] = rule->identities[i];
    qsort(sorted, count, sizeof(*sorted), by_bytes);
    sha256_t *s = sha256_begin();
    for (size_t i = 0; i < count; i++) {
        if (i != 0)
            sha256_add(s, "", 1); /* the zero byte between two */
        sha256_add(s, sorted[i], strlen(sorted[i]));
    }
    free(sorted);
    memcpy(out, APPROVED, sizeof(APPROVED));
    sha256_end_hex(s, out + sizeof(APPROVED) - 1);
}

int software_rule_allows(const Plimsoll__V1__SoftwareRule *rule, const char *identity)
{
    if (rule == NULL || rule->n_identities == 0)
        return 1;
    if (identity == NULL || identity[0] == '\0')
        return 0;
    for (size_t i = 0; i < rule->n_identities; i++) {
        if (strcmp(rule->identities[i], identity) == 0)
            return 1;
    }
    return 0;
}
