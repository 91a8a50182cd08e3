/*
 * One sandbox in the ledger, as it stands in Redis: a line of LEDGER_WORDS words, one space between them, so that a
 * script takes it apart with one pattern and a person reads it. docs/ledger.md lists the words. A value of another form
 * is nobody's: it is named and left as it is.
 */
#ifndef RECORDS_LEDGER_ENTRY_H
#define RECORDS_LEDGER_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEDGER_STAMP = 32,    /* hex digits: 128 bits, ours, on the sandbox as its name or label */
    LEDGER_INSTANCE = 16, /* hex digits of a role's process */
    LEDGER_RUN = 32,      /* hex digits of a run's ID */
    LEDGER_BACKEND_MAX = 32,
    LEDGER_HOST_MAX = 79,  /* "<boot id>.<inode>": 36 + 1 + 20 */
    LEDGER_PLACE_MAX = 64, /* an Engine's ID has 59 */
    LEDGER_PROVIDER_ID_MAX = 128,
    LEDGER_CALLER_MAX = 256,
    LEDGER_ERROR_MAX = 160,
    LEDGER_TAG = 32, /* hex digits: the caller's, as in the names of its keys */
    LEDGER_WORDS = 17,
    /* Every byte of a text may become three: 3 * (79 + 64 + 128 + 256 + 160) = 2061; hex, numbers and states below 320.
     */
    LEDGER_VALUE_MAX = 2400,
    LEDGER_TRIES_MAX = 1000000, /* counted no further */
};
/* Past what any clock of Redis says (the year 33658), and exact in Lua. */
#define LEDGER_TIME_MAX INT64_C(999999999999999)
#define LEDGER_PRICE_MAX LEDGER_TIME_MAX

typedef enum {
    LEDGER_ASKED,     /* its creation may have been asked for; the provider's ID is not known */
    LEDGER_NAMED,     /* it is there under `id` */
    LEDGER_CONDEMNED, /* it is to go; `id` may or may not be known */
} ledger_state_t;
const char *ledger_state_name(ledger_state_t state); /* "asked", "named", "condemned" */

typedef struct {
    char stamp[LEDGER_STAMP + 1];
    ledger_state_t state;
    char instance[LEDGER_INSTANCE + 1]; /* the process that answers for it */
    char host[LEDGER_HOST_MAX + 1];     /* of a wall of one machine; "" = any copy can reach it */
    char place[LEDGER_PLACE_MAX + 1];   /* what `id` is a name in, such as an Engine's ID; "" = the provider */
    int64_t created_ms, deadline_ms;    /* Redis' clock; past the deadline it is nobody's any more */
    bool is_billed;
    char run[LEDGER_RUN + 1]; /* "" while it serves none */
    char caller[LEDGER_CALLER_MAX + 1];
    char id[LEDGER_PROVIDER_ID_MAX + 1];
    char tag[LEDGER_TAG + 1];         /* of the caller; "" with it */
    uint64_t price_micro;             /* an hour, of a billed one; 0 = none known */
    uint64_t reported_ms;             /* of its time that its run's answer has told already */
    uint32_t tries;                   /* deletions that did not end in its confirmed absence */
    int64_t condemned_ms;             /* Redis' clock; 0 = it is not */
    char error[LEDGER_ERROR_MAX + 1]; /* of the last try */
} ledger_entry_t;

/* Whether `len` bytes are a value; then `out` is filled but for the stamp. Never reads past `len`. */
bool ledger_entry_parse(const char *base, size_t len, ledger_entry_t *out);
/* The line. `out` takes LEDGER_VALUE_MAX bytes with the NUL; returns its length. */
size_t ledger_entry_format(const ledger_entry_t *entry, char out[LEDGER_VALUE_MAX]);
/* One text as a word: "-" for none; what is neither a letter, a digit nor one of ._~:/- is percent-encoded, and so is a
 * text that is only a dash. `out` takes
 * 3 * strlen(text) + 2. Returns the length. */
size_t ledger_word(const char *text, char *out);
/* Exactly so many lowercase hex digits and the end. */
bool ledger_is_stamp(const char *text);
bool ledger_is_instance(const char *text);
/* Copies what a provider said: cut to fit, what is not printable ASCII becomes '?', and what looks
 * like a credential (a word of 20 or more of [A-Za-z0-9_+/=.-] with digits and letters in it) becomes "[...]". */
void ledger_scrub(const char *text, char out[LEDGER_ERROR_MAX + 1]);

#endif
