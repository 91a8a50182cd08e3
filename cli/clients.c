/*
 * `plimsoll clients` (spec section 1.6), over config/callers_edit.h and config/callers_store.h. The token is delivered
 * only after the file holds its hash; a delivery that fails says so, because the caller then has a token nobody knows.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/clients_options.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "config/callers_edit.h"
#include "config/callers_store.h"
#include "config/token.h"
#include "core/clock.h"
#include "core/mem.h"

enum {
    CLIENTS_LIST_MAX = 64 * 1024 * 1024
}; /* bytes of a list: a file of CALLERS_FILE_MAX with indentation and labels */

/* One line, whatever the problems say. */
static int fail(const char *what)
{
    fprintf(stderr, "plimsoll clients: %s\n", what);
    return CLI_FAILED;
}

static int fail_with(const problems_t *problems)
{
    fputs("plimsoll clients: ", stderr);
    for (size_t i = 0; i < problems->count; i++)
        fprintf(stderr, "%s%s", i == 0 ? "" : "; ", problems->texts[i]);
    fputs(problems->count == 0 ? "it failed\n" : "\n", stderr);
    return CLI_FAILED;
}

/* A token of TOKEN_MAX characters and what may end its line. */
typedef struct {
    char text[TOKEN_MAX + 3];
    size_t len;
} token_t;

static void token_wipe(token_t *token)
{
    explicit_bzero(token, sizeof(*token));
}

/* NULL, or why stdin holds no token. */
static const char *token_read(token_t *token)
{
    buffer_t text;
    buffer_init(&text, sizeof(token->text) - 1);
    const char *why = input_read("-", &text);
    if (why == NULL) {
        const char *start = text.len == 0 ? "" : (const char *)text.base;
        token->len = token_strip_newline(start, text.len);
        memcpy(token->text, start, token->len);
        why = token_check(token->text, token->len);
    }
    if (text.base != NULL)
        explicit_bzero(text.base, text.cap);
    buffer_dispose(&text);
    return why;
}

/* Where the command's new token comes from. false with the reason told. */
static bool token_take(const clients_options_t *options, token_t *token)
{
    bool from_stdin = options->command == CLIENTS_IMPORT || options->token_stdin;
    if (!from_stdin) {
        token_generate(token->text);
        token->len = TOKEN_GENERATED;
        return true;
    }
    const char *why = token_read(token);
    if (why == NULL)
        return true;
    char line[CLIENTS_ERROR_MAX];
    snprintf(line, sizeof(line), "stdin does not hold a token: %s", why);
    fail(line);
    return false;
}

static bool needs_token(const clients_options_t *options)
{
    return options->command == CLIENTS_CREATE || options->command == CLIENTS_IMPORT ||
           options->command == CLIENTS_ROTATE;
}

static callers_t *edited(const clients_options_t *options, const callers_t *from, const token_t *token,
                         problems_t *problems)
{
    uint8_t hash[32];
    token_sha256(token->text, token->len, hash);
    switch (options->command) {
    case CLIENTS_CREATE:
    case CLIENTS_IMPORT:
        return callers_edit_add(from, options->id, hash, options->scopes, options->scope_count,
                                options->paid_seconds_per_day, problems);
    case CLIENTS_LIMIT:
        return callers_edit_allowance(from, options->id, options->paid_seconds_per_day, problems);
    case CLIENTS_ROTATE:
        return callers_edit_rotate(from, options->id, hash, clock_wall_ms(), options->overlap_ms, problems);
    default:
        return callers_edit_revoke(from, options->id, problems);
    }
}

/* The token and its newline on stdout, in one write where the system allows. */
static bool token_deliver(token_t *token)
{
    token->text[token->len] = '\n';
    return output_write(STDOUT_FILENO, token->text, token->len + 1);
}

static void remind(const clients_options_t *options, const callers_t *now)
{
    fputs("plimsoll clients: written; a running gateway keeps the old set until it reads the file again", stderr);
    if (options->command == CLIENTS_REVOKE && callers_count(now) == 0)
        fputs("; no caller is left, and a gateway refuses to start with none", stderr);
    fputc('\n', stderr);
}

/* Edits and writes under the store's lock. The store is closed afterwards either way. */
static int edit_and_write(const clients_options_t *options, callers_store_t *store, const token_t *token)
{
    problems_t problems = {0};
    callers_t *now = edited(options, callers_store_callers(store), token, &problems);
    callers_written_t written = CALLERS_UNTOUCHED;
    if (now != NULL)
        written = callers_store_write(store, now, &problems);
    callers_store_close(store, &problems);
    int status = CLI_OK;
    if (written != CALLERS_WRITTEN || problems.count > 0) {
        status = fail_with(&problems);
        /* The hash is in place; what was not delivered now never will be. */
        if (written != CALLERS_UNTOUCHED && needs_token(options) && options->token_stdout)
            fputs("plimsoll clients: the new token was not delivered: rotate it\n", stderr);
    } else {
        remind(options, now);
    }
    if (now != NULL)
        callers_unref(now);
    problems_dispose(&problems);
    return status;
}

static int edit(const clients_options_t *options)
{
    token_t token = {.len = 0};
    /* Before the lock: stdin may be a person. */
    if (needs_token(options) && !token_take(options, &token))
        return CLI_FAILED;
    bool may_create = options->command == CLIENTS_CREATE || options->command == CLIENTS_IMPORT;
    problems_t problems = {0};
    int status;
    callers_store_t *store = callers_store_open(options->file, may_create, &problems);
    if (store == NULL)
        status = fail_with(&problems);
    else
        status = edit_and_write(options, store, &token);
    if (status == CLI_OK && options->token_stdout && !token_deliver(&token)) {
        char line[CLIENTS_ERROR_MAX];
        snprintf(line, sizeof(line), "the file is written, but the token could not be delivered (%s): rotate it",
                 strerror(errno));
        status = fail(line);
    }
    token_wipe(&token);
    problems_dispose(&problems);
    return status;
}

static int list(const clients_options_t *options)
{
    problems_t problems = {0};
    callers_t *callers = callers_store_read(options->file, &problems);
    if (callers == NULL) {
        int status = fail_with(&problems);
        problems_dispose(&problems);
        return status;
    }
    buffer_t text;
    buffer_init(&text, CLIENTS_LIST_MAX);
    bool fits = options->json ? callers_list_json(callers, &text) : callers_list_text(callers, clock_wall_ms(), &text);
    int status = CLI_OK;
    if (!fits)
        status = fail("the list is too long");
    else if (!output_write(STDOUT_FILENO, text.base, text.len))
        status = fail("the list could not be written");
    buffer_dispose(&text);
    callers_unref(callers);
    problems_dispose(&problems);
    return status;
}

int command_clients(int argc, char **argv)
{
    clients_options_t options;
    char error[CLIENTS_ERROR_MAX];
    if (!clients_options_parse(argc, argv, &options, error))
        return fail(error);
    if (options.command == CLIENTS_HELP)
        return print_help(CLIENTS_HELP_TEXT);
    return options.command == CLIENTS_LIST ? list(&options) : edit(&options);
}
