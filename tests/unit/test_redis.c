#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/random.h"
#include "core/redis.h"

enum {
    TICK_MS = 100,
    PATIENCE_MS = 20000, /* for what must happen; a sanitizer build on a busy machine is slow */
    DEADLINE = 30000,    /* of commands that are answered */
};

static loop_t *loop;

#define run_until(condition)                                                                                           \
    do {                                                                                                               \
        uint64_t began_ = clock_mono_ms();                                                                             \
        while (!(condition) && clock_mono_ms() - began_ < PATIENCE_MS)                                                 \
            loop_run_once(loop, TICK_MS);                                                                              \
        assert_true(condition);                                                                                        \
    } while (0)

/* --- a private server --- */

static struct {
    char folder[64], socket[96], unix_url[128], tcp_url[128];
    int port;
    pid_t pid;
} server;

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* Starts without waiting: connecting is what the code under test does in the background. */
static void server_start(const char *option, const char *value)
{
    char port[8];
    snprintf(port, sizeof(port), "%d", server.port);
    server.pid = fork();
    assert_true(server.pid >= 0);
    if (server.pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--unixsocket", server.socket,
           "--save", "", "--appendonly", "no", "--dir", server.folder, option, value, NULL);
    _exit(127);
}

static void server_kill(void)
{
    if (server.pid > 0) {
        kill(server.pid, SIGKILL);
        waitpid(server.pid, NULL, 0);
    }
    server.pid = 0;
}

/* Returns when the server is stopped for certain. */
static void server_freeze(void)
{
    int status;
    kill(server.pid, SIGSTOP);
    assert_int_equal(waitpid(server.pid, &status, WUNTRACED), server.pid);
    assert_true(WIFSTOPPED(status));
}

/* A command by another connection. */
static void server_told(const char *command)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char answer[64];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", server.socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_true(dprintf(fd, "%s\r\n", command) > 0);
    assert_true(recv(fd, answer, sizeof(answer), 0) > 0 && answer[0] == '+');
    close(fd);
}

static void server_thaw(void)
{
    kill(server.pid, SIGCONT);
}

static int set_up(void **state)
{
    (void)state;
    loop = loop_create();
    snprintf(server.folder, sizeof(server.folder), "/tmp/redis-test-XXXXXX");
    assert_non_null(mkdtemp(server.folder));
    snprintf(server.socket, sizeof(server.socket), "%s/s", server.folder);
    snprintf(server.unix_url, sizeof(server.unix_url), "redis+unix://%s", server.socket);
    server.port = free_port();
    snprintf(server.tcp_url, sizeof(server.tcp_url), "redis://127.0.0.1:%d", server.port);
    return 0;
}

static int set_up_server(void **state)
{
    set_up(state);
    server_start(NULL, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    server_kill();
    unlink(server.socket);
    rmdir(server.folder);
    loop_destroy(loop);
    return 0;
}

/* --- what a connection tells --- */

typedef struct {
    redis_t *r;
    int ups, downs;
    char reason[256];
    bool destroy_when_up, destroy_when_down;
} watch_state_t;

static void on_state(void *data, bool up, const char *reason)
{
    watch_state_t *w = data;
    assert_non_null(reason);
    snprintf(w->reason, sizeof(w->reason), "%s", reason);
    if (up)
        w->ups++;
    else
        w->downs++;
    if (up ? w->destroy_when_up : w->destroy_when_down) {
        redis_destroy(w->r);
        w->r = NULL;
    }
}

static void open_url(watch_state_t *w, const char *url)
{
    redis_address_t address;
    assert_null(redis_address_parse(url, &address));
    *w = (watch_state_t){0};
    w->r = redis_create(loop, &address, on_state, w);
    redis_address_dispose(&address);
}

static void open_up(watch_state_t *w, const char *url)
{
    open_url(w, url);
    assert_false(redis_is_up(w->r));
    run_until(w->ups == 1);
    assert_true(redis_is_up(w->r));
    w->downs = 0; /* the server may not have been there yet */
}

typedef struct answer {
    int calls;
    redis_status_t status;
    int type;
    long long integer;
    char text[256];
    size_t len;
    /* in the callback: what to destroy, or where to send a command more and who is told of it */
    redis_t *destroy, *retry_on;
    struct answer *retry;
} answer_t;

static answer_t ignored;

static void on_answer(void *data, redis_status_t status, const redisReply *reply, const char *err)
{
    answer_t *a = data;
    a->calls++;
    a->status = status;
    assert_int_equal(reply != NULL, status == REDIS_REPLY);
    assert_int_equal(err != NULL, status == REDIS_REFUSED);
    if (reply != NULL) {
        a->type = reply->type;
        a->integer = reply->integer;
        a->len = reply->len;
        if (reply->str != NULL)
            memcpy(a->text, reply->str, reply->len < sizeof(a->text) ? reply->len : sizeof(a->text) - 1);
    }
    if (err != NULL)
        snprintf(a->text, sizeof(a->text), "%s", err);
    if (a->destroy != NULL)
        redis_destroy(a->destroy);
    if (a->retry_on != NULL)
        redis_command(a->retry_on, 1000, on_answer, a->retry, 2, (const char *[]){"INCR", "n"}, NULL);
}

#define ARGV(...) ((const char *[]){__VA_ARGS__})
#define send_command(r, deadline, answer, ...)                                                                         \
    redis_command((r), (deadline), on_answer, (answer), (int)(sizeof(ARGV(__VA_ARGS__)) / sizeof(char *)),             \
                  ARGV(__VA_ARGS__), NULL)
#define ask(r, ...)                                                                                                    \
    ({                                                                                                                 \
        answer_t a_ = {0};                                                                                             \
        send_command((r), DEADLINE, &a_, __VA_ARGS__);                                                                 \
        assert_int_equal(a_.calls, 0);                                                                                 \
        run_until(a_.calls == 1);                                                                                      \
        a_;                                                                                                            \
    })

/* --- addresses --- */

static void addresses_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host;
        int port;
        const char *path, *user, *password;
        int database;
    } CASES[] = {
        {"redis://localhost", "localhost", 6379, NULL, NULL, NULL, 0},
        {"redis://localhost/", "localhost", 6379, NULL, NULL, NULL, 0},
        {"redis://redis_main.example.org:6380/15", "redis_main.example.org", 6380, NULL, NULL, NULL, 15},
        {"redis://:p%40ss%2F@h:1/0", "h", 1, NULL, NULL, "p@ss/", 0},
        {"redis://me:a:b@h:65535", "h", 65535, NULL, "me", "a:b", 0},
        {"redis://me@h", "h", 6379, NULL, "me", NULL, 0},
        {"redis://me:@h", "h", 6379, NULL, "me", "", 0},
        {"redis://u%20v:%c3%A4@10.0.0.1/65535", "10.0.0.1", 6379, NULL, "u v", "\xc3\xa4", 65535},
        {"redis://[::1]:7000/2", "::1", 7000, NULL, NULL, NULL, 2},
        {"redis://[fe80::1]", "fe80::1", 6379, NULL, NULL, NULL, 0},
        {"redis+unix:///run/redis.sock", NULL, 0, "/run/redis.sock", NULL, NULL, 0},
        {"unix:///a%20b?db=3&password=x%26y", NULL, 0, "/a b", NULL, "x&y", 3},
        {"redis+unix:///s?password=&user=me", NULL, 0, "/s", "me", "", 0},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        redis_address_t a;
        const char *err = redis_address_parse(CASES[i].url, &a);
        if (err != NULL)
            fail_msg("%s: %s", CASES[i].url, err);
        const char *pairs[][2] = {
            {a.host, CASES[i].host}, {a.path, CASES[i].path}, {a.user, CASES[i].user}, {a.password, CASES[i].password}};
        for (size_t k = 0; k < 4; k++) {
            if (pairs[k][1] == NULL)
                assert_null(pairs[k][0]);
            else
                assert_string_equal(pairs[k][0], pairs[k][1]);
        }
        assert_int_equal(a.port, CASES[i].port);
        assert_int_equal(a.database, CASES[i].database);
        redis_address_dispose(&a);
        assert_null(a.password);
    }
}

