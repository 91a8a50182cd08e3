/* Bearer tokens (spec section 1.3): what one may look like, how one is made, and the hash the callers file keeps of it.
 */
#ifndef CONFIG_TOKEN_H
#define CONFIG_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/callers.h"

enum { TOKEN_GENERATED = 64 }; /* characters: 32 random bytes in hex */

/* NULL, or why the text is no token: it must be TOKEN_MIN to TOKEN_MAX characters of visible ASCII (0x21 to 0x7e). */
const char *token_check(const char *text, size_t len);
/* The length without one trailing LF or CRLF, as a token read from a file or pipe has. */
size_t token_strip_newline(const char *text, size_t len);
/* SHA-256 over the exact text as sent. */
void token_sha256(const char *text, size_t len, uint8_t out[32]);
/* 64 lowercase hex digits and a NUL. random_init must have been called. Wipe it after use. */
void token_generate(char out[TOKEN_GENERATED + 1]);

#endif
