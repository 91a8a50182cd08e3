/*
 * A gateway of the demo's own: plimsolld beside this executable, on a free loopback port, with a temporary state
 * directory, a token made for it and no metrics. It lives in a process group of its own and dies with the demo.
 */
#ifndef CLI_DEMO_GATEWAY_H
#define CLI_DEMO_GATEWAY_H

#include <stdbool.h>

#include "cli/connection.h"
#include "cli/demo_process.h"

enum { DEMO_PORT_TRIES = 5 }; /* another process may take the free port before the gateway does */

typedef struct {
    const char *const *environment; /* what it is told besides, "NAME=value"; NULL-terminated */
    unsigned ready_ms;              /* from start to /readyz */
    unsigned stop_ms;               /* from SIGTERM to SIGKILL; longer than its own drain */
} demo_settings_t;

typedef struct demo_gateway demo_gateway_t;

/* Starts one and waits until it is ready, with progress on stderr; NULL with the reason told there. SIGINT and SIGTERM
 * end the wait and stop the gateway. One at a time; `settings` outlives it. */
demo_gateway_t *demo_gateway_start(const demo_settings_t *settings);
/* The connection to it, token included; owned by the gateway. */
const connection_t *demo_gateway_connection(const demo_gateway_t *gateway);
/* The end of its log on stderr. */
void demo_gateway_show_log(const demo_gateway_t *gateway);
/* SIGTERM, a bounded wait, SIGKILL on overrun; removes the state directory. false, with the reason told, when it did
 * not end cleanly. */
bool demo_gateway_stop(demo_gateway_t *gateway);

#endif
