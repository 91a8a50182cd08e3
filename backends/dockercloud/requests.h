/* The bodies of what is asked of the service, and the addresses it is asked at. Every one is complete before it is
 * sent, so a create that has to be repeated is the same to the byte (spec 9.7). False: it would not fit its buffer. */
#ifndef BACKENDS_DOCKERCLOUD_REQUESTS_H
#define BACKENDS_DOCKERCLOUD_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud_plan.h"
#include "backends/dockercloud/sandbox.h"
#include "core/buffer.h"

enum {
    DC_BODY_MAX = 64 * 1024,          /* of a body that carries no file */
    DC_UPLOAD_MAX = 12 * 1024 * 1024, /* of one that does: 4 MiB of files and as much of steps, in base64 */
    DC_UPLOAD_PIECE = 512 * 1024,     /* bytes of a file in one frame (spec 3.5) */
    DC_WAIT_SLICE_MS = 10 * 1000,     /* of an operation */
    DC_PAGE = 100,                    /* sandboxes of one page */
};

/* "{base}{path}{argument}", the argument escaped; NULL = none. */
bool dc_url(buffer_t *out, const char *base, const char *path, const char *argument);

/* The exchange. Holds the secret: wipe it. */
bool dc_ask_exchange(buffer_t *out, const char *username, const char *token);
/* `name` is also the key under which a repetition is the same create; `life_ms` is rounded up to whole seconds. */
bool dc_ask_create(buffer_t *out, const dc_settings_t *settings, const char *name, uint64_t life_ms);
/* {"cmd":[...],"workingDir":"..."}; `cwd` NULL = none. Both APIs. */
bool dc_ask_exec(buffer_t *out, const char *const *argv, const char *cwd);
bool dc_ask_credential(buffer_t *out);
/* {"sandbox":{"id"|"name"}}, by the ID when it is not "". */
bool dc_ask_get(buffer_t *out, const char *id, const char *name);
/* A deletion that failed is not looked up under its key again: each try has another. */
bool dc_ask_delete(buffer_t *out, const char *id, const char *name, uint32_t tries);
bool dc_ask_policy(buffer_t *out, const char *id);
bool dc_ask_operation(buffer_t *out, const char *id, uint32_t wait_ms); /* 0 = only look */
bool dc_ask_page(buffer_t *out, const char *page_token);                /* Connect; "" = the first */
bool dc_page_query(buffer_t *out, const char *page_token);              /* REST: "?pageSize=100..." */

/* --- files --- */

/* REST: the form, with the boundary it was given. */
bool dc_upload_form(buffer_t *out, const char *boundary, const cloud_file_t *files, size_t count);
/* Connect: frames. */
bool dc_upload_frames(buffer_t *out, const cloud_file_t *files, size_t count);
/* {"paths":[...]} in a frame; those of `paths` that are not NULL. */
bool dc_download_frame(buffer_t *out, const char *const *paths, size_t count);

#endif
