#include "cli/runs_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/call.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/stored_run.h"
#include "cli/terminal.h"
#include "core/mem.h"
#include "core/random.h"

char *runs_find_path(const char *key, const char *wait_s)
{
    static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char before[] = "/v1/runs/by-key/", wait[] = "?wait=";
    size_t len = strlen(key), n = sizeof(before) - 1;
    if (len == 0 || len > RUNS_KEY_MAX)
        return NULL;
    char *path = mem_alloc(sizeof(before) + 3 * len + sizeof(wait) + (wait_s != NULL ? strlen(wait_s) : 0));
    memcpy(path, before, n);
    for (size_t i = 0; i < len; i++) {
        if (strchr(unreserved, key[i]) != NULL)
            path[n++] = key[i];
        else
            n += (size_t)sprintf(path + n, "%%%02X", (unsigned)(unsigned char)key[i]);
    }
    path[n] = '\0';
    if (wait_s != NULL)
        strcat(strcat(path, wait), wait_s);
    return path;
}

/* A run under way is answered with 202, which is as much a page as any; NULL: told. */
static json_t *get(const connection_t *connection, const char *path, uint32_t whole_ms)
{
    char request_id[REQUEST_ID_HEX + 1];
    failure_t failure;
    exchange_t exchange;
    json_t *page = NULL;
    char *url = connection_url(connection, path);
    random_hex(request_id, REQUEST_ID_HEX / 2);
    const exchange_request_t asked = {.url = url,
                                      .token = connection->token,
                                      .ca_file = connection->ca_file,
                                      .request_id = request_id,
                                      .whole_ms = whole_ms};
    exchange_perform(&asked, &exchange);
    if (exchange.outcome == EXCHANGE_DONE && exchange.status == 202)
        exchange.status = 200;
    bool usable = call_answer_is_usable(&exchange, request_id, &failure);
    if (usable && exchange.body.len > 0)
        page = json_loadb((const char *)exchange.body.base, exchange.body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                          NULL);
    if (usable && !json_is_object(page)) {
        json_decref(page);
        page = NULL;
        failure_does_not_hold(&failure, "the answer is not a JSON object");
    }
    if (page == NULL)
        failure_print(&failure, NULL, false);
    exchange_dispose(&exchange);
    free(url);
    return page;
}

static void line(const char *name, const char *value)
{
    if (value[0] == '\0')
        return;
    printf("%-16s", name);
    terminal_print(stdout, value);
    putchar('\n');
}

static void show(const json_t *page, const char *broken)
{
    static const char *const TEXTS[] = {"state", "run_id", "backend", "record_sha256", "unanswered", "error"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        line(TEXTS[i], cell_text(page, TEXTS[i]));
    if (json_is_object(json_object_get(page, "record")))
        line("record check", broken == NULL ? "holds (a tier is evidence, not attestation)" : broken);
}

static int status_of(const json_t *page, const char *broken)
{
    const char *state = cell_text(page, "state");
    if (broken != NULL)
        return CLI_DOES_NOT_HOLD;
    if (strcmp(state, "answered") == 0)
        return CLI_OK;
    return strcmp(state, "unknown") == 0 ? CLI_MAY_HAVE_RUN : CLI_TRY_LATER;
}

int runs_find(const runs_options_t *options, const connection_t *connection, const char *key)
{
    char *path = runs_find_path(key, options->wait);
    uint32_t wait_s = options->wait != NULL ? (uint32_t)atoi(options->wait) : 0;
    json_t *page = get(connection, path, CALL_GET_MS + wait_s * 1000);
    free(path);
    if (page == NULL)
        return CLI_FAILED;
    const char *broken = stored_run_check(page);
    bool told = true;
    if (options->json)
        told = json_print(page);
    else
        show(page, broken);
    int status = status_of(page, broken);
    json_decref(page);
    if (broken != NULL) {
        fflush(stdout);
        fprintf(stderr, "plimsoll: error: the stored record does not hold: %s\n", broken);
    }
    return told && fflush(stdout) == 0 ? status : CLI_FAILED;
}
