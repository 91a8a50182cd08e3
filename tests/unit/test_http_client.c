/* The HTTP client against a server that plays by a script, on the loopback. */
#include "http_fixture.h"

#include <dirent.h>
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>

#include <curl/curl.h>

#include "core/co.h"

/* ---- names: this file's getaddrinfo answers libcurl, so no test asks a real resolver ---- */

static atomic_uint lookups_started, lookups_ended;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    (void)hints;
    if (strcmp(node, "slow.invalid") == 0) {
        atomic_fetch_add(&lookups_started, 1);
        usleep(1500 * 1000);
        atomic_fetch_add(&lookups_ended, 1);
        return EAI_AGAIN;
    }
    if (strcmp(node, "nowhere.invalid") == 0)
        return EAI_NONAME;
    struct {
        struct addrinfo info;
        struct sockaddr_in address;
    } *answer = calloc(1, sizeof(*answer));
    answer->address.sin_family = AF_INET;
    answer->address.sin_port = htons((uint16_t)atoi(service != NULL ? service : "0"));
    answer->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    answer->info.ai_family = AF_INET;
    answer->info.ai_socktype = SOCK_STREAM;
    answer->info.ai_addrlen = sizeof(answer->address);
    answer->info.ai_addr = (struct sockaddr *)&answer->address;
    *out = &answer->info;
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    free(info);
}

/* ---- scripts ---- */

/* Answers every request of the connection with the text in `arg`; the connection stays open. */
static void answer_all(conn_t *conn)
{
    while (read_request(conn))
        if (!say(conn, conn->server->arg))
            return;
}

/* Answers one request and closes. */
static void answer_one(conn_t *conn)
{
    if (read_request(conn))
        (void)say(conn, conn->server->arg);
}

static void answer_one_then_hold(conn_t *conn)
{
    answer_one(conn);
    hold(conn);
}

static void read_then_hold(conn_t *conn)
{
    (void)read_request(conn);
    hold(conn);
}

static server_t *serve(void (*script)(conn_t *), const char *text)
{
    return server_start(script, (void *)text, NULL, NULL);
}

static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-One: 1\r\n\r\nhello";

/* ---- what goes out ---- */

static void a_plain_get(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    http_request_t request = get(s, "/a/../b//c?x=%2F&y=1");
    const char *headers[] = {"X-Key: secret value", "X-Empty:"};
    request.headers = headers;
    request.header_count = 2;
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_DONE, true);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body, "hello");
    assert_string_equal(r.x_one, "1");
    char want[512];
    /* Byte for byte: no Accept-Encoding, no User-Agent, no Expect, and the path as it was given. */
    snprintf(want, sizeof(want),
             "GET /a/../b//c?x=%%2F&y=1 HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nX-Key: secret value\r\nX-Empty:\r\n\r\n",
             s->url + 7);
    assert_string_equal(s->last_request, want);
    result_free(&r);
    server_stop(s);
}

static const char *body_of_last_request(server_t *s)
{
    return strstr(s->last_request, "\r\n\r\n") + 4;
}

static void methods_and_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *method, *body;
        const char *length; /* the Content-Length line, NULL = none */
    } cases[] = {
        {"GET", NULL, NULL},
        {"GET", "x", "Content-Length: 1\r\n"},
        {"POST", NULL, "Content-Length: 0\r\n"},
        {"POST", "a=1", "Content-Length: 3\r\n"},
        {"PUT", NULL, "Content-Length: 0\r\n"},
        {"PUT", "0123456789", "Content-Length: 10\r\n"},
        {"PATCH", "x", "Content-Length: 1\r\n"},
        {"DELETE", NULL, NULL},
        {"DELETE", "gone", "Content-Length: 4\r\n"},
        {"OPTIONS", NULL, NULL},
        {"M-SEARCH", NULL, NULL},
    };
    server_t *s = serve(answer_all, ok);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        http_request_t request = get(s, "/m");
        char line[64];
        request.method = cases[i].method;
        request.body = cases[i].body;
        request.body_len = cases[i].body != NULL ? strlen(cases[i].body) : 0;
        expect(&request, HTTP_DONE, true);
        snprintf(line, sizeof(line), "%s /m HTTP/1.1\r\n", cases[i].method);
        assert_memory_equal(s->last_request, line, strlen(line));
        assert_string_equal(body_of_last_request(s), cases[i].body != NULL ? cases[i].body : "");
        if (cases[i].length != NULL)
            assert_non_null(strstr(s->last_request, cases[i].length));
        else
            assert_null(strcasestr(s->last_request, "content-length"));
        assert_null(strcasestr(s->last_request, "content-type"));
        assert_null(strcasestr(s->last_request, "transfer-encoding"));
    }
    server_stop(s);
}

static void a_binary_body_goes_out_as_it_is(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    http_request_t request = get(s, "/");
    const char *headers[] = {"Content-Type: application/x-thing"};
    size_t len = 200 * 1024;
    unsigned char *body = malloc(len);
    for (size_t i = 0; i < len; ++i)
        body[i] = (unsigned char)(i * 31 >> 3);
    request.method = "POST";
    request.headers = headers;
    request.header_count = 1;
    request.body = body;
    request.body_len = len;
    result_t r;
    start(&r, &request);
    unsigned char *kept = malloc(len);
    memcpy(kept, body, len);
    memset(body, 0xee, len); /* the request was copied */
    free(body);
    wait_for(r.done);
    assert_outcome(&r, HTTP_DONE, true);
    assert_memory_equal(body_of_last_request(s), kept, len);
    assert_non_null(strstr(s->last_request, "\r\nContent-Type: application/x-thing\r\n"));
    assert_null(strcasestr(s->last_request, "expect"));
    free(kept);
    result_free(&r);
    server_stop(s);
}

static void head_ignores_the_announced_length(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n");
    http_request_t request = get(s, "/");
    request.method = "HEAD";
    request.response_max = 0;
    expect(&request, HTTP_DONE, true);
    assert_memory_equal(s->last_request, "HEAD / HTTP/1.1\r\n", 17);
    server_stop(s);
}

static void proxies_of_the_environment_are_ignored(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    static const char *const names[] = {"http_proxy", "https_proxy", "all_proxy", "ALL_PROXY", "HTTPS_PROXY"};
    for (size_t i = 0; i < 5; ++i)
        setenv(names[i], "http://127.0.0.1:9/", 1);
    http_request_t request = get(s, "/");
    expect(&request, HTTP_DONE, true);
    for (size_t i = 0; i < 5; ++i)
        unsetenv(names[i]);
    server_stop(s);
}

