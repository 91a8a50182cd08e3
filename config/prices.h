/*
 * What a backend's sandboxes cost: PLIMSOLL_PRICES_FILE, a JSON object
 *   {"version":1,"date":"2026-11-01","currency":"USD","backends":{"e2b":{"per_second":"0.000028"}}}
 * Money and times are decimal strings, so nothing is rounded on the way. docs/billing.md explains each member.
 * Immutable once parsed; reference-counted across threads.
 */
#ifndef CONFIG_PRICES_H
#define CONFIG_PRICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/options.h"

enum {
    PRICES_FILE_MAX = 256 * 1024, /* bytes */
    PRICES_MAX = 64,              /* backends; 16 can be built in, the rest is for other installations of the file */
    PRICE_NAME_MAX = 32,          /* bytes of a backend's name */
    PRICE_CURRENCY_LEN = 3,       /* ISO 4217 */
    PRICE_PLACES = 9,             /* of a price: nanos */
    COST_PLACES = 6,              /* of a cost: micros */
    PRICE_DATE_LEN = 10,
    PRICES_AHEAD_MS = 24 * 3600 * 1000, /* a date this far ahead is another time zone's today, not a mistake */
};

/* Of one unit (second, vCPU-second, GiB-second, run): 1,000 of the currency, in nanos. */
#define PRICE_MAX INT64_C(1000000000000)
/* No cost is told or kept above this, in micros: a thousand million of the currency, and a whole number in a Lua
 * script's doubles (2^53 is 9.007e15) with room to add nine of them. */
#define COST_MAX UINT64_C(1000000000000000)

typedef struct {
    char backend[PRICE_NAME_MAX + 1];
    uint64_t second_nano;  /* of all there is of the sandbox: vCPUs and memory included, rounded up */
    uint64_t run_nano;     /* once, for a sandbox that was started */
    uint64_t minimum_ms;   /* less is billed as this */
    uint64_t increment_ms; /* times are billed in steps of this, rounded up; 0 = as they are */
} price_t;

typedef struct prices prices_t;

/* All problems are reported; NULL when there was any. */
prices_t *prices_parse(const char *json, size_t len, problems_t *problems);
/* Reads at most PRICES_FILE_MAX; the text (malloc'ed, NUL-terminated) or NULL with a problem. */
char *prices_read_file(const char *path, size_t *len, problems_t *problems);
prices_t *prices_ref(prices_t *prices);
void prices_unref(prices_t *prices);                 /* may be NULL */
const char *prices_date(const prices_t *prices);     /* "2026-11-01" */
const char *prices_currency(const prices_t *prices); /* "USD" */
size_t prices_count(const prices_t *prices);
/* Whether the table holds at `wall_ms`: its date is neither more than `max_age_ms` past nor more than PRICES_AHEAD_MS
 * to come. */
bool prices_are_current(const prices_t *prices, int64_t wall_ms, int64_t max_age_ms);
/* NULL: the table has no price for it. */
const price_t *prices_find(const prices_t *prices, const char *backend);
/* What is billed for a sandbox that was there for `ms`: at least the minimum, in whole increments. */
uint64_t price_billable_ms(const price_t *price, uint64_t ms);
/* What that costs, in micros, rounded up, at most COST_MAX. */
uint64_t price_cost_micro(const price_t *price, uint64_t ms);

/* Micros for an hour of a sandbox that is there already, rounded up: 1 to PRICE_HOUR_MAX. */
#define PRICE_HOUR_MAX INT64_C(100000000000000)
uint64_t price_micro_hour(const price_t *price);

#endif