static void addresses_are_refused_without_their_password(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "",
        "redis",
        "redis:/h",
        "rediss:/h",
        "http://h",
        "REDIS://h",
        " redis://h",
        "redis://",
        "redis:///0",
        "redis://:hunter2@",
        "redis://:hunter2@:6379",
        "redis://h:",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:00001",
        "redis://h:-1",
        "redis://h:63 79",
        "redis://h:6379x",
        "redis://h/x",
        "redis://h/-1",
        "redis://h/01",
        "redis://h/65536",
        "redis://h/1/2",
        "redis://h/0?x=1",
        "redis://h#f",
        "redis://@h",
        "redis://a@b@h",
        "redis://:hunter2%@h",
        "redis://:hunter2%4@h",
        "redis://:hunter2%zz@h",
        "redis://:hunter2%00@h",
        "redis://:hunter2\n@h",
        "redis://:hunter2\x80@h",
        "redis://:hun/ter2@h",
        "redis://[::1",
        "redis://[::g]",
        "redis://[::1]6379",
        "redis://[127.0.0.1]",
        "redis://-h",
        "redis://h_%41",
        "redis://h,i",
        "unix://",
        "unix:///",
        "unix://host/path",
        "unix:///s?",
        "unix:///s?db",
        "unix:///s?db=",
        "unix:///s?db=1&db=2",
        "unix:///s?password=hunter2&password=hunter2",
        "unix:///s?hunter2=1",
        "unix:///s?user=",
        "unix:///s?db=1&",
        "unix:///s#f",
        "unix:///s%00",
        "unix:///s?password=hunter2%0",
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        redis_address_t a;
        const char *err = redis_address_parse(CASES[i], &a);
        if (err == NULL)
            fail_msg("accepted: %s", CASES[i]);
        assert_null(strstr(err, "hun"));
        assert_true(a.host == NULL && a.path == NULL && a.user == NULL && a.password == NULL);
    }
}

static void address_lengths_are_judged_at_their_limits(void **state)
{
    (void)state;
    static char url[REDIS_URL_MAX + 64];
    redis_address_t a;
    for (int over = -1; over <= 1; over++) {
        /* sun_path holds 107 bytes and a NUL */
        int n = snprintf(url, sizeof(url), "unix:///%.*d", 106 + over, 0);
        assert_int_equal(n, 7 + 107 + over);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
        snprintf(url, sizeof(url), "redis://:%0*d@h", REDIS_CREDENTIAL_MAX + over, 0);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
        snprintf(url, sizeof(url), "redis://%0*d", 253 + over, 0);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
        /* escapes take three bytes and give one, so a URL can be at its limit with credentials within theirs */
        n = snprintf(url, sizeof(url), "redis://");
        for (int i = 0; i < 1024; i++)
            n += snprintf(url + n, sizeof(url) - (size_t)n, "%%41");
        n += snprintf(url + n, sizeof(url) - (size_t)n, ":");
        while (n < REDIS_URL_MAX + over - 2)
            url[n++] = 'p';
        snprintf(url + n, sizeof(url) - (size_t)n, "@h");
        assert_int_equal(strlen(url), REDIS_URL_MAX + over);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
    }
}

