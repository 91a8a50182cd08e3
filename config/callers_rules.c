/* The rules of the callers file for one value at a time (spec section 1.2). */
#include "config/callers_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/quote.h"
#include "config/text.h"
#include "core/hex.h"
#include "core/mem.h"

static bool any_character(const char *text, size_t len, bool (*is)(uint32_t))
{
    for (size_t at = 0; at < len;) {
        uint32_t c;
        at += text_next(text + at, &c);
        if (is(c))
            return true;
    }
    return false;
}

const char *caller_id_check(const char *id, size_t len)
{
    if (len == 0)
        return "\"id\" is empty";
    if (len > CALLER_ID_MAX)
        return "\"id\" is longer than 256 bytes";
    if (len == 1 && id[0] == '*')
        return "\"id\" must not be \"*\"";
    if (any_character(id, len, text_is_control))
        return "\"id\" has a control character";
    return NULL;
}

const char *caller_scope_check(const char *scope, size_t len)
{
    if (len == 0)
        return "a scope is empty";
    if (len > CALLER_SCOPE_MAX)
        return "a scope is longer than 256 bytes";
    if (any_character(scope, len, text_is_space) || any_character(scope, len, text_is_control))
        return "a scope has white space or a control character";
    return NULL;
}

const char *caller_window_check(const caller_token_t *token)
{
    return token->not_before_ms < token->not_after_ms ? NULL : "\"not_before\" must be earlier than \"not_after\"";
}

bool caller_hash_parse(const char *text, size_t len, uint8_t out[32])
{
    if (len != 64)
        return false;
    for (size_t i = 0; i < 32; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool caller_has_scope(const caller_t *caller, const char *scope)
{
    for (size_t i = 0; i < caller->scope_count; i++)
        if (strcmp(caller->scopes[i], scope) == 0)
            return true;
    return false;
}

void caller_add_scope(caller_t *caller, const char *scope, size_t len)
{
    caller->scopes = mem_realloc(caller->scopes, (caller->scope_count + 1) * sizeof(caller->scopes[0]));
    caller->scopes[caller->scope_count++] = mem_strndup(scope, len);
}

void caller_settle(caller_t *caller)
{
    caller->runs = caller_has_scope(caller, "code:run") || caller_has_scope(caller, "*");
}

const char *caller_where(char out[CALLER_WHERE_MAX], size_t index, const char *id)
{
    char quoted[QUOTE_BYTES];

    if (id != NULL && id[0] != '\0')
        snprintf(out, CALLER_WHERE_MAX, "clients[%zu] (%s)", index, quote(quoted, id, strlen(id)));
    else
        snprintf(out, CALLER_WHERE_MAX, "clients[%zu]", index);
    return out;
}
