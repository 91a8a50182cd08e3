/*
 * JSON from somebody else's server into a jansson tree: strict, and bounded before it is parsed. The parser recurses,
 * on a coroutine's stack where one reads (some 300 bytes a level), and a tree takes about 130 bytes a value whatever
 * the text took: so both are counted first.
 */
#ifndef CORE_JSON_LOAD_H
#define CORE_JSON_LOAD_H

#include <stddef.h>

#include <jansson.h>

typedef enum {
    JSON_LOAD_DONE,
    JSON_LOAD_EMPTY,    /* no bytes */
    JSON_LOAD_TOO_DEEP, /* past `depth_max` */
    JSON_LOAD_TOO_MANY, /* past `values_max` */
    JSON_LOAD_MALFORMED /* no JSON, a key twice, a NUL, or bytes after the value */
} json_load_t;

/* The tree, or NULL with the reason in `*result`. `values_max` counts values and members. */
json_t *json_load_bounded(const void *bytes, size_t len, size_t depth_max, size_t values_max, json_load_t *result);

#endif