/* --- commands --- */

static void commands_are_answered(void **state)
{
    (void)state;
    watch_state_t w;
    open_url(&w, server.unix_url);
    answer_t early = {0};
    send_command(w.r, DEADLINE, &early, "SET", "early", "1");
    assert_int_equal(early.calls, 0); /* never before the call returned */
    loop_run_once(loop, 0);
    assert_int_equal(early.calls, 1);
    assert_int_equal(early.status, REDIS_NOT_SENT);
    run_until(w.ups == 1);
    assert_int_equal(ask(w.r, "EXISTS", "early").integer, 0);

    answer_t a = ask(w.r, "SET", "k", "v");
    assert_int_equal(a.status, REDIS_REPLY);
    assert_int_equal(a.type, REDIS_REPLY_STATUS);
    a = ask(w.r, "GET", "k");
    assert_string_equal(a.text, "v");
    assert_int_equal(ask(w.r, "GET", "nothing").type, REDIS_REPLY_NIL);
    a = (answer_t){0};
    redis_command(w.r, DEADLINE, on_answer, &a, 3, ARGV("SET", "b\r\n$", "x\0y\r\n"), (const size_t[]){3, 4, 5});
    run_until(a.calls == 1);
    a = (answer_t){0};
    redis_command(w.r, DEADLINE, on_answer, &a, 2, ARGV("GET", "b\r\n$"), (const size_t[]){3, 4});
    run_until(a.calls == 1);
    assert_int_equal(a.len, 5);
    assert_memory_equal(a.text, "x\0y\r\n", 5);

    a = ask(w.r, "NOSUCH");
    assert_int_equal(a.status, REDIS_REFUSED);
    assert_memory_equal(a.text, "ERR unknown command", 19);
    assert_int_equal(ask(w.r, "LPUSH", "k", "x").status, REDIS_REFUSED);
    assert_true(redis_is_up(w.r));
    assert_int_equal(w.ups, 1);
    redis_destroy(w.r);
}

static void scripts_run_in_a_pipeline(void **state)
{
    (void)state;
    enum { N = 10000 };
    watch_state_t w;
    redis_script_t script;
    answer_t a = {0};
    open_up(&w, server.tcp_url);
    /* the digest by another implementation: printf 'return {KEYS[1],...}' | sha1sum is what SCRIPT LOAD answers */
    redis_script_init(&script, "sum", "return redis.call('INCRBY', KEYS[1], ARGV[1])");
    assert_string_equal(ask(w.r, "SCRIPT", "LOAD", script.body).text, script.sha1);
    for (int i = 0; i < N; i++)
        redis_eval(w.r, &script, DEADLINE, on_answer, &a, 1, 2, ARGV("n", "3"), NULL);
    assert_int_equal(a.calls, 0);
    run_until(a.calls == N);
    assert_int_equal(a.status, REDIS_REPLY);
    assert_int_equal(a.integer, 3 * N); /* in order, each once */
    redis_destroy(w.r);
}

static void a_script_the_server_lost_is_sent_whole_once(void **state)
{
    (void)state;
    watch_state_t w;
    redis_script_t script, broken;
    open_up(&w, server.unix_url);
    redis_script_init(&script, "count", "return {redis.call('INCR', KEYS[1]), KEYS[2], ARGV[1], #KEYS, #ARGV}");
    for (int i = 1; i <= 3; i++) {
        answer_t a = {0};
        redis_eval(w.r, &script, DEADLINE, on_answer, &a, 2, 3, ARGV("n", "b\0b", "x\ry"), (const size_t[]){1, 3, 3});
        run_until(a.calls == 1);
        assert_int_equal(a.status, REDIS_REPLY);
        assert_int_equal(a.type, REDIS_REPLY_ARRAY);
        assert_int_equal(ask(w.r, "SCRIPT", "FLUSH").status, REDIS_REPLY);
        char n[16];
        snprintf(n, sizeof(n), "%d", i);
        assert_string_equal(ask(w.r, "GET", "n").text, n);
    }
    /* many at once after a flush: each is followed by its own EVAL */
    answer_t many = {0};
    for (int i = 0; i < 500; i++)
        redis_eval(w.r, &script, DEADLINE, on_answer, &many, 2, 3, ARGV("m", "b", "c"), NULL);
    run_until(many.calls == 500);
    assert_string_equal(ask(w.r, "GET", "m").text, "500");

    redis_script_init(&broken, "broken", "return redis.error_reply('NOSCRIPT again')");
    answer_t a = {0};
    redis_eval(w.r, &broken, DEADLINE, on_answer, &a, 0, 0, NULL, NULL);
    run_until(a.calls == 1);
    assert_int_equal(a.status, REDIS_REFUSED); /* once, and not for ever */
    redis_script_init(&broken, "no lua", "this is not lua");
    a = (answer_t){0};
    redis_eval(w.r, &broken, DEADLINE, on_answer, &a, 0, 0, NULL, NULL);
    run_until(a.calls == 1);
    assert_int_equal(a.status, REDIS_REFUSED);
    assert_memory_equal(a.text, "ERR Error compiling script", 26);
    redis_destroy(w.r);
}

