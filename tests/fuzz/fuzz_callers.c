/* The callers file from hostile bytes: never a crash; and what is accepted is written and read again as the same set.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/callers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_round_trip(const callers_t *callers)
{
    problems_t problems = {NULL, 0};
    char *text = callers_format(callers), *again;
    callers_t *second = callers_parse(text, strlen(text), true, &problems);

    check(second != NULL && problems.count == 0);
    again = callers_format(second);
    check(strcmp(text, again) == 0);
    free(again);
    free(text);
    callers_unref(second);
}

static void check_lookup(const callers_t *callers)
{
    for (size_t i = 0; i < callers_count(callers); i++) {
        const caller_t *caller = callers_at(callers, i);
        for (size_t t = 0; t < caller->token_count; t++) {
            const caller_token_t *token = &caller->tokens[t];
            check(token->not_before_ms < token->not_after_ms);
            check(callers_find(callers, token->sha256, token->not_before_ms) == caller);
            check(token->not_after_ms == INT64_MAX ||
                  callers_find(callers, token->sha256, token->not_after_ms) == NULL);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    problems_t problems = {NULL, 0};
    callers_t *callers = callers_parse((const char *)data, size, true, &problems);

    check((callers == NULL) == (problems.count > 0));
    if (callers != NULL) {
        check_round_trip(callers);
        check_lookup(callers);
    }
    callers_unref(callers);
    problems_dispose(&problems);
    return 0;
}
