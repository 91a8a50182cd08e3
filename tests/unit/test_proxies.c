/* Whose forwarded addresses are believed, and which of them is the client's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/proxies.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage out;
    memset(&out, 0, sizeof(out));
    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&out)->sin_addr) == 1) {
        out.ss_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&out)->sin6_addr), 1);
        out.ss_family = AF_INET6;
    }
    return out;
}

static const char *const TRUSTED[] = {"10.0.0.0/8", "192.0.2.7", "fd00::/8", NULL};

/* `lines`: X-Forwarded-For, one line after another, "\n" between them; NULL = none. */
static void client_is(const char *peer, const char *lines, const char *wanted)
{
    proxies_t *p = proxies_create(TRUSTED);
    struct sockaddr_storage sa = address(peer);
    head_field_t fields[FORWARDED_LINES_MAX];
    size_t count = 0;
    char *copy = NULL, out[PROXY_ADDRESS_MAX];
    if (lines != NULL) {
        size_t len = strlen(lines);
        copy = malloc(len + 1);
        assert_non_null(copy);
        /* no end behind the last byte */
        copy = realloc(memcpy(copy, lines, len), len != 0 ? len : 1);
        for (size_t at = 0; at <= len;) {
            const char *nl = memchr(copy + at, '\n', len - at);
            size_t n = nl != NULL ? (size_t)(nl - copy) - at : len - at;
            fields[count++] = (head_field_t){copy + at, n, 1};
            at += n + 1;
        }
    }
    proxies_client(p, (struct sockaddr *)&sa, fields, count, out);
    if (strcmp(out, wanted) != 0)
        fail_msg("from %s with '%s': %s, not %s", peer, lines != NULL ? lines : "(none)", out, wanted);
    free(copy);
    proxies_destroy(p);
}

static void strangers_are_not_believed(void **state)
{
    (void)state;
    client_is("203.0.113.9", NULL, "203.0.113.9");
    client_is("203.0.113.9", "198.51.100.1", "203.0.113.9");
    client_is("203.0.113.9", "10.0.0.1", "203.0.113.9");
    client_is("192.0.2.8", "198.51.100.1", "192.0.2.8");
    client_is("2001:db8::1", "198.51.100.1", "2001:db8::1");
    client_is("fe00::1", "198.51.100.1", "fe00::1");
    client_is("11.0.0.0", "198.51.100.1", "11.0.0.0");
    client_is("9.255.255.255", "198.51.100.1", "9.255.255.255");
}

static void listed_proxies_are_believed(void **state)
{
    (void)state;
    client_is("10.0.0.1", "198.51.100.1", "198.51.100.1");
    client_is("10.255.255.255", "198.51.100.1", "198.51.100.1");
    client_is("192.0.2.7", "198.51.100.1", "198.51.100.1");
    client_is("fd12::3", "2001:db8::9", "2001:db8::9");
    client_is("fd12::3", "2001:DB8:0::9", "2001:db8::9");
    client_is("10.0.0.1", NULL, "10.0.0.1");
    client_is("10.0.0.1", "", "10.0.0.1");
    client_is("10.0.0.1", " \t ", "10.0.0.1");
    /* a dual-stack socket shows IPv4 peers as mapped */
    client_is("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1");
    client_is("::ffff:203.0.113.9", "198.51.100.1", "203.0.113.9");
}

/* The rightmost address that is no proxy of ours: whatever stands left of it, the client wrote itself. */
static void the_rightmost_stranger_is_the_client(void **state)
{
    (void)state;
    client_is("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1");
    client_is("10.0.0.1", "1.1.1.1,198.51.100.1,10.0.0.2", "198.51.100.1");
    client_is("10.0.0.1", "1.1.1.1 \t, 198.51.100.1 ,\t10.0.0.2, fd00::9 ", "198.51.100.1");
    client_is("10.0.0.1", "10.9.9.9, 198.51.100.1", "198.51.100.1");
    client_is("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1");
    client_is("10.0.0.1", "198.51.100.1, ::ffff:10.0.0.2", "198.51.100.1");
    /* nothing but proxies: the first of them */
    client_is("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3");
}

