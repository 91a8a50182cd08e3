/* The documented API: JSON over resource paths (spec 2). */
#include <stdio.h>
#include <string.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/api.h"
#include "backends/dockercloud/credential.h"
#include "backends/dockercloud/multipart.h"
#include "backends/dockercloud/requests.h"
#include "core/clock.h"

static const char SANDBOXES[] = "/v1/sandboxes";
static const char SANDBOX[] = "/v1/sandboxes/";

/* GET of a management path; the JSON to json_decref, or NULL. `etag` may be NULL. */
static json_t *get_tagged(dc_t *dc, const char *path, const char *argument, const char *rest, uint64_t deadline_us,
                          size_t response_max, char *etag, dc_refused_t *refused, cloud_trouble_t *trouble)
{
    buffer_t url;
    json_t *json = NULL;
    buffer_init(&url, CLOUD_URL_MAX);
    *refused = (dc_refused_t){.code = DC_CODE_NONE};
    if (dc_url(&url, dc->settings.api_url, path, argument) && buffer_append_str(&url, rest)) {
        const dc_call_t call = {.method = "GET",
                                .path = (const char *)url.base,
                                .repeat = CLOUD_READ,
                                .limit_ms = DC_CALL_MS,
                                .deadline_us = deadline_us,
                                .response_max = response_max,
                                .etag = etag};
        json = dc_call_json(dc, &call, refused, trouble);
    } else {
        cloud_trouble(trouble, CLOUD_NOTHING, "the address is too long", NULL);
    }
    buffer_dispose(&url);
    return json;
}

static json_t *get(dc_t *dc, const char *path, const char *argument, const char *rest, uint64_t deadline_us,
                   size_t response_max, dc_refused_t *refused, cloud_trouble_t *trouble)
{
    return get_tagged(dc, path, argument, rest, deadline_us, response_max, NULL, refused, trouble);
}

/* --- create --- */

static json_t *post_create(dc_t *dc, cloud_box_t *box, const buffer_t *url, const buffer_t *body, const char *key,
                           cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    const dc_call_t call = {.method = "POST",
                            .path = (const char *)url->base,
                            .headers = {key},
                            .body = body->base,
                            .body_len = body->len,
                            .repeat = CLOUD_ONCE,
                            .may_repeat_denied = true, /* under the same key */
                            .success = {201, 202},
                            .limit_ms = DC_CALL_MS,
                            .deadline_us = box->deadline_us};
    json_t *json = dc_call_json(dc, &call, &refused, trouble);
    /* A refusal that is no quota's, no credential's: the request itself was not taken. */
    if (json == NULL && trouble->fault == CLOUD_NOTHING && refused.code == CODE_FAILED_PRECONDITION)
        trouble->fault = CLOUD_DENIED;
    /* There is nothing yet that could be missing: the address is wrong. */
    if (json == NULL && trouble->fault == CLOUD_MISSING)
        trouble->fault = CLOUD_DENIED;
    return json;
}

static bool may_exist(const cloud_trouble_t *trouble)
{
    return trouble->fault == CLOUD_UNKNOWN || trouble->fault == CLOUD_PROTOCOL || trouble->fault == CLOUD_LATE;
}

/* Under its key the same bytes are the same create, so one whose answer was lost or made no sense is asked for again:
 * the answer then is the first one's. */
static bool create(dc_t *dc, cloud_box_t *box, const buffer_t *url, const buffer_t *body, const char *key,
                   cloud_trouble_t *trouble)
{
    bool was_unsure = false; /* one may have been made: no refusal of a later try says otherwise */
    for (;;) {
        json_t *json = post_create(dc, box, url, body, key, trouble);
        bool is_taken = json != NULL && dc_take_created(dc, box, json, trouble);
        json_decref(json);
        if (is_taken)
            return true;
        if (was_unsure)
            return dc_accepted_trouble(box, trouble);
        was_unsure = may_exist(trouble);
        bool is_ours = json == NULL || box->id[0] == '\0';
        if (!was_unsure || !is_ours || cloud_left_ms(box->deadline_us) < DC_REPLAY_MIN_MS)
            return false;
    }
}

