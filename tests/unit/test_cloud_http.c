/* Calls to a provider: what an answer means, which calls are repeated and which never are, what of an error is told. */
#include "http_fixture.h"

#include "backends/cloud/cloud_http.h"
#include "core/co.h"
#include "core/random.h"

#define OK_ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
#define ANSWER(status, headers, body) "HTTP/1.1 " status " X\r\n" headers "Connection: close\r\n\r\n" body

/* What the server says to each request, in order; the last one again. NULL: it reads and hangs up. "wait": it holds. */
static const char *const *script;
static atomic_uint script_at;

static void follow(conn_t *conn)
{
    while (read_request(conn)) {
        const char *text = script[atomic_fetch_add(&script_at, 1)];
        if (text == NULL)
            return;
        if (strcmp(text, "wait") == 0) {
            hold(conn);
            return;
        }
        if (strcmp(text, "reset") == 0) {
            reset(conn);
            return;
        }
        if (!say(conn, text) || strstr(text, "Connection: close") != NULL)
            return;
    }
}

typedef struct {
    cloud_request_t request;
    cloud_answer_t answer;
    cloud_trouble_t trouble;
    bool is_fine, is_over;
    co_t *co;
    char body[2048], header[64];
    uint64_t took_ms;
} call_t;

static cloud_http_t *http;
static cloud_secrets_t secrets;
static char streamed[256];

static void call_main(void *arg)
{
    call_t *call = arg;
    uint64_t began_ms = clock_mono_ms();
    call->is_fine = cloud_call(http, &call->request, &call->answer, &call->trouble);
    const char *value = cloud_answer_header(&call->answer, "X-Trace");
    snprintf(call->header, sizeof(call->header), "%s", value != NULL ? value : "(none)");
    snprintf(call->body, sizeof(call->body), "%s",
             call->answer.http.body.base != NULL ? (char *)call->answer.http.body.base : "");
    cloud_answer_dispose(&call->answer);
    call->took_ms = clock_mono_ms() - began_ms;
    call->is_over = true;
}

static call_t call_of(server_t *s, cloud_repeat_t repeat)
{
    static char url[256];
    snprintf(url, sizeof(url), "%s/v1/things", s->url);
    return (call_t){.request = {.method = repeat == CLOUD_READ ? "GET" : "POST",
                                .url = url,
                                .repeat = repeat,
                                .body = repeat == CLOUD_READ ? NULL : "{}",
                                .body_len = repeat == CLOUD_READ ? 0 : 2,
                                .limit_ms = 3000,
                                .deadline_us = clock_mono_us() + 8000000,
                                .response_max = 1024}};
}

static void finish(call_t *call)
{
    co_start(loop, call_main, call, NULL);
    wait_for(call->is_over);
    loop_run_once(loop, 0); /* what has ended is freed at the end of its tick */
}

static server_t *serve_script(const char *const *lines)
{
    script = lines;
    atomic_store(&script_at, 0);
    return server_start(follow, NULL, NULL, NULL);
}

static int http_setup(void **state)
{
    random_init();
    setup(state);
    secrets = (cloud_secrets_t){.count = 0};
    cloud_secrets_add(&secrets, "our-own-key-1");
    http = cloud_http_create(loop, &(cloud_http_options_t){.name = "Cloudy", .secrets = &secrets});
    streamed[0] = '\0';
    return 0;
}

static int http_teardown(void **state)
{
    cloud_http_destroy(http);
    return teardown(state);
}

/* --- statuses --- */

