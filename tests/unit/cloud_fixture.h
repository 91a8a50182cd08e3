/*
 * A cloud wall whose provider is a table of this process: what each call answers is scripted, what it does is kept in
 * an account of sandboxes that nobody else changes. The ledger is a role's, over a real Redis. Included by tests only,
 * hence static.
 */
#ifndef TESTS_CLOUD_FIXTURE_H
#define TESTS_CLOUD_FIXTURE_H

#include "store_fixture.h"

#include "backends/cloud/cloud_internal.h"
#include "backends/guest/result.h"
#include "backends/role_ledger_internal.h"
#include "config/options.h"
#include "core/buffer.h"

#define LEDGER_HASH "plimsoll:2:{default}:ledger:standinpaid"

enum { BOXES_MAX = 64, STEPS_SCRIPTED = 8, ORDER_MAX = 2048 };

/* How one call goes: CLOUD_FINE, or a fault with its text; after so long. */
typedef struct {
    cloud_fault_t fault;
    uint32_t sleep_ms, retry_after_ms;
} act_t;

typedef struct {
    act_t act;
    int exit_code;
    const char *out, *err;
    size_t flood; /* bytes of 'x' on stdout instead */
    bool is_timed_out, is_flood, is_without_end;
} step_act_t;

static struct {
    act_t create, check, stage, collect, preflight, probe;
    uint32_t stage_left_ms; /* of its time, at its end */
    bool has_effect;        /* of a create that fails: a sandbox came to be all the same */
    bool is_named;          /* ... and the answer told its ID */
    const char *id;         /* the ID that is told; NULL = a right one */
    step_act_t steps[STEPS_SCRIPTED];
    const char *artifacts[4]; /* content of each that exists */
    unsigned deletes_failing;
    /* the account */
    char stamps[BOXES_MAX][LEDGER_STAMP + 1];
    size_t made, there, there_max;
    uint64_t life_ms;
    uint64_t removed_us; /* monotonic: the last */
    unsigned step, removals, leaves, preflights;
    char order[ORDER_MAX];
    unsigned reproves;
} cloudy;

static void note(const char *what)
{
    size_t len = strlen(cloudy.order);
    snprintf(cloudy.order + len, sizeof(cloudy.order) - len, "%s%s", len > 0 ? " " : "", what);
}

/* --- the provider --- */

static bool act(const act_t *how, cloud_trouble_t *trouble)
{
    if (how->sleep_ms > 0 && co_sleep(how->sleep_ms) == CO_CANCELED)
        return cloud_trouble(trouble, CLOUD_CANCELED, "the call was stopped", NULL);
    if (how->fault == CLOUD_FINE)
        return true;
    cloud_trouble(trouble, how->fault, "the cloud says no", "in detail");
    if (how->retry_after_ms > 0)
        trouble->retry_after_ms = how->retry_after_ms;
    return false;
}

static void make(const cloud_box_t *box)
{
    snprintf(cloudy.stamps[cloudy.made % BOXES_MAX], LEDGER_STAMP + 1, "%s", box->stamp);
    ++cloudy.made;
    ++cloudy.there;
    if (cloudy.there > cloudy.there_max)
        cloudy.there_max = cloudy.there;
    cloudy.life_ms = box->life_ms;
}

static bool fake_create(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    char id[32];
    (void)self;
    note("create");
    bool is_fine = act(&cloudy.create, trouble);
    if (!is_fine && !cloudy.has_effect)
        return false;
    make(box);
    snprintf(id, sizeof(id), "sb-%zu", cloudy.made);
    if ((is_fine || cloudy.is_named) && !cloud_box_name(box, cloudy.id != NULL ? cloudy.id : id))
        return cloud_trouble(trouble, CLOUD_PROTOCOL, "the cloud's answer has no ID", NULL);
    return is_fine;
}

static bool fake_check(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    (void)self, (void)box;
    note("check");
    return act(&cloudy.check, trouble);
}

static bool fake_stage(void *self, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    (void)self, (void)plan;
    note("stage");
    bool is_staged = act(&cloudy.stage, trouble) && cloud_box_is_right(box, trouble);
    cloudy.stage_left_ms = cloud_left_ms(box->deadline_us);
    return is_staged;
}

static bool fake_step(void *self, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits,
                      guest_step_t *out, cloud_trouble_t *trouble)
{
    const step_act_t *how = &cloudy.steps[cloudy.step++ % STEPS_SCRIPTED];
    (void)self, (void)command;
    note("step");
    if (how->out != NULL)
        cloud_output_add(out, limits, false, how->out, strlen(how->out));
    if (how->err != NULL)
        cloud_output_add(out, limits, true, how->err, strlen(how->err));
    for (size_t i = 0; i < how->flood; ++i)
        cloud_output_add(out, limits, false, "x", 1);
    if (how->act.sleep_ms > 0) {
        uint32_t left_ms = cloud_left_ms(box->deadline_us);
        bool is_late = how->act.sleep_ms > left_ms;
        if (co_sleep(is_late ? left_ms : how->act.sleep_ms) == CO_CANCELED)
            return cloud_trouble(trouble, CLOUD_CANCELED, "the call was stopped", NULL);
        if (is_late)
            return cloud_trouble(trouble, CLOUD_LATE, "our own deadline", NULL);
    }
    if (how->act.fault != CLOUD_FINE)
        return cloud_trouble(trouble, how->act.fault, "the cloud lost the sandbox", "in detail");
    if (how->is_flood)
        cloud_output_flood(out);
    else {
        out->has_ended = !how->is_without_end;
        out->exit_code = how->exit_code;
        out->is_timed_out = how->is_timed_out;
    }
    return true;
}

