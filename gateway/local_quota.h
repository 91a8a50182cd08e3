/*
 * What one caller may do while Redis cannot count: runs at once and starts per minute, counted in this process alone.
 * A bounded table; when it is full of callers that are busy or have spent something, another caller is refused. Any
 * thread.
 */
#ifndef GATEWAY_LOCAL_QUOTA_H
#define GATEWAY_LOCAL_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "records/store.h"

enum { LOCAL_QUOTA_CALLERS = 1024 };

typedef struct local_quota local_quota_t;
local_quota_t *local_quota_create(void);
void local_quota_destroy(local_quota_t *quota);

typedef enum { LOCAL_QUOTA_TAKEN, LOCAL_QUOTA_CAPPED, LOCAL_QUOTA_FULL } local_quota_result_t;
/* Slots and rate of `caps` alone. CAPPED: `out` says which, as an admission would. `now_us` is monotonic. */
local_quota_result_t local_quota_take(local_quota_t *quota, const char *caller, const store_caps_t *caps,
                                      uint64_t now_us, store_admitted_t *out);
/* Exactly once for each that was taken. `give_back_rate`: the run was refused, and a refusal costs nothing. */
void local_quota_give(local_quota_t *quota, const char *caller, const store_caps_t *caps, bool give_back_rate);

#endif
