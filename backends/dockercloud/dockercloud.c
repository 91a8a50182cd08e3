/*
 * The wall of Docker's hosted microVMs. What is done for a run is the same as at every other service (backends/cloud);
 * this file says which of the service's calls are which of its steps, and what the janitor asks. Everything about the
 * service is labelled experimental by Docker, so every surprise ends the same way: the sandbox is deleted and the run
 * is not begun.
 */
#include "backends/dockercloud/dockercloud.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dockercloud/api.h"
#include "backends/dockercloud/commands.h"
#include "backends/dockercloud/credential.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    DC_MAGIC = 0x64636c64,
    DC_CREATE_MS = 60 * 1000,     /* until it runs; a sandbox of the store was running after 1.4 s (spec 3.3) */
    DC_WORKERS = 32,              /* removals at once: each is some calls, and pauses between looks */
    DC_UNSEEN_MS = 5 * 60 * 1000, /* a create that was given up may still be finished by the service (2.3) */
};

static dc_t *check(void *self)
{
    dc_t *dc = self;
    if (dc->magic != DC_MAGIC)
        mem_fatal("not the Docker Cloud wall");
    return dc;
}

/* --- a run's sandbox --- */

static bool box_create(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    dc_t *dc = check(self);
    return dc->api->create(dc, box, trouble);
}

static bool box_check(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    dc_t *dc = check(self);
    char name[DC_NAME + 1];
    const char *why;
    dc_box_name(box, name);
    if (dc_sandbox_match(&dc->settings, name, box->life_ms, &dc_own(box)->sandbox, &why) != DC_SAME)
        return cloud_trouble(trouble, CLOUD_DIFFERS, "Docker Cloud's sandbox is not what was asked for", why);
    return dc->api->policy(dc, box, trouble);
}

static bool box_stage(void *self, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    return dc_stage(check(self), box, plan, trouble);
}

static bool box_step(void *self, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits,
                     guest_step_t *out, cloud_trouble_t *trouble)
{
    return dc_step(check(self), box, command, limits, out, trouble);
}

static bool box_collect(void *self, cloud_box_t *box, const cloud_plan_t *plan, guest_result_t *result,
                        cloud_trouble_t *trouble)
{
    dc_t *dc = check(self);
    download_t download;
    bool is_done = true;
    download_init(&download, plan, result);
    while (is_done && !download_is_done(&download))
        is_done = dc->api->download(dc, box, &download, trouble);
    if (is_done)
        download_finish(&download, result);
    download_dispose(&download);
    return is_done;
}

static void box_leave(void *self, cloud_box_t *box)
{
    check(self);
    dc_credential_drop(box);
}

/* --- the wall's evidence --- */

static bool wall_preflight(void *self, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    dc_t *dc = check(self);
    return dc->api->preflight(dc, deadline_us, trouble);
}

static bool wall_probe(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    return dc_probe(check(self), box, trouble);
}

/* What started is told by Connect alone, and then for every run; REST repeats what it was asked for. */
static void name_software(const dc_settings_t *settings, backend_kind_t *kind)
{
    if (settings->api != DC_CONNECT || settings->digest[0] == '\0')
        return;
    snprintf(kind->environment, sizeof(kind->environment), "oci-manifest:linux/amd64@%s", settings->digest);
    snprintf(kind->software_identity, sizeof(kind->software_identity), "%s", kind->environment);
}

static void wall_facts(void *self, backend_facts_t *facts)
{
    const dc_settings_t *settings = &check(self)->settings;
    facts->cpus = settings->size.cpus;
    facts->memory_mb = settings->size.memory_mib;
    snprintf(facts->policy, sizeof(facts->policy), "network:deny-all");
    name_software(settings, &facts->javascript);
    name_software(settings, &facts->project);
}

static const cloud_ops_t OPS = {
    .name = "dockercloud",
    .title = "Docker Cloud",
    .box_size = sizeof(dc_box_t),
    .layout = {.project = "/tmp/project", .scripts = "/tmp/.gw-*"},
    .create_ms = DC_CREATE_MS,
    .create = box_create,
    .check = box_check,
    .stage = box_stage,
    .step = box_step,
    .collect = box_collect,
    .leave = box_leave,
    .preflight = wall_preflight,
    .probe = wall_probe,
    .facts = wall_facts,
};

/* --- what the janitor asks --- */

static sandbox_removal_t sandbox_remove(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                        char why[LEDGER_ERROR_MAX + 1])
{
    dc_t *dc = check(self);
    char name[DC_NAME + 1];
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    uint64_t deadline_us = clock_mono_us() + (uint64_t)JANITOR_ATTEMPT_MS * 1000;

    dc_name_make(name, role_ledger_installation(dc->host->ledger), entry->stamp);
    snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", entry->id);
    sandbox_removal_t removal = dc->api->remove(dc, id, name, entry->tries, deadline_us, &trouble);
    if (removal == SANDBOX_THERE)
        snprintf(why, LEDGER_ERROR_MAX + 1, "%s: %s", trouble.message, trouble.detail);
    return removal;
}

typedef struct {
    const char *installation;
    sandbox_seen_cb found;
    void *data;
} listing_t;

