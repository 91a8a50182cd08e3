#include "backends/docker/attach_head.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "backends/docker/attach.h"
#include "core/http_head.h"

typedef struct {
    const char *base;
    size_t len;
} span_t;

typedef struct {
    unsigned content_types, upgrades;
    bool is_stream, is_tcp, has_body;
} fields_t;

static bool equals(span_t span, const char *text)
{
    return span.len == strlen(text) && strncasecmp(span.base, text, span.len) == 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.1 101 UPGRADED"; 0 when it is no status line. */
static int read_status(span_t line)
{
    const char *p = line.base;
    if (line.len < 12 || memcmp(p, "HTTP/1.", 7) != 0 || (p[7] != '0' && p[7] != '1') || p[8] != ' ' ||
        (line.len > 12 && p[12] != ' ') || p[9] < '1' || p[9] > '5' || !is_digit(p[10]) || !is_digit(p[11]))
        return 0;
    return (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
}

static bool has_control_byte(span_t line)
{
    for (size_t i = 0; i < line.len; ++i)
        if (((unsigned char)line.base[i] < 0x20 && line.base[i] != '\t') || line.base[i] == 0x7f)
            return true;
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The content types an Engine gives: the first through API 1.41, the second for the same bytes since 1.42. */
static bool is_stream_type(span_t value)
{
    return equals(value, "application/vnd.docker.raw-stream") ||
           equals(value, "application/vnd.docker.multiplexed-stream");
}

static bool read_field(span_t line, fields_t *fields)
{
    const char *colon = memchr(line.base, ':', line.len);
    if (colon == NULL || !http_is_token(line.base, (size_t)(colon - line.base)))
        return false;
    span_t name = {line.base, (size_t)(colon - line.base)};
    span_t value = {colon + 1, line.len - name.len - 1};
    for (; value.len > 0 && is_blank(value.base[0]); ++value.base)
        --value.len;
    while (value.len > 0 && is_blank(value.base[value.len - 1]))
        --value.len;
    if (equals(name, "content-type")) {
        ++fields->content_types;
        fields->is_stream = is_stream_type(value);
    } else if (equals(name, "upgrade")) {
        ++fields->upgrades;
        fields->is_tcp = equals(value, "tcp");
    } else if (equals(name, "content-length") || equals(name, "transfer-encoding")) {
        fields->has_body = true;
    }
    return true;
}

static attach_head_result_t bad(attach_head_t *out, const char *why)
{
    out->why = why;
    return ATTACH_HEAD_BAD;
}

static attach_head_result_t judge(const fields_t *fields, attach_head_t *out)
{
    if (out->status != 101 && out->status != 200)
        return out->status < 200 ? bad(out, "an interim answer") : ATTACH_HEAD_REFUSED;
    if (out->status == 101 && (fields->upgrades != 1 || !fields->is_tcp))
        return bad(out, "an upgrade to something else");
    if (fields->has_body)
        return bad(out, "a body in the stream's place");
    if (fields->content_types != 1 || !fields->is_stream)
        return bad(out, "a content type that is no stream's");
    return ATTACH_HEAD_UPGRADED;
}

attach_head_result_t attach_head_read(const void *bytes, size_t len, attach_head_t *out)
{
    const char *at = bytes, *end = memmem(bytes, len, "\r\n\r\n", 4);
    fields_t fields = {0};

    memset(out, 0, sizeof(*out));
    if (end == NULL)
        return len >= ATTACH_HEAD_MAX ? bad(out, "the head is too large") : ATTACH_HEAD_MORE;
    out->head_len = (size_t)(end - at) + 4;
    for (bool is_first = true; at < end + 2; is_first = false) {
        const char *line_end = memmem(at, (size_t)(end + 2 - at), "\r\n", 2);
        span_t line = {at, (size_t)(line_end - at)};
        if (has_control_byte(line))
            return bad(out, "a control byte in the head");
        if (is_first && (out->status = read_status(line)) == 0)
            return bad(out, "not an HTTP answer");
        if (!is_first && !read_field(line, &fields))
            return bad(out, "a malformed header line");
        at = line_end + 2;
    }
    return judge(&fields, out);
}
