#include "backends/dockercloud/download.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

void download_init(download_t *d, const cloud_plan_t *plan, guest_result_t *result)
{
    size_t count = plan->artifact_count;
    *d = (download_t){.plan = plan, .result = result, .at = -1};
    d->is_wanted = mem_alloc_array(count + 1, sizeof(bool));
    d->is_asked = mem_alloc_array(count + 1, sizeof(bool));
    d->is_seen = mem_alloc_array(count + 1, sizeof(bool));
    d->is_whole = mem_alloc_array(count + 1, sizeof(bool));
    d->files = mem_alloc_array(count + 1, sizeof(buffer_t));
    for (size_t i = 0; i < count; ++i)
        d->is_wanted[i] = true;
}

void download_dispose(download_t *d)
{
    for (size_t i = 0; i < d->plan->artifact_count; ++i)
        buffer_dispose(&d->files[i]);
    free(d->is_wanted);
    free(d->is_asked);
    free(d->is_seen);
    free(d->is_whole);
    free(d->files);
}

int download_next(const download_t *d, size_t from)
{
    for (size_t i = from; i < d->plan->artifact_count; ++i)
        if (d->is_wanted[i])
            return (int)i;
    return -1;
}

bool download_is_done(const download_t *d)
{
    return download_next(d, 0) < 0;
}

void download_ask(download_t *d, size_t index)
{
    d->is_asked[index] = true;
}

size_t download_bytes_max(const download_t *d)
{
    return cloud_artifacts_left(d->result, d->plan);
}

void download_begin(download_t *d)
{
    for (size_t i = 0; i < d->plan->artifact_count; ++i) {
        buffer_dispose(&d->files[i]);
        buffer_init(&d->files[i], download_bytes_max(d));
        d->is_asked[i] = d->is_seen[i] = d->is_whole[i] = false;
    }
    d->bytes = 0;
    d->at = -1;
    d->has_passed_over = false;
    d->problem = NULL;
}

static bool fail(download_t *d, const char *problem)
{
    if (d->problem == NULL)
        d->problem = problem;
    return false;
}

static int index_of(const download_t *d, const char *path)
{
    for (size_t i = 0; i < d->plan->artifact_count; ++i)
        if (d->is_asked[i] && strcmp(d->plan->artifact_paths[i], path) == 0)
            return (int)i;
    return -1;
}

/* The file before this one is whole. */
static void close_file(download_t *d)
{
    if (d->at >= 0 && !d->is_passed_over)
        d->is_whole[d->at] = true;
    d->at = -1;
}

static int take_path(download_t *d, const char *path)
{
    close_file(d);
    int at = index_of(d, path);
    if (at < 0)
        fail(d, "a file came that was not asked for");
    else if (d->is_seen[at]) {
        fail(d, "a file came twice");
        return -1;
    } else {
        d->is_seen[at] = true;
    }
    return at;
}

bool download_file(download_t *d, const char *path)
{
    d->at = take_path(d, path);
    d->is_passed_over = false;
    return d->at >= 0;
}

bool download_bytes(download_t *d, const void *bytes, size_t len)
{
    if (d->at < 0)
        return fail(d, "bytes came that are no file's");
    if (len == 0 || d->is_passed_over)
        return true;
    if (len <= download_bytes_max(d) - d->bytes && buffer_append(&d->files[d->at], bytes, len)) {
        d->bytes += len;
        return true;
    }
    d->bytes -= d->files[d->at].len;
    buffer_dispose(&d->files[d->at]);
    d->is_passed_over = d->has_passed_over = true;
    return true;
}

bool download_absent(download_t *d, const char *path)
{
    if (path != NULL)
        return take_path(d, path) >= 0;
    close_file(d);
    return true;
}

void download_end(download_t *d)
{
    close_file(d);
    d->result->is_artifacts_truncated |= d->has_passed_over;
    for (size_t i = 0; i < d->plan->artifact_count; ++i) {
        if (d->is_whole[i])
            cloud_artifact_add(d->result, d->plan, i, &d->files[i]);
        if (d->is_asked[i])
            d->is_wanted[i] = false;
    }
}

bool download_cut(download_t *d)
{
    int at = d->at;
    d->result->is_artifacts_truncated = true;
    if (at < 0)
        return false;
    d->is_wanted[at] = false;
    return true;
}
