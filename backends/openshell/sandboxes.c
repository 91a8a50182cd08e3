/* One sandbox: asked for, ready, and read back (spec backend-openshell 4.2, steps 2 to 7). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/openshell/openshell_internal.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"

static const call_t CALL_INFO = {.method = "GetGatewayInfo",
                                 .kind = CALL_READ,
                                 .limit_ms = OPENSHELL_READ_MS,
                                 .answer_max = OPENSHELL_SANDBOX_MAX},
                    CALL_CREATE = {.method = "CreateSandbox",
                                   .kind = CALL_ONCE,
                                   .limit_ms = CLOUD_CREATE_MS,
                                   .answer_max = OPENSHELL_SANDBOX_MAX},
                    CALL_GET = {.method = "GetSandbox",
                                .kind = CALL_READ,
                                .limit_ms = OPENSHELL_READ_MS,
                                .answer_max = OPENSHELL_SANDBOX_MAX},
                    CALL_CONFIG = {.method = "GetSandboxConfig",
                                   .kind = CALL_READ,
                                   .limit_ms = OPENSHELL_READ_MS,
                                   .answer_max = OPENSHELL_SANDBOX_MAX};

static bool cannot_be_read(const char *method, cloud_trouble_t *trouble)
{
    return cloud_trouble(trouble, CLOUD_PROTOCOL, "the OpenShell gateway's answer makes no sense", method);
}

/* --- the gateway --- */

static bool ask_now(openshell_t *openshell, uint64_t until_us, cloud_trouble_t *trouble)
{
    char why[OPENSHELL_WHY_MAX];
    buffer_t request, answer;
    buffer_init(&request, OPENSHELL_REQUEST_MAX);
    buffer_init(&answer, CALL_INFO.answer_max);
    bool holds = openshell_call(openshell, &CALL_INFO, &request, until_us, &answer, trouble);
    Plimsoll__Openshell__GatewayInfo *info = holds ? read_info(&answer) : NULL;
    if (holds && info == NULL)
        holds = cannot_be_read(CALL_INFO.method, trouble);
    if (holds && !info_holds(info, openshell->other_version, why))
        holds = cloud_trouble(trouble, CLOUD_DIFFERS, why, CALL_INFO.method);
    if (holds)
        openshell->info_us = clock_mono_us();
    if (info != NULL)
        protobuf_c_message_free_unpacked(&info->base, NULL);
    buffer_dispose(&answer);
    return holds;
}

static bool is_known(const openshell_t *openshell)
{
    if (openshell->info_us == 0)
        return false;
    return openshell->is_asking || clock_mono_us() - openshell->info_us < OPENSHELL_INFO_MS * UINT64_C(1000);
}

bool openshell_ask_info(openshell_t *openshell, bool is_fresh, uint64_t until_us, cloud_trouble_t *trouble)
{
    if (!is_fresh && is_known(openshell))
        return true;
    openshell->is_asking = true;
    bool holds = ask_now(openshell, until_us, trouble);
    openshell->is_asking = false;
    if (!holds && trouble->fault != CLOUD_CANCELED)
        openshell->info_us = 0;
    return holds;
}

/* --- asked for --- */

static owner_t owner_of(const cloud_box_t *box)
{
    uint64_t life_s = (box->life_ms + CLOUD_CREATE_MS + 999) / 1000;
    return (owner_t){.stamp = box->stamp,
                     .installation = cloud_box_installation(box),
                     .instance = cloud_box_instance(box),
                     .lifetime_s = life_s > 0 && life_s <= UINT32_MAX ? (uint32_t)life_s : 1};
}

/* Whatever else the answer says, by now it is there. */
static bool take_created(cloud_box_t *box, const buffer_t *answer, cloud_trouble_t *trouble)
{
    char id[OPENSHELL_ID_MAX + 1], name[OPENSHELL_NAME + 1];
    Plimsoll__Openshell__Sandbox *sandbox = read_sandbox(answer);
    box->is_seen = true;
    openshell_name(box->stamp, name);
    bool is_ours = sandbox != NULL && sandbox->metadata != NULL && bytes_are(sandbox->metadata->name, name) &&
                   id_of(sandbox, id) && cloud_box_name(box, id);
    if (sandbox != NULL)
        protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    return is_ours ? true : cannot_be_read(CALL_CREATE.method, trouble);
}

static bool ask_for(openshell_t *openshell, cloud_box_t *box, cloud_trouble_t *trouble)
{
    owner_t owner = owner_of(box);
    buffer_t request, answer;
    buffer_init(&request, OPENSHELL_REQUEST_MAX);
    buffer_init(&answer, CALL_CREATE.answer_max);
    message_create(&openshell->shape, &owner, &request);
    bool is_made = openshell_call(openshell, &CALL_CREATE, &request, box->deadline_us, &answer, trouble) &&
                   take_created(box, &answer, trouble);
    buffer_dispose(&request);
    buffer_dispose(&answer);
    return is_made;
}

/* --- ready --- */

Plimsoll__Openshell__Sandbox *openshell_get(openshell_t *openshell, const char *name, uint64_t until_us,
                                            cloud_trouble_t *trouble)
{
    Plimsoll__Openshell__Sandbox *sandbox = NULL;
    buffer_t request, answer;
    buffer_init(&request, OPENSHELL_REQUEST_MAX);
    buffer_init(&answer, CALL_GET.answer_max);
    message_get(&openshell->shape, name, &request);
    if (openshell_call(openshell, &CALL_GET, &request, until_us, &answer, trouble) &&
        (sandbox = read_sandbox(&answer)) == NULL)
        cannot_be_read(CALL_GET.method, trouble);
    buffer_dispose(&request);
    buffer_dispose(&answer);
    return sandbox;
}

