/* The spool as a whole: kept over processes, in order, bounded, and honest about a disk that does not take records. */
#include "spool_fixture.h"

#include <fcntl.h>
#include <sys/file.h>

static void test_records_come_back_in_order_and_leave_when_taken(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, 0);
    assert_true(stats_now().usable);
    read_begin();
    assert_true(append_now(1, "one"));
    assert_true(append_now(2, "two"));
    assert_true(append_now(1, "three"));
    spool_turn_until(sp.seen_count == 3);
    assert_seen(0, "one");
    assert_seen(1, "two");
    assert_seen(2, "three");
    assert_true(spool_is_held(sp.spool, 1));
    assert_int_equal(stats_now().records, 3);
    take(0);
    spool_turn_until(stats_now().records == 2);
    assert_true(spool_is_held(sp.spool, 1)); /* "three" is still there */
    take(2);
    take(1);
    spool_turn_until(stats_now().records == 0 && stats_now().bytes == SPOOL_FILE_HEADER);
    assert_false(spool_is_held(sp.spool, 1));
    assert_false(spool_is_held(sp.spool, 2));
    assert_int_equal(stats_now().replayed_total, 3);
    assert_int_equal(stats_now().oldest_ms, 0);
    spool_end();
    assert_int_equal(files_with("", NULL), 0); /* an empty spool leaves nothing */
}

static void test_what_was_not_taken_is_there_for_the_next_process(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, 0);
    read_begin();
    for (uint32_t i = 0; i != 5; ++i)
        assert_true(append_now(i, (const char *[]){"a", "b", "c", "d", "e"}[i]));
    spool_turn_until(sp.seen_count == 5);
    take(1);
    take(3);
    spool_turn_until(stats_now().records == 3);
    spool_end();
    spool_begin(SPOOL_MIB, 0);
    assert_int_equal(stats_now().records, 3); /* known before anything is served */
    assert_true(spool_is_held(sp.spool, 0) && spool_is_held(sp.spool, 2) && spool_is_held(sp.spool, 4));
    assert_false(spool_is_held(sp.spool, 1) || spool_is_held(sp.spool, 3));
    read_begin();
    assert_true(append_now(9, "later"));
    spool_turn_until(sp.seen_count == 4);
    assert_seen(0, "a");
    assert_seen(1, "c");
    assert_seen(2, "e");
    assert_seen(3, "later");
}

/* Appends in a process of its own, which is killed: the disk is all that is left of it. */
static void die_with(const char *const *texts, size_t count)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        loop_t *loop = loop_create();
        sp.loop = loop;
        spool_begin(SPOOL_MIB, 0);
        for (size_t i = 0; i != count; ++i)
            if (!append_now(1, texts[i]))
                _exit(3);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_a_killed_process_leaves_what_was_acknowledged(void **state)
{
    (void)state;
    die_with((const char *[]){"1", "2", "3"}, 3);
    die_with((const char *[]){"4"}, 1);
    spool_begin(SPOOL_MIB, 0);
    assert_int_equal(stats_now().records, 4);
    read_begin();
    spool_turn_until(sp.seen_count == 4);
    for (size_t i = 0; i != 4; ++i)
        assert_seen(i, (const char *[]){"1", "2", "3", "4"}[i]);
}

static void test_a_kill_between_taking_and_marking_sends_it_again(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, 0);
    read_begin();
    assert_true(append_now(1, "x"));
    assert_true(append_now(1, "y"));
    spool_turn_until(sp.seen_count == 2);
    arm("spool.mark", "fail");
    take(0);
    spool_turn_until(stats_now().records == 1);
    disarm("spool.mark");
    spool_end();
    spool_begin(SPOOL_MIB, 0);
    assert_int_equal(stats_now().records, 2); /* once more is harmless, once less is a loss */
}

