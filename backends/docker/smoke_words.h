/* Private to the smoke test: the words of a report, and sentences about them. */
#ifndef BACKENDS_DOCKER_SMOKE_WORDS_H
#define BACKENDS_DOCKER_SMOKE_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "backends/backend.h"

/* A text field; "" for anything else. */
const char *smoke_word(const json_t *object, const char *name);
/* The name of an errno: the call was made, and failed. */
bool smoke_is_errno(const char *word);
/* What a filter of ours answers. */
bool smoke_is_denied(const char *word);
/* Only what is printable ASCII, cut to fit. */
void smoke_printable(const char *text, char *out, size_t size);
/* Both false, for a return. */
bool smoke_fail(char why[BACKEND_TEXT_MAX], const char *what);
bool smoke_fail_word(char why[BACKEND_TEXT_MAX], const char *what, const char *word);

#endif
