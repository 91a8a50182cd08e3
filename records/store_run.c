/*
 * The value of a run's key: one string, as a hash with a value past 64 bytes costs Redis three times the memory.
 * Version 2:
 *
 *   u8 version, u48 place in the log (all ones: none; both written by the settling script), u8 verdict, u8 flags (1
 * timed out, 2 canceled, bits 2-4 a project's outcome, 32 cost known), i32 exit code, i64 started, i64 ended, u48
 * sandbox ms, u48 paid ms, u48 micros spent (big-endian; the flags and these are where records/store_bill_lua.h changes
 * them), u16 which texts there are (bit 0 the first), those texts (store_text.c), the packed plimsoll.v1.RunRecord to
 * the end: as store_run_record.c has it where bit 14 is set, else as it is. The texts: request id, backend, tier, kind,
 * request, result and record digest, unknown code, reason, trace id, client's request id, idempotency key, limits.
 * Where bit 15 is set the record digest is left out, being what the record's own fields come to. Whose run it is its
 * key says.
 */
#include "records/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/project_outcome.h"

enum {
    VERSION = 2,
    FLAG_TIMED_OUT = 1,
    FLAG_CANCELED = 2,
    OUTCOME_SHIFT = 2,
    OUTCOME_MASK = 7,
    FLAG_COST_KNOWN = 32,
    FIXED = STORE_RUN_HEAD + 2 + 4 + 8 + 8 + 3 * 6 + 2,
    TEXTS = STORE_RUN_TEXTS,
    TEXTS_MAX = 2 + TEXTS * (2 + STORE_STRING_MAX),
    BIT_RECORD = 1 << 14,
    BIT_DERIVED = 1 << 15,
};

#define NO_LOG_INDEX ((UINT64_C(1) << 48) - 1)

static uint8_t *put_number(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i != bytes; ++i)
        at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    return at + bytes;
}

static uint64_t get_number(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i != bytes; ++i)
        value = value << 8 | at[i];
    return value;
}

void store_run_pack(const store_settlement_t *s, uint8_t **out, size_t *len)
{
    const char *texts[TEXTS] = {s->request_id,        s->backend,         s->tier,         s->kind,   s->request_sha256,
                                s->result_sha256,     s->record_sha256,   s->unknown_code, s->reason, s->trace_id,
                                s->client_request_id, s->idempotency_key, s->limits};
    uint8_t record[STORE_RECORD_CODED_MAX];
    bool is_derived;
    const uint8_t *record_end = store_run_record_put(record, s, &is_derived);
    unsigned bits = (record_end != NULL ? BIT_RECORD : 0) | (is_derived ? BIT_DERIVED : 0);
    /* what a kept hold comes to is shown once it is charged */
    store_amounts_t spent = s->keeps_hold ? (store_amounts_t){0} : s->spent;
    uint8_t *base = mem_alloc(FIXED + TEXTS_MAX + STORE_RECORD_CODED_MAX + s->record_len), *at = base;
    at = put_number(at, VERSION, 1);
    at = put_number(at, NO_LOG_INDEX, 6);
    at = put_number(at, (uint64_t)s->verdict, 1);
    at = put_number(at,
                    (s->timed_out ? FLAG_TIMED_OUT : 0) | (s->canceled ? FLAG_CANCELED : 0) |
                        (s->is_cost_known && !s->keeps_hold ? FLAG_COST_KNOWN : 0) |
                        (s->project_outcome & OUTCOME_MASK) << OUTCOME_SHIFT,
                    1);
    at = put_number(at, (uint32_t)s->exit_code, 4);
    at = put_number(at, (uint64_t)s->started_unix_ms, 8);
    at = put_number(at, (uint64_t)s->ended_unix_ms, 8);
    at = put_number(at, store_amount(spent.seconds_ms), 6);
    at = put_number(at, store_amount(spent.paid_ms), 6);
    at = put_number(at, store_amount(spent.cost_micro), 6);
    uint8_t *bits_at = at;
    at += 2;
    for (size_t i = 0; i != TEXTS; ++i) {
        if (texts[i] == NULL || texts[i][0] == '\0' || (i == STORE_TEXT_RECORD_SHA256 && is_derived))
            continue;
        bits |= 1u << i;
        at = store_text_put(at, texts[i]);
    }
    put_number(bits_at, bits, 2);
    size_t record_len = record_end != NULL ? (size_t)(record_end - record) : s->record_len;
    if (record_len != 0)
        memcpy(at, record_end != NULL ? record : s->record, record_len);
    *out = base;
    *len = (size_t)(at - base) + record_len;
}

