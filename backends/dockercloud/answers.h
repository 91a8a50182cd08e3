/* What the service answers beside sandboxes: operations, policies, credentials, command results, lists, capabilities
 * and the exchanged token (spec 1, 2.5, 2.6, 2.9, 2.11, 3.2 to 3.7). Readers return NULL, or a literal that says what
 * makes no sense. */
#ifndef BACKENDS_DOCKERCLOUD_ANSWERS_H
#define BACKENDS_DOCKERCLOUD_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "backends/dockercloud/refused.h"
#include "backends/dockercloud/sandbox.h"
#include "core/buffer.h"

enum {
    DC_OPERATION_ID_MAX = 511,
    DC_PAGE_TOKEN_MAX = 2047,
    DC_PERMISSIONS_MAX = 64,
    DC_TOKEN_MAX = 8 * 1024, /* bytes of a bearer of either kind */
};

/* --- operations (Connect) --- */

typedef struct {
    char id[DC_OPERATION_ID_MAX + 1];
    bool is_done;
    bool has_failed;
    dc_refused_t refused;   /* has_failed */
    const json_t *response; /* is_done and not has_failed: an object of `json`, or NULL */
} dc_operation_t;
const char *dc_operation_read(const json_t *json, dc_operation_t *out);

/* --- the network policy in force --- */

/* NULL: everything is denied and nothing is allowed by any layer. Else a literal: a mode that is another, unknown or
 * missing, an allow list that is none or holds something. An allow list that is left out is empty (spec 2.1). */
const char *dc_policy_problem(dc_api_t api, const json_t *json);

/* --- endpoint credentials (REST) --- */

typedef struct {
    char token[DC_TOKEN_MAX + 1]; /* wipe */
    uint64_t life_ms;             /* from `asked_wall_ms` on; at most DC_CREDENTIAL_MS */
} dc_credential_t;
enum { DC_CREDENTIAL_MS = 300 * 1000 };
/* Of a credential that was asked for at `asked_wall_ms` for a sandbox. */
const char *dc_credential_read(const json_t *json, const dc_sandbox_t *sandbox, int64_t asked_wall_ms,
                               dc_credential_t *out);

/* --- one command --- */

typedef struct {
    int exit_code;
    bool is_incomplete; /* REST: the service cut the output */
    buffer_t out, err;  /* at most `stream_cap` bytes each */
} dc_exec_t;
/* `out` is to be disposed of whatever came. `is_flood`: a stream is longer than `stream_cap`, which the wrapper in the
 * guest should have seen to. */
const char *dc_exec_read(const json_t *json, size_t stream_cap, dc_exec_t *out, bool *is_flood);
void dc_exec_dispose(dc_exec_t *exec);
/* {"filesWritten": N} */
const char *dc_written_read(const json_t *json, size_t expected);

/* --- lists and capabilities --- */

typedef struct {
    const json_t *sandboxes; /* an array of `json`; NULL = none */
    char next[DC_PAGE_TOKEN_MAX + 1];
} dc_page_t;
const char *dc_page_read(const json_t *json, dc_page_t *out);
/* Connect: what the credential may do, and that `size` can be had. */
const char *dc_capabilities_problem(const json_t *json, const dc_size_t *size);

/* --- the exchange --- */

/* The access token of an answer, in json's memory; NULL when it is none that a header could carry. */
const char *dc_access_token(const json_t *json);
/* When a JWT says that it ends, in seconds since 1970; false when it does not say so in a form that can be read. Looked
 * at for the next exchange alone: nothing is verified. */
bool dc_jwt_expiry(const char *token, int64_t *out_s);

#endif
