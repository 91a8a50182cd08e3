#include "gateway/head.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "gateway/limits.h"

/* RFC 9110 token characters. A table: this is asked of every character of every field's name. */
static bool is_token_char(unsigned char c)
{
    static const bool is_token[256] = {
        ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['!'] = true, ['#'] = true, ['$'] = true,
        ['%'] = true,         ['&'] = true,         ['\''] = true,        ['*'] = true, ['+'] = true, ['-'] = true,
        ['.'] = true,         ['^'] = true,         ['_'] = true,         ['`'] = true, ['|'] = true, ['~'] = true,
    };
    return is_token[c];
}

static bool is_value_char(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static bool is_target_char(unsigned char c)
{
    return c > 0x20 && c < 0x7f && c != '#' && c != '"' && c != '<' && c != '>' && c != '\\' && c != '^' && c != '`' &&
           c != '{' && c != '|' && c != '}';
}

static bool is_host_char(unsigned char c)
{
    return c > 0x20 && c < 0x7f && strchr("/?#@\\\"<>^`{|} ,", c) == NULL;
}

bool head_text_is(const head_field_t *field, const char *text)
{
    return field->base != NULL && field->len == strlen(text) && memcmp(field->base, text, field->len) == 0;
}

bool head_text_is_nocase(const head_field_t *field, const char *text)
{
    return field->base != NULL && field->len == strlen(text) && strncasecmp(field->base, text, field->len) == 0;
}

bool head_request_id_is_valid(const head_field_t *field)
{
    if (field->count != 1 || field->len != REQUEST_ID_LEN)
        return false;
    for (size_t i = 0; i < field->len; i++) {
        char c = field->base[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

typedef struct {
    head_field_t host, length, transfer, connection, expect;
} framing_t;

/* Where a field of interest goes; NULL for the others. */
static head_field_t *field_place(head_t *h, framing_t *f, const char *name, size_t len)
{
#define IN_FRAMING(text, member)                                                                                       \
    {                                                                                                                  \
        text, sizeof(text) - 1, true, offsetof(framing_t, member)                                                      \
    }
#define IN_HEAD(text, member)                                                                                          \
    {                                                                                                                  \
        text, sizeof(text) - 1, false, offsetof(head_t, member)                                                        \
    }
    static const struct {
        const char *name;
        size_t len;
        bool in_framing;
        size_t offset;
    } wanted[] = {
        IN_FRAMING("host", host),
        IN_FRAMING("content-length", length),
        IN_FRAMING("transfer-encoding", transfer),
        IN_FRAMING("connection", connection),
        IN_FRAMING("expect", expect),
        IN_HEAD("authorization", authorization),
        IN_HEAD("plimsoll-request-id", request_id),
        IN_HEAD("content-type", content_type),
        IN_HEAD("content-encoding", content_encoding),
        IN_HEAD("connect-protocol-version", connect_version),
        IN_HEAD("connect-timeout-ms", connect_timeout),
        IN_HEAD("x-request-id", x_request_id),
        IN_HEAD("traceparent", traceparent),
        IN_HEAD("idempotency-key", idempotency_key),
    };
#undef IN_FRAMING
#undef IN_HEAD
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (wanted[i].len == len && strncasecmp(wanted[i].name, name, len) == 0)
            return (head_field_t *)((char *)(wanted[i].in_framing ? (void *)f : (void *)h) + wanted[i].offset);
    return NULL;
}

/* Path and query of an origin-form target, or of what follows the authority of an absolute one. */
static void split_target(const char *target, size_t len, head_t *h)
{
    const char *query = memchr(target, '?', len);
    h->path = (head_field_t){target, query != NULL ? (size_t)(query - target) : len, 1};
    if (query != NULL)
        h->query = (head_field_t){query + 1, len - h->path.len - 1, 1};
    if (h->path.len == 0)
        h->path = (head_field_t){"/", 1, 1};
}

/* RFC 9112 3.2.2. Whose authority it is, is not ours to judge; where it ends, is: another reader must not take for
 * authority or query what we take for the path. */
static const char *parse_absolute_target(const char *target, size_t len, head_t *h)
{
    size_t at = len > 7 && strncasecmp(target, "http://", 7) == 0    ? 7
                : len > 8 && strncasecmp(target, "https://", 8) == 0 ? 8
                                                                     : 0;
    if (at == 0)
        return "the request target is not a path";
    size_t host = at;
    while (at < len && target[at] != '/' && target[at] != '?') {
        if (!is_host_char((unsigned char)target[at]))
            return "the request target's host has a character that is not allowed";
        at++;
    }
    if (at == host)
        return "the request target has no host";
    split_target(target + at, len - at, h);
    return NULL;
}

static const char *parse_request_line(const char *line, size_t len, head_t *h)
{
    const char *space = memchr(line, ' ', len);
    if (space == NULL || space == line)
        return "the request line has no method";
    h->method = (head_field_t){line, (size_t)(space - line), 1};
    if (h->method.len > METHOD_MAX)
        return "the method is longer than 32 bytes";
    for (size_t i = 0; i < h->method.len; i++)
        if (!is_token_char((unsigned char)line[i]))
            return "the method has a character that is not allowed";
    const char *target = space + 1;
    size_t rest = len - (size_t)(target - line);
    const char *end = memchr(target, ' ', rest);
    if (end == NULL || end == target)
        return "the request line has no target";
    size_t target_len = (size_t)(end - target);
    if (target_len > TARGET_MAX)
        return "the request target is longer than 8192 bytes";
    for (size_t i = 0; i < target_len; i++)
        if (!is_target_char((unsigned char)target[i]))
            return "the request target has a character that is not allowed";
    const char *version = end + 1;
    if (len - (size_t)(version - line) != 8 || memcmp(version, "HTTP/1.", 7) != 0 ||
        (version[7] != '0' && version[7] != '1'))
        return "the protocol version is not HTTP/1.0 or HTTP/1.1";
    h->minor = version[7] - '0';
    if (target[0] != '/' && !(target_len == 1 && target[0] == '*'))
        return parse_absolute_target(target, target_len, h);
    split_target(target, target_len, h);
    return NULL;
}

/* The last ones stay: what comes last was added last, by the proxy nearest to us. */
static void keep_forwarded(head_t *h, const char *value, size_t len)
{
    if (h->forwarded_lines == FORWARDED_LINES_MAX)
        memmove(h->forwarded_for, h->forwarded_for + 1, --h->forwarded_lines * sizeof(h->forwarded_for[0]));
    h->forwarded_for[h->forwarded_lines++] = (head_field_t){value, len, 1};
}

static const char *parse_field(const char *line, size_t len, head_t *h, framing_t *f)
{
    if (line[0] == ' ' || line[0] == '\t')
        return "a header line is folded";
    const char *colon = memchr(line, ':', len);
    if (colon == NULL || colon == line)
        return "a header line has no name";
    size_t name_len = (size_t)(colon - line);
    for (size_t i = 0; i < name_len; i++)
        if (!is_token_char((unsigned char)line[i]))
            return "a header name has a character that is not allowed";
    const char *value = colon + 1, *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *c = value; c < end; c++)
        if (!is_value_char((unsigned char)*c))
            return "a header value has a control character";
    head_field_t *place = field_place(h, f, line, name_len);
    if (place != NULL) {
        if (place->count++ == 0) {
            place->base = value;
            place->len = (size_t)(end - value);
        }
    } else if (head_text_is_nocase(&(head_field_t){line, name_len, 1}, "x-forwarded-for")) {
        keep_forwarded(h, value, (size_t)(end - value));
    }
    return NULL;
}

/* One token of a comma-separated list, compared without case. */
static bool list_has(const head_field_t *field, const char *token)
{
    const char *at = field->base, *end = at != NULL ? at + field->len : NULL;
    size_t want = strlen(token);
    while (at != NULL && at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        const char *a = at, *b = stop;
        while (a < b && (*a == ' ' || *a == '\t'))
            a++;
        while (b > a && (b[-1] == ' ' || b[-1] == '\t'))
            b--;
        if ((size_t)(b - a) == want && strncasecmp(a, token, want) == 0)
            return true;
        at = comma != NULL ? comma + 1 : end;
    }
    return false;
}

static const char *judge_framing(head_t *h, const framing_t *f)
{
    if (f->host.count > 1)
        return "Host is repeated";
    /* HTTP/1.0 knows no Host, and health checks of old load balancers send none */
    if (f->host.count == 0 && h->minor != 0)
        return "Host is missing";
    for (size_t i = 0; i < f->host.len; i++)
        if (!is_host_char((unsigned char)f->host.base[i]))
            return "Host has a character that is not allowed";
    if (f->length.count > 1)
        return "Content-Length is repeated";
    if (f->transfer.count > 1)
        return "Transfer-Encoding is repeated";
    if (f->length.count != 0 && f->transfer.count != 0)
        return "Content-Length and Transfer-Encoding are both present";
    if (f->transfer.count != 0) {
        if (h->minor == 0)
            return "Transfer-Encoding is not part of HTTP/1.0";
        if (!head_text_is_nocase(&f->transfer, "chunked"))
            return "Transfer-Encoding is something other than chunked";
        h->chunked = true;
    }
    if (f->length.count != 0) {
        if (f->length.len == 0 || f->length.len > 18)
            return "Content-Length is not a number";
        for (size_t i = 0; i < f->length.len; i++) {
            char c = f->length.base[i];
            if (c < '0' || c > '9')
                return "Content-Length is not a number";
            h->length = h->length * 10 + (uint64_t)(c - '0');
        }
        h->has_length = true;
    }
    if (f->connection.count > 1)
        h->persistent = false;
    else if (h->minor != 0)
        h->persistent = !list_has(&f->connection, "close");
    else
        h->persistent = list_has(&f->connection, "keep-alive") && !list_has(&f->connection, "close");
    if (f->expect.count != 0) {
        if (f->expect.count > 1 || !head_text_is_nocase(&f->expect, "100-continue"))
            return "Expect is something other than 100-continue";
        h->expects_continue = h->minor != 0;
    }
    return NULL;
}

/* The head's end, or 0 when it has not come. A lone LF ends nothing here; it is found and refused by the line parser as
 * soon as the head is whole, or when the limit is hit. */
static size_t find_end(const char *bytes, size_t len, size_t *scanned)
{
    size_t from = *scanned > 3 ? *scanned - 3 : 0;
    const char *end = len > from ? memmem(bytes + from, len - from, "\r\n\r\n", 4) : NULL;
    *scanned = len;
    return end != NULL ? (size_t)(end - bytes) + 4 : 0;
}

static bool has_bare_lf(const char *bytes, size_t from, size_t len)
{
    for (size_t i = from; i < len; i++) {
        const char *lf = memchr(bytes + i, '\n', len - i);
        if (lf == NULL)
            return false;
        i = (size_t)(lf - bytes);
        if (i == 0 || bytes[i - 1] != '\r')
            return true;
    }
    return false;
}

/* The request ID of bytes that are no head, so that even their refusal is bound to it. Lines end as they like here. */
static void find_request_id(const char *bytes, size_t len, head_field_t *out)
{
    static const char name[] = "plimsoll-request-id:";
    const char *line = bytes, *end = bytes + len;
    while (line < end) {
        const char *lf = memchr(line, '\n', (size_t)(end - line));
        if (lf == NULL)
            return; /* the last line may be cut */
        const char *value = line + sizeof(name) - 1, *stop = lf;
        if (value <= stop && strncasecmp(line, name, sizeof(name) - 1) == 0) {
            while (value < stop && (*value == ' ' || *value == '\t'))
                value++;
            while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r'))
                stop--;
            if (out->count++ == 0) {
                out->base = value;
                out->len = (size_t)(stop - value);
            }
        }
        line = lf + 1;
    }
}

head_result_t head_parse(const char *bytes, size_t len, size_t *scanned, head_t *out, const char **why)
{
    size_t before = *scanned;
    framing_t framing = {{0}, {0}, {0}, {0}, {0}};
    *out = (head_t){0};
    *why = NULL;
    size_t end = find_end(bytes, len, scanned);
    size_t known = end != 0 ? end : len;
    if (known > HEAD_MAX) {
        *why = "the head is larger than 32768 bytes";
        find_request_id(bytes, HEAD_MAX, &out->request_id);
        return HEAD_TOO_LARGE;
    }
    /* refused at once: a peer that ends lines with LF would otherwise wait for an end that never comes */
    if (has_bare_lf(bytes, before, known)) {
        *why = "a line ends with a bare LF";
        find_request_id(bytes, known, &out->request_id);
        out->bytes = known;
        return HEAD_BAD;
    }
    if (end == 0)
        return HEAD_INCOMPLETE;
    out->bytes = end;
    const char *line = bytes, *stop = bytes + end - 2;
    const char *first_error = NULL;
    unsigned lines = 0;
    while (line < stop) {
        const char *lf = memchr(line, '\n', (size_t)(stop - line));
        if (lf == NULL)
            break;
        const char *cr = lf - 1; /* no LF is bare here */
        const char *error;
        if (lines == 0)
            error = parse_request_line(line, (size_t)(cr - line), out);
        else if (lines > HEAD_FIELDS_MAX)
            error = "there are more than 128 header fields";
        else
            error = parse_field(line, (size_t)(cr - line), out, &framing);
        /* goes on to the end all the same, so the request ID of a refused head can be echoed */
        if (error != NULL && first_error == NULL)
            first_error = error;
        if (lines++ > HEAD_FIELDS_MAX)
            break;
        line = cr + 2;
    }
    if (first_error == NULL && memchr(bytes, '\0', end) != NULL)
        first_error = "the head has a NUL byte";
    if (first_error == NULL)
        first_error = judge_framing(out, &framing);
    *why = first_error;
    return first_error == NULL ? HEAD_OK : HEAD_BAD;
}
