/* GET /v1/runs and /v1/runs/ID: a caller's own runs. */
#ifndef GATEWAY_RUNS_PAGE_H
#define GATEWAY_RUNS_PAGE_H

#include "gateway/gate.h"

void runs_answer(h2o_req_t *req, gate_t *gate);

#endif
