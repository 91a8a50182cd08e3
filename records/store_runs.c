/* Reading runs back: a caller's newest, and one by its id. Keys carry the caller's tag, so another's run is simply not
 * there. */
#include "records/store_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum {
    READING_MAGIC = 0x73747264,
    ROUND_MIN_MS = 50, /* with less time left there is no further one */
    ROUNDS_MAX = 10, /* of STORE_LIST_MAX entries that a filter is held against; what lies further is the next page's */
};

typedef struct {
    char run_id[STORE_ID + 1];
    store_run_text_t text;
} entry_t;

typedef struct {
    uint32_t magic;
    store_t *store;
    store_runs_cb cb;
    void *data;
    store_prefix_t prefix;
    char *caller;
    char run_id[STORE_ID + 1]; /* of the one asked for; of a list, of the last entry seen */
    /* A list. */
    store_runs_query_t query; /* `limit` as cut; texts are below */
    char verdict[STORE_CODE_MAX + 1], backend[STORE_BACKEND_MAX + 1], kind[STORE_CODE_MAX + 1];
    bool bad_cursor, is_filtered;
    unsigned rounds;
    uint64_t due_ms; /* monotonic: when the page is to be answered, however little it holds */
    uint32_t asked;  /* entries asked for in this round, one more than are looked at */
    entry_t *entries;
    size_t count;
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
    r->caller = mem_strdup(caller);
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
    char *caller = r->caller; /* of the runs */
    free(r->entries);
    free(r);
    cb(data, found, runs, count, next_cursor);
    free(caller);
}

static const char *index_name(const reading_t *r)
{
    return r->query.receipts ? "receipts" : "runs";
}

static void log_corrupt_run(const reading_t *r, const char *run_id)
{
    char key[STORE_CLAIM_KEY_MAX];
    store_key(key, &r->prefix, r->query.receipts ? "receipts" : "run:", r->query.receipts ? "" : run_id);
    store_log_corrupt(key);
}

/* Pairs of run id and value. */
static bool is_page(const redisReply *reply, uint32_t most)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 0 || reply->elements / 2 > most)
        return false;
    for (size_t i = 0; i != reply->elements; i += 2) {
        int value = reply->element[i + 1]->type;
        if (reply->element[i]->type != REDIS_REPLY_STRING || (value != REDIS_REPLY_STRING && value != REDIS_REPLY_NIL))
            return false;
    }
    return true;
}

