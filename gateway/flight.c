#include "gateway/flight.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/random.h"
#include "core/sha256.h"

enum { BUCKETS = 4096 };

struct flight {
    char *key;
    char request_sha256[SHA256_HEX + 1];
    flight_member_t *followers;
    flight_stage_t stage;
    struct flight *next;
};

struct flights {
    pthread_mutex_t lock;
    uint64_t seed;
    flight_t *buckets[BUCKETS];
};

outcome_t *outcome_create(void)
{
    outcome_t *o = mem_alloc(sizeof(*o));
    atomic_init(&o->refs, 1);
    return o;
}

void outcome_unref(outcome_t *o)
{
    if (atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(o->response);
    free(o);
}

flights_t *flights_create(void)
{
    flights_t *f = mem_alloc(sizeof(*f));
    pthread_mutex_init(&f->lock, NULL);
    random_bytes(&f->seed, sizeof(f->seed));
    return f;
}

void flights_destroy(flights_t *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static flight_t **bucket(flights_t *f, const char *key)
{
    uint64_t h = f->seed;
    for (const char *c = key; *c != '\0'; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return &f->buckets[(h ^ (h >> 32)) % BUCKETS];
}

flight_place_t flights_enter(flights_t *f, const char *key, const char *request_sha256, flight_member_t *member,
                             flight_t **out)
{
    flight_place_t place;
    pthread_mutex_lock(&f->lock);
    flight_t **head = bucket(f, key), *flight;
    for (flight = *head; flight != NULL && strcmp(flight->key, key) != 0; flight = flight->next)
        ;
    if (flight == NULL) {
        flight = mem_alloc(sizeof(*flight));
        flight->key = mem_strdup(key);
        memcpy(flight->request_sha256, request_sha256, sizeof(flight->request_sha256));
        flight->stage = FLIGHT_RESERVED;
        flight->next = *head;
        *head = flight;
        *out = flight;
        place = FLIGHT_LEADS;
    } else if (strcmp(flight->request_sha256, request_sha256) != 0) {
        place = FLIGHT_CONFLICTS;
    } else {
        member->_flight = flight;
        member->_prev = NULL;
        member->_next = flight->followers;
        if (member->_next != NULL)
            member->_next->_prev = member;
        flight->followers = member;
        place = FLIGHT_FOLLOWS;
    }
    pthread_mutex_unlock(&f->lock);
    return place;
}

bool flights_leave(flights_t *f, flight_member_t *m)
{
    pthread_mutex_lock(&f->lock);
    bool waiting = m->_flight != NULL;
    if (waiting) {
        if (m->_prev != NULL)
            m->_prev->_next = m->_next;
        else
            m->_flight->followers = m->_next;
        if (m->_next != NULL)
            m->_next->_prev = m->_prev;
        m->_flight = NULL;
    }
    pthread_mutex_unlock(&f->lock);
    return waiting;
}

bool flights_has_followers(flights_t *f, const flight_t *flight)
{
    pthread_mutex_lock(&f->lock);
    bool any = flight->followers != NULL;
    pthread_mutex_unlock(&f->lock);
    return any;
}

flight_stage_t flights_stage(flights_t *f, const char *key)
{
    pthread_mutex_lock(&f->lock);
    const flight_t *flight = *bucket(f, key);
    while (flight != NULL && strcmp(flight->key, key) != 0)
        flight = flight->next;
    flight_stage_t stage = flight != NULL ? flight->stage : FLIGHT_ELSEWHERE;
    pthread_mutex_unlock(&f->lock);
    return stage;
}

void flights_dispatched(flights_t *f, flight_t *flight)
{
    pthread_mutex_lock(&f->lock);
    flight->stage = FLIGHT_DISPATCHED;
    pthread_mutex_unlock(&f->lock);
}

static void deliver(void *arg)
{
    flight_member_t *m = arg;
    outcome_t *outcome = m->_outcome;
    m->_outcome = NULL;
    m->on_outcome(m, outcome);
}

void flights_land(flights_t *f, flight_t *flight, outcome_t *outcome)
{
    pthread_mutex_lock(&f->lock);
    flight_t **at = bucket(f, flight->key);
    while (*at != flight)
        at = &(*at)->next;
    *at = flight->next;
    /* from here on nobody can leave: each outcome is on its way */
    for (flight_member_t *m = flight->followers; m != NULL; m = m->_next)
        m->_flight = NULL;
    pthread_mutex_unlock(&f->lock);
    for (flight_member_t *m = flight->followers; m != NULL;) {
        flight_member_t *next = m->_next;
        atomic_fetch_add_explicit(&outcome->refs, 1, memory_order_relaxed);
        m->_outcome = outcome;
        loop_post(m->loop, deliver, m);
        m = next;
    }
    free(flight->key);
    free(flight);
}
