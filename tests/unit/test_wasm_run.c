/* The real template through the same path a run takes: spec wasm section 6.8, and the user reports U05, U09, U11, U13,
 * U24. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/unit/wasm_harness.h"

#include "backends/wasm/proof.h"
#include "backends/wasm/wasm.h"
#include "core/fault.h"

enum { PAGES = 4096, SMALL_PAGES = 512, CAPACITY = 8 };

static wasm_workers_t *workers, *small;
static unsigned ups, small_ups;

static int set_up(void **state)
{
    (void)state;
    random_init();
    link_template();
    harness_loop = loop_create();
    workers = wasm_workers_create(harness_loop, wasm_process_open(), PAGES, CAPACITY, harness_on_up, &ups);
    small = wasm_workers_create(harness_loop, wasm_process_open(), SMALL_PAGES, CAPACITY, harness_on_up, &small_ups);
    wasm_workers_start(workers);
    wasm_workers_start(small);
    spin_until(is_up, workers);
    spin_until(is_up, small);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wasm_workers_destroy(workers);
    wasm_workers_destroy(small);
    loop_destroy(harness_loop);
    return 0;
}

static void expect(const char *code, int exit_code, const char *out)
{
    exchange_t x = exchange(workers, code, 5000);
    assert_int_equal(x.result.verdict, WASM_RAN);
    if (out != NULL)
        assert_text(x.result.out, out);
    assert_int_equal(x.result.exit_code, exit_code);
    assert_false(x.result.is_timed_out);
    if (exit_code == 0)
        assert_int_equal(x.result.err.len, 0);
    exchange_dispose(&x);
}

static void expect_error(const char *code, const char *err)
{
    exchange_t x = exchange(workers, code, 5000);
    assert_int_equal(x.result.verdict, WASM_RAN);
    assert_int_equal(x.result.exit_code, WASM_EXIT_EXCEPTION);
    assert_true(has_text(&x.result.err, err));
    exchange_dispose(&x);
}

static void test_first_snippet(void **state)
{
    (void)state;
    expect("console.log(\"wasm\", 6 * 7)", 0, "wasm 42\n");
}

static void test_exceptions_are_results(void **state)
{
    (void)state;
    expect_error("throw new Error(\"boom\")", "Error: boom\n    at <eval> (<cmdline>:2:");
    expect_error("throw {toString() { return \"custom\" }}", "custom\n");
    expect_error("throw {toString() { throw 1 }}", "exception without a text\n");
    expect_error("this is no script", "SyntaxError: ");
    expect_error("\"use strict\"; undeclared = 1", "ReferenceError: undeclared is not defined\n");
    expect_error("queueMicrotask(() => { throw new TypeError(\"late\") })", "TypeError: late\n");
}

static void test_globals(void **state)
{
    (void)state;
    expect("console.log(typeof fetch, typeof require, typeof process, typeof std, typeof os, typeof setTimeout, typeof "
           "scriptArgs)",
           0, "undefined undefined undefined undefined undefined undefined undefined\n");
    expect("console.log(typeof print, typeof performance, typeof queueMicrotask, typeof btoa, typeof "
           "__coderunner_host_call)",
           0, "function object function function function\n");
    expect("console.log(JSON.stringify(execArgv))", 0, "[\"qjs\",\"-e\",\"console.log(JSON.stringify(execArgv))\"]\n");
    expect("console.log(Object.keys(globalThis).join())", 0, "performance,execArgv\n");
    expect("import(\"os\").then(() => console.log(\"loaded\"), () => console.log(\"no module\"))", 0, "no module\n");
}

static void test_console_methods(void **state)
{
    (void)state;
    expect("for (const m of [\"log\", \"error\", \"warn\", \"info\", \"debug\", \"trace\"]) console[m](m, 1)", 0,
           "log 1\nerror 1\nwarn 1\ninfo 1\ndebug 1\ntrace 1\n");
    expect("console.log(); console.log(\"a\", [1, 2], {}, null, undefined, 1n); print(\"b\")", 0,
           "\na 1,2 [object Object] null undefined 1\nb\n");
    expect("console.log({toString() { throw 1 }}, \"on\")", 0, "[object Object] on\n");
    expect_error("console.log(Symbol())", "TypeError: ");
}

static void test_number_formats(void **state)
{
    (void)state;
    expect(
        "const usd = {style: \"currency\", currency: \"USD\"};"
        "console.log((95000).toLocaleString());"
        "console.log(new Intl.NumberFormat(\"en-US\", usd).format(95000));"
        "console.log((-1234567.5).toLocaleString(\"en-US\", usd));"
        "console.log((1000).toLocaleString(undefined, {style: \"currency\", currency: \"EUR\"}));"
        "console.log((12).toLocaleString(\"de\", {style: \"currency\", currency: \"CHF\"}));"
        "console.log(NaN.toLocaleString(), (-Infinity).toLocaleString(), (0.5).toLocaleString(), "
        "(1.23456).toLocaleString());"
        "console.log((1.5).toLocaleString(\"en\", {minimumFractionDigits: 3}), (2.5).toLocaleString(\"en\", "
        "{maximumFractionDigits: 0}));"
        "console.log((5).toLocaleString(\"en\", {style: \"currency\", currency: \"JPY\", maximumFractionDigits: 0}));"
        "console.log(Intl.NumberFormat(\"x\", usd).resolvedOptions().locale, Intl.NumberFormat(\"x\", "
        "usd).resolvedOptions().currency)",
        0,
        "95,000\n$95,000.00\n-$1,234,567.50\n€1,000.00\nCHF 12.00\nNaN -Infinity 0.5 1.235\n1.500 3\n¥5\nen-US USD\n");
}

static void test_promise_jobs(void **state)
{
    (void)state;
    expect("Promise.resolve(1).then(v => console.log(v)).then(() => console.log(2)); console.log(0)", 0, "0\n1\n2\n");
    expect("(async () => { for (let i = 0; i < 3; i++) { await null; console.log(i) } })()", 0, "0\n1\n2\n");
    expect("const p = Promise.reject(new Error(\"x\")); queueMicrotask(() => p.catch(() => console.log(\"handled\")))",
           0, "handled\n");
    expect_error("console.log(1); Promise.reject(new TypeError(\"nobody\"))", "TypeError: nobody\n");
    expect("for (let i = 0; i < 70000; i++) Promise.reject(i).catch(() => {}); console.log(\"many\")", 0, "many\n");
}

static void test_recursion_is_a_result(void **state)
{
    (void)state;
    expect_error("function f(n) { return n ? 1 + f(n - 1) : 0 } console.log(f(200000))", "RangeError: ");
    expect_error("JSON.parse(\"[\".repeat(200000))", "Error: ");
    expect_error("eval(\"(\".repeat(200000))", "Error: ");
    expect_error("new RegExp(\"(\".repeat(100000) + \")\".repeat(100000))", "Error: ");
    expect_error("let a = []; for (let i = 0; i < 200000; i++) a = [a]; String(a)", "Error: ");
    expect_error("let s = {toString() { return `${s}` }}; `${s}`", "RangeError: ");
}

static void test_memory_pair(void **state)
{
    (void)state;
    static const char code[] =
        "const kept = []; for (let i = 0; i < 128; i++) kept.push(new Uint8Array(1 << 20).fill(1));"
        "console.log(kept.length)";
    exchange_t x = exchange(workers, code, 5000), y = exchange(small, code, 5000);
    assert_int_equal(x.result.exit_code, 0);
    assert_text(x.result.out, "128\n");
    assert_int_equal(y.result.verdict, WASM_RAN);
    assert_int_equal(y.result.exit_code, WASM_EXIT_EXCEPTION);
    assert_int_equal(y.result.out.len, 0);
    assert_true(has_text(&y.result.err, "out of memory"));
    exchange_dispose(&x);
    exchange_dispose(&y);
}

/* Whatever the guest does, the answer comes between the deadline and the deadline and 400 ms (U05). */
static void expect_deadline(const char *code, uint32_t timeout_ms, const char *out)
{
    exchange_t x = exchange(workers, code, timeout_ms);
    assert_int_equal(x.result.verdict, WASM_RAN);
    assert_int_equal(x.result.exit_code, WASM_EXIT_DEADLINE);
    assert_true(x.result.is_timed_out);
    assert_in_range(x.took_us, timeout_ms * 1000, (timeout_ms + 400) * 1000);
    assert_text(x.result.out, out);
    assert_false(x.result.is_out_truncated);
    assert_int_equal(x.result.err.len, 0);
    exchange_dispose(&x);
}

