/* The settings of the backend dockercloud: what follows from them, and what must hold between them (spec
 * backend-dockercloud 5, DC-1 to DC-10). */
#ifndef CONFIG_DOCKERCLOUD_H
#define CONFIG_DOCKERCLOUD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/options.h"
#include "config/provider.h"

/* Which of the service's two APIs is spoken. Chosen once, never changed at run time: the trial at the start proves the
 * one in use, and the two give different evidence. */
typedef enum { DC_CONNECT, DC_REST } dc_api_t;

enum {
    DC_REST_TIMEOUT_MAX_MS = 270 * 1000, /* a REST endpoint credential lives 300 s and an exec is cut with it (2.6) */
    DC_SIZES = 5,
};

/* The only pairs the service takes (spec 2.2). */
typedef struct {
    const char *name;
    uint32_t cpus, memory_mib;
} dc_size_t;
extern const dc_size_t DC_SIZE_TABLE[DC_SIZES];

dc_api_t dockercloud_api(void);
/* SANDBOX_DOCKERCLOUD_API_URL, or the documented base of the REST API; NULL when neither is there. */
const char *dockercloud_api_url(void);
/* The size that SANDBOX_CPUS and SANDBOX_MEMORY_MB name: the smallest when neither is set, the one that holds the one
 * that is set. NULL when there is none of that pair. */
const dc_size_t *dockercloud_size(void);
/* "ID@sha256:" and 64 hex digits, the ID of a store image (3.3). */
bool dockercloud_is_store_image(const char *text);
/* Whether what boots is named by its digest. */
bool dockercloud_is_pinned(void);

void dockercloud_rules(problems_t *problems, const provider_t *const *enabled, size_t count);
/* Rules 9 and 10 of the hardened mode. */
void dockercloud_hardened_rules(problems_t *problems, const provider_t *const *enabled, size_t count);

#endif
