/* Questions to the log: each waits for a look that began after it, reads the tiles its proof goes through again, and is
 * answered. */
#include "records/record_log_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"

enum { QUESTION_MAGIC = 0x71756573, TILES = 2 };

struct record_question {
    uint32_t magic;
    record_log_t *log;
    record_log_question_t asked;
    record_log_cb cb;
    void *data;
    uint64_t asked_ms, asked_page; /* a page after this one shows what was there when it was asked */
    bool waits;                    /* for a look */
    record_log_status_t status;    /* what a deferred answer says */
    loop_task_t task;
    record_tile_t *tiles[TILES];
    size_t tile_count;
    record_question_t *next, *prev;
};

static record_question_t *checked(void *data)
{
    record_question_t *q = data;
    if (q->magic != QUESTION_MAGIC)
        mem_fatal("record log: not a question");
    return q;
}

static void free_question(record_question_t *q)
{
    record_log_t *log = q->log;
    loop_task_cancel(log->loop, &q->task);
    if (q->prev != NULL)
        q->prev->next = q->next;
    else
        log->head = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
    else
        log->tail = q->prev;
    log->question_count--;
    for (size_t i = 0; i < q->tile_count; i++)
        free(q->tiles[i]);
    q->magic = 0;
    free(q);
}

/* The question is gone after this. */
static void answer(record_question_t *q, record_log_answer_t *a)
{
    record_log_t *log = q->log;
    record_log_cb cb = q->cb;
    void *data = q->data;
    if (a->status != RECORD_LOG_OK)
        a->size = record_tree_size(log->tree);
    a->problem = log->problem;
    a->time_unix_ms = log->looked_unix_ms;
    free_question(q);
    cb(data, a);
}

static void fail(record_question_t *q, record_log_status_t status)
{
    record_log_answer_t a = {.status = status};
    answer(q, &a);
}

/* ---- the proofs ---- */

static record_log_status_t prove(const record_question_t *q, record_view_t *view, record_log_answer_t *a)
{
    const record_log_question_t *asked = &q->asked;
    bool ok = merkle_root_at(record_view_node_at, view, asked->size, &a->root);
    a->size = asked->size;
    a->first = asked->first;
    if (asked->kind == RECORD_LOG_INCLUSION) {
        const record_leaf_t *leaf = record_view_leaf(view, asked->first);
        ok = ok && leaf != NULL &&
             merkle_prove_inclusion(record_view_node_at, view, asked->first, asked->size, a->path, &a->path_count);
        if (ok)
            memcpy(a->leaf, leaf->data, sizeof(a->leaf));
    } else if (asked->kind == RECORD_LOG_CONSISTENCY) {
        /* nothing is proved of an empty log: any other begins with it */
        ok = ok && merkle_root_at(record_view_node_at, view, asked->first, &a->first_root) &&
             (asked->first == 0 ||
              merkle_prove_consistency(record_view_node_at, view, asked->first, asked->size, a->path, &a->path_count));
    }
    if (!ok)
        mem_fatal("record log: a proof without its nodes"); /* the tiles it needs were seen to be there */
    return RECORD_LOG_OK;
}

/* The tiles whose inner nodes the proof goes through: where a tree ends in the middle of one, and where the leaf is. */
static size_t tiles_of(const record_log_question_t *asked, uint64_t out[TILES])
{
    size_t count = 0;
    if (asked->size % RECORD_TILE != 0)
        out[count++] = asked->size >> RECORD_TILE_LEVEL;
    if (asked->kind == RECORD_LOG_INCLUSION ||
        (asked->kind == RECORD_LOG_CONSISTENCY && asked->first % RECORD_TILE != 0))
        out[count++] = asked->first >> RECORD_TILE_LEVEL;
    return count;
}

static void step(record_question_t *q);

static void on_tile(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    record_question_t *q = checked(data);
    record_log_t *log = q->log;
    record_tile_t *tile = q->tiles[q->tile_count - 1];
    unsigned long long from = tile->number * RECORD_TILE;
    if (!record_log_take(log, status, reply, err, from, RECORD_TILE)) {
        fail(q, log->problem[0] != '\0' ? RECORD_LOG_CHANGED : RECORD_LOG_AWAY);
        return;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        record_leaf_t leaf;
        memcpy(&leaf, reply->element[i]->str, sizeof(leaf));
        record_tile_add(tile, &leaf);
    }
    if (!record_tree_has(log->tree, tile)) {
        record_log_changed(log, "one of the records %llu to %llu is another than was read before, or gone", from,
                           from + RECORD_TILE - 1);
        fail(q, RECORD_LOG_CHANGED);
        return;
    }
    step(q);
}

