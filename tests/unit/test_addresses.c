/* Listen addresses, what counts as loopback, and networks in CIDR form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

#include "config/network.h"
#include "config/options.h"

static void addresses(void **state)
{
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {{":8746", "", 8746},
                {"127.0.0.1:9464", "127.0.0.1", 9464},
                {"[::1]:1", "::1", 1},
                {"localhost:65535", "localhost", 65535},
                {"a-b_c.example:0", "a-b_c.example", 0}};
    static const char *const bad[] = {
        "",         "8746",     "host",         "host:",           ":65536",    ":-1",          ":+1",
        ": 1",      ":08",      ":000001",      "::1:80",          "[::1]",     "[::1]80",      "[127.0.0.1]:80",
        "[::1:80",  "[::g]:80", "ho st:80",     "host:80x",        "1.2.3:80",  "256.1.1.1:80", "-host:80",
        ".host:80", "ho/st:80", "user@host:80", "[fe80::1%lo]:80", "host:80:81"};
    char host[256], text[300];
    uint16_t port;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(address_parse(good[i].text, host, &port));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (address_parse(bad[i], host, &port))
            fail_msg("accepted: %s", bad[i]);
    memset(text, 'h', sizeof(text));
    strcpy(text + 255, ":1");
    assert_true(address_parse(text, host, &port));
    assert_int_equal(strlen(host), 255);
    memset(text, 'h', sizeof(text));
    strcpy(text + 256, ":1");
    assert_false(address_parse(text, host, &port));
}

static void loopback_is_localhost_or_a_literal(void **state)
{
    static const char *const yes[] = {"localhost", "LOCALHOST",       "127.0.0.1",       "127.255.255.254",
                                      "::1",       "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"};
    static const char *const no[] = {
        "", "0.0.0.0", "::", "126.255.255.255", "128.0.0.1", "localhost.example", "::2", "::ffff:10.0.0.1", "127.1"};

    (void)state;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        if (!address_is_loopback(yes[i]))
            fail_msg("not loopback: %s", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (address_is_loopback(no[i]))
            fail_msg("loopback: %s", no[i]);
}

static bool holds(const char *network_text, const char *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    network_t network;

    assert_true(network_parse(network_text, &network));
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
        return network_holds(&network, (struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return network_holds(&network, (struct sockaddr *)&v6);
}

static void networks(void **state)
{
    static const char *const bad[] = {"",       "/8",         "10.0.0.0/", "10.0.0.0/33",  "10.0.0.0/08", "10.0.0.1/8",
                                      "::/129", "::1/127",    "10.0.0/8",  "10.0.0.0/8/8", "10.0.0.0/-1", "host",
                                      "::1%lo", "10.0.0.0/8 "};
    struct sockaddr local = {.sa_family = AF_UNIX};
    network_t network;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (network_parse(bad[i], &network))
            fail_msg("accepted: %s", bad[i]);
    assert_true(holds("10.0.0.0/8", "10.255.255.255"));
    assert_false(holds("10.0.0.0/8", "11.0.0.0"));
    assert_true(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
    assert_true(holds("192.0.2.7", "192.0.2.7"));
    assert_false(holds("192.0.2.7", "192.0.2.6"));
    assert_true(holds("192.0.2.6/31", "192.0.2.7"));
    assert_false(holds("192.0.2.6/31", "192.0.2.8"));
    assert_true(holds("0.0.0.0/0", "203.0.113.9"));
    assert_false(holds("0.0.0.0/0", "::1"));
    assert_true(holds("::/0", "203.0.113.9"));
    assert_true(holds("fd00::/8", "fdff::1"));
    assert_false(holds("fd00::/8", "fe00::1"));
    assert_true(holds("::1", "::1"));
    assert_true(network_parse("::/0", &network));
    assert_false(network_holds(&network, &local));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(loopback_is_localhost_or_a_literal),
        cmocka_unit_test(networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
