#include "backends/dockercloud/credential.h"

#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/requests.h"
#include "core/clock.h"

void dc_credential_drop(cloud_box_t *box)
{
    dc_box_t *own = dc_own(box);
    if (own->credential != NULL)
        sodium_free(own->credential);
    own->credential = NULL;
    own->credential_end_us = 0;
}

/* A call that may last as long as a credential lives cannot be outlived by more than a fresh one allows. */
static bool is_long_enough(const dc_box_t *own, uint64_t call_deadline_us)
{
    uint64_t now_us = clock_mono_us(), end_us = call_deadline_us + (uint64_t)DC_CREDENTIAL_SPARE_MS * 1000;
    uint64_t most_us = now_us + ((uint64_t)DC_CREDENTIAL_MS - DC_CREDENTIAL_SPARE_MS) * 1000;
    return own->credential != NULL && own->credential_end_us > now_us &&
           own->credential_end_us >= (end_us < most_us ? end_us : most_us);
}

static bool take(cloud_box_t *box, const json_t *json, uint64_t asked_us, int64_t asked_wall_ms,
                 cloud_trouble_t *trouble)
{
    dc_box_t *own = dc_own(box);
    dc_credential_t *read = sodium_malloc(sizeof(*read));
    if (read == NULL)
        return cloud_trouble(trouble, CLOUD_NOTHING, "the gateway is out of memory", "no locked memory");
    const char *why = dc_credential_read(json, &own->sandbox, asked_wall_ms, read);
    if (why == NULL && read->life_ms == 0)
        why = "the endpoint credential is over already";
    if (why == NULL) {
        own->credential = sodium_malloc(strlen(read->token) + 1);
        if (own->credential != NULL)
            strcpy(own->credential, read->token);
        own->credential_end_us = asked_us + read->life_ms * 1000;
    }
    sodium_free(read);
    return why == NULL ? own->credential != NULL : dc_senseless(trouble, why);
}

/* The text in the JSON's memory is not left to the allocator. */
static void wipe_token(json_t *json)
{
    const char *token = json_string_value(json_object_get(json, "token"));
    if (token != NULL)
        sodium_memzero((char *)token, strlen(token));
}

static bool mint(dc_t *dc, cloud_box_t *box, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    uint64_t asked_us = clock_mono_us();
    int64_t asked_wall_ms = clock_wall_ms();
    buffer_t url, body;
    dc_refused_t refused;

    buffer_init(&url, CLOUD_URL_MAX);
    buffer_init(&body, DC_BODY_MAX);
    bool fits = dc_url(&url, dc->settings.api_url, "/v1/sandboxes/", box->id) &&
                buffer_append_str(&url, "/endpoint-credentials") && dc_ask_credential(&body);
    /* Minting twice is harmless, so it is repeated like a read. */
    const dc_call_t call = {.method = "POST",
                            .path = (const char *)url.base,
                            .body = body.base,
                            .body_len = body.len,
                            .repeat = CLOUD_READ,
                            .limit_ms = DC_CALL_MS,
                            .deadline_us = deadline_us};
    json_t *json = fits ? dc_call_json(dc, &call, &refused, trouble) : NULL;
    bool is_done = json != NULL && take(box, json, asked_us, asked_wall_ms, trouble);
    if (json != NULL)
        wipe_token(json);
    json_decref(json);
    buffer_dispose(&url);
    buffer_dispose(&body);
    return is_done;
}

const char *dc_credential_get(dc_t *dc, cloud_box_t *box, uint64_t call_deadline_us, cloud_trouble_t *trouble)
{
    dc_box_t *own = dc_own(box);
    if (is_long_enough(own, call_deadline_us))
        return own->credential;
    dc_credential_drop(box);
    if (mint(dc, box, call_deadline_us, trouble))
        return own->credential;
    /* Whatever the mint came to, the call it was for was not sent. */
    if (trouble->fault == CLOUD_UNKNOWN || trouble->fault == CLOUD_PROTOCOL || trouble->fault == CLOUD_LATE)
        trouble->fault = CLOUD_NOTHING;
    return NULL;
}
