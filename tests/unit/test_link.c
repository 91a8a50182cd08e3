/* The front's end of a backend connection, against a role of the test's own that says what it likes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/meters.h"
#include "core/ipc.h"
#include "core/random.h"
#include "gateway/link.h"
#include "gateway/metrics.h"

enum { TICKS_MAX = 2000 };

typedef struct {
    loop_t *loop;
    char dir[32], path[64];
    int listen_fd, changes;
    ipc_t *role;
    link_t *link;
    uint64_t call;
    int ends;
    link_end_t end;
} bench_t;

static void on_message(void *data, ipc_t *ipc, uint16_t type, uint64_t call, const uint8_t *body, size_t len)
{
    bench_t *b = data;
    (void)ipc;
    (void)body;
    (void)len;
    if (type == LINK_RUN_START)
        b->call = call;
}

static void on_close(void *data, ipc_t *ipc, const char *reason)
{
    (void)reason;
    ((bench_t *)data)->role = NULL;
    ipc_destroy(ipc);
}

static void on_change(void *data)
{
    ((bench_t *)data)->changes++;
}

static void on_end(void *data, const link_result_t *result)
{
    bench_t *b = data;
    b->ends++;
    b->end = result->end;
}

static void tick_until(bench_t *b, const int *value, int wanted)
{
    for (int i = 0; i < TICKS_MAX && *value != wanted; i++)
        loop_run_once(b->loop, 10);
    assert_int_equal(*value, wanted);
}

static void announce(bench_t *b, const char *name, const char *tier)
{
    Plimsoll__Backend__Announce a = PLIMSOLL__BACKEND__ANNOUNCE__INIT;
    Plimsoll__Backend__Kind kind = PLIMSOLL__BACKEND__KIND__INIT;
    a.name = (char *)name;
    a.state = PLIMSOLL__BACKEND__STATE__STATE_READY;
    a.tier = (char *)tier;
    a.javascript = a.project = a.module = &kind;
    assert_int_equal(ipc_send(b->role, LINK_ANNOUNCE, 0, &a.base), IPC_SENT);
}

static int begin(void **state)
{
    static const ipc_callbacks_t callbacks = {.on_message = on_message, .on_close = on_close};
    bench_t *b = calloc(1, sizeof(*b));
    random_init();
    b->loop = loop_create();
    snprintf(b->dir, sizeof(b->dir), "/tmp/plimsoll-link-XXXXXX");
    if (mkdtemp(b->dir) == NULL)
        return -1;
    snprintf(b->path, sizeof(b->path), "%s/wasm.sock", b->dir);
    b->listen_fd = ipc_listen(b->path);
    b->link = link_create(b->loop, "wasm", b->path, on_change, b);
    int fd = -1;
    for (int i = 0; i < TICKS_MAX && fd < 0; i++) {
        loop_run_once(b->loop, 10);
        fd = accept4(b->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    b->role = ipc_create(b->loop, fd, &callbacks, b);
    *state = b;
    return b->role != NULL ? 0 : -1;
}

static int end(void **state)
{
    bench_t *b = *state;
    link_destroy(b->link);
    if (b->role != NULL)
        ipc_destroy(b->role);
    close(b->listen_fd);
    unlink(b->path);
    rmdir(b->dir);
    loop_destroy(b->loop);
    free(b);
    return 0;
}

static void a_wall_is_what_it_announces_up_to_what_it_can_prove(void **state)
{
    bench_t *b = *state;
    assert_int_equal(link_tier(b->link, 1000), TIER_UNKNOWN);
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 1);
    assert_int_equal(link_tier(b->link, 1000), TIER_PROCESS);
    /* WebAssembly in a process is never more than that, whatever its role says */
    const char *const claims[] = {"container", "kernel", "vm"};
    for (int i = 0; i < 3; i++) {
        announce(b, "wasm", claims[i]);
        tick_until(b, &b->changes, 2 + i);
        assert_int_equal(link_tier(b->link, 1000), TIER_UNKNOWN);
    }
}

