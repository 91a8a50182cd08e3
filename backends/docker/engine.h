/*
 * A Docker Engine over its Unix socket (spec backend-docker section 1): typed calls for coroutines. Every call has a
 * deadline, every answer a size limit and a shape; what the Engine says in words is for the log only. A call that can
 * start or create something is sent at most once.
 */
#ifndef BACKENDS_DOCKER_ENGINE_H
#define BACKENDS_DOCKER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "core/loop.h"

enum {
    ENGINE_ID_BYTES = 64, /* hex digits of a container's ID */
    ENGINE_NAME_MAX = 128,
    ENGINE_TEXT_MAX = 256,
    ENGINE_ANSWER_MAX = 4 * 1024 * 1024,
};

typedef struct engine engine_t;

typedef enum {
    ENGINE_OK,
    ENGINE_UNCHANGED, /* 304: already so */
    ENGINE_ABSENT,    /* 404 */
    ENGINE_CONFLICT,  /* 409 */
    ENGINE_REFUSED,   /* any other 4xx */
    ENGINE_FAILED,    /* 5xx, or an answer that is not what the API promises */
    ENGINE_UNSENT,    /* certainly nothing reached the Engine */
    ENGINE_UNKNOWN,   /* sent, and no answer: it may have happened */
    ENGINE_CANCELED,  /* the coroutine was canceled; the call may have happened */
} engine_outcome_t;

typedef struct {
    engine_outcome_t outcome;
    int status;                 /* HTTP, 0 without an answer */
    json_t *json;               /* owned by the caller (json_decref); NULL unless ENGINE_OK with a body */
    char text[ENGINE_TEXT_MAX]; /* for the log: the Engine's message or our reason, printable ASCII */
} engine_answer_t;

void engine_answer_dispose(engine_answer_t *answer);
const char *engine_outcome_name(engine_outcome_t outcome);

/* `socket_path` is copied; at most 107 bytes. Nothing is sent before the first call. */
engine_t *engine_create(loop_t *loop, const char *socket_path);
void engine_destroy(engine_t *engine);
const char *engine_socket(const engine_t *engine);

/* All of the following run in a coroutine and wait. `deadline_ms` is for the whole exchange. */

/* GET /_ping and /version; settles the API version of all later calls: the lower of ours and the Engine's, at least
 * 1.41 and its minimum, Linux only. False with the reason. May be repeated: an Engine can be replaced. */
bool engine_negotiate(engine_t *engine, uint32_t deadline_ms, char failure[ENGINE_TEXT_MAX]);
/* "1.41"; "" before the first negotiation. */
const char *engine_api_version(const engine_t *engine);
void engine_info(engine_t *engine, uint32_t deadline_ms, engine_answer_t *out);
/* `ref` is any reference or content ID the Engine takes; escaped here. */
void engine_image_inspect(engine_t *engine, const char *ref, uint32_t deadline_ms, engine_answer_t *out);
/* POST /containers/create, once. ENGINE_OK sets `id`. `body` is borrowed. */
void engine_container_create(engine_t *engine, const char *name, const json_t *body, uint32_t deadline_ms,
                             char id[ENGINE_ID_BYTES + 1], engine_answer_t *out);
void engine_container_start(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out);
void engine_container_inspect(engine_t *engine, const char *id_or_name, uint32_t deadline_ms, engine_answer_t *out);
void engine_container_kill(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out);
void engine_container_unpause(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out);
/* POST ?condition=not-running: answered when it does not run (any more). */
void engine_container_wait(engine_t *engine, const char *id, uint32_t deadline_ms, engine_answer_t *out);
/* DELETE ?force=1&v=1 */
void engine_container_remove(engine_t *engine, const char *id_or_name, uint32_t deadline_ms, engine_answer_t *out);
/* GET /containers/json?all=1 with every "name=value" or "name" of `labels` as a filter; `out->json` is an array. */
void engine_container_list(engine_t *engine, const char *const *labels, size_t label_count, uint32_t deadline_ms,
                           engine_answer_t *out);

#endif
