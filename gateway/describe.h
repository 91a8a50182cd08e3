/* Describe and GET /v1/backends: what the gateway states about its walls. A tier is evidence, not attestation. */
#ifndef GATEWAY_DESCRIBE_H
#define GATEWAY_DESCRIBE_H

#include "gateway/gate.h"

/* Answers; spends no rate and takes no slot. */
void describe_answer(h2o_req_t *req, gate_t *gate, const char *body, size_t len);
void backends_answer(h2o_req_t *req, gate_t *gate);
struct describe_cache *describe_cache_create(void);
void describe_cache_destroy(struct describe_cache *cache);

#endif
