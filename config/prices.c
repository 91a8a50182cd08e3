/* Reading the price table. Strict as the callers file is: a misspelt price would otherwise be no price. */
#include "config/prices.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/decimal.h"
#include "config/quote.h"
#include "config/rfc3339.h"
#include "core/mem.h"

enum {
    PRICES_VERSION = 1,
    SECOND_MS = 1000,
    SECONDS_MAX = 86400, /* of a minimum or an increment: a day */
    VCPUS_MAX = 1024,
    MIB_PER_GIB = 1024,
    MEMORY_MIB_MAX = 1024 * 1024,
};

struct prices {
    _Atomic uint32_t refs;
    char date[PRICE_DATE_LEN + 1];
    char currency[PRICE_CURRENCY_LEN + 1];
    int64_t date_ms; /* its midnight, UTC */
    size_t count;
    price_t *all;
};

/* One backend's row being read. */
typedef struct {
    price_t *price;
    uint64_t second, vcpu_second, gib_second; /* nanos */
    uint64_t vcpus_nano, memory_mib;
    bool has_price;
    problems_t *problems;
} row_t;

static void row_problem(const row_t *row, const char *member, const char *what)
{
    char quoted[QUOTE_BYTES];
    problems_add(row->problems, "backend \"%s\": %s %s", row->price->backend, quote(quoted, member, strlen(member)),
                 what);
}

/* --- times and money, exact --- */

typedef unsigned __int128 wide_t;

uint64_t price_billable_ms(const price_t *price, uint64_t ms)
{
    wide_t billed = ms < price->minimum_ms ? price->minimum_ms : ms;
    if (price->increment_ms != 0)
        billed = (billed + price->increment_ms - 1) / price->increment_ms * price->increment_ms;
    return billed > UINT64_MAX ? UINT64_MAX : (uint64_t)billed;
}

uint64_t price_cost_micro(const price_t *price, uint64_t ms)
{
    enum { NANO_PER_MICRO = 1000 };
    /* below 2^64 ms times 2^51 nanos (1e12 for the second itself, 1e15 for each of 1,024 vCPUs and 1,024 GiB): 2^115 */
    wide_t nano_ms = (wide_t)price->second_nano * price_billable_ms(price, ms);
    wide_t nano = (nano_ms + SECOND_MS - 1) / SECOND_MS + price->run_nano;
    wide_t micro = (nano + NANO_PER_MICRO - 1) / NANO_PER_MICRO;
    return micro > COST_MAX ? COST_MAX : (uint64_t)micro;
}

uint64_t price_micro_hour(const price_t *price)
{
    enum { HOUR_S = 3600, NANO_PER_MICRO = 1000 };
    wide_t micro = ((wide_t)price->second_nano * HOUR_S + NANO_PER_MICRO - 1) / NANO_PER_MICRO;
    return micro < 1 ? 1 : micro > (wide_t)PRICE_HOUR_MAX ? (uint64_t)PRICE_HOUR_MAX : (uint64_t)micro;
}

/* What a second of the sandbox costs with everything it has. */
static uint64_t whole_second(const row_t *row)
{
    enum { NANO = 1000000000 };
    wide_t vcpus = ((wide_t)row->vcpu_second * row->vcpus_nano + NANO - 1) / NANO;
    wide_t memory = ((wide_t)row->gib_second * row->memory_mib + MIB_PER_GIB - 1) / MIB_PER_GIB;
    return (uint64_t)(row->second + vcpus + memory);
}

/* --- the file's members --- */

static bool read_decimal(const row_t *row, const char *member, const json_t *value, unsigned places, uint64_t max,
                         uint64_t *out, const char *takes)
{
    if (json_is_string(value) && decimal_parse(json_string_value(value), json_string_length(value), places, max, out))
        return true;
    row_problem(row, member, takes);
    return false;
}

static void read_money(row_t *row, const char *member, const json_t *value, uint64_t *out)
{
    if (read_decimal(row, member, value, PRICE_PLACES, PRICE_MAX, out,
                     "must be a string with a decimal number from 0 to 1000, with at most 9 places, such as "
                     "\"0.000028\""))
        row->has_price = true;
}

static void read_seconds(const row_t *row, const char *member, const json_t *value, uint64_t *out_ms)
{
    read_decimal(row, member, value, 3, (uint64_t)SECONDS_MAX * SECOND_MS, out_ms,
                 "must be a string with seconds from 0 to 86400, with at most 3 places, such as \"1\"");
}