static void a_status_means_what_it_means(void **state)
{
    static const struct {
        const char *status;
        cloud_fault_t read, once;
    } cases[] = {
        {"301", CLOUD_PROTOCOL, CLOUD_PROTOCOL}, {"307", CLOUD_PROTOCOL, CLOUD_PROTOCOL},
        {"400", CLOUD_DENIED, CLOUD_DENIED},     {"401", CLOUD_DENIED, CLOUD_DENIED},
        {"402", CLOUD_DENIED, CLOUD_DENIED},     {"403", CLOUD_DENIED, CLOUD_DENIED},
        {"404", CLOUD_MISSING, CLOUD_MISSING},   {"405", CLOUD_DENIED, CLOUD_DENIED},
        {"409", CLOUD_NOTHING, CLOUD_NOTHING},   {"410", CLOUD_MISSING, CLOUD_MISSING},
        {"412", CLOUD_DENIED, CLOUD_DENIED},     {"422", CLOUD_DENIED, CLOUD_DENIED},
        {"501", CLOUD_DENIED, CLOUD_DENIED},     {"499", CLOUD_NOTHING, CLOUD_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        for (int is_once = 0; is_once <= 1; ++is_once) {
            char text[256];
            const char *lines[] = {text, text};
            snprintf(text, sizeof(text),
                     ANSWER("%s", "Location: http://127.0.0.1:1/\r\nX-Trace: t1\r\n", "{\"message\":\"m\"}"),
                     cases[i].status);
            server_t *s = serve_script(lines);
            call_t call = call_of(s, is_once ? CLOUD_ONCE : CLOUD_READ);
            finish(&call);
            assert_false(call.is_fine);
            assert_int_equal(call.trouble.fault, is_once ? cases[i].once : cases[i].read);
            assert_int_equal(call.trouble.status, atoi(cases[i].status));
            assert_int_equal(call.answer.tries, 1);
            assert_string_equal(call.trouble.detail, "m");
            assert_string_equal(call.body, "{\"message\":\"m\"}");
            assert_string_equal(call.header, "t1");
            assert_true(call.trouble.is_sent);
            assert_int_equal(atomic_load(&s->requests), 1);
            server_stop(s);
        }
    }
}

static void a_success_is_handed_over_with_its_head(void **state)
{
    static const char *const lines[] = {"HTTP/1.1 201 Created\r\nX-Trace: abc\r\nContent-Length: 8\r\n\r\n{\"a\": 1}",
                                        ANSWER("404", "", "{}")};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_ONCE);
    finish(&call);
    assert_true(call.is_fine);
    assert_int_equal(call.answer.http.status, 201);
    assert_string_equal(call.body, "{\"a\": 1}");
    assert_string_equal(call.header, "abc");
    call = call_of(s, CLOUD_AGAIN);
    call.request.also_fine[0] = 404;
    finish(&call);
    assert_true(call.is_fine);
    assert_int_equal(call.answer.http.status, 404);
    server_stop(s);
}

/* --- what is said of an error --- */

static void of_an_error_only_its_message_is_told_and_no_secret(void **state)
{
    static const struct {
        const char *body, *detail;
    } cases[] = {
        {"{\"code\":500,\"message\":\"no node\"}", "no node"},
        {"{\"detail\":\"bad our-own-key-1\"}", "bad [...]"},
        {"{\"error\":\"Bearer abc\\u001b[2J\"}", "[...] [2J"},
        {"<html><body>502 our-own-key-1</body></html>", "a body of 43 bytes without a message"},
        {"{\"message\":7}", "a body of 13 bytes without a message"},
        {"{\"message\":\"a\",\"message\":\"b\"}", "a body of 29 bytes without a message"},
        {"", "no body"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char text[512];
        const char *lines[] = {text};
        snprintf(text, sizeof(text), ANSWER("500", "", "%s"), cases[i].body);
        server_t *s = serve_script(lines);
        call_t call = call_of(s, CLOUD_ONCE);
        finish(&call);
        assert_int_equal(call.trouble.fault, CLOUD_UNKNOWN);
        assert_string_equal(call.trouble.message, "Cloudy answered HTTP 500");
        assert_string_equal(call.trouble.detail, cases[i].detail);
        server_stop(s);
    }
}

static bool on_data(void *data, const uint8_t *bytes, size_t len)
{
    (void)data;
    strncat(streamed, (const char *)bytes, len);
    return strstr(streamed, "stop") == NULL;
}

static char large[CLOUD_ERROR_BODY_MAX + 512];

/* Its body is not read to the end, and it is that error all the same. */
static void an_error_that_is_too_long_is_that_error(void **state)
{
    const char *lines[] = {large};
    (void)state;
    int len = snprintf(large, sizeof(large), "HTTP/1.1 429 X\r\nRetry-After: 7\r\nConnection: close\r\n\r\n");
    memset(large + len, 'x', CLOUD_ERROR_BODY_MAX + 1);
    large[len + CLOUD_ERROR_BODY_MAX + 1] = '\0';
    for (int is_stream = 0; is_stream <= 1; ++is_stream) {
        server_t *s = serve_script(lines);
        call_t call = call_of(s, CLOUD_ONCE);
        call.request.on_data = is_stream ? on_data : NULL;
        finish(&call);
        assert_int_equal(call.trouble.fault, CLOUD_BUSY);
        assert_int_equal(call.trouble.retry_after_ms, 7000);
        assert_int_equal(call.trouble.status, 429);
        assert_string_equal(streamed, "");
        server_stop(s);
    }
}

static void a_success_that_is_too_large_is_none(void **state)
{
    char text[1400];
    const char *lines[] = {text, text};
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        int len = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        memset(text + len, 'x', (size_t)(1024 + over));
        text[len + 1024 + over] = '\0';
        for (int is_once = 0; is_once <= 1; ++is_once) {
            server_t *s = serve_script(lines);
            call_t call = call_of(s, is_once ? CLOUD_ONCE : CLOUD_READ);
            finish(&call);
            assert_int_equal(call.is_fine, over <= 0);
            if (over > 0) /* it had its effect */
                assert_int_equal(call.trouble.fault, is_once ? CLOUD_UNKNOWN : CLOUD_PROTOCOL);
            server_stop(s);
        }
    }
}

