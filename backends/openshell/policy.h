/*
 * The policy of a sandbox (spec backend-openshell 3): the one a run gets, its encoding, and the hash a gateway reports
 * for it, computed here. A hash that is only compared with another answer of the gateway's would prove nothing.
 */
#ifndef BACKENDS_OPENSHELL_POLICY_H
#define BACKENDS_OPENSHELL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"
#include "core/sha256.h"

enum {
    POLICY_PATHS_MAX = 16,
    POLICY_BYTES_MAX = 4096, /* of an encoding */
};

typedef struct {
    bool include_workdir;
    const char *read_only[POLICY_PATHS_MAX + 1], *read_write[POLICY_PATHS_MAX + 1]; /* NULL-terminated, in order */
    const char *compatibility;
    const char *user, *group; /* both or neither: NULL = no `process`, which is something else than an empty one */
} policy_t;

/* Of every run: nothing to write but /tmp, no network (no rule is deny-all), Landlock or no sandbox. */
extern const policy_t POLICY_RUN;

/* SandboxPolicy, fields in order, defaults omitted. False when it does not fit. */
bool policy_encode(const policy_t *policy, buffer_t *out);
/* The hash of an encoded policy, lower case hex. False: it has rules or middlewares, or is no message; such a one is
 * never ours. */
bool policy_hash(const uint8_t *encoded, size_t len, char hex[SHA256_HEX + 1]);

#endif
