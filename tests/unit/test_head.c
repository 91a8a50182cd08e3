/* The strict check of heads. What must be taken and what must be refused follows RFC 9112 (message syntax) and RFC 9110
 * (fields); where the RFC leaves a choice, what two parsers could read differently is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/head.h"
#include "gateway/limits.h"

#define ID "0123456789abcdef0123456789abcdef"
#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* A copy of exactly the bytes, so the sanitizer sees a read past them. Freed by the caller. */
static char *exact(const char *bytes, size_t len)
{
    char *copy = malloc(len != 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    return copy;
}

typedef struct {
    head_result_t result;
    head_t head;
    const char *why;
    char *bytes; /* what head's fields point into */
} parsed_t;

static parsed_t parse(const char *bytes, size_t len)
{
    parsed_t p = {.bytes = exact(bytes, len)};
    size_t scanned = 0;
    p.result = head_parse(p.bytes, len, &scanned, &p.head, &p.why);
    if ((p.result == HEAD_BAD || p.result == HEAD_TOO_LARGE) != (p.why != NULL))
        fail_msg("a reason goes with a refusal and with nothing else: %.60s", bytes);
    return p;
}

static void is_field(const head_field_t *field, const char *wanted)
{
    if (wanted == NULL) {
        assert_null(field->base);
        return;
    }
    assert_non_null(field->base);
    if (!head_text_is(field, wanted))
        fail_msg("'%.*s' is not '%s'", (int)field->len, field->base, wanted);
}

#define GET "GET /healthz HTTP/1.1\r\nHost: gw\r\n"
#define POST "POST /x HTTP/1.1\r\nHost: gw\r\n"

/* --- request lines --- */

static void request_lines_that_are_taken(void **state)
{
    static const struct {
        const char *line, *method, *path, *query;
        int minor;
    } rows[] = {
        /* origin-form, RFC 9112 3.2.1 */
        {"GET /where?q=now HTTP/1.1", "GET", "/where", "q=now", 1},
        {"GET / HTTP/1.1", "GET", "/", NULL, 1},
        {"GET / HTTP/1.0", "GET", "/", NULL, 0},
        {"GET /a? HTTP/1.1", "GET", "/a", "", 1},
        {"GET /a?b?c HTTP/1.1", "GET", "/a", "b?c", 1},
        {"GET //a/../b HTTP/1.1", "GET", "//a/../b", NULL, 1},
        {"GET /%00%2f HTTP/1.1", "GET", "/%00%2f", NULL, 1},
        {"GET /a:b@c!$&'()*+,;=-._~ HTTP/1.1", "GET", "/a:b@c!$&'()*+,;=-._~", NULL, 1},
        /* absolute-form, 3.2.2: a server must accept it, though it is for proxies; an empty path is "/" (RFC
           9110 4.2.3) */
        {"GET http://www.example.org/pub/WWW/TheProject.html HTTP/1.1", "GET", "/pub/WWW/TheProject.html", NULL, 1},
        {"GET HTTP://h:80/a?b HTTP/1.1", "GET", "/a", "b", 1},
        {"GET https://[::1]:443/a HTTP/1.1", "GET", "/a", NULL, 1},
        {"GET http://h HTTP/1.1", "GET", "/", NULL, 1},
        {"GET http://h?a HTTP/1.1", "GET", "/", "a", 1},
        /* the query begins where it begins: not every '/' begins a path */
        {"GET http://h?a/healthz HTTP/1.1", "GET", "/", "a/healthz", 1},
        {"GET http://h/a?http://i/b HTTP/1.1", "GET", "/a", "http://i/b", 1},
        /* asterisk-form, 3.2.4 */
        {"OPTIONS * HTTP/1.1", "OPTIONS", "*", NULL, 1},
        /* any token is a method (RFC 9110 9.1) and case counts */
        {"!#$%&'*+-.^_`|~09azAZ / HTTP/1.1", "!#$%&'*+-.^_`|~09azAZ", "/", NULL, 1},
        {"get / HTTP/1.1", "get", "/", NULL, 1},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[512];
        int len = snprintf(text, sizeof(text), "%s\r\nHost: gw\r\n\r\n", rows[i].line);
        parsed_t p = parse(text, (size_t)len);
        if (p.result != HEAD_OK)
            fail_msg("%s: %s", rows[i].line, p.why);
        is_field(&p.head.method, rows[i].method);
        is_field(&p.head.path, rows[i].path);
        is_field(&p.head.query, rows[i].query);
        assert_int_equal(p.head.minor, rows[i].minor);
        assert_int_equal(p.head.bytes, len);
        free(p.bytes);
    }
}

static void request_lines_that_are_refused(void **state)
{
    static const char *const rows[] = {
        "",
        " ",
        "GET",
        "GET ",
        "GET /",
        "GET / ",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / HTTP/1.1\t",
        "GET / a HTTP/1.1",
        "GET /\xc2\xa0 HTTP/1.1",
        /* the version is exact (RFC 9112 2.3) */
        "GET / http/1.1",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/0.9",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTP/1,1",
        "GET / HTTP/1.",
        "GET / HTTPS/1.1",
        "PRI * HTTP/2.0",
        "GET / HTTP /1.1",
        "GET / HTTP/1.1HTTP/1.1",
        /* methods are tokens */
        "GE:T / HTTP/1.1",
        "G(T / HTTP/1.1",
        "\"GET\" / HTTP/1.1",
        "G\x01T / HTTP/1.1",
        "G\xe9T / HTTP/1.1",
        "GET\x7f / HTTP/1.1",
        /* targets */
        "GET healthz HTTP/1.1",
        "GET ?a HTTP/1.1",
        "GET *a HTTP/1.1",
        "GET ** HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "GET /\x80 HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /<a> HTTP/1.1",
        "GET /\"a\" HTTP/1.1",
        "GET /{a} HTTP/1.1",
        "GET /a|b HTTP/1.1",
        "GET /a^b HTTP/1.1",
        "GET /`a HTTP/1.1",
        "GET /\x01 HTTP/1.1",
        /* authority-form is for CONNECT to a proxy alone; other schemes are not ours */
        "CONNECT h:443 HTTP/1.1",
        "GET h HTTP/1.1",
        "GET ftp://h/a HTTP/1.1",
        "GET http:/a HTTP/1.1",
        "GET http:a HTTP/1.1",
        "GET httpx://h/a HTTP/1.1",
        /* an http URI without a host is invalid (RFC 9110 4.2.1), one with userinfo is an error (4.2.4) */
        "GET http:// HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "GET https://?a HTTP/1.1",
        "GET http://u@h/a HTTP/1.1",
        "GET http://u:p@h/a HTTP/1.1",
        "GET http://h,i/a HTTP/1.1",
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[512];
        int len = snprintf(text, sizeof(text), "%s\r\nHost: gw\r\n\r\n", rows[i]);
        parsed_t p = parse(text, (size_t)len);
        if (p.result != HEAD_BAD)
            fail_msg("taken: %s", rows[i]);
        free(p.bytes);
    }
}

/* --- framing --- */

typedef enum { REFUSED, NO_BODY, LENGTH, CHUNKED } framing_kind_t;

static void framing(void **state)
{
    static const struct {
        const char *fields;
        framing_kind_t kind;
        uint64_t length;
    } rows[] = {
        {"", NO_BODY, 0},
        {"Content-Length: 0\r\n", LENGTH, 0},
        {"Content-Length: 5\r\n", LENGTH, 5},
        {"content-length:5\r\n", LENGTH, 5},
        {"CONTENT-LENGTH: \t 5 \t \r\n", LENGTH, 5},
        {"Content-Length: 005\r\n", LENGTH, 5},
        {"Content-Length: 999999999999999999\r\n", LENGTH, 999999999999999999},
        {"Transfer-Encoding: chunked\r\n", CHUNKED, 0},
        {"transfer-encoding:Chunked\r\n", CHUNKED, 0},
        {"Transfer-Encoding:\tCHUNKED\t\r\n", CHUNKED, 0},
        /* RFC 9110 8.6: Content-Length = 1*DIGIT, and a list of them is a choice we do not make */
        {"Content-Length: \r\n", REFUSED, 0},
        {"Content-Length: -1\r\n", REFUSED, 0},
        {"Content-Length: +1\r\n", REFUSED, 0},
        {"Content-Length: 0x1\r\n", REFUSED, 0},
        {"Content-Length: 1e1\r\n", REFUSED, 0},
        {"Content-Length: 1.0\r\n", REFUSED, 0},
        {"Content-Length: 1 1\r\n", REFUSED, 0},
        {"Content-Length: 1_1\r\n", REFUSED, 0},
        {"Content-Length: \"1\"\r\n", REFUSED, 0},
        {"Content-Length: 5, 5\r\n", REFUSED, 0},
        {"Content-Length: 5,\r\n", REFUSED, 0},
        {"Content-Length: 5;a\r\n", REFUSED, 0},
        {"Content-Length: \xd9\xa5\r\n", REFUSED, 0},
        {"Content-Length: 9999999999999999999\r\n", REFUSED, 0},
        {"Content-Length: 18446744073709551621\r\n", REFUSED, 0}, /* 2^64 + 5 */
        {"Content-Length: 5\r\nContent-Length: 5\r\n", REFUSED, 0},
        {"Content-Length: 5\r\nContent-Length: 6\r\n", REFUSED, 0},
        {"Content-Length: 5\r\nCONTENT-LENGTH: 5\r\n", REFUSED, 0},
        /* RFC 9112 6.1 and 6.3: both is a smuggling attempt */
        {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked\r\nContent-Length: \r\n", REFUSED, 0},
        {"Transfer-Encoding: identity\r\nContent-Length: 5\r\n", REFUSED, 0},
        {"Transfer-Encoding: \r\n", REFUSED, 0},
        {"Transfer-Encoding: identity\r\n", REFUSED, 0},
        {"Transfer-Encoding: gzip\r\n", REFUSED, 0},
        {"Transfer-Encoding: gzip, chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked, gzip\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked, chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked,\r\n", REFUSED, 0},
        {"Transfer-Encoding: ,chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked;a=b\r\n", REFUSED, 0},
        {"Transfer-Encoding: \"chunked\"\r\n", REFUSED, 0},
        {"Transfer-Encoding: 'chunked'\r\n", REFUSED, 0},
        {"Transfer-Encoding: xchunked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunkedx\r\n", REFUSED, 0},
        {"Transfer-Encoding: chun ked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked\xc2\xa0\r\n", REFUSED, 0},
        {"Transfer-Encoding: \x0b"
         "chunked\r\n",
         REFUSED, 0},
        {"Transfer-Encoding: chunked\x0c\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", REFUSED, 0},
        {"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", REFUSED, 0},
        /* names: no white space before the colon (RFC 9112 5.1), none before the name (5.2) */
        {"Transfer-Encoding : chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding\t: chunked\r\n", REFUSED, 0},
        {"Content-Length : 5\r\n", REFUSED, 0},
        {" Transfer-Encoding: chunked\r\n", REFUSED, 0},
        {"\tTransfer-Encoding: chunked\r\n", REFUSED, 0},
        {"X: y\r\n Transfer-Encoding: chunked\r\n", REFUSED, 0},
        {"Transfer-Encoding:\r\n chunked\r\n", REFUSED, 0},
        {"Content-Length: 5\r\n 5\r\n", REFUSED, 0},
        {"Transfer_Encoding: chunked\r\n", NO_BODY, 0}, /* another name */
        {"X-Content-Length: 5\r\n", NO_BODY, 0},
        {"Content-Length-X: 5\r\n", NO_BODY, 0},
        {"Trailer: Content-Length\r\n", NO_BODY, 0},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[512];
        int len = snprintf(text, sizeof(text), POST "%s\r\n", rows[i].fields);
        parsed_t p = parse(text, (size_t)len);
        if ((p.result == HEAD_OK) != (rows[i].kind != REFUSED))
            fail_msg("%s: %s", rows[i].fields, p.why != NULL ? p.why : "taken");
        if (p.result == HEAD_OK) {
            if (p.head.chunked != (rows[i].kind == CHUNKED) || p.head.has_length != (rows[i].kind == LENGTH) ||
                p.head.length != rows[i].length)
                fail_msg("%s: framed wrongly", rows[i].fields);
        }
        free(p.bytes);
    }
}

/* RFC 9112 6.1: a 1.0 message with Transfer-Encoding is faulty framing. */
static void http_1_0_has_no_transfer_encoding(void **state)
{
    static const char text[] = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    (void)state;
    parsed_t p = parse(text, sizeof(text) - 1);
    assert_int_equal(p.result, HEAD_BAD);
    free(p.bytes);
}

/* --- fields --- */

static void fields_that_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
#define ROW(text) {text, sizeof(text) - 1}
        ROW("X\r\n"),
        ROW(": a\r\n"),
        ROW("X Y: a\r\n"),
        ROW("X(: a\r\n"),
        ROW("X\x80: a\r\n"),
        ROW("X\0Y: a\r\n"),
        ROW("X: a\0b\r\n"),
        ROW("X: a\x01"
            "b\r\n"),
        ROW("X: a\x1f"
            "b\r\n"),
        ROW("X: a\x7f"
            "b\r\n"),
        ROW("X: a\x0b"
            "b\r\n"),
        ROW("X: a\rb\r\n"),
        ROW("X: a\r\r\n"),
        ROW("\rX: a\r\n"),
        ROW("X: a\nY: b\r\n"),
        ROW("X: a\n"),
        ROW("\n"),
        ROW("X: a\r\n\tb\r\n"),
        ROW(" \r\n"),
#undef ROW
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[256];
        size_t len = sizeof(GET) - 1;
        memcpy(text, GET, len);
        memcpy(text + len, rows[i].bytes, rows[i].len);
        len += rows[i].len;
        memcpy(text + len, "\r\n", 2);
        parsed_t p = parse(text, len + 2);
        if (p.result != HEAD_BAD)
            fail_msg("taken: row %zu, %s", i, rows[i].bytes);
        free(p.bytes);
    }
}

