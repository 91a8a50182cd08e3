/* Idempotency-Key from hostile bytes, in a header field and in a path: never a crash, and a key found one way is found
 * the other way too. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/idempotency_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_key(const idempotency_key_t *k)
{
    check(k->len >= 1 && k->len <= IDEMPOTENCY_KEY_MAX && strlen(k->text) == k->len);
    for (size_t i = 0; i < k->len; i++)
        check(k->text[i] >= 0x20 && k->text[i] <= 0x7e);
}

static void check_path_of(const char *value, size_t len, const idempotency_key_t *k)
{
    char path[3 * (2 * IDEMPOTENCY_KEY_MAX + 2) + 1];
    idempotency_key_t again;
    const char *why;
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (size_t)sprintf(path + n, "%%%02X", (unsigned)(unsigned char)value[i]);
    check(idempotency_key_of_path(path, n, &again, &why) == PATH_KEY_IDEMPOTENCY);
    check(again.len == k->len && memcmp(again.text, k->text, k->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *value = (const char *)data, *why = NULL;
    idempotency_key_t k;
    if (idempotency_key_parse(value, size, &k, &why)) {
        check_key(&k);
        check_path_of(value, size, &k);
    } else {
        check(why != NULL);
    }
    if (idempotency_key_of_path(value, size, &k, &why) != PATH_KEY_WRONG)
        check_key(&k);
    return 0;
}
