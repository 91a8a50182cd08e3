#include "cli/log_pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/call.h"
#include "cli/stored_run.h"

enum { PATH_MAX_BYTES = 160 };

bool log_pages_open(log_pages_t *pages, const attest_options_t *options)
{
    char error[CONNECTION_ERROR_MAX];
    *pages = (log_pages_t){.options = options};
    if (connection_open(&options->connection, &pages->connection, error))
        return true;
    attest_fail(options, "%s", error);
    return false;
}

void log_pages_close(log_pages_t *pages)
{
    connection_dispose(&pages->connection);
}

static json_t *get(const log_pages_t *pages, const char *path)
{
    failure_t failure;
    json_t *page = call_get(&pages->connection, path, &failure);
    if (page == NULL)
        attest_fail(pages->options, "%s: %s", failure.code, failure.message);
    return page;
}

json_t *log_pages_head(const log_pages_t *pages)
{
    return get(pages, "/v1/log/head");
}

json_t *log_pages_inclusion(const log_pages_t *pages, const char *run_id, const uint64_t *size)
{
    char path[PATH_MAX_BYTES];
    if (size == NULL)
        snprintf(path, sizeof(path), "/v1/log/inclusion?run=%s", run_id);
    else
        snprintf(path, sizeof(path), "/v1/log/inclusion?run=%s&size=%" PRIu64, run_id, *size);
    return get(pages, path);
}

json_t *log_pages_consistency(const log_pages_t *pages, uint64_t first, const uint64_t *second)
{
    char path[PATH_MAX_BYTES];
    if (second == NULL)
        snprintf(path, sizeof(path), "/v1/log/consistency?first=%" PRIu64, first);
    else
        snprintf(path, sizeof(path), "/v1/log/consistency?first=%" PRIu64 "&second=%" PRIu64, first, *second);
    return get(pages, path);
}

json_t *log_pages_run(const log_pages_t *pages, const char *run_id, char record_sha256[SHA256_HEX + 1])
{
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof(path), "/v1/runs/%s", run_id);
    json_t *run = get(pages, path);
    if (run == NULL)
        return NULL;
    const char *broken = stored_run_check(run), *digest = json_string_value(json_object_get(run, "record_sha256"));
    const char *named = json_string_value(json_object_get(run, "run_id"));
    const char *verdict = json_string_value(json_object_get(run, "verdict"));
    bool is_unknown = verdict != NULL && strcmp(verdict, "unknown") == 0;
    if (broken == NULL && (named == NULL || strcmp(named, run_id) != 0))
        broken = "it is of another run";
    if (broken == NULL && !is_unknown && !json_is_object(json_object_get(run, "record")))
        broken = "there is none";
    if (broken == NULL && !is_unknown && (digest == NULL || !attest_is_digest(digest)))
        broken = "its digest is none";
    if (broken == NULL) {
        snprintf(record_sha256, SHA256_HEX + 1, "%s", is_unknown ? "" : digest);
        return run;
    }
    attest_fail(pages->options, "the run's record does not hold: %s", broken);
    json_decref(run);
    return NULL;
}
