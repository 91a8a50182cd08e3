/*
 * Workers in their guest's hands, and templates that misbehave: this program, started again as the template (its name
 * tells it which one it is), forks workers that do what the "code" they are given says. What the role makes of it is
 * checked here.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/wasm_harness.h"

enum { CAPACITY = 2, PAGES = 64, CONTROL_FD = 3 };

/* --- the hostile side --- */

static void say(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0)
            _exit(1);
        at += n;
        len -= (size_t)n;
    }
}

static void say_frame(int fd, uint8_t type, uint32_t stated, const void *body, size_t len)
{
    uint8_t head[5] = {type, (uint8_t)stated, (uint8_t)(stated >> 8), (uint8_t)(stated >> 16), (uint8_t)(stated >> 24)};
    say(fd, head, 5);
    say(fd, body, len);
}

static void say_end(int fd, uint8_t code)
{
    const uint8_t body[4] = {code, 0, 0, 0};
    say_frame(fd, 5, 4, body, 4);
}

static void hear(int fd, void *to, size_t len)
{
    uint8_t *at = to;
    while (len > 0) {
        ssize_t n = recv(fd, at, len, 0);
        if (n <= 0)
            _exit(1);
        at += n;
        len -= (size_t)n;
    }
}

static void say_output(int fd, uint8_t type, size_t total)
{
    static uint8_t bytes[65536];
    memset(bytes, 'x', sizeof(bytes));
    while (total > 0) {
        size_t n = total < sizeof(bytes) ? total : sizeof(bytes);
        say_frame(fd, type, (uint32_t)n, bytes, n);
        total -= n;
    }
}

static bool is_told(const char *code, const char *what)
{
    return strcmp(code, what) == 0;
}

static void hostile_worker(int fd) __attribute__((noreturn));
static void hostile_worker(int fd)
{
    uint8_t head[13];
    char code[256] = "";
    hear(fd, head, sizeof(head));
    hear(fd, code, head[9]);
    if (is_told(code, "raw bytes")) {
        say_frame(fd, 1, 4, "\xff\xfe\x00\x80", 4);
        say_frame(fd, 2, 1, "\0", 1);
        say_end(fd, 0);
    } else if (is_told(code, "split character")) {
        say_frame(fd, 1, 2, "\xe2\x98", 2);
        usleep(20000);
        say_frame(fd, 1, 1, "\x95", 1);
        say_end(fd, 0);
    } else if (is_told(code, "exit 0 without a word")) {
        say_frame(fd, 1, 2, "A\n", 2);
        _exit(0);
    } else if (is_told(code, "hang up and live")) {
        say_frame(fd, 1, 2, "A\n", 2);
        close(fd);
        pause();
    } else if (is_told(code, "half a frame")) {
        say(fd, "\x05\x04\x00", 3);
        _exit(0);
    } else if (is_told(code, "half an output")) {
        say_frame(fd, 1, 100, "AB", 2);
        for (;;)
            pause();
    } else if (is_told(code, "huge length")) {
        say_frame(fd, 1, 0xffffffff, "", 0);
    } else if (is_told(code, "flood")) {
        for (;;)
            say_output(fd, 1, 1 << 20);
    } else if (is_told(code, "limit - 1")) {
        say_output(fd, 1, 65535);
        say_end(fd, 0);
    } else if (is_told(code, "limit")) {
        say_output(fd, 1, 65536);
        say_end(fd, 0);
    } else if (is_told(code, "limit + 1")) {
        say_output(fd, 1, 65537);
        say_end(fd, 0);
    } else if (is_told(code, "limit + 2")) {
        say_output(fd, 1, 65538);
        say_end(fd, 0);
    } else if (is_told(code, "early deadline")) {
        say_end(fd, 124);
    } else if (is_told(code, "exit 7")) {
        say_end(fd, 7);
    } else if (is_told(code, "late status early")) {
        _exit(WASM_STATUS_DEADLINE);
    } else if (is_told(code, "survived")) {
        say_frame(fd, 17, 1, "\x01", 1);
    } else if (is_told(code, "verdict, then more")) {
        say_end(fd, 0);
        say_frame(fd, 1, 4, "late", 4);
        say_end(fd, 134);
    } else if (is_told(code, "verdict, then crash")) {
        say_end(fd, 0);
        kill(getpid(), SIGKILL);
    } else if (is_told(code, "segv")) {
        signal(SIGSEGV, SIG_DFL);
        say_frame(fd, 1, 2, "A\n", 2);
        kill(getpid(), SIGSEGV);
    } else if (is_told(code, "killed by another")) {
        kill(getpid(), SIGKILL);
    } else if (is_told(code, "own stderr and crash")) {
        say_frame(fd, 2, 4, "mine", 4);
        kill(getpid(), SIGKILL);
    } else if (is_told(code, "processor time")) {
        signal(SIGXCPU, SIG_DFL);
        kill(getpid(), SIGXCPU);
    } else if (is_told(code, "deaf")) {
        say_frame(fd, 1, 2, "A\n", 2);
        for (;;)
            pause();
    } else if (is_told(code, "calls without waiting")) {
        for (;;)
            say_frame(fd, 3, 2, "{}", 2);
    } else if (is_told(code, "calls for ever")) {
        for (;;) {
            uint8_t reply[13 + 64];
            say_frame(fd, 3, 2, "{}", 2);
            hear(fd, reply, 13);
            hear(fd, reply + 13, reply[9]);
        }
    } else if (is_told(code, "call and deaf")) {
        /* Asks, never takes the answers, and stays. */
        say_frame(fd, 3, 2, "{}", 2);
        for (;;)
            pause();
    }
    _exit(1);
}

