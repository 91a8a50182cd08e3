/* Randomness: never the same bytes twice, not even across a fork or between threads, whatever the amounts asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/random.h"

enum { ID = 16, DRAWS = 4096 };

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, ID);
}

static void expect_all_differ(uint8_t (*ids)[ID], size_t count)
{
    qsort(ids, count, ID, by_bytes);
    for (size_t i = 1; i < count; ++i)
        assert_memory_not_equal(ids[i - 1], ids[i], ID);
}

static void draws_differ(void **state)
{
    static uint8_t ids[DRAWS][ID];
    (void)state;
    for (size_t i = 0; i < DRAWS; ++i)
        random_bytes(ids[i], ID);
    expect_all_differ(ids, DRAWS);
}

/* Around the largest amount that comes from the pool, and around the pool's own size. */
static void every_amount_is_filled_and_nothing_behind_it(void **state)
{
    static const size_t amounts[] = {0, 1, 7, 31, 32, 33, 64, 1000, 1023, 1024, 1025, 4096};
    uint8_t out[4096 + 8];
    (void)state;
    for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); ++i) {
        size_t len = amounts[i];
        bool set[4096] = {false};
        /* a byte that is zero each time was not written: 32 draws leave 1 in 2^256 */
        for (int draw = 0; draw < 32; ++draw) {
            memset(out, 0, sizeof(out));
            random_bytes(out, len);
            for (size_t at = 0; at < len; ++at)
                set[at] = set[at] || out[at] != 0;
            for (size_t at = len; at < len + 8; ++at)
                assert_int_equal(out[at], 0);
        }
        for (size_t at = 0; at < len; ++at)
            assert_true(set[at]);
    }
}

static void a_forked_child_draws_other_bytes(void **state)
{
    enum { EACH = 64 };
    static uint8_t ids[3 * EACH][ID];
    int pipes[2];
    (void)state;
    random_bytes(ids[0], ID); /* the pool is there and partly used */
    for (int child = 0; child < 2; ++child) {
        assert_int_equal(pipe(pipes), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            uint8_t mine[EACH][ID];
            for (size_t i = 0; i < EACH; ++i)
                random_bytes(mine[i], ID);
            _exit(write(pipes[1], mine, sizeof(mine)) == sizeof(mine) ? 0 : 1);
        }
        int status;
        assert_int_equal(read(pipes[0], ids[child * EACH], sizeof(ids) / 3), sizeof(ids) / 3);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        close(pipes[0]);
        close(pipes[1]);
    }
    for (size_t i = 2 * EACH; i < 3 * EACH; ++i)
        random_bytes(ids[i], ID);
    expect_all_differ(ids, 3 * EACH);
}

static void *draw_many(void *arg)
{
    uint8_t(*ids)[ID] = arg;
    for (size_t i = 0; i < DRAWS / 4; ++i)
        random_bytes(ids[i], ID);
    return NULL;
}

static void threads_draw_other_bytes(void **state)
{
    static uint8_t ids[DRAWS][ID];
    pthread_t threads[4];
    (void)state;
    for (int i = 0; i < 4; ++i)
        assert_int_equal(pthread_create(&threads[i], NULL, draw_many, ids[i * (DRAWS / 4)]), 0);
    for (int i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    expect_all_differ(ids, DRAWS);
}

static void hex_is_lowercase_ends_and_covers_all_digits(void **state)
{
    char text[2 * 100 + 2];
    size_t seen[256] = {0};
    (void)state;
    memset(text, 'x', sizeof(text));
    random_hex(text, 100);
    assert_int_equal(strlen(text), 200);
    assert_int_equal(text[201], 'x');
    assert_int_equal(strspn(text, "0123456789abcdef"), 200);
    for (int draw = 0; draw < 100; ++draw) {
        random_hex(text, 16);
        for (const char *c = text; *c != '\0'; ++c)
            ++seen[(unsigned char)*c];
    }
    for (const char *digit = "0123456789abcdef"; *digit != '\0'; ++digit)
        assert_in_range(seen[(unsigned char)*digit], 100, 300); /* 200 expected, standard deviation 14 */
}

static void below_stays_below(void **state)
{
    bool seen[3] = {false};
    (void)state;
    assert_int_equal(random_below(0), 0);
    assert_int_equal(random_below(1), 0);
    for (int i = 0; i < 1000; ++i) {
        uint32_t n = random_below(3);
        assert_true(n < 3);
        seen[n] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_differ),
        cmocka_unit_test(every_amount_is_filled_and_nothing_behind_it),
        cmocka_unit_test(a_forked_child_draws_other_bytes),
        cmocka_unit_test(threads_draw_other_bytes),
        cmocka_unit_test(hex_is_lowercase_ends_and_covers_all_digits),
        cmocka_unit_test(below_stays_below),
    };
    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
