/*
 * The Docker Engine of a demo: the one at SANDBOX_DOCKER_SOCKET when it answers, else one of the demo's own, with its
 * own directories, socket and control groups, without a network, which ends with the demo and leaves nothing.
 */
#ifndef CLI_DEMO_ENGINE_H
#define CLI_DEMO_ENGINE_H

#include <stdbool.h>

enum {
    DEMO_ENGINE_UP_MS = 60 * 1000,
    DEMO_ENGINE_STOP_MS = 40 * 1000, /* its own --shutdown-timeout and containerd's end */
};

typedef struct demo_engine demo_engine_t;

/* NULL with what is missing, and what to do, told on stderr. Signals must have been caught. */
demo_engine_t *demo_engine_start(void);
/* Ends an Engine of our own and removes all of it; false, told, when something is left. */
bool demo_engine_stop(demo_engine_t *engine);
const char *demo_engine_socket(const demo_engine_t *engine);
/* Whether it has gVisor's runsc as a runtime. */
bool demo_engine_has_gvisor(const demo_engine_t *engine);
/* Whether it has the image. */
bool demo_engine_has_image(const demo_engine_t *engine, const char *name);

#endif
