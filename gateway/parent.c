#include "gateway/parent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/options.h"
#include "config/provider.h"
#include "core/clock.h"
#include "core/ipc.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/redis.h"
#include "core/watch.h"
#include "gateway/child.h"
#include "gateway/control.h"
#include "gateway/control.pb-c.h"
#include "gateway/ground.h"
#include "gateway/handover.h"
#include "gateway/limits.h"
#include "gateway/link.h"
#include "gateway/listener.h"
#include "gateway/private_redis.h"
#include "records/tier.h"

enum {
    REDIS_START_MS = 15 * 1000,
    REDIS_TRIES = 3, /* a program that is not there, or a file it cannot read, does not get better by trying again */
    PROOF_MS = 120 * 1000, /* spec callers-and-limits 7.1 */
    SERVING_MS = 20 * 1000,
    END_MARGIN_MS = 10 * 1000, /* after the drain, roles and Redis get this long to end by themselves */
};

typedef struct {
    child_t child;
    char *path, *argv0;
    char *argv[2];
    int listen_fd;
    int ours; /* our end of the pair whose close tells the role that we are gone */
    link_t *link;
    int last_state; /* of the last announcement that was logged; -1 = none */
    char last_tier[16];
} backend_child_t;

typedef enum { PHASE_STARTING, PHASE_SERVING, PHASE_DRAINING, PHASE_ENDING, PHASE_OVER } phase_t;

typedef struct {
    loop_t *loop;
    const char *self;
    phase_t phase;
    int exit_status;
    ground_t ground;
    int listen_fd, metrics_fd;
    bool has_redis;
    child_t redis;
    bool redis_up;
    size_t backend_count;
    backend_child_t backends[WALLS_MAX];
    child_t front;
    char *front_argv[2];
    int front_pair[2];
    ipc_t *front_ipc;
    bool serving, served_once;
    loop_timer_t end_limit;
    int signal_fd;
    watch_t *signals;
} parent_t;

static parent_t parent;

static const char *state_name(int state)
{
    static const char *const names[] = {"starting", "ready", "failed", "draining"};
    return state >= 0 && state < 4 ? names[state] : "absent";
}

/* --- listeners --- */

static bool bind_listeners(void)
{
    problems_t problems = {0};
    const char *metrics = option_str(OPT_PLIMSOLL_METRICS_ADDR);
    parent.metrics_fd = -1;
    parent.listen_fd = listener_bind("PLIMSOLL_ADDR", option_str(OPT_PLIMSOLL_ADDR), &problems);
    if (metrics != NULL && strcasecmp(metrics, "off") != 0)
        parent.metrics_fd = listener_bind("PLIMSOLL_METRICS_ADDR", metrics, &problems);
    for (size_t i = 0; i < parent.backend_count; i++) {
        backend_child_t *b = &parent.backends[i];
        b->listen_fd = ipc_listen(b->path);
        if (b->listen_fd < 0)
            problems_add(&problems, "PLIMSOLL_STATE_DIR: cannot listen on %s (%s)", b->path, strerror(errno));
        else if (geteuid() == 0 && chown(b->path, (uid_t)parent.ground.uid, (gid_t)parent.ground.gid) != 0)
            problems_add(&problems, "PLIMSOLL_STATE_DIR: %s cannot be given to PLIMSOLL_USER (%s)", b->path,
                         strerror(errno));
    }
    bool fine = problems.count == 0;
    for (size_t i = 0; i < problems.count; i++)
        fprintf(stderr, "plimsolld: %s\n", problems.texts[i]);
    problems_dispose(&problems);
    return fine;
}

/* --- ending --- */

static bool all_gone(void)
{
    if (parent.front.pid != 0 || parent.redis.pid != 0)
        return false;
    for (size_t i = 0; i < parent.backend_count; i++)
        if (parent.backends[i].child.pid != 0)
            return false;
    return true;
}

