/* The settings of the backend openshell: what follows from them, and what must hold (spec backend-openshell 1.1, 2.3).
 */
#ifndef CONFIG_OPENSHELL_H
#define CONFIG_OPENSHELL_H

#include <stdbool.h>
#include <stddef.h>

#include "config/options.h"
#include "config/provider.h"

enum {
    OPENSHELL_CPUS_MAX = 32, /* bytes of a number of processors, with its NUL */
};

/* Processors of a sandbox as a decimal number: SANDBOX_CPUS, or 1. */
void openshell_cpus(char out[OPENSHELL_CPUS_MAX]);
/* The digest of "name@sha256:" and 64 hex digits; false when the image is not named so. `image` may be NULL. */
bool openshell_image_digest(const char *image, char hex[65]);
/* NULL, or what is missing or wrong: the wall runs nothing then. Static text. */
const char *openshell_settings_problem(void);

void openshell_rules(problems_t *problems, const provider_t *const *enabled, size_t count);
/* No wall of this kind is strong enough for the hardened mode; this is said of its development switch besides. */
void openshell_hardened_rules(problems_t *problems);

#endif
