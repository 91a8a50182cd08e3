#include "backends/cloud/cloud_json.h"

#include <stdlib.h>
#include <string.h>

#include "core/json_load.h"
#include "core/protojson.h"

enum { PATH_MAX_BYTES = 128, DECIMAL_MAX = 20 /* of UINT64_MAX */ };

static json_t *load(const void *bytes, size_t len, const char **why)
{
    static const char *const whys[] = {[JSON_LOAD_EMPTY] = "it has no body",
                                       [JSON_LOAD_TOO_DEEP] = "its JSON is nested too deep",
                                       [JSON_LOAD_TOO_MANY] = "its JSON has too many values",
                                       [JSON_LOAD_MALFORMED] = "it is not JSON"};
    json_load_t result;
    json_t *json = json_load_bounded(bytes, len, CLOUD_JSON_DEPTH_MAX, CLOUD_JSON_VALUES_MAX, &result);
    *why = whys[result];
    return json;
}

json_t *cloud_json_read(const void *bytes, size_t len, const char **why)
{
    json_t *json = load(bytes, len, why);
    if (json == NULL || json_is_object(json))
        return json;
    *why = "it is not a JSON object";
    json_decref(json);
    return NULL;
}

json_t *cloud_json_read_list(const void *bytes, size_t len, const char **why)
{
    json_t *json = load(bytes, len, why);
    if (json == NULL || json_is_array(json))
        return json;
    *why = "it is not a JSON array";
    json_decref(json);
    return NULL;
}

const char *cloud_json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const json_t *cloud_json_at(const json_t *object, const char *path)
{
    char key[PATH_MAX_BYTES];
    while (object != NULL && *path != '\0') {
        size_t len = strcspn(path, ".");
        if (len >= sizeof(key))
            return NULL;
        memcpy(key, path, len);
        key[len] = '\0';
        object = json_object_get(object, key);
        path += len + (path[len] == '.');
    }
    return object;
}

static bool decimal(const char *text, size_t max_len, uint64_t max, uint64_t *out)
{
    size_t len = strnlen(text, max_len + 1);
    uint64_t value = 0;
    if (len == 0 || len > max_len || strspn(text, "0123456789") != len || (len > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < len; ++i) {
        unsigned digit = (unsigned)(text[i] - '0');
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool cloud_json_u64(const json_t *value, uint64_t *out)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    const char *text = json_string_value(value);
    return text != NULL && decimal(text, DECIMAL_MAX, UINT64_MAX, out);
}

bool cloud_json_i64(const json_t *value, int64_t *out)
{
    uint64_t size;
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    const char *text = json_string_value(value);
    if (text == NULL)
        return false;
    if (text[0] != '-') {
        if (!decimal(text, DECIMAL_MAX, INT64_MAX, &size))
            return false;
        *out = (int64_t)size;
        return true;
    }
    if (!decimal(text + 1, DECIMAL_MAX, (uint64_t)INT64_MAX + 1, &size) || size == 0)
        return false;
    *out = (int64_t)(0 - size);
    return true;
}

bool cloud_json_bytes(const json_t *value, size_t max, buffer_t *out)
{
    size_t len;
    if (value == NULL || json_is_null(value))
        return true;
    if (!json_is_string(value) || json_string_length(value) / 4 > max / 3 + 1)
        return false;
    uint8_t *bytes = base64_decode(json_string_value(value), json_string_length(value), &len);
    bool fits = bytes != NULL && len <= max && buffer_append(out, bytes, len);
    free(bytes);
    return fits;
}

bool cloud_json_quote(buffer_t *out, const char *text)
{
    return protojson_print_string(out, text, strlen(text));
}

static int append(const char *bytes, size_t len, void *data)
{
    return buffer_append(data, bytes, len) ? 0 : -1;
}

bool cloud_json_write(buffer_t *out, const json_t *value)
{
    size_t before = out->len;
    if (json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0)
        return true;
    out->len = before;
    if (out->base != NULL)
        out->base[before] = '\0';
    return false;
}
