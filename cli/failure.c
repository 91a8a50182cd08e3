#include "cli/failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exit_codes.h"
#include "cli/terminal.h"
#include "core/protojson.h"
#include "records/codes.h"
#include "records/plimsoll.pb-c.h"

/* Spec section 1.7, for an answer without a usable body. */
static const char *code_of_status(int status)
{
    switch (status) {
    case 400:
        return "internal";
    case 401:
        return "unauthenticated";
    case 403:
        return "permission_denied";
    case 404:
        return "unimplemented";
    case 429:
    case 502:
    case 503:
    case 504:
        return "unavailable";
    default:
        return "unknown";
    }
}

static void set_text(failure_t *failure, failure_kind_t kind, const char *code, const char *message)
{
    memset(failure, 0, sizeof(*failure));
    failure->kind = kind;
    failure->retry_after_s = -1;
    failure->sent = true;
    snprintf(failure->code, sizeof(failure->code), "%s", code);
    terminal_copy(failure->message, sizeof(failure->message), message, strlen(message));
}

void failure_local(failure_t *failure, const char *message)
{
    set_text(failure, FAILURE_REFUSED, "invalid_argument", message);
    failure->mark = "request";
    failure->sent = false;
}

void failure_does_not_hold(failure_t *failure, const char *why)
{
    set_text(failure, FAILURE_DOES_NOT_HOLD, "data_loss", why);
}

/* What the details of an error body say. */
typedef struct {
    bool present;     /* a NotDispatched detail stands there, decodable or not */
    const char *mark; /* its reason; NULL = none or undecodable */
    bool unanswered;  /* the call is stated to have happened */
} details_t;

/* Whether `type` names the message, bare or behind a URL prefix that ends in a slash. */
static bool is_type(const char *type, const char *name)
{
    size_t type_len = strlen(type), name_len = strlen(name);
    if (type_len < name_len || strcmp(type + type_len - name_len, name) != 0)
        return false;
    return type_len == name_len || type[type_len - name_len - 1] == '/';
}

/* NULL when the value is not a NotDispatched. */
static const char *decode_mark(const char *value, size_t len)
{
    size_t raw_len = 0;
    uint8_t *raw = base64_decode(value, len, &raw_len);
    if (raw == NULL)
        return NULL;
    const char *mark = NULL;
    Plimsoll__V1__NotDispatched *detail = plimsoll__v1__not_dispatched__unpack(NULL, raw_len, raw);
    if (detail != NULL) {
        int reason = (int)detail->reason;
        /* A number without a name still says that nothing ran. */
        mark = reason > MARK_NONE && reason < MARK_COUNT ? mark_name((mark_t)reason) : "unknown";
        plimsoll__v1__not_dispatched__free_unpacked(detail, NULL);
    }
    free(raw);
    return mark;
}

static details_t decode_details(const json_t *body)
{
    details_t details = {0};
    size_t i;
    json_t *detail;
    json_array_foreach(json_object_get(body, "details"), i, detail)
    {
        const json_t *value = json_object_get(detail, "value");
        const char *type = json_string_value(json_object_get(detail, "type"));
        if (type == NULL)
            continue;
        if (is_type(type, "plimsoll.v1.UnansweredCall"))
            details.unanswered = true;
        if (details.present || !is_type(type, "plimsoll.v1.NotDispatched"))
            continue;
        details.present = true;
        if (json_is_string(value))
            details.mark = decode_mark(json_string_value(value), json_string_length(value));
    }
    return details;
}

/* The header counts with one of the seven names only. */
static const char *header_mark(const exchange_t *exchange)
{
    const char *value = exchange_header(exchange, HEADER_NOT_DISPATCHED);
    return value != NULL ? mark_name(mark_parse(value)) : NULL;
}

static int retry_after(const exchange_t *exchange)
{
    const char *value = exchange_header(exchange, HEADER_RETRY_AFTER);
    size_t len = value == NULL ? 0 : strlen(value);
    if (len < 1 || len > 5 || strspn(value, "0123456789") != len)
        return -1;
    int seconds = atoi(value);
    return seconds <= FAILURE_RETRY_AFTER_MAX ? seconds : -1;
}

/* No complete answer came. */
static void decode_lost(failure_t *failure, const exchange_t *exchange)
{
    char message[FAILURE_MESSAGE_MAX];
    switch (exchange->outcome) {
    case EXCHANGE_NOT_SENT:
        snprintf(message, sizeof(message), "the gateway was not reached: %s", exchange->reason);
        set_text(failure, FAILURE_REFUSED, "unavailable", message);
        failure->mark = "environment";
        failure->sent = false;
        failure->away = true;
        return;
    case EXCHANGE_TIMED_OUT:
        set_text(failure, FAILURE_MAY_HAVE_RUN, "deadline_exceeded", "no complete answer came in time");
        return;
    case EXCHANGE_TOO_LARGE:
        set_text(failure, FAILURE_MAY_HAVE_RUN, "resource_exhausted", exchange->reason);
        return;
    default:
        snprintf(message, sizeof(message), "the connection was lost before a complete answer: %s", exchange->reason);
        set_text(failure, FAILURE_MAY_HAVE_RUN, "unavailable", message);
        return;
    }
}