/* RFC 9110 5.5: visible characters, space, tab and obs-text. */
static void values_that_are_taken(void **state)
{
    static const char text[] =
        GET "Content-Type:application/json\r\nX-Empty:\r\nX-Blank: \t \r\nTraceparent: a\tb \xc3\xa9\r\n"
            "Plimsoll-Request-Id:   " ID " \t\r\n\r\n";
    (void)state;
    parsed_t p = parse(text, sizeof(text) - 1);
    assert_int_equal(p.result, HEAD_OK);
    is_field(&p.head.content_type, "application/json");
    is_field(&p.head.traceparent, "a\tb \xc3\xa9");
    is_field(&p.head.request_id, ID);
    is_field(&p.head.authorization, NULL);
    free(p.bytes);
}

static void every_wanted_field_has_its_place(void **state)
{
    static const char text[] = GET "AUTHORIZATION: a\r\nPLIMSOLL-REQUEST-ID: b\r\nCONTENT-TYPE: c\r\nCONTENT-ENCODING: "
                                   "d\r\nCONNECT-PROTOCOL-VERSION: e\r\n"
                                   "CONNECT-TIMEOUT-MS: f\r\nX-REQUEST-ID: g\r\nTRACEPARENT: h\r\nX-FORWARDED-FOR: "
                                   "i\r\nAuthorization: second\r\n\r\n";
    (void)state;
    parsed_t p = parse(text, sizeof(text) - 1);
    assert_int_equal(p.result, HEAD_OK);
    is_field(&p.head.authorization, "a");
    assert_int_equal(p.head.authorization.count, 2);
    is_field(&p.head.request_id, "b");
    is_field(&p.head.content_type, "c");
    assert_int_equal(p.head.content_type.count, 1);
    is_field(&p.head.content_encoding, "d");
    is_field(&p.head.connect_version, "e");
    is_field(&p.head.connect_timeout, "f");
    is_field(&p.head.x_request_id, "g");
    is_field(&p.head.traceparent, "h");
    assert_int_equal(p.head.forwarded_lines, 1);
    is_field(&p.head.forwarded_for[0], "i");
    free(p.bytes);
}

