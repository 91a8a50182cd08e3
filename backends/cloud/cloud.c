#include "backends/cloud/cloud.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_internal.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

void cloud_check(const cloud_t *cloud)
{
    if (cloud == NULL || cloud->magic != CLOUD_MAGIC)
        mem_fatal("not a cloud wall");
}

static uint32_t least_given(uint32_t own, uint32_t most)
{
    return own != 0 && own < most ? own : most;
}

static void set_smoke_pause(cloud_t *cloud)
{
    cloud->smoke_pause_min_ms = CLOUD_SMOKE_PAUSE_MIN_MS;
    cloud->smoke_pause_max_ms = CLOUD_SMOKE_PAUSE_MAX_MS;
#ifdef PLIMSOLL_STANDIN
    if (option_is_set(OPT_PLIMSOLL_CLOUD_SMOKE_PAUSE))
        cloud->smoke_pause_min_ms = cloud->smoke_pause_max_ms = (uint32_t)option_int(OPT_PLIMSOLL_CLOUD_SMOKE_PAUSE);
#endif
    cloud->smoke_pause_ms = cloud->smoke_pause_min_ms;
}

cloud_t *cloud_create(const cloud_settings_t *settings)
{
    cloud_t *cloud = mem_alloc(sizeof(*cloud));
    cloud->magic = CLOUD_MAGIC;
    cloud->settings = *settings;
    cloud->capacity = least_given(settings->capacity, settings->host->capacity);
    cloud->timeout_max_ms = (uint32_t)option_int(OPT_SANDBOX_CLOUD_TIMEOUT_MAX);
    cloud->smoke_interval_ms = (uint64_t)option_int(OPT_SANDBOX_CLOUD_SMOKE_INTERVAL);
    cloud->creates_per_minute = settings->creates_per_minute != 0
                                    ? settings->creates_per_minute
                                    : (uint32_t)option_int(OPT_SANDBOX_CLOUD_CREATES_PER_MINUTE);
    set_smoke_pause(cloud);
    cloud_place_init(cloud);
    return cloud;
}

void cloud_destroy(cloud_t *cloud)
{
    cloud_check(cloud);
    cloud_place_end(cloud);
    cloud->magic = 0;
    free(cloud);
}

uint32_t cloud_unseen_ms(uint32_t usual)
{
#ifdef PLIMSOLL_STANDIN
    if (option_is_set(OPT_PLIMSOLL_CLOUD_UNSEEN))
        return (uint32_t)option_int(OPT_PLIMSOLL_CLOUD_UNSEEN);
#endif
    return usual;
}

bool cloud_sleep_ms(uint32_t ms, uint64_t deadline_us)
{
    uint32_t left_ms = cloud_left_ms(deadline_us);
    return co_sleep(ms < left_ms ? ms : left_ms) != CO_CANCELED;
}

/* --- facts --- */

static void describe_kind(const cloud_t *cloud, backend_kind_t *kind)
{
    kind->supported = cloud->settings.problem == NULL;
    kind->max_timeout_ms = cloud->timeout_max_ms;
    kind->default_timeout_ms =
        cloud->timeout_max_ms < CLOUD_TIMEOUT_DEFAULT_MS ? cloud->timeout_max_ms : CLOUD_TIMEOUT_DEFAULT_MS;
    kind->languages[0] = "javascript";
}

void cloud_describe(const cloud_t *cloud, backend_facts_t *facts)
{
    cloud_check(cloud);
    memset(facts, 0, sizeof(*facts));
    facts->tier = TIER_UNKNOWN;
    describe_kind(cloud, &facts->javascript);
    describe_kind(cloud, &facts->project);
    if (cloud->has_python)
        facts->project.languages[1] = "python";
    if (cloud->settings.ops->facts != NULL)
        cloud->settings.ops->facts(cloud->settings.self, facts);
}

/* --- evidence --- */

void cloud_suspect(cloud_t *cloud, const char *why)
{
    cloud_check(cloud);
    snprintf(cloud->suspicion, sizeof(cloud->suspicion), "%s", why);
    if (!cloud->is_suspect)
        log_event(LOG_ERROR, "wall suspected", log_str("backend", cloud->settings.ops->name), log_str("reason", why));
    cloud->is_suspect = true;
    cloud->settings.host->reprove(cloud->settings.host->data);
}