static void a_request_that_is_wrong_is_not_sent(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    static const char *const headers[] = {"X-A: b\r\nX-C: d",
                                          "X-A: b\n",
                                          "no colon",
                                          ": x",
                                          "X A: b",
                                          "X-A: \x01",
                                          "X-A: \x7f",
                                          "Expect: 100-continue",
                                          "content-length: 0",
                                          "Transfer-Encoding: chunked",
                                          ""};
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); ++i) {
        http_request_t request = get(s, "/");
        request.headers = &headers[i];
        request.header_count = 1;
        expect(&request, HTTP_NOT_SENT, false);
    }
    static const char *const urls[] = {"",
                                       "/relative",
                                       "127.0.0.1",
                                       "ftp://127.0.0.1/",
                                       "file:///etc/passwd",
                                       "http://",
                                       "gopher://x",
                                       "http://127.0.0.1/a b",
                                       "http://127.0.0.1/\r\nX: y",
                                       "http://u:p@127.0.0.1/",
                                       "http://127.0.0.1:99999/",
                                       "http://\xc3\xa4.invalid/"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); ++i) {
        http_request_t request = get(s, "/");
        request.url = urls[i];
        expect(&request, HTTP_NOT_SENT, false);
    }
    static const char *const methods[] = {"", "GE T", "GET /x HTTP/1.1\r\nA: b", "G\x01"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); ++i) {
        http_request_t request = get(s, "/");
        request.method = methods[i];
        expect(&request, HTTP_NOT_SENT, false);
    }
    char with_user[160];
    snprintf(with_user, sizeof(with_user), "http://user:password@%s/", s->url + 7);
    http_request_t request = get(s, "/");
    request.url = with_user;
    expect(&request, HTTP_NOT_SENT, false);
    request = get(s, "/");
    request.deadline_ms = 0;
    expect(&request, HTTP_NOT_SENT, false);
    request = get(s, "/");
    request.method = "HEAD";
    request.body = "x";
    request.body_len = 1;
    expect(&request, HTTP_NOT_SENT, false);
    assert_int_equal(atomic_load(&s->connections), 0);
    server_stop(s);
}

/* limit - 1, limit, limit + 1 of everything a request is made of. */
static void request_limits(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    static char text[HTTP_URL_MAX + 8], line[HTTP_HEADER_LINE_MAX + 8], method[HTTP_METHOD_MAX + 8];
    static const char *headers[HTTP_HEADERS_MAX + 1];
    for (int over = -1; over <= 1; ++over) {
        http_outcome_t want = over <= 0 ? HTTP_DONE : HTTP_NOT_SENT;
        http_request_t request = get(s, "/");
        int len = snprintf(text, sizeof(text), "%s/", s->url);
        memset(text + len, 'u', (size_t)(HTTP_URL_MAX + over - len));
        text[HTTP_URL_MAX + over] = '\0';
        request.url = text;
        expect(&request, want, over <= 0);

        request = get(s, "/");
        const char *one = line;
        memset(line, 'v', sizeof(line));
        memcpy(line, "X-V: ", 5);
        line[HTTP_HEADER_LINE_MAX + over] = '\0';
        request.headers = &one;
        request.header_count = 1;
        expect(&request, want, over <= 0);

        request = get(s, "/");
        for (size_t i = 0; i < HTTP_HEADERS_MAX + 1; ++i)
            headers[i] = "X-Same: 1";
        request.headers = headers;
        request.header_count = (size_t)(HTTP_HEADERS_MAX + over);
        expect(&request, want, over <= 0);

        request = get(s, "/");
        memset(method, 'M', sizeof(method));
        method[HTTP_METHOD_MAX + over] = '\0';
        request.method = method;
        expect(&request, want, over <= 0);
    }
    server_stop(s);
}

/* ---- what comes in ---- */

static void forms_of_an_answer(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
        const char *body, *x_one;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 200, "abcde",
         "(none)"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-One: trailer\r\n\r\n", 200, "a",
         "(none)"},
        {"HTTP/1.0 200 OK\r\nX-One: old\r\n\r\nto the end", 200, "to the end", "old"},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", 200, "to the end", "(none)"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-One: 1\r\n\r\nhi", 201, "hi",
         "1"},
        {"HTTP/1.1 103 Early Hints\r\nX-One: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "hi",
         "(none)"},
        {"HTTP/1.1 204 No Content\r\nX-One: 1\r\n\r\n", 204, "", "1"},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 99999999\r\n\r\n", 304, "", "(none)"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", "(none)"},
        {"HTTP/1.1 500\r\nContent-Length: 3\r\n\r\nerr", 500, "err", "(none)"},
        {"HTTP/1.1 200 OK\r\nX-One: 1\r\nX-One: 1\r\nContent-Length: 0\r\n\r\n", 200, "", "(none)"},
        {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", 200, "nope", "(none)"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", "(none)"},
        {"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n", 401, "", "(none)"},
        {"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n", 407, "", "(none)"},
        {"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", 417, "", "(none)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        for (int idempotent = 0; idempotent < 2; ++idempotent) {
            server_t *s = serve(answer_one, cases[i].text);
            http_request_t request = get(s, "/");
            request.idempotent = idempotent != 0;
            request.response_max = 10;
            result_t r = fetch(&request);
            assert_outcome(&r, HTTP_DONE, true);
            assert_int_equal(r.status, cases[i].status);
            assert_string_equal(r.body, cases[i].body);
            assert_string_equal(r.x_one, cases[i].x_one);
            assert_int_equal(atomic_load(&s->requests), 1);
            result_free(&r);
            server_stop(s);
        }
    }
}

static void broken_answers_are_lost(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly half",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 20",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabcde\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX: y\r\n folded\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 999999 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "hello, this is HTTP/0.9",
        "HTTP/2 200\r\nContent-Length: 0\r\n\r\n",
        "HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        server_t *s = serve(answer_one, cases[i]);
        http_request_t request = get(s, "/");
        result_t r = fetch(&request);
        if (r.outcome != HTTP_LOST)
            print_error("case %zu: %s\n", i, cases[i]);
        assert_outcome(&r, HTTP_LOST, true);
        assert_int_equal(r.body_len, 0);
        assert_int_equal(atomic_load(&s->requests), 1);
        result_free(&r);
        server_stop(s);
    }
}

static void a_nul_byte_in_a_head_script(conn_t *conn)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nX-One: a\0b\r\nContent-Length: 0\r\n\r\n";
    if (read_request(conn))
        (void)say_bytes(conn, text, sizeof(text) - 1);
}

static void a_nul_byte_in_a_head(void **state)
{
    (void)state;
    server_t *s = serve(a_nul_byte_in_a_head_script, NULL);
    http_request_t request = get(s, "/");
    expect(&request, HTTP_LOST, true);
    server_stop(s);
}

