#include "gateway/decode_slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "gateway/limits.h"

struct decode_holder {
    char *caller;
    uint32_t held;
    struct decode_holder *next;
};

struct decode_slots {
    pthread_mutex_t lock;
    uint32_t total, share, used;
    decode_holder_t *holders; /* at most `total` of them, so a list is enough */
};

decode_slots_t *decode_slots_create(uint32_t total)
{
    decode_slots_t *s = mem_alloc(sizeof(*s));
    pthread_mutex_init(&s->lock, NULL);
    s->total = total;
    s->share = total / CALLER_DECODE_SHARE != 0 ? total / CALLER_DECODE_SHARE : 1;
    return s;
}

void decode_slots_destroy(decode_slots_t *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s);
}

decode_holder_t *decode_slots_take(decode_slots_t *s, const char *caller, int *total_full)
{
    decode_holder_t *h;
    pthread_mutex_lock(&s->lock);
    *total_full = s->used >= s->total;
    for (h = s->holders; h != NULL && strcmp(h->caller, caller) != 0; h = h->next)
        ;
    if (*total_full || (h != NULL && h->held >= s->share)) {
        h = NULL;
        goto Exit;
    }
    if (h == NULL) {
        h = mem_alloc(sizeof(*h));
        h->caller = mem_strdup(caller);
        h->next = s->holders;
        s->holders = h;
    }
    h->held++;
    s->used++;
Exit:
    pthread_mutex_unlock(&s->lock);
    return h;
}

void decode_slots_give(decode_slots_t *s, decode_holder_t *h)
{
    pthread_mutex_lock(&s->lock);
    s->used--;
    if (--h->held == 0) {
        decode_holder_t **at = &s->holders;
        while (*at != h)
            at = &(*at)->next;
        *at = h->next;
        free(h->caller);
        free(h);
    }
    pthread_mutex_unlock(&s->lock);
}

uint32_t decode_slots_used(decode_slots_t *s)
{
    pthread_mutex_lock(&s->lock);
    uint32_t used = s->used;
    pthread_mutex_unlock(&s->lock);
    return used;
}
