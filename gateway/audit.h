/* The audit line of a dispatched run (spec callers-and-limits 6): metadata only, never code, arguments, output or
 * tokens. */
#ifndef GATEWAY_AUDIT_H
#define GATEWAY_AUDIT_H

#include "gateway/run.h"

void audit_run(const run_t *run, const Plimsoll__V1__RunResponse *response);
/* `told` is what the caller was told, `detail` the cause for the log. */
void audit_failure(const run_t *run, const char *told, const char *detail);

#endif
