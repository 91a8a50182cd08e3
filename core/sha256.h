/* SHA-256 through OpenSSL. */
#ifndef CORE_SHA256_H
#define CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 64 };

typedef struct sha256 sha256_t; /* an incremental computation */

sha256_t *sha256_begin(void);
void sha256_add(sha256_t *s, const void *data, size_t len);
/* Ends and frees the computation. */
void sha256_end(sha256_t *s, uint8_t out[SHA256_BYTES]);
/* Ends and frees; lowercase hex and a final NUL. */
void sha256_end_hex(sha256_t *s, char out[SHA256_HEX + 1]);
/* One call for all. */
void sha256_hex(const void *data, size_t len, char out[SHA256_HEX + 1]);

#endif
