/* An answer as Redis kept it. */
#ifndef GATEWAY_STORED_ANSWER_H
#define GATEWAY_STORED_ANSWER_H

#include "records/plimsoll.pb-c.h"
#include "records/store.h"

/* The answer, the caller's to free; NULL when it is not what was stored: its bytes do not unpack, its record does not
 * hold for what it says, or it is another run's. Says so in the log. */
Plimsoll__V1__RunResponse *stored_answer_unpack(const char *caller, const store_admitted_t *admitted);

#endif
