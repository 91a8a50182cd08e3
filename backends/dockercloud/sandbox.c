#include "backends/dockercloud/sandbox.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/dockercloud/fields.h"

static const char NAME_START[] = "sandboxes/";

static const field_enum_t REST_STATUS[] = {
    {"creating", -1, DC_STATUS_PENDING},  {"starting", -1, DC_STATUS_PENDING},  {"running", -1, DC_STATUS_RUNNING},
    {"stopping", -1, DC_STATUS_STOPPING}, {"stopped", -1, DC_STATUS_STOPPED},   {"failed", -1, DC_STATUS_FAILED},
    {"deleting", -1, DC_STATUS_DELETING}, {"degraded", -1, DC_STATUS_DEGRADED},
};
/* The numbers of the first states are not known (spec 10.9). */
static const field_enum_t CONNECT_STATUS[] = {
    {"SANDBOX_STATUS_CREATING", -1, DC_STATUS_PENDING},  {"SANDBOX_STATUS_STARTING", -1, DC_STATUS_PENDING},
    {"SANDBOX_STATUS_RUNNING", 3, DC_STATUS_RUNNING},    {"SANDBOX_STATUS_STOPPING", 4, DC_STATUS_STOPPING},
    {"SANDBOX_STATUS_STOPPED", 5, DC_STATUS_STOPPED},    {"SANDBOX_STATUS_FAILED", 6, DC_STATUS_FAILED},
    {"SANDBOX_STATUS_DELETING", -1, DC_STATUS_DELETING}, {"SANDBOX_STATUS_DEGRADED", -1, DC_STATUS_DEGRADED},
};

const char *dc_status_name(dc_status_t status)
{
    static const char *const names[] = {"",       "pending",  "running",  "stopping", "stopped",
                                        "failed", "deleting", "degraded", "unknown"};
    return names[status];
}

bool dc_is_id(const char *text)
{
    size_t len = strlen(text);
    return len > 0 && len <= LEDGER_PROVIDER_ID_MAX && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == len;
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void read_status(const json_t *core, const field_enum_t *table, size_t count, dc_sandbox_t *out, bool *bad)
{
    int status = DC_STATUS_NONE;
    field_t field = field_enum(core, "status", table, count, &status);
    *bad |= field == FIELD_MALFORMED;
    if (field == FIELD_PRESENT)
        out->status = status == FIELD_ENUM_UNKNOWN ? DC_STATUS_OTHER : (dc_status_t)status;
}

static void read_resources(const json_t *core, dc_sandbox_t *out, bool *bad)
{
    const json_t *resources = field_object(core, "resources", bad);
    field_t cpus = field_u64(resources, "cpus", &out->cpus);
    field_t memory = field_u64(resources, "memoryMib", &out->memory_mib);
    *bad |= cpus == FIELD_MALFORMED || memory == FIELD_MALFORMED;
    out->has_resources = cpus == FIELD_PRESENT && memory == FIELD_PRESENT;
}

static void take_text(const json_t *object, const char *key, char *out, size_t size, bool *bad)
{
    *bad |= field_text(object, key, out, size) == FIELD_MALFORMED;
}

static bool is_word(const json_t *object, const char *key, const char *word)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL && strcmp(text, word) == 0;
}

static bool is_absent(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value == NULL || json_is_null(value);
}

/* --- REST --- */

static unsigned capabilities_of(const json_t *list)
{
    enum { LOOKED_AT = 64 };
    unsigned bits = 0;
    for (size_t i = 0; i < json_array_size(list) && i < LOOKED_AT; ++i) {
        const char *word = json_string_value(json_array_get(list, i));
        if (word == NULL)
            continue;
        bits |= strcmp(word, "exec") == 0       ? DC_CAN_EXEC
                : strcmp(word, "upload") == 0   ? DC_CAN_UPLOAD
                : strcmp(word, "download") == 0 ? DC_CAN_DOWNLOAD
                                                : 0;
    }
    return bits;
}

static void read_rest_endpoint(const json_t *core, dc_sandbox_t *out, bool *bad)
{
    const json_t *endpoint = field_object(core, "endpoint", bad);
    take_text(endpoint, "uri", out->uri, sizeof(out->uri), bad);
    take_text(endpoint, "credentialAudience", out->audience, sizeof(out->audience), bad);
    out->has_bad_protocol = !is_absent(endpoint, "protocol") && !is_word(endpoint, "protocol", "http");
    out->is_endpoint_ours = is_word(endpoint, "sandboxUid", out->id);
    out->is_v1 = is_word(endpoint, "apiVersion", "v1");
    out->is_scoped_bearer = is_word(field_object(endpoint, "authentication", bad), "scheme", "scopedBearer");
    out->capabilities = capabilities_of(field_array(endpoint, "capabilities", bad));
}

