#include "core/redis.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/redis_link.h"

enum { SUBSCRIPTION_MAGIC = 0x72737562 };

struct redis_subscription {
    unsigned magic;
    redis_link_t link;
    char *channel;
    void (*on_message)(void *data, const char *payload, size_t len);
    void (*on_state)(void *data, bool up, const char *reason);
    void *data;
    bool is_live;
    char last_reason[LINK_REASON_MAX];
};

static void subscription_check(const redis_subscription_t *s)
{
    if (s == NULL || s->magic != SUBSCRIPTION_MAGIC)
        mem_fatal("not a redis subscription");
}

static void say_state(redis_subscription_t *s, bool up, const char *reason)
{
    if (s->on_state != NULL)
        s->on_state(s->data, up, reason);
}

static bool is_push(const redisReply *reply, const char *kind)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && reply->element[0]->type == REDIS_REPLY_STRING &&
           strcasecmp(reply->element[0]->str, kind) == 0;
}

static void on_push(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    redis_subscription_t *s = privdata;
    (void)ac;
    if (reply == NULL)
        return;
    subscription_check(s);
    if (s->link.state != LINK_UP)
        return;
    redis_link_hold(&s->link);
    if (is_push(reply, "message") && reply->element[2]->type == REDIS_REPLY_STRING) {
        s->on_message(s->data, reply->element[2]->str, reply->element[2]->len);
    } else if (is_push(reply, "subscribe") && !s->is_live) {
        s->is_live = true;
        s->last_reason[0] = '\0';
        say_state(s, true, "subscribed");
    }
    redis_link_release(&s->link);
}

static void subscribe(redis_subscription_t *s)
{
    redisAsyncCommand(s->link.ac, on_push, s, "SUBSCRIBE %s", s->channel);
}

static void on_up(void *owner)
{
    redis_subscription_t *s = owner;
    subscription_check(s);
    subscribe(s);
}

static void on_down(void *owner, bool was_up, const char *reason)
{
    redis_subscription_t *s = owner;
    bool was_live = s->is_live;
    (void)was_up; /* a link that came up and refused the subscription was never live */
    subscription_check(s);
    s->is_live = false;
    if (!was_live && strcmp(s->last_reason, reason) == 0)
        return;
    strncpy(s->last_reason, reason, sizeof(s->last_reason) - 1);
    say_state(s, false, reason);
}

/* A channel may be silent for days. Subscribing once more is harmless and is answered, which tells a quiet server from
 * a dead one (hiredis cannot match the answer to a PING on a subscribed connection). */
static void on_beat(void *owner)
{
    redis_subscription_t *s = owner;
    subscription_check(s);
    uint64_t silent = clock_mono_ms() - s->link.heard_at;
    if (!redis_link_is_up(&s->link))
        return;
    if (silent >= REDIS_IDLE_MS + REDIS_SILENT_MS)
        redis_link_fail(&s->link, "no answer");
    else if (silent >= REDIS_IDLE_MS)
        subscribe(s);
}

static void on_free(void *owner)
{
    redis_subscription_t *s = owner;
    s->magic = 0;
    free(s->channel);
    free(s);
}

static const redis_link_callbacks_t LINK_CALLBACKS = {on_up, on_down, on_beat, on_free};

redis_subscription_t *redis_subscribe(loop_t *loop, const redis_address_t *address, const char *channel,
                                      void (*on_message)(void *data, const char *payload, size_t len),
                                      void (*on_state)(void *data, bool up, const char *reason), void *data)
{
    redis_subscription_t *s = mem_alloc(sizeof(*s));
    s->magic = SUBSCRIPTION_MAGIC;
    s->channel = mem_strdup(channel);
    s->on_message = on_message;
    s->on_state = on_state;
    s->data = data;
    redis_link_init(&s->link, loop, address, &LINK_CALLBACKS, s);
    return s;
}

void redis_unsubscribe(redis_subscription_t *s)
{
    subscription_check(s);
    redis_link_destroy(&s->link);
}
