/* UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing past U+10FFFF. */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool utf8_is_valid(const void *data, size_t len);
/* Bytes of the valid sequence at `p`, of which `left` (at least 1) are there; or 0, and *skip the bytes one U+FFFD
 * stands for: the longest start of a valid sequence, else one byte (Unicode chapter 3.9, substitution of maximal
 * subparts). */
size_t utf8_sequence(const char *p, size_t left, size_t *skip);
/* A malloc'ed copy that is valid, with U+FFFD for what was not (at most 3 bytes for each); NULL when `text` is valid as
 * it is. */
char *utf8_repair(const char *text);

#endif
