/*
 * Any bytes as a binary body, and then everything that is done with a message before anybody has checked it:
 * validation, digests, the record check, the JSON form. The first byte picks the message.
 */
#include <stdlib.h>
#include <string.h>

#include "core/protojson.h"
#include "core/protowire.h"
#include "gateway/validate.h"
#include "records/digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Read as JSON it is the message it was printed from; texts are valid, so nothing is replaced on the way. */
static void check_json(const ProtobufCMessage *m)
{
    char error[PROTOJSON_ERROR_MAX];
    buffer_t json;
    buffer_init(&json, (size_t)1 << 30);
    if (!protojson_print(m, &json))
        abort();
    ProtobufCMessage *again = protojson_parse(m->descriptor, json.base, json.len, error);
    if (again == NULL && strstr(error, "more memory") == NULL)
        abort();
    protobuf_c_message_free_unpacked(again, NULL);
    buffer_dispose(&json);
}

static void check_refusal(const refusal_t *refusal)
{
    buffer_t body;
    buffer_init(&body, 1 << 16);
    refusal_body(refusal, &body);
    if (refusal->mark == MARK_NONE || !utf8_is_valid(body.base, body.len))
        abort();
    buffer_dispose(&body);
}

static void run_request(const Plimsoll__V1__RunRequest *q)
{
    char digest[SHA256_HEX + 1];
    run_terms_t terms;
    refusal_t refusal;
    Plimsoll__V1__RunResponse answer = PLIMSOLL__V1__RUN_RESPONSE__INIT;
    if (!validate_run(q, &terms, &refusal))
        check_refusal(&refusal);
    digest_request(q, digest);
    if (record_check(q, &answer) == NULL)
        abort();
}

static void run_response(const Plimsoll__V1__RunResponse *a)
{
    char digest[SHA256_HEX + 1];
    Plimsoll__V1__RunRequest q = PLIMSOLL__V1__RUN_REQUEST__INIT;
    digest_result(a, digest);
    q.protocol = a->record != NULL && a->record->version == 4 ? 4 : 3;
    record_check(&q, a);
    if (a->record != NULL)
        digest_record(a->record, digest);
}

static void session_run(const Plimsoll__V1__SessionRunRequest *q)
{
    char digest[SHA256_HEX + 1];
    refusal_t refusal;
    digest_session_request(q, digest);
    validate_session_run(q, &refusal);
    check_refusal(&refusal);
}

static void open_session(const Plimsoll__V1__OpenSessionRequest *q)
{
    refusal_t refusal;
    validate_open_session(q, &refusal);
    check_refusal(&refusal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const MESSAGES[] = {
        &plimsoll__v1__run_request__descriptor,
        &plimsoll__v1__run_response__descriptor,
        &plimsoll__v1__session_run_request__descriptor,
        &plimsoll__v1__open_session_request__descriptor,
    };
    char error[PROTOWIRE_ERROR_MAX] = "";
    if (size == 0)
        return 0;
    unsigned which = data[0] % 4;
    ProtobufCMessage *m = protowire_parse(MESSAGES[which], data + 1, size - 1, error);
    if (m == NULL) {
        if (error[0] == '\0')
            abort();
        return 0;
    }
    check_json(m);
    switch (which) {
    case 0:
        run_request((void *)m);
        break;
    case 1:
        run_response((void *)m);
        break;
    case 2:
        session_run((void *)m);
        break;
    default:
        open_session((void *)m);
    }
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}
