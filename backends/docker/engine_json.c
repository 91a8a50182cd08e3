#include "backends/docker/engine_json.h"

#include <stdbool.h>

/* Where the string that begins at `at` ends: after its closing quote, or at `end`. */
static const char *string_end(const char *at, const char *end)
{
    for (++at; at < end && *at != '"'; ++at)
        if (*at == '\\' && at + 1 < end)
            ++at;
    return at < end ? at + 1 : end;
}

/* Counts by brackets and commas alone: whatever else is wrong with the text, the parser finds. */
static const char *size_problem(const char *at, size_t len)
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
            if (++depth > ENGINE_JSON_DEPTH_MAX)
                return "the answer's JSON is nested too deep";
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
        if (values > ENGINE_JSON_VALUES_MAX)
            return "the answer's JSON has too many values";
        ++at;
    }
    return NULL;
}

json_t *engine_json_read(const void *bytes, size_t len, const char **why)
{
    if (len == 0) {
        *why = "the answer has no body";
        return NULL;
    }
    if ((*why = size_problem(bytes, len)) != NULL)
        return NULL;
    json_t *json = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL)
        *why = "the answer is not JSON";
    return json;
}

const char *engine_json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}
