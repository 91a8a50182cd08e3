#include "gateway/log_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/protojson.h"
#include "gateway/answer.h"
#include "gateway/shared_log.h"

enum {
    RUN_ID_HEX = 32,
    CALLER_TAG_HEX = 32,        /* docs/redis-keys.md */
    PAGE_BYTES_MAX = 16 * 1024, /* two heads and 64 hashes are below 6 KiB, a receipt below 2 KiB */
    RECEIPT_BYTES_MAX = 4096,
    NUMBER_DIGITS_MAX = 19, /* of MERKLE_SIZE_MAX */
};

/* What the query may name. */
typedef enum { FIELD_RUN, FIELD_INDEX, FIELD_SIZE, FIELD_FIRST, FIELD_SECOND, FIELD_COUNT } field_t;
static const char *const FIELDS[FIELD_COUNT] = {"run", "index", "size", "first", "second"};

typedef struct {
    bool given[FIELD_COUNT];
    uint64_t number[FIELD_COUNT];
    char run[RUN_ID_HEX + 1];
} query_t;

typedef struct {
    h2o_req_t *req;
    gate_t *gate;
    query_t query;
    record_log_question_t question;
    char record_sha256[SHA256_HEX + 1]; /* of the run that was asked for, or its receipt's; "" = none is known */
    buffer_t receipt;                   /* of a run whose outcome is unknown, as JSON */
} lookup_t;

/* --- the query --- */

static bool takes(route_kind_t kind, field_t field)
{
    switch (kind) {
    case ROUTE_LOG_HEAD:
        return field == FIELD_SIZE;
    case ROUTE_LOG_INCLUSION:
        return field == FIELD_RUN || field == FIELD_INDEX || field == FIELD_SIZE;
    default:
        return field == FIELD_FIRST || field == FIELD_SECOND;
    }
}

static const char *parameters_of(route_kind_t kind)
{
    return kind == ROUTE_LOG_HEAD        ? "the query may hold size, once"
           : kind == ROUTE_LOG_INCLUSION ? "the query holds either run or index, and may hold size, each once"
                                         : "the query holds first, and may hold second, each once";
}

/* 0 to MERKLE_SIZE_MAX in decimal digits, without a needless zero. */
static bool read_number(const char *text, size_t len, uint64_t *out)
{
    uint64_t n = 0;
    if (len < 1 || len > NUMBER_DIGITS_MAX || (len > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0'); /* 19 digits are below 2^64 */
    }
    *out = n;
    return n <= MERKLE_SIZE_MAX;
}

static bool read_field(query_t *q, field_t field, const char *value, size_t len, refusal_t *refusal)
{
    if (field == FIELD_RUN) {
        if (len != RUN_ID_HEX || strspn(value, "0123456789abcdef") < len) {
            refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "run must be a run ID: 32 lowercase hex digits");
            return false;
        }
        memcpy(q->run, value, len);
    } else if (!read_number(value, len, &q->number[field])) {
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "%s must be a whole number from 0 to %" PRIu64,
                         FIELDS[field], MERKLE_SIZE_MAX);
        return false;
    }
    q->given[field] = true;
    return true;
}

static bool parse_query(route_kind_t kind, const char *text, query_t *q, refusal_t *refusal)
{
    *q = (query_t){0};
    while (*text != '\0') {
        size_t len = strcspn(text, "&"), name = strcspn(text, "=&");
        field_t field = 0;
        while (field < FIELD_COUNT &&
               !(takes(kind, field) && strlen(FIELDS[field]) == name && strncmp(text, FIELDS[field], name) == 0))
            field++;
        if (field == FIELD_COUNT || name == len || q->given[field]) {
            refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "%s", parameters_of(kind));
            return false;
        }
        if (!read_field(q, field, text + name + 1, len - name - 1, refusal))
            return false;
        text += len;
        if (*text == '&')
            text++;
    }
    if ((kind == ROUTE_LOG_INCLUSION && q->given[FIELD_RUN] == q->given[FIELD_INDEX]) ||
        (kind == ROUTE_LOG_CONSISTENCY && !q->given[FIELD_FIRST])) {
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "%s", parameters_of(kind));
        return false;
    }
    return true;
}

/* --- the answer --- */

static void add_head(buffer_t *b, const lookup_t *l, const char *name, uint64_t size, const merkle_hash_t *root,
                     const record_log_answer_t *a)
{
    char hex[SHA256_HEX + 1];
    merkle_hex(root, hex);
    buffer_printf(b, "%s{\"size\":%" PRIu64 ",\"root_sha256\":\"%s\",\"time_unix_ms\":%" PRId64 ",\"origin\":", name,
                  size, hex, a->time_unix_ms);
    const char *origin = shared_log_origin(l->gate->lane->front->log);
    protojson_print_string(b, origin, strlen(origin));
    buffer_append_str(b, "}");
}

