/* What texts say of Redis: a URL of the settings, the MOVED or ASK answer of a node, an answer to INFO. Checks what was
 * taken. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/redis.h"
#include "core/redis_moved.h"
#include "records/store_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_url(const char *url)
{
    redis_address_t a, copy;
    const char *err = redis_address_parse(url, &a);
    if (err != NULL) {
        if (a.host != NULL || a.path != NULL || a.master != NULL || a.password != NULL || a.sentinel_count != 0)
            abort();
        return;
    }
    if ((a.host != NULL) + (a.path != NULL) + (a.master != NULL) != 1)
        abort();
    if (a.host != NULL && (!redis_is_host(a.host, strlen(a.host)) || a.port < 1 || a.port > 65535))
        abort();
    if ((a.master != NULL) != (a.sentinel_count != 0) || a.sentinel_count > REDIS_SENTINELS_MAX)
        abort();
    for (size_t i = 0; i < a.sentinel_count; i++)
        if (!redis_is_host(a.sentinels[i].host, strlen(a.sentinels[i].host)) || a.sentinels[i].port < 1)
            abort();
    if (a.password != NULL && strlen(a.password) > REDIS_CREDENTIAL_MAX)
        abort();
    redis_address_copy(&copy, &a);
    redis_address_dispose(&a);
    redis_address_dispose(&copy);
}

static void check_moved(const char *text)
{
    redis_moved_t m;
    if (!redis_moved_parse(text, &m))
        return;
    if (m.slot < 0 || m.slot >= REDIS_SLOTS || m.port < 1 || m.port > 65535 || strlen(m.host) > REDIS_HOST_MAX)
        abort();
    if (m.host[0] != '\0' && !redis_is_host(m.host, strlen(m.host)))
        abort();
}

static void check_info(const char *text, size_t len)
{
    store_seen_values_t seen = {0};
    store_check_take_info(&seen, text, len);
    store_check_take_config(&seen, "save", text);
    for (unsigned i = 0; i < SEEN_COUNT; i++)
        if (memchr(seen.values[i], '\0', sizeof(seen.values[i])) == NULL)
            abort();
    for (unsigned i = 0; i < WARN_COUNT; i++)
        if (store_check_judge(&seen, (store_warning_t)i).value == NULL)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    check_url(text);
    check_moved(text);
    check_info(text, size);
    free(text);
    return 0;
}
