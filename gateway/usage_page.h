/* GET /v1/usage: the caller's own counts, caps and budgets, and when each starts anew. */
#ifndef GATEWAY_USAGE_PAGE_H
#define GATEWAY_USAGE_PAGE_H

#include "gateway/gate.h"

void usage_answer(h2o_req_t *req, gate_t *gate);

#endif
