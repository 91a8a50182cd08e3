/* The guest images a demo needs: there, or built by the source tree this program was built in. */
#ifndef CLI_DEMO_IMAGES_H
#define CLI_DEMO_IMAGES_H

#include <stdbool.h>

#include "cli/demo_engine.h"

#define DEMO_SNIPPET_IMAGE "plimsoll/snippet:latest"
#define DEMO_PROJECT_IMAGE "plimsoll/python:latest"

/* False, with what to do told, when one is not there and cannot be built. */
bool demo_images_get(const demo_engine_t *engine);

#endif