static void control_say(uint32_t op, uint32_t serial, int32_t value, int fd)
{
    wasm_control_t message = {.op = op, .serial = serial, .value = value};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } extra = {.space = {0}};
    struct iovec part = {.iov_base = &message, .iov_len = sizeof(message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (op == WASM_CONTROL_HELLO)
        memset(message.identity, 'a', 64);
    if (fd >= 0) {
        header.msg_control = extra.space;
        header.msg_controllen = sizeof(extra.space);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    sendmsg(CONTROL_FD, &header, MSG_NOSIGNAL);
}

static int control_hear(wasm_control_t *message)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } extra;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = extra.space, .msg_controllen = sizeof(extra.space)};
    int fd = -1;
    if (recvmsg(CONTROL_FD, &header, MSG_CMSG_CLOEXEC) != sizeof(*message))
        _exit(0);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
    return fd;
}

/* The second argument of a template, its pages, tells which of them this is. */
enum { GOOD_TEMPLATE = PAGES, MUTE_TEMPLATE, HUNG_TEMPLATE, WRONG_TEMPLATE, UNABLE_TEMPLATE };

enum { HOSTILE_WORKERS_MAX = 64 };

static struct {
    pid_t pid;
    uint32_t serial;
} forked[HOSTILE_WORKERS_MAX];

static void fork_one(uint32_t serial, int fd)
{
    size_t i = 0;
    while (forked[i].pid != 0)
        ++i;
    forked[i].serial = serial;
    if ((forked[i].pid = fork()) == 0) {
        close(CONTROL_FD);
        hostile_worker(fd);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, forked[i].pid, 0);
    control_say(WASM_CONTROL_FORKED, serial, forked[i].pid, pidfd);
    close(pidfd);
}

static void reap_all(void)
{
    int status;
    for (size_t i = 0; i < HOSTILE_WORKERS_MAX; ++i) {
        if (forked[i].pid != 0 && waitpid(forked[i].pid, &status, WNOHANG) == forked[i].pid) {
            control_say(WASM_CONTROL_EXITED, forked[i].serial, status, -1);
            forked[i].pid = 0;
        }
    }
}

static void hostile_template(int kind) __attribute__((noreturn));
static void hostile_template(int kind)
{
    if (kind == MUTE_TEMPLATE)
        pause();
    if (kind == WRONG_TEMPLATE) {
        control_say(99, 0, 0, -1);
        pause();
    }
    control_say(WASM_CONTROL_HELLO, 0, 0, -1);
    for (;;) {
        struct pollfd control = {.fd = CONTROL_FD, .events = POLLIN};
        wasm_control_t message;
        reap_all();
        if (poll(&control, 1, 2) == 0)
            continue;
        int fd = control_hear(&message);
        if (kind == HUNG_TEMPLATE)
            pause();
        if (kind == UNABLE_TEMPLATE)
            control_say(WASM_CONTROL_UNFORKED, message.serial, EAGAIN, -1);
        else
            fork_one(message.serial, fd);
        close(fd);
    }
}

