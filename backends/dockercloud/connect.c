/* The API that came first: Connect RPC, JSON both ways; commands and files at the sandbox's endpoint, with the same
 * bearer (spec 3). */
#include <stdio.h>
#include <string.h>

#include "backends/cloud/cloud_frames.h"
#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/api.h"
#include "backends/dockercloud/requests.h"
#include "core/clock.h"

#define SANDBOX_SERVICE "/docker.sbx.v1.SandboxService/"
#define OPERATION_SERVICE "/docker.sbx.v1.OperationService/"

/* --- calls --- */

typedef struct {
    const char *base, *procedure;
    cloud_repeat_t repeat;
    bool may_repeat_denied;
    uint32_t limit_ms; /* 0 = DC_CALL_MS */
    uint64_t deadline_us;
    size_t response_max;
} rpc_t;

/* A unary call; takes the body. `fits`: it was made whole. */
static json_t *call(dc_t *dc, const rpc_t *rpc, bool fits, buffer_t *body, dc_refused_t *refused,
                    cloud_trouble_t *trouble)
{
    buffer_t url;
    json_t *json = NULL;
    buffer_init(&url, CLOUD_URL_MAX);
    *refused = (dc_refused_t){.code = DC_CODE_NONE};
    if (fits && dc_url(&url, rpc->base, rpc->procedure, NULL)) {
        const dc_call_t out = {.method = "POST",
                               .path = (const char *)url.base,
                               .body = body->base,
                               .body_len = body->len,
                               .repeat = rpc->repeat,
                               .may_repeat_denied = rpc->may_repeat_denied,
                               .limit_ms = rpc->limit_ms > 0 ? rpc->limit_ms : DC_CALL_MS,
                               .deadline_us = rpc->deadline_us,
                               .response_max = rpc->response_max};
        json = dc_call_json(dc, &out, refused, trouble);
    } else {
        cloud_trouble(trouble, CLOUD_NOTHING, "the request is too long", NULL);
    }
    buffer_dispose(body);
    buffer_dispose(&url);
    return json;
}

/* One that changes nothing. */
static json_t *read_call(dc_t *dc, const char *procedure, bool fits, buffer_t *body, uint64_t deadline_us,
                         dc_refused_t *refused, cloud_trouble_t *trouble)
{
    const rpc_t rpc = {.base = dc->settings.api_url,
                       .procedure = procedure,
                       .repeat = CLOUD_READ,
                       .deadline_us = deadline_us,
                       .response_max = CLOUD_PAGE_MAX};
    return call(dc, &rpc, fits, body, refused, trouble);
}

/* --- operations --- */

static json_t *wait_slice(dc_t *dc, const char *id, bool by_looking, uint64_t deadline_us, dc_refused_t *refused,
                          cloud_trouble_t *trouble)
{
    enum { AROUND_MS = 5 * 1000 }; /* of a slice's call beyond the slice */
    uint32_t left_ms = cloud_left_ms(deadline_us), slice_ms = left_ms < DC_WAIT_SLICE_MS ? left_ms : DC_WAIT_SLICE_MS;
    buffer_t body;
    buffer_init(&body, DC_BODY_MAX);
    const rpc_t rpc = {.base = dc->settings.api_url,
                       .procedure = by_looking ? OPERATION_SERVICE "GetOperation" : OPERATION_SERVICE "WaitOperation",
                       .repeat = CLOUD_READ,
                       .limit_ms = slice_ms + AROUND_MS,
                       .deadline_us = deadline_us};
    return call(dc, &rpc, dc_ask_operation(&body, id, by_looking ? 0 : slice_ms), &body, refused, trouble);
}

/* Until `operation` is done. Takes the JSON it lies in and gives another one back, to json_decref; NULL with the
 * trouble. */
static json_t *await_operation(dc_t *dc, json_t *json, dc_operation_t *operation, uint64_t deadline_us,
                               cloud_trouble_t *trouble)
{
    char id[DC_OPERATION_ID_MAX + 1];
    bool by_looking = false;
    dc_refused_t refused;
    const char *why = dc_operation_read(json, operation);

    snprintf(id, sizeof(id), "%s", operation->id);
    while (why == NULL && !operation->is_done) {
        json_decref(json);
        json = wait_slice(dc, id, by_looking, deadline_us, &refused, trouble);
        if (json == NULL && !by_looking && refused.code == CODE_UNIMPLEMENTED) {
            by_looking = true;
            *operation = (dc_operation_t){.is_done = false};
            continue;
        }
        if (json == NULL)
            return NULL;
        why = dc_operation_read(json, operation);
        if (why != NULL || operation->is_done)
            break;
        if (by_looking && !cloud_sleep_ms(DC_POLL_MS, deadline_us)) {
            json_decref(json);
            cloud_trouble(trouble, CLOUD_CANCELED, "the run was stopped", "while an operation was waited for");
            return NULL;
        }
    }
    if (why == NULL)
        return json;
    json_decref(json);
    dc_senseless(trouble, why);
    return NULL;
}

