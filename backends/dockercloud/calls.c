#include "backends/dockercloud/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/credential.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"

dc_box_t *dc_own(const cloud_box_t *box)
{
    return box->own;
}

void dc_box_name(const cloud_box_t *box, char name[DC_NAME + 1])
{
    dc_name_make(name, cloud_box_installation(box), box->stamp);
}

/* --- what an error means --- */

cloud_fault_t dc_fault_of(const dc_refused_t *refused)
{
    switch (refused->code) {
    case CODE_INVALID_ARGUMENT:
    case CODE_OUT_OF_RANGE:
    case CODE_UNIMPLEMENTED:
    case CODE_PERMISSION_DENIED:
    case CODE_UNAUTHENTICATED:
        return CLOUD_DENIED;
    case CODE_FAILED_PRECONDITION:
        return CLOUD_NOTHING;
    case CODE_RESOURCE_EXHAUSTED:
        return CLOUD_BUSY;
    case CODE_NOT_FOUND:
        return CLOUD_MISSING;
    default:
        return CLOUD_UNKNOWN;
    }
}

bool dc_senseless(cloud_trouble_t *trouble, const char *why)
{
    return cloud_trouble(trouble, CLOUD_PROTOCOL, "Docker Cloud's answer makes no sense", why);
}

/* What is held now and must not be repeated, whatever it looks like: neither a bearer nor a credential need be a JWT.
 * Borrowed, until the next wait of the coroutine. */
static cloud_secrets_t secrets_of(const dc_t *dc, const cloud_box_t *box)
{
    cloud_secrets_t secrets = dc->secrets;
    dc_bearer_secrets(dc->bearer, &secrets);
    if (box != NULL)
        cloud_secrets_add(&secrets, dc_own(box)->credential);
    return secrets;
}

static void describe(const cloud_secrets_t *secrets, const dc_refused_t *refused, char out[CLOUD_TEXT_LOG_MAX + 1])
{
    char text[CLOUD_TEXT_LOG_MAX + 1], reason[REFUSED_REASON_MAX + 1];
    cloud_text_scrub(secrets, refused->message, strlen(refused->message), CLOUD_TEXT_LOG_MAX - 128, text);
    cloud_text_scrub(secrets, refused->reason, strlen(refused->reason), REFUSED_REASON_MAX, reason);
    snprintf(out, CLOUD_TEXT_LOG_MAX + 1, "%s%s%s%s%s: %s", dc_code_name(refused->code), reason[0] != '\0' ? " (" : "",
             reason, reason[0] != '\0' ? ")" : "", refused->is_quota ? ", a quota" : "", text);
}

static const char *message_of(cloud_fault_t fault)
{
    switch (fault) {
    case CLOUD_BUSY:
        return "Docker Cloud refused for a limit of its own";
    case CLOUD_DENIED:
        return "Docker Cloud did not accept what the gateway asked for";
    case CLOUD_MISSING:
        return "Docker Cloud does not know the sandbox";
    default:
        return "Docker Cloud could not do what was asked";
    }
}

static bool refused_trouble(const cloud_secrets_t *secrets, const dc_refused_t *refused, cloud_trouble_t *trouble)
{
    char detail[CLOUD_TEXT_LOG_MAX + 1];
    cloud_fault_t fault = dc_fault_of(refused);
    uint32_t retry_after_ms = trouble->retry_after_ms;

    describe(secrets, refused, detail);
    cloud_trouble(trouble, fault, message_of(fault), detail);
    if (fault != CLOUD_BUSY)
        return false;
    if (retry_after_ms == 0 && refused->retry_after_ms > 0)
        retry_after_ms =
            refused->retry_after_ms < CLOUD_RETRY_AFTER_MAX_MS ? refused->retry_after_ms : CLOUD_RETRY_AFTER_MAX_MS;
    if (retry_after_ms > 0)
        trouble->retry_after_ms = retry_after_ms;
    return false;
}

bool dc_refused_trouble(dc_t *dc, const cloud_box_t *box, const dc_refused_t *refused, cloud_trouble_t *trouble)
{
    const cloud_secrets_t secrets = secrets_of(dc, box);
    return refused_trouble(&secrets, refused, trouble);
}

/* A 429 is want of room or of rate, but for a call that changes something only when its code says that it was turned
 * away: an edge's own, which says nothing, may have come after the service took the call (Connect; REST's contract
 * has no other 429). */
static bool is_at_its_limit(const dc_call_t *call, const dc_refused_t *refused)
{
    return call->repeat == CLOUD_READ || !dc_code_is_unsure(refused->code);
}

/* An answer that is no success: its code decides, but for two things the code does not tell: what a 429 is, and that of
 * a read no fault means that something may have been done. */
