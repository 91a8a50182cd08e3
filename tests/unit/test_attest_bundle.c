/* A bundle: what verifies, and every way in which it must not (attest sections 5 and 6, and the ideas of section 11).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/attest_fixture.h"

/* The single run, a checkpoint, the session's three calls and close, a checkpoint: seven lines. */
enum { LINES = 7, FIRST_CHECKPOINT = 1, LAST_CHECKPOINT = 6 };

typedef struct {
    fixture_t f;
    buffer_t entries[FIXTURE_ENTRIES_MAX];
    forged_t bundle;
    const char *lines[LINES]; /* into the bundle, each with its newline */
    size_t lens[LINES];
} bundle_t;

static void find_lines(bundle_t *b)
{
    const char *at = (const char *)b->bundle.text.base;
    for (int i = 0; i < LINES; i++) {
        b->lines[i] = at;
        b->lens[i] = (size_t)(strchr(at, '\n') - at) + 1;
        at += b->lens[i];
    }
}

static int setup(void **state)
{
    bundle_t *b = calloc(1, sizeof(*b));
    fixture_of_vectors(&b->f);
    forge_init(&b->bundle, b->f.key);
    for (size_t i = 0; i < b->f.count; i++) {
        b->entries[i] = fixture_entry(&b->f, i, ATTEST_OURS);
        forge_line(&b->bundle, &b->entries[i]);
        if (i == 0)
            forge_line(&b->bundle, NULL);
    }
    forge_line(&b->bundle, NULL);
    find_lines(b);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bundle_t *b = *state;
    for (size_t i = 0; i < b->f.count; i++)
        buffer_dispose(&b->entries[i]);
    buffer_dispose(&b->bundle.text);
    fixture_dispose(&b->f);
    free(b);
    return 0;
}

static const char *verify(const bundle_t *b, const void *text, size_t len)
{
    return fixture_verify(attest_key_public(b->f.key), text, len);
}

static void refused(const char *got, const char *wanted)
{
    if (got == NULL || strcmp(got, wanted) != 0)
        fail_msg("wanted \"%s\", got \"%s\"", wanted, got != NULL ? got : "(it verifies)");
}

/* The bundle's lines in another order; -1 ends the list. */
static const char *verify_lines(const bundle_t *b, const int *order)
{
    buffer_t text;
    buffer_init(&text, (size_t)1 << 24);
    for (; *order >= 0; order++)
        buffer_append(&text, b->lines[*order], b->lens[*order]);
    const char *why = verify(b, text.base != NULL ? (char *)text.base : "", text.len);
    buffer_dispose(&text);
    return why;
}

static void test_it_verifies_and_is_counted(void **state)
{
    bundle_t *b = *state;
    attest_verifier_t *v = attest_verifier_create(attest_key_public(b->f.key), NULL, NULL);
    for (int i = 0; i < LINES; i++)
        assert_null(attest_verifier_line(v, b->lines[i], b->lens[i] - 1));
    assert_null(attest_verifier_end(v));
    attest_summary_t s = attest_verifier_summary(v);
    assert_int_equal(s.lines, LINES);
    assert_int_equal(s.entries, 5);
    assert_int_equal(s.calls, 4);
    assert_int_equal(s.single_runs, 1);
    assert_int_equal(s.session_count, 1);
    assert_int_equal(s.sessions[0].calls, 3);
    assert_string_equal(s.sessions[0].session, "5947d7c33d783f94b3b4c1a96ebc8991ed28f1b069b71e03376cba8caa98a720");
    assert_string_equal(s.sessions[0].last_record_sha256, b->f.closes[4].last_record_sha256);
    attest_verifier_destroy(v);
    assert_null(verify(b, b->bundle.text.base, b->bundle.text.len));
}

