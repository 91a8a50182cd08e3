/* What the files behind records/vectors.h share. */
#ifndef RECORDS_VECTORS_INTERNAL_H
#define RECORDS_VECTORS_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "records/digest.h"
#include "records/vectors.h"

typedef struct {
    FILE *failures;
    vectors_result_t *result;
    const char *section;
} vectors_check_t;

/* One comparison, told when it fails: of a condition, of two texts (`wanted` NULL is a failure). */
void vectors_report(vectors_check_t *c, bool ok, const char *name, const char *what);
void vectors_compare(vectors_check_t *c, const char *name, const char *what, const char *got, const char *wanted);
/* Whether the message packs to the hex; whether the record's digest is the one wanted. */
void vectors_compare_packed(vectors_check_t *c, const char *name, const ProtobufCMessage *message, const char *hex);
void vectors_compare_record(vectors_check_t *c, const char *name, const Plimsoll__V1__RunRecord *record,
                            const char *wanted);

/* "" for a member that is missing or no string, which then compares as a failure. */
const char *vectors_text(const json_t *entry, const char *key);
const char *vectors_name(const json_t *entry);
/* The message, read as a request's body would be; free with vectors_message_free. NULL: told. */
void *vectors_message(vectors_check_t *c, const char *name, const ProtobufCMessageDescriptor *descriptor,
                      const json_t *json);
void vectors_message_free(void *message);
/* `out` has room for 2 * len + 1. */
void vectors_hex_write(const uint8_t *data, size_t len, char *out);
/* malloc'ed bytes, or NULL when it is no hex. */
uint8_t *vectors_hex_read(const char *hex, size_t *len);
/* The packed bytes as hex, malloc'ed. */
char *vectors_packed_hex(const ProtobufCMessage *message);

/* One entry of each section. */
void vectors_check_request(vectors_check_t *c, const json_t *entry);
void vectors_check_result(vectors_check_t *c, const json_t *entry);
void vectors_check_record(vectors_check_t *c, const json_t *entry);
void vectors_check_fingerprint(vectors_check_t *c, const json_t *entry);
void vectors_check_exchange(vectors_check_t *c, const json_t *entry);
void vectors_check_rule_id(vectors_check_t *c, const json_t *entry);
void vectors_check_owner_value(vectors_check_t *c, const json_t *entry);
void vectors_check_not_dispatched(vectors_check_t *c, const json_t *entry);
void vectors_check_session_ended(vectors_check_t *c, const json_t *entry);
void vectors_check_binary(vectors_check_t *c, const json_t *entry);
void vectors_check_encoding(vectors_check_t *c, const json_t *entry);
void vectors_check_chain(vectors_check_t *c, const json_t *entry);

#endif