static void judge(dc_t *dc, const dc_call_t *call, const cloud_secrets_t *secrets, const cloud_answer_t *answer,
                  dc_refused_t *refused, cloud_trouble_t *trouble)
{
    char detail[CLOUD_TEXT_LOG_MAX + 1];
    bool is_redirect = trouble->status >= 300 && trouble->status < 400;
    bool was_busy = trouble->fault == CLOUD_BUSY;
    uint32_t retry_after_ms = trouble->retry_after_ms;

    dc_refused_read(dc->settings.api, trouble->status, answer->http.body.base, answer->http.body.len, refused);
    if (is_redirect)
        return;
    was_busy = was_busy && is_at_its_limit(call, refused);
    if (!was_busy)
        trouble->retry_after_ms = 0;
    if (refused->is_told || !was_busy)
        refused_trouble(secrets, refused, trouble);
    if (was_busy && trouble->fault != CLOUD_BUSY && trouble->fault != CLOUD_DENIED) {
        snprintf(detail, sizeof(detail), "%s", trouble->detail);
        cloud_trouble(trouble, CLOUD_BUSY, message_of(CLOUD_BUSY), detail);
        if (retry_after_ms > 0)
            trouble->retry_after_ms = retry_after_ms;
    }
    if (trouble->fault == CLOUD_UNKNOWN && call->repeat == CLOUD_READ) {
        snprintf(detail, sizeof(detail), "%s", trouble->detail);
        cloud_trouble(trouble, CLOUD_NOTHING, message_of(CLOUD_NOTHING), detail);
    }
    if (!refused->is_told)
        snprintf(trouble->message, sizeof(trouble->message), "Docker Cloud answered HTTP %d", trouble->status);
}

/* --- one call with one credential --- */

enum { LINES_MAX = 8, LINE_MAX_BYTES = 48 };

static uint32_t limit_of(const dc_call_t *call)
{
    uint32_t left_ms = cloud_left_ms(call->deadline_us);
    return call->limit_ms > 0 && call->limit_ms < left_ms ? call->limit_ms : left_ms;
}

static bool is_success(const dc_call_t *call, int status)
{
    if (call->success[0] == 0)
        return status == 200;
    return status == call->success[0] || status == call->success[1];
}

bool dc_is_flood(const cloud_answer_t *answer)
{
    return answer->http.outcome == HTTP_TOO_LARGE && answer->http.status == 200;
}

/* Copies the credential before anything waits. */
static bool call_with(dc_t *dc, const dc_call_t *call, const char *credential, cloud_answer_t *answer,
                      dc_refused_t *refused, cloud_trouble_t *trouble)
{
    const char *lines[LINES_MAX];
    static const char scheme[] = "Authorization: Bearer ";
    char type[128], timeout[LINE_MAX_BYTES];
    size_t count = 0;
    cloud_header_t authorization;

    cloud_secrets_t secrets = secrets_of(dc, NULL);
    cloud_header_make(&authorization, scheme, credential);
    cloud_secrets_add(&secrets, authorization.line + strlen(scheme));
    lines[count++] = authorization.line;
    lines[count++] = "Accept-Encoding: identity";
    if (call->body != NULL) {
        snprintf(type, sizeof(type), "Content-Type: %s", call->type != NULL ? call->type : "application/json");
        lines[count++] = type;
    }
    if (dc->settings.api == DC_CONNECT) {
        uint32_t limit_ms = limit_of(call);
        snprintf(timeout, sizeof(timeout), "Connect-Timeout-Ms: %" PRIu32, limit_ms > 0 ? limit_ms : 1);
        lines[count++] = timeout;
        lines[count++] = "Connect-Protocol-Version: 1";
    }
    for (size_t i = 0; i < sizeof(call->headers) / sizeof(call->headers[0]) && call->headers[i] != NULL; ++i)
        lines[count++] = call->headers[i];
    const cloud_request_t request = {.method = call->method,
                                     .url = call->path,
                                     .headers = lines,
                                     .header_count = count,
                                     .body = call->body,
                                     .body_len = call->body_len,
                                     .repeat = call->repeat,
                                     .limit_ms = call->limit_ms,
                                     .deadline_us = call->deadline_us,
                                     .response_max = call->response_max > 0 ? call->response_max : CLOUD_OBJECT_MAX,
                                     .secrets = &secrets,
                                     .on_head = call->on_head,
                                     .on_data = call->on_data,
                                     .data = call->data};
    bool is_done = cloud_call(dc->http, &request, answer, trouble);
    *refused = (dc_refused_t){.code = DC_CODE_NONE};
    if (!is_done && trouble->status >= 300)
        judge(dc, call, &secrets, answer, refused, trouble);
    cloud_header_wipe(&authorization);
    /* "Accepted", a part, or nothing at all is not the success that was asked for. */
    if (is_done && !is_success(call, trouble->status))
        is_done = dc_senseless(trouble, "the answer's status is not the documented success's");
    return is_done;
}

