/* A spool in a directory of its own, and its calls made synchronous: each turns the loop until its callback came. */
#ifndef TESTS_SPOOL_FIXTURE_H
#define TESTS_SPOOL_FIXTURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/loop.h"
#include "core/mem.h"
#include "core/random.h"
#include "records/spool.h"

enum { SPOOL_WAIT_MS = 10000, SPOOL_MIB = 1024 * 1024, SPOOL_SEEN_MAX = 4096 };

static struct {
    char dir[64], faults[80];
    loop_t *loop;
    spool_t *spool;
    spool_reader_t *reader;
    bool answered;
    /* what was read, in order */
    spool_item_t seen[SPOOL_SEEN_MAX];
    size_t seen_count;
} sp;

static __attribute__((unused)) void spool_turn(void)
{
    loop_run_once(sp.loop, 5);
}

#define spool_turn_until(condition)                                                                                    \
    do {                                                                                                               \
        uint64_t until_ = clock_mono_ms() + SPOOL_WAIT_MS;                                                             \
        while (!(condition)) {                                                                                         \
            spool_turn();                                                                                              \
            assert_true(clock_mono_ms() < until_);                                                                     \
        }                                                                                                              \
    } while (0)

static __attribute__((unused)) spool_stats_t stats_now(void)
{
    spool_stats_t stats;
    spool_stats(sp.spool, &stats);
    return stats;
}

typedef struct {
    spool_append_t append;
    unsigned calls;
    bool durable;
} appended_t;

static __attribute__((unused)) void note_appended(spool_append_t *append, bool durable)
{
    appended_t *out = append->data;
    ++out->calls;
    out->durable = durable;
}

static __attribute__((unused)) void append_begin(appended_t *a, uint32_t key, const void *base, size_t len)
{
    *a = (appended_t){
        .append = {
            .loop = sp.loop, .cb = note_appended, .data = a, .order_key = key, .pieces = {{base, len}, {"", 0}}}};
    spool_append(sp.spool, &a->append);
}

static __attribute__((unused)) bool append_now(uint32_t key, const char *text)
{
    appended_t a;
    append_begin(&a, key, text, strlen(text));
    spool_turn_until(a.calls != 0);
    assert_int_equal(a.calls, 1);
    return a.durable;
}

static __attribute__((unused)) void note_items(void *data, const spool_item_t *items, size_t count)
{
    (void)data;
    assert_true(count != 0 && count <= SPOOL_BATCH_RECORDS);
    for (size_t i = 0; i != count; ++i) {
        assert_true(sp.seen_count != SPOOL_SEEN_MAX);
        sp.seen[sp.seen_count++] = items[i];
    }
    spool_reader_ask(sp.reader);
}

static __attribute__((unused)) void seen_forget(void)
{
    for (size_t i = 0; i != sp.seen_count; ++i)
        free(sp.seen[i].payload);
    sp.seen_count = 0;
}

static __attribute__((unused)) void read_begin(void)
{
    seen_forget();
    sp.reader = spool_reader_create(sp.spool, sp.loop, note_items, NULL);
    spool_reader_ask(sp.reader);
}

static __attribute__((unused)) void read_end(void)
{
    spool_reader_destroy(sp.reader);
    sp.reader = NULL;
}

static __attribute__((unused)) void assert_seen(size_t i, const char *text)
{
    assert_true(i < sp.seen_count);
    assert_int_equal(sp.seen[i].len, strlen(text));
    assert_memory_equal(sp.seen[i].payload, text, strlen(text));
}

static __attribute__((unused)) void take(size_t i)
{
    spool_taken(sp.spool, &sp.seen[i].place, sp.seen[i].order_key);
}

static __attribute__((unused)) void spool_begin(uint64_t limit, uint64_t in_flight)
{
    sp.spool = spool_open(sp.dir, limit, in_flight);
}

static __attribute__((unused)) void spool_end(void)
{
    if (sp.reader != NULL)
        read_end();
    spool_close(sp.spool);
    sp.spool = NULL;
    loop_run_once(sp.loop, 0);
    seen_forget();
}

/* Names with `part` in them; the last one found goes to `name` (may be NULL). */
static __attribute__((unused)) size_t files_with(const char *part, char name[256])
{
    size_t count = 0;
    DIR *dir = opendir(sp.dir);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, "faults") == 0 || strstr(e->d_name, part) == NULL)
            continue;
        ++count;
        if (name != NULL)
            snprintf(name, 256, "%s", e->d_name);
    }
    closedir(dir);
    return count;
}

static __attribute__((unused)) void arm(const char *point, const char *action)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", sp.faults, point);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(action, f);
    fclose(f);
}

static __attribute__((unused)) void disarm(const char *point)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", sp.faults, point);
    unlink(path);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static __attribute__((unused)) int spool_setup(void **state)
{
    (void)state;
    random_init();
    snprintf(sp.dir, sizeof(sp.dir), "%s/plimsoll-spool-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(sp.dir));
    snprintf(sp.faults, sizeof(sp.faults), "%s/faults", sp.dir);
    assert_int_equal(mkdir(sp.faults, 0700), 0);
    fault_init(sp.faults);
    sp.loop = loop_create();
    return 0;
}

static __attribute__((unused)) int spool_teardown(void **state)
{
    (void)state;
    if (sp.spool != NULL)
        spool_end();
    loop_destroy(sp.loop);
    fault_init(NULL);
    chmod(sp.dir, 0700);
    return nftw(sp.dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