static void add_path(buffer_t *b, const record_log_answer_t *a)
{
    char hex[SHA256_HEX + 1];
    buffer_append_str(b, ",\"path\":[");
    for (size_t i = 0; i < a->path_count; i++) {
        merkle_hex(&a->path[i], hex);
        buffer_printf(b, "%s\"%s\"", i == 0 ? "" : ",", hex);
    }
    buffer_append_str(b, "]}");
}

static void leaf_hex(const record_log_answer_t *a, char out[SHA256_HEX + 1])
{
    merkle_hash_t leaf;
    memcpy(leaf.bytes, a->leaf, sizeof(leaf.bytes));
    merkle_hex(&leaf, out);
}

/* The documents `plimsoll log verify` takes: docs/attest.md. */
static void print(buffer_t *b, const lookup_t *l, const record_log_answer_t *a)
{
    char hex[SHA256_HEX + 1];
    switch (l->question.kind) {
    case RECORD_LOG_HEAD:
        add_head(b, l, "", a->size, &a->root, a);
        break;
    case RECORD_LOG_INCLUSION:
        leaf_hex(a, hex);
        add_head(b, l, "{\"head\":", a->size, &a->root, a);
        buffer_printf(b, ",\"inclusion\":{\"size\":%" PRIu64 ",\"index\":%" PRIu64 ",\"record_sha256\":\"%s\"", a->size,
                      a->first, hex);
        add_path(b, a);
        if (l->receipt.len != 0) {
            buffer_append_str(b, ",\"receipt\":");
            buffer_append(b, l->receipt.base, l->receipt.len);
        }
        buffer_append_str(b, "}");
        break;
    case RECORD_LOG_CONSISTENCY:
        add_head(b, l, "{\"head\":", a->size, &a->root, a);
        add_head(b, l, ",\"old_head\":", a->first, &a->first_root, a);
        buffer_printf(b, ",\"consistency\":{\"first_size\":%" PRIu64 ",\"second_size\":%" PRIu64, a->first, a->size);
        add_path(b, a);
        buffer_append_str(b, "}");
        break;
    }
}

/* The names the question's numbers had in the query. */
static void refuse_numbers(const lookup_t *l, const record_log_answer_t *a, refusal_t *refusal)
{
    const record_log_question_t *q = &l->question;
    bool is_consistency = q->kind == RECORD_LOG_CONSISTENCY;
    const char *size = is_consistency ? "second" : "size";
    const char *first = is_consistency ? "first" : l->query.given[FIELD_RUN] ? "the run's index" : "index";
    if (!q->is_newest && q->size > a->size)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "%s is %" PRIu64 ", and the log has %" PRIu64 " records",
                         size, q->size, a->size);
    else if (is_consistency && !q->is_newest)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT,
                         "first is %" PRIu64 ", which is more than second (%" PRIu64 ")", q->first, q->size);
    else if (!q->is_newest)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT,
                         "%s is %" PRIu64 ", and must be less than size (%" PRIu64 ")", first, q->first, q->size);
    else
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "%s is %" PRIu64 ", and the log has %" PRIu64 " records",
                         first, q->first, a->size);
}

static void refuse(const lookup_t *l, const record_log_answer_t *a, refusal_t *refusal)
{
    switch (a->status) {
    case RECORD_LOG_READING:
        failure_set(refusal, CODE_UNAVAILABLE,
                    "the log is being read after a start, %" PRIu64 " records so far; try again in a moment", a->size);
        break;
    case RECORD_LOG_BUSY:
        failure_set(refusal, CODE_UNAVAILABLE, "too many questions about the log at once; try again in a moment");
        break;
    case RECORD_LOG_TOO_LONG:
    case RECORD_LOG_NO_PROOF:
        refuse_numbers(l, a, refusal);
        return;
    case RECORD_LOG_CHANGED:
        failure_set(refusal, CODE_DATA_LOSS, "the log of records is not the one this gateway has read: %s", a->problem);
        return;
    default:
        failure_set(refusal, CODE_UNAVAILABLE, "the record store does not answer; try again in a moment");
        break;
    }
    refusal->retry_after_ms = 1000;
}

/* A run's own record says another digest than the leaf it is said to be. */
static bool is_another_leaf(const lookup_t *l, const record_log_answer_t *a)
{
    char hex[SHA256_HEX + 1];
    leaf_hex(a, hex);
    return l->record_sha256[0] != '\0' && strcmp(l->record_sha256, hex) != 0;
}

static void end(lookup_t *l, const refusal_t *refusal)
{
    h2o_req_t *req = l->req;
    l->gate->lane->runs--;
    buffer_dispose(&l->receipt);
    free(l);
    if (refusal != NULL)
        answer_refusal(req, refusal);
}

