#include "backends/dockercloud/bearer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/answers.h"
#include "backends/dockercloud/requests.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/random.h"

/* One that waits for somebody else's exchange; on its own stack. */
typedef struct waiter {
    co_t *co;
    struct waiter *next;
    bool is_over;
} waiter_t;

struct dc_bearer {
    cloud_http_t *http;
    const dc_settings_t *settings;
    char *token;              /* sodium_malloc of DC_TOKEN_MAX + 1; "" when there is none */
    char *former;             /* the same, of the one before it */
    uint64_t number;          /* of the present token; grows */
    uint64_t end_us, life_ms; /* life_ms: when it was new */
    bool is_exchanging;
    waiter_t *waiters;
    uint32_t failures;      /* in a row */
    uint64_t pause_end_us;  /* no exchange before */
    cloud_trouble_t failed; /* the last one's */
    uint64_t exchanges;
};

dc_bearer_t *dc_bearer_create(cloud_http_t *http, const dc_settings_t *settings)
{
    dc_bearer_t *bearer = mem_alloc(sizeof(*bearer));
    bearer->http = http;
    bearer->settings = settings;
    bearer->token = sodium_malloc(DC_TOKEN_MAX + 1);
    bearer->former = sodium_malloc(DC_TOKEN_MAX + 1);
    if (bearer->token == NULL || bearer->former == NULL)
        mem_fatal("no locked memory for a bearer");
    bearer->token[0] = bearer->former[0] = '\0';
    return bearer;
}

void dc_bearer_destroy(dc_bearer_t *bearer)
{
    if (bearer == NULL)
        return;
    if (bearer->is_exchanging || bearer->waiters != NULL)
        mem_fatal("a bearer is waited for while it goes");
    sodium_free(bearer->token);
    sodium_free(bearer->former);
    free(bearer);
}

uint64_t dc_bearer_life_ms(const char *token, int64_t wall_ms)
{
    int64_t end_s;
    if (!dc_jwt_expiry(token, &end_s))
        return BEARER_LIFE_UNTOLD_MS;
    if (end_s * 1000 <= wall_ms)
        return 0;
    uint64_t life_ms = (uint64_t)(end_s * 1000 - wall_ms);
    return life_ms < BEARER_LIFE_MAX_MS ? life_ms : BEARER_LIFE_MAX_MS;
}

static uint64_t left_ms(const dc_bearer_t *bearer)
{
    uint64_t now_us = clock_mono_us();
    return bearer->token[0] != '\0' && bearer->end_us > now_us ? (bearer->end_us - now_us) / 1000 : 0;
}

static bool is_usable(const dc_bearer_t *bearer)
{
    return left_ms(bearer) > 0;
}

/* --- one exchange --- */

/* What the answer said is about our credential: nothing of it is repeated. */
static void judge(cloud_trouble_t *trouble)
{
    char detail[64];
    uint32_t retry_after_ms = trouble->retry_after_ms;
    cloud_fault_t fault = trouble->fault == CLOUD_CANCELED ? CLOUD_CANCELED : CLOUD_NOTHING;
    const char *message = "the service's token exchange did not answer";

    snprintf(detail, sizeof(detail), "token exchange: %s, HTTP %d", cloud_fault_name(trouble->fault), trouble->status);
    if (trouble->status == 401 || trouble->status == 403) {
        fault = CLOUD_DENIED;
        message = "the service does not take the gateway's credential";
    } else if (trouble->status == 429) {
        fault = CLOUD_BUSY;
        message = "the service limits the gateway's token exchanges";
    }
    cloud_trouble(trouble, fault, message, detail);
    if (fault == CLOUD_BUSY && retry_after_ms > 0)
        trouble->retry_after_ms = retry_after_ms;
}

static void retire(dc_bearer_t *bearer)
{
    if (bearer->token[0] != '\0')
        snprintf(bearer->former, DC_TOKEN_MAX + 1, "%s", bearer->token);
    sodium_memzero(bearer->token, DC_TOKEN_MAX + 1);
}

