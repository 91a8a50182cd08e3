/* An image's environment, one variable at a time (spec backend-docker 3.1 item 6). It is what guests run with, and what
 * programs of ours in the sandbox would run with, so nothing in it may load code or look for it where guests write. */
#ifndef BACKENDS_DOCKER_IMAGE_ENV_H
#define BACKENDS_DOCKER_IMAGE_ENV_H

#include <stdbool.h>
#include <stddef.h>

enum { IMAGE_WHY_MAX = 160 };

/* `text` is "NAME=value" of `len` bytes, as the image says it. False with what is wrong, to follow the image's name. */
bool image_env_vet(const char *text, size_t len, char why[IMAGE_WHY_MAX]);
/* Of two "NAME=value". */
bool image_env_is_same_name(const char *a, const char *b);

#endif
