/* From a backend's answer to the one the caller gets: checked, with its digests and record. */
#ifndef GATEWAY_RESULT_H
#define GATEWAY_RESULT_H

#include "gateway/run.h"
#include "records/store.h"

/* Sets run->outcome. NULL, or why the backend's answer cannot be passed on (it may have run). */
const char *result_complete(run_t *run, const Plimsoll__Backend__RunDone *done);

/* What a settlement points into. */
typedef struct {
    Plimsoll__V1__RunResponse *response;
    uint8_t *record;
} result_settlement_t;
void result_fill_settlement(const outcome_t *outcome, store_settlement_t *settlement, result_settlement_t *kept);
void result_settlement_dispose(result_settlement_t *kept);

#endif
