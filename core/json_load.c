#include "core/json_load.h"

/* Where the string that begins at `at` ends: after its closing quote, or at `end`. */
static const char *string_end(const char *at, const char *end)
{
    for (++at; at < end && *at != '"'; ++at)
        if (*at == '\\' && at + 1 < end)
            ++at;
    return at < end ? at + 1 : end;
}

/* Counts by brackets and commas alone: whatever else is wrong with the text, the parser finds. */
static json_load_t size_problem(const char *at, size_t len, size_t depth_max, size_t values_max)
{
    size_t depth = 0, values = 1;
    for (const char *end = at + len; at < end;) {
        switch (*at) {
        case '"':
            at = string_end(at, end);
            continue;
        case '[':
        case '{':
            ++values;
            if (++depth > depth_max)
                return JSON_LOAD_TOO_DEEP;
            break;
        case ']':
        case '}':
            if (depth > 0)
                --depth;
            break;
        case ',':
            ++values;
            break;
        default:
            break;
        }
        if (values > values_max)
            return JSON_LOAD_TOO_MANY;
        ++at;
    }
    return JSON_LOAD_DONE;
}

json_t *json_load_bounded(const void *bytes, size_t len, size_t depth_max, size_t values_max, json_load_t *result)
{
    *result = len == 0 ? JSON_LOAD_EMPTY : size_problem(bytes, len, depth_max, values_max);
    if (*result != JSON_LOAD_DONE)
        return NULL;
    json_t *json = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL)
        *result = JSON_LOAD_MALFORMED;
    return json;
}
