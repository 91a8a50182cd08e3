#include "backends/dockercloud/api.h"

#include "backends/dockercloud/requests.h"
#include "config/base_url.h"

bool dc_endpoint_url(const cloud_box_t *box, buffer_t *url, const char *path)
{
    const char *uri = dc_own(box)->sandbox.uri;
    buffer_init(url, CLOUD_URL_MAX);
    return buffer_append(url, uri, base_url_len(uri)) && buffer_append_str(url, path);
}

bool dc_endpoint_exec(dc_t *dc, cloud_box_t *box, const char *path, const dc_command_t *command, dc_exec_t *out,
                      bool *is_flood, cloud_trouble_t *trouble)
{
    buffer_t url, body;
    cloud_answer_t answer = {.tries = 0};
    dc_refused_t refused;
    bool is_done = false;

    *out = (dc_exec_t){.exit_code = 0};
    *is_flood = false;
    buffer_init(&body, DC_BODY_MAX * 4);
    if (dc_endpoint_url(box, &url, path) && dc_ask_exec(&body, command->argv, command->cwd)) {
        const dc_call_t call = {.method = "POST",
                                .path = (const char *)url.base,
                                .box = box,
                                .body = body.base,
                                .body_len = body.len,
                                .repeat = CLOUD_ONCE,
                                .deadline_us = command->deadline_us,
                                .response_max = dc_exec_max(command->stream_cap)};
        is_done = dc_call(dc, &call, &answer, &refused, trouble);
        if (is_done)
            is_done = dc_read_exec(&answer, command->stream_cap, out, is_flood, trouble);
        else if (dc_is_flood(&answer))
            is_done = *is_flood = true;
    } else {
        cloud_trouble(trouble, CLOUD_NOTHING, "the command is too long", NULL);
    }
    cloud_answer_dispose(&answer);
    buffer_dispose(&url);
    buffer_dispose(&body);
    return is_done;
}
