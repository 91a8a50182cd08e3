/* Who is calling (spec 1.8): the Authorization header against the callers file, the one shared token, or nobody's. */
#ifndef GATEWAY_AUTH_H
#define GATEWAY_AUTH_H

#include <stdbool.h>

#include "gateway/intake.h"

/* Sets in->callers, caller and caller_id, or the refusal (unauthenticated or permission_denied, marked permission). */
bool auth_check(lane_t *lane, const head_field_t *authorization, intake_t *in, refusal_t *refusal);

#endif
