#include "backends/dockercloud/answers.h"

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/fields.h"
#include "core/protojson.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* --- operations --- */

const char *dc_operation_read(const json_t *json, dc_operation_t *out)
{
    bool bad = false;
    *out = (dc_operation_t){.id = ""};
    if (!json_is_object(json))
        return "the operation is none";
    bad |= field_text(json, "id", out->id, sizeof(out->id)) == FIELD_MALFORMED;
    bad |= field_bool(json, "done", &out->is_done) == FIELD_MALFORMED;
    const json_t *error = field_object(json, "error", &bad), *response = field_object(json, "response", &bad);
    if (bad)
        return "the operation is malformed";
    if (error != NULL) {
        /* An error is one, whether the flag beside it is set or not. */
        out->is_done = out->has_failed = true;
        dc_refused_of(error, &out->refused);
        return response == NULL ? NULL : "the operation has both failed and succeeded";
    }
    if (out->is_done)
        out->response = response;
    else if (out->id[0] == '\0')
        return "the operation is not done and has no ID";
    return NULL;
}

/* --- policy --- */

enum { MODE_ALLOW_ALL = 1, MODE_DENY_ALL = 2 };

static const field_enum_t REST_MODES[] = {{"allowAll", -1, MODE_ALLOW_ALL}, {"denyAll", -1, MODE_DENY_ALL}};
static const field_enum_t CONNECT_MODES[] = {
    {"NETWORK_POLICY_MODE_ALLOW_ALL", 1, MODE_ALLOW_ALL},
    {"NETWORK_POLICY_MODE_DENY_ALL", 2, MODE_DENY_ALL},
};

const char *dc_policy_problem(dc_api_t api, const json_t *json)
{
    bool bad = false;
    int mode = 0;
    const json_t *policy = api == DC_REST ? field_object(json, "effective", &bad) : json;
    if (!json_is_object(policy) || bad)
        return "the network policy could not be read";
    field_t field = api == DC_REST ? field_enum(policy, "mode", REST_MODES, COUNT_OF(REST_MODES), &mode)
                                   : field_enum(policy, "mode", CONNECT_MODES, COUNT_OF(CONNECT_MODES), &mode);
    if (field != FIELD_PRESENT)
        return "the network policy has no mode";
    if (mode != MODE_DENY_ALL)
        return "the network policy is not deny-all";
    const json_t *allowed = field_array(policy, "allowNetworks", &bad);
    if (bad)
        return "the network policy's allow list is malformed";
    return json_array_size(allowed) == 0 ? NULL : "the network policy lets something through";
}

/* --- credentials --- */

/* What a header's value may hold, so that nothing else can be smuggled behind it: RFC 6750's b64token. */
static bool is_bearer(const char *text, size_t len)
{
    return len > 0 && len <= DC_TOKEN_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") == len;
}

static bool holds(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list) && i < DC_PERMISSIONS_MAX; ++i) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text != NULL && strcmp(text, word) == 0)
            return true;
    }
    return false;
}

static const char *credential_life(const json_t *json, int64_t asked_wall_ms, uint64_t *out_ms)
{
    int64_t end_ms = 0;
    *out_ms = DC_CREDENTIAL_MS;
    switch (field_time(json, "expireTime", &end_ms)) {
    case FIELD_ABSENT:
        return NULL;
    case FIELD_MALFORMED:
        return "the endpoint credential's end is malformed";
    case FIELD_PRESENT:
        break;
    }
    if (end_ms <= asked_wall_ms)
        *out_ms = 0;
    else if ((uint64_t)(end_ms - asked_wall_ms) < *out_ms)
        *out_ms = (uint64_t)(end_ms - asked_wall_ms);
    return NULL;
}

