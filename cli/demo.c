/* `plimsoll demo`: what the gateway promises, shown on one of its own. Each step says what it expects, and the exit
 * status is 0 only if every expectation held. */
#include <inttypes.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/call.h"
#include "cli/command.h"
#include "cli/demo_gateway.h"
#include "cli/demo_show.h"
#include "cli/exit_codes.h"
#include "cli/run_call.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/random.h"

static const char HELP[] =
    "Usage: plimsoll demo [--docker]\n"
    "\n"
    "Starts a gateway of its own (plimsolld beside this command; a free loopback port, a "
    "temporary directory, the wasm\n"
    "backend), shows three things and stops it again:\n"
    "  1. a snippet that computes, and the record that comes with its result\n"
    "  2. a run that asks for a stronger wall than there is: refused, and nothing ran\n"
    "  3. one request ID sent twice: it runs once, and both answers carry the same record\n"
    "\n"
    "  --docker   the walls of a Docker Engine instead: a snippet behind a container and behind "
    "gVisor, a floor that is\n"
    "             refused, a TypeScript project that is type-checked, tested and run, a Python "
    "step. Uses the Engine at\n"
    "             SANDBOX_DOCKER_SOCKET; when none answers it starts one of its own, which takes "
    "root, dockerd and runc\n"
    "             (and runsc for gVisor). Builds the guest images when they are missing. Ends and "
    "removes all it started\n"
    "  -h, --help this text\n"
    "Exit status 0 only when all of it held.\n";

static const char PRIMES[] = "const limit = 1000000;\n"
                             "const composite = new Uint8Array(limit + 1);\n"
                             "let count = 0;\n"
                             "for (let n = 2; n <= limit; n++) {\n"
                             "  if (composite[n]) continue;\n"
                             "  count++;\n"
                             "  for (let m = n * n; m <= limit; m += n) composite[m] = 1;\n"
                             "}\n"
                             "console.log(`primes below ${limit}: ${count}`);\n";
/* The prime counting function at 10^6 (OEIS A006880). */
static const char PRIMES_OUTPUT[] = "primes below 1000000: 78498\n";

/* Runs differ in what they print, so a second run could not pass for the first. */
static const char DRAW[] = "console.log('drawn: ' + Math.random() + ' at ' + Date.now());\n";

static void add_row(demo_t *demo, const char *step, const run_answer_t *answer)
{
    char exit_code[16] = "", took[32] = "", digest[20] = "";
    const Plimsoll__V1__RunResponse *response = answer->response;
    if (response != NULL) {
        snprintf(exit_code, sizeof(exit_code), "%" PRId32, response->javascript->exit_code);
        if (response->duration_ms > 0)
            snprintf(took, sizeof(took), "%" PRId64 " ms", response->duration_ms);
        else
            snprintf(took, sizeof(took), "<1 ms");
        snprintf(digest, sizeof(digest), "%.16s...", response->record->record_sha256);
    }
    const char *cells[] = {step,
                           response != NULL ? (answer->replayed ? "replayed" : "ran") : "refused",
                           response != NULL ? response->sandbox : "",
                           response != NULL ? response->isolation : "",
                           exit_code,
                           took,
                           digest};
    table_add(demo->table, cells);
}

static void say_answer(const run_answer_t *answer)
{
    if (answer->response == NULL) {
        demo_say("code", answer->failure.code);
        demo_say("mark", answer->failure.mark == NULL ? "none: it may have run" : answer->failure.mark);
        demo_say("message", answer->failure.message);
        return;
    }
    const ProtobufCBinaryData *output = &answer->response->javascript->stdout;
    char text[256];
    size_t len = output->len;
    while (len > 0 && output->data[len - 1] == '\n')
        len--;
    terminal_copy(text, sizeof(text), len == 0 ? "" : (const char *)output->data, len);
    demo_say("stdout", text);
    demo_say("record", answer->response->record->record_sha256);
}

static void ask(demo_t *demo, const char *step, const char *code, const char *floor, const char *request_id,
                run_answer_t *answer)
{
    char fresh[REQUEST_ID_HEX + 1];
    random_hex(fresh, REQUEST_ID_HEX / 2);
    run_ask_t run = {.code = code, .code_len = strlen(code), .floor = floor, .trace_id = "", .timeout_ms = 10000};
    run_call(demo->connection, &run, request_id != NULL ? request_id : fresh, answer);
    say_answer(answer);
    add_row(demo, step, answer);
}

static bool printed(const run_answer_t *answer, const char *text)
{
    if (answer->response == NULL)
        return false;
    const ProtobufCBinaryData *output = &answer->response->javascript->stdout;
    return output->len == strlen(text) && memcmp(output->data, text, output->len) == 0;
}

static bool same_answer(const run_answer_t *a, const run_answer_t *b)
{
    if (a->response == NULL || b->response == NULL)
        return false;
    const ProtobufCBinaryData *x = &a->response->javascript->stdout, *y = &b->response->javascript->stdout;
    return strcmp(a->response->record->record_sha256, b->response->record->record_sha256) == 0 && x->len == y->len &&
           x->len > 0 && memcmp(x->data, y->data, x->len) == 0;
}

