#include "backends/cloud/cloud_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cloud/cloud_json.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"

enum {
    CLOUD_HTTP_MAGIC = 0x636c6874,
    HEAD_MAX = 64 * 1024, /* bytes of an answer's head */
    UNSENT_TRIES_MAX = 2, /* of a call that goes out once: nothing of it had left */
    NAME_MAX_BYTES = 32,  /* of a provider, in texts */
    SECONDS_DIGITS_MAX = 9,
};

struct cloud_http {
    unsigned magic;
    http_client_t *client;
    char name[NAME_MAX_BYTES];
    const cloud_secrets_t *secrets;
};

/* One try. */
typedef struct {
    const cloud_request_t *request;
    int status;              /* of a final head; 0 = none came */
    uint32_t retry_after_ms; /* 0 = not said */
    buffer_t error_body;     /* of a streamed call */
    bool is_stopped;         /* by the caller's on_data */
    bool is_cut;             /* by us: more of an error than is read */
} try_t;

static void check(const cloud_http_t *http)
{
    if (http == NULL || http->magic != CLOUD_HTTP_MAGIC)
        mem_fatal("not a provider's HTTP");
}

cloud_http_t *cloud_http_create(loop_t *loop, const cloud_http_options_t *options)
{
    const http_client_options_t client = {.ca_file = options->ca_file,
                                          .cert_file = options->cert_file,
                                          .key_file = options->key_file,
                                          .connect_ms = CLOUD_CONNECT_MS,
                                          .connections_kept = options->connections_kept,
                                          .header_max = HEAD_MAX};
    cloud_http_t *http = mem_alloc(sizeof(*http));
    http->magic = CLOUD_HTTP_MAGIC;
    http->secrets = options->secrets;
    snprintf(http->name, sizeof(http->name), "%s", options->name);
    http->client = http_client_create(loop, &client);
    return http;
}

void cloud_http_destroy(cloud_http_t *http)
{
    check(http);
    http_client_destroy(http->client);
    http->magic = 0;
    free(http);
}

http_client_t *cloud_http_client(const cloud_http_t *http)
{
    check(http);
    return http->client;
}

/* --- time --- */

uint32_t cloud_left_ms(uint64_t deadline_us)
{
    uint64_t now_us = clock_mono_us();
    uint64_t left_ms = deadline_us > now_us ? (deadline_us - now_us - 1) / 1000 + 1 : 0;
    return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

uint32_t cloud_pause_ms(uint32_t tries)
{
    uint32_t ms = CLOUD_PAUSE_MIN_MS;
    for (uint32_t i = 1; i < tries && ms < CLOUD_PAUSE_MAX_MS; ++i)
        ms *= 2;
    ms = ms < CLOUD_PAUSE_MAX_MS ? ms : CLOUD_PAUSE_MAX_MS;
    return ms - random_below(ms / 2 + 1);
}

/* Whole seconds or a decimal: how APIs in JSON write it, beside what RFC 9110 section 10.2.3 has. */
static bool read_seconds(const char *value, uint32_t *out_ms)
{
    size_t digits = strspn(value, "0123456789"), decimals = 0;
    uint64_t ms = 0;
    if (digits == 0)
        return false;
    if (value[digits] == '.') {
        decimals = strspn(value + digits + 1, "0123456789");
        if (decimals == 0 || value[digits + 1 + decimals] != '\0')
            return false;
    } else if (value[digits] != '\0') {
        return false;
    }
    for (size_t i = 0; i < digits && ms <= CLOUD_RETRY_AFTER_MAX_MS; ++i)
        ms = ms * 10 + (uint64_t)(value[i] - '0') * 1000;
    for (size_t i = 0, unit = 100; i < decimals && unit > 0; ++i, unit /= 10)
        ms += (uint64_t)(value[digits + 1 + i] - '0') * unit;
    *out_ms = ms < CLOUD_RETRY_AFTER_MAX_MS ? (uint32_t)ms : CLOUD_RETRY_AFTER_MAX_MS;
    return true;
}

static bool read_date(const char *value, int64_t wall_ms, uint32_t *out_ms)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %e %H:%M:%S %Y"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); ++i) {
        struct tm tm = {0};
        const char *end = strptime(value, forms[i], &tm);
        if (end == NULL || *end != '\0')
            continue;
        int64_t left_ms = (int64_t)timegm(&tm) * 1000 - wall_ms;
        *out_ms = left_ms <= 0 ? 0 : left_ms < CLOUD_RETRY_AFTER_MAX_MS ? (uint32_t)left_ms : CLOUD_RETRY_AFTER_MAX_MS;
        return true;
    }
    return false;
}

