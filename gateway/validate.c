#include "gateway/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/protojson.h"
#include "config/options.h"

typedef Plimsoll__V1__SoftwareRule rule_t;

#define INVALID(refusal, ...) (refusal_set(refusal, CODE_INVALID_ARGUMENT, MARK_REQUEST, __VA_ARGS__), false)

/* ---- characters ---- */

static bool is_alphanumeric(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Whether the text is 1 to `max` bytes of letters, digits and the characters of `also`. */
static bool is_word(const char *text, size_t max, const char *also)
{
    size_t len = 0;
    for (; text[len] != '\0'; len++) {
        if (len == max || (!is_alphanumeric(text[len]) && strchr(also, text[len]) == NULL))
            return false;
    }
    return len != 0;
}

const char *trace_id_kept(const char *text)
{
    return is_word(text, TRACE_ID_BYTES_MAX, "._:-") ? text : "";
}

/* ---- steps 1 to 3 of every request ---- */

static bool has_protocol(uint32_t protocol, refusal_t *refusal)
{
    if (protocol == 0) {
        refusal_set(refusal, CODE_INVALID_ARGUMENT, MARK_PROTOCOL,
                    "the request states no protocol number; this gateway serves %d and %d", PROTOCOL_NEWEST,
                    PROTOCOL_OLDEST);
        return false;
    }
    if (protocol < PROTOCOL_OLDEST || protocol > PROTOCOL_NEWEST) {
        refusal_set(refusal, CODE_UNIMPLEMENTED, MARK_PROTOCOL,
                    "the request states protocol %u; this gateway serves %d and %d", (unsigned)protocol,
                    PROTOCOL_NEWEST, PROTOCOL_OLDEST);
        return false;
    }
    return true;
}

static bool has_floor(const char *text, tier_t *floor, refusal_t *refusal)
{
    return tier_parse_floor(text, floor) ||
           INVALID(refusal, "minimum_isolation must be process, container, kernel or vm, or empty");
}

static bool has_duplicate_before(const rule_t *rule, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (strcmp(rule->identities[j], rule->identities[i]) == 0)
            return true;
    }
    return false;
}

static bool has_identities(const rule_t *rule, refusal_t *refusal)
{
    for (size_t i = 0; i < rule->n_identities; i++) {
        const char *identity = rule->identities[i];
        size_t len = strlen(identity);
        if (len > IDENTITY_BYTES_MAX)
            return INVALID(refusal, "software_rule.identities[%zu] is %zu bytes; at most %d are accepted", i, len,
                           IDENTITY_BYTES_MAX);
        if (!is_word(identity, IDENTITY_BYTES_MAX, "._:/@+-"))
            return INVALID(refusal, "software_rule.identities[%zu] must be 1 to %d characters of [A-Za-z0-9._:/@+-]", i,
                           IDENTITY_BYTES_MAX);
        if (has_duplicate_before(rule, i))
            return INVALID(refusal, "software_rule.identities[%zu] is there twice", i);
    }
    return true;
}

static bool has_rule(const rule_t *rule, refusal_t *refusal)
{
    if (rule == NULL || (rule->mode[0] == '\0' && rule->n_identities == 0))
        return true;
    if (strcmp(rule->mode, "exact") == 0) {
        if (rule->n_identities != 1)
            return INVALID(refusal, "software_rule of mode exact has %zu identities; it needs 1", rule->n_identities);
    } else if (strcmp(rule->mode, "approved") == 0) {
        if (rule->n_identities < 1 || rule->n_identities > IDENTITIES_MAX)
            return INVALID(refusal, "software_rule of mode approved has %zu identities; it needs 1 to %d",
                           rule->n_identities, IDENTITIES_MAX);
    } else {
        return INVALID(refusal, "software_rule.mode must be exact or approved");
    }
    return has_identities(rule, refusal);
}

static bool has_head(uint32_t protocol, const char *floor_text, const rule_t *rule, tier_t *floor, refusal_t *refusal)
{
    return has_protocol(protocol, refusal) && has_floor(floor_text, floor, refusal) && has_rule(rule, refusal);
}

/* ---- paths ---- */

static bool is_path(const char *path, const char *list, size_t i, const char *member, refusal_t *refusal)
{
    switch (path_check(path)) {
    case PATH_HOLDS:
        return true;
    case PATH_LENGTH:
        return INVALID(refusal, "%s[%zu]%s is %zu bytes; 1 to %d are accepted", list, i, member, strlen(path),
                       PATH_BYTES_MAX);
    case PATH_ENCODING:
        return INVALID(refusal, "%s[%zu]%s is not valid UTF-8", list, i, member);
    case PATH_SEGMENTS:
        return INVALID(refusal, "%s[%zu]%s must be relative, without empty, . and .. segments", list, i, member);
    case PATH_CHARACTERS:
        break;
    }
    return INVALID(refusal, "%s[%zu]%s holds a backslash or a control character", list, i, member);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts the texts. */
static bool has_twins(const char **texts, size_t count)
{
    qsort(texts, count, sizeof(*texts), by_text);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(texts[i - 1], texts[i]) == 0)
            return true;
    }
    return false;
}

