/*
 * `plimsoll attest replay`: every call of a bundle sent again, and the results compared (attest section 7). Two passes
 * over the file: the first verifies all of it and notes each call, the second reads the requests again and believes a
 * line only when it is byte for byte the one that was verified.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/attest.h"
#include "cli/attest_send.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "core/mem.h"
#include "core/protowire.h"
#include "records/attest_bundle.h"
#include "records/digest.h"
#include "records/tier.h"

static const char HELP[] =
    "Usage: plimsoll attest replay -pub FILE [-timeout TIME] [-json] BUNDLE\n"
    "\n"
    "Verifies the bundle, then sends every stored request again, single runs first, each session's calls in\n"
    "order in a fresh session, and compares the new result's digest with the signed one. Nothing is sent unless\n"
    "the bundle verifies. It means something for code that does the same every time, and costs what the runs\n"
    "cost. One line a call; the exit code is 1 when any differed. A call that was never answered has nothing to\n"
    "compare with, and never matches.\n"
    "\n"
    "  -timeout TIME     each exchange's bound (default 6m)\n"
    "\n" CONNECTION_HELP "  -daemon URL        the same as --url\n";

enum { SHORT_DIGEST = 16, SHORT_SESSION = 12 };

/* One recorded call: where it stands, and what came of it. */
typedef struct {
    uint64_t line;
    char line_sha256[SHA256_HEX + 1];
    char result_sha256[SHA256_HEX + 1]; /* "" = it was not answered */
    char session[SHA256_HEX + 1];       /* "" = a single run */
    uint64_t sequence;
    uint64_t offset; /* of its line; set by find_lines */
} call_t;

typedef struct {
    const attest_options_t *options;
    const connection_t *connection;
    int fd;
    call_t *calls;
    size_t count, cap;
    size_t same, different;
    json_t *told; /* with -json: an object a call */
} replay_t;

static void on_entry(void *data, const attest_entry_t *entry)
{
    replay_t *replay = data;
    if (entry->record == NULL)
        return;
    if (replay->count == replay->cap) {
        replay->cap = replay->cap == 0 ? 64 : 2 * replay->cap;
        replay->calls = mem_realloc(replay->calls, replay->cap * sizeof(*replay->calls));
    }
    call_t *call = &replay->calls[replay->count++];
    *call = (call_t){.line = entry->line, .sequence = entry->record->sequence};
    snprintf(call->line_sha256, sizeof(call->line_sha256), "%s", entry->line_sha256);
    snprintf(call->result_sha256, sizeof(call->result_sha256), "%s", entry->record->result_sha256);
    snprintf(call->session, sizeof(call->session), "%s", entry->record->session);
}

/* Where each call's line begins. false when the file has other lines than the verified one. */
static bool find_lines(replay_t *replay)
{
    attest_lines_t lines;
    const char *line, *err;
    size_t len, found = 0;
    uint64_t number = 1, offset = 0;
    attest_lines_init(&lines, replay->fd);
    for (; found < replay->count && attest_lines_next(&lines, &line, &len, &err); number++) {
        if (replay->calls[found].line == number)
            replay->calls[found++].offset = offset;
        offset = lines.offset;
    }
    attest_lines_dispose(&lines);
    return found == replay->count;
}

/* The request of a call, read again; NULL when the line is no longer the one that was verified. */
static Plimsoll__V1__RunRequest *read_request(const replay_t *replay, const call_t *call)
{
    Plimsoll__V1__RunRequest *request = NULL;
    char error[PROTOWIRE_ERROR_MAX];
    attest_lines_t lines;
    attest_line_t line;
    const char *text, *err;
    size_t len;
    attest_lines_init(&lines, replay->fd);
    lines.offset = call->offset;
    if (attest_lines_next(&lines, &text, &len, &err)) {
        if (attest_line_read(text, len, true, &line) == NULL && strcmp(line.line_sha256, call->line_sha256) == 0)
            request = (Plimsoll__V1__RunRequest *)protowire_parse(&plimsoll__v1__run_request__descriptor, line.request,
                                                                  line.request_len, error);
        attest_line_dispose(&line);
    }
    attest_lines_dispose(&lines);
    return request;
}

