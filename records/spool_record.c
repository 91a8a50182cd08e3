#include "records/spool_record.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/project_outcome.h"
#include "records/spool.pb-c.h"
#include "records/store_internal.h"

enum {
    ANSWER_TAG_0 = 0xa2, /* field 100, length-delimited: 100 << 3 | 2 as a varint */
    ANSWER_TAG_1 = 0x06,
    CALLER_MAX = 256,
};

static size_t put_answer_head(uint8_t *at, size_t answer_len)
{
    size_t n = 0;
    at[n++] = ANSWER_TAG_0;
    at[n++] = ANSWER_TAG_1;
    for (; answer_len >= 0x80; answer_len >>= 7)
        at[n++] = (uint8_t)(answer_len | 0x80);
    at[n++] = (uint8_t)answer_len;
    return n;
}

static char *text(const char *value)
{
    return (char *)(value != NULL ? value : "");
}

size_t spool_record_pack(const store_settlement_t *s, size_t answer_len, uint8_t **out, size_t *without_answer)
{
    Plimsoll__Spool__Amounts spent = PLIMSOLL__SPOOL__AMOUNTS__INIT;
    Plimsoll__Spool__Settlement m = PLIMSOLL__SPOOL__SETTLEMENT__INIT;
    spent.seconds_ms = s->spent.seconds_ms;
    spent.paid_ms = s->spent.paid_ms;
    spent.cost_micro = s->spent.cost_micro;
    m.caller = text(s->caller);
    m.claim = text(s->request_id);
    m.client_request_id = text(s->client_request_id);
    m.idempotency_key = text(s->idempotency_key);
    m.run_id = text(s->run_id);
    m.verdict = (uint32_t)s->verdict;
    m.give_back_rate = s->give_back_rate;
    m.spent = &spent;
    m.is_cost_known = s->is_cost_known;
    m.keeps_hold = s->keeps_hold;
    m.limits = text(s->limits);
    m.backend = text(s->backend);
    m.tier = text(s->tier);
    m.kind = text(s->kind);
    m.request_sha256 = text(s->request_sha256);
    m.result_sha256 = text(s->result_sha256);
    m.record_sha256 = text(s->record_sha256);
    m.started_unix_ms = s->started_unix_ms;
    m.ended_unix_ms = s->ended_unix_ms;
    m.exit_code = s->exit_code;
    m.project_outcome = s->project_outcome;
    m.timed_out = s->timed_out;
    m.canceled = s->canceled;
    m.unknown_code = text(s->unknown_code);
    m.reason = text(s->reason);
    m.trace_id = text(s->trace_id);
    m.record = (ProtobufCBinaryData){s->record_len, (uint8_t *)s->record};
    size_t len = plimsoll__spool__settlement__get_packed_size(&m);
    *out = mem_alloc(len + SPOOL_ANSWER_HEAD_MAX);
    plimsoll__spool__settlement__pack(&m, *out);
    *without_answer = len;
    return answer_len != 0 ? len + put_answer_head(*out + len, answer_len) : len;
}

/* NULL where the store wants NULL for "none". */
static const char *or_null(const char *value)
{
    return value[0] != '\0' ? value : NULL;
}

static const char *judge(const Plimsoll__Spool__Settlement *m)
{
    size_t caller = strlen(m->caller);
    if (caller == 0 || caller > CALLER_MAX)
        return "no caller";
    if (!store_is_hex(m->run_id, STORE_ID))
        return "no run ID";
    if (m->claim[0] != '\0' && !store_is_hex(m->claim, STORE_ID))
        return "a claim that is none";
    if (m->verdict > VERDICT_UNKNOWN)
        return "an unknown verdict";
    if (m->project_outcome > PROJECT_OUTCOME_LAST)
        return "an unknown outcome of a project";
    return NULL;
}

const char *spool_record_unpack(const uint8_t *base, size_t len, spool_record_t *out)
{
    /* The bytes are as they were written (their frame's check), and no longer than a frame: protobuf-c's own reader
     * does, which takes any bytes as text, as a caller's or a backend's may be. */
    Plimsoll__Spool__Settlement *m = plimsoll__spool__settlement__unpack(NULL, len, base);
    if (m == NULL)
        return "malformed";
    const char *wrong = judge(m);
    if (wrong != NULL) {
        plimsoll__spool__settlement__free_unpacked(m, NULL);
        return wrong;
    }
    out->_message = m;
    out->settlement = (store_settlement_t){
        .caller = m->caller,
        .request_id = or_null(m->claim),
        .client_request_id = or_null(m->client_request_id),
        .idempotency_key = or_null(m->idempotency_key),
        .run_id = m->run_id,
        .verdict = (verdict_t)m->verdict,
        .give_back_rate = m->give_back_rate,
        .is_cost_known = m->is_cost_known,
        .keeps_hold = m->keeps_hold,
        .limits = or_null(m->limits),
        .backend = or_null(m->backend),
        .tier = or_null(m->tier),
        .kind = or_null(m->kind),
        .request_sha256 = or_null(m->request_sha256),
        .result_sha256 = or_null(m->result_sha256),
        .record_sha256 = or_null(m->record_sha256),
        .started_unix_ms = m->started_unix_ms,
        .ended_unix_ms = m->ended_unix_ms,
        .exit_code = m->exit_code,
        .project_outcome = (uint8_t)m->project_outcome,
        .timed_out = m->timed_out,
        .canceled = m->canceled,
        .unknown_code = or_null(m->unknown_code),
        .reason = or_null(m->reason),
        .trace_id = or_null(m->trace_id),
        .record = m->record.data,
        .record_len = m->record.len,
        .answer = m->answer.data,
        .answer_len = m->answer.len,
    };
    if (m->spent != NULL)
        out->settlement.spent = (store_amounts_t){m->spent->seconds_ms, m->spent->paid_ms, m->spent->cost_micro};
    return NULL;
}

void spool_record_dispose(spool_record_t *record)
{
    plimsoll__spool__settlement__free_unpacked(record->_message, NULL);
    record->_message = NULL;
}