static void a_frozen_server_costs_nobody_more_than_the_deadline(void **state)
{
    (void)state;
    watch_state_t w;
    redis_script_t script;
    open_up(&w, server.unix_url);
    redis_script_init(&script, "count", "return redis.call('INCR', 'ran')");
    server_freeze();
    answer_t slow = {0}, fast = {0}, eval = {0};
    uint64_t began = clock_mono_ms();
    send_command(w.r, 500, &slow, "SET", "slow", "1");
    send_command(w.r, 60, &fast, "SET", "fast", "1");
    redis_eval(w.r, &script, 60, on_answer, &eval, 0, 0, NULL, NULL);
    run_until(fast.calls == 1 && eval.calls == 1);
    uint64_t took = clock_mono_ms() - began;
    assert_true(took >= 60);
    assert_int_equal(slow.calls, 0); /* a later, shorter deadline does not wait for it */
    assert_int_equal(fast.status, REDIS_UNKNOWN);
    assert_int_equal(eval.status, REDIS_UNKNOWN);
    answer_t later = {0};
    send_command(w.r, 50, &later, "GET", "fast");
    run_until(later.calls == 1 && slow.calls == 1);
    assert_int_equal(later.status, REDIS_UNKNOWN);
    assert_int_equal(slow.status, REDIS_UNKNOWN);
    assert_true(clock_mono_ms() - began < 900);
    assert_true(redis_is_up(w.r));
    server_thaw();
    answer_t a = ask(w.r, "GET", "slow"); /* the late answers before it are dropped */
    assert_int_equal(a.status, REDIS_REPLY);
    assert_string_equal(a.text, "1");
    assert_int_equal(slow.calls + fast.calls + later.calls + eval.calls, 4);
    /* NOSCRIPT came after the deadline: the script must not run behind its caller's back */
    assert_int_equal(ask(w.r, "EXISTS", "ran").integer, 0);
    assert_int_equal(w.downs, 0);
    redis_destroy(w.r);
}

static void a_server_frozen_for_long_is_down_and_comes_back(void **state)
{
    (void)state;
    watch_state_t w;
    open_up(&w, server.unix_url);
    server_freeze();
    uint64_t began = clock_mono_ms();
    run_until(w.downs == 1); /* nobody asked anything: our own PING notices */
    assert_true(clock_mono_ms() - began <= REDIS_IDLE_MS + REDIS_SILENT_MS + 3 * REDIS_BEAT_MS);
    assert_string_equal(w.reason, "no answer");
    assert_false(redis_is_up(w.r));
    assert_int_equal(ask(w.r, "GET", "k").status, REDIS_NOT_SENT);
    /* the kernel still accepts connects for a stopped server; that is not being up */
    for (began = clock_mono_ms(); clock_mono_ms() - began < 1500;)
        loop_run_once(loop, 50);
    assert_int_equal(w.ups, 1);
    assert_int_equal(w.downs, 1);
    server_thaw();
    began = clock_mono_ms();
    run_until(w.ups == 2);
    assert_true(clock_mono_ms() - began < 1000);
    assert_int_equal(ask(w.r, "SET", "k", "v").status, REDIS_REPLY);
    redis_destroy(w.r);
}

static void waiting_commands_notice_silence_sooner(void **state)
{
    (void)state;
    watch_state_t w;
    open_up(&w, server.unix_url);
    server_freeze();
    answer_t patient = {0}, a = {0};
    send_command(w.r, DEADLINE, &patient, "GET", "k"); /* first in line, and not overdue itself */
    send_command(w.r, 100, &a, "GET", "k");
    uint64_t began = clock_mono_ms();
    run_until(w.downs == 1);
    assert_true(clock_mono_ms() - began <= REDIS_SILENT_MS + 2 * REDIS_BEAT_MS);
    assert_int_equal(a.status, REDIS_UNKNOWN);
    assert_int_equal(patient.calls, 1); /* its connection is gone */
    assert_int_equal(patient.status, REDIS_UNKNOWN);
    redis_destroy(w.r);
}

static void a_killed_server_leaves_unknown_and_is_found_again(void **state)
{
    (void)state;
    enum { N = 1000 };
    watch_state_t w;
    open_up(&w, server.unix_url);
    server_freeze();
    answer_t a = {0}, overdue = {0};
    send_command(w.r, 20, &overdue, "INCR", "n"); /* answered before the connection dies; must not be told twice */
    run_until(overdue.calls == 1);
    for (int i = 0; i < N; i++)
        send_command(w.r, DEADLINE, &a, "INCR", "n");
    loop_run_once(loop, 0);
    assert_int_equal(a.calls, 0);
    answer_t retried = {0};
    a.retry_on = w.r; /* a retry out of the callback finds no connection */
    a.retry = &retried;
    server_kill();
    run_until(w.downs == 1 && retried.calls == N);
    assert_int_equal(retried.status, REDIS_NOT_SENT);
    assert_int_equal(a.calls, N);
    assert_int_equal(a.status, REDIS_UNKNOWN);
    assert_int_equal(overdue.calls, 1);
    assert_false(redis_is_up(w.r));
    assert_int_equal(ask(w.r, "GET", "n").status, REDIS_NOT_SENT);
    unlink(server.socket);
    server_start(NULL, NULL);
    run_until(w.ups == 2);
    a = ask(w.r, "INCR", "n"); /* nothing was resent */
    assert_int_equal(a.status, REDIS_REPLY);
    assert_int_equal(a.integer, 1);
    redis_destroy(w.r);
}

