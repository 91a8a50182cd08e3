#include "core/http_head.h"

#include <string.h>
#include <strings.h>

void http_head_init(http_head_t *head, size_t max)
{
    *head = (http_head_t){._max = max};
    /* A stored field has two NULs where the line had at least a colon and a line feed, so it is never longer. */
    buffer_init(&head->fields, max);
}

void http_head_dispose(http_head_t *head)
{
    buffer_dispose(&head->fields);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_token_byte(unsigned char c)
{
    return is_digit((char)c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

bool http_is_token(const char *s, size_t len)
{
    for (size_t i = 0; i < len; ++i)
        if (!is_token_byte((unsigned char)s[i]))
            return false;
    return len > 0;
}

static bool is_value_byte(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* "HTTP/1.1 200 OK" or 1.0; libcurl lets other versions pass, and we speak none of them. */
static bool read_status_line(http_head_t *head, const char *line, size_t len)
{
    static const char prefix[] = "HTTP/1.";
    size_t at = sizeof(prefix) - 1;
    if (len <= at + 1 || memcmp(line, prefix, at) != 0 || (line[at] != '0' && line[at] != '1') || line[at + 1] != ' ')
        return false;
    ++at;
    while (at < len && line[at] == ' ')
        ++at;
    if (len - at < 3 || !is_digit(line[at]) || !is_digit(line[at + 1]) || !is_digit(line[at + 2]))
        return false;
    if (len - at > 3 && line[at + 3] != ' ')
        return false;
    head->status = (line[at] - '0') * 100 + (line[at + 1] - '0') * 10 + (line[at + 2] - '0');
    return head->status >= 100;
}

static bool read_content_length(http_head_t *head, const char *value, size_t len)
{
    uint64_t n = 0;
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; ++i) {
        if (!is_digit(value[i]))
            return false;
        uint64_t digit = (uint64_t)(value[i] - '0');
        if (__builtin_mul_overflow(n, 10u, &n) || __builtin_add_overflow(n, digit, &n))
            n = UINT64_MAX; /* stays there: any further digit overflows again */
    }
    if (head->has_content_length && head->content_length != n)
        return false;
    head->has_content_length = true;
    head->content_length = n;
    return true;
}

static http_head_result_t read_field(http_head_t *head, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (colon == NULL || !http_is_token(line, (size_t)(colon - line)))
        return HTTP_HEAD_MALFORMED;
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1, *end = line + len;
    while (value < end && is_blank(*value))
        ++value;
    while (end > value && is_blank(end[-1]))
        --end;
    size_t value_len = (size_t)(end - value);
    for (size_t i = 0; i < value_len; ++i)
        if (!is_value_byte((unsigned char)value[i]))
            return HTTP_HEAD_MALFORMED;
    static const char content_length[] = "content-length";
    if (name_len == sizeof(content_length) - 1 && strncasecmp(line, content_length, name_len) == 0 &&
        !read_content_length(head, value, value_len))
        return HTTP_HEAD_MALFORMED;
    if (!buffer_append(&head->fields, line, name_len) || !buffer_append(&head->fields, "", 1) ||
        !buffer_append(&head->fields, value, value_len) || !buffer_append(&head->fields, "", 1))
        return HTTP_HEAD_TOO_LARGE;
    return HTTP_HEAD_MORE;
}

/* RFC 9110 section 15.2: any number of 1xx heads may come before the final one. 101 is final: we never ask for an
 * upgrade. */
static bool is_interim(int status)
{
    return status >= 100 && status < 200 && status != 101;
}

http_head_result_t http_head_line(http_head_t *head, const char *line, size_t len)
{
    if (len > head->_max - head->_bytes)
        return HTTP_HEAD_TOO_LARGE;
    head->_bytes += len;
    if (head->has_ended)
        return HTTP_HEAD_MORE;
    if (len > 0 && line[len - 1] == '\n')
        --len;
    if (len > 0 && line[len - 1] == '\r')
        --len;
    if (!head->_in_fields) {
        buffer_clear(&head->fields);
        head->has_content_length = false;
        head->content_length = 0;
        head->_in_fields = true;
        return read_status_line(head, line, len) ? HTTP_HEAD_MORE : HTTP_HEAD_MALFORMED;
    }
    if (len > 0)
        return read_field(head, line, len);
    head->_in_fields = false;
    if (is_interim(head->status))
        return HTTP_HEAD_MORE;
    head->has_ended = true;
    return HTTP_HEAD_END;
}

const char *http_head_find(const char *fields, size_t len, const char *name)
{
    const char *found = NULL, *at = fields, *end = fields + len;
    while (at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0) {
            if (found != NULL)
                return NULL;
            found = value;
        }
        at = value + strlen(value) + 1;
    }
    return found;
}