static void tell_ours(const dc_t *dc, const listing_t *listing, const json_t *sandboxes)
{
    dc_sandbox_t sandbox;
    sandbox_seen_t seen;
    for (size_t i = 0; i < json_array_size(sandboxes); ++i) {
        dc_sandbox_read(dc->settings.api, json_array_get(sandboxes, i), &sandbox);
        if (sandbox.id[0] == '\0' || !dc_name_read(sandbox.name, listing->installation, seen.stamp))
            continue;
        snprintf(seen.id, sizeof(seen.id), "%s", sandbox.id);
        listing->found(listing->data, &seen);
    }
}

static bool sandbox_list(void *self, const char *installation, sandbox_seen_cb found, void *data,
                         char why[LEDGER_ERROR_MAX + 1])
{
    dc_t *dc = check(self);
    const listing_t listing = {.installation = installation, .found = found, .data = data};
    uint64_t deadline_us = clock_mono_us() + (uint64_t)JANITOR_ATTEMPT_MS * 1000;
    dc_page_t page = {.next = ""};
    cloud_trouble_t trouble;

    for (int i = 0; i < DC_LIST_PAGES_MAX; ++i) {
        char token[DC_PAGE_TOKEN_MAX + 1];
        snprintf(token, sizeof(token), "%s", page.next);
        json_t *json = dc->api->page(dc, token, &page, deadline_us, &trouble);
        if (json == NULL) {
            snprintf(why, LEDGER_ERROR_MAX + 1, "%s: %s", trouble.message, trouble.detail);
            return false;
        }
        tell_ours(dc, &listing, page.sandboxes);
        json_decref(json);
        if (page.next[0] == '\0')
            return true;
    }
    snprintf(why, LEDGER_ERROR_MAX + 1, "the list has more than %d pages", DC_LIST_PAGES_MAX);
    return false;
}

static backend_sandboxes_t sandboxes = {
    .unseen_ms = DC_UNSEEN_MS,
    .workers = DC_WORKERS,
    .remove = sandbox_remove,
    .list = sandbox_list,
};

/* --- the wall --- */

static void problem(dc_t *dc, const char *what)
{
    if (dc->wall.problem[0] == '\0')
        snprintf(dc->wall.problem, sizeof(dc->wall.problem), "%s", what);
}

/* The parent has checked all of it; a role that was started some other way still must not call anywhere. */
static void check_settings(dc_t *dc)
{
    const dc_settings_t *settings = &dc->settings;
    if (settings->token == NULL || settings->username == NULL)
        problem(dc, "DOCKER_SBX_TOKEN and DOCKER_SBX_USERNAME must be set");
    if (settings->api_url[0] == '\0' || base_url_problem(settings->api_url) != NULL ||
        base_url_problem(settings->auth_url) != NULL)
        problem(dc, "SANDBOX_DOCKERCLOUD_API_URL and SANDBOX_DOCKERCLOUD_AUTH_URL must be addresses");
    if (settings->size.cpus == 0)
        problem(dc, "SANDBOX_CPUS and SANDBOX_MEMORY_MB name no size of Docker Cloud's");
    if (settings->image[0] == '\0' && settings->store_image[0] == '\0')
        problem(dc, "SANDBOX_DOCKERCLOUD_IMAGE or SANDBOX_DOCKERCLOUD_STORE_IMAGE must be set");
}

static void *wall_setup(const backend_host_t *host)
{
    dc_t *dc = mem_alloc(sizeof(*dc));
    dc->magic = DC_MAGIC;
    dc->host = host;
    dc_settings_read(&dc->settings);
    check_settings(dc);
    dc->api = dc->settings.api == DC_REST ? &DC_REST_OPS : &DC_CONNECT_OPS;
    cloud_secrets_add(&dc->secrets, dc->settings.token);
    const cloud_http_options_t http = {.name = OPS.title, .secrets = &dc->secrets};
    dc->http = cloud_http_create(host->loop, &http);
    dc->bearer = dc_bearer_create(dc->http, &dc->settings);
    const cloud_settings_t settings = {.host = host,
                                       .ops = &OPS,
                                       .self = dc,
                                       .tier = TIER_VM,
                                       .capacity = (uint32_t)option_int(OPT_SANDBOX_DOCKERCLOUD_MAX_CONCURRENT)};
    sandboxes.unseen_ms = cloud_unseen_ms(DC_UNSEEN_MS);
    cloud_wall_begin(&dc->wall, settings);
    log_event(LOG_INFO, "docker cloud", log_str("api", dc->settings.api == DC_REST ? "rest" : "connect"),
              log_str("url", dc->settings.api_url), log_str("size", dc->settings.size.name));
    return dc;
}

static void wall_stop(void *self)
{
    dc_t *dc = check(self);
    cloud_destroy(dc->wall.cloud);
    cloud_http_destroy(dc->http);
    dc_bearer_destroy(dc->bearer);
    dc->magic = 0;
    free(dc);
}

const backend_ops_t DOCKERCLOUD_BACKEND = {
    .name = "dockercloud",
    .billed = true,
    .proof_ms = CLOUD_SMOKE_MS,
    .sandboxes = &sandboxes,
    .setup = wall_setup,
    .check = cloud_wall_problem,
    .describe = cloud_wall_describe,
    .prove = cloud_wall_prove,
    .run = cloud_wall_run,
    .stop = wall_stop,
};