static bool look(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    json_t *json = get(dc, SANDBOX, box->id, "", box->deadline_us, 0, &refused, trouble);
    if (json == NULL) {
        if (trouble->fault == CLOUD_MISSING)
            cloud_trouble(trouble, CLOUD_LOST, "Docker Cloud's sandbox vanished while it was starting", NULL);
        return false;
    }
    bool is_taken = dc_take_created(dc, box, json, trouble);
    json_decref(json);
    return is_taken;
}

static bool await_ready(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    const dc_sandbox_t *sandbox = &dc_own(box)->sandbox;
    uint32_t pause_ms = 0;
    while (!dc_sandbox_is_ready(sandbox)) {
        if (!dc_may_become_ready(dc, sandbox, trouble) || !dc_pause(box, &pause_ms, sandbox->status, trouble))
            return false;
        /* a look that told nothing is no news */
        if (!look(dc, box, trouble) && trouble->fault != CLOUD_NOTHING && trouble->fault != CLOUD_BUSY)
            return dc_accepted_trouble(box, trouble);
    }
    return true;
}

static bool rest_create(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    char name[DC_NAME + 1], key[DC_NAME + 32];
    buffer_t url, body;
    dc_box_name(box, name);
    snprintf(key, sizeof(key), "Idempotency-Key: %s", name);
    buffer_init(&url, CLOUD_URL_MAX);
    buffer_init(&body, DC_BODY_MAX);
    bool is_done =
        dc_url(&url, dc->settings.api_url, SANDBOXES, NULL) && dc_ask_create(&body, &dc->settings, name, box->life_ms);
    if (!is_done)
        cloud_trouble(trouble, CLOUD_DENIED, "the create would be too long", NULL);
    is_done = is_done && create(dc, box, &url, &body, key, trouble);
    buffer_dispose(&url);
    buffer_dispose(&body);
    return is_done && await_ready(dc, box, trouble);
}

/* --- check --- */

static bool rest_policy(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    json_t *json = get(dc, SANDBOX, box->id, "/network-policies", box->deadline_us, 0, &refused, trouble);
    return dc_judge_policy(DC_REST, json, trouble);
}

/* --- the endpoint --- */

static bool rest_exec(dc_t *dc, cloud_box_t *box, const dc_command_t *command, dc_exec_t *out, bool *is_flood,
                      cloud_trouble_t *trouble)
{
    return dc_endpoint_exec(dc, box, "/v1/processes/exec", command, out, is_flood, trouble);
}

static bool rest_upload(dc_t *dc, cloud_box_t *box, const cloud_file_t *files, size_t count, cloud_trouble_t *trouble)
{
    char boundary[MULTIPART_BOUNDARY_MAX + 1], type[MULTIPART_BOUNDARY_MAX + 64];
    buffer_t url, body;
    dc_refused_t refused;
    const char *why = NULL;

    multipart_boundary(boundary);
    snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
    buffer_init(&body, DC_UPLOAD_MAX);
    json_t *json = NULL;
    if (dc_endpoint_url(box, &url, "/v1/files/upload") && dc_upload_form(&body, boundary, files, count)) {
        const dc_call_t call = {.method = "POST",
                                .path = (const char *)url.base,
                                .box = box,
                                .type = type,
                                .body = body.base,
                                .body_len = body.len,
                                .repeat = CLOUD_ONCE,
                                .deadline_us = box->deadline_us};
        json = dc_call_json(dc, &call, &refused, trouble);
    } else {
        cloud_trouble(trouble, CLOUD_NOTHING, "the files are too large together", NULL);
    }
    if (json != NULL && (why = dc_written_read(json, count)) != NULL)
        dc_senseless(trouble, why);
    bool is_done = json != NULL && why == NULL;
    json_decref(json);
    buffer_dispose(&url);
    buffer_dispose(&body);
    return is_done;
}

/* --- download --- */

typedef struct {
    dc_t *dc;
    download_t *download;
    multipart_t parts;
    bool is_begun;
    dc_refused_t refused;
    bool has_failed; /* the service said that the whole answer did */
} reading_t;

static bool take_path(reading_t *reading, part_kind_t kind, const json_t *json)
{
    const char *path = cloud_json_text(json, "path");
    if (path == NULL) {
        reading->download->problem = "a file's description has no path";
        return false;
    }
    return kind == PART_METADATA ? download_file(reading->download, path) : download_absent(reading->download, path);
}

