/*
 * What a client can check of an answer, spec section 8.2; for protocol 4 as docs/protocol-notes.md has it. The order is
 * the section's, so the reason told is the one an official client would give.
 */
#include "records/digest.h"

#include <stdbool.h>
#include <string.h>

#include "records/tier.h"

static bool is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* Protocol 1 knew the first two versions, 2 and 3 demand the second, 4 the fourth, of every answered call. */
static bool is_version_for(uint32_t version, uint32_t protocol)
{
    switch (protocol) {
    case 0:
    case 1:
        return version == 1 || version == 2;
    case 2:
    case 3:
        return version == 2;
    case 4:
        return version == 4;
    default:
        return false;
    }
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Empty, or a typed reference: [a-z][a-z0-9-]{0,31}:[A-Za-z0-9._:-]{1,127}. */
static bool is_instance(const char *text)
{
    if (is_empty(text))
        return true;
    size_t type = 0;
    while (is_lower(text[type]) || (type != 0 && (is_digit(text[type]) || text[type] == '-')))
        type++;
    if (type < 1 || type > 32 || text[type] != ':')
        return false;
    const char *reference = text + type + 1;
    size_t len = 0;
    for (; reference[len] != '\0'; len++) {
        char c = reference[len];
        bool is_letter = is_lower(c) || (c >= 'A' && c <= 'Z');
        if (!is_letter && !is_digit(c) && strchr("._:-", c) == NULL)
            return false;
    }
    return len >= 1 && len <= 127;
}

/* Fields a version does not cover are nobody's word. */
static bool carries_uncovered(const Plimsoll__V1__RunRecord *r)
{
    return !is_empty(r->unanswered) || (r->version < 4 && !is_empty(r->instance)) ||
           (r->version == 1 && (!is_empty(r->software_identity) || !is_empty(r->software_rule_id)));
}

static bool is_result_of(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response)
{
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        return response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE:
        return response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_CELL:
        return response->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_CELL;
    default:
        return false;
    }
}

/* What is left of a version 1 record is the provider and the tier. */
static bool has_evidence_of(const Plimsoll__V1__RunRecord *r, const Plimsoll__V1__RunResponse *response)
{
    if (!is_same(r->provider, response->sandbox) || !is_same(r->isolation, response->isolation))
        return false;
    if (r->version == 1)
        return true;
    if (!is_same(r->environment, response->environment) || !is_same(r->software_identity, response->software_identity))
        return false;
    return r->version < 4 || is_same(r->instance, response->instance);
}

static bool has_session_fields(const Plimsoll__V1__RunRecord *r)
{
    return !is_empty(r->session) || r->sequence != 0 || !is_empty(r->previous_sha256);
}

static const char *check(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response,
                         bool is_session_call)
{
    const Plimsoll__V1__RunRecord *r = response->record;
    char digest[SHA256_HEX + 1], rule_id[SOFTWARE_RULE_ID_MAX];
    tier_t floor;
    if (r == NULL)
        return "the answer carries no record";
    if (!is_version_for(r->version, request->protocol))
        return "the record's version is not the one the request's protocol demands";
    if (carries_uncovered(r))
        return "the record carries a field its version does not cover";
    digest_request(request, digest);
    if (!is_same(r->request_sha256, digest))
        return "the record's request digest is not the request's";
    digest_result(response, digest);
    if (!is_same(r->result_sha256, digest))
        return "the record's result digest is not the result's";
    if (!has_evidence_of(r, response))
        return "the record's provider, tier, environment, software or instance is not the answer's";
    if (!is_instance(r->instance))
        return "the record's instance is not a typed reference";
    software_rule_id(request->software_rule, rule_id);
    if (r->version >= 2 &&
        (!is_same(r->software_rule_id, rule_id) || !software_rule_allows(request->software_rule, r->software_identity)))
        return "the record's software rule is not the request's, or its software is not in it";
    if (digest_record(r, digest) != NULL || !is_same(r->record_sha256, digest))
        return "the record's own digest is not that of its fields";
    if (!is_session_call && has_session_fields(r))
        return "a single run's record carries session fields";
    if (!is_result_of(request, response))
        return "the result is not of the request's kind";
    if (!tier_parse_floor(request->minimum_isolation, &floor) || !tier_meets(tier_parse(response->isolation), floor))
        return "the tier is below the request's floor";
    return NULL;
}

const char *record_check(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response)
{
    return check(request, response, false);
}

const char *record_check_in_session(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response)
{
    return check(request, response, true);
}