/* The proxy nearest to us adds its line behind what a stranger wrote, however much that is. */
static void the_last_forwarded_lines_are_kept(void **state)
{
    (void)state;
    for (size_t lines = FORWARDED_LINES_MAX - 1; lines <= FORWARDED_LINES_MAX + 1; lines++) {
        char text[2048], wanted[16];
        size_t len = (size_t)snprintf(text, sizeof(text), GET);
        for (size_t i = 0; i < lines; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "X-Forwarded-For: 10.0.0.%zu\r\n", i);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\r\n");
        parsed_t p = parse(text, len);
        assert_int_equal(p.result, HEAD_OK);
        size_t kept = lines < FORWARDED_LINES_MAX ? lines : FORWARDED_LINES_MAX;
        assert_int_equal(p.head.forwarded_lines, kept);
        for (size_t i = 0; i < kept; i++) {
            snprintf(wanted, sizeof(wanted), "10.0.0.%zu", lines - kept + i);
            is_field(&p.head.forwarded_for[i], wanted);
        }
        free(p.bytes);
    }
}

/* --- Host, Connection, Expect --- */

static void hosts(void **state)
{
    static const struct {
        const char *head;
        bool taken;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nhost:a.b-c_d:80\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", true},
        /* RFC 9112 3.2: empty when the target has no authority */
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: \r\n\r\n", true},
        /* RFC 9112 3.2: 400 to a 1.1 request without Host, with more than one, or with an invalid one */
        {"GET / HTTP/1.1\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\xc3\xa9\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", false},
        {"GET http://a/ HTTP/1.1\r\n\r\n", false},
        {"GET / HTTP/1.0\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nHost: a\r\n\r\n", true},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        parsed_t p = parse(rows[i].head, strlen(rows[i].head));
        if ((p.result == HEAD_OK) != rows[i].taken)
            fail_msg("%s: %s", rows[i].head, p.why != NULL ? p.why : "taken");
        free(p.bytes);
    }
}

