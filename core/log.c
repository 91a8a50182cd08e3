#include "core/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"

static char log_role[32] = "plimsoll";
static log_format_t log_format = LOG_FORMAT_JSON;
static log_level_t log_min = LOG_INFO;
static int log_fd = STDERR_FILENO;

/* One line, built on the stack: logging must work when memory does not. */
typedef struct {
    char *base;
    size_t len, cap;
    int full;
} line_t;

static void line_add(line_t *l, const char *s, size_t n)
{
    if (n > l->cap - l->len) {
        l->full = 1;
        return;
    }
    memcpy(l->base + l->len, s, n);
    l->len += n;
}

static void line_str(line_t *l, const char *s)
{
    line_add(l, s, strlen(s));
}

/* Length of the valid UTF-8 sequence at s, or 0. */
static size_t sequence_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        return left >= 2 && (s[1] & 0xc0) == 0x80 ? 2 : 0;
    if ((s[0] & 0xf0) == 0xe0) {
        if (left < 3 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80)
            return 0;
        if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))
            return 0;
        return 3;
    }
    if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        if (left < 4 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80 || (s[3] & 0xc0) != 0x80)
            return 0;
        if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

static void line_quoted(line_t *l, const char *base, size_t len)
{
    const unsigned char *s = (const unsigned char *)base;
    if (len > LOG_VALUE_MAX)
        len = LOG_VALUE_MAX;
    line_add(l, "\"", 1);
    for (size_t i = 0; i < len;) {
        char esc[8];
        size_t n = sequence_length(s + i, len - i);
        if (s[i] == '"' || s[i] == '\\') {
            esc[0] = '\\';
            esc[1] = (char)s[i];
            line_add(l, esc, 2);
            i++;
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            snprintf(esc, sizeof(esc), "\\u%04x", s[i]);
            line_add(l, esc, 6);
            i++;
        } else if (n == 0) {
            line_add(l, "\\ufffd", 6);
            i++;
        } else {
            line_add(l, (const char *)s + i, n);
            i += n;
        }
    }
    line_add(l, "\"", 1);
}

log_field_t log_str(const char *key, const char *value)
{
    return log_strn(key, value, value != NULL ? strlen(value) : 0);
}

log_field_t log_strn(const char *key, const char *base, size_t len)
{
    return (log_field_t){.type = LOG_F_STR, .key = key, .str = {base != NULL ? base : "", base != NULL ? len : 0}};
}

log_field_t log_int(const char *key, int64_t value)
{
    return (log_field_t){.type = LOG_F_INT, .key = key, .i = value};
}

log_field_t log_uint(const char *key, uint64_t value)
{
    return (log_field_t){.type = LOG_F_UINT, .key = key, .u = value};
}

log_field_t log_bool(const char *key, int value)
{
    return (log_field_t){.type = LOG_F_BOOL, .key = key, .b = value};
}

log_field_t log_double(const char *key, double value)
{
    return (log_field_t){.type = LOG_F_DOUBLE, .key = key, .d = value};
}

void log_init(const char *role, log_format_t format, log_level_t min)
{
    snprintf(log_role, sizeof(log_role), "%s", role);
    log_format = format;
    log_min = min;
}

log_level_t log_level_parse(const char *name)
{
    if (name != NULL && strcmp(name, "debug") == 0)
        return LOG_DEBUG;
    if (name != NULL && strcmp(name, "warn") == 0)
        return LOG_WARN;
    if (name != NULL && strcmp(name, "error") == 0)
        return LOG_ERROR;
    return LOG_INFO;
}

void log_set_fd(int fd)
{
    log_fd = fd;
}

static void line_value(line_t *l, const log_field_t *f)
{
    char number[40];
    switch (f->type) {
    case LOG_F_STR:
        line_quoted(l, f->str.base, f->str.len);
        return;
    case LOG_F_INT:
        snprintf(number, sizeof(number), "%lld", (long long)f->i);
        break;
    case LOG_F_UINT:
        snprintf(number, sizeof(number), "%llu", (unsigned long long)f->u);
        break;
    case LOG_F_BOOL:
        snprintf(number, sizeof(number), "%s", f->b ? "true" : "false");
        break;
    case LOG_F_DOUBLE:
        if (isfinite(f->d))
            snprintf(number, sizeof(number), "%.6g", f->d);
        else
            snprintf(number, sizeof(number), "null");
        break;
    }
    line_str(l, number);
}

static void line_field(line_t *l, const log_field_t *f)
{
    if (log_format == LOG_FORMAT_JSON) {
        line_str(l, ",\"");
        line_str(l, f->key);
        line_str(l, "\":");
    } else {
        line_str(l, " ");
        line_str(l, f->key);
        line_str(l, "=");
    }
    line_value(l, f);
}

static void line_time(line_t *l)
{
    int64_t now = clock_wall_ms();
    time_t seconds = (time_t)(now / 1000);
    struct tm tm;
    char text[40], whole[32];
    gmtime_r(&seconds, &tm);
    strftime(whole, sizeof(whole), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text), "%s.%03dZ", whole, (int)(now % 1000));
    line_str(l, text);
}

void log_write(log_level_t level, const char *event, const log_field_t *fields, size_t count)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    enum { TAIL_ROOM = 64 };
    if (level < log_min)
        return;
    char text[LOG_LINE_MAX];
    line_t l = {.base = text, .cap = sizeof(text) - TAIL_ROOM};
    size_t dropped = 0;
    if (log_format == LOG_FORMAT_JSON) {
        line_str(&l, "{\"time\":\"");
        line_time(&l);
        line_str(&l, "\",\"level\":\"");
        line_str(&l, levels[level]);
        line_str(&l, "\",\"role\":\"");
        line_str(&l, log_role);
        line_str(&l, "\",\"msg\":");
        line_quoted(&l, event, strlen(event));
    } else {
        line_time(&l);
        line_str(&l, " ");
        line_str(&l, levels[level]);
        line_str(&l, " ");
        line_str(&l, log_role);
        line_str(&l, ": ");
        line_str(&l, event);
    }
    for (size_t i = 0; i < count; i++) {
        size_t before = l.len;
        line_field(&l, &fields[i]);
        if (l.full) {
            l.len = before;
            l.full = 0;
            dropped++;
        }
    }
    l.cap = sizeof(text);
    if (dropped != 0) {
        log_field_t f = log_uint("fields_dropped", dropped);
        line_field(&l, &f);
    }
    line_str(&l, log_format == LOG_FORMAT_JSON ? "}\n" : "\n");
    size_t off = 0;
    while (off < l.len) {
        ssize_t n = write(log_fd, text + off, l.len - off);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere left to say so */
        off += (size_t)n;
    }
}
