/*
 * Sandboxes of installations that are no more (spec 4.4). The gateway ends none by itself, and an installation whose
 * Redis lost its data has another identity afterwards: what it had is in no ledger and in no listing of its own. Each
 * sandbox says how long it is for; whoever finds one well past that, by the gateway's own clock, deletes it.
 */
#include <stdio.h>
#include <string.h>

#include "backends/openshell/openshell_internal.h"
#include "core/clock.h"
#include "core/log.h"

enum {
    CLOCK_SLACK_MS = 1000, /* less than this is no difference between two clocks */
    NANOS_MAX = 999999999,
    LIFETIME_DIGITS = 10,
};

static const int64_t SECONDS_MAX = INT64_C(253402300799); /* the last a Timestamp may say */

/* --- when --- */

bool created_of(const Plimsoll__Openshell__Sandbox *sandbox, int64_t *ms)
{
    const Plimsoll__Openshell__Timestamp *at = sandbox->metadata != NULL ? sandbox->metadata->created_time : NULL;
    if (at == NULL || at->seconds <= 0 || at->seconds > SECONDS_MAX || at->nanos < 0 || at->nanos > NANOS_MAX)
        return false;
    *ms = at->seconds * 1000 + at->nanos / 1000000;
    return true;
}

int64_t clock_skew(int64_t created_ms, int64_t asked_ms, int64_t ready_ms)
{
    if (created_ms < asked_ms - CLOCK_SLACK_MS)
        return created_ms - asked_ms;
    return created_ms > ready_ms + CLOCK_SLACK_MS ? created_ms - ready_ms : 0;
}

void openshell_note_clock(openshell_t *openshell, const Plimsoll__Openshell__Sandbox *sandbox, uint64_t asked_us)
{
    int64_t created_ms, ready_ms = clock_wall_ms();
    uint64_t now_us = clock_mono_us();
    if (!created_of(sandbox, &created_ms))
        return;
    int64_t asked_ms = ready_ms - (int64_t)((now_us - asked_us) / 1000);
    /* from here on by the monotonic clock: a step of ours makes nobody's sandbox older */
    openshell->gateway_ms = ready_ms + clock_skew(created_ms, asked_ms, ready_ms);
    openshell->gateway_as_of_us = now_us;
}

static int64_t gateway_now_ms(const openshell_t *openshell)
{
    return openshell->gateway_ms + (int64_t)((clock_mono_us() - openshell->gateway_as_of_us) / 1000);
}

/* --- which --- */

static bool lifetime_of(const Plimsoll__Openshell__Sandbox *sandbox, uint32_t *seconds)
{
    const ProtobufCBinaryData *label = label_of(sandbox, "plimsoll.lifetime");
    uint64_t value = 0;
    if (label == NULL || label->len == 0 || label->len > LIFETIME_DIGITS)
        return false;
    for (size_t i = 0; i < label->len; ++i) {
        if (label->data[i] < '0' || label->data[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(label->data[i] - '0');
    }
    *seconds = (uint32_t)value;
    return value > 0 && value <= UINT32_MAX;
}

bool sandbox_is_stale(const Plimsoll__Openshell__Sandbox *sandbox, const char *installation, int64_t gateway_ms)
{
    char stamp[LEDGER_STAMP + 1], id[OPENSHELL_ID_MAX + 1];
    const ProtobufCBinaryData *mark = label_of(sandbox, "plimsoll.run"),
                              *owner = label_of(sandbox, "plimsoll.installation");
    uint32_t lifetime_s;
    int64_t created_ms;
    if (mark == NULL || !bytes_are(*mark, "1") || owner == NULL || bytes_are(*owner, installation) ||
        !stamp_of(sandbox, stamp) || !id_of(sandbox, id) || phase_of(sandbox) == PHASE_DELETING)
        return false;
    return lifetime_of(sandbox, &lifetime_s) && created_of(sandbox, &created_ms) &&
           gateway_ms > created_ms + (int64_t)lifetime_s * 1000 + OPENSHELL_STALE_MARGIN_MS;
}

/* --- a walk --- */

typedef struct {
    char name[OPENSHELL_NAME + 1], id[OPENSHELL_ID_MAX + 1];
} stale_t;

typedef struct {
    const openshell_t *openshell;
    const char *installation;
    stale_t found[OPENSHELL_REAPED_MAX];
    size_t count;
} reaping_t;

static void on_seen(void *data, const Plimsoll__Openshell__Sandbox *sandbox)
{
    reaping_t *reaping = data;
    char stamp[LEDGER_STAMP + 1];
    if (reaping->count == OPENSHELL_REAPED_MAX ||
        !sandbox_is_stale(sandbox, reaping->installation, gateway_now_ms(reaping->openshell)))
        return;
    stale_t *stale = &reaping->found[reaping->count++];
    stamp_of(sandbox, stamp);
    openshell_name(stamp, stale->name);
    id_of(sandbox, stale->id);
}

/* Looked at once more: a deletion goes by the name, and time has passed. */
static bool is_still_stale(openshell_t *openshell, const reaping_t *reaping, const stale_t *stale, uint64_t until_us,
                           cloud_trouble_t *trouble)
{
    char id[OPENSHELL_ID_MAX + 1];
    Plimsoll__Openshell__Sandbox *sandbox = openshell_get(openshell, stale->name, until_us, trouble);
    if (sandbox == NULL)
        return false;
    bool is_stale = id_of(sandbox, id) && strcmp(id, stale->id) == 0 &&
                    sandbox_is_stale(sandbox, reaping->installation, gateway_now_ms(openshell));
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    return is_stale;
}

/* One that does not go is found again by the next walk. */
static void reap_one(openshell_t *openshell, const reaping_t *reaping, const stale_t *stale, uint64_t until_us,
                     cloud_trouble_t *trouble)
{
    bool is_over;
    *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
    if (is_still_stale(openshell, reaping, stale, until_us, trouble) &&
        openshell_delete(openshell, stale->name, until_us, &is_over, trouble))
        log_event(LOG_WARN, "sandbox of a lost installation deleted", log_str("backend", "openshell"),
                  log_str("name", stale->name), log_str("sandbox", stale->id));
    else if (trouble->fault != CLOUD_FINE && trouble->fault != CLOUD_MISSING)
        log_event(LOG_WARN, "sandbox of a lost installation not deleted", log_str("backend", "openshell"),
                  log_str("name", stale->name), log_str("reason", trouble->detail));
}

void openshell_reap(openshell_t *openshell, const char *installation)
{
    reaping_t reaping = {.openshell = openshell, .installation = installation};
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    char why[LEDGER_ERROR_MAX + 1] = "";
    if (openshell->gateway_as_of_us == 0 || installation[0] == '\0')
        return;
    if (!openshell_walk(openshell, NULL, on_seen, &reaping, why))
        log_event(LOG_WARN, "lost sandboxes not listed", log_str("backend", "openshell"), log_str("reason", why));
    uint64_t until_us = clock_mono_us() + JANITOR_ATTEMPT_MS * UINT64_C(1000);
    for (size_t i = 0; i < reaping.count && clock_mono_us() < until_us && trouble.fault != CLOUD_CANCELED; ++i)
        reap_one(openshell, &reaping, &reaping.found[i], until_us, &trouble);
}