static void test_a_living_process_files_are_left_alone_and_taken_over_when_it_dies(void **state)
{
    (void)state;
    int ready[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sp.loop = loop_create();
        spool_begin(SPOOL_MIB, 0);
        if (!append_now(1, "theirs") || write(ready[1], "r", 1) != 1 || read(go[0], &byte, 1) != 1)
            _exit(3);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    spool_begin(SPOOL_MIB, 0);
    read_begin();
    assert_true(append_now(2, "ours"));
    spool_turn_until(sp.seen_count == 1);
    assert_seen(0, "ours");
    assert_int_equal(stats_now().records, 1);
    assert_int_equal(write(go[1], "g", 1), 1);
    waitpid(pid, NULL, 0);
    spool_turn_until(sp.seen_count == 2);
    assert_seen(1, "theirs");
    for (int i = 0; i != 2; ++i)
        close(ready[i]), close(go[i]);
}

static void flip(const char *name, off_t at)
{
    char path[400];
    uint8_t byte;
    snprintf(path, sizeof(path), "%s/%s", sp.dir, name);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_a_corrupt_file_is_set_aside_once_what_is_before_it_is_taken(void **state)
{
    (void)state;
    char name[256], aside[256], expected[300];
    die_with((const char *[]){"first", "second", "third"}, 3);
    assert_int_equal(files_with(".spool", name), 1);
    off_t second = SPOOL_FILE_HEADER + (off_t)spool_frame_size(5);
    flip(name, second + SPOOL_FRAME_HEADER + 2);
    spool_begin(SPOOL_MIB, 0);
    assert_int_equal(stats_now().set_aside_total, 1);
    assert_int_equal(stats_now().records, 1);
    assert_true(stats_now().usable);
    assert_int_equal(files_with("corrupt", NULL), 0); /* a crash now must not lose the first */
    read_begin();
    spool_turn_until(sp.seen_count == 1);
    assert_seen(0, "first");
    take(0);
    spool_turn_until(files_with("corrupt", aside) == 1);
    snprintf(expected, sizeof(expected), "%s.corrupt-%lld", name, (long long)second);
    assert_string_equal(aside, expected);
    /* and stays there, untouched by whoever comes next */
    spool_end();
    spool_begin(SPOOL_MIB, 0);
    assert_int_equal(stats_now().set_aside_total, 0);
    assert_int_equal(stats_now().records, 0);
    assert_int_equal(files_with("corrupt", NULL), 1);
}

static void test_a_file_that_turns_bad_while_it_is_held_is_set_aside_too(void **state)
{
    (void)state;
    char name[256];
    spool_begin(SPOOL_MIB, 0);
    assert_true(append_now(1, "fine!"));
    assert_true(append_now(2, "broken"));
    assert_true(append_now(3, "never seen"));
    assert_int_equal(files_with(".spool", name), 1);
    flip(name, SPOOL_FILE_HEADER + (off_t)spool_frame_size(5) + 8);
    read_begin();
    spool_turn_until(sp.seen_count == 1 && stats_now().set_aside_total == 1);
    assert_seen(0, "fine!");
    assert_false(spool_is_held(sp.spool, 2) || spool_is_held(sp.spool, 3));
    take(0);
    spool_turn_until(files_with("corrupt", NULL) == 1 && stats_now().records == 0);
    /* what comes after goes into a file of its own */
    assert_true(append_now(4, "after"));
    spool_turn_until(sp.seen_count == 2);
    assert_seen(1, "after");
}

static void test_a_torn_tail_is_cut_and_counted(void **state)
{
    (void)state;
    char name[256], path[400];
    die_with((const char *[]){"whole", "torn"}, 2);
    assert_int_equal(files_with(".spool", name), 1);
    snprintf(path, sizeof(path), "%s/%s", sp.dir, name);
    assert_int_equal(truncate(path, SPOOL_FILE_HEADER + (off_t)spool_frame_size(5) + 50), 0);
    spool_begin(SPOOL_MIB, 0);
    assert_int_equal(stats_now().torn_total, 1);
    assert_int_equal(stats_now().set_aside_total, 0);
    assert_int_equal(stats_now().records, 1);
}

static void test_foreign_names_are_left_alone(void **state)
{
    (void)state;
    char path[400];
    static const char *const names[] = {"notes.txt", "00000000000000zz.spool", "0000000000000001.spool.old",
                                        "ffffffffffffffff.spool", "1.spool"};
    for (size_t i = 0; i != sizeof(names) / sizeof(names[0]); ++i) {
        snprintf(path, sizeof(path), "%s/%s", sp.dir, names[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    snprintf(path, sizeof(path), "%s/0000000000000009.spool", sp.dir);
    assert_int_equal(symlink("/etc/passwd", path), 0); /* of our form, and not followed */
    spool_begin(SPOOL_MIB, 0);
    assert_true(stats_now().usable);
    assert_true(append_now(1, "x"));
    spool_end();
    for (size_t i = 0; i != sizeof(names) / sizeof(names[0]); ++i)
        assert_int_equal(files_with(names[i], NULL) >= 1, 1);
}

static void test_room_at_the_limit_less_one_the_limit_and_one_more(void **state)
{
    (void)state;
    enum { RUNS = 4 };
    uint64_t exact = SPOOL_FILE_HEADER + (uint64_t)RUNS * SPOOL_RECORD_MAX;
    for (int off = -1; off <= 1; ++off) {
        spool_begin(exact + (uint64_t)(int64_t)off, 0);
        assert_true(spool_has_room(sp.spool, RUNS - 1));
        assert_int_equal(spool_has_room(sp.spool, RUNS), off >= 0);
        assert_false(spool_has_room(sp.spool, RUNS + 1));
        /* with an output, what the runs in flight may need stays free */
        assert_true(spool_takes(sp.spool, SPOOL_RECORD_MAX));
        spool_end();
    }
    for (int off = -8; off <= 8; off += 8) {
        uint64_t in_flight = SPOOL_RECORD_MAX;
        spool_begin(SPOOL_FILE_HEADER + in_flight + spool_frame_size(1000) + (uint64_t)(int64_t)off, in_flight);
        assert_int_equal(spool_takes(sp.spool, 1000), off >= 0);
        spool_end();
    }
}

static void test_a_full_spool_says_so_and_has_room_again_when_files_are_taken(void **state)
{
    (void)state;
    static char big[100 * 1024];
    memset(big, 'x', sizeof(big) - 1);
    spool_begin(SPOOL_MIB, SPOOL_RECORD_MAX);
    read_begin();
    size_t count = 0;
    while (spool_has_room(sp.spool, 1)) {
        assert_true(append_now(1, big));
        assert_true(++count < 20);
    }
    assert_true(count >= 10);
    assert_true(append_now(1, "a run in flight still finds its place"));
    assert_true(files_with(".spool", NULL) > 5);
    spool_turn_until(sp.seen_count == count + 1);
    take(0);
    spool_turn_until(spool_has_room(sp.spool, 1)); /* its file went as a whole */
    for (size_t i = 1; i <= count; ++i)
        take(i);
    spool_turn_until(stats_now().records == 0 && stats_now().bytes <= 2 * SPOOL_FILE_HEADER);
    assert_int_equal(files_with(".spool", NULL), 1);
}

/* Records that are written together are synced together, also where a file is full. */
static void test_a_burst_over_a_files_end_is_synced_and_read(void **state)
{
    (void)state;
    enum { COUNT = 41 };
    static char big[10 * 1024];
    appended_t *all = mem_alloc_array(COUNT, sizeof(*all));
    memset(big, 'x', sizeof(big));
    spool_begin(SPOOL_MIB, 0);
    arm("spool.sync", "block");
    for (uint32_t i = 0; i != COUNT; ++i)
        append_begin(&all[i], i, big, sizeof(big));
    for (int i = 0; i != 5; ++i)
        spool_turn();
    disarm("spool.sync");
    spool_turn_until(all[COUNT - 1].calls == 1);
    for (uint32_t i = 0; i != COUNT; ++i)
        assert_true(all[i].durable);
    assert_true(append_now(1, "after"));
    read_begin();
    spool_turn_until(sp.seen_count == COUNT + 1);
    assert_seen(COUNT, "after");
    for (size_t i = 0; i <= COUNT; ++i)
        take(i);
    spool_turn_until(stats_now().records == 0);
    assert_int_equal(files_with(".spool", NULL), 1);
    free(all);
}

static void test_a_directory_that_cannot_be_written_keeps_what_is_done_until_it_can(void **state)
{
    (void)state;
    char name[256], path[400];
    die_with((const char *[]){"first", "second"}, 2);
    assert_int_equal(files_with(".spool", name), 1);
    flip(name, SPOOL_FILE_HEADER + (off_t)spool_frame_size(5) + 9);
    /* a directory in the way of the name it is to get: no rename, whoever runs this */
    snprintf(path, sizeof(path), "%s/%s.corrupt-%llu", sp.dir, name,
             (unsigned long long)(SPOOL_FILE_HEADER + spool_frame_size(5)));
    assert_int_equal(mkdir(path, 0700), 0);
    spool_begin(SPOOL_MIB, 0);
    read_begin();
    spool_turn_until(sp.seen_count == 1);
    take(0);
    spool_turn_until(stats_now().records == 0);
    assert_int_equal(files_with(name, NULL), 2); /* itself and what is in its way */
    assert_int_equal(stats_now().set_aside_total, 1);
    assert_true(stats_now().usable);
    assert_int_equal(rmdir(path), 0);
    spool_turn_until(files_with("corrupt", NULL) == 1);
    assert_int_equal(stats_now().set_aside_total, 1); /* told once */
}

static void test_a_disk_that_does_not_sync_is_trouble_until_it_does(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, 0);
    assert_true(append_now(1, "before"));
    arm("spool.sync", "fail");
    assert_false(append_now(2, "not on the disk"));
    assert_false(spool_has_room(sp.spool, 1));
    assert_true(spool_is_held(sp.spool, 2)); /* the caller's to release */
    spool_release(sp.spool, 2);
    assert_int_equal(stats_now().failures_total, 1);
    assert_int_equal(stats_now().records, 1);
    disarm("spool.sync");
    spool_turn_until(spool_has_room(sp.spool, 1));
    assert_true(append_now(3, "after"));
    read_begin();
    spool_turn_until(sp.seen_count == 2);
    assert_seen(0, "before");
    assert_seen(1, "after");
}

static void test_a_disk_that_does_not_write_is_trouble_until_it_does(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, 0);
    arm("spool.write", "fail");
    assert_false(append_now(2, "not on the disk"));
    spool_release(sp.spool, 2);
    assert_false(spool_has_room(sp.spool, 0));
    disarm("spool.write");
    spool_turn_until(spool_has_room(sp.spool, 1));
    assert_true(append_now(3, "after"));
}

static void test_a_disk_without_room_for_the_runs_in_flight_takes_records_and_no_new_runs(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, SPOOL_RECORD_MAX);
    assert_true(spool_has_room(sp.spool, 1));
    arm("spool.reserve", "fail");
    assert_true(append_now(1, "in flight already"));
    assert_false(spool_has_room(sp.spool, 1));
    disarm("spool.reserve");
    spool_turn_until(spool_has_room(sp.spool, 1));
}

static void test_a_directory_that_is_not_there_is_trouble_until_it_is(void **state)
{
    (void)state;
    char later[128], dir[64];
    memcpy(dir, sp.dir, sizeof(dir));
    snprintf(later, sizeof(later), "%s/later", sp.dir);
    sp.spool = spool_open(later, SPOOL_MIB, 0);
    assert_false(stats_now().usable);
    assert_false(spool_has_room(sp.spool, 0));
    assert_false(append_now(1, "nowhere to go"));
    spool_release(sp.spool, 1);
    assert_int_equal(mkdir(later, 0700), 0);
    spool_turn_until(stats_now().usable);
    assert_true(append_now(1, "x"));
}

static void test_a_slow_sync_holds_nobody_but_those_who_wait_for_it(void **state)
{
    (void)state;
    appended_t a, b;
    spool_begin(SPOOL_MIB, 0);
    arm("spool.sync", "block");
    append_begin(&a, 1, "a", 1);
    append_begin(&b, 2, "b", 1);
    for (int i = 0; i != 10; ++i)
        spool_turn();
    assert_int_equal(a.calls + b.calls, 0);
    assert_int_equal(stats_now().records, 2);
    disarm("spool.sync");
    spool_turn_until(a.calls == 1 && b.calls == 1);
    assert_true(a.durable && b.durable);
}

static void test_a_reader_that_leaves_gives_its_records_to_the_next(void **state)
{
    (void)state;
    spool_begin(SPOOL_MIB, 0);
    assert_true(append_now(1, "a"));
    assert_true(append_now(1, "b"));
    read_begin();
    spool_turn_until(sp.seen_count == 2);
    take(0);
    spool_turn_until(stats_now().records == 1);
    read_end();
    read_begin();
    spool_turn_until(sp.seen_count == 1);
    assert_seen(0, "b");
}

static void test_thousands_of_records_over_many_files_keep_their_order(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    char text[COUNT][24];
    appended_t *all = mem_alloc_array(COUNT, sizeof(*all));
    spool_begin(8 * SPOOL_MIB, 0);
    for (uint32_t i = 0; i != COUNT; ++i) {
        int len = snprintf(text[i], sizeof(text[i]), "record %u", i);
        append_begin(&all[i], i % 7, text[i], (size_t)len);
    }
    spool_turn_until(all[COUNT - 1].calls == 1);
    spool_end();
    spool_begin(8 * SPOOL_MIB, 0);
    assert_int_equal(stats_now().records, COUNT);
    read_begin();
    spool_turn_until(sp.seen_count == COUNT);
    for (uint32_t i = 0; i != COUNT; ++i) {
        assert_seen(i, text[i]);
        take(i);
    }
    spool_turn_until(stats_now().records == 0);
    assert_int_equal(files_with(".spool", NULL), 1);
    free(all);
}

#define spool_test(test) cmocka_unit_test_setup_teardown(test, spool_setup, spool_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        spool_test(test_records_come_back_in_order_and_leave_when_taken),
        spool_test(test_what_was_not_taken_is_there_for_the_next_process),
        spool_test(test_a_killed_process_leaves_what_was_acknowledged),
        spool_test(test_a_kill_between_taking_and_marking_sends_it_again),
        spool_test(test_a_living_process_files_are_left_alone_and_taken_over_when_it_dies),
        spool_test(test_a_corrupt_file_is_set_aside_once_what_is_before_it_is_taken),
        spool_test(test_a_file_that_turns_bad_while_it_is_held_is_set_aside_too),
        spool_test(test_a_torn_tail_is_cut_and_counted),
        spool_test(test_foreign_names_are_left_alone),
        spool_test(test_room_at_the_limit_less_one_the_limit_and_one_more),
        spool_test(test_a_full_spool_says_so_and_has_room_again_when_files_are_taken),
        spool_test(test_a_burst_over_a_files_end_is_synced_and_read),
        spool_test(test_a_directory_that_cannot_be_written_keeps_what_is_done_until_it_can),
        spool_test(test_a_disk_that_does_not_sync_is_trouble_until_it_does),
        spool_test(test_a_disk_that_does_not_write_is_trouble_until_it_does),
        spool_test(test_a_disk_without_room_for_the_runs_in_flight_takes_records_and_no_new_runs),
        spool_test(test_a_directory_that_is_not_there_is_trouble_until_it_is),
        spool_test(test_a_slow_sync_holds_nobody_but_those_who_wait_for_it),
        spool_test(test_a_reader_that_leaves_gives_its_records_to_the_next),
        spool_test(test_thousands_of_records_over_many_files_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
