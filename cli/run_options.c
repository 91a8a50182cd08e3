#include "cli/run_options.h"

#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/run_call.h"
#include "config/option_text.h"
#include "records/tier.h"

const char RUN_HELP[] =
    "Usage: plimsoll run [OPTION]... FILE\n"
    "\n"
    "Runs a JavaScript file (- for standard input) behind the gateway's wall. The guest's output comes out on\n"
    "stdout and stderr byte for byte, and its exit code becomes this command's.\n"
    "\n"
    "  --floor TIER       refuse unless the wall is at least this strong: process, container, kernel, vm.\n"
    "                     A tier is the gateway's evidence, not an attestation\n"
    "  --timeout TIME     budget of the run, such as 500ms, 10s, 2m (default: the backend's; at most 5m)\n"
    "  --backend NAME     this backend and no other (see `plimsoll backends`)\n"
    "  --request-id HEX   32 lowercase hex digits (default: fresh random ones). The gateway runs an ID at most\n"
    "                     once: the same ID with the same code gets the first answer again\n"
    "  --trace-id TEXT    1 to 64 of A-Z a-z 0-9 . _ : - for the gateway's log\n"
    "  --json             one JSON object on stdout, whatever happened: verdict (answered: it ran; refused: nothing\n"
    "                     ran; unknown: it may have run), exit_code, output, isolation, record\n"
    "  -v, --verbose      a summary line on stderr\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP "\n" EXIT_CODES_HELP "\n"
    "Examples:\n"
    "  echo 'console.log(6 * 7)' | plimsoll run -\n"
    "  plimsoll run --floor vm --timeout 30s --json job.js\n";

enum { OPT_FLOOR = CONNECTION_OPT_END, OPT_TIMEOUT, OPT_BACKEND, OPT_REQUEST_ID, OPT_TRACE_ID, OPT_JSON };

static const struct option LONG_OPTIONS[] = {
    CONNECTION_LONG_OPTIONS,
    {"floor", required_argument, NULL, OPT_FLOOR},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"request-id", required_argument, NULL, OPT_REQUEST_ID},
    {"trace-id", required_argument, NULL, OPT_TRACE_ID},
    {"json", no_argument, NULL, OPT_JSON},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool take_timeout(run_options_t *options, const char *text)
{
    int64_t ms;
    /* A zero would ask for the default; asking for nothing is the way to say that. */
    if (!duration_parse(text, &ms) || ms < 1 || ms > RUN_CEILING_MS)
        return false;
    options->timeout_ms = (int32_t)ms;
    return true;
}

/* NULL, or what is wrong with the value. */
static const char *take_option(run_options_t *options, int opt, const char *value)
{
    tier_t floor;
    switch (opt) {
    case OPT_FLOOR:
        options->floor = value;
        return tier_parse_floor(value, &floor) ? NULL : "--floor is one of process, container, kernel, vm";
    case OPT_TIMEOUT:
        return take_timeout(options, value) ? NULL : "--timeout is a time from 1ms to 5m, such as 500ms, 10s, 2m";
    case OPT_BACKEND:
        options->connection.backend = value;
        return NULL;
    case OPT_REQUEST_ID:
        options->request_id = value;
        return request_id_is_valid(value) ? NULL : "--request-id is 32 lowercase hex digits";
    case OPT_TRACE_ID:
        options->trace_id = value;
        return trace_id_is_valid(value) ? NULL : "--trace-id is 1 to 64 of A-Z a-z 0-9 . _ : -";
    case OPT_JSON:
        options->json = true;
        return NULL;
    case 'v':
        options->verbose = true;
        return NULL;
    default:
        options->help = true;
        return NULL;
    }
}

bool run_options_parse(int argc, char **argv, run_options_t *options)
{
    *options = (run_options_t){.floor = "", .trace_id = ""};
    int opt;
    optind = 0;
    while ((opt = getopt_long(argc, argv, "hv", LONG_OPTIONS, NULL)) != -1) {
        if (opt == '?') {
            usage_hint(argv[0]);
            return false;
        }
        if (connection_option(&options->connection, opt, optarg))
            continue;
        const char *problem = take_option(options, opt, optarg);
        if (problem != NULL) {
            usage_error(argv[0], "%s", problem);
            return false;
        }
    }
    if (options->help)
        return true;
    if (argc - optind != 1) {
        usage_error(argv[0], argc == optind ? "which FILE? (- reads standard input)" : "one FILE at a time");
        return false;
    }
    options->file = argv[optind];
    return true;
}
