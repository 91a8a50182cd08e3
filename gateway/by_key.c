#include "gateway/by_key.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/mem.h"
#include "core/protojson.h"
#include "gateway/answer.h"
#include "gateway/metrics.h"
#include "gateway/runs_query.h"
#include "gateway/runs_render.h"
#include "gateway/stored_answer.h"
#include "records/plimsoll.pb-c.h"

enum { KEY_WAIT_MAGIC = 0x6b657977 };

static const char OUTPUT_GONE[] = "the output is not kept any more: it was too large, or its time is over";
static const char OUTPUT_DAMAGED[] = "what the record store kept of the output is damaged";

/* One request, from its first look to its answer. */
typedef struct key_wait {
    unsigned magic;
    lane_t *lane;
    gate_t *gate;
    h2o_req_t *req;
    char claim_key[STORE_CLAIM_KEY_MAX];
    uint64_t until_ms; /* monotonic; 0 = it does not wait */
    loop_timer_t timer;
    decode_holder_t *place; /* among those who wait; NULL = not waiting yet */
    bool looking;           /* a look is on its way */
    bool look_again;        /* the run settled meanwhile */
    bool gone;              /* the caller hung up */
    const char *without;    /* why there is no output */
    char run_id[33];        /* of the answer without its output, whose record is looked up */
    struct key_wait *next, *prev;
} key_wait_t;

static void look(key_wait_t *w);

static void check(const key_wait_t *w)
{
    if (w->magic != KEY_WAIT_MAGIC)
        mem_fatal("not a wait for a key");
}

static void leave(key_wait_t *w)
{
    if (w->place == NULL)
        return;
    decode_slots_give(w->lane->front->key_waiters, w->place);
    w->place = NULL;
    if (w->next != NULL)
        w->next->prev = w->prev;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        w->lane->key_waits = w->next;
}

/* The request's end: before its answer, which may free what the request holds. */
static void end(key_wait_t *w)
{
    leave(w);
    loop_timer_stop(&w->timer);
    w->lane->runs--;
    w->magic = 0;
    free(w);
}

static void refuse(key_wait_t *w, const refusal_t *refusal)
{
    h2o_req_t *req = w->req;
    end(w);
    answer_refusal(req, refusal);
}

static void send_json(key_wait_t *w, int status, buffer_t *body)
{
    h2o_req_t *req = w->req;
    end(w);
    answer_send(req, status, "application/json", body);
}

/* --- what a claim came to --- */

static void answer_live(key_wait_t *w, const char *run_id)
{
    buffer_t body;
    flight_stage_t stage = flights_stage(w->lane->front->flights, w->claim_key);
    buffer_init(&body, RUNS_RENDER_MAX);
    buffer_printf(&body, "{\"state\":\"%s\",\"run_id\":",
                  stage == FLIGHT_RESERVED     ? "reserved"
                  : stage == FLIGHT_DISPATCHED ? "dispatched"
                                               : "live");
    protojson_print_string(&body, run_id, strlen(run_id));
    buffer_append_str(&body, "}");
    answer_header_text(w->req, "Retry-After", "1");
    send_json(w, 202, &body);
}

static void answer_unknown(key_wait_t *w, const store_admitted_t *a)
{
    buffer_t body;
    buffer_init(&body, RUNS_RENDER_MAX);
    buffer_append_str(&body, "{\"state\":\"unknown\",\"run_id\":");
    protojson_print_string(&body, a->run_id, strlen(a->run_id));
    buffer_append_str(&body, ",\"unanswered\":");
    protojson_print_string(&body, a->unknown_code, strlen(a->unknown_code));
    buffer_append_str(&body, "}");
    send_json(w, 200, &body);
}

static void begin_answered(buffer_t *body, const char *run_id, const char *backend, const char *record_sha256)
{
    buffer_append_str(body, "{\"state\":\"answered\",\"run_id\":");
    protojson_print_string(body, run_id, strlen(run_id));
    buffer_append_str(body, ",\"backend\":");
    protojson_print_string(body, backend, strlen(backend));
    buffer_append_str(body, ",\"record_sha256\":");
    protojson_print_string(body, record_sha256, strlen(record_sha256));
}

