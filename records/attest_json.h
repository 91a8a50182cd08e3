/*
 * Canonical JSON, the one spelling of a bundle's line (attest section 5): no white space, members in a fixed order,
 * strings escaped as the reference's encoder does. Reading takes nothing but that spelling, so a line that is read is
 * byte for byte what writing its content again would give.
 */
#ifndef RECORDS_ATTEST_JSON_H
#define RECORDS_ATTEST_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

/* Appends the quoted string of a valid UTF-8 text; false when the buffer's limit was hit. */
bool attest_json_string(buffer_t *out, const char *text);
/* Appends `"name":`, with a comma before it unless `is_first`. */
bool attest_json_member(buffer_t *out, const char *name, bool is_first);

typedef struct {
    const char *at, *end;
} attest_cursor_t;

/* Past these exact bytes; false (and nowhere) when something else stands there. */
bool attest_cursor_take(attest_cursor_t *cursor, const char *bytes);
/* A canonical string without U+0000, malloc'ed with a NUL; NULL when it is none. */
char *attest_cursor_string(attest_cursor_t *cursor);
/* A string that is exactly the padded standard base64 of at least one byte: the bytes, malloc'ed. NULL when it is none.
 */
uint8_t *attest_cursor_base64(attest_cursor_t *cursor, size_t *len);

#endif