static void redirects_are_not_followed(void **state)
{
    (void)state;
    static const char *const codes[] = {"301", "302", "303", "307", "308"};
    for (size_t i = 0; i < 5; ++i) {
        char text[256];
        snprintf(text, sizeof(text), "HTTP/1.1 %s Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
                 codes[i]);
        server_t *s = serve(answer_all, text);
        http_request_t request = get(s, "/here");
        result_t r = fetch(&request);
        assert_outcome(&r, HTTP_DONE, true);
        assert_int_equal(r.status, atoi(codes[i]));
        assert_int_equal(atomic_load(&s->requests), 1);
        result_free(&r);
        server_stop(s);
    }
}

static void cookies_are_not_kept(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n");
    http_request_t request = get(s, "/");
    expect(&request, HTTP_DONE, true);
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->requests), 2);
    assert_null(strcasestr(s->last_request, "cookie"));
    server_stop(s);
}

/* ---- limits of an answer ---- */

static void body_limit_is_exact(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n012345678\r\n1\r\n9\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n0123456789",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); ++i) {
        for (size_t limit = 9; limit <= 11; ++limit) {
            server_t *s = serve(answer_one, forms[i]);
            http_request_t request = get(s, "/");
            request.response_max = limit;
            result_t r = fetch(&request);
            assert_outcome(&r, limit < 10 ? HTTP_TOO_LARGE : HTTP_DONE, true);
            assert_int_equal(r.status, 200);
            assert_string_equal(r.body, limit < 10 ? "" : "0123456789");
            result_free(&r);
            server_stop(s);
        }
    }
}

static void no_body_at_all_is_a_limit_too(void **state)
{
    (void)state;
    server_t *s = serve(answer_one, ok);
    http_request_t request = get(s, "/");
    request.response_max = 0;
    expect(&request, HTTP_TOO_LARGE, true);
    server_stop(s);
    s = serve(answer_one, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    request = get(s, "/");
    request.response_max = 0;
    expect(&request, HTTP_DONE, true);
    server_stop(s);
}

static void an_announced_excess_is_refused_before_the_body(void **state)
{
    (void)state;
    static const char *const lengths[] = {"1001", "18446744073709551615", "18446744073709551617",
                                          "99999999999999999999999"};
    for (size_t i = 0; i < 4; ++i) {
        char text[256];
        snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n", lengths[i]);
        server_t *s = serve(answer_one_then_hold, text); /* not one byte of the body ever comes */
        http_request_t request = get(s, "/");
        request.response_max = 1000;
        result_t r = fetch(&request);
        assert_outcome(&r, HTTP_TOO_LARGE, true);
        assert_true(r.took_ms < 3000);
        result_free(&r);
        server_stop(s);
    }
}

static void head_limit_is_exact(void **state)
{
    (void)state;
    static const char head[] = "HTTP/1.1 200 OK\r\nX-One: abc\r\nContent-Length: 0\r\n\r\n";
    for (int over = -1; over <= 1; ++over) {
        http_client_destroy(client);
        http_client_options_t options = {.connect_ms = 5000, .header_max = sizeof(head) - 1 + (size_t)over};
        client_open(&options);
        server_t *s = serve(answer_one, head);
        http_request_t request = get(s, "/");
        expect(&request, over < 0 ? HTTP_TOO_LARGE : HTTP_DONE, true);
        server_stop(s);
    }
}

static void endless_lines(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 OK\r\n"))
        while (say(conn, "X-More: 0123456789012345678901234567890123456789\r\n"))
            ;
}

static void endless_line(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 OK\r\nX-Long: "))
        while (say(conn, "0123456789012345678901234567890123456789"))
            ;
}

static void endless_status_line(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 "))
        while (say(conn, "0123456789012345678901234567890123456789"))
            ;
}

static void endless_interim(conn_t *conn)
{
    if (read_request(conn))
        while (say(conn, "HTTP/1.1 102 Processing\r\n\r\n"))
            ;
}

static void endless_trailers(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"))
        while (say(conn, "X-More: 0123456789012345678901234567890123456789\r\n"))
            ;
}

static void endless_body(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 OK\r\n\r\n"))
        while (say(conn, "0123456789012345678901234567890123456789"))
            ;
}

static void endless_chunks(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
        while (say(conn, "a\r\n0123456789\r\n"))
            ;
}

static void endless_answers_end(void **state)
{
    (void)state;
    static void (*const scripts[])(conn_t *) = {endless_lines,    endless_line, endless_status_line, endless_interim,
                                                endless_trailers, endless_body, endless_chunks};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); ++i) {
        server_t *s = serve(scripts[i], NULL);
        http_request_t request = get(s, "/");
        result_t r = fetch(&request);
        if (r.outcome != HTTP_TOO_LARGE)
            print_error("script %zu\n", i);
        assert_outcome(&r, HTTP_TOO_LARGE, true);
        assert_true(r.took_ms < 5000);
        result_free(&r);
        server_stop(s);
    }
}

/* ---- time ---- */

static void drip(conn_t *conn)
{
    if (!read_request(conn) || !say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"))
        return;
    while (doze(conn, 20) && say(conn, "x"))
        ;
}

static void a_slow_drip_does_not_outlive_the_deadline(void **state)
{
    (void)state;
    server_t *s = serve(drip, NULL);
    http_request_t request = get(s, "/");
    request.deadline_ms = 300;
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_TIMED_OUT, true);
    assert_true(r.took_ms >= 300 && r.took_ms < 2000);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 0);
    result_free(&r);
    server_stop(s);
}

static void silence_does_not_outlive_the_deadline(void **state)
{
    (void)state;
    server_t *s = serve(read_then_hold, NULL);
    http_request_t request = get(s, "/");
    request.deadline_ms = 1;
    result_t r = fetch(&request);
    assert_int_equal(r.outcome, HTTP_TIMED_OUT); /* sent or not, as the machine's pace has it */
    result_free(&r);
    request.deadline_ms = 200;
    r = fetch(&request);
    assert_outcome(&r, HTTP_TIMED_OUT, true);
    assert_true(r.took_ms >= 200 && r.took_ms < 2000);
    assert_int_equal(r.status, 0);
    result_free(&r);
    server_stop(s);
}

/* ---- connections ---- */

static void reset_at_once(conn_t *conn)
{
    reset(conn);
}

static void reset_after_the_request(conn_t *conn)
{
    (void)read_request(conn);
    reset(conn);
}

