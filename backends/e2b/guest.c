/* The data plane: what goes to and comes from the daemon inside a sandbox, over HTTP (2.1, 2.2, 2.7, 2.8). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/e2b/e2b_internal.h"
#include "backends/e2b/upload.h"
#include "config/version.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/sha256.h"

enum {
    GUEST_PATH_MAX = 4 * 1024,    /* of a URL, escapes included */
    SUMS_STREAM_MAX = 512 * 1024, /* of sha256sum: a line a file, each below 1 KiB */
    ARTIFACT_MS = 10 * 1000,      /* of one: a FIFO put in its place would never answer */
};

/* --- where, and with what --- */

bool e2b_guest_url(const e2b_t *e2b, const cloud_box_t *box, const char *path, buffer_t *out)
{
    bool fits = e2b->sandboxes[0] != '\0' ? buffer_append_str(out, e2b->sandboxes)
                                          : buffer_printf(out, "https://%d-%s.%s", E2B_ENVD_PORT, box->id, e2b->domain);
    return fits && buffer_append_str(out, path);
}

void e2b_headers_add(e2b_headers_t *headers, const char *fmt, ...)
{
    va_list args;
    if (headers->count == E2B_HEADERS_MAX)
        mem_fatal("too many headers");
    va_start(args, fmt);
    int len = vsnprintf(headers->texts[headers->count], E2B_HEADER_BYTES, fmt, args);
    va_end(args);
    if (len < 0 || len >= E2B_HEADER_BYTES)
        mem_fatal("a header that is too long");
    headers->lines[headers->count] = headers->texts[headers->count];
    ++headers->count;
}

void e2b_headers_begin(e2b_headers_t *headers, const cloud_box_t *box)
{
    const e2b_box_t *own = box->own;
    memset(headers, 0, sizeof(*headers));
    e2b_headers_add(headers, "E2b-Sandbox-Id: %s", box->id);
    e2b_headers_add(headers, "E2b-Sandbox-Port: %d", E2B_ENVD_PORT);
    e2b_headers_add(headers, "User-Agent: plimsoll/" PLIMSOLL_VERSION);
    cloud_header_make(&headers->token, "X-Access-Token: ", own->token);
    headers->lines[headers->count++] = headers->token.line;
}

void e2b_headers_wipe(e2b_headers_t *headers)
{
    cloud_header_wipe(&headers->token);
}

cloud_secrets_t e2b_box_secrets(const e2b_t *e2b, const cloud_box_t *box)
{
    cloud_secrets_t secrets = e2b->secrets;
    cloud_secrets_add(&secrets, ((const e2b_box_t *)box->own)->token);
    return secrets;
}

typedef struct {
    const char *method, *path;
    const char *content_type; /* of the body; NULL without one */
    const void *body;
    size_t body_len;
    cloud_repeat_t repeat;
    uint32_t limit_ms;
    int promised; /* the one status of success; 0 = any */
    size_t response_max;
    const char *more[2]; /* further header lines, or NULL */
    int also_fine[4];
} guest_call_t;

static bool call(e2b_t *e2b, const cloud_box_t *box, const guest_call_t *call, cloud_answer_t *answer,
                 cloud_trouble_t *trouble)
{
    e2b_headers_t *headers = mem_alloc(sizeof(*headers));
    cloud_secrets_t secrets = e2b_box_secrets(e2b, box);
    buffer_t url;
    buffer_init(&url, BASE_URL_MAX + GUEST_PATH_MAX);
    if (!e2b_guest_url(e2b, box, call->path, &url))
        mem_fatal("a path of the data plane is too long");
    e2b_headers_begin(headers, box);
    if (call->content_type != NULL)
        e2b_headers_add(headers, "Content-Type: %s", call->content_type);
    for (size_t i = 0; i < 2 && call->more[i] != NULL; ++i)
        e2b_headers_add(headers, "%s", call->more[i]);
    cloud_request_t request = {.method = call->method,
                               .url = (const char *)url.base,
                               .headers = headers->lines,
                               .header_count = headers->count,
                               .body = call->body,
                               .body_len = call->body_len,
                               .repeat = call->repeat,
                               .limit_ms = call->limit_ms,
                               .deadline_us = box->deadline_us,
                               .response_max = call->response_max,
                               .secrets = &secrets};
    memcpy(request.also_fine, call->also_fine, sizeof(request.also_fine));
    bool is_fine = cloud_call(e2b->http, &request, answer, trouble);
    if (is_fine && call->promised != 0 && answer->http.status != call->promised)
        is_fine =
            cloud_trouble(trouble, CLOUD_PROTOCOL, "the sandbox's daemon answered in another way than promised", NULL);
    /* The token is the sandbox's own, and was just given to us: that it is not taken is no matter of the operator's. */
    if (!is_fine && trouble->fault == CLOUD_DENIED)
        trouble->fault = CLOUD_PROTOCOL;
    e2b_headers_wipe(headers);
    free(headers);
    buffer_dispose(&url);
    return is_fine;
}

