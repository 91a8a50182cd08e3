#include "gateway/proxies.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

/* Everything is kept as IPv6; v4 as the mapped form, so ::ffff:10.0.0.1 from a dual-stack socket is 10.0.0.1. */
typedef struct {
    uint8_t bytes[16];
} address_t;

typedef struct {
    address_t address;
    unsigned bits;
} network_t;

struct proxies {
    network_t *networks;
    size_t count;
};

enum { MAPPED_BITS = 96, HOPS_MAX = 32 };

static void map_v4(const void *v4, address_t *out)
{
    memset(out, 0, sizeof(*out));
    out->bytes[10] = out->bytes[11] = 0xff;
    memcpy(out->bytes + 12, v4, 4);
}

static bool address_of_text(const char *text, size_t len, address_t *out, bool *is_v4)
{
    char copy[INET6_ADDRSTRLEN];
    struct in_addr v4;
    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    *is_v4 = inet_pton(AF_INET, copy, &v4) == 1;
    if (*is_v4) {
        map_v4(&v4, out);
        return true;
    }
    return inet_pton(AF_INET6, copy, out->bytes) == 1;
}

static bool address_of_peer(const struct sockaddr *sa, address_t *out)
{
    if (sa->sa_family == AF_INET)
        map_v4(&((const struct sockaddr_in *)sa)->sin_addr, out);
    else if (sa->sa_family == AF_INET6)
        memcpy(out->bytes, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
    else
        return false;
    return true;
}

static bool parse_network(const char *text, network_t *out)
{
    const char *slash = strchr(text, '/');
    bool is_v4;
    if (!address_of_text(text, slash != NULL ? (size_t)(slash - text) : strlen(text), &out->address, &is_v4))
        return false;
    unsigned max = is_v4 ? 32 : 128;
    out->bits = 128;
    if (slash == NULL)
        return true;
    unsigned bits = 0;
    if (slash[1] == '\0' || strlen(slash + 1) > 3)
        return false;
    for (const char *c = slash + 1; *c != '\0'; c++) {
        if (*c < '0' || *c > '9')
            return false;
        bits = bits * 10 + (unsigned)(*c - '0');
    }
    if (bits > max)
        return false;
    out->bits = is_v4 ? MAPPED_BITS + bits : bits;
    return true;
}

bool proxies_entry_is_valid(const char *text)
{
    network_t n;
    return parse_network(text, &n);
}

proxies_t *proxies_create(const char *const *entries)
{
    proxies_t *p = mem_alloc(sizeof(*p));
    size_t n = 0;
    while (entries != NULL && entries[n] != NULL)
        n++;
    p->networks = mem_alloc_array(n, sizeof(*p->networks));
    for (size_t i = 0; i < n; i++)
        if (parse_network(entries[i], &p->networks[p->count]))
            p->count++;
    return p;
}

void proxies_destroy(proxies_t *p)
{
    free(p->networks);
    free(p);
}

static bool contains(const proxies_t *p, const address_t *a)
{
    for (size_t i = 0; i < p->count; i++) {
        const network_t *n = &p->networks[i];
        unsigned whole = n->bits / 8, rest = n->bits % 8;
        if (memcmp(n->address.bytes, a->bytes, whole) != 0)
            continue;
        if (rest == 0 || ((n->address.bytes[whole] ^ a->bytes[whole]) >> (8 - rest)) == 0)
            return true;
    }
    return false;
}

bool proxies_contain(const proxies_t *p, const struct sockaddr *sa)
{
    address_t a;
    return p->count != 0 && address_of_peer(sa, &a) && contains(p, &a);
}

static void print(const address_t *a, char out[PROXY_ADDRESS_MAX])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (memcmp(a->bytes, mapped, sizeof(mapped)) == 0)
        inet_ntop(AF_INET, a->bytes + 12, out, PROXY_ADDRESS_MAX);
    else
        inet_ntop(AF_INET6, a->bytes, out, PROXY_ADDRESS_MAX);
}

void proxies_client(const proxies_t *p, const struct sockaddr *peer, const char *forwarded, size_t len,
                    char out[PROXY_ADDRESS_MAX])
{
    address_t at;
    if (!address_of_peer(peer, &at)) {
        snprintf(out, PROXY_ADDRESS_MAX, "unknown");
        return;
    }
    const char *end = forwarded != NULL ? forwarded + len : NULL;
    for (int hops = 0; forwarded != NULL && end > forwarded && hops < HOPS_MAX && contains(p, &at); hops++) {
        const char *comma = memrchr(forwarded, ',', (size_t)(end - forwarded));
        const char *a = comma != NULL ? comma + 1 : forwarded, *b = end;
        while (a < b && (*a == ' ' || *a == '\t'))
            a++;
        while (b > a && (b[-1] == ' ' || b[-1] == '\t'))
            b--;
        address_t hop;
        bool is_v4;
        if (!address_of_text(a, (size_t)(b - a), &hop, &is_v4))
            break;
        at = hop;
        end = comma != NULL ? comma : forwarded;
    }
    print(&at, out);
}