/* Its output is not kept: its record is. */
static void on_record(void *data, store_lookup_t found, const store_run_t *runs, size_t count, const char *next_cursor)
{
    key_wait_t *w = data;
    refusal_t r;
    buffer_t body;
    check(w);
    (void)next_cursor;
    if (found == STORE_AWAY) {
        failure_set(&r, CODE_UNAVAILABLE, "the record store does not answer; try again in a moment");
        r.retry_after_ms = 1000;
        refuse(w, &r);
        return;
    }
    buffer_init(&body, RUNS_RENDER_MAX);
    bool is_there = found == STORE_FOUND && count == 1;
    begin_answered(&body, w->run_id, is_there ? runs[0].backend : "", is_there ? runs[0].record_sha256 : "");
    if (is_there)
        runs_render_record(&body, &runs[0]);
    buffer_printf(&body, ",\"response\":null,\"error\":\"%s; the record still stands\"}", w->without);
    answer_header_text(w->req, "Plimsoll-Run-Id", w->run_id);
    send_json(w, 200, &body);
}

static void without_output(key_wait_t *w, const store_admitted_t *a, const char *why)
{
    w->without = why;
    memcpy(w->run_id, a->run_id, sizeof(w->run_id));
    leave(w);
    store_run_get(w->lane->store, w->gate->intake.caller_id, w->run_id, on_record, w);
}

static void answer_stored(key_wait_t *w, const store_admitted_t *a)
{
    refusal_t trouble;
    buffer_t body;
    Plimsoll__V1__RunResponse *r = stored_answer_unpack(w->gate->intake.caller_id, a);
    if (r == NULL) {
        without_output(w, a, OUTPUT_DAMAGED);
        return;
    }
    buffer_init(&body, RESPONSE_MAX);
    begin_answered(&body, a->run_id, a->backend, a->record_sha256);
    bool fine = buffer_append_str(&body, ",\"record\":") && protojson_print(&r->record->base, &body) &&
                buffer_append_str(&body, ",\"response\":") && protojson_print(&r->base, &body) &&
                buffer_append_str(&body, "}");
    plimsoll__v1__run_response__free_unpacked(r, NULL);
    if (fine) {
        answer_header_text(w->req, "Plimsoll-Run-Id", a->run_id);
        answer_header_text(w->req, "Plimsoll-Replayed", "1");
        send_json(w, 200, &body);
        return;
    }
    buffer_dispose(&body);
    failure_set_internal(&trouble, "an answer is larger than 32 MiB");
    refuse(w, &trouble);
}

static void take_end(key_wait_t *w, const store_admitted_t *a)
{
    refusal_t r;
    switch (a->outcome) {
    case ADMIT_ANSWERED:
        answer_stored(w, a);
        break;
    case ADMIT_ANSWER_GONE:
        without_output(w, a, OUTPUT_GONE);
        break;
    case ADMIT_OUTCOME_UNKNOWN:
        answer_unknown(w, a);
        break;
    case ADMIT_OK:
        failure_set(&r, CODE_NOT_FOUND,
                    "this caller has no run with this key: it was never sent, it was refused, or it is long over");
        refuse(w, &r);
        break;
    default:
        failure_set(&r, CODE_UNAVAILABLE, "the record store does not answer; try again in a moment");
        r.retry_after_ms = 1000;
        refuse(w, &r);
        break;
    }
}

/* --- waiting --- */

static bool may_wait(const key_wait_t *w)
{
    return clock_mono_ms() < w->until_ms && !atomic_load_explicit(&w->lane->front->draining, memory_order_relaxed);
}