static void test_deadline(void **state)
{
    (void)state;
    expect_deadline("for (;;);", 1000, "");
    expect_deadline("console.log(\"A\"); print(\"B\"); while (1);", 300, "A\nB\n"); /* U09 */
    expect_deadline(
        "console.log(\"A\"); const d = Date.now(); while (Date.now() - d < 100); console.log(\"B\"); while (1);", 300,
        "A\nB\n");
    expect_deadline("function f() { Promise.resolve().then(f) } f()", 300, "");
    expect_deadline("try { for (;;); } catch { console.log(\"caught\") } finally { console.log(\"finally\") }", 300,
                    "");
    expect_deadline("throw {toString() { for (;;); }}", 300, "");
    expect_deadline("/(a+)+$/.test(\"a\".repeat(40) + \"b\")", 300, "");
}

/* One native call of the engine that runs for seconds and never asks for the time: the worker's alarm ends it, its
 * output kept. */
static void test_deadline_in_native_code(void **state)
{
    (void)state;
    expect_deadline("console.log(\"A\"); const b = 3n ** 150000n; for (;;) b * b * b * b", 300, "A\n");
    expect_deadline("console.log(\"A\"); for (;;) new Uint8Array(1e8).sort().indexOf(1)", 300, "A\n");
}

typedef struct {
    wasm_workers_t *workers;
    wasm_probe_t what;
    uint32_t timeout_ms;
    wasm_result_t result;
    uint64_t took_us;
} probe_t;

