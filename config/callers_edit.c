#include "config/callers_edit.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "config/callers_set.h"
#include "config/quote.h"
#include "config/rfc3339.h"
#include "config/text.h"
#include "core/mem.h"
#include "core/protojson.h"

callers_t *callers_edit_empty(void)
{
    problems_t none = {NULL, 0};
    callers_t *callers = callers_begin();

    callers_seal(callers, &none);
    return callers;
}

/* The set when nothing was wrong since `before`, else NULL. */
static callers_t *finish(callers_t *callers, size_t before, problems_t *problems)
{
    if (problems->count == before) {
        callers_seal(callers, problems);
        if (problems->count == before)
            return callers;
    }
    callers_unref(callers);
    return NULL;
}

static const caller_t *find_id(const callers_t *callers, const char *id)
{
    for (size_t i = 0; i < callers_count(callers); i++)
        if (strcmp(callers_at(callers, i)->id, id) == 0)
            return callers_at(callers, i);
    return NULL;
}

/* The caller to change, or NULL with a problem. */
static const caller_t *wanted(const callers_t *callers, const char *id, problems_t *problems)
{
    const caller_t *caller = find_id(callers, id);
    char quoted[QUOTE_BYTES];

    if (caller == NULL)
        problems_add(problems, "there is no caller %s", quote(quoted, id, strlen(id)));
    return caller;
}

/* A copy in which *changed is the copy of `from`'s entry `target`, to be changed before anything else is done to the
 * set. */
static callers_t *copy(const callers_t *from, const caller_t *target, caller_t **changed)
{
    callers_t *to = callers_begin();
    size_t at = 0;

    for (size_t i = 0; i < callers_count(from); i++) {
        callers_append_copy(to, callers_at(from, i));
        if (callers_at(from, i) == target)
            at = i;
    }
    if (changed != NULL)
        *changed = (caller_t *)callers_at(to, at); /* not sealed yet, so still ours to change */
    return to;
}

static void check_allowance(uint64_t seconds, problems_t *problems)
{
    if (seconds > CALLER_PAID_MAX)
        problems_add(problems, "paid seconds per day must be a whole number from 0 to 1000000000000");
}

static void add_scopes(caller_t *caller, const char *const *scopes, size_t count, problems_t *problems)
{
    if (count > CALLER_SCOPES_MAX) {
        problems_add(problems, "a caller has at most %d scopes", CALLER_SCOPES_MAX);
        return;
    }
    if (count == 0)
        caller_add_scope(caller, "code:run", strlen("code:run"));
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(scopes[i]);
        const char *err = utf8_is_valid(scopes[i], len) ? caller_scope_check(scopes[i], len) : "a scope is not UTF-8";
        char quoted[QUOTE_BYTES];
        if (err == NULL && caller_has_scope(caller, scopes[i]))
            err = "a scope is there twice";
        if (err != NULL)
            problems_add(problems, "scope %s: %s", quote(quoted, scopes[i], len), err);
        else
            caller_add_scope(caller, scopes[i], len);
    }
}

static void set_id(caller_t *caller, const char *id, const callers_t *from, problems_t *problems)
{
    size_t len = strlen(id);
    const char *err = "\"id\" is not UTF-8";
    char quoted[QUOTE_BYTES];

    if (utf8_is_valid(id, len)) {
        text_trim(&id, &len);
        err = caller_id_check(id, len);
    }
    /* the set's other functions need an ID, even while the set is about to be dropped */
    caller->id = mem_strndup(id, len);
    if (err != NULL)
        problems_add(problems, "%s", err);
    else if (find_id(from, caller->id) != NULL)
        problems_add(problems, "there is a caller %s already", quote(quoted, id, len));
}