static void resets(void **state)
{
    (void)state;
    server_t *s = serve(reset_at_once, NULL);
    http_request_t request = get(s, "/");
    result_t r = fetch(&request);
    /* The reset races with the sending. What must hold: nothing was received, and "not sent" is only said when true. */
    assert_true(r.outcome == HTTP_LOST || r.outcome == HTTP_NOT_SENT);
    assert_int_equal(r.outcome == HTTP_LOST, r.sent);
    assert_int_equal(atomic_load(&s->requests), 0);
    result_free(&r);
    server_stop(s);

    s = serve(reset_after_the_request, NULL);
    request = get(s, "/");
    expect(&request, HTTP_LOST, true);
    request.idempotent = false;
    request.method = "POST";
    expect(&request, HTTP_LOST, true);
    assert_int_equal(atomic_load(&s->requests), 2);
    server_stop(s);
}

static void a_closed_port_is_not_sent(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    char url[160];
    snprintf(url, sizeof(url), "%s/", s->url);
    server_stop(s);
    http_request_t request = {.method = "POST", .url = url, .deadline_ms = 5000};
    expect(&request, HTTP_NOT_SENT, false);
    request.unix_path = "/nonexistent/socket";
    expect(&request, HTTP_NOT_SENT, false);
}

static void unix_sockets(void **state)
{
    (void)state;
    char dir[] = "/tmp/http-unix-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/s", dir);
    server_t *s = server_start(answer_all, (void *)ok, path, NULL);
    http_request_t request = get(s, "/v1/ping");
    request.unix_path = path;
    for (int idempotent = 0; idempotent < 2; ++idempotent) {
        request.idempotent = idempotent != 0;
        result_t r = fetch(&request);
        assert_outcome(&r, HTTP_DONE, true);
        assert_string_equal(r.body, "hello");
        assert_memory_equal(s->last_request, "GET /v1/ping HTTP/1.1\r\nHost: socket.invalid\r\n", 45);
        result_free(&r);
    }
    server_stop(s);
    unlink(path);
    rmdir(dir);
}

static void unix_path_limit(void **state)
{
    (void)state;
    /* Paths of limit - 1, limit and limit + 1 bytes; the first two get as far as the kernel. */
    for (int over = -1; over <= 1; ++over) {
        char dir[HTTP_UNIX_PATH_MAX + 2] = "/tmp/http-unix-XXXXXX";
        assert_non_null(mkdtemp(dir));
        char path[HTTP_UNIX_PATH_MAX + 8];
        int len = snprintf(path, sizeof(path), "%s/", dir);
        memset(path + len, 'p', (size_t)(HTTP_UNIX_PATH_MAX + over - len));
        path[HTTP_UNIX_PATH_MAX + over] = '\0';
        server_t *s = over <= 0 ? server_start(answer_all, (void *)ok, path, NULL) : NULL;
        http_request_t request = {
            .method = "GET", .url = "http://d/", .unix_path = path, .deadline_ms = 5000, .response_max = 100};
        expect(&request, over <= 0 ? HTTP_DONE : HTTP_NOT_SENT, over <= 0);
        request.unix_path = "";
        expect(&request, HTTP_NOT_SENT, false);
        if (s != NULL)
            server_stop(s);
        unlink(path);
        rmdir(dir);
    }
}

static void idempotent_requests_share_a_connection(void **state)
{
    (void)state;
    /* The connection of one that may start something is not kept. */
    server_t *s = serve(answer_all, ok);
    http_request_t request = get(s, "/");
    request.idempotent = false;
    expect(&request, HTTP_DONE, true);
    request.idempotent = true;
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 2);
    server_stop(s);

    s = serve(answer_all, ok);
    request = get(s, "/");
    expect(&request, HTTP_DONE, true);
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 1);
    /* One that may start something opens its own, and nobody gets it afterwards. */
    request.idempotent = false;
    request.method = "POST";
    expect(&request, HTTP_DONE, true);
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 3);
    request.idempotent = true;
    request.method = "GET";
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 3);
    server_stop(s);
}

/* Answers the first request of the first connection, reads a second one on it and closes: the case in which libcurl
 * sends again. */
static void close_on_the_second(conn_t *conn)
{
    if (conn->index > 0) {
        answer_all(conn);
        return;
    }
    if (!read_request(conn) || !say(conn, ok))
        return;
    (void)read_request(conn);
}

static void close_after_reading(conn_t *conn)
{
    (void)read_request(conn);
}

static size_t ignore(char *bytes, size_t size, size_t count, void *data)
{
    (void)bytes;
    (void)data;
    return size * count;
}

/* The fact this client is built around. Should a later libcurl stop doing it, this says so. */
static void plain_libcurl_does_send_a_post_twice(void **state)
{
    (void)state;
    server_t *s = serve(close_on_the_second, ok);
    CURL *easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_URL, s->url);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore);
    assert_int_equal(curl_easy_perform(easy), CURLE_OK);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "create=1");
    assert_int_equal(curl_easy_perform(easy), CURLE_OK);
    assert_int_equal(atomic_load(&s->requests), 3);
    curl_easy_cleanup(easy);
    server_stop(s);
}

static void nothing_is_sent_twice(void **state)
{
    (void)state;
    /* Idempotent: goes out on the kept connection, which dies under it; one delivery, and the caller is told. */
    server_t *s = serve(close_on_the_second, ok);
    http_request_t request = get(s, "/");
    expect(&request, HTTP_DONE, true);
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_LOST, true);
    assert_string_equal(r.reason, "the reused connection died before an answer");
    result_free(&r);
    assert_int_equal(atomic_load(&s->requests), 2);
    server_stop(s);

    /* Not idempotent: the kept connection is not used at all, and the fresh one that dies is not followed by another.
     */
    s = serve(close_after_reading, NULL);
    request = get(s, "/");
    request.method = "POST";
    request.body = "create=1";
    request.body_len = 8;
    request.idempotent = false;
    expect(&request, HTTP_LOST, true);
    for (int i = 0; i < 20; ++i)
        loop_run_once(loop, 5);
    assert_int_equal(atomic_load(&s->requests), 1);
    assert_int_equal(atomic_load(&s->connections), 1);
    server_stop(s);

    s = serve(close_on_the_second, ok);
    request = get(s, "/");
    expect(&request, HTTP_DONE, true);
    request.method = "POST";
    request.body = "create=1";
    request.body_len = 8;
    request.idempotent = false;
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->requests), 2);
    assert_int_equal(atomic_load(&s->connections), 2);
    server_stop(s);
}

/* A create on a connection that was in use a moment ago: it is taken, and when it dies under the request that goes
 * nowhere else. */