static void commands_in_flight_are_bounded_at_the_limit(void **state)
{
    (void)state;
    watch_state_t w;
    open_up(&w, server.unix_url);
    server_freeze();
    answer_t a = {0}, over = {0};
    for (int i = 0; i < REDIS_PENDING_MAX; i++)
        send_command(w.r, DEADLINE, &a, "INCR", "n");
    send_command(w.r, DEADLINE, &over, "INCR", "n");
    run_until(over.calls == 1);
    assert_int_equal(over.status, REDIS_NOT_SENT);
    assert_int_equal(a.calls, 0);
    server_thaw();
    run_until(a.calls == REDIS_PENDING_MAX);
    assert_int_equal(a.status, REDIS_REPLY);
    assert_int_equal(a.integer, REDIS_PENDING_MAX);
    assert_int_equal(ask(w.r, "INCR", "n").integer, REDIS_PENDING_MAX + 1);
    redis_destroy(w.r);
}

static void bytes_in_flight_are_bounded_at_the_limit(void **state)
{
    (void)state;
    /* what core/redis.c counts for SET k VALUE: 32 bytes, and 32 more for each of three arguments of 3, 1 and n bytes
     */
    const size_t LIMIT = REDIS_OUTPUT_MAX - 4 * 32 - 3 - 1;
    char *value = calloc(1, LIMIT + 2);
    watch_state_t w;
    open_up(&w, server.unix_url);
    for (int over = -1; over <= 1; over++) {
        answer_t a = {0}, one_more = {0};
        redis_command(w.r, DEADLINE, on_answer, &a, 3, ARGV("SET", "k", value),
                      (const size_t[]){3, 1, LIMIT + (size_t)over});
        if (over == 0)
            send_command(w.r, DEADLINE, &one_more, "GET", "k");
        run_until(a.calls == 1 && one_more.calls == (over == 0));
        assert_int_equal(a.status, over > 0 ? REDIS_NOT_SENT : REDIS_REPLY);
        if (over == 0)
            assert_int_equal(one_more.status, REDIS_NOT_SENT);
        assert_int_equal(ask(w.r, "STRLEN", "k").integer, (long long)LIMIT + (over < 0 ? -1 : 0));
    }
    answer_t absurd = {0};
    redis_command(w.r, DEADLINE, on_answer, &absurd, 3, ARGV("SET", "k", value), (const size_t[]){3, 1, SIZE_MAX - 8});
    run_until(absurd.calls == 1);
    assert_int_equal(absurd.status, REDIS_NOT_SENT);
    redis_destroy(w.r);
    free(value);
}

/* --- who we are there --- */

static void open_refused(const char *url, const char *reason)
{
    watch_state_t w;
    open_url(&w, url);
    run_until(w.downs >= 1 && strcmp(w.reason, reason) == 0);
    assert_int_equal(w.ups, 0);
    assert_false(redis_is_up(w.r));
    redis_destroy(w.r);
}

static void passwords_and_users_are_presented(void **state)
{
    (void)state;
    watch_state_t w, other;
    char url[256];
    server_start("--requirepass", "hunter2");
    snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d", server.port);
    open_up(&w, url);
    assert_string_equal(ask(w.r, "ACL", "WHOAMI").text, "default");

    snprintf(url, sizeof(url), "redis://:hunter3@127.0.0.1:%d", server.port);
    open_refused(url, "AUTH refused: wrong user or password");
    open_refused(server.unix_url, "NOAUTH Authentication required.");

    assert_int_equal(ask(w.r, "ACL", "SETUSER", "al@ice", "on", ">s3:cret", "~*", "&*", "+@all", "-ping").status,
                     REDIS_REPLY);
    snprintf(url, sizeof(url), "redis://al%%40ice:s3:cret@127.0.0.1:%d/7", server.port);
    open_up(&other, url); /* although it may not PING */
    assert_string_equal(ask(other.r, "ACL", "WHOAMI").text, "al@ice");
    assert_int_equal(ask(other.r, "SET", "seven", "7").status, REDIS_REPLY);
    redis_destroy(other.r);
    snprintf(url, sizeof(url), "redis+unix://%s?db=7&user=al%%40ice&password=s3:cret", server.socket);
    open_up(&other, url);
    assert_string_equal(ask(other.r, "GET", "seven").text, "7");
    redis_destroy(other.r);
    assert_int_equal(ask(w.r, "EXISTS", "seven").integer, 0); /* database 0 */

    snprintf(url, sizeof(url), "redis://al%%40ice:no@127.0.0.1:%d", server.port);
    open_refused(url, "AUTH refused: wrong user or password");
    snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d/9999", server.port);
    open_refused(url, "ERR DB index is out of range");
    redis_destroy(w.r);
}

static void a_password_the_server_has_not_is_refused(void **state)
{
    (void)state;
    char url[256];
    snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d", server.port);
    open_refused(url, "AUTH refused: the server has no password");
}

/* A server that does not know AUTH repeats its arguments in the error. */
static void a_renamed_auth_does_not_repeat_the_password(void **state)
{
    (void)state;
    char url[256], config[96];
    snprintf(config, sizeof(config), "%s/c", server.folder);
    FILE *f = fopen(config, "w");
    fprintf(f, "rename-command AUTH \"\"\nport %d\nsave \"\"\n", server.port);
    fclose(f);
    server.pid = fork();
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        execlp("redis-server", "redis-server", config, NULL);
        _exit(127);
    }
    snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d", server.port);
    open_refused(url, "AUTH refused");
    unlink(config);
}

