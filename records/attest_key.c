#include "records/attest_key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/protojson.h"

/* What OpenSSL's PEM reader and decoders use on the way stays in freed memory, unwiped; so the text is taken apart
 * here, in locked memory, and only the structure inside is OpenSSL's to read: that copy it wipes. */

/* RFC 8410 section 7: SEQUENCE { 0, SEQUENCE { OID 1.3.101.112 }, OCTET STRING { OCTET STRING of 32 bytes } } */
static const uint8_t PKCS8_HEADER[] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                       0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
enum {
    SEED_HEADER = 2, /* of the inner OCTET STRING */
    PEM_LINE = 64,   /* base64 digits of a line: a whole key of ours */
};

/* The expanded secret stands in pages of its own, the rest beside it. */
struct attest_key {
    uint8_t *_secret; /* crypto_sign_SECRETKEYBYTES, sodium_malloc'ed, not accessible but while it signs */
    attest_public_t public;
};

static void ensure_libraries(void)
{
    if (sodium_init() < 0)
        mem_fatal("libsodium cannot start");
}

static void *locked(size_t size)
{
    void *p = sodium_malloc(size);
    if (p == NULL)
        mem_fatal("no locked memory for a key");
    return p;
}

static void spki_of(const uint8_t bytes[ATTEST_PUBLIC_BYTES], uint8_t out[ATTEST_SPKI_BYTES])
{
    /* RFC 8410 section 4: SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes } */
    static const uint8_t HEADER[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
    _Static_assert(sizeof(HEADER) + ATTEST_PUBLIC_BYTES == ATTEST_SPKI_BYTES, "header and key");
    memcpy(out, HEADER, sizeof(HEADER));
    memcpy(out + sizeof(HEADER), bytes, ATTEST_PUBLIC_BYTES);
}

static void public_set(attest_public_t *public, const uint8_t bytes[ATTEST_PUBLIC_BYTES])
{
    uint8_t spki[ATTEST_SPKI_BYTES];
    memcpy(public->bytes, bytes, ATTEST_PUBLIC_BYTES);
    spki_of(bytes, spki);
    sha256_hex(spki, sizeof(spki), public->id);
}

/* Makes the key of a seed, which the caller wipes. */
static attest_key_t *key_of_seed(const uint8_t seed[crypto_sign_SEEDBYTES])
{
    attest_key_t *key = mem_alloc(sizeof(*key));
    uint8_t public[ATTEST_PUBLIC_BYTES];
    key->_secret = locked(crypto_sign_SECRETKEYBYTES);
    crypto_sign_seed_keypair(public, key->_secret, seed);
    public_set(&key->public, public);
    sodium_mprotect_noaccess(key->_secret);
    return key;
}

attest_key_t *attest_key_generate(void)
{
    ensure_libraries();
    uint8_t *seed = locked(crypto_sign_SEEDBYTES);
    randombytes_buf(seed, crypto_sign_SEEDBYTES);
    attest_key_t *key = key_of_seed(seed);
    sodium_free(seed);
    return key;
}

void attest_key_destroy(attest_key_t *key)
{
    if (key == NULL)
        return;
    sodium_free(key->_secret); /* wipes it */
    free(key);
}

const attest_public_t *attest_key_public(const attest_key_t *key)
{
    return &key->public;
}

void attest_key_sign(const attest_key_t *key, const void *data, size_t len, uint8_t out[ATTEST_SIGNATURE_BYTES])
{
    _Static_assert(crypto_sign_BYTES == ATTEST_SIGNATURE_BYTES, "Ed25519");
    sodium_mprotect_readonly(key->_secret);
    crypto_sign_detached(out, NULL, data, len, key->_secret);
    sodium_mprotect_noaccess(key->_secret);
}

bool attest_public_verify(const attest_public_t *key, const void *data, size_t len, const uint8_t *sig, size_t sig_len)
{
    return sig_len == ATTEST_SIGNATURE_BYTES && crypto_sign_verify_detached(sig, data, len, key->bytes) == 0;
}

/* ---- PEM ---- */

/* The place of `word` in the text; NULL when it is not there. `word` begins a line. */
static const char *find_line(const char *at, const char *end, const char *word)
{
    size_t len = strlen(word);
    for (bool is_line = true; (size_t)(end - at) >= len && at < end; is_line = *at++ == '\n')
        if (is_line && memcmp(at, word, len) == 0)
            return at;
    return NULL;
}

static bool is_rest_of_line_blank(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at == end || *at == '\n';
}

/* The DER of the only PEM block (RFC 7468), of exactly this type, in locked memory: sodium_free it. NULL with a literal
 * in *err. */
static uint8_t *pem_block(const char *pem, size_t len, const char *type, const char *wrong_type, size_t *der_len,
                          const char **err)
{
    static const char BEGIN[] = "-----BEGIN ", END[] = "-----END ", DASHES[] = "-----";
    char begin_line[64], end_line[64];
    const char *end = pem + len, *body_end;
    snprintf(begin_line, sizeof(begin_line), "%s%s%s", BEGIN, type, DASHES);
    snprintf(end_line, sizeof(end_line), "%s%s%s", END, type, DASHES);
    *err = "it is larger than 16 KiB";
    if (len > ATTEST_PEM_MAX)
        return NULL;
    *err = "it holds no PEM block";
    const char *at = find_line(pem, end, BEGIN);
    if (at == NULL)
        return NULL;
    *err = wrong_type;
    if ((size_t)(end - at) < strlen(begin_line) || memcmp(at, begin_line, strlen(begin_line)) != 0)
        return NULL;
    at += strlen(begin_line);
    *err = "its PEM block is not whole";
    if (!is_rest_of_line_blank(at, end) || (body_end = find_line(at, end, end_line)) == NULL ||
        !is_rest_of_line_blank(body_end + strlen(end_line), end))
        return NULL;
    *err = "it holds more than one PEM block";
    if (find_line(body_end, end, BEGIN) != NULL)
        return NULL;
    *err = "its PEM block has headers; an encrypted key is not read";
    if (memchr(at, ':', (size_t)(body_end - at)) != NULL)
        return NULL;
    *err = "its PEM block is not base64";
    uint8_t *der = locked(ATTEST_PEM_MAX);
    if (sodium_base642bin(der, ATTEST_PEM_MAX, at, (size_t)(body_end - at), " \t\r\n", der_len, NULL,
                          sodium_base64_VARIANT_ORIGINAL) == 0) {
        *err = NULL;
        return der;
    }
    sodium_free(der);
    return NULL;
}

/* The seed in an Ed25519 key's structure, which keeps it; NULL when it is another key's. */
static const uint8_t *seed_of(const PKCS8_PRIV_KEY_INFO *info)
{
    const ASN1_OBJECT *algorithm = NULL;
    const X509_ALGOR *identifier = NULL;
    const uint8_t *inner = NULL;
    int inner_len = 0, parameters = V_ASN1_UNDEF;
    if (PKCS8_pkey_get0(&algorithm, &inner, &inner_len, &identifier, info) != 1)
        return NULL;
    X509_ALGOR_get0(NULL, &parameters, NULL, identifier);
    bool is_ours = OBJ_obj2nid(algorithm) == NID_ED25519 && parameters == V_ASN1_UNDEF &&
                   inner_len == SEED_HEADER + crypto_sign_SEEDBYTES && inner[0] == 0x04 &&
                   inner[1] == crypto_sign_SEEDBYTES;
    return is_ours ? inner + SEED_HEADER : NULL;
}

attest_key_t *attest_key_parse(const char *pem, size_t len, const char **err)
{
    attest_key_t *key = NULL;
    size_t der_len = 0;
    ensure_libraries();
    uint8_t *der = pem_block(pem, len, "PRIVATE KEY", "its PEM block is not a PRIVATE KEY", &der_len, err);
    if (der == NULL)
        return NULL;
    const uint8_t *at = der;
    PKCS8_PRIV_KEY_INFO *info = d2i_PKCS8_PRIV_KEY_INFO(NULL, &at, (long)der_len);
    *err = "its PEM block is not PKCS #8";
    if (info != NULL && at == der + der_len) {
        const uint8_t *seed = seed_of(info);
        *err = seed != NULL ? NULL : "its key is not an Ed25519 key";
        if (seed != NULL)
            key = key_of_seed(seed);
    }
    PKCS8_PRIV_KEY_INFO_free(info); /* wipes the key in it */
    sodium_free(der);
    ERR_clear_error();
    return key;
}

const char *attest_public_parse(attest_public_t *out, const char *pem, size_t len)
{
    const char *err;
    size_t der_len = 0;
    uint8_t bytes[ATTEST_PUBLIC_BYTES], spki[ATTEST_SPKI_BYTES];
    ensure_libraries();
    uint8_t *der = pem_block(pem, len, "PUBLIC KEY", "its PEM block is not a PUBLIC KEY", &der_len, &err);
    if (der == NULL)
        return err;
    /* The form is fixed (RFC 8410 has no parameters and no choice of length), so whatever differs is another key. */
    bool is_ours = der_len == ATTEST_SPKI_BYTES;
    if (is_ours) {
        memcpy(bytes, der + ATTEST_SPKI_BYTES - ATTEST_PUBLIC_BYTES, sizeof(bytes));
        spki_of(bytes, spki);
        is_ours = memcmp(der, spki, sizeof(spki)) == 0;
    }
    sodium_free(der);
    if (!is_ours)
        return "its key is not an Ed25519 key";
    public_set(out, bytes);
    return NULL;
}

char *attest_key_pem(const attest_key_t *key)
{
    static const char BEGIN[] = "-----BEGIN PRIVATE KEY-----\n", END[] = "\n-----END PRIVATE KEY-----\n";
    enum { DER = sizeof(PKCS8_HEADER) + crypto_sign_SEEDBYTES };
    _Static_assert(DER * 4 / 3 == PEM_LINE, "one whole line without padding");
    uint8_t *der = locked(DER);
    char *out = locked(sizeof(BEGIN) - 1 + PEM_LINE + sizeof(END));
    memcpy(der, PKCS8_HEADER, sizeof(PKCS8_HEADER));
    sodium_mprotect_readonly(key->_secret);
    /* libsodium's secret begins with the seed. */
    memcpy(der + sizeof(PKCS8_HEADER), key->_secret, crypto_sign_SEEDBYTES);
    sodium_mprotect_noaccess(key->_secret);
    memcpy(out, BEGIN, sizeof(BEGIN) - 1);
    sodium_bin2base64(out + sizeof(BEGIN) - 1, PEM_LINE + 1, der, DER, sodium_base64_VARIANT_ORIGINAL);
    memcpy(out + sizeof(BEGIN) - 1 + PEM_LINE, END, sizeof(END));
    sodium_free(der);
    return out;
}

void attest_public_pem(const attest_public_t *key, char out[ATTEST_PUBLIC_PEM_MAX])
{
    uint8_t spki[ATTEST_SPKI_BYTES];
    buffer_t base64;
    buffer_init(&base64, ATTEST_PUBLIC_PEM_MAX);
    spki_of(key->bytes, spki);
    base64_encode(&base64, spki, sizeof(spki), true);
    snprintf(out, ATTEST_PUBLIC_PEM_MAX, "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n",
             (const char *)base64.base);
    buffer_dispose(&base64);
}

/* ---- files ---- */

/* The file's bytes in locked memory (sodium_free), one more than may be there so that a longer file shows. NULL with
 * errno set. */
static char *read_locked(const char *path, size_t *len, bool *is_open_to_others)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ensure_libraries();
    char *text = locked(ATTEST_PEM_MAX + 1);
    *is_open_to_others = fstat(fd, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0;
    *len = 0;
    while (*len < ATTEST_PEM_MAX + 1) {
        ssize_t n = read(fd, text + *len, ATTEST_PEM_MAX + 1 - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int why = errno;
            sodium_free(text);
            close(fd);
            errno = why;
            return NULL;
        }
        if (n == 0)
            break;
        *len += (size_t)n;
    }
    close(fd);
    return text;
}

attest_key_t *attest_key_load(const char *path, bool *is_open_to_others, char error[ATTEST_KEY_FILE_ERROR_MAX])
{
    size_t len = 0;
    bool is_open = false;
    const char *err = NULL;
    attest_key_t *key = NULL;
    char *text = read_locked(path, &len, &is_open);
    if (text != NULL)
        key = attest_key_parse(text, len, &err);
    else
        err = strerror(errno);
    if (key == NULL)
        snprintf(error, ATTEST_KEY_FILE_ERROR_MAX, "the private key cannot be read: %s", err);
    if (text != NULL)
        sodium_free(text);
    if (is_open_to_others != NULL)
        *is_open_to_others = is_open;
    return key;
}

const char *attest_public_load(attest_public_t *out, const char *path, char error[ATTEST_KEY_FILE_ERROR_MAX])
{
    size_t len = 0;
    bool is_open = false;
    char *text = read_locked(path, &len, &is_open);
    const char *err = text != NULL ? attest_public_parse(out, text, len) : strerror(errno);
    if (text != NULL)
        sodium_free(text);
    if (err == NULL)
        return NULL;
    snprintf(error, ATTEST_KEY_FILE_ERROR_MAX, "the public key cannot be read: %s", err);
    return error;
}