static void test_a_line_dropped_swapped_or_doubled(void **state)
{
    bundle_t *b = *state;
    for (int drop = 0; drop < LINES; drop++) {
        int order[LINES], n = 0;
        for (int i = 0; i < LINES; i++)
            if (i != drop)
                order[n++] = i;
        order[n] = -1;
        assert_non_null(verify_lines(b, order));
    }
    for (int at = 0; at + 1 < LINES; at++) {
        int order[LINES + 1] = {0, 1, 2, 3, 4, 5, 6, -1};
        order[at] = at + 1;
        order[at + 1] = at;
        assert_non_null(verify_lines(b, order));
    }
    for (int twice = 0; twice < LINES; twice++) {
        int order[LINES + 2], n = 0;
        for (int i = 0; i < LINES; i++) {
            order[n++] = i;
            if (i == twice)
                order[n++] = i;
        }
        order[n] = -1;
        assert_non_null(verify_lines(b, order));
    }
    refused(verify_lines(b, (int[]){1, 2, 3, 4, 5, 6, -1}), "line 1: its link states another place in the bundle");
    refused(verify_lines(b, (int[]){-1}), "the bundle is empty");
}

/* Section 6.4: this is what a bundle cannot show by itself. */
static void test_cut_back_to_a_checkpoint_it_verifies(void **state)
{
    bundle_t *b = *state;
    assert_null(verify_lines(b, (int[]){0, 1, -1}));
    refused(verify_lines(b, (int[]){0, -1}), "the bundle does not end in a checkpoint");
    refused(verify_lines(b, (int[]){0, 1, 2, -1}), "the bundle does not end in a checkpoint");
}

static void test_any_byte_changed_is_refused(void **state)
{
    bundle_t *b = *state;
    size_t len = b->bundle.text.len;
    char *text = malloc(len);
    memcpy(text, b->bundle.text.base, len);
    for (size_t at = 0; at < len; at += 5) { /* prime to base64: every place of its four in turn */
        text[at] ^= 1;
        attest_verifier_t *v = attest_verifier_create(attest_key_public(b->f.key), NULL, NULL);
        const char *line = text, *end, *why = NULL;
        for (; why == NULL && (end = memchr(line, '\n', (size_t)(text + len - line))) != NULL; line = end + 1)
            why = attest_verifier_line(v, line, (size_t)(end - line));
        if (why == NULL && attest_verifier_end(v) == NULL && line == text + len)
            fail_msg("byte %zu changed, and it verifies", at);
        attest_verifier_destroy(v);
        text[at] ^= 1;
    }
    assert_null(verify(b, text, len));
    free(text);
}

static const char *verify_edited(const bundle_t *b, const char *from, const char *to)
{
    buffer_t text;
    buffer_init(&text, (size_t)1 << 24);
    const char *at = strstr((char *)b->bundle.text.base, from);
    assert_non_null(at);
    buffer_append(&text, b->bundle.text.base, (size_t)(at - (char *)b->bundle.text.base));
    buffer_append_str(&text, to);
    buffer_append_str(&text, at + strlen(from));
    const char *why = verify(b, text.base, text.len);
    buffer_dispose(&text);
    return why;
}

static void test_one_spelling(void **state)
{
    bundle_t *b = *state;
    static const char FORM[] =
        "line 1: it is not in canonical form: its members in their order, no white space, nothing after them";
    refused(verify_edited(b, "}\n", "} \n"), FORM);
    refused(verify_edited(b, "}\n", "}\r\n"), FORM);
    refused(verify_edited(b, "}\n", "}{}\n"), FORM);
    refused(verify_edited(b, "}\n", "}\n\n"), "line 2: it is blank");
    refused(verify_edited(b, "{\"request\"", " {\"request\""), "line 1: it does not begin with an object");
    refused(verify_edited(b, "{\"request\"", "{\"Request\""), FORM);
    refused(verify_edited(b, "{\"request\"", "{\"request\":\"AA==\",\"request\""), FORM);
    refused(verify_edited(b, "{\"request\":", "{\"x\":1,\"request\":"), FORM);
    refused(verify_edited(b, "{\"request\":\"", "{\"request\":\"\\u0041"),
            "line 1: its request is not padded standard base64");
    refused(verify_edited(b, "{\"request\":\"", "{\"request\":\"\"}\n{\"request\":\""),
            "line 1: its request is not padded standard base64");
    refused(verify_edited(b, "==\",\"response\"", "\",\"response\""),
            "line 3: its request is not padded standard base64");
}

