#include "backends/e2b/request.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

const char *e2b_create_path(e2b_flavour_t flavour)
{
    return flavour == E2B_FLAVOUR_V1 ? "/sandboxes" : "/v2/sandboxes";
}

/* Takes the value. */
static bool put(json_t *json, buffer_t *out)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    bool is_put = text != NULL && buffer_append_str(out, text);
    free(text);
    json_decref(json);
    return is_put;
}

static bool is_plain(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return len > 0 && len <= 64 && text[len] == '\0';
}

bool e2b_create_body(const e2b_create_request_t *request, buffer_t *out)
{
    if (!is_plain(request->installation) || !is_plain(request->stamp) || !is_plain(request->kind) ||
        request->life_s == 0)
        return false;
    /* The flag and the list say the same; both are sent on purpose. */
    json_t *json =
        json_pack("{s:s, s:I, s:b, s:b, s:{s:[s], s:b}, s:{s:s, s:s, s:s, s:s}}", "templateID", request->template,
                  "timeout", (json_int_t)request->life_s, "autoPause", 0, "allow_internet_access", 0, "network",
                  "denyOut", "0.0.0.0/0", "allowPublicTraffic", 0, "metadata", "gw", E2B_PRODUCT, "gw_instance",
                  request->installation, "gw_lease", request->stamp, "gw_kind", request->kind);
    if (json != NULL && request->flavour == E2B_FLAVOUR_V1)
        json_object_set_new(json, "secure", json_true());
    return put(json, out);
}

static bool is_unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-_.~", c) != NULL);
}

static bool put_escaped(buffer_t *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; ++c) {
        bool fits = is_unreserved(*c) ? buffer_append(out, c, 1) : buffer_printf(out, "%%%02X", *c);
        if (!fits)
            return false;
    }
    return true;
}

bool e2b_list_path(const char *installation, const char *stamp, const char *cursor, buffer_t *out)
{
    if (!is_plain(installation) || (stamp != NULL && !is_plain(stamp)))
        return false;
    return buffer_printf(out, "/v2/sandboxes?state=running,paused&limit=%d&metadata=gw_instance%%3D%s", E2B_PAGE_SIZE,
                         installation) &&
           (stamp == NULL || buffer_printf(out, "%%26gw_lease%%3D%s", stamp)) &&
           (cursor == NULL || cursor[0] == '\0' || (buffer_append_str(out, "&nextToken=") && put_escaped(out, cursor)));
}

uint32_t e2b_life_s(uint64_t stage_ms, uint64_t run_ms, uint64_t collect_ms)
{
    return (uint32_t)((stage_ms + run_ms + collect_ms + 999) / 1000 + E2B_LIFE_MARGIN_S);
}

bool e2b_start_body(const e2b_command_t *command, buffer_t *out)
{
    json_t *args = json_array();
    for (size_t i = 1; i < command->argc; ++i)
        json_array_append_new(args, json_string(command->argv[i]));
    if (json_array_size(args) != command->argc - 1) {
        json_decref(args);
        return false;
    }
    return put(json_pack("{s:{s:s, s:o, s:s}, s:b}", "process", "cmd", command->argv[0], "args", args, "cwd",
                         command->cwd, "stdin", 0),
               out);
}

uint32_t e2b_timeout_ms(uint64_t left_us)
{
    uint64_t ms = left_us / 1000 + (left_us % 1000 != 0);
    return ms == 0 ? 1 : ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

bool e2b_path_body(const char *path, buffer_t *out)
{
    return put(json_pack("{s:s}", "path", path), out);
}

bool e2b_file_path(const char *path, buffer_t *out)
{
    return buffer_append_str(out, "/files?path=") && put_escaped(out, path) &&
           buffer_append_str(out, "&username=" E2B_GUEST_USER);
}
