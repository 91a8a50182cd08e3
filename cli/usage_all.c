#include "cli/usage_all.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/records_redis.h"
#include "cli/run_print.h"
#include "cli/table.h"
#include "config/decimal.h"
#include "config/options.h"
#include "config/prices.h"
#include "core/clock.h"
#include "core/loop.h"
#include "core/mem.h"
#include "records/store.h"

enum { UP_MS = 5000, STEP_MS = 50, CALLERS_SHOWN_MAX = 1000000 };

/* One page being waited for. */
typedef struct {
    store_t *store;
    loop_t *loop;
    bool is_done, is_away;
    json_t *rows;
    char cursor[STORE_CLAIM_KEY_MAX];
    char reason[160]; /* why the store is away, as it was told last */
} reading_t;

static void ignore_settled(void *data, const char *claim_key)
{
    (void)data, (void)claim_key;
}

static void on_state(void *data, bool up, const char *reason)
{
    reading_t *r = data;
    (void)up;
    snprintf(r->reason, sizeof(r->reason), "%s", reason != NULL ? reason : "");
}

static json_t *money(uint64_t micro, bool is_known)
{
    char number[DECIMAL_TEXT_MAX];
    return json_string(is_known ? decimal_print(micro, COST_PLACES, number) : "unknown");
}

static json_t *row_of(const store_usage_t *u)
{
    return json_pack("{s:o,s:s,s:I,s:i,s:I,s:I,s:I,s:I,s:o,s:o}", "caller",
                     u->caller != NULL ? json_string(u->caller) : json_null(), "day", u->day, "runs",
                     (json_int_t)u->runs, "running", (int)u->slots_in_use, "sandbox_ms",
                     (json_int_t)u->spent.seconds_ms, "sandbox_held_ms", (json_int_t)u->held.seconds_ms, "paid_ms",
                     (json_int_t)u->spent.paid_ms, "paid_held_ms", (json_int_t)u->held.paid_ms, "cost",
                     money(u->spent.cost_micro, u->unpriced_ms == 0), "cost_held", money(u->held.cost_micro, true));
}

static void on_usage(void *data, store_lookup_t found, const store_usage_t *usage, size_t count,
                     const char *next_cursor)
{
    reading_t *r = data;
    r->is_done = true;
    r->is_away = found == STORE_AWAY;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(r->rows, row_of(&usage[i]));
    snprintf(r->cursor, sizeof(r->cursor), "%s", next_cursor != NULL ? next_cursor : "");
}

/* false: the store does not answer. */
static bool wait_for(reading_t *r)
{
    while (!r->is_done) /* each script has its deadline */
        loop_run_once(r->loop, STEP_MS);
    r->is_done = false;
    return !r->is_away;
}

static bool read_all(reading_t *r, const char *day)
{
    static const store_caps_t no_caps = {.slots = 0};
    uint64_t until = clock_mono_ms() + UP_MS;
    while (!store_is_up(r->store) && clock_mono_ms() < until)
        loop_run_once(r->loop, STEP_MS);
    if (day == NULL) {
        store_usage(r->store, NULL, &no_caps, 1, on_usage, r);
        if (!wait_for(r))
            return false;
    }
    r->cursor[0] = '\0';
    do {
        store_usage_all(r->store, day, r->cursor[0] != '\0' ? r->cursor : NULL, on_usage, r);
        if (!wait_for(r))
            return false;
    } while (r->cursor[0] != '\0' && json_array_size(r->rows) < CALLERS_SHOWN_MAX);
    return true;
}

static const char *cell_ms(const json_t *row, const char *member, char out[CELL_MAX])
{
    json_int_t ms = json_integer_value(json_object_get(row, member));
    snprintf(out, CELL_MAX, "%" JSON_INTEGER_FORMAT ".%03d", ms / 1000, (int)(ms % 1000));
    return out;
}

static void show(const json_t *rows)
{
    static const char *const HEADINGS[] = {"CALLER", "DAY",    "RUNS", "RUNNING",  "SANDBOX s",
                                           "PAID s", "HELD s", "COST", "COST HELD"};
    table_t *table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        char runs[CELL_MAX], running[CELL_MAX], sandbox[CELL_MAX], paid[CELL_MAX], held[CELL_MAX];
        const char *cells[] = {json_is_null(json_object_get(row, "caller")) ? "(all)" : cell_text(row, "caller"),
                               cell_text(row, "day"),
                               cell_int(row, "runs", runs),
                               cell_int(row, "running", running),
                               cell_ms(row, "sandbox_ms", sandbox),
                               cell_ms(row, "paid_ms", paid),
                               cell_ms(row, "paid_held_ms", held),
                               cell_text(row, "cost"),
                               cell_text(row, "cost_held")};
        table_add(table, cells);
    }
    table_print(table, stdout);
    table_destroy(table);
}

int usage_all(const char *day, bool json)
{
    redis_address_t address;
    if (!records_redis_address(&address))
        return CLI_CONFIG;
    const store_settings_t settings = {.installation = option_str(OPT_PLIMSOLL_INSTALLATION)};
    reading_t r = {.loop = loop_create(), .rows = json_array()};
    const store_callbacks_t callbacks = {ignore_settled, on_state, &r};
    r.store = store_create(r.loop, &address, &settings, &callbacks);
    bool fine = read_all(&r, day), told = true;
    if (!fine) {
        fprintf(
            stderr,
            "plimsoll: error: the records' Redis does not answer (%s); PLIMSOLL_REDIS_URL or PLIMSOLL_STATE_DIR say "
            "where it is\n",
            r.reason[0] != '\0' ? r.reason : "no reason is known");
    } else if (json) {
        json_t *page = json_pack("{s:O}", "callers", r.rows);
        told = json_print(page);
        json_decref(page);
    } else {
        show(r.rows);
    }
    json_decref(r.rows);
    store_destroy(r.store);
    loop_destroy(r.loop);
    redis_address_dispose(&address);
    return fine && told && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}
