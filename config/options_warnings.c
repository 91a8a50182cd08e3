/* What does not stop the start but must be said. */
#include "config/options.h"

#include <inttypes.h>

#include "config/docker.h"
#include "config/provider.h"
#include "config/redis_settings.h"

static bool is_public(option_id_t id)
{
    char host[256];
    uint16_t port;

    return address_parse(option_str(id), host, &port) && !address_is_loopback(host);
}

/* A run's time there begins after its sandbox's, and its answer comes after both. */
static void warn_of_long_ways(problems_t *warnings, const provider_t *provider)
{
    int64_t most_ms = option_int(OPT_SANDBOX_CLOUD_TIMEOUT_MAX) + provider->late_ms;
    if (provider->late_ms == CLOUD_LATE_MS && most_ms > option_int(OPT_PLIMSOLL_WRITE_TIMEOUT))
        problems_add(warnings,
                     "an answer of the backend %s may take %" PRId64 " s, and PLIMSOLL_WRITE_TIMEOUT cuts it off after "
                     "%" PRId64 " s: raise that, or lower SANDBOX_CLOUD_TIMEOUT_MAX",
                     provider->name, most_ms / 1000, option_int(OPT_PLIMSOLL_WRITE_TIMEOUT) / 1000);
}

void options_warnings(problems_t *warnings)
{
    const provider_t *enabled[PROVIDERS_MAX];
    size_t count = providers_enabled(enabled);

    if (option_is_set(OPT_PLIMSOLL_CLIENTS_FILE) && option_is_set(OPT_PLIMSOLL_TOKEN))
        problems_add(warnings, "PLIMSOLL_TOKEN is ignored, as PLIMSOLL_CLIENTS_FILE is set");
    if (options_callers_mode() == CALLERS_OPEN)
        problems_add(warnings, "everybody who can connect may run code: no token is asked for");
    if (options_max_concurrent() < option_int(OPT_SANDBOX_MAX_CONCURRENT))
        problems_add(warnings,
                     "SANDBOX_MAX_CONCURRENT is lowered from %" PRId64 " to %" PRIu32 ", as more does not fit into "
                     "SANDBOX_TOTAL_MEMORY_MB",
                     option_int(OPT_SANDBOX_MAX_CONCURRENT), options_max_concurrent());
    if (is_public(OPT_PLIMSOLL_METRICS_ADDR))
        problems_add(warnings,
                     "PLIMSOLL_METRICS_ADDR is not a loopback address, and metrics are served without authentication");
    if (redis_settings_are_in_the_clear())
        problems_add(
            warnings,
            "PLIMSOLL_REDIS_URL leaves this machine without TLS: passwords and answers can be read on the way");
    for (size_t i = 0; i < count; i++)
        warn_of_long_ways(warnings, enabled[i]);
    for (size_t i = 0; i < count; i++)
        if (enabled[i]->memory_max_mb > 0 && option_int(OPT_SANDBOX_MEMORY_MB) > enabled[i]->memory_max_mb)
            problems_add(warnings, "SANDBOX_MEMORY_MB is %" PRId64 ", of which the backend %s can use %u",
                         option_int(OPT_SANDBOX_MEMORY_MB), enabled[i]->name, enabled[i]->memory_max_mb);
    if (docker_is_enabled(enabled, count) && docker_disk_mb() > option_int(OPT_SANDBOX_MEMORY_MB))
        problems_add(warnings,
                     "what a run writes counts as its memory: of the %u MiB of SANDBOX_DISK_MB it can use less than "
                     "SANDBOX_MEMORY_MB, which is %" PRId64,
                     docker_disk_mb(), option_int(OPT_SANDBOX_MEMORY_MB));
}
