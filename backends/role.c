#include "backends/role.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "backends/confine.h"
#include "backends/meters.h"
#include "config/options.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"

enum { ROLE_MAGIC = 0x726f6c65 };

/* --- the end --- */

static bool has_unsent(const role_t *role)
{
    for (const role_peer_t *peer = role->peers; peer != NULL; peer = peer->next) {
        if (ipc_queued(peer->ipc) > 0)
            return true;
    }
    return false;
}

static void stop_main(void *arg)
{
    role_t *role = arg;
    /* The last answers may still be on their way to a front. */
    for (uint32_t waited_ms = 0; has_unsent(role) && waited_ms < ROLE_FLUSH_MS; waited_ms += ROLE_FLUSH_LOOK_MS)
        co_sleep(ROLE_FLUSH_LOOK_MS);
    if (role->ledger != NULL)
        role_ledger_end(role->ledger);
    role->ops->stop(role->wall);
    role->wall = NULL;
    if (role->ledger != NULL)
        role_ledger_leave(role->ledger);
}

static void on_stopped(void *arg)
{
    role_t *role = arg;
    role->stopper = NULL;
    loop_stop(role->loop);
}

static bool is_idle(const role_t *role)
{
    return role->run_count == 0 && role->proof == NULL;
}

void role_has_ended_one(role_t *role)
{
    if (role->state != PLIMSOLL__BACKEND__STATE__STATE_DRAINING || !is_idle(role) || role->stopper != NULL ||
        role->wall == NULL)
        return;
    loop_timer_stop(&role->drain_timer);
    role->stopper = co_start(role->loop, stop_main, role, on_stopped);
}

static void abort_runs(role_t *role)
{
    if (role->is_aborting)
        return;
    role->is_aborting = true;
    log_event(LOG_WARN, "backend drain over", log_str("backend", role->ops->name), log_uint("runs", role->run_count));
    role_cancel_all(role);
    loop_timer_start(role->loop, &role->drain_timer, ROLE_ABORT_MS);
}

static void on_drain_timer(loop_timer_t *timer)
{
    role_t *role = timer->data;
    if (!role->is_aborting) {
        abort_runs(role);
        return;
    }
    /* Whatever still hangs in its clean-up ends with the process; the kernel ends the sandboxes of this machine with
     * it. */
    log_event(LOG_ERROR, "backend runs abandoned", log_str("backend", role->ops->name),
              log_uint("runs", role->run_count));
    _exit(1);
}

static void drain(role_t *role, const char *why)
{
    if (role->state == PLIMSOLL__BACKEND__STATE__STATE_DRAINING)
        return;
    log_event(LOG_INFO, "backend draining", log_str("backend", role->ops->name), log_str("reason", why),
              log_uint("runs", role->run_count));
    role->state = PLIMSOLL__BACKEND__STATE__STATE_DRAINING;
    role_proof_end(role);
    role_announce(role);
    loop_timer_start(role->loop, &role->drain_timer, (uint64_t)option_int(OPT_PLIMSOLL_DRAIN));
    role_has_ended_one(role);
}

