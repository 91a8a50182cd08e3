/* A sandbox as the service describes it, of either API in one form, and whether it is the one that was asked for (spec
 * 2.2 to 2.4, 3.2 and 3.3). */
#ifndef BACKENDS_DOCKERCLOUD_SANDBOX_H
#define BACKENDS_DOCKERCLOUD_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "backends/dockercloud/names.h"
#include "backends/dockercloud/settings.h"

enum {
    DC_ETAG_MAX = 255,
    DC_AUDIENCE_MAX = 511,
    DC_REFERENCE_MAX = 511, /* of an image, as it is reported */
    DC_FAILURE_MAX = 200,
};

typedef enum {
    DC_STATUS_NONE, /* not told */
    DC_STATUS_PENDING,
    DC_STATUS_RUNNING,
    DC_STATUS_STOPPING,
    DC_STATUS_STOPPED,
    DC_STATUS_FAILED,
    DC_STATUS_DELETING,
    DC_STATUS_DEGRADED,
    DC_STATUS_OTHER, /* a word of a later version */
} dc_status_t;
const char *dc_status_name(dc_status_t status);

enum { DC_CAN_EXEC = 1, DC_CAN_UPLOAD = 2, DC_CAN_DOWNLOAD = 4, DC_CAN_ALL = 7 };

typedef struct {
    char id[LEDGER_PROVIDER_ID_MAX + 1];
    char name[DC_NAME_MAX + 1]; /* ours: displayName, or core.name */
    bool is_resource_named;     /* REST: `name` is "sandboxes/" and the ID */
    dc_status_t status;
    char etag[DC_ETAG_MAX + 1]; /* quotes included; "" when there is none that could be sent back */
    char failure[DC_FAILURE_MAX + 1];
    /* the endpoint */
    char uri[BASE_URL_MAX + 1]; /* "" while there is none */
    bool has_bad_protocol, is_endpoint_ours, is_scoped_bearer, is_v1;
    char audience[DC_AUDIENCE_MAX + 1];
    unsigned capabilities;
    /* what it is made of */
    bool has_resources;
    uint64_t cpus, memory_mib;
    char image_ref[DC_REFERENCE_MAX + 1];
    char image_digest[DC_DIGEST_MAX + 1]; /* as reported: Connect alone */
    bool has_timeouts, is_deleted_on_timeout, is_auto_resumed;
    uint64_t timeout_ms; /* 0 = not told */
} dc_sandbox_t;

/* NULL, or what makes no sense in it: a literal. A field that is absent is empty in `out`; what must be there is
 * dc_sandbox_problem's to say. The ID alone is filled even when something else is malformed, so that the sandbox can be
 * deleted. */
const char *dc_sandbox_read(dc_api_t api, const json_t *json, dc_sandbox_t *out);
/* An ID that can go into a path: 1 to LEDGER_PROVIDER_ID_MAX of [A-Za-z0-9_.-], the first no dot. */
bool dc_is_id(const char *text);

/* Running, and with an endpoint. */
bool dc_sandbox_is_ready(const dc_sandbox_t *sandbox);
/* A new one in this state never becomes ready. */
bool dc_sandbox_is_over(const dc_sandbox_t *sandbox);

typedef enum {
    DC_SAME,
    DC_DIFFERENT, /* not what was asked for: ours, to be deleted */
    DC_NOT_OURS,  /* it may be another run's: never to be deleted by its ID */
} dc_match_t;
/* A running sandbox against what was asked for under `name`, to live for `life_ms`. `why` is a literal. */
dc_match_t dc_sandbox_match(const dc_settings_t *settings, const char *name, uint64_t life_ms,
                            const dc_sandbox_t *sandbox, const char **why);

#endif
