/* Reading runs back: a caller's newest, and one by its id. Keys carry the caller's tag, so another's run is simply not
 * there. */
#include "records/store_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"

enum { READING_MAGIC = 0x73747264 };

typedef struct {
    uint32_t magic;
    store_t *store;
    store_runs_cb cb;
    void *data;
    store_prefix_t prefix;
    uint32_t limit;
    bool bad_cursor;
    char run_id[STORE_ID + 1]; /* of the one asked for */
} reading_t;

/* No key ends like this. */
static const char NO_RUN[] = "-";

static reading_t *reading_create(store_t *store, const char *caller, store_runs_cb cb, void *data)
{
    reading_t *r = mem_alloc(sizeof(*r));
    r->magic = READING_MAGIC;
    r->store = store;
    r->cb = cb;
    r->data = data;
    r->prefix = store_prefix(store, caller);
    return r;
}

static reading_t *reading_checked(void *data)
{
    reading_t *r = data;
    if (r->magic != READING_MAGIC)
        mem_fatal("store: not a reading");
    return r;
}

static void finish(reading_t *r, store_lookup_t found, const store_run_t *runs, size_t count, const char *next_cursor)
{
    store_runs_cb cb = r->cb;
    void *data = r->data;
    r->magic = 0;
    free(r);
    cb(data, found, runs, count, next_cursor);
}

static void log_corrupt_run(const reading_t *r, const char *run_id)
{
    char key[STORE_CLAIM_KEY_MAX];
    store_key(key, &r->prefix, "run:", run_id);
    store_log_corrupt(key);
}

/* Pairs of run id and value. */
static bool is_page(const redisReply *reply, uint32_t limit)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 0 || reply->elements / 2 > limit + 1)
        return false;
    for (size_t i = 0; i != reply->elements; i += 2) {
        int value = reply->element[i + 1]->type;
        if (reply->element[i]->type != REDIS_REPLY_STRING || (value != REDIS_REPLY_STRING && value != REDIS_REPLY_NIL))
            return false;
    }
    return true;
}

static bool is_answer(const redisReply *reply, uint32_t limit)
{
    return (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0) || is_page(reply, limit);
}

/* The script says 0 for an index of another type; an entry that is no run id is none of ours either. */
static bool is_corrupt_index(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return true;
    for (size_t i = 0; i != reply->elements; i += 2) {
        if (!store_is_hexn(reply->element[i]->str, reply->element[i]->len, STORE_ID))
            return true;
    }
    return false;
}

static void finish_page(reading_t *r, const redisReply *reply)
{
    size_t have = reply->elements / 2, shown = have < r->limit ? have : r->limit, count = 0;
    store_run_text_t *texts = mem_alloc_array(shown != 0 ? shown : 1, sizeof(*texts));
    store_run_t *runs = mem_alloc_array(shown != 0 ? shown : 1, sizeof(*runs));
    for (size_t i = 0; i != shown; ++i) {
        const redisReply *id = reply->element[2 * i], *value = reply->element[2 * i + 1];
        if (value->type == REDIS_REPLY_NIL)
            continue; /* its time is over */
        if (store_run_unpack(id->str, (const uint8_t *)value->str, value->len, &texts[count]) != NULL) {
            log_corrupt_run(r, id->str);
            continue;
        }
        runs[count] = texts[count].run;
        runs[count].record = NULL;
        runs[count++].record_len = 0;
    }
    const char *next = have > shown ? reply->element[2 * (shown - 1)]->str : NULL;
    finish(r, r->bad_cursor ? STORE_NOT_FOUND : STORE_FOUND, runs, count, next);
    free(runs);
    free(texts);
}

static void on_page(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    reading_t *r = reading_checked(data);
    if (status == REDIS_REPLY && is_answer(reply, r->limit)) {
        if (!is_corrupt_index(reply)) {
            finish_page(r, reply);
            return;
        }
        char key[STORE_CLAIM_KEY_MAX];
        store_key(key, &r->prefix, "runs", "");
        store_log_corrupt(key);
    } else if (status == REDIS_REPLY || status == REDIS_REFUSED) {
        log_event(LOG_WARN, "store_runs_failed", log_str("reason", status == REDIS_REFUSED ? err : "malformed reply"));
    }
    finish(r, STORE_AWAY, NULL, 0, NULL);
}

void store_runs_list(store_t *store, const char *caller, const store_runs_query_t *query, store_runs_cb cb, void *data)
{
    uint32_t limit = query->limit;
    const char *cursor = query->cursor;
    reading_t *r = reading_create(store, caller, cb, data);
    r->limit = limit == 0 ? 1 : limit > STORE_LIST_MAX ? STORE_LIST_MAX : limit;
    if (cursor == NULL)
        cursor = "";
    r->bad_cursor = cursor[0] != '\0' && !store_is_hex(cursor, STORE_ID);
    if (r->bad_cursor)
        cursor = NO_RUN;
    char index[STORE_CLAIM_KEY_MAX], runs[STORE_CLAIM_KEY_MAX], most[16];
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, index, store_key(index, &r->prefix, "runs", ""));
    args.nkeys = args.argc;
    store_argv_add(&args, most,
                   (size_t)sprintf(most, "%u", r->limit + 1)); /* one more tells whether there is a next page */
    store_argv_add(&args, cursor, strlen(cursor));
    store_argv_add(&args, runs, store_key(runs, &r->prefix, "run:", ""));
    redis_eval(store_redis_for(store, r->prefix.text + store->root.len), &store->runs, STORE_DEADLINE_MS, on_page, r,
               args.nkeys, args.argc, args.base, args.len);
}

static void on_run(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    reading_t *r = reading_checked(data);
    if (status == REDIS_REPLY && reply->type == REDIS_REPLY_NIL) {
        finish(r, STORE_NOT_FOUND, NULL, 0, NULL);
        return;
    }
    if (status == REDIS_REPLY && reply->type == REDIS_REPLY_STRING) {
        store_run_text_t text;
        char run_id[STORE_ID + 1];
        strcpy(run_id, r->run_id);
        if (store_run_unpack(run_id, (const uint8_t *)reply->str, reply->len, &text) == NULL) {
            finish(r, STORE_FOUND, &text.run, 1, NULL);
            return;
        }
        log_corrupt_run(r, run_id);
    } else if (status == REDIS_REPLY || status == REDIS_REFUSED) {
        log_event(LOG_WARN, "store_run_failed", log_str("reason", status == REDIS_REFUSED ? err : "malformed reply"));
    }
    finish(r, STORE_AWAY, NULL, 0, NULL);
}

void store_run_get(store_t *store, const char *caller, const char *run_id, store_runs_cb cb, void *data)
{
    reading_t *r = reading_create(store, caller, cb, data);
    strcpy(r->run_id, store_is_hex(run_id, STORE_ID) ? run_id : NO_RUN);
    char key[STORE_CLAIM_KEY_MAX];
    size_t len = store_key(key, &r->prefix, "run:", r->run_id);
    redis_command(store_redis_for(store, r->run_id), STORE_DEADLINE_MS, on_run, r, 2, (const char *[]){"GET", key},
                  (const size_t[]){3, len});
}
