/* The files the parent reads for the front, which has given up the right to: callers and prices. Sent when a front
 * starts, and again when SIGHUP asks for it. */
#ifndef GATEWAY_HANDOVER_H
#define GATEWAY_HANDOVER_H

#include "core/ipc.h"
#include "gateway/ground.h"

/* `front` may be NULL: the next one is told when it starts. */
void handover_send(const ground_t *ground, ipc_t *front);
/* Reads both again. A file that is not taken over is told of in the log, and what was read before stays. */
void handover_reload(ground_t *ground, ipc_t *front);

#endif