void failure_decode(failure_t *failure, const exchange_t *exchange, const char *request_id)
{
    if (exchange->outcome != EXCHANGE_DONE) {
        decode_lost(failure, exchange);
        return;
    }
    char message[FAILURE_MESSAGE_MAX];
    if (exchange->status >= 300 && exchange->status < 400) {
        snprintf(message, sizeof(message), "the answer is a redirect (HTTP %d), which is never followed",
                 exchange->status);
        set_text(failure, FAILURE_MAY_HAVE_RUN, "unknown", message);
        return;
    }
    json_t *body = exchange->body.len == 0 ? NULL
                                           : json_loadb((const char *)exchange->body.base, exchange->body.len,
                                                        JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *code = json_string_value(json_object_get(body, "code"));
    bool is_known = code != NULL && code_parse(code) != CODE_COUNT; /* anything else falls back to the status */
    const json_t *text = json_object_get(body, "message");
    set_text(failure, FAILURE_MAY_HAVE_RUN, is_known ? code : code_of_status(exchange->status), "");
    if (json_is_string(text))
        terminal_copy(failure->message, sizeof(failure->message), json_string_value(text), json_string_length(text));
    if (failure->message[0] == '\0')
        snprintf(failure->message, sizeof(failure->message), "the gateway answered HTTP %d", exchange->status);
    if (request_id != NULL && exchange_is_bound(exchange, request_id)) {
        details_t details = decode_details(body);
        failure->mark = details.present ? details.mark : header_mark(exchange);
        if (details.unanswered)
            failure->mark = NULL;
    }
    if (failure->mark != NULL)
        failure->kind = FAILURE_REFUSED;
    failure->retry_after_s = retry_after(exchange);
    json_decref(body);
}

static bool is_for_capacity(const failure_t *failure)
{
    return failure->mark != NULL && strcmp(failure->mark, "capacity") == 0;
}

int failure_exit_code(const failure_t *failure)
{
    switch (failure->kind) {
    case FAILURE_REFUSED:
        return is_for_capacity(failure) ? CLI_TRY_LATER : CLI_REFUSED;
    case FAILURE_DOES_NOT_HOLD:
        return CLI_DOES_NOT_HOLD;
    case FAILURE_MAY_HAVE_RUN:
        return CLI_MAY_HAVE_RUN;
    default:
        return CLI_OK;
    }
}

bool failure_is_worth_resending(const failure_t *failure)
{
    return failure->kind == FAILURE_REFUSED && (failure->away || is_for_capacity(failure));
}

/* What a refusal's reason asks for, when sending the same again cannot help. */
static const char *remedy(const char *mark)
{
    static const struct {
        const char *mark, *text;
    } REMEDIES[] = {
        {"request", "change the request before sending it again"},
        {"permission", "check the token (PLIMSOLL_CALLER_TOKEN or --token-file) and what this caller may do"},
        {"protocol", "this command and the gateway speak different protocol numbers: use a matching version"},
        {"unsupported", "another backend may do it: see `plimsoll backends`"},
        {"isolation", "a stronger backend may serve it (see `plimsoll backends`), or ask for a lower --floor"},
        {"environment", "another backend may serve it: see `plimsoll backends`"},
    };
    for (size_t i = 0; i < sizeof(REMEDIES) / sizeof(REMEDIES[0]); i++)
        if (strcmp(REMEDIES[i].mark, mark) == 0)
            return REMEDIES[i].text;
    return "it is safe to send again";
}

void failure_next(const failure_t *failure, const char *request_id, buffer_t *out)
{
    if (failure->kind == FAILURE_REFUSED) {
        buffer_append_str(out, "nothing ran; ");
        if (failure->away)
            buffer_append_str(out, "check --url and that the gateway is up, then send it again");
        else if (!failure_is_worth_resending(failure))
            buffer_append_str(out, remedy(failure->mark));
        else if (failure->retry_after_s >= 0)
            buffer_printf(out, "safe to send again after %d s", failure->retry_after_s);
        else
            buffer_append_str(out, "safe to send again later");
        return;
    }
    buffer_append_str(out, "it may have run: ");
    if (failure->run_id[0] != '\0')
        buffer_printf(out, "look it up with `plimsoll runs show %s`", failure->run_id);
    else if (request_id != NULL)
        buffer_printf(
            out,
            "find request %s in `plimsoll runs list`, then `plimsoll runs show RUN`; sending the same code again with "
            "--request-id %s cannot run it a second time while the gateway remembers the ID",
            request_id, request_id);
    else
        buffer_append_str(out, "look it up with `plimsoll runs list`");
}

void failure_print(const failure_t *failure, const char *request_id, bool may_run)
{
    fprintf(stderr, "plimsoll: error: %s: ", failure->code);
    terminal_print(stderr, failure->message);
    fputc('\n', stderr);
    if (!may_run)
        return;
    buffer_t next;
    buffer_init(&next, 1024);
    failure_next(failure, request_id, &next);
    if (failure->mark != NULL)
        fprintf(stderr, "plimsoll: not dispatched (%s): %s\n", failure->mark, (const char *)next.base);
    else
        fprintf(stderr, "plimsoll: %s\n", (const char *)next.base);
    buffer_dispose(&next);
}

json_t *failure_json(const failure_t *failure, const char *request_id)
{
    buffer_t next;
    buffer_init(&next, 1024);
    failure_next(failure, request_id, &next);
    json_t *error =
        json_pack("{s:s, s:s?, s:s, s:b, s:s}", "code", failure->code, "mark", failure->mark, "message",
                  failure->message, "nothing_ran", failure->kind == FAILURE_REFUSED, "next", (const char *)next.base);
    json_object_set_new(error, "retry_after_s",
                        failure->retry_after_s >= 0 ? json_integer(failure->retry_after_s) : json_null());
    buffer_dispose(&next);
    return error;
}
