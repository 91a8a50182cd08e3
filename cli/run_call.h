/* One run through the gateway, checked: what comes back is either an answer that holds in every way a client
 * can check (spec section 8.2), or a failure. */
#ifndef CLI_RUN_CALL_H
#define CLI_RUN_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/call.h"
#include "records/plimsoll.pb-c.h"

enum {
    RUN_PROTOCOL = 4,          /* the number this client speaks; its records have version 4 */
    RUN_CODE_MAX = 256 * 1024, /* bytes; spec section 2.5 */
    RUN_TRACE_ID_MAX = 64,     /* characters; spec section 2.2 */
};

typedef struct {
    const Plimsoll__V1__ProjectRun *project; /* NULL = a snippet, of the next two */
    const char *code;                        /* of `code_len` bytes, NUL after them */
    size_t code_len;
    const char *floor;    /* "" = none */
    const char *trace_id; /* "" = none */
    int32_t timeout_ms;   /* 0 = the backend's default */
} run_ask_t;

typedef struct {
    char request_id[REQUEST_ID_HEX + 1];
    Plimsoll__V1__RunResponse *response; /* NULL = see failure */
    failure_t failure;
    bool replayed;                            /* the gateway gave a stored answer: nothing ran this time */
    char run_id[RUN_ID_HEX + 1];              /* "" = not stated */
    char backend[EXCHANGE_VALUE_MAX + 1];     /* likewise */
    char passed_over[EXCHANGE_VALUE_MAX + 1]; /* backends the gateway did not take, and why; likewise */
} run_answer_t;

/* Sends it once. `answer` must be ended with run_answer_dispose. */
void run_call(const connection_t *connection, const run_ask_t *ask, const char *request_id, run_answer_t *answer);
void run_answer_dispose(run_answer_t *answer);

/* The request's own rules (spec section 2.5; a project's are its makers' to keep): NULL, or what breaks them. */
const char *run_ask_check(const run_ask_t *ask);
bool trace_id_is_valid(const char *text);

#endif