static void read_timeouts(const json_t *json, dc_sandbox_t *out, bool *bad)
{
    const json_t *timeouts = field_object(field_object(json, "effectiveFeatures", bad), "timeouts", bad);
    out->has_timeouts = timeouts != NULL;
    /* The service's own default (spec 2.2), which may therefore be left out. */
    out->is_deleted_on_timeout = is_absent(timeouts, "onTimeout") || is_word(timeouts, "onTimeout", "delete");
    *bad |= field_bool(timeouts, "autoResume", &out->is_auto_resumed) == FIELD_MALFORMED;
    *bad |= field_duration(timeouts, "initialTimeout", &out->timeout_ms) == FIELD_MALFORMED;
}

static void read_failure(const json_t *json, dc_sandbox_t *out)
{
    const json_t *failure = json_object_get(json, "failure");
    const char *code = json_string_value(json_object_get(failure, "code"));
    const char *message = json_string_value(json_object_get(failure, "message"));
    if (code != NULL || message != NULL)
        snprintf(out->failure, sizeof(out->failure), "%s%s%s", code != NULL ? code : "",
                 code != NULL && message != NULL ? ": " : "", message != NULL ? message : "");
}

static void read_rest(const json_t *json, dc_sandbox_t *out, bool *bad)
{
    const json_t *core = field_object(json, "core", bad);
    const char *resource = json_string_value(json_object_get(json, "name"));

    take_text(json, "displayName", out->name, sizeof(out->name), bad);
    out->is_resource_named = resource != NULL && strncmp(resource, NAME_START, sizeof(NAME_START) - 1) == 0 &&
                             strcmp(resource + sizeof(NAME_START) - 1, out->id) == 0;
    read_status(core, REST_STATUS, COUNT_OF(REST_STATUS), out, bad);
    take_text(core, "etag", out->etag, sizeof(out->etag), bad);
    take_text(core, "imageRef", out->image_ref, sizeof(out->image_ref), bad);
    read_resources(core, out, bad);
    read_rest_endpoint(core, out, bad);
    read_timeouts(json, out, bad);
    read_failure(json, out);
}

/* --- Connect --- */

static const field_enum_t CONNECT_PROTOCOL[] = {
    {"SANDBOX_ENDPOINT_PROTOCOL_UNSPECIFIED", 0, 0},
    {"SANDBOX_ENDPOINT_PROTOCOL_CONNECT", 1, 0},
};

static void read_connect(const json_t *json, dc_sandbox_t *out, bool *bad)
{
    const json_t *core = field_object(json, "core", bad);
    const json_t *endpoint = field_object(core, "endpoint", bad);
    int protocol = 0;

    take_text(core, "name", out->name, sizeof(out->name), bad);
    read_status(core, CONNECT_STATUS, COUNT_OF(CONNECT_STATUS), out, bad);
    read_resources(core, out, bad);
    take_text(endpoint, "uri", out->uri, sizeof(out->uri), bad);
    *bad |=
        field_enum(endpoint, "protocol", CONNECT_PROTOCOL, COUNT_OF(CONNECT_PROTOCOL), &protocol) == FIELD_MALFORMED;
    out->has_bad_protocol = protocol == FIELD_ENUM_UNKNOWN;
    take_text(field_object(json, "cloud", bad), "imageDigest", out->image_digest, sizeof(out->image_digest), bad);
    read_failure(json, out);
}

const char *dc_sandbox_read(dc_api_t api, const json_t *json, dc_sandbox_t *out)
{
    bool bad = false;
    *out = (dc_sandbox_t){.id = ""};
    field_t id = field_text(api == DC_REST ? json : json_object_get(json, "core"), api == DC_REST ? "uid" : "id",
                            out->id, sizeof(out->id));
    if (id == FIELD_MALFORMED || (id == FIELD_PRESENT && !dc_is_id(out->id))) {
        out->id[0] = '\0';
        return "the sandbox's ID is none";
    }
    if (id == FIELD_ABSENT)
        return "the sandbox has no ID";
    if (api == DC_REST)
        read_rest(json, out, &bad);
    else
        read_connect(json, out, &bad);
    return bad ? "the sandbox's description is malformed" : NULL;
}

