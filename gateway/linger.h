/* The end of a connection whose request was not read to its end (spec 1.1): our side is closed, and what the peer still
 * sends is read and dropped for a while, so that a reset for it cannot overtake the answer. */
#ifndef GATEWAY_LINGER_H
#define GATEWAY_LINGER_H

#include "gateway/front.h"

/* Takes the descriptor, and closes it when the peer closed, after LINGER_BYTES, or after LINGER_MS; at once when
 * LINGERING_MAX of the lane linger already, since these count in no cap on connections. */
void linger(lane_t *lane, int fd);

#endif
