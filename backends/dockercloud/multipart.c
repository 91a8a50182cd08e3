#include "backends/dockercloud/multipart.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/cloud/cloud_json.h"
#include "core/random.h"

/* --- writing --- */

void multipart_boundary(char out[MULTIPART_BOUNDARY_MAX + 1])
{
    enum { RANDOM_BYTES = 16 };
    random_hex(out, RANDOM_BYTES);
}

bool multipart_add_file(buffer_t *out, const char *boundary, const char *path, unsigned mode, const void *content,
                        size_t len)
{
    return buffer_printf(out,
                         "--%s\r\nContent-Disposition: form-data; name=\"metadata\"\r\n"
                         "Content-Type: application/json\r\n\r\n{\"path\":",
                         boundary) &&
           cloud_json_quote(out, path) &&
           buffer_printf(out,
                         ",\"mode\":%u}\r\n--%s\r\nContent-Disposition: form-data; name=\"content\"\r\n"
                         "Content-Type: application/octet-stream\r\n\r\n",
                         mode, boundary) &&
           (len == 0 || buffer_append(out, content, len)) && buffer_append_str(out, "\r\n");
}

bool multipart_close(buffer_t *out, const char *boundary)
{
    return buffer_printf(out, "--%s--\r\n", boundary);
}

/* --- the boundary --- */

