#include "backends/e2b/answer.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_json.h"

static const char *text_of(const json_t *object, const char *key, size_t max)
{
    const char *text = cloud_json_text(object, key);
    return text != NULL && strlen(text) <= max ? text : NULL;
}

bool e2b_is_id(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-");
    return len > 0 && len <= E2B_ID_MAX && text[len] == '\0';
}

bool e2b_is_label_id(const char *text)
{
    size_t len = strlen(text);
    return e2b_is_id(text) && len <= E2B_LABEL_ID_MAX && text[len - 1] != '-';
}

/* One part of a version, past which `*at` is set. */
static bool version_part(const char **at, unsigned *out)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    unsigned long value = strtoul(*at, &end, 10);
    if (errno != 0 || value > UINT16_MAX)
        return false;
    *out = (unsigned)value;
    *at = end;
    return true;
}

bool e2b_version_read(const char *text, e2b_version_t *out)
{
    if (!version_part(&text, &out->major) || *text++ != '.' || !version_part(&text, &out->minor) || *text++ != '.' ||
        !version_part(&text, &out->patch))
        return false;
    return *text == '\0' || *text == '-' || *text == '+';
}

bool e2b_version_reaches(const e2b_version_t *version, unsigned major, unsigned minor, unsigned patch)
{
    if (version->major != major)
        return version->major > major;
    if (version->minor != minor)
        return version->minor > minor;
    return version->patch >= patch;
}

/* --- created --- */

/* Goes into a header: a control byte would end the line. */
static bool is_token(const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;
    if (len == 0 || len > E2B_TOKEN_MAX)
        return false;
    for (size_t i = 0; i < len; ++i) {
        if (text[i] < '!' || text[i] > '~')
            return false;
    }
    return true;
}

static bool is_known_domain(const json_t *value, const e2b_created_rules_t *rules)
{
    if (value == NULL || json_is_null(value))
        return true;
    const char *domain = json_string_value(value);
    if (domain == NULL)
        return false;
    if (strcmp(domain, rules->domain) == 0)
        return true;
    for (const char *const *more = rules->more_domains; more != NULL && *more != NULL; ++more) {
        if (strcmp(domain, *more) == 0)
            return true;
    }
    return false;
}

static const char *created_problem(const json_t *json, const e2b_created_rules_t *rules, e2b_created_t *out)
{
    const char *token = text_of(json, "envdAccessToken", E2B_TOKEN_MAX);
    const char *version = text_of(json, "envdVersion", E2B_CODE_MAX);
    if (!is_token(token))
        return "the sandbox came without a usable access token of its daemon";
    snprintf(out->token, sizeof(out->token), "%s", token);
    if (!is_token(text_of(json, "trafficAccessToken", E2B_TOKEN_MAX)))
        return "the sandbox came without a traffic token: its ports may be open to everybody";
    if (version == NULL || !e2b_version_read(version, &out->version))
        return "the sandbox does not say the version of its daemon";
    if (!is_known_domain(json_object_get(json, "domain"), rules))
        return "the sandbox says to be at a domain that is not configured";
    if (rules->needs_label && !e2b_is_label_id(out->id))
        return "the sandbox's ID cannot be a part of a host's name";
    return NULL;
}

e2b_created_end_t e2b_created_read(const void *bytes, size_t len, const e2b_created_rules_t *rules, e2b_created_t *out,
                                   char why[E2B_TEXT_MAX])
{
    const char *problem;
    e2b_created_end_t end = E2B_CREATED_UNREADABLE;

    memset(out, 0, sizeof(*out));
    why[0] = '\0';
    json_t *json = cloud_json_read(bytes, len, &problem);
    const char *id = text_of(json, "sandboxID", E2B_ID_MAX);
    if (json != NULL && (id == NULL || !e2b_is_id(id)))
        problem = "the answer to the creation names no sandbox";
    else if (json != NULL) {
        snprintf(out->id, sizeof(out->id), "%s", id);
        problem = created_problem(json, rules, out);
        end = problem == NULL ? E2B_CREATED_USABLE : E2B_CREATED_FLAWED;
    }
    if (problem != NULL)
        snprintf(why, E2B_TEXT_MAX, "%s", problem);
    json_decref(json);
    return end;
}

/* --- detail --- */

static bool is_text(const json_t *object, const char *key, const char *value)
{
    const char *text = cloud_json_text(object, key);
    return text != NULL && strcmp(text, value) == 0;
}

static bool has_stamps(const json_t *metadata, const char *installation, const char *stamp)
{
    return is_text(metadata, "gw", E2B_PRODUCT) && is_text(metadata, "gw_instance", installation) &&
           is_text(metadata, "gw_lease", stamp);
}

static const char *owner_problem(const json_t *json, const e2b_expected_t *expected)
{
    if (!is_text(json, "sandboxID", expected->id))
        return "the record is of another sandbox";
    if (!has_stamps(json_object_get(json, "metadata"), expected->installation, expected->stamp))
        return "the sandbox does not carry our stamps";
    return NULL;
}

