/*
 * The log of records, one a process: the front's own thread follows it and the lanes ask it. That thread has next to
 * nothing else to do, so hashing keeps no request waiting; one reader a lane would read and hash the same log once for
 * each core, and hold as many trees.
 */
#ifndef GATEWAY_SHARED_LOG_H
#define GATEWAY_SHARED_LOG_H

#include "records/record_log.h"

typedef struct shared_log shared_log_t;

/* On `loop`'s thread, as the destroying, before which every question has been answered. `installation` names the keys
 * in Redis and, in heads, the log. Copied. */
shared_log_t *shared_log_create(loop_t *loop, const redis_address_t *address, const char *installation);
void shared_log_destroy(shared_log_t *log);
/* The heads' `origin`: which log. */
const char *shared_log_origin(const shared_log_t *log);
/* From any thread that runs a loop: exactly one callback, on `asker`. */
void shared_log_ask(shared_log_t *log, loop_t *asker, const record_log_question_t *question, record_log_cb cb,
                    void *data);

#endif
