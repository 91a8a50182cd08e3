/*
 * The tokens of a JSON text for core/protojson.c: strict RFC 8259, every string checked, nothing allocated that was not
 * charged to the reader's memory. Functions that can fail return false (or NULL) and have told why, with the path of
 * the field being read.
 */
#ifndef CORE_JSON_READ_H
#define CORE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "core/protojson.h"

typedef struct {
    const ProtobufCFieldDescriptor *field;
    size_t index; /* of the element, when the field is a list */
    bool in_list;
} json_step_t;

typedef struct {
    const char *start, *p, *end;
    size_t memory; /* bytes that may still be allocated */
    int depth;
    json_step_t path[PROTOJSON_DEPTH_MAX];
    int path_len;
    char *error;
} json_reader_t;

/* A string's content: the input itself when it has no escapes. */
typedef struct {
    const char *base;
    size_t len;
    char *owned; /* to free; NULL when in the input */
} json_slice_t;

/* Tells the failure: "path: why". Always false. */
bool json_fail(json_reader_t *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with the place in the text. */
bool json_fail_here(json_reader_t *r, const char *what);
/* Takes `size` bytes, and what the allocator keeps beside them, from the memory the message may use. */
bool json_charge(json_reader_t *r, size_t size);

void json_skip_space(json_reader_t *r);
/* The next byte after white space, or NUL at the end (no JSON token starts with NUL). */
char json_peek(json_reader_t *r);
/* Whether the next token is this byte, or starts with this word; then past it. */
bool json_take(json_reader_t *r, char c);
bool json_take_word(json_reader_t *r, const char *word);
bool json_expect(json_reader_t *r, char c, const char *what);

/* Into and out of an object or a list. */
bool json_enter(json_reader_t *r);
void json_leave(json_reader_t *r);

/* A string whose content is looked at, not kept. Free `owned`. */
bool json_read_slice(json_reader_t *r, json_slice_t *out);
/* A string that is kept: malloc'ed with its NUL, charged; without another NUL in it. */
char *json_read_text(json_reader_t *r);
/* The same with whatever NULs are in it; `len` does not count the one at the end. */
char *json_read_any_text(json_reader_t *r, size_t *len);
/* Past a value of any kind. */
bool json_skip_value(json_reader_t *r);

#endif
