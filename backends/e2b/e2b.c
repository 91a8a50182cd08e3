/* The wall itself: its settings, its place in the layer for somebody else's machines, its facts. */
#include "backends/e2b/e2b.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/e2b/e2b_internal.h"
#include "config/e2b.h"
#include "core/mem.h"
#include "core/sha256.h"

enum { CONNECTIONS_KEPT = 512 }; /* of the API and of sandboxes, a stream for each run among them */

e2b_t *e2b_check(void *self)
{
    e2b_t *e2b = self;
    if (e2b->magic != E2B_MAGIC)
        mem_fatal("not an E2B wall");
    return e2b;
}

/* --- of one sandbox --- */

static void leave(void *self, cloud_box_t *box)
{
    e2b_box_t *own = box->own;
    e2b_check(self);
    if (own->token == NULL)
        return;
    explicit_bzero(own->token, strlen(own->token));
    free(own->token);
    own->token = NULL;
}

/* --- facts --- */

/* What every sandbox is created with, as one name: it changes whenever that does. */
static void tell_policy(const e2b_t *e2b, char policy[BACKEND_IDENTITY_MAX])
{
    char sha256[SHA256_HEX + 1];
    buffer_t body;
    e2b_create_request_t request = {.flavour = e2b->flavour,
                                    .template = e2b->template,
                                    .life_s = 1,
                                    .installation = "any",
                                    .stamp = "any",
                                    .kind = "run"};
    buffer_init(&body, 4 * 1024);
    if (!e2b_create_body(&request, &body))
        mem_fatal("a create that cannot be written");
    buffer_printf(&body, "%u %u %u", e2b->cpus_max, e2b->memory_max_mb, e2b->disk_max_mb);
    sha256_hex(body.base, body.len, sha256);
    buffer_dispose(&body);
    snprintf(policy, BACKEND_IDENTITY_MAX, "e2b-lockdown:sha256:%s", sha256);
}

/* A template's name can be given another content at any time, so nothing is told of what is in it. */
static void facts(void *self, backend_facts_t *out)
{
    const e2b_t *e2b = e2b_check(self);
    tell_policy(e2b, out->policy);
    out->memory_mb = e2b->size.memory_mb;
    out->cpus = e2b->size.cpus;
    out->disk_mb = e2b->size.disk_mb;
    out->pids = 0;
}

static const cloud_ops_t OPS = {
    .name = "e2b",
    .title = "E2B",
    .box_size = sizeof(e2b_box_t),
    .layout = {.project = E2B_PROJECT_DIR, .scripts = "/home/user/.gw-*"},
    .create_ms = E2B_CREATE_MS,
    .create = e2b_create,
    .check = e2b_read_back,
    .is_checked_beside = true, /* 3.2, step 3 */
    .stage = e2b_stage,
    .step = e2b_step,
    .collect = e2b_collect,
    .leave = leave,
    .preflight = e2b_preflight,
    .probe = e2b_probe,
    .facts = facts,
};

/* --- the wall --- */

static void read_settings(e2b_t *e2b)
{
    e2b->key = option_str(OPT_E2B_API_KEY);
    e2b->template = option_str(OPT_E2B_TEMPLATE);
    e2b->domain = option_str(OPT_E2B_DOMAIN);
    e2b->other_domains = option_list(OPT_E2B_OTHER_DOMAINS);
    e2b->flavour = e2b_is_flavour_v1() ? E2B_FLAVOUR_V1 : E2B_FLAVOUR_V2;
    e2b->cpus_max = e2b_cpus_max();
    e2b->memory_max_mb = e2b_memory_max_mb();
    e2b->disk_max_mb = e2b_disk_max_mb();
    e2b_api_url(e2b->api);
    e2b_sandbox_url(e2b->sandboxes);
    if (e2b->key == NULL)
        snprintf(e2b->wall.problem, sizeof(e2b->wall.problem), "E2B_API_KEY is not set");
    cloud_secrets_add(&e2b->secrets, e2b->key);
}

static void *wall_setup(const backend_host_t *host)
{
    e2b_t *e2b = mem_alloc(sizeof(*e2b));
    e2b->magic = E2B_MAGIC;
    e2b->host = host;
    read_settings(e2b);
    cloud_http_options_t http = {.name = "E2B",
                                 .secrets = &e2b->secrets,
                                 .ca_file = option_str(OPT_E2B_CA_FILE),
                                 .connections_kept = CONNECTIONS_KEPT};
    e2b->http = cloud_http_create(host->loop, &http);
    const cloud_settings_t settings = {.host = host,
                                       .ops = &OPS,
                                       .self = e2b,
                                       .tier = TIER_VM,
                                       .capacity = (uint32_t)option_int(OPT_E2B_MAX_CONCURRENT),
                                       .creates_per_minute = (uint32_t)option_int(OPT_E2B_CREATES_PER_SECOND) * 60};
    cloud_wall_begin(&e2b->wall, settings);
    return e2b;
}

static void wall_stop(void *self)
{
    e2b_t *e2b = e2b_check(self);
    cloud_destroy(e2b->wall.cloud);
    cloud_http_destroy(e2b->http);
    e2b_forget_all(e2b);
    e2b->magic = 0;
    free(e2b);
}

const backend_ops_t E2B_BACKEND = {
    .name = "e2b",
    .billed = true,
    .proof_ms = CLOUD_SMOKE_MS,
    .sandboxes = &E2B_SANDBOXES,
    .setup = wall_setup,
    .check = cloud_wall_problem,
    .describe = cloud_wall_describe,
    .prove = cloud_wall_prove,
    .run = cloud_wall_run,
    .stop = wall_stop,
};
