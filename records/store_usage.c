/* What /v1/usage shows of one scope, and what an operator is shown of every caller. */
#include "records/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"

enum {
    ASKING_MAGIC = 0x73747573,
    NUMBERS = 14, /* of one scope, after its day */
    ROW = 10,     /* of one caller */
    DAY = 8,
    CALLER_MAX = 256,
};

typedef struct {
    uint32_t magic;
    store_usage_cb cb;
    void *data;
    char *caller; /* NULL: the whole gateway */
} asking_t;

static asking_t *asking_create(store_usage_cb cb, void *data)
{
    asking_t *a = mem_alloc(sizeof(*a));
    a->magic = ASKING_MAGIC;
    a->cb = cb;
    a->data = data;
    return a;
}

static asking_t *asking_checked(void *data)
{
    asking_t *a = data;
    if (a->magic != ASKING_MAGIC)
        mem_fatal("store: not a question of usage");
    return a;
}

static void finish(asking_t *a, store_lookup_t found, const store_usage_t *usage, size_t count, const char *next_cursor)
{
    a->magic = 0;
    a->cb(a->data, found, usage, count, next_cursor);
    free(a->caller);
    free(a);
}

/* What is wrong goes to the log. */
static void finish_away(asking_t *a, redis_status_t status, const redisReply *reply, const char *err)
{
    if (status == REDIS_REPLY && reply->type == REDIS_REPLY_STRING)
        log_event(LOG_ERROR, "store_key_corrupt", log_strn("key", reply->str, reply->len));
    else if (status == REDIS_REPLY || status == REDIS_REFUSED)
        log_event(LOG_WARN, "store_usage_failed", log_str("reason", status == REDIS_REFUSED ? err : "malformed reply"));
    finish(a, STORE_AWAY, NULL, 0, NULL);
}

static bool is_day(const char *base, size_t len)
{
    if (len != DAY)
        return false;
    for (size_t i = 0; i != DAY; ++i) {
        if (base[i] < '0' || base[i] > '9')
            return false;
    }
    return true;
}

static bool is_text(const redisReply *r, size_t most)
{
    return r->type == REDIS_REPLY_STRING && r->len <= most && memchr(r->str, '\0', r->len) == NULL;
}

static bool are_numbers(redisReply **element, size_t count)
{
    for (size_t i = 0; i != count; ++i) {
        if (element[i]->type != REDIS_REPLY_INTEGER || element[i]->integer < 0)
            return false;
    }
    return true;
}

static uint32_t u32_of(const redisReply *r)
{
    return r->integer < UINT32_MAX ? (uint32_t)r->integer : UINT32_MAX;
}

/* runs, spent (3), unpriced ms, held (3), slots in use */
static void read_amounts(redisReply **element, store_usage_t *out)
{
    out->runs = (uint64_t)element[0]->integer;
    out->spent =
        (store_amounts_t){(uint64_t)element[1]->integer, (uint64_t)element[2]->integer, (uint64_t)element[3]->integer};
    out->unpriced_ms = (uint64_t)element[4]->integer;
    out->held =
        (store_amounts_t){(uint64_t)element[5]->integer, (uint64_t)element[6]->integer, (uint64_t)element[7]->integer};
    out->slots_in_use = u32_of(element[8]);
}

static void on_usage(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    asking_t *a = asking_checked(data);
    if (status != REDIS_REPLY || reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 + NUMBERS ||
        !is_text(reply->element[0], DAY) || !is_day(reply->element[0]->str, reply->element[0]->len) ||
        !are_numbers(reply->element + 1, NUMBERS)) {
        finish_away(a, status, reply, err);
        return;
    }
    redisReply **numbers = reply->element + 1;
    store_usage_t usage = {.caller = a->caller};
    memcpy(usage.day, reply->element[0]->str, DAY);
    read_amounts(numbers, &usage);
    usage.rate_remaining = u32_of(numbers[9]);
    usage.rate_reset_ms = store_ceil_ms(numbers[10]->integer);
    usage.window_runs = (uint64_t)numbers[11]->integer;
    usage.window_reset_ms = u32_of(numbers[12]);
    usage.day_reset_ms = u32_of(numbers[13]);
    finish(a, STORE_FOUND, &usage, 1, NULL);
}

