/* The isolation tiers, weakest first. A tier is evidence, not attestation. */
#ifndef RECORDS_TIER_H
#define RECORDS_TIER_H

#include <stdbool.h>

typedef enum { TIER_UNKNOWN = 0, TIER_NONE, TIER_PROCESS, TIER_CONTAINER, TIER_KERNEL, TIER_VM } tier_t;

/* "unknown", "none", "process", "container", "kernel", "vm". */
const char *tier_name(tier_t tier);
/* TIER_UNKNOWN for anything that is not exactly a tier's name. */
tier_t tier_parse(const char *name);
/* A request's floor: "" gives TIER_UNKNOWN (no floor) and true; "process" to "vm" the tier; anything else, "none" too,
 * false. */
bool tier_parse_floor(const char *text, tier_t *out);
/* Whether a wall of this tier may serve the floor. TIER_UNKNOWN as the floor is no floor; as the tier it meets nothing
 * but that. */
bool tier_meets(tier_t tier, tier_t floor);

#endif