static void probe_main(void *arg)
{
    probe_t *p = arg;
    uint64_t started_us = clock_mono_us();
    wasm_probe(p->workers, p->what, started_us + (uint64_t)p->timeout_ms * 1000, &p->result);
    p->took_us = clock_mono_us() - started_us;
}

static void test_second_layer_kills_a_deaf_worker(void **state)
{
    (void)state;
    probe_t p = {.workers = workers, .what = WASM_PROBE_HANG, .timeout_ms = 300};
    in_coroutine(probe_main, &p);
    assert_int_equal(p.result.verdict, WASM_RAN);
    assert_int_equal(p.result.exit_code, WASM_EXIT_DEADLINE);
    assert_true(p.result.is_timed_out);
    assert_in_range(p.took_us, 400 * 1000, 700 * 1000);
    assert_text(p.result.out, "still here\n");
    wasm_result_dispose(&p.result);
}

static void test_forbidden_calls_end_the_worker(void **state)
{
    (void)state;
    for (wasm_probe_t what = WASM_PROBE_OPEN; what <= WASM_PROBE_LAST; ++what) {
        probe_t p = {.workers = workers, .what = what, .timeout_ms = 2000};
        in_coroutine(probe_main, &p);
        assert_int_equal(p.result.verdict, WASM_RAN);
        assert_false(p.result.has_survived);
        assert_true(WIFSIGNALED(p.result.status));
        assert_int_equal(WTERMSIG(p.result.status), SIGSYS);
        assert_int_equal(p.result.exit_code, WASM_EXIT_TRAP);
        assert_true(has_text(&p.result.err, "guest aborted: wasm error: "));
        wasm_result_dispose(&p.result);
    }
}