static bool is_answer(const redisReply *reply, uint32_t most)
{
    return (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0) || is_page(reply, most);
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

static bool is_or_any(const char *wanted, const char *has)
{
    return wanted[0] == '\0' || strcmp(wanted, has) == 0;
}

static bool is_wanted(const reading_t *r, const store_run_t *run)
{
    const store_runs_query_t *q = &r->query;
    return is_or_any(r->verdict, run->verdict) && is_or_any(r->backend, run->backend) &&
           is_or_any(r->kind, run->kind) && (q->since_unix_ms == 0 || run->started_unix_ms >= q->since_unix_ms) &&
           (q->until_unix_ms == 0 || run->started_unix_ms < q->until_unix_ms);
}

static void keep_if_wanted(reading_t *r, const redisReply *value)
{
    entry_t *entry = &r->entries[r->count];
    if (value->type == REDIS_REPLY_NIL)
        return; /* its time is over */
    memcpy(entry->run_id, r->run_id, sizeof(entry->run_id));
    if (store_run_unpack(entry->run_id, (const uint8_t *)value->str, value->len, &entry->text) != NULL) {
        log_corrupt_run(r, entry->run_id);
        return;
    }
    entry->text.run.caller = r->caller;
    if (!is_wanted(r, &entry->text.run))
        return;
    entry->text.run.record = NULL;
    entry->text.run.record_len = 0;
    ++r->count;
}

static void finish_list(reading_t *r, const char *next)
{
    char cursor[STORE_ID + 1];
    store_run_t *runs = mem_alloc_array(r->count != 0 ? r->count : 1, sizeof(*runs));
    entry_t *entries = r->entries;
    for (size_t i = 0; i != r->count; ++i)
        runs[i] = entries[i].text.run;
    if (next != NULL)
        next = strcpy(cursor, next);
    r->entries = NULL; /* the runs' texts */
    finish(r, r->bad_cursor ? STORE_NOT_FOUND : STORE_FOUND, runs, r->count, next);
    free(runs);
    free(entries);
}

static void ask_page(reading_t *r);

static uint32_t time_left(const reading_t *r)
{
    uint64_t now = clock_mono_ms();
    return r->due_ms > now ? (uint32_t)(r->due_ms - now) : 0;
}

static void take_page(reading_t *r, const redisReply *reply)
{
    size_t have = reply->elements / 2, seen = 0;
    while (seen != have && seen + 1 < r->asked && r->count != r->query.limit) {
        memcpy(r->run_id, reply->element[2 * seen]->str, STORE_ID + 1);
        keep_if_wanted(r, reply->element[2 * seen + 1]);
        ++seen;
    }
    if (seen == have)
        finish_list(r, NULL);
    else if (r->count == r->query.limit || ++r->rounds == ROUNDS_MAX || !r->is_filtered || r->store->closing ||
             time_left(r) < ROUND_MIN_MS)
        finish_list(r, r->run_id);
    else
        ask_page(r);
}

static void on_page(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    reading_t *r = reading_checked(data);
    if (status == REDIS_REPLY && is_answer(reply, r->asked)) {
        if (!is_corrupt_index(reply)) {
            take_page(r, reply);
            return;
        }
        char key[STORE_CLAIM_KEY_MAX];
        store_key(key, &r->prefix, index_name(r), "");
        store_log_corrupt(key);
    } else if (status == REDIS_REPLY || status == REDIS_REFUSED) {
        log_event(LOG_WARN, "store_runs_failed", log_str("reason", status == REDIS_REFUSED ? err : "malformed reply"));
    } else if (r->rounds != 0 && !r->store->closing) {
        finish_list(r, r->run_id); /* as far as it has come */
        return;
    }
    finish(r, STORE_AWAY, NULL, 0, NULL);
}

static void ask_page(reading_t *r)
{
    store_t *store = r->store;
    char index[STORE_CLAIM_KEY_MAX], runs[STORE_CLAIM_KEY_MAX], most[STORE_NUMBER_MAX];
    uint8_t after[STORE_ID / 2];
    bool has_cursor = r->run_id[0] != '\0';
    store_argv_t args = {.argc = 0};
    /* one more tells whether there is a next page */
    r->asked = (r->is_filtered ? STORE_LIST_MAX : r->query.limit) + 1;
    store_argv_add(&args, index, store_key(index, &r->prefix, index_name(r), ""));
    args.nkeys = args.argc;
    store_argv_add_number(&args, most, r->asked);
    if (has_cursor && !r->bad_cursor)
        store_raw_of(r->run_id, STORE_ID / 2, after);
    store_argv_add(&args, r->bad_cursor ? NO_RUN : (const char *)after,
                   r->bad_cursor ? strlen(NO_RUN)
                   : has_cursor  ? sizeof(after)
                                 : 0);
    store_argv_add(&args, runs, store_key(runs, &r->prefix, "run:", ""));
    redis_eval(store_redis_for(store, r->prefix.text + store->root.len),
               r->query.receipts ? &store->receipts : &store->runs, time_left(r), on_page, r, args.nkeys, args.argc,
               args.base, args.len);
}

/* A filter that is longer than what it is held against fits nothing, and stays so when it is cut. */
static void copy_filter(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from != NULL ? from : "");
    if (from != NULL && strlen(from) >= size)
        to[0] = ' ';
}

void store_runs_list(store_t *store, const char *caller, const store_runs_query_t *query, store_runs_cb cb, void *data)
{
    reading_t *r = reading_create(store, caller, cb, data);
    const char *cursor = query->cursor != NULL ? query->cursor : "";
    r->query = *query;
    r->query.limit = query->limit == 0 ? 1 : query->limit > STORE_LIST_MAX ? STORE_LIST_MAX : query->limit;
    copy_filter(r->verdict, sizeof(r->verdict), query->verdict);
    copy_filter(r->backend, sizeof(r->backend), query->backend);
    copy_filter(r->kind, sizeof(r->kind), query->kind);
    r->is_filtered = r->verdict[0] != '\0' || r->backend[0] != '\0' || r->kind[0] != '\0' ||
                     query->since_unix_ms != 0 || query->until_unix_ms != 0;
    r->bad_cursor = cursor[0] != '\0' && !store_is_hex(cursor, STORE_ID);
    if (!r->bad_cursor)
        strcpy(r->run_id, cursor);
    r->entries = mem_alloc_array(r->query.limit, sizeof(*r->entries));
    r->due_ms = clock_mono_ms() + STORE_DEADLINE_MS;
    ask_page(r);
}

static void on_run(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    reading_t *r = reading_checked(data);
    bool is_text = status == REDIS_REPLY && reply->type == REDIS_REPLY_STRING;
    if ((status == REDIS_REPLY && reply->type == REDIS_REPLY_NIL) || (is_text && reply->len == 0)) {
        finish(r, STORE_NOT_FOUND, NULL, 0, NULL);
        return;
    }
    if (is_text) {
        store_run_text_t text;
        char run_id[STORE_ID + 1];
        strcpy(run_id, r->run_id);
        if (reply->len <= STORE_RUN_MAX &&
            store_run_unpack(run_id, (const uint8_t *)reply->str, reply->len, &text) == NULL) {
            text.run.caller = r->caller;
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
    redis_command(store_redis_for(store, r->run_id), STORE_DEADLINE_MS, on_run, r, 4,
                  (const char *[]){"GETRANGE", key, "0", "65536"}, (const size_t[]){8, len, 1, 5});
}