bool cloud_retry_after(const char *value, int64_t wall_ms, uint32_t *out_ms)
{
    while (*value == ' ' || *value == '\t')
        ++value;
    return read_seconds(value, out_ms) || read_date(value, wall_ms, out_ms);
}

/* --- troubles --- */

const char *cloud_fault_name(cloud_fault_t fault)
{
    static const char *const names[] = {"fine",    "nothing", "busy",     "denied", "missing", "unknown",
                                        "differs", "lost",    "protocol", "late",   "canceled"};
    return names[fault];
}

bool cloud_trouble(cloud_trouble_t *trouble, cloud_fault_t fault, const char *message, const char *detail)
{
    trouble->fault = fault;
    trouble->retry_after_ms = fault == CLOUD_BUSY ? CLOUD_BUSY_MS : 0;
    snprintf(trouble->message, sizeof(trouble->message), "%s", message);
    snprintf(trouble->detail, sizeof(trouble->detail), "%s", detail != NULL ? detail : "");
    return false;
}

/* What a provider says of an error: {"message": ...} with most, {"detail": ...} or {"error": ...} with some. Anything
 * that is no such object is not repeated: pages of proxies say nothing, at length. */
static void describe_body(const cloud_secrets_t *secrets, const buffer_t *body, char out[CLOUD_TEXT_LOG_MAX + 1])
{
    static const char *const keys[] = {"message", "detail", "error_description", "error"};
    const char *why, *text = NULL;
    json_t *json = body->len <= CLOUD_ERROR_BODY_MAX ? cloud_json_read(body->base, body->len, &why) : NULL;
    for (size_t i = 0; text == NULL && i < sizeof(keys) / sizeof(keys[0]); ++i)
        text = cloud_json_text(json, keys[i]);
    if (text != NULL)
        cloud_text_scrub(secrets, text, strlen(text), CLOUD_TEXT_LOG_MAX - 64, out);
    else
        snprintf(out, CLOUD_TEXT_LOG_MAX + 1, body->len > 0 ? "a body of %zu bytes without a message" : "no body",
                 body->len);
    json_decref(json);
}

static bool is_2xx(int status)
{
    return status >= 200 && status <= 299;
}

static bool is_read(const cloud_request_t *request)
{
    return request->repeat == CLOUD_READ;
}

static cloud_fault_t fault_of_status(int status, const cloud_request_t *request)
{
    switch (status) {
    case 404:
    case 410:
        return CLOUD_MISSING;
    case 408:
    case 499:
        return is_read(request) ? CLOUD_NOTHING : CLOUD_UNKNOWN;
    case 409:
        return CLOUD_NOTHING;
    case 429:
        return CLOUD_BUSY;
    case 501:
        return CLOUD_DENIED;
    default:
        break;
    }
    if (status >= 400 && status < 500)
        return CLOUD_DENIED;
    if (status >= 500 && status < 600)
        return is_read(request) ? CLOUD_NOTHING : CLOUD_UNKNOWN;
    return CLOUD_PROTOCOL;
}

static void trouble_of_status(const cloud_http_t *http, const try_t *try, const cloud_answer_t *answer,
                              cloud_trouble_t *trouble)
{
    char message[CLOUD_TEXT_CALLER_MAX + 1], detail[CLOUD_TEXT_LOG_MAX + 1];
    cloud_fault_t fault = fault_of_status(try->status, try->request);
    describe_body(try->request->secrets != NULL ? try->request->secrets : http->secrets, &answer->http.body, detail);
    if (fault == CLOUD_BUSY)
        snprintf(message, sizeof(message), "%s refused for a limit of its own (HTTP 429)", http->name);
    else if (fault == CLOUD_DENIED)
        snprintf(message, sizeof(message), "%s did not accept what the gateway asked for (HTTP %d)", http->name,
                 try->status);
    else
        snprintf(message, sizeof(message), "%s answered HTTP %d", http->name, try->status);
    cloud_trouble(trouble, fault, message, detail);
    if (fault == CLOUD_BUSY && try->retry_after_ms > 0)
        trouble->retry_after_ms = try->retry_after_ms;
}

static bool is_success(const try_t *try)
{
    const int *also = try->request->also_fine;
    if (is_2xx(try->status))
        return true;
    for (size_t i = 0; i < sizeof(try->request->also_fine) / sizeof(also[0]) && also[i] != 0; ++i)
        if (also[i] == try->status)
            return true;
    return false;
}