/* ---- telling ---- */

/* `got` is the new result's digest, "" when there is none, and `why` then says so. */
static void tell(replay_t *replay, const call_t *call, const char *got, const char *why)
{
    bool is_same = call->result_sha256[0] != '\0' && strcmp(got, call->result_sha256) == 0;
    replay->same += is_same;
    replay->different += !is_same;
    if (replay->told != NULL) {
        json_array_append_new(replay->told, json_pack("{s:I, s:s, s:I, s:b, s:s, s:s, s:s?}", "line",
                                                      (json_int_t)call->line, "session", call->session, "sequence",
                                                      (json_int_t)call->sequence, "same", is_same, "recorded_sha256",
                                                      call->result_sha256, "replayed_sha256", got, "failure", why));
        return;
    }
    printf("line %" PRIu64, call->line);
    if (call->session[0] != '\0')
        printf(" (session %.*s call %" PRIu64 ")", SHORT_SESSION, call->session, call->sequence);
    if (why != NULL) {
        fputs(": failed: ", stdout);
        terminal_print(stdout, why);
    } else if (is_same) {
        printf(": same result %.*s", SHORT_DIGEST, got);
    } else if (call->result_sha256[0] == '\0') {
        printf(": different: the recorded call was not answered, now %.*s", SHORT_DIGEST, got);
    } else {
        printf(": different: recorded %.*s, now %.*s", SHORT_DIGEST, call->result_sha256, SHORT_DIGEST, got);
    }
    putchar('\n');
    fflush(stdout);
}

static void tell_answer(replay_t *replay, const call_t *call, const Plimsoll__V1__RunResponse *response,
                        const char *broken)
{
    char digest[SHA256_HEX + 1];
    if (broken != NULL) {
        tell(replay, call, "", broken);
        return;
    }
    digest_result(response, digest);
    tell(replay, call, digest, NULL);
}

static const char CHANGED[] = "the bundle was changed while it was replayed; not sent";

/* ---- single runs ---- */

static void replay_single(replay_t *replay, const call_t *call)
{
    buffer_t why;
    buffer_init(&why, 8192);
    Plimsoll__V1__RunRequest *request = read_request(replay, call);
    if (request == NULL) {
        tell(replay, call, "", CHANGED);
        goto done;
    }
    Plimsoll__V1__RunResponse *response =
        (Plimsoll__V1__RunResponse *)attest_send(replay->connection, replay->options->timeout_ms, "Run", &request->base,
                                                 &plimsoll__v1__run_response__descriptor, &why);
    if (response == NULL)
        tell(replay, call, "", (const char *)why.base);
    else
        tell_answer(replay, call, response, record_check(request, response));
    plimsoll__v1__run_response__free_unpacked(response, NULL);
done:
    plimsoll__v1__run_request__free_unpacked(request, NULL);
    buffer_dispose(&why);
}

/* ---- sessions ---- */

/* What a fresh session must offer so that none of the calls is refused: the strongest floor, each cell's language. */
typedef struct {
    uint32_t protocol;
    tier_t floor;
    bool has_language[2];
} needs_t;
static const char *const LANGUAGES[2] = {"javascript", "python"};

static void add_needs(needs_t *needs, const Plimsoll__V1__RunRequest *request)
{
    tier_t floor;
    needs->protocol = request->protocol;
    if (tier_parse_floor(request->minimum_isolation, &floor) && floor > needs->floor)
        needs->floor = floor;
    if (request->payload_case != PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_CELL)
        return;
    for (int i = 0; i < 2; i++)
        needs->has_language[i] = needs->has_language[i] || strcmp(request->cell->language, LANGUAGES[i]) == 0;
}