static bool on_json(void *data, part_kind_t kind, const uint8_t *body, size_t len)
{
    reading_t *reading = data;
    const char *why;
    json_t *json = cloud_json_read(body, len, &why);
    bool goes_on = false;
    if (kind == PART_STREAM_ERROR) {
        dc_refused_of(json, &reading->refused);
        reading->has_failed = true;
    } else if (json == NULL) {
        reading->download->problem = why;
    } else {
        goes_on = take_path(reading, kind, json);
    }
    json_decref(json);
    return goes_on;
}

static bool on_content(void *data, const uint8_t *bytes, size_t len, bool is_end)
{
    reading_t *reading = data;
    /* also without a byte: content that has no metadata before it */
    return download_bytes(reading->download, bytes, is_end ? 0 : len);
}

static const multipart_events_t PARTS = {.on_json = on_json, .on_content = on_content};

static bool on_bytes(void *data, const uint8_t *bytes, size_t len)
{
    reading_t *reading = data;
    multipart_state_t state = multipart_take(&reading->parts, bytes, len);
    return state == MULTIPART_MORE || state == MULTIPART_CLOSED;
}

static bool on_head(void *data, const http_response_t *response)
{
    reading_t *reading = data;
    if (response->status != 200)
        return false; /* dc_call says what that is */
    multipart_init(&reading->parts, http_response_header(response, "content-type"), &PARTS, reading);
    reading->is_begun = true;
    return reading->parts.state == MULTIPART_MORE;
}

/* "?paths=...&paths=...": as many of those wanted as an address holds; the others are asked for next. */
static bool add_paths(buffer_t *url, download_t *download)
{
    bool is_first = true;
    download_begin(download);
    for (int at = download_next(download, 0); at >= 0; at = download_next(download, (size_t)at + 1)) {
        size_t before = url->len;
        if (!buffer_append_str(url, is_first ? "?paths=" : "&paths=") ||
            !cloud_url_escape(url, download->plan->artifact_paths[at])) {
            url->len = before;
            url->base[before] = '\0';
            break;
        }
        download_ask(download, (size_t)at);
        is_first = false;
    }
    return !is_first;
}

/* What the end of the answer means; `is_cut`: it grew past its bound. */
static bool judge_download(reading_t *reading, const cloud_box_t *box, bool is_done, bool is_cut,
                           cloud_trouble_t *trouble)
{
    download_t *download = reading->download;
    if (reading->has_failed)
        return dc_refused_trouble(reading->dc, box, &reading->refused, trouble);
    if (download->problem != NULL)
        return dc_senseless(trouble, download->problem);
    if (reading->is_begun && reading->parts.state == MULTIPART_BROKEN)
        return dc_senseless(trouble, reading->parts.problem);
    if (is_cut)
        return download_cut(download) || dc_senseless(trouble, "the files' descriptions are endless");
    if (!is_done)
        return false;
    if (!reading->is_begun || reading->parts.state != MULTIPART_CLOSED)
        return cloud_trouble(trouble, CLOUD_LOST, "Docker Cloud's answer was cut", "no closing delimiter");
    download_end(download);
    return true;
}

static bool rest_download(dc_t *dc, cloud_box_t *box, download_t *download, cloud_trouble_t *trouble)
{
    enum { AROUND_MAX = 2 * 1024 * 1024 };
    reading_t reading = {.dc = dc, .download = download};
    cloud_answer_t answer = {.tries = 0};
    buffer_t url;
    dc_refused_t refused;
    bool is_done = dc_endpoint_url(box, &url, "/v1/files/download") && add_paths(&url, download);

    if (!is_done)
        cloud_trouble(trouble, CLOUD_NOTHING, "the address is too long", NULL);
    if (is_done) {
        const dc_call_t call = {.method = "GET",
                                .path = (const char *)url.base,
                                .box = box,
                                .repeat = CLOUD_READ,
                                .deadline_us = box->deadline_us,
                                .response_max = download_bytes_max(download) + AROUND_MAX,
                                .on_head = on_head,
                                .on_data = on_bytes,
                                .data = &reading};
        is_done = dc_call(dc, &call, &answer, &refused, trouble);
        is_done = judge_download(&reading, box, is_done, dc_is_flood(&answer), trouble);
    }
    if (reading.is_begun)
        multipart_dispose(&reading.parts);
    cloud_answer_dispose(&answer);
    buffer_dispose(&url);
    return is_done;
}