static void test_trap(void **state)
{
    (void)state;
    probe_t p = {.workers = workers, .what = WASM_PROBE_TRAP, .timeout_ms = 2000};
    in_coroutine(probe_main, &p);
    assert_int_equal(p.result.verdict, WASM_RAN);
    assert_int_equal(p.result.exit_code, WASM_EXIT_TRAP);
    assert_text(p.result.err, "guest aborted: wasm error: Unreachable instruction executed\n");
    wasm_result_dispose(&p.result);
}

static void test_memory_cap_holds_natively(void **state)
{
    (void)state;
    probe_t p = {.workers = small, .what = WASM_PROBE_GROW, .timeout_ms = 2000};
    in_coroutine(probe_main, &p);
    assert_int_equal(p.result.verdict, WASM_RAN);
    assert_false(p.result.has_survived);
    assert_int_equal(p.result.exit_code, 0);
    wasm_result_dispose(&p.result);
}

typedef struct {
    wasm_workers_t *workers;
    uint32_t pages;
    wasm_proof_t outcome;
    char failure[BACKEND_TEXT_MAX];
} proof_run_t;

static void proof_main(void *arg)
{
    proof_run_t *p = arg;
    p->outcome = wasm_prove(p->workers, p->pages, p->failure);
}

static void test_proof(void **state)
{
    (void)state;
    proof_run_t right = {.workers = workers, .pages = PAGES}, wrong = {.workers = workers, .pages = SMALL_PAGES};
    in_coroutine(proof_main, &right);
    assert_string_equal(right.failure, "");
    assert_int_equal(right.outcome, WASM_PROOF_HOLDS);
    /* The proof can fail: a template with a larger cap than was asked for does not pass. */
    in_coroutine(proof_main, &wrong);
    assert_int_equal(wrong.outcome, WASM_PROOF_BROKEN);
    assert_non_null(strstr(wrong.failure, "memory beyond the cap was given"));
}

static void test_randomness_differs(void **state)
{
    (void)state;
    enum { COUNT = 20 };
    char seen[COUNT][64];
    for (size_t i = 0; i < COUNT; ++i) {
        exchange_t x = exchange(workers, "console.log(Math.random())", 5000);
        assert_int_equal(x.result.exit_code, 0);
        assert_in_range(x.result.out.len, 3, sizeof(seen[0]) - 1);
        snprintf(seen[i], sizeof(seen[i]), "%s", (const char *)x.result.out.base);
        exchange_dispose(&x);
        for (size_t j = 0; j < i; ++j)
            assert_string_not_equal(seen[i], seen[j]);
    }
}

/* Their keys are hashed with a word that each worker is given after the context was made. */
static void test_collections_find_their_keys(void **state)
{
    (void)state;
    expect("const keys = [0, -0, NaN, 1.5, 2n ** 70n, 'a', 'a'.repeat(999), Symbol.iterator, null, undefined, true, "
           "{}, [], () => 1];"
           "const map = new Map(keys.map((k, i) => [k, i])), set = new Set(keys), weak = new "
           "WeakMap(keys.slice(11).map((k) => [k, 1]));"
           "for (let i = 0; i < 5000; ++i) map.set('k' + i, i);"
           "console.log(map.size, set.size, keys.every((k) => map.has(k) && set.has(k)), keys.slice(11).every((k) => "
           "weak.has(k)),"
           " map.get('k4999'), map.delete('k17'), map.has('k17'))",
           0, "5013 13 true true 4999 true false\n");
}

static void test_runs_share_nothing(void **state)
{
    (void)state;
    expect("globalThis.left = 1; Array.prototype.left = 1; console.log(\"set\")", 0, "set\n");
    for (int i = 0; i < CAPACITY + 2; ++i)
        expect("console.log(typeof left, [].left)", 0, "undefined undefined\n");
}

static void test_clocks(void **state)
{
    (void)state;
    /* A worker that waited idle starts counting at its run. */
    usleep(50 * 1000);
    expect("console.log(performance.now() < 20, Date.now() > 1.7e12, new Date().getTimezoneOffset())", 0,
           "true true 0\n");
}

