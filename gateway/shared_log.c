#include "gateway/shared_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "gateway/metrics.h"
#include "records/store.h"

enum { NAME_MAX_BYTES = 96 }; /* an installation's name has at most 32 */

struct shared_log {
    loop_t *loop;
    record_log_t *records;
    char origin[NAME_MAX_BYTES];
};

typedef struct {
    shared_log_t *log;
    loop_t *asker;
    record_log_question_t question;
    record_log_answer_t answer;
    char problem[RECORD_LOG_PROBLEM_MAX];
    record_log_cb cb;
    void *data;
} ask_t;

static void on_state(void *data, uint64_t size, bool is_current, bool is_changed)
{
    (void)data;
    metric_set(METRIC_LOG_RECORDS, (int64_t)size);
    metric_set(METRIC_LOG_CURRENT, is_current);
    metric_set(METRIC_LOG_CHANGED, is_changed);
}

shared_log_t *shared_log_create(loop_t *loop, const redis_address_t *address, const char *installation)
{
    char key[STORE_CLAIM_KEY_MAX + sizeof("log")];
    shared_log_t *log = mem_alloc(sizeof(*log));
    log->loop = loop;
    /* docs/redis-keys.md */
    store_key_prefix(installation, key);
    strcat(key, "log");
    snprintf(log->origin, sizeof(log->origin), "plimsoll/%.32s", installation);
    log->records = record_log_create(loop, address, key, on_state, log);
    return log;
}

void shared_log_destroy(shared_log_t *log)
{
    if (log == NULL)
        return;
    record_log_destroy(log->records);
    free(log);
}

const char *shared_log_origin(const shared_log_t *log)
{
    return log->origin;
}

/* --- on the asker's loop --- */

static void deliver(void *arg)
{
    ask_t *ask = arg;
    ask->cb(ask->data, &ask->answer);
    free(ask);
}

/* --- on the log's --- */

static void on_answer(void *data, const record_log_answer_t *answer)
{
    ask_t *ask = data;
    ask->answer = *answer;
    snprintf(ask->problem, sizeof(ask->problem), "%s", answer->problem);
    ask->answer.problem = ask->problem;
    loop_post(ask->asker, deliver, ask);
}

static void put(void *arg)
{
    ask_t *ask = arg;
    record_log_ask(ask->log->records, &ask->question, on_answer, ask);
}

void shared_log_ask(shared_log_t *log, loop_t *asker, const record_log_question_t *question, record_log_cb cb,
                    void *data)
{
    ask_t *ask = mem_alloc(sizeof(*ask));
    *ask = (ask_t){.log = log, .asker = asker, .question = *question, .cb = cb, .data = data};
    loop_post(log->loop, put, ask);
}