/* The new session, or NULL with `why`. */
static Plimsoll__V1__OpenSessionResponse *open_session(const replay_t *replay, const needs_t *needs, buffer_t *why)
{
    char *languages[2];
    Plimsoll__V1__OpenSessionRequest request = PLIMSOLL__V1__OPEN_SESSION_REQUEST__INIT;
    request.protocol = needs->protocol;
    request.minimum_isolation = needs->floor == TIER_UNKNOWN ? (char *)"" : (char *)tier_name(needs->floor);
    request.languages = languages;
    for (int i = 0; i < 2; i++)
        if (needs->has_language[i])
            languages[request.n_languages++] = (char *)LANGUAGES[i];
    return (Plimsoll__V1__OpenSessionResponse *)attest_send(replay->connection, replay->options->timeout_ms,
                                                            "OpenSession", &request.base,
                                                            &plimsoll__v1__open_session_response__descriptor, why);
}

static void close_session(const replay_t *replay, uint32_t protocol, const char *id)
{
    buffer_t why;
    buffer_init(&why, 8192);
    Plimsoll__V1__CloseSessionRequest request = PLIMSOLL__V1__CLOSE_SESSION_REQUEST__INIT;
    request.protocol = protocol;
    request.session_id = (char *)id;
    ProtobufCMessage *answer = attest_send(replay->connection, replay->options->timeout_ms, "CloseSession",
                                           &request.base, &plimsoll__v1__close_session_response__descriptor, &why);
    if (answer == NULL)
        fprintf(stderr, "%s: note: a session could not be closed: %s\n", replay->options->verb, (char *)why.base);
    else
        protobuf_c_message_free_unpacked(answer, NULL);
    buffer_dispose(&why);
}

static void fill_session_run(Plimsoll__V1__SessionRunRequest *out, const Plimsoll__V1__RunRequest *request,
                             const char *id)
{
    plimsoll__v1__session_run_request__init(out);
    out->protocol = request->protocol;
    out->minimum_isolation = request->minimum_isolation;
    out->trace_id = request->trace_id;
    out->timeout_ms = request->timeout_ms;
    out->session_id = (char *)id;
    out->software_rule = request->software_rule;
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        out->payload_case = PLIMSOLL__V1__SESSION_RUN_REQUEST__PAYLOAD_JAVASCRIPT;
        out->javascript = request->javascript;
        break;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        out->payload_case = PLIMSOLL__V1__SESSION_RUN_REQUEST__PAYLOAD_PROJECT;
        out->project = request->project;
        break;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_CELL:
        out->payload_case = PLIMSOLL__V1__SESSION_RUN_REQUEST__PAYLOAD_CELL;
        out->cell = request->cell;
        break;
    default: /* a session runs no modules: the gateway refuses the empty call, and that is told */
        break;
    }
}

/* Whether the answer is this session's; the rest as for a single run. */
static const char *check_session_answer(const Plimsoll__V1__RunRequest *request,
                                        const Plimsoll__V1__SessionRunResponse *answer, const char *session_id)
{
    char fingerprint[SHA256_HEX + 1];
    if (answer->run == NULL)
        return "the answer carries no run";
    const char *why = record_check_in_session(request, answer->run);
    if (why != NULL)
        return why;
    digest_session_id(session_id, fingerprint);
    return strcmp(answer->run->record->session, fingerprint) == 0 ? NULL : "the answer's record is another session's";
}

static void replay_in_session(replay_t *replay, const call_t *call, const char *id)
{
    Plimsoll__V1__SessionRunRequest asked;
    buffer_t why;
    buffer_init(&why, 8192);
    Plimsoll__V1__RunRequest *request = read_request(replay, call);
    if (request == NULL) {
        tell(replay, call, "", CHANGED);
        goto done;
    }
    fill_session_run(&asked, request, id);
    Plimsoll__V1__SessionRunResponse *answer = (Plimsoll__V1__SessionRunResponse *)attest_send(
        replay->connection, replay->options->timeout_ms, "SessionRun", &asked.base,
        &plimsoll__v1__session_run_response__descriptor, &why);
    if (answer == NULL)
        tell(replay, call, "", (const char *)why.base);
    else
        tell_answer(replay, call, answer->run, check_session_answer(request, answer, id));
    plimsoll__v1__session_run_response__free_unpacked(answer, NULL);
done:
    plimsoll__v1__run_request__free_unpacked(request, NULL);
    buffer_dispose(&why);
}

