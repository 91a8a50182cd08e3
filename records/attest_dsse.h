/*
 * DSSE envelopes (attest section 4): a payload of one type, its signatures over the pre-authentication encoding, in
 * canonical JSON.
 */
#ifndef RECORDS_ATTEST_DSSE_H
#define RECORDS_ATTEST_DSSE_H

#include "records/attest_json.h"
#include "records/attest_key.h"

#define ATTEST_PAYLOAD_TYPE "application/vnd.in-toto+json"

enum { ATTEST_SIGNATURES_MAX = 16 }; /* of one envelope that is read; one is what anybody writes */

typedef struct {
    char *keyid;
    uint8_t *sig;
    size_t sig_len;
} attest_signature_t;

typedef struct {
    uint8_t *payload;
    size_t payload_len;
    attest_signature_t signatures[ATTEST_SIGNATURES_MAX];
    size_t signature_count;
} attest_envelope_t;

/* Appends the signed envelope of a payload; false when the buffer's limit was hit. */
bool attest_envelope_sign(buffer_t *out, const attest_key_t *key, const void *payload, size_t len);
/* Reads one at the cursor. NULL, or a literal that says why not. Dispose it whatever came of it. */
const char *attest_envelope_read(attest_cursor_t *cursor, attest_envelope_t *out);
void attest_envelope_dispose(attest_envelope_t *envelope);

/* Section 4.3: at least one signature with an empty or equal key ID verifies. */
bool attest_envelope_is_signed_by(const attest_envelope_t *envelope, const attest_public_t *key);
/* Section 5.1: exactly one signature, and it states this key's ID. */
bool attest_envelope_is_signed_by_alone(const attest_envelope_t *envelope, const attest_public_t *key);

#endif