static record_view_t view_of(const record_question_t *q)
{
    record_view_t view = {.tree = q->log->tree};
    for (size_t i = 0; i < q->tile_count; i++)
        view.tiles[i] = q->tiles[i];
    return view;
}

/* Reads the next tile that is not at hand, or answers. Each is read once: the newest tile may have become an older one
 * meanwhile, the others stay. */
static void step(record_question_t *q)
{
    uint64_t wanted[TILES];
    record_view_t view = view_of(q);
    size_t count = tiles_of(&q->asked, wanted);
    for (size_t i = 0; i < count; i++) {
        if (record_view_has(&view, wanted[i]))
            continue;
        record_tile_t *tile = q->tiles[q->tile_count++] = mem_alloc(sizeof(*tile));
        record_tile_begin(tile, wanted[i]);
        record_log_read(q->log, wanted[i] * RECORD_TILE, RECORD_TILE, on_tile, q);
        return;
    }
    record_log_answer_t a = {.status = RECORD_LOG_OK};
    prove(q, &view, &a);
    answer(q, &a);
}

static void go_on(record_question_t *q)
{
    record_log_question_t *asked = &q->asked;
    uint64_t size = record_tree_size(q->log->tree);
    q->waits = false;
    if (asked->is_newest)
        asked->size = size;
    if (asked->size > size || (asked->kind != RECORD_LOG_HEAD && asked->first > size))
        fail(q, RECORD_LOG_TOO_LONG);
    else if ((asked->kind == RECORD_LOG_INCLUSION && asked->first >= asked->size) ||
             (asked->kind == RECORD_LOG_CONSISTENCY && asked->first > asked->size))
        fail(q, RECORD_LOG_NO_PROOF);
    else
        step(q);
}

/* ---- those that wait ---- */

bool record_log_has_waiting(const record_log_t *log)
{
    for (const record_question_t *q = log->head; q != NULL; q = q->next)
        if (q->waits)
            return true;
    return false;
}

/* A callback may ask again, or make the log a changed one, which answers others: begins anew after each. */
static record_question_t *next_waiting(record_log_t *log, uint64_t page_number, uint64_t asked_until_ms)
{
    for (record_question_t *q = log->head; q != NULL; q = q->next)
        if (q->waits && q->asked_page < page_number && q->asked_ms <= asked_until_ms)
            return q;
    return NULL;
}

void record_log_go_on(record_log_t *log, uint64_t page_number)
{
    record_question_t *q;
    while (log->problem[0] == '\0' && (q = next_waiting(log, page_number, UINT64_MAX)) != NULL)
        go_on(q);
}

void record_log_fail_waiting(record_log_t *log, record_log_status_t status, uint64_t asked_until_ms)
{
    record_question_t *q;
    while ((q = next_waiting(log, UINT64_MAX, asked_until_ms)) != NULL)
        fail(q, status);
}

void record_log_end_questions(record_log_t *log)
{
    while (log->head != NULL)
        fail(log->head, RECORD_LOG_AWAY);
}

static void on_task(loop_task_t *task)
{
    record_question_t *q = checked(task->data);
    fail(q, q->status);
}

void record_log_ask(record_log_t *log, const record_log_question_t *question, record_log_cb cb, void *data)
{
    record_log_checked(log);
    record_question_t *q = mem_alloc(sizeof(*q));
    *q = (record_question_t){.magic = QUESTION_MAGIC,
                             .log = log,
                             .asked = *question,
                             .cb = cb,
                             .data = data,
                             .asked_ms = clock_mono_ms(),
                             .asked_page = log->page_number,
                             .prev = log->tail};
    loop_task_init(&q->task, on_task, q);
    if (log->tail != NULL)
        log->tail->next = q;
    else
        log->head = q;
    log->tail = q;
    if (log->problem[0] != '\0' || log->question_count >= RECORD_LOG_QUESTIONS_MAX) {
        q->status = log->problem[0] != '\0' ? RECORD_LOG_CHANGED : RECORD_LOG_BUSY;
        loop_defer(log->loop, &q->task);
    } else {
        q->waits = true;
        record_log_look_now(log);
    }
    log->question_count++;
}
