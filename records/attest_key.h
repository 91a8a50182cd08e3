/*
 * The harness's Ed25519 keys (attest section 2): PEM "PRIVATE KEY" around PKCS #8 and "PUBLIC KEY" around
 * SubjectPublicKeyInfo, as RFC 8410 has them. A private key lives in locked memory that nothing may touch while it does
 * not sign, and is wiped when freed; no function prints it.
 */
#ifndef RECORDS_ATTEST_KEY_H
#define RECORDS_ATTEST_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sha256.h"

enum {
    ATTEST_PUBLIC_BYTES = 32,
    ATTEST_SIGNATURE_BYTES = 64,
    ATTEST_SPKI_BYTES = 44,         /* 12 of header, the key */
    ATTEST_PEM_MAX = 16 * 1024,     /* bytes of a key file; one of ours takes 119 */
    ATTEST_KEY_ID_HEX = SHA256_HEX, /* of the SubjectPublicKeyInfo */
    ATTEST_KEY_FILE_ERROR_MAX = 256,
};

typedef struct attest_key attest_key_t; /* private */

typedef struct {
    uint8_t bytes[ATTEST_PUBLIC_BYTES];
    char id[ATTEST_KEY_ID_HEX + 1];
} attest_public_t;

attest_key_t *attest_key_generate(void);
/* One PEM block and no second one. NULL with a literal in *err. */
attest_key_t *attest_key_parse(const char *pem, size_t len, const char **err);
/* The same of a file; its bytes are read into locked memory. NULL with a line in `error`, which holds nothing of the
 * content. *is_open_to_others (may be NULL) says that the file's mode lets others read it. */
attest_key_t *attest_key_load(const char *path, bool *is_open_to_others, char error[ATTEST_KEY_FILE_ERROR_MAX]);
void attest_key_destroy(attest_key_t *key); /* NULL is fine */

const attest_public_t *attest_key_public(const attest_key_t *key);
void attest_key_sign(const attest_key_t *key, const void *data, size_t len, uint8_t out[ATTEST_SIGNATURE_BYTES]);
/* The PEM text with its final NUL, in locked memory: sodium_free it. */
char *attest_key_pem(const attest_key_t *key);

/* NULL, or a literal that says why not. */
const char *attest_public_parse(attest_public_t *out, const char *pem, size_t len);
const char *attest_public_load(attest_public_t *out, const char *path, char error[ATTEST_KEY_FILE_ERROR_MAX]);
enum { ATTEST_PUBLIC_PEM_MAX = 160 };
void attest_public_pem(const attest_public_t *key, char out[ATTEST_PUBLIC_PEM_MAX]);
bool attest_public_verify(const attest_public_t *key, const void *data, size_t len, const uint8_t *sig, size_t sig_len);

#endif
