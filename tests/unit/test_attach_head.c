/* The answer to an attach: what an Engine says, what it never would, and heads cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/attach.h"
#include "backends/docker/attach_head.h"

#define RAW "Content-Type: application/vnd.docker.raw-stream\r\n"
#define UP "Connection: Upgrade\r\nUpgrade: tcp\r\n"

static attach_head_result_t read_head(const char *text, size_t len, attach_head_t *head)
{
    char *copy = malloc(len != 0 ? len : 1);
    memcpy(copy, text, len);
    attach_head_result_t result = attach_head_read(copy, len, head);
    free(copy);
    return result;
}

static const struct {
    const char *head;
    attach_head_result_t result;
    int status;
} cases[] = {
    {"HTTP/1.1 101 UPGRADED\r\n" RAW UP "\r\n", ATTACH_HEAD_UPGRADED, 101},
    {"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n" UP "\r\n",
     ATTACH_HEAD_UPGRADED, 101},
    {"HTTP/1.1 101 Switching Protocols\r\nAPI-Version: 1.52\r\n" UP RAW "Docker-Experimental: false\r\n\r\n",
     ATTACH_HEAD_UPGRADED, 101},
    {"HTTP/1.1 101 UPGRADED\r\ncontent-type:application/vnd.docker.raw-stream \t\r\nUPGRADE:  TCP\r\n\r\n",
     ATTACH_HEAD_UPGRADED, 101},
    {"HTTP/1.1 200 OK\r\n" RAW "\r\n", ATTACH_HEAD_UPGRADED, 200},
    {"HTTP/1.0 200\r\n" RAW "\r\n", ATTACH_HEAD_UPGRADED, 200},
    {"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n", ATTACH_HEAD_REFUSED, 404},
    {"HTTP/1.1 409 Conflict\r\n\r\n", ATTACH_HEAD_REFUSED, 409},
    {"HTTP/1.1 500 Internal Server Error\r\n\r\n", ATTACH_HEAD_REFUSED, 500},
    {"HTTP/1.1 301 Moved\r\n" RAW "\r\n", ATTACH_HEAD_REFUSED, 301},
    {"HTTP/1.1 204 No Content\r\n" RAW "\r\n", ATTACH_HEAD_REFUSED, 204},
    /* what an Engine never says */
    {"HTTP/1.1 100 Continue\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\n" RAW "Upgrade: h2c\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\n" RAW UP "Upgrade: tcp\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\n" UP "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\n" RAW RAW UP "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\nContent-Type: text/html\r\n" UP "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream2\r\n" UP "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\n" RAW "Content-Length: 5\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\n" RAW "transfer-encoding: chunked\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 101 UPGRADED\r\n" RAW UP "Content-Length: 0\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\n" RAW " folded\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nNo-Colon\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\n: x\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nA B: x\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nContent-Type : application/vnd.docker.raw-stream\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nA: x\ny\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nA: x\ry\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 200 OK\r\nA: \x1b[2J\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/2 200 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.2 200 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"http/1.1 200 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 2000 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 20 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 000 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1 600 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1  200 OK\r\n" RAW "\r\n", ATTACH_HEAD_BAD, 0},
    {"HTTP/1.1\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"\r\n\r\n", ATTACH_HEAD_BAD, 0},
    {"SSH-2.0-OpenSSH\r\n\r\n", ATTACH_HEAD_BAD, 0},
};

static void heads_are_judged(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        attach_head_t head;
        size_t len = strlen(cases[i].head);
        attach_head_result_t result = read_head(cases[i].head, len, &head);
        if (result != cases[i].result)
            print_error("case %zu: %d, %s\n%s", i, result, head.why != NULL ? head.why : "", cases[i].head);
        assert_int_equal(result, cases[i].result);
        assert_int_equal(result == ATTACH_HEAD_BAD, head.why != NULL);
        if (result == ATTACH_HEAD_BAD)
            continue;
        assert_int_equal(head.status, cases[i].status);
        assert_int_equal(head.head_len, len);
    }
}

static void a_cut_head_is_no_answer_yet(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
        for (size_t len = 0; len < strlen(cases[i].head); ++len) {
            attach_head_t head;
            assert_int_equal(read_head(cases[i].head, len, &head), ATTACH_HEAD_MORE);
        }
}

static void the_stream_begins_behind_the_head(void **state)
{
    static const char text[] = "HTTP/1.1 101 UPGRADED\r\n" RAW UP "\r\n\1\0\0\0\0\0\0\4\r\n\r\n";
    attach_head_t head;
    (void)state;
    assert_int_equal(read_head(text, sizeof(text) - 1, &head), ATTACH_HEAD_UPGRADED);
    assert_int_equal(head.head_len, sizeof(text) - 1 - 12);
}

static void the_head_s_size_is_bounded(void **state)
{
    char text[ATTACH_HEAD_MAX];
    attach_head_t head;
    (void)state;
    for (size_t len = ATTACH_HEAD_MAX - 1; len <= ATTACH_HEAD_MAX; ++len) {
        /* whole, with this size exactly */
        int n = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n" RAW "A: ");
        memset(text + n, 'a', len - (size_t)n);
        memcpy(text + len - 4, "\r\n\r\n", 4);
        assert_int_equal(read_head(text, len, &head), ATTACH_HEAD_UPGRADED);
        assert_int_equal(head.head_len, len);
        /* without its end: one byte more may still come, or not */
        text[len - 1] = 'a';
        assert_int_equal(read_head(text, len, &head), len < ATTACH_HEAD_MAX ? ATTACH_HEAD_MORE : ATTACH_HEAD_BAD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_judged),
        cmocka_unit_test(a_cut_head_is_no_answer_yet),
        cmocka_unit_test(the_stream_begins_behind_the_head),
        cmocka_unit_test(the_head_s_size_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