/* A unary call of the daemon's (2.4). */
static bool unary(e2b_t *e2b, const cloud_box_t *box, const char *path, const buffer_t *body, cloud_answer_t *answer,
                  cloud_trouble_t *trouble)
{
    static const char user[] = "Authorization: Basic dXNlcjo="; /* user: - a choice of a guest's user, no secret */
    guest_call_t rpc = {.method = "POST",
                        .path = path,
                        .content_type = "application/json",
                        .body = body->base,
                        .body_len = body->len,
                        .repeat = CLOUD_READ,
                        .limit_ms = E2B_READ_MS,
                        .promised = 200,
                        .response_max = E2B_OBJECT_MAX,
                        .more = {user, "Connect-Protocol-Version: 1"}};
    return call(e2b, box, &rpc, answer, trouble);
}

/* --- stage --- */

/* The daemon is not up yet, or the sandbox is on its way from one state to another. */
static bool is_starting(const cloud_trouble_t *trouble)
{
    return trouble->status == 502 || trouble->status == 409;
}

static bool await_daemon(e2b_t *e2b, cloud_box_t *box, cloud_trouble_t *trouble)
{
    uint64_t until_us = clock_mono_us() + (uint64_t)E2B_HEALTH_MS * 1000;
    guest_call_t health = {.method = "GET",
                           .path = "/health",
                           .repeat = CLOUD_ONCE,
                           .limit_ms = E2B_READ_MS,
                           .response_max = E2B_ERROR_MAX};
    if (until_us > box->deadline_us)
        until_us = box->deadline_us;
    for (;;) {
        cloud_answer_t answer;
        bool is_up = call(e2b, box, &health, &answer, trouble);
        cloud_answer_dispose(&answer);
        if (is_up)
            return true;
        if (!is_starting(trouble) || cloud_left_ms(until_us) <= E2B_HEALTH_STEP_MS ||
            !cloud_sleep_ms(E2B_HEALTH_STEP_MS, until_us))
            return false;
    }
}

static bool make_body(const cloud_plan_t *plan, const char *boundary, buffer_t *body)
{
    buffer_init(body, plan->bytes + (plan->file_count + 1) * (size_t)E2B_PART_HEAD_MAX);
    for (size_t i = 0; i < plan->file_count; ++i)
        if (!e2b_upload_add(body, boundary, plan->files[i].path, plan->files[i].content, plan->files[i].len))
            return false;
    return e2b_upload_end(body, boundary);
}

static bool upload_once(e2b_t *e2b, cloud_box_t *box, const char *boundary, const buffer_t *body,
                        const char *const *paths, size_t count, cloud_trouble_t *trouble)
{
    char type[64 + E2B_BOUNDARY], why[E2B_TEXT_MAX];
    cloud_answer_t answer;
    snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
    guest_call_t upload = {.method = "POST",
                           .path = "/files?username=" E2B_GUEST_USER,
                           .content_type = type,
                           .body = body->base,
                           .body_len = body->len,
                           .repeat = CLOUD_ONCE,
                           .limit_ms = CLOUD_STAGE_MS,
                           .promised = 200,
                           .response_max = E2B_OBJECT_MAX};
    bool is_fine = call(e2b, box, &upload, &answer, trouble);
    if (is_fine && !e2b_written_read(answer.http.body.base, answer.http.body.len, paths, count, why))
        is_fine = cloud_trouble(trouble, CLOUD_PROTOCOL, why, NULL);
    cloud_answer_dispose(&answer);
    return is_fine;
}

/* No code of a caller's has run yet, so writing the same files twice is harmless. */
static bool upload(e2b_t *e2b, cloud_box_t *box, const cloud_plan_t *plan, const char *const *paths,
                   cloud_trouble_t *trouble)
{
    char boundary[E2B_BOUNDARY + 1];
    buffer_t body;
    e2b_boundary(boundary);
    bool is_done = make_body(plan, boundary, &body)
                       ? upload_once(e2b, box, boundary, &body, paths, plan->file_count, trouble)
                       : cloud_trouble(trouble, CLOUD_NOTHING, "a file's path cannot be written at this backend", NULL);
    if (!is_done && is_starting(trouble) && !cloud_box_is_wrong(box))
        is_done =
            await_daemon(e2b, box, trouble) && upload_once(e2b, box, boundary, &body, paths, plan->file_count, trouble);
    buffer_dispose(&body);
    return is_done;
}

