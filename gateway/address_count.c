#include "gateway/address_count.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/random.h"

enum { BUCKETS = 4096 };

typedef struct entry {
    address_key_t key;
    uint32_t count;
    struct entry *next;
} entry_t;

struct address_count {
    pthread_mutex_t lock;
    uint32_t limit;
    uint64_t seed; /* bucket choice cannot be steered from outside */
    entry_t *buckets[BUCKETS];
};

address_count_t *address_count_create(uint32_t limit)
{
    address_count_t *c = mem_alloc(sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    c->limit = limit;
    random_bytes(&c->seed, sizeof(c->seed));
    return c;
}

void address_count_destroy(address_count_t *c)
{
    for (int i = 0; i < BUCKETS; i++) {
        while (c->buckets[i] != NULL) {
            entry_t *next = c->buckets[i]->next;
            free(c->buckets[i]);
            c->buckets[i] = next;
        }
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static address_key_t key_of(const struct sockaddr *sa)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    address_key_t key = {0, 0};
    if (sa->sa_family == AF_INET) {
        key.lo = ((const struct sockaddr_in *)sa)->sin_addr.s_addr;
        key.hi = 4;
    } else if (sa->sa_family == AF_INET6) {
        const uint8_t *bytes = ((const struct sockaddr_in6 *)sa)->sin6_addr.s6_addr;
        if (memcmp(bytes, mapped, sizeof(mapped)) == 0) {
            uint32_t v4;
            memcpy(&v4, bytes + 12, 4);
            key.lo = v4;
            key.hi = 4;
        } else {
            memcpy(&key.lo, bytes, 8);
            key.hi = 6;
        }
    }
    return key;
}

static entry_t **bucket(address_count_t *c, const address_key_t *key)
{
    uint64_t h = (key->lo ^ c->seed) * UINT64_C(0x9e3779b97f4a7c15) + key->hi;
    h ^= h >> 29;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    return &c->buckets[(h >> 40) % BUCKETS];
}

bool address_count_take(address_count_t *c, const struct sockaddr *sa, address_key_t *key)
{
    bool fits = true;
    *key = key_of(sa);
    pthread_mutex_lock(&c->lock);
    entry_t **head = bucket(c, key), *e;
    for (e = *head; e != NULL && (e->key.hi != key->hi || e->key.lo != key->lo); e = e->next)
        ;
    if (e == NULL) {
        e = mem_alloc(sizeof(*e));
        e->key = *key;
        e->next = *head;
        *head = e;
    }
    if (c->limit != 0 && e->count >= c->limit)
        fits = false;
    else
        e->count++;
    pthread_mutex_unlock(&c->lock);
    return fits;
}

void address_count_give(address_count_t *c, const address_key_t *key)
{
    pthread_mutex_lock(&c->lock);
    for (entry_t **at = bucket(c, key); *at != NULL; at = &(*at)->next) {
        entry_t *e = *at;
        if (e->key.hi != key->hi || e->key.lo != key->lo)
            continue;
        if (--e->count == 0) {
            *at = e->next;
            free(e);
        }
        break;
    }
    pthread_mutex_unlock(&c->lock);
}