static void on_answer(void *data, const record_log_answer_t *a)
{
    lookup_t *l = data;
    refusal_t refusal;
    buffer_t body;
    if (a->status != RECORD_LOG_OK) {
        refuse(l, a, &refusal);
        end(l, &refusal);
        return;
    }
    if (is_another_leaf(l, a)) {
        log_event(LOG_ERROR, "record_log_leaf_of_another", log_str("run_id", l->query.run), log_uint("index", a->first),
                  log_str("record_sha256", l->record_sha256));
        failure_set(&refusal, CODE_DATA_LOSS, "leaf %" PRIu64 " of the log is not this run's record", a->first);
        end(l, &refusal);
        return;
    }
    buffer_init(&body, PAGE_BYTES_MAX);
    print(&body, l, a);
    h2o_req_t *req = l->req;
    end(l, NULL);
    answer_send(req, 200, "application/json", &body);
}

static void ask(lookup_t *l)
{
    lane_t *lane = l->gate->lane;
    shared_log_ask(lane->front->log, lane->loop, &l->question, on_answer, l);
}

static void add_text(buffer_t *b, const char *name, const char *value)
{
    buffer_printf(b, "\"%s\":", name);
    protojson_print_string(b, value, strlen(value));
    buffer_append_str(b, ",");
}

/* An unknown outcome has no record: the leaf is the digest of this. */
static void make_receipt(lookup_t *l, const store_run_t *run)
{
    char tag[SHA256_HEX + 1];
    merkle_hash_t digest;
    const char *caller = l->gate->intake.caller_id;
    sha256_hex(caller, strlen(caller), tag);
    tag[CALLER_TAG_HEX] = '\0';
    store_receipt_sha256_of(tag, run, digest.bytes);
    merkle_hex(&digest, l->record_sha256);
    buffer_t *b = &l->receipt;
    buffer_append_str(b, "{");
    add_text(b, "run_id", run->run_id);
    add_text(b, "caller_tag", tag);
    add_text(b, "request_sha256", run->request_sha256);
    add_text(b, "verdict", run->verdict);
    add_text(b, "backend", run->backend);
    add_text(b, "unanswered", run->unknown_code);
    buffer_printf(b, "\"started_unix_ms\":%" PRId64 ",\"ended_unix_ms\":%" PRId64 "}", run->started_unix_ms,
                  run->ended_unix_ms);
}

/* The run's own caller asks where its leaf is. */
static void on_run(void *data, store_lookup_t found, const store_run_t *runs, size_t count, const char *next_cursor)
{
    lookup_t *l = data;
    refusal_t refusal;
    (void)next_cursor;
    if (found == STORE_AWAY) {
        refuse(l, &(record_log_answer_t){.status = RECORD_LOG_AWAY}, &refusal);
        end(l, &refusal);
    } else if (found == STORE_NOT_FOUND || count != 1) {
        failure_set(&refusal, CODE_NOT_FOUND, "this caller has no run with this ID that has ended");
        end(l, &refusal);
    } else if (runs[0].log_index < 0) {
        failure_set(&refusal, CODE_NOT_FOUND,
                    "this run is not in the log: its verdict is %s, and what never ran is no "
                    "leaf",
                    runs[0].verdict);
        end(l, &refusal);
    } else {
        l->question.first = (uint64_t)runs[0].log_index;
        if (runs[0].record_sha256[0] != '\0')
            snprintf(l->record_sha256, sizeof(l->record_sha256), "%s", runs[0].record_sha256);
        else
            make_receipt(l, &runs[0]);
        ask(l);
    }
}

void log_answer(h2o_req_t *req, gate_t *gate)
{
    refusal_t refusal;
    query_t query;
    route_kind_t kind = gate->intake.route.kind;
    if (!parse_query(kind, gate->intake.query, &query, &refusal)) {
        answer_refusal(req, &refusal);
        return;
    }
    field_t size = kind == ROUTE_LOG_CONSISTENCY ? FIELD_SECOND : FIELD_SIZE;
    lookup_t *l = mem_alloc(sizeof(*l));
    *l = (lookup_t){.req = req, .gate = gate, .query = query};
    buffer_init(&l->receipt, RECEIPT_BYTES_MAX);
    l->question = (record_log_question_t){
        .kind = kind == ROUTE_LOG_HEAD        ? RECORD_LOG_HEAD
                : kind == ROUTE_LOG_INCLUSION ? RECORD_LOG_INCLUSION
                                              : RECORD_LOG_CONSISTENCY,
        .is_newest = !query.given[size],
        .size = query.number[size],
        .first = query.number[kind == ROUTE_LOG_CONSISTENCY ? FIELD_FIRST : FIELD_INDEX],
    };
    gate->lane->runs++;
    if (query.given[FIELD_RUN])
        store_run_get(gate->lane->store, gate->intake.caller_id, query.run, on_run, l);
    else
        ask(l);
}