void store_usage(store_t *store, const char *caller, const store_caps_t *caps, uint32_t window_s, store_usage_cb cb,
                 void *data)
{
    asking_t *a = asking_create(cb, data);
    store_prefix_t prefix = store_prefix(store, caller);
    store_pace_t pace = store_pace(caps->rate_per_min, caps->burst);
    char slots[STORE_CLAIM_KEY_MAX], numbers[3][STORE_NUMBER_MAX];
    store_argv_t args = {.argc = 0};
    if (caller != NULL)
        a->caller = mem_strdup(caller);
    store_argv_add(&args, slots, store_key(slots, &prefix, "slots", ""));
    args.nkeys = args.argc;
    store_argv_add(&args, store->root.text, store->root.len);
    store_argv_add(&args, prefix.text + store->root.len, prefix.len - store->root.len);
    store_argv_add_number(&args, numbers[0], (uint64_t)pace.interval_us);
    store_argv_add_number(&args, numbers[1], (uint64_t)pace.interval_us * pace.burst);
    store_argv_add_number(&args, numbers[2], window_s);
    redis_eval(store_redis_for(store, caller != NULL ? prefix.text + store->root.len : "0"), &store->usage,
               STORE_DEADLINE_MS, on_usage, a, args.nkeys, args.argc, args.base, args.len);
}

static bool is_table(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 || (reply->elements - 2) % ROW != 0 ||
        (reply->elements - 2) / ROW > STORE_LIST_MAX + 1 || !is_text(reply->element[0], DAY) ||
        !is_day(reply->element[0]->str, reply->element[0]->len) || !are_numbers(reply->element + 1, 1))
        return false;
    for (size_t i = 2; i != reply->elements; i += ROW) {
        if (!is_text(reply->element[i], CALLER_MAX) || !are_numbers(reply->element + i + 1, ROW - 1))
            return false;
    }
    return true;
}

static void on_table(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    asking_t *a = asking_checked(data);
    if (status != REDIS_REPLY || !is_table(reply)) {
        finish_away(a, status, reply, err);
        return;
    }
    size_t have = (reply->elements - 2) / ROW, shown = have < STORE_LIST_MAX ? have : STORE_LIST_MAX;
    store_usage_t *rows = mem_alloc_array(shown != 0 ? shown : 1, sizeof(*rows));
    for (size_t i = 0; i != shown; ++i) {
        redisReply **element = reply->element + 2 + i * ROW;
        rows[i].caller = element[0]->str;
        memcpy(rows[i].day, reply->element[0]->str, DAY);
        read_amounts(element + 1, &rows[i]);
        rows[i].day_reset_ms = u32_of(reply->element[1]);
    }
    finish(a, STORE_FOUND, rows, shown, have > shown ? rows[shown - 1].caller : NULL);
    free(rows);
}

static void on_none(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    (void)status, (void)reply, (void)err;
    finish(asking_checked(data), STORE_NOT_FOUND, NULL, 0, NULL);
}

void store_usage_all(store_t *store, const char *day, const char *cursor, store_usage_cb cb, void *data)
{
    asking_t *a = asking_create(cb, data);
    char callers[STORE_CLAIM_KEY_MAX], most[STORE_NUMBER_MAX], from[1 + CALLER_MAX + 2] = "-";
    size_t from_len = 1, cursor_len = cursor != NULL ? strnlen(cursor, CALLER_MAX + 1) : 0;
    if ((day != NULL && !is_day(day, strnlen(day, DAY + 1))) || cursor_len > CALLER_MAX) {
        redis_command(store_redis_for(store, "0"), STORE_DEADLINE_MS, on_none, a, 1, (const char *[]){"PING"}, NULL);
        return;
    }
    if (cursor_len != 0) {
        /* an entry is the caller, NUL and its tag: past all that begin with this one's */
        from[0] = '(';
        memcpy(from + 1, cursor, cursor_len);
        from[1 + cursor_len] = '\1';
        from_len = 1 + cursor_len + 1;
    }
    store_argv_t args = {.argc = 0};
    store_argv_add(&args, callers, store_key(callers, &store->root, "callers", ""));
    args.nkeys = args.argc;
    store_argv_add(&args, store->root.text, store->root.len);
    store_argv_add(&args, day != NULL ? day : "", day != NULL ? DAY : 0);
    store_argv_add(&args, from, from_len);
    store_argv_add_number(&args, most, STORE_LIST_MAX + 1);
    redis_eval(store_redis_for(store, "0"), &store->usage_all, STORE_DEADLINE_MS, on_table, a, args.nkeys, args.argc,
               args.base, args.len);
}
