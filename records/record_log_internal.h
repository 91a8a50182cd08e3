/* What the log's two files share. Nothing outside records/ includes this. */
#ifndef RECORDS_RECORD_LOG_INTERNAL_H
#define RECORDS_RECORD_LOG_INTERNAL_H

#include "records/record_log.h"
#include "records/record_tree.h"

typedef struct record_question record_question_t;

struct record_log {
    uint32_t magic;
    loop_t *loop;
    redis_t *redis;
    char *key;
    record_log_state_cb on_state;
    void *data;
    record_tree_t *tree;
    char problem[RECORD_LOG_PROBLEM_MAX]; /* "" = it is what it was */
    bool closing;
    /* A look is under way: a page is awaited, or (the timer runs) being hashed. Else the timer runs for the next. */
    bool looking;
    bool is_current; /* the newest look reached the end */
    int64_t looked_unix_ms;
    loop_timer_t timer;
    uint64_t page_number, page_from;
    size_t page_count, page_done;
    record_leaf_t page[RECORD_LOG_PAGE];
    bool checking;
    uint64_t check_tile_number;
    record_tile_t check_tile;
    record_question_t *head, *tail;
    size_t question_count;
};

/* record_log.c */
record_log_t *record_log_checked(void *data);
/* The log is not what it was: from here on every question is answered with that. */
void record_log_changed(record_log_t *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* LRANGE of `most` leaves. */
void record_log_read(record_log_t *log, uint64_t from, size_t most, redis_cb cb, void *data);
/* Whether a read's answer is a list of leaves that may be used; one that cannot be the log's makes it changed. */
bool record_log_take(record_log_t *log, redis_status_t status, const redisReply *reply, const char *err, uint64_t from,
                     size_t most);
void record_log_look_now(record_log_t *log);

/* record_log_question.c: those that wait for a look. */
bool record_log_has_waiting(const record_log_t *log);
/* A look that ended with this page answers those asked before the page was. */
void record_log_go_on(record_log_t *log, uint64_t page_number);
/* Answers those that were asked at this time (monotonic ms) or earlier. */
void record_log_fail_waiting(record_log_t *log, record_log_status_t status, uint64_t asked_until_ms);
/* Answers all that is left, AWAY. */
void record_log_end_questions(record_log_t *log);

#endif
