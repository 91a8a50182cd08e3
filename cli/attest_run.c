/* `plimsoll attest run`: one run, checked, signed and appended to a bundle (attest section 9.1). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/attest.h"
#include "cli/attest_send.h"
#include "cli/attest_store.h"
#include "cli/command.h"
#include "cli/run_print.h"
#include "cli/terminal.h"
#include "records/attest_entry.h"
#include "records/digest.h"

static const char HELP[] =
    "Usage: plimsoll attest run -bundle FILE [-key FILE] [-shared-bundle] [-timeout TIME] [-json] REQUEST.json\n"
    "\n"
    "Sends one Run request (protobuf JSON, `protocol` in it, no unknown member; - for standard input), checks\n"
    "the answer against its record and your own copy of the request, signs the record, and appends it all to\n"
    "the bundle with a checkpoint. Nothing is sent unless the bundle can be continued: it is not there yet, or\n"
    "it verifies under this key.\n"
    "\n"
    "  -bundle FILE      the bundle; made with mode 0600 when it is not there\n"
    "  -key FILE         the private key (default: PLIMSOLL_ATTEST_KEY)\n"
    "  -shared-bundle    let others read or write the bundle; without it such a file is refused\n"
    "  -timeout TIME     the whole exchange's bound (default 6m)\n"
    "\n"
    "Prints where it ran, behind which tier and with what end; then the record's digest; then the request's\n"
    "digest, as a line for the list of `attest verify -expect`. A run that happened and could not be appended\n"
    "is told as not recorded, and its signed entry is kept in BUNDLE.unsealed-TIME-XXXXXXXX.jsonl: `attest\n"
    "bundle` takes it from there.\n"
    "\n" CONNECTION_HELP "  -daemon URL        the same as --url\n";

/* ---- what is told ---- */

