/* Which thing a path names. */
#ifndef GATEWAY_ROUTE_H
#define GATEWAY_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    ROUTE_NONE,
    ROUTE_HEALTHZ,
    ROUTE_READYZ,
    ROUTE_METRICS,
    ROUTE_DESCRIBE,
    ROUTE_RUN,
    ROUTE_OPEN_SESSION,
    ROUTE_SESSION_RUN,
    ROUTE_CLOSE_SESSION,
    ROUTE_UNKNOWN_PROCEDURE, /* under the service's path, and none of the five */
    ROUTE_BACKENDS,          /* GET /v1/backends */
    ROUTE_LOG_HEAD,          /* GET /v1/log/head */
    ROUTE_LOG_INCLUSION,     /* GET /v1/log/inclusion */
    ROUTE_LOG_CONSISTENCY,   /* GET /v1/log/consistency */
    ROUTE_RUNS,              /* GET /v1/runs */
    ROUTE_RUN_RECORD,        /* GET /v1/runs/ID */
    ROUTE_RUN_BY_KEY,        /* GET /v1/runs/by-key/KEY */
    ROUTE_USAGE,             /* GET /v1/usage */
} route_kind_t;

enum { ROUTE_NAME_MAX = 64 };

typedef struct {
    route_kind_t kind;
    bool pinned;                   /* under /backends/NAME */
    char backend[ROUTE_NAME_MAX];  /* NAME, "" when not pinned */
    char argument[ROUTE_NAME_MAX]; /* ID of ROUTE_RUN_RECORD */
    const char *key;               /* KEY of ROUTE_RUN_BY_KEY as it stands in the path, which must live as long */
    size_t key_len;
} route_t;

/* `prefix` is "" or "/x"; health paths are known with and without it. A name or ID that is too long or has other
 * characters than [A-Za-z0-9._-] makes it ROUTE_NONE. */
void route_parse(const char *path, size_t len, const char *prefix, size_t prefix_len, route_t *out);
bool route_is_procedure(route_kind_t kind);
/* Whether a caller must authenticate for it. */
bool route_needs_caller(route_kind_t kind);

#endif
