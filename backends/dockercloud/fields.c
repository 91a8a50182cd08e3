#include "backends/dockercloud/fields.h"

#include <string.h>

#include "config/rfc3339.h"
#include "core/json_number.h"

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool is_digits(const char *text)
{
    size_t len = strlen(text);
    return len > 0 && strspn(text, "0123456789") == len;
}

field_t field_u64(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return FIELD_ABSENT;
    if (json_is_integer(value)) {
        if (json_integer_value(value) < 0)
            return FIELD_MALFORMED;
        *out = (uint64_t)json_integer_value(value);
        return FIELD_PRESENT;
    }
    const char *text = json_string_value(value);
    uint64_t number;
    if (text == NULL || !is_digits(text) || json_number_u64(text, strlen(text), UINT64_MAX, &number) != NUMBER_OK)
        return FIELD_MALFORMED;
    *out = number;
    return FIELD_PRESENT;
}

field_t field_bool(const json_t *object, const char *key, bool *out)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return FIELD_ABSENT;
    if (!json_is_boolean(value))
        return FIELD_MALFORMED;
    *out = json_is_true(value);
    return FIELD_PRESENT;
}

static bool is_printable(const char *text, size_t len)
{
    for (size_t i = 0; i < len; ++i)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    return true;
}

field_t field_text(const json_t *object, const char *key, char *out, size_t size)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return FIELD_ABSENT;
    size_t len = json_string_length(value);
    if (!json_is_string(value) || len >= size || !is_printable(json_string_value(value), len))
        return FIELD_MALFORMED;
    if (len == 0)
        return FIELD_ABSENT;
    memcpy(out, json_string_value(value), len + 1);
    return FIELD_PRESENT;
}

bool field_duration_parse(const char *text, uint64_t *out_ms)
{
    enum { SECONDS_MAX = 315576000, FRACTION_MAX = 9 }; /* 10 years */
    size_t whole = strspn(text, "0123456789"), fraction = 0;
    uint64_t seconds, nanoseconds = 0;

    if (whole == 0 || json_number_u64(text, whole, SECONDS_MAX, &seconds) != NUMBER_OK)
        return false;
    const char *at = text + whole;
    if (*at == '.') {
        fraction = strspn(++at, "0123456789");
        if (fraction == 0 || fraction > FRACTION_MAX)
            return false;
        for (size_t i = 0; i < FRACTION_MAX; ++i)
            nanoseconds = nanoseconds * 10 + (i < fraction ? (uint64_t)(at[i] - '0') : 0);
        at += fraction;
    }
    if (strcmp(at, "s") != 0)
        return false;
    *out_ms = seconds * 1000 + (nanoseconds + 999999) / 1000000;
    return true;
}

field_t field_duration(const json_t *object, const char *key, uint64_t *out_ms)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return FIELD_ABSENT;
    return json_is_string(value) && field_duration_parse(json_string_value(value), out_ms) ? FIELD_PRESENT
                                                                                           : FIELD_MALFORMED;
}

field_t field_time(const json_t *object, const char *key, int64_t *out_ms)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return FIELD_ABSENT;
    return json_is_string(value) && rfc3339_parse(json_string_value(value), json_string_length(value), out_ms)
               ? FIELD_PRESENT
               : FIELD_MALFORMED;
}

field_t field_enum(const json_t *object, const char *key, const field_enum_t *table, size_t count, int *out)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return FIELD_ABSENT;
    if (!json_is_integer(value) && !json_is_string(value))
        return FIELD_MALFORMED;
    *out = FIELD_ENUM_UNKNOWN;
    for (size_t i = 0; i < count; ++i) {
        bool is_same = json_is_string(value) ? strcmp(json_string_value(value), table[i].name) == 0
                                             : table[i].number >= 0 && json_integer_value(value) == table[i].number;
        if (is_same)
            *out = table[i].value;
    }
    return FIELD_PRESENT;
}

const json_t *field_object(const json_t *object, const char *key, bool *is_malformed)
{
    const json_t *value = member(object, key);
    if (value != NULL && !json_is_object(value))
        *is_malformed = true;
    return json_is_object(value) ? value : NULL;
}

const json_t *field_array(const json_t *object, const char *key, bool *is_malformed)
{
    const json_t *value = member(object, key);
    if (value != NULL && !json_is_array(value))
        *is_malformed = true;
    return json_is_array(value) ? value : NULL;
}
