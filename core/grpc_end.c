#include "core/grpc_end.h"

#include <stdio.h>
#include <string.h>

#include "core/hex.h"

/* RFC 9113 section 7 */
enum {
    RESET_NO_ERROR = 0,
    RESET_PROTOCOL_ERROR = 1,
    RESET_INTERNAL_ERROR = 2,
    RESET_REFUSED_STREAM = 7,
    RESET_CANCEL = 8,
    RESET_ENHANCE_YOUR_CALM = 11,
    RESET_INADEQUATE_SECURITY = 12,
};

const char *grpc_code_name(grpc_code_t code)
{
    static const char *const names[] = {
        "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED"};
    return (size_t)code < sizeof(names) / sizeof(names[0]) ? names[code] : "UNKNOWN";
}

/* --- the head --- */

static bool is_name(const uint8_t *name, size_t len, const char *want)
{
    return len == strlen(want) && memcmp(name, want, len) == 0;
}

/* `text` is at most that many digits, else -1. */
static int number(const uint8_t *text, size_t len, size_t digits)
{
    int value = 0;
    if (len == 0 || len > digits)
        return -1;
    for (size_t i = 0; i < len; ++i) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/* Percent-encoded UTF-8, of which the printable ASCII is kept. */
static void read_message(char out[GRPC_TEXT_MAX], const uint8_t *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < GRPC_TEXT_MAX; ++i) {
        int c = text[i];
        if (c == '%' && len - i > 2) {
            int high = hex_digit((char)text[i + 1]), low = hex_digit((char)text[i + 2]);
            if (high >= 0 && low >= 0) {
                c = high * 16 + low;
                i += 2;
            }
        }
        out[n++] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    out[n] = '\0';
}

static void read_status(grpc_head_t *head, const uint8_t *value, size_t len)
{
    int status = number(value, len, 2);
    /* said twice it says nothing */
    head->is_status_sane = !head->has_status && status >= GRPC_OK && status <= GRPC_UNAUTHENTICATED;
    head->has_status = true;
    head->status = head->is_status_sane ? (grpc_code_t)status : GRPC_UNKNOWN;
}

void grpc_head_add(grpc_head_t *head, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len,
                   bool is_first)
{
    static const char type[] = "application/grpc";
    if (is_first) {
        head->has_status = head->is_status_sane = false;
        head->message[0] = '\0';
    }
    if (is_name(name, name_len, ":status")) {
        head->http_status = number(value, value_len, 3);
        head->is_grpc = false;
    } else if (is_name(name, name_len, "content-type") && head->http_status != 0) {
        size_t len = sizeof(type) - 1;
        head->is_grpc = head->is_grpc || (value_len >= len && memcmp(value, type, len) == 0 &&
                                          (value_len == len || value[len] == '+' || value[len] == ';'));
    } else if (is_name(name, name_len, "grpc-status")) {
        read_status(head, value, value_len);
    } else if (is_name(name, name_len, "grpc-message")) {
        read_message(head->message, value, value_len);
    }
}

void grpc_head_body(grpc_head_t *head)
{
    head->has_status = head->is_status_sane = false;
}

/* --- the verdict --- */

static void say(grpc_end_t *end, grpc_code_t code, grpc_origin_t origin, const char *message)
{
    end->code = code;
    end->origin = origin;
    snprintf(end->message, sizeof(end->message), "%s", message);
}

static grpc_code_t code_of_http(int status)
{
    switch (status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

static void judge_reset(const grpc_seen_t *seen, grpc_end_t *end)
{
    static const struct {
        uint32_t reset;
        grpc_code_t code;
        const char *text;
    } rows[] = {
        {RESET_NO_ERROR, GRPC_INTERNAL, "the stream was reset before its end (NO_ERROR)"},
        {RESET_PROTOCOL_ERROR, GRPC_INTERNAL, "the stream was reset (PROTOCOL_ERROR)"},
        {RESET_INTERNAL_ERROR, GRPC_INTERNAL, "the stream was reset (INTERNAL_ERROR)"},
        {RESET_REFUSED_STREAM, GRPC_UNAVAILABLE, "the stream was refused"},
        {RESET_CANCEL, GRPC_CANCELLED, "the stream was reset (CANCEL)"},
        {RESET_ENHANCE_YOUR_CALM, GRPC_RESOURCE_EXHAUSTED, "the stream was reset (ENHANCE_YOUR_CALM)"},
        {RESET_INADEQUATE_SECURITY, GRPC_PERMISSION_DENIED, "the stream was reset (INADEQUATE_SECURITY)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        if (rows[i].reset == seen->reset_code) {
            say(end, rows[i].code, GRPC_BY_STREAM, rows[i].text);
            return;
        }
    }
    say(end, GRPC_INTERNAL, GRPC_BY_STREAM, "the stream was reset");
}

static bool is_wrong_count(const grpc_seen_t *seen)
{
    return (seen->is_unary && seen->messages != 1) || seen->left_over != 0;
}

static void judge_answer(const grpc_seen_t *seen, grpc_end_t *end)
{
    const grpc_head_t *head = seen->head;
    char text[GRPC_TEXT_MAX];

    if (head->has_status && head->is_status_sane && head->status != GRPC_OK) {
        say(end, head->status, GRPC_BY_SERVER, head->message);
    } else if (head->http_status != 200) {
        snprintf(text, sizeof(text), "HTTP status %d", head->http_status);
        say(end, head->has_status ? GRPC_UNKNOWN : code_of_http(head->http_status), GRPC_BY_STREAM, text);
    } else if (!head->is_grpc) {
        say(end, GRPC_UNKNOWN, GRPC_BY_STREAM, "the answer is not gRPC");
    } else if (!head->has_status) {
        say(end, GRPC_UNKNOWN, GRPC_BY_STREAM, "the answer ended without grpc-status");
    } else if (!head->is_status_sane) {
        say(end, GRPC_UNKNOWN, GRPC_BY_STREAM, "the answer's grpc-status is none");
    } else if (is_wrong_count(seen)) {
        say(end, GRPC_INTERNAL, GRPC_BY_STREAM, "the answer is not one whole message");
    } else {
        say(end, GRPC_OK, GRPC_BY_SERVER, "");
    }
}

void grpc_judge(const grpc_seen_t *seen, grpc_end_t *end)
{
    end->may_have_run = seen->has_sent && seen->end != H2_REFUSED;
    if (seen->problem == GRPC_FRAMES_COMPRESSED) {
        say(end, GRPC_INTERNAL, GRPC_BY_STREAM, "the answer is compressed");
        return;
    }
    if (seen->problem == GRPC_FRAMES_TOO_LARGE) {
        say(end, GRPC_RESOURCE_EXHAUSTED, GRPC_BY_STREAM, "the answer is larger than is taken");
        return;
    }
    switch (seen->end) {
    case H2_ENDED:
        judge_answer(seen, end);
        break;
    case H2_RESET:
        judge_reset(seen, end);
        break;
    case H2_REFUSED:
        say(end, GRPC_UNAVAILABLE, GRPC_BY_STREAM, "the stream was refused");
        break;
    case H2_LOST:
        say(end, GRPC_UNAVAILABLE, GRPC_BY_STREAM, seen->reason != NULL ? seen->reason : "the connection was lost");
        break;
    }
}
