#include "records/tier.h"

#include <string.h>

static const char *const NAMES[] = {
    [TIER_UNKNOWN] = "unknown",     [TIER_NONE] = "none",     [TIER_PROCESS] = "process",
    [TIER_CONTAINER] = "container", [TIER_KERNEL] = "kernel", [TIER_VM] = "vm",
};
enum { TIERS = sizeof(NAMES) / sizeof(NAMES[0]) };

const char *tier_name(tier_t tier)
{
    return (unsigned)tier < TIERS ? NAMES[tier] : NAMES[TIER_UNKNOWN];
}

tier_t tier_parse(const char *name)
{
    for (unsigned i = 0; i < TIERS; i++) {
        if (strcmp(NAMES[i], name) == 0)
            return (tier_t)i;
    }
    return TIER_UNKNOWN;
}

bool tier_parse_floor(const char *text, tier_t *out)
{
    *out = TIER_UNKNOWN;
    if (text[0] == '\0')
        return true;
    tier_t tier = tier_parse(text);
    if (tier < TIER_PROCESS)
        return false;
    *out = tier;
    return true;
}

bool tier_meets(tier_t tier, tier_t floor)
{
    return floor == TIER_UNKNOWN || (tier != TIER_UNKNOWN && tier >= floor);
}