/* --- again, and never again --- */

static void a_read_is_repeated_and_what_starts_something_is_not(void **state)
{
    static const char *const firsts[] = {ANSWER("500", "", "{}"),
                                         ANSWER("503", "", "busy"),
                                         ANSWER("504", "", "<html>"),
                                         ANSWER("408", "", ""),
                                         ANSWER("429", "", "{}"),
                                         NULL,
                                         "reset",
                                         "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{"};
    (void)state;
    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); ++i) {
        const char *lines[] = {firsts[i], OK_, OK_};
        for (cloud_repeat_t repeat = CLOUD_ONCE; repeat <= CLOUD_AGAIN; ++repeat) {
            bool is_repeated = repeat == CLOUD_READ || repeat == CLOUD_AGAIN;
            server_t *s = serve_script(lines);
            call_t call = call_of(s, repeat);
            finish(&call);
            assert_int_equal(call.is_fine, is_repeated);
            assert_int_equal(call.answer.tries, is_repeated ? 2 : 1);
            assert_int_equal(atomic_load(&s->requests), is_repeated ? 2 : 1);
            if (!is_repeated)
                assert_int_equal(call.trouble.fault, i == 4 ? CLOUD_BUSY : CLOUD_UNKNOWN);
            server_stop(s);
        }
    }
}

static void a_read_is_not_repeated_for_ever(void **state)
{
    static const char *const lines[] = {ANSWER("503", "", ""), ANSWER("503", "", ""), ANSWER("503", "", ""),
                                        ANSWER("503", "", ""), OK_};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_READ);
    finish(&call);
    assert_false(call.is_fine);
    assert_int_equal(call.trouble.fault, CLOUD_NOTHING);
    assert_int_equal(atomic_load(&s->requests), CLOUD_TRIES_MAX);
    server_stop(s);
    /* nor past its deadline */
    s = serve_script(lines);
    call = call_of(s, CLOUD_READ);
    call.request.deadline_us = clock_mono_us() + 60000;
    finish(&call);
    assert_false(call.is_fine);
    assert_int_equal(atomic_load(&s->requests), 1);
    assert_true(call.took_ms < 1000);
    server_stop(s);
}