static void read_member(row_t *row, const char *key, const json_t *value)
{
    if (strcmp(key, "per_second") == 0)
        read_money(row, key, value, &row->second);
    else if (strcmp(key, "per_vcpu_second") == 0)
        read_money(row, key, value, &row->vcpu_second);
    else if (strcmp(key, "per_gib_second") == 0)
        read_money(row, key, value, &row->gib_second);
    else if (strcmp(key, "per_run") == 0)
        read_money(row, key, value, &row->price->run_nano);
    else if (strcmp(key, "vcpus") == 0)
        read_decimal(row, key, value, PRICE_PLACES, (uint64_t)VCPUS_MAX * 1000000000, &row->vcpus_nano,
                     "must be a string with a decimal number from 0 to 1024, such as \"2\"");
    else if (strcmp(key, "memory_mib") == 0)
        read_decimal(row, key, value, 0, MEMORY_MIB_MAX, &row->memory_mib,
                     "must be a string with a whole number from 0 to 1048576, such as \"512\"");
    else if (strcmp(key, "minimum_seconds") == 0)
        read_seconds(row, key, value, &row->price->minimum_ms);
    else if (strcmp(key, "increment_seconds") == 0)
        read_seconds(row, key, value, &row->price->increment_ms);
    else
        row_problem(row, key, "is no member of a backend's price");
}

static bool is_backend_name(const char *name)
{
    size_t len = strlen(name);
    return len >= 1 && len <= PRICE_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static void read_row(prices_t *prices, const char *name, json_t *value, problems_t *problems)
{
    price_t *price = &prices->all[prices->count];
    row_t row = {.price = price, .problems = problems};
    const char *key;
    json_t *member;
    char quoted[QUOTE_BYTES];

    if (!is_backend_name(name)) {
        problems_add(problems, "\"backends\": %s is no backend's name", quote(quoted, name, strlen(name)));
        return;
    }
    *price = (price_t){.run_nano = 0};
    snprintf(price->backend, sizeof(price->backend), "%s", name);
    if (!json_is_object(value)) {
        problems_add(problems, "backend \"%s\": must be an object", name);
        return;
    }
    json_object_foreach(value, key, member)
    {
        read_member(&row, key, member);
    }
    if (!row.has_price && problems->count == 0)
        problems_add(problems,
                     "backend \"%s\": has no price: leave it out, and what it costs is unknown; or give it a "
                     "\"per_second\" of \"0\"",
                     name);
    if (row.vcpu_second != 0 && row.vcpus_nano == 0)
        row_problem(&row, "per_vcpu_second", "needs \"vcpus\" beside it, how many of them a sandbox has");
    if (row.gib_second != 0 && row.memory_mib == 0)
        row_problem(&row, "per_gib_second", "needs \"memory_mib\" beside it, how much a sandbox has");
    price->second_nano = whole_second(&row);
    prices->count++;
}

static void read_backends(prices_t *prices, json_t *value, problems_t *problems)
{
    const char *name;
    json_t *row;

    if (!json_is_object(value)) {
        problems_add(problems, "\"backends\" must be an object with a member for each backend");
        return;
    }
    if (json_object_size(value) > PRICES_MAX) {
        problems_add(problems, "\"backends\" has more than %d members", PRICES_MAX);
        return;
    }
    prices->all = mem_alloc_array(PRICES_MAX, sizeof(prices->all[0]));
    json_object_foreach(value, name, row)
    {
        read_row(prices, name, row, problems);
    }
}

static void read_date(prices_t *prices, const json_t *value, problems_t *problems)
{
    char time[RFC3339_MAX];

    if (json_is_string(value) && json_string_length(value) == PRICE_DATE_LEN) {
        snprintf(time, sizeof(time), "%sT00:00:00Z", json_string_value(value));
        if (rfc3339_parse(time, strlen(time), &prices->date_ms)) {
            memcpy(prices->date, json_string_value(value), PRICE_DATE_LEN + 1);
            return;
        }
    }
    problems_add(problems, "\"date\" must be the day the prices were looked up, such as \"2026-11-01\"");
}

static void read_currency(prices_t *prices, const json_t *value, problems_t *problems)
{
    const char *text = json_string_value(value);

    if (text != NULL && json_string_length(value) == PRICE_CURRENCY_LEN &&
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == PRICE_CURRENCY_LEN)
        memcpy(prices->currency, text, PRICE_CURRENCY_LEN + 1);
    else
        problems_add(problems, "\"currency\" must be three capital letters of ISO 4217, such as \"USD\"");
}

static void read_document(prices_t *prices, json_t *root, problems_t *problems)
{
    static const char *const needed[] = {"version", "date", "currency", "backends"};
    char quoted[QUOTE_BYTES];
    const char *key;
    json_t *value;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (json_object_get(root, needed[i]) == NULL)
            problems_add(problems, "\"%s\" is missing", needed[i]);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "version") == 0) {
            if (!json_is_integer(value) || json_integer_value(value) != PRICES_VERSION)
                problems_add(problems, "\"version\" must be %d", PRICES_VERSION);
        } else if (strcmp(key, "date") == 0)
            read_date(prices, value, problems);
        else if (strcmp(key, "currency") == 0)
            read_currency(prices, value, problems);
        else if (strcmp(key, "backends") == 0)
            read_backends(prices, value, problems);
        else
            problems_add(problems, "unknown member %s", quote(quoted, key, strlen(key)));
    }
}

