/* The demo's plimsolld as a process: where it is, what it is told, how it is started. */
#ifndef CLI_DEMO_DAEMON_H
#define CLI_DEMO_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { DEMO_PATH_MAX = 4096 };

typedef struct {
    const char *path;     /* of the executable */
    const char *log_path; /* its stdout and stderr; made anew */
    const char *dir;      /* its state directory is made in there */
    const char *token;
    uint16_t port;
} demo_daemon_t;

/* The daemon beside this executable; false when that cannot be told. */
bool demo_daemon_find(char out[DEMO_PATH_MAX]);
/* Starts it in a process group of its own, with an environment of its own, so that it ends when this process does. Its
 * process ID, or 0 with errno set. */
pid_t demo_daemon_spawn(const demo_daemon_t *daemon);

#endif
