/* The names of Connect's codes (spec protocol 1.7) and of the reasons a mark gives (4.1), for both ends. */
#ifndef RECORDS_CODES_H
#define RECORDS_CODES_H

/* In the order of the specification's table. */
typedef enum {
    CODE_CANCELED,
    CODE_UNKNOWN,
    CODE_INVALID_ARGUMENT,
    CODE_DEADLINE_EXCEEDED,
    CODE_NOT_FOUND,
    CODE_ALREADY_EXISTS,
    CODE_PERMISSION_DENIED,
    CODE_RESOURCE_EXHAUSTED,
    CODE_FAILED_PRECONDITION,
    CODE_ABORTED,
    CODE_OUT_OF_RANGE,
    CODE_UNIMPLEMENTED,
    CODE_INTERNAL,
    CODE_UNAVAILABLE,
    CODE_DATA_LOSS,
    CODE_UNAUTHENTICATED,
    CODE_COUNT
} code_t;

/* plimsoll.v1.NotDispatchedReason. */
typedef enum {
    MARK_NONE = 0,
    MARK_REQUEST = 1,
    MARK_PERMISSION = 2,
    MARK_PROTOCOL = 3,
    MARK_UNSUPPORTED = 4,
    MARK_ISOLATION = 5,
    MARK_CAPACITY = 6,
    MARK_ENVIRONMENT = 7,
    MARK_COUNT
} mark_t;

const char *code_name(code_t code);
code_t code_parse(const char *name); /* CODE_COUNT when it is none */
int code_status(code_t code);        /* HTTP */
/* "request", ...; NULL for MARK_NONE. */
const char *mark_name(mark_t mark);
mark_t mark_parse(const char *name); /* MARK_NONE when it is none */

#endif