callers_t *callers_edit_add(const callers_t *from, const char *id, const uint8_t sha256[32], const char *const *scopes,
                            size_t scope_count, uint64_t paid_seconds_per_day, problems_t *problems)
{
    size_t before = problems->count;
    callers_t *to = copy(from, NULL, NULL);
    caller_t *caller = callers_append(to);

    set_id(caller, id, from, problems);
    add_scopes(caller, scopes, scope_count, problems);
    check_allowance(paid_seconds_per_day, problems);
    caller->paid_seconds_per_day = paid_seconds_per_day;
    caller->tokens[0] = (caller_token_t){.not_before_ms = INT64_MIN, .not_after_ms = INT64_MAX};
    memcpy(caller->tokens[0].sha256, sha256, 32);
    caller->token_count = 1;
    caller_settle(caller);
    return finish(to, before, problems);
}

callers_t *callers_edit_allowance(const callers_t *from, const char *id, uint64_t paid_seconds_per_day,
                                  problems_t *problems)
{
    size_t before = problems->count;
    const caller_t *target = wanted(from, id, problems);
    caller_t *caller;
    callers_t *to;

    check_allowance(paid_seconds_per_day, problems);
    if (problems->count != before)
        return NULL;
    to = copy(from, target, &caller);
    caller->paid_seconds_per_day = paid_seconds_per_day;
    return finish(to, before, problems);
}

static bool has_token(const caller_t *caller, const uint8_t sha256[32])
{
    for (size_t i = 0; i < caller->token_count; i++)
        if (sodium_memcmp(caller->tokens[i].sha256, sha256, 32) == 0)
            return true;
    return false;
}

static int64_t up_to_second(int64_t ms)
{
    return ms % 1000 == 0 ? ms : ms - ms % 1000 + 1000;
}

/* Drops tokens that have ended, and one that would begin only after the overlap; ends the rest with it. */
static void end_tokens(caller_t *caller, int64_t now_ms, int64_t end_ms)
{
    size_t kept = 0;

    for (size_t i = 0; i < caller->token_count; i++) {
        caller_token_t token = caller->tokens[i];
        if (token.not_after_ms <= now_ms || token.not_before_ms >= end_ms)
            continue;
        if (token.not_after_ms > end_ms)
            token.not_after_ms = end_ms;
        caller->tokens[kept++] = token;
    }
    caller->token_count = kept;
}

callers_t *callers_edit_rotate(const callers_t *from, const char *id, const uint8_t sha256[32], int64_t now_ms,
                               int64_t overlap_ms, problems_t *problems)
{
    size_t before = problems->count;
    const caller_t *target = wanted(from, id, problems);
    caller_t *caller;
    callers_t *to;

    if (overlap_ms < 0 || overlap_ms > CALLERS_OVERLAP_MAX_MS)
        problems_add(problems, "an overlap takes 0 to 30 days");
    if (target != NULL && has_token(target, sha256))
        problems_add(problems, "the token is one the caller already has");
    if (problems->count != before)
        return NULL;
    to = copy(from, target, &caller);
    if (overlap_ms == 0)
        caller->token_count = 0;
    else
        end_tokens(caller, now_ms, up_to_second(now_ms + overlap_ms));
    if (caller->token_count == CALLER_TOKENS_MAX)
        problems_add(
            problems,
            "an earlier rotation still overlaps: wait until its old token has ended, or rotate without an overlap");
    else {
        caller_token_t *token = &caller->tokens[caller->token_count++];
        *token = (caller_token_t){.not_before_ms = INT64_MIN, .not_after_ms = INT64_MAX};
        memcpy(token->sha256, sha256, 32);
    }
    return finish(to, before, problems);
}

callers_t *callers_edit_revoke(const callers_t *from, const char *id, problems_t *problems)
{
    size_t before = problems->count;
    const caller_t *target = wanted(from, id, problems);
    callers_t *to;

    if (target == NULL)
        return NULL;
    to = callers_begin();
    for (size_t i = 0; i < callers_count(from); i++)
        if (callers_at(from, i) != target)
            callers_append_copy(to, callers_at(from, i));
    return finish(to, before, problems);
}