static bool is_of(const call_t *call, const char *session)
{
    return strcmp(call->session, session) == 0;
}

static void replay_session(replay_t *replay, const char *session)
{
    needs_t needs = {.floor = TIER_UNKNOWN};
    buffer_t why;
    buffer_init(&why, 8192);
    for (size_t i = 0; i < replay->count; i++) {
        Plimsoll__V1__RunRequest *request =
            is_of(&replay->calls[i], session) ? read_request(replay, &replay->calls[i]) : NULL;
        if (request != NULL)
            add_needs(&needs, request);
        plimsoll__v1__run_request__free_unpacked(request, NULL);
    }
    Plimsoll__V1__OpenSessionResponse *opened = open_session(replay, &needs, &why);
    for (size_t i = 0; i < replay->count; i++) {
        if (!is_of(&replay->calls[i], session))
            continue;
        if (opened != NULL)
            replay_in_session(replay, &replay->calls[i], opened->session_id);
        else
            tell(replay, &replay->calls[i], "", (const char *)why.base);
    }
    if (opened != NULL)
        close_session(replay, needs.protocol, opened->session_id);
    plimsoll__v1__open_session_response__free_unpacked(opened, NULL);
    buffer_dispose(&why);
}

/* ---- the verb ---- */

static int replay_all(replay_t *replay, const attest_summary_t *summary)
{
    const attest_options_t *options = replay->options;
    if (!find_lines(replay))
        return attest_fail(options, "the bundle was changed while it was read; nothing was sent");
    replay->told = options->json ? json_array() : NULL;
    for (size_t i = 0; i < replay->count; i++)
        if (is_of(&replay->calls[i], ""))
            replay_single(replay, &replay->calls[i]);
    for (size_t i = 0; i < summary->session_count; i++)
        if (summary->sessions[i].calls != 0)
            replay_session(replay, summary->sessions[i].session);
    int status = replay->different == 0 ? ATTEST_OK : ATTEST_FAILED;
    if (options->json) {
        json_t *object = json_pack("{s:b, s:I, s:I, s:o}", "ok", status == ATTEST_OK, "same", (json_int_t)replay->same,
                                   "different", (json_int_t)replay->different, "calls", replay->told);
        json_dumpf(object, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(object);
    }
    if (status != ATTEST_OK)
        fprintf(stderr, "%s: %zu of %zu calls differed\n", options->verb, replay->different, replay->count);
    return attest_end_output(options) == ATTEST_OK ? status : ATTEST_FAILED;
}

static int verify_and_replay(replay_t *replay, const attest_public_t *key)
{
    attest_verifier_t *verifier = attest_verifier_create(key, on_entry, replay);
    const char *why = attest_bundle_verify(replay->fd, verifier);
    attest_summary_t summary = attest_verifier_summary(verifier);
    int status = why != NULL ? attest_fail(replay->options, "the bundle does not verify: %s; nothing was sent", why)
                             : replay_all(replay, &summary);
    attest_verifier_destroy(verifier);
    return status;
}

int attest_replay(int argc, char **argv)
{
    attest_options_t options;
    attest_public_t key;
    connection_t connection = {0};
    char error[CONNECTION_ERROR_MAX];
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_CONNECTION | ATTEST_TAKES_PUB, 1, 1, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(HELP);
    if (!attest_open_pub(&options, &key))
        return ATTEST_FAILED;
    if (!connection_open(&options.connection, &connection, error))
        return attest_fail(&options, "%s; nothing was sent", error);
    replay_t replay = {
        .options = &options, .connection = &connection, .fd = attest_open_bundle(&options, options.files[0])};
    if (replay.fd >= 0) {
        status = verify_and_replay(&replay, &key);
        close(replay.fd);
    }
    free(replay.calls);
    connection_dispose(&connection);
    return status;
}
