/* The proxies whose forwarded client addresses are believed (PLIMSOLL_TRUSTED_PROXIES): addresses and CIDR networks, v4
 * and v6. */
#ifndef GATEWAY_PROXIES_H
#define GATEWAY_PROXIES_H

#include <stdbool.h>
#include <stddef.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "gateway/head.h"

typedef struct proxies proxies_t;

enum { PROXY_ADDRESS_MAX = INET6_ADDRSTRLEN };

/* NULL-terminated list; entries that do not parse were refused by the configuration already and are skipped. */
proxies_t *proxies_create(const char *const *entries);
void proxies_destroy(proxies_t *p);
bool proxies_contain(const proxies_t *p, const struct sockaddr *sa);
/* Writes the client's address: the peer's own, or, when the peer is a listed proxy, the rightmost address of
 * X-Forwarded-For that is not a listed proxy. Its lines are one list in their order (RFC 9110 section 5.3): nginx joins
 * them, HAProxy's forwardfor adds a line of its own behind the client's. Malformed forwarded text is not believed past
 * the last good hop. */
void proxies_client(const proxies_t *p, const struct sockaddr *peer, const head_field_t *lines, size_t count,
                    char out[PROXY_ADDRESS_MAX]);
#endif
