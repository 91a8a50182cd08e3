/*
 * Names of keys. All keys of one caller carry the same hash tag, so that Redis Cluster keeps them in one slot and a
 * script may touch them together. The tag is a digest: a caller's name may hold any bytes, braces too.
 * docs/redis-keys.md lists every key.
 */
#include "records/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/sha256.h"

bool store_is_hexn(const char *base, size_t have, size_t len)
{
    if (have != len)
        return false;
    for (size_t i = 0; i != len; ++i) {
        char c = base[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

bool store_is_hex(const char *text, size_t len)
{
    return text != NULL && store_is_hexn(text, strnlen(text, len + 1), len);
}

void store_raw_of(const char *hex, size_t bytes, uint8_t *out)
{
    for (size_t i = 0; i != 2 * bytes; ++i) {
        uint8_t digit = (uint8_t)(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
        out[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : out[i / 2] | digit);
    }
}

void store_hex_of(const uint8_t *raw, size_t bytes, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i != bytes; ++i) {
        out[2 * i] = digits[raw[i] >> 4];
        out[2 * i + 1] = digits[raw[i] & 15];
    }
    out[2 * bytes] = '\0';
}

uint64_t store_amount(uint64_t amount)
{
    return amount < STORE_AMOUNT_MAX ? amount : STORE_AMOUNT_MAX;
}

bool store_is_word(const char *base, size_t len, size_t max)
{
    if (len == 0 || len > max)
        return false;
    for (size_t i = 0; i != len; ++i) {
        char c = base[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
            return false;
    }
    return true;
}

bool store_is_installation(const char *name)
{
    size_t len = strnlen(name, STORE_INSTALLATION_MAX + 1);
    return store_is_word(name, len, STORE_INSTALLATION_MAX) && memchr(name, '_', len) == NULL;
}

void store_key_prefix(const char *installation, char out[STORE_CLAIM_KEY_MAX])
{
    if (!store_is_installation(installation))
        mem_fatal("store: not an installation's name");
    snprintf(out, STORE_CLAIM_KEY_MAX, "plimsoll:2:{%s}:", installation);
}

store_prefix_t store_prefix(const store_t *store, const char *caller)
{
    char digest[SHA256_HEX + 1];
    store_prefix_t prefix = store->root;
    if (caller == NULL)
        return prefix;
    sha256_hex(caller, strlen(caller), digest);
    memcpy(prefix.text + prefix.len, digest, STORE_ID);
    prefix.len += STORE_ID;
    prefix.text[prefix.len++] = ':';
    prefix.text[prefix.len] = '\0';
    return prefix;
}

size_t store_key(char out[STORE_CLAIM_KEY_MAX], const store_prefix_t *prefix, const char *name, const char *id)
{
    size_t name_len = strlen(name), id_len = strlen(id);
    if (prefix->len + name_len + id_len >= STORE_CLAIM_KEY_MAX)
        mem_fatal("store key too long");
    memcpy(out, prefix->text, prefix->len);
    memcpy(out + prefix->len, name, name_len);
    memcpy(out + prefix->len + name_len, id, id_len + 1);
    return prefix->len + name_len + id_len;
}

void store_claim_id_of_key(const char *key, size_t len, char out[STORE_ID + 1])
{
    static const char domain[] = "plimsoll.idempotency-key.v1"; /* with its NUL */
    uint8_t digest[SHA256_BYTES];
    sha256_t *s = sha256_begin();
    sha256_add(s, domain, sizeof(domain));
    sha256_add(s, key, len);
    sha256_end(s, digest);
    store_hex_of(digest, STORE_ID / 2, out);
}

void store_claim_key(const store_t *store, const char *caller, const char *request_id, char out[STORE_CLAIM_KEY_MAX])
{
    store_prefix_t prefix = store_prefix(store, caller);
    store_key(out, &prefix, "claim:", store_is_hex(request_id, STORE_ID) ? request_id : "-");
}

void store_argv_add(store_argv_t *args, const char *base, size_t len)
{
    if (args->argc == STORE_ARGS_MAX)
        mem_fatal("too many arguments for a script");
    args->base[args->argc] = base;
    args->len[args->argc++] = len;
}

void store_argv_add_number(store_argv_t *args, char text[STORE_NUMBER_MAX], uint64_t number)
{
    store_argv_add(args, text, (size_t)snprintf(text, STORE_NUMBER_MAX, "%" PRIu64, number));
}

void store_log_corrupt(const char *key)
{
    log_event(LOG_ERROR, "store_key_corrupt", log_str("key", key));
}
