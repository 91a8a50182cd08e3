/* Response headers as the command takes them: what binds an answer to its request (spec section 1.5). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/exchange.h"
#include "core/clock.h"

#define ID "0123456789abcdef0123456789abcdef"

static void take(exchange_t *exchange, const char *line)
{
    exchange_take_header(exchange, line, strlen(line));
}

static void test_one_equal_echo_binds(void **state)
{
    (void)state;
    exchange_t exchange = {0};
    assert_false(exchange_is_bound(&exchange, ID));
    take(&exchange, "plimsoll-request-id:\t" ID " \r\n");
    assert_true(exchange_is_bound(&exchange, ID));
    assert_false(exchange_is_bound(&exchange, "0123456789abcdef0123456789abcdee"));
    take(&exchange, "Plimsoll-Request-Id: " ID "\r\n");
    assert_false(exchange_is_bound(&exchange, ID));
}

static void test_names_are_compared_whole(void **state)
{
    (void)state;
    exchange_t exchange = {0};
    take(&exchange, "X-Plimsoll-Request-Id: " ID "\r\n");
    take(&exchange, "Plimsoll-Request-Id2: " ID "\r\n");
    take(&exchange, "Plimsoll-Request-I: " ID "\r\n");
    take(&exchange, "Plimsoll-Request-Id\r\n");
    take(&exchange, "");
    assert_int_equal(exchange.headers[HEADER_REQUEST_ID].count, 0);
}

/* A value of EXCHANGE_VALUE_MAX is kept, one byte more counts but says nothing. */
static void test_value_limit(void **state)
{
    (void)state;
    for (int extra = -1; extra <= 1; extra++) {
        char line[EXCHANGE_VALUE_MAX + 32] = "Retry-After: ";
        size_t at = strlen(line), len = (size_t)(EXCHANGE_VALUE_MAX + extra);
        memset(line + at, '1', len);
        memcpy(line + at + len, "\r\n", 2);
        exchange_t exchange = {0};
        exchange_take_header(&exchange, line, at + len + 2);
        assert_int_equal(exchange.headers[HEADER_RETRY_AFTER].count, 1);
        assert_int_equal(strlen(exchange_header(&exchange, HEADER_RETRY_AFTER)), extra <= 0 ? len : 0);
    }
}

static void test_value_with_a_nul_says_nothing(void **state)
{
    (void)state;
    static const char line[] = "Plimsoll-Request-Id: " ID "\0x\r\n";
    exchange_t exchange = {0};
    exchange_take_header(&exchange, line, sizeof(line) - 1);
    assert_int_equal(exchange.headers[HEADER_REQUEST_ID].count, 1);
    assert_false(exchange_is_bound(&exchange, ID));
}

static void test_content_type(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool is_json;
    } CASES[] = {{"Content-Type: application/json", true},
                 {"Content-Type: APPLICATION/json;charset=utf-8", true},
                 {"Content-Type: application/json ; charset=utf-8", true},
                 {"Content-Type: application/json-seq", false},
                 {"Content-Type: application/jso", false},
                 {"Content-Type: text/json", false},
                 {"Content-Type:", false}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        exchange_t exchange = {0};
        take(&exchange, CASES[i].line);
        assert_int_equal(exchange_is_json(&exchange), CASES[i].is_json);
    }
}

static void test_request_ids(void **state)
{
    (void)state;
    assert_true(request_id_is_valid(ID));
    assert_false(request_id_is_valid("0123456789abcdef0123456789abcde"));
    assert_false(request_id_is_valid(ID "0"));
    assert_false(request_id_is_valid("0123456789ABCDEF0123456789abcdef"));
    assert_false(request_id_is_valid("0123456789abcdeg0123456789abcdef"));
    assert_false(request_id_is_valid(""));
}

/* A loopback socket whose connections the kernel completes and nobody ever answers. */
static int silent_server(char *url, size_t size, const char *scheme)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    snprintf(url, size, "%s://127.0.0.1:%u/", scheme, ntohs(address.sin_port));
    return fd;
}

/* Time is bounded, and what may have left by then is told apart from what cannot have: over TLS nothing leaves before
 * the handshake. */
static void test_silence_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *scheme;
        exchange_outcome_t outcome;
    } CASES[] = {{"http", EXCHANGE_TIMED_OUT}, {"https", EXCHANGE_NOT_SENT}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char url[64];
        int fd = silent_server(url, sizeof(url), CASES[i].scheme);
        exchange_request_t request = {.url = url, .request_id = ID, .body = "{}", .body_len = 2, .whole_ms = 300};
        exchange_t exchange;
        uint64_t begun = clock_mono_ms();
        exchange_perform(&request, &exchange);
        assert_int_equal(exchange.outcome, CASES[i].outcome);
        assert_in_range(clock_mono_ms() - begun, 250, 5000);
        assert_string_not_equal(exchange.reason, "");
        exchange_dispose(&exchange);
        close(fd);
    }
}

static void test_closed_port_is_not_sent(void **state)
{
    (void)state;
    char url[64];
    close(silent_server(url, sizeof(url), "http"));
    exchange_request_t request = {.url = url, .body = "{}", .body_len = 2};
    exchange_t exchange;
    exchange_perform(&request, &exchange);
    assert_int_equal(exchange.outcome, EXCHANGE_NOT_SENT);
    exchange_dispose(&exchange);
}

int main(void)
{
    exchange_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_equal_echo_binds), cmocka_unit_test(test_names_are_compared_whole),
        cmocka_unit_test(test_value_limit),          cmocka_unit_test(test_value_with_a_nul_says_nothing),
        cmocka_unit_test(test_content_type),         cmocka_unit_test(test_request_ids),
        cmocka_unit_test(test_silence_is_bounded),   cmocka_unit_test(test_closed_port_is_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
