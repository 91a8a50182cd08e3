/* JSON from an Engine: strict, and bounded before it is parsed. */
#ifndef BACKENDS_DOCKER_ENGINE_JSON_H
#define BACKENDS_DOCKER_ENGINE_JSON_H

#include <stddef.h>

#include <jansson.h>

enum {
    /* The parser recurses on the coroutine's stack (128 KiB), some 300 bytes a level; real answers have 8 levels. */
    ENGINE_JSON_DEPTH_MAX = 64,
    /* Values and members, of about 130 bytes each: 34 MiB. A listed container has 60: room for 4,000 of them. */
    ENGINE_JSON_VALUES_MAX = 256 * 1024,
};

/* NULL with static text in `*why`. No duplicate keys, no NUL, nothing after the value. */
json_t *engine_json_read(const void *bytes, size_t len, const char **why);
/* A member that is a string, else NULL. `object` may be anything, NULL included. */
const char *engine_json_text(const json_t *object, const char *key);

#endif
