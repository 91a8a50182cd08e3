#include "config/redis_settings.h"

#include <stdio.h>

/* Any key of the installation would do: its name in braces puts all of them in one slot. */
static void name_home(redis_address_t *address)
{
    char key[128];
    snprintf(key, sizeof(key), "plimsoll:2:{%s}:stamp", option_str(OPT_PLIMSOLL_INSTALLATION));
    redis_address_home(address, key);
}

static bool secure(redis_address_t *address, problems_t *problems)
{
    const char *ca = option_str(OPT_PLIMSOLL_REDIS_CA), *cert = option_str(OPT_PLIMSOLL_REDIS_CERT),
               *key = option_str(OPT_PLIMSOLL_REDIS_KEY);
    const char *err;
    if (!address->is_tls && (ca != NULL || cert != NULL || key != NULL))
        err = "they are for TLS, so the PLIMSOLL_REDIS_URL must start rediss:// or rediss+sentinel://";
    else
        err = address->is_tls ? redis_address_secure(address, ca, cert, key) : NULL;
    if (err != NULL)
        problems_add(problems, "PLIMSOLL_REDIS_CA, PLIMSOLL_REDIS_CERT and PLIMSOLL_REDIS_KEY: %s", err);
    return err == NULL;
}

bool redis_settings_read(redis_address_t *out, problems_t *problems)
{
    const char *url = option_str(OPT_PLIMSOLL_REDIS_URL);
    const char *err = url == NULL ? "no address" : redis_address_parse(url, out);
    if (err != NULL) {
        *out = (redis_address_t){0};
        problems_add(problems, "PLIMSOLL_REDIS_URL: %s", err);
        return false;
    }
    if (!secure(out, problems)) {
        redis_address_dispose(out);
        return false;
    }
    name_home(out);
    return true;
}

bool redis_settings_are_in_the_clear(void)
{
    const char *url = option_str(OPT_PLIMSOLL_REDIS_URL);
    redis_address_t address;
    if (url == NULL || redis_address_parse(url, &address) != NULL)
        return false;
    bool leaves = address.host != NULL && !address_is_loopback(address.host);
    for (size_t i = 0; i < address.sentinel_count; i++)
        leaves = leaves || !address_is_loopback(address.sentinels[i].host);
    leaves = leaves && !address.is_tls;
    redis_address_dispose(&address);
    return leaves;
}
