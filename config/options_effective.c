#include "config/options.h"

#include <string.h>

#include "config/decimal.h"
#include "config/docker.h"
#include "config/options_rules.h"
#include "config/prices.h"
#include "config/provider.h"

static bool any_runs_here(void)
{
    const provider_t *enabled[PROVIDERS_MAX];
    size_t count = providers_enabled(enabled);

    for (size_t i = 0; i < count; i++)
        if (enabled[i]->on_host)
            return true;
    return false;
}

int64_t options_memory_fit(void)
{
    int64_t total = option_int(OPT_SANDBOX_TOTAL_MEMORY_MB);

    if (total == 0 || !any_runs_here())
        return INT64_MAX;
    return (total - docker_pools_mb()) / option_int(OPT_SANDBOX_MEMORY_MB) - option_int(OPT_SANDBOX_SESSION_POOL);
}

uint32_t options_max_concurrent(void)
{
    int64_t wanted = option_int(OPT_SANDBOX_MAX_CONCURRENT), fit = options_memory_fit();

    if (fit < 1)
        return 1; /* a problem that refuses the start; nobody divides by it meanwhile */
    return (uint32_t)(fit < wanted ? fit : wanted);
}

uint32_t options_per_caller_concurrent(void)
{
    uint32_t most = options_max_concurrent();

    if (option_is_set(OPT_SANDBOX_PER_KEY_CONCURRENT)) {
        int64_t wanted = option_int(OPT_SANDBOX_PER_KEY_CONCURRENT);
        return wanted < most ? (uint32_t)wanted : most;
    }
    return most / 2 > 0 ? most / 2 : 1;
}

uint32_t options_rate_burst(void)
{
    int64_t burst = option_int(OPT_SANDBOX_RATE_BURST);

    return (uint32_t)(burst > 0 ? burst : option_int(OPT_SANDBOX_RATE_PER_MIN));
}

uint32_t options_total_rate_burst(void)
{
    int64_t burst = option_int(OPT_PLIMSOLL_TOTAL_RATE_BURST);

    return (uint32_t)(burst > 0 ? burst : option_int(OPT_PLIMSOLL_TOTAL_RATE_PER_MIN));
}

uint64_t options_cost_micro(option_id_t id)
{
    const char *text = option_str(id);
    uint64_t micro;

    return decimal_parse(text, strlen(text), COST_PLACES, COST_MAX, &micro) ? micro : 0;
}

callers_mode_t options_callers_mode(void)
{
    if (option_is_set(OPT_PLIMSOLL_CLIENTS_FILE))
        return CALLERS_FROM_FILE;
    return option_is_set(OPT_PLIMSOLL_TOKEN) ? CALLERS_SHARE_TOKEN : CALLERS_OPEN;
}