static void signal_child(child_t *child, int signal)
{
    loop_timer_stop(&child->restart);
    if (child->pid != 0)
        kill(child->pid, signal);
}

static void kill_all(void)
{
    parent.phase = PHASE_ENDING; /* nobody is restarted */
    signal_child(&parent.front, SIGKILL);
    for (size_t i = 0; i < parent.backend_count; i++)
        signal_child(&parent.backends[i].child, SIGKILL);
    if (parent.has_redis)
        signal_child(&parent.redis, SIGKILL);
}

static void on_end_limit(loop_timer_t *timer)
{
    (void)timer;
    log_plain(LOG_ERROR, "processes did not end in time and are killed");
    parent.exit_status = EXIT_BROKEN;
    kill_all();
}

/* The order is front, backends, Redis: whoever is served ends before who serves it. */
static void go_on_ending(void)
{
    bool backends_left = false;
    if (parent.phase == PHASE_DRAINING && parent.front.pid == 0)
        parent.phase = PHASE_ENDING;
    if (parent.phase != PHASE_ENDING)
        return;
    for (size_t i = 0; i < parent.backend_count; i++) {
        backend_child_t *b = &parent.backends[i];
        loop_timer_stop(&b->child.restart);
        if (b->ours >= 0) {
            close(b->ours);
            b->ours = -1;
            signal_child(&b->child, SIGTERM);
        }
        backends_left |= b->child.pid != 0;
    }
    if (!backends_left && parent.has_redis && parent.redis.pid != 0) {
        signal_child(&parent.redis, SIGTERM);
    }
    if (all_gone())
        parent.phase = PHASE_OVER;
}

static void begin_end(int status, const char *why)
{
    if (parent.phase >= PHASE_DRAINING)
        return;
    parent.exit_status = status;
    parent.phase = PHASE_DRAINING;
    log_event(LOG_INFO, "shutting down", log_str("why", why));
    loop_timer_stop(&parent.front.restart);
    /* whoever connects from here on is refused, and not left in a queue that is never served */
    close(parent.listen_fd);
    if (parent.front_ipc != NULL && parent.front.pid != 0)
        ipc_send(parent.front_ipc, CONTROL_DRAIN, 0, NULL);
    loop_timer_start(parent.loop, &parent.end_limit, (uint64_t)option_int(OPT_PLIMSOLL_DRAIN) + END_MARGIN_MS);
    go_on_ending();
}

/* --- the front --- */

static void on_front_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    (void)data;
    (void)ipc;
    (void)call;
    (void)body;
    (void)len;
    if (type != CONTROL_SERVING)
        return;
    parent.serving = true;
}

static void on_front_gone(void *data, ipc_t *ipc, const char *reason)
{
    (void)data;
    (void)reason;
    ipc_destroy(ipc);
    parent.front_ipc = NULL;
}

static void before_front(child_t *child)
{
    static const ipc_callbacks_t callbacks = {.on_message = on_front_message, .on_close = on_front_gone};
    if (parent.front_ipc != NULL)
        ipc_destroy(parent.front_ipc);
    parent.front_ipc = NULL;
    parent.serving = false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, parent.front_pair) != 0)
        mem_fatal("no descriptor for the front's control socket");
    child->fds[0] = parent.front_pair[1];
    if ((parent.front_ipc = ipc_create(parent.loop, parent.front_pair[0], &callbacks, NULL)) == NULL)
        mem_fatal("no descriptor for the front's control socket");
}

static void after_front(child_t *child)
{
    close(parent.front_pair[1]);
    child->fds[0] = -1;
    handover_send(&parent.ground, parent.front_ipc);
}

/* --- backends --- */

static void before_backend(child_t *child)
{
    backend_child_t *b = child->data;
    int pair[2];
    if (b->ours >= 0)
        close(b->ours);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        mem_fatal("no descriptor for a backend");
    b->ours = pair[0];
    child->fds[0] = pair[1];
}

