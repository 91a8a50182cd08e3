/* The URL of a gRPC endpoint. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grpc.h"

enum { PORT_HTTPS = 443, PORT_HTTP = 80, PORT_DIGITS_MAX = 5 };

static bool is_host_byte(char c, bool is_v6)
{
    bool is_alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_alnum || c == '.' || (is_v6 ? c == ':' : c == '-' || c == '_');
}

/* The host's end, or NULL when there is no host. */
static const char *take_host(const char *at, grpc_target_t *target, bool *is_v6)
{
    size_t len = 0;
    *is_v6 = *at == '[';
    at += *is_v6;
    while (is_host_byte(at[len], *is_v6))
        ++len;
    if (len == 0 || len > GRPC_HOST_MAX || (*is_v6 && at[len] != ']'))
        return NULL;
    memcpy(target->host, at, len);
    target->host[len] = '\0';
    return at + len + *is_v6;
}

static const char *take_port(const char *at, uint16_t *port)
{
    unsigned long value = 0;
    size_t len = strspn(at, "0123456789");
    if (len == 0 || len > PORT_DIGITS_MAX)
        return NULL;
    value = strtoul(at, NULL, 10);
    if (value == 0 || value > UINT16_MAX)
        return NULL;
    *port = (uint16_t)value;
    return at + len;
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

const char *grpc_target_parse(const char *url, grpc_target_t *target)
{
    const char *at;
    bool is_v6;
    struct in6_addr v6;

    memset(target, 0, sizeof(*target));
    if (strncmp(url, "https://", 8) == 0) {
        at = url + 8;
        target->port = PORT_HTTPS;
    } else if (strncmp(url, "http://", 7) == 0) {
        at = url + 7;
        target->port = PORT_HTTP;
        target->is_plain = true;
    } else {
        return "it must begin with https://";
    }
    if ((at = take_host(at, target, &is_v6)) == NULL || (is_v6 && inet_pton(AF_INET6, target->host, &v6) != 1))
        return "it names no host";
    if (*at == ':' && (at = take_port(at + 1, &target->port)) == NULL)
        return "its port is none of 1 to 65535";
    if (*at == '/')
        ++at;
    if (*at != '\0')
        return "it may have neither a path, a user, a query nor a fragment";
    snprintf(target->authority, sizeof(target->authority), is_v6 ? "[%s]:%u" : "%s:%u", target->host, target->port);
    target->is_loopback = is_loopback(target->host);
    return NULL;
}
