#include "backends/docker/engine_call.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/engine_json.h"
#include "backends/docker/engine_text.h"
#include "core/clock.h"
#include "core/mem.h"

static void set(engine_answer_t *out, engine_outcome_t outcome, const char *text)
{
    out->outcome = outcome;
    engine_text_set(out->text, sizeof(out->text), text);
}

void engine_answer_reject(engine_answer_t *answer, const char *why)
{
    json_decref(answer->json);
    answer->json = NULL;
    set(answer, ENGINE_FAILED, why);
}

static engine_outcome_t outcome_of_error(int status)
{
    switch (status) {
    case 404:
        return ENGINE_ABSENT;
    case 409:
        return ENGINE_CONFLICT;
    default:
        return status >= 400 && status < 500 ? ENGINE_REFUSED : ENGINE_FAILED;
    }
}

/* The Engine's errors are {"message": "..."} whatever their status. */
static void judge_error(const http_response_t *response, engine_answer_t *out)
{
    const char *why;
    json_t *json = engine_json_read(response->body.base, response->body.len, &why);
    const char *message = engine_json_text(json, "message");
    if (message != NULL) {
        set(out, outcome_of_error(response->status), message);
    } else {
        char text[ENGINE_TEXT_MAX];
        snprintf(text, sizeof(text), "status %d without the Engine's error message", response->status);
        set(out, ENGINE_FAILED, text);
    }
    json_decref(json);
}

static void judge_status(const engine_request_t *request, const http_response_t *response, engine_answer_t *out)
{
    const char *why;
    out->status = response->status;
    if (response->status >= 400) {
        judge_error(response, out);
    } else if (response->status == 304 && request->may_be_unchanged) {
        set(out, ENGINE_UNCHANGED, "");
    } else if (response->status != request->success) {
        char text[ENGINE_TEXT_MAX];
        snprintf(text, sizeof(text), "status %d where %d is promised", response->status, request->success);
        set(out, ENGINE_FAILED, text);
    } else {
        set(out, ENGINE_OK, "");
        if (request->success == 204 || request->is_text)
            return;
        out->json = engine_json_read(response->body.base, response->body.len, &why);
        if (out->json == NULL)
            set(out, ENGINE_FAILED, why);
    }
}

static void judge(const engine_request_t *request, const http_response_t *response, engine_answer_t *out)
{
    switch (response->outcome) {
    case HTTP_DONE:
        judge_status(request, response, out);
        return;
    case HTTP_NOT_SENT:
        set(out, ENGINE_UNSENT, response->reason);
        return;
    case HTTP_LOST:
        set(out, ENGINE_UNKNOWN, response->reason);
        return;
    case HTTP_TOO_LARGE:
        set(out, ENGINE_FAILED, response->reason);
        return;
    case HTTP_TIMED_OUT:
        set(out, response->sent ? ENGINE_UNKNOWN : ENGINE_UNSENT, response->reason);
        return;
    case HTTP_CANCELED:
        set(out, ENGINE_CANCELED, response->reason);
        return;
    }
    mem_fatal("an outcome HTTP does not have");
}

/* Whether everything before it stayed within the limits of a request; `url` is then whole. */
static const char *make_url(const engine_t *engine, const engine_request_t *request, buffer_t *url)
{
    if (!request->is_unversioned && engine->version[0] == '\0')
        return "the API's version is not negotiated";
    if (request->body != NULL && strnlen(request->body, ENGINE_BODY_MAX + 1) > ENGINE_BODY_MAX)
        return "the request's body is too large";
    bool fits = request->is_unversioned ? buffer_printf(url, "http://d%s", request->path)
                                        : buffer_printf(url, "http://d/v%s%s", engine->version, request->path);
    return fits ? NULL : "the request's path is too long";
}

void engine_call_header(engine_t *engine, const engine_request_t *request, uint32_t deadline_ms, const char *name,
                        char *value, size_t value_size, engine_answer_t *out)
{
    static const char *const headers[] = {"Content-Type: application/json"};
    uint64_t end = clock_mono_ms() + deadline_ms;
    http_response_t response;
    buffer_t url;

    if (engine->magic != ENGINE_MAGIC)
        mem_fatal("not an engine");
    memset(out, 0, sizeof(*out));
    value[0] = '\0';
    buffer_init(&url, sizeof("http://d/v") + ENGINE_VERSION_MAX + ENGINE_PATH_MAX);
    const char *why = make_url(engine, request, &url);
    if (why != NULL) {
        set(out, ENGINE_UNSENT, why);
        goto Exit;
    }
    http_request_t http = {
        .method = request->method,
        .url = (const char *)url.base,
        .unix_path = engine->socket,
        .headers = headers,
        .header_count = request->body != NULL ? 1 : 0,
        .body = request->body,
        .body_len = request->body != NULL ? strlen(request->body) : 0,
        .deadline_ms = deadline_ms != 0 ? deadline_ms : 1,
        .response_max = ENGINE_ANSWER_MAX,
        .idempotent = request->is_read,
    };
    http_call_co(engine->http, &http, &response);
    uint64_t now = clock_mono_ms();
    if (request->is_read && response.outcome == HTTP_LOST && now < end) {
        buffer_dispose(&response.body);
        http.idempotent = false;
        http.deadline_ms = (uint32_t)(end - now);
        http_call_co(engine->http, &http, &response);
    }
    judge(request, &response, out);
    const char *found = http_response_header(&response, name);
    engine_text_set(value, value_size, found != NULL ? found : "");
    buffer_dispose(&response.body);
Exit:
    buffer_dispose(&url);
}

void engine_call(engine_t *engine, const engine_request_t *request, uint32_t deadline_ms, engine_answer_t *out)
{
    char none[1];
    engine_call_header(engine, request, deadline_ms, "server", none, sizeof(none), out);
}