static bool is_younger(uint64_t since_us, uint64_t age_ms)
{
    return since_us != 0 && clock_mono_us() - since_us < age_ms * 1000;
}

/* False with the reason. */
static bool preflight(cloud_t *cloud, bool *is_untried, char failure[BACKEND_TEXT_MAX])
{
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    /* a run has just read its own sandbox back: the provider answers, and takes the credential */
    if (is_younger(cloud->seen_us, (uint64_t)option_int(OPT_PLIMSOLL_PROOF_INTERVAL)) && !cloud->is_suspect)
        return true;
    if (cloud->settings.ops->preflight(cloud->settings.self, clock_mono_us() + CLOUD_PREFLIGHT_MS * UINT64_C(1000),
                                       &trouble))
        return true;
    *is_untried = trouble.fault != CLOUD_DENIED && trouble.fault != CLOUD_MISSING && trouble.fault != CLOUD_DIFFERS;
    /* what was learnt, and of what: the failure is cut where it is too long */
    char text[CLOUD_TEXT_CALLER_MAX + CLOUD_TEXT_LOG_MAX + 8];
    snprintf(text, sizeof(text), "%s (%s)", trouble.message, trouble.detail);
    snprintf(failure, BACKEND_TEXT_MAX, "%s", text);
    return false;
}

static bool is_smoke_due(const cloud_t *cloud)
{
    return cloud->is_suspect || !is_younger(cloud->smoke_us, cloud->smoke_interval_ms);
}

static void smoke_held(cloud_t *cloud)
{
    cloud->smoke_us = cloud->seen_us = clock_mono_us();
    cloud->smoke_next_us = cloud->smoke_us + cloud->smoke_pause_min_ms * UINT64_C(1000);
    cloud->smoke_pause_ms = cloud->smoke_pause_min_ms;
    cloud->smoke_failure[0] = '\0';
    cloud->is_suspect = false;
}

/* Each costs money: the next one after a longer pause. */
static void smoke_failed(cloud_t *cloud, const char *failure)
{
    cloud->smoke_next_us = clock_mono_us() + cloud->smoke_pause_ms * UINT64_C(1000);
    cloud->smoke_pause_ms =
        cloud->smoke_pause_ms * 2 < cloud->smoke_pause_max_ms ? cloud->smoke_pause_ms * 2 : cloud->smoke_pause_max_ms;
    snprintf(cloud->smoke_failure, sizeof(cloud->smoke_failure), "%s", failure);
}

static bool smoke(cloud_t *cloud, bool *is_untried, char failure[BACKEND_TEXT_MAX])
{
    cloud_smoked_t smoked;
    if (clock_mono_us() < cloud->smoke_next_us) {
        bool has_failed = cloud->smoke_failure[0] != '\0';
        *is_untried = has_failed && cloud->is_smoke_untried;
        snprintf(failure, BACKEND_TEXT_MAX, "%.160s (tried again in %u s)",
                 has_failed ? cloud->smoke_failure : cloud->suspicion,
                 (unsigned)(cloud_left_ms(cloud->smoke_next_us) / 1000 + 1));
        return false;
    }
    if (cloud_smoke(cloud, &smoked, failure)) {
        smoke_held(cloud);
        return true;
    }
    *is_untried = cloud->is_smoke_untried = smoked.is_untried;
    if (smoked.is_billed || !smoked.is_untried)
        smoke_failed(cloud, failure);
    return false;
}

bool cloud_prove(cloud_t *cloud, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    bool is_untried = false;
    cloud_check(cloud);
    if (cloud->settings.problem != NULL) {
        snprintf(failure, BACKEND_TEXT_MAX, "%s", cloud->settings.problem);
        return false;
    }
    bool is_proven =
        preflight(cloud, &is_untried, failure) && (!is_smoke_due(cloud) || smoke(cloud, &is_untried, failure));
    if (is_proven) {
        cloud_describe(cloud, facts);
        facts->tier = cloud->settings.tier;
        return true;
    }
    /* What is suspected is not served on older evidence. */
    facts->is_untried = is_untried && !cloud->is_suspect;
    return false;
}