/* ---- payloads, section 2.5 ---- */

static bool is_code(const char *code, const char *name, refusal_t *refusal)
{
    size_t len = strlen(code);
    if (len == 0)
        return INVALID(refusal, "%s is empty", name);
    if (len > CODE_BYTES_MAX)
        return INVALID(refusal, "%s is %zu bytes; at most %d are accepted", name, len, CODE_BYTES_MAX);
    return utf8_is_valid(code, len) || INVALID(refusal, "%s is not valid UTF-8", name);
}

static bool is_grant_profile(const char *profile, const char *name, refusal_t *refusal)
{
    size_t len = strlen(profile);
    return len <= GRANT_PROFILE_BYTES_MAX ||
           INVALID(refusal, "%s is %zu bytes; at most %d are accepted", name, len, GRANT_PROFILE_BYTES_MAX);
}

static bool is_javascript(const Plimsoll__V1__JavaScriptRun *run, refusal_t *refusal)
{
    return is_code(run->code, "javascript.code", refusal) &&
           is_grant_profile(run->grant_profile, "javascript.grant_profile", refusal);
}

static bool has_steps(const Plimsoll__V1__ProjectRun *run, refusal_t *refusal)
{
    if (run->n_steps < 1 || run->n_steps > STEPS_MAX)
        return INVALID(refusal, "project.steps has %zu steps; 1 to %d are accepted", run->n_steps, STEPS_MAX);
    for (size_t i = 0; i < run->n_steps; i++) {
        size_t len = strlen(run->steps[i]);
        if (len > STEP_BYTES_MAX)
            return INVALID(refusal, "project.steps[%zu] is %zu bytes; at most %d are accepted", i, len, STEP_BYTES_MAX);
        if (!utf8_is_valid(run->steps[i], len))
            return INVALID(refusal, "project.steps[%zu] is not valid UTF-8", i);
    }
    return true;
}

static bool has_files(const Plimsoll__V1__ProjectRun *run, refusal_t *refusal)
{
    const char *paths[FILES_MAX];
    size_t total = 0;
    if (run->n_files > FILES_MAX)
        return INVALID(refusal, "project.files has %zu files; at most %d are accepted", run->n_files, FILES_MAX);
    for (size_t i = 0; i < run->n_files; i++) {
        const Plimsoll__V1__ProjectFile *file = run->files[i];
        if (!is_path(file->path, "project.files", i, ".path", refusal))
            return false;
        paths[i] = file->path;
        if (file->content.len != 0 && !utf8_is_valid(file->content.data, file->content.len))
            return INVALID(refusal, "project.files[%zu].content is not valid UTF-8", i);
        total += file->content.len; /* of a message that is in memory: cannot wrap */
    }
    if (total > FILES_BYTES_MAX)
        return INVALID(refusal, "project.files hold %zu bytes; at most %d are accepted", total, FILES_BYTES_MAX);
    return !has_twins(paths, run->n_files) || INVALID(refusal, "project.files has a path twice");
}

static bool has_artifacts(const Plimsoll__V1__ProjectRun *run, refusal_t *refusal)
{
    const char *paths[ARTIFACTS_MAX];
    if (run->n_artifacts > ARTIFACTS_MAX)
        return INVALID(refusal, "project.artifacts has %zu paths; at most %d are accepted", run->n_artifacts,
                       ARTIFACTS_MAX);
    for (size_t i = 0; i < run->n_artifacts; i++) {
        if (!is_path(run->artifacts[i], "project.artifacts", i, "", refusal))
            return false;
        paths[i] = run->artifacts[i];
    }
    return !has_twins(paths, run->n_artifacts) || INVALID(refusal, "project.artifacts has a path twice");
}

static bool is_project(const Plimsoll__V1__ProjectRun *run, refusal_t *refusal)
{
    return has_steps(run, refusal) && has_files(run, refusal) && has_artifacts(run, refusal) &&
           is_grant_profile(run->grant_profile, "project.grant_profile", refusal);
}

static bool is_row(const Plimsoll__V1__ModuleRun *run, size_t i, refusal_t *refusal)
{
    const Plimsoll__V1__ModuleRow *row = run->rows[i];
    size_t width = run->rows[0]->n_values;
    if (row->n_values != width)
        return INVALID(refusal, "module.rows[%zu] has %zu values; module.rows[0] has %zu", i, row->n_values, width);
    for (size_t j = 0; j < width; j++) {
        if (!isfinite(row->values[j]))
            return INVALID(refusal, "module.rows[%zu].values[%zu] is not finite", i, j);
    }
    return true;
}

