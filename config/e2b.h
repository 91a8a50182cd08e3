/* The settings of the backend e2b: what follows from them, and what must hold (spec backend-e2b 1.1 to 1.3, 2.1, 5.1).
 */
#ifndef CONFIG_E2B_H
#define CONFIG_E2B_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base_url.h"
#include "config/options.h"
#include "config/provider.h"

/* Where it asks for sandboxes: E2B_API_URL, or https://api. and the domain; without slashes at its end. */
void e2b_api_url(char out[BASE_URL_MAX + 1]);
/* Where all sandboxes' daemons are reached: E2B_SANDBOX_URL, or https://sandbox. and the domain; "" when each has a
 * host of its own. */
void e2b_sandbox_url(char out[BASE_URL_MAX + 1]);
bool e2b_is_flavour_v1(void);
/* What a sandbox may have at most; 0 = whatever its template says. */
uint32_t e2b_cpus_max(void);
uint32_t e2b_memory_max_mb(void);
uint32_t e2b_disk_max_mb(void);

void e2b_rules(problems_t *problems, const provider_t *const *enabled, size_t count);
/* Rule 11 of the hardened mode. */
void e2b_hardened_rules(problems_t *problems, const provider_t *const *enabled, size_t count);

#endif