static void test_the_last_newline_belongs_to_it(void **state)
{
    bundle_t *b = *state;
    refused(verify(b, b->bundle.text.base, b->bundle.text.len - 1), "line 7: it does not end in a newline");
}

/* A line whose members stand in another order is another line, even where its signatures hold. */
static void test_members_keep_their_order(void **state)
{
    bundle_t *b = *state;
    const char *link = strstr(b->lines[0], ",\"link\":");
    const char *envelope = strstr(b->lines[0], ",\"envelope\":");
    buffer_t text;
    buffer_init(&text, (size_t)1 << 24);
    buffer_append(&text, b->lines[0], (size_t)(envelope - b->lines[0]));
    buffer_append(&text, link, b->lens[0] - (size_t)(link - b->lines[0]) - 2);
    buffer_append(&text, envelope, (size_t)(link - envelope));
    buffer_append_str(&text, "}\n");
    assert_non_null(verify(b, text.base, text.len));
    buffer_dispose(&text);
}

static void test_a_line_without_a_link(void **state)
{
    bundle_t *b = *state;
    buffer_t text;
    buffer_init(&text, (size_t)1 << 24);
    buffer_append(&text, b->entries[0].base, b->entries[0].len);
    buffer_append_str(&text, "\n");
    refused(verify(b, text.base, text.len), "line 1: it carries no link");
    buffer_dispose(&text);
}

static void test_a_second_signature_on_a_link(void **state)
{
    bundle_t *b = *state;
    const char *sig = strstr(strstr(b->lines[1], "\"signatures\":["), "{\"keyid\"");
    size_t len = (size_t)(strstr(sig, "}]") + 1 - sig);
    char twice[1024];
    snprintf(twice, sizeof(twice), "%.*s,%.*s]}}\n", (int)len, sig, (int)len, sig);
    buffer_t text;
    buffer_init(&text, (size_t)1 << 24);
    buffer_append(&text, b->lines[0], b->lens[0]);
    buffer_append(&text, b->lines[1], (size_t)(sig - b->lines[1]));
    buffer_append_str(&text, twice);
    refused(verify(b, text.base, text.len),
            "line 2: its link has not exactly one signature with this key's ID that verifies");
    buffer_dispose(&text);
}

static void test_another_key(void **state)
{
    bundle_t *b = *state;
    attest_key_t *other = attest_key_generate();
    refused(fixture_verify(attest_key_public(other), b->bundle.text.base, b->bundle.text.len),
            "line 1: its link has not exactly one signature with this key's ID that verifies");
    /* its own links around somebody else's entries */
    forged_t forged;
    forge_init(&forged, other);
    forge_line(&forged, &b->entries[0]);
    forge_line(&forged, NULL);
    refused(fixture_verify(attest_key_public(other), forged.text.base, forged.text.len),
            "line 1: an envelope's signature does not verify under this key");
    buffer_dispose(&forged.text);
    attest_key_destroy(other);
}

/* ---- what the holder of the key may not write either ---- */

/* Entries by number (-1 = a checkpoint, -2 ends the list), linked rightly. */
static const char *verify_forged(const bundle_t *b, const int *entries)
{
    forged_t forged;
    forge_init(&forged, b->f.key);
    for (; *entries != -2; entries++)
        forge_line(&forged, *entries == -1 ? NULL : &b->entries[*entries]);
    const char *why = verify(b, forged.text.base, forged.text.len);
    buffer_dispose(&forged.text);
    return why;
}

static void test_chains_have_no_gap(void **state)
{
    bundle_t *b = *state;
    assert_null(verify_forged(b, (int[]){1, 2, 3, 4, -1, -2}));
    assert_null(verify_forged(b, (int[]){1, -1, 2, 0, 3, -1, 4, 0, -1, -2}));
    refused(verify_forged(b, (int[]){1, 3, 4, -1, -2}), "line 2: a session's calls are not numbered without a gap");
    refused(verify_forged(b, (int[]){2, 3, 4, -1, -2}), "line 1: a session's calls are not numbered without a gap");
    refused(verify_forged(b, (int[]){1, 2, 2, 3, 4, -1, -2}),
            "line 3: a session's calls are not numbered without a gap");
    refused(verify_forged(b, (int[]){1, 2, 3, -1, -2}), "session 5947d7c33d78 is never closed");
    refused(verify_forged(b, (int[]){1, 2, 4, -1, -2}), "line 3: a session's close states another number of calls");
    refused(verify_forged(b, (int[]){1, 2, 3, 4, 4, -1, -2}), "line 5: a session is closed twice");
    refused(verify_forged(b, (int[]){1, 2, 3, 4, 1, -1, -2}),
            "line 5: a session's call stands after the session's close");
    refused(verify_forged(b, (int[]){4, -1, -2}), "line 1: a session's close states another number of calls");
    /* A checkpoint of nothing is a bundle of nothing. */
    assert_null(verify_forged(b, (int[]){-1, -2}));
}

