#include "core/random.h"

#include <sodium.h>
#include <string.h>
#include <sys/mman.h>

#include "core/mem.h"

enum {
    POOL_BYTES = 1024, /* one system call serves 64 IDs of 16 bytes */
    POOLED_MAX = 32,   /* bytes of a request that is served from the pool; larger ones ask the kernel themselves */
};

/* Randomness asked for ahead, a thread's own. It lies in a page that a forked child finds zeroed, `left` with it: no
 * two processes ever draw the same bytes. */
typedef struct {
    size_t left; /* bytes at the front of `bytes` not handed out yet */
    uint8_t bytes[POOL_BYTES];
} pool_t;

static _Thread_local pool_t *pool;

void random_init(void)
{
    if (sodium_init() < 0)
        mem_fatal("libsodium could not start: no randomness");
}

static pool_t *pool_create(void)
{
    void *page = mmap(NULL, sizeof(pool_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, sizeof(pool_t), MADV_WIPEONFORK) != 0) {
        munmap(page, sizeof(pool_t));
        return NULL;
    }
    return page;
}

static void take_pooled(void *out, size_t len)
{
    if (pool->left < len) {
        randombytes_buf(pool->bytes, sizeof(pool->bytes));
        pool->left = sizeof(pool->bytes);
    }
    pool->left -= len;
    memcpy(out, pool->bytes + pool->left, len);
    /* What was handed out may be a secret now. */
    explicit_bzero(pool->bytes + pool->left, len);
}

void random_bytes(void *out, size_t len)
{
    if (len <= POOLED_MAX && pool == NULL)
        pool = pool_create();
    if (len <= POOLED_MAX && pool != NULL)
        take_pooled(out, len);
    else
        randombytes_buf(out, len);
}

void random_hex(char *out, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes;) {
        uint8_t chunk[32];
        size_t n = bytes - i < sizeof(chunk) ? bytes - i : sizeof(chunk);
        random_bytes(chunk, n);
        for (size_t k = 0; k < n; k++, i++) {
            out[2 * i] = digits[chunk[k] >> 4];
            out[2 * i + 1] = digits[chunk[k] & 15];
        }
    }
    out[2 * bytes] = '\0';
}

uint32_t random_below(uint32_t bound)
{
    return bound == 0 ? 0 : randombytes_uniform(bound);
}
