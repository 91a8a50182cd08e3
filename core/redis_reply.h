/*
 * What a server may answer. hiredis ends the process when a connection gets an answer nobody asked for, or a message
 * that is none of a subscription's, and reads answers of any size; a server that is none, or what stands between, can
 * send either. Such an answer is refused while it is being read, and the connection with it.
 */
#ifndef CORE_REDIS_REPLY_H
#define CORE_REDIS_REPLY_H

#include <stdbool.h>
#include <hiredis/async.h>

enum {
    /* One answer. The largest asked for are a page of the ledger (2,048 entries of 2.4 KB) and one of a caller's runs
     * (101 records of 16 KiB). */
    REDIS_REPLY_MAX = 32 * 1024 * 1024,
    REDIS_REPLY_ELEMENTS_MAX = 64 * 1024, /* of one array */
    REDIS_REPLY_LINE_MAX = 64 * 1024,     /* bytes of a line: a status, an error, a number */
};

typedef struct {
    const char *problem; /* why an answer was refused; NULL: none was. Static text */
    /* private */
    redisAsyncContext *_ac;
    redisReplyObjectFunctions _own, *_hiredis;
    size_t _size; /* of the answer being read */
    bool _is_message;
} redis_reply_guard_t;

/* Reads the connection's answers from now on; `guard` must outlive it. */
void redis_reply_guard(redis_reply_guard_t *guard, redisAsyncContext *ac);
/* After bytes were read: whether what has come of one answer is past the limit. Then `problem` says so. */
bool redis_reply_is_too_long(redis_reply_guard_t *guard);

#endif
