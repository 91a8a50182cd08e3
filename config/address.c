#include "config/options.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { HOST_MAX = 255, PORT_DIGITS_MAX = 5, PORT_MAX = 65535 };

static bool port_parse(const char *text, uint16_t *port)
{
    size_t digits = strspn(text, "0123456789");
    uint32_t value = 0;

    if (digits == 0 || digits > PORT_DIGITS_MAX || text[digits] != '\0')
        return false;
    if (text[0] == '0' && digits > 1)
        return false;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (uint32_t)(text[i] - '0');
    if (value > PORT_MAX)
        return false;
    *port = (uint16_t)value;
    return true;
}

static bool is_host_name(const char *host)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    struct in_addr v4;

    if (host[strspn(host, letters)] != '\0' || host[0] == '.' || host[0] == '-')
        return false;
    /* only digits and points: somebody meant an IPv4 address, and a resolver would read 10.1 as 10.0.0.1 */
    if (host[strspn(host, "0123456789.")] == '\0')
        return inet_pton(AF_INET, host, &v4) == 1;
    return true;
}

bool address_parse(const char *text, char host[256], uint16_t *port)
{
    const char *begin = text, *end;
    bool bracketed = text[0] == '[';
    struct in6_addr v6;

    if (bracketed) {
        begin = text + 1;
        end = strchr(begin, ']');
        if (end == NULL || end[1] != ':')
            return false;
    } else {
        end = strchr(begin, ':');
        if (end == NULL)
            return false;
    }
    if ((size_t)(end - begin) > HOST_MAX)
        return false;
    if (!port_parse(end + (bracketed ? 2 : 1), port))
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    if (bracketed)
        return inet_pton(AF_INET6, host, &v6) == 1;
    return host[0] == '\0' || is_host_name(host);
}

bool address_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return false;
}