static const char *verify_entry(const bundle_t *b, const buffer_t *entry)
{
    forged_t forged;
    forge_init(&forged, b->f.key);
    forge_line(&forged, entry);
    forge_line(&forged, NULL);
    const char *why = verify(b, forged.text.base, forged.text.len);
    buffer_dispose(&forged.text);
    return why;
}

static void test_a_session_without_calls_is_its_close(void **state)
{
    bundle_t *b = *state;
    fixture_t f = {.key = b->f.key};
    fixture_add_close(&f, b->f.closes[4].session, 0, "");
    buffer_t entry = fixture_entry(&f, 0, ATTEST_OURS);
    assert_null(verify_entry(b, &entry));
    buffer_dispose(&entry);
    f.closes[0].calls = 1;
    buffer_init(&entry, ATTEST_LINE_MAX);
    assert_string_equal(attest_entry_sign(&entry, f.key, ATTEST_OURS, &f.contents[0]),
                        "a session's close does not name its last record");
    buffer_dispose(&entry);
}

/* Signs a record without any check, as a dishonest harness would, beside the given messages. */
static buffer_t forge_entry(const bundle_t *b, const Plimsoll__V1__RunRequest *request,
                            const Plimsoll__V1__RunResponse *response, const Plimsoll__V1__RunRecord *record)
{
    buffer_t statement, envelope, entry;
    buffer_init(&statement, 1 << 20);
    buffer_init(&envelope, 1 << 20);
    buffer_init(&entry, 1 << 24);
    assert_true(attest_statement_record(&statement, ATTEST_OURS, record));
    assert_true(attest_envelope_sign(&envelope, b->f.key, statement.base, statement.len));
    assert_true(attest_entry_write(&entry, request != NULL ? &request->base : NULL,
                                   response != NULL ? &response->base : NULL, &envelope));
    buffer_dispose(&statement);
    buffer_dispose(&envelope);
    return entry;
}

static void test_the_stored_exchange_is_checked_again(void **state)
{
    bundle_t *b = *state;
    Plimsoll__V1__RunRequest *request = b->f.requests[0];
    Plimsoll__V1__RunResponse *response = b->f.responses[0];
    Plimsoll__V1__RunRecord *record = response->record;
    buffer_t entry = forge_entry(b, request, response, record);
    assert_null(verify_entry(b, &entry));
    buffer_dispose(&entry);

    response->javascript->exit_code = 1;
    entry = forge_entry(b, request, response, record);
    refused(verify_entry(b, &entry), "line 1: the record's result digest is not the result's");
    buffer_dispose(&entry);
    response->javascript->exit_code = 0;

    request->timeout_ms++;
    entry = forge_entry(b, request, response, record);
    refused(verify_entry(b, &entry), "line 1: the record's request digest is not the request's");
    buffer_dispose(&entry);
    request->timeout_ms--;

    /* another answer's record inside, a right one signed */
    char digest[SHA256_HEX + 1], *kept = record->record_sha256;
    record->ended_unix_ms++;
    digest_record(record, digest);
    record->record_sha256 = digest;
    buffer_t statement_of_other = forge_entry(b, request, response, record);
    Plimsoll__V1__RunRecord signed_one = *record;
    signed_one.ended_unix_ms--;
    signed_one.record_sha256 = kept;
    entry = forge_entry(b, request, response, &signed_one);
    refused(verify_entry(b, &entry), "line 1: the signed record is not the stored response's");
    assert_null(verify_entry(b, &statement_of_other));
    buffer_dispose(&entry);
    buffer_dispose(&statement_of_other);
    record->ended_unix_ms--;
    record->record_sha256 = kept;
}

