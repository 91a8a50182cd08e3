#include "core/redis_reply.h"

#include <string.h>
#include <strings.h>

enum { OBJECT_COST = 64 }; /* about what hiredis allocates for one object, its text aside */

static bool refuse(redis_reply_guard_t *guard, const char *problem)
{
    guard->problem = problem;
    return false;
}

static bool is_message_kind(const char *text, size_t len)
{
    return (len == 7 && strncasecmp(text, "message", len) == 0) ||
           (len == 9 && strncasecmp(text, "subscribe", len) == 0);
}

/* The parts of a message: its kind, the channel, the payload or a number. */
static bool is_message_part(const redisReadTask *task, int type, const char *text, size_t len)
{
    switch (task->idx) {
    case 0:
        return type == REDIS_REPLY_STRING && is_message_kind(text, len);
    case 1:
        return type == REDIS_REPLY_STRING;
    default:
        return type == REDIS_REPLY_STRING || type == REDIS_REPLY_INTEGER;
    }
}

/* `len` is the text's, or the number of an array's elements. */
static bool is_allowed(const redisReadTask *task, int type, const char *text, size_t len)
{
    static const char no_message[] = "a message that is none of a subscription's";
    redis_reply_guard_t *guard = task->privdata;
    bool is_array = type == REDIS_REPLY_ARRAY;
    if (task->parent == NULL) {
        guard->_size = 0;
        guard->_is_message = false;
        /* an error is always taken: hiredis drops the connection with its text */
        if (guard->_ac->replies.head == NULL && type != REDIS_REPLY_ERROR) {
            if ((guard->_ac->c.flags & REDIS_SUBSCRIBED) == 0)
                return refuse(guard, "an answer nobody asked for");
            if (!is_array || len != 3)
                return refuse(guard, no_message);
            guard->_is_message = true;
        }
    } else if (guard->_is_message && !is_message_part(task, type, text, len)) {
        return refuse(guard, no_message);
    }
    if (is_array && len > REDIS_REPLY_ELEMENTS_MAX)
        return refuse(guard, "an answer past all limits");
    guard->_size += OBJECT_COST + (is_array ? len * sizeof(void *) : len);
    return guard->_size <= REDIS_REPLY_MAX || refuse(guard, "an answer past all limits");
}

static redisReplyObjectFunctions *hiredis_of(const redisReadTask *task)
{
    redis_reply_guard_t *guard = task->privdata;
    return guard->_hiredis;
}

/* NULL is what hiredis takes for "no memory": it drops the connection. */

static void *create_string(const redisReadTask *task, char *text, size_t len)
{
    return is_allowed(task, task->type, text, len) ? hiredis_of(task)->createString(task, text, len) : NULL;
}

static void *create_array(const redisReadTask *task, int elements)
{
    size_t count = elements > 0 ? (size_t)elements : 0;
    return is_allowed(task, REDIS_REPLY_ARRAY, NULL, count) ? hiredis_of(task)->createArray(task, elements) : NULL;
}

static void *create_integer(const redisReadTask *task, long long value)
{
    return is_allowed(task, REDIS_REPLY_INTEGER, NULL, 0) ? hiredis_of(task)->createInteger(task, value) : NULL;
}

static void *create_nil(const redisReadTask *task)
{
    return is_allowed(task, REDIS_REPLY_NIL, NULL, 0) ? hiredis_of(task)->createNil(task) : NULL;
}

void redis_reply_guard(redis_reply_guard_t *guard, redisAsyncContext *ac)
{
    redisReader *reader = ac->c.reader;
    *guard = (redis_reply_guard_t){._ac = ac, ._own = *reader->fn, ._hiredis = reader->fn};
    guard->_own.createString = create_string;
    guard->_own.createArray = create_array;
    guard->_own.createInteger = create_integer;
    guard->_own.createNil = create_nil;
    reader->fn = &guard->_own;
    reader->privdata = guard;
}

/* A bulk string whose length has been read. Anything else is a line, and hiredis looks for its end from its beginning
 * whenever bytes come. */
static bool is_in_bulk(const redisReader *reader, size_t pending)
{
    enum { LENGTH_DIGITS_MAX = 21 };
    size_t head = pending < LENGTH_DIGITS_MAX ? pending : LENGTH_DIGITS_MAX;
    return reader->ridx >= 0 && reader->rstack[reader->ridx].type == REDIS_REPLY_STRING &&
           memchr(reader->buf + reader->pos, '\n', head) != NULL;
}

bool redis_reply_is_too_long(redis_reply_guard_t *guard)
{
    const redisReader *reader = guard->_ac->c.reader;
    size_t pending = reader->len - reader->pos;
    if (pending <= REDIS_REPLY_LINE_MAX || (pending <= REDIS_REPLY_MAX && is_in_bulk(reader, pending)))
        return false;
    return !refuse(guard, "an answer past all limits");
}
