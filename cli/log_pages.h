/* The log's pages of a gateway, as `plimsoll log` reads them: each a JSON object, or NULL with the failure told. What
 * they say is checked by whoever asked; a gateway that answers for another run or size gains nothing. */
#ifndef CLI_LOG_PAGES_H
#define CLI_LOG_PAGES_H

#include "cli/attest.h"
#include "records/attest_statement.h"

typedef struct {
    const attest_options_t *options;
    connection_t connection;
} log_pages_t;

/* false: told. */
bool log_pages_open(log_pages_t *pages, const attest_options_t *options);
void log_pages_close(log_pages_t *pages);

/* New references. `size` NULL: of the newest head. */
json_t *log_pages_head(const log_pages_t *pages);
json_t *log_pages_inclusion(const log_pages_t *pages, const char *run_id, const uint64_t *size);
json_t *log_pages_consistency(const log_pages_t *pages, uint64_t first, const uint64_t *second);
/* A run whose record, if it has one, holds; `record_sha256` is its record's digest, "" when the outcome is unknown. */
json_t *log_pages_run(const log_pages_t *pages, const char *run_id, char record_sha256[SHA256_HEX + 1]);

#endif