static void a_request_that_starts_something_may_take_a_warm_connection(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    http_request_t request = get(s, "/");
    request.method = "POST";
    request.body = "create=1";
    request.body_len = 8;
    request.idempotent = false;
    request.reuse_seconds = 1;
    expect(&request, HTTP_DONE, true);
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 1);
    /* a read may take it after a while, a create may not */
    uint64_t until = clock_mono_ms() + 2100;
    while (clock_mono_ms() < until)
        loop_run_once(loop, 50);
    request.idempotent = true;
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 1);
    until = clock_mono_ms() + 2100;
    while (clock_mono_ms() < until)
        loop_run_once(loop, 50);
    request.idempotent = false;
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 2);
    server_stop(s);

    s = serve(close_on_the_second, ok);
    http_request_t first = get(s, "/");
    expect(&first, HTTP_DONE, true);
    request.url = first.url;
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_LOST, true);
    assert_string_equal(r.reason, "the reused connection died before an answer");
    result_free(&r);
    for (int i = 0; i < 20; ++i)
        loop_run_once(loop, 5);
    assert_int_equal(atomic_load(&s->requests), 2); /* libcurl does open another connection, and sends nothing on it */
    server_stop(s);
}

/* A peer that stops reading and resets while megabytes are under way. */
static void reset_during_the_upload(conn_t *conn)
{
    char some[1000];
    (void)conn_read(conn, some, sizeof(some));
    (void)doze(conn, 50);
    reset(conn);
}

static void answer_before_the_upload_ends(conn_t *conn)
{
    char some[1000];
    (void)conn_read(conn, some, sizeof(some));
    (void)say(conn, "HTTP/1.1 413 Too much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    hold(conn);
}

static void uploads_that_fail(void **state)
{
    (void)state;
    size_t len = 8 * 1024 * 1024;
    char *body = malloc(len);
    memset(body, 'u', len);
    signal(SIGPIPE, SIG_DFL);
    server_t *s = serve(reset_during_the_upload, NULL);
    http_request_t request = get(s, "/");
    request.method = "POST";
    request.idempotent = false;
    request.body = body;
    request.body_len = len;
    expect(&request, HTTP_LOST, true);
    server_stop(s);

    s = serve(answer_before_the_upload_ends, NULL);
    http_request_t again = get(s, "/");
    request.url = again.url;
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_DONE, true);
    assert_int_equal(r.status, 413);
    assert_string_equal(r.body, "no");
    result_free(&r);
    server_stop(s);
    free(body);
}

/* ---- several at once ---- */

