/* Strict reading of a provider's JSON: size and depth before anything is allocated, duplicate keys refused, absent told
 * from zero. */
#ifndef BACKENDS_CLOUD_CLOUD_JSON_H
#define BACKENDS_CLOUD_CLOUD_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

enum {
    CLOUD_JSON_DEPTH_MAX = 32,
    CLOUD_JSON_VALUES_MAX = 64 * 1024, /* about 64 bytes each in memory: 4 MiB */
};

/* The object the text is, to json_decref; or NULL with a literal in *why. Strings with a NUL inside are refused. */
json_t *cloud_json_read(const void *bytes, size_t len, const char **why);
/* The same of an array. */
json_t *cloud_json_read_list(const void *bytes, size_t len, const char **why);

/* The string under `key`; NULL when there is none or it is something else. */
const char *cloud_json_text(const json_t *object, const char *key);
/* The same under "a.b.c": an object in an object. NULL when one of them is missing. */
const json_t *cloud_json_at(const json_t *object, const char *path);
/* Whether `value` (may be NULL) is a whole number from 0 on, given as a number or as a decimal string without sign,
 * fraction or leading zeros. */
bool cloud_json_u64(const json_t *value, uint64_t *out);
/* The same from INT64_MIN on. */
bool cloud_json_i64(const json_t *value, int64_t *out);
/* Whether `value` is a string of base64 (either alphabet, padded or not) of at most `max` bytes; appended to `out`,
 * whose limit must hold them. NULL and null are no bytes. */
bool cloud_json_bytes(const json_t *value, size_t max, buffer_t *out);

/* Appends `text` as a quoted JSON string. False when the buffer is full. For bodies that are written by hand. */
bool cloud_json_quote(buffer_t *out, const char *text);
/* Appends the JSON text of `value`, compact. False when the buffer is full. */
bool cloud_json_write(buffer_t *out, const json_t *value);

#endif
