#include "gateway/front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/confine.h"
#include "config/options.h"
#include "config/redis_settings.h"
#include "core/clock.h"
#include "core/ipc.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/sha256.h"
#include "core/watch.h"
#include "gateway/by_key.h"
#include "gateway/control.h"
#include "gateway/control.pb-c.h"
#include "gateway/describe.h"
#include "gateway/front_confine.h"
#include "gateway/front_spool.h"
#include "gateway/front_settings.h"
#include "gateway/gate.h"
#include "gateway/handler.h"
#include "gateway/link.h"
#include "gateway/metrics.h"
#include "gateway/placement.h"
#include "gateway/run.h"
#include "gateway/shared_log.h"
#include "gateway/tls.h"
#include "gateway/user.h"
#include "records/store_spool.h"
#include "records/store_check.h"

enum {
    ACCEPTS_PER_TICK = 64,
    RESUME_MS = 20, /* a lane at the connection cap looks again this often */
    DRAIN_LOOK_MS = 50,
    DRAIN_LEAST_MS = 4 * DRAIN_LOOK_MS, /* idle lanes take a look or two to say so, which is no drain cut short */
    BACKLOG_LOOK_MS = 500,
    CALLERS_WAIT_MS = 10 * 1000,
    FIRST_WORD_MS = 1000, /* a lane waits this long for its backends and its store before it accepts */
    FIRST_WORD_LOOK_MS = 10,
};

/* --- shared budgets --- */

bool front_buffer_take(front_t *front, uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(&front->buffered, memory_order_relaxed);
    do {
        /* answers are counted whatever they come to, so more than the limit may be held already */
        if (bytes != 0 && (now >= front->buffer_limit || bytes > front->buffer_limit - now))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&front->buffered, &now, now + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    metric_add(METRIC_BUFFERED_BYTES, (int64_t)bytes);
    return true;
}

void front_buffer_charge(front_t *front, uint64_t bytes)
{
    atomic_fetch_add_explicit(&front->buffered, bytes, memory_order_relaxed);
    metric_add(METRIC_BUFFERED_BYTES, (int64_t)bytes);
}

void front_buffer_give(front_t *front, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&front->buffered, bytes, memory_order_relaxed);
    metric_add(METRIC_BUFFERED_BYTES, -(int64_t)bytes);
}

