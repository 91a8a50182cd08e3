#include "backends/dockercloud/requests.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_frames.h"
#include "backends/cloud/cloud_http.h"
#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/multipart.h"
#include "core/protojson.h"

bool dc_url(buffer_t *out, const char *base, const char *path, const char *argument)
{
    return buffer_append_str(out, base) && buffer_append_str(out, path) &&
           (argument == NULL || cloud_url_escape(out, argument));
}

bool dc_ask_exchange(buffer_t *out, const char *username, const char *token)
{
    return buffer_append_str(out, "{\"identifier\":") && cloud_json_quote(out, username) &&
           buffer_append_str(out, ",\"secret\":") && cloud_json_quote(out, token) && buffer_append_str(out, "}");
}

/* --- create --- */

/* The image's own command never runs; the sandbox only has to stay. */
#define STAYS "[\"tail\",\"-f\",\"/dev/null\"]"
#define PLATFORM "\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}"

static uint64_t seconds(uint64_t ms)
{
    return (ms + 999) / 1000;
}

static bool create_rest(buffer_t *out, const dc_settings_t *settings, const char *name, uint64_t life_ms)
{
    return buffer_append_str(out, "{\"displayName\":") && cloud_json_quote(out, name) &&
           buffer_append_str(out, ",\"imageRef\":") && cloud_json_quote(out, settings->image) &&
           buffer_printf(out,
                         "," PLATFORM ",\"resources\":{\"cpus\":%" PRIu32 ",\"memoryMib\":%" PRIu32 "}"
                         ",\"startupExecution\":{\"rawImage\":{\"start\":{\"argv\":" STAYS "}}}"
                         ",\"features\":{\"timeouts\":{\"timeout\":\"%" PRIu64
                         "s\",\"onTimeout\":\"delete\",\"autoResume\":false}}}",
                         settings->size.cpus, settings->size.memory_mib, seconds(life_ms));
}

/* A store image brings its own size and command: each is refused beside its ID (spec 3.3). */
static bool create_connect(buffer_t *out, const dc_settings_t *settings, const char *name, uint64_t life_ms)
{
    bool is_stored = settings->store_image[0] != '\0';
    bool fits = buffer_append_str(out, "{\"name\":") && cloud_json_quote(out, name) &&
                buffer_append_str(out, ",\"requestId\":") && cloud_json_quote(out, name);
    if (is_stored)
        fits = fits && buffer_append_str(out, ",\"image\":") && cloud_json_quote(out, settings->store_image);
    fits = fits && buffer_append_str(out, ",\"cloud\":{");
    if (!is_stored)
        fits = fits && buffer_append_str(out, "\"imageRef\":") && cloud_json_quote(out, settings->image) &&
               buffer_append_str(out, ",\"startCmd\":" STAYS ",");
    fits = fits && buffer_printf(out,
                                 "\"timeout\":\"%" PRIu64
                                 "s\",\"onTimeout\":\"ON_TIMEOUT_DELETE\",\"autoResume\":false," PLATFORM "}",
                                 seconds(life_ms));
    if (!is_stored)
        fits = fits && buffer_printf(out, ",\"resources\":{\"cpus\":%" PRIu32 ",\"memoryMib\":\"%" PRIu32 "\"}",
                                     settings->size.cpus, settings->size.memory_mib);
    return fits && buffer_append_str(out, "}");
}

bool dc_ask_create(buffer_t *out, const dc_settings_t *settings, const char *name, uint64_t life_ms)
{
    return settings->api == DC_REST ? create_rest(out, settings, name, life_ms)
                                    : create_connect(out, settings, name, life_ms);
}

/* --- the others --- */

static bool add_strings(buffer_t *out, const char *const *texts, size_t count)
{
    bool is_first = true, fits = buffer_append_str(out, "[");
    for (size_t i = 0; fits && i < count; ++i) {
        if (texts[i] == NULL)
            continue;
        fits = (is_first || buffer_append_str(out, ",")) && cloud_json_quote(out, texts[i]);
        is_first = false;
    }
    return fits && buffer_append_str(out, "]");
}

bool dc_ask_exec(buffer_t *out, const char *const *argv, const char *cwd)
{
    size_t argc = 0;
    while (argv[argc] != NULL)
        ++argc;
    return buffer_append_str(out, "{\"cmd\":") && add_strings(out, argv, argc) &&
           (cwd == NULL || (buffer_append_str(out, ",\"workingDir\":") && cloud_json_quote(out, cwd))) &&
           buffer_append_str(out, "}");
}

bool dc_ask_credential(buffer_t *out)
{
    return buffer_append_str(out, "{\"permissions\":[\"sandboxesExec\",\"sandboxesFilesWrite\",\"sandboxesFilesRead\"],"
                                  "\"ttl\":\"300s\"}");
}

