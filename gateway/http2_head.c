#include "gateway/http2_head.h"

#include <string.h>

#include "gateway/limits.h"

/* What is wrong with a head is remembered; the text is then written without what was wrong, for the request ID's sake.
 */
static void note(http2_head_t *h, const char *wrong)
{
    if (h->wrong == NULL)
        h->wrong = wrong;
}

void http2_head_init(http2_head_t *h)
{
    *h = (http2_head_t){0};
    buffer_t *const parts[] = {&h->method, &h->path, &h->scheme, &h->authority, &h->host, &h->fields, &h->text};
    /* names and values are HEAD_MAX in all. A field has a byte of name at least and takes three more as text, which
     * makes 4 x HEAD_MAX of fields at most; the lines before them are less than one more. No append can fail. */
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        buffer_init(parts[i], 5 * HEAD_MAX);
}

void http2_head_dispose(http2_head_t *h)
{
    buffer_t *const parts[] = {&h->method, &h->path, &h->scheme, &h->authority, &h->host, &h->fields, &h->text};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        buffer_dispose(parts[i]);
}

static bool is(const uint8_t *name, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(name, text, len) == 0;
}

/* A byte that would end the line it is written on. */
static bool breaks_a_line(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] == '\r' || bytes[i] == '\n' || bytes[i] == '\0')
            return true;
    return false;
}

/* A word of the request line. */
static bool is_word(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] <= ' ' || bytes[i] >= 0x7f)
            return false;
    return len != 0;
}

static void take_once(http2_head_t *h, buffer_t *part, const uint8_t *value, size_t len)
{
    if (!is_word(value, len))
        note(h, "a pseudo-header is empty or has a character that is not allowed");
    else if (part->len != 0)
        note(h, "a pseudo-header is repeated");
    else
        buffer_append(part, value, len);
}

static void add_pseudo(http2_head_t *h, const uint8_t *name, size_t name_len, const uint8_t *value, size_t len)
{
    if (h->fields.len != 0 || h->has_host)
        note(h, "a pseudo-header comes after a header field");
    else if (is(name, name_len, ":method"))
        take_once(h, &h->method, value, len);
    else if (is(name, name_len, ":path"))
        take_once(h, &h->path, value, len);
    else if (is(name, name_len, ":scheme"))
        take_once(h, &h->scheme, value, len);
    else if (is(name, name_len, ":authority"))
        take_once(h, &h->authority, value, len);
    else
        note(h, "there is an unknown pseudo-header");
}

/* RFC 9113 section 8.2.2: these speak of a connection, and HTTP/2 has none of them. */
static bool is_of_a_connection(const uint8_t *name, size_t len)
{
    return is(name, len, "connection") || is(name, len, "keep-alive") || is(name, len, "proxy-connection") ||
           is(name, len, "transfer-encoding") || is(name, len, "upgrade");
}

static bool is_lowercase_token(const uint8_t *name, size_t len)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++) {
        uint8_t c = name[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c != 0 && strchr(others, c) != NULL)))
            return false;
    }
    return len != 0;
}

void http2_head_add(http2_head_t *h, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len)
{
    if (h->too_large || name_len > HEAD_MAX - h->total || value_len > HEAD_MAX - h->total - name_len) {
        h->too_large = true;
        return;
    }
    h->total += name_len + value_len;
    if (name_len != 0 && name[0] == ':') {
        add_pseudo(h, name, name_len, value, value_len);
        return;
    }
    if (!is_lowercase_token(name, name_len)) {
        note(h, "a header name has a character that is not allowed");
        return;
    }
    if (is_of_a_connection(name, name_len)) {
        note(h, "there is a header field of HTTP/1.1 connections");
        return;
    }
    if (breaks_a_line(value, value_len)) {
        note(h, "a header value has a control character");
        return;
    }
    if (is(name, name_len, "host")) {
        if (h->has_host)
            note(h, "Host is repeated");
        h->has_host = true;
        buffer_clear(&h->host);
        buffer_append(&h->host, value, value_len);
        return;
    }
    buffer_append(&h->fields, name, name_len);
    buffer_append(&h->fields, ":", 1);
    buffer_append(&h->fields, value, value_len);
    buffer_append(&h->fields, "\r\n", 2);
}

static const char *judge(const http2_head_t *h)
{
    if (h->method.len == 0)
        return ":method is missing";
    if (h->path.len == 0)
        return ":path is missing";
    if (h->path.base[0] != '/' && !is(h->path.base, h->path.len, "*"))
        return ":path is not a path";
    if (!is(h->scheme.base, h->scheme.len, "http") && !is(h->scheme.base, h->scheme.len, "https"))
        return ":scheme is neither http nor https";
    /* RFC 9113 section 8.3.1: two names of one host would be read differently by two readers */
    if (h->has_host && h->authority.len != 0 &&
        (h->host.len != h->authority.len || memcmp(h->host.base, h->authority.base, h->host.len) != 0))
        return ":authority and Host differ";
    return NULL;
}

static void append(buffer_t *text, const buffer_t *part)
{
    if (part->len != 0)
        buffer_append(text, part->base, part->len);
}

/* Written even when something is wrong, with what there is: the request ID is to be echoed then too. */
static void write_text(http2_head_t *h, bool is_fine)
{
    if (is_fine) {
        append(&h->text, &h->method);
        buffer_append(&h->text, " ", 1);
        append(&h->text, &h->path);
    } else {
        /* HEAD must be known as one: its answer has no body, a refusal's neither */
        buffer_append_str(&h->text, is(h->method.base, h->method.len, "HEAD") ? "HEAD /" : "GET /");
    }
    buffer_append_str(&h->text, " HTTP/1.1\r\n");
    if (h->has_host || h->authority.len != 0) {
        buffer_append_str(&h->text, "host:");
        append(&h->text, h->authority.len != 0 ? &h->authority : &h->host);
        buffer_append_str(&h->text, "\r\n");
    }
    append(&h->text, &h->fields);
    buffer_append_str(&h->text, "\r\n");
}

head_result_t http2_head_parse(http2_head_t *h, head_t *out, const char **why)
{
    size_t scanned = 0;
    if (h->too_large) {
        *out = (head_t){0};
        *why = "the head is larger than 32768 bytes";
        return HEAD_TOO_LARGE;
    }
    note(h, judge(h));
    write_text(h, h->wrong == NULL);
    head_result_t result = head_parse((const char *)h->text.base, h->text.len, &scanned, out, why);
    if (result == HEAD_OK && h->wrong != NULL)
        result = HEAD_BAD;
    if (result == HEAD_BAD && h->wrong != NULL)
        *why = h->wrong;
    return result;
}
