/* Sets of callers as text: the file itself, and the lists the tool shows. */
#include "config/callers_edit.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "config/callers_set.h"
#include "config/rfc3339.h"
#include "core/mem.h"

static bool has_window(const caller_token_t *token)
{
    return token->not_before_ms != INT64_MIN || token->not_after_ms != INT64_MAX;
}

static bool is_plain(const caller_t *caller)
{
    return caller->token_count == 1 && !has_window(&caller->tokens[0]);
}

/* Nothing here fails for valid input short of memory, and then nothing can go on. */
static void set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        mem_fatal("out of memory for JSON");
}

static json_t *hash_json(const caller_token_t *token)
{
    static const char digits[] = "0123456789abcdef";
    char hex[64];

    for (size_t i = 0; i < 32; i++) {
        hex[2 * i] = digits[token->sha256[i] >> 4];
        hex[2 * i + 1] = digits[token->sha256[i] & 0xf];
    }
    return json_stringn(hex, sizeof(hex));
}

static void add_window(json_t *object, const caller_token_t *token)
{
    char text[RFC3339_MAX];

    if (token->not_before_ms != INT64_MIN) {
        rfc3339_format(token->not_before_ms, text);
        set(object, "not_before", json_string(text));
    }
    if (token->not_after_ms != INT64_MAX) {
        rfc3339_format(token->not_after_ms, text);
        set(object, "not_after", json_string(text));
    }
}

static json_t *tokens_json(const caller_t *caller, bool with_hashes)
{
    json_t *list = json_array();

    for (size_t i = 0; i < caller->token_count; i++) {
        json_t *object = json_object();
        if (with_hashes)
            set(object, "token_sha256", hash_json(&caller->tokens[i]));
        add_window(object, &caller->tokens[i]);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *scopes_json(const caller_t *caller)
{
    json_t *list = json_array();

    for (size_t i = 0; i < caller->scope_count; i++)
        json_array_append_new(list, json_string(caller->scopes[i]));
    return list;
}

static json_t *caller_json(const caller_t *caller, bool with_hashes)
{
    json_t *object = json_object();

    set(object, "id", json_string(caller->id));
    if (!is_plain(caller))
        set(object, "tokens", tokens_json(caller, with_hashes));
    else if (with_hashes)
        set(object, "token_sha256", hash_json(&caller->tokens[0]));
    set(object, "scopes", scopes_json(caller));
    if (caller->paid_seconds_per_day > 0)
        set(object, "paid_seconds_per_day", json_integer((json_int_t)caller->paid_seconds_per_day));
    return object;
}

static char *dump_and_free(json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(2));
    size_t len;

    json_decref(root);
    if (text == NULL)
        mem_fatal("out of memory for JSON");
    len = strlen(text);
    text = mem_realloc(text, len + 2);
    memcpy(text + len, "\n", 2);
    return text;
}

char *callers_format(const callers_t *callers)
{
    json_t *root = json_object(), *list = json_array();

    for (size_t i = 0; i < callers_count(callers); i++)
        json_array_append_new(list, caller_json(callers_at(callers, i), true));
    set(root, "clients", list);
    return dump_and_free(root);
}

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const caller_t *const *)a)->id, (*(const caller_t *const *)b)->id);
}

/* Malloc'ed. */
static const caller_t **sorted(const callers_t *callers)
{
    size_t count = callers_count(callers);
    const caller_t **list = mem_alloc_array(count + 1, sizeof(list[0]));

    for (size_t i = 0; i < count; i++)
        list[i] = callers_at(callers, i);
    qsort(list, count, sizeof(list[0]), by_id);
    return list;
}

static const char *token_state(const caller_token_t *token, int64_t now_ms)
{
    if (now_ms >= token->not_after_ms)
        return "ended";
    return now_ms < token->not_before_ms ? "not yet" : "valid";
}

static bool print_token(const caller_token_t *token, size_t number, int64_t now_ms, buffer_t *out)
{
    bool fits = buffer_printf(out, "  token %zu: %s", number, token_state(token, now_ms));
    char text[RFC3339_MAX];

    if (token->not_before_ms != INT64_MIN) {
        rfc3339_format(token->not_before_ms, text);
        fits &= buffer_printf(out, ", from %s", text);
    }
    if (token->not_after_ms != INT64_MAX) {
        rfc3339_format(token->not_after_ms, text);
        fits &= buffer_printf(out, ", until %s", text);
    }
    return fits & buffer_append_str(out, "\n");
}

static bool print_caller(const caller_t *caller, int64_t now_ms, buffer_t *out)
{
    bool fits = buffer_printf(out, "%s  scopes:", caller->id);

    for (size_t i = 0; i < caller->scope_count; i++)
        fits &= buffer_printf(out, "%s%s", i == 0 ? " " : ",", caller->scopes[i]);
    if (caller->paid_seconds_per_day > 0)
        fits &= buffer_printf(out, "  paid seconds per day: %" PRIu64, caller->paid_seconds_per_day);
    fits &= buffer_append_str(out, "\n");
    for (size_t i = 0; i < caller->token_count && !is_plain(caller); i++)
        fits &= print_token(&caller->tokens[i], i + 1, now_ms, out);
    return fits;
}

bool callers_list_text(const callers_t *callers, int64_t now_ms, buffer_t *out)
{
    const caller_t **list = sorted(callers);
    bool fits = true;

    for (size_t i = 0; list[i] != NULL; i++)
        fits &= print_caller(list[i], now_ms, out);
    free(list);
    return fits;
}

bool callers_list_json(const callers_t *callers, buffer_t *out)
{
    const caller_t **list = sorted(callers);
    json_t *root = json_array();
    char *text;
    bool fits;

    for (size_t i = 0; list[i] != NULL; i++)
        json_array_append_new(root, caller_json(list[i], false));
    free(list);
    text = dump_and_free(root);
    fits = buffer_append_str(out, text);
    free(text);
    return fits;
}
