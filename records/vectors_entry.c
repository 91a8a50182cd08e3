/* Every kind of entry but the session chains. */
#include "records/vectors_internal.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"
#include "core/protowire.h"

void vectors_check_request(vectors_check_t *c, const json_t *entry)
{
    const char *name = vectors_name(entry);
    bool is_session = strcmp(vectors_text(entry, "rpc"), "SessionRun") == 0;
    char digest[SHA256_HEX + 1];
    void *m = vectors_message(
        c, name, is_session ? &plimsoll__v1__session_run_request__descriptor : &plimsoll__v1__run_request__descriptor,
        json_object_get(entry, "message"));
    if (m == NULL)
        return;
    if (is_session)
        digest_session_request(m, digest);
    else
        digest_request(m, digest);
    vectors_compare(c, name, "the request digest", digest, vectors_text(entry, "sha256"));
    vectors_message_free(m);
}

void vectors_check_result(vectors_check_t *c, const json_t *entry)
{
    const char *name = vectors_name(entry);
    char digest[SHA256_HEX + 1];
    void *m = vectors_message(c, name, &plimsoll__v1__run_response__descriptor, json_object_get(entry, "message"));
    if (m == NULL)
        return;
    digest_result(m, digest);
    vectors_compare(c, name, "the result digest", digest, vectors_text(entry, "sha256"));
    vectors_message_free(m);
}

void vectors_check_record(vectors_check_t *c, const json_t *entry)
{
    const char *name = vectors_name(entry);
    Plimsoll__V1__RunRecord *m =
        vectors_message(c, name, &plimsoll__v1__run_record__descriptor, json_object_get(entry, "record"));
    if (m == NULL)
        return;
    vectors_compare_record(c, name, m, vectors_text(entry, "sha256"));
    if (m->record_sha256[0] != '\0')
        vectors_compare_record(c, name, m, m->record_sha256);
    vectors_message_free(m);
}

void vectors_check_fingerprint(vectors_check_t *c, const json_t *entry)
{
    char digest[SHA256_HEX + 1];
    digest_session_id(vectors_text(entry, "session_id"), digest);
    vectors_compare(c, vectors_name(entry), "the fingerprint", digest, vectors_text(entry, "sha256"));
}

void vectors_check_exchange(vectors_check_t *c, const json_t *entry)
{
    const char *name = vectors_name(entry);
    Plimsoll__V1__RunRequest *request =
        vectors_message(c, name, &plimsoll__v1__run_request__descriptor, json_object_get(entry, "request"));
    Plimsoll__V1__RunResponse *response =
        vectors_message(c, name, &plimsoll__v1__run_response__descriptor, json_object_get(entry, "response"));
    if (request != NULL && response != NULL) {
        const char *err = record_check(request, response);
        vectors_report(c, err == NULL, name, err != NULL ? err : "");
    }
    vectors_message_free(request);
    vectors_message_free(response);
}

void vectors_check_rule_id(vectors_check_t *c, const json_t *entry)
{
    const json_t *json = json_object_get(entry, "rule");
    char id[SOFTWARE_RULE_ID_MAX];
    Plimsoll__V1__SoftwareRule *rule = NULL;
    if (!json_is_null(json)) {
        rule = vectors_message(c, "rule", &plimsoll__v1__software_rule__descriptor, json);
        if (rule == NULL)
            return;
    }
    software_rule_id(rule, id);
    vectors_compare(c, "rule", "the id", id, json_string_value(json_object_get(entry, "id")));
    vectors_message_free(rule);
}