prices_t *prices_parse(const char *json, size_t len, problems_t *problems)
{
    problems_t found = {0};
    json_error_t error;
    json_t *root = len > PRICES_FILE_MAX ? NULL : json_loadb(json, len, JSON_REJECT_DUPLICATES, &error);
    prices_t *prices = mem_alloc(sizeof(*prices));

    *prices = (prices_t){.refs = 1};
    if (len > PRICES_FILE_MAX)
        problems_add(&found, "larger than %d bytes", PRICES_FILE_MAX);
    else if (root == NULL)
        problems_add(&found, "not JSON: line %d, column %d: %s", error.line, error.column, error.text);
    else if (!json_is_object(root))
        problems_add(&found, "must be a JSON object");
    else
        read_document(prices, root, &found);
    if (root != NULL)
        json_decref(root);
    for (size_t i = 0; i < found.count; i++)
        problems_add(problems, "price file: %s", found.texts[i]);
    bool fine = found.count == 0;
    problems_dispose(&found);
    if (fine)
        return prices;
    prices_unref(prices);
    return NULL;
}

char *prices_read_file(const char *path, size_t *len, problems_t *problems)
{
    /* O_NONBLOCK: a FIFO at the path must not stop the start */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char quoted[QUOTE_BYTES], *text = NULL;
    struct stat st;
    size_t used = 0;

    quote(quoted, path, strlen(path));
    if (fd < 0 || fstat(fd, &st) != 0) {
        problems_add(problems, "PLIMSOLL_PRICES_FILE is %s, which cannot be read: %s", quoted, strerror(errno));
        goto Exit;
    }
    if (!S_ISREG(st.st_mode)) {
        problems_add(problems, "PLIMSOLL_PRICES_FILE is %s, which is not a regular file", quoted);
        goto Exit;
    }
    text = mem_alloc(PRICES_FILE_MAX + 2);
    while (used <= PRICES_FILE_MAX) {
        ssize_t n = read(fd, text + used, PRICES_FILE_MAX + 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            problems_add(problems, "PLIMSOLL_PRICES_FILE is %s, which cannot be read: %s", quoted, strerror(errno));
            free(text);
            text = NULL;
            goto Exit;
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    text[used] = '\0';
    *len = used; /* one byte over the maximum when it is longer: prices_parse says so */
Exit:
    if (fd >= 0)
        close(fd);
    return text;
}

prices_t *prices_ref(prices_t *prices)
{
    if (prices != NULL)
        atomic_fetch_add_explicit(&prices->refs, 1, memory_order_relaxed);
    return prices;
}

void prices_unref(prices_t *prices)
{
    if (prices == NULL || atomic_fetch_sub_explicit(&prices->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(prices->all);
    free(prices);
}

const char *prices_date(const prices_t *prices)
{
    return prices->date;
}

const char *prices_currency(const prices_t *prices)
{
    return prices->currency;
}

size_t prices_count(const prices_t *prices)
{
    return prices->count;
}

bool prices_are_current(const prices_t *prices, int64_t wall_ms, int64_t max_age_ms)
{
    return wall_ms - prices->date_ms <= max_age_ms && prices->date_ms - wall_ms <= PRICES_AHEAD_MS;
}

const price_t *prices_find(const prices_t *prices, const char *backend)
{
    for (size_t i = 0; i < prices->count; i++)
        if (strcmp(prices->all[i].backend, backend) == 0)
            return &prices->all[i];
    return NULL;
}