/* Absent, null, false, or a list or object without members. */
static bool is_nothing(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool has_word(const json_t *list, const char *word)
{
    size_t i;
    const json_t *value;
    json_array_foreach(list, i, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), word) == 0)
            return true;
    }
    return false;
}

static const char *network_problem(const json_t *json)
{
    const json_t *network = json_object_get(json, "network");
    const json_t *internet = json_object_get(json, "allowInternetAccess");
    if (!json_is_object(network))
        return "the record does not tell the sandbox's network";
    if (!has_word(json_object_get(network, "denyOut"), "0.0.0.0/0"))
        return "the sandbox's network is not denied";
    if (!is_nothing(json_object_get(network, "allowOut")) || !is_nothing(json_object_get(network, "rules")) ||
        !is_nothing(json_object_get(network, "egressProxy")))
        return "the sandbox's network has ways out that were not asked for";
    if (!json_is_false(json_object_get(network, "allowPublicTraffic")))
        return "the sandbox's ports are open to everybody";
    if (internet != NULL && !json_is_null(internet) && !json_is_false(internet))
        return "the sandbox may reach the internet";
    return NULL;
}

/* A size within its cap; `min` is 1, or 0 where the service may say that it is not counted. */
static bool is_within(const json_t *json, const char *key, int64_t min, uint32_t cap, uint32_t *out)
{
    const json_t *value = json_object_get(json, key);
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < min || number > INT32_MAX || (cap != 0 && number > cap))
        return false;
    *out = (uint32_t)number;
    return true;
}

static const char *size_problem(const json_t *json, const e2b_expected_t *expected, e2b_size_t *size)
{
    if (!is_within(json, "cpuCount", 1, expected->cpus_max, &size->cpus))
        return "the sandbox's processors are not told, or more than allowed";
    if (!is_within(json, "memoryMB", 1, expected->memory_max_mb, &size->memory_mb))
        return "the sandbox's memory is not told, or more than allowed";
    if (!is_within(json, "diskSizeMB", 0, expected->disk_max_mb, &size->disk_mb))
        return "the sandbox's disk is not told, or more than allowed";
    return NULL;
}

static const char *life_problem(const json_t *json)
{
    const json_t *lifecycle = json_object_get(json, "lifecycle");
    if (!is_text(json, "state", "running"))
        return "the sandbox is not running";
    if (lifecycle == NULL || json_is_null(lifecycle))
        return NULL;
    const json_t *resume = json_object_get(lifecycle, "autoResume");
    if (!json_is_object(lifecycle) ||
        !(is_nothing(resume) || (json_is_object(resume) && is_nothing(json_object_get(resume, "enabled")))))
        return "the sandbox would wake up by itself";
    const json_t *end = json_object_get(lifecycle, "onTimeout");
    if (end != NULL && !json_is_null(end) && !is_text(lifecycle, "onTimeout", "kill"))
        return "the sandbox would be kept at the end of its time";
    return NULL;
}

e2b_detail_end_t e2b_detail_read(const void *bytes, size_t len, const e2b_expected_t *expected, e2b_size_t *size,
                                 char why[E2B_TEXT_MAX])
{
    const char *problem;
    e2b_detail_end_t end = E2B_DETAIL_UNREADABLE;

    memset(size, 0, sizeof(*size));
    why[0] = '\0';
    json_t *json = cloud_json_read(bytes, len, &problem);
    if (json != NULL) {
        problem = owner_problem(json, expected);
        problem = problem == NULL ? life_problem(json) : problem;
        problem = problem == NULL ? size_problem(json, expected, size) : problem;
        problem = problem == NULL ? network_problem(json) : problem;
        end = problem == NULL ? E2B_DETAIL_RIGHT : E2B_DETAIL_DIFFERS;
    }
    if (problem != NULL)
        snprintf(why, E2B_TEXT_MAX, "%s", problem);
    json_decref(json);
    return end;
}

bool e2b_detail_is_ours(const void *bytes, size_t len, const e2b_expected_t *expected, char why[E2B_TEXT_MAX])
{
    const char *problem;
    json_t *json = cloud_json_read(bytes, len, &problem);
    if (json != NULL)
        problem = owner_problem(json, expected);
    snprintf(why, E2B_TEXT_MAX, "%s", problem != NULL ? problem : "");
    json_decref(json);
    return problem == NULL;
}

/* --- listing --- */

static bool is_entry(const json_t *entry)
{
    const char *id = text_of(entry, "sandboxID", E2B_ID_MAX);
    const json_t *metadata = json_object_get(entry, "metadata");
    return id != NULL && e2b_is_id(id) && (metadata == NULL || json_is_null(metadata) || json_is_object(metadata));
}