static bool has_file_in(const cloud_plan_t *plan, const char *directory)
{
    size_t len = strlen(directory);
    for (size_t i = 0; i < plan->file_count; ++i)
        if (strncmp(plan->files[i].path, directory, len) == 0 && plan->files[i].path[len] == '/')
            return true;
    return false;
}

/* Directories with a file in them come with it (2.8). */
static bool make_empty_directories(e2b_t *e2b, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    bool is_fine = true;
    for (size_t i = 0; is_fine && i < plan->directory_count; ++i) {
        cloud_answer_t answer;
        buffer_t body;
        if (has_file_in(plan, plan->directories[i]))
            continue;
        buffer_init(&body, GUEST_PATH_MAX);
        if (!e2b_path_body(plan->directories[i], &body)) {
            buffer_dispose(&body);
            return cloud_trouble(trouble, CLOUD_NOTHING, "a directory's path cannot be made at this backend", NULL);
        }
        is_fine = unary(e2b, box, "/filesystem.Filesystem/MakeDir", &body, &answer, trouble) || trouble->status == 409;
        cloud_answer_dispose(&answer);
        buffer_dispose(&body);
    }
    return is_fine;
}

/* Uploads of services like this one are known to be lost without a word: what arrived is hashed in the sandbox, by a
 * program of the template's, before any code of the caller's has run there. */
static bool verify(e2b_t *e2b, cloud_box_t *box, const cloud_plan_t *plan, const char *const *paths,
                   cloud_trouble_t *trouble)
{
    char why[E2B_TEXT_MAX];
    const char **argv = mem_alloc_array(plan->file_count + 2, sizeof(*argv));
    char(*hashes)[SHA256_HEX + 1] = mem_alloc_array(plan->file_count, sizeof(*hashes));
    cloud_limits_t limits = {.stream_max = SUMS_STREAM_MAX, .output_left = 2 * SUMS_STREAM_MAX};
    guest_step_t step = {.exit_code = 0};
    argv[0] = "sha256sum";
    argv[1] = "--";
    for (size_t i = 0; i < plan->file_count; ++i) {
        argv[i + 2] = paths[i];
        sha256_hex(plan->files[i].content, plan->files[i].len, hashes[i]);
    }
    e2b_command_t command = {.argv = argv, .argc = plan->file_count + 2, .cwd = "/"};
    bool is_right = e2b_start(e2b, box, &command, box->deadline_us, &limits, &step, trouble);
    if (is_right && step.exit_code == 127)
        is_right = cloud_trouble(trouble, CLOUD_DIFFERS, "the backend's sandboxes cannot check files",
                                 "the template has no sha256sum");
    else if (is_right && step.is_timed_out)
        is_right = cloud_trouble(trouble, CLOUD_LATE, "the files could not be checked in time", NULL);
    else if (is_right && !e2b_hashes_match(step.out.base != NULL ? (const char *)step.out.base : "", step.out.len,
                                           paths, hashes, plan->file_count, why))
        is_right = cloud_trouble(trouble, CLOUD_PROTOCOL, why, NULL);
    buffer_dispose(&step.out);
    buffer_dispose(&step.err);
    free(argv);
    free(hashes);
    return is_right;
}

bool e2b_stage(void *self, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    e2b_t *e2b = e2b_check(self);
    const char **paths = mem_alloc_array(plan->file_count + 1, sizeof(*paths));
    for (size_t i = 0; i < plan->file_count; ++i)
        paths[i] = plan->files[i].path;
    bool is_staged = upload(e2b, box, plan, paths, trouble) && make_empty_directories(e2b, box, plan, trouble) &&
                     cloud_box_is_right(box, trouble) && verify(e2b, box, plan, paths, trouble);
    free(paths);
    return is_staged;
}

/* --- collect --- */

/* False with `is_there` false: no such file, or none that is taken. False with it true: trouble. */
static bool is_file(e2b_t *e2b, cloud_box_t *box, const char *path, bool *is_trouble, cloud_trouble_t *trouble)
{
    cloud_answer_t answer;
    buffer_t body;
    uint64_t size;
    bool is_taken = false;
    *is_trouble = false;
    buffer_init(&body, GUEST_PATH_MAX);
    if (!e2b_path_body(path, &body)) {
        buffer_dispose(&body);
        return false;
    }
    if (unary(e2b, box, "/filesystem.Filesystem/Stat", &body, &answer, trouble)) {
        e2b_stat_end_t end = e2b_stat_read(answer.http.body.base, answer.http.body.len, &size);
        is_taken = end == E2B_STAT_FILE;
        *is_trouble = end == E2B_STAT_UNREADABLE;
        if (*is_trouble)
            cloud_trouble(trouble, CLOUD_PROTOCOL, "the sandbox's word on a file makes no sense", NULL);
    } else {
        *is_trouble = trouble->status != 404;
    }
    cloud_answer_dispose(&answer);
    buffer_dispose(&body);
    return is_taken;
}

