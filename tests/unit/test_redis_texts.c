/* What is read of where Redis is: the URLs of TLS and of Sentinels, and the MOVED and ASK answers of a Cluster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/redis.h"
#include "core/redis_moved.h"

/* --- URLs --- */

static void parse(const char *url, redis_address_t *a)
{
    const char *err = redis_address_parse(url, a);
    if (err != NULL)
        fail_msg("%s: %s", url, err);
}

static void a_tls_url_is_a_plain_one_with_tls(void **state)
{
    (void)state;
    redis_address_t a;
    parse("rediss://me:p%40ss@redis.example.org:6380/2", &a);
    assert_true(a.is_tls);
    assert_string_equal(a.host, "redis.example.org");
    assert_string_equal(a.user, "me");
    assert_string_equal(a.password, "p@ss");
    assert_int_equal(a.port, 6380);
    assert_int_equal(a.database, 2);
    assert_null(a.tls); /* read from files, not from the URL */
    redis_address_dispose(&a);
    parse("redis://h", &a);
    assert_false(a.is_tls);
    redis_address_dispose(&a);
}

static void a_sentinel_url_names_sentinels_and_their_master(void **state)
{
    (void)state;
    redis_address_t a, copy;
    parse("redis+sentinel://gw:s%2Fcret@one.example:26380,10.0.0.2,[fd00::3]:1/my-Master_1.0?db=3&sentinel_user=watch"
          "&sentinel_password=p%26q",
          &a);
    redis_address_copy(&copy, &a);
    redis_address_dispose(&a);
    assert_false(copy.is_tls);
    assert_null(copy.host);
    assert_null(copy.path);
    assert_int_equal(copy.sentinel_count, 3);
    assert_string_equal(copy.sentinels[0].host, "one.example");
    assert_int_equal(copy.sentinels[0].port, 26380);
    assert_string_equal(copy.sentinels[1].host, "10.0.0.2");
    assert_int_equal(copy.sentinels[1].port, 26379);
    assert_string_equal(copy.sentinels[2].host, "fd00::3");
    assert_int_equal(copy.sentinels[2].port, 1);
    assert_string_equal(copy.master, "my-Master_1.0");
    assert_string_equal(copy.user, "gw");
    assert_string_equal(copy.password, "s/cret");
    assert_string_equal(copy.sentinel_user, "watch");
    assert_string_equal(copy.sentinel_password, "p&q");
    assert_int_equal(copy.database, 3);
    redis_address_dispose(&copy);
    assert_int_equal(copy.sentinel_count, 0);
    assert_null(copy.sentinel_password);
    parse("rediss+sentinel://h/m", &a);
    assert_true(a.is_tls);
    assert_null(a.user);
    assert_null(a.sentinel_password);
    redis_address_dispose(&a);
    parse("redis+sentinel://h/m?sentinel_password=only", &a);
    assert_null(a.sentinel_user);
    redis_address_dispose(&a);
}

static void malformed_urls_are_refused_without_their_password(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "rediss://",
        "rediss://h?x=1",
        "rediss:///run/redis.sock",
        "redis+tls://h",
        "redis+sentinel://",
        "redis+sentinel:///m",
        "redis+sentinel://h",
        "redis+sentinel://h/",
        "redis+sentinel://h,/m",
        "redis+sentinel://,h/m",
        "redis+sentinel://h,,i/m",
        "redis+sentinel://h:0/m",
        "redis+sentinel://h:65536/m",
        "redis+sentinel://h/m/1",
        "redis+sentinel://h/m%41",
        "redis+sentinel://h/m:1",
        "redis+sentinel://h/m?",
        "redis+sentinel://h/m?db=x",
        "redis+sentinel://h/m?db=65536",
        "redis+sentinel://h/m?db=1&db=1",
        "redis+sentinel://h/m?password=hunter2",
        "redis+sentinel://h/m?user=hunter2",
        "redis+sentinel://h/m?sentinel_user=hunter2",
        "redis+sentinel://h/m?sentinel_user=&sentinel_password=hunter2",
        "redis+sentinel://h/m?sentinel_password=hunter2%",
        "redis+sentinel://h/m#hunter2",
        "redis+sentinel://h?db=1/m",
        "redis+sentinel://:hunter2@/m",
        "redis+sentinel://a@b:hunter2@h/m",
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        redis_address_t a;
        const char *err = redis_address_parse(CASES[i], &a);
        if (err == NULL)
            fail_msg("accepted: %s", CASES[i]);
        assert_null(strstr(err, "hunter"));
        assert_true(a.host == NULL && a.password == NULL && a.master == NULL && a.sentinel_count == 0 &&
                    a.sentinel_password == NULL);
    }
}