static void what_is_no_address_ends_the_belief(void **state)
{
    static const char *const rows[] = {"unknown",
                                       "_hidden",
                                       "198.51.100.1:80",
                                       "[2001:db8::1]",
                                       "[2001:db8::1]:80",
                                       "198.51.100",
                                       "198.51.100.1.1",
                                       "0198.51.100.1",
                                       "198.51.100.256",
                                       "-",
                                       "198.51.100.1;a",
                                       "198.51.100.1 198.51.100.2",
                                       "\"198.51.100.1\"",
                                       "::g",
                                       "fe80::1%eth0",
                                       "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc",
                                       ""};
    char text[256];
    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        snprintf(text, sizeof(text), "1.1.1.1, %s", rows[i]);
        client_is("10.0.0.1", text, "10.0.0.1");
        snprintf(text, sizeof(text), "1.1.1.1, %s, 10.0.0.2", rows[i]);
        client_is("10.0.0.1", text, "10.0.0.2");
        snprintf(text, sizeof(text), "%s, 198.51.100.1, 10.0.0.2", rows[i]);
        client_is("10.0.0.1", text, "198.51.100.1");
    }
}

/* RFC 9110 5.3: lines of one name are one list, in their order. HAProxy's forwardfor adds a line behind the client's.
 */
static void lines_are_one_list(void **state)
{
    (void)state;
    client_is("10.0.0.1", "1.1.1.1\n198.51.100.1", "198.51.100.1");
    client_is("10.0.0.1", "1.1.1.1\n2.2.2.2, 198.51.100.1\n10.0.0.2", "198.51.100.1");
    client_is("10.0.0.1", "1.1.1.1, 198.51.100.1\n10.0.0.3\n10.0.0.2", "198.51.100.1");
    client_is("10.0.0.1", "198.51.100.1\n\n", "198.51.100.1");
    client_is("10.0.0.1", "\n", "10.0.0.1");
    client_is("10.0.0.1", "198.51.100.1\nunknown\n10.0.0.2", "10.0.0.2");
    client_is("203.0.113.9", "1.1.1.1\n198.51.100.1", "203.0.113.9");
}

static void a_chain_of_proxies_has_an_end(void **state)
{
    char text[2048] = "198.51.100.1";
    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(text, ",10.0.0.2");
    client_is("10.0.0.1", text, "10.0.0.2");
}

static void the_list_of_nobody(void **state)
{
    static const char *const none[] = {NULL};
    struct sockaddr_storage sa = address("127.0.0.1");
    const head_field_t line = {"198.51.100.1", 12, 1};
    char out[PROXY_ADDRESS_MAX];
    (void)state;
    proxies_t *lists[] = {proxies_create(NULL), proxies_create(none)};
    for (size_t i = 0; i < LEN(lists); i++) {
        assert_false(proxies_contain(lists[i], (struct sockaddr *)&sa));
        proxies_client(lists[i], (struct sockaddr *)&sa, &line, 1, out);
        assert_string_equal(out, "127.0.0.1");
        sa.ss_family = AF_UNSPEC;
        proxies_client(lists[i], (struct sockaddr *)&sa, &line, 1, out);
        assert_string_equal(out, "unknown");
        sa.ss_family = AF_INET;
        proxies_destroy(lists[i]);
    }
}

static void every_octet_is_printed(void **state)
{
    char text[64];
    (void)state;
    for (int n = 0; n < 256; n++) {
        snprintf(text, sizeof(text), "203.%d.%d.%d", n, 255 - n, n);
        client_is(text, NULL, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_octet_is_printed),
        cmocka_unit_test(strangers_are_not_believed),
        cmocka_unit_test(listed_proxies_are_believed),
        cmocka_unit_test(the_rightmost_stranger_is_the_client),
        cmocka_unit_test(what_is_no_address_ends_the_belief),
        cmocka_unit_test(lines_are_one_list),
        cmocka_unit_test(a_chain_of_proxies_has_an_end),
        cmocka_unit_test(the_list_of_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
