#include "cli/demo_images.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/demo_process.h"
#include "config/docker.h"
#include "config/options.h"
#include "core/clock.h"

enum { TREE_DEPTH = 3, BUILD_PROGRESS_MS = 15 * 1000 }; /* build/, build/test/, and one more */

/* The source tree above this executable. */
static bool find_tree(char out[DEMO_PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", out, DEMO_PATH_MAX - 64);
    if (len <= 0 || len >= DEMO_PATH_MAX - 64)
        return false;
    out[len] = '\0';
    for (int i = 0; i < TREE_DEPTH; i++) {
        char *slash = strrchr(out, '/'), probe[DEMO_PATH_MAX];
        if (slash == NULL || slash == out)
            return false;
        *slash = '\0';
        if (snprintf(probe, sizeof(probe), "%s/backends/guest/images/build", out) < DEMO_PATH_MAX &&
            access(probe, X_OK) == 0)
            return true;
    }
    return false;
}

static bool build(const demo_engine_t *engine, char *tree)
{
    char make[DEMO_PATH_MAX], socket[DOCKER_SOCKET_MAX + 32];
    if (!demo_process_find("make", make)) {
        fputs("plimsoll demo: building them needs make\n", stderr);
        return false;
    }
    snprintf(socket, sizeof(socket), "SANDBOX_DOCKER_SOCKET=%s", demo_engine_socket(engine));
    /* a variable given to make is in the environment of what it starts */
    char *argv[] = {make,   (char *)"--no-print-directory",  (char *)"-C", tree, (char *)"images",
                    socket, (char *)"IMAGES=snippet python", NULL};
    uint64_t begun = clock_mono_ms(), told = begun;
    int status = 0;
    pid_t pid = demo_process_spawn(argv, options_inherited(), NULL);
    demo_interrupt_ends(pid);
    while (!demo_process_has_ended(&pid, &status)) {
        if (clock_mono_ms() - told >= BUILD_PROGRESS_MS) {
            told = clock_mono_ms();
            fprintf(stderr, "plimsoll demo: still building the images, %.0f s so far\n", (double)(told - begun) / 1000);
        }
        demo_sleep_ms(DEMO_POLL_MS);
    }
    return status == 0 && !demo_was_interrupted();
}

bool demo_images_get(const demo_engine_t *engine)
{
    static const char *const images[] = {DEMO_SNIPPET_IMAGE, DEMO_PROJECT_IMAGE};
    char tree[DEMO_PATH_MAX];
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]) && missing == NULL; i++)
        if (!demo_engine_has_image(engine, images[i]))
            missing = images[i];
    if (missing == NULL)
        return true;
    fprintf(stderr, "plimsoll demo: the Engine has no image %s\n", missing);
    if (!find_tree(tree)) {
        fputs("plimsoll demo: build it with `make images` in the source tree, with SANDBOX_DOCKER_SOCKET set if the "
              "Engine is not at its usual place\n",
              stderr);
        return false;
    }
    fputs("plimsoll demo: building the guest images (`make images`); the first time this takes some minutes\n", stderr);
    if (build(engine, tree))
        return true;
    if (!demo_was_interrupted())
        fputs("plimsoll demo: the images could not be built; `make images` says why\n", stderr);
    return false;
}
