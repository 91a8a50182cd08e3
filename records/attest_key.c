#include "records/attest_key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/protojson.h"

enum {
    SECURE_HEAP = 64 * 1024, /* OpenSSL's own copies while it reads a key: one of at most ATTEST_PEM_MAX at a time */
    SECURE_HEAP_MIN = 32,    /* bytes of its smallest piece */
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
    /* What OpenSSL holds of a private key is locked and wiped too. Without the heap it is still wiped. */
    if (!CRYPTO_secure_malloc_initialized())
        (void)CRYPTO_secure_malloc_init(SECURE_HEAP, SECURE_HEAP_MIN);
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
    key->_secret = sodium_malloc(crypto_sign_SECRETKEYBYTES);
    if (key->_secret == NULL)
        mem_fatal("no locked memory for a key");
    crypto_sign_seed_keypair(public, key->_secret, seed);
    public_set(&key->public, public);
    sodium_mprotect_noaccess(key->_secret);
    return key;
}

attest_key_t *attest_key_generate(void)
{
    ensure_libraries();
    uint8_t *seed = sodium_malloc(crypto_sign_SEEDBYTES);
    if (seed == NULL)
        mem_fatal("no locked memory for a key");
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

/* The DER of the only PEM block, of exactly this type and without headers of its own (an encrypted key has some). Free
 * with OPENSSL_secure_clear_free. NULL with a literal in *err. */
static uint8_t *pem_block(const char *pem, size_t len, const char *type, const char *wrong_type, long *der_len,
                          const char **err)
{
    char *name = NULL, *header = NULL, *more_name = NULL, *more_header = NULL;
    uint8_t *der = NULL, *more = NULL;
    long more_len = 0;
    *err = "it is larger than 16 KiB";
    if (len > ATTEST_PEM_MAX)
        return NULL;
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    if (bio == NULL)
        mem_fatal("OpenSSL is out of memory");
    *err = "it holds no PEM block";
    if (PEM_read_bio_ex(bio, &name, &header, &der, der_len, PEM_FLAG_SECURE) != 1)
        goto done;
    bool has_more = PEM_read_bio_ex(bio, &more_name, &more_header, &more, &more_len, PEM_FLAG_SECURE) == 1;
    *err = strcmp(name, type) != 0 ? wrong_type
           : header[0] != '\0'     ? "its PEM block has headers; an encrypted key is not read"
           : has_more              ? "it holds more than one PEM block"
                                   : NULL;
    if (*err != NULL) {
        OPENSSL_secure_clear_free(der, (size_t)*der_len);
        der = NULL;
    }
done:
    OPENSSL_secure_clear_free(more, (size_t)more_len);
    OPENSSL_secure_free(name);
    OPENSSL_secure_free(header);
    OPENSSL_secure_free(more_name);
    OPENSSL_secure_free(more_header);
    BIO_free(bio);
    ERR_clear_error();
    return der;
}

attest_key_t *attest_key_parse(const char *pem, size_t len, const char **err)
{
    attest_key_t *key = NULL;
    EVP_PKEY *pkey = NULL;
    PKCS8_PRIV_KEY_INFO *info = NULL;
    long der_len = 0;
    ensure_libraries();
    uint8_t *der = pem_block(pem, len, PEM_STRING_PKCS8INF, "its PEM block is not a PRIVATE KEY", &der_len, err);
    if (der == NULL)
        return NULL;
    const uint8_t *at = der;
    info = d2i_PKCS8_PRIV_KEY_INFO(NULL, &at, der_len);
    *err = "its PEM block is not PKCS #8";
    if (info == NULL || at != der + der_len)
        goto done;
    pkey = EVP_PKCS82PKEY(info);
    *err = "its key is not an Ed25519 key";
    if (pkey == NULL || EVP_PKEY_get_base_id(pkey) != EVP_PKEY_ED25519)
        goto done;
    uint8_t *seed = sodium_malloc(crypto_sign_SEEDBYTES);
    if (seed == NULL)
        mem_fatal("no locked memory for a key");
    size_t seed_len = crypto_sign_SEEDBYTES;
    if (EVP_PKEY_get_raw_private_key(pkey, seed, &seed_len) == 1 && seed_len == crypto_sign_SEEDBYTES) {
        key = key_of_seed(seed);
        *err = NULL;
    }
    sodium_free(seed);
done:
    EVP_PKEY_free(pkey);
    PKCS8_PRIV_KEY_INFO_free(info);
    OPENSSL_secure_clear_free(der, (size_t)der_len);
    ERR_clear_error();
    return key;
}

const char *attest_public_parse(attest_public_t *out, const char *pem, size_t len)
{
    const char *err;
    long der_len = 0;
    uint8_t bytes[ATTEST_PUBLIC_BYTES], spki[ATTEST_SPKI_BYTES];
    ensure_libraries();
    uint8_t *der = pem_block(pem, len, PEM_STRING_PUBLIC, "its PEM block is not a PUBLIC KEY", &der_len, &err);
    if (der == NULL)
        return err;
    /* The form is fixed (RFC 8410 has no parameters and no choice of length), so whatever differs is another key. */
    bool is_ours = der_len == ATTEST_SPKI_BYTES;
    if (is_ours) {
        memcpy(bytes, der + ATTEST_SPKI_BYTES - ATTEST_PUBLIC_BYTES, sizeof(bytes));
        spki_of(bytes, spki);
        is_ours = memcmp(der, spki, sizeof(spki)) == 0;
    }
    OPENSSL_secure_clear_free(der, (size_t)der_len);
    if (!is_ours)
        return "its key is not an Ed25519 key";
    public_set(out, bytes);
    return NULL;
}

char *attest_key_pem(const attest_key_t *key)
{
    EVP_PKEY *pkey = NULL;
    BIO *bio = BIO_new(BIO_s_secmem());
    char *text = NULL, *out = NULL;
    sodium_mprotect_readonly(key->_secret);
    /* libsodium's secret begins with the seed, which is what PKCS #8 stores. */
    pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, key->_secret, crypto_sign_SEEDBYTES);
    sodium_mprotect_noaccess(key->_secret);
    if (bio == NULL || pkey == NULL || PEM_write_bio_PKCS8PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL) != 1)
        mem_fatal("OpenSSL cannot write a key");
    long len = BIO_get_mem_data(bio, &text);
    out = sodium_malloc((size_t)len + 1);
    if (len <= 0 || out == NULL)
        mem_fatal("no locked memory for a key");
    memcpy(out, text, (size_t)len);
    out[len] = '\0';
    EVP_PKEY_free(pkey);
    BIO_free(bio); /* a secure BIO wipes what it held */
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
    char *text = sodium_malloc(ATTEST_PEM_MAX + 1);
    if (text == NULL)
        mem_fatal("no locked memory for a key");
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