/* What Stat said is a claim, and may have changed: the bytes and the time are what is bounded (3.3). */
static bool fetch(e2b_t *e2b, cloud_box_t *box, const cloud_plan_t *plan, size_t index, guest_result_t *result,
                  cloud_trouble_t *trouble)
{
    size_t left = cloud_artifacts_left(result, plan);
    char more[96];
    cloud_answer_t answer;
    buffer_t path;
    buffer_init(&path, GUEST_PATH_MAX);
    if (!e2b_file_path(plan->artifact_paths[index], &path))
        mem_fatal("an artifact's path is too long");
    /* one byte past what may be kept shows that there is more */
    snprintf(more, sizeof(more), "Range: bytes=0-%zu", left);
    guest_call_t get = {.method = "GET",
                        .path = (const char *)path.base,
                        .repeat = CLOUD_READ,
                        .limit_ms = ARTIFACT_MS,
                        .response_max = left + 1,
                        .more = {more, "Accept-Encoding: identity"},
                        .also_fine = {416, 404}};
    bool is_fine = call(e2b, box, &get, &answer, trouble);
    if (is_fine && answer.http.status == 416) {
        buffer_t nothing;
        buffer_init(&nothing, 0);
        cloud_artifact_add(result, plan, index, &nothing);
    } else if (is_fine && (answer.http.status == 200 || answer.http.status == 206)) {
        cloud_artifact_add(result, plan, index, &answer.http.body);
    } else if (is_fine && answer.http.status != 404) {
        is_fine = cloud_trouble(trouble, CLOUD_PROTOCOL, "an artifact was answered in another way than promised", NULL);
    } else if (answer.http.outcome == HTTP_TOO_LARGE) {
        result->is_artifacts_truncated = true;
        is_fine = true;
    }
    cloud_answer_dispose(&answer);
    buffer_dispose(&path);
    return is_fine;
}

bool e2b_collect(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                 cloud_trouble_t *trouble)
{
    e2b_t *e2b = e2b_check(self);
    bool is_trouble = false;
    for (size_t i = 0; !is_trouble && i < plan->artifact_count; ++i)
        if (is_file(e2b, box, plan->artifact_paths[i], &is_trouble, trouble))
            is_trouble = !fetch(e2b, box, plan, i, result, trouble);
    return !is_trouble;
}

/* --- the trial --- */

/* Anybody who knows a sandbox's ID could write to it, were its daemon not secured. */
bool e2b_probe(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    e2b_t *e2b = e2b_check(self);
    char boundary[E2B_BOUNDARY + 1], type[64 + E2B_BOUNDARY];
    char id[E2B_HEADER_BYTES], port[32];
    cloud_secrets_t secrets = e2b_box_secrets(e2b, box);
    buffer_t url, body;
    cloud_answer_t answer;
    e2b_boundary(boundary);
    buffer_init(&url, BASE_URL_MAX + GUEST_PATH_MAX);
    buffer_init(&body, E2B_PART_HEAD_MAX * 2);
    if (!e2b_guest_url(e2b, box, "/files?username=" E2B_GUEST_USER, &url) ||
        !e2b_upload_add(&body, boundary, "/home/user/.unauthenticated", "x", 1) || !e2b_upload_end(&body, boundary))
        mem_fatal("a probe that cannot be written");
    if (!await_daemon(e2b, box, trouble)) {
        buffer_dispose(&url);
        buffer_dispose(&body);
        return false;
    }
    snprintf(id, sizeof(id), "E2b-Sandbox-Id: %s", box->id);
    snprintf(port, sizeof(port), "E2b-Sandbox-Port: %d", E2B_ENVD_PORT);
    snprintf(type, sizeof(type), "Content-Type: multipart/form-data; boundary=%s", boundary);
    const char *headers[] = {id, port, type, "User-Agent: plimsoll/" PLIMSOLL_VERSION};
    cloud_request_t request = {.method = "POST",
                               .url = (const char *)url.base,
                               .headers = headers,
                               .header_count = 4,
                               .body = body.base,
                               .body_len = body.len,
                               .repeat = CLOUD_ONCE,
                               .limit_ms = E2B_READ_MS,
                               .deadline_us = box->deadline_us,
                               .response_max = E2B_OBJECT_MAX,
                               .secrets = &secrets};
    bool is_written = cloud_call(e2b->http, &request, &answer, trouble);
    cloud_answer_dispose(&answer);
    buffer_dispose(&url);
    buffer_dispose(&body);
    if (is_written)
        return cloud_trouble(trouble, CLOUD_DIFFERS, "the sandbox takes files from anybody",
                             "an upload without a token was accepted");
    if (trouble->status == 401 || trouble->status == 403)
        return true;
    return false;
}