static void print_summary(const Plimsoll__V1__RunResponse *response, FILE *out)
{
    static const char *const OUTCOMES[] = {"unspecified", "completed",      "setup failed",
                                           "timed out",   "protocol error", "runner failed"};
    switch (response->result_case) {
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT: {
        const Plimsoll__V1__JavaScriptResult *r = response->javascript;
        fprintf(out, "exit %" PRId32 "%s, %zu bytes of stdout, %zu of stderr", r->exit_code,
                r->timed_out ? " (timed out)" : "", r->stdout.len, r->stderr.len);
        break;
    }
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_CELL: {
        const Plimsoll__V1__CellResult *r = response->cell;
        fprintf(out, "exit %" PRId32 "%s, %zu bytes of stdout, %zu of stderr", r->exit_code,
                r->timed_out ? " (timed out)" : "", r->stdout.len, r->stderr.len);
        break;
    }
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT: {
        const Plimsoll__V1__ProjectResult *r = response->project;
        unsigned outcome = (unsigned)r->outcome;
        fprintf(out, "%s, %zu steps, %zu artifacts",
                outcome < sizeof(OUTCOMES) / sizeof(OUTCOMES[0]) ? OUTCOMES[outcome] : "unknown", r->n_steps,
                r->n_artifacts);
        break;
    }
    case PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE: {
        const Plimsoll__V1__ModuleResult *r = response->module;
        unsigned outcome = (unsigned)r->outcome;
        fprintf(out, "%s, %zu rows", outcome < sizeof(OUTCOMES) / sizeof(OUTCOMES[0]) ? OUTCOMES[outcome] : "unknown",
                r->n_runs);
        break;
    }
    default:
        fputs("no result", out);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static json_t *told_json(const attest_options_t *options, const Plimsoll__V1__RunResponse *response)
{
    const Plimsoll__V1__RunRecord *record = response->record;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "bundle", options->bundle, "provider", record->provider, "isolation",
                  record->isolation, "record_sha256", record->record_sha256, "request_sha256", record->request_sha256);
    json_object_set_new(object, "isolation_is", json_string("evidence, not attestation"));
    json_object_set_new(object, "response", json_of_message(&response->base));
    return object;
}

static int tell(const attest_options_t *options, const Plimsoll__V1__RunResponse *response)
{
    const Plimsoll__V1__RunRecord *record = response->record;
    if (options->json)
        return attest_print_json(options, told_json(options, response));
    fputs("ran by ", stdout);
    terminal_print(stdout, record->provider);
    fputs(" behind ", stdout);
    terminal_print(stdout, record->isolation);
    fputs(" (evidence, not attestation): ", stdout);
    print_summary(response, stdout);
    printf("\nrecord %s\n%s ", record->record_sha256, record->request_sha256);
    terminal_print(stdout, base_name(options->files[0]));
    putchar('\n');
    return attest_end_output(options);
}

/* ---- what is kept ---- */

typedef struct {
    attest_content_t content;
    bool is_given;
} one_entry_t;

static const char *next_entry(void *data, const attest_key_t *key, attest_prefix_t prefix, buffer_t *entry,
                              bool *is_end)
{
    one_entry_t *one = data;
    *is_end = one->is_given;
    one->is_given = true;
    return *is_end ? NULL : attest_entry_sign(entry, key, prefix, &one->content);
}

/* The executed result is the caller's, recorded or not (attest section 8): it is told beside the failure. */
static int not_recorded(const attest_options_t *options, const attest_key_t *key, const attest_content_t *content,
                        const char *why)
{
    char path[ATTEST_UNSEALED_PATH_MAX] = "";
    json_t *told = options->json ? told_json(options, content->response) : NULL;
    buffer_t entry;
    buffer_init(&entry, ATTEST_LINE_MAX);
    if (!options->json)
        (void)tell(options, content->response);
    const char *why_not = attest_entry_sign(&entry, key, ATTEST_OURS, content);
    if (why_not == NULL)
        why_not = attest_store_unsealed(options->bundle, &entry, path);
    buffer_dispose(&entry);
    if (why_not == NULL)
        return attest_fail_with(options, told, "it ran, but is not recorded: %s; its signed entry is in %s", why, path);
    return attest_fail_with(
        options, told, "it ran, but is not recorded: %s; its signed entry could not be kept either: %s", why, why_not);
}

static int keep_and_tell(const attest_options_t *options, const attest_key_t *key,
                         const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response)
{
    char error[ATTEST_STORE_ERROR_MAX];
    uint64_t written = 0;
    one_entry_t one = {.content = {.request = request, .response = response}};
    const char *why = attest_store_append(options, key, next_entry, &one, &written, error);
    return why == NULL ? tell(options, response) : not_recorded(options, key, &one.content, why);
}

/* ---- the run ---- */

static int send_and_keep(const attest_options_t *options, const attest_key_t *key, const connection_t *connection,
                         const Plimsoll__V1__RunRequest *request)
{
    int status = ATTEST_FAILED;
    buffer_t why;
    buffer_init(&why, 8192);
    Plimsoll__V1__RunResponse *response = (Plimsoll__V1__RunResponse *)attest_send(
        connection, options->timeout_ms, "Run", &request->base, &plimsoll__v1__run_response__descriptor, &why);
    const char *broken = response != NULL ? record_check(request, response) : NULL;
    if (response == NULL)
        attest_fail(options, "%s; the bundle is as it was", (const char *)why.base);
    else if (broken != NULL)
        attest_fail(options, "the answer does not hold: %s; it may have run, and is not recorded", broken);
    else
        status = keep_and_tell(options, key, request, response);
    plimsoll__v1__run_response__free_unpacked(response, NULL);
    buffer_dispose(&why);
    return status;
}

int attest_run(int argc, char **argv)
{
    attest_options_t options;
    connection_t connection = {0};
    char error[ATTEST_STORE_ERROR_MAX], connection_error[CONNECTION_ERROR_MAX];
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_CONNECTION | ATTEST_TAKES_KEY | ATTEST_TAKES_BUNDLE, 1, 1,
                              &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(HELP);
    if (options.bundle == NULL)
        return attest_fail(&options, "-bundle FILE is needed: where the run is kept");
    attest_key_t *key = attest_open_key(&options);
    if (key == NULL)
        return ATTEST_FAILED;
    Plimsoll__V1__RunRequest *request =
        attest_read_message_strictly(&options, "the request", options.files[0], &plimsoll__v1__run_request__descriptor);
    if (request == NULL)
        goto done;
    if (!connection_open(&options.connection, &connection, connection_error)) {
        attest_fail(&options, "%s; nothing was sent", connection_error);
        goto done;
    }
    const char *why = attest_store_check(&options, key, error);
    if (why != NULL)
        attest_fail(&options, "%s; nothing was sent", why);
    else
        status = send_and_keep(&options, key, &connection, request);
done:
    plimsoll__v1__run_request__free_unpacked(request, NULL);
    connection_dispose(&connection);
    attest_key_destroy(key);
    return status;
}