static void expect_cut(const char *code, size_t kept, bool is_cut)
{
    exchange_t x = exchange(workers, code, 5000);
    assert_int_equal(x.result.verdict, WASM_RAN);
    assert_int_equal(x.result.exit_code, 0);
    assert_int_equal(x.result.out.len, kept);
    assert_int_equal(x.result.is_out_truncated, is_cut);
    for (size_t i = 0; i + 1 < kept; ++i)
        assert_int_equal(x.result.out.base[i], 'x');
    exchange_dispose(&x);
}

/* U13: limit - 1, limit, limit + 1 and far past it; the newline counts. */
static void test_output_limit(void **state)
{
    (void)state;
    expect_cut("console.log(\"x\".repeat(65534))", 65535, false);
    expect_cut("console.log(\"x\".repeat(65535))", 65536, false);
    expect_cut("console.log(\"x\".repeat(65536))", 65536, true);
    expect_cut("console.log(\"x\".repeat(65537))", 65536, true);
    expect_cut("console.log(\"x\".repeat(50000000))", 65536, true);
    exchange_t x = exchange(workers, "for (let i = 0; i < 300000; i++) console.log(\"flood\", i)", 5000);
    assert_int_equal(x.result.exit_code, 0);
    assert_int_equal(x.result.out.len, 65536);
    assert_true(x.result.is_out_truncated);
    exchange_dispose(&x);
    x = exchange(workers, "throw \"y\".repeat(100000)", 5000);
    assert_int_equal(x.result.exit_code, 1);
    assert_int_equal(x.result.err.len, 65536);
    assert_true(x.result.is_err_truncated);
    assert_false(x.result.is_out_truncated);
    exchange_dispose(&x);
}

/* U11: characters are never broken or replaced, whatever frame they fall into. */
static void test_unicode(void **state)
{
    (void)state;
    enum { CUPS = 21845 }; /* three bytes each: 65,535 */
    exchange_t x =
        exchange(workers, "let s = \"\"; for (let i = 0; i < 21845; i++) s += \"\\u2615\"; console.log(s)", 5000);
    assert_int_equal(x.result.out.len, CUPS * 3 + 1);
    for (size_t i = 0; i < CUPS; ++i)
        assert_memory_equal(x.result.out.base + 3 * i, "\xe2\x98\x95", 3);
    assert_false(x.result.is_out_truncated);
    exchange_dispose(&x);
    static const char odd[] = "\0|\xed\xa0\x80|\xf0\x9f\x98\x80\n";
    x = exchange(workers, "console.log(\"\\0|\\ud800|\\ud83d\\ude00\")", 5000);
    assert_bytes(x.result.out, odd, sizeof(odd) - 1);
    exchange_dispose(&x);
}

static void test_largest_code(void **state)
{
    (void)state;
    char *code = malloc(WASM_CODE_MAX + 1);
    memset(code, ' ', WASM_CODE_MAX);
    memcpy(code, "console.log(execArgv[2].length)", 31);
    code[WASM_CODE_MAX] = '\0';
    expect(code, 0, "262144\n");
    free(code);
}

static void test_host_call_is_refused(void **state)
{
    (void)state;
    expect("const r = __coderunner_host_call(\"{}\"); console.log(r.status, r.body)", 0,
           "403 no host api is granted to this run\n");
    expect("for (const f of [() => __coderunner_host_call(), () => __coderunner_host_call(\"x\".repeat(1114113))])"
           "  try { f() } catch (e) { console.log(e.name) }"
           "console.log(__coderunner_host_call(\"\").status, __coderunner_host_call(\"x\".repeat(1114112)).status)",
           0, "TypeError\nRangeError\n413 403\n");
    expect("let n = {}; for (let i = 0; i < 300; i++) { const s = __coderunner_host_call(\"{}\").status; n[s] = (n[s] "
           "?? 0) + 1 }"
           "console.log(JSON.stringify(n))",
           0, "{\"403\":256,\"429\":44}\n");
}