/* Spec section 7.5. */
void vectors_check_owner_value(vectors_check_t *c, const json_t *entry)
{
    static const char KEY_DOMAIN[] = "plimsoll session owner key v2\n", DOMAIN[] = "plimsoll session owner v2\n";
    uint8_t key[SHA256_BYTES], mac[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    const char *token = vectors_text(entry, "token"), *owner = vectors_text(entry, "owner");
    sha256_t *s = sha256_begin();
    sha256_add(s, KEY_DOMAIN, sizeof(KEY_DOMAIN) - 1);
    sha256_add(s, token, strlen(token));
    sha256_end(s, key);
    buffer_t message;
    buffer_init(&message, VECTORS_FILE_MAX);
    unsigned len = 0;
    if (buffer_append_str(&message, DOMAIN) && buffer_append_str(&message, owner))
        HMAC(EVP_sha256(), key, sizeof(key), message.base, message.len, mac, &len);
    buffer_dispose(&message);
    if (len != sizeof(mac)) {
        vectors_report(c, false, owner, "the HMAC could not be computed");
        return;
    }
    vectors_hex_write(mac, sizeof(mac), hex);
    vectors_compare(c, owner, "the value", hex, vectors_text(entry, "value"));
}

static void compare_detail(vectors_check_t *c, const char *name, const ProtobufCMessage *message, const json_t *entry)
{
    vectors_compare_packed(c, name, message, vectors_text(entry, "hex"));
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(len + 1);
    protobuf_c_message_pack(message, bytes);
    buffer_t text;
    buffer_init(&text, VECTORS_FILE_MAX);
    base64_encode(&text, bytes, len, false);
    vectors_compare(c, name, "the base64 form", text.base != NULL ? (char *)text.base : "",
                    vectors_text(entry, "base64_unpadded"));
    size_t back_len = 0;
    const char *given = vectors_text(entry, "base64_unpadded");
    uint8_t *back = base64_decode(given, strlen(given), &back_len);
    vectors_report(c, back != NULL && back_len == len && memcmp(back, bytes, len) == 0, name,
                   "the base64 form does not decode to the bytes");
    free(back);
    buffer_dispose(&text);
    free(bytes);
}

void vectors_check_not_dispatched(vectors_check_t *c, const json_t *entry)
{
    char name[64];
    const char *reason = vectors_text(entry, "reason");
    size_t n = (size_t)snprintf(name, sizeof(name), "NOT_DISPATCHED_REASON_%s", reason);
    for (size_t i = 0; i < n && i < sizeof(name); i++)
        name[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(&plimsoll__v1__not_dispatched_reason__descriptor, name);
    if (value == NULL || value->value != json_integer_value(json_object_get(entry, "number"))) {
        vectors_report(c, false, reason, "the reason's number is another");
        return;
    }
    Plimsoll__V1__NotDispatched m = PLIMSOLL__V1__NOT_DISPATCHED__INIT;
    m.reason = value->value;
    compare_detail(c, reason, &m.base, entry);
}

void vectors_check_session_ended(vectors_check_t *c, const json_t *entry)
{
    const char *reason = vectors_text(entry, "reason");
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(&plimsoll__v1__session_end__descriptor, reason);
    if (value == NULL || value->value != json_integer_value(json_object_get(entry, "number"))) {
        vectors_report(c, false, reason, "the reason's number is another");
        return;
    }
    Plimsoll__V1__SessionEnded m = PLIMSOLL__V1__SESSION_ENDED__INIT;
    m.reason = value->value;
    m.detail = (char *)vectors_text(entry, "detail");
    compare_detail(c, reason, &m.base, entry);
}

static const ProtobufCMessageDescriptor *descriptor_of(const char *name)
{
    static const ProtobufCMessageDescriptor *const KNOWN[] = {
        &plimsoll__v1__describe_request__descriptor,
        &plimsoll__v1__describe_response__descriptor,
        &plimsoll__v1__run_request__descriptor,
        &plimsoll__v1__run_response__descriptor,
        &plimsoll__v1__run_record__descriptor,
        &plimsoll__v1__open_session_request__descriptor,
        &plimsoll__v1__open_session_response__descriptor,
        &plimsoll__v1__session_run_request__descriptor,
        &plimsoll__v1__session_run_response__descriptor,
        &plimsoll__v1__close_session_request__descriptor,
        &plimsoll__v1__close_session_response__descriptor,
    };
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (strcmp(KNOWN[i]->short_name, name) == 0)
            return KNOWN[i];
    }
    return NULL;
}

/* From JSON to the bytes, and from the bytes to the same message. */
void vectors_check_binary(vectors_check_t *c, const json_t *entry)
{
    const char *name = vectors_name(entry), *hex = vectors_text(entry, "hex");
    const ProtobufCMessageDescriptor *descriptor = descriptor_of(vectors_text(entry, "message"));
    char error[PROTOWIRE_ERROR_MAX] = "not hex";
    if (descriptor == NULL) {
        vectors_report(c, false, name, "a message this program does not know");
        return;
    }
    ProtobufCMessage *m = vectors_message(c, name, descriptor, json_object_get(entry, "json"));
    if (m != NULL)
        vectors_compare_packed(c, name, m, hex);
    size_t len = 0;
    uint8_t *bytes = vectors_hex_read(hex, &len);
    ProtobufCMessage *back = bytes != NULL ? protowire_parse(descriptor, bytes, len, error) : NULL;
    if (back == NULL)
        vectors_report(c, false, name, error);
    buffer_t ours, theirs;
    buffer_init(&ours, VECTORS_FILE_MAX);
    buffer_init(&theirs, VECTORS_FILE_MAX);
    if (m != NULL && back != NULL && protojson_print(m, &ours) && protojson_print(back, &theirs))
        vectors_compare(c, name, "the JSON form of the bytes", (char *)theirs.base, (char *)ours.base);
    buffer_dispose(&ours);
    buffer_dispose(&theirs);
    vectors_message_free(back);
    vectors_message_free(m);
    free(bytes);
}

void vectors_check_encoding(vectors_check_t *c, const json_t *entry)
{
    size_t len = 0;
    char digest[SHA256_HEX + 1];
    uint8_t *bytes = vectors_hex_read(vectors_text(entry, "encoding_hex"), &len);
    if (bytes == NULL) {
        vectors_report(c, false, vectors_name(entry), "not hex");
        return;
    }
    sha256_hex(bytes, len, digest);
    vectors_compare(c, vectors_name(entry), "the encoding's SHA-256", digest, vectors_text(entry, "sha256"));
    free(bytes);
}