static void after_backend(child_t *child)
{
    close(child->fds[0]);
    child->fds[0] = -1;
}

/* One line for every change of what a backend announces. */
static void on_backend_change(void *data)
{
    backend_child_t *b = data;
    const Plimsoll__Backend__Announce *a = b->link != NULL ? link_announce(b->link) : NULL;
    int state = a != NULL ? (int)a->state : -1;
    const char *tier = a != NULL ? a->tier : "unknown";
    if (state == b->last_state && strcmp(tier, b->last_tier) == 0)
        return;
    b->last_state = state;
    snprintf(b->last_tier, sizeof(b->last_tier), "%s", tier);
    log_event(state == PLIMSOLL__BACKEND__STATE__STATE_FAILED ? LOG_ERROR : LOG_INFO, "backend state",
              log_str("backend", b->child.name), log_str("state", state_name(state)), log_str("isolation", tier),
              log_str("failure", a != NULL ? a->failure : ""));
}

static void prepare_children(void)
{
    const char *const *names = option_list(OPT_SANDBOX_PROVIDER);
    parent.has_redis = !option_is_set(OPT_PLIMSOLL_REDIS_URL);
    if (parent.has_redis) {
        char url[4400], *path = control_redis_path();
        private_redis_prepare(&parent.redis, option_str(OPT_PLIMSOLL_REDIS_SERVER), option_str(OPT_PLIMSOLL_STATE_DIR),
                              parent.ground.uid, parent.ground.gid);
        child_init(&parent.redis, parent.loop);
        snprintf(url, sizeof(url), "redis+unix://%s", path);
        options_set(OPT_PLIMSOLL_REDIS_URL, url);
        free(path);
    }
    for (size_t i = 0; i < WALLS_MAX && names[i] != NULL; i++) {
        backend_child_t *b = &parent.backends[parent.backend_count++];
        b->path = control_backend_path(names[i]);
        b->argv0 = mem_alloc(strlen(ROLE_ARGV_BACKEND) + strlen(names[i]) + 1);
        strcat(strcpy(b->argv0, ROLE_ARGV_BACKEND), names[i]);
        b->argv[0] = b->argv0;
        b->ours = b->listen_fd = -1;
        b->last_state = -1;
        b->child = (child_t){.name = names[i],
                             .program = parent.self,
                             .argv = b->argv,
                             .env = options_environ(provider_roles(names[i])),
                             .fd_count = 2,
                             .uid = -1,
                             .before_start = before_backend,
                             .after_start = after_backend,
                             .data = b};
        child_init(&b->child, parent.loop);
    }
    parent.front_argv[0] = (char *)ROLE_ARGV_FRONT;
    parent.front = (child_t){.name = "front",
                             .program = parent.self,
                             .argv = parent.front_argv,
                             .env = options_environ(ROLE_FRONT),
                             .fd_count = 3,
                             .uid = -1,
                             .before_start = before_front,
                             .after_start = after_front};
    child_init(&parent.front, parent.loop);
}

/* --- signals and children's ends --- */

static void child_is_gone(pid_t pid, int status)
{
    bool final = parent.phase >= PHASE_DRAINING;
    child_t *child = NULL;
    if (parent.front.pid == pid) {
        child = &parent.front;
        /* while draining, the front's own end is the expected one; any other status is worth our own */
        if (final && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
            parent.exit_status = EXIT_BROKEN;
    } else if (parent.has_redis && parent.redis.pid == pid) {
        child = &parent.redis;
        final = parent.phase == PHASE_ENDING;
    }
    for (size_t i = 0; i < parent.backend_count && child == NULL; i++)
        if (parent.backends[i].child.pid == pid) {
            child = &parent.backends[i].child;
            final = parent.phase == PHASE_ENDING;
        }
    if (child != NULL)
        child_ended(child, parent.loop, status, final);
}

static void reap(void)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        child_is_gone(pid, status);
    go_on_ending();
}