const char *dc_credential_read(const json_t *json, const dc_sandbox_t *sandbox, int64_t asked_wall_ms,
                               dc_credential_t *out)
{
    static const char *const needed[] = {"sandboxesExec", "sandboxesFilesWrite", "sandboxesFilesRead"};
    char audience[DC_AUDIENCE_MAX + 1] = "", owner[LEDGER_PROVIDER_ID_MAX + 16] = "";
    const json_t *token = json_object_get(json, "token");
    bool bad = false;

    *out = (dc_credential_t){.life_ms = 0};
    if (!json_is_string(token) || !is_bearer(json_string_value(token), json_string_length(token)))
        return "the endpoint credential is none";
    if (field_text(json, "sandbox", owner, sizeof(owner)) == FIELD_MALFORMED ||
        field_text(json, "audience", audience, sizeof(audience)) == FIELD_MALFORMED)
        return "the endpoint credential's description is malformed";
    if (owner[0] != '\0' && (strncmp(owner, "sandboxes/", 10) != 0 || strcmp(owner + 10, sandbox->id) != 0))
        return "the endpoint credential is for another sandbox";
    if (audience[0] != '\0' && sandbox->audience[0] != '\0' && strcmp(audience, sandbox->audience) != 0)
        return "the endpoint credential is for another audience";
    const json_t *permissions = field_array(json, "permissions", &bad);
    for (size_t i = 0; i < COUNT_OF(needed); ++i)
        if (bad || !holds(permissions, needed[i]))
            return "the endpoint credential lacks a permission that was asked for";
    const char *why = credential_life(json, asked_wall_ms, &out->life_ms);
    if (why == NULL)
        memcpy(out->token, json_string_value(token), json_string_length(token) + 1);
    return why;
}

/* --- commands --- */

/* Before a byte is decoded: text of so many characters holds more than `max` bytes. */
static bool is_past(const json_t *value, size_t max)
{
    return json_string_length(value) > (max + 2) / 3 * 4;
}

static const char *read_stream(const json_t *json, const char *key, size_t cap, buffer_t *out, bool *is_flood)
{
    const json_t *value = json_object_get(json, key);
    size_t len;
    if (value == NULL || json_is_null(value))
        return NULL;
    if (!json_is_string(value))
        return "the command's output is malformed";
    if (is_past(value, cap)) {
        *is_flood = true;
        return NULL;
    }
    uint8_t *bytes = base64_decode(json_string_value(value), json_string_length(value), &len);
    if (bytes == NULL)
        return "the command's output is malformed";
    if (len > cap)
        *is_flood = true;
    else
        buffer_append(out, bytes, len);
    free(bytes);
    return NULL;
}

static const char *read_exit(const json_t *json, int *out)
{
    enum { EXIT_MIN = 0, EXIT_MAX = 255 };
    const json_t *value = json_object_get(json, "exitCode");
    if (value == NULL || json_is_null(value))
        return NULL; /* zero */
    if (!json_is_integer(value) || json_integer_value(value) < EXIT_MIN || json_integer_value(value) > EXIT_MAX)
        return "the command's exit code is none";
    *out = (int)json_integer_value(value);
    return NULL;
}

/* What has its default is left out, so nothing at all is a command that ended well and wrote nothing; something else in
 * its place is no verdict. */
static bool is_result(const json_t *json)
{
    static const char *const fields[] = {"exitCode", "stdout", "stderr", "incomplete"};
    if (!json_is_object(json) || dc_is_error(json))
        return false;
    for (size_t i = 0; i < COUNT_OF(fields); ++i)
        if (json_object_get(json, fields[i]) != NULL)
            return true;
    return json_object_size(json) == 0;
}

const char *dc_exec_read(const json_t *json, size_t stream_cap, dc_exec_t *out, bool *is_flood)
{
    const char *why;
    *out = (dc_exec_t){.exit_code = 0};
    *is_flood = false;
    buffer_init(&out->out, stream_cap);
    buffer_init(&out->err, stream_cap);
    if (!is_result(json))
        return "the command's result is none";
    if ((why = read_exit(json, &out->exit_code)) != NULL)
        return why;
    if (field_bool(json, "incomplete", &out->is_incomplete) == FIELD_MALFORMED)
        return "the command's result is malformed";
    if ((why = read_stream(json, "stdout", stream_cap, &out->out, is_flood)) != NULL)
        return why;
    return read_stream(json, "stderr", stream_cap, &out->err, is_flood);
}

void dc_exec_dispose(dc_exec_t *exec)
{
    buffer_dispose(&exec->out);
    buffer_dispose(&exec->err);
}

