/* One sandbox from its entry in the ledger to its release: of a run, or of a wall's trial of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_internal.h"
#include "core/clock.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/mem.h"

static role_ledger_t *ledger_of(const cloud_box_t *box)
{
    return box->cloud->settings.host->ledger;
}

bool cloud_box_is_known(const cloud_box_t *box, const char *id)
{
    return role_ledger_knows(ledger_of(box), box->stamp, id);
}

const char *cloud_box_installation(const cloud_box_t *box)
{
    return role_ledger_installation(ledger_of(box));
}

const char *cloud_box_instance(const cloud_box_t *box)
{
    return box->cloud->settings.host->instance;
}

static bool is_id(const char *id)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    size_t len = strnlen(id, LEDGER_PROVIDER_ID_MAX + 1);
    return len > 0 && len <= LEDGER_PROVIDER_ID_MAX && strspn(id, letters) == len && strspn(id, ".") != len;
}

bool cloud_box_name(cloud_box_t *box, const char *id)
{
    box->is_seen = true;
    if (id == NULL || !is_id(id))
        return false;
    snprintf(box->id, sizeof(box->id), "%s", id);
    role_ledger_name(ledger_of(box), box->stamp, id);
    return true;
}

bool cloud_box_open(cloud_t *cloud, cloud_box_t *box, char why[LEDGER_ERROR_MAX + 1])
{
    const backend_run_t *run = box->run;
    const char *no_place;
    box->cloud = cloud;
    box->life_ms = (uint64_t)CLOUD_STAGE_MS + box->timeout_ms + CLOUD_COLLECT_MS + CLOUD_LIFE_MARGIN_MS;
    role_ledger_ask_t ask = {
        .life_ms = cloud->settings.ops->create_ms + box->life_ms,
        .run = run != NULL ? run->run_id : NULL,
        .caller = run != NULL ? run->caller : NULL,
        .price_micro = run != NULL ? run->price_micro_hour : 0,
        .is_trial = run == NULL,
    };
    if (!cloud_place_take(cloud, run != NULL ? run->caller : "", clock_mono_us() + CLOUD_PLACE_MS * UINT64_C(1000),
                          &no_place)) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "%s", no_place);
        return false;
    }
    bool is_written = role_ledger_ask(ledger_of(box), &ask, box->stamp, why);
    cloud_place_used(cloud);
    if (!is_written)
        return false;
    box->own = mem_alloc(cloud->settings.ops->box_size + 1);
    return true;
}

/* Faults that say that nothing was made. */
static bool is_without_effect(cloud_fault_t fault)
{
    return fault == CLOUD_NOTHING || fault == CLOUD_BUSY || fault == CLOUD_DENIED || fault == CLOUD_MISSING;
}

cloud_made_t cloud_box_create(cloud_box_t *box, cloud_trouble_t *trouble)
{
    const cloud_ops_t *ops = box->cloud->settings.ops;
    box->asked_us = clock_mono_us();
    box->deadline_us = box->asked_us + ops->create_ms * UINT64_C(1000);
    *trouble = (cloud_trouble_t){.fault = CLOUD_FINE};
    bool is_made = ops->create(box->cloud->settings.self, box, trouble);
    if (is_made && fault_point("cloud.created")) {
        cloud_trouble(trouble, CLOUD_UNKNOWN, "the create was not answered", "fault point");
        return BOX_MAYBE;
    }
    if (is_made) {
        trouble->fault = CLOUD_FINE;
        return BOX_MADE;
    }
    if (!box->is_seen && is_without_effect(trouble->fault)) {
        role_ledger_void(ledger_of(box), box->stamp);
        box->stamp[0] = '\0';
        return BOX_NONE;
    }
    /* one that the provider answered with is there, and nothing was handed over to it yet */
    return box->is_seen ? BOX_MADE : BOX_MAYBE;
}

void cloud_box_release(cloud_box_t *box, bool is_first_tried)
{
    const cloud_ops_t *ops = box->cloud->settings.ops;
    if (ops->leave != NULL && box->own != NULL)
        ops->leave(box->cloud->settings.self, box);
    if (box->own != NULL)
        explicit_bzero(box->own, ops->box_size);
    free(box->own);
    box->own = NULL;
    if (box->stamp[0] == '\0')
        return;
    role_ledger_release(ledger_of(box), box->stamp);
    if (!is_first_tried)
        return;
    /* So that whoever is told that it failed is not told before its sandbox was told to end. */
    co_shield_begin();
    uint64_t until_ms = clock_mono_ms() + CLOUD_DROP_MS;
    while (!role_ledger_is_tried(ledger_of(box), box->stamp) && clock_mono_ms() < until_ms)
        co_sleep(CLOUD_DROP_LOOK_MS);
    co_shield_end();
}
