/* Following the log; the questions are answered in record_log_question.c. */
#include "records/record_log_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

enum { RECORD_LOG_MAGIC = 0x6c6f6721 };

static void look(record_log_t *log);

record_log_t *record_log_checked(void *data)
{
    record_log_t *log = data;
    if (log->magic != RECORD_LOG_MAGIC)
        mem_fatal("record log: not a log");
    return log;
}

static void tell(record_log_t *log)
{
    if (log->on_state != NULL && !log->closing)
        log->on_state(log->data, record_tree_size(log->tree), log->is_current, log->problem[0] != '\0');
}

void record_log_changed(record_log_t *log, const char *fmt, ...)
{
    va_list args;
    if (log->problem[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(log->problem, sizeof(log->problem), fmt, args);
    va_end(args);
    log_event(LOG_ERROR, "record_log_changed", log_str("key", log->key), log_str("problem", log->problem),
              log_uint("records_read", record_tree_size(log->tree)));
    log->is_current = false;
    loop_timer_stop(&log->timer);
    tell(log);
    record_log_fail_waiting(log, RECORD_LOG_CHANGED, UINT64_MAX);
}

/* ---- reading ---- */

/* Why the answer is no list of leaves; NULL when it is one. */
static const char *problem_of(redis_status_t status, const redisReply *reply, const char *err)
{
    if (status == REDIS_REFUSED)
        return strncmp(err, "WRONGTYPE", strlen("WRONGTYPE")) == 0 ? "the key holds no list" : NULL;
    if (status != REDIS_REPLY)
        return NULL;
    if (reply->type != REDIS_REPLY_ARRAY)
        return "the answer is no list";
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != REDIS_REPLY_STRING || reply->element[i]->len != SHA256_BYTES)
            return "a record's digest has not 32 bytes";
    return NULL;
}

bool record_log_take(record_log_t *log, redis_status_t status, const redisReply *reply, const char *err, uint64_t from,
                     size_t most)
{
    const char *problem = problem_of(status, reply, err);
    if (problem == NULL && status == REDIS_REPLY && reply->elements > most)
        problem = "the answer is longer than what was asked for";
    if (problem != NULL)
        record_log_changed(log, "from record %llu on: %s", (unsigned long long)from, problem);
    return problem == NULL && status == REDIS_REPLY && !log->closing && log->problem[0] == '\0';
}

void record_log_read(record_log_t *log, uint64_t from, size_t most, redis_cb cb, void *data)
{
    char first[24], last[24];
    const char *argv[] = {"LRANGE", log->key, first, last};
    snprintf(first, sizeof(first), "%llu", (unsigned long long)from);
    snprintf(last, sizeof(last), "%llu", (unsigned long long)(from + most - 1));
    redis_command(log->redis, RECORD_LOG_DEADLINE_MS, cb, data, 4, argv, NULL);
}

/* ---- a look: pages from the newest tile's first leaf to the log's end ---- */

static void wait_for_next_look(record_log_t *log)
{
    log->looking = false;
    loop_timer_start(log->loop, &log->timer, RECORD_LOG_LOOK_MS);
}

static void look_failed(record_log_t *log)
{
    log->is_current = false;
    wait_for_next_look(log);
    tell(log);
    record_log_fail_waiting(log, RECORD_LOG_AWAY, UINT64_MAX);
}

static void page_ends(record_log_t *log)
{
    bool is_end = log->page_count < RECORD_LOG_PAGE;
    uint64_t now = clock_mono_ms(), overdue = now > RECORD_LOG_WAIT_MS ? now - RECORD_LOG_WAIT_MS : 0;
    if (!is_end) {
        log->is_current = false;
        tell(log);
        record_log_fail_waiting(log, RECORD_LOG_READING, overdue);
        look(log);
        return;
    }
    log->is_current = true;
    log->looked_unix_ms = clock_wall_ms();
    tell(log);
    wait_for_next_look(log);
    record_log_go_on(log, log->page_number);
    if (record_log_has_waiting(log) && !log->looking)
        look(log);
}

/* Hashes one slice; the rest after the loop has had its turn. */
static void hash_slice(record_log_t *log)
{
    size_t until = log->page_done + RECORD_LOG_SLICE;
    if (until > log->page_count)
        until = log->page_count;
    for (; log->page_done < until; log->page_done++)
        if (!record_tree_append(log->tree, &log->page[log->page_done])) {
            record_log_changed(log, "it is longer than a log can be");
            return;
        }
    if (log->page_done < log->page_count)
        loop_timer_start(log->loop, &log->timer, 0);
    else
        page_ends(log);
}

/* The leaves of the page that have been read before are still the same ones. */
static bool overlap_holds(record_log_t *log)
{
    const record_tile_t *newest = record_tree_newest(log->tree);
    size_t overlap = newest->count;
    if (log->page_count < overlap) {
        record_log_changed(log, "it has at most %llu records and had %llu",
                           (unsigned long long)(log->page_from + log->page_count),
                           (unsigned long long)record_tree_size(log->tree));
        return false;
    }
    for (size_t i = 0; i < overlap; i++)
        if (memcmp(&log->page[i], &newest->leaves[i], sizeof(log->page[i])) != 0) {
            record_log_changed(log, "record %llu is another than was read before",
                               (unsigned long long)(log->page_from + i));
            return false;
        }
    log->page_done = overlap;
    return true;
}

static void on_page(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    record_log_t *log = record_log_checked(data);
    if (!record_log_take(log, status, reply, err, log->page_from, RECORD_LOG_PAGE)) {
        if (!log->closing && log->problem[0] == '\0')
            look_failed(log);
        return;
    }
    log->page_count = reply->elements;
    for (size_t i = 0; i < reply->elements; i++)
        memcpy(&log->page[i], reply->element[i]->str, sizeof(log->page[i]));
    if (overlap_holds(log))
        hash_slice(log);
}

static void look(record_log_t *log)
{
    log->looking = true;
    loop_timer_stop(&log->timer);
    log->page_number++;
    log->page_from = record_tree_newest(log->tree)->number * RECORD_TILE;
    log->page_count = log->page_done = 0;
    record_log_read(log, log->page_from, RECORD_LOG_PAGE, on_page, log);
}

void record_log_look_now(record_log_t *log)
{
    if (!log->looking)
        look(log);
}

/* ---- by turns: what was read long ago ---- */

static void on_check(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    record_log_t *log = record_log_checked(data);
    record_tile_t *tile = &log->check_tile;
    uint64_t number = log->check_tile_number;
    log->checking = false;
    if (!record_log_take(log, status, reply, err, number * RECORD_TILE, RECORD_LOG_CHECK))
        return;
    for (size_t i = 0; i <= reply->elements; i++) {
        if (i != 0 && i % RECORD_TILE == 0) {
            if (!record_tree_has(log->tree, tile)) {
                record_log_changed(log, "one of the records %llu to %llu is another than was read before",
                                   (unsigned long long)(number * RECORD_TILE),
                                   (unsigned long long)(number * RECORD_TILE + RECORD_TILE - 1));
                return;
            }
            number++;
        }
        if (i == reply->elements || number >= record_tree_newest(log->tree)->number)
            break;
        if (i % RECORD_TILE == 0)
            record_tile_begin(tile, number);
        record_leaf_t leaf;
        memcpy(&leaf, reply->element[i]->str, sizeof(leaf));
        record_tile_add(tile, &leaf);
    }
    /* a shorter log is the next look's to notice */
    log->check_tile_number = number;
}

static void check_some(record_log_t *log)
{
    if (log->checking)
        return;
    if (log->check_tile_number >= record_tree_newest(log->tree)->number)
        log->check_tile_number = 0; /* from the beginning again */
    if (record_tree_newest(log->tree)->number == 0)
        return; /* one tile, which each look reads */
    log->checking = true;
    record_log_read(log, log->check_tile_number * RECORD_TILE, RECORD_LOG_CHECK, on_check, log);
}

static void on_timer(loop_timer_t *timer)
{
    record_log_t *log = record_log_checked(timer->data);
    if (log->looking) {
        hash_slice(log);
        return;
    }
    if (log->is_current)
        check_some(log);
    look(log);
}

/* ---- the log itself ---- */

static void on_state(void *data, bool up, const char *reason)
{
    record_log_t *log = record_log_checked(data);
    (void)reason; /* the store tells the same of its own connections */
    if (up && !log->closing && log->problem[0] == '\0')
        record_log_look_now(log);
}

record_log_t *record_log_create(loop_t *loop, const redis_address_t *address, const char *key,
                                record_log_state_cb on_change, void *data)
{
    record_log_t *log = mem_alloc(sizeof(*log));
    redis_address_t node;
    log->magic = RECORD_LOG_MAGIC;
    log->loop = loop;
    log->key = mem_strdup(key);
    log->on_state = on_change;
    log->data = data;
    log->tree = record_tree_create();
    loop_timer_init(&log->timer, on_timer, log);
    redis_address_copy(&node, address);
    redis_address_home(&node, key);
    log->redis = redis_create(loop, &node, on_state, log);
    redis_address_dispose(&node);
    wait_for_next_look(log);
    return log;
}

void record_log_destroy(record_log_t *log)
{
    if (log == NULL)
        return;
    record_log_checked(log);
    log->closing = true;
    loop_timer_stop(&log->timer);
    redis_destroy(log->redis);
    record_log_end_questions(log);
    record_tree_destroy(log->tree);
    log->magic = 0;
    free(log->key);
    free(log);
}