static void test_a_call_is_stored_whole(void **state)
{
    bundle_t *b = *state;
    buffer_t entry = forge_entry(b, b->f.requests[0], NULL, b->f.responses[0]->record);
    refused(verify_entry(b, &entry), "line 1: an answered call stores no response");
    buffer_dispose(&entry);
    entry = forge_entry(b, b->f.requests[2], b->f.responses[1], b->f.records[2]);
    refused(verify_entry(b, &entry), "line 1: an unanswered call stores a response");
    buffer_dispose(&entry);
    entry = forge_entry(b, NULL, NULL, b->f.responses[0]->record);
    refused(verify_entry(b, &entry), "line 1: it stores no call, and states no session's close");
    buffer_dispose(&entry);
}

/* A single run's record of version 1 may be read, and is not kept (section 6.2). */
static void test_version_1_is_refused(void **state)
{
    bundle_t *b = *state;
    char digest[SHA256_HEX + 1];
    Plimsoll__V1__RunRequest request = *b->f.requests[0];
    Plimsoll__V1__RunResponse response = *b->f.responses[0];
    Plimsoll__V1__RunRecord record = *response.record;
    static char none[] = "";
    request.protocol = 1;
    request.software_rule = NULL;
    record.version = 1;
    record.software_identity = record.software_rule_id = response.software_identity = none;
    char request_digest[SHA256_HEX + 1];
    digest_request(&request, request_digest);
    record.request_sha256 = request_digest;
    digest_record(&record, digest);
    record.record_sha256 = digest;
    response.record = &record;
    assert_null(record_check(&request, &response)); /* it holds, for who asked by protocol 1 */
    buffer_t entry = forge_entry(b, &request, &response, &record);
    refused(verify_entry(b, &entry), "line 1: a version 1 record is not taken in a bundle");
    buffer_dispose(&entry);
    buffer_init(&entry, 1 << 20);
    attest_content_t content = {.request = &request, .response = &response};
    assert_string_equal(attest_entry_sign(&entry, b->f.key, ATTEST_OURS, &content),
                        "a version 1 record is never signed");
    buffer_dispose(&entry);
}

/* The record of protocol 4 in all three shapes: single, answered in a session, unanswered. */
static void test_version_4_is_taken(void **state)
{
    bundle_t *b = *state;
    char digest[SHA256_HEX + 1], request_digest[SHA256_HEX + 1], instance[] = "k8s-pod-uid:7f-0";
    Plimsoll__V1__RunRequest request = *b->f.requests[2];
    Plimsoll__V1__RunRecord record = *b->f.records[2];
    static char none[] = "";
    request.protocol = 4;
    digest_request(&request, request_digest);
    record.version = 4;
    record.instance = instance;
    record.request_sha256 = request_digest;
    record.sequence = 1;
    record.previous_sha256 = none;
    digest_record(&record, digest);
    record.record_sha256 = digest;
    attest_content_t content = {.request = &request, .record = &record};
    buffer_t entry, close_entry;
    buffer_init(&entry, 1 << 20);
    assert_null(attest_entry_sign(&entry, b->f.key, ATTEST_OURS, &content));
    fixture_t f = {.key = b->f.key};
    fixture_add_close(&f, record.session, 1, digest);
    close_entry = fixture_entry(&f, 0, ATTEST_OURS);
    forged_t forged;
    forge_init(&forged, b->f.key);
    forge_line(&forged, &entry);
    forge_line(&forged, &close_entry);
    forge_line(&forged, NULL);
    assert_null(verify(b, forged.text.base, forged.text.len));
    buffer_dispose(&forged.text);
    buffer_dispose(&entry);
    buffer_dispose(&close_entry);
    /* version 3 is not what protocol 4 asks for, nor the other way round */
    record.version = 3;
    record.instance = none;
    digest_record(&record, digest);
    assert_string_equal(attest_entry_sign(&entry, b->f.key, ATTEST_OURS, &content),
                        "the record's version is not the one of an unanswered call of the request's protocol");
    buffer_dispose(&entry);
}

