/* `plimsoll demo --docker`: the walls of a Docker Engine beside the embedded one, shown on a gateway of the demo's own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/call.h"
#include "cli/demo_engine.h"
#include "cli/demo_gateway.h"
#include "cli/demo_images.h"
#include "cli/demo_show.h"
#include "cli/exit_codes.h"
#include "cli/project_print.h"
#include "cli/run_call.h"
#include "cli/terminal.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/sha256.h"
#include "records/project_outcome.h"

enum {
    SNIPPET_MS = 20 * 1000,
    PROJECT_MS = 2 * 60 * 1000, /* the compiler takes seconds, and a quarter of a minute on a busy machine */
    FINGERPRINT = 16,           /* hex digits shown of a SHA-256 */
    WALLS_MS = 90 * 1000,       /* from the first proven wall to the last */
    LOOK_MS = 250,
    POOLS_MS = 3000,
};

static const char PRIMES[] = "const limit = 1000000, composite = new Uint8Array(limit + 1);\n"
                             "let count = 0;\n"
                             "for (let n = 2; n <= limit; n++) {\n"
                             "  if (composite[n]) continue;\n"
                             "  count++;\n"
                             "  for (let m = n * n; m <= limit; m += n) composite[m] = 1;\n"
                             "}\n"
                             "console.log(`primes below ${limit}: ${count}`);\n";
/* The prime counting function at 10^6 (OEIS A006880). */
static const char PRIMES_OUTPUT[] = "primes below 1000000: 78498\n";

static const char MEDIAN_TS[] =
    "export function median(values: readonly number[]): number {\n"
    "  if (values.length === 0) throw new RangeError('no values');\n"
    "  const sorted = [...values].sort((a, b) => a - b);\n"
    "  const middle = sorted.length >> 1;\n"
    "  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;\n"
    "}\n";
static const char CHECK_TS[] =
    "import { median } from './median';\n"
    "const cases: [number[], number][] = [[[3], 3], [[1, 2], 1.5], [[9, 1, 5], 5]];\n"
    "for (const [values, wanted] of cases)\n"
    "  if (median(values) !== wanted) throw new Error(`median(${values}) is not ${wanted}`);\n"
    "console.log(`${cases.length} tests passed`);\n";
static const char MAIN_TS[] = "import { median } from './median';\n"
                              "const values = Array.from({ length: 101 }, (_, n) => (n * n) % 101);\n"
                              "console.log(`median ${median(values)}`);\n";
static const char TS_CONFIG[] = "{\"compilerOptions\": {\"strict\": true, \"noEmit\": true, \"target\": \"es2022\", "
                                "\"module\": \"esnext\",\n"
                                " \"moduleResolution\": \"bundler\", \"lib\": [\"es2022\", \"dom\"], \"types\": []}, "
                                "\"files\": [\"check.ts\", \"main.ts\"]}\n";
/* The squares modulo the prime 101 are 0 and the 50 quadratic residues, each twice; the 51st of the 101 sorted values
 * is the 25th residue, 49. */
static const char MAIN_TS_OUTPUT[] = "median 49\n";

static const char SOLVE_PY[] = "import numpy as np\n"
                               "a = np.array([[4.0, 1.0], [1.0, 3.0]])\n"
                               "x = np.linalg.solve(a, np.array([1.0, 2.0]))\n"
                               "print(f'x = {x[0]:.6f}, {x[1]:.6f}')\n";
/* 1/11 and 7/11. */
static const char SOLVE_OUTPUT[] = "x = 0.090909, 0.636364\n";

typedef struct {
    demo_t demo;
    bool has_gvisor;
} show_t;

/* ---- asking ---- */

static const ProtobufCBinaryData *output_of(const run_answer_t *answer)
{
    static const ProtobufCBinaryData none = {0};
    const Plimsoll__V1__RunResponse *r = answer->response;
    if (r == NULL)
        return &none;
    if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT)
        return &r->javascript->stdout;
    return r->project->n_steps != 0 ? &r->project->steps[r->project->n_steps - 1]->stdout : &none;
}