bool front_place_take(front_t *front)
{
    uint32_t now = atomic_load_explicit(&front->running, memory_order_relaxed);
    do {
        if (now >= front->max_concurrent)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&front->running, &now, now + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void front_place_give(front_t *front)
{
    atomic_fetch_sub_explicit(&front->running, 1, memory_order_relaxed);
}

callers_t *front_callers(front_t *front)
{
    pthread_mutex_lock(&front->callers_lock);
    callers_t *callers = callers_ref(front->callers);
    pthread_mutex_unlock(&front->callers_lock);
    return callers;
}

prices_t *front_prices(front_t *front)
{
    pthread_mutex_lock(&front->callers_lock);
    prices_t *prices = prices_ref(front->prices);
    pthread_mutex_unlock(&front->callers_lock);
    return prices;
}

void front_prices_replace(front_t *front, prices_t *prices)
{
    pthread_mutex_lock(&front->callers_lock);
    prices_t *old = front->prices;
    front->prices = prices;
    pthread_mutex_unlock(&front->callers_lock);
    prices_unref(old);
}

void front_callers_replace(front_t *front, callers_t *callers)
{
    pthread_mutex_lock(&front->callers_lock);
    callers_t *old = front->callers;
    front->callers = callers;
    pthread_mutex_unlock(&front->callers_lock);
    if (old != NULL)
        callers_unref(old);
}

bool front_is_ready(const lane_t *lane)
{
    const front_t *front = lane->front;
    if (atomic_load_explicit(&front->draining, memory_order_relaxed) ||
        atomic_load_explicit(&front->lanes_with_store, memory_order_relaxed) != front->lane_count ||
        !spool_has_room(front->spool, 1))
        return false;
    for (size_t i = 0; i < front->backend_count; i++)
        if (placement_tier(lane, i) != TIER_UNKNOWN)
            return true;
    return false;
}

/* --- accepting --- */

static bool is_full(const front_t *front)
{
    return atomic_load_explicit(&front->connections, memory_order_relaxed) >= front->connections_max;
}

static void on_accept(h2o_socket_t *listener, const char *err)
{
    lane_t *lane = listener->data;
    h2o_socket_t *sock;
    bool metrics = listener == lane->metrics_listener;
    if (err != NULL)
        return;
    for (int i = 0; i < ACCEPTS_PER_TICK; i++) {
        if (metrics ? lane->metrics_connections >= METRICS_CONNECTIONS_MAX : is_full(lane->front)) {
            /* the rest waits in the accept queue (spec section 5) */
            h2o_socket_read_stop(listener);
            lane->listener_paused = true;
            loop_timer_start(lane->loop, &lane->resume_timer, RESUME_MS);
            return;
        }
        if ((sock = h2o_evloop_socket_accept(listener)) == NULL)
            return;
        gate_accept(lane, sock, metrics);
    }
}

static void resume(lane_t *lane)
{
    lane->listener_paused = false;
    if (lane->listener != NULL && !h2o_socket_is_reading(lane->listener))
        h2o_socket_read_start(lane->listener, on_accept);
    if (lane->metrics_listener != NULL && !h2o_socket_is_reading(lane->metrics_listener))
        h2o_socket_read_start(lane->metrics_listener, on_accept);
}

static void on_resume(loop_timer_t *timer)
{
    resume(timer->data);
}

void front_lane_changed(lane_t *lane)
{
    if (lane->listener_paused && !is_full(lane->front))
        resume(lane);
}

static h2o_socket_t *listen_on(lane_t *lane, int fd)
{
    h2o_socket_t *sock = h2o_evloop_socket_create(loop_h2o(lane->loop), dup(fd), H2O_SOCKET_FLAG_DONT_READ);
    sock->data = lane;
    h2o_socket_read_start(sock, on_accept);
    return sock;
}

/* --- a lane --- */

static void count_ready(lane_t *lane)
{
    if (lane->index != 0)
        return; /* one lane's view is enough for a gauge */
    int64_t ready = 0;
    for (size_t i = 0; i < lane->front->backend_count; i++)
        ready += lane->links[i] != NULL && placement_tier(lane, i) != TIER_UNKNOWN;
    metric_set(METRIC_BACKENDS_READY, ready);
}

static void on_link_change(void *data)
{
    count_ready(data);
}

static void on_store_state(void *data, bool up, const char *reason)
{
    lane_t *lane = data;
    front_t *front = lane->front;
    bool changed = up != lane->store_up;
    if (changed) {
        lane->store_up = up;
        uint32_t lanes =
            up ? atomic_fetch_add(&front->lanes_with_store, 1) + 1 : atomic_fetch_sub(&front->lanes_with_store, 1) - 1;
        metric_set(METRIC_STORE_UP, lanes == front->lane_count);
    }
    /* of a store that never came up, each new reason is told once */
    if (lane->index == 0 && (changed || !up))
        log_event(up ? LOG_INFO : LOG_ERROR, up ? "record store up" : "record store away", log_str("reason", reason));
    run_look_all(lane);
    by_key_look_all(lane);
}

static void on_claim_settled(void *data, const char *claim_key)
{
    run_on_settled(data, claim_key);
    by_key_on_settled(data, claim_key);
}

/* The gauge is the sum over all lanes; each adds its own change. */
static void on_backlog_look(loop_timer_t *timer)
{
    lane_t *lane = timer->data;
    size_t now = store_backlog(lane->store);
    metric_add(METRIC_SETTLE_BACKLOG, (int64_t)now - (int64_t)lane->backlog);
    lane->backlog = now;
    uint64_t dropped = store_receipts_dropped(lane->store);
    metric_add(METRIC_RECEIPTS_DROPPED, (int64_t)(dropped - lane->receipts_dropped));
    lane->receipts_dropped = dropped;
    loop_timer_start(lane->loop, &lane->backlog_timer, BACKLOG_LOOK_MS);
}

static void lane_end(lane_t *lane)
{
    front_t *front = lane->front;
    loop_timer_stop(&lane->backlog_timer);
    loop_timer_stop(&lane->drain_timer);
    loop_timer_stop(&lane->resume_timer);
    loop_stop(lane->loop);
    atomic_fetch_sub(&front->lanes_left, 1);
}

static void on_drain_look(loop_timer_t *timer)
{
    lane_t *lane = timer->data;
    bool served = !gate_has_callers(lane) && lane->lingering == 0 && lane->runs == 0 && store_may_end(lane->store);
    /* metrics are served until the last lane has served its callers (spec section 7) */
    if (served && lane->metrics_listener != NULL && atomic_load(&lane->front->lanes_left) == 1) {
        h2o_socket_close(lane->metrics_listener);
        lane->metrics_listener = NULL;
    }
    gate_drain(lane, lane->metrics_listener == NULL);
    if (served && lane->metrics_listener == NULL && lane->gates == NULL)
        lane_end(lane);
    else
        loop_timer_start(lane->loop, &lane->drain_timer, DRAIN_LOOK_MS);
}

static void lane_drain(void *arg)
{
    lane_t *lane = arg;
    if (lane->listener == NULL)
        return;
    h2o_socket_close(lane->listener);
    lane->listener = NULL;
    on_drain_look(&lane->drain_timer);
}

static void lane_prepare(lane_t *lane)
{
    front_t *front = lane->front;
    const store_callbacks_t callbacks = {on_claim_settled, on_store_state, lane};
    lane->loop = loop_create();
    h2o_context_init(&lane->h2o, loop_h2o(lane->loop), &front->h2o);
    lane->accept.ctx = &lane->h2o;
    lane->accept.hosts = front->h2o.hosts;
    loop_timer_init(&lane->resume_timer, on_resume, lane);
    loop_timer_init(&lane->drain_timer, on_drain_look, lane);
    loop_timer_init(&lane->backlog_timer, on_backlog_look, lane);
    lane->describe = describe_cache_create();
    lane->hangup = hangup_create(lane);
    lane->store = store_create(lane->loop, &front->redis, &front->store_settings, &callbacks);
    front_spool_use(lane);
    for (size_t i = 0; i < front->backend_count; i++)
        lane->links[i] =
            link_create(lane->loop, front->backend_names[i], front->backend_paths[i], on_link_change, lane);
    on_backlog_look(&lane->backlog_timer);
}

static void lane_dispose(lane_t *lane)
{
    for (size_t i = 0; i < lane->front->backend_count; i++)
        link_destroy(lane->links[i]);
    store_destroy(lane->store);
    hangup_destroy(lane->hangup);
    describe_cache_destroy(lane->describe);
    h2o_context_dispose(&lane->h2o);
    loop_destroy(lane->loop);
}

static bool has_heard_all(const lane_t *lane)
{
    for (size_t i = 0; i < lane->front->backend_count; i++)
        if (link_announce(lane->links[i]) == NULL)
            return false;
    return store_is_up(lane->store);
}

/* What a backend is good for is known once it has announced it: a run placed before that would go to the wrong one or
 * be refused. Callers wait in the accept queue meanwhile; a backend or a store that is down keeps nobody waiting for
 * long. */
static void await_first_word(lane_t *lane)
{
    uint64_t until = clock_mono_ms() + FIRST_WORD_MS;
    while (!has_heard_all(lane) && !atomic_load_explicit(&lane->front->draining, memory_order_relaxed) &&
           clock_mono_ms() < until)
        loop_run_once(lane->loop, FIRST_WORD_LOOK_MS);
}

static void *lane_main(void *arg)
{
    lane_t *lane = arg;
    lane_prepare(lane);
    await_first_word(lane);
    lane->listener = listen_on(lane, lane->front->listen_fd);
    if (lane->index == 0 && lane->front->metrics_fd >= 0)
        lane->metrics_listener = listen_on(lane, lane->front->metrics_fd);
    atomic_fetch_add(&lane->front->lanes_left, 1);
    loop_run(lane->loop);
    if (lane->gates == NULL)
        lane_dispose(lane);
    return NULL;
}

/* --- the front's own thread: the parent's wishes --- */

typedef struct {
    front_t *front;
    loop_t *loop;
    ipc_t *parent;
    store_check_t *check;
    loop_timer_t drain_limit, drain_look;
    bool lanes_started;
    bool callers_came;
} control_t;

static void on_drain_limit(loop_timer_t *timer)
{
    control_t *c = timer->data;
    log_event(LOG_WARN, "drain cut short", log_int("inflight", metric_get(METRIC_INFLIGHT)));
    loop_stop(c->loop);
}

static void on_all_drained(loop_timer_t *timer)
{
    control_t *c = timer->data;
    if (atomic_load(&c->front->lanes_left) == 0)
        loop_stop(c->loop);
    else
        loop_timer_start(c->loop, &c->drain_look, DRAIN_LOOK_MS);
}

static void drain_lanes(control_t *c)
{
    for (unsigned i = 0; i < c->front->lane_count; i++)
        loop_post(c->front->lanes[i].loop, lane_drain, &c->front->lanes[i]);
    uint64_t limit = (uint64_t)option_int(OPT_PLIMSOLL_DRAIN);
    loop_timer_start(c->loop, &c->drain_limit, limit > DRAIN_LEAST_MS ? limit : DRAIN_LEAST_MS);
    loop_timer_start(c->loop, &c->drain_look, DRAIN_LOOK_MS);
}

static void begin_drain(control_t *c, const char *why)
{
    if (atomic_exchange(&c->front->draining, true))
        return;
    log_event(LOG_INFO, "draining", log_str("why", why), log_int("inflight", metric_get(METRIC_INFLIGHT)));
    /* Asked before the lanes listen, it is begun once they do: until then they take no task for it. */
    if (c->lanes_started)
        drain_lanes(c);
}

static void on_callers(control_t *c, const uint8_t *body, size_t len)
{
    problems_t problems = {0};
    Plimsoll__Control__Callers *m = plimsoll__control__callers__unpack(NULL, len, body);
    if (m == NULL)
        return;
    callers_t *callers = callers_parse((const char *)m->json.data, m->json.len, false, &problems);
    plimsoll__control__callers__free_unpacked(m, NULL);
    if (callers == NULL) {
        /* the parent checked it; this is a broken invariant, yet the old set is as good as it was */
        log_event(LOG_ERROR, "callers not taken over",
                  log_str("problem", problems.count != 0 ? problems.texts[0] : ""));
        problems_dispose(&problems);
        return;
    }
    problems_dispose(&problems);
    log_event(LOG_INFO, "callers in force", log_uint("callers", callers_count(callers)));
    front_callers_replace(c->front, callers);
    c->callers_came = true;
}

static void on_prices(control_t *c, const uint8_t *body, size_t len)
{
    problems_t problems = {0};
    Plimsoll__Control__Prices *m = plimsoll__control__prices__unpack(NULL, len, body);
    if (m == NULL)
        return;
    prices_t *prices = prices_parse((const char *)m->json.data, m->json.len, &problems);
    plimsoll__control__prices__free_unpacked(m, NULL);
    if (prices != NULL)
        front_prices_replace(c->front, prices);
    else /* the parent checked it; a broken invariant */
        log_plain(LOG_ERROR, "prices not taken over");
    problems_dispose(&problems);
}

static void on_parent_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    control_t *c = data;
    (void)ipc;
    (void)call;
    if (type == CONTROL_CALLERS)
        on_callers(c, body, len);
    else if (type == CONTROL_PRICES)
        on_prices(c, body, len);
    else if (type == CONTROL_DRAIN)
        begin_drain(c, "asked by the parent");
}

static void on_parent_gone(void *data, ipc_t *ipc, const char *reason)
{
    control_t *c = data;
    (void)reason;
    ipc_destroy(ipc);
    c->parent = NULL;
    begin_drain(c, "the parent is gone");
}

static bool start_lanes(control_t *c)
{
    front_t *front = c->front;
    front->lanes = mem_alloc_array(front->lane_count, sizeof(*front->lanes));
    handler_register(front);
    for (unsigned i = 0; i < front->lane_count; i++) {
        front->lanes[i].front = front;
        front->lanes[i].index = i;
        if (pthread_create(&front->lanes[i].thread, NULL, lane_main, &front->lanes[i]) != 0) {
            log_plain(LOG_ERROR, "a thread could not be started");
            return false;
        }
    }
    while (atomic_load(&front->lanes_left) != front->lane_count)
        loop_run_once(c->loop, 1);
    c->lanes_started = true;
    /* the lanes have copies of their own: once those are closed, nobody is to wait in a queue that is never served */
    close(front->listen_fd);
    if (front->metrics_fd >= 0)
        close(front->metrics_fd);
    return true;
}

static bool lacks_files(const control_t *c)
{
    return (c->front->auth_mode == AUTH_CALLERS && !c->callers_came) ||
           (option_is_set(OPT_PLIMSOLL_PRICES_FILE) && c->front->prices == NULL);
}

static void wait_for_files(control_t *c)
{
    uint64_t until = clock_mono_ms() + CALLERS_WAIT_MS;
    while (lacks_files(c) && c->parent != NULL && clock_mono_ms() < until)
        loop_run_once(c->loop, 100);
}

static void dispose(control_t *c)
{
    front_t *front = c->front;
    loop_timer_stop(&c->drain_limit);
    loop_timer_stop(&c->drain_look);
    if (c->parent != NULL)
        ipc_destroy(c->parent);
    shared_log_destroy(front->log);
    store_check_destroy(c->check);
    loop_destroy(c->loop);
    h2o_config_dispose(&front->h2o);
    for (size_t i = 0; i < front->backend_count; i++)
        free(front->backend_paths[i]);
    if (front->callers != NULL)
        callers_unref(front->callers);
    prices_unref(front->prices);
    proxies_destroy(front->proxies);
    decode_slots_destroy(front->decode_slots);
    decode_slots_destroy(front->key_waiters);
    address_count_destroy(front->addresses);
    flights_destroy(front->flights);
    local_quota_destroy(front->local_quota);
    redis_address_dispose(&front->redis);
    SSL_CTX_free(front->tls);
    free(front->lanes);
}

static void on_settings_looked_at(void *data, unsigned warnings)
{
    (void)data;
    metric_set(METRIC_REDIS_SETTINGS_WRONG, warnings);
}

int front_main(int control_fd, int listen_fd, int metrics_fd)
{
    static front_t front; /* lanes that did not drain in time still use it while the process ends */
    static const ipc_callbacks_t callbacks = {.on_message = on_parent_message, .on_close = on_parent_gone};
    problems_t problems = {0};
    control_t c = {.front = &front};
    const char *err;
    front.listen_fd = listen_fd;
    /* with the metrics off no descriptor was handed over, and the number may be one of ours by now */
    front.metrics_fd = strcasecmp(option_str(OPT_PLIMSOLL_METRICS_ADDR), "off") == 0 ? -1 : metrics_fd;
    pthread_mutex_init(&front.callers_lock, NULL);
    front_read_settings(&front);
    if (option_is_set(OPT_PLIMSOLL_TLS_CERT))
        front.tls =
            tls_load(option_str(OPT_PLIMSOLL_TLS_CERT), option_str(OPT_PLIMSOLL_TLS_KEY), front.http2, &problems);
    redis_settings_read(&front.redis, &problems);
    int uid = 0, gid = 0;
    if (!user_lookup(option_str(OPT_PLIMSOLL_USER), &uid, &gid))
        problems_add(&problems, "PLIMSOLL_USER: there is no user %s", option_str(OPT_PLIMSOLL_USER));
    else if (problems.count == 0 && ((err = backend_confine(uid, gid)) != NULL || (err = front_confine()) != NULL))
        problems_add(&problems, "the front could not confine itself: %s", err);
    for (size_t i = 0; i < problems.count; i++)
        log_event(LOG_ERROR, "front cannot start", log_str("problem", problems.texts[i]));
    if (problems.count != 0)
        return 1;
    c.loop = loop_create();
    loop_timer_init(&c.drain_limit, on_drain_limit, &c);
    loop_timer_init(&c.drain_look, on_all_drained, &c);
    c.parent = ipc_create(c.loop, control_fd, &callbacks, &c);
    wait_for_files(&c);
    if (lacks_files(&c)) {
        log_plain(LOG_ERROR, "the parent sent no callers or no prices");
        return 1;
    }
    c.check = store_check_create(c.loop, &front.redis, on_settings_looked_at, NULL);
    front.log = shared_log_create(c.loop, &front.redis, option_str(OPT_PLIMSOLL_INSTALLATION));
    front_spool_open(&front);
    if (!start_lanes(&c))
        return 1;
    Plimsoll__Control__Serving serving = PLIMSOLL__CONTROL__SERVING__INIT;
    serving.threads = front.lane_count;
    if (c.parent != NULL)
        ipc_send(c.parent, CONTROL_SERVING, 0, &serving.base);
    if (atomic_load(&front.draining))
        drain_lanes(&c);
    loop_run(c.loop);
    if (atomic_load(&front.lanes_left) != 0)
        _exit(1); /* runs were cut: threads still hold what they use */
    for (unsigned i = 0; i < front.lane_count; i++)
        pthread_join(front.lanes[i].thread, NULL);
    front_spool_close(&front);
    dispose(&c);
    log_plain(LOG_INFO, "drained");
    return 0;
}