/* How often the gateway's own list has the request; -1 when it cannot be had. */
static int count_in_list(const demo_t *demo, const char *request_id)
{
    failure_t failure;
    json_t *page = call_get(demo->connection, "/v1/runs?limit=50", &failure), *run;
    if (page == NULL)
        return -1;
    int count = 0;
    size_t i;
    json_array_foreach(json_object_get(page, "runs"), i, run)
    {
        const char *id = json_string_value(json_object_get(run, "request_id"));
        count += id != NULL && strcmp(id, request_id) == 0;
    }
    json_decref(page);
    return count;
}

static void show_snippet(demo_t *demo)
{
    puts("\n1. A snippet that computes: primes by sieve.");
    run_answer_t answer;
    ask(demo, "compute", PRIMES, "", NULL, &answer);
    demo_expect(demo, printed(&answer, PRIMES_OUTPUT),
                "it printed the right count, exit code 0, and its record checks out");
    if (answer.response != NULL && answer.response->javascript->exit_code != 0)
        demo_expect(demo, false, "exit code %" PRId32, answer.response->javascript->exit_code);
    run_answer_dispose(&answer);
}

static void show_floor(demo_t *demo)
{
    puts("\n2. The same snippet with a floor this wall does not meet: at least tier vm.");
    run_answer_t answer;
    ask(demo, "floor vm", PRIMES, "vm", NULL, &answer);
    const failure_t *failure = &answer.failure;
    bool refused = failure->kind == FAILURE_REFUSED && strcmp(failure->code, "failed_precondition") == 0 &&
                   strcmp(failure->mark, "isolation") == 0;
    demo_expect(demo, refused, "refused for its isolation, and the mark says that nothing ran");
    run_answer_dispose(&answer);
}

static void show_once(demo_t *demo)
{
    puts("\n3. One request ID sent twice.");
    char request_id[REQUEST_ID_HEX + 1];
    random_hex(request_id, REQUEST_ID_HEX / 2);
    demo_say("request id", request_id);
    run_answer_t first, second;
    ask(demo, "same ID, first", DRAW, "", request_id, &first);
    ask(demo, "same ID, again", DRAW, "", request_id, &second);
    demo_expect(demo, same_answer(&first, &second), "both answers carry the same output and the same record");
    demo_expect(demo, !first.replayed && second.replayed, "the second is marked as replayed");
    int count = count_in_list(demo, request_id);
    demo_expect(demo, count == 1, "the gateway's list has this request once (%d)", count);
    run_answer_dispose(&first);
    run_answer_dispose(&second);
}

static bool show_all(const connection_t *connection)
{
    static const char *const HEADINGS[] = {"RUN", "VERDICT", "PROVIDER", "ISOLATION", "EXIT", "TOOK", "RECORD DIGEST"};
    demo_t demo = {.connection = connection,
                   .table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0])),
                   .all_held = true};
    void (*const STEPS[])(demo_t *) = {show_snippet, show_floor, show_once};
    for (size_t i = 0; i < sizeof(STEPS) / sizeof(STEPS[0]) && !demo_was_interrupted(); i++) {
        STEPS[i](&demo);
        fflush(stdout);
    }
    putchar('\n');
    table_print(demo.table, stdout);
    table_destroy(demo.table);
    puts("\nThe isolation column is evidence, not attestation: what the gateway has tested of its wall, on its own "
         "word.");
    return demo.all_held && !demo_was_interrupted() && fflush(stdout) == 0;
}

int command_demo(int argc, char **argv)
{
    static const struct option LONG_OPTIONS[] = {
        {"docker", no_argument, NULL, 'd'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    static const char *const ENVIRONMENT[] = {"SANDBOX_PROVIDER=wasm", "PLIMSOLL_DRAIN=10s", NULL};
    /* a cold start takes under a second; the gateway's drain is 10 s */
    static const demo_settings_t SETTINGS = {.environment = ENVIRONMENT, .ready_ms = 60 * 1000, .stop_ms = 20 * 1000};
    bool docker = false;
    int opt;
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", LONG_OPTIONS, NULL)) != -1) {
        if (opt != 'd')
            return opt == 'h' ? print_help(HELP) : usage_hint(argv[0]);
        docker = true;
    }
    if (optind != argc)
        return usage_error(argv[0], "it takes no arguments");
    if (docker)
        return demo_docker();
    demo_gateway_t *gateway = demo_gateway_start(&SETTINGS);
    if (gateway == NULL)
        return CLI_FAILED;
    bool held = show_all(demo_gateway_connection(gateway));
    bool stopped = demo_gateway_stop(gateway);
    fprintf(stderr, "plimsoll demo: the gateway %s\n", stopped ? "stopped cleanly" : "did not stop cleanly");
    if (demo_was_interrupted())
        fputs("plimsoll demo: interrupted\n", stderr);
    else
        puts(held && stopped ? "Everything held." : "Not everything held.");
    return held && stopped ? CLI_OK : CLI_FAILED;
}