/* --- the checks --- */

static wasm_workers_t *start_template(int kind)
{
    static unsigned ups;
    int self = open("/proc/self/exe", O_PATH | O_CLOEXEC), high = fcntl(self, F_DUPFD_CLOEXEC, 10);
    close(self);
    wasm_workers_t *workers = wasm_workers_create(harness_loop, high, (uint32_t)kind, CAPACITY, harness_on_up, &ups);
    wasm_workers_start(workers);
    return workers;
}

static wasm_workers_t *workers;

static int set_up(void **state)
{
    (void)state;
    random_init();
    harness_loop = loop_create();
    workers = start_template(GOOD_TEMPLATE);
    spin_until(is_up, workers);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wasm_workers_destroy(workers);
    loop_destroy(harness_loop);
    return 0;
}

static void expect_unknown(const char *code, const char *reason, uint32_t within_ms)
{
    exchange_t x = exchange(workers, code, 2000);
    assert_int_equal(x.result.verdict, WASM_UNKNOWN);
    assert_string_equal(x.result.reason, reason);
    assert_true(x.took_us < within_ms * 1000);
    exchange_dispose(&x);
}

static exchange_t expect_ran(const char *code, int exit_code, uint32_t timeout_ms)
{
    exchange_t x = exchange(workers, code, timeout_ms);
    assert_int_equal(x.result.verdict, WASM_RAN);
    assert_int_equal(x.result.exit_code, exit_code);
    return x;
}

/* U12: no byte is decoded, repaired or refused. */
static void test_bytes_are_returned_verbatim(void **state)
{
    (void)state;
    exchange_t x = expect_ran("raw bytes", 0, 2000);
    assert_bytes(x.result.out, "\xff\xfe\x00\x80", 4);
    assert_bytes(x.result.err, "\0", 1);
    exchange_dispose(&x);
    x = expect_ran("split character", 0, 2000);
    assert_bytes(x.result.out, "\xe2\x98\x95", 3);
    exchange_dispose(&x);
}

static void test_no_verdict_is_never_exit_0(void **state)
{
    (void)state;
    expect_unknown("exit 0 without a word", "the worker ended without a verdict", 1000);
    expect_unknown("half a frame", "the worker ended without a verdict", 1000);
    expect_unknown("late status early", "the worker ended without a verdict", 1000);
    expect_unknown("hang up and live", "the worker fell silent", 1000);
}

static void test_malformed_frames(void **state)
{
    (void)state;
    expect_unknown("huge length", "output frame out of bounds", 1000);
    expect_unknown("flood", "more output than a worker sends", 1000);
    expect_unknown("limit + 2", "more output than a worker sends", 1000);
    expect_unknown("exit 7", "exit code no worker has", 1000);
    expect_unknown("survived", "frame of an unknown type", 1000);
    expect_unknown("calls without waiting", "bytes while a host call waits", 1000);
    expect_unknown("early deadline", "a deadline claimed before its time", 1000);
}

static void test_output_limit(void **state)
{
    static const struct {
        const char *code;
        size_t kept;
        bool is_cut;
    } cases[] = {{"limit - 1", 65535, false}, {"limit", 65536, false}, {"limit + 1", 65536, true}};
    (void)state;
    for (size_t i = 0; i < 3; ++i) {
        exchange_t x = expect_ran(cases[i].code, 0, 2000);
        assert_int_equal(x.result.out.len, cases[i].kept);
        assert_int_equal(x.result.is_out_truncated, cases[i].is_cut);
        assert_false(x.result.is_err_truncated);
        exchange_dispose(&x);
    }
}

static void test_a_verdict_stands(void **state)
{
    (void)state;
    exchange_t x = expect_ran("verdict, then more", 0, 2000);
    assert_int_equal(x.result.out.len, 0);
    exchange_dispose(&x);
    x = expect_ran("verdict, then crash", 0, 2000);
    exchange_dispose(&x);
}