/* Nothing a script can print or call reaches the wire but as the body of an output frame. */
static void test_frames_cannot_be_forged(void **state)
{
    (void)state;
    static const char forged[] = "\x05\x04\0\0\0\x07\0\0\0\x02\x01\0\0\0!\n";
    exchange_t x = exchange(workers, "console.log(\"\\x05\\x04\\0\\0\\0\\x07\\0\\0\\0\\x02\\x01\\0\\0\\0!\")", 5000);
    assert_int_equal(x.result.verdict, WASM_RAN);
    assert_int_equal(x.result.exit_code, 0);
    assert_bytes(x.result.out, forged, sizeof(forged) - 1);
    assert_int_equal(x.result.err.len, 0);
    exchange_dispose(&x);
}

/* --- cancel, loss of the template --- */

typedef struct {
    exchange_t x;
    co_t *co;
    bool ended;
} long_run_t;

static void long_run_end(void *arg)
{
    ((long_run_t *)arg)->ended = true;
}

static bool has_ended(void *arg)
{
    return ((long_run_t *)arg)->ended;
}

static bool is_ever(void *arg)
{
    return clock_mono_ms() >= *(uint64_t *)arg;
}

static void turn_for(uint64_t ms)
{
    uint64_t until_ms = clock_mono_ms() + ms;
    spin_until(is_ever, &until_ms);
}

static void long_run_start(long_run_t *r, const char *code)
{
    r->x = (exchange_t){.workers = workers, .code = code, .len = strlen(code), .timeout_ms = 10000};
    r->co = co_start(harness_loop, exchange_main, &r->x, long_run_end);
}

static void test_cancel(void **state)
{
    (void)state;
    long_run_t r = {.ended = false};
    long_run_start(&r, "console.log(\"before\"); const d = Date.now(); while (Date.now() - d < 30); "
                       "console.log(\"after\"); for (;;);");
    turn_for(200);
    assert_false(r.ended);
    uint64_t asked_us = clock_mono_us();
    co_cancel(r.co);
    spin_until(has_ended, &r);
    assert_true(clock_mono_us() - asked_us < 1000 * 1000); /* U24: within a second */
    assert_int_equal(r.x.result.verdict, WASM_RAN);
    assert_true(r.x.result.is_canceled);
    assert_false(r.x.result.is_timed_out);
    assert_int_equal(r.x.result.exit_code, WASM_EXIT_CANCELED);
    assert_true(has_text(&r.x.result.out, "before\n"));
    exchange_dispose(&r.x);
}

static void test_template_killed_in_a_run(void **state)
{
    (void)state;
    long_run_t r = {.ended = false};
    unsigned ups_before = ups;
    long_run_start(&r, "for (;;);");
    turn_for(50);
    assert_int_equal(kill(wasm_process_pid(wasm_workers_process(workers)), SIGKILL), 0);
    spin_until(has_ended, &r);
    assert_int_equal(r.x.result.verdict, WASM_UNKNOWN);
    assert_string_equal(r.x.result.reason, "the template died");
    exchange_dispose(&r.x);
    spin_until(is_up, workers);
    assert_int_equal(ups, ups_before + 1);
    expect("console.log(\"again\")", 0, "again\n");
}

static void test_template_down_is_a_refusal(void **state)
{
    (void)state;
    kill(wasm_process_pid(wasm_workers_process(workers)), SIGKILL);
    while (is_up(workers))
        loop_run_once(harness_loop, 5);
    exchange_t x = exchange(workers, "1", 1000);
    assert_int_equal(x.result.verdict, WASM_NOT_RUN);
    exchange_dispose(&x);
    spin_until(is_up, workers);
}

/* U10: silence is no reason to end a run. */
static void test_quiet_run_is_not_cut(void **state)
{
    (void)state;
    expect("const d = Date.now(); while (Date.now() - d < 1500); console.log(\"done\")", 0, "done\n");
}

