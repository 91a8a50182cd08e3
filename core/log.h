/*
 * One JSON object a line on stderr (or `key=value` text on request). A line is an event name and typed fields, so
 * nothing is ever formatted into prose and a secret has no way in: there is no field type for one. Caller-controlled
 * strings are escaped and cut at LOG_VALUE_MAX bytes. Thread-safe; one write(2) a line.
 */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include <stddef.h>
#include <stdint.h>

typedef enum { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR } log_level_t;
typedef enum { LOG_FORMAT_JSON, LOG_FORMAT_TEXT } log_format_t;

enum {
    LOG_VALUE_MAX = 4096, /* bytes of one string value that reach the log */
    LOG_LINE_MAX = 16384, /* bytes of one line; fields past it are dropped and counted in `fields_dropped` */
};

typedef struct {
    enum { LOG_F_STR, LOG_F_INT, LOG_F_UINT, LOG_F_BOOL, LOG_F_DOUBLE } type;
    const char *key; /* a literal: [a-z0-9_]+ */
    union {
        struct {
            const char *base;
            size_t len;
        } str;
        int64_t i;
        uint64_t u;
        int b;
        double d;
    };
} log_field_t;

/* NULL strings are logged as "". */
log_field_t log_str(const char *key, const char *value);
log_field_t log_strn(const char *key, const char *base, size_t len);
log_field_t log_int(const char *key, int64_t value);
log_field_t log_uint(const char *key, uint64_t value);
log_field_t log_bool(const char *key, int value);
log_field_t log_double(const char *key, double value);

/* `role` is copied and stamped on every line (e.g. "front"). Lines below `min` are dropped. */
void log_init(const char *role, log_format_t format, log_level_t min);
/* "debug", "info", "warn", "error"; LOG_INFO for anything else, NULL too. */
log_level_t log_level_parse(const char *name);
/* Where lines go; default stderr (2). */
void log_set_fd(int fd);
void log_write(log_level_t level, const char *event, const log_field_t *fields, size_t count);

#define log_event(level, event, ...)                                                                                   \
    do {                                                                                                               \
        const log_field_t log_fields_[] = {__VA_ARGS__};                                                               \
        log_write((level), (event), log_fields_, sizeof(log_fields_) / sizeof(log_fields_[0]));                        \
    } while (0)
#define log_plain(level, event) log_write((level), (event), NULL, 0)

#endif
