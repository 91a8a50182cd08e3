/* Connections per client address, for PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS. Thread-safe. An IPv6 client is counted by
 * its /64, which one customer usually has whole. */
#ifndef GATEWAY_ADDRESS_COUNT_H
#define GATEWAY_ADDRESS_COUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct address_count address_count_t;
typedef struct {
    uint64_t hi, lo; /* the counted prefix, as returned by address_count_take */
} address_key_t;

address_count_t *address_count_create(uint32_t limit); /* limit 0 = everything is let in */
void address_count_destroy(address_count_t *c);
bool address_count_take(address_count_t *c, const struct sockaddr *sa, address_key_t *key);
void address_count_give(address_count_t *c, const address_key_t *key);

#endif
