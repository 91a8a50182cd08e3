#include "records/vectors.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"
#include "core/protowire.h"
#include "records/digest.h"

typedef struct {
    FILE *failures;
    vectors_result_t *result;
    const char *section;
} check_t;

/* ---- telling ---- */

static void report(check_t *c, bool ok, const char *name, const char *what)
{
    if (ok) {
        c->result->passed++;
        return;
    }
    c->result->failed++;
    fprintf(c->failures, "%s: %s: %s\n", c->section, name, what);
}

static void compare(check_t *c, const char *name, const char *what, const char *got, const char *wanted)
{
    bool ok = wanted != NULL && strcmp(got, wanted) == 0;
    if (ok) {
        c->result->passed++;
        return;
    }
    c->result->failed++;
    fprintf(c->failures, "%s: %s: %s is \"%s\", the file has \"%s\"\n", c->section, name, what, got,
            wanted != NULL ? wanted : "");
}

/* "" for a member that is missing or no string, which then compares as a failure. */
static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));
    return text != NULL ? text : "";
}

static const char *name_of(const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    return name != NULL ? name : "(no name)";
}

/* ---- messages ---- */

/* The message in the entry's member, read as a request's body would be. NULL: told. */
static void *message_of(check_t *c, const char *name, const ProtobufCMessageDescriptor *descriptor, const json_t *json)
{
    char error[PROTOJSON_ERROR_MAX];
    /* 17 digits are every double exactly; jansson keeps the sign of -0.0. */
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text == NULL) {
        report(c, false, name, "there is no message");
        return NULL;
    }
    ProtobufCMessage *message = protojson_parse(descriptor, text, strlen(text), error);
    free(text);
    if (message == NULL)
        report(c, false, name, error);
    return message;
}