/* --- remove (spec 2.10) --- */

static bool is_etag(const char *text)
{
    size_t len = strlen(text);
    return len >= 2 && text[0] == '"' && text[len - 1] == '"' && strchr(text + 1, '"') == text + len - 1;
}

/* DELETE with the ETag just read. The answer proves nothing; a stale ETag is read again. */
static bool send_delete(dc_t *dc, const dc_sandbox_t *sandbox, uint64_t deadline_us, dc_refused_t *refused,
                        cloud_trouble_t *trouble)
{
    char if_match[DC_ETAG_MAX + 16];
    cloud_answer_t answer = {.tries = 0};
    buffer_t url;
    bool is_done = false;

    *refused = (dc_refused_t){.code = DC_CODE_NONE};
    if (!is_etag(sandbox->etag))
        return dc_senseless(trouble, "the sandbox has no ETag");
    snprintf(if_match, sizeof(if_match), "If-Match: %s", sandbox->etag);
    buffer_init(&url, CLOUD_URL_MAX);
    if (dc_url(&url, dc->settings.api_url, SANDBOX, sandbox->id) && buffer_append_str(&url, "?force=true")) {
        const dc_call_t call = {.method = "DELETE",
                                .path = (const char *)url.base,
                                .headers = {if_match},
                                .repeat = CLOUD_ONCE,
                                .may_repeat_denied = true,
                                .success = {202, 204},
                                .limit_ms = DC_CALL_MS,
                                .deadline_us = deadline_us};
        is_done = dc_call(dc, &call, &answer, refused, trouble);
    }
    cloud_answer_dispose(&answer);
    buffer_dispose(&url);
    return is_done;
}

typedef enum { SEEN_THERE, SEEN_DELETING, SEEN_GONE, SEEN_NOTHING } seen_t;

/* Both the header and the description have the ETag; the header is the one that a hostile description cannot spoil. */
static seen_t look_at(dc_t *dc, const char *id, dc_sandbox_t *out, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    char etag[DC_ETAG_MAX + 1] = "";
    json_t *json = get_tagged(dc, SANDBOX, id, "", deadline_us, 0, etag, &refused, trouble);
    if (json == NULL) {
        bool is_gone = refused.is_told && refused.code == CODE_NOT_FOUND && dc_knows_base(dc, deadline_us, trouble);
        return is_gone ? SEEN_GONE : SEEN_NOTHING;
    }
    const char *why = dc_sandbox_read(DC_REST, json, out);
    json_decref(json);
    if (strcmp(out->id, id) != 0) {
        dc_senseless(trouble, why != NULL ? why : "another sandbox was answered");
        return SEEN_NOTHING;
    }
    if (etag[0] != '\0')
        snprintf(out->etag, sizeof(out->etag), "%s", etag);
    return out->status == DC_STATUS_DELETING ? SEEN_DELETING : SEEN_THERE;
}

/* One that is neither gone nor going after a few looks was not deleted, whatever was answered: the next try comes. */
static sandbox_removal_t await_gone(dc_t *dc, const char *id, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    dc_sandbox_t sandbox;
    uint32_t pause_ms = 0;
    for (int idle = 0; idle < DC_LOOKS_MAX;) {
        seen_t seen = look_at(dc, id, &sandbox, deadline_us, trouble);
        if (seen == SEEN_GONE)
            return SANDBOX_GONE;
        if (seen == SEEN_NOTHING)
            return SANDBOX_THERE;
        idle += seen == SEEN_THERE;
        if (!dc_wait_for_look(&pause_ms, deadline_us))
            break;
    }
    cloud_trouble(trouble, CLOUD_LATE, "the sandbox is still there after its deletion", dc_status_name(sandbox.status));
    return SANDBOX_THERE;
}