static bool take_answer(dc_bearer_t *bearer, cloud_answer_t *answer, uint64_t sent_us, cloud_trouble_t *trouble)
{
    const char *why, *token = NULL;
    json_t *json =
        answer->http.status == 200 ? cloud_json_read(answer->http.body.base, answer->http.body.len, &why) : NULL;
    uint64_t life_ms = 0;

    if (json != NULL && (token = dc_access_token(json)) != NULL)
        life_ms = dc_bearer_life_ms(token, clock_wall_ms());
    if (life_ms > 0) {
        retire(bearer);
        snprintf(bearer->token, DC_TOKEN_MAX + 1, "%s", token);
        bearer->end_us = sent_us + life_ms * 1000;
        bearer->life_ms = life_ms;
        ++bearer->number;
    }
    if (token != NULL)
        sodium_memzero((char *)token, strlen(token)); /* in json's memory, which is about to be freed */
    if (answer->http.body.base != NULL)
        sodium_memzero(answer->http.body.base, answer->http.body.len);
    json_decref(json);
    return life_ms > 0 ||
           cloud_trouble(trouble, CLOUD_NOTHING, "the service's token exchange gave no token",
                         token != NULL ? "token exchange: the token is over" : "token exchange: no token");
}

static bool exchange(dc_bearer_t *bearer, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    static const char *const headers[] = {"Content-Type: application/json", "Accept: application/json"};
    uint64_t now_us = clock_mono_us(), end_us = now_us + (uint64_t)BEARER_EXCHANGE_MS * 1000;
    cloud_answer_t answer = {.tries = 0};
    buffer_t body;
    bool is_done;

    buffer_init(&body, DC_BODY_MAX);
    if (!dc_ask_exchange(&body, bearer->settings->username, bearer->settings->token)) {
        buffer_dispose(&body);
        return cloud_trouble(trouble, CLOUD_DENIED, "the gateway's credential is too long", NULL);
    }
    cloud_request_t request = {.method = "POST",
                               .url = bearer->settings->auth_url,
                               .headers = headers,
                               .header_count = sizeof(headers) / sizeof(headers[0]),
                               .body = body.base,
                               .body_len = body.len,
                               .repeat = CLOUD_ONCE,
                               .limit_ms = BEARER_EXCHANGE_MS,
                               .deadline_us = deadline_us < end_us ? deadline_us : end_us,
                               .response_max = BEARER_ANSWER_MAX};
    ++bearer->exchanges;
    is_done = cloud_call(bearer->http, &request, &answer, trouble);
    sodium_memzero(body.base, body.len);
    buffer_dispose(&body);
    if (is_done)
        is_done = take_answer(bearer, &answer, now_us, trouble);
    else
        judge(trouble);
    cloud_answer_dispose(&answer);
    return is_done;
}

static void note_failure(dc_bearer_t *bearer, const cloud_trouble_t *trouble)
{
    uint64_t pause_ms = BEARER_PAUSE_MAX_MS;
    if (bearer->failures < 6)
        pause_ms = (uint64_t)BEARER_PAUSE_MIN_MS << bearer->failures;
    if (pause_ms > BEARER_PAUSE_MAX_MS)
        pause_ms = BEARER_PAUSE_MAX_MS;
    pause_ms = pause_ms / 2 + random_below((uint32_t)(pause_ms / 2) + 1);
    if (trouble->retry_after_ms > pause_ms)
        pause_ms = trouble->retry_after_ms < BEARER_PAUSE_MAX_MS ? trouble->retry_after_ms : BEARER_PAUSE_MAX_MS;
    ++bearer->failures;
    bearer->pause_end_us = clock_mono_us() + pause_ms * 1000;
    bearer->failed = *trouble;
    log_event(LOG_WARN, "token exchange failed", log_str("backend", "dockercloud"), log_str("detail", trouble->detail),
              log_uint("pause_ms", pause_ms), log_bool("bearer_left", is_usable(bearer)));
}