static int32_t exit_of(const Plimsoll__V1__RunResponse *r)
{
    return r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT ? r->javascript->exit_code
                                                                           : project_exit_code(r->project);
}

static void add_row(show_t *show, const char *what, const char *floor, const run_answer_t *answer)
{
    char exit_code[16] = "", took[32] = "", digest[SHA256_HEX + 1] = "";
    const Plimsoll__V1__RunResponse *r = answer->response;
    if (r != NULL) {
        const ProtobufCBinaryData *output = output_of(answer);
        snprintf(exit_code, sizeof(exit_code), "%" PRId32, exit_of(r));
        snprintf(took, sizeof(took), r->duration_ms > 0 ? "%" PRId64 " ms" : "<1 ms", r->duration_ms);
        sha256_hex(output->len != 0 ? (const void *)output->data : "", output->len, digest);
        digest[FINGERPRINT] = '\0';
    }
    const char *cells[] = {what,
                           floor,
                           r != NULL ? "ran" : "refused",
                           r != NULL ? r->sandbox : "",
                           r != NULL ? r->isolation : "",
                           exit_code,
                           took,
                           digest};
    table_add(show->demo.table, cells);
}

static void say_failure(const failure_t *failure)
{
    demo_say("code", failure->code);
    demo_say("mark", failure->mark == NULL ? "none: it may have run" : failure->mark);
    demo_say("message", failure->message);
}

static void say_bytes(const char *name, const ProtobufCBinaryData *bytes)
{
    char text[256];
    size_t len = bytes->len;
    while (len > 0 && bytes->data[len - 1] == '\n')
        len--;
    terminal_copy(text, sizeof(text), len == 0 ? "" : (const char *)bytes->data, len);
    if (len != 0)
        demo_say(name, text);
}

static void say_answer(const run_answer_t *answer)
{
    const Plimsoll__V1__RunResponse *r = answer->response;
    if (r == NULL) {
        say_failure(&answer->failure);
        return;
    }
    if (r->result_case == PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT) {
        say_bytes("stdout", &r->javascript->stdout);
        say_bytes("stderr", &r->javascript->stderr);
        return;
    }
    for (size_t i = 0; i < r->project->n_steps; i++) {
        const Plimsoll__V1__StepResult *step = r->project->steps[i];
        printf("   $ ");
        terminal_print(stdout, step->command);
        printf("   (exit %" PRId32 ", %" PRId64 " ms)\n", step->exit_code, step->duration_ms);
        say_bytes("stdout", &step->stdout);
        say_bytes("stderr", &step->stderr);
    }
    if (strcmp(project_outcome_name(r->project->outcome), "completed") != 0) {
        demo_say("outcome", project_outcome_name(r->project->outcome));
        demo_say("detail", r->project->outcome_detail);
    }
}

static void ask(show_t *show, const char *what, run_ask_t *subject, run_answer_t *answer)
{
    char request_id[REQUEST_ID_HEX + 1];
    random_hex(request_id, REQUEST_ID_HEX / 2);
    subject->trace_id = "";
    run_call(show->demo.connection, subject, request_id, answer);
    say_answer(answer);
    add_row(show, what, subject->floor, answer);
    fflush(stdout);
}

static bool printed(const run_answer_t *answer, const char *text)
{
    const ProtobufCBinaryData *output = output_of(answer);
    return answer->response != NULL && exit_of(answer->response) == 0 && output->len == strlen(text) &&
           memcmp(output->data, text, output->len) == 0;
}

static bool ran_behind(const run_answer_t *answer, const char *backend, const char *tier)
{
    return answer->response != NULL && strcmp(answer->response->sandbox, backend) == 0 &&
           strcmp(answer->response->isolation, tier) == 0;
}

/* ---- what is shown ---- */

