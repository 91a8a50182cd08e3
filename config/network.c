#include "config/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

enum { TEXT_MAX = INET6_ADDRSTRLEN, V4_OFFSET = 12, V4_BITS = 32, BITS = 128 };

static const uint8_t V4_MAPPED[V4_OFFSET] = {[10] = 0xff, [11] = 0xff};

static bool is_prefix(const char *text, unsigned most, unsigned *out)
{
    size_t digits = strspn(text, "0123456789");
    unsigned value = 0;

    if (digits == 0 || digits > 3 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
        return false;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (unsigned)(text[i] - '0');
    *out = value;
    return value <= most;
}

/* Whether the first `bits` bits are the same. */
static bool agree(const uint8_t a[16], const uint8_t b[16], unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

static bool is_clear_past(const uint8_t bytes[16], unsigned bits)
{
    for (unsigned i = bits; i < BITS; i++)
        if ((bytes[i / 8] >> (7 - i % 8) & 1) != 0)
            return false;
    return true;
}

bool network_parse(const char *text, network_t *out)
{
    char host[TEXT_MAX];
    const char *slash = strchr(text, '/');
    size_t len = slash != NULL ? (size_t)(slash - text) : strlen(text);
    unsigned bits, shift = 0;

    if (len >= sizeof(host))
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, host, out->bytes + V4_OFFSET) == 1) {
        memcpy(out->bytes, V4_MAPPED, V4_OFFSET);
        shift = BITS - V4_BITS;
    } else if (inet_pton(AF_INET6, host, out->bytes) != 1)
        return false;
    bits = BITS - shift;
    if (slash != NULL && !is_prefix(slash + 1, BITS - shift, &bits))
        return false;
    out->prefix = bits + shift;
    /* 10.1.2.3/8 is a slip of which nobody can tell what was meant */
    return is_clear_past(out->bytes, out->prefix);
}

bool network_holds(const network_t *network, const struct sockaddr *address)
{
    uint8_t bytes[16];

    if (address->sa_family == AF_INET) {
        memcpy(bytes, V4_MAPPED, V4_OFFSET);
        memcpy(bytes + V4_OFFSET, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6)
        memcpy(bytes, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
    else
        return false;
    return agree(network->bytes, bytes, network->prefix);
}
