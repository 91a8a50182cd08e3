/*
 * One HTTP exchange with the gateway, synchronous, over a libcurl easy handle of its own: a fresh connection, never a
 * redirect, a proxy from the environment or a resend. Everything about it is bounded: the head, the body and the whole
 * time.
 */
#ifndef CLI_EXCHANGE_H
#define CLI_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

enum {
    EXCHANGE_ANSWER_MAX = 32 * 1024 * 1024, /* bytes of a body; spec section 1.6 */
    EXCHANGE_HEAD_MAX = 64 * 1024,          /* bytes of all header lines: twice what a request may have */
    EXCHANGE_WHOLE_MS = 6 * 60 * 1000,      /* a run of at most 5 min, and a minute for the rest; spec section 8.1 */
    EXCHANGE_CONNECT_MS = 10 * 1000,        /* lookup, connect and TLS */
    EXCHANGE_VALUE_MAX = 256,               /* bytes of a header value that is looked at */
    EXCHANGE_REASON_MAX = 320,
    REQUEST_ID_HEX = 32,
};

typedef struct {
    const char *url;
    const char *token;      /* NULL = none; goes into Authorization and nowhere else */
    const char *ca_file;    /* NULL = the system's */
    const char *request_id; /* NULL, or 32 lowercase hex */
    const void *body;       /* JSON to POST; NULL = GET */
    size_t body_len;
    uint32_t whole_ms;       /* 0 = EXCHANGE_WHOLE_MS */
    const char *unix_socket; /* path to connect to instead of the URL's host; NULL = none */
} exchange_request_t;

typedef enum {
    EXCHANGE_DONE,      /* a complete answer */
    EXCHANGE_NOT_SENT,  /* certainly no byte of the request left */
    EXCHANGE_LOST,      /* some may have left, and no complete answer came */
    EXCHANGE_TIMED_OUT, /* likewise, for want of time */
    EXCHANGE_TOO_LARGE, /* the answer's head or body went past its limit */
} exchange_outcome_t;

/* A response header: how often it came and its last value, cut to "" when longer than EXCHANGE_VALUE_MAX. */
typedef struct {
    unsigned count;
    char value[EXCHANGE_VALUE_MAX + 1];
} header_t;

typedef enum {
    HEADER_REQUEST_ID,
    HEADER_NOT_DISPATCHED,
    HEADER_REPLAYED,
    HEADER_RETRY_AFTER,
    HEADER_CONTENT_TYPE,
    HEADER_RUN_ID,
    HEADER_BACKEND,
    HEADER_PASSED_OVER,
    HEADER_COUNT
} header_name_t;

typedef struct {
    exchange_outcome_t outcome;
    int status;
    header_t headers[HEADER_COUNT];
    buffer_t body;
    char reason[EXCHANGE_REASON_MAX]; /* why, for outcomes other than EXCHANGE_DONE */
} exchange_t;

/* Once per process, before any other function here. */
void exchange_init(void);
/* Fills `exchange`; end it with exchange_dispose whatever came of it. */
void exchange_perform(const exchange_request_t *request, exchange_t *exchange);
void exchange_dispose(exchange_t *exchange);

/* The value of a header that came exactly once, else NULL. */
const char *exchange_header(const exchange_t *exchange, header_name_t name);
/* Whether the answer is bound to this request: its ID came back exactly once and equal (spec section 1.5). */
bool exchange_is_bound(const exchange_t *exchange, const char *request_id);
/* Whether the content type is application/json, parameters and case ignored. */
bool exchange_is_json(const exchange_t *exchange);

/* One line of a response head as libcurl hands it over; exposed for its test. */
void exchange_take_header(exchange_t *exchange, const char *line, size_t len);

/* 32 lowercase hex digits. */
bool request_id_is_valid(const char *text);

#endif