/* --- what follows from it --- */

bool dc_sandbox_is_ready(const dc_sandbox_t *sandbox)
{
    return sandbox->status == DC_STATUS_RUNNING && sandbox->uri[0] != '\0';
}

bool dc_sandbox_is_over(const dc_sandbox_t *sandbox)
{
    switch (sandbox->status) {
    case DC_STATUS_STOPPING:
    case DC_STATUS_STOPPED:
    case DC_STATUS_FAILED:
    case DC_STATUS_DELETING:
    case DC_STATUS_DEGRADED:
        return true;
    default:
        return false;
    }
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t len = strlen(text), suffix_len = strlen(suffix);
    return len > suffix_len && strcasecmp(text + len - suffix_len, suffix) == 0;
}

/* Where a credential of ours would go next. */
static const char *endpoint_problem(const dc_settings_t *settings, const dc_sandbox_t *sandbox)
{
    char host[BASE_URL_HOST_MAX + 1];
    if (sandbox->has_bad_protocol)
        return "the sandbox's endpoint has another protocol";
    if (base_url_problem(sandbox->uri) != NULL)
        return "the sandbox's endpoint is no URL that a credential may go to";
    /* A service elsewhere has no business with this machine's own listeners. */
    if (base_url_is_loopback(sandbox->uri) && !base_url_is_loopback(settings->api_url))
        return "the sandbox's endpoint is on this machine";
    base_url_host(sandbox->uri, host);
    if (settings->endpoint_suffix[0] != '\0' && !has_suffix(host, settings->endpoint_suffix))
        return "the sandbox's endpoint is not under SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX";
    if (settings->api != DC_REST)
        return NULL;
    if (!sandbox->is_endpoint_ours)
        return "the endpoint is another sandbox's";
    if (!sandbox->is_v1 || !sandbox->is_scoped_bearer)
        return "the sandbox's endpoint is of another version";
    if (sandbox->capabilities != DC_CAN_ALL)
        return "the sandbox's endpoint lacks exec, upload or download";
    return NULL;
}

static const char *resources_problem(const dc_settings_t *settings, const dc_sandbox_t *sandbox)
{
    if (!sandbox->has_resources || sandbox->cpus == 0 || sandbox->memory_mib == 0)
        return "the sandbox's size is not told";
    if (sandbox->cpus > settings->size.cpus || sandbox->memory_mib > settings->size.memory_mib)
        return "the sandbox is larger than was asked for";
    return NULL;
}

/* REST tells only what it was asked for; Connect what booted. */
static const char *image_problem(const dc_settings_t *settings, const dc_sandbox_t *sandbox)
{
    const char *told = sandbox->image_digest;
    if (settings->digest[0] == '\0')
        return NULL;
    if (settings->api == DC_REST) {
        const char *at = strrchr(sandbox->image_ref, '@');
        told = at != NULL ? at + 1 : "";
    }
    if (told[0] == '\0')
        return "the sandbox's image is not told";
    return strcasecmp(told, settings->digest) == 0 ? NULL : "the sandbox runs another image";
}

static const char *timeouts_problem(const dc_sandbox_t *sandbox, uint64_t life_ms)
{
    if (!sandbox->has_timeouts)
        return NULL;
    if (!sandbox->is_deleted_on_timeout || sandbox->is_auto_resumed)
        return "the sandbox would outlive its time";
    /* asked for in whole seconds, rounded up */
    return sandbox->timeout_ms < life_ms + 1000 ? NULL : "the sandbox has more time than was asked for";
}

dc_match_t dc_sandbox_match(const dc_settings_t *settings, const char *name, uint64_t life_ms,
                            const dc_sandbox_t *sandbox, const char **why)
{
    if (strcmp(sandbox->name, name) != 0) {
        *why = "the sandbox has another name";
        return DC_NOT_OURS;
    }
    if (settings->api == DC_REST && !sandbox->is_resource_named)
        *why = "the sandbox's name and ID differ";
    else if ((*why = endpoint_problem(settings, sandbox)) == NULL &&
             (*why = resources_problem(settings, sandbox)) == NULL && (*why = image_problem(settings, sandbox)) == NULL)
        *why = timeouts_problem(sandbox, life_ms);
    return *why == NULL ? DC_SAME : DC_DIFFERENT;
}