static void message_free(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

static void hex_write(const uint8_t *data, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", data[i]);
    out[2 * len] = '\0';
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* malloc'ed bytes, or NULL. */
static uint8_t *hex_read(const char *hex, size_t *len)
{
    size_t n = strlen(hex);
    if (n % 2 != 0)
        return NULL;
    uint8_t *out = mem_alloc(n / 2 + 1);
    for (size_t i = 0; i < n; i += 2) {
        int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
        if (high < 0 || low < 0) {
            free(out);
            return NULL;
        }
        out[i / 2] = (uint8_t)(high << 4 | low);
    }
    *len = n / 2;
    return out;
}

/* The packed bytes as hex, malloc'ed. */
static char *packed_hex(const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(len + 1);
    protobuf_c_message_pack(message, bytes);
    char *hex = mem_alloc(2 * len + 1);
    hex_write(bytes, len, hex);
    free(bytes);
    return hex;
}

/* Whether the message packs to the hex. */
static void compare_packed(check_t *c, const char *name, const ProtobufCMessage *message, const char *hex)
{
    char *got = packed_hex(message);
    compare(c, name, "the binary form", got, hex);
    free(got);
}

/* ---- one entry of each section ---- */

static void check_request(check_t *c, const json_t *entry)
{
    const char *name = name_of(entry);
    bool is_session = strcmp(text_of(entry, "rpc"), "SessionRun") == 0;
    char digest[SHA256_HEX + 1];
    void *m = message_of(
        c, name, is_session ? &plimsoll__v1__session_run_request__descriptor : &plimsoll__v1__run_request__descriptor,
        json_object_get(entry, "message"));
    if (m == NULL)
        return;
    if (is_session)
        digest_session_request(m, digest);
    else
        digest_request(m, digest);
    compare(c, name, "the request digest", digest, text_of(entry, "sha256"));
    message_free(m);
}

static void check_result(check_t *c, const json_t *entry)
{
    const char *name = name_of(entry);
    char digest[SHA256_HEX + 1];
    void *m = message_of(c, name, &plimsoll__v1__run_response__descriptor, json_object_get(entry, "message"));
    if (m == NULL)
        return;
    digest_result(m, digest);
    compare(c, name, "the result digest", digest, text_of(entry, "sha256"));
    message_free(m);
}

static void compare_record(check_t *c, const char *name, const Plimsoll__V1__RunRecord *record, const char *wanted)
{
    char digest[SHA256_HEX + 1];
    const char *err = digest_record(record, digest);
    if (err != NULL)
        report(c, false, name, err);
    else
        compare(c, name, "the record digest", digest, wanted);
}

static void check_record(check_t *c, const json_t *entry)
{
    const char *name = name_of(entry);
    Plimsoll__V1__RunRecord *m =
        message_of(c, name, &plimsoll__v1__run_record__descriptor, json_object_get(entry, "record"));
    if (m == NULL)
        return;
    compare_record(c, name, m, text_of(entry, "sha256"));
    if (m->record_sha256[0] != '\0')
        compare_record(c, name, m, m->record_sha256);
    message_free(m);
}

static void check_fingerprint(check_t *c, const json_t *entry)
{
    char digest[SHA256_HEX + 1];
    digest_session_id(text_of(entry, "session_id"), digest);
    compare(c, name_of(entry), "the fingerprint", digest, text_of(entry, "sha256"));
}

static void check_exchange(check_t *c, const json_t *entry)
{
    const char *name = name_of(entry);
    Plimsoll__V1__RunRequest *request =
        message_of(c, name, &plimsoll__v1__run_request__descriptor, json_object_get(entry, "request"));
    Plimsoll__V1__RunResponse *response =
        message_of(c, name, &plimsoll__v1__run_response__descriptor, json_object_get(entry, "response"));
    if (request != NULL && response != NULL) {
        const char *err = record_check(request, response);
        report(c, err == NULL, name, err != NULL ? err : "");
    }
    message_free(request);
    message_free(response);
}

static void check_rule_id(check_t *c, const json_t *entry)
{
    const json_t *json = json_object_get(entry, "rule");
    char id[SOFTWARE_RULE_ID_MAX];
    Plimsoll__V1__SoftwareRule *rule = NULL;
    if (!json_is_null(json)) {
        rule = message_of(c, "rule", &plimsoll__v1__software_rule__descriptor, json);
        if (rule == NULL)
            return;
    }
    software_rule_id(rule, id);
    compare(c, "rule", "the id", id, json_string_value(json_object_get(entry, "id")));
    message_free(rule);
}

/* Spec section 7.5. */
static void check_owner_value(check_t *c, const json_t *entry)
{
    static const char KEY_DOMAIN[] = "plimsoll session owner key v2\n", DOMAIN[] = "plimsoll session owner v2\n";
    uint8_t key[SHA256_BYTES], mac[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    const char *token = text_of(entry, "token"), *owner = text_of(entry, "owner");
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
        report(c, false, owner, "the HMAC could not be computed");
        return;
    }
    hex_write(mac, sizeof(mac), hex);
    compare(c, owner, "the value", hex, text_of(entry, "value"));
}

static void compare_detail(check_t *c, const char *name, const ProtobufCMessage *message, const json_t *entry)
{
    compare_packed(c, name, message, text_of(entry, "hex"));
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(len + 1);
    protobuf_c_message_pack(message, bytes);
    buffer_t text;
    buffer_init(&text, VECTORS_FILE_MAX);
    base64_encode(&text, bytes, len, false);
    compare(c, name, "the base64 form", text.base != NULL ? (char *)text.base : "", text_of(entry, "base64_unpadded"));
    size_t back_len = 0;
    const char *given = text_of(entry, "base64_unpadded");
    uint8_t *back = base64_decode(given, strlen(given), &back_len);
    report(c, back != NULL && back_len == len && memcmp(back, bytes, len) == 0, name,
           "the base64 form does not decode to the bytes");
    free(back);
    buffer_dispose(&text);
    free(bytes);
}

static void check_not_dispatched(check_t *c, const json_t *entry)
{
    char name[64];
    const char *reason = text_of(entry, "reason");
    size_t n = (size_t)snprintf(name, sizeof(name), "NOT_DISPATCHED_REASON_%s", reason);
    for (size_t i = 0; i < n && i < sizeof(name); i++)
        name[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(&plimsoll__v1__not_dispatched_reason__descriptor, name);
    if (value == NULL || value->value != json_integer_value(json_object_get(entry, "number"))) {
        report(c, false, reason, "the reason's number is another");
        return;
    }
    Plimsoll__V1__NotDispatched m = PLIMSOLL__V1__NOT_DISPATCHED__INIT;
    m.reason = value->value;
    compare_detail(c, reason, &m.base, entry);
}

static void check_session_ended(check_t *c, const json_t *entry)
{
    const char *reason = text_of(entry, "reason");
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value_by_name(&plimsoll__v1__session_end__descriptor, reason);
    if (value == NULL || value->value != json_integer_value(json_object_get(entry, "number"))) {
        report(c, false, reason, "the reason's number is another");
        return;
    }
    Plimsoll__V1__SessionEnded m = PLIMSOLL__V1__SESSION_ENDED__INIT;
    m.reason = value->value;
    m.detail = (char *)text_of(entry, "detail");
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
static void check_binary(check_t *c, const json_t *entry)
{
    const char *name = name_of(entry), *hex = text_of(entry, "hex");
    const ProtobufCMessageDescriptor *descriptor = descriptor_of(text_of(entry, "message"));
    char error[PROTOWIRE_ERROR_MAX] = "not hex";
    if (descriptor == NULL) {
        report(c, false, name, "a message this program does not know");
        return;
    }
    ProtobufCMessage *m = message_of(c, name, descriptor, json_object_get(entry, "json"));
    if (m != NULL)
        compare_packed(c, name, m, hex);
    size_t len = 0;
    uint8_t *bytes = hex_read(hex, &len);
    ProtobufCMessage *back = bytes != NULL ? protowire_parse(descriptor, bytes, len, error) : NULL;
    if (back == NULL)
        report(c, false, name, error);
    buffer_t ours, theirs;
    buffer_init(&ours, VECTORS_FILE_MAX);
    buffer_init(&theirs, VECTORS_FILE_MAX);
    if (m != NULL && back != NULL && protojson_print(m, &ours) && protojson_print(back, &theirs))
        compare(c, name, "the JSON form of the bytes", (char *)theirs.base, (char *)ours.base);
    buffer_dispose(&ours);
    buffer_dispose(&theirs);
    message_free(back);
    message_free(m);
    free(bytes);
}

static void check_encoding(check_t *c, const json_t *entry)
{
    size_t len = 0;
    char digest[SHA256_HEX + 1];
    uint8_t *bytes = hex_read(text_of(entry, "encoding_hex"), &len);
    if (bytes == NULL) {
        report(c, false, name_of(entry), "not hex");
        return;
    }
    sha256_hex(bytes, len, digest);
    compare(c, name_of(entry), "the encoding's SHA-256", digest, text_of(entry, "sha256"));
    free(bytes);
}

/* ---- session chains, section 6.6 ---- */

typedef struct {
    const char *name;
    const char *session;
    uint64_t calls;
    char last[SHA256_HEX + 1];
} chain_t;

static void chain_add(check_t *c, chain_t *chain, const Plimsoll__V1__RunRecord *r, const char *request_sha256)
{
    compare_record(c, chain->name, r, r->record_sha256);
    compare(c, chain->name, "the request digest", request_sha256, r->request_sha256);
    compare(c, chain->name, "the session", chain->session, r->session);
    compare(c, chain->name, "the digest before", chain->last, r->previous_sha256);
    report(c, r->sequence == chain->calls + 1, chain->name, "the sequence is not the next");
    chain->calls = r->sequence;
    snprintf(chain->last, sizeof(chain->last), "%s", r->record_sha256);
}

static void check_answered(check_t *c, chain_t *chain, const json_t *response, const char *request_sha256)
{
    char digest[SHA256_HEX + 1];
    Plimsoll__V1__SessionRunResponse *m =
        message_of(c, chain->name, &plimsoll__v1__session_run_response__descriptor, response);
    if (m == NULL)
        return;
    if (m->run == NULL || m->run->record == NULL) {
        report(c, false, chain->name, "an answer without a record");
    } else {
        digest_result(m->run, digest);
        compare(c, chain->name, "the result digest", digest, m->run->record->result_sha256);
        chain_add(c, chain, m->run->record, request_sha256);
    }
    message_free(m);
}

/* The record travels in the detail; the file repeats it in JSON. */
static void check_unanswered(check_t *c, chain_t *chain, const json_t *error, const json_t *record,
                             const char *request_sha256)
{
    char why[PROTOWIRE_ERROR_MAX] = "not base64";
    size_t len = 0;
    const char *value = text_of(error, "detail_value_base64");
    uint8_t *bytes = base64_decode(value, strlen(value), &len);
    Plimsoll__V1__UnansweredCall *detail =
        bytes != NULL ? (void *)protowire_parse(&plimsoll__v1__unanswered_call__descriptor, bytes, len, why) : NULL;
    Plimsoll__V1__RunRecord *stated = message_of(c, chain->name, &plimsoll__v1__run_record__descriptor, record);
    if (detail == NULL || detail->record == NULL) {
        report(c, false, chain->name, detail == NULL ? why : "a detail without a record");
    } else if (stated != NULL) {
        char *hex = packed_hex(&stated->base);
        compare_packed(c, chain->name, &detail->record->base, hex);
        free(hex);
        compare(c, chain->name, "the code", text_of(error, "code"), detail->record->unanswered);
        chain_add(c, chain, detail->record, request_sha256);
    }
    message_free(stated);
    message_free(detail);
    free(bytes);
}

static void check_close(check_t *c, const chain_t *chain, const json_t *close)
{
    Plimsoll__V1__CloseSessionResponse *m =
        message_of(c, chain->name, &plimsoll__v1__close_session_response__descriptor, close);
    if (m == NULL)
        return;
    compare(c, chain->name, "the closed session", chain->session, m->session);
    compare(c, chain->name, "the last digest", chain->last, m->last_record_sha256);
    report(c, m->calls == chain->calls, chain->name, "the count at the close is another");
    message_free(m);
}

static void check_chain(check_t *c, const json_t *entry)
{
    char fingerprint[SHA256_HEX + 1], request_sha256[SHA256_HEX + 1];
    digest_session_id(text_of(entry, "session_id"), fingerprint);
    chain_t chain = {.name = name_of(entry), .session = fingerprint};
    compare(c, chain.name, "the session", fingerprint, text_of(entry, "session"));
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(entry, "calls"), i, call)
    {
        Plimsoll__V1__SessionRunRequest *request =
            message_of(c, chain.name, &plimsoll__v1__session_run_request__descriptor, json_object_get(call, "request"));
        if (request == NULL)
            return;
        digest_session_request(request, request_sha256);
        message_free(request);
        json_t *response = json_object_get(call, "response");
        if (response != NULL)
            check_answered(c, &chain, response, request_sha256);
        else
            check_unanswered(c, &chain, json_object_get(call, "error"), json_object_get(call, "record"),
                             request_sha256);
    }
    check_close(c, &chain, json_object_get(entry, "close"));
}

/* ---- the file ---- */

static const struct {
    const char *name;
    void (*check)(check_t *c, const json_t *entry);
} SECTIONS[] = {
    {"requests", check_request},
    {"results", check_result},
    {"records", check_record},
    {"fingerprints", check_fingerprint},
    {"exchanges", check_exchange},
    {"session_chains", check_chain},
    {"software_rule_ids", check_rule_id},
    {"owner_values", check_owner_value},
    {"not_dispatched_details", check_not_dispatched},
    {"session_ended_details", check_session_ended},
    {"binary_messages", check_binary},
    {"encodings", check_encoding},
};
enum { SECTION_COUNT = sizeof(SECTIONS) / sizeof(SECTIONS[0]) };

static void check_section(check_t *c, const char *name, const json_t *entries)
{
    size_t s = 0, i;
    json_t *entry;
    c->section = name;
    while (s < SECTION_COUNT && strcmp(SECTIONS[s].name, name) != 0)
        s++;
    if (s == SECTION_COUNT || !json_is_array(entries)) {
        report(c, false, "(section)", "not a list of vectors this program knows");
        return;
    }
    json_array_foreach(entries, i, entry) SECTIONS[s].check(c, entry);
}

static const char *check_root(check_t *c, json_t *root)
{
    static const char *const PARTS[] = {"published", "derived"};
    size_t parts = 0;
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
        json_t *part = json_object_get(root, PARTS[i]), *entries;
        const char *name;
        parts += part != NULL;
        json_object_foreach(part, name, entries) check_section(c, name, entries);
    }
    return parts != 0 ? NULL : "neither published nor derived vectors in it";
}

const char *vectors_check(const char *json, size_t len, FILE *failures, vectors_result_t *result)
{
    check_t c = {.failures = failures, .result = result};
    *result = (vectors_result_t){0};
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    if (root == NULL)
        return "not JSON";
    const char *err = check_root(&c, root);
    json_decref(root);
    return err;
}

const char *vectors_check_file(const char *path, FILE *failures, vectors_result_t *result)
{
    const char *err = "the file could not be read";
    *result = (vectors_result_t){0};
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return err;
    char *text = mem_alloc(VECTORS_FILE_MAX + 1);
    size_t len = fread(text, 1, VECTORS_FILE_MAX + 1, f);
    if (len > VECTORS_FILE_MAX)
        err = "the file is larger than a file of vectors may be";
    else if (!ferror(f))
        err = vectors_check(text, len, failures, result);
    free(text);
    fclose(f);
    return err;
}
