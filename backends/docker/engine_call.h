/* One exchange with an Engine: sent, waited for, judged. For the files of engine.h only. */
#ifndef BACKENDS_DOCKER_ENGINE_CALL_H
#define BACKENDS_DOCKER_ENGINE_CALL_H

#include "backends/docker/engine.h"
#include "core/http_client.h"

enum {
    ENGINE_MAGIC = 0x656e6769,
    ENGINE_HEAD_MAX = 16 * 1024,   /* bytes of an answer's head; real ones have 400 */
    ENGINE_BODY_MAX = 1024 * 1024, /* bytes of a request: a seccomp profile of some KiB and the limits */
    ENGINE_PATH_MAX = 8 * 1024,    /* bytes of an escaped path with its query, half of HTTP_URL_MAX */
    ENGINE_VERSION_MAX = 8,        /* "999.999" */
};

struct engine {
    unsigned magic;
    http_client_t *http;
    char socket[HTTP_UNIX_PATH_MAX + 1];
    char version[ENGINE_VERSION_MAX]; /* "" before the first negotiation */
};

typedef struct {
    const char *method;
    const char *path; /* escaped, from its '/' on; the API's version is put before it unless is_unversioned */
    const char *body; /* NULL = none */
    bool is_unversioned;
    /* It changes nothing: a kept connection may carry it, and when that one died before an answer it is asked once more
     * on a fresh one. Everything else goes out at most once, on a connection of its own. */
    bool is_read;
    bool may_be_unchanged; /* 304 is among the promised answers */
    bool is_text;          /* a 200 carries no JSON and is not read (/_ping) */
    int success;           /* the one status of success; 204 has no body, any other a JSON object or array */
} engine_request_t;

/* In a coroutine. Fills `out` wholly; a success with a body has `out->json`, of which only that it is JSON was checked.
 * An error counts by its status only when it has the Engine's shape (an object with a `message`): a 404 of something
 * else in the socket's place says nothing about a container. */
void engine_call(engine_t *engine, const engine_request_t *request, uint32_t deadline_ms, engine_answer_t *out);
/* The same, with a header of the answer in `value` ("" when absent). */
void engine_call_header(engine_t *engine, const engine_request_t *request, uint32_t deadline_ms, const char *name,
                        char *value, size_t value_size, engine_answer_t *out);
/* A success whose content is not what the API promises: drops the JSON. */
void engine_answer_reject(engine_answer_t *answer, const char *why);

#endif
