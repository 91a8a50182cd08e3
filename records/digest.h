/*
 * Request, result and record digests, byte for byte as spec section 6 has them: SHA-256 over length-prefixed fields,
 * never over protobuf or JSON bytes. All outputs are lowercase hex with a final NUL. Pure functions.
 */
#ifndef RECORDS_DIGEST_H
#define RECORDS_DIGEST_H

#include "core/sha256.h"
#include "records/plimsoll.pb-c.h"

enum { SOFTWARE_RULE_ID_MAX = 6 + 256 + 1 }; /* "exact:" + identity, or "approved:sha256:" + 64; with the NUL */

void digest_request(const Plimsoll__V1__RunRequest *request, char out[SHA256_HEX + 1]);
void digest_session_request(const Plimsoll__V1__SessionRunRequest *request, char out[SHA256_HEX + 1]);
void digest_result(const Plimsoll__V1__RunResponse *response, char out[SHA256_HEX + 1]);
/* NULL, or why there is no digest (a version other than 1 to 4). */
const char *digest_record(const Plimsoll__V1__RunRecord *record, char out[SHA256_HEX + 1]);
/* SHA-256 of the session id's text. */
void digest_session_id(const char *session_id, char out[SHA256_HEX + 1]);
/* Empty for no rule. The rule must have passed validation (identities of at most 256 bytes). */
void software_rule_id(const Plimsoll__V1__SoftwareRule *rule, char out[SOFTWARE_RULE_ID_MAX]);
/* Whether the identity satisfies the rule; an empty identity satisfies only "no rule". */
int software_rule_allows(const Plimsoll__V1__SoftwareRule *rule, const char *identity);

/* Everything a client can check of a single run's answer (spec section 8.2, for the record version the request's
 * protocol demands). NULL when it holds, else what does not. */
const char *record_check(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response);
/* The same for a session's answered call, whose request stands there without its session id (attest section 5): all but
 * the chain fields, which only the other calls can check. */
const char *record_check_in_session(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response);

#endif