static void on_signal(void *data, unsigned events)
{
    struct signalfd_siginfo info;
    (void)data;
    (void)events;
    while (read(parent.signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        switch (info.ssi_signo) {
        case SIGCHLD:
            reap();
            break;
        case SIGHUP:
            handover_reload(&parent.ground, parent.front_ipc);
            break;
        default:
            if (parent.phase >= PHASE_DRAINING) {
                log_plain(LOG_WARN, "second signal: everything is killed");
                parent.exit_status = EXIT_BROKEN;
                kill_all();
            } else {
                begin_end(EXIT_SERVED, info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
            }
            break;
        }
    }
}

/* --- the start --- */

static void on_redis_state(void *data, bool up, const char *reason)
{
    (void)data;
    (void)reason;
    parent.redis_up = up;
}

static bool wait_until(bool (*holds)(void), uint64_t ms)
{
    uint64_t until = clock_mono_ms() + ms;
    while (!holds() && parent.phase == PHASE_STARTING && clock_mono_ms() < until)
        loop_run_once(parent.loop, 50);
    return holds();
}

static bool redis_is_decided(void)
{
    return parent.redis_up || parent.redis.deaths >= REDIS_TRIES;
}

static bool start_redis(void)
{
    redis_address_t address;
    if (!parent.has_redis)
        return true; /* an operator's Redis may come later; /readyz says so meanwhile */
    if (!child_start(&parent.redis, parent.loop) ||
        redis_address_parse(option_str(OPT_PLIMSOLL_REDIS_URL), &address) != NULL)
        return false;
    redis_t *probe = redis_create(parent.loop, &address, on_redis_state, NULL);
    bool up = wait_until(redis_is_decided, REDIS_START_MS) && parent.redis_up;
    redis_destroy(probe);
    redis_address_dispose(&address);
    if (!up && parent.phase == PHASE_STARTING)
        log_event(LOG_ERROR, "the private Redis did not start; its own log says why",
                  log_str("program", option_str(OPT_PLIMSOLL_REDIS_SERVER)),
                  log_str("log", "STATE_DIR/redis/redis.log"));
    return up;
}

static bool some_backend_is_ready(void)
{
    for (size_t i = 0; i < parent.backend_count; i++)
        if (link_is_ready(parent.backends[i].link))
            return true;
    return false;
}

static bool backends_are_decided(void)
{
    for (size_t i = 0; i < parent.backend_count; i++) {
        const Plimsoll__Backend__Announce *a = link_announce(parent.backends[i].link);
        if (a == NULL || a->state == PLIMSOLL__BACKEND__STATE__STATE_STARTING)
            return false;
    }
    return true;
}

/* Proof first: nothing is served behind a wall that has not been tried. One proven wall is enough to serve; the others
 * go on trying. */
static bool start_backends(void)
{
    for (size_t i = 0; i < parent.backend_count; i++) {
        backend_child_t *b = &parent.backends[i];
        b->child.fds[1] = b->listen_fd;
        child_start(&b->child, parent.loop);
        b->link = link_create(parent.loop, b->child.name, b->path, on_backend_change, b);
    }
    wait_until(backends_are_decided, PROOF_MS);
    if (parent.phase != PHASE_STARTING)
        return false;
    if (!some_backend_is_ready()) {
        log_plain(LOG_ERROR, "no backend could prove its wall; nothing is served");
        return false;
    }
    const char *floor = option_str(OPT_SANDBOX_MIN_ISOLATION);
    for (size_t i = 0; floor != NULL && i < parent.backend_count; i++) {
        tier_t tier = link_tier(parent.backends[i].link, UINT64_MAX - 1);
        if (link_is_ready(parent.backends[i].link) && !tier_meets(tier, tier_parse(floor))) {
            log_event(LOG_ERROR, "a backend is below SANDBOX_MIN_ISOLATION",
                      log_str("backend", parent.backends[i].child.name), log_str("isolation", tier_name(tier)),
                      log_str("floor", floor));
            return false;
        }
    }
    return true;
}

static bool front_serves(void)
{
    return parent.serving;
}

static void list_backends(char *names, char *tiers, size_t size)
{
    size_t n = 0, t = 0;
    names[0] = tiers[0] = '\0';
    for (size_t i = 0; i < parent.backend_count && n < size && t < size; i++) {
        const char *comma = i != 0 ? "," : "";
        n += (size_t)snprintf(names + n, size - n, "%s%s", comma, parent.backends[i].child.name);
        t += (size_t)snprintf(tiers + t, size - t, "%s%s", comma, parent.backends[i].last_tier);
    }
}

static bool start_front(void)
{
    parent.front.fds[1] = parent.listen_fd;
    parent.front.fds[2] = parent.metrics_fd;
    if (!child_start(&parent.front, parent.loop) || !wait_until(front_serves, SERVING_MS)) {
        if (parent.phase == PHASE_STARTING)
            log_plain(LOG_ERROR, "the front did not come up");
        return false;
    }
    const char *metrics = option_str(OPT_PLIMSOLL_METRICS_ADDR);
    char names[256], tiers[256]; /* in the order of preference */
    list_backends(names, tiers, sizeof(names));
    log_event(LOG_INFO, "plimsolld listening", log_str("addr", option_str(OPT_PLIMSOLL_ADDR)),
              log_str("metrics_addr", metrics), log_bool("auth", options_callers_mode() != CALLERS_OPEN),
              log_bool("tls", option_is_set(OPT_PLIMSOLL_TLS_CERT)), log_uint("backends", parent.backend_count),
              log_str("provider", names), log_str("isolation", tiers),
              log_uint("max_concurrent", options_max_concurrent()),
              log_uint("per_caller", options_per_caller_concurrent()),
              log_int("rate_per_min", option_int(OPT_SANDBOX_RATE_PER_MIN)), log_uint("burst", options_rate_burst()),
              log_int("memory_mb", option_int(OPT_SANDBOX_MEMORY_MB)),
              log_str("redis", parent.has_redis ? "private" : "configured"));
    return true;
}

static void watch_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    parent.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (parent.signal_fd < 0 || (parent.signals = watch_create(parent.loop, parent.signal_fd, on_signal, NULL)) == NULL)
        mem_fatal("no descriptor for signals");
    watch_set(parent.signals, WATCH_READ);
}

static void dispose(void)
{
    for (size_t i = 0; i < parent.backend_count; i++) {
        backend_child_t *b = &parent.backends[i];
        if (b->link != NULL)
            link_destroy(b->link);
        options_environ_free((char **)b->child.env);
        if (b->listen_fd >= 0)
            unlink(b->path);
        free(b->path);
        free(b->argv0);
    }
    if (parent.front_ipc != NULL)
        ipc_destroy(parent.front_ipc);
    options_environ_free((char **)parent.front.env);
    loop_timer_stop(&parent.end_limit);
    watch_destroy(parent.signals);
    ground_dispose(&parent.ground);
    loop_destroy(parent.loop);
}

int parent_main(const char *self)
{
    parent.self = self;
    if (!ground_check(&parent.ground))
        return EXIT_CONFIGURATION;
    parent.loop = loop_create();
    loop_timer_init(&parent.end_limit, on_end_limit, NULL);
    watch_signals();
    prepare_children();
    if (!bind_listeners()) {
        dispose();
        return EXIT_BROKEN;
    }
    if (start_redis() && start_backends() && start_front())
        parent.phase = PHASE_SERVING;
    else
        begin_end(parent.phase == PHASE_STARTING ? EXIT_BROKEN : parent.exit_status, "the start failed");
    while (parent.phase != PHASE_OVER) {
        loop_run_once(parent.loop, 1000);
        go_on_ending();
    }
    log_event(LOG_INFO, "stopped", log_int("status", parent.exit_status));
    dispose();
    return parent.exit_status;
}
