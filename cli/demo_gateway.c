#include "cli/demo_gateway.h"

#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/demo_daemon.h"
#include "cli/exchange.h"
#include "cli/terminal.h"
#include "config/token.h"
#include "core/clock.h"
#include "core/mem.h"

enum {
    POLL_MS = 50,
    PROBE_MS = 2000,     /* one look at /readyz */
    PROGRESS_MS = 3000,  /* between progress lines */
    LOG_TAIL_MAX = 4096, /* bytes of the gateway's log shown when it fails */
};

struct demo_gateway {
    pid_t pid; /* and process group; 0 = none */
    char dir[64], log_path[96], daemon_path[DEMO_PATH_MAX];
    char token[TOKEN_GENERATED + 1];
    connection_t connection;
};

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t gateway_pid;

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
    /* A call in progress ends when the gateway does. */
    if (gateway_pid > 0)
        kill((pid_t)gateway_pid, SIGTERM);
}

bool demo_was_interrupted(void)
{
    return interrupted != 0;
}

static void sleep_ms(unsigned ms)
{
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&span, NULL);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

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
                            .port = port};
    gateway->pid = demo_daemon_spawn(&daemon);
    gateway_pid = gateway->pid;
    if (gateway->pid == 0)
        fprintf(stderr, "plimsoll demo: cannot start the gateway: %s\n", strerror(errno));
    return gateway->pid != 0;
}

/* Whether the gateway has ended; its wait status then. What it may have left of its group goes with it, before the
 * group's number is free for others. */
static bool has_ended(demo_gateway_t *gateway, int *status)
{
    if (gateway->pid == 0)
        return true;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)gateway->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
        return false;
    kill(-gateway->pid, SIGKILL);
    gateway_pid = 0; /* before the number is free: the signal handler uses it */
    waitpid(gateway->pid, status, 0);
    gateway->pid = 0;
    return true;
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
    while (clock_mono_ms() - begun < DEMO_READY_MS) {
        if (interrupted)
            return INTERRUPTED;
        if (has_ended(gateway, &status))
            return ENDED_EARLY;
        if (is_ready(gateway)) {
            fprintf(stderr, "plimsoll demo: ready after %.1f s\n", (double)(clock_mono_ms() - begun) / 1000);
            return STARTED;
        }
        if (clock_mono_ms() - told >= PROGRESS_MS) {
            told = clock_mono_ms();
            fprintf(stderr, "plimsoll demo: waiting for /readyz, %.0f s so far\n", (double)(told - begun) / 1000);
        }
        sleep_ms(POLL_MS);
    }
    return NOT_READY;
}

/* The end of the gateway's log; "" when there is none. */
static void read_log(const demo_gateway_t *gateway, char text[LOG_TAIL_MAX + 1])
{
    text[0] = '\0';
    FILE *file = fopen(gateway->log_path, "re");
    if (file == NULL)
        return;
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) > LOG_TAIL_MAX)
        fseek(file, -LOG_TAIL_MAX, SEEK_END);
    else
        rewind(file);
    text[fread(text, 1, LOG_TAIL_MAX, file)] = '\0';
    fclose(file);
}

/* For a person to find the reason in. */
static void show_log(const demo_gateway_t *gateway)
{
    char text[LOG_TAIL_MAX + 1];
    read_log(gateway, text);
    fputs("plimsoll demo: the end of the gateway's log:\n", stderr);
    for (char *at = text, *next; at != NULL && *at != '\0'; at = next) {
        next = strchr(at, '\n');
        if (next != NULL)
            *next++ = '\0';
        fputs("  ", stderr);
        terminal_print(stderr, at);
        fputc('\n', stderr);
    }
}

/* Whether the port was taken meanwhile: the one failure that another try can mend. */
static bool port_was_taken(const demo_gateway_t *gateway)
{
    char text[LOG_TAIL_MAX + 1];
    read_log(gateway, text);
    return strstr(text, strerror(EADDRINUSE)) != NULL;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

/* Ends the gateway's processes; false when it had to be killed or did not exit with 0. */
static bool end_process(demo_gateway_t *gateway)
{
    if (gateway->pid == 0)
        return true;
    uint64_t begun = clock_mono_ms();
    int status = 0;
    bool killed = false;
    kill(gateway->pid, SIGTERM);
    while (!has_ended(gateway, &status)) {
        if (!killed && clock_mono_ms() - begun >= DEMO_STOP_MS) {
            fprintf(stderr, "plimsoll demo: the gateway did not stop within %d s and is killed\n", DEMO_STOP_MS / 1000);
            kill(-gateway->pid, SIGKILL);
            killed = true;
        }
        sleep_ms(POLL_MS);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    fprintf(stderr, "plimsoll demo: the gateway ended with %s %d\n", WIFEXITED(status) ? "status" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return false;
}

bool demo_gateway_stop(demo_gateway_t *gateway)
{
    bool clean = end_process(gateway);
    if (!clean && !interrupted)
        show_log(gateway);
    if (nftw(gateway->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) {
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

demo_gateway_t *demo_gateway_start(void)
{
    demo_gateway_t *gateway = mem_alloc(sizeof(*gateway));
    snprintf(gateway->dir, sizeof(gateway->dir), "/tmp/plimsoll-demo-XXXXXX");
    /* The gateway's processes may run as another user, who must reach the state directory but not list it. */
    if (mkdtemp(gateway->dir) == NULL || chmod(gateway->dir, 0711) != 0) {
        fprintf(stderr, "plimsoll demo: cannot make a directory in /tmp: %s\n", strerror(errno));
        free(gateway);
        return NULL;
    }
    snprintf(gateway->log_path, sizeof(gateway->log_path), "%s/gateway.log", gateway->dir);
    token_generate(gateway->token);
    catch_signals();
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
        if (!port_was_taken(gateway))
            break;
    }
    if (started == STARTED)
        return gateway;
    if (started == NOT_READY)
        fprintf(stderr, "plimsoll demo: the gateway was not ready within %d s\n", DEMO_READY_MS / 1000);
    if (started != INTERRUPTED)
        show_log(gateway);
    demo_gateway_stop(gateway);
    return NULL;
}

const connection_t *demo_gateway_connection(const demo_gateway_t *gateway)
{
    return &gateway->connection;
}
