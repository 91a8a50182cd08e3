/* `plimsoll attest verify` and `chain`: what a bundle says, and whether it may be believed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/attest.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "records/attest_bundle.h"
#include "records/attest_expect.h"

static const char VERIFY_HELP[] =
    "Usage: plimsoll attest verify -pub FILE [-expect FILE] [-expect-count N] [-json] BUNDLE\n"
    "\n"
    "Checks a bundle to its last byte: every line's form and its link to the line before, every signature under\n"
    "the key of -pub, every stored exchange against its record, and that each session's calls are all there.\n"
    "Says what it holds.\n"
    "\n"
    "  -expect FILE       the request digests of the calls you made, the first word of each line (`plimsoll digest\n"
    "                     request` and `attest run` print them); the bundle must hold exactly these\n"
    "  -expect-count N    the bundle must hold N calls\n"
    "\n"
    "Without one of the two, a bundle that was cut back to an earlier checkpoint verifies as well: it says what\n"
    "is in it, never what is not.\n";

static const char CHAIN_HELP[] = "Usage: plimsoll attest chain -pub FILE [-json] BUNDLE\n"
                                 "\n"
                                 "Verifies a bundle as `attest verify` does, then prints each session with its calls "
                                 "in order, and the single runs. A\n"
                                 "call that may have run without an answer says so, with the code it ended with.\n";

enum { EXPECT_LIST_MAX = 64 * 1024 * 1024, SHORT_SESSION = 12, SHORT_DIGEST = 16 };

typedef struct {
    attest_expect_t *expect; /* NULL = no list was given */
    json_t *calls;           /* of `chain`: an object each; NULL for `verify` */
    json_t *by_session;      /* the same objects, a list for each session, "" for the single runs */
} seen_t;

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

static json_t *call_json(const attest_entry_t *entry)
{
    const Plimsoll__V1__RunRecord *r = entry->record;
    bool is_answered = entry->shape == ATTEST_LINE_ANSWERED;
    return json_pack("{s:I, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "line", (json_int_t)entry->line,
                     "session", r->session, "sequence", (json_int_t)r->sequence, "verdict",
                     is_answered ? "answered" : "unanswered", "code", text_of(r->unanswered), "request_sha256",
                     r->request_sha256, "record_sha256", r->record_sha256, "previous_sha256", r->previous_sha256,
                     "provider", r->provider, "isolation", r->isolation, "ended_unix_ms", (json_int_t)r->ended_unix_ms);
}

static void on_entry(void *data, const attest_entry_t *entry)
{
    seen_t *seen = data;
    if (entry->record == NULL)
        return;
    if (seen->expect != NULL)
        attest_expect_seen(seen->expect, entry->record->request_sha256, entry->request->trace_id);
    if (seen->calls == NULL)
        return;
    json_t *call = call_json(entry), *list = json_object_get(seen->by_session, entry->record->session);
    if (list == NULL) {
        list = json_array();
        json_object_set_new(seen->by_session, entry->record->session, list);
    }
    json_array_append(list, call);
    json_array_append_new(seen->calls, call);
}

/* NULL with everything told. The summary lives as long as the verifier. */
static attest_verifier_t *read_bundle(const attest_options_t *options, seen_t *seen, attest_public_t *key)
{
    if (!attest_open_pub(options, key))
        return NULL;
    int fd = attest_open_bundle(options, options->files[0]);
    if (fd < 0)
        return NULL;
    attest_verifier_t *verifier = attest_verifier_create(key, on_entry, seen);
    const char *why = attest_bundle_verify(fd, verifier);
    close(fd);
    if (why == NULL)
        return verifier;
    attest_fail(options, "the bundle does not verify: %s", why);
    attest_verifier_destroy(verifier);
    return NULL;
}

/* ---- verify ---- */

static bool read_list(const attest_options_t *options, attest_expect_t *expect)
{
    buffer_t text;
    const char *why = NULL;
    buffer_init(&text, EXPECT_LIST_MAX);
    bool ok = attest_read_file(options, "the list", options->expect, &text);
    if (ok)
        why = attest_expect_list(expect, text.len == 0 ? "" : (const char *)text.base, text.len);
    buffer_dispose(&text);
    if (why != NULL)
        attest_fail(options, "%s", why);
    return ok && why == NULL;
}

static bool is_as_expected(const attest_options_t *options, attest_expect_t *expect, const attest_summary_t *summary)
{
    if (options->expect_count >= 0 && summary->calls != (uint64_t)options->expect_count) {
        attest_fail(options, "the bundle verifies, but holds %" PRIu64 " calls and not %" PRId64, summary->calls,
                    options->expect_count);
        return false;
    }
    buffer_t told;
    buffer_init(&told, 4096);
    bool holds = expect == NULL || attest_expect_holds(expect, &told);
    if (!holds)
        attest_fail(options, "the bundle verifies, but is not the list: %s", (const char *)told.base);
    buffer_dispose(&told);
    return holds;
}

