#include "gateway/proxies.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/network.h"
#include "core/mem.h"

struct proxies {
    network_t *networks;
    size_t count;
};

enum { HOPS_MAX = 32 };

/* The address in `text`, as a socket address of its family. */
static bool address_of_text(const char *text, size_t len, struct sockaddr_storage *out)
{
    char copy[INET6_ADDRSTRLEN];
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    if (len == 0 || len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    memset(out, 0, sizeof(*out));
    out->ss_family = AF_INET;
    if (inet_pton(AF_INET, copy, &v4->sin_addr) == 1)
        return true;
    out->ss_family = AF_INET6;
    return inet_pton(AF_INET6, copy, &v6->sin6_addr) == 1;
}

proxies_t *proxies_create(const char *const *entries)
{
    proxies_t *p = mem_alloc(sizeof(*p));
    size_t n = 0;
    while (entries != NULL && entries[n] != NULL)
        n++;
    p->networks = mem_alloc_array(n, sizeof(*p->networks));
    for (size_t i = 0; i < n; i++)
        if (network_parse(entries[i], &p->networks[p->count]))
            p->count++;
    return p;
}

void proxies_destroy(proxies_t *p)
{
    free(p->networks);
    free(p);
}

bool proxies_contain(const proxies_t *p, const struct sockaddr *sa)
{
    for (size_t i = 0; i < p->count; i++)
        if (network_holds(&p->networks[i], sa))
            return true;
    return false;
}

/* As inet_ntop, which formats it with sprintf; this is done for every request. */
static void print_v4(const uint8_t octets[4], char out[PROXY_ADDRESS_MAX])
{
    for (int i = 0; i < 4; i++) {
        uint8_t n = octets[i];
        if (n >= 100)
            *out++ = (char)('0' + n / 100);
        if (n >= 10)
            *out++ = (char)('0' + n / 10 % 10);
        *out++ = (char)('0' + n % 10);
        *out++ = i != 3 ? '.' : '\0';
    }
}

static void print(const struct sockaddr *sa, char out[PROXY_ADDRESS_MAX])
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;
    if (sa->sa_family == AF_INET)
        print_v4((const uint8_t *)&((const struct sockaddr_in *)sa)->sin_addr, out);
    else if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        print_v4(&v6->s6_addr[12], out);
    else if (sa->sa_family == AF_INET6)
        inet_ntop(AF_INET6, v6, out, PROXY_ADDRESS_MAX);
    else
        snprintf(out, PROXY_ADDRESS_MAX, "unknown");
}

/* The hop named last in what is left of the lines, taken off them. false: there is none, or it is no address. */
static bool take_hop(head_field_t *line, const head_field_t *lines, size_t *count, struct sockaddr_storage *out)
{
    while (line->len == 0) {
        if (*count == 0)
            return false;
        *line = lines[--*count];
    }
    const char *comma = memrchr(line->base, ',', line->len);
    const char *a = comma != NULL ? comma + 1 : line->base, *b = line->base + line->len;
    while (a < b && (*a == ' ' || *a == '\t'))
        a++;
    while (b > a && (b[-1] == ' ' || b[-1] == '\t'))
        b--;
    line->len = comma != NULL ? (size_t)(comma - line->base) : 0;
    return address_of_text(a, (size_t)(b - a), out);
}

void proxies_client(const proxies_t *p, const struct sockaddr *peer, const head_field_t *lines, size_t count,
                    char out[PROXY_ADDRESS_MAX])
{
    struct sockaddr_storage hop, next;
    const struct sockaddr *at = peer;
    head_field_t line = {NULL, 0, 0};
    for (int hops = 0; hops < HOPS_MAX && proxies_contain(p, at) && take_hop(&line, lines, &count, &next); hops++) {
        hop = next;
        at = (const struct sockaddr *)&hop;
    }
    print(at, out);
}
