/* The hardened mode, by the numbers of spec section 4. Rule 1's proof is the gateway's to judge; here it fails what no
 * proof could mend. Rule 20, a boolean that does not parse, is already a problem of its row. The rules of backends that
 * are not built in (6, 9, 10, 12, 19) come with them. */
#include "config/options.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "config/docker.h"
#include "config/dockercloud.h"
#include "config/e2b.h"
#include "config/openshell.h"
#include "config/options_rules.h"
#include "config/provider.h"

static bool is_off(option_id_t id)
{
    return id == OPT_PLIMSOLL_METRICS_ADDR && strcasecmp(option_str(id), "off") == 0;
}

static void check_listener(problems_t *problems, option_id_t id)
{
    bool tls = option_is_set(OPT_PLIMSOLL_TLS_CERT) && option_is_set(OPT_PLIMSOLL_TLS_KEY);
    char host[256];
    uint16_t port;

    if (tls || is_off(id) || !address_parse(option_str(id), host, &port) || address_is_loopback(host))
        return;
    problems_add(problems, "hardened: %s is \"%s\", which is not a loopback address, without TLS", OPTIONS[id].name,
                 option_str(id));
}

static void check_walls(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (provider_tier_rank(provider_tier(enabled[i])) < provider_tier_rank("kernel"))
            problems_add(problems, "hardened: the wall of the backend %s is only %s; it must be kernel or vm",
                         enabled[i]->name, provider_tier(enabled[i]));
}

/* Rules 7 and 8. */
static void check_docker(problems_t *problems)
{
    if (!option_bool(OPT_SANDBOX_REQUIRE_PINNED_IMAGES))
        problems_add(problems, "hardened: SANDBOX_REQUIRE_PINNED_IMAGES must be on");
    if (strcmp(option_str(OPT_SANDBOX_DOCKER_SECCOMP), "unconfined") == 0)
        problems_add(problems, "hardened: SANDBOX_DOCKER_SECCOMP must not be unconfined");
}

static bool is_above_zero(option_id_t id)
{
    if (!option_is_set(id))
        return false;
    return OPTIONS[id].type == OPTION_INT ? option_int(id) > 0 : is_cpu_count(option_str(id));
}

/* Two services have no setting of that kind (rule 13). */
static bool is_disk_asked_for(const provider_t *const *enabled, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((enabled[i]->roles & (ROLE_DOCKERCLOUD | ROLE_OPENSHELL)) == 0)
            return true;
    return false;
}

/* Rule 13: the first three are asked for with every backend built in, but for the disk's, the rest with docker. */
static void check_envelope(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    static const option_id_t needed[] = {OPT_SANDBOX_MEMORY_MB, OPT_SANDBOX_CPUS, OPT_SANDBOX_DISK_MB, OPT_SANDBOX_PIDS,
                                         OPT_SANDBOX_TOTAL_MEMORY_MB};
    enum { NEEDED_BY_ALL = 3, NEEDED_BY_DOCKER = sizeof(needed) / sizeof(needed[0]) };

    for (size_t i = 0; i < (docker_is_enabled(enabled, count) ? NEEDED_BY_DOCKER : NEEDED_BY_ALL); i++)
        if (!is_above_zero(needed[i]) && (needed[i] != OPT_SANDBOX_DISK_MB || is_disk_asked_for(enabled, count)))
            problems_add(problems, "hardened: %s must be set above zero", OPTIONS[needed[i]].name);
}

static void check_shares(problems_t *problems)
{
    int64_t rate = option_int(OPT_SANDBOX_RATE_PER_MIN);
    uint32_t share = options_per_caller_concurrent(), most = options_max_concurrent();

    if (rate <= 0)
        problems_add(problems, "hardened: SANDBOX_RATE_PER_MIN must be above zero");
    if (options_rate_burst() > rate)
        problems_add(problems,
                     "hardened: SANDBOX_RATE_BURST is %" PRIu32 ", above SANDBOX_RATE_PER_MIN, which is %" PRId64,
                     options_rate_burst(), rate);
    if (share == 0)
        problems_add(problems, "hardened: SANDBOX_PER_KEY_CONCURRENT must be above zero");
    if (share >= most)
        problems_add(problems,
                     "hardened: one caller may hold %" PRIu32 " of %" PRIu32
                     " runs at once: SANDBOX_PER_KEY_CONCURRENT must be below the effective SANDBOX_MAX_CONCURRENT",
                     share, most);
    if (option_int(OPT_SANDBOX_MAX_SESSIONS) > 0 && option_int(OPT_SANDBOX_MAX_SESSIONS_PER_CALLER) <= 0)
        problems_add(problems, "hardened: SANDBOX_MAX_SESSIONS_PER_CALLER must be above zero when sessions are on");
}

void options_hardened_rules(problems_t *problems)
{
    const provider_t *enabled[PROVIDERS_MAX];
    size_t count = providers_enabled(enabled);

    if (!option_bool(OPT_PLIMSOLL_HARDENED))
        return;
    check_walls(problems, enabled, count);
    if (options_callers_mode() != CALLERS_FROM_FILE)
        problems_add(problems,
                     "hardened: PLIMSOLL_CLIENTS_FILE must be set, so that each caller has a token of its own");
    if (option_is_set(OPT_PLIMSOLL_INSECURE))
        problems_add(problems, "hardened: PLIMSOLL_INSECURE must not be set, to whatever value");
    check_listener(problems, OPT_PLIMSOLL_ADDR);
    check_listener(problems, OPT_PLIMSOLL_METRICS_ADDR);
    if (docker_is_enabled(enabled, count))
        check_docker(problems);
    e2b_hardened_rules(problems, enabled, count);
    openshell_hardened_rules(problems);
    dockercloud_hardened_rules(problems, enabled, count);
    if (count > 0)
        check_envelope(problems, enabled, count);
    check_shares(problems);
}