static void a_read_only_server_is_left(void **state)
{
    (void)state;
    watch_state_t w;
    redis_script_t script;
    open_up(&w, server.unix_url);
    redis_script_init(&script, "write", "return redis.call('SET', KEYS[1], '1')");
    assert_int_equal(ask(w.r, "REPLICAOF", "127.0.0.1", "1").status, REDIS_REPLY);

    answer_t a = {0}, behind = {0};
    send_command(w.r, DEADLINE, &a, "SET", "k", "v");
    send_command(w.r, DEADLINE, &behind, "GET", "k");
    run_until(a.calls == 1);
    assert_int_equal(a.status, REDIS_REFUSED);
    assert_memory_equal(a.text, "READONLY", 8);
    assert_int_equal(behind.calls, 1); /* its connection was dropped */
    assert_int_equal(behind.status, REDIS_UNKNOWN);
    assert_int_equal(w.downs, 1);
    assert_memory_equal(w.reason, "READONLY", 8);
    run_until(w.downs == 2);
    assert_string_equal(w.reason, "the server is a replica");
    assert_int_equal(w.ups, 1); /* and while it is one, it is not up */
    server_told("REPLICAOF NO ONE");
    run_until(w.ups == 2);
    assert_int_equal(ask(w.r, "SET", "k", "v").status, REDIS_REPLY);

    assert_int_equal(ask(w.r, "REPLICAOF", "127.0.0.1", "1").status, REDIS_REPLY);
    a = (answer_t){0};
    redis_eval(w.r, &script, DEADLINE, on_answer, &a, 1, 1, ARGV("k"), NULL);
    run_until(a.calls == 1);
    assert_int_equal(a.status, REDIS_REFUSED);
    run_until(w.downs >= 3);
    server_told("REPLICAOF NO ONE");
    run_until(w.ups == 3);
    w.downs = 2;

    /* how servers before 7 tell it from within a script */
    redis_script_init(&script, "old",
                      "return redis.error_reply('ERR Error running script (call to f_0): "
                      "@user_script:1: -READONLY You can\\'t write against a read only replica.')");
    a = (answer_t){0};
    redis_eval(w.r, &script, DEADLINE, on_answer, &a, 0, 0, NULL, NULL);
    run_until(w.downs == 3);
    assert_int_equal(a.status, REDIS_REFUSED);
    redis_destroy(w.r);
}

/* A master that was demoted answers every read: connections that only asked whether it was there took it for theirs,
 * and a gateway whose runs were all refused said that it was ready. */
static void a_server_demoted_while_nothing_was_asked_was_believed(void **state)
{
    (void)state;
    watch_state_t w;
    open_up(&w, server.unix_url);
    server_told("REPLICAOF 127.0.0.1 1");
    uint64_t began = clock_mono_ms();
    run_until(w.downs == 1);
    assert_true(clock_mono_ms() - began <= REDIS_IDLE_MS + REDIS_SILENT_MS + 3 * REDIS_BEAT_MS);
    assert_string_equal(w.reason, "the server is a replica");
    assert_int_equal(w.ups, 1);
    server_told("REPLICAOF NO ONE");
    run_until(w.ups == 2);
    redis_destroy(w.r);
}

/* It is asked once for each connection, and only seen to be there from then on. */
static void who_may_not_ask_for_the_role_stays_connected(void **state)
{
    (void)state;
    watch_state_t w, other;
    char url[256];
    open_up(&other, server.unix_url);
    assert_int_equal(ask(other.r, "ACL", "SETUSER", "quiet", "on", ">pass", "~*", "&*", "+@all", "-role").status,
                     REDIS_REPLY);
    redis_destroy(other.r);
    snprintf(url, sizeof(url), "redis://quiet:pass@127.0.0.1:%d", server.port);
    open_up(&w, url);
    for (uint64_t began = clock_mono_ms(); clock_mono_ms() - began < 3 * REDIS_IDLE_MS;)
        loop_run_once(loop, 50);
    assert_int_equal(w.downs, 0);
    assert_true(redis_is_up(w.r));
    server_freeze();
    run_until(w.downs == 1);
    assert_string_equal(w.reason, "no answer");
    server_thaw();
    redis_destroy(w.r);
}

static void host_names_are_looked_up(void **state)
{
    (void)state;
    watch_state_t w;
    char url[128];
    snprintf(url, sizeof(url), "redis://localhost:%d", server.port);
    open_up(&w, url); /* ::1 may come first and be refused; the next attempt takes the next address */
    assert_int_equal(ask(w.r, "SET", "k", "v").status, REDIS_REPLY);
    redis_destroy(w.r);
    open_url(&w, "redis://no-such-host.invalid");
    run_until(w.downs == 1);
    assert_true(strcmp(w.reason, "host name not found") == 0 || strcmp(w.reason, "lookup timed out") == 0);
    redis_destroy(w.r);
    open_url(&w, url); /* destroyed with the lookup on its way */
    loop_run_once(loop, 0);
    redis_destroy(w.r);
}

/* --- servers that are none --- */

