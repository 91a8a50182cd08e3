/*
 * What went wrong with a call, and the one thing that matters about it: whether anything ran. Decoding follows spec
 * sections 1.7, 4.1 and 8.5: a mark counts only on an answer bound to its request, the error's detail wins over the
 * header, a redirect is never followed and never believed.
 */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "cli/exchange.h"
#include "core/buffer.h"

typedef enum {
    FAILURE_NONE,
    FAILURE_REFUSED,       /* marked: nothing ran */
    FAILURE_MAY_HAVE_RUN,  /* unmarked */
    FAILURE_DOES_NOT_HOLD, /* an answer that must not be believed; may have run as well */
} failure_kind_t;

enum {
    FAILURE_CODE_MAX = 32,           /* longer than every Connect code name */
    FAILURE_MESSAGE_MAX = 2048,      /* bytes of the gateway's message that are kept */
    FAILURE_RETRY_AFTER_MAX = 86400, /* seconds; a longer wait is not one to act on */
    RUN_ID_HEX = 32,
};

typedef struct {
    failure_kind_t kind;
    char code[FAILURE_CODE_MAX]; /* Connect code name */
    const char *mark;            /* reason's name, "unknown" for a number without one; NULL = unmarked */
    char message[FAILURE_MESSAGE_MAX + 1];
    int retry_after_s;           /* -1 = not stated */
    bool sent;                   /* whether anything of the request may have left this machine */
    bool away;                   /* no connection: the gateway was not reached at all */
    char run_id[RUN_ID_HEX + 1]; /* the run the answer named; "" = none */
} failure_t;

/* A refusal of our own, before anything was sent: marked `request`. */
void failure_local(failure_t *failure, const char *message);
/* An answer that must not be believed, and why. */
void failure_does_not_hold(failure_t *failure, const char *why);
/* What an exchange that is no success means for the request `request_id` (NULL: none was sent, no mark counts). Not for
 * a complete answer with status 200. */
void failure_decode(failure_t *failure, const exchange_t *exchange, const char *request_id);

/* Exit status of `plimsoll run`. */
int failure_exit_code(const failure_t *failure);
/* Appends one or two sentences on what to do next. */
void failure_next(const failure_t *failure, const char *request_id, buffer_t *out);
/* Whether sending the same request again, as it is, can help and cannot run it twice. */
bool failure_is_worth_resending(const failure_t *failure);
/* "error:" line, mark line and next line on stderr. `may_run` false for a call that runs nothing: no word of marks
 * then. */
void failure_print(const failure_t *failure, const char *request_id, bool may_run);
/* The `error` member of --json output; a new reference. */
json_t *failure_json(const failure_t *failure, const char *request_id);

#endif
