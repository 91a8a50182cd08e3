/*
 * The read-back of a sandbox while files are handed over to it: a call less to wait for on a run's way. Both are over
 * before anything is started in the sandbox.
 */
#include "backends/cloud/cloud_internal.h"
#include "core/clock.h"

static void look_main(void *arg)
{
    cloud_look_t *look = arg;
    const cloud_settings_t *settings = &look->box->cloud->settings;
    look->holds = settings->ops->check(settings->self, look->box, &look->trouble);
}

static void on_look_end(void *arg)
{
    cloud_look_t *look = arg;
    look->co = NULL;
    if (look->waiter != NULL)
        co_wake(look->waiter);
}

void cloud_look_begin(cloud_look_t *look, cloud_box_t *box)
{
    *look = (cloud_look_t){.box = box, .trouble = {.fault = CLOUD_FINE}};
    box->look = look;
    look->co = co_start(co_loop(co_self()), look_main, look, on_look_end);
}

/* False when canceled first. */
static bool await(cloud_look_t *look)
{
    bool is_canceled = false;
    look->waiter = co_self();
    while (look->co != NULL && !is_canceled)
        is_canceled = co_wait(UINT64_MAX) == CO_CANCELED; /* the check has a deadline of its own */
    look->waiter = NULL;
    return look->co == NULL;
}

bool cloud_box_is_right(cloud_box_t *box, cloud_trouble_t *trouble)
{
    uint64_t began_us = clock_mono_us();
    if (box->look == NULL)
        return true;
    if (!await(box->look))
        return cloud_trouble(trouble, CLOUD_CANCELED, "the run was stopped", NULL);
    box->deadline_us += clock_mono_us() - began_us;
    *trouble = box->look->trouble;
    return box->look->holds;
}

bool cloud_box_is_wrong(const cloud_box_t *box)
{
    return box->look != NULL && box->look->co == NULL && !box->look->holds;
}

bool cloud_look_end(cloud_look_t *look)
{
    bool is_answered = look->co == NULL;
    if (!is_answered) {
        co_cancel(look->co);
        co_shield_begin();
        await(look);
        co_shield_end();
        /* the answer may have come before the cancel did */
        is_answered = look->holds || look->trouble.fault != CLOUD_CANCELED;
    }
    look->box->look = NULL;
    return is_answered;
}