/* --- remove --- */

static bool is_told(const dc_refused_t *refused, code_t code)
{
    return refused->is_told && refused->code == code;
}

typedef enum { ENDED, WAS_NOT_THERE, NOT_ENDED } ending_t;

static ending_t delete_it(dc_t *dc, const char *id, const char *name, uint32_t tries, uint64_t deadline_us,
                          cloud_trouble_t *trouble)
{
    buffer_t body;
    dc_operation_t operation;
    dc_refused_t refused;
    buffer_init(&body, DC_BODY_MAX);
    const rpc_t rpc = {.base = dc->settings.api_url,
                       .procedure = SANDBOX_SERVICE "DeleteSandbox",
                       .repeat = CLOUD_ONCE,
                       .may_repeat_denied = true,
                       .deadline_us = deadline_us};
    json_t *json = call(dc, &rpc, dc_ask_delete(&body, id, name, tries), &body, &refused, trouble);
    if (json == NULL)
        return is_told(&refused, CODE_NOT_FOUND) ? WAS_NOT_THERE : NOT_ENDED;
    json = await_operation(dc, json, &operation, deadline_us, trouble);
    if (json == NULL)
        return NOT_ENDED;
    json_decref(json);
    if (!operation.has_failed)
        return ENDED;
    if (operation.refused.code == CODE_NOT_FOUND)
        return WAS_NOT_THERE;
    dc_refused_trouble(dc, NULL, &operation.refused, trouble);
    return NOT_ENDED;
}

static json_t *get_sandbox(dc_t *dc, const char *id, const char *name, uint64_t deadline_us, dc_refused_t *refused,
                           cloud_trouble_t *trouble)
{
    buffer_t body;
    buffer_init(&body, DC_BODY_MAX);
    bool fits = dc_ask_get(&body, id, name);
    return read_call(dc, SANDBOX_SERVICE "GetSandbox", fits, &body, deadline_us, refused, trouble);
}

/* A finished operation is the service's word; that it is gone is seen by looking. One that is neither gone nor going
 * after a few looks was not deleted: the next try comes. */
static sandbox_removal_t await_gone(dc_t *dc, const char *id, const char *name, uint64_t deadline_us,
                                    cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    dc_sandbox_t sandbox = {.status = DC_STATUS_NONE};
    uint32_t pause_ms = 0;
    for (int idle = 0; idle < DC_LOOKS_MAX;) {
        json_t *json = get_sandbox(dc, id, name, deadline_us, &refused, trouble);
        if (json == NULL)
            return is_told(&refused, CODE_NOT_FOUND) && dc_knows_base(dc, deadline_us, trouble) ? SANDBOX_GONE
                                                                                                : SANDBOX_THERE;
        dc_sandbox_read(DC_CONNECT, json, &sandbox);
        json_decref(json);
        idle += sandbox.status != DC_STATUS_DELETING;
        if (!dc_wait_for_look(&pause_ms, deadline_us))
            break;
    }
    cloud_trouble(trouble, CLOUD_LATE, "the sandbox is still there after its deletion", dc_status_name(sandbox.status));
    return SANDBOX_THERE;
}

static sandbox_removal_t connect_remove(dc_t *dc, char id[LEDGER_PROVIDER_ID_MAX + 1], const char *name, uint32_t tries,
                                        uint64_t deadline_us, cloud_trouble_t *trouble)
{
    switch (delete_it(dc, id, name, tries, deadline_us, trouble)) {
    case ENDED:
        return await_gone(dc, id, name, deadline_us, trouble);
    case WAS_NOT_THERE:
        if (!dc_knows_base(dc, deadline_us, trouble))
            return SANDBOX_THERE;
        /* By name alone it may still come to be; by its ID a look settles it. */
        return id[0] == '\0' ? SANDBOX_UNSEEN : await_gone(dc, id, name, deadline_us, trouble);
    case NOT_ENDED:
        break;
    }
    return SANDBOX_THERE;
}

/* --- create --- */

