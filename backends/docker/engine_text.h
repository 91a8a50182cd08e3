/* Texts that go to and come from an Engine: what may stand in a path or a query, and what may stand in a log. */
#ifndef BACKENDS_DOCKER_ENGINE_TEXT_H
#define BACKENDS_DOCKER_ENGINE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/buffer.h"

enum {
    /* A reference: a name of at most 255 bytes, ':' and a tag of at most 128, '@' and a digest; rounded up. */
    ENGINE_REFERENCE_MAX = 512,
};

/* Printable ASCII into `out` (size at least 1), cut; every other byte becomes '?'. */
void engine_text_set(char *out, size_t size, const char *text);
/* The whole ID of a container: 64 lower case hex digits. `text` may be NULL. */
bool engine_is_id(const char *text);
/* A container's name or an ID (what the Engine itself allows in a name), at most ENGINE_NAME_MAX bytes. */
bool engine_is_name(const char *text);
/* Whether `text` can name an image without naming any other path of the API. The Engine checks the rest. */
bool engine_is_reference(const char *text);
/* Appends `text` with everything but RFC 3986's unreserved bytes escaped. False when it does not fit. */
bool engine_text_escape(buffer_t *out, const char *text);

#endif
