/* One message of a Start stream: what a process in the sandbox says, as proto-JSON (2.4, 2.5). A guest may have written
 * it. */
#ifndef BACKENDS_E2B_EVENT_H
#define BACKENDS_E2B_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud_text.h"
#include "backends/e2b/limits.h"

typedef enum { EVENT_START, EVENT_STDOUT, EVENT_STDERR, EVENT_KEEPALIVE, EVENT_END, EVENT_OTHER } e2b_event_kind_t;

typedef struct {
    e2b_event_kind_t kind;
    uint8_t *bytes; /* STDOUT and STDERR; owned */
    size_t len;
    /* END. A signal's exit code is 128 and its number. */
    int exit_code, signal;
} e2b_event_t;

/* NULL, or static text: what is wrong. EVENT_OTHER is one of a kind that a later daemon may have. */
const char *e2b_event_read(const void *payload, size_t len, e2b_event_t *out);
void e2b_event_dispose(e2b_event_t *event);

/* The number of the signal that a process' status names ("signal: killed", "signal: segmentation fault (core dumped)",
 * "signal: signal 34"); E2B_SIGNAL_UNKNOWN when it names none. */
int e2b_signal_of(const char *status);

/* The end-of-stream message. */
typedef struct {
    bool is_error;
    char code[E2B_CODE_MAX],
        message[E2B_TEXT_MAX]; /* of an error; the guest's words, without our secrets, cut to fit */
} e2b_eos_t;
const char *e2b_eos_read(const void *payload, size_t len, const cloud_secrets_t *secrets, e2b_eos_t *out);

#endif