#ifdef PLIMSOLL_FAULTS
/* Each step has its point; before the code is handed over nothing can have run, after it nobody knows. */
static void test_fault_points(void **state)
{
    static const struct {
        const char *point;
        wasm_verdict_t verdict;
    } cases[] = {{"backend.create", WASM_NOT_RUN},
                 {"backend.stage", WASM_NOT_RUN},
                 {"backend.execute", WASM_UNKNOWN},
                 {"backend.collect", WASM_UNKNOWN},
                 {"backend.delete", WASM_RAN}};
    char dir[] = "/tmp/plimsoll-faults-XXXXXX", path[128], hit[160];
    (void)state;
    assert_non_null(mkdtemp(dir));
    fault_init(dir);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        snprintf(path, sizeof(path), "%s/%s", dir, cases[i].point);
        snprintf(hit, sizeof(hit), "%s.hit", path);
        FILE *f = fopen(path, "w");
        fputs("once fail", f);
        fclose(f);
        backend_run_t run = {.run_id = "0", ._step_us = clock_mono_us()};
        exchange_t x = {.workers = workers, .code = "1", .len = 1, .timeout_ms = 2000, .run = &run};
        in_coroutine(exchange_main, &x);
        assert_int_equal(unlink(hit), 0);
        assert_int_equal(x.result.verdict, cases[i].verdict);
        assert_string_equal(backend_step_name(run.ended_in), strcmp(cases[i].point, "backend.delete") == 0
                                                                 ? "collect"
                                                                 : cases[i].point + strlen("backend."));
        exchange_dispose(&x);
    }
    fault_init(NULL);
    rmdir(dir);
    expect("console.log(1)", 0, "1\n");
}
#endif

static bool is_refilled(void *arg)
{
    return wasm_workers_idle(arg) == CAPACITY && wasm_workers_count(arg) == CAPACITY;
}

static void test_idle_workers_are_bounded_and_refilled(void **state)
{
    (void)state;
    spin_until(is_refilled, workers);
    for (int i = 0; i < 3 * CAPACITY; ++i)
        expect("1", 0, "");
    spin_until(is_refilled, workers);
}

static void test_many_at_once(void **state)
{
    (void)state;
    enum { RUNS = 2 * CAPACITY };
    long_run_t *runs = calloc(RUNS, sizeof(*runs));
    for (int i = 0; i < RUNS; ++i)
        long_run_start(&runs[i], "let s = 0; for (let i = 0; i < 1e5; i++) s += i; console.log(s)");
    for (int i = 0; i < RUNS; ++i) {
        spin_until(has_ended, &runs[i]);
        assert_int_equal(runs[i].x.result.verdict, WASM_RAN);
        assert_text(runs[i].x.result.out, "4999950000\n");
        exchange_dispose(&runs[i].x);
    }
    free(runs);
    spin_until(is_refilled, workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_snippet),
        cmocka_unit_test(test_exceptions_are_results),
        cmocka_unit_test(test_globals),
        cmocka_unit_test(test_console_methods),
        cmocka_unit_test(test_number_formats),
        cmocka_unit_test(test_promise_jobs),
        cmocka_unit_test(test_recursion_is_a_result),
        cmocka_unit_test(test_memory_pair),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_deadline_in_native_code),
        cmocka_unit_test(test_second_layer_kills_a_deaf_worker),
        cmocka_unit_test(test_forbidden_calls_end_the_worker),
        cmocka_unit_test(test_trap),
        cmocka_unit_test(test_memory_cap_holds_natively),
        cmocka_unit_test(test_proof),
        cmocka_unit_test(test_randomness_differs),
        cmocka_unit_test(test_collections_find_their_keys),
        cmocka_unit_test(test_runs_share_nothing),
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_output_limit),
        cmocka_unit_test(test_unicode),
        cmocka_unit_test(test_largest_code),
        cmocka_unit_test(test_host_call_is_refused),
        cmocka_unit_test(test_frames_cannot_be_forged),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_template_killed_in_a_run),
        cmocka_unit_test(test_template_down_is_a_refusal),
        cmocka_unit_test(test_quiet_run_is_not_cut),
#ifdef PLIMSOLL_FAULTS
        cmocka_unit_test(test_fault_points),
#endif
        cmocka_unit_test(test_idle_workers_are_bounded_and_refilled),
        cmocka_unit_test(test_many_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