/* No complete answer came. */
static void trouble_of_outcome(const cloud_http_t *http, const try_t *try, const http_response_t *response,
                               cloud_trouble_t *trouble)
{
    char message[CLOUD_TEXT_CALLER_MAX + 1];
    bool has_begun = is_2xx(try->status) && try->request->on_data != NULL;
    cloud_fault_t after = has_begun ? CLOUD_LOST : is_read(try->request) ? CLOUD_NOTHING : CLOUD_UNKNOWN;
    switch (response->outcome) {
    case HTTP_NOT_SENT:
        snprintf(message, sizeof(message), "%s could not be reached", http->name);
        cloud_trouble(trouble, CLOUD_NOTHING, message, response->reason);
        return;
    case HTTP_TIMED_OUT:
        snprintf(message, sizeof(message), "%s did not answer in time", http->name);
        cloud_trouble(trouble, response->sent ? CLOUD_LATE : CLOUD_NOTHING, message, response->reason);
        return;
    case HTTP_CANCELED:
        cloud_trouble(trouble, CLOUD_CANCELED, "the call was stopped", response->reason);
        return;
    case HTTP_TOO_LARGE:
        snprintf(message, sizeof(message), "%s answered more than is read of it", http->name);
        cloud_trouble(trouble, is_read(try->request) ? CLOUD_PROTOCOL : CLOUD_UNKNOWN, message, response->reason);
        return;
    case HTTP_LOST:
    case HTTP_DONE:
        break;
    }
    snprintf(message, sizeof(message), "the connection to %s was lost", http->name);
    cloud_trouble(trouble, after, message, response->reason);
}

/* --- one try --- */

static bool on_head(void *data, const http_response_t *response)
{
    try_t *try = data;
    const char *value = http_response_header(response, "retry-after");
    try->status = response->status;
    if (value != NULL && cloud_retry_after(value, clock_wall_ms(), &try->retry_after_ms) && try->retry_after_ms == 0)
        try->retry_after_ms = 1;
    if (!is_2xx(try->status) || try->request->on_head == NULL || try->request->on_head(try->request->data, response))
        return true;
    try->is_stopped = true;
    return false;
}

static bool on_data(void *data, const uint8_t *bytes, size_t len)
{
    try_t *try = data;
    if (!is_2xx(try->status)) {
        try->is_cut = !buffer_append(&try->error_body, bytes, len);
        return !try->is_cut;
    }
    if (try->request->on_data(try->request->data, bytes, len))
        return true;
    try->is_stopped = true;
    return false;
}

