#include "core/redis_moved.h"

#include <stddef.h>
#include <string.h>

/* Digits without a leading zero, up to `max`; moves `at` past them. */
static bool take_number(const char **at, int max, int *out)
{
    int n = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if ((n = n * 10 + (**at - '0')) > max)
            return false;
    *out = n;
    return *at != from && (*from != '0' || *at == from + 1);
}

static bool take_word(const char **at, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(*at, word, len) != 0)
        return false;
    *at += len;
    return true;
}

/* The port follows the last colon: an IPv6 address stands without brackets. */
static bool take_node(const char *at, redis_moved_t *out)
{
    const char *colon = strrchr(at, ':');
    if (colon == NULL || (size_t)(colon - at) > REDIS_HOST_MAX)
        return false;
    const char *port = colon + 1;
    memcpy(out->host, at, (size_t)(colon - at));
    out->host[colon - at] = '\0';
    if (out->host[0] != '\0' && !redis_is_host(out->host, strlen(out->host)))
        return false;
    return take_number(&port, 65535, &out->port) && *port == '\0' && out->port != 0;
}

bool redis_moved_parse(const char *text, redis_moved_t *out)
{
    *out = (redis_moved_t){0};
    out->is_ask = take_word(&text, "ASK ");
    if (!out->is_ask && !take_word(&text, "MOVED "))
        return false;
    if (!take_number(&text, REDIS_SLOTS - 1, &out->slot) || !take_word(&text, " "))
        return false;
    return take_node(text, out);
}
