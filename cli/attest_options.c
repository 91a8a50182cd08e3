#include "cli/attest_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/attest.h"
#include "config/option_text.h"

enum {
    OPT_DAEMON = CONNECTION_OPT_END,
    OPT_TIMEOUT,
    OPT_KEY,
    OPT_PUB,
    OPT_BUNDLE,
    OPT_SHARED_BUNDLE,
    OPT_OUT,
    OPT_EXPECT,
    OPT_EXPECT_COUNT,
    OPT_REQUEST,
    OPT_RESPONSE,
    OPT_RECORD,
    OPT_ENTRY,
    OPT_OLD,
    OPT_RECORDS,
    OPT_HEAD,
    OPT_RUN,
    OPT_JSON,
    OPT_HELP,
};

static const struct {
    unsigned for_verbs; /* 0 = for all */
    struct option option;
} ALL[] = {
    {ATTEST_TAKES_CONNECTION, {"daemon", required_argument, NULL, OPT_DAEMON}},
    {ATTEST_TAKES_CONNECTION, {"url", required_argument, NULL, CONNECTION_OPT_URL}},
    {ATTEST_TAKES_CONNECTION, {"token-file", required_argument, NULL, CONNECTION_OPT_TOKEN_FILE}},
    {ATTEST_TAKES_CONNECTION, {"ca-file", required_argument, NULL, CONNECTION_OPT_CA_FILE}},
    {ATTEST_TAKES_CONNECTION, {"insecure-http", no_argument, NULL, CONNECTION_OPT_INSECURE_HTTP}},
    {ATTEST_TAKES_CONNECTION, {"timeout", required_argument, NULL, OPT_TIMEOUT}},
    {ATTEST_TAKES_KEY, {"key", required_argument, NULL, OPT_KEY}},
    {ATTEST_TAKES_PUB, {"pub", required_argument, NULL, OPT_PUB}},
    {ATTEST_TAKES_BUNDLE, {"bundle", required_argument, NULL, OPT_BUNDLE}},
    {ATTEST_TAKES_BUNDLE, {"shared-bundle", no_argument, NULL, OPT_SHARED_BUNDLE}},
    {ATTEST_TAKES_OUT, {"out", required_argument, NULL, OPT_OUT}},
    {ATTEST_TAKES_EXPECT, {"expect", required_argument, NULL, OPT_EXPECT}},
    {ATTEST_TAKES_EXPECT, {"expect-count", required_argument, NULL, OPT_EXPECT_COUNT}},
    {ATTEST_TAKES_EXCHANGE, {"request", required_argument, NULL, OPT_REQUEST}},
    {ATTEST_TAKES_EXCHANGE, {"response", required_argument, NULL, OPT_RESPONSE}},
    {ATTEST_TAKES_EXCHANGE, {"record", required_argument, NULL, OPT_RECORD}},
    {ATTEST_TAKES_EXCHANGE, {"entry", no_argument, NULL, OPT_ENTRY}},
    {ATTEST_TAKES_OLD, {"old", required_argument, NULL, OPT_OLD}},
    {ATTEST_TAKES_RECORDS, {"records", required_argument, NULL, OPT_RECORDS}},
    {ATTEST_TAKES_HEAD, {"head", required_argument, NULL, OPT_HEAD}},
    {ATTEST_TAKES_RUN, {"run", required_argument, NULL, OPT_RUN}},
    {0, {"json", no_argument, NULL, OPT_JSON}},
    {0, {"help", no_argument, NULL, OPT_HELP}},
};
enum { ALL_COUNT = sizeof(ALL) / sizeof(ALL[0]) };

static const char *take_count(attest_options_t *options, const char *text)
{
    char *end;
    size_t len = strlen(text);
    if (len < 1 || len > 15 || strspn(text, "0123456789") != len)
        return "-expect-count takes a whole number";
    options->expect_count = strtoll(text, &end, 10);
    return NULL;
}

static const char *take_timeout(attest_options_t *options, const char *text)
{
    int64_t ms;
    if (!duration_parse(text, &ms) || ms < 1 || ms > ATTEST_TIMEOUT_MS_MAX)
        return "-timeout takes a time from 1ms to 24h, such as 30s, 6m, 1h30m";
    options->timeout_ms = (uint32_t)ms;
    return NULL;
}

/* Where an option's text goes; NULL for those without one. */
static const char **text_of(attest_options_t *options, int opt)
{
    switch (opt) {
    case OPT_DAEMON:
        return &options->connection.url;
    case OPT_KEY:
        return &options->key;
    case OPT_PUB:
        return &options->pub;
    case OPT_BUNDLE:
        return &options->bundle;
    case OPT_OUT:
        return &options->out;
    case OPT_EXPECT:
        return &options->expect;
    case OPT_REQUEST:
        return &options->request;
    case OPT_RESPONSE:
        return &options->response;
    case OPT_RECORD:
        return &options->record;
    case OPT_OLD:
        return &options->old;
    case OPT_RECORDS:
        return &options->records;
    case OPT_HEAD:
        return &options->head;
    case OPT_RUN:
        return &options->run;
    default:
        return NULL;
    }
}

static const char *take_option(attest_options_t *options, int opt, const char *value)
{
    const char **text = text_of(options, opt);
    if (text != NULL) {
        *text = value;
        return value[0] != '\0' ? NULL : "an option's value is empty";
    }
    switch (opt) {
    case OPT_TIMEOUT:
        return take_timeout(options, value);
    case OPT_EXPECT_COUNT:
        return take_count(options, value);
    case OPT_SHARED_BUNDLE:
        options->shared_bundle = true;
        return NULL;
    case OPT_ENTRY:
        options->entry = true;
        return NULL;
    case OPT_JSON:
        options->json = true;
        return NULL;
    default:
        options->help = true;
        return NULL;
    }
}

bool attest_options_parse(int argc, char **argv, unsigned takes, int files_min, int files_max,
                          attest_options_t *options)
{
    struct option table[ALL_COUNT + 1] = {{0}};
    size_t count = 0;
    int opt;
    for (size_t i = 0; i < ALL_COUNT; i++)
        if (ALL[i].for_verbs == 0 || (ALL[i].for_verbs & takes) != 0)
            table[count++] = ALL[i].option;
    *options = (attest_options_t){.verb = argv[0], .timeout_ms = ATTEST_TIMEOUT_MS, .expect_count = -1};
    optind = 0;
    while ((opt = getopt_long_only(argc, argv, "h", table, NULL)) != -1) {
        if (opt == '?') /* told by getopt, in a line of its own */
            return false;
        if (connection_option(&options->connection, opt, optarg))
            continue;
        const char *problem = take_option(options, opt == 'h' ? OPT_HELP : opt, optarg);
        if (problem != NULL) {
            attest_fail(options, "%s", problem);
            return false;
        }
    }
    options->files = argv + optind;
    options->file_count = argc - optind;
    if (options->help)
        return true;
    if (options->file_count < files_min || options->file_count > files_max) {
        attest_fail(options,
                    options->file_count < files_min ? "an argument is missing; see `%s -help`"
                                                    : "there is an argument too many; see `%s -help`",
                    options->verb);
        return false;
    }
    return true;
}
