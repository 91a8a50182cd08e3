/* The demo's plimsolld as a process: where it is, what it is told, how it is started. */
#ifndef CLI_DEMO_DAEMON_H
#define CLI_DEMO_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/demo_process.h"

typedef struct {
    const char *path;     /* of the executable */
    const char *log_path; /* its stdout and stderr; made anew */
    const char *dir;      /* its state directory is made in there */
    const char *token;
    const char *const *settings; /* further "NAME=value"; NULL-terminated */
    uint16_t port;
} demo_daemon_t;

/* The daemon beside this executable; false when that cannot be told. */
bool demo_daemon_find(char out[DEMO_PATH_MAX]);
/* Starts it with an environment of its own (demo_process_spawn). Its process ID, or 0 with errno set. */
pid_t demo_daemon_spawn(const demo_daemon_t *daemon);

#endif
