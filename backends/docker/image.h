/*
 * One guest image as the Engine describes it (spec backend-docker 1.3, 3.1 item 6), vetted. One inspect per decision:
 * the content ID, the environment and the volumes are read from the same answer, so a tag that moves in between cannot
 * pair one image's promises with another one's ID.
 */
#ifndef BACKENDS_DOCKER_IMAGE_H
#define BACKENDS_DOCKER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "backends/backend.h"
#include "backends/docker/engine.h"

enum {
    IMAGE_ID_MAX = 72,          /* "sha256:", 64 hex digits, the NUL */
    IMAGE_ENV_MAX = 64,         /* variables */
    IMAGE_ENV_BYTES_MAX = 8192, /* of all of them, each with its NUL; the runner takes four times as much */
    IMAGE_RUNNER_PROTOCOL = 1,  /* the label sbx.runner.protocol */
};

typedef struct {
    const char *reference; /* as configured: a tag, a content ID, or name@sha256:... */
    bool is_pinned_only;   /* SANDBOX_REQUIRE_PINNED_IMAGES */
    const char *arch;      /* of the Engine, in its image words ("amd64"); an image of another one is refused */
} image_want_t;

typedef struct {
    char id[IMAGE_ID_MAX];                        /* the content ID; the only thing containers are created from */
    char environment[BACKEND_IDENTITY_MAX];       /* "docker-image:" and the ID */
    char software_identity[BACKEND_IDENTITY_MAX]; /* "" unless a pinned digest is confirmed */
    const char *env[IMAGE_ENV_MAX];               /* vetted "NAME=value", into _env */
    size_t env_count;
    char _env[IMAGE_ENV_BYTES_MAX];
} image_t;

/* In a coroutine. Never pulls. False with an operator's sentence that names the image and what to do; `is_untried` when
 * the Engine did not say. Copying an
 * image_t goes through image_copy, as `env` points into it. */
bool image_find(engine_t *engine, const image_want_t *want, uint32_t deadline_ms, image_t *out, bool *is_untried,
                char failure[BACKEND_TEXT_MAX]);
/* The decision alone, on an answer of image inspect. */
bool image_vet(const json_t *inspect, const image_want_t *want, image_t *out, char failure[BACKEND_TEXT_MAX]);
void image_copy(image_t *to, const image_t *from);

#endif