/* --- the right credential, and what to do when it is refused --- */

static bool is_refused(const cloud_trouble_t *trouble, const dc_refused_t *refused)
{
    return trouble->status == 401 || refused->code == CODE_UNAUTHENTICATED;
}

static bool call_management(dc_t *dc, const dc_call_t *call, cloud_answer_t *answer, dc_refused_t *refused,
                            cloud_trouble_t *trouble)
{
    for (int tries = 1;; ++tries) {
        uint64_t number;
        const char *bearer = dc_bearer_get(dc->bearer, call->deadline_us, limit_of(call), &number, trouble);
        if (bearer == NULL)
            return false;
        bool is_done = call_with(dc, call, bearer, answer, refused, trouble);
        if (is_done || !is_refused(trouble, refused))
            return is_done;
        dc_bearer_drop(dc->bearer, number);
        if (tries > 1 || !(call->repeat == CLOUD_READ || call->may_repeat_denied))
            return false;
        cloud_answer_dispose(answer);
    }
}

static bool has_expired(const dc_refused_t *refused)
{
    return strcmp(refused->reason, "ENDPOINT_CREDENTIAL_EXPIRED") == 0;
}

/* A refusal that names an expired credential can come after the command ran; any other came before anything did (spec
 * 2.5). */
static bool call_endpoint(dc_t *dc, const dc_call_t *call, cloud_answer_t *answer, dc_refused_t *refused,
                          cloud_trouble_t *trouble)
{
    for (int tries = 1;; ++tries) {
        const char *credential = dc_credential_get(dc, call->box, call->deadline_us, trouble);
        if (credential == NULL)
            return false;
        if (call_with(dc, call, credential, answer, refused, trouble))
            return true;
        if (!is_refused(trouble, refused))
            return false;
        dc_credential_drop(call->box);
        if (has_expired(refused) && call->repeat != CLOUD_READ)
            return cloud_trouble(trouble, CLOUD_UNKNOWN, "Docker Cloud cut the call when its credential ran out",
                                 "ENDPOINT_CREDENTIAL_EXPIRED");
        if (tries > 1 || !cloud_sleep_ms(DC_REFUSED_PAUSE_MS, call->deadline_us))
            return false;
        cloud_answer_dispose(answer);
    }
}

bool dc_call(dc_t *dc, const dc_call_t *call, cloud_answer_t *answer, dc_refused_t *refused, cloud_trouble_t *trouble)
{
    *answer = (cloud_answer_t){.tries = 0};
    *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
    *refused = (dc_refused_t){.code = DC_CODE_NONE};
    if (call->box != NULL && dc->settings.api == DC_REST)
        return call_endpoint(dc, call, answer, refused, trouble);
    return call_management(dc, call, answer, refused, trouble);
}

/* As it is sent back: a header's value, so nothing but what one holds. */
static void take_etag(const cloud_answer_t *answer, char out[DC_ETAG_MAX + 1])
{
    const char *value = cloud_answer_header(answer, "etag");
    out[0] = '\0';
    if (value == NULL || strlen(value) > DC_ETAG_MAX)
        return;
    for (const char *at = value; *at != '\0'; ++at)
        if (*at < 0x20 || *at > 0x7e)
            return;
    strcpy(out, value);
}

json_t *dc_call_json(dc_t *dc, const dc_call_t *call, dc_refused_t *refused, cloud_trouble_t *trouble)
{
    cloud_answer_t answer;
    const char *why = NULL;
    json_t *json = NULL;

    if (dc_call(dc, call, &answer, refused, trouble)) {
        json = cloud_json_read(answer.http.body.base, answer.http.body.len, &why);
        if (call->etag != NULL)
            take_etag(&answer, call->etag);
        if (json != NULL && (!json_is_object(json) || dc_is_error(json)))
            why = "the answer is no message of the API's";
        if (json == NULL || !json_is_object(json) || dc_is_error(json)) {
            json_decref(json);
            json = NULL;
            dc_senseless(trouble, why);
        }
    }
    cloud_answer_dispose(&answer);
    if (json != NULL && call->box == NULL)
        dc->is_base_known = true;
    return json;
}

/* --- what both creates do with a sandbox --- */

