/*
 * Who is being read and decoded right now: a fixed number of slots in all, of which one caller holds at most half (at
 * least one), so one caller's slow bodies cannot keep the others out (spec 4.2 step 5). Thread-safe; never waits for
 * anything but its own short lock.
 */
#ifndef GATEWAY_DECODE_SLOTS_H
#define GATEWAY_DECODE_SLOTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct decode_slots decode_slots_t;
typedef struct decode_holder decode_holder_t; /* a caller that holds some */

decode_slots_t *decode_slots_create(uint32_t total);
void decode_slots_destroy(decode_slots_t *slots);
/* NULL when none is free for this caller; `*total_full` says whether all are taken or only the caller's share. */
decode_holder_t *decode_slots_take(decode_slots_t *slots, const char *caller, int *total_full);
void decode_slots_give(decode_slots_t *slots, decode_holder_t *holder);
uint32_t decode_slots_used(decode_slots_t *slots);

#endif
