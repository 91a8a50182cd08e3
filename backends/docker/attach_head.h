/*
 * The answer to an attach (spec backend-docker 1.4), read from the bytes as they came: its head ends somewhere in them
 * and the stream may begin right behind it. Strict, as what is believed here decides how every later byte is read.
 * Pure: no descriptor, no clock.
 */
#ifndef BACKENDS_DOCKER_ATTACH_HEAD_H
#define BACKENDS_DOCKER_ATTACH_HEAD_H

#include <stddef.h>

typedef enum {
    ATTACH_HEAD_MORE,     /* no end yet */
    ATTACH_HEAD_UPGRADED, /* from head_len on the bytes are the stream's */
    ATTACH_HEAD_REFUSED,  /* another status than 101 and 200; a body may follow */
    ATTACH_HEAD_BAD,      /* no answer to an attach; `why` says so */
} attach_head_result_t;

typedef struct {
    int status;
    size_t head_len; /* with its empty line; valid unless MORE or BAD */
    const char *why; /* static text; ATTACH_HEAD_BAD only */
} attach_head_t;

/* `len` is at most ATTACH_HEAD_MAX; that many bytes without an end are ATTACH_HEAD_BAD. */
attach_head_result_t attach_head_read(const void *bytes, size_t len, attach_head_t *out);

#endif
