#include "core/hex.h"
#include "records/vectors_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"

/* ---- telling ---- */

void vectors_report(vectors_check_t *c, bool ok, const char *name, const char *what)
{
    if (ok) {
        c->result->passed++;
        return;
    }
    c->result->failed++;
    fprintf(c->failures, "%s: %s: %s\n", c->section, name, what);
}

void vectors_compare(vectors_check_t *c, const char *name, const char *what, const char *got, const char *wanted)
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

const char *vectors_text(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));
    return text != NULL ? text : "";
}

const char *vectors_name(const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    return name != NULL ? name : "(no name)";
}

/* ---- messages ---- */

void *vectors_message(vectors_check_t *c, const char *name, const ProtobufCMessageDescriptor *descriptor,
                      const json_t *json)
{
    char error[PROTOJSON_ERROR_MAX];
    /* 17 digits are every double exactly; jansson keeps the sign of -0.0. */
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text == NULL) {
        vectors_report(c, false, name, "there is no message");
        return NULL;
    }
    ProtobufCMessage *message = protojson_parse(descriptor, text, strlen(text), error);
    free(text);
    if (message == NULL)
        vectors_report(c, false, name, error);
    return message;
}

void vectors_message_free(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

void vectors_hex_write(const uint8_t *data, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", data[i]);
    out[2 * len] = '\0';
}

uint8_t *vectors_hex_read(const char *hex, size_t *len)
{
    size_t n = strlen(hex);
    if (n % 2 != 0)
        return NULL;
    uint8_t *out = mem_alloc(n / 2 + 1);
    for (size_t i = 0; i < n; i += 2) {
        int high = hex_digit_lower(hex[i]), low = hex_digit_lower(hex[i + 1]);
        if (high < 0 || low < 0) {
            free(out);
            return NULL;
        }
        out[i / 2] = (uint8_t)(high << 4 | low);
    }
    *len = n / 2;
    return out;
}

char *vectors_packed_hex(const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(len + 1);
    protobuf_c_message_pack(message, bytes);
    char *hex = mem_alloc(2 * len + 1);
    vectors_hex_write(bytes, len, hex);
    free(bytes);
    return hex;
}

void vectors_compare_packed(vectors_check_t *c, const char *name, const ProtobufCMessage *message, const char *hex)
{
    char *got = vectors_packed_hex(message);
    vectors_compare(c, name, "the binary form", got, hex);
    free(got);
}

void vectors_compare_record(vectors_check_t *c, const char *name, const Plimsoll__V1__RunRecord *record,
                            const char *wanted)
{
    char digest[SHA256_HEX + 1];
    const char *err = digest_record(record, digest);
    if (err != NULL)
        vectors_report(c, false, name, err);
    else
        vectors_compare(c, name, "the record digest", digest, wanted);
}