static bool has_rows(const Plimsoll__V1__ModuleRun *run, refusal_t *refusal)
{
    if (run->n_rows < 1 || run->n_rows > ROWS_MAX)
        return INVALID(refusal, "module.rows has %zu rows; 1 to %d are accepted", run->n_rows, ROWS_MAX);
    size_t width = run->rows[0]->n_values;
    if (width < 1 || width > ROW_WIDTH_MAX)
        return INVALID(refusal, "module.rows[0] has %zu values; 1 to %d are accepted", width, ROW_WIDTH_MAX);
    for (size_t i = 0; i < run->n_rows; i++) {
        if (!is_row(run, i, refusal))
            return false;
    }
    return true;
}

static bool is_positive(double value, const char *name, refusal_t *refusal)
{
    return (isfinite(value) && value > 0) || INVALID(refusal, "%s must be positive and finite", name);
}

static bool has_budget(const Plimsoll__V1__ModuleRun *run, refusal_t *refusal)
{
    double ratio = run->end_time / run->step;
    if (!(ratio <= MODULE_STEPS_MAX)) /* infinite when the step is tiny */
        return INVALID(refusal, "module.end_time/module.step is over %d steps", MODULE_STEPS_MAX);
    uint64_t steps = (uint64_t)floor(ratio) + 2;
    uint64_t bytes = 20 + (uint64_t)run->n_rows * (4 + 8 * steps); /* at most 1e5 rows of 8e6 bytes */
    return bytes <= MODULE_RESULT_BYTES_MAX || INVALID(refusal,
                                                       "the module's results could be %llu bytes; at most %d are "
                                                       "accepted: send fewer rows or a shorter horizon",
                                                       (unsigned long long)bytes, MODULE_RESULT_BYTES_MAX);
}

static bool is_module(const Plimsoll__V1__ModuleRun *run, refusal_t *refusal)
{
    if (!is_word(run->model, MODEL_BYTES_MAX, "._-") || !is_alphanumeric(run->model[0]))
        return INVALID(refusal,
                       "module.model must be 1 to %d characters of [A-Za-z0-9._-] and start with a letter or digit",
                       MODEL_BYTES_MAX);
    return has_rows(run, refusal) && is_positive(run->end_time, "module.end_time", refusal) &&
           is_positive(run->step, "module.step", refusal) && has_budget(run, refusal);
}

static bool is_payload(const Plimsoll__V1__RunRequest *request, refusal_t *refusal)
{
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        return is_javascript(request->javascript, refusal);
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return is_project(request->project, refusal);
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE:
        return is_module(request->module, refusal);
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_CELL:
        return INVALID(refusal, "a cell is a session's call; Run takes javascript, project or module");
    default:
        return INVALID(refusal, "the request has no payload: javascript, project or module");
    }
}

/* ---- procedures ---- */

static uint32_t timeout_clamped(int32_t timeout_ms)
{
    if (timeout_ms <= 0)
        return 0;
    return timeout_ms > RUN_CEILING_MS ? RUN_CEILING_MS : (uint32_t)timeout_ms;
}

bool validate_run(const Plimsoll__V1__RunRequest *request, run_terms_t *terms, refusal_t *refusal)
{
    *terms = (run_terms_t){.trace_id = trace_id_kept(request->trace_id)};
    terms->trace_id_dropped = request->trace_id[0] != '\0' && terms->trace_id[0] == '\0';
    if (!has_head(request->protocol, request->minimum_isolation, request->software_rule, &terms->floor, refusal))
        return false;
    terms->timeout_ms = timeout_clamped(request->timeout_ms);
    return is_payload(request, refusal);
}

void validate_open_session(const Plimsoll__V1__OpenSessionRequest *request, refusal_t *refusal)
{
    tier_t floor;
    if (has_head(request->protocol, request->minimum_isolation, request->software_rule, &floor, refusal))
        refusal_set(refusal, CODE_UNIMPLEMENTED, MARK_UNSUPPORTED, "this gateway keeps no sessions");
}

/* One answer whatever the id, so that none tells what exists (4.5 step 2). */
static void no_session(refusal_t *refusal)
{
    refusal_set(refusal, CODE_NOT_FOUND, MARK_REQUEST, "there is no such session");
    refusal->session_end = PLIMSOLL__V1__SESSION_END__SESSION_END_NOT_FOUND;
    refusal->session_text = "unknown session";
}

void validate_session_run(const Plimsoll__V1__SessionRunRequest *request, refusal_t *refusal)
{
    tier_t floor;
    if (has_head(request->protocol, request->minimum_isolation, request->software_rule, &floor, refusal))
        no_session(refusal);
}

void validate_close_session(const Plimsoll__V1__CloseSessionRequest *request, refusal_t *refusal)
{
    if (has_protocol(request->protocol, refusal))
        no_session(refusal);
}