static void a_busy_provider_says_when_to_come_again(void **state)
{
    static const struct {
        const char *header;
        uint32_t ms;
        bool is_repeated; /* of a read */
    } cases[] = {{"Retry-After: 7\r\n", 7000, false},
                 {"Retry-After: 0\r\n", 1, true},
                 {"Retry-After: 0.2\r\n", 200, true},
                 {"Retry-After: 999999\r\n", CLOUD_RETRY_AFTER_MAX_MS, false},
                 {"Retry-After: soon\r\n", CLOUD_BUSY_MS, true},
                 {"", CLOUD_BUSY_MS, true}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char text[256];
        const char *lines[] = {text, OK_};
        snprintf(text, sizeof(text), ANSWER("429", "%s", "{\"message\":\"20 concurrent sandboxes\"}"), cases[i].header);
        server_t *s = serve_script(lines);
        call_t call = call_of(s, CLOUD_ONCE);
        finish(&call);
        assert_int_equal(call.trouble.fault, CLOUD_BUSY);
        assert_int_equal(call.trouble.retry_after_ms, cases[i].ms);
        assert_string_equal(call.trouble.message, "Cloudy refused for a limit of its own (HTTP 429)");
        assert_string_equal(call.trouble.detail, "20 concurrent sandboxes");
        server_stop(s);
        s = serve_script(lines);
        call = call_of(s, CLOUD_READ);
        finish(&call);
        assert_int_equal(call.is_fine, cases[i].is_repeated);
        assert_true(!cases[i].is_repeated || i < 1 || i > 2 || call.took_ms >= cases[i].ms);
        server_stop(s);
    }
}

static void retry_after_in_all_its_forms(void **state)
{
    /* date -u -d 'Sun, 06 Nov 1994 08:49:37 GMT' +%s: 784111777 */
    const int64_t wall_ms = INT64_C(784111777) * 1000 - 5000;
    static const struct {
        const char *text;
        bool is_fine;
        uint32_t ms;
    } cases[] = {{"0", true, 0},
                 {"1", true, 1000},
                 {" 12", true, 12000},
                 {"1.5", true, 1500},
                 {"0.0019", true, 1},
                 {"60", true, 60000},
                 {"61", true, 60000},
                 {"99999999999999999999999", true, 60000},
                 {"Sun, 06 Nov 1994 08:49:37 GMT", true, 5000},
                 {"Sunday, 06-Nov-94 08:49:37 GMT", true, 5000},
                 {"Sun Nov  6 08:49:37 1994", true, 5000},
                 {"Sun, 06 Nov 1994 08:49:30 GMT", true, 0},
                 {"Sun, 06 Nov 2094 08:49:37 GMT", true, 60000},
                 {"", false, 0},
                 {"-1", false, 0},
                 {"1s", false, 0},
                 {"1.", false, 0},
                 {".5", false, 0},
                 {"1.5x", false, 0},
                 {"0x10", false, 0},
                 {"tomorrow", false, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        uint32_t ms = 0;
        if (cloud_retry_after(cases[i].text, wall_ms, &ms) != cases[i].is_fine)
            fail_msg("%s", cases[i].text);
        assert_int_equal(ms, cases[i].ms);
    }
    for (uint32_t tries = 1; tries < 100; ++tries) {
        uint32_t most = tries < 6 ? CLOUD_PAUSE_MIN_MS << (tries - 1) : CLOUD_PAUSE_MAX_MS;
        most = most < CLOUD_PAUSE_MAX_MS ? most : CLOUD_PAUSE_MAX_MS;
        uint32_t ms = cloud_pause_ms(tries);
        assert_true(ms <= most && ms >= most / 2);
    }
}

/* --- time and stops --- */

static void silence_ends_at_the_limit(void **state)
{
    static const char *const lines[] = {"wait", "wait", "wait", "wait", "wait"};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_ONCE);
    call.request.limit_ms = 100;
    finish(&call);
    assert_false(call.is_fine);
    assert_int_equal(call.trouble.fault, CLOUD_LATE);
    assert_true(call.trouble.is_sent && call.took_ms >= 100 && call.took_ms < 2000);
    assert_string_equal(call.trouble.message, "Cloudy did not answer in time");
    /* time that was over before: nothing leaves */
    call = call_of(s, CLOUD_ONCE);
    call.request.deadline_us = clock_mono_us();
    finish(&call);
    assert_int_equal(call.trouble.fault, CLOUD_NOTHING);
    assert_false(call.trouble.is_sent);
    assert_int_equal(call.answer.tries, 0);
    assert_int_equal(atomic_load(&s->requests), 1);
    server_stop(s);
}

