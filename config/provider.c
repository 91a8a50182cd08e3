#include "config/provider.h"

#include <stdio.h>
#include <string.h>

#include "config/options.h"

const provider_t PROVIDERS[] = {
    {
        .name = "wasm",
        .tier = "process",
        .late_ms = PROVIDER_LATE_MS,
        .on_host = true,
        .memory_min_mb = 4,    /* the engine's own need */
        .memory_max_mb = 4095, /* 65,535 pages of 64 KiB: one page short of what 32 bits address */
    },
    {
        .name = "docker",
        .tier = "container",
        .late_ms = DOCKER_LATE_MS,
        .docker = true,
        .keeps_ledger = true,
        .on_host = true,
        .enforces_cpus = true,
        .enforces_pids = true,
        .enforces_disk = true,
        .memory_min_mb = DOCKER_MEMORY_MIN_MB,
    },
    {
        .name = "gvisor",
        .tier = "kernel",
        .late_ms = DOCKER_LATE_MS,
        .docker = true,
        .keeps_ledger = true,
        .on_host = true,
        .enforces_cpus = true,
        .enforces_pids = true,
        .enforces_disk = true,
        .memory_min_mb = GVISOR_MEMORY_MIN_MB,
    },
    {
        .name = "e2b",
        .tier = "vm",
        .late_ms = CLOUD_LATE_MS,
        .billed = true,
        .keeps_ledger = true,
        .roles = ROLE_E2B,
        .enforces_cpus = true,
        .enforces_disk = true,
    },
    {
        .name = "dockercloud",
        .tier = "vm",
        .late_ms = CLOUD_LATE_MS,
        .billed = true,
        .keeps_ledger = true,
        .roles = ROLE_DOCKERCLOUD,
        .enforces_cpus = true,
    },
    {
        .name = "openshell",
        .tier = "container",
        .late_ms = CLOUD_LATE_MS,
        .keeps_ledger = true,
        .roles = ROLE_OPENSHELL,
        .enforces_cpus = true,
        .enforces_disk = true,
        .memory_min_mb = OPENSHELL_MEMORY_MIN_MB,
    },
#ifdef PLIMSOLL_STANDIN
    {.name = "standin", .tier = "vm", .late_ms = PROVIDER_LATE_MS, .unlisted = true},
    {.name = "standin2", .tier = "vm", .late_ms = PROVIDER_LATE_MS, .unlisted = true},
    {.name = "standinpaid",
     .tier = "vm",
     .late_ms = PROVIDER_LATE_MS,
     .billed = true,
     .keeps_ledger = true,
     .unlisted = true},
#endif
};
const size_t PROVIDER_COUNT = sizeof(PROVIDERS) / sizeof(PROVIDERS[0]);
_Static_assert(sizeof(PROVIDERS) / sizeof(PROVIDERS[0]) <= PROVIDERS_MAX, "raise PROVIDERS_MAX");

int provider_tier_rank(const char *tier)
{
    static const char *const tiers[] = {"process", "container", "kernel", "vm"};

    for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++)
        if (strcmp(tier, tiers[i]) == 0)
            return (int)i + 1;
    return 0;
}

const provider_t *provider_find(const char *name)
{
    for (size_t i = 0; i < PROVIDER_COUNT; i++)
        if (strcmp(PROVIDERS[i].name, name) == 0)
            return &PROVIDERS[i];
    return NULL;
}

bool provider_keeps_ledger(const char *name)
{
    const provider_t *provider = provider_find(name);
    return provider != NULL && provider->keeps_ledger;
}

unsigned provider_roles(const char *name)
{
    const provider_t *provider = provider_find(name);
    if (provider == NULL)
        return ROLE_BACKEND;
    return ROLE_BACKEND | provider->roles | (provider->keeps_ledger ? ROLE_LEDGER : 0u);
}

/* Names under which gVisor is registered with an Engine: runsc, and runsc-kvm and the like beside it. */
static bool is_gvisor_runtime(const char *runtime)
{
    return strcmp(runtime, "runsc") == 0 || strncmp(runtime, "runsc-", 6) == 0;
}

bool provider_is_gvisor(const provider_t *provider)
{
    return strcmp(provider->name, "gvisor") == 0 ||
           (strcmp(provider->name, "docker") == 0 && is_gvisor_runtime(option_str(OPT_SANDBOX_DOCKER_RUNTIME)));
}

const char *provider_tier(const provider_t *provider)
{
    return provider_is_gvisor(provider) ? "kernel" : provider->tier;
}

unsigned provider_memory_min_mb(const provider_t *provider)
{
    return provider_is_gvisor(provider) ? GVISOR_MEMORY_MIN_MB : provider->memory_min_mb;
}

unsigned provider_pids_min(const provider_t *provider)
{
    if (!provider->docker)
        return 0;
    return provider_is_gvisor(provider) ? GVISOR_PIDS_MIN : DOCKER_PIDS_MIN;
}

static bool is_among(const provider_t *provider, const provider_t *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == provider)
            return true;
    return false;
}

size_t providers_enabled(const provider_t *out[PROVIDERS_MAX])
{
    const char *const *names = option_list(OPT_SANDBOX_PROVIDER);
    size_t count = 0;

    for (; *names != NULL; names++) {
        const provider_t *provider = provider_find(*names);
        if (provider != NULL && !is_among(provider, out, count))
            out[count++] = provider;
    }
    return count;
}

const char *provider_names(char out[PROVIDER_NAMES_MAX])
{
    int len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < PROVIDER_COUNT && len < PROVIDER_NAMES_MAX; i++)
        if (!PROVIDERS[i].unlisted)
            len +=
                snprintf(out + len, (size_t)(PROVIDER_NAMES_MAX - len), "%s%s", i == 0 ? "" : ", ", PROVIDERS[i].name);
    return out;
}
