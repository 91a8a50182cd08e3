#include "config/option_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/mem.h"

static const struct {
    const char *suffix;
    int64_t ms;
} UNITS[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
enum { UNIT_COUNT = sizeof(UNITS) / sizeof(UNITS[0]) };

/* Decimal digits at *at into *value; false without any or past 64 bits. */
static bool take_number(const char **at, int64_t *value)
{
    const char *begin = *at;

    *value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, **at - '0', value))
            return false;
    return *at != begin;
}

static bool int_parse(const char *text, int64_t *value)
{
    bool negative = *text == '-';
    const char *at = text + negative;

    if (!take_number(&at, value) || *at != '\0')
        return false;
    if (negative)
        *value = -*value;
    return true;
}

static bool bool_parse(const char *text, int64_t *value)
{
    static const char *const words[2][4] = {{"0", "false", "no", "off"}, {"1", "true", "yes", "on"}};

    for (*value = 0; *value < 2; (*value)++)
        for (size_t i = 0; i < 4; i++)
            if (strcasecmp(text, words[*value][i]) == 0)
                return true;
    return false;
}

bool duration_parse(const char *text, int64_t *ms)
{
    size_t next_unit = 0;

    *ms = 0;
    if (strcmp(text, "0") == 0)
        return true;
    do {
        int64_t value;
        size_t unit = next_unit, width;

        if (!take_number(&text, &value))
            return false;
        width = strspn(text, "hms");
        /* "1m30s" has its letters apart, so a run of letters is one unit */
        while (unit < UNIT_COUNT &&
               (strlen(UNITS[unit].suffix) != width || strncmp(text, UNITS[unit].suffix, width) != 0))
            unit++;
        if (unit == UNIT_COUNT)
            return false;
        if (__builtin_mul_overflow(value, UNITS[unit].ms, &value) || __builtin_add_overflow(*ms, value, ms))
            return false;
        text += width;
        next_unit = unit + 1;
    } while (*text != '\0');
    return true;
}

const char *duration_format(int64_t ms, char out[DURATION_TEXT_MAX])
{
    int len = 0;

    if (ms == 0)
        strcpy(out, "0");
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        int64_t whole = ms / UNITS[i].ms;
        if (whole > 0)
            len += snprintf(out + len, (size_t)(DURATION_TEXT_MAX - len), "%" PRId64 "%s", whole, UNITS[i].suffix);
        ms %= UNITS[i].ms;
    }
    return out;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

char **list_split(const char *text)
{
    size_t words = 1, bytes = strlen(text) + 1;
    char **list, *at;

    for (const char *c = text; *c != '\0'; c++)
        words += *c == ',';
    list = mem_alloc((words + 1) * sizeof(list[0]) + bytes);
    at = memcpy((char *)(list + words + 1), text, bytes);
    for (size_t i = 0; i < words; i++) {
        char *end = at + strcspn(at, ","), *next = end + 1;
        while (at < end && is_blank(*at))
            at++;
        while (end > at && is_blank(end[-1]))
            end--;
        *end = '\0';
        list[i] = at;
        at = next;
    }
    return list;
}

static bool has_empty_word(const char *text)
{
    char **words = list_split(text);
    bool found = false;

    for (size_t i = 0; words[i] != NULL; i++)
        found = found || words[i][0] == '\0';
    free(words);
    return found;
}

/* A line break in a name or path would forge a log line, a help text or the environment of a role. */
static bool has_control_character(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if (*c < 0x20 || *c == 0x7f)
            return true;
    return false;
}

static bool is_metrics_off(option_id_t id, const char *text)
{
    return id == OPT_PLIMSOLL_METRICS_ADDR && strcasecmp(text, "off") == 0;
}

const char *option_type_name(option_type_t type)
{
    switch (type) {
    case OPTION_STRING:
        return "text";
    case OPTION_INT:
        return "whole number";
    case OPTION_BOOL:
        return "yes or no";
    case OPTION_DURATION:
        return "duration";
    case OPTION_ADDRESS:
        return "address";
    case OPTION_PATH:
        return "path";
    case OPTION_LIST:
        return "list";
    case OPTION_SECRET:
        return "secret";
    }
    return "";
}

const char *option_range(const option_t *option, char out[OPTION_RANGE_MAX])
{
    char low[DURATION_TEXT_MAX], high[DURATION_TEXT_MAX];

    out[0] = '\0';
    switch (option->type) {
    case OPTION_INT:
        snprintf(out, OPTION_RANGE_MAX, "%" PRId64 " to %" PRId64, option->min, option->max);
        break;
    case OPTION_DURATION:
        snprintf(out, OPTION_RANGE_MAX, "%s to %s", duration_format(option->min, low),
                 duration_format(option->max, high));
        break;
    case OPTION_BOOL:
        strcpy(out, "1 true yes on, or 0 false no off");
        break;
    case OPTION_ADDRESS:
        strcpy(out, "host:port, [IPv6]:port or :port");
        break;
    case OPTION_LIST:
        strcpy(out, "words separated by commas");
        break;
    case OPTION_STRING:
    case OPTION_PATH:
    case OPTION_SECRET:
        snprintf(out, OPTION_RANGE_MAX, "%" PRId64 " to %" PRId64 " bytes", option->min, option->max);
        break;
    }
    return out;
}

const char *option_text_parse(option_id_t id, const char *text, int64_t *number, char takes[OPTION_TAKES_MAX])
{
    const option_t *option = &OPTIONS[id];
    char range[OPTION_RANGE_MAX], host[256];
    int64_t len = (int64_t)strlen(text);
    uint16_t port;
    bool ok = false;

    *number = 0;
    option_range(option, range);
    switch (option->type) {
    case OPTION_INT:
        ok = int_parse(text, number) && *number >= option->min && *number <= option->max;
        snprintf(takes, OPTION_TAKES_MAX, "it takes a whole number from %s", range);
        break;
    case OPTION_DURATION:
        ok = duration_parse(text, number) && *number >= option->min && *number <= option->max;
        snprintf(takes, OPTION_TAKES_MAX, "it takes a duration such as 500ms, 30s or 1h30m, from %s", range);
        break;
    case OPTION_BOOL:
        ok = bool_parse(text, number);
        snprintf(takes, OPTION_TAKES_MAX, "it takes %s", range);
        break;
    case OPTION_ADDRESS:
        ok = address_parse(text, host, &port) || is_metrics_off(id, text);
        snprintf(takes, OPTION_TAKES_MAX, "it takes %s%s", range, id == OPT_PLIMSOLL_METRICS_ADDR ? ", or off" : "");
        break;
    case OPTION_LIST:
        ok = len <= option->max && !has_control_character(text) && !has_empty_word(text);
        snprintf(takes, OPTION_TAKES_MAX, "it takes words separated by commas, at most %" PRId64 " bytes", option->max);
        break;
    case OPTION_STRING:
    case OPTION_PATH:
        ok = len >= option->min && len <= option->max && !has_control_character(text);
        snprintf(takes, OPTION_TAKES_MAX, "it takes %s without control characters", range);
        break;
    case OPTION_SECRET:
        ok = len >= option->min && len <= option->max;
        snprintf(takes, OPTION_TAKES_MAX, "it takes %s", range);
        break;
    }
    return ok ? NULL : takes;
}
