#include "core/random.h"

#include <sodium.h>

#include "core/mem.h"

void random_init(void)
{
    if (sodium_init() < 0)
        mem_fatal("libsodium could not start: no randomness");
}

void random_bytes(void *out, size_t len)
{
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
