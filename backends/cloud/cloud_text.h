/*
 * Text that came from outside (a provider's answer, a guest's trailer) on its way to a log line or a caller: our own
 * credentials and what looks like one are taken out, control characters too, and it is cut.
 */
#ifndef BACKENDS_CLOUD_CLOUD_TEXT_H
#define BACKENDS_CLOUD_CLOUD_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CLOUD_TEXT_LOG_MAX = 512,        /* bytes of a provider's text in a log line */
    CLOUD_TEXT_CALLER_MAX = 200,     /* and in what a caller is told */
    CLOUD_TEXT_LOOKED_AT = 4 * 1024, /* bytes of it that are looked at at all */
    CLOUD_SECRETS_MAX = 8,
    CLOUD_SECRET_MIN = 6, /* a shorter one is no secret, and would take words out of every text */
};

/* Values that must never be repeated, whatever they look like. Pointers are borrowed: rows of OPTION_SECRET, or a
 * wall's own locked memory. NULL and short ones are skipped. */
typedef struct {
    const char *values[CLOUD_SECRETS_MAX];
    size_t count;
} cloud_secrets_t;

void cloud_secrets_add(cloud_secrets_t *secrets, const char *value);

/*
 * Writes at most `max` bytes and a NUL (out takes max + 1), always valid UTF-8. Out go: the given secrets, also in
 * base64; "Bearer ..." and "Basic ..."; JWTs (eyJ...); dckr_pat_..., dckr_oat_...; e2b_ and hex digits; crg_ and hex
 * digits; 32 and more hex digits in a row; each becomes "[...]". Control characters become one space, what is not UTF-8
 * U+FFFD. `secrets` may be NULL. Returns `out`.
 */
const char *cloud_text_scrub(const cloud_secrets_t *secrets, const void *text, size_t len, size_t max, char *out);

#endif