static json_t *send_create(dc_t *dc, cloud_box_t *box, const char *name, cloud_trouble_t *trouble)
{
    buffer_t body;
    dc_refused_t refused;
    buffer_init(&body, DC_BODY_MAX);
    const rpc_t rpc = {.base = dc->settings.api_url,
                       .procedure = SANDBOX_SERVICE "CreateSandbox",
                       .repeat = CLOUD_ONCE,
                       .may_repeat_denied = true, /* under the same key */
                       .deadline_us = box->deadline_us};
    bool fits = dc_ask_create(&body, &dc->settings, name, box->life_ms);
    json_t *json = call(dc, &rpc, fits, &body, &refused, trouble);
    if (json == NULL && (trouble->fault == CLOUD_MISSING || is_told(&refused, CODE_FAILED_PRECONDITION)))
        trouble->fault = CLOUD_DENIED;
    return json;
}

/* The create was taken and then came to nothing. What is left of it, if anything, goes at once. The refusal is certain
 * when a look shows that nothing is there: what a deletion answers proves nothing. */
static bool refuse_operation(dc_t *dc, cloud_box_t *box, const dc_operation_t *operation, const char *name,
                             cloud_trouble_t *trouble)
{
    cloud_trouble_t removal;
    dc_refused_trouble(dc, NULL, &operation->refused, trouble);
    if (dc_code_is_unsure(operation->refused.code))
        return dc_accepted_trouble(box, trouble);
    if (trouble->fault == CLOUD_MISSING || trouble->fault == CLOUD_NOTHING)
        trouble->fault = CLOUD_DENIED;
    uint64_t end_us = clock_mono_us() + (uint64_t)DC_UNMAKE_MS * 1000;
    if (end_us > box->deadline_us)
        end_us = box->deadline_us;
    if (delete_it(dc, "", name, 0, end_us, &removal) == NOT_ENDED ||
        await_gone(dc, "", name, end_us, &removal) != SANDBOX_GONE)
        return dc_accepted_trouble(box, trouble);
    return false;
}

static bool look(dc_t *dc, cloud_box_t *box, const char *name, cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    json_t *json = get_sandbox(dc, box->id, name, box->deadline_us, &refused, trouble);
    bool is_taken = json != NULL && dc_take_created(dc, box, json, trouble);
    json_decref(json);
    if (!is_taken && trouble->fault == CLOUD_MISSING)
        cloud_trouble(trouble, CLOUD_LOST, "Docker Cloud's sandbox vanished while it was starting", NULL);
    return is_taken;
}

static bool await_ready(dc_t *dc, cloud_box_t *box, const char *name, bool is_told_now, cloud_trouble_t *trouble)
{
    const dc_sandbox_t *sandbox = &dc_own(box)->sandbox;
    uint32_t pause_ms = 0;
    while (!dc_sandbox_is_ready(sandbox)) {
        if (is_told_now &&
            (!dc_may_become_ready(dc, sandbox, trouble) || !dc_pause(box, &pause_ms, sandbox->status, trouble)))
            return false;
        is_told_now = true;
        if (!look(dc, box, name, trouble) && trouble->fault != CLOUD_NOTHING && trouble->fault != CLOUD_BUSY)
            return dc_accepted_trouble(box, trouble);
    }
    return true;
}

static bool connect_create(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    char name[DC_NAME + 1];
    dc_operation_t operation;
    dc_box_name(box, name);
    json_t *json = send_create(dc, box, name, trouble);
    if (json == NULL)
        return false;
    json = await_operation(dc, json, &operation, box->deadline_us, trouble);
    if (json == NULL)
        return dc_accepted_trouble(box, trouble);
    bool is_refused = operation.has_failed;
    bool is_taken =
        !is_refused && (operation.response == NULL || dc_take_created(dc, box, operation.response, trouble));
    bool is_told_now = operation.response != NULL;
    json_decref(json);
    if (is_refused)
        return refuse_operation(dc, box, &operation, name, trouble);
    return is_taken && await_ready(dc, box, name, is_told_now, trouble);
}

static bool connect_policy(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    buffer_t body;
    dc_refused_t refused;
    buffer_init(&body, DC_BODY_MAX);
    bool fits = dc_ask_policy(&body, box->id);
    json_t *json = read_call(dc, "/docker.sbx.v1.NetworkPolicyService/GetEffectiveNetworkPolicy", fits, &body,
                             box->deadline_us, &refused, trouble);
    return dc_judge_policy(DC_CONNECT, json, trouble);
}

/* --- the endpoint --- */

static bool connect_exec(dc_t *dc, cloud_box_t *box, const dc_command_t *command, dc_exec_t *out, bool *is_flood,
                         cloud_trouble_t *trouble)
{
    return dc_endpoint_exec(dc, box, "/docker.sbx.process.v1.ProcessService/Exec", command, out, is_flood, trouble);
}

