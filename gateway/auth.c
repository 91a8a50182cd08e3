#include "gateway/auth.h"

#include <string.h>
#include <strings.h>

#include <sodium.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/sha256.h"
#include "gateway/metrics.h"

enum { REFUSED_LOG_INTERVAL_MS = 30 * 1000 };

/* "Bearer TOKEN": two parts split on white space, the first without case (spec 1.8). */
static bool token_of(const head_field_t *field, const char **token, size_t *len)
{
    if (field->count != 1)
        return false;
    const char *at = field->base, *end = at + field->len;
    const char *space = at;
    while (space < end && *space != ' ' && *space != '\t')
        space++;
    if (space - at != 6 || strncasecmp(at, "bearer", 6) != 0)
        return false;
    while (space < end && (*space == ' ' || *space == '\t'))
        space++;
    *token = space;
    *len = (size_t)(end - space);
    for (size_t i = 0; i < *len; i++)
        if (space[i] == ' ' || space[i] == '\t')
            return false;
    return *len > 0 && *len <= TOKEN_MAX;
}

/* Refused credentials are logged as a count at most every 30 s: neither token nor hash, and no line a request
 * (spec 1.5). */
static void note_refused(lane_t *lane)
{
    metric_inc(METRIC_AUTH_REFUSED);
    lane->auth_log_count++;
    uint64_t now = clock_mono_ms();
    if (lane->auth_log_at != 0 && now - lane->auth_log_at < REFUSED_LOG_INTERVAL_MS) {
        metric_inc(METRIC_LOG_SUPPRESSED);
        return;
    }
    log_event(LOG_WARN, "credentials refused", log_uint("count", lane->auth_log_count));
    lane->auth_log_at = now;
    lane->auth_log_count = 0;
}

static void sha256_of(const char *token, size_t len, uint8_t out[SHA256_BYTES])
{
    sha256_t *s = sha256_begin();
    sha256_add(s, token, len);
    sha256_end(s, out);
}

bool auth_check(lane_t *lane, const head_field_t *authorization, intake_t *in, refusal_t *refusal)
{
    front_t *front = lane->front;
    const char *token;
    size_t len;
    uint8_t digest[SHA256_BYTES];
    if (front->auth_mode == AUTH_OPEN) {
        in->caller_id = "anon";
        return true;
    }
    if (!token_of(authorization, &token, &len)) {
        note_refused(lane);
        refusal_set_early(refusal, CODE_UNAUTHENTICATED, MARK_PERMISSION,
                          "no bearer token: send \"Authorization: Bearer TOKEN\"");
        return false;
    }
    sha256_of(token, len, digest);
    if (front->auth_mode == AUTH_TOKEN) {
        if (sodium_memcmp(digest, front->token_sha256, sizeof(digest)) == 0) {
            in->caller_id = "static";
            return true;
        }
    } else {
        in->callers = front_callers(front);
        in->caller = callers_find(in->callers, digest, clock_wall_ms());
        if (in->caller != NULL)
            in->caller_id = in->caller->id;
    }
    if (in->caller == NULL) {
        note_refused(lane);
        refusal_set_early(refusal, CODE_UNAUTHENTICATED, MARK_PERMISSION, "the bearer token is not a known, valid one");
        return false;
    }
    if (!in->caller->runs) {
        note_refused(lane);
        refusal_set_early(refusal, CODE_PERMISSION_DENIED, MARK_PERMISSION, "the caller lacks the scope code:run");
        return false;
    }
    return true;
}
