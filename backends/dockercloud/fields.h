/*
 * Members of an answer's JSON, by the rules both APIs have (spec 2.1, 3.1 and 9.9): 64-bit integers as numbers or
 * decimal strings, enumerations by name or number, and defaults left out, so "absent" is never the same as zero. A null
 * is absent. `object` may be anything, NULL included.
 */
#ifndef BACKENDS_DOCKERCLOUD_FIELDS_H
#define BACKENDS_DOCKERCLOUD_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

typedef enum { FIELD_ABSENT, FIELD_PRESENT, FIELD_MALFORMED } field_t;

/* `out` is left alone unless FIELD_PRESENT. */
field_t field_u64(const json_t *object, const char *key, uint64_t *out);
field_t field_bool(const json_t *object, const char *key, bool *out);
/* Up to `size` - 1 bytes of printable ASCII; longer, or with a control character or a byte past
 * ASCII, is malformed. An empty string is absent. */
field_t field_text(const json_t *object, const char *key, char *out, size_t size);
/* "1.5s" or "300s", at most nine digits of a fraction, as milliseconds rounded up. */
field_t field_duration(const json_t *object, const char *key, uint64_t *out_ms);
/* "2026-11-30T12:00:00Z", as milliseconds since 1970. */
field_t field_time(const json_t *object, const char *key, int64_t *out_ms);
bool field_duration_parse(const char *text, uint64_t *out_ms);

typedef struct {
    const char *name;
    int number; /* on the wire; -1 = not known */
    int value;  /* ours */
} field_enum_t;
enum { FIELD_ENUM_UNKNOWN = -1 };
/* FIELD_ENUM_UNKNOWN for one that is not in the table. */
field_t field_enum(const json_t *object, const char *key, const field_enum_t *table, size_t count, int *out);

/* A member that is an object (or array), else NULL; absent is told from malformed by `is_malformed`, which is only ever
 * set. */
const json_t *field_object(const json_t *object, const char *key, bool *is_malformed);
const json_t *field_array(const json_t *object, const char *key, bool *is_malformed);

#endif
