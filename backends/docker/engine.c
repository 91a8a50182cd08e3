#include "backends/docker/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/engine_call.h"
#include "backends/docker/engine_json.h"
#include "backends/docker/engine_text.h"
#include "core/mem.h"

/* Wide enough for every path made of one name or ID. */
enum { NAME_PATH_MAX = ENGINE_NAME_MAX + 64 };

engine_t *engine_create(loop_t *loop, const char *socket_path)
{
    static const http_client_options_t options = {.header_max = ENGINE_HEAD_MAX};
    engine_t *engine = mem_alloc(sizeof(*engine));
    engine->magic = ENGINE_MAGIC;
    if (strnlen(socket_path, sizeof(engine->socket)) == sizeof(engine->socket))
        mem_fatal("an Engine's socket path is too long");
    snprintf(engine->socket, sizeof(engine->socket), "%s", socket_path);
    engine->http = http_client_create(loop, &options);
    return engine;
}

void engine_destroy(engine_t *engine)
{
    http_client_destroy(engine->http);
    engine->magic = 0;
    free(engine);
}

const char *engine_socket(const engine_t *engine)
{
    return engine->socket;
}

void engine_answer_dispose(engine_answer_t *answer)
{
    json_decref(answer->json);
    answer->json = NULL;
}

const char *engine_outcome_name(engine_outcome_t outcome)
{
    switch (outcome) {
    case ENGINE_OK:
        return "ok";
    case ENGINE_UNCHANGED:
        return "unchanged";
    case ENGINE_ABSENT:
        return "absent";
    case ENGINE_CONFLICT:
        return "conflict";
    case ENGINE_REFUSED:
        return "refused";
    case ENGINE_FAILED:
        return "failed";
    case ENGINE_UNSENT:
        return "unsent";
    case ENGINE_UNKNOWN:
        return "unknown";
    case ENGINE_CANCELED:
        return "canceled";
    }
    return "?";
}

static void unsent(engine_answer_t *out, const char *why)
{
    memset(out, 0, sizeof(*out));
    out->outcome = ENGINE_UNSENT;
    engine_text_set(out->text, sizeof(out->text), why);
}

/* ---- the machine and its images ---- */

void engine_info(engine_t *engine, uint32_t deadline_ms, engine_answer_t *out)
{
    static const engine_request_t request = {.method = "GET", .path = "/info", .is_read = true, .success = 200};
    engine_call(engine, &request, deadline_ms, out);
    if (out->outcome == ENGINE_OK && !json_is_object(out->json))
        engine_answer_reject(out, "what the Engine tells of itself is not an object");
}

static bool is_content_id(const char *text)
{
    return text != NULL && strncmp(text, "sha256:", 7) == 0 && engine_is_id(text + 7);
}

void engine_image_inspect(engine_t *engine, const char *ref, uint32_t deadline_ms, engine_answer_t *out)
{
    engine_request_t request = {.method = "GET", .is_read = true, .success = 200};
    buffer_t path;

    if (!engine_is_reference(ref)) {
        unsent(out, "not an image's reference");
        return;
    }
    buffer_init(&path, ENGINE_PATH_MAX);
    if (!buffer_append_str(&path, "/images/") || !engine_text_escape(&path, ref) || !buffer_append_str(&path, "/json"))
        mem_fatal("a reference within its limit does not fit its path");
    request.path = (const char *)path.base;
    engine_call(engine, &request, deadline_ms, out);
    buffer_dispose(&path);
    if (out->outcome == ENGINE_OK && !is_content_id(engine_json_text(out->json, "Id")))
        engine_answer_reject(out, "the image's Id is not a content ID");
}

/* ---- containers ---- */

void engine_container_create(engine_t *engine, const char *name, const json_t *body, uint32_t deadline_ms,
                             char id[ENGINE_ID_BYTES + 1], engine_answer_t *out)
{
    char path[NAME_PATH_MAX], *text;

    id[0] = '\0';
    if (!engine_is_name(name)) {
        unsent(out, "not a container's name");
        return;
    }
    if ((text = json_dumps(body, JSON_COMPACT)) == NULL) {
        unsent(out, "the container's description is not JSON");
        return;
    }
    snprintf(path, sizeof(path), "/containers/create?name=%s", name);
    engine_request_t request = {.method = "POST", .path = path, .body = text, .success = 201};
    engine_call(engine, &request, deadline_ms, out);
    free(text);
    if (out->outcome != ENGINE_OK)
        return;
    const char *given = engine_json_text(out->json, "Id");
    if (!engine_is_id(given)) {
        engine_answer_reject(out, "the new container's Id is not 64 hex digits");
        return;
    }
    memcpy(id, given, ENGINE_ID_BYTES + 1);
}

