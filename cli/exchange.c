#include "cli/exchange.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <curl/curl.h>

#include "config/version.h"
#include "core/mem.h"

static const char *const HEADER_NAMES[HEADER_COUNT] = {
    [HEADER_REQUEST_ID] = "Plimsoll-Request-Id", [HEADER_NOT_DISPATCHED] = "Plimsoll-Not-Dispatched",
    [HEADER_REPLAYED] = "Plimsoll-Replayed",     [HEADER_RETRY_AFTER] = "Retry-After",
    [HEADER_CONTENT_TYPE] = "Content-Type",      [HEADER_RUN_ID] = "Plimsoll-Run-Id",
    [HEADER_BACKEND] = "Plimsoll-Backend",       [HEADER_PASSED_OVER] = "Plimsoll-Passed-Over",
};

/* What the callbacks of one exchange share. */
typedef struct {
    exchange_t *exchange;
    size_t head_len; /* bytes of header lines so far, interim answers included */
    bool in_head;    /* between a status line and its blank line: what comes later is a trailer and binds nothing */
    const char *too_large; /* which limit was passed */
} progress_t;

void exchange_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        mem_fatal("libcurl does not start");
}

bool request_id_is_valid(const char *text)
{
    return strlen(text) == REQUEST_ID_HEX && strspn(text, "0123456789abcdef") == REQUEST_ID_HEX;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

void exchange_take_header(exchange_t *exchange, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (colon == NULL)
        return;
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1, *end = line + len;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    size_t value_len = (size_t)(end - value);
    for (size_t i = 0; i < HEADER_COUNT; i++) {
        if (name_len != strlen(HEADER_NAMES[i]) || strncasecmp(line, HEADER_NAMES[i], name_len) != 0)
            continue;
        header_t *header = &exchange->headers[i];
        header->count++;
        header->value[0] = '\0';
        if (value_len > EXCHANGE_VALUE_MAX || memchr(value, '\0', value_len) != NULL)
            return;
        memcpy(header->value, value, value_len);
        header->value[value_len] = '\0';
    }
}

static size_t on_header(char *line, size_t size, size_t count, void *data)
{
    progress_t *progress = data;
    size_t len = size * count;
    progress->head_len += len;
    if (progress->head_len > EXCHANGE_HEAD_MAX) {
        progress->too_large = "the answer's head is larger than 64 KiB";
        return 0;
    }
    bool starts_answer = len >= 5 && memcmp(line, "HTTP/", 5) == 0;
    if (starts_answer && progress->exchange->body.len == 0) {
        /* An interim answer (1xx) has a head of its own; only the last one counts. */
        memset(progress->exchange->headers, 0, sizeof(progress->exchange->headers));
        progress->in_head = true;
    } else if (len <= 2) {
        progress->in_head = false;
    } else if (progress->in_head) {
        exchange_take_header(progress->exchange, line, len);
    }
    return len;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *data)
{
    progress_t *progress = data;
    size_t len = size * count;
    if (!buffer_append(&progress->exchange->body, bytes, len)) {
        progress->too_large = "the answer is larger than 32 MiB";
        return 0;
    }
    return len;
}

/* NULL when out of memory. */
static struct curl_slist *header_list(const exchange_request_t *request)
{
    buffer_t line;
    buffer_init(&line, 8192);
    struct curl_slist *list = NULL;
    /* "Expect:" takes away libcurl's own wait for 100 Continue. */
    const char *const fixed[] = {"Accept: application/json", "Accept-Encoding: identity", "Expect:"};
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        list = curl_slist_append(list, fixed[i]);
    if (request->body != NULL) {
        list = curl_slist_append(list, "Content-Type: application/json");
        list = curl_slist_append(list, "Connect-Protocol-Version: 1");
    }
    if (request->request_id != NULL) {
        buffer_printf(&line, "Plimsoll-Request-Id: %s", request->request_id);
        list = curl_slist_append(list, (const char *)line.base);
        buffer_clear(&line);
    }
    if (request->token != NULL) {
        buffer_printf(&line, "Authorization: Bearer %s", request->token);
        list = curl_slist_append(list, (const char *)line.base);
        explicit_bzero(line.base, line.len);
    }
    buffer_dispose(&line);
    return list;
}

static void forget_header_list(struct curl_slist *list)
{
    for (struct curl_slist *at = list; at != NULL; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(list);
}

static void set_options(CURL *easy, const exchange_request_t *request, struct curl_slist *headers, progress_t *progress,
                        char error[CURL_ERROR_SIZE])
{
    long whole_ms = request->whole_ms == 0 ? EXCHANGE_WHOLE_MS : (long)request->whole_ms;
    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* not even one from the environment */
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    /* libcurl sends a POST again when a reused connection turns out dead: never reuse one. */
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, whole_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     whole_ms < EXCHANGE_CONNECT_MS ? whole_ms : (long)EXCHANGE_CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (request->unix_socket != NULL)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
    if (request->ca_file != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, request->ca_file);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "plimsoll-cli/" PLIMSOLL_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, progress);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, progress);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
    if (request->body != NULL) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
    }
}