static int tell_summary(const attest_options_t *options, const attest_summary_t *summary, const attest_public_t *key)
{
    if (options->json) {
        json_t *object = attest_summary_json(summary);
        json_object_set_new(object, "key_id", json_string(key->id));
        json_object_set_new(object, "is_complete",
                            options->expect != NULL || options->expect_count >= 0 ? json_true() : json_null());
        return attest_print_json(options, object);
    }
    printf("%" PRIu64 " %s under key %s, whole to the last checkpoint: %" PRIu64 " single %s", summary->entries,
           summary->entries == 1 ? "entry" : "entries", key->id, summary->single_runs,
           summary->single_runs == 1 ? "run" : "runs");
    for (size_t i = 0; i < summary->session_count; i++)
        printf(", session %.*s with %" PRIu64 " %s", SHORT_SESSION, summary->sessions[i].session,
               summary->sessions[i].calls, summary->sessions[i].calls == 1 ? "call" : "calls");
    putchar('\n');
    return attest_end_output(options);
}

int attest_verify(int argc, char **argv)
{
    attest_options_t options;
    attest_public_t key;
    seen_t seen = {0};
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_PUB | ATTEST_TAKES_EXPECT, 1, 1, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(VERIFY_HELP);
    if (options.expect != NULL) {
        seen.expect = attest_expect_create();
        if (!read_list(&options, seen.expect))
            goto done;
    }
    attest_verifier_t *verifier = read_bundle(&options, &seen, &key);
    if (verifier == NULL)
        goto done;
    attest_summary_t summary = attest_verifier_summary(verifier);
    if (is_as_expected(&options, seen.expect, &summary))
        status = tell_summary(&options, &summary, &key);
    attest_verifier_destroy(verifier);
done:
    attest_expect_destroy(seen.expect);
    return status;
}

/* ---- chain ---- */

static const char *member(const json_t *call, const char *name)
{
    return text_of(json_string_value(json_object_get(call, name)));
}

static void print_calls(const json_t *by_session, const char *session)
{
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(by_session, session), i, call)
    {
        if (session[0] != '\0')
            printf("  %3" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(call, "sequence")));
        printf("  line %" JSON_INTEGER_FORMAT "  record %.*s  request %.*s  ",
               json_integer_value(json_object_get(call, "line")), SHORT_DIGEST, member(call, "record_sha256"),
               SHORT_DIGEST, member(call, "request_sha256"));
        terminal_print(stdout, member(call, "provider"));
        fputs(" behind ", stdout);
        terminal_print(stdout, member(call, "isolation"));
        if (member(call, "code")[0] != '\0') {
            fputs(", unanswered: it may have run, and ended in ", stdout);
            terminal_print(stdout, member(call, "code"));
        }
        putchar('\n');
    }
}

static int print_chains(const attest_options_t *options, const attest_summary_t *summary, const json_t *by_session)
{
    if (summary->single_runs != 0)
        printf("single runs: %" PRIu64 "\n", summary->single_runs);
    print_calls(by_session, "");
    for (size_t i = 0; i < summary->session_count; i++) {
        const attest_session_t *session = &summary->sessions[i];
        printf("session %s: %" PRIu64 " %s, closed after record %.*s\n", session->session, session->calls,
               session->calls == 1 ? "call" : "calls", SHORT_DIGEST,
               session->calls == 0 ? "none" : session->last_record_sha256);
        print_calls(by_session, session->session);
    }
    return attest_end_output(options);
}

int attest_chain(int argc, char **argv)
{
    attest_options_t options;
    attest_public_t key;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_PUB, 1, 1, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(CHAIN_HELP);
    seen_t seen = {.calls = json_array(), .by_session = json_object()};
    int status = ATTEST_FAILED;
    attest_verifier_t *verifier = read_bundle(&options, &seen, &key);
    if (verifier != NULL) {
        attest_summary_t summary = attest_verifier_summary(verifier);
        if (options.json) {
            json_t *object = attest_summary_json(&summary);
            json_object_set_new(object, "key_id", json_string(key.id));
            json_object_set(object, "chain", seen.calls);
            status = attest_print_json(&options, object);
        } else {
            status = print_chains(&options, &summary, seen.by_session);
        }
        attest_verifier_destroy(verifier);
    }
    json_decref(seen.calls);
    json_decref(seen.by_session);
    return status;
}
