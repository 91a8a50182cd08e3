/* A run as GET /v1/runs shows it. */
#ifndef GATEWAY_RUNS_RENDER_H
#define GATEWAY_RUNS_RENDER_H

#include "core/buffer.h"
#include "records/store.h"

enum { RUNS_RENDER_MAX = 4 * 1024 * 1024 /* bytes: 500 runs of at most 8 KiB; a record is below 64 KiB */ };

/* One JSON object. `currency` is the price table's, "" without one. */
void runs_render_run(buffer_t *out, const store_run_t *run, const char *currency, bool with_record);
/* ,"record":{...} in proto-JSON; nothing when there is none. */
void runs_render_record(buffer_t *out, const store_run_t *run);

#endif
