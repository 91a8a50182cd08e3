#include "backends/docker/engine_json.h"

#include "core/json_load.h"

json_t *engine_json_read(const void *bytes, size_t len, const char **why)
{
    static const char *const whys[] = {[JSON_LOAD_EMPTY] = "the answer has no body",
                                       [JSON_LOAD_TOO_DEEP] = "the answer's JSON is nested too deep",
                                       [JSON_LOAD_TOO_MANY] = "the answer's JSON has too many values",
                                       [JSON_LOAD_MALFORMED] = "the answer is not JSON"};
    json_load_t result;
    json_t *json = json_load_bounded(bytes, len, ENGINE_JSON_DEPTH_MAX, ENGINE_JSON_VALUES_MAX, &result);
    *why = whys[result];
    return json;
}

const char *engine_json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}