static void nobody_there_is_nothing_sent(void **state)
{
    static const char *const lines[] = {OK_};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_ONCE);
    server_stop(s);
    finish(&call);
    assert_int_equal(call.trouble.fault, CLOUD_NOTHING);
    assert_false(call.trouble.is_sent);
    assert_string_equal(call.trouble.message, "Cloudy could not be reached");
    assert_int_equal(call.answer.tries, 2); /* nothing had left: once more */
}

static void a_call_is_stopped_with_its_coroutine(void **state)
{
    static const char *const lines[] = {"wait", "wait"};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_READ);
    call.co = co_start(loop, call_main, &call, NULL);
    wait_for(atomic_load(&s->requests) == 1);
    co_cancel(call.co);
    wait_for(call.is_over);
    assert_int_equal(call.trouble.fault, CLOUD_CANCELED);
    assert_int_equal(call.answer.tries, 1);
    server_stop(s);
}

static void clean_up_main(void *arg)
{
    call_t *call = arg;
    call_t before = *call;
    before.is_fine = cloud_call(http, &before.request, &before.answer, &before.trouble);
    assert_int_equal(before.trouble.fault, CLOUD_CANCELED);
    assert_false(before.trouble.is_sent);
    cloud_answer_dispose(&before.answer);
    co_shield_begin();
    call_main(call);
    co_shield_end();
}

/* A stopped run sends nothing more, but what cleans up after it. */
static void after_the_stop_only_cleaning_up_is_sent(void **state)
{
    static const char *const lines[] = {OK_, OK_};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_AGAIN);
    call.co = co_start(loop, clean_up_main, &call, NULL);
    co_cancel(call.co);
    wait_for(call.is_over);
    loop_run_once(loop, 0);
    assert_true(call.is_fine);
    assert_int_equal(atomic_load(&s->requests), 1);
    server_stop(s);
}

/* --- streams --- */

static char type[64];

static bool on_head_of(void *data, const http_response_t *response)
{
    (void)data;
    const char *value = http_response_header(response, "content-type");
    snprintf(type, sizeof(type), "%s", value != NULL ? value : "");
    return strcmp(type, "text/stop") != 0;
}

static void a_stream_is_handed_over_and_an_error_of_it_is_read(void **state)
{
    static const char *const lines[] = {
        "HTTP/1.1 200 OK\r\nContent-Type: text/a\r\nContent-Length: 6\r\n\r\nabcdef",
        ANSWER("503", "Retry-After: 9\r\nX-Trace: t2\r\n", "{\"message\":\"starved\"}"),
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nabc", /* cut */
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc stop",
        "HTTP/1.1 200 OK\r\nContent-Type: text/stop\r\nContent-Length: 1\r\n\r\nx",
    };
    (void)state;
    server_t *s = serve_script(lines);
    for (int i = 0; i < 5; ++i) {
        call_t call = call_of(s, CLOUD_ONCE_FRESH);
        call.request.on_data = on_data;
        call.request.on_head = on_head_of;
        streamed[0] = type[0] = '\0';
        finish(&call);
        switch (i) {
        case 0:
            assert_true(call.is_fine);
            assert_string_equal(streamed, "abcdef");
            assert_string_equal(type, "text/a");
            break;
        case 1:
            assert_int_equal(call.trouble.fault, CLOUD_UNKNOWN);
            assert_string_equal(call.trouble.detail, "starved");
            assert_string_equal(call.body, "{\"message\":\"starved\"}");
            assert_string_equal(call.header, "t2");
            assert_string_equal(streamed, "");
            break;
        case 2:
            assert_false(call.is_fine);
            assert_int_equal(call.trouble.fault, CLOUD_LOST);
            assert_string_equal(streamed, "abc");
            break;
        default: /* stopped by who reads it, which is no trouble */
            assert_true(call.is_fine);
            assert_string_equal(streamed, i == 3 ? "abc stop" : "");
        }
    }
    server_stop(s);
}

/* --- connections --- */

