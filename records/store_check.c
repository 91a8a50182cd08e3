#include "records/store_check.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"

enum { CHECK_MAGIC = 0x63686b73 };

/* Asked one by one: servers before 7 take one a question. */
static const char *const SETTINGS[] = {"appendonly", "appendfsync", "maxmemory-policy", "min-replicas-to-write",
                                       "save"};
enum { SETTINGS_COUNT = sizeof(SETTINGS) / sizeof(SETTINGS[0]) };

struct store_check {
    unsigned magic;
    loop_t *loop;
    redis_t *redis;
    void (*on_count)(void *data, unsigned warnings);
    void *data;
    loop_timer_t timer;
    unsigned waiting; /* answers owed of the look under way; 0 = none is */
    bool is_partial;  /* the connection went meanwhile: nothing is judged by half */
    bool closing;
    store_seen_values_t seen;
    char run_id[STORE_CHECK_VALUE_MAX + 1]; /* of the server the warnings were about */
    bool warned[WARN_COUNT];
};

static store_check_t *checked(void *data)
{
    store_check_t *check = data;
    if (check == NULL || check->magic != CHECK_MAGIC)
        mem_fatal("store_check: not a check");
    return check;
}

static void say(const store_judgment_t *j)
{
    log_event(LOG_WARN, "redis_setting", log_str("setting", j->setting), log_str("value", j->value),
              log_str("wanted", j->wanted), log_str("why", j->why));
}

static void judge(store_check_t *check)
{
    unsigned count = 0;
    if (strcmp(check->run_id, check->seen.values[SEEN_RUN_ID]) != 0) {
        memset(check->warned, 0, sizeof(check->warned)); /* another server */
        memcpy(check->run_id, check->seen.values[SEEN_RUN_ID], sizeof(check->run_id));
    }
    for (unsigned i = 0; i < WARN_COUNT; i++) {
        store_judgment_t j = store_check_judge(&check->seen, (store_warning_t)i);
        bool is_wrong = j.why != NULL;
        if (is_wrong && !check->warned[i])
            say(&j);
        check->warned[i] = is_wrong;
        count += is_wrong;
    }
    if (check->on_count != NULL)
        check->on_count(check->data, count);
}

static void answered(store_check_t *check, redis_status_t status)
{
    check->is_partial = check->is_partial || status == REDIS_UNKNOWN || status == REDIS_NOT_SENT;
    if (--check->waiting == 0 && !check->is_partial && !check->closing)
        judge(check);
}

/* A server that is about to be left, or starts, denies nothing. */
static bool is_denial(redis_status_t status, const char *err)
{
    return status == REDIS_REFUSED && (strncmp(err, "NOPERM", 6) == 0 || strncmp(err, "ERR", 3) == 0);
}

static void on_info(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_check_t *check = checked(data);
    if (is_denial(status, err))
        check->seen.info_denied = true;
    else if (status == REDIS_REPLY && reply->type == REDIS_REPLY_STRING)
        store_check_take_info(&check->seen, reply->str, reply->len);
    answered(check, status);
}

static bool is_setting(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
           reply->element[1]->type == REDIS_REPLY_STRING;
}

static void on_config(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    store_check_t *check = checked(data);
    if (is_denial(status, err))
        check->seen.config_denied = true;
    else if (status == REDIS_REPLY && is_setting(reply))
        store_check_take_config(&check->seen, reply->element[0]->str, reply->element[1]->str);
    answered(check, status);
}

static void look(store_check_t *check)
{
    const char *info[] = {"INFO"};
    if (check->waiting != 0)
        return; /* the one under way ends within its deadline, and the timer comes again */
    check->seen = (store_seen_values_t){0};
    check->is_partial = false;
    check->waiting = 1 + SETTINGS_COUNT;
    redis_command(check->redis, STORE_CHECK_DEADLINE_MS, on_info, check, 1, info, NULL);
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const char *config[] = {"CONFIG", "GET", SETTINGS[i]};
        redis_command(check->redis, STORE_CHECK_DEADLINE_MS, on_config, check, 3, config, NULL);
    }
}

static void on_state(void *data, bool up, const char *reason)
{
    store_check_t *check = checked(data);
    (void)reason; /* the store tells of its own connections */
    if (up)
        loop_timer_start(check->loop, &check->timer, 0);
}

static void on_timer(loop_timer_t *timer)
{
    store_check_t *check = checked(timer->data);
    loop_timer_start(check->loop, &check->timer, STORE_CHECK_EVERY_MS);
    if (redis_is_up(check->redis))
        look(check);
}

store_check_t *store_check_create(loop_t *loop, const redis_address_t *address,
                                  void (*on_count)(void *data, unsigned warnings), void *data)
{
    store_check_t *check = mem_alloc(sizeof(*check));
    check->magic = CHECK_MAGIC;
    check->loop = loop;
    check->on_count = on_count;
    check->data = data;
    loop_timer_init(&check->timer, on_timer, check);
    check->redis = redis_create(loop, address, on_state, check);
    return check;
}

void store_check_destroy(store_check_t *check)
{
    if (check == NULL)
        return;
    checked(check);
    check->closing = true;
    loop_timer_stop(&check->timer);
    redis_destroy(check->redis); /* what is owed is told before it returns */
    check->magic = 0;
    free(check);
}
