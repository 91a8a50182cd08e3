#include "records/attest_verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protowire.h"
#include "records/attest_exchange.h"
#include "records/attest_sessions.h"

enum { ERROR_MAX = PROTOWIRE_ERROR_MAX + 128 };

struct attest_verifier {
    attest_public_t _key;
    attest_on_entry_t *_on_entry;
    void *_data;
    uint64_t lines, entries, calls, single_runs;
    attest_sessions_t sessions;
    attest_prefix_t prefix;
    char last_sha256[SHA256_HEX + 1];
    bool ends_in_checkpoint, has_failed;
    char error[ERROR_MAX];
};

attest_verifier_t *attest_verifier_create(const attest_public_t *key, attest_on_entry_t *on_entry, void *data)
{
    attest_verifier_t *v = mem_alloc(sizeof(*v));
    v->_key = *key;
    v->_on_entry = on_entry;
    v->_data = data;
    return v;
}

void attest_verifier_destroy(attest_verifier_t *v)
{
    attest_sessions_dispose(&v->sessions);
    free(v);
}

attest_summary_t attest_verifier_summary(const attest_verifier_t *v)
{
    return (attest_summary_t){.lines = v->lines,
                              .entries = v->entries,
                              .calls = v->calls,
                              .single_runs = v->single_runs,
                              .session_count = v->sessions.count,
                              .sessions = v->sessions.items,
                              .prefix = v->prefix,
                              .last_sha256 = v->last_sha256};
}

static const char *fail_at(attest_verifier_t *v, uint64_t line, const char *why)
{
    v->has_failed = true;
    snprintf(v->error, sizeof(v->error), "line %" PRIu64 ": %s", line, why);
    return v->error;
}

const char *attest_verifier_fail(attest_verifier_t *v, const char *why)
{
    return v->has_failed ? v->error : fail_at(v, v->lines + 1, why);
}

/* ---- one envelope ---- */

static const char *read_signed(const attest_envelope_t *envelope, const attest_public_t *key, attest_kind_t kind,
                               const char *wrong_kind, attest_statement_t *out)
{
    *out = (attest_statement_t){0};
    if (!attest_envelope_is_signed_by(envelope, key))
        return "an envelope's signature does not verify under this key";
    const char *why = attest_statement_read(envelope->payload, envelope->payload_len, out);
    if (why != NULL)
        return why;
    return out->kind == kind ? NULL : wrong_kind;
}

const char *attest_verify_envelope(const attest_envelope_t *envelope, const attest_public_t *key,
                                   attest_statement_t *out)
{
    return read_signed(envelope, key, ATTEST_RECORD, "the envelope does not state a run record", out);
}

/* ---- section 6.1 ---- */

static const char *check_link(const attest_verifier_t *v, const attest_line_t *line, const attest_link_t *link)
{
    bool is_checkpoint = line->shape == ATTEST_LINE_CHECKPOINT;
    if (link->index != v->lines + 1)
        return "its link states another place in the bundle";
    if (strcmp(link->previous_sha256, v->last_sha256) != 0)
        return "its link does not name the line before it";
    if (link->is_checkpoint != is_checkpoint)
        return is_checkpoint ? "it has no content, and its link is no checkpoint" : "a checkpoint carries content";
    if (link->lines != (is_checkpoint ? v->lines : 0))
        return "its link states another number of lines before it";
    if (strcmp(link->entry_sha256, is_checkpoint ? "" : line->entry_sha256) != 0)
        return "its link was made for other content";
    return NULL;
}

static const char *take_link(attest_verifier_t *v, const attest_line_t *line)
{
    attest_statement_t statement = {0};
    const char *why = "its link has not exactly one signature with this key's ID that verifies";
    if (attest_envelope_is_signed_by_alone(&line->link, &v->_key))
        why = read_signed(&line->link, &v->_key, ATTEST_LINK, "its link does not state a link", &statement);
    if (why == NULL)
        why = check_link(v, line, &statement.link);
    if (why == NULL)
        v->prefix = statement.prefix;
    attest_statement_dispose(&statement);
    return why;
}

/* ---- sections 6.2 and 6.3 ---- */