static void on_signal(void *data, unsigned events)
{
    role_t *role = data;
    struct signalfd_siginfo info;
    (void)events;
    while (read(role->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (role->state == PLIMSOLL__BACKEND__STATE__STATE_DRAINING)
            abort_runs(role); /* asked twice: now */
        else
            drain(role, "signal");
    }
}

static void on_parent(void *data, unsigned events)
{
    role_t *role = data;
    char byte;
    (void)events;
    ssize_t n = read(role->parent_fd, &byte, 1);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return; /* nothing it could say means anything; its end does */
    watch_destroy(role->parent);
    role->parent = NULL;
    drain(role, "the parent has gone");
}

/* --- the start --- */

static void on_reprove(void *data)
{
    role_prove(data);
}

static bool find_user(int *uid, int *gid)
{
    *uid = *gid = 0;
    if (geteuid() != 0)
        return true;
    const struct passwd *user = getpwnam(option_str(OPT_PLIMSOLL_USER));
    if (user == NULL)
        return false;
    *uid = (int)user->pw_uid;
    *gid = (int)user->pw_gid;
    return true;
}

static const char *confine(const role_t *role)
{
    backend_privileges_t keep = {.group = -1};
    int uid, gid;
    if (!find_user(&uid, &gid))
        return "PLIMSOLL_USER is not known on this machine";
    if (role->ops->privileges != NULL)
        role->ops->privileges(role->wall, &keep);
    return backend_confine_keeping(uid, gid, &keep);
}

/* A wall that could not be proven for want of the ledger can be now. A proof that is under way may have had it: another
 * one costs sandboxes, which some walls bill. */
static void on_ledger_up(void *data)
{
    role_t *role = data;
    if (role->proof != NULL)
        role->is_retry_wanted = true;
    else if (role->state != PLIMSOLL__BACKEND__STATE__STATE_READY)
        role_prove(role);
}

/* Before root is dropped: files of the settings may be root's. */
static bool prepare_ledger(role_t *role, char why[LEDGER_ERROR_MAX + 1])
{
    role_ledger_settings_t settings = {.backend = role->ops->name,
                                       .is_billed = role->ops->billed,
                                       .sandboxes = role->ops->sandboxes,
                                       .on_up = on_ledger_up,
                                       .data = role};
    random_hex(role->instance, LEDGER_INSTANCE / 2);
    memcpy(settings.instance, role->instance, sizeof(settings.instance));
    if (role->ops->sandboxes != NULL)
        role->ledger = role_ledger_create(role->loop, &settings, why);
    return role->ops->sandboxes == NULL || role->ledger != NULL;
}

static bool watch_all(role_t *role)
{
    sigset_t end_signals;
    sigemptyset(&end_signals);
    sigaddset(&end_signals, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &end_signals, NULL) != 0 ||
        (role->signal_fd = signalfd(-1, &end_signals, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return false;
    signal(SIGPIPE, SIG_IGN);
    role->listen = watch_create(role->loop, role->listen_fd, role_on_connection, role);
    role->signals = watch_create(role->loop, role->signal_fd, on_signal, role);
    role->parent = role->parent_fd >= 0 ? watch_create(role->loop, role->parent_fd, on_parent, role) : NULL;
    if (role->listen == NULL || role->signals == NULL || (role->parent_fd >= 0 && role->parent == NULL))
        return false;
    watch_set(role->listen, WATCH_READ);
    watch_set(role->signals, WATCH_READ);
    if (role->parent != NULL)
        watch_set(role->parent, WATCH_READ);
    return true;
}

static void dispose(role_t *role)
{
    role_close_peers(role);
    loop_timer_stop(&role->listen_timer);
    loop_timer_stop(&role->drain_timer);
    if (role->wall != NULL)
        role->ops->stop(role->wall);
    if (role->ledger != NULL)
        role_ledger_destroy(role->ledger);
    meters_on_change(NULL, NULL);
    loop_timer_stop(&role->meters_timer);
    if (role->listen != NULL)
        watch_destroy(role->listen);
    if (role->signals != NULL)
        watch_destroy(role->signals);
    if (role->parent != NULL)
        watch_destroy(role->parent);
    if (role->signal_fd >= 0)
        close(role->signal_fd);
    close(role->listen_fd);
    if (role->parent_fd >= 0)
        close(role->parent_fd);
    loop_destroy(role->loop);
}

int backend_role_main(const char *name, int listen_fd, int parent_fd)
{
    role_t role = {.magic = ROLE_MAGIC, .listen_fd = listen_fd, .parent_fd = parent_fd, .signal_fd = -1};
    int status = 1;
    const char *failed;
    char why[LEDGER_ERROR_MAX + 1];

    role.loop = loop_create();
    role.ops = backend_find(name);
    if (role.ops == NULL) {
        log_event(LOG_ERROR, "backend unknown", log_str("backend", name));
        goto Exit;
    }
    if (!prepare_ledger(&role, why)) {
        log_event(LOG_ERROR, "backend without a ledger", log_str("backend", name), log_str("reason", why));
        goto Exit;
    }
    role.host = (backend_host_t){.loop = role.loop,
                                 .capacity = options_max_concurrent(),
                                 .instance = role.instance,
                                 .ledger = role.ledger,
                                 .reprove = on_reprove,
                                 .data = &role};
    loop_timer_init(&role.drain_timer, on_drain_timer, &role);
    loop_timer_init(&role.listen_timer, role_on_listen_timer, &role);
    loop_timer_init(&role.meters_timer, role_on_meters_timer, &role);
    meters_on_change(role_meters_changed, &role);
    role.wall = role.ops->setup(&role.host);
    if ((failed = confine(&role)) != NULL) {
        log_event(LOG_ERROR, "backend not confined", log_str("backend", name), log_str("reason", failed));
        goto Exit;
    }
    if (!watch_all(&role)) {
        log_event(LOG_ERROR, "backend not started", log_str("backend", name), log_str("reason", strerror(errno)));
        goto Exit;
    }
    log_event(LOG_INFO, "backend started", log_str("backend", name), log_uint("capacity", role.host.capacity),
              log_bool("filter", backend_confine_has_filter()));
    role.ops->describe(role.wall, &role.facts);
    if (role.ledger != NULL)
        role_ledger_begin(role.ledger, role.wall);
    role_proof_begin(&role);
    loop_run(role.loop);
    log_event(LOG_INFO, "backend ended", log_str("backend", name));
    status = 0;

Exit:
    dispose(&role);
    return status;
}