static sandbox_removal_t remove_by_id(dc_t *dc, const char *id, const char *name, uint64_t deadline_us,
                                      cloud_trouble_t *trouble)
{
    dc_sandbox_t sandbox;
    dc_refused_t refused;
    for (int reads = 0; reads <= DC_ETAG_REREADS_MAX; ++reads) {
        switch (look_at(dc, id, &sandbox, deadline_us, trouble)) {
        case SEEN_GONE:
            return SANDBOX_GONE;
        case SEEN_DELETING:
            return await_gone(dc, id, deadline_us, trouble);
        case SEEN_NOTHING:
            return SANDBOX_THERE;
        case SEEN_THERE:
            break;
        }
        if (strcmp(sandbox.name, name) != 0) {
            dc_senseless(trouble, "the sandbox has another name");
            return SANDBOX_THERE;
        }
        if (send_delete(dc, &sandbox, deadline_us, &refused, trouble))
            return await_gone(dc, id, deadline_us, trouble);
        if (refused.code != CODE_FAILED_PRECONDITION && refused.code != CODE_NOT_FOUND)
            return SANDBOX_THERE;
    }
    return SANDBOX_THERE;
}

/* Every page, as nothing else finds a sandbox by its name. False: the listing is not whole, or it is not there. */
static bool find_by_name(dc_t *dc, const char *name, char id[LEDGER_PROVIDER_ID_MAX + 1], uint64_t deadline_us,
                         bool *is_whole, cloud_trouble_t *trouble)
{
    dc_page_t page = {.next = ""};
    dc_sandbox_t sandbox;
    *is_whole = false;
    for (int i = 0; i < DC_LIST_PAGES_MAX && !*is_whole; ++i) {
        char token[DC_PAGE_TOKEN_MAX + 1];
        snprintf(token, sizeof(token), "%s", page.next);
        json_t *json = dc->api->page(dc, token, &page, deadline_us, trouble);
        if (json == NULL)
            return false;
        for (size_t k = 0; k < json_array_size(page.sandboxes) && id[0] == '\0'; ++k) {
            dc_sandbox_read(DC_REST, json_array_get(page.sandboxes, k), &sandbox);
            if (sandbox.id[0] != '\0' && strcmp(sandbox.name, name) == 0)
                snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", sandbox.id);
        }
        *is_whole = page.next[0] == '\0';
        json_decref(json);
        if (id[0] != '\0')
            return true;
    }
    if (!*is_whole)
        dc_senseless(trouble, "the list has too many pages");
    return false;
}

static sandbox_removal_t rest_remove(dc_t *dc, char id[LEDGER_PROVIDER_ID_MAX + 1], const char *name, uint32_t tries,
                                     uint64_t deadline_us, cloud_trouble_t *trouble)
{
    bool is_whole;
    (void)tries; /* no key goes with it: an ETag is of one state anyway */
    if (id[0] == '\0' && !find_by_name(dc, name, id, deadline_us, &is_whole, trouble))
        return is_whole ? SANDBOX_UNSEEN : SANDBOX_THERE;
    return remove_by_id(dc, id, name, deadline_us, trouble);
}

/* --- the account --- */

static json_t *rest_page(dc_t *dc, const char *page_token, dc_page_t *page, uint64_t deadline_us,
                         cloud_trouble_t *trouble)
{
    buffer_t query;
    dc_refused_t refused;
    json_t *json = NULL;

    buffer_init(&query, CLOUD_URL_MAX / 2);
    if (dc_page_query(&query, page_token))
        json = get(dc, SANDBOXES, NULL, (const char *)query.base, deadline_us, CLOUD_PAGE_MAX, &refused, trouble);
    else
        dc_senseless(trouble, "the page's token is too long");
    buffer_dispose(&query);
    return dc_judge_page(json, page, trouble);
}

/* The credential may list, and the account's own policy is deny-all: with another no run would pass its own check. */
static bool rest_preflight(dc_t *dc, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    dc_refused_t refused;
    dc_page_t page;
    json_t *json = get(dc, SANDBOXES, NULL, "?pageSize=1", deadline_us, 0, &refused, trouble);
    if ((json = dc_judge_page(json, &page, trouble)) == NULL)
        return false;
    json_decref(json);
    json = get(dc, "/v1/network-policies", NULL, "", deadline_us, 0, &refused, trouble);
    return dc_judge_policy(DC_REST, json, trouble);
}

const dc_api_ops_t DC_REST_OPS = {
    .create = rest_create,
    .policy = rest_policy,
    .exec = rest_exec,
    .upload = rest_upload,
    .download = rest_download,
    .remove = rest_remove,
    .page = rest_page,
    .preflight = rest_preflight,
};