/* Nobody is answered before both have asked. */
static void answer_when_both_asked(conn_t *conn)
{
    if (!read_request(conn))
        return;
    while (atomic_load(&conn->server->requests) < 2)
        if (!doze(conn, 2))
            return;
    bool is_a = strncmp(conn->request, "GET /a ", 7) == 0;
    (void)say(conn,
              is_a ? "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na" : "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
}

static void two_at_once(void **state)
{
    (void)state;
    server_t *s = serve(answer_when_both_asked, NULL);
    result_t a, b;
    http_request_t request = get(s, "/a");
    start(&a, &request);
    request = get(s, "/b");
    start(&b, &request);
    wait_for(a.done && b.done);
    assert_outcome(&a, HTTP_DONE, true);
    assert_outcome(&b, HTTP_DONE, true);
    assert_string_equal(a.body, "a");
    assert_string_equal(b.body, "b");
    result_free(&a);
    result_free(&b);
    server_stop(s);
}

static unsigned wanted_at_once;

static void answer_when_all_asked(conn_t *conn)
{
    if (!read_request(conn))
        return;
    while (atomic_load(&conn->server->requests) < wanted_at_once)
        if (!doze(conn, 2))
            return;
    (void)say(conn, ok);
    hold(conn);
}

static void idle_connections_are_bounded(void **state)
{
    (void)state;
    for (unsigned n = HTTP_IDLE_CONNECTIONS_MAX - 1; n <= HTTP_IDLE_CONNECTIONS_MAX + 1; ++n) {
        unsigned kept = n < HTTP_IDLE_CONNECTIONS_MAX ? n : HTTP_IDLE_CONNECTIONS_MAX;
        static result_t results[HTTP_IDLE_CONNECTIONS_MAX + 1];
        wanted_at_once = n;
        server_t *s = serve(answer_when_all_asked, NULL);
        http_request_t request = get(s, "/");
        for (unsigned i = 0; i < n; ++i)
            start(&results[i], &request);
        for (unsigned i = 0; i < n; ++i) {
            wait_for(results[i].done);
            assert_outcome(&results[i], HTTP_DONE, true);
            result_free(&results[i]);
        }
        assert_int_equal(atomic_load(&s->connections), n);
        wait_for(atomic_load(&s->open) <= kept);
        for (int i = 0; i < 10; ++i)
            loop_run_once(loop, 5);
        assert_int_equal(atomic_load(&s->open), kept);
        http_client_destroy(client);
        wait_for(atomic_load(&s->open) == 0);
        server_stop(s);
        client_open(NULL);
    }
}

static void a_client_may_keep_more_connections(void **state)
{
    enum { N = HTTP_IDLE_CONNECTIONS_MAX + 8 };
    static const http_client_options_t options = {.connect_ms = 5000, .header_max = 16 * 1024, .connections_kept = N};
    static result_t results[N];
    (void)state;
    http_client_destroy(client);
    client_open(&options);
    wanted_at_once = N;
    server_t *s = serve(answer_when_all_asked, NULL);
    http_request_t request = get(s, "/");
    for (unsigned i = 0; i < N; ++i)
        start(&results[i], &request);
    for (unsigned i = 0; i < N; ++i) {
        wait_for(results[i].done);
        assert_outcome(&results[i], HTTP_DONE, true);
        result_free(&results[i]);
    }
    for (int i = 0; i < 10; ++i)
        loop_run_once(loop, 5);
    assert_int_equal(atomic_load(&s->open), N);
    http_client_destroy(client);
    wait_for(atomic_load(&s->open) == 0);
    server_stop(s);
    client_open(NULL);
}

static unsigned calls_ended, calls_refused;

static void on_counted(void *data, const http_response_t *response)
{
    (void)data;
    ++calls_ended;
    if (response->outcome == HTTP_NOT_SENT) {
        assert_string_equal(response->reason, "too many calls in flight");
        ++calls_refused;
    } else {
        assert_int_equal(response->outcome, HTTP_CANCELED);
        assert_false(response->sent);
    }
}

static void calls_in_flight_are_bounded(void **state)
{
    (void)state;
    http_request_t request = {.method = "GET", .url = "http://127.0.0.1:9/", .deadline_ms = 60000, .idempotent = true};
    calls_ended = calls_refused = 0;
    for (unsigned i = 0; i < HTTP_CALLS_MAX + 1; ++i)
        http_call_start(client, &request, on_counted, NULL);
    assert_int_equal(calls_ended, 0);
    http_client_destroy(client);
    client = NULL;
    assert_int_equal(calls_ended, HTTP_CALLS_MAX + 1);
    assert_int_equal(calls_refused, 1);
}

/* ---- cancel ---- */

static void cancel_before_anything_happened(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    http_request_t request = get(s, "/");
    result_t r;
    start(&r, &request);
    http_call_cancel(r.call);
    assert_false(r.done); /* never inside the caller */
    wait_for(r.done);
    assert_outcome(&r, HTTP_CANCELED, false);
    assert_int_equal(atomic_load(&s->connections), 0);
    result_free(&r);
    server_stop(s);
}

static void cancel_after_the_request_went_out(void **state)
{
    (void)state;
    server_t *s = serve(read_then_hold, NULL);
    http_request_t request = get(s, "/");
    result_t r;
    start(&r, &request);
    wait_for(atomic_load(&s->requests) == 1);
    http_call_cancel(r.call);
    http_call_cancel(r.call);
    wait_for(r.done);
    assert_outcome(&r, HTTP_CANCELED, true);
    result_free(&r);
    server_stop(s);
}

typedef struct {
    result_t result; /* first: the data of the callback */
    size_t bytes, pieces, heads;
    int status;
    char x_one[16];
    bool stop_on_head, stop_on_data, cancel_on_data;
} stream_t;

static bool on_stream_head(void *data, const http_response_t *response)
{
    stream_t *stream = data;
    assert_int_equal(stream->bytes, 0);
    ++stream->heads;
    stream->status = response->status;
    const char *one = http_response_header(response, "X-One");
    snprintf(stream->x_one, sizeof(stream->x_one), "%s", one != NULL ? one : "(none)");
    return !stream->stop_on_head;
}

static bool on_stream_data(void *data, const uint8_t *bytes, size_t len)
{
    stream_t *stream = data;
    assert_int_equal(stream->heads, 1);
    assert_true(len > 0);
    for (size_t i = 0; i < len; ++i)
        assert_int_equal(bytes[i], 'x');
    stream->bytes += len;
    ++stream->pieces;
    if (stream->cancel_on_data)
        http_call_cancel(stream->result.call);
    return !stream->stop_on_data;
}

static void cancel_while_the_body_comes(void **state)
{
    (void)state;
    server_t *s = serve(drip, NULL);
    http_request_t request = get(s, "/");
    stream_t stream = {0};
    request.on_head = on_stream_head;
    request.on_data = on_stream_data;
    start(&stream.result, &request);
    wait_for(stream.bytes >= 3);
    http_call_cancel(stream.result.call);
    wait_for(stream.result.done);
    assert_outcome(&stream.result, HTTP_CANCELED, true);
    assert_int_equal(stream.status, 200);
    result_free(&stream.result);
    server_stop(s);
}

static void a_canceled_stream_is_not_called_again(void **state)
{
    (void)state;
    server_t *s = serve(drip, NULL);
    http_request_t request = get(s, "/");
    request.on_head = on_stream_head;
    request.on_data = on_stream_data;
    for (int how = 0; how < 3; ++how) {
        stream_t stream = {.stop_on_head = how == 0, .stop_on_data = how == 1, .cancel_on_data = how == 2};
        start(&stream.result, &request);
        wait_for(stream.result.done);
        assert_outcome(&stream.result, HTTP_CANCELED, true);
        assert_int_equal(stream.heads, 1);
        assert_int_equal(stream.pieces, how == 0 ? 0 : 1);
        result_free(&stream.result);
    }
    server_stop(s);
}

static void a_stream_is_delivered_up_to_its_limit(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "HTTP/1.1 200 OK\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nxxxx\r\n6\r\nxxxxxx\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nX-One: 1\r\n\r\nxxxxxxxxxx",
        "HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Length: 10\r\n\r\nxxxxxxxxxx",
    };
    for (size_t i = 0; i < 3; ++i) {
        for (size_t limit = 9; limit <= 11; ++limit) {
            server_t *s = serve(answer_one, forms[i]);
            http_request_t request = get(s, "/");
            stream_t stream = {0};
            request.on_head = on_stream_head;
            request.on_data = on_stream_data;
            request.stream_data = &stream;
            request.response_max = limit;
            result_t r = fetch(&request);
            assert_outcome(&r, limit < 10 ? HTTP_TOO_LARGE : HTTP_DONE, true);
            assert_int_equal(r.body_len, 0);
            if (limit < 10 && i == 2) {
                assert_int_equal(stream.heads, 0); /* announced, so refused on the head */
            } else {
                assert_int_equal(stream.heads, 1);
                assert_string_equal(stream.x_one, "1");
                assert_int_equal(stream.bytes, limit < 10 ? 9 : 10);
            }
            result_free(&r);
            server_stop(s);
        }
    }
}

static void destroy_with_calls_in_flight(void **state)
{
    (void)state;
    server_t *s = serve(drip, NULL);
    server_t *quiet = serve(read_then_hold, NULL);
    result_t r[4];
    http_request_t request = get(s, "/");
    start(&r[0], &request);
    request = get(quiet, "/");
    start(&r[1], &request);
    wait_for(atomic_load(&s->requests) == 1 && atomic_load(&quiet->requests) == 1);
    start(&r[2], &request);
    request.url = "ftp://wrong/";
    start(&r[3], &request); /* judged already, its callback waits for the end of the tick */
    http_client_destroy(client);
    client = NULL;
    assert_outcome(&r[0], HTTP_CANCELED, true);
    assert_outcome(&r[1], HTTP_CANCELED, true);
    assert_outcome(&r[2], HTTP_CANCELED, false);
    assert_outcome(&r[3], HTTP_NOT_SENT, false);
    for (int i = 0; i < 4; ++i) {
        assert_true(r[i].done);
        result_free(&r[i]);
    }
    for (int i = 0; i < 5; ++i)
        loop_run_once(loop, 1);
    server_stop(s);
    server_stop(quiet);
}

static void destroy_it(void *data, const http_response_t *response)
{
    *(http_outcome_t *)data = response->outcome;
    http_client_destroy(client);
    client = NULL;
}

static void destroy_in_a_callback(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    server_t *quiet = serve(read_then_hold, NULL);
    result_t other;
    http_outcome_t outcome = HTTP_LOST;
    http_request_t request = get(quiet, "/");
    start(&other, &request);
    wait_for(atomic_load(&quiet->requests) == 1);
    request = get(s, "/");
    http_call_start(client, &request, destroy_it, &outcome);
    wait_for(client == NULL);
    assert_int_equal(outcome, HTTP_DONE);
    assert_true(other.done);
    assert_outcome(&other, HTTP_CANCELED, true);
    result_free(&other);
    server_stop(s);
    server_stop(quiet);
}