/* Sent at most once. */
static void act(engine_t *engine, const char *method, const char *name, const char *rest, bool may_be_unchanged,
                int success, uint32_t deadline_ms, engine_answer_t *out)
{
    char path[NAME_PATH_MAX];

    if (!engine_is_name(name)) {
        unsent(out, "not a container's name or ID");
        return;
    }
    snprintf(path, sizeof(path), "/containers/%s%s", name, rest);
    engine_request_t request = {
        .method = method, .path = path, .may_be_unchanged = may_be_unchanged, .success = success};
    engine_call(engine, &request, deadline_ms, out);
}

void engine_container_start(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    act(engine, "POST", id, "/start", true, 204, deadline_ms, out);
}

void engine_container_kill(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    act(engine, "POST", id, "/kill?signal=KILL", false, 204, deadline_ms, out);
}

void engine_container_wait(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    act(engine, "POST", id, "/wait?condition=not-running", false, 200, deadline_ms, out);
}

void engine_container_unpause(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out)
{
    act(engine, "POST", id, "/unpause", false, 204, deadline_ms, out);
}

void engine_container_remove(engine_t *engine, const char *id_or_name, uint32_t deadline_ms, engine_answer_t *out)
{
    act(engine, "DELETE", id_or_name, "?force=1&v=1", false, 204, deadline_ms, out);
}

/* Whether the answer speaks of what was asked for: by its whole ID, or by its name, which the Engine tells with a '/'
 * before it. */
static bool is_of(const json_t *answer, const char *asked)
{
    const char *id = engine_json_text(answer, "Id"), *name = engine_json_text(answer, "Name");
    if (!engine_is_id(id))
        return false;
    return strcmp(id, asked) == 0 ||
           (!engine_is_id(asked) && name != NULL && name[0] == '/' && strcmp(name + 1, asked) == 0);
}

static bool has_the_parts(const json_t *answer)
{
    return json_is_object(json_object_get(answer, "State")) && json_is_object(json_object_get(answer, "Config")) &&
           json_is_object(json_object_get(answer, "HostConfig"));
}

void engine_container_inspect(engine_t *engine, const char *id_or_name, uint32_t deadline_ms, engine_answer_t *out)
{
    char path[NAME_PATH_MAX];

    if (!engine_is_name(id_or_name)) {
        unsent(out, "not a container's name or ID");
        return;
    }
    snprintf(path, sizeof(path), "/containers/%s/json", id_or_name);
    engine_request_t request = {.method = "GET", .path = path, .is_read = true, .success = 200};
    engine_call(engine, &request, deadline_ms, out);
    if (out->outcome != ENGINE_OK)
        return;
    if (!is_of(out->json, id_or_name))
        engine_answer_reject(out, "the answer is about another container");
    else if (!has_the_parts(out->json))
        engine_answer_reject(out, "the container's state or settings are missing");
}

/* {"label": [...]}, escaped, after `path`'s question mark. */
static bool add_filter(buffer_t *path, const char *const *labels, size_t count)
{
    json_t *list = json_array(), *filters = json_object();
    char *text = NULL;
    bool is_added = false;

    for (size_t i = 0; i < count; ++i)
        if (json_array_append_new(list, json_string(labels[i])) != 0)
            goto Exit;
    if (json_object_set(filters, "label", list) != 0 || (text = json_dumps(filters, JSON_COMPACT)) == NULL)
        goto Exit;
    is_added = engine_text_escape(path, text);
Exit:
    free(text);
    json_decref(list);
    json_decref(filters);
    return is_added;
}

static bool is_list_of_containers(const json_t *answer)
{
    if (!json_is_array(answer))
        return false;
    for (size_t i = 0; i < json_array_size(answer); ++i) {
        const json_t *one = json_array_get(answer, i), *labels = json_object_get(one, "Labels");
        if (!engine_is_id(engine_json_text(one, "Id")) || !(json_is_object(labels) || json_is_null(labels)))
            return false;
    }
    return true;
}

void engine_container_list(engine_t *engine, const char *const *labels, size_t label_count, uint32_t deadline_ms,
                           engine_answer_t *out)
{
    engine_request_t request = {.method = "GET", .is_read = true, .success = 200};
    buffer_t path;

    buffer_init(&path, ENGINE_PATH_MAX);
    if (!buffer_append_str(&path, "/containers/json?all=1&filters=") || !add_filter(&path, labels, label_count)) {
        unsent(out, "not labels to list containers by");
        goto Exit;
    }
    request.path = (const char *)path.base;
    engine_call(engine, &request, deadline_ms, out);
    if (out->outcome == ENGINE_OK && !is_list_of_containers(out->json))
        engine_answer_reject(out, "the answer is not a list of containers");
Exit:
    buffer_dispose(&path);
}
