/* `plimsoll log head` and `plimsoll log prove`: what a gateway says of its log, to be kept and checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/attest_head.h"
#include "cli/attest_input.h"
#include "cli/command.h"
#include "cli/exchange.h"
#include "cli/log_pages.h"

static const char HEAD_HELP[] =
    "Usage: plimsoll log head [-out FILE] [OPTION]...\n"
    "\n"
    "Prints the newest head of the gateway's log of records in one line: how many records, and the root over them.\n"
    "Keep heads, signed if you like (`plimsoll attest sign-head`): an older one is what shows that the log was\n"
    "rewritten. By itself a head proves nothing.\n"
    "\n"
    "  -out FILE          write to a new file (mode 0600) instead of standard output\n"
    "\n" CONNECTION_HELP "  -daemon URL        the same as --url\n";

static const char PROVE_HELP[] =
    "Usage: plimsoll log prove [-head FILE] [-old FILE] [-pub FILE] [-out FILE] [OPTION]... RUN\n"
    "\n"
    "Prints, in one line, the proof that a run of the caller's is in the log: a head and the path from the run's\n"
    "record to its root, as `plimsoll log verify FILE` checks it without a gateway, years later.\n"
    "\n"
    "  -head FILE         under this head, such as one you signed, instead of the newest\n"
    "  -old FILE          and the proof that this older head's log is the beginning of it\n"
    "  -pub FILE          the key of heads that are signed\n"
    "  -out FILE          write to a new file (mode 0600) instead of standard output\n"
    "\n" CONNECTION_HELP "  -daemon URL        the same as --url\n";

/* One line, to a new file or standard output; takes `json`. */
static int put(const attest_options_t *options, json_t *json)
{
    int status = ATTEST_OK;
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (options->out != NULL) {
        buffer_t bytes;
        buffer_init(&bytes, ATTEST_HEAD_FILE_MAX);
        const char *why = buffer_append_str(&bytes, text) ? attest_write_new(options->out, &bytes) : "it is too large";
        if (why != NULL)
            status = attest_fail(options, "it cannot be written: %s", why);
        buffer_dispose(&bytes);
    } else {
        puts(text);
        status = attest_end_output(options);
    }
    free(text);
    return status;
}

int log_head(int argc, char **argv)
{
    attest_options_t options;
    log_pages_t pages;
    attest_given_head_t head;
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_CONNECTION | ATTEST_TAKES_OUT, 0, 0, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(HEAD_HELP);
    if (!log_pages_open(&pages, &options))
        return ATTEST_FAILED;
    json_t *page = log_pages_head(&pages);
    if (page != NULL) {
        const char *why = attest_head_read(page, NULL, &head);
        if (why != NULL)
            attest_fail(&options, "the gateway's head does not hold: %s", why);
        else
            status = put(&options, attest_head_json(&head.head));
        json_decref(page);
    }
    log_pages_close(&pages);
    return status;
}

/* A head out of a file, bare or signed: the JSON as it is, and what it says. NULL: told. */
static json_t *head_of_file(const attest_options_t *options, const attest_public_t *key, const char *path,
                            attest_given_head_t *head)
{
    json_t *json = attest_head_load(options, path), *inside = json_object_get(json, "head");
    if (json == NULL)
        return NULL;
    if (inside != NULL) {
        json_incref(inside);
        json_decref(json);
        json = inside;
    }
    const char *why = attest_head_read(json, key, head);
    if (why == NULL)
        return json;
    attest_fail(options, "%.200s: %s", path, why);
    json_decref(json);
    return NULL;
}

/* The document: heads as they were given, the proofs as the gateway gave them. NULL: told. */
static json_t *prove(const log_pages_t *pages, const attest_public_t *key, const char *run_id)
{
    const attest_options_t *options = pages->options;
    attest_given_head_t head = {0}, old = {0};
    json_t *given = NULL, *older = NULL, *page = NULL, *growth = NULL, *out = NULL;
    if (options->head != NULL && (given = head_of_file(options, key, options->head, &head)) == NULL)
        goto done;
    if (options->old != NULL && (older = head_of_file(options, key, options->old, &old)) == NULL)
        goto done;
    page = log_pages_inclusion(pages, run_id, given != NULL ? &head.head.size : NULL);
    if (page == NULL)
        goto done;
    if (given == NULL) {
        given = json_incref(json_object_get(page, "head"));
        const char *why = attest_head_read(given, NULL, &head);
        if (why != NULL) {
            attest_fail(options, "the gateway's head does not hold: %s", why);
            goto done;
        }
    }
    if (older != NULL && old.head.size != head.head.size &&
        (growth = log_pages_consistency(pages, old.head.size, &head.head.size)) == NULL)
        goto done;
    out = json_pack("{s:O, s:O*}", "head", given, "inclusion", json_object_get(page, "inclusion"));
    if (older != NULL)
        json_object_set(out, "old_head", older);
    if (json_object_get(page, "receipt") != NULL)
        json_object_set(out, "receipt", json_object_get(page, "receipt"));
    if (growth != NULL)
        json_object_set(out, "consistency", json_object_get(growth, "consistency"));
done:
    json_decref(given);
    json_decref(older);
    json_decref(page);
    json_decref(growth);
    return out;
}

int log_prove(int argc, char **argv)
{
    attest_options_t options;
    attest_public_t key;
    log_pages_t pages;
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv,
                              ATTEST_TAKES_CONNECTION | ATTEST_TAKES_HEAD | ATTEST_TAKES_OLD | ATTEST_TAKES_PUB |
                                  ATTEST_TAKES_OUT,
                              1, 1, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(PROVE_HELP);
    if (!request_id_is_valid(options.files[0]))
        return attest_fail(&options, "a RUN is 32 lowercase hex digits, as `plimsoll runs list` shows them");
    if (options.pub != NULL && !attest_open_pub(&options, &key))
        return ATTEST_FAILED;
    if (!log_pages_open(&pages, &options))
        return ATTEST_FAILED;
    json_t *document = prove(&pages, options.pub != NULL ? &key : NULL, options.files[0]);
    if (document != NULL)
        status = put(&options, document);
    log_pages_close(&pages);
    return status;
}