static bool lead(dc_bearer_t *bearer, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    bearer->is_exchanging = true;
    bool is_done = exchange(bearer, deadline_us, trouble);
    bearer->is_exchanging = false;
    if (is_done)
        bearer->failures = 0;
    else if (trouble->fault != CLOUD_CANCELED)
        note_failure(bearer, trouble);
    for (waiter_t *waiter = bearer->waiters; waiter != NULL; waiter = waiter->next) {
        waiter->is_over = true;
        co_wake(waiter->co);
    }
    bearer->waiters = NULL;
    return is_done;
}

/* --- who waits --- */

static void forget(dc_bearer_t *bearer, const waiter_t *waiter)
{
    waiter_t **at = &bearer->waiters;
    while (*at != NULL && *at != waiter)
        at = &(*at)->next;
    if (*at != NULL)
        *at = waiter->next;
}

/* Until the exchange under way is over. */
static bool follow(dc_bearer_t *bearer, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    waiter_t waiter = {.co = co_self(), .next = bearer->waiters};
    bearer->waiters = &waiter;
    while (!waiter.is_over) {
        uint32_t wait_ms = cloud_left_ms(deadline_us);
        co_wake_t woken = wait_ms > 0 ? co_wait(wait_ms) : CO_TIMED_OUT;
        if (woken == CO_WOKEN || waiter.is_over)
            continue;
        forget(bearer, &waiter);
        return woken == CO_CANCELED ? cloud_trouble(trouble, CLOUD_CANCELED, "the run was stopped", NULL)
                                    : cloud_trouble(trouble, CLOUD_LATE, "the service's token exchange did not answer",
                                                    "waited for an exchange under way");
    }
    return true;
}

static bool refuse_during_pause(dc_bearer_t *bearer, cloud_trouble_t *trouble)
{
    uint32_t pause_ms = cloud_left_ms(bearer->pause_end_us);
    *trouble = bearer->failed;
    trouble->status = 0;
    trouble->is_sent = false;
    if (trouble->fault == CLOUD_BUSY)
        trouble->retry_after_ms = pause_ms > 0 ? pause_ms : 1;
    return false;
}

static bool needs_renewal(const dc_bearer_t *bearer, uint32_t need_ms)
{
    /* More than a fresh one would have cannot be had. */
    uint64_t wanted_ms = need_ms > BEARER_EARLY_MS ? need_ms : BEARER_EARLY_MS, most_ms = bearer->life_ms / 5 * 4;
    return !is_usable(bearer) || left_ms(bearer) < (wanted_ms < most_ms ? wanted_ms : most_ms);
}

/* False with the trouble; true: look again. */
static bool renew(dc_bearer_t *bearer, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    if (bearer->is_exchanging)
        return follow(bearer, deadline_us, trouble);
    if (cloud_left_ms(bearer->pause_end_us) > 0)
        return refuse_during_pause(bearer, trouble);
    return lead(bearer, deadline_us, trouble);
}

/* One that can be used, if not for as long as was wanted. False with the trouble. */
static bool have_one(dc_bearer_t *bearer, uint64_t deadline_us, uint32_t need_ms, cloud_trouble_t *trouble)
{
    while (needs_renewal(bearer, need_ms)) {
        uint64_t before = bearer->exchanges;
        if (!renew(bearer, deadline_us, trouble))
            return is_usable(bearer) && trouble->fault != CLOUD_CANCELED;
        /* A fresh one that lives no longer than this is what there is. */
        if (is_usable(bearer) && bearer->exchanges != before && !bearer->is_exchanging)
            break;
    }
    return true;
}

const char *dc_bearer_get(dc_bearer_t *bearer, uint64_t deadline_us, uint32_t need_ms, uint64_t *number,
                          cloud_trouble_t *trouble)
{
    if (!have_one(bearer, deadline_us, need_ms, trouble))
        return NULL;
    *number = bearer->number;
    return bearer->token;
}

void dc_bearer_drop(dc_bearer_t *bearer, uint64_t number)
{
    if (bearer->number != number)
        return;
    retire(bearer);
    bearer->end_us = 0;
}

void dc_bearer_secrets(const dc_bearer_t *bearer, cloud_secrets_t *secrets)
{
    cloud_secrets_add(secrets, bearer->token);
    cloud_secrets_add(secrets, bearer->former);
}