/* Takes its place among those who wait; false: there is none left, and the request is over. */
static bool enter(key_wait_t *w)
{
    refusal_t r;
    int total_full;
    if (w->place != NULL)
        return true;
    w->place = decode_slots_take(w->lane->front->key_waiters, w->gate->intake.caller_id, &total_full);
    if (w->place == NULL) {
        metric_inc(METRIC_SHED_KEY_WAITS);
        refusal_set(&r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                    total_full ? "too many requests wait for runs by key; ask without wait"
                               : "this caller has too many requests that wait for runs by key; ask without wait");
        r.retry_after_ms = 1000;
        refuse(w, &r);
        return false;
    }
    metric_inc(METRIC_KEY_WAITS);
    w->prev = NULL;
    if ((w->next = w->lane->key_waits) != NULL)
        w->next->prev = w;
    w->lane->key_waits = w;
    return true;
}

/* Until the next look of its own, however good the news from elsewhere are. */
static void sleep_on(key_wait_t *w)
{
    uint64_t now = clock_mono_ms(), left = w->until_ms > now ? w->until_ms - now : 0;
    loop_timer_start(w->lane->loop, &w->timer, left < JOIN_LOOK_MS ? left : JOIN_LOOK_MS);
}

static void give_up(key_wait_t *w)
{
    refusal_t r;
    failure_set(&r, CODE_CANCELED, "the caller went away");
    refuse(w, &r);
}

static void on_looked(void *data, const store_admitted_t *a)
{
    key_wait_t *w = data;
    check(w);
    bool is_new = w->place == NULL;
    w->looking = false;
    if (w->gone) {
        give_up(w);
    } else if (a->outcome != ADMIT_JOIN) {
        take_end(w, a);
    } else if (!may_wait(w)) {
        answer_live(w, a->run_id);
    } else if (enter(w)) {
        fault_point("key.waiting");
        if (w->look_again || is_new) /* what was settled before it stood on the list was told to nobody */
            look(w);
        else
            sleep_on(w);
    }
}

static void look(key_wait_t *w)
{
    w->look_again = w->looking;
    if (w->looking)
        return;
    w->looking = true;
    loop_timer_stop(&w->timer);
    store_claim_find(w->lane->store, w->gate->intake.caller_id, w->gate->intake.claim_id, on_looked, w);
}

static void on_look_time(loop_timer_t *timer)
{
    key_wait_t *w = timer->data;
    check(w);
    look(w);
}

static void on_hang_up(gate_t *gate, void *data)
{
    key_wait_t *w = data;
    check(w);
    (void)gate;
    w->gone = true;
    if (!w->looking && w->place != NULL)
        give_up(w);
}

void by_key_on_settled(lane_t *lane, const char *claim_key)
{
    for (key_wait_t *w = lane->key_waits, *next; w != NULL; w = next) {
        next = w->next;
        if (strcmp(w->claim_key, claim_key) == 0)
            look(w);
    }
}

void by_key_look_all(lane_t *lane)
{
    for (key_wait_t *w = lane->key_waits, *next; w != NULL; w = next) {
        next = w->next;
        look(w);
    }
}

void by_key_answer(h2o_req_t *req, gate_t *gate)
{
    lane_t *lane = gate->lane;
    refusal_t refusal;
    uint32_t wait_s;
    const char *wrong = key_query_parse(gate->intake.query, &wait_s);
    if (wrong != NULL) {
        refusal_set_http(&refusal, 0, CODE_INVALID_ARGUMENT, "%s", wrong);
        answer_refusal(req, &refusal);
        return;
    }
    key_wait_t *w = mem_alloc(sizeof(*w));
    *w = (key_wait_t){.magic = KEY_WAIT_MAGIC, .lane = lane, .gate = gate, .req = req};
    if (wait_s != 0)
        w->until_ms = clock_mono_ms() + (uint64_t)wait_s * 1000;
    store_claim_key(lane->store, gate->intake.caller_id, gate->intake.claim_id, w->claim_key);
    loop_timer_init(&w->timer, on_look_time, w);
    lane->runs++;
    if (wait_s != 0)
        gate_watch(gate, on_hang_up, w);
    look(w);
}
