#include "cli/demo_gateway.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/demo_daemon.h"
#include "cli/exchange.h"
#include "config/token.h"
#include "core/clock.h"
#include "core/mem.h"

enum { PROBE_MS = 2000 /* one look at /readyz */ };

struct demo_gateway {
    pid_t pid; /* and process group; 0 = none */
    const demo_settings_t *settings;
    char dir[64], log_path[96], daemon_path[DEMO_PATH_MAX];
    char token[TOKEN_GENERATED + 1];
    connection_t connection;
};

/* A loopback port that was free a moment ago; 0 when there is none. */
static uint16_t find_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &len) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static bool spawn(demo_gateway_t *gateway, uint16_t port)
{
    demo_daemon_t daemon = {.path = gateway->daemon_path,
                            .log_path = gateway->log_path,
                            .dir = gateway->dir,
                            .token = gateway->token,
                            .settings = gateway->settings->environment,
                            .port = port};
    gateway->pid = demo_daemon_spawn(&daemon);
    demo_interrupt_ends(gateway->pid); /* a call in progress ends when the gateway does */
    if (gateway->pid == 0)
        fprintf(stderr, "plimsoll demo: cannot start the gateway: %s\n", strerror(errno));
    return gateway->pid != 0;
}

static bool is_ready(const demo_gateway_t *gateway)
{
    char *url = connection_url(&gateway->connection, "/readyz");
    exchange_t exchange;
    exchange_request_t asked = {.url = url, .whole_ms = PROBE_MS};
    exchange_perform(&asked, &exchange);
    bool ready = exchange.outcome == EXCHANGE_DONE && exchange.status == 200;
    exchange_dispose(&exchange);
    free(url);
    return ready;
}

typedef enum { STARTED, ENDED_EARLY, NOT_READY, INTERRUPTED } start_t;

static start_t wait_until_ready(demo_gateway_t *gateway)
{
    uint64_t begun = clock_mono_ms(), told = begun;
    int status;
    while (clock_mono_ms() - begun < gateway->settings->ready_ms) {
        if (demo_was_interrupted())
            return INTERRUPTED;
        if (demo_process_has_ended(&gateway->pid, &status))
            return ENDED_EARLY;
        if (is_ready(gateway)) {
            fprintf(stderr, "plimsoll demo: ready after %.1f s\n", (double)(clock_mono_ms() - begun) / 1000);
            return STARTED;
        }
        if (clock_mono_ms() - told >= DEMO_PROGRESS_MS) {
            told = clock_mono_ms();
            fprintf(stderr, "plimsoll demo: waiting for /readyz, %.0f s so far\n", (double)(told - begun) / 1000);
        }
        demo_sleep_ms(DEMO_POLL_MS);
    }
    return NOT_READY;
}

bool demo_gateway_stop(demo_gateway_t *gateway)
{
    bool clean = demo_process_end(&gateway->pid, "gateway", gateway->settings->stop_ms);
    if (!clean && !demo_was_interrupted())
        demo_process_show_log(gateway->log_path, "gateway");
    if (!demo_remove_tree(gateway->dir)) {
        fprintf(stderr, "plimsoll demo: cannot remove %s: %s\n", gateway->dir, strerror(errno));
        clean = false;
    }
    connection_dispose(&gateway->connection);
    explicit_bzero(gateway->token, sizeof(gateway->token));
    free(gateway);
    return clean;
}

/* One try on a fresh port. */
static start_t try_start(demo_gateway_t *gateway)
{
    char url[64];
    uint16_t port = find_port();
    if (port == 0)
        return ENDED_EARLY;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    connection_dispose(&gateway->connection);
    gateway->connection = (connection_t){.base = mem_strdup(url), .token = mem_strdup(gateway->token)};
    fprintf(stderr, "plimsoll demo: starting a gateway at %s\n", url);
    return spawn(gateway, port) ? wait_until_ready(gateway) : NOT_READY;
}

demo_gateway_t *demo_gateway_start(const demo_settings_t *settings)
{
    demo_gateway_t *gateway = mem_alloc(sizeof(*gateway));
    gateway->settings = settings;
    snprintf(gateway->dir, sizeof(gateway->dir), "/tmp/plimsoll-demo-XXXXXX");
    /* The gateway's processes may run as another user, who must reach the state directory but not list it. */
    if (mkdtemp(gateway->dir) == NULL || chmod(gateway->dir, 0711) != 0) {
        fprintf(stderr, "plimsoll demo: cannot make a directory in /tmp: %s\n", strerror(errno));
        free(gateway);
        return NULL;
    }
    snprintf(gateway->log_path, sizeof(gateway->log_path), "%s/gateway.log", gateway->dir);
    token_generate(gateway->token);
    demo_catch_signals();
    start_t started = NOT_READY;
    if (!demo_daemon_find(gateway->daemon_path) || access(gateway->daemon_path, X_OK) != 0) {
        fprintf(stderr, "plimsoll demo: there is no plimsolld beside this command (build it with `make`)\n");
        demo_gateway_stop(gateway);
        return NULL;
    }
    for (int i = 0; i < DEMO_PORT_TRIES; i++) {
        started = try_start(gateway);
        if (started != ENDED_EARLY)
            break;
        fputs("plimsoll demo: the gateway ended before it was ready\n", stderr);
        /* the port was taken meanwhile: the one failure that another try can mend */
        if (!demo_process_log_has(gateway->log_path, strerror(EADDRINUSE)))
            break;
    }
    if (started == STARTED)
        return gateway;
    if (started == NOT_READY)
        fprintf(stderr, "plimsoll demo: the gateway was not ready within %u s\n", settings->ready_ms / 1000);
    if (started != INTERRUPTED)
        demo_process_show_log(gateway->log_path, "gateway");
    demo_gateway_stop(gateway);
    return NULL;
}

const connection_t *demo_gateway_connection(const demo_gateway_t *gateway)
{
    return &gateway->connection;
}

void demo_gateway_show_log(const demo_gateway_t *gateway)
{
    demo_process_show_log(gateway->log_path, "gateway");
}
