#include "cli/ledger_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/records_redis.h"
#include "config/options.h"
#include "config/provider.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "records/ledger.h"

enum { UP_MS = 5000, STEP_MS = 50, ENTRIES_SHOWN_MAX = 8 * LEDGER_ENTRIES_MAX };

struct ledger_reader {
    loop_t *loop;
    ledger_t *ledger;
    redis_address_t address;
    /* the call under way */
    bool is_done, is_fine;
    uint64_t next_cursor;
    ledger_reading_t *reading;
    const char *backend;
    size_t asked_from, asked; /* of instances */
};

static void ignore_state(void *data, bool up, const char *reason)
{
    (void)data, (void)up, (void)reason;
}

ledger_reader_t *ledger_reader_open(void)
{
    ledger_reader_t *reader = mem_alloc(sizeof(*reader));
    if (!records_redis_address(&reader->address)) {
        free(reader);
        return NULL;
    }
    reader->loop = loop_create();
    reader->ledger =
        ledger_create(reader->loop, &reader->address, option_str(OPT_PLIMSOLL_INSTALLATION), ignore_state, NULL);
    uint64_t until_ms = clock_mono_ms() + UP_MS;
    while (!ledger_is_up(reader->ledger) && clock_mono_ms() < until_ms)
        loop_run_once(reader->loop, STEP_MS);
    return reader;
}

void ledger_reader_close(ledger_reader_t *reader)
{
    ledger_destroy(reader->ledger);
    loop_destroy(reader->loop);
    redis_address_dispose(&reader->address);
    free(reader);
}

bool ledger_reader_knows(const char *backend)
{
    return provider_keeps_ledger(backend);
}

static bool wait_for(ledger_reader_t *reader)
{
    while (!reader->is_done) /* each call has its deadline */
        loop_run_once(reader->loop, STEP_MS);
    reader->is_done = false;
    return reader->is_fine;
}

void ledger_reader_wait(ledger_reader_t *reader, uint32_t ms)
{
    uint64_t until_ms = clock_mono_ms() + ms;
    while (clock_mono_ms() < until_ms)
        loop_run_once(reader->loop, STEP_MS);
}

/* --- reading --- */

static bool has_it(const ledger_reading_t *reading, const char *stamp)
{
    for (size_t i = 0; i < reading->count; ++i) {
        if (strcmp(reading->listed[i].entry.stamp, stamp) == 0)
            return true;
    }
    return false;
}

static void on_page(void *data, const ledger_page_t *page)
{
    ledger_reader_t *reader = data;
    ledger_reading_t *reading = reader->reading;
    reader->is_done = true;
    reader->is_fine = page->is_read;
    reader->next_cursor = page->next_cursor;
    if (!page->is_read)
        return;
    reading->now_ms = page->now_ms;
    reading->corrupt += page->corrupt;
    reading->listed = mem_realloc(reading->listed, (reading->count + page->count + 1) * sizeof(*reading->listed));
    for (size_t i = 0; i < page->count; ++i) {
        /* a page may bring one again while the hash grows */
        if (reading->count < ENTRIES_SHOWN_MAX && !has_it(reading, page->entries[i].stamp))
            reading->listed[reading->count++] =
                (ledger_listed_t){.backend = reader->backend, .entry = page->entries[i]};
    }
}

static bool read_backend(ledger_reader_t *reader, const char *backend)
{
    uint64_t cursor = 0;
    reader->backend = backend;
    do {
        ledger_scan(reader->ledger, backend, cursor, on_page, reader);
        if (!wait_for(reader))
            return false;
        cursor = reader->next_cursor;
    } while (cursor != 0);
    return true;
}

static void on_instances(void *data, const bool *alive, size_t count)
{
    ledger_reader_t *reader = data;
    reader->is_done = true;
    reader->is_fine = alive != NULL;
    for (size_t i = 0; alive != NULL && i < count; ++i)
        reader->reading->listed[reader->asked_from + i].is_alive = alive[i];
}

static bool look_at_leases(ledger_reader_t *reader)
{
    ledger_reading_t *reading = reader->reading;
    char(*ids)[LEDGER_INSTANCE + 1] = mem_alloc_array(LEDGER_INSTANCES_MAX, sizeof(*ids));
    bool fine = true;
    for (size_t from = 0; fine && from < reading->count; from += LEDGER_INSTANCES_MAX) {
        size_t count = reading->count - from < LEDGER_INSTANCES_MAX ? reading->count - from : LEDGER_INSTANCES_MAX;
        for (size_t i = 0; i < count; ++i)
            memcpy(ids[i], reading->listed[from + i].entry.instance, LEDGER_INSTANCE + 1);
        reader->asked_from = from;
        ledger_instances(reader->ledger, (const char(*)[LEDGER_INSTANCE + 1]) ids, count, on_instances, reader);
        fine = wait_for(reader);
    }
    free(ids);
    return fine;
}

static int by_age(const void *a, const void *b)
{
    const ledger_listed_t *left = a, *right = b;
    if (left->entry.created_ms != right->entry.created_ms)
        return left->entry.created_ms < right->entry.created_ms ? -1 : 1;
    return strcmp(left->entry.stamp, right->entry.stamp);
}

bool ledger_reader_read(ledger_reader_t *reader, const char *backend, ledger_reading_t *out)
{
    bool fine = true;
    *out = (ledger_reading_t){0};
    reader->reading = out;
    for (size_t i = 0; fine && i < PROVIDER_COUNT; ++i) {
        if (provider_keeps_ledger(PROVIDERS[i].name) && (backend == NULL || strcmp(backend, PROVIDERS[i].name) == 0))
            fine = read_backend(reader, PROVIDERS[i].name);
    }
    if (fine && out->count > 0) {
        qsort(out->listed, out->count, sizeof(*out->listed), by_age);
        fine = look_at_leases(reader);
    }
    reader->reading = NULL;
    return fine;
}

void ledger_reading_dispose(ledger_reading_t *reading)
{
    free(reading->listed);
    *reading = (ledger_reading_t){0};
}

/* --- condemning --- */

static void on_condemned(void *data, const ledger_answer_t *answer)
{
    ledger_reader_t *reader = data;
    reader->is_done = true;
    reader->is_fine = answer->status < LEDGER_NOT_WRITTEN;
}

bool ledger_reader_condemn(ledger_reader_t *reader, const char *backend, const char *stamp)
{
    ledger_condemn(reader->ledger, backend, stamp, on_condemned, reader);
    return wait_for(reader);
}