const char *dc_written_read(const json_t *json, size_t expected)
{
    uint64_t written = 0;
    if (!json_is_object(json) || field_u64(json, "filesWritten", &written) == FIELD_MALFORMED)
        return "the upload's answer is malformed";
    return written == expected ? NULL : "not every file was written";
}

/* --- lists and capabilities --- */

const char *dc_page_read(const json_t *json, dc_page_t *out)
{
    bool bad = false;
    *out = (dc_page_t){.next = ""};
    out->sandboxes = field_array(json, "sandboxes", &bad);
    if (!json_is_object(json) || bad ||
        field_text(json, "nextPageToken", out->next, sizeof(out->next)) == FIELD_MALFORMED)
        return "the list is malformed";
    return NULL;
}

static const struct {
    const char *name;
    int number;
    const char *missing;
} NEEDED[] = {
    {"PERMISSION_SANDBOXES_READ", 1, "the credential may not read sandboxes"},
    {"PERMISSION_SANDBOXES_CREATE", 2, "the credential may not create sandboxes"},
    {"PERMISSION_SANDBOXES_DELETE", 9, "the credential may not delete sandboxes"},
    {"PERMISSION_NETWORK_POLICIES_READ", 18, "the credential may not read network policies"},
};

static bool has_permission(const json_t *list, size_t needed)
{
    for (size_t i = 0; i < json_array_size(list) && i < DC_PERMISSIONS_MAX; ++i) {
        const json_t *value = json_array_get(list, i);
        const char *text = json_string_value(value);
        if ((text != NULL && strcmp(text, NEEDED[needed].name) == 0) ||
            (json_is_integer(value) && json_integer_value(value) == NEEDED[needed].number))
            return true;
    }
    return false;
}

static bool is_outside(const json_t *resources, const char *least, const char *most, uint64_t value, bool *bad)
{
    uint64_t min = 0, max = UINT64_MAX;
    *bad |= field_u64(resources, least, &min) == FIELD_MALFORMED || field_u64(resources, most, &max) == FIELD_MALFORMED;
    return value < min || value > max;
}

const char *dc_capabilities_problem(const json_t *json, const dc_size_t *size)
{
    bool bad = !json_is_object(json);
    const json_t *permissions = field_array(json, "permissions", &bad);
    const json_t *resources = field_object(json, "resources", &bad);

    for (size_t i = 0; i < COUNT_OF(NEEDED); ++i)
        if (json_array_size(permissions) > 0 && !has_permission(permissions, i))
            return NEEDED[i].missing;
    bool is_refused = is_outside(resources, "cpuMin", "cpuMax", size->cpus, &bad) ||
                      is_outside(resources, "memoryMibMin", "memoryMibMax", size->memory_mib, &bad);
    if (bad)
        return "the capabilities are malformed";
    return is_refused ? "the service has no sandboxes of the size of SANDBOX_CPUS and SANDBOX_MEMORY_MB" : NULL;
}

/* --- the exchange --- */

const char *dc_access_token(const json_t *json)
{
    const json_t *token = json_object_get(json, "access_token");
    return json_is_string(token) && is_bearer(json_string_value(token), json_string_length(token))
               ? json_string_value(token)
               : NULL;
}

bool dc_jwt_expiry(const char *token, int64_t *out_s)
{
    enum { PAYLOAD_MAX = 6 * 1024 };
    const char *begin = strchr(token, '.'), *end = begin != NULL ? strchr(begin + 1, '.') : NULL;
    uint8_t payload[PAYLOAD_MAX + 1];
    size_t len;
    uint64_t seconds;

    if (end == NULL || strchr(end + 1, '.') != NULL ||
        sodium_base642bin(payload, PAYLOAD_MAX, begin + 1, (size_t)(end - begin - 1), NULL, &len, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
        return false;
    const char *why;
    json_t *json = cloud_json_read(payload, len, &why);
    sodium_memzero(payload, sizeof(payload));
    bool is_told = json_is_integer(json_object_get(json, "exp")) && field_u64(json, "exp", &seconds) == FIELD_PRESENT &&
                   seconds > 0 && seconds <= INT64_MAX / 1000;
    json_decref(json);
    if (is_told)
        *out_s = (int64_t)seconds;
    return is_told;
}
