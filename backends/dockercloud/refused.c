#include "backends/dockercloud/refused.h"

#include <string.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/fields.h"

const char *dc_code_name(code_t code)
{
    return code < CODE_COUNT ? code_name(code) : "none";
}

bool dc_code_is_unsure(code_t code)
{
    switch (code) {
    case CODE_UNKNOWN:
    case CODE_INTERNAL:
    case CODE_UNAVAILABLE:
    case CODE_DEADLINE_EXCEEDED:
    case CODE_ABORTED:
    case CODE_CANCELED:
    case CODE_DATA_LOSS:
    case CODE_ALREADY_EXISTS:
        return true;
    default:
        return false;
    }
}

/* "notFound" for "not_found": REST writes them so. */
static bool is_camel_of(const char *text, const char *snake)
{
    for (; *snake != '\0'; ++snake, ++text) {
        bool is_hump = *snake == '_';
        snake += is_hump;
        if (*text != (is_hump ? *snake - 'a' + 'A' : *snake))
            return false;
    }
    return *text == '\0';
}

/* A code of a later version is unknown, as is "ok" on an error. Numbers are google.rpc.Code's, which has "ok" first. */
static code_t code_of(const json_t *value)
{
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        return number > 0 && number <= CODE_COUNT ? (code_t)(number - 1) : CODE_UNKNOWN;
    }
    for (code_t code = 0; text != NULL && code < CODE_COUNT; ++code)
        if (strcmp(text, code_name(code)) == 0 || is_camel_of(text, code_name(code)))
            return code;
    return CODE_UNKNOWN;
}

/* Cut between characters. */
static void copy_text(const json_t *value, char *out, size_t size)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    if (text == NULL)
        return;
    if (len >= size) {
        len = size - 1;
        while (len > 0 && (text[len] & 0xc0) == 0x80)
            --len;
    }
    memcpy(out, text, len);
    out[len] = '\0';
}

static bool is_type(const json_t *detail, const char *name)
{
    const char *type = json_string_value(json_object_get(detail, "@type"));
    /* A unary error of Connect names it without a prefix, as "type". */
    if (type == NULL)
        type = json_string_value(json_object_get(detail, "type"));
    const char *end = type != NULL ? strrchr(type, '/') : NULL;
    return type != NULL && strcmp(end != NULL ? end + 1 : type, name) == 0;
}

static void read_details(const json_t *details, dc_refused_t *out)
{
    enum { DETAILS_MAX = 32 };
    for (size_t i = 0; i < json_array_size(details) && i < DETAILS_MAX; ++i) {
        const json_t *detail = json_array_get(details, i);
        uint64_t ms;
        if (is_type(detail, "google.rpc.ErrorInfo"))
            field_text(detail, "reason", out->reason, sizeof(out->reason));
        else if (is_type(detail, "google.rpc.QuotaFailure"))
            out->is_quota = true;
        else if (is_type(detail, "google.rpc.RetryInfo") && field_duration(detail, "retryDelay", &ms) == FIELD_PRESENT)
            out->retry_after_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    }
}

bool dc_refused_of(const json_t *error, dc_refused_t *out)
{
    const json_t *code = json_object_get(error, "code");
    *out = (dc_refused_t){.code = CODE_UNKNOWN};
    if (!json_is_string(code) && !json_is_integer(code))
        return false;
    out->code = code_of(code);
    out->is_told = true;
    copy_text(json_object_get(error, "message"), out->message, sizeof(out->message));
    read_details(json_object_get(error, "details"), out);
    return true;
}

bool dc_is_error(const json_t *json)
{
    return json_object_get(json, "code") != NULL;
}

/* A 404 nobody signed is a route that is not served, never "the sandbox is gone". */
static code_t code_of_status(dc_api_t api, int status)
{
    switch (status) {
    case 400:
        return api == DC_REST ? CODE_INVALID_ARGUMENT : CODE_INTERNAL;
    case 401:
        return CODE_UNAUTHENTICATED;
    case 403:
        return CODE_PERMISSION_DENIED;
    case 404:
    case 501:
        return CODE_UNIMPLEMENTED;
    case 409:
        return api == DC_REST ? CODE_ABORTED : CODE_UNKNOWN;
    case 412:
    case 428:
        return api == DC_REST ? CODE_FAILED_PRECONDITION : CODE_UNKNOWN;
    case 429:
        return api == DC_REST ? CODE_RESOURCE_EXHAUSTED : CODE_UNAVAILABLE;
    case 502:
    case 503:
    case 504:
        return CODE_UNAVAILABLE;
    default:
        return CODE_UNKNOWN;
    }
}

void dc_refused_read(dc_api_t api, int status, const void *body, size_t len, dc_refused_t *out)
{
    const char *why;
    json_t *json = len <= REFUSED_BODY_MAX ? cloud_json_read(body, len, &why) : NULL;
    if (!dc_refused_of(json, out))
        out->code = code_of_status(api, status);
    json_decref(json);
}