static void connections_are_kept_and_a_dead_one_loses_a_create_and_no_read(void **state)
{
    static const char *const lines[] = {OK_, OK_, OK_, NULL, OK_, OK_};
    (void)state;
    server_t *s = serve_script(lines);
    call_t call = call_of(s, CLOUD_ONCE);
    for (int i = 0; i < 3; ++i) {
        call = call_of(s, i == 1 ? CLOUD_READ : CLOUD_ONCE);
        finish(&call);
        assert_true(call.is_fine);
    }
    assert_int_equal(atomic_load(&s->connections), 1);
    call = call_of(s, CLOUD_ONCE); /* on the warm connection, which dies under it */
    finish(&call);
    assert_int_equal(call.trouble.fault, CLOUD_UNKNOWN);
    assert_int_equal(atomic_load(&s->requests), 4);
    call = call_of(s, CLOUD_READ);
    finish(&call);
    assert_true(call.is_fine);
    unsigned before = atomic_load(&s->connections);
    call = call_of(s, CLOUD_ONCE_FRESH);
    finish(&call);
    assert_true(call.is_fine);
    assert_int_equal(atomic_load(&s->connections), before + 1);
    assert_int_equal(atomic_load(&s->requests), 6);
    server_stop(s);
}

/* --- where to --- */

static void a_base_is_taken_apart(void **state)
{
    static const struct {
        const char *text, *url, *host;
        uint16_t port;
        bool is_https;
    } cases[] = {
        {"https://api.e2b.app", "https://api.e2b.app", "api.e2b.app", 443, true},
        {"https://API.example.com:8443/x/y//", "https://API.example.com:8443/x/y", "api.example.com", 8443, true},
        {"http://127.0.0.1:3000/", "http://127.0.0.1:3000", "127.0.0.1", 3000, false},
        {"http://localhost", "http://localhost", "localhost", 80, false},
        {"http://[::1]:81/a", "http://[::1]:81/a", "::1", 81, false},
        {"https://[2001:db8::1]", "https://[2001:db8::1]", "2001:db8::1", 443, true},
    };
    static const char *const wrong[] = {"",
                                        "api.e2b.app",
                                        "ftp://x",
                                        "https://",
                                        "https://u:p@x",
                                        "https://x?y",
                                        "https://x#y",
                                        "http://example.com",
                                        "http://10.0.0.1",
                                        "https://x/../y",
                                        "https://x:0",
                                        "https://x:65536",
                                        "https://x y",
                                        "https://x/\x7f",
                                        "https://x/%2e"};
    cloud_base_t base;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        assert_null(cloud_base_parse(cases[i].text, &base));
        assert_string_equal(base.url, cases[i].url);
        assert_string_equal(base.host, cases[i].host);
        assert_int_equal(base.port, cases[i].port);
        assert_int_equal(base.is_https, cases[i].is_https);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i)
        if (cloud_base_parse(wrong[i], &base) == NULL)
            fail_msg("%s", wrong[i]);
    buffer_t out;
    buffer_init(&out, 16);
    assert_true(cloud_url_escape(&out, "a/b?c d~"));
    assert_string_equal((char *)out.base, "a%2Fb%3Fc%20d~");
    assert_false(cloud_url_escape(&out, "12345"));
    assert_string_equal((char *)out.base, "a%2Fb%3Fc%20d~");
    buffer_dispose(&out);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, http_setup, http_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_status_means_what_it_means),
        TEST(a_success_is_handed_over_with_its_head),
        TEST(of_an_error_only_its_message_is_told_and_no_secret),
        TEST(an_error_that_is_too_long_is_that_error),
        TEST(a_success_that_is_too_large_is_none),
        TEST(a_read_is_repeated_and_what_starts_something_is_not),
        TEST(a_read_is_not_repeated_for_ever),
        TEST(a_busy_provider_says_when_to_come_again),
        TEST(retry_after_in_all_its_forms),
        TEST(silence_ends_at_the_limit),
        TEST(nobody_there_is_nothing_sent),
        TEST(a_call_is_stopped_with_its_coroutine),
        TEST(after_the_stop_only_cleaning_up_is_sent),
        TEST(a_stream_is_handed_over_and_an_error_of_it_is_read),
        TEST(connections_are_kept_and_a_dead_one_loses_a_create_and_no_read),
        TEST(a_base_is_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
