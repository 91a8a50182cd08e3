#include "core/redis_sentinel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

enum { SENTINEL_MAGIC = 0x73656e74, REASON_MAX = 160 };

struct redis_sentinel {
    unsigned magic;
    loop_t *loop;
    redis_address_t address;
    redis_sentinel_cb cb;
    void *data;
    redis_t *redis; /* to the Sentinel being asked */
    unsigned which, tried;
    loop_timer_t limit;
    loop_task_t next; /* asks the next one, off the stack of the one that failed */
    char reason[REASON_MAX];
};

static redis_sentinel_t *checked(void *data)
{
    redis_sentinel_t *s = data;
    if (s == NULL || s->magic != SENTINEL_MAGIC)
        mem_fatal("not a question to Sentinels");
    return s;
}

static void hang_up(redis_sentinel_t *s)
{
    redis_t *redis = s->redis;
    s->redis = NULL; /* first: what is pending there is told now */
    loop_timer_stop(&s->limit);
    if (redis != NULL)
        redis_destroy(redis);
}

void redis_sentinel_cancel(redis_sentinel_t *s)
{
    checked(s);
    hang_up(s);
    loop_task_cancel(s->loop, &s->next);
    redis_address_dispose(&s->address);
    s->magic = 0;
    free(s);
}

static void finish(redis_sentinel_t *s, const char *host, int port)
{
    redis_sentinel_cb cb = s->cb;
    void *data = s->data;
    char name[REDIS_HOST_MAX + 1], reason[REASON_MAX];
    unsigned which = s->which;
    snprintf(name, sizeof(name), "%s", host != NULL ? host : "");
    snprintf(reason, sizeof(reason), "%s", s->reason);
    redis_sentinel_cancel(s);
    cb(data, host != NULL ? name : NULL, port, which, reason);
}

static void give_up_on_it(redis_sentinel_t *s, const char *reason)
{
    const redis_node_t *node = &s->address.sentinels[s->which];
    snprintf(s->reason, sizeof(s->reason), "no Sentinel named the master: %.64s:%d: %s", node->host, node->port,
             reason);
    hang_up(s);
    loop_defer(s->loop, &s->next);
}

/* A host and a port, as two strings. */
static bool read_node(const redisReply *reply, const char **host, int *port)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        return false;
    const redisReply *name = reply->element[0], *number = reply->element[1];
    if (name->type != REDIS_REPLY_STRING || number->type != REDIS_REPLY_STRING ||
        !redis_is_host(name->str, name->len) || number->len == 0 || number->len > 5 ||
        strspn(number->str, "0123456789") != number->len)
        return false;
    *host = name->str;
    *port = atoi(number->str);
    return *port >= 1 && *port <= 65535;
}

static void on_answer(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    redis_sentinel_t *s = checked(data);
    const char *host;
    int port;
    if (s->redis == NULL)
        return; /* given up on meanwhile */
    if (status == REDIS_REFUSED)
        give_up_on_it(s, err);
    else if (status != REDIS_REPLY)
        give_up_on_it(s, "no answer");
    else if (reply->type == REDIS_REPLY_NIL)
        give_up_on_it(s, "it knows no master of that name");
    else if (!read_node(reply, &host, &port))
        give_up_on_it(s, "its answer is not an address");
    else
        finish(s, host, port);
}

static void on_state(void *data, bool up, const char *reason)
{
    redis_sentinel_t *s = checked(data);
    const char *const question[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s->address.master};
    if (s->redis == NULL)
        return;
    if (up)
        redis_command(s->redis, REDIS_SENTINEL_MS, on_answer, s, 3, (const char **)question, NULL);
    else
        give_up_on_it(s, reason);
}

static void on_limit(loop_timer_t *timer)
{
    give_up_on_it(checked(timer->data), "no answer in time");
}

static void ask(redis_sentinel_t *s)
{
    const redis_node_t *node = &s->address.sentinels[s->which];
    const redis_address_t address = {.host = node->host,
                                     .port = node->port,
                                     .user = s->address.sentinel_user,
                                     .password = s->address.sentinel_password,
                                     .is_tls = s->address.is_tls,
                                     .tls = s->address.tls,
                                     .is_sentinel = true};
    ++s->tried;
    s->redis = redis_create(s->loop, &address, on_state, s);
    loop_timer_start(s->loop, &s->limit, REDIS_SENTINEL_MS);
}

static void on_next(loop_task_t *task)
{
    redis_sentinel_t *s = checked(task->data);
    if (s->tried == s->address.sentinel_count) {
        finish(s, NULL, 0);
        return;
    }
    s->which = (s->which + 1) % (unsigned)s->address.sentinel_count;
    ask(s);
}

redis_sentinel_t *redis_sentinel_ask(loop_t *loop, const redis_address_t *address, unsigned first, redis_sentinel_cb cb,
                                     void *data)
{
    redis_sentinel_t *s = mem_alloc(sizeof(*s));
    if (address->sentinel_count == 0 || address->master == NULL)
        mem_fatal("no Sentinel to ask");
    s->magic = SENTINEL_MAGIC;
    s->loop = loop;
    s->cb = cb;
    s->data = data;
    s->which = first % (unsigned)address->sentinel_count;
    redis_address_copy(&s->address, address);
    loop_timer_init(&s->limit, on_limit, s);
    loop_task_init(&s->next, on_next, s);
    ask(s);
    return s;
}
