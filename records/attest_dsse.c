#include "records/attest_dsse.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"

/* The signed bytes: "DSSEv1", and the lengths and contents of type and payload, one space between each two. malloc'ed.
 */
static uint8_t *pae(const void *payload, size_t payload_len, size_t *len)
{
    static const char TYPE[] = ATTEST_PAYLOAD_TYPE;
    buffer_t out;
    buffer_init(&out, SIZE_MAX);
    buffer_printf(&out, "DSSEv1 %zu %s %zu ", sizeof(TYPE) - 1, TYPE, payload_len);
    buffer_append(&out, payload, payload_len);
    *len = out.len;
    return out.base;
}

bool attest_envelope_sign(buffer_t *out, const attest_key_t *key, const void *payload, size_t len)
{
    uint8_t sig[ATTEST_SIGNATURE_BYTES];
    size_t signed_len = 0;
    uint8_t *signed_bytes = pae(payload, len, &signed_len);
    attest_key_sign(key, signed_bytes, signed_len, sig);
    free(signed_bytes);
    return buffer_append_str(out, "{\"payloadType\":\"" ATTEST_PAYLOAD_TYPE "\",\"payload\":\"") &&
           base64_encode(out, payload, len, true) && buffer_append_str(out, "\",\"signatures\":[{\"keyid\":") &&
           attest_json_string(out, attest_key_public(key)->id) && buffer_append_str(out, ",\"sig\":\"") &&
           base64_encode(out, sig, sizeof(sig), true) && buffer_append_str(out, "\"}]}");
}

static const char *read_signature(attest_cursor_t *cursor, attest_envelope_t *out)
{
    if (out->signature_count == ATTEST_SIGNATURES_MAX)
        return "an envelope has more than 16 signatures";
    attest_signature_t *signature = &out->signatures[out->signature_count++];
    if (!attest_cursor_take(cursor, "{\"keyid\":") || (signature->keyid = attest_cursor_string(cursor)) == NULL ||
        !attest_cursor_take(cursor, ",\"sig\":") ||
        (signature->sig = attest_cursor_base64(cursor, &signature->sig_len)) == NULL ||
        !attest_cursor_take(cursor, "}"))
        return "an envelope's signature is not in canonical form";
    return NULL;
}

const char *attest_envelope_read(attest_cursor_t *cursor, attest_envelope_t *out)
{
    *out = (attest_envelope_t){0};
    if (!attest_cursor_take(cursor, "{\"payloadType\":\"" ATTEST_PAYLOAD_TYPE "\","))
        return "an envelope does not begin with the payload type of an in-toto statement";
    if (!attest_cursor_take(cursor, "\"payload\":") ||
        (out->payload = attest_cursor_base64(cursor, &out->payload_len)) == NULL)
        return "an envelope's payload is not padded standard base64";
    if (!attest_cursor_take(cursor, ",\"signatures\":["))
        return "an envelope is not in canonical form";
    do {
        const char *why = read_signature(cursor, out);
        if (why != NULL)
            return why;
    } while (attest_cursor_take(cursor, ","));
    return attest_cursor_take(cursor, "]}") ? NULL : "an envelope is not in canonical form";
}

void attest_envelope_dispose(attest_envelope_t *envelope)
{
    free(envelope->payload);
    for (size_t i = 0; i < envelope->signature_count; i++) {
        free(envelope->signatures[i].keyid);
        free(envelope->signatures[i].sig);
    }
    *envelope = (attest_envelope_t){0};
}

bool attest_envelope_is_signed_by(const attest_envelope_t *envelope, const attest_public_t *key)
{
    size_t len = 0;
    bool holds = false;
    uint8_t *signed_bytes = pae(envelope->payload, envelope->payload_len, &len);
    for (size_t i = 0; !holds && i < envelope->signature_count; i++) {
        const attest_signature_t *signature = &envelope->signatures[i];
        if (signature->keyid[0] == '\0' || strcmp(signature->keyid, key->id) == 0)
            holds = attest_public_verify(key, signed_bytes, len, signature->sig, signature->sig_len);
    }
    free(signed_bytes);
    return holds;
}

bool attest_envelope_is_signed_by_alone(const attest_envelope_t *envelope, const attest_public_t *key)
{
    return envelope->signature_count == 1 && strcmp(envelope->signatures[0].keyid, key->id) == 0 &&
           attest_envelope_is_signed_by(envelope, key);
}