const char *store_run_unpack(const char *run_id, const uint8_t *base, size_t len, store_run_text_t *out)
{
    if (len < FIXED)
        return "too short";
    if (base[0] != VERSION)
        return "unknown version";
    const uint8_t *rest = base + STORE_RUN_HEAD;
    uint64_t log_index = get_number(base + 1, 6);
    if (rest[0] > VERDICT_UNKNOWN)
        return "unknown verdict";
    if ((rest[1] & ~(FLAG_COST_KNOWN | FLAG_TIMED_OUT | FLAG_CANCELED | OUTCOME_MASK << OUTCOME_SHIFT)) != 0)
        return "unknown flags";
    if ((rest[1] >> OUTCOME_SHIFT & OUTCOME_MASK) > PROJECT_OUTCOME_LAST)
        return "unknown outcome";
    for (size_t i = 0; i != 3; ++i) {
        if (get_number(rest + 22 + 6 * i, 6) > STORE_AMOUNT_MAX)
            return "an amount past its limit";
    }
    unsigned bits = (unsigned)get_number(base + FIXED - 2, 2);
    if ((bits & ~(((1u << TEXTS) - 1) | BIT_RECORD | BIT_DERIVED)) != 0 ||
        ((bits & BIT_DERIVED) != 0 && ((bits & BIT_RECORD) == 0 || (bits & 1u << STORE_TEXT_RECORD_SHA256) != 0)))
        return "unknown texts";
    const uint8_t *at = base + FIXED, *end = base + len;
    for (size_t i = 0; i != TEXTS; ++i) {
        out->text[i][0] = '\0';
        if ((bits & 1u << i) == 0)
            continue;
        at = store_text_get(at, end, out->text[i]);
        if (at == NULL)
            return "a text does not fit";
    }
    out->run = (store_run_t){
        .run_id = run_id,
        .request_id = out->text[0],
        .verdict = verdict_name((verdict_t)rest[0]),
        .backend = out->text[1],
        .tier = out->text[2],
        .kind = out->text[3],
        .request_sha256 = out->text[4],
        .result_sha256 = out->text[5],
        .record_sha256 = out->text[6],
        .unknown_code = out->text[7],
        .reason = out->text[8],
        .trace_id = out->text[9],
        .caller = "",
        .client_request_id = out->text[10],
        .idempotency_key = out->text[11],
        .limits = out->text[12],
        .log_index = log_index == NO_LOG_INDEX ? -1 : (int64_t)log_index,
        .spent = {get_number(rest + 22, 6), get_number(rest + 28, 6), get_number(rest + 34, 6)},
        .is_cost_known = (rest[1] & FLAG_COST_KNOWN) != 0,
        .started_unix_ms = (int64_t)get_number(rest + 6, 8),
        .ended_unix_ms = (int64_t)get_number(rest + 14, 8),
        .exit_code = (int32_t)(uint32_t)get_number(rest + 2, 4),
        .project_outcome = rest[1] >> OUTCOME_SHIFT & OUTCOME_MASK,
        .timed_out = (rest[1] & FLAG_TIMED_OUT) != 0,
        .canceled = (rest[1] & FLAG_CANCELED) != 0,
        .record = at,
        .record_len = (size_t)(end - at),
    };
    return (bits & BIT_RECORD) != 0 ? store_run_record_get(at, end, (bits & BIT_DERIVED) != 0, out) : NULL;
}