bool e2b_page_read(const void *bytes, size_t len, const char *installation, const char *stamp, e2b_listed_cb found,
                   void *data, char why[E2B_TEXT_MAX])
{
    const char *problem;
    size_t i;
    const json_t *entry;
    json_t *json = cloud_json_read_list(bytes, len, &problem);

    json_array_foreach(json, i, entry)
    {
        if (!is_entry(entry))
            problem = "the listing has an entry that is no sandbox";
    }
    snprintf(why, E2B_TEXT_MAX, "%s", problem != NULL ? problem : "");
    json_array_foreach(problem == NULL ? json : NULL, i, entry)
    {
        const json_t *metadata = json_object_get(entry, "metadata");
        const char *lease = json_string_value(json_object_get(metadata, "gw_lease"));
        if (lease != NULL && ledger_is_stamp(lease) && has_stamps(metadata, installation, lease) &&
            (stamp == NULL || strcmp(stamp, lease) == 0))
            found(data, json_string_value(json_object_get(entry, "sandboxID")), lease);
    }
    json_decref(json);
    return problem == NULL;
}

/* --- errors --- */

void e2b_error_read(const void *bytes, size_t len, const cloud_secrets_t *secrets, e2b_error_t *out)
{
    const char *why;
    memset(out, 0, sizeof(*out));
    json_t *json = len > 0 && len <= E2B_ERROR_MAX ? cloud_json_read(bytes, len, &why) : NULL;
    const char *message = json_string_value(json_object_get(json, "message"));
    const json_t *code = json_object_get(json, "code");
    const char *name = json_string_value(json_object_get(json, "error_code"));
    /* A Connect error's own `code` is its name. */
    if (name == NULL)
        name = json_string_value(code);
    out->is_shaped = message != NULL && (json_is_integer(code) || json_is_string(code));
    if (out->is_shaped) {
        cloud_text_scrub(secrets, message, strlen(message), sizeof(out->message) - 1, out->message);
        snprintf(out->code, sizeof(out->code), "%s", name != NULL ? name : "");
    }
    json_decref(json);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Three things answer 429: the plan's limit, the API's rate limiter, and the edge in front of it, which alone says
 * nothing of what became of the request behind it. */
static e2b_create_end_t judge_busy(const void *body, size_t len, uint32_t retry_after_ms)
{
    static const char rate[] = "Rate limit exceeded";
    e2b_error_t error;
    e2b_error_read(body, len, NULL, &error);
    if (error.is_shaped && starts_with(error.message, "you have reached the maximum number of concurrent"))
        return E2B_CREATE_FULL;
    bool is_rate = error.is_shaped ? starts_with(error.message, rate)
                                   : len >= sizeof(rate) - 1 && memcmp(body, rate, sizeof(rate) - 1) == 0;
    return is_rate && retry_after_ms > 0 ? E2B_CREATE_THROTTLED : E2B_CREATE_UNKNOWN;
}

e2b_create_end_t e2b_create_judge(int status, const void *body, size_t len, uint32_t retry_after_ms)
{
    if (status == 201)
        return E2B_CREATE_ANSWERED;
    if (status == 429)
        return judge_busy(body, len, retry_after_ms);
    /* 408 and 499 speak of a wait that was given up, not of what was waited for. */
    if (status >= 400 && status < 500 && status != 408 && status != 499)
        return E2B_CREATE_DENIED;
    return E2B_CREATE_UNKNOWN;
}

/* --- written files --- */

static bool is_written(const json_t *entry, const char *path)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    return is_text(entry, "path", path) && type != NULL && strcmp(type, "file") == 0;
}

bool e2b_written_read(const void *bytes, size_t len, const char *const *paths, size_t count, char why[E2B_TEXT_MAX])
{
    const char *problem;
    json_t *json = cloud_json_read_list(bytes, len, &problem);
    why[0] = '\0';
    if (json == NULL)
        snprintf(why, E2B_TEXT_MAX, "the answer to the upload is unusable: %s", problem);
    for (size_t i = 0; why[0] == '\0' && i < count; ++i) {
        if (!is_written(json_array_get(json, i), paths[i]))
            snprintf(why, E2B_TEXT_MAX, "not written: %s", paths[i]);
    }
    if (why[0] == '\0' && json_array_size(json) != count)
        snprintf(why, E2B_TEXT_MAX, "the answer to the upload tells of files that were not sent");
    json_decref(json);
    return why[0] == '\0';
}

/* --- stat --- */

/* `type` is that of a link's target, so a link says so by the other two. */
static bool is_regular(const json_t *entry)
{
    const char *permissions = json_string_value(json_object_get(entry, "permissions"));
    return is_text(entry, "type", "FILE_TYPE_FILE") && is_nothing(json_object_get(entry, "symlinkTarget")) &&
           permissions != NULL && permissions[0] == '-';
}

e2b_stat_end_t e2b_stat_read(const void *bytes, size_t len, uint64_t *size)
{
    const char *why;
    int64_t number = 0;
    json_t *json = cloud_json_read(bytes, len, &why);
    const json_t *entry = json_object_get(json, "entry");
    e2b_stat_end_t end = E2B_STAT_UNREADABLE;
    if (json_is_object(entry)) {
        bool is_told =
            json_object_get(entry, "size") == NULL || cloud_json_i64(json_object_get(entry, "size"), &number);
        end = is_regular(entry) && is_told && number >= 0 ? E2B_STAT_FILE : E2B_STAT_OTHER;
    }
    *size = (uint64_t)number;
    json_decref(json);
    return end;
}
