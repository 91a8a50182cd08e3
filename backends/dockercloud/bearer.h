/*
 * The bearer of the management API: exchanged for the operator's token, kept in locked memory, renewed in time, and
 * never by two at once (spec 1). When the exchange does not answer while the bearer at hand is still good, that one
 * serves on.
 */
#ifndef BACKENDS_DOCKERCLOUD_BEARER_H
#define BACKENDS_DOCKERCLOUD_BEARER_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/cloud/cloud_http.h"
#include "backends/dockercloud/settings.h"

enum {
    BEARER_EXCHANGE_MS = 10 * 1000,
    BEARER_ANSWER_MAX = 64 * 1024,
    BEARER_EARLY_MS = 60 * 1000, /* renewed when it has less left */
    BEARER_LIFE_MAX_MS = 15 * 60 * 1000,
    BEARER_LIFE_UNTOLD_MS = 5 * 60 * 1000, /* when it does not say how long it lives */
    BEARER_PAUSE_MIN_MS = 1000,            /* after an exchange that failed; doubles, with jitter */
    BEARER_PAUSE_MAX_MS = 60 * 1000,
};

typedef struct dc_bearer dc_bearer_t;

dc_bearer_t *dc_bearer_create(cloud_http_t *http, const dc_settings_t *settings);
/* Nobody waits in it any more. */
void dc_bearer_destroy(dc_bearer_t *bearer);
/*
 * In a coroutine. A bearer that is good now, and for `need_ms` more where that can be had; the text is the cache's own
 * and good until the next wait of the coroutine; `number` is what dc_bearer_drop takes. NULL with the trouble: NOTHING,
 * BUSY or DENIED, as nothing was sent to the API itself; LATE; CANCELED.
 */
const char *dc_bearer_get(dc_bearer_t *bearer, uint64_t deadline_us, uint32_t need_ms, uint64_t *number,
                          cloud_trouble_t *trouble);
/* What must not be repeated: the bearer at hand, and the one before it, which a call under way may have been sent with.
 * Borrowed. */
void dc_bearer_secrets(const dc_bearer_t *bearer, cloud_secrets_t *secrets);
/* The API refused the one of that number: it is not given out again. */
void dc_bearer_drop(dc_bearer_t *bearer, uint64_t number);
/* How long a bearer that was received now may be used, in ms: by what it says itself against the wall clock, cut to
 * BEARER_LIFE_MAX_MS; 0 when it says that it is over. */
uint64_t dc_bearer_life_ms(const char *token, int64_t wall_ms);

#endif