static bool is_boundary(const char *text, size_t len)
{
    if (len == 0 || len > MULTIPART_BOUNDARY_MAX || text[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; ++i)
        if (!isalnum((unsigned char)text[i]) && strchr("'()+_,-./:=? ", text[i]) == NULL)
            return false;
    return true;
}

/* The value of the parameter at `at`, quoted or not; past it, or NULL when it is malformed. No value has an escape. */
static const char *parameter_value(const char *at, const char **value, size_t *len)
{
    if (*at == '"') {
        *value = ++at;
        *len = strcspn(at, "\"\\");
        return at[*len] == '"' ? at + *len + 1 : NULL;
    }
    *value = at;
    *len = strcspn(at, "; \t\"");
    return *len > 0 ? at + *len : NULL;
}

/* The parameter `name` of a header's value; false when it is missing or something before it is malformed. */
static bool find_parameter(const char *text, const char *name, const char **value, size_t *len)
{
    size_t name_len = strlen(name);
    for (const char *at = strchr(text, ';'); at != NULL && *at == ';';) {
        ++at;
        at += strspn(at, " \t");
        size_t key_len = strcspn(at, "=; \t\"");
        if (at[key_len] != '=')
            return false;
        bool is_it = key_len == name_len && strncasecmp(at, name, name_len) == 0;
        if ((at = parameter_value(at + key_len + 1, value, len)) == NULL)
            return false;
        if (is_it)
            return true;
        at += strspn(at, " \t");
    }
    return false;
}

static bool is_type(const char *text, const char *type)
{
    size_t len = strlen(type);
    return text != NULL && strncasecmp(text, type, len) == 0 && strchr("; \t", text[len]) != NULL;
}

static multipart_state_t fail(multipart_t *m, const char *problem)
{
    m->state = MULTIPART_BROKEN;
    m->problem = problem;
    return m->state;
}

void multipart_init(multipart_t *m, const char *content_type, const multipart_events_t *events, void *data)
{
    const char *boundary;
    size_t len;

    *m = (multipart_t){.events = events, .data = data, .state = MULTIPART_MORE, ._place = MULTIPART_AT_PREAMBLE};
    buffer_init(&m->_held, MULTIPART_JSON_MAX);
    if (!is_type(content_type, "multipart/mixed") || !find_parameter(content_type, "boundary", &boundary, &len) ||
        !is_boundary(boundary, len)) {
        fail(m, "the answer is not multipart/mixed");
        return;
    }
    m->_delimiter_len = (size_t)snprintf(m->_delimiter, sizeof(m->_delimiter), "\r\n--%.*s", (int)len, boundary);
    m->_matched = 2; /* the first one may stand at the very start */
}

void multipart_dispose(multipart_t *m)
{
    buffer_dispose(&m->_held);
}

/* --- a part --- */

static bool kind_of(const char *value, size_t len, part_kind_t *out)
{
    static const char *const names[PART_KINDS] = {"metadata", "content", "error", "stream-error"};
    for (int i = 0; i < PART_KINDS; ++i)
        if (strlen(names[i]) == len && memcmp(names[i], value, len) == 0) {
            *out = (part_kind_t)i;
            return true;
        }
    return false;
}

/* One header line without its end. */
static bool read_header(multipart_t *m, const char *line, bool *is_named)
{
    static const char disposition[] = "content-disposition:";
    const char *value;
    size_t len;

    if (strncasecmp(line, disposition, sizeof(disposition) - 1) != 0)
        return strchr(line, ':') != NULL && line[0] != ' ' && line[0] != '\t';
    if (*is_named || !find_parameter(line, "name", &value, &len) || !kind_of(value, len, &m->_kind))
        return false;
    *is_named = true;
    return true;
}

/* `_held` is the head with the empty line at its end. */
static multipart_state_t take_head(multipart_t *m)
{
    bool is_named = false;
    char *line = (char *)m->_held.base, *end;

    if (memchr(line, '\0', m->_held.len) != NULL)
        return fail(m, "a part's head is malformed");
    for (; (end = strstr(line, "\r\n")) != NULL && end != line; line = end + 2) {
        *end = '\0';
        if (!read_header(m, line, &is_named))
            return fail(m, "a part is of a kind that is not known");
    }
    if (!is_named)
        return fail(m, "a part has no name");
    buffer_clear(&m->_held);
    m->_place = MULTIPART_AT_BODY;
    m->_matched = 0;
    return MULTIPART_MORE;
}

static multipart_state_t stop(multipart_t *m)
{
    return m->state = MULTIPART_STOPPED;
}

static multipart_state_t body_bytes(multipart_t *m, const void *bytes, size_t len)
{
    if (len == 0)
        return MULTIPART_MORE;
    if (m->_kind == PART_CONTENT)
        return m->events->on_content(m->data, bytes, len, false) ? MULTIPART_MORE : stop(m);
    return buffer_append(&m->_held, bytes, len) ? MULTIPART_MORE : fail(m, "a part is too long");
}

static multipart_state_t body_end(multipart_t *m)
{
    bool goes_on = m->_kind == PART_CONTENT ? m->events->on_content(m->data, NULL, 0, true)
                                            : m->events->on_json(m->data, m->_kind, m->_held.base, m->_held.len);
    buffer_clear(&m->_held);
    return goes_on ? MULTIPART_MORE : stop(m);
}

/* --- the bytes --- */

static multipart_state_t plain_bytes(multipart_t *m, const void *bytes, size_t len)
{
    if (m->_place == MULTIPART_AT_BODY)
        return body_bytes(m, bytes, len);
    m->_preamble += len;
    return m->_preamble <= MULTIPART_PREAMBLE_MAX ? MULTIPART_MORE : fail(m, "the answer does not begin with a part");
}

/*
 * Up to and with the next delimiter; what of it was matched and turned out to be something else is given on. CR is
 * only at its start, so after a mismatch nothing but the present byte can begin one.
 */
static multipart_state_t take_until_delimiter(multipart_t *m, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *plain = *at;
    while (*at < end) {
        if (**at == (uint8_t)m->_delimiter[m->_matched]) {
            if (m->_matched++ == 0 && plain_bytes(m, plain, (size_t)(*at - plain)) != MULTIPART_MORE)
                return m->state;
            ++*at;
            plain = *at;
            if (m->_matched < m->_delimiter_len)
                continue;
            if (m->_place == MULTIPART_AT_BODY && body_end(m) != MULTIPART_MORE)
                return m->state;
            m->_place = MULTIPART_AT_DELIMITER;
            return MULTIPART_MORE;
        }
        if (m->_matched > 0) {
            size_t matched = m->_matched;
            m->_matched = 0;
            if (plain_bytes(m, m->_delimiter, matched) != MULTIPART_MORE)
                return m->state;
            plain = *at;
            continue; /* this byte again */
        }
        ++*at;
    }
    return m->_matched > 0 ? MULTIPART_MORE : plain_bytes(m, plain, (size_t)(end - plain));
}

/* "--" ends it all; else blanks and the end of the line. */
static multipart_state_t take_after_delimiter(multipart_t *m, uint8_t byte)
{
    if (!buffer_append(&m->_held, &byte, 1))
        return fail(m, "a delimiter's line is too long");
    const uint8_t *text = m->_held.base;
    size_t len = m->_held.len;
    if (len == 2 && text[0] == '-' && text[1] == '-') {
        m->_place = MULTIPART_AT_END;
        return m->state = MULTIPART_CLOSED;
    }
    if (text[0] == '-')
        return len == 1 ? MULTIPART_MORE : fail(m, "a delimiter is malformed");
    if (byte == '\n' && len >= 2 && text[len - 2] == '\r') {
        buffer_clear(&m->_held);
        m->_place = MULTIPART_AT_HEAD;
        return MULTIPART_MORE;
    }
    bool is_blank = byte == ' ' || byte == '\t', is_after_cr = len >= 2 && text[len - 2] == '\r';
    return (is_blank || byte == '\r') && !is_after_cr ? MULTIPART_MORE : fail(m, "a delimiter is malformed");
}

static bool is_head_whole(const buffer_t *head)
{
    return (head->len == 2 && memcmp(head->base, "\r\n", 2) == 0) ||
           (head->len >= 4 && memcmp(head->base + head->len - 4, "\r\n\r\n", 4) == 0);
}

static multipart_state_t take_head_byte(multipart_t *m, uint8_t byte)
{
    if (m->_held.len >= MULTIPART_HEAD_MAX || !buffer_append(&m->_held, &byte, 1))
        return fail(m, "a part's head is too long");
    if (byte == '\n' && (m->_held.len < 2 || m->_held.base[m->_held.len - 2] != '\r'))
        return fail(m, "a part's head is malformed");
    return is_head_whole(&m->_held) ? take_head(m) : MULTIPART_MORE;
}

multipart_state_t multipart_take(multipart_t *m, const void *bytes, size_t len)
{
    const uint8_t *at = bytes, *end = at + len;
    while (at < end && m->state == MULTIPART_MORE) {
        switch (m->_place) {
        case MULTIPART_AT_PREAMBLE:
        case MULTIPART_AT_BODY:
            take_until_delimiter(m, &at, end);
            break;
        case MULTIPART_AT_DELIMITER:
            take_after_delimiter(m, *at++);
            break;
        case MULTIPART_AT_HEAD:
            take_head_byte(m, *at++);
            break;
        case MULTIPART_AT_END:
            return m->state;
        }
    }
    return m->state;
}