static void show_snippet(show_t *show, const char *floor, const char *backend, const char *tier)
{
    run_answer_t answer;
    run_ask_t subject = {.code = PRIMES, .code_len = strlen(PRIMES), .floor = floor, .timeout_ms = SNIPPET_MS};
    ask(show, "snippet", &subject, &answer);
    demo_expect(&show->demo, ran_behind(&answer, backend, tier), "%s took it, and its tier is %s", backend, tier);
    demo_expect(&show->demo, printed(&answer, PRIMES_OUTPUT), "it printed the right count");
    run_answer_dispose(&answer);
}

/* The gateway's order of preference would not choose it. */
static void show_embedded(show_t *show)
{
    const connection_t *all = show->demo.connection;
    connection_t pinned = {.base = connection_url(all, "/backends/wasm"), .token = all->token, .ca_file = all->ca_file};
    show->demo.connection = &pinned;
    show_snippet(show, "", "wasm", "process");
    show->demo.connection = all;
    free(pinned.base);
}

static void show_refused(show_t *show, const char *floor)
{
    run_answer_t answer;
    run_ask_t subject = {.code = PRIMES, .code_len = strlen(PRIMES), .floor = floor, .timeout_ms = SNIPPET_MS};
    ask(show, "snippet", &subject, &answer);
    const failure_t *failure = &answer.failure;
    demo_expect(&show->demo,
                failure->kind == FAILURE_REFUSED && failure->mark != NULL && strcmp(failure->mark, "isolation") == 0,
                "refused for its isolation, and the mark says that nothing ran");
    run_answer_dispose(&answer);
}

static void show_project(show_t *show, const char *what, const Plimsoll__V1__ProjectRun *project, const char *floor,
                         const char *output)
{
    run_answer_t answer;
    run_ask_t subject = {.project = project, .floor = floor, .timeout_ms = PROJECT_MS};
    printf("   behind %s:\n", floor);
    ask(show, what, &subject, &answer);
    demo_expect(&show->demo, printed(&answer, output) && answer.response->project->n_steps == project->n_steps,
                "every step ended with 0, and the last one printed what it should");
    run_answer_dispose(&answer);
}

static Plimsoll__V1__ProjectFile file_of(const char *path, const char *text)
{
    Plimsoll__V1__ProjectFile file = PLIMSOLL__V1__PROJECT_FILE__INIT;
    file.path = (char *)path;
    file.content = (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
    return file;
}

static void show_typescript(show_t *show)
{
    Plimsoll__V1__ProjectFile files[] = {file_of("median.ts", MEDIAN_TS), file_of("check.ts", CHECK_TS),
                                         file_of("main.ts", MAIN_TS), file_of("tsconfig.json", TS_CONFIG)};
    Plimsoll__V1__ProjectFile *list[] = {&files[0], &files[1], &files[2], &files[3]};
    char *steps[] = {(char *)"tsc", (char *)"tsx check.ts", (char *)"tsx main.ts"};
    Plimsoll__V1__ProjectRun project = PLIMSOLL__V1__PROJECT_RUN__INIT;
    project.files = list;
    project.n_files = sizeof(list) / sizeof(list[0]);
    project.steps = steps;
    project.n_steps = sizeof(steps) / sizeof(steps[0]);
    show_project(show, "TypeScript", &project, "container", MAIN_TS_OUTPUT);
    if (show->has_gvisor && !demo_was_interrupted())
        show_project(show, "TypeScript", &project, "kernel", MAIN_TS_OUTPUT);
}

static void show_python(show_t *show)
{
    Plimsoll__V1__ProjectFile file = file_of("solve.py", SOLVE_PY), *list[] = {&file};
    char *steps[] = {(char *)"python3 solve.py"};
    Plimsoll__V1__ProjectRun project = PLIMSOLL__V1__PROJECT_RUN__INIT;
    project.files = list;
    project.n_files = 1;
    project.steps = steps;
    project.n_steps = 1;
    show_project(show, "Python", &project, "container", SOLVE_OUTPUT);
    if (show->has_gvisor && !demo_was_interrupted())
        show_project(show, "Python", &project, "kernel", SOLVE_OUTPUT);
}

static void show_1(show_t *show)
{
    puts("\n1. A snippet (primes by sieve) that asks for a container at least.");
    show_snippet(show, "container", "docker", "container");
}

static void show_2(show_t *show)
{
    puts("\n2. The same, asking for tier kernel: only gVisor will do.");
    if (show->has_gvisor)
        show_snippet(show, "kernel", "gvisor", "kernel");
    else
        show_refused(show, "kernel");
}

static void show_3(show_t *show)
{
    puts("\n3. The same, asking for tier vm: no wall here is that strong.");
    show_refused(show, "vm");
}

static void show_4(show_t *show)
{
    puts("\n4. The same in the embedded wall, by name, for comparison.");
    show_embedded(show);
}

static void show_5(show_t *show)
{
    puts("\n5. A TypeScript project: type-checked, tested, run.");
    show_typescript(show);
}

static void show_6(show_t *show)
{
    puts("\n6. A Python step: a linear system with NumPy.");
    show_python(show);
}

static bool show_all(const connection_t *connection, bool has_gvisor)
{
    static const char *const HEADINGS[] = {"RUN",  "FLOOR", "VERDICT", "BACKEND",
                                           "TIER", "EXIT",  "TOOK",    "OUTPUT SHA-256"};
    show_t show = {.demo = {.connection = connection,
                            .table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0])),
                            .all_held = true},
                   .has_gvisor = has_gvisor};
    void (*const STEPS[])(show_t *) = {show_1, show_2, show_3, show_4, show_5, show_6};
    for (size_t i = 0; i < sizeof(STEPS) / sizeof(STEPS[0]) && !demo_was_interrupted(); i++) {
        STEPS[i](&show);
        fflush(stdout);
    }
    putchar('\n');
    table_print(show.demo.table, stdout);
    table_destroy(show.demo.table);
    puts("\nSame run, same fingerprint, whichever the wall. The tier is evidence, not attestation.");
    return show.demo.all_held && !demo_was_interrupted() && fflush(stdout) == 0;
}