static int listen_at_socket(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", server.socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static int accept_one(int listener)
{
    int fd = -1;
    for (uint64_t began = clock_mono_ms(); fd < 0 && clock_mono_ms() - began < PATIENCE_MS;) {
        loop_run_once(loop, 10);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    assert_true(fd >= 0);
    return fd;
}

static void a_server_that_is_loading_is_not_up(void **state)
{
    (void)state;
    static const char LOADING[] = "-LOADING Redis is loading the dataset in memory\r\n";
    watch_state_t w;
    int listener = listen_at_socket();
    open_url(&w, server.unix_url);
    int fd = accept_one(listener);
    assert_int_equal(send(fd, LOADING, sizeof(LOADING) - 1, 0), sizeof(LOADING) - 1);
    run_until(w.downs == 1);
    assert_memory_equal(w.reason, "LOADING", 7);
    close(fd);
    for (int i = 0; i < 3; i++) { /* told once, however often it is tried */
        fd = accept_one(listener);
        assert_int_equal(send(fd, LOADING, sizeof(LOADING) - 1, 0), sizeof(LOADING) - 1);
        char ping[64];
        run_until(recv(fd, ping, sizeof(ping), MSG_DONTWAIT) == 0); /* it hung up */
        close(fd);
    }
    assert_int_equal(w.downs, 1);
    fd = accept_one(listener);
    assert_int_equal(send(fd, "-ERR no ROLE\r\n+PONG\r\n", 21, 0), 21);
    run_until(w.ups == 1);
    answer_t a = {0};
    send_command(w.r, DEADLINE, &a, "GET", "k");
    run_until(a.calls == 0);
    assert_int_equal(send(fd, LOADING, sizeof(LOADING) - 1, 0), sizeof(LOADING) - 1);
    run_until(w.downs == 2);
    assert_int_equal(a.status, REDIS_REFUSED);
    close(fd);
    redis_destroy(w.r);
    close(listener);
}

static void silence_and_noise_end_an_attempt(void **state)
{
    (void)state;
    watch_state_t w;
    int listener = listen_at_socket();
    open_url(&w, server.unix_url);
    int fd = accept_one(listener);
    uint64_t began = clock_mono_ms();
    run_until(w.downs == 1);
    uint64_t took = clock_mono_ms() - began;
    assert_true(took >= REDIS_CONNECT_MS - 100 && took < REDIS_CONNECT_MS + 500);
    assert_string_equal(w.reason, "no answer");
    close(fd);
    fd = accept_one(listener);
    assert_int_equal(send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, 0), 28);
    run_until(w.downs == 2);
    assert_memory_equal(w.reason, "Protocol error", 14);
    close(fd);
    fd = accept_one(listener);
    assert_int_equal(send(fd, "+OK ready\r\n+OK\r\n", 16, 0), 16);
    run_until(w.downs == 3);
    assert_string_equal(w.reason, "not a Redis server");
    close(fd);
    fd = accept_one(listener);
    close(fd);
    run_until(w.downs == 4);
    redis_destroy(w.r);
    close(listener);
}

static void reconnects_back_off(void **state)
{
    (void)state;
    watch_state_t w;
    int listener = listen_at_socket(), attempts = 0;
    open_url(&w, server.unix_url);
    uint64_t began = clock_mono_ms();
    while (clock_mono_ms() - began < 2000) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            attempts++;
            close(fd);
        }
        loop_run_once(loop, 5);
    }
    /* pauses of at most 50, 100, 200, 400, 800, 1000 ms and at least half of each: after 2 s, 5 to 8 attempts */
    assert_in_range(attempts, 4, 8);
    redis_destroy(w.r);
    close(listener);
}

/* --- destroying --- */

static void destroying_answers_everything(void **state)
{
    (void)state;
    watch_state_t w;
    answer_t sent = {0}, unsent = {0}, overdue = {0};
    open_url(&w, server.unix_url);
    redis_destroy(w.r); /* before anything happened */
    open_url(&w, server.unix_url);
    send_command(w.r, DEADLINE, &unsent, "GET", "k");
    redis_destroy(w.r);
    assert_int_equal(unsent.calls, 1);
    assert_int_equal(unsent.status, REDIS_NOT_SENT);
    open_up(&w, server.unix_url);
    server_freeze();
    send_command(w.r, 10, &overdue, "GET", "k");
    run_until(overdue.calls == 1);
    for (int i = 0; i < 100; i++)
        send_command(w.r, DEADLINE, &sent, "GET", "k");
    redis_destroy(w.r);
    assert_int_equal(sent.calls, 100);
    assert_int_equal(sent.status, REDIS_UNKNOWN);
    assert_int_equal(overdue.calls, 1);
    server_thaw();
}

static void destroying_is_safe_in_every_callback(void **state)
{
    (void)state;
    enum { UP, REPLY, REFUSAL, OVERDUE, LOST, SILENT, DOWN, UNSENT, PLACES, OTHERS = 50 };
    for (int place = 0; place < PLACES; place++) {
        watch_state_t w;
        answer_t first = {0}, rest = {0};
        if (place == UP) {
            open_url(&w, server.unix_url);
            w.destroy_when_up = true;
            run_until(w.r == NULL);
            continue;
        }
        if (place == UNSENT)
            open_url(&w, server.unix_url);
        else
            open_up(&w, server.unix_url);
        if (place == DOWN)
            w.destroy_when_down = true;
        else
            first.destroy = w.r;
        if (place >= OVERDUE && place <= DOWN)
            server_freeze();
        send_command(w.r, place == OVERDUE ? 10 : DEADLINE, &first, place == REFUSAL ? "NOSUCH" : "PING");
        for (int i = 0; i < OTHERS; i++)
            send_command(w.r, place == SILENT || place == OVERDUE ? 10 : DEADLINE, &rest, "PING");
        loop_run_once(loop, 0);
        if (place == LOST || place == DOWN)
            server_kill();
        if (place == DOWN)
            run_until(w.r == NULL);
        else
            run_until(first.calls == 1);
        assert_int_equal(first.calls, 1);
        assert_int_equal(rest.calls, OTHERS);
        if (server.pid == 0) {
            unlink(server.socket);
            server_start(NULL, NULL);
        } else {
            server_thaw();
        }
    }
}

/* --- subscriptions --- */

typedef struct {
    redis_subscription_t *s;
    int messages, ups, downs;
    char text[64], reason[256];
    bool stop_in_message;
} listener_t;

