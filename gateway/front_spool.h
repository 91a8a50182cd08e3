/* The front's spool: records that Redis does not take (docs/redis-trouble.md). One of a process, shared by its lanes.
 */
#ifndef GATEWAY_FRONT_SPOOL_H
#define GATEWAY_FRONT_SPOOL_H

#include "gateway/front.h"
#include "gateway/refusal.h"

/* Reads what dead processes left; before any lane starts. */
void front_spool_open(front_t *front);
/* After all lanes have ended. */
void front_spool_close(front_t *front);
/* The lane's store keeps and, in one lane, sends what is in it. */
void front_spool_use(lane_t *lane);
/* Whether the records of all runs that hold a place now find room; false: *refusal (marked) says why none may start. */
bool front_spool_has_room(const front_t *front, refusal_t *refusal);
/* Brings the metrics up to date. */
void front_spool_measure(const front_t *front);

#endif
