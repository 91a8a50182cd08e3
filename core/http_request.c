/* One request turned into options of a libcurl easy handle, checked first: libcurl sends header lines and methods as
 * they are. */
#include "core/http_call.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "core/mem.h"

static bool is_visible_ascii(const char *s)
{
    for (; *s != '\0'; ++s)
        if (*s < 0x21 || *s > 0x7e)
            return false;
    return true;
}

static bool is_http_url(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

static bool is_named(const char *line, size_t name_len, const char *name)
{
    return name_len == strlen(name) && strncasecmp(line, name, name_len) == 0;
}

/* libcurl frames the message from the body it is given, and Expect would add a wait and, on 417, a second sending. */
static bool is_ours_to_set(const char *line, size_t name_len)
{
    return is_named(line, name_len, "content-length") || is_named(line, name_len, "transfer-encoding") ||
           is_named(line, name_len, "expect");
}

static void append(http_call_t *call, const char *line)
{
    struct curl_slist *list = curl_slist_append(call->headers, line);
    if (list == NULL)
        mem_fatal("out of memory");
    call->headers = list;
}

static const char *add_header(http_call_t *call, const char *line, bool *has_content_type)
{
    size_t len = strnlen(line, HTTP_HEADER_LINE_MAX + 1);
    if (len > HTTP_HEADER_LINE_MAX)
        return "a request header is too long";
    const char *colon = memchr(line, ':', len);
    if (colon == NULL || !http_is_token(line, (size_t)(colon - line)))
        return "a request header has no valid name";
    size_t name_len = (size_t)(colon - line);
    if (is_ours_to_set(line, name_len))
        return "a request header that the client sets itself";
    bool is_empty = true;
    for (const char *p = colon + 1; *p != '\0'; ++p) {
        if ((*p >= 0 && *p < 0x20 && *p != '\t') || *p == 0x7f)
            return "a request header has a control byte";
        is_empty = is_empty && (*p == ' ' || *p == '\t');
    }
    if (is_named(line, name_len, "content-type"))
        *has_content_type = true;
    if (!is_empty) {
        append(call, line);
        return NULL;
    }
    /* To libcurl "Name:" means "leave it out"; an empty value is written "Name;". */
    char *empty = mem_strndup(line, name_len + 1);
    empty[name_len] = ';';
    append(call, empty);
    free(empty);
    return NULL;
}

static const char *add_headers(http_call_t *call, const http_request_t *request)
{
    bool has_content_type = false;
    if (request->header_count > HTTP_HEADERS_MAX)
        return "too many request headers";
    for (size_t i = 0; i < request->header_count; ++i) {
        const char *reason = add_header(call, request->headers[i], &has_content_type);
        if (reason != NULL)
            return reason;
    }
    /* What libcurl would add unasked. */
    append(call, "Expect:");
    if (!has_content_type)
        append(call, "Content-Type:");
    return NULL;
}

/* libcurl opens its sockets without close-on-exec. */
static curl_socket_t open_socket(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)data;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
}

#define SET(option, value)                                                                                             \
    do {                                                                                                               \
        if (curl_easy_setopt(call->easy, (option), (value)) != CURLE_OK)                                               \
            return "libcurl refused an option: " #option;                                                              \
    } while (0)

static const char *set_method(http_call_t *call, const http_request_t *request)
{
    const char *method = request->method;
    call->is_head_method = strcmp(method, "HEAD") == 0;
    if (call->is_head_method) {
        if (request->body_len != 0)
            return "a HEAD request has a body";
        SET(CURLOPT_NOBODY, 1L);
        return NULL;
    }
    bool announces_empty = strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
    if (request->body_len == 0 && !announces_empty) {
        SET(CURLOPT_HTTPGET, 1L);
    } else {
        call->body = mem_alloc(request->body_len + 1);
        if (request->body_len != 0)
            memcpy(call->body, request->body, request->body_len);
        call->body_len = request->body_len;
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        SET(CURLOPT_POSTFIELDS, (char *)call->body);
    }
    SET(CURLOPT_CUSTOMREQUEST, method);
    return NULL;
}

static const char *set_target(http_call_t *call, const http_request_t *request)
{
    if (strnlen(request->url, HTTP_URL_MAX + 1) > HTTP_URL_MAX)
        return "the URL is too long";
    if (!is_http_url(request->url) || !is_visible_ascii(request->url))
        return "not an absolute http or https URL";
    SET(CURLOPT_URL, request->url);
    /* A path approved by somebody is the path on the wire. */
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    if (request->unix_path == NULL)
        return NULL;
    if (request->unix_path[0] == '\0' || strnlen(request->unix_path, HTTP_UNIX_PATH_MAX + 1) > HTTP_UNIX_PATH_MAX)
        return "the Unix socket path is empty or too long";
    SET(CURLOPT_UNIX_SOCKET_PATH, request->unix_path);
    return NULL;
}

static const char *set_connection(http_call_t *call, const http_request_t *request,
                                  const http_client_options_t *options)
{
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_HTTP09_ALLOWED, 0L);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    if (request->idempotent) {
        SET(CURLOPT_MAXAGE_CONN, (long)HTTP_IDLE_SECONDS_MAX);
    } else if (request->reuse_seconds != 0) {
        SET(CURLOPT_MAXAGE_CONN, (long)request->reuse_seconds);
    } else {
        SET(CURLOPT_FRESH_CONNECT, 1L);
        SET(CURLOPT_FORBID_REUSE, 1L);
    }
    /* To libcurl 0 is 300 s; our own deadline rules then. */
    SET(CURLOPT_CONNECTTIMEOUT_MS, options->connect_ms != 0 ? (long)options->connect_ms : (long)UINT32_MAX);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSL_CTX_FUNCTION, http_tls_watch);
    SET(CURLOPT_SSL_CTX_DATA, call->client);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (options->ca_file != NULL) {
        SET(CURLOPT_CAINFO, options->ca_file);
        /* The compiled-in directory of system certificates would be trusted besides. */
        SET(CURLOPT_CAPATH, NULL);
    }
    if (options->cert_file != NULL)
        SET(CURLOPT_SSLCERT, options->cert_file);
    if (options->key_file != NULL)
        SET(CURLOPT_SSLKEY, options->key_file);
    return NULL;
}

const char *http_request_apply(http_call_t *call, const http_request_t *request, const http_client_options_t *options)
{
    const char *reason;
    size_t method_len = strnlen(request->method, HTTP_METHOD_MAX + 1);
    if (method_len > HTTP_METHOD_MAX || !http_is_token(request->method, method_len))
        return "not a method";
    if (request->deadline_ms == 0)
        return "a request without a deadline";
    if ((reason = set_target(call, request)) != NULL || (reason = set_method(call, request)) != NULL ||
        (reason = set_connection(call, request, options)) != NULL || (reason = add_headers(call, request)) != NULL)
        return reason;
    SET(CURLOPT_HTTPHEADER, call->headers);
    return NULL;
}

void http_request_forget(http_call_t *call)
{
    for (struct curl_slist *line = call->headers; line != NULL; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(call->headers);
    call->headers = NULL;
    if (call->body != NULL)
        explicit_bzero(call->body, call->body_len);
    free(call->body);
    call->body = NULL;
}