static void test_an_unanswered_call_is_checked(void **state)
{
    bundle_t *b = *state;
    char digest[SHA256_HEX + 1], text[] = "internally", none[] = "";
    const attest_content_t *content = &b->f.contents[2];
    Plimsoll__V1__RunRecord *record = b->f.records[2], kept = *record;
    buffer_t entry;
    buffer_init(&entry, 1 << 20);
#define REFUSED(why) assert_string_equal(attest_entry_sign(&entry, b->f.key, ATTEST_OURS, content), why)
    record->unanswered = text;
    REFUSED("the record does not say with which code the call ended");
    *record = kept;
    record->result_sha256 = b->f.closes[4].session;
    REFUSED("the record carries a field its version does not cover");
    *record = kept;
    record->ended_unix_ms++;
    REFUSED("the record's own digest is not that of its fields");
    record->isolation = text;
    digest_record(record, digest);
    record->record_sha256 = digest;
    REFUSED("the tier is below the request's floor");
    *record = kept;
    record->session = none;
    digest_record(record, digest);
    record->record_sha256 = digest;
    REFUSED("an unanswered call belongs to a session");
    *record = kept;
    record->sequence = 1;
    digest_record(record, digest);
    record->record_sha256 = digest;
    REFUSED("a session call's record does not name the record before it");
    *record = kept;
    assert_null(attest_entry_sign(&entry, b->f.key, ATTEST_OURS, content));
    buffer_dispose(&entry);
}

/* Section 3.2: a payload in a NaN is no other result. */
static void test_every_nan_digests_alike(void **state)
{
    (void)state;
    static const uint64_t NANS[] = {0x7ff8000000000000u, 0x7ff8000000000001u, 0xfff8000000000000u, 0x7ff0000000000001u};
    char first[SHA256_HEX + 1] = "", digest[SHA256_HEX + 1];
    for (size_t i = 0; i < sizeof(NANS) / sizeof(NANS[0]); i++) {
        double output;
        memcpy(&output, &NANS[i], sizeof(output));
        Plimsoll__V1__ModuleRowResult row = PLIMSOLL__V1__MODULE_ROW_RESULT__INIT, *rows[] = {&row};
        Plimsoll__V1__ModuleResult module = PLIMSOLL__V1__MODULE_RESULT__INIT;
        Plimsoll__V1__RunResponse response = PLIMSOLL__V1__RUN_RESPONSE__INIT;
        row.outputs = &output;
        row.n_outputs = 1;
        module.runs = rows;
        module.n_runs = 1;
        response.result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE;
        response.module = &module;
        digest_result(&response, digest);
        if (i == 0)
            memcpy(first, digest, sizeof(first));
        assert_string_equal(digest, first);
    }
    /* The domain, "kind", "module" and so on by another program, which took the first NaN's bits as they are. */
    assert_string_equal(first, "ca7ed647c7950ab069790d254ec6d8333608410b5f8a0761b482921ab82de9ea");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_verifies_and_is_counted),
        cmocka_unit_test(test_a_line_dropped_swapped_or_doubled),
        cmocka_unit_test(test_cut_back_to_a_checkpoint_it_verifies),
        cmocka_unit_test(test_any_byte_changed_is_refused),
        cmocka_unit_test(test_one_spelling),
        cmocka_unit_test(test_the_last_newline_belongs_to_it),
        cmocka_unit_test(test_members_keep_their_order),
        cmocka_unit_test(test_a_line_without_a_link),
        cmocka_unit_test(test_a_second_signature_on_a_link),
        cmocka_unit_test(test_another_key),
        cmocka_unit_test(test_chains_have_no_gap),
        cmocka_unit_test(test_a_session_without_calls_is_its_close),
        cmocka_unit_test(test_the_stored_exchange_is_checked_again),
        cmocka_unit_test(test_a_call_is_stored_whole),
        cmocka_unit_test(test_version_1_is_refused),
        cmocka_unit_test(test_version_4_is_taken),
        cmocka_unit_test(test_an_unanswered_call_is_checked),
        cmocka_unit_test(test_every_nan_digests_alike),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