static bool is_ours(const cloud_box_t *box, const Plimsoll__Openshell__Sandbox *sandbox)
{
    char id[OPENSHELL_ID_MAX + 1];
    return id_of(sandbox, id) && strcmp(id, box->id) == 0;
}

static bool not_coming(const Plimsoll__Openshell__Sandbox *sandbox, cloud_trouble_t *trouble)
{
    char text[CLOUD_TEXT_CALLER_MAX], conditions[CLOUD_TEXT_LOG_MAX], scrubbed[CLOUD_TEXT_LOG_MAX + 1];
    snprintf(text, sizeof(text), "the sandbox did not become ready: it is %s", phase_name(phase_of(sandbox)));
    conditions_of(sandbox, conditions, sizeof(conditions));
    cloud_text_scrub(NULL, conditions, strlen(conditions), CLOUD_TEXT_LOG_MAX, scrubbed);
    return cloud_trouble(trouble, CLOUD_LOST, text, scrubbed);
}

typedef enum { LOOK_READY, LOOK_COMING, LOOK_TROUBLE } look_t;

static look_t look(openshell_t *openshell, const cloud_box_t *box, const char *name, cloud_trouble_t *trouble)
{
    look_t seen = LOOK_TROUBLE;
    Plimsoll__Openshell__Sandbox *sandbox = openshell_get(openshell, name, box->deadline_us, trouble);
    if (sandbox == NULL)
        return LOOK_TROUBLE;
    if (!is_ours(box, sandbox))
        cloud_trouble(trouble, CLOUD_LOST, "another sandbox took the sandbox's name", NULL);
    else if (phase_of(sandbox) == PHASE_READY)
        seen = LOOK_READY;
    else if (phase_is_coming(phase_of(sandbox)))
        seen = LOOK_COMING;
    else
        not_coming(sandbox, trouble);
    if (seen == LOOK_READY)
        openshell_note_clock(openshell, sandbox, box->asked_us);
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    return seen;
}

/* A record is no container yet: that follows, and pulls its image first where that is allowed. */
static bool await_ready(openshell_t *openshell, const cloud_box_t *box, cloud_trouble_t *trouble)
{
    char name[OPENSHELL_NAME + 1];
    uint64_t began_us = clock_mono_us();
    openshell_name(box->stamp, name);
    for (;;) {
        look_t seen = look(openshell, box, name, trouble);
        if (seen != LOOK_COMING)
            return seen == LOOK_READY;
        bool is_early = clock_mono_us() - began_us < OPENSHELL_POLL_FAST_FOR_MS * UINT64_C(1000);
        if (!cloud_sleep_ms(is_early ? OPENSHELL_POLL_MS : OPENSHELL_POLL_SLOW_MS, box->deadline_us))
            return cloud_trouble(trouble, CLOUD_CANCELED, "the call was stopped", NULL);
        if (clock_mono_us() >= box->deadline_us)
            return cloud_trouble(trouble, CLOUD_LATE, "the sandbox did not become ready in time", NULL);
    }
}

bool openshell_create(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    openshell_t *openshell = openshell_check(self);
    return ask_for(openshell, box, trouble) && await_ready(openshell, box, trouble);
}

/* --- read back --- */

static bool check_record(openshell_t *openshell, const cloud_box_t *box, const char *name, cloud_trouble_t *trouble)
{
    char why[OPENSHELL_WHY_MAX];
    owner_t owner = owner_of(box);
    Plimsoll__Openshell__Sandbox *sandbox = openshell_get(openshell, name, box->deadline_us, trouble);
    if (sandbox == NULL)
        return false;
    bool holds = sandbox_holds(sandbox, &openshell->shape, &owner, why);
    if (!holds)
        cloud_trouble(trouble, CLOUD_DIFFERS, why, CALL_GET.method);
    else if (!is_ours(box, sandbox))
        holds = cloud_trouble(trouble, CLOUD_DIFFERS, "another sandbox took the sandbox's name", CALL_GET.method);
    else if (phase_of(sandbox) != PHASE_READY)
        holds = not_coming(sandbox, trouble);
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    return holds;
}

static bool check_config(openshell_t *openshell, const cloud_box_t *box, const char *name, cloud_trouble_t *trouble)
{
    char why[OPENSHELL_WHY_MAX];
    buffer_t request, answer;
    buffer_init(&request, OPENSHELL_REQUEST_MAX);
    buffer_init(&answer, CALL_CONFIG.answer_max);
    message_config(&openshell->shape, name, &request);
    bool holds = openshell_call(openshell, &CALL_CONFIG, &request, box->deadline_us, &answer, trouble);
    Plimsoll__Openshell__Config *config = holds ? read_config(&answer) : NULL;
    if (holds && config == NULL)
        holds = cannot_be_read(CALL_CONFIG.method, trouble);
    if (holds && !config_holds(config, &openshell->shape, why))
        holds = cloud_trouble(trouble, CLOUD_DIFFERS, why, CALL_CONFIG.method);
    if (config != NULL)
        protobuf_c_message_free_unpacked(&config->base, NULL);
    buffer_dispose(&request);
    buffer_dispose(&answer);
    return holds;
}

bool openshell_check_box(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    openshell_t *openshell = openshell_check(self);
    char name[OPENSHELL_NAME + 1];
    openshell_name(box->stamp, name);
    return openshell_ask_info(openshell, false, box->deadline_us, trouble) &&
           check_record(openshell, box, name, trouble) && check_config(openshell, box, name, trouble);
}
