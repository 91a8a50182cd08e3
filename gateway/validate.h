/*
 * What a request must be before anything is done for it: spec sections 2.2, 2.5 and 4.3 steps 1 to 6, in that order,
 * and as far as a server without sessions goes 4.4 to 4.6. Pure functions of the decoded message; none looks at a
 * backend.
 *
 * Readings chosen where the specification leaves one (docs/protocol-notes.md): an empty step is accepted; session calls
 * and closes find no session and are answered not_found.
 */
#ifndef GATEWAY_VALIDATE_H
#define GATEWAY_VALIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/refusal.h"
#include "records/plimsoll.pb-c.h"
#include "records/project_rules.h"
#include "records/tier.h"

enum {
    PROTOCOL_NEWEST = 4, /* what Describe states; answered with records of version 4 */
    PROTOCOL_OLDEST = 3, /* still served; answered with records of version 2 */

    CODE_BYTES_MAX = 256 * 1024,
    GRANT_PROFILE_BYTES_MAX = 128,
    MODEL_BYTES_MAX = 64, /* one letter or digit and up to 63 more characters */
    ROWS_MAX = 100000,
    ROW_WIDTH_MAX = 64,
    MODULE_STEPS_MAX = 1000000, /* end_time / step */
    /* What a module's result may come to: 20 bytes, and for each row 4 and 8 for each of its floor(end_time/step) + 2
       steps. */
    MODULE_RESULT_BYTES_MAX = 8 * 1024 * 1024,
    IDENTITIES_MAX = 32,
    IDENTITY_BYTES_MAX = 256,
    TRACE_ID_BYTES_MAX = 64,
};

/* What a valid request asks for, in the program's own terms. */
typedef struct {
    tier_t floor;          /* TIER_UNKNOWN: none */
    uint32_t timeout_ms;   /* clamped to RUN_CEILING_MS (config/options.h); 0 = the backend's default */
    const char *trace_id;  /* in the request, or "" */
    bool trace_id_dropped; /* one was sent and is not kept; never an error */
} run_terms_t;

/* true and *terms, or false and *refusal (marked: nothing ran). The texts name the field and the limit, and repeat
 * nothing of the request. */
bool validate_run(const Plimsoll__V1__RunRequest *request, run_terms_t *terms, refusal_t *refusal);

/* The refusal of a server that keeps no sessions; there is no other outcome. */
void validate_open_session(const Plimsoll__V1__OpenSessionRequest *request, refusal_t *refusal);
void validate_session_run(const Plimsoll__V1__SessionRunRequest *request, refusal_t *refusal);
void validate_close_session(const Plimsoll__V1__CloseSessionRequest *request, refusal_t *refusal);

/* "" when the text is not of [A-Za-z0-9._:-]{1,64}. */
const char *trace_id_kept(const char *text);

#endif
