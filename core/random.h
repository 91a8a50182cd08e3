/* The one place randomness comes from: the kernel's generator through libsodium, small amounts from a pool filled by
 * it. */
#ifndef CORE_RANDOM_H
#define CORE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Must be called once per process before any other function here; aborts when the library cannot start. */
void random_init(void);
void random_bytes(void *out, size_t len);
/* Writes `bytes` random bytes as 2*bytes lowercase hex digits and a final NUL. */
void random_hex(char *out, size_t bytes);
/* A uniform number in [0, bound); bound 0 gives 0. For jitter. */
uint32_t random_below(uint32_t bound);

#endif