/* Whether no byte of the HTTP request was handed to the connection. */
static bool nothing_sent(CURL *easy)
{
    long sent = 1;
    return curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent) == CURLE_OK && sent == 0;
}

static exchange_outcome_t outcome_of(CURL *easy, CURLcode code, const progress_t *progress)
{
    if (code == CURLE_OK)
        return EXCHANGE_DONE;
    if (progress->too_large != NULL)
        return EXCHANGE_TOO_LARGE;
    if (nothing_sent(easy))
        return EXCHANGE_NOT_SENT;
    return code == CURLE_OPERATION_TIMEDOUT ? EXCHANGE_TIMED_OUT : EXCHANGE_LOST;
}

void exchange_perform(const exchange_request_t *request, exchange_t *exchange)
{
    memset(exchange, 0, sizeof(*exchange));
    buffer_init(&exchange->body, EXCHANGE_ANSWER_MAX);
    progress_t progress = {.exchange = exchange};
    char error[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = header_list(request);
    CURL *easy = curl_easy_init();
    if (easy == NULL || headers == NULL)
        mem_fatal("libcurl is out of memory");
    set_options(easy, request, headers, &progress, error);
    CURLcode code = curl_easy_perform(easy);
    exchange->outcome = outcome_of(easy, code, &progress);
    long status = 0;
    if (curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK)
        exchange->status = (int)status;
    if (exchange->outcome == EXCHANGE_TOO_LARGE)
        snprintf(exchange->reason, sizeof(exchange->reason), "%s", progress.too_large);
    else if (code != CURLE_OK)
        snprintf(exchange->reason, sizeof(exchange->reason), "%s", error[0] != '\0' ? error : curl_easy_strerror(code));
    curl_easy_cleanup(easy);
    forget_header_list(headers);
}

void exchange_dispose(exchange_t *exchange)
{
    buffer_dispose(&exchange->body);
}

const char *exchange_header(const exchange_t *exchange, header_name_t name)
{
    const header_t *header = &exchange->headers[name];
    return header->count == 1 ? header->value : NULL;
}

bool exchange_is_bound(const exchange_t *exchange, const char *request_id)
{
    const char *echo = exchange_header(exchange, HEADER_REQUEST_ID);
    return echo != NULL && strcmp(echo, request_id) == 0;
}

bool exchange_is_json(const exchange_t *exchange)
{
    static const char type[] = "application/json";
    const char *value = exchange_header(exchange, HEADER_CONTENT_TYPE);
    if (value == NULL || strncasecmp(value, type, sizeof(type) - 1) != 0)
        return false;
    const char *rest = value + sizeof(type) - 1;
    while (is_blank(*rest))
        rest++;
    return *rest == '\0' || *rest == ';';
}
