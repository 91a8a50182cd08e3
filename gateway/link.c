#include "gateway/link.h"

#include <stdlib.h>
#include <string.h>

#include "backends/meters.h"
#include "config/provider.h"
#include "core/clock.h"
#include "core/ipc.h"
#include "core/log.h"
#include "core/mem.h"
#include "gateway/metrics.h"

enum { LINK_MAGIC = 0x6c696e6b, RECONNECT_MS = 50, CALLS_FIRST = 16 };

typedef struct {
    link_cb cb; /* NULL = free */
    void *data;
    uint32_t generation;
    uint32_t next_free;
} call_t;

struct link {
    unsigned magic;
    loop_t *loop;
    const char *name, *path;
    void (*on_change)(void *data);
    void *data;
    ipc_t *ipc;
    loop_timer_t reconnect;
    Plimsoll__Backend__Announce *announce;
    uint64_t announced_at, version;
    tier_t tier;
    call_t *calls;
    uint32_t call_count, first_free; /* first_free: index + 1 */
};

static void connect_now(link_t *link);

static call_t *find_call(link_t *link, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    if (index >= link->call_count || link->calls[index].cb == NULL || link->calls[index].generation != id >> 32)
        return NULL;
    return &link->calls[index];
}

static void free_call(link_t *link, call_t *call)
{
    call->cb = NULL;
    if (++call->generation == 0)
        call->generation = 1; /* an ID is never 0 */
    call->next_free = link->first_free;
    link->first_free = (uint32_t)(call - link->calls) + 1;
}

static void end_call(link_t *link, call_t *call, const link_result_t *result)
{
    link_cb cb = call->cb;
    void *data = call->data;
    free_call(link, call);
    cb(data, result);
}

static void forget_announce(link_t *link)
{
    link->version++;
    if (link->announce == NULL)
        return;
    plimsoll__backend__announce__free_unpacked(link->announce, NULL);
    link->announce = NULL;
    link->tier = TIER_UNKNOWN;
}

/* No wall is more than the program knows it can prove, whatever its role says. */
static tier_t capped_tier(const char *name, tier_t tier)
{
    const provider_t *provider = provider_find(name);
    tier_t most = provider != NULL ? tier_parse(provider_tier(provider)) : TIER_UNKNOWN;
    if (tier <= most)
        return tier;
    log_event(LOG_ERROR, "backend claims more than it can prove", log_str("backend", name),
              log_str("claimed", tier_name(tier)), log_str("most", tier_name(most)));
    return TIER_UNKNOWN;
}

static void on_announce(link_t *link, const uint8_t *body, size_t len)
{
    Plimsoll__Backend__Announce *a = plimsoll__backend__announce__unpack(NULL, len, body);
    if (a == NULL || strcmp(a->name, link->name) != 0 || a->javascript == NULL || a->project == NULL ||
        a->module == NULL) {
        if (a != NULL)
            plimsoll__backend__announce__free_unpacked(a, NULL);
        log_event(LOG_ERROR, "backend announcement unusable", log_str("backend", link->name));
        return;
    }
    forget_announce(link);
    link->announce = a;
    link->announced_at = clock_mono_ms();
    link->tier = capped_tier(link->name, tier_parse(a->tier));
    link->on_change(link->data);
}

static void on_meters(const link_t *link, const uint8_t *body, size_t len)
{
    Plimsoll__Backend__Meters *meters = plimsoll__backend__meters__unpack(NULL, len, body);
    if (meters != NULL && meters->n_values == METER_COUNT)
        metrics_wall_set(link->name, meters->values);
    else
        log_event(LOG_ERROR, "backend meters unusable", log_str("backend", link->name));
    if (meters != NULL)
        plimsoll__backend__meters__free_unpacked(meters, NULL);
}

static void on_message(void *data, ipc_t *ipc, uint16_t type, uint64_t id, const uint8_t *body, size_t len)
{
    link_t *link = data;
    (void)ipc;
    if (link->magic != LINK_MAGIC)
        mem_fatal("not a link");
    if (type == LINK_METERS) {
        on_meters(link, body, len);
        return;
    }
    if (type == LINK_ANNOUNCE) {
        on_announce(link, body, len);
        return;
    }
    call_t *call = find_call(link, id);
    if (call == NULL)
        return; /* the answer to a run whose end is known already */
    link_result_t result = {.end = LINK_GARBLED};
    switch (type) {
    case LINK_RUN_DONE:
        if ((result.done = plimsoll__backend__run_done__unpack(NULL, len, body)) != NULL)
            result.end = LINK_DONE;
        break;
    case LINK_RUN_REFUSED:
        if ((result.refused = plimsoll__backend__run_refused__unpack(NULL, len, body)) != NULL)
            result.end = LINK_REFUSED;
        break;
    case LINK_RUN_FAILED:
        if ((result.failed = plimsoll__backend__run_failed__unpack(NULL, len, body)) != NULL)
            result.end = LINK_FAILED;
        break;
    default:
        break;
    }
    end_call(link, call, &result);
    if (result.done != NULL)
        plimsoll__backend__run_done__free_unpacked(result.done, NULL);
    if (result.refused != NULL)
        plimsoll__backend__run_refused__free_unpacked(result.refused, NULL);
    if (result.failed != NULL)
        plimsoll__backend__run_failed__free_unpacked(result.failed, NULL);
}

