/*
 * Readiness of a descriptor owned by somebody else (a library's socket, a pipe, a signalfd). The watch keeps a
 * duplicate of the descriptor, so the owner may close its own at any time without confusing the loop; after such a
 * close the owner destroys the watch. Level-triggered. The callback may destroy the watch.
 */
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include "core/loop.h"

enum { WATCH_READ = 1, WATCH_WRITE = 2 };

typedef struct watch watch_t;
typedef void (*watch_cb)(void *data, unsigned events);

/* NULL when the descriptor cannot be duplicated (errno says why). Watches nothing until watch_set. */
watch_t *watch_create(loop_t *loop, int fd, watch_cb cb, void *data);
/* `events` is the whole set wanted from now on; 0 pauses. A hang-up or error is reported as every event being watched.
 */
void watch_set(watch_t *w, unsigned events);
void watch_destroy(watch_t *w);

#endif
