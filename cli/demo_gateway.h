/*
 * A gateway of the demo's own: plimsolld beside this executable, on a free loopback port, with a temporary state
 * directory, a token made for it, the wasm backend and no metrics. It lives in a process group of its own and dies with
 * the demo.
 */
#ifndef CLI_DEMO_GATEWAY_H
#define CLI_DEMO_GATEWAY_H

#include <stdbool.h>

#include "cli/connection.h"

enum {
    DEMO_READY_MS = 60 * 1000, /* from start to /readyz; a cold start takes under a second */
    DEMO_STOP_MS = 20 * 1000,  /* from SIGTERM to SIGKILL; the gateway's own drain is shorter */
    DEMO_PORT_TRIES = 5,       /* another process may take the free port before the gateway does */
};

typedef struct demo_gateway demo_gateway_t;

/* Starts one and waits until it is ready, with progress on stderr; NULL with the reason told there. SIGINT and SIGTERM
 * end the wait and stop the gateway. One at a time. */
demo_gateway_t *demo_gateway_start(void);
/* The connection to it, token included; owned by the gateway. */
const connection_t *demo_gateway_connection(const demo_gateway_t *gateway);
/* SIGTERM, a bounded wait, SIGKILL on overrun; removes the state directory. false, with the reason told, when it did
 * not end cleanly. */
bool demo_gateway_stop(demo_gateway_t *gateway);
/* Whether a signal asked the demo to end. */
bool demo_was_interrupted(void);

#endif
