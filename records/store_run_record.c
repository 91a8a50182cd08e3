/*
 * The packed plimsoll.v1.RunRecord within a run's value. Most of it stands in the run's own texts already: of a record
 * that says the same as they do, and of one run alone (no session), only the rest is kept, and reading makes the same
 * bytes again. Any other is kept as it is.
 *
 * Kept of it: u8 bits (1 environment, 2 policy, 4 software identity, 8 software rule, 16 a version other than 2),
 * [u8 version], the texts whose bits are set.
 */
#include "records/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/digest.h"

enum { TEXTS = STORE_RECORD_TEXTS, BIT_VERSION = 1 << TEXTS, VERSION = 2, VERSION_MAX = 4 };

static bool is_same(const char *a, const char *b)
{
    return strcmp(a, b != NULL ? b : "") == 0;
}

static bool is_short(const char *text)
{
    return strnlen(text, STORE_STRING_MAX + 1) <= STORE_STRING_MAX;
}

static bool says_the_same(const Plimsoll__V1__RunRecord *r, const store_settlement_t *s)
{
    return is_same(r->request_sha256, s->request_sha256) && is_same(r->result_sha256, s->result_sha256) &&
           is_same(r->record_sha256, s->record_sha256) && is_same(r->provider, s->backend) &&
           is_same(r->isolation, s->tier) && r->started_unix_ms == s->started_unix_ms &&
           r->ended_unix_ms == s->ended_unix_ms && is_short(r->request_sha256) && is_short(r->result_sha256) &&
           is_short(r->record_sha256) && is_short(r->provider) && is_short(r->isolation);
}

static bool is_plain(const Plimsoll__V1__RunRecord *r)
{
    return r->base.n_unknown_fields == 0 && r->version <= VERSION_MAX && r->session[0] == '\0' && r->sequence == 0 &&
           r->previous_sha256[0] == '\0' && r->unanswered[0] == '\0' && r->instance[0] == '\0' &&
           is_short(r->environment) && is_short(r->policy) && is_short(r->software_identity) &&
           is_short(r->software_rule_id);
}

/* It makes the same bytes: no field twice, none unknown, none in another order. */
static bool is_canonical(const Plimsoll__V1__RunRecord *r, const store_settlement_t *s)
{
    uint8_t *again = mem_alloc(s->record_len);
    bool same = plimsoll__v1__run_record__get_packed_size(r) == s->record_len;
    if (same) {
        plimsoll__v1__run_record__pack(r, again);
        same = memcmp(again, s->record, s->record_len) == 0;
    }
    free(again);
    return same;
}

static bool has_own_digest(const Plimsoll__V1__RunRecord *r)
{
    char digest[SHA256_HEX + 1];
    return digest_record(r, digest) == NULL && strcmp(digest, r->record_sha256) == 0;
}

uint8_t *store_run_record_put(uint8_t *at, const store_settlement_t *s, bool *is_derived)
{
    *is_derived = false;
    if (s->record_len == 0 || s->record_len > STORE_RECORD_MAX)
        return NULL;
    Plimsoll__V1__RunRecord *r = plimsoll__v1__run_record__unpack(NULL, s->record_len, s->record);
    if (r == NULL)
        return NULL;
    bool fits = says_the_same(r, s) && is_plain(r) && is_canonical(r, s);
    if (fits) {
        const char *texts[TEXTS] = {r->environment, r->policy, r->software_identity, r->software_rule_id};
        uint8_t *bits = at++;
        *bits = r->version != VERSION ? BIT_VERSION : 0;
        if (r->version != VERSION)
            *at++ = (uint8_t)r->version;
        for (size_t i = 0; i != TEXTS; ++i) {
            if (texts[i][0] == '\0')
                continue;
            *bits |= (uint8_t)(1 << i);
            at = store_text_put(at, texts[i]);
        }
        *is_derived = has_own_digest(r);
    }
    plimsoll__v1__run_record__free_unpacked(r, NULL);
    return fits ? at : NULL;
}

const char *store_run_record_get(const uint8_t *at, const uint8_t *end, bool is_derived, store_run_text_t *out)
{
    static char none[1];
    char texts[TEXTS][STORE_STRING_MAX + 1] = {{0}};
    store_run_t *run = &out->run;
    if (at == end)
        return "no record";
    uint8_t bits = *at++;
    if (bits >= 2 * BIT_VERSION)
        return "unknown bits of the record";
    Plimsoll__V1__RunRecord r = PLIMSOLL__V1__RUN_RECORD__INIT;
    r.version = VERSION;
    if ((bits & BIT_VERSION) != 0) {
        if (at == end)
            return "no version of the record";
        r.version = *at++;
        if (r.version > VERSION_MAX)
            return "unknown version of the record";
    }
    for (size_t i = 0; i != TEXTS; ++i) {
        if ((bits & 1 << i) == 0)
            continue;
        at = store_text_get(at, end, texts[i]);
        if (at == NULL)
            return "a text of the record does not fit";
    }
    if (at != end)
        return "something behind the record";
    /* protobuf-c does not write to what it packs */
    r.request_sha256 = (char *)run->request_sha256;
    r.result_sha256 = (char *)run->result_sha256;
    r.provider = (char *)run->backend;
    r.isolation = (char *)run->tier;
    r.environment = texts[0];
    r.policy = texts[1];
    r.software_identity = texts[2];
    r.software_rule_id = texts[3];
    r.session = r.previous_sha256 = r.unanswered = r.instance = none;
    r.started_unix_ms = run->started_unix_ms;
    r.ended_unix_ms = run->ended_unix_ms;
    char *record_sha256 = out->text[STORE_TEXT_RECORD_SHA256];
    if (is_derived && digest_record(&r, record_sha256) != NULL)
        return "no digest of the record";
    r.record_sha256 = record_sha256;
    if (plimsoll__v1__run_record__get_packed_size(&r) > sizeof(out->packed))
        return "a record past its limit";
    run->record = out->packed;
    run->record_len = plimsoll__v1__run_record__pack(&r, out->packed);
    return NULL;
}
