#include "records/attest_entry.h"

#include "records/attest_exchange.h"

static const char TOO_LARGE[] = "the entry is larger than 64 MiB";

static const char *sign_record(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                               const Plimsoll__V1__RunRecord *record)
{
    buffer_t statement;
    buffer_init(&statement, ATTEST_LINE_MAX);
    bool ok = attest_statement_record(&statement, prefix, record) &&
              attest_envelope_sign(out, key, statement.base, statement.len);
    buffer_dispose(&statement);
    return ok ? NULL : TOO_LARGE;
}

const char *attest_sign_answered(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                                 const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response)
{
    const char *why = attest_check_answered(request, response);
    return why != NULL ? why : sign_record(out, key, prefix, response->record);
}

const char *attest_sign_unanswered(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                                   const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunRecord *record)
{
    const char *why = attest_check_unanswered(request, record);
    return why != NULL ? why : sign_record(out, key, prefix, record);
}

const char *attest_sign_close(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                              const attest_close_t *close)
{
    bool has_last = attest_is_digest(close->last_record_sha256);
    if (!attest_is_digest(close->session))
        return "a session's close does not name its session";
    if (has_last != (close->calls != 0) || (!has_last && close->last_record_sha256[0] != '\0'))
        return "a session's close does not name its last record";
    buffer_t statement;
    buffer_init(&statement, ATTEST_LINE_MAX);
    bool ok = attest_statement_close(&statement, prefix, close) &&
              attest_envelope_sign(out, key, statement.base, statement.len);
    buffer_dispose(&statement);
    return ok ? NULL : TOO_LARGE;
}

const char *attest_entry_sign(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix,
                              const attest_content_t *content)
{
    const ProtobufCMessage *request = content->request != NULL ? &content->request->base : NULL;
    const ProtobufCMessage *response = content->response != NULL ? &content->response->base : NULL;
    const char *why;
    buffer_t envelope;
    buffer_init(&envelope, ATTEST_LINE_MAX);
    if (content->close != NULL)
        why = attest_sign_close(&envelope, key, prefix, content->close);
    else if (content->response != NULL)
        why = attest_sign_answered(&envelope, key, prefix, content->request, content->response);
    else
        why = attest_sign_unanswered(&envelope, key, prefix, content->request, content->record);
    if (why == NULL && !attest_entry_write(out, request, response, &envelope))
        why = TOO_LARGE;
    buffer_dispose(&envelope);
    return why;
}
