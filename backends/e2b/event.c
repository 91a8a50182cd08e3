#include "backends/e2b/event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_json.h"
#include "core/protojson.h"

enum { EXIT_CODE_MAX = 255, SIGNAL_MAX = 64 };

/* --- signals --- */

typedef struct {
    const char *name;
    int number;
} signal_name_t;

/* As Go's os.ProcessState says them on Linux. */
static const signal_name_t SIGNALS[] = {
    {"hangup", 1},
    {"interrupt", 2},
    {"quit", 3},
    {"illegal instruction", 4},
    {"trace/breakpoint trap", 5},
    {"aborted", 6},
    {"bus error", 7},
    {"floating point exception", 8},
    {"killed", 9},
    {"user defined signal 1", 10},
    {"segmentation fault", 11},
    {"user defined signal 2", 12},
    {"broken pipe", 13},
    {"alarm clock", 14},
    {"terminated", 15},
    {"CPU time limit exceeded", 24},
    {"file size limit exceeded", 25},
};

static bool is_name(const char *text, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(text, name, len) == 0;
}

static int numbered(const char *text, size_t len)
{
    static const char before[] = "signal ";
    int number = 0;
    if (len <= sizeof(before) - 1 || len > sizeof(before) - 1 + 2 || memcmp(text, before, sizeof(before) - 1) != 0)
        return E2B_SIGNAL_UNKNOWN;
    for (size_t i = sizeof(before) - 1; i < len; ++i) {
        if (text[i] < '0' || text[i] > '9')
            return E2B_SIGNAL_UNKNOWN;
        number = number * 10 + text[i] - '0';
    }
    return number >= 1 && number <= SIGNAL_MAX ? number : E2B_SIGNAL_UNKNOWN;
}

int e2b_signal_of(const char *status)
{
    static const char before[] = "signal: ", core[] = " (core dumped)";
    if (strncmp(status, before, sizeof(before) - 1) != 0)
        return E2B_SIGNAL_UNKNOWN;
    const char *text = status + sizeof(before) - 1;
    size_t len = strlen(text);
    if (len > sizeof(core) - 1 && strcmp(text + len - (sizeof(core) - 1), core) == 0)
        len -= sizeof(core) - 1;
    for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(SIGNALS[0]); ++i) {
        if (is_name(text, len, SIGNALS[i].name))
            return SIGNALS[i].number;
    }
    return numbered(text, len);
}

/* --- events --- */

static const char *read_data(const json_t *data, e2b_event_t *out)
{
    const json_t *output = json_object_get(data, "stdout"), *error = json_object_get(data, "stderr");
    const json_t *value = output != NULL ? output : error;
    if (json_object_size(data) == 0) { /* a chunk of nothing, whose empty member is left out */
        out->kind = EVENT_OTHER;
        return NULL;
    }
    if (json_object_size(data) != 1 || !json_is_string(value))
        return "a chunk of output belongs to no stream";
    out->bytes = base64_decode(json_string_value(value), json_string_length(value), &out->len);
    if (out->bytes == NULL)
        return "a chunk of output is not base64";
    out->kind = output != NULL ? EVENT_STDOUT : EVENT_STDERR;
    return NULL;
}

/* What has its default is absent: the exit code 0, and `exited` of a process that a signal ended. */
static const char *read_end(const json_t *end, e2b_event_t *out)
{
    int64_t code = 0;
    const json_t *exited = json_object_get(end, "exited"), *status = json_object_get(end, "status");
    if (json_object_get(end, "exitCode") != NULL && !cloud_json_i64(json_object_get(end, "exitCode"), &code))
        return "the exit code is no number";
    if ((exited != NULL && !json_is_boolean(exited)) || (status != NULL && !json_is_string(status)))
        return "the end of the process is told in another form";
    out->kind = EVENT_END;
    if (json_is_true(exited)) {
        if (code < 0 || code > EXIT_CODE_MAX)
            return "the exit code is none";
        out->exit_code = (int)code;
        return NULL;
    }
    if (status == NULL && code == 0)
        return "the process ended without a result";
    out->signal = e2b_signal_of(status != NULL ? json_string_value(status) : "");
    out->exit_code = 128 + out->signal;
    return NULL;
}

static const char *read_event(const json_t *event, e2b_event_t *out)
{
    if (!json_is_object(event) || json_object_size(event) > 1)
        return "a message of the stream is no event";
    const char *kind = json_object_iter_key(json_object_iter((json_t *)event));
    const json_t *value = kind != NULL ? json_object_get(event, kind) : NULL;
    out->kind = EVENT_OTHER;
    if (kind == NULL)
        return NULL;
    if (!json_is_object(value))
        return "an event of the stream is no object";
    if (strcmp(kind, "data") == 0)
        return read_data(value, out);
    if (strcmp(kind, "end") == 0)
        return read_end(value, out);
    if (strcmp(kind, "start") == 0) {
        int64_t pid;
        if (!cloud_json_i64(json_object_get(value, "pid"), &pid) || pid < 1 || pid > UINT32_MAX)
            return "the process began without a number";
        out->kind = EVENT_START;
    } else if (strcmp(kind, "keepalive") == 0) {
        out->kind = EVENT_KEEPALIVE;
    }
    return NULL;
}

const char *e2b_event_read(const void *payload, size_t len, e2b_event_t *out)
{
    const char *why;
    memset(out, 0, sizeof(*out));
    json_t *json = cloud_json_read(payload, len, &why);
    if (json == NULL)
        return why;
    why = read_event(json_object_get(json, "event"), out);
    json_decref(json);
    return why;
}

void e2b_event_dispose(e2b_event_t *event)
{
    free(event->bytes);
    event->bytes = NULL;
    event->len = 0;
}

const char *e2b_eos_read(const void *payload, size_t len, const cloud_secrets_t *secrets, e2b_eos_t *out)
{
    const char *why;
    memset(out, 0, sizeof(*out));
    json_t *json = cloud_json_read(payload, len, &why);
    if (json == NULL)
        return why;
    const json_t *error = json_object_get(json, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    if (!json_is_object(json) || (error != NULL && !json_is_null(error) && code == NULL))
        why = "the end of the stream is told in another form";
    out->is_error = code != NULL;
    snprintf(out->code, sizeof(out->code), "%s", code != NULL ? code : "");
    if (message != NULL)
        cloud_text_scrub(secrets, message, strlen(message), sizeof(out->message) - 1, out->message);
    json_decref(json);
    return why;
}