/* RFC 9112 9.3: 1.1 persists unless it says close; 1.0 closes unless it says keep-alive; close wins. */
static void persistence(void **state)
{
    static const struct {
        int minor;
        const char *fields;
        bool persists;
    } rows[] = {
        {1, "", true},
        {1, "Connection: close\r\n", false},
        {1, "Connection: Close\r\n", false},
        {1, "Connection: x, close\r\n", false},
        {1, "Connection: close , x\r\n", false},
        {1, "Connection: ,,close,\r\n", false},
        {1, "Connection: x\tclose\r\n", true}, /* one odd token */
        {1, "Connection: closed\r\n", true},
        {1, "Connection: keep-alive\r\n", true},
        {1, "Connection: keep-alive, close\r\n", false},
        {1, "Connection: keep-alive\r\nConnection: close\r\n", false},
        {1, "Connection:\r\n", true},
        {0, "", false},
        {0, "Connection: keep-alive\r\n", true},
        {0, "Connection: Keep-Alive, x\r\n", true},
        {0, "Connection: keep-alive, close\r\n", false},
        {0, "Connection: close\r\n", false},
        {0, "Keep-Alive: timeout=5\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[256];
        int len = snprintf(text, sizeof(text), "GET / HTTP/1.%d\r\nHost: gw\r\n%s\r\n", rows[i].minor, rows[i].fields);
        parsed_t p = parse(text, (size_t)len);
        assert_int_equal(p.result, HEAD_OK);
        if (p.head.persistent != rows[i].persists)
            fail_msg("HTTP/1.%d with %s", rows[i].minor, rows[i].fields);
        free(p.bytes);
    }
}

/* RFC 9110 10.1.1: any case; ignored from 1.0; other expectations may be refused. */
static void expectations(void **state)
{
    static const struct {
        int minor;
        const char *fields;
        bool taken, waits;
    } rows[] = {
        {1, "", true, false},
        {1, "Expect: 100-continue\r\n", true, true},
        {1, "Expect: 100-Continue\r\n", true, true},
        {0, "Expect: 100-continue\r\n", true, false},
        {1, "Expect: 100-continue, x\r\n", false, false},
        {1, "Expect: x\r\n", false, false},
        {1, "Expect:\r\n", false, false},
        {1, "Expect: 100-continue\r\nExpect: 100-continue\r\n", false, false},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[256];
        int len = snprintf(text, sizeof(text), "POST / HTTP/1.%d\r\nHost: gw\r\nContent-Length: 3\r\n%s\r\n",
                           rows[i].minor, rows[i].fields);
        parsed_t p = parse(text, (size_t)len);
        if ((p.result == HEAD_OK) != rows[i].taken || (rows[i].taken && p.head.expects_continue != rows[i].waits))
            fail_msg("HTTP/1.%d with %s", rows[i].minor, rows[i].fields);
        free(p.bytes);
    }
}

/* --- limits --- */

/* A head of exactly `len` bytes with a field to fill it. */
static char *head_of(size_t len)
{
    static const char start[] = GET "X: ", end[] = "\r\n\r\n";
    char *text = malloc(len);
    assert_non_null(text);
    memcpy(text, start, sizeof(start) - 1);
    memset(text + sizeof(start) - 1, 'a', len - (sizeof(start) - 1) - (sizeof(end) - 1));
    memcpy(text + len - (sizeof(end) - 1), end, sizeof(end) - 1);
    return text;
}

static void a_head_of_up_to_32_kib(void **state)
{
    static const struct {
        size_t len;
        head_result_t result;
    } rows[] = {{HEAD_MAX - 1, HEAD_OK}, {HEAD_MAX, HEAD_OK}, {HEAD_MAX + 1, HEAD_TOO_LARGE}};
    (void)state;
    assert_int_equal(HEAD_MAX, 32 * 1024);
    for (size_t i = 0; i < LEN(rows); i++) {
        char *text = head_of(rows[i].len);
        parsed_t p = parse(text, rows[i].len);
        assert_int_equal(p.result, rows[i].result);
        free(p.bytes);
        free(text);
    }
}

static void an_endless_head_is_refused_at_the_limit(void **state)
{
    char *text = head_of(HEAD_MAX + 100);
    (void)state;
    for (size_t len = HEAD_MAX - 1; len <= HEAD_MAX + 1; len++) {
        parsed_t p = parse(text, len);
        assert_int_equal(p.result, len <= HEAD_MAX ? HEAD_INCOMPLETE : HEAD_TOO_LARGE);
        free(p.bytes);
    }
    free(text);
}

/* What follows a head is not the head's. */
static void a_body_behind_the_head_does_not_count(void **state)
{
    size_t len = HEAD_MAX + 5000;
    char *text = malloc(len);
    (void)state;
    assert_non_null(text);
    memset(text, '\n', len);
    memcpy(text, POST "Content-Length: 9\r\n\r\n", sizeof(POST "Content-Length: 9\r\n\r\n") - 1);
    parsed_t p = parse(text, len);
    assert_int_equal(p.result, HEAD_OK);
    assert_int_equal(p.head.bytes, sizeof(POST "Content-Length: 9\r\n\r\n") - 1);
    free(p.bytes);
    free(text);
}

static void up_to_128_fields(void **state)
{
    (void)state;
    assert_int_equal(HEAD_FIELDS_MAX, 128);
    for (unsigned fields = HEAD_FIELDS_MAX - 1; fields <= HEAD_FIELDS_MAX + 2; fields++) {
        char text[4096];
        size_t len = (size_t)snprintf(text, sizeof(text), GET); /* Host is one of them */
        for (unsigned i = 1; i < fields; i++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "X: %u\r\n", i);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\r\n");
        parsed_t p = parse(text, len);
        assert_int_equal(p.result, fields <= HEAD_FIELDS_MAX ? HEAD_OK : HEAD_BAD);
        free(p.bytes);
    }
}

static void targets_and_methods_at_their_limits(void **state)
{
    char *text = malloc(TARGET_MAX + 256);
    (void)state;
    assert_non_null(text);
    for (size_t target = TARGET_MAX - 1; target <= TARGET_MAX + 1; target++) {
        memcpy(text, "GET ", 4);
        memset(text + 4, '/', target);
        static const char end[] = " HTTP/1.1\r\nHost: gw\r\n\r\n";
        memcpy(text + 4 + target, end, sizeof(end) - 1);
        parsed_t p = parse(text, 4 + target + sizeof(end) - 1);
        assert_int_equal(p.result, target <= TARGET_MAX ? HEAD_OK : HEAD_BAD);
        free(p.bytes);
    }
    for (size_t method = METHOD_MAX - 1; method <= METHOD_MAX + 1; method++) {
        static const char end[] = " / HTTP/1.1\r\nHost: gw\r\n\r\n";
        memset(text, 'M', method);
        memcpy(text + method, end, sizeof(end) - 1);
        parsed_t p = parse(text, method + sizeof(end) - 1);
        assert_int_equal(p.result, method <= METHOD_MAX ? HEAD_OK : HEAD_BAD);
        free(p.bytes);
    }
    free(text);
}

/* --- pieces --- */

/* However the bytes come, the verdict is the one of the whole, and it comes no later than with the last byte. */
static void a_head_in_pieces(void **state)
{
    static const char *const heads[] = {
        GET "\r\n",
        POST "Content-Length: 5\r\nPlimsoll-Request-Id: " ID "\r\n\r\n",
        POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        "\n\n",
        "\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < LEN(heads); i++) {
        size_t len = strlen(heads[i]);
        parsed_t whole = parse(heads[i], len);
        for (size_t step = 1; step <= 5; step++) {
            size_t scanned = 0, have = 0;
            head_t head;
            const char *why;
            head_result_t result = HEAD_INCOMPLETE;
            while (result == HEAD_INCOMPLETE && have < len) {
                have = have + step < len ? have + step : len;
                char *bytes = exact(heads[i], have); /* the buffer may move between the calls */
                result = head_parse(bytes, have, &scanned, &head, &why);
                free(bytes);
            }
            if (result != whole.result)
                fail_msg("in steps of %zu: %s", step, heads[i]);
            if (result == HEAD_OK)
                assert_int_equal(head.bytes, len);
        }
        free(whole.bytes);
    }
}

/* A peer that ends lines with LF never sends the end we wait for: it is refused at the first one. */
static void a_bare_lf_is_refused_before_the_end(void **state)
{
    (void)state;
    parsed_t p = parse("GET / HTTP/1.1\n", 15);
    assert_int_equal(p.result, HEAD_BAD);
    free(p.bytes);
    p = parse("GET / HTTP/1.1\r", 15);
    assert_int_equal(p.result, HEAD_INCOMPLETE);
    free(p.bytes);
    p = parse("", 0);
    assert_int_equal(p.result, HEAD_INCOMPLETE);
    free(p.bytes);
}

/* --- request IDs --- */

static void request_ids(void **state)
{
    static const struct {
        const char *fields;
        bool valid;
    } rows[] = {
        {"Plimsoll-Request-Id: " ID "\r\n", true},
        {"plimsoll-request-id:" ID "\r\n", true},
        {"", false},
        {"Plimsoll-Request-Id:\r\n", false},
        {"Plimsoll-Request-Id: 0123456789abcdef0123456789abcde\r\n", false},
        {"Plimsoll-Request-Id: " ID "0\r\n", false},
        {"Plimsoll-Request-Id: 0123456789ABCDEF0123456789abcdef\r\n", false},
        {"Plimsoll-Request-Id: 0123456789abcdeg0123456789abcdef\r\n", false},
        {"Plimsoll-Request-Id: 0123456789abcde/0123456789abcdef\r\n", false},
        {"Plimsoll-Request-Id: 0123456789abcde:0123456789abcdef\r\n", false},
        {"Plimsoll-Request-Id: 0123456789abcde`0123456789abcdef\r\n", false},
        {"Plimsoll-Request-Id: " ID "\r\nPlimsoll-Request-Id: " ID "\r\n", false},
        {"Plimsoll-Request-Id: " ID ", " ID "\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[256];
        int len = snprintf(text, sizeof(text), GET "%s\r\n", rows[i].fields);
        parsed_t p = parse(text, (size_t)len);
        assert_int_equal(p.result, HEAD_OK);
        if (head_request_id_is_valid(&p.head.request_id) != rows[i].valid)
            fail_msg("%s", rows[i].fields);
        free(p.bytes);
    }
}

/* Spec 1.5: every answer echoes the ID, the refusal of the head included. */
static void a_refused_head_still_shows_its_request_id(void **state)
{
    static const char *const heads[] = {
        "GET / HTTP/1.1\r\nPlimsoll-Request-Id: " ID "\r\n\r\n",
        POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nPlimsoll-Request-Id: " ID "\r\n\r\n",
        "GET  / HTTP/1.1\r\nPlimsoll-Request-Id: " ID "\r\n\r\n",
        GET "Bad Name: x\r\nPlimsoll-Request-Id: " ID "\r\n\r\n",
        GET "X: y\r\n z\r\nPlimsoll-Request-Id: " ID "\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < LEN(heads); i++) {
        parsed_t p = parse(heads[i], strlen(heads[i]));
        assert_int_equal(p.result, HEAD_BAD);
        if (!head_request_id_is_valid(&p.head.request_id))
            fail_msg("%s", heads[i]);
        free(p.bytes);
    }
}

static void texts_are_compared_whole(void **state)
{
    const head_field_t field = {"GETx", 3, 1}, absent = {NULL, 0, 0};
    (void)state;
    assert_true(head_text_is(&field, "GET"));
    assert_false(head_text_is(&field, "get"));
    assert_true(head_text_is_nocase(&field, "get"));
    assert_false(head_text_is(&field, "GETx"));
    assert_false(head_text_is_nocase(&field, "ge"));
    assert_false(head_text_is(&absent, ""));
    assert_false(head_text_is_nocase(&absent, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_lines_that_are_taken),
        cmocka_unit_test(request_lines_that_are_refused),
        cmocka_unit_test(framing),
        cmocka_unit_test(http_1_0_has_no_transfer_encoding),
        cmocka_unit_test(fields_that_are_refused),
        cmocka_unit_test(values_that_are_taken),
        cmocka_unit_test(every_wanted_field_has_its_place),
        cmocka_unit_test(the_last_forwarded_lines_are_kept),
        cmocka_unit_test(hosts),
        cmocka_unit_test(persistence),
        cmocka_unit_test(expectations),
        cmocka_unit_test(a_head_of_up_to_32_kib),
        cmocka_unit_test(an_endless_head_is_refused_at_the_limit),
        cmocka_unit_test(a_body_behind_the_head_does_not_count),
        cmocka_unit_test(up_to_128_fields),
        cmocka_unit_test(targets_and_methods_at_their_limits),
        cmocka_unit_test(a_head_in_pieces),
        cmocka_unit_test(a_bare_lf_is_refused_before_the_end),
        cmocka_unit_test(request_ids),
        cmocka_unit_test(a_refused_head_still_shows_its_request_id),
        cmocka_unit_test(texts_are_compared_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