static void start_another(void *data, const http_response_t *response)
{
    result_t *r = data;
    assert_int_equal(response->outcome, HTTP_DONE);
    http_request_t request = get(r->call == NULL ? (server_t *)r->body : NULL, "/");
    start(r, &request);
}

static void a_callback_may_start_a_call(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    result_t r = {.body = (char *)s};
    http_request_t request = get(s, "/");
    http_call_start(client, &request, start_another, &r);
    wait_for(r.done);
    assert_outcome(&r, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->requests), 2);
    result_free(&r);
    server_stop(s);
}

/* ---- names ---- */

static void a_name_is_looked_up(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    char url[128];
    snprintf(url, sizeof(url), "http://somewhere.invalid%s/", strrchr(s->url, ':'));
    http_request_t request = get(s, "/");
    request.url = url;
    expect(&request, HTTP_DONE, true);
    request.url = "http://nowhere.invalid/";
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_NOT_SENT, false);
    result_free(&r);
    server_stop(s);
}

static void a_slow_lookup_does_not_hold_the_loop(void **state)
{
    (void)state;
    http_request_t request = {.method = "GET", .url = "http://slow.invalid/", .deadline_ms = 200, .idempotent = true};
    unsigned before = atomic_load(&lookups_ended);
    result_t timed, canceled, dropped;
    start(&timed, &request);
    request.deadline_ms = 8000;
    start(&canceled, &request);
    start(&dropped, &request);
    uint64_t begin = clock_mono_ms(), longest = 0;
    while (!timed.done || !canceled.done) {
        uint64_t tick = clock_mono_ms();
        loop_run_once(loop, 10);
        if (clock_mono_ms() - tick > longest)
            longest = clock_mono_ms() - tick;
        if (canceled.call != NULL && clock_mono_ms() - begin > 100)
            http_call_cancel(canceled.call);
        assert_true(clock_mono_ms() - begin < 1400);
    }
    assert_outcome(&timed, HTTP_TIMED_OUT, false);
    assert_outcome(&canceled, HTTP_CANCELED, false);
    assert_true(longest < 150);
    assert_int_equal(atomic_load(&lookups_ended), before); /* all of this while the resolver was still at it */
    http_client_destroy(client);
    client = NULL;
    assert_true(clock_mono_ms() - begin < 1400);
    assert_outcome(&dropped, HTTP_CANCELED, false);
    /* The resolver's threads end by themselves; wait, so that the leak check sees them gone. */
    wait_for(atomic_load(&lookups_ended) == before + 3);
    usleep(100 * 1000);
    result_free(&timed);
    result_free(&canceled);
    result_free(&dropped);
}

static void connect_limit_covers_the_lookup(void **state)
{
    (void)state;
    http_client_destroy(client);
    http_client_options_t options = {.connect_ms = 200, .header_max = 1000};
    client_open(&options);
    http_request_t request = {.method = "POST", .url = "http://slow.invalid/", .deadline_ms = 8000};
    unsigned before = atomic_load(&lookups_ended);
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_NOT_SENT, false);
    assert_true(r.took_ms >= 200 && r.took_ms < 1400);
    result_free(&r);
    wait_for(atomic_load(&lookups_ended) == before + 1);
    usleep(100 * 1000);
}

/* ---- descriptors ---- */

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL)
        ++n;
    closedir(dir);
    return n;
}

static void descriptors_are_given_back(void **state)
{
    (void)state;
    server_t *s = serve(answer_one, ok);
    http_request_t request = get(s, "/");
    request.idempotent = false;
    expect(&request, HTTP_DONE, true);
    wait_for(atomic_load(&s->connections) == 1);
    usleep(50 * 1000);
    loop_run_once(loop, 0);
    unsigned before = open_descriptors();
    for (int i = 0; i < 20; ++i)
        expect(&request, HTTP_DONE, true);
    usleep(50 * 1000); /* the server's side */
    loop_run_once(loop, 0);
    assert_int_equal(open_descriptors(), before);
    server_stop(s);
}

static void no_descriptor_left(void **state)
{
    (void)state;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/", ntohs(address.sin_port));
    http_request_t request = {.method = "GET", .url = url, .deadline_ms = 3000, .response_max = 10, .idempotent = true};
    struct rlimit was, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    /* None for the socket; then one for the socket and none for the loop's duplicate. */
    for (rlim_t left = 0; left < 2; ++left) {
        int next = dup(listener);
        close(next);
        now = was;
        now.rlim_cur = (rlim_t)next + left;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
        result_t r = fetch(&request);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_outcome(&r, HTTP_NOT_SENT, false);
        assert_true(r.took_ms < 2000);
        result_free(&r);
    }
    close(listener);
}

/* ---- from a coroutine ---- */

typedef struct {
    http_request_t request;
    http_response_t out;
    char x_one[64], body[64];
    co_t *co;
    bool ended, returned;
    unsigned calls;
} run_t;

static void call_in_co(void *arg)
{
    run_t *run = arg;
    for (unsigned i = 0; i < run->calls; ++i) {
        http_call_co(client, &run->request, &run->out);
        const char *one = http_response_header(&run->out, "X-ONE");
        snprintf(run->x_one, sizeof(run->x_one), "%s", one != NULL ? one : "(none)");
        snprintf(run->body, sizeof(run->body), "%s", run->out.body.base != NULL ? (char *)run->out.body.base : "");
        buffer_dispose(&run->out.body);
    }
    run->returned = true;
}

static void on_run_end(void *arg)
{
    ((run_t *)arg)->ended = true;
}

static void a_call_in_a_coroutine(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    run_t run = {.request = get(s, "/"), .calls = 3};
    co_start(loop, call_in_co, &run, on_run_end);
    assert_false(run.returned);
    wait_for(run.ended);
    assert_int_equal(run.out.outcome, HTTP_DONE);
    assert_string_equal(run.body, "hello");
    assert_string_equal(run.x_one, "1");
    assert_int_equal(atomic_load(&s->requests), 3);
    server_stop(s);

    /* The headers of an answer without a body, and of one that failed. */
    s = serve(answer_all, "HTTP/1.1 204 No\r\nX-One: alone\r\n\r\n");
    run = (run_t){.request = get(s, "/"), .calls = 1};
    co_start(loop, call_in_co, &run, on_run_end);
    wait_for(run.ended);
    assert_int_equal(run.out.outcome, HTTP_DONE);
    assert_string_equal(run.body, "");
    assert_string_equal(run.x_one, "alone");
    server_stop(s);
    s = serve(answer_one, "HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Length: 10\r\n\r\nhalf");
    run = (run_t){.request = get(s, "/"), .calls = 1};
    co_start(loop, call_in_co, &run, on_run_end);
    wait_for(run.ended);
    assert_int_equal(run.out.outcome, HTTP_LOST);
    assert_string_equal(run.x_one, "(none)");
    assert_string_equal(run.body, "");
    server_stop(s);
}

