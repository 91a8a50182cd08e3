#include "backends/openshell/openshell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "backends/openshell/openshell_internal.h"
#include "config/openshell.h"
#include "config/options.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/tls_stream.h"

openshell_t *openshell_check(void *self)
{
    openshell_t *openshell = self;
    if (openshell->magic != OPENSHELL_MAGIC)
        mem_fatal("not an OpenShell wall");
    return openshell;
}

/* --- the configuration --- */

static void set_problem(openshell_t *openshell, const char *what, const char *why)
{
    if (openshell->wall.problem[0] == '\0')
        snprintf(openshell->wall.problem, sizeof(openshell->wall.problem), "%s%s%s", what, why != NULL ? ": " : "",
                 why != NULL ? why : "");
}

/* The key's numbers live in locked memory, out of core dumps and swap: OpenSSL keeps private ones in its secure heap
 * when there is one. */
static void lock_keys(void)
{
    if (CRYPTO_secure_malloc_initialized() == 0 &&
        CRYPTO_secure_malloc_init(OPENSHELL_SECURE_HEAP, OPENSHELL_SECURE_MIN) != 1)
        log_event(LOG_WARN, "client key not in locked memory", log_str("backend", "openshell"));
}

/* As root: the key file may be root's alone. */
static void load_tls(openshell_t *openshell)
{
    const char *err = NULL;
    lock_keys();
    openshell->tls =
        tls_stream_load(option_str(OPT_SANDBOX_OPENSHELL_CA_FILE), option_str(OPT_SANDBOX_OPENSHELL_CERT_FILE),
                        option_str(OPT_SANDBOX_OPENSHELL_KEY_FILE), &err);
    if (openshell->tls == NULL)
        set_problem(openshell, "the OpenShell client's TLS files", err);
    else
        tls_stream_offer(openshell->tls, "h2");
}

static void open_channel(openshell_t *openshell)
{
    grpc_target_t target;
    const char *url = option_str(OPT_SANDBOX_OPENSHELL_GATEWAY_URL);
    const char *why = openshell_settings_problem();
    if (why != NULL) {
        set_problem(openshell, why, NULL);
        return;
    }
    if ((why = grpc_target_parse(url, &target)) != NULL) {
        set_problem(openshell, "SANDBOX_OPENSHELL_GATEWAY_URL", why);
        return;
    }
    if (!target.is_plain)
        load_tls(openshell);
    if (openshell->wall.problem[0] == '\0')
        openshell->channel = grpc_channel_create(openshell->host->loop, &target, openshell->tls, OPENSHELL_CONNECT_MS);
}

static void read_shape(openshell_t *openshell)
{
    char cpus[OPENSHELL_CPUS_MAX], digest[SHA256_HEX + 1];
    const char *image = option_str(OPT_SANDBOX_OPENSHELL_IMAGE);
    openshell->memory_mb = (uint32_t)option_int(OPT_SANDBOX_MEMORY_MB);
    openshell->disk_mb = option_is_set(OPT_SANDBOX_DISK_MB) ? (uint32_t)option_int(OPT_SANDBOX_DISK_MB) : 0;
    openshell_cpus(cpus);
    openshell->cpus = strtod(cpus, NULL);
    openshell->other_version = option_str(OPT_SANDBOX_OPENSHELL_VERSION);
    shape_init(&openshell->shape, option_str(OPT_SANDBOX_OPENSHELL_WORKSPACE), image != NULL ? image : "", cpus,
               openshell->memory_mb, openshell->disk_mb);
    snprintf(openshell->policy, sizeof(openshell->policy), "openshell-policy:sha256:%s", openshell->shape.policy_hash);
    if (openshell_image_digest(image, digest))
        snprintf(openshell->environment, sizeof(openshell->environment), "openshell-image:sha256:%s", digest);
}

/* --- what the layer asks --- */

/* The exec brings the files, and its runner says that it has all of them (the job's digest) before anything runs. */
static bool stage(void *self, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble)
{
    (void)self;
    (void)box;
    (void)plan;
    trouble->fault = CLOUD_FINE;
    return true;
}

static bool preflight(void *self, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    return openshell_ask_info(openshell_check(self), true, deadline_us, trouble);
}

static void add_facts(void *self, backend_facts_t *facts)
{
    const openshell_t *openshell = openshell_check(self);
    facts->memory_mb = openshell->memory_mb;
    facts->disk_mb = openshell->disk_mb;
    facts->cpus = openshell->cpus;
    snprintf(facts->policy, sizeof(facts->policy), "%s", openshell->policy);
    snprintf(facts->javascript.environment, sizeof(facts->javascript.environment), "%s", openshell->environment);
    snprintf(facts->project.environment, sizeof(facts->project.environment), "%s", openshell->environment);
}

static const cloud_ops_t OPS = {
    .name = "openshell",
    .title = "OpenShell",
    .layout = {.project = OPENSHELL_DIRECTORY, .scripts = OPENSHELL_DIRECTORY "/.plimsoll"},
    .create_ms = CLOUD_CREATE_MS,
    .create = openshell_create,
    .check = openshell_check_box,
    .stage = stage,
    .execute = openshell_execute,
    .preflight = preflight,
    .probe = openshell_probe,
    .facts = add_facts,
};

/* --- the wall --- */

static void *wall_setup(const backend_host_t *host)
{
    openshell_t *openshell = mem_alloc(sizeof(*openshell));
    openshell->magic = OPENSHELL_MAGIC;
    openshell->host = host;
    read_shape(openshell);
    open_channel(openshell);
    OPENSHELL_SANDBOXES.unseen_ms = cloud_unseen_ms(OPENSHELL_UNSEEN_MS);
    const cloud_settings_t settings = {.host = host,
                                       .ops = &OPS,
                                       .self = openshell,
                                       .tier = TIER_CONTAINER,
                                       .creates_per_minute =
                                           (uint32_t)option_int(OPT_SANDBOX_OPENSHELL_CREATES_PER_MINUTE)};
    cloud_wall_begin(&openshell->wall, settings);
    return openshell;
}

static void wall_stop(void *self)
{
    openshell_t *openshell = openshell_check(self);
    cloud_destroy(openshell->wall.cloud);
    grpc_channel_destroy(openshell->channel);
    tls_stream_unref(openshell->tls);
    shape_dispose(&openshell->shape);
    openshell->magic = 0;
    free(openshell);
}

const backend_ops_t OPENSHELL_BACKEND = {
    .name = "openshell",
    .proof_ms = CLOUD_SMOKE_MS,
    .sandboxes = &OPENSHELL_SANDBOXES,
    .setup = wall_setup,
    .check = cloud_wall_problem,
    .describe = cloud_wall_describe,
    .prove = cloud_wall_prove,
    .run = cloud_wall_run,
    .stop = wall_stop,
};
