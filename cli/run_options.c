#include "cli/run_options.h"

#include <string.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/project.h"
#include "cli/run_call.h"
#include "config/option_text.h"
#include "core/utf8.h"
#include "records/tier.h"

const char RUN_HELP[] =
    "Usage: plimsoll run [OPTION]... FILE\n"
    "       plimsoll run --project DIR --step COMMAND [--step COMMAND]... [--artifact PATH]... [--out DIR]\n"
    "\n"
    "Runs code behind the gateway's wall: a JavaScript file (- for standard input), or a directory of files with the\n"
    "commands to run in it. The guest's output comes out on stdout and stderr byte for byte, and the exit code "
    "becomes\n"
    "this command's.\n"
    "\n"
    "A project:\n"
    "  --project DIR      all files below DIR, but not those in .git and node_modules: text (UTF-8), at most 200 "
    "files\n"
    "                     and 4 MiB together; no symbolic links\n"
    "  --step COMMAND     a shell command run in the project's directory; up to 20, in this order. The first that\n"
    "                     fails is the last that runs. A line on stderr tells each one's exit code and time, before\n"
    "                     its output\n"
    "  --artifact PATH    a file to bring back, relative to the project's directory, also after a failed step; up to\n"
    "                     100. One that is not there is told and is no failure\n"
    "  --out DIR          write the artifacts below DIR, which is made if need be: nothing outside it, and through no\n"
    "                     symbolic link in it. Without this they are only listed\n"
    "\n"
    "Both:\n"
    "  --floor TIER       refuse unless the wall is at least this strong: process, container, kernel, vm.\n"
    "                     A tier is the gateway's evidence, not an attestation\n"
    "  --timeout TIME     budget of the run, such as 500ms, 10s, 2m (default: the backend's; at most 5m)\n"
    "  --backend NAME     this backend and no other (see `plimsoll backends`)\n"
    "  --request-id HEX   32 lowercase hex digits (default: fresh random ones). The gateway runs an ID at most\n"
    "                     once: the same ID with the same code gets the first answer again\n"
    "  --trace-id TEXT    1 to 64 of A-Z a-z 0-9 . _ : - for the gateway's log\n"
    "  --json             one JSON object on stdout, whatever happened: verdict (answered: it ran; refused: nothing\n"
    "                     ran; unknown: it may have run), exit_code, output or steps and artifacts, isolation, record\n"
    "  -v, --verbose      a summary line on stderr\n"
    "  -h, --help         this text\n"
    "\n" CONNECTION_HELP "\n" EXIT_CODES_HELP "\n"
    "Examples:\n"
    "  echo 'console.log(6 * 7)' | plimsoll run -\n"
    "  plimsoll run --floor vm --timeout 30s --json job.js\n"
    "  plimsoll run --project . --step 'tsc --noEmit' --step 'tsx main.ts' --artifact report.json --out results\n";

enum {
    OPT_FLOOR = CONNECTION_OPT_END,
    OPT_TIMEOUT,
    OPT_BACKEND,
    OPT_REQUEST_ID,
    OPT_TRACE_ID,
    OPT_JSON,
    OPT_PROJECT,
    OPT_STEP,
    OPT_ARTIFACT,
    OPT_OUT
};

static const struct option LONG_OPTIONS[] = {
    CONNECTION_LONG_OPTIONS,
    {"floor", required_argument, NULL, OPT_FLOOR},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"request-id", required_argument, NULL, OPT_REQUEST_ID},
    {"trace-id", required_argument, NULL, OPT_TRACE_ID},
    {"json", no_argument, NULL, OPT_JSON},
    {"project", required_argument, NULL, OPT_PROJECT},
    {"step", required_argument, NULL, OPT_STEP},
    {"artifact", required_argument, NULL, OPT_ARTIFACT},
    {"out", required_argument, NULL, OPT_OUT},
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

static const char *take_step(run_options_t *options, const char *value)
{
    size_t len = strlen(value);
    if (options->step_count == STEPS_MAX)
        return "--step is given at most 20 times";
    if (len > STEP_BYTES_MAX)
        return "--step is at most 16384 bytes long";
    if (!utf8_is_valid(value, len))
        return "--step must be valid UTF-8";
    options->steps[options->step_count++] = (char *)value; /* the request's type is not const-correct */
    return NULL;
}

static const char *take_artifact(run_options_t *options, const char *value)
{
    const char *problem = project_path_problem(value);
    if (problem != NULL)
        return problem;
    for (size_t i = 0; i < options->artifact_count; i++)
        if (strcmp(options->artifacts[i], value) == 0)
            return "--artifact names a path twice";
    if (options->artifact_count == ARTIFACTS_MAX)
        return "--artifact is given at most 100 times";
    options->artifacts[options->artifact_count++] = (char *)value;
    return NULL;
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
    case OPT_PROJECT:
        options->project = value;
        return NULL;
    case OPT_STEP:
        return take_step(options, value);
    case OPT_ARTIFACT:
        return take_artifact(options, value);
    case OPT_OUT:
        options->out = value;
        return NULL;
    case 'v':
        options->verbose = true;
        return NULL;
    default:
        options->help = true;
        return NULL;
    }
}

/* What is to run must be one thing, and whole. */
static const char *subject_problem(const run_options_t *options, int files)
{
    if (options->project == NULL && options->step_count + options->artifact_count != 0)
        return "--step and --artifact belong to a --project DIR";
    if (options->project == NULL && options->out != NULL)
        return "--out belongs to a --project DIR";
    if (options->project != NULL && files != 0)
        return "a FILE or a --project DIR, not both";
    if (options->project == NULL && files != 1)
        return files == 0 ? "which FILE? (- reads standard input; --project DIR runs a directory)"
                          : "one FILE at a time";
    if (options->project != NULL && options->step_count == 0)
        return "which --step? Such as --step 'node main.js'";
    if (options->out != NULL && options->artifact_count == 0)
        return "--out needs an --artifact PATH to write";
    return NULL;
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
    if (argc - optind == 1)
        options->file = argv[optind];
    const char *problem = subject_problem(options, argc - optind);
    if (problem != NULL)
        usage_error(argv[0], "%s", problem);
    return problem == NULL;
}
