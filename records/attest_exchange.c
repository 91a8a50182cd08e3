#include "records/attest_exchange.h"

#include <string.h>

#include "records/attest_statement.h"
#include "records/digest.h"
#include "records/tier.h"

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

static bool is_empty(const char *text)
{
    return text_of(text)[0] == '\0';
}

/* Section 6.3: a single run carries no chain fields, a session's call all of them. */
static const char *check_chain_fields(const Plimsoll__V1__RunRecord *r)
{
    bool is_first = r->sequence == 1;
    if (is_empty(r->session))
        return r->sequence == 0 && is_empty(r->previous_sha256) ? NULL : "a single run's record carries chain fields";
    if (!attest_is_digest(r->session) || r->sequence == 0)
        return "a session call's record does not say which call of which session it is";
    if (is_first != is_empty(r->previous_sha256) || (!is_first && !attest_is_digest(r->previous_sha256)))
        return "a session call's record does not name the record before it";
    return NULL;
}

const char *attest_check_answered(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response)
{
    const Plimsoll__V1__RunRecord *r = response->record;
    if (r == NULL)
        return "the answer carries no record";
    if (r->version == 1)
        return "a version 1 record is never signed";
    const char *why =
        is_empty(r->session) ? record_check(request, response) : record_check_in_session(request, response);
    return why != NULL ? why : check_chain_fields(r);
}

static bool is_code(const char *text)
{
    static const char *const CODES[] = {
        "canceled",       "unknown",           "invalid_argument",   "deadline_exceeded",   "not_found",
        "already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted",
        "out_of_range",   "unimplemented",     "internal",           "unavailable",         "data_loss",
        "unauthenticated"};
    for (size_t i = 0; i < sizeof(CODES) / sizeof(CODES[0]); i++)
        if (strcmp(CODES[i], text) == 0)
            return true;
    return false;
}

/* Protocol section 7.6, step 4. */
const char *attest_check_unanswered(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunRecord *r)
{
    char digest[SHA256_HEX + 1], rule_id[SOFTWARE_RULE_ID_MAX];
    tier_t floor;
    if (r->version != (request->protocol >= 4 ? 4u : 3u))
        return "the record's version is not the one of an unanswered call of the request's protocol";
    if (!is_code(text_of(r->unanswered)))
        return "the record does not say with which code the call ended";
    if (!is_empty(r->result_sha256) || (r->version < 4 && !is_empty(r->instance)))
        return "the record carries a field its version does not cover";
    digest_request(request, digest);
    if (strcmp(text_of(r->request_sha256), digest) != 0)
        return "the record's request digest is not the request's";
    software_rule_id(request->software_rule, rule_id);
    if (strcmp(text_of(r->software_rule_id), rule_id) != 0 ||
        !software_rule_allows(request->software_rule, r->software_identity))
        return "the record's software rule is not the request's, or its software is not in it";
    if (digest_record(r, digest) != NULL || strcmp(text_of(r->record_sha256), digest) != 0)
        return "the record's own digest is not that of its fields";
    if (request->payload_case == PLIMSOLL__V1__RUN_REQUEST__PAYLOAD__NOT_SET)
        return "the request asks for nothing";
    if (!tier_parse_floor(text_of(request->minimum_isolation), &floor) ||
        !tier_meets(tier_parse(text_of(r->isolation)), floor))
        return "the tier is below the request's floor";
    return is_empty(r->session) ? "an unanswered call belongs to a session" : check_chain_fields(r);
}

bool attest_records_are_equal(const Plimsoll__V1__RunRecord *a, const Plimsoll__V1__RunRecord *b)
{
    const ProtobufCMessageDescriptor *type = &plimsoll__v1__run_record__descriptor;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        const void *one = (const char *)a + field->offset, *other = (const char *)b + field->offset;
        bool is_equal = false;
        switch (field->type) {
        case PROTOBUF_C_TYPE_STRING:
            is_equal = strcmp(text_of(*(char *const *)one), text_of(*(char *const *)other)) == 0;
            break;
        case PROTOBUF_C_TYPE_UINT32:
            is_equal = memcmp(one, other, sizeof(uint32_t)) == 0;
            break;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_UINT64:
            is_equal = memcmp(one, other, sizeof(uint64_t)) == 0;
            break;
        default: /* a field of a kind nobody compares yet makes records differ, never match */
            break;
        }
        if (!is_equal)
            return false;
    }
    return true;
}