/* ---- its gateway ---- */

/* Whether the backend serves, and with the evidence its wall is known for: what can be seen less of is less. */
static bool is_proven(const json_t *backend)
{
    static const char *const tiers[][2] = {{"docker", "container"}, {"gvisor", "kernel"}, {"wasm", "process"}};
    const char *name = json_string_value(json_object_get(backend, "name"));
    const char *state = json_string_value(json_object_get(backend, "state"));
    const char *tier = json_string_value(json_object_get(backend, "isolation"));
    for (size_t i = 0; i < sizeof(tiers) / sizeof(tiers[0]); i++)
        if (name != NULL && state != NULL && tier != NULL && strcmp(name, tiers[i][0]) == 0)
            return strcmp(state, "ready") == 0 && strcmp(tier, tiers[i][1]) == 0;
    return false;
}

/* How many of its backends are not proven; the first one's name. -1 when the list cannot be had. */
static int count_unproven(const connection_t *connection, char name[64])
{
    failure_t failure;
    int count = 0;
    size_t i;
    json_t *page = call_get(connection, "/v1/backends", &failure), *backend;
    if (page == NULL)
        return -1;
    json_array_foreach(json_object_get(page, "backends"), i, backend)
    {
        const char *is = json_string_value(json_object_get(backend, "name"));
        if (is_proven(backend))
            continue;
        if (count++ == 0)
            snprintf(name, 64, "%s", is != NULL ? is : "");
    }
    json_decref(page);
    return count;
}

/* A gateway serves as soon as one wall is proven; the others go on trying. */
static bool wait_for_walls(const demo_gateway_t *gateway)
{
    uint64_t begun = clock_mono_ms(), told = begun;
    char name[64] = "";
    while (count_unproven(demo_gateway_connection(gateway), name) != 0) {
        if (demo_was_interrupted())
            return false;
        if (clock_mono_ms() - begun >= WALLS_MS) {
            fprintf(stderr, "plimsoll demo: the backend %s could not prove its wall within %d s\n", name,
                    WALLS_MS / 1000);
            demo_gateway_show_log(gateway);
            return false;
        }
        if (clock_mono_ms() - told >= DEMO_PROGRESS_MS) {
            told = clock_mono_ms();
            fprintf(stderr, "plimsoll demo: waiting for the backend %s to prove its wall, %.0f s so far\n", name,
                    (double)(told - begun) / 1000);
        }
        demo_sleep_ms(LOOK_MS);
    }
    return true;
}

