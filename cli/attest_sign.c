/* `plimsoll attest sign` and `attest bundle`: stored exchanges, signed after the same checks as a run of one's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/attest.h"
#include "cli/attest_input.h"
#include "cli/attest_store.h"
#include "cli/command.h"
#include "cli/input.h"
#include "core/mem.h"
#include "records/attest_bundle.h"
#include "records/attest_entry.h"

static const char SIGN_HELP[] =
    "Usage: plimsoll attest sign [-key FILE] -request FILE -response FILE [-entry] [-out FILE]\n"
    "       plimsoll attest sign [-key FILE] -request FILE -record FILE [-entry] [-out FILE]\n"
    "\n"
    "Checks one stored exchange as `attest run` checks its own, and prints the DSSE envelope that states its\n"
    "record. The files are protobuf JSON (- for standard input): a RunRequest or SessionRunRequest, and the\n"
    "RunResponse, or the RunRecord of a session's call that was never answered. A record is signed only beside\n"
    "the request it is about: by itself nobody could check it.\n"
    "\n"
    "  -key FILE         the private key (default: PLIMSOLL_ATTEST_KEY)\n"
    "  -entry            print the bundle's entry instead: request, response and envelope in one line\n"
    "  -out FILE         write to a new file (mode 0600) instead of standard output\n";

static const char BUNDLE_HELP[] =
    "Usage: plimsoll attest bundle -bundle FILE [-key FILE] [-shared-bundle] [-json] FILE...\n"
    "\n"
    "Appends stored exchanges to a bundle, all of them or none, with one checkpoint. Each FILE (- for standard\n"
    "input) holds one JSON object a line:\n"
    "\n"
    "  {\"request\":{...},\"response\":{...}}   an answered call: RunRequest and RunResponse as protobuf JSON\n"
    "  {\"request\":{...},\"record\":{...}}     a session's call that was never answered, with its RunRecord\n"
    "  {\"close\":{...}}                      a session's CloseSessionResponse, after its last call\n"
    "  an entry as `attest run` sets aside and `attest sign -entry` prints; its signature must be this key's\n"
    "\n"
    "Everything is checked as at signing, and the bundle must verify with it: a session's calls stand in order\n"
    "and end in its close.\n"
    "\n"
    "  -bundle FILE      the bundle; made with mode 0600 when it is not there\n"
    "  -key FILE         the private key (default: PLIMSOLL_ATTEST_KEY)\n"
    "  -shared-bundle    let others read or write the bundle; without it such a file is refused\n";

/* ---- sign ---- */

static int write_out(const attest_options_t *options, const buffer_t *text)
{
    if (options->out == NULL) {
        fwrite(text->base, 1, text->len, stdout);
        putchar('\n');
        return attest_end_output(options);
    }
    const char *why = attest_write_new(options->out, text);
    return why == NULL ? ATTEST_OK : attest_fail(options, "%.200s cannot be made: %s", options->out, why);
}

static int sign_content(const attest_options_t *options, const attest_key_t *key, const attest_content_t *content)
{
    const char *why;
    buffer_t out;
    buffer_init(&out, ATTEST_LINE_MAX);
    if (options->entry)
        why = attest_entry_sign(&out, key, ATTEST_OURS, content);
    else if (content->response != NULL)
        why = attest_sign_answered(&out, key, ATTEST_OURS, content->request, content->response);
    else
        why = attest_sign_unanswered(&out, key, ATTEST_OURS, content->request, content->record);
    int status = why != NULL ? attest_fail(options, "nothing is signed: %s", why) : write_out(options, &out);
    buffer_dispose(&out);
    return status;
}

int attest_sign(int argc, char **argv)
{
    attest_options_t options;
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_KEY | ATTEST_TAKES_EXCHANGE | ATTEST_TAKES_OUT, 0, 0, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(SIGN_HELP);
    if (options.request == NULL)
        return attest_fail(&options, "-request FILE is needed: a record is signed only beside its request");
    if ((options.response == NULL) == (options.record == NULL))
        return attest_fail(&options, "one of -response FILE and -record FILE is needed");
    attest_key_t *key = attest_open_key(&options);
    if (key == NULL)
        return ATTEST_FAILED;
    Plimsoll__V1__RunResponse *response = NULL;
    Plimsoll__V1__RunRecord *record = NULL;
    Plimsoll__V1__RunRequest *request =
        attest_read_message(&options, "the request", options.request, &plimsoll__v1__run_request__descriptor);
    if (request != NULL && options.response != NULL)
        response =
            attest_read_message(&options, "the response", options.response, &plimsoll__v1__run_response__descriptor);
    if (request != NULL && options.record != NULL)
        record = attest_read_message(&options, "the record", options.record, &plimsoll__v1__run_record__descriptor);
    if (response != NULL || record != NULL)
        status = sign_content(&options, key,
                              &(attest_content_t){.request = request, .response = response, .record = record});
    plimsoll__v1__run_request__free_unpacked(request, NULL);
    plimsoll__v1__run_response__free_unpacked(response, NULL);
    plimsoll__v1__run_record__free_unpacked(record, NULL);
    attest_key_destroy(key);
    return status;
}

/* ---- bundle ---- */

static int tell_written(const attest_options_t *options, uint64_t written)
{
    if (options->json)
        return attest_print_json(options,
                                 json_pack("{s:s, s:I}", "bundle", options->bundle, "written", (json_int_t)written));
    printf("%llu %s appended\n", (unsigned long long)written, written == 1 ? "entry" : "entries");
    return attest_end_output(options);
}

int attest_bundle(int argc, char **argv)
{
    attest_options_t options;
    char error[ATTEST_STORE_ERROR_MAX];
    uint64_t written = 0;
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_KEY | ATTEST_TAKES_BUNDLE, 1, ATTEST_INPUT_FILES_MAX, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(BUNDLE_HELP);
    if (options.bundle == NULL)
        return attest_fail(&options, "-bundle FILE is needed: where the entries go");
    attest_key_t *key = attest_open_key(&options);
    if (key == NULL)
        return ATTEST_FAILED;
    attest_input_t *input = attest_input_open(options.files, options.file_count);
    const char *why = attest_store_check(&options, key, error);
    if (why == NULL)
        why = attest_store_append(&options, key, attest_input_next, input, &written, error);
    if (why != NULL)
        attest_fail(&options, "%s", why);
    else
        status = tell_written(&options, written);
    attest_input_close(input);
    attest_key_destroy(key);
    return status;
}
