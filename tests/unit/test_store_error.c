/* Error answers, as Redis 6.2 and 7.0 give them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "records/store_internal.h"

static void errors_of_the_server_are_told_from_a_commands(void **state)
{
    static const struct {
        const char *text;
        store_error_t error;
    } rows[] = {
        {"OOM command not allowed when used memory > 'maxmemory'.", STORE_ERROR_SERVER},
        {"OOM command not allowed when used memory > 'maxmemory'. script: 2067d915024a3e1657c4169c84f809f8ec75bb9d, on "
         "@user_script:3.",
         STORE_ERROR_SERVER},
        {"ERR Error running script (call to f_2067d915024a3e1657c4169c84f809f8ec75bb9d): @user_script:3: @user_script: "
         "3: "
         "-OOM command not allowed when used memory > 'maxmemory'.",
         STORE_ERROR_SERVER},
        {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
         STORE_ERROR_SERVER},
        {"NOPERM this user has no permissions to run the 'evalsha' command", STORE_ERROR_SERVER},
        {"NOREPLICAS Not enough good replicas to write.", STORE_ERROR_SERVER},
        {"CLUSTERDOWN The cluster is down", STORE_ERROR_SERVER},
        {"READONLY You can't write against a read only replica.", STORE_ERROR_NODE},
        {"MOVED 3999 127.0.0.1:6381", STORE_ERROR_NODE},
        {"LOADING Redis is loading the dataset in memory", STORE_ERROR_NODE},
        {"WRONGTYPE Operation against a key holding the wrong kind of value", STORE_ERROR_COMMAND},
        {"ERR user_script:12: attempt to compare nil with number", STORE_ERROR_COMMAND},
        {"ERR value is not an integer or out of range", STORE_ERROR_COMMAND},
        {"", STORE_ERROR_COMMAND},
    };
    (void)state;
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i)
        assert_int_equal(store_error_of(rows[i].text), rows[i].error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_of_the_server_are_told_from_a_commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
