/* The refusal of an admission for a cap: what it was, whose, how much of it there is and when to come again. */
#ifndef GATEWAY_QUOTA_H
#define GATEWAY_QUOTA_H

#include "gateway/front.h"
#include "gateway/refusal.h"
#include "records/store.h"

typedef struct {
    const store_caps_t *caps;       /* the caller's, as the admission had them */
    const store_caps_t *total_caps; /* the gateway's */
    uint32_t window_s;
    const store_amounts_t *hold; /* what the refused run asked for */
    const char *currency;        /* of the price table; "" without one */
} quota_terms_t;

/* The caller's caps: everybody's, and the allowance of its own entry in the callers file (NULL: it has none). */
store_caps_t quota_caps(const front_t *front, const caller_t *caller);

/* Of ADMIT_CAPPED. A caller's own cap is told with its numbers; a gateway's without: they would speak of others (spec
 * callers-and-limits 3.3). */
void quota_refuse(const store_admitted_t *admitted, const quota_terms_t *terms, refusal_t *out);

enum { QUOTA_SEEN_MAX = 160 };
/* The same for the refusal's receipt: "cap=slots;scope=caller;limit=4;used=4;retry_after_ms=1000". */
void quota_seen(const store_admitted_t *admitted, char out[QUOTA_SEEN_MAX]);

/* Seconds, rounded up, in which a rate gives back a burst of `limit` starts: at most 60 * 1e7 + 1, no overflow. */
uint32_t quota_rate_window_s(const store_caps_t *caps, uint32_t limit);

#endif
