/*
 * Names of keys. All keys of one caller carry the same hash tag, so that Redis Cluster keeps them in one slot and a
 * script may touch them together. The tag is a digest: a caller's name may hold any bytes, braces too.
 * docs/redis-keys.md lists every key.
 */
#include "records/store_internal.h"

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

store_prefix_t store_prefix(const char *caller)
{
    char digest[SHA256_HEX + 1];
    sha256_hex(caller, strlen(caller), digest);
    store_prefix_t prefix;
    snprintf(prefix.text, sizeof(prefix.text), "plimsoll:1:{%.*s}:", STORE_ID, digest);
    return prefix;
}

size_t store_key(char out[STORE_CLAIM_KEY_MAX], const store_prefix_t *prefix, const char *name, const char *id)
{
    size_t name_len = strlen(name), id_len = strlen(id);
    if (STORE_PREFIX + name_len + id_len >= STORE_CLAIM_KEY_MAX)
        mem_fatal("store key too long");
    memcpy(out, prefix->text, STORE_PREFIX);
    memcpy(out + STORE_PREFIX, name, name_len);
    memcpy(out + STORE_PREFIX + name_len, id, id_len + 1);
    return STORE_PREFIX + name_len + id_len;
}

void store_claim_key(const char *caller, const char *request_id, char out[STORE_CLAIM_KEY_MAX])
{
    store_prefix_t prefix = store_prefix(caller);
    store_key(out, &prefix, "claim:", store_is_hex(request_id, STORE_ID) ? request_id : "-");
}

void store_argv_add(store_argv_t *args, const char *base, size_t len)
{
    if (args->argc == STORE_ARGS_MAX)
        mem_fatal("too many arguments for a script");
    args->base[args->argc] = base;
    args->len[args->argc++] = len;
}

void store_log_corrupt(const char *key)
{
    log_event(LOG_ERROR, "store_key_corrupt", log_str("key", key));
}
