#include "core/sha256.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/mem.h"

struct sha256 {
    EVP_MD_CTX *ctx;
};

/* Fetching the algorithm once spares every digest a search through OpenSSL's providers. */
static const EVP_MD *sha256_algorithm(void)
{
    static EVP_MD *fetched;
    EVP_MD *md = __atomic_load_n(&fetched, __ATOMIC_ACQUIRE);
    if (md != NULL)
        return md;
    md = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (md == NULL)
        mem_fatal("OpenSSL has no SHA-256");
    EVP_MD *expected = NULL;
    if (!__atomic_compare_exchange_n(&fetched, &expected, md, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        EVP_MD_free(md);
        md = expected;
    }
    return md;
}

/* A finished digest is kept for the thread's next one: setting one up from nothing costs as much as digesting a token.
 */
static _Thread_local sha256_t *spare;
static pthread_key_t spare_key;

static void dispose(sha256_t *s)
{
    EVP_MD_CTX_free(s->ctx);
    free(s);
}

static void on_thread_end(void *holder)
{
    sha256_t **kept = holder;
    if (*kept != NULL)
        dispose(*kept);
    *kept = NULL;
}

static void make_spare_key(void)
{
    if (pthread_key_create(&spare_key, on_thread_end) != 0)
        mem_fatal("no key for a thread's digest");
}

static sha256_t *create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sha256_t *s = mem_alloc(sizeof(*s));
    pthread_once(&once, make_spare_key);
    if ((s->ctx = EVP_MD_CTX_new()) == NULL || pthread_setspecific(spare_key, &spare) != 0)
        mem_fatal("SHA-256 could not start");
    return s;
}

sha256_t *sha256_begin(void)
{
    sha256_t *s = spare != NULL ? spare : create();
    spare = NULL;
    if (EVP_DigestInit_ex2(s->ctx, sha256_algorithm(), NULL) != 1)
        mem_fatal("SHA-256 could not start");
    return s;
}

void sha256_add(sha256_t *s, const void *data, size_t len)
{
    if (EVP_DigestUpdate(s->ctx, data, len) != 1)
        mem_fatal("SHA-256 failed");
}

void sha256_end(sha256_t *s, uint8_t out[SHA256_BYTES])
{
    unsigned len = 0;
    if (EVP_DigestFinal_ex(s->ctx, out, &len) != 1 || len != SHA256_BYTES)
        mem_fatal("SHA-256 failed");
    if (spare == NULL)
        spare = s;
    else
        dispose(s);
}

static void hex_of(const uint8_t digest[SHA256_BYTES], char out[SHA256_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[SHA256_HEX] = '\0';
}

void sha256_end_hex(sha256_t *s, char out[SHA256_HEX + 1])
{
    uint8_t digest[SHA256_BYTES];
    sha256_end(s, digest);
    hex_of(digest, out);
}

void sha256_hex(const void *data, size_t len, char out[SHA256_HEX + 1])
{
    sha256_t *s = sha256_begin();
    sha256_add(s, data, len);
    sha256_end_hex(s, out);
}