static const char *take_call(attest_verifier_t *v, const attest_line_t *line, const Plimsoll__V1__RunRecord *record)
{
    char error[PROTOWIRE_ERROR_MAX];
    static _Thread_local char malformed[PROTOWIRE_ERROR_MAX + 64];
    const char *why = NULL;
    Plimsoll__V1__RunRequest *request = NULL;
    Plimsoll__V1__RunResponse *response = NULL;
    bool is_answered = line->shape == ATTEST_LINE_ANSWERED;
    if (record->version == 1)
        return "a version 1 record is not taken in a bundle";
    if (is_answered != (record->unanswered[0] == '\0'))
        return is_answered ? "an unanswered call stores a response" : "an answered call stores no response";
    request = (void *)protowire_parse(&plimsoll__v1__run_request__descriptor, line->request, line->request_len, error);
    if (request != NULL && is_answered)
        response =
            (void *)protowire_parse(&plimsoll__v1__run_response__descriptor, line->response, line->response_len, error);
    if (request == NULL || (is_answered && response == NULL)) {
        snprintf(malformed, sizeof(malformed), "its stored %s is malformed: %s",
                 request == NULL ? "request" : "response", error);
        why = malformed;
        goto done;
    }
    why = is_answered ? attest_check_answered(request, response) : attest_check_unanswered(request, record);
    if (why == NULL && is_answered && !attest_records_are_equal(response->record, record))
        why = "the signed record is not the stored response's";
    if (why == NULL && record->session[0] != '\0')
        why = attest_sessions_call(&v->sessions, record);
    if (why != NULL)
        goto done;
    v->calls++;
    v->single_runs += record->session[0] == '\0';
    if (v->_on_entry != NULL)
        v->_on_entry(v->_data, &(attest_entry_t){.line = v->lines + 1,
                                                 .shape = line->shape,
                                                 .line_sha256 = line->line_sha256,
                                                 .request = request,
                                                 .response = response,
                                                 .record = record});
done:
    plimsoll__v1__run_request__free_unpacked(request, NULL);
    plimsoll__v1__run_response__free_unpacked(response, NULL);
    return why;
}

static const char *take_close(attest_verifier_t *v, const attest_line_t *line, const attest_close_t *close)
{
    const char *why = attest_sessions_close(&v->sessions, close);
    if (why == NULL && v->_on_entry != NULL)
        v->_on_entry(v->_data,
                     &(attest_entry_t){
                         .line = v->lines + 1, .shape = line->shape, .line_sha256 = line->line_sha256, .close = close});
    return why;
}

static const char *take_content(attest_verifier_t *v, const attest_line_t *line)
{
    attest_statement_t statement;
    const char *why;
    if (line->shape == ATTEST_LINE_CLOSE) {
        why = read_signed(&line->envelope, &v->_key, ATTEST_CLOSE, "it stores no call, and states no session's close",
                          &statement);
        if (why == NULL)
            why = take_close(v, line, &statement.close);
    } else {
        why = attest_verify_envelope(&line->envelope, &v->_key, &statement);
        if (why == NULL)
            why = take_call(v, line, statement.record);
    }
    attest_statement_dispose(&statement);
    return why;
}

const char *attest_verifier_line(attest_verifier_t *v, const char *text, size_t len)
{
    attest_line_t line;
    if (v->has_failed)
        return v->error;
    const char *why = attest_line_read(text, len, true, &line);
    if (why == NULL)
        why = take_link(v, &line);
    if (why == NULL && line.shape != ATTEST_LINE_CHECKPOINT) {
        why = take_content(v, &line);
        v->entries++;
    }
    if (why == NULL) {
        v->lines++;
        v->ends_in_checkpoint = line.shape == ATTEST_LINE_CHECKPOINT;
        memcpy(v->last_sha256, line.line_sha256, sizeof(v->last_sha256));
    } else {
        why = fail_at(v, v->lines + 1, why);
    }
    attest_line_dispose(&line);
    return why;
}

const char *attest_verifier_end(attest_verifier_t *v)
{
    if (v->has_failed)
        return v->error;
    const attest_session_t *open = attest_sessions_open(&v->sessions);
    v->has_failed = true;
    if (v->lines == 0)
        snprintf(v->error, sizeof(v->error), "the bundle is empty");
    else if (!v->ends_in_checkpoint)
        snprintf(v->error, sizeof(v->error), "the bundle does not end in a checkpoint");
    else if (open != NULL)
        snprintf(v->error, sizeof(v->error), "session %.12s is never closed", open->session);
    else
        v->has_failed = false;
    return v->has_failed ? v->error : NULL;
}
