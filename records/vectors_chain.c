/* Session chains, spec section 6.6. */
#include "records/vectors_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/protojson.h"
#include "core/protowire.h"

typedef struct {
    const char *name;
    const char *session;
    uint64_t calls;
    char last[SHA256_HEX + 1];
} chain_t;

static void chain_add(vectors_check_t *c, chain_t *chain, const Plimsoll__V1__RunRecord *r, const char *request_sha256)
{
    vectors_compare_record(c, chain->name, r, r->record_sha256);
    vectors_compare(c, chain->name, "the request digest", request_sha256, r->request_sha256);
    vectors_compare(c, chain->name, "the session", chain->session, r->session);
    vectors_compare(c, chain->name, "the digest before", chain->last, r->previous_sha256);
    vectors_report(c, r->sequence == chain->calls + 1, chain->name, "the sequence is not the next");
    chain->calls = r->sequence;
    snprintf(chain->last, sizeof(chain->last), "%s", r->record_sha256);
}

static void check_answered(vectors_check_t *c, chain_t *chain, const json_t *response, const char *request_sha256)
{
    char digest[SHA256_HEX + 1];
    Plimsoll__V1__SessionRunResponse *m =
        vectors_message(c, chain->name, &plimsoll__v1__session_run_response__descriptor, response);
    if (m == NULL)
        return;
    if (m->run == NULL || m->run->record == NULL) {
        vectors_report(c, false, chain->name, "an answer without a record");
    } else {
        digest_result(m->run, digest);
        vectors_compare(c, chain->name, "the result digest", digest, m->run->record->result_sha256);
        chain_add(c, chain, m->run->record, request_sha256);
    }
    vectors_message_free(m);
}

/* The record travels in the detail; the file repeats it in JSON. */
static void check_unanswered(vectors_check_t *c, chain_t *chain, const json_t *error, const json_t *record,
                             const char *request_sha256)
{
    char why[PROTOWIRE_ERROR_MAX] = "not base64";
    size_t len = 0;
    const char *value = vectors_text(error, "detail_value_base64");
    uint8_t *bytes = base64_decode(value, strlen(value), &len);
    Plimsoll__V1__UnansweredCall *detail =
        bytes != NULL ? (void *)protowire_parse(&plimsoll__v1__unanswered_call__descriptor, bytes, len, why) : NULL;
    Plimsoll__V1__RunRecord *stated = vectors_message(c, chain->name, &plimsoll__v1__run_record__descriptor, record);
    if (detail == NULL || detail->record == NULL) {
        vectors_report(c, false, chain->name, detail == NULL ? why : "a detail without a record");
    } else if (stated != NULL) {
        char *hex = vectors_packed_hex(&stated->base);
        vectors_compare_packed(c, chain->name, &detail->record->base, hex);
        free(hex);
        vectors_compare(c, chain->name, "the code", vectors_text(error, "code"), detail->record->unanswered);
        chain_add(c, chain, detail->record, request_sha256);
    }
    vectors_message_free(stated);
    vectors_message_free(detail);
    free(bytes);
}

static void check_close(vectors_check_t *c, const chain_t *chain, const json_t *close)
{
    Plimsoll__V1__CloseSessionResponse *m =
        vectors_message(c, chain->name, &plimsoll__v1__close_session_response__descriptor, close);
    if (m == NULL)
        return;
    vectors_compare(c, chain->name, "the closed session", chain->session, m->session);
    vectors_compare(c, chain->name, "the last digest", chain->last, m->last_record_sha256);
    vectors_report(c, m->calls == chain->calls, chain->name, "the count at the close is another");
    vectors_message_free(m);
}

void vectors_check_chain(vectors_check_t *c, const json_t *entry)
{
    char fingerprint[SHA256_HEX + 1], request_sha256[SHA256_HEX + 1];
    digest_session_id(vectors_text(entry, "session_id"), fingerprint);
    chain_t chain = {.name = vectors_name(entry), .session = fingerprint};
    vectors_compare(c, chain.name, "the session", fingerprint, vectors_text(entry, "session"));
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(entry, "calls"), i, call)
    {
        Plimsoll__V1__SessionRunRequest *request = vectors_message(
            c, chain.name, &plimsoll__v1__session_run_request__descriptor, json_object_get(call, "request"));
        if (request == NULL)
            return;
        digest_session_request(request, request_sha256);
        vectors_message_free(request);
        json_t *response = json_object_get(call, "response");
        if (response != NULL)
            check_answered(c, &chain, response, request_sha256);
        else
            check_unanswered(c, &chain, json_object_get(call, "error"), json_object_get(call, "record"),
                             request_sha256);
    }
    check_close(c, &chain, json_object_get(entry, "close"));
}
