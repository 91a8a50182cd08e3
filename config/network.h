/* An address or a network in CIDR form, as PLIMSOLL_TRUSTED_PROXIES lists them. */
#ifndef CONFIG_NETWORK_H
#define CONFIG_NETWORK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct {
    uint8_t bytes[16]; /* IPv4 as ::ffff:a.b.c.d, so a dual-stack socket's peer compares equal */
    unsigned prefix;   /* bits of `bytes` that count, 0 to 128 */
} network_t;

/* "10.0.0.0/8", "192.0.2.7", "fd00::/8", "::1". false: malformed, or bits are set past the prefix. */
bool network_parse(const char *text, network_t *out);
/* False for anything but an IPv4 or IPv6 address. */
bool network_holds(const network_t *network, const struct sockaddr *address);

#endif