static void test_signals_are_traps(void **state)
{
    (void)state;
    exchange_t x = expect_ran("segv", 134, 2000);
    assert_text(x.result.out, "A\n");
    assert_text(x.result.err, "guest aborted: wasm error: the worker was ended by SIGSEGV\n");
    exchange_dispose(&x);
    x = expect_ran("killed by another", 134, 2000);
    assert_text(x.result.err, "guest aborted: wasm error: the worker was ended by SIGKILL\n");
    exchange_dispose(&x);
    x = expect_ran("own stderr and crash", 134, 2000);
    assert_text(x.result.err, "mine");
    exchange_dispose(&x);
    x = expect_ran("processor time", 124, 2000);
    assert_true(x.result.is_timed_out);
    exchange_dispose(&x);
}

/* U05, U09: between the deadline and 400 ms past it, with what came before, whatever the worker does. */
static void test_deadline_of_a_deaf_worker(void **state)
{
    static const char *const codes[] = {"deaf", "half an output", "calls for ever", "call and deaf"};
    static const char *const outs[] = {"A\n", "AB", "", ""};
    (void)state;
    for (size_t i = 0; i < 4; ++i) {
        exchange_t x = expect_ran(codes[i], 124, 500);
        assert_true(x.result.is_timed_out);
        assert_in_range(x.took_us, 500 * 1000, 900 * 1000);
        assert_text(x.result.out, outs[i]);
        exchange_dispose(&x);
    }
}

static bool is_few(void *arg)
{
    return wasm_workers_count(arg) <= CAPACITY;
}

/* Nothing is left of any of the above. */
static void test_no_worker_is_left(void **state)
{
    (void)state;
    spin_until(is_few, workers);
}

static void expect_not_run(int kind, uint32_t within_ms)
{
    wasm_workers_t *bad = start_template(kind);
    uint64_t until_ms = clock_mono_ms() + 300;
    while (!is_up(bad) && clock_mono_ms() < until_ms)
        loop_run_once(harness_loop, 5);
    exchange_t x = exchange(bad, "limit", 3000);
    assert_int_equal(x.result.verdict, WASM_NOT_RUN);
    assert_true(x.took_us < within_ms * 1000);
    exchange_dispose(&x);
    wasm_workers_destroy(bad);
}

static void test_templates_that_misbehave(void **state)
{
    (void)state;
    expect_not_run(MUTE_TEMPLATE, 100);
    expect_not_run(WRONG_TEMPLATE, 100);
    expect_not_run(UNABLE_TEMPLATE, 100);
    expect_not_run(HUNG_TEMPLATE, WASM_FORK_MS + 300);
}

/* Also when no run waits as long as it takes to find out. */
static void test_hung_template_is_replaced(void **state)
{
    (void)state;
    wasm_workers_t *hung = start_template(HUNG_TEMPLATE);
    spin_until(is_up, hung);
    int pid = wasm_process_pid(wasm_workers_process(hung));
    uint64_t until_ms = clock_mono_ms() + WASM_FORK_MS + 1000;
    while (wasm_process_pid(wasm_workers_process(hung)) == pid && clock_mono_ms() < until_ms) {
        exchange_t x = exchange(hung, "limit", 100);
        assert_int_equal(x.result.verdict, WASM_NOT_RUN);
        exchange_dispose(&x);
    }
    assert_int_not_equal(wasm_process_pid(wasm_workers_process(hung)), pid);
    wasm_workers_destroy(hung);
}

static void test_no_template(void **state)
{
    static unsigned ups;
    (void)state;
    wasm_workers_t *none = wasm_workers_create(harness_loop, -1, PAGES, CAPACITY, harness_on_up, &ups);
    wasm_workers_start(none);
    exchange_t x = exchange(none, "limit", 1000);
    assert_int_equal(x.result.verdict, WASM_NOT_RUN);
    exchange_dispose(&x);
    wasm_workers_destroy(none);
    assert_int_equal(ups, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_returned_verbatim),
        cmocka_unit_test(test_no_verdict_is_never_exit_0),
        cmocka_unit_test(test_malformed_frames),
        cmocka_unit_test(test_output_limit),
        cmocka_unit_test(test_a_verdict_stands),
        cmocka_unit_test(test_signals_are_traps),
        cmocka_unit_test(test_deadline_of_a_deaf_worker),
        cmocka_unit_test(test_no_worker_is_left),
        cmocka_unit_test(test_templates_that_misbehave),
        cmocka_unit_test(test_hung_template_is_replaced),
        cmocka_unit_test(test_no_template),
    };
    if (argc == 4 && strcmp(argv[0], "plimsoll-wasm") == 0)
        hostile_template(atoi(argv[2]));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