static void append_after_co(void *arg)
{
    run_t *run = arg;
    http_call_co(client, &run->request, &run->out);
    /* The body is an ordinary buffer with its limit, in spite of the headers behind it. */
    assert_int_equal(run->out.body.limit, 8);
    assert_true(buffer_append(&run->out.body, "123", 3));
    assert_false(buffer_append(&run->out.body, "4", 1));
    assert_string_equal((char *)run->out.body.base, "hello123");
    buffer_dispose(&run->out.body);
}

static void stream_in_co(void *arg)
{
    run_t *run = arg;
    stream_t stream = {0};
    run->request.on_head = on_stream_head;
    run->request.on_data = on_stream_data;
    run->request.stream_data = &stream;
    http_call_co(client, &run->request, &run->out);
    assert_int_equal(run->out.outcome, HTTP_DONE);
    assert_int_equal(stream.bytes, 10);
    assert_string_equal(stream.x_one, "1");
    assert_string_equal(http_response_header(&run->out, "x-one"), "1");
    buffer_dispose(&run->out.body);
}

static void a_stream_in_a_coroutine(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, "HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Length: 10\r\n\r\nxxxxxxxxxx");
    run_t run = {.request = get(s, "/")};
    co_start(loop, stream_in_co, &run, on_run_end);
    wait_for(run.ended);
    server_stop(s);
}

static void the_body_after_a_coroutine_call_is_a_buffer(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    run_t run = {.request = get(s, "/")};
    run.request.response_max = 8;
    co_start(loop, append_after_co, &run, on_run_end);
    wait_for(run.ended);
    server_stop(s);
}

static void cancel_a_coroutine_in_a_call(void **state)
{
    (void)state;
    server_t *s = serve(read_then_hold, NULL);
    run_t run = {.request = get(s, "/"), .calls = 1};
    run.co = co_start(loop, call_in_co, &run, on_run_end);
    wait_for(atomic_load(&s->requests) == 1);
    uint64_t begin = clock_mono_ms();
    co_wake(run.co); /* a wake meant for something else does not end the call */
    loop_run_once(loop, 10);
    assert_false(run.returned);
    co_cancel(run.co);
    wait_for(run.ended);
    assert_true(clock_mono_ms() - begin < 2000);
    assert_int_equal(run.out.outcome, HTTP_CANCELED);
    assert_true(run.out.sent);
    server_stop(s);
}

static void canceled_before(void *arg)
{
    run_t *run = arg;
    co_cancel(co_self());
    http_call_co(client, &run->request, &run->out);
    assert_int_equal(run->out.outcome, HTTP_CANCELED);
    assert_false(run->out.sent);
    buffer_dispose(&run->out.body);
    /* Clean-up still gets through. */
    co_shield_begin();
    call_in_co(arg);
    co_shield_end();
}

static void a_canceled_coroutine_sends_nothing_but_clean_up(void **state)
{
    (void)state;
    server_t *s = serve(answer_all, ok);
    run_t run = {.request = get(s, "/"), .calls = 1};
    co_start(loop, canceled_before, &run, on_run_end);
    wait_for(run.ended);
    assert_int_equal(run.out.outcome, HTTP_DONE);
    assert_int_equal(atomic_load(&s->requests), 1);
    server_stop(s);
}

static void destroy_under_a_coroutine(void **state)
{
    (void)state;
    server_t *s = serve(read_then_hold, NULL);
    run_t run = {.request = get(s, "/"), .calls = 1};
    co_start(loop, call_in_co, &run, on_run_end);
    wait_for(atomic_load(&s->requests) == 1);
    http_client_destroy(client);
    client = NULL;
    wait_for(run.ended);
    assert_int_equal(run.out.outcome, HTTP_CANCELED);
    server_stop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_plain_get),
        CASE(methods_and_bodies),
        CASE(a_binary_body_goes_out_as_it_is),
        CASE(head_ignores_the_announced_length),
        CASE(proxies_of_the_environment_are_ignored),
        CASE(a_request_that_is_wrong_is_not_sent),
        CASE(request_limits),
        CASE(forms_of_an_answer),
        CASE(broken_answers_are_lost),
        CASE(a_nul_byte_in_a_head),
        CASE(redirects_are_not_followed),
        CASE(cookies_are_not_kept),
        CASE(body_limit_is_exact),
        CASE(no_body_at_all_is_a_limit_too),
        CASE(an_announced_excess_is_refused_before_the_body),
        CASE(head_limit_is_exact),
        CASE(endless_answers_end),
        CASE(a_slow_drip_does_not_outlive_the_deadline),
        CASE(silence_does_not_outlive_the_deadline),
        CASE(resets),
        CASE(a_closed_port_is_not_sent),
        CASE(unix_sockets),
        CASE(unix_path_limit),
        CASE(idempotent_requests_share_a_connection),
        CASE(plain_libcurl_does_send_a_post_twice),
        CASE(nothing_is_sent_twice),
        CASE(a_request_that_starts_something_may_take_a_warm_connection),
        CASE(a_client_may_keep_more_connections),
        CASE(uploads_that_fail),
        CASE(two_at_once),
        CASE(idle_connections_are_bounded),
        CASE(calls_in_flight_are_bounded),
        CASE(cancel_before_anything_happened),
        CASE(cancel_after_the_request_went_out),
        CASE(cancel_while_the_body_comes),
        CASE(a_canceled_stream_is_not_called_again),
        CASE(a_stream_is_delivered_up_to_its_limit),
        CASE(destroy_with_calls_in_flight),
        CASE(destroy_in_a_callback),
        CASE(a_callback_may_start_a_call),
        CASE(a_name_is_looked_up),
        CASE(a_slow_lookup_does_not_hold_the_loop),
        CASE(connect_limit_covers_the_lookup),
        CASE(descriptors_are_given_back),
        CASE(no_descriptor_left),
        CASE(a_call_in_a_coroutine),
        CASE(a_stream_in_a_coroutine),
        CASE(the_body_after_a_coroutine_call_is_a_buffer),
        CASE(cancel_a_coroutine_in_a_call),
        CASE(a_canceled_coroutine_sends_nothing_but_clean_up),
        CASE(destroy_under_a_coroutine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
