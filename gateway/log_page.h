/*
 * GET /v1/log/head, /v1/log/inclusion and /v1/log/consistency: the log of records, for any authenticated caller. What
 * they show of others is how many runs there were, and digests, which say nothing of what was run. A run is found by
 * its ID by its own caller alone.
 */
#ifndef GATEWAY_LOG_PAGE_H
#define GATEWAY_LOG_PAGE_H

#include "gateway/gate.h"

void log_answer(h2o_req_t *req, gate_t *gate);

#endif