/* --- streams --- */

typedef struct {
    dc_t *dc;
    /* One message; NULL for what could not be read as one. False stops. */
    bool (*on_message)(void *data, const json_t *json);
    void *data;
    cloud_frames_t frames;
    const char *problem;
    bool has_failed;
    dc_refused_t refused;
} stream_t;

static bool on_payload(void *data, const uint8_t *payload, size_t len, bool is_end)
{
    stream_t *stream = data;
    const char *why;
    json_t *json = cloud_json_read(payload, len, &why);
    bool goes_on = json != NULL;
    if (json == NULL) {
        stream->problem = why;
    } else if (is_end) {
        const json_t *error = json_object_get(json, "error");
        stream->has_failed = error != NULL && !json_is_null(error);
        if (stream->has_failed)
            dc_refused_of(error, &stream->refused);
    } else {
        goes_on = stream->on_message(stream->data, json);
    }
    json_decref(json);
    return goes_on;
}

static bool on_bytes(void *data, const uint8_t *bytes, size_t len)
{
    stream_t *stream = data;
    cloud_frames_state_t state = cloud_frames_take(&stream->frames, bytes, len);
    return state == CLOUD_FRAMES_MORE || state == CLOUD_FRAMES_ENDED;
}

/* What the end of the stream means. */
static bool judge_stream(stream_t *stream, bool is_done, cloud_trouble_t *trouble)
{
    cloud_frames_state_t state = cloud_frames_state(&stream->frames);
    if (stream->has_failed)
        return dc_refused_trouble(stream->dc, NULL, &stream->refused, trouble);
    if (stream->problem != NULL)
        return dc_senseless(trouble, stream->problem);
    if (state == CLOUD_FRAMES_FLOOD || state == CLOUD_FRAMES_BROKEN)
        return dc_senseless(trouble, "a frame is compressed, too long or unknown");
    if (!is_done)
        return false;
    return state == CLOUD_FRAMES_ENDED ||
           cloud_trouble(trouble, CLOUD_LOST, "Docker Cloud's answer was cut", "no frame for its end");
}

/* Takes the body. */
static bool stream_call(stream_t *stream, cloud_box_t *box, const char *procedure, buffer_t *body, bool fits,
                        cloud_repeat_t repeat, size_t response_max, bool *is_cut, cloud_trouble_t *trouble)
{
    enum { FRAME_MAX = CLOUD_FRAME_MAX };
    buffer_t url;
    cloud_answer_t answer = {.tries = 0};
    dc_refused_t refused;
    bool is_done = false;

    *is_cut = false;
    cloud_frames_init(&stream->frames, FRAME_MAX, CLOUD_FRAMES_TOTAL_MAX, on_payload, stream);
    if (dc_endpoint_url(box, &url, procedure) && fits) {
        const dc_call_t call = {.method = "POST",
                                .path = (const char *)url.base,
                                .box = box,
                                .type = "application/connect+json",
                                .body = body->base,
                                .body_len = body->len,
                                .repeat = repeat,
                                .deadline_us = box->deadline_us,
                                .response_max = response_max,
                                .on_data = on_bytes,
                                .data = stream};
        is_done = dc_call(stream->dc, &call, &answer, &refused, trouble);
        *is_cut = dc_is_flood(&answer);
        is_done = judge_stream(stream, is_done, trouble);
    } else {
        cloud_trouble(trouble, CLOUD_NOTHING, "the files are too large together", NULL);
    }
    cloud_frames_dispose(&stream->frames);
    cloud_answer_dispose(&answer);
    buffer_dispose(body);
    buffer_dispose(&url);
    return is_done;
}

typedef struct {
    stream_t stream;
    size_t expected, messages;
} uploading_t;

static bool on_written(void *data, const json_t *json)
{
    uploading_t *uploading = data;
    const char *why = dc_written_read(json, uploading->expected);
    if (why == NULL && uploading->messages++ > 0)
        why = "the upload was answered twice";
    uploading->stream.problem = why;
    return why == NULL;
}

static bool connect_upload(dc_t *dc, cloud_box_t *box, const cloud_file_t *files, size_t count,
                           cloud_trouble_t *trouble)
{
    uploading_t uploading = {.stream = {.dc = dc, .on_message = on_written}, .expected = count};
    buffer_t body;
    bool is_cut;
    uploading.stream.data = &uploading;
    buffer_init(&body, DC_UPLOAD_MAX);
    bool fits = dc_upload_frames(&body, files, count);
    if (!stream_call(&uploading.stream, box, "/docker.sbx.files.v1.FileService/Upload", &body, fits, CLOUD_ONCE,
                     CLOUD_OBJECT_MAX, &is_cut, trouble))
        return false;
    return uploading.messages == 1 || dc_senseless(trouble, "the upload was not answered");
}