static void on_publish(void *data, const char *payload, size_t len)
{
    listener_t *l = data;
    l->messages++;
    snprintf(l->text, sizeof(l->text), "%.*s", (int)len, payload);
    if (l->stop_in_message) {
        redis_unsubscribe(l->s);
        l->s = NULL;
    }
}

static void on_listening(void *data, bool up, const char *reason)
{
    listener_t *l = data;
    if (up)
        l->ups++;
    else
        l->downs++;
    snprintf(l->reason, sizeof(l->reason), "%s", reason);
}

static void listener_open(listener_t *l, const char *url)
{
    redis_address_t address;
    assert_null(redis_address_parse(url, &address));
    *l = (listener_t){0};
    l->s = redis_subscribe(loop, &address, "news %s", on_publish, on_listening, l);
    redis_address_dispose(&address);
}

static void what_is_published_arrives_and_again_after_a_restart(void **state)
{
    (void)state;
    watch_state_t w;
    listener_t l;
    open_up(&w, server.unix_url);
    listener_open(&l, server.tcp_url);
    run_until(l.ups == 1);
    l.downs = 0;
    assert_int_equal(ask(w.r, "PUBLISH", "news %s", "one").integer, 1);
    assert_int_equal(ask(w.r, "PUBLISH", "other", "no").integer, 0);
    run_until(l.messages == 1);
    assert_string_equal(l.text, "one");
    for (int i = 0; i < 1000; i++)
        send_command(w.r, DEADLINE, &ignored, "PUBLISH", "news %s", "many");
    run_until(l.messages == 1001);

    server_kill();
    run_until(l.downs > 0 && w.downs > 0);
    unlink(server.socket);
    server_start(NULL, NULL);
    run_until(l.ups == 2 && w.ups == 2);
    assert_int_equal(ask(w.r, "PUBLISH", "news %s", "again").integer, 1);
    run_until(l.messages == 1002);
    assert_string_equal(l.text, "again");

    l.stop_in_message = true;
    send_command(w.r, DEADLINE, &ignored, "PUBLISH", "news %s", "a");
    send_command(w.r, DEADLINE, &ignored, "PUBLISH", "news %s", "b");
    run_until(l.s == NULL);
    assert_int_equal(l.messages, 1003);
    redis_destroy(w.r);
}

static void a_quiet_channel_is_told_from_a_dead_server(void **state)
{
    (void)state;
    listener_t l;
    listener_open(&l, server.unix_url);
    run_until(l.ups == 1);
    l.downs = 0;
    uint64_t began = clock_mono_ms();
    while (clock_mono_ms() - began < REDIS_IDLE_MS + REDIS_SILENT_MS + 4 * REDIS_BEAT_MS)
        loop_run_once(loop, 50);
    assert_int_equal(l.downs, 0);
    assert_int_equal(l.ups, 1);
    server_freeze();
    began = clock_mono_ms();
    run_until(l.downs == 1);
    assert_true(clock_mono_ms() - began <= REDIS_IDLE_MS + REDIS_SILENT_MS + 3 * REDIS_BEAT_MS);
    assert_string_equal(l.reason, "no answer");
    server_thaw();
    run_until(l.ups == 2);
    redis_unsubscribe(l.s);
}

static void a_refused_subscription_is_told(void **state)
{
    (void)state;
    watch_state_t w;
    listener_t l;
    char url[256];
    open_up(&w, server.unix_url);
    assert_int_equal(ask(w.r, "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all").status,
                     REDIS_REPLY);
    snprintf(url, sizeof(url), "redis://deaf:pw@127.0.0.1:%d", server.port);
    listener_open(&l, url);
    run_until(l.downs == 1);
    assert_memory_equal(l.reason, "NOPERM", 6);
    assert_int_equal(l.ups, 0);
    redis_unsubscribe(l.s);
    redis_destroy(w.r);
}

int main(void)
{
#define with_server(test) cmocka_unit_test_setup_teardown(test, set_up_server, tear_down)
#define without_server(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(addresses_are_refused_without_their_password),
        cmocka_unit_test(address_lengths_are_judged_at_their_limits),
        with_server(commands_are_answered),
        with_server(scripts_run_in_a_pipeline),
        with_server(a_script_the_server_lost_is_sent_whole_once),
        with_server(a_frozen_server_costs_nobody_more_than_the_deadline),
        with_server(a_server_frozen_for_long_is_down_and_comes_back),
        with_server(waiting_commands_notice_silence_sooner),
        with_server(a_killed_server_leaves_unknown_and_is_found_again),
        with_server(commands_in_flight_are_bounded_at_the_limit),
        with_server(bytes_in_flight_are_bounded_at_the_limit),
        without_server(passwords_and_users_are_presented),
        with_server(a_password_the_server_has_not_is_refused),
        without_server(a_renamed_auth_does_not_repeat_the_password),
        with_server(a_read_only_server_is_left),
        with_server(a_server_demoted_while_nothing_was_asked_was_believed),
        with_server(who_may_not_ask_for_the_role_stays_connected),
        with_server(host_names_are_looked_up),
        without_server(a_server_that_is_loading_is_not_up),
        without_server(silence_and_noise_end_an_attempt),
        without_server(reconnects_back_off),
        with_server(destroying_answers_everything),
        with_server(destroying_is_safe_in_every_callback),
        with_server(what_is_published_arrives_and_again_after_a_restart),
        with_server(a_quiet_channel_is_told_from_a_dead_server),
        with_server(a_refused_subscription_is_told),
    };
    random_init();
    return cmocka_run_group_tests_name("redis", tests, NULL, NULL);
}