bool dc_take_created(dc_t *dc, cloud_box_t *box, const json_t *json, cloud_trouble_t *trouble)
{
    dc_box_t *own = dc_own(box);
    char name[DC_NAME + 1];
    const char *why = dc_sandbox_read(dc->settings.api, json, &own->sandbox);

    dc_box_name(box, name);
    if (own->sandbox.id[0] != '\0' && strcmp(own->sandbox.name, name) != 0) {
        /* It may be another run's: its ID is never written down as ours, so nobody deletes it by that. */
        own->sandbox.id[0] = '\0';
        return dc_senseless(trouble, "the sandbox has another name");
    }
    if (own->sandbox.id[0] != '\0' && !cloud_box_name(box, own->sandbox.id))
        return dc_senseless(trouble, "the sandbox's ID is none");
    return why == NULL || dc_senseless(trouble, why);
}

bool dc_may_become_ready(dc_t *dc, const dc_sandbox_t *sandbox, cloud_trouble_t *trouble)
{
    char text[CLOUD_TEXT_LOG_MAX + 1], detail[CLOUD_TEXT_LOG_MAX + 1];
    if (!dc_sandbox_is_over(sandbox))
        return true;
    const cloud_secrets_t secrets = secrets_of(dc, NULL);
    cloud_text_scrub(&secrets, sandbox->failure, strlen(sandbox->failure), DC_FAILURE_MAX, text);
    snprintf(detail, sizeof(detail), "status %s: %s", dc_status_name(sandbox->status), text);
    return cloud_trouble(trouble, CLOUD_LOST, "Docker Cloud's sandbox did not start", detail);
}

bool dc_accepted_trouble(const cloud_box_t *box, cloud_trouble_t *trouble)
{
    switch (trouble->fault) {
    case CLOUD_NOTHING:
    case CLOUD_BUSY:
    case CLOUD_DENIED:
    case CLOUD_MISSING:
        trouble->fault = box->id[0] != '\0' ? CLOUD_LOST : CLOUD_UNKNOWN;
        trouble->retry_after_ms = 0;
        break;
    default:
        break;
    }
    return false;
}

bool dc_wait_for_look(uint32_t *pause_ms, uint64_t deadline_us)
{
    *pause_ms = *pause_ms == 0 ? DC_POLL_FIRST_MS : *pause_ms * 2 < DC_POLL_MS ? *pause_ms * 2 : DC_POLL_MS;
    return cloud_sleep_ms(*pause_ms, deadline_us) && cloud_left_ms(deadline_us) > 0;
}

bool dc_pause(const cloud_box_t *box, uint32_t *pause_ms, dc_status_t status, cloud_trouble_t *trouble)
{
    if (dc_wait_for_look(pause_ms, box->deadline_us))
        return true;
    if (cloud_left_ms(box->deadline_us) > 0)
        return cloud_trouble(trouble, CLOUD_CANCELED, "the run was stopped", "while the sandbox was starting");
    return cloud_trouble(trouble, CLOUD_LATE, "Docker Cloud's sandbox was not running in time", dc_status_name(status));
}

/* --- what both read --- */

bool dc_judge_policy(dc_api_t api, json_t *json, cloud_trouble_t *trouble)
{
    const char *why = json != NULL ? dc_policy_problem(api, json) : NULL;
    bool is_fine = json != NULL && why == NULL;
    if (why != NULL)
        cloud_trouble(trouble, CLOUD_DIFFERS, "Docker Cloud's sandbox has another network policy", why);
    json_decref(json);
    return is_fine;
}

size_t dc_exec_max(size_t stream_cap)
{
    return 2 * ((stream_cap + 2) / 3 * 4) + DC_EXEC_AROUND_MAX;
}

bool dc_read_exec(const cloud_answer_t *answer, size_t stream_cap, dc_exec_t *out, bool *is_flood,
                  cloud_trouble_t *trouble)
{
    const char *why;
    json_t *json = cloud_json_read(answer->http.body.base, answer->http.body.len, &why);
    if (json == NULL)
        return dc_senseless(trouble, why);
    why = dc_exec_read(json, stream_cap, out, is_flood);
    json_decref(json);
    if (why == NULL)
        return true;
    dc_exec_dispose(out);
    return dc_senseless(trouble, why);
}

json_t *dc_judge_page(json_t *json, dc_page_t *page, cloud_trouble_t *trouble)
{
    const char *why = json != NULL ? dc_page_read(json, page) : NULL;
    if (why == NULL)
        return json;
    dc_senseless(trouble, why);
    json_decref(json);
    return NULL;
}

bool dc_knows_base(dc_t *dc, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    dc_page_t page;
    if (!dc->is_base_known)
        json_decref(dc->api->page(dc, "", &page, deadline_us, trouble));
    return dc->is_base_known;
}