static bool fake_collect(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                         cloud_trouble_t *trouble)
{
    (void)self, (void)box;
    note("collect");
    if (!act(&cloudy.collect, trouble))
        return false;
    for (size_t i = 0; i < plan->artifact_count; ++i) {
        buffer_t content;
        if (cloudy.artifacts[i] == NULL)
            continue;
        buffer_init(&content, CLOUD_ARTIFACTS_MAX_BYTES + 1024);
        buffer_append_str(&content, cloudy.artifacts[i]);
        cloud_artifact_add(result, plan, i, &content);
    }
    return true;
}

static void fake_leave(void *self, cloud_box_t *box)
{
    (void)self, (void)box;
    ++cloudy.leaves;
    note("leave");
}

static bool fake_preflight(void *self, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    (void)self, (void)deadline_us;
    ++cloudy.preflights;
    note("preflight");
    return act(&cloudy.preflight, trouble);
}

static bool fake_probe(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    (void)self, (void)box;
    note("probe");
    return act(&cloudy.probe, trouble);
}

static void fake_facts(void *self, backend_facts_t *facts)
{
    (void)self;
    snprintf(facts->javascript.environment, sizeof(facts->javascript.environment), "template:sha256:1234");
}

static bool is_there(const char *stamp, size_t *at)
{
    for (size_t i = 0; i < BOXES_MAX; ++i) {
        if (strcmp(cloudy.stamps[i], stamp) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

static sandbox_removal_t fake_remove(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                     char why[LEDGER_ERROR_MAX + 1])
{
    size_t at;
    (void)self, (void)id;
    ++cloudy.removals;
    note("remove");
    if (cloudy.deletes_failing > 0) {
        --cloudy.deletes_failing;
        snprintf(why, LEDGER_ERROR_MAX + 1, "HTTP 500");
        return SANDBOX_THERE;
    }
    if (!is_there(entry->stamp, &at))
        return entry->id[0] != '\0' ? SANDBOX_GONE : SANDBOX_UNSEEN;
    cloudy.stamps[at][0] = '\0';
    --cloudy.there;
    cloudy.removed_us = clock_mono_us();
    return SANDBOX_GONE;
}

static backend_sandboxes_t fake_sandboxes = {.unseen_ms = 0, .remove = fake_remove};
static cloud_ops_t fake_ops;

/* --- the role around it --- */

static role_ledger_t *ledger;
static cloud_t *cloud;
static backend_host_t host;

static void on_reprove(void *data)
{
    (void)data;
    ++cloudy.reproves;
}

static bool ledger_up(void)
{
    return ledger->is_up;
}

static bool is_settled(void)
{
    return ledger->item_count == 0;
}

/* `capacity` sandboxes, so many creates a minute (0: any). */
static void open_cloud(uint32_t capacity, uint32_t creates_per_minute)
{
    problems_t problems = {0};
    char url[160], rate[16], why[LEDGER_ERROR_MAX + 1];
    role_ledger_settings_t settings = {.backend = "standinpaid", .is_billed = true, .sandboxes = &fake_sandboxes};
    fake_ops = (cloud_ops_t){.name = "standinpaid",
                             .title = "Cloudy",
                             .box_size = 32,
                             .layout = {.project = "/home/user/project", .scripts = "/home/user/.gw-*"},
                             .create_ms = 5000,
                             .create = fake_create,
                             .check = fake_check,
                             .stage = fake_stage,
                             .step = fake_step,
                             .collect = fake_collect,
                             .leave = fake_leave,
                             .preflight = fake_preflight,
                             .probe = fake_probe,
                             .facts = fake_facts};
    snprintf(url, sizeof(url), "redis+unix://%s", fx.sock);
    snprintf(rate, sizeof(rate), "%u", creates_per_minute);
    setenv("PLIMSOLL_REDIS_URL", url, 1);
    setenv("SANDBOX_CLOUD_CREATES_PER_MINUTE", rate, 1);
    options_load_role(ROLE_BACKEND | ROLE_LEDGER, &problems, NULL);
    assert_int_equal(problems.count, 0);
    random_hex(settings.instance, LEDGER_INSTANCE / 2);
    ledger = role_ledger_create(fx.loop, &settings, why);
    assert_non_null(ledger);
    role_ledger_begin(ledger, &cloudy);
    host = (backend_host_t){
        .loop = fx.loop, .capacity = capacity, .instance = "0123456789abcdef", .ledger = ledger, .reprove = on_reprove};
    cloud = cloud_create(&(cloud_settings_t){.host = &host, .ops = &fake_ops, .self = &cloudy, .tier = TIER_VM});
    turn_until(ledger_up);
}

static bool is_over;

static void ended(void *arg)
{
    (void)arg;
    is_over = true;
}

static bool over(void)
{
    return is_over;
}

static void end_main(void *arg)
{
    (void)arg;
    role_ledger_end(ledger);
    role_ledger_leave(ledger);
}

static void close_cloud(void)
{
    cloud_destroy(cloud);
    is_over = false;
    co_start(fx.loop, end_main, NULL, ended);
    turn_until(over);
    role_ledger_destroy(ledger);
    ledger = NULL;
}

/* Nothing is left: at the provider, in the ledger, of places. */
static void assert_nothing_is_left(void)
{
    turn_until(is_settled);
    assert_int_equal(cloudy.there, 0);
    assert_int_equal(role_ledger_live(ledger), 0);
    assert_int_equal(cloud->reserved, 0);
    assert_null(cloud->waiters);
    assert_int_equal(direct_int("HLEN " LEDGER_HASH), 0);
}

static int each(void **state)
{
    (void)state;
    memset(&cloudy, 0, sizeof(cloudy));
    direct_do("FLUSHALL");
    open_cloud(8, 0);
    return 0;
}

static int close_each(void **state)
{
    (void)state;
    close_cloud();
    return 0;
}

#endif
