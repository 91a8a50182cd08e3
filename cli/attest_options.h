/* The arguments of `plimsoll attest VERB`: long options with one dash or two (attest section 9), each verb taking its
 * own of them. */
#ifndef CLI_ATTEST_OPTIONS_H
#define CLI_ATTEST_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/connection.h"

/* Which options a verb takes. */
enum {
    ATTEST_TAKES_CONNECTION = 1 << 0, /* -daemon (the same as -url), -token-file, -ca-file, -insecure-http, -timeout */
    ATTEST_TAKES_KEY = 1 << 1,        /* -key */
    ATTEST_TAKES_PUB = 1 << 2,        /* -pub */
    ATTEST_TAKES_BUNDLE = 1 << 3,     /* -bundle, -shared-bundle */
    ATTEST_TAKES_OUT = 1 << 4,        /* -out */
    ATTEST_TAKES_EXPECT = 1 << 5,     /* -expect, -expect-count */
    ATTEST_TAKES_EXCHANGE = 1 << 6,   /* -request, -response, -record, -entry */
    ATTEST_TAKES_OLD = 1 << 7,        /* -old */
    ATTEST_TAKES_RECORDS = 1 << 8,    /* -records */
    ATTEST_TAKES_HEAD = 1 << 9,       /* -head */
    ATTEST_TAKES_RUN = 1 << 10,       /* -run */
};

enum {
    ATTEST_TIMEOUT_MS = 6 * 60 * 1000,           /* a call's default: a run of 5 min, and a minute for the rest */
    ATTEST_TIMEOUT_MS_MAX = 24 * 60 * 60 * 1000, /* more is a slip */
};

typedef struct {
    const char *verb; /* "plimsoll attest VERB": what begins each message */
    connection_options_t connection;
    uint32_t timeout_ms;
    const char *key, *pub, *bundle, *out, *expect, *request, *response, *record, *old, *records, *head,
        *run;             /* NULL = not given */
    int64_t expect_count; /* -1 = not given */
    bool shared_bundle, entry, json, help;
    char **files; /* the other arguments */
    int file_count;
} attest_options_t;

/* false: an error, told in one line on stderr; the verb then returns 1. Strings point into argv; argv[0] is the verb's
 * title. At least `files_min` other arguments are taken, and at most `files_max`. */
bool attest_options_parse(int argc, char **argv, unsigned takes, int files_min, int files_max,
                          attest_options_t *options);

#endif