/* An error's body, which went another way than the answer's own: in front of the head, as http_call_co has it. */
static void put_error_body(try_t *try, http_response_t *response)
{
    size_t len = try->error_body.len, head_len = response->_head_len;
    if (len == 0)
        return;
    uint8_t *both = mem_alloc(len + 1 + head_len);
    memcpy(both, try->error_body.base, len);
    if (head_len > 0)
        memcpy(both + len + 1, response->_head, head_len);
    buffer_dispose(&response->body);
    response->body = (buffer_t){.base = both, .len = len, .cap = len, .limit = len};
    response->_head = head_len > 0 ? (const char *)both + len + 1 : NULL;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void try_once(cloud_http_t *http, const cloud_request_t *request, uint32_t limit_ms, try_t *try,
                     cloud_answer_t *answer)
{
    const http_request_t out = {
        .method = request->method,
        .url = request->url,
        .headers = request->headers,
        .header_count = request->header_count,
        .body = request->body,
        .body_len = request->body_len,
        .deadline_ms = limit_ms,
        .response_max = most(request->response_max, CLOUD_ERROR_BODY_MAX),
        .idempotent = request->repeat == CLOUD_READ || request->repeat == CLOUD_AGAIN,
        .reuse_seconds = request->repeat == CLOUD_ONCE ? CLOUD_REUSE_S : 0,
        .on_head = on_head,
        .on_data = request->on_data != NULL ? on_data : NULL,
        .stream_data = try,
    };
    *try = (try_t){.request = request};
    buffer_init(&try->error_body, CLOUD_ERROR_BODY_MAX);
    answer->sent_us = clock_mono_us();
    http_call_co(http->client, &out, &answer->http);
    put_error_body(try, &answer->http);
    buffer_dispose(&try->error_body);
}

/* An error whose body was too long to be read is that error all the same. */
static bool has_answer(const try_t *try, const http_response_t *response)
{
    if (response->outcome == HTTP_DONE)
        return true;
    return (try->is_cut || response->outcome == HTTP_TOO_LARGE) && try->status >= 300;
}

/* A success that is larger than the caller wants is none. */
static bool is_too_large(const cloud_request_t *request, const http_response_t *response)
{
    return request->on_data == NULL && response->body.len > request->response_max;
}

static bool judge(const cloud_http_t *http, const try_t *try, cloud_answer_t *answer, cloud_trouble_t *trouble)
{
    trouble->status = try->status;
    trouble->is_sent = answer->http.sent;
    if (try->is_stopped)
        return true;
    if (!has_answer(try, &answer->http)) {
        trouble_of_outcome(http, try, &answer->http, trouble);
        return false;
    }
    answer->http.status = try->status;
    if (!is_success(try)) {
        trouble_of_status(http, try, answer, trouble);
        return false;
    }
    if (!is_too_large(try->request, &answer->http))
        return true;
    answer->http.outcome = HTTP_TOO_LARGE;
    trouble_of_outcome(http, try, &answer->http, trouble);
    return false;
}

/* --- again --- */

static bool is_worth_repeating(const cloud_request_t *request, const try_t *try, const cloud_answer_t *answer)
{
    if (request->repeat == CLOUD_ONCE || request->repeat == CLOUD_ONCE_FRESH)
        return answer->http.outcome == HTTP_NOT_SENT && answer->tries < UNSENT_TRIES_MAX;
    if (answer->tries >= CLOUD_TRIES_MAX)
        return false;
    switch (answer->http.outcome) {
    case HTTP_NOT_SENT:
    case HTTP_LOST:
    case HTTP_TIMED_OUT:
        /* of a stream the caller has seen a part */
        return request->on_data == NULL || try->status == 0;
    case HTTP_DONE:
        return try->status == 429 || try->status == 408 || (try->status >= 500 && try->status != 501);
    case HTTP_TOO_LARGE:
    case HTTP_CANCELED:
        break;
    }
    return false;
}

/* False: there is no time for another, or none that helps. */
static bool pause_before_next(const cloud_request_t *request, const try_t *try, const cloud_answer_t *answer)
{
    uint32_t ms = cloud_pause_ms(answer->tries);
    if (try->retry_after_ms > CLOUD_PAUSE_MAX_MS)
        return false;
    if (try->retry_after_ms > 0) /* not before it, and not all at once */
        ms = try->retry_after_ms + random_below(try->retry_after_ms / 4 + 1);
    return cloud_left_ms(request->deadline_us) > ms && co_sleep(ms) != CO_CANCELED;
}

static void log_trouble(const cloud_http_t *http, const cloud_request_t *request, const cloud_answer_t *answer,
                        const cloud_trouble_t *trouble)
{
    /* the URL's path may hold an ID, and never a credential */
    log_event(LOG_DEBUG, "provider call failed", log_str("provider", http->name), log_str("method", request->method),
              log_str("url", request->url), log_int("status", trouble->status),
              log_str("fault", cloud_fault_name(trouble->fault)), log_str("detail", trouble->detail),
              log_uint("tries", answer->tries));
}

bool cloud_call(cloud_http_t *http, const cloud_request_t *request, cloud_answer_t *answer, cloud_trouble_t *trouble)
{
    try_t try;
    bool is_fine;
    check(http);
    *answer = (cloud_answer_t){.tries = 0};
    *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
    for (;;) {
        uint32_t left_ms = cloud_left_ms(request->deadline_us);
        uint32_t limit_ms = request->limit_ms > 0 && request->limit_ms < left_ms ? request->limit_ms : left_ms;
        if (left_ms == 0) {
            answer->http.outcome = HTTP_TIMED_OUT;
            return cloud_trouble(trouble, answer->tries == 0 ? CLOUD_NOTHING : CLOUD_LATE, "the time was over",
                                 "before the call was sent");
        }
        ++answer->tries;
        try_once(http, request, limit_ms, &try, answer);
        is_fine = judge(http, &try, answer, trouble);
        if (is_fine || !is_worth_repeating(request, &try, answer) || !pause_before_next(request, &try, answer))
            break;
        buffer_dispose(&answer->http.body);
    }
    if (!is_fine)
        log_trouble(http, request, answer, trouble);
    return is_fine;
}

void cloud_answer_dispose(cloud_answer_t *answer)
{
    buffer_dispose(&answer->http.body);
    answer->http._head = NULL;
    answer->http._head_len = 0;
}

const char *cloud_answer_header(const cloud_answer_t *answer, const char *name)
{
    return http_response_header(&answer->http, name);
}

/* --- credentials --- */

void cloud_header_make(cloud_header_t *header, const char *name_and_scheme, const char *value)
{
    size_t name_len = strlen(name_and_scheme), value_len = strlen(value);
    header->size = name_len + value_len + 1;
    header->line = mem_alloc(header->size);
    memcpy(header->line, name_and_scheme, name_len);
    memcpy(header->line + name_len, value, value_len);
}

void cloud_header_wipe(cloud_header_t *header)
{
    if (header->line != NULL)
        explicit_bzero(header->line, header->size);
    free(header->line);
    *header = (cloud_header_t){NULL, 0};
}
