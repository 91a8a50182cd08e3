#include "backends/role.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/meters.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum { PEER_MAGIC = 0x70656572 };

static void peer_check(const role_peer_t *peer)
{
    if (peer->magic != PEER_MAGIC)
        mem_fatal("not a front's connection");
}

/* --- what is announced --- */

typedef struct {
    Plimsoll__Backend__Announce message;
    Plimsoll__Backend__Kind javascript, project, module;
} announcement_t;

static void kind_fill(Plimsoll__Backend__Kind *to, const backend_kind_t *from)
{
    plimsoll__backend__kind__init(to);
    to->supported = from->supported;
    if (!from->supported)
        return;
    to->max_timeout_ms = from->max_timeout_ms;
    to->default_timeout_ms = from->default_timeout_ms;
    to->environment = (char *)from->environment;
    to->software_identity = (char *)from->software_identity;
    to->languages = (char **)from->languages;
    while (to->n_languages < BACKEND_LANGUAGES_MAX && from->languages[to->n_languages] != NULL)
        ++to->n_languages;
}

/* Points into the role: to be sent at once. */
static void announcement_fill(announcement_t *a, const role_t *role)
{
    plimsoll__backend__announce__init(&a->message);
    kind_fill(&a->javascript, &role->facts.javascript);
    kind_fill(&a->project, &role->facts.project);
    kind_fill(&a->module, &role->facts.module);
    a->message.name = (char *)role->ops->name;
    a->message.state = role->state;
    a->message.tier = (char *)tier_name(role_tier(role));
    a->message.evidence_age_ms = role->proven_ms != 0 ? clock_mono_ms() - role->proven_ms : UINT64_MAX;
    a->message.failure = (char *)role->failure;
    a->message.javascript = &a->javascript;
    a->message.project = &a->project;
    a->message.module = &a->module;
    a->message.memory_mb = role->facts.memory_mb;
    a->message.cpus = role->facts.cpus;
    a->message.pids = role->facts.pids;
    a->message.disk_mb = role->facts.disk_mb;
    a->message.policy = (char *)role->facts.policy;
    a->message.evidence = (char *)(role->facts.evidence != NULL ? role->facts.evidence : "tested");
    a->message.billed = role->ops->billed;
    a->message.capacity = role->host.capacity;
}

static void peer_announce(role_peer_t *peer)
{
    announcement_t a;
    announcement_fill(&a, peer->role);
    /* A front that does not read is told when it does: only the latest matters. */
    peer->has_stale_announce = ipc_send(peer->ipc, ROLE_ANNOUNCE, 0, &a.message.base) == IPC_FULL;
}

/* One that does not get through is made up for by the next, or at the latest when its queue has drained. */
static void peer_tell_meters(role_peer_t *peer)
{
    Plimsoll__Backend__Meters meters = PLIMSOLL__BACKEND__METERS__INIT;
    meters.n_values = METER_COUNT;
    meters.values = (int64_t *)meters_values();
    ipc_send(peer->ipc, ROLE_METERS, 0, &meters.base);
}

void role_on_meters_timer(loop_timer_t *timer)
{
    role_t *role = timer->data;
    for (role_peer_t *peer = role->peers; peer != NULL; peer = peer->next)
        peer_tell_meters(peer);
}

void role_meters_changed(void *data)
{
    role_t *role = data;
    if (!loop_timer_is_running(&role->meters_timer))
        loop_timer_start(role->loop, &role->meters_timer, ROLE_METERS_MS);
}

void role_announce(role_t *role)
{
    for (role_peer_t *peer = role->peers; peer != NULL; peer = peer->next)
        peer_announce(peer);
}

/* --- connections --- */

static void peer_close(role_peer_t *peer, const char *reason)
{
    role_t *role = peer->role;
    log_event(LOG_INFO, "front disconnected", log_str("backend", role->ops->name), log_str("reason", reason));
    role_run_orphan(peer);
    ipc_destroy(peer->ipc);
    for (role_peer_t **at = &role->peers; *at != NULL; at = &(*at)->next) {
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    }
    --role->peer_count;
    peer->magic = 0;
    free(peer);
}

static void on_close(void *data, ipc_t *ipc, const char *reason)
{
    role_peer_t *peer = data;
    (void)ipc;
    peer_check(peer);
    peer_close(peer, reason);
}

static void on_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    role_peer_t *peer = data;
    Plimsoll__Backend__RunStart *start = NULL;
    (void)ipc;
    peer_check(peer);
    if (type == ROLE_RUN_START)
        start = plimsoll__backend__run_start__unpack(NULL, len, body);
    if (start == NULL)
        peer_close(peer, "not a run");
    else
        role_run_start(peer, call, start);
}

static void on_cancel(void *data, ipc_t *ipc, uint64_t call)
{
    role_peer_t *peer = data;
    (void)ipc;
    peer_check(peer);
    role_run_cancel(peer, call);
}

static void on_drain(void *data, ipc_t *ipc)
{
    role_peer_t *peer = data;
    (void)ipc;
    peer_check(peer);
    if (peer->has_stale_announce)
        peer_announce(peer);
    peer_tell_meters(peer);
    role_run_answer_waiting(peer);
}

static void peer_accept(role_t *role, int fd)
{
    static const ipc_callbacks_t callbacks = {
        .on_message = on_message, .on_cancel = on_cancel, .on_drain = on_drain, .on_close = on_close};
    if (role->peer_count == ROLE_PEERS_MAX) {
        log_event(LOG_WARN, "front refused", log_str("backend", role->ops->name),
                  log_str("reason", "too many connections"));
        close(fd);
        return;
    }
    role_peer_t *peer = mem_alloc(sizeof(*peer));
    peer->magic = PEER_MAGIC;
    peer->role = role;
    if ((peer->ipc = ipc_create(role->loop, fd, &callbacks, peer)) == NULL) {
        log_event(LOG_WARN, "front refused", log_str("backend", role->ops->name), log_str("reason", strerror(errno)));
        free(peer);
        return;
    }
    peer->next = role->peers;
    role->peers = peer;
    ++role->peer_count;
    log_event(LOG_INFO, "front connected", log_str("backend", role->ops->name),
              log_uint("connections", role->peer_count));
    peer_announce(peer);
    peer_tell_meters(peer);
}

void role_on_connection(void *data, unsigned events)
{
    role_t *role = data;
    (void)events;
    for (;;) {
        int fd = accept4(role->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            /* It stays in the backlog and would be reported without end: look again a little later. */
            watch_set(role->listen, 0);
            loop_timer_start(role->loop, &role->listen_timer, ROLE_ACCEPT_PAUSE_MS);
        }
        if (fd < 0)
            return;
        peer_accept(role, fd);
    }
}

void role_on_listen_timer(loop_timer_t *timer)
{
    role_t *role = timer->data;
    watch_set(role->listen, WATCH_READ);
}

void role_close_peers(role_t *role)
{
    while (role->peers != NULL)
        peer_close(role->peers, "the role ends");
}
