/* What the service says when it does not do something: both APIs' errors in one form (spec 2.1 and 3.1). Decisions are
 * made on the code; the status alone says less. */
#ifndef BACKENDS_DOCKERCLOUD_REFUSED_H
#define BACKENDS_DOCKERCLOUD_REFUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "backends/dockercloud/settings.h"
#include "records/codes.h"

/* Of an answer that says nothing of a refusal. */
#define DC_CODE_NONE CODE_COUNT

enum { REFUSED_REASON_MAX = 64, REFUSED_MESSAGE_MAX = 512, REFUSED_BODY_MAX = 64 * 1024 };

typedef struct {
    code_t code;
    bool is_told;            /* by the service itself: a body of its form. False: a proxy's page, or nothing */
    bool is_quota;           /* waiting does not make it go away */
    uint32_t retry_after_ms; /* of the details; 0 = none */
    char reason[REFUSED_REASON_MAX + 1];
    char message[REFUSED_MESSAGE_MAX + 1]; /* as it came, cut; UTF-8. Scrub before it goes anywhere */
} dc_refused_t;

/* "failed_precondition", ... */
const char *dc_code_name(code_t code);
/* Of an answer that is not the expected success. `body` may be anything. */
void dc_refused_read(dc_api_t api, int status, const void *body, size_t len, dc_refused_t *out);
/* Of an object {"code", "message", "details"?}, the code a name or a number: an operation's error, an end frame's, a
 * file's. False when it is none; `out` then says CODE_UNKNOWN. */
bool dc_refused_of(const json_t *error, dc_refused_t *out);
/* An error in the place of what a success has: none of the API's messages has a `code` of its own. */
bool dc_is_error(const json_t *json);
/* The create may have been accepted all the same (spec 4.5). */
bool dc_code_is_unsure(code_t code);

#endif