static bool add_reference(buffer_t *out, const char *id, const char *name)
{
    bool by_id = id[0] != '\0';
    return buffer_append_str(out, by_id ? "{\"id\":" : "{\"name\":") && cloud_json_quote(out, by_id ? id : name) &&
           buffer_append_str(out, "}");
}

bool dc_ask_get(buffer_t *out, const char *id, const char *name)
{
    return buffer_append_str(out, "{\"sandbox\":") && add_reference(out, id, name) && buffer_append_str(out, "}");
}

bool dc_ask_delete(buffer_t *out, const char *id, const char *name, uint32_t tries)
{
    return buffer_append_str(out, "{\"sandbox\":") && add_reference(out, id, name) &&
           buffer_append_str(out, ",\"force\":true,\"requestId\":\"") &&
           (tries == 0 ? buffer_append_str(out, "delete-") : buffer_printf(out, "reap-%" PRIu32 "-", tries)) &&
           buffer_append_str(out, name) && buffer_append_str(out, "\"}");
}

bool dc_ask_policy(buffer_t *out, const char *id)
{
    return buffer_append_str(out, "{\"target\":{\"sandbox\":") && add_reference(out, id, "") &&
           buffer_append_str(out, "}}");
}

bool dc_ask_operation(buffer_t *out, const char *id, uint32_t wait_ms)
{
    if (!buffer_append_str(out, "{\"id\":") || !cloud_json_quote(out, id))
        return false;
    if (wait_ms > 0 &&
        !buffer_printf(out, ",\"timeout\":\"%" PRIu32 ".%03" PRIu32 "s\"", wait_ms / 1000, wait_ms % 1000))
        return false;
    return buffer_append_str(out, "}");
}

bool dc_ask_page(buffer_t *out, const char *page_token)
{
    if (!buffer_printf(out, "{\"pageSize\":%d", DC_PAGE))
        return false;
    if (page_token[0] != '\0' && (!buffer_append_str(out, ",\"pageToken\":") || !cloud_json_quote(out, page_token)))
        return false;
    return buffer_append_str(out, "}");
}

bool dc_page_query(buffer_t *out, const char *page_token)
{
    return buffer_printf(out, "?pageSize=%d", DC_PAGE) &&
           (page_token[0] == '\0' || (buffer_append_str(out, "&pageToken=") && cloud_url_escape(out, page_token)));
}

/* --- files --- */

bool dc_upload_form(buffer_t *out, const char *boundary, const cloud_file_t *files, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (!multipart_add_file(out, boundary, files[i].path, files[i].mode, files[i].content, files[i].len))
            return false;
    return multipart_close(out, boundary);
}

static bool add_header_frame(buffer_t *out, const cloud_file_t *file)
{
    buffer_t text;
    buffer_init(&text, DC_BODY_MAX);
    bool fits = buffer_append_str(&text, "{\"header\":{\"path\":") && cloud_json_quote(&text, file->path) &&
                buffer_printf(&text, ",\"mode\":%u}}", file->mode) && cloud_frame_append(out, 0, text.base, text.len);
    buffer_dispose(&text);
    return fits;
}

static bool add_data_frame(buffer_t *out, const void *bytes, size_t len)
{
    enum { AROUND = 32 };
    buffer_t text;
    buffer_init(&text, (DC_UPLOAD_PIECE + 2) / 3 * 4 + AROUND);
    bool fits = buffer_append_str(&text, "{\"data\":\"") && base64_encode(&text, bytes, len, true) &&
                buffer_append_str(&text, "\"}") && cloud_frame_append(out, 0, text.base, text.len);
    buffer_dispose(&text);
    return fits;
}

bool dc_upload_frames(buffer_t *out, const cloud_file_t *files, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        const uint8_t *bytes = files[i].content;
        if (!add_header_frame(out, &files[i]))
            return false;
        for (size_t at = 0; at < files[i].len;) {
            size_t left = files[i].len - at, len = left < DC_UPLOAD_PIECE ? left : DC_UPLOAD_PIECE;
            if (!add_data_frame(out, bytes + at, len))
                return false;
            at += len;
        }
    }
    return true;
}

bool dc_download_frame(buffer_t *out, const char *const *paths, size_t count)
{
    buffer_t text;
    buffer_init(&text, DC_BODY_MAX);
    bool fits = buffer_append_str(&text, "{\"paths\":") && add_strings(&text, paths, count) &&
                buffer_append_str(&text, "}") && cloud_frame_append(out, 0, text.base, text.len);
    buffer_dispose(&text);
    return fits;
}
