/*
 * PLIMSOLL_REDIS_DOWN=serve: a run without a key, on a backend that does not bill, goes ahead when Redis cannot answer.
 * Its caller's slots and rate are counted in this process, and its record goes to the spool.
 */
#ifndef GATEWAY_RUN_SERVE_H
#define GATEWAY_RUN_SERVE_H

#include "gateway/run.h"

/* true: the run is on its way, or was refused for its caller's share here. false: it may not go ahead. */
bool run_serve(run_t *run);
/* The run is over: its share is given back. */
void run_serve_end(run_t *run);

#endif