typedef struct {
    stream_t stream;
    download_t *download;
} downloading_t;

static bool take_data(downloading_t *downloading, const json_t *data)
{
    buffer_t bytes;
    buffer_init(&bytes, CLOUD_FRAME_MAX);
    bool goes_on = cloud_json_bytes(data, CLOUD_FRAME_MAX, &bytes);
    if (!goes_on)
        downloading->stream.problem = "a file's bytes are malformed";
    goes_on = goes_on && download_bytes(downloading->download, bytes.base, bytes.len);
    buffer_dispose(&bytes);
    return goes_on;
}

/* {"header":{"path","mode"}}, {"data":"..."} or {"error":{...}}: whether that one names its path is not known. */
static bool on_file(void *data, const json_t *json)
{
    downloading_t *downloading = data;
    const json_t *header = json_object_get(json, "header"), *error = json_object_get(json, "error");
    const char *path = cloud_json_text(header != NULL ? header : error, "path");
    bool goes_on;
    if (header != NULL || error != NULL) {
        if (path == NULL && header != NULL) {
            downloading->stream.problem = "a file's description has no path";
            return false;
        }
        goes_on =
            header != NULL ? download_file(downloading->download, path) : download_absent(downloading->download, path);
    } else {
        goes_on = take_data(downloading, json_object_get(json, "data"));
    }
    if (!goes_on && downloading->stream.problem == NULL)
        downloading->stream.problem = downloading->download->problem;
    return goes_on;
}

static bool connect_download(dc_t *dc, cloud_box_t *box, download_t *download, cloud_trouble_t *trouble)
{
    enum { AROUND_MAX = 2 * 1024 * 1024 };
    downloading_t downloading = {.stream = {.dc = dc, .on_message = on_file}, .download = download};
    size_t count = download->plan->artifact_count;
    const char *paths[GUEST_ARTIFACTS_MAX] = {NULL};
    buffer_t body;
    bool is_cut;

    download_begin(download);
    for (int at = download_next(download, 0); at >= 0; at = download_next(download, (size_t)at + 1)) {
        paths[at] = download->plan->artifact_paths[at];
        download_ask(download, (size_t)at);
    }
    downloading.stream.data = &downloading;
    buffer_init(&body, DC_BODY_MAX * 2);
    bool fits = dc_download_frame(&body, paths, count);
    bool is_done = stream_call(&downloading.stream, box, "/docker.sbx.files.v1.FileService/Download", &body, fits,
                               CLOUD_READ, download_bytes_max(download) / 3 * 4 + AROUND_MAX, &is_cut, trouble);
    if (is_done)
        download_end(download);
    else if (is_cut && downloading.stream.problem == NULL)
        return download_cut(download) || dc_senseless(trouble, "the files' descriptions are endless");
    return is_done;
}

/* --- the account --- */

static json_t *connect_page(dc_t *dc, const char *page_token, dc_page_t *page, uint64_t deadline_us,
                            cloud_trouble_t *trouble)
{
    buffer_t body;
    dc_refused_t refused;
    buffer_init(&body, DC_BODY_MAX);
    bool fits = dc_ask_page(&body, page_token);
    json_t *json = read_call(dc, SANDBOX_SERVICE "ListSandboxes", fits, &body, deadline_us, &refused, trouble);
    return dc_judge_page(json, page, trouble);
}

static bool connect_preflight(dc_t *dc, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    buffer_t body;
    dc_refused_t refused;
    buffer_init(&body, DC_BODY_MAX);
    bool fits = buffer_append_str(&body, "{}");
    json_t *json =
        read_call(dc, "/docker.sbx.v1.CapabilityService/GetCapabilities", fits, &body, deadline_us, &refused, trouble);
    if (json == NULL)
        return false;
    const char *why = dc_capabilities_problem(json, &dc->settings.size);
    json_decref(json);
    return why == NULL ||
           cloud_trouble(trouble, CLOUD_DENIED, "Docker Cloud does not give what the gateway is set to ask for", why);
}

const dc_api_ops_t DC_CONNECT_OPS = {
    .create = connect_create,
    .policy = connect_policy,
    .exec = connect_exec,
    .upload = connect_upload,
    .download = connect_download,
    .remove = connect_remove,
    .page = connect_page,
    .preflight = connect_preflight,
};
