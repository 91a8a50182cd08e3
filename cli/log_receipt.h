/* The receipt that stands in the log for a run whose outcome is unknown: what the leaf's digest is made of. */
#ifndef CLI_LOG_RECEIPT_H
#define CLI_LOG_RECEIPT_H

#include <stdbool.h>
#include <jansson.h>

#include "core/sha256.h"

/* The digest of a receipt as GET /v1/log/inclusion gives it. NULL, or why it is none. */
const char *log_receipt_digest(const json_t *receipt, char out[SHA256_HEX + 1]);
/* Whether a run as GET /v1/runs/ID gives it is the receipt's. */
bool log_receipt_is_of(const json_t *receipt, const json_t *run);

#endif