static void the_number_of_sentinels_is_judged_at_its_limit(void **state)
{
    (void)state;
    for (int n = REDIS_SENTINELS_MAX - 1; n <= REDIS_SENTINELS_MAX + 1; n++) {
        char url[256];
        redis_address_t a;
        int len = snprintf(url, sizeof(url), "redis+sentinel://h0");
        for (int i = 1; i < n; i++)
            len += snprintf(url + len, sizeof(url) - (size_t)len, ",h%d", i);
        snprintf(url + len, sizeof(url) - (size_t)len, "/m");
        const char *err = redis_address_parse(url, &a);
        assert_int_equal(err != NULL, n > REDIS_SENTINELS_MAX);
        if (err == NULL)
            assert_int_equal(a.sentinel_count, n);
        redis_address_dispose(&a);
    }
}

static void lengths_are_judged_at_their_limits(void **state)
{
    (void)state;
    static char url[REDIS_URL_MAX];
    redis_address_t a;
    for (int over = -1; over <= 1; over++) {
        snprintf(url, sizeof(url), "redis+sentinel://h/%0*d", REDIS_MASTER_NAME_MAX + over, 0);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
        snprintf(url, sizeof(url), "redis+sentinel://%0*d/m", REDIS_HOST_MAX + over, 0);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
        snprintf(url, sizeof(url), "redis+sentinel://h/m?sentinel_password=%0*d", REDIS_CREDENTIAL_MAX + over, 0);
        assert_int_equal(redis_address_parse(url, &a) != NULL, over > 0);
        redis_address_dispose(&a);
    }
}

static void hosts_are_names_and_addresses(void **state)
{
    (void)state;
    static const char *const GOOD[] = {"h", "redis-1.example.org", "127.0.0.1", "::1", "fd00::1:2", "a_b"};
    static const char *const BAD[] = {"", "-h", ".h", "h h", "h/x", "h@x", "[::1]", "::g", "h:1", "h\n", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++)
        assert_true(redis_is_host(GOOD[i], strlen(GOOD[i])));
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_false(redis_is_host(BAD[i], strlen(BAD[i])));
    assert_false(redis_is_host("a\0b", 3));
}

/* --- MOVED and ASK --- */

static void moved_answers_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_ask;
        int slot;
        const char *host;
        int port;
    } CASES[] = {
        {"MOVED 3999 127.0.0.1:6381", false, 3999, "127.0.0.1", 6381},
        {"ASK 3999 127.0.0.1:6381", true, 3999, "127.0.0.1", 6381},
        {"MOVED 0 node-2.redis.example:1", false, 0, "node-2.redis.example", 1},
        {"MOVED 16383 fd00::1:65535", false, 16383, "fd00::1", 65535},
        {"MOVED 1 :6379", false, 1, "", 6379}, /* Redis 7: the host that answered */
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        redis_moved_t m;
        if (!redis_moved_parse(CASES[i].text, &m))
            fail_msg("refused: %s", CASES[i].text);
        assert_int_equal(m.is_ask, CASES[i].is_ask);
        assert_int_equal(m.slot, CASES[i].slot);
        assert_string_equal(m.host, CASES[i].host);
        assert_int_equal(m.port, CASES[i].port);
    }
}

static void other_texts_are_no_moved_answers(void **state)
{
    (void)state;
    static const char *const CASES[] = {
        "",
        "MOVED",
        "MOVED ",
        "moved 1 h:1",
        "MOVEDX 1 h:1",
        "MOVED 1",
        "MOVED 1 ",
        "MOVED 1 h",
        "MOVED 1 h:",
        "MOVED 1 h:0",
        "MOVED 1 h:01",
        "MOVED 1 h:65536",
        "MOVED 1 h:99999999999999999999",
        "MOVED 1 h:1 ",
        "MOVED 1 h:1x",
        "MOVED 1  h:1",
        "MOVED  1 h:1",
        "MOVED 01 h:1",
        "MOVED 16384 h:1",
        "MOVED 99999999999999999999 h:1",
        "MOVED -1 h:1",
        "MOVED x h:1",
        "MOVED 1 ?:6379", /* a node that has no name for others */
        "MOVED 1 a b:1",
        "MOVED 1 -h:1",
        "MOVED 1 [::1]:1",
        "MOVED 1 user@h:1",
        "ASK 1",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        redis_moved_t m;
        if (redis_moved_parse(CASES[i], &m))
            fail_msg("accepted: %s", CASES[i]);
    }
}

static void a_moved_host_is_judged_at_its_limit(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; over++) {
        char text[512];
        redis_moved_t m;
        snprintf(text, sizeof(text), "MOVED 1 %0*d:1", REDIS_HOST_MAX + over, 0);
        assert_int_equal(redis_moved_parse(text, &m), over <= 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tls_url_is_a_plain_one_with_tls),
        cmocka_unit_test(a_sentinel_url_names_sentinels_and_their_master),
        cmocka_unit_test(malformed_urls_are_refused_without_their_password),
        cmocka_unit_test(the_number_of_sentinels_is_judged_at_its_limit),
        cmocka_unit_test(lengths_are_judged_at_their_limits),
        cmocka_unit_test(hosts_are_names_and_addresses),
        cmocka_unit_test(moved_answers_are_read),
        cmocka_unit_test(other_texts_are_no_moved_answers),
        cmocka_unit_test(a_moved_host_is_judged_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