/* Sandboxes are started ahead of the runs; the first runs are not to meet an empty stock. */
static bool wait_for_pools(void)
{
    fputs("plimsoll demo: a moment for the sandboxes that are started ahead\n", stderr);
    for (unsigned ms = 0; ms < POOLS_MS && !demo_was_interrupted(); ms += LOOK_MS)
        demo_sleep_ms(LOOK_MS);
    return !demo_was_interrupted();
}

static bool show_on_gateway(const demo_engine_t *engine)
{
    bool has_gvisor = demo_engine_has_gvisor(engine);
    char socket[160];
    snprintf(socket, sizeof(socket), "SANDBOX_DOCKER_SOCKET=%s", demo_engine_socket(engine));
    const char *environment[] = {has_gvisor ? "SANDBOX_PROVIDER=docker,gvisor,wasm" : "SANDBOX_PROVIDER=docker,wasm",
                                 socket,
                                 "SANDBOX_DOCKER_IMAGE=" DEMO_SNIPPET_IMAGE,
                                 "SANDBOX_DOCKER_PROJECT_IMAGE=" DEMO_PROJECT_IMAGE,
                                 "SANDBOX_MEMORY_MB=512", /* the TypeScript compiler is slow in less */
                                 "SANDBOX_DOCKER_POOL=1",
                                 "PLIMSOLL_PROOF_INTERVAL=20s",
                                 "PLIMSOLL_DRAIN=2s", /* nothing is in flight at the end but what was interrupted */
                                 geteuid() == 0 ? "SANDBOX_GVISOR_EVIDENCE=observed"
                                                : "SANDBOX_GVISOR_EVIDENCE=registered",
                                 NULL};
    /* both walls try themselves, some 20 s each on a busy machine; what is in its pools is removed at the end */
    demo_settings_t settings = {.environment = environment, .ready_ms = 150 * 1000, .stop_ms = 60 * 1000};
    if (!has_gvisor)
        fputs("plimsoll demo: the Engine has no runtime runsc, so tier kernel cannot be shown; "
              "backends/docker/install-gvisor registers it\n",
              stderr);
    else if (geteuid() != 0)
        fputs("plimsoll demo: without root the sandboxes' own processes cannot be looked at: tier kernel is on the "
              "Engine's "
              "word (SANDBOX_GVISOR_EVIDENCE=registered)\n",
              stderr);
    fputs("plimsoll demo: each wall is tried from inside before anything is served\n", stderr);
    demo_gateway_t *gateway = demo_gateway_start(&settings);
    bool proven = gateway != NULL && wait_for_walls(gateway);
    if (!proven && !demo_was_interrupted())
        fputs("plimsoll demo: if its log speaks of the images, build them anew: `make images`\n", stderr);
    if (gateway == NULL)
        return false;
    bool held = proven && wait_for_pools() && show_all(demo_gateway_connection(gateway), has_gvisor);
    bool stopped = demo_gateway_stop(gateway);
    fprintf(stderr, "plimsoll demo: the gateway %s\n", stopped ? "stopped cleanly" : "did not stop cleanly");
    return held && stopped;
}

int demo_docker(void)
{
    demo_catch_signals();
    demo_engine_t *engine = demo_engine_start();
    if (engine == NULL)
        return CLI_FAILED;
    bool held = demo_images_get(engine) && show_on_gateway(engine);
    bool ended = demo_engine_stop(engine);
    if (demo_was_interrupted())
        fputs("plimsoll demo: interrupted\n", stderr);
    else
        puts(held && ended ? "Everything held." : "Not everything held.");
    return held && ended ? CLI_OK : CLI_FAILED;
}
