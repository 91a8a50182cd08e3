/*
 * Whose guest begins next. Guests that all begin at once share the processors, and all of them end late: of ten that
 * need 50 ms each on two processors, the fifth ends after 250 ms; begun two at a time, after 150. So a guest begins
 * when one of a few places is free, in the order of asking, and gives the place up at its end or after TURN_HOLD_MS,
 * whichever is first: what runs long delays nobody by more than that.
 */
#ifndef BACKENDS_DOCKER_TURNS_H
#define BACKENDS_DOCKER_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/co.h"
#include "core/loop.h"

enum {
    TURN_HOLD_MS = 60,  /* a place at the most: what a short snippet takes, start and end included */
    TURN_WAIT_MS = 400, /* nobody waits longer, whatever is before it... */
    TURN_WAIT_PART = 4, /* ...nor for more than this part of its time */
};

typedef struct turn turn_t;

typedef struct {
    loop_t *loop;
    uint32_t places, taken;
    turn_t *first, *last; /* those who wait */
} turns_t;

/* One guest's; on its run's stack from turn_take to turn_leave. */
struct turn {
    turns_t *turns;
    co_t *co;
    bool has_place;
    loop_timer_t hold;
    turn_t *next;
};

void turns_init(turns_t *turns, loop_t *loop, uint32_t places);
/* In a coroutine: returns with a place, or without one when `wait_ms`, at most TURN_WAIT_MS, are over or the coroutine
 * is canceled. Every call is followed by turn_leave. */
void turn_take(turns_t *turns, turn_t *turn, uint32_t wait_ms);
/* Harmless when the place was given up already. */
void turn_leave(turn_t *turn);

#endif