static void another_walls_announcement_is_not_taken(void **state)
{
    bench_t *b = *state;
    announce(b, "docker", "container");
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 1);
    assert_string_equal(link_announce(b->link)->name, "wasm");
}

static void a_run_ends_once_and_only_by_its_own_number(void **state)
{
    bench_t *b = *state;
    Plimsoll__Backend__RunStart start = PLIMSOLL__BACKEND__RUN_START__INIT;
    Plimsoll__Backend__RunRefused refused = PLIMSOLL__BACKEND__RUN_REFUSED__INIT;
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 1);
    uint64_t call = link_run(b->link, &start, on_end, b);
    assert_true(call != 0);
    for (int i = 0; i < TICKS_MAX && b->call == 0; i++)
        loop_run_once(b->loop, 10);
    assert_true(b->call == call);
    /* numbers nobody gave, then the right one twice, then a change that shows all was read */
    ipc_send(b->role, LINK_RUN_REFUSED, call + 1, &refused.base);
    ipc_send(b->role, LINK_RUN_REFUSED, UINT64_MAX, &refused.base);
    ipc_send(b->role, LINK_RUN_REFUSED, call, &refused.base);
    ipc_send(b->role, LINK_RUN_REFUSED, call, &refused.base);
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 2);
    assert_int_equal(b->ends, 1);
    assert_int_equal(b->end, LINK_REFUSED);
}

static void a_garbled_answer_and_a_lost_role_say_so(void **state)
{
    bench_t *b = *state;
    Plimsoll__Backend__RunStart start = PLIMSOLL__BACKEND__RUN_START__INIT;
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 1);
    uint64_t call = link_run(b->link, &start, on_end, b);
    ipc_send(b->role, 99, call, NULL); /* a type nobody knows, for a run that waits */
    tick_until(b, &b->ends, 1);
    assert_int_equal(b->end, LINK_GARBLED);
    assert_true(link_run(b->link, &start, on_end, b) != 0);
    ipc_destroy(b->role);
    b->role = NULL;
    tick_until(b, &b->ends, 2);
    assert_int_equal(b->end, LINK_LOST);
    assert_null(link_announce(b->link));
    assert_true(link_run(b->link, &start, on_end, b) == 0);
}

static bool shows(const char *line)
{
    buffer_t out;
    buffer_init(&out, 1024 * 1024);
    metrics_print(&out);
    bool found = strstr((const char *)out.base, line) != NULL;
    buffer_dispose(&out);
    return found;
}

static void what_a_wall_counts_is_shown_until_its_role_is_lost(void **state)
{
    static const char *const names[] = {"wasm"};
    static const char line[] = "\nplimsoll_sandboxes{backend=\"wasm\",state=\"running\"} 7\n";
    bench_t *b = *state;
    int64_t values[METER_COUNT + 1] = {[METER_SANDBOXES_RUNNING] = 7};
    Plimsoll__Backend__Meters meters = PLIMSOLL__BACKEND__METERS__INIT;
    metrics_walls(names, 1);
    meters.values = values;
    meters.n_values = METER_COUNT + 1; /* of another program */
    ipc_send(b->role, LINK_METERS, 0, &meters.base);
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 1);
    assert_false(shows(line));
    meters.n_values = METER_COUNT;
    ipc_send(b->role, LINK_METERS, 0, &meters.base);
    announce(b, "wasm", "process");
    tick_until(b, &b->changes, 2);
    assert_true(shows(line));
    ipc_destroy(b->role);
    b->role = NULL;
    tick_until(b, &b->changes, 3);
    assert_false(shows(line));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wall_is_what_it_announces_up_to_what_it_can_prove, begin, end),
        cmocka_unit_test_setup_teardown(another_walls_announcement_is_not_taken, begin, end),
        cmocka_unit_test_setup_teardown(a_run_ends_once_and_only_by_its_own_number, begin, end),
        cmocka_unit_test_setup_teardown(a_garbled_answer_and_a_lost_role_say_so, begin, end),
        cmocka_unit_test_setup_teardown(what_a_wall_counts_is_shown_until_its_role_is_lost, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
