#include "backends/dockercloud/download.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

typedef struct download_file download_file_t;

void download_init(download_t *d, const cloud_plan_t *plan, const guest_result_t *result)
{
    *d = (download_t){.plan = plan, .bytes_max = cloud_artifacts_left(result, plan), .at = -1};
    d->files = mem_alloc_array(plan->artifact_count + 1, sizeof(*d->files));
    for (size_t i = 0; i < plan->artifact_count; ++i) {
        d->files[i].is_wanted = true;
        buffer_init(&d->files[i].bytes, d->bytes_max);
    }
}

void download_dispose(download_t *d)
{
    for (size_t i = 0; i < d->plan->artifact_count; ++i)
        buffer_dispose(&d->files[i].bytes);
    free(d->files);
}

int download_next(const download_t *d, size_t from)
{
    for (size_t i = from; i < d->plan->artifact_count; ++i)
        if (d->files[i].is_wanted)
            return (int)i;
    return -1;
}

bool download_is_done(const download_t *d)
{
    return download_next(d, 0) < 0;
}

void download_ask(download_t *d, size_t index)
{
    d->files[index].is_asked = true;
}

size_t download_bytes_max(const download_t *d)
{
    return d->bytes_max - d->bytes;
}

static void drop(download_t *d, download_file_t *file)
{
    d->bytes -= file->bytes.len;
    buffer_dispose(&file->bytes);
}

void download_begin(download_t *d)
{
    for (size_t i = 0; i < d->plan->artifact_count; ++i) {
        download_file_t *file = &d->files[i];
        if (!file->is_wanted)
            continue;
        drop(d, file);
        file->is_asked = file->is_seen = file->is_whole = file->is_passed = false;
    }
    d->at = -1;
    d->unnamed = 0;
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
        if (d->files[i].is_wanted && d->files[i].is_asked && strcmp(d->plan->artifact_paths[i], path) == 0)
            return (int)i;
    return -1;
}

/* The file before this one is whole. */
static void close_file(download_t *d)
{
    if (d->at >= 0)
        d->files[d->at].is_whole = !d->files[d->at].is_passed;
    d->at = -1;
}

static int take_path(download_t *d, const char *path)
{
    close_file(d);
    int at = index_of(d, path);
    if (at < 0) {
        fail(d, "a file came that was not asked for");
        return -1;
    }
    if (d->files[at].is_seen) {
        fail(d, "a file came twice");
        return -1;
    }
    d->files[at].is_seen = true;
    return at;
}

bool download_file(download_t *d, const char *path)
{
    d->at = take_path(d, path);
    return d->at >= 0;
}

bool download_bytes(download_t *d, const void *bytes, size_t len)
{
    if (d->at < 0)
        return fail(d, "bytes came that are no file's");
    download_file_t *file = &d->files[d->at];
    if (len == 0 || file->is_passed)
        return true;
    if (len <= download_bytes_max(d) && buffer_append(&file->bytes, bytes, len)) {
        d->bytes += len;
        return true;
    }
    drop(d, file);
    file->is_passed = true;
    return true;
}

bool download_absent(download_t *d, const char *path)
{
    if (path != NULL)
        return take_path(d, path) >= 0;
    close_file(d);
    ++d->unnamed;
    return true;
}

static bool is_silent(const download_file_t *file)
{
    return file->is_wanted && file->is_asked && !file->is_seen;
}

static size_t count_silent(const download_t *d)
{
    size_t count = 0;
    for (size_t i = 0; i < d->plan->artifact_count; ++i)
        count += is_silent(&d->files[i]);
    return count;
}

void download_end(download_t *d)
{
    close_file(d);
    bool has_silent = count_silent(d) > d->unnamed;
    for (size_t i = 0; i < d->plan->artifact_count; ++i) {
        if (is_silent(&d->files[i]) && has_silent)
            d->files[i].is_passed = true;
        if (d->files[i].is_asked)
            d->files[i].is_wanted = false;
    }
}

bool download_cut(download_t *d)
{
    if (d->at < 0)
        return false;
    drop(d, &d->files[d->at]);
    d->files[d->at].is_passed = true;
    for (size_t i = (size_t)d->at; i < d->plan->artifact_count; ++i) {
        if (d->files[i].is_wanted && !d->files[i].is_passed)
            drop(d, &d->files[i]);
        d->files[i].is_whole = false;
        d->files[i].is_wanted = false;
    }
    d->at = -1;
    return true;
}

/* The first that does not fit ends them (spec protocol 5). */
void download_finish(download_t *d, guest_result_t *result)
{
    for (size_t i = 0; i < d->plan->artifact_count && !result->is_artifacts_truncated; ++i) {
        if (d->files[i].is_passed)
            result->is_artifacts_truncated = true;
        else if (d->files[i].is_whole)
            cloud_artifact_add(result, d->plan, i, &d->files[i].bytes);
    }
}