static void lose_calls(link_t *link)
{
    static const link_result_t lost = {.end = LINK_LOST};
    for (uint32_t i = 0; i < link->call_count; i++)
        if (link->calls[i].cb != NULL)
            end_call(link, &link->calls[i], &lost);
}

static void on_close(void *data, ipc_t *ipc, const char *reason)
{
    link_t *link = data;
    if (link->magic != LINK_MAGIC)
        mem_fatal("not a link");
    log_event(LOG_WARN, "backend connection lost", log_str("backend", link->name), log_str("reason", reason));
    ipc_destroy(ipc);
    link->ipc = NULL;
    forget_announce(link);
    metrics_wall_set(link->name, NULL);
    link->on_change(link->data);
    lose_calls(link);
    loop_timer_start(link->loop, &link->reconnect, RECONNECT_MS);
}

static const ipc_callbacks_t CALLBACKS = {.on_message = on_message, .on_close = on_close};

static void on_reconnect(loop_timer_t *timer)
{
    connect_now(timer->data);
}

static void connect_now(link_t *link)
{
    int fd = ipc_connect(link->path);
    if (fd < 0) {
        loop_timer_start(link->loop, &link->reconnect, RECONNECT_MS);
        return;
    }
    link->ipc = ipc_create(link->loop, fd, &CALLBACKS, link);
    if (link->ipc == NULL) /* out of descriptors: later, perhaps */
        loop_timer_start(link->loop, &link->reconnect, RECONNECT_MS);
}

link_t *link_create(loop_t *loop, const char *name, const char *path, void (*on_change)(void *data), void *data)
{
    link_t *link = mem_alloc(sizeof(*link));
    link->magic = LINK_MAGIC;
    link->loop = loop;
    link->name = name;
    link->path = path;
    link->on_change = on_change;
    link->data = data;
    loop_timer_init(&link->reconnect, on_reconnect, link);
    connect_now(link);
    return link;
}

void link_destroy(link_t *link)
{
    loop_timer_stop(&link->reconnect);
    lose_calls(link);
    if (link->ipc != NULL)
        ipc_destroy(link->ipc);
    forget_announce(link);
    link->magic = 0;
    free(link->calls);
    free(link);
}

const Plimsoll__Backend__Announce *link_announce(const link_t *link)
{
    return link->announce;
}

bool link_is_ready(const link_t *link)
{
    return link->announce != NULL && link->announce->state == PLIMSOLL__BACKEND__STATE__STATE_READY;
}

uint64_t link_version(const link_t *link)
{
    return link->version;
}

uint64_t link_evidence_age(const link_t *link)
{
    if (link->announce == NULL || link->announce->evidence_age_ms > UINT64_MAX / 2)
        return UINT64_MAX;
    return link->announce->evidence_age_ms + (clock_mono_ms() - link->announced_at);
}

tier_t link_tier(const link_t *link, uint64_t max_age_ms)
{
    if (!link_is_ready(link) || link_evidence_age(link) > max_age_ms)
        return TIER_UNKNOWN;
    return link->tier;
}

uint64_t link_run(link_t *link, const Plimsoll__Backend__RunStart *start, link_cb cb, void *data)
{
    if (link->ipc == NULL || !link_is_ready(link))
        return 0;
    if (link->first_free == 0) {
        uint32_t count = link->call_count != 0 ? link->call_count * 2 : CALLS_FIRST;
        link->calls = mem_realloc(link->calls, count * sizeof(*link->calls));
        for (uint32_t i = link->call_count; i < count; i++) {
            /* generations start at 1, so no call is ever 0 */
            link->calls[i] = (call_t){.generation = 1, .next_free = link->first_free};
            link->first_free = i + 1;
        }
        link->call_count = count;
    }
    uint32_t index = link->first_free - 1;
    call_t *call = &link->calls[index];
    uint64_t id = (uint64_t)call->generation << 32 | index;
    if (ipc_send(link->ipc, LINK_RUN_START, id, &start->base) != IPC_SENT)
        return 0;
    link->first_free = call->next_free;
    call->cb = cb;
    call->data = data;
    return id;
}

void link_cancel(link_t *link, uint64_t id)
{
    if (link->ipc != NULL && find_call(link, id) != NULL)
        ipc_cancel(link->ipc, id);
}

void link_abandon(link_t *link, uint64_t id)
{
    call_t *call = find_call(link, id);
    if (call != NULL)
        free_call(link, call);
}
