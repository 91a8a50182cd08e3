/*
 * How a gRPC call ended: what was seen of it, and the one verdict that follows (gRPC over HTTP/2, "Responses" and
 * "HTTP2 Transport Mapping"; gRPC core's http-grpc-status-mapping). Pure.
 */
#ifndef CORE_GRPC_END_H
#define CORE_GRPC_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/grpc_frame.h"
#include "core/h2_client.h"

enum {
    GRPC_TEXT_MAX = 256,      /* a message, with its NUL */
    GRPC_REQUEST_ID_MAX = 17, /* 16 hex digits and the NUL */
};

typedef enum {
    GRPC_OK,
    GRPC_CANCELLED,
    GRPC_UNKNOWN,
    GRPC_INVALID_ARGUMENT,
    GRPC_DEADLINE_EXCEEDED,
    GRPC_NOT_FOUND,
    GRPC_ALREADY_EXISTS,
    GRPC_PERMISSION_DENIED,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_FAILED_PRECONDITION,
    GRPC_ABORTED,
    GRPC_OUT_OF_RANGE,
    GRPC_UNIMPLEMENTED,
    GRPC_INTERNAL,
    GRPC_UNAVAILABLE,
    GRPC_DATA_LOSS,
    GRPC_UNAUTHENTICATED,
} grpc_code_t;
/* "OK", "CANCELLED", ...; a literal. */
const char *grpc_code_name(grpc_code_t code);

/* Whose word the code is. */
typedef enum {
    GRPC_BY_SERVER,   /* a whole answer: grpc-status */
    GRPC_BY_STREAM,   /* no whole answer: a reset, a broken connection, an answer that is none of gRPC's */
    GRPC_BY_DEADLINE, /* our own */
    GRPC_BY_CANCEL,   /* our own */
    GRPC_BY_CONNECT,  /* there was no connection to send it on */
} grpc_origin_t;

typedef struct {
    grpc_code_t code;
    grpc_origin_t origin;
    bool may_have_run; /* false: certainly not acted upon. An answer of the server's counts as "may" whatever it says */
    char message[GRPC_TEXT_MAX]; /* printable ASCII; the server's words, or ours */
    char request_id[GRPC_REQUEST_ID_MAX];
} grpc_end_t;

/* Of the head and the trailers. */
typedef struct {
    int http_status;     /* 0 = none yet */
    bool is_grpc;        /* content-type application/grpc... */
    bool has_status;     /* grpc-status in the last block */
    bool is_status_sane; /* and it is one number of 0 to 16 */
    grpc_code_t status;
    char message[GRPC_TEXT_MAX];
} grpc_head_t;
/* One header; `is_first` of a block. */
void grpc_head_add(grpc_head_t *head, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len,
                   bool is_first);
/* Body bytes came after the block: a status before them is none. */
void grpc_head_body(grpc_head_t *head);

typedef struct {
    const grpc_head_t *head;
    h2_end_t end;
    uint32_t reset_code;
    const char *reason; /* H2_LOST */
    bool is_unary;
    uint64_t messages; /* whole ones */
    size_t left_over;  /* bytes after them */
    grpc_frames_problem_t problem;
    bool has_sent; /* a byte of the first message may have left */
} grpc_seen_t;
/* Leaves request_id alone. */
void grpc_judge(const grpc_seen_t *seen, grpc_end_t *end);

#endif
