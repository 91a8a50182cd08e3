#include "config/rfc3339.h"

#include <stdio.h>
#include <string.h>

enum { DAY_MS = 86400000, WHOLE_LEN = sizeof("2026-11-29T20:00:00") - 1, FRACTION_MAX = 9 };

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int days_in(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 2 && is_leap(year) ? 29 : days[month - 1];
}

/* Days from 1970-01-01 to the first of January of the year. */
static int64_t days_before_year(int64_t year)
{
    int64_t y =
        year - 1; /* years finished before it, counted from year 1; year 0 gives -1, and its leap day is above */
    int64_t leaps = y >= 0 ? y / 4 - y / 100 + y / 400 : -1;
    return y * 365 + leaps - 719162; /* 719162: days from 0001-01-01 to 1970-01-01 */
}

static bool digits(const char *text, int count, int *value)
{
    *value = 0;
    for (int i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *value = *value * 10 + (text[i] - '0');
    }
    return true;
}

/* The fraction's point and digits at `text`; its milliseconds. */
static bool fraction_parse(const char *text, size_t len, int *ms)
{
    int scale = 100;

    *ms = 0;
    if (len == 0)
        return true;
    if (text[0] != '.' || len < 2 || len > 1 + FRACTION_MAX)
        return false;
    for (size_t i = 1; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *ms += (text[i] - '0') * scale;
        scale /= 10;
    }
    return true;
}

bool rfc3339_parse(const char *text, size_t len, int64_t *ms)
{
    int year, month, day, hour, minute, second, fraction;
    int64_t days;

    if (len < WHOLE_LEN + 1 || text[len - 1] != 'Z')
        return false;
    if (text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':')
        return false;
    if (!digits(text, 4, &year) || !digits(text + 5, 2, &month) || !digits(text + 8, 2, &day) ||
        !digits(text + 11, 2, &hour) || !digits(text + 14, 2, &minute) || !digits(text + 17, 2, &second))
        return false;
    if (!fraction_parse(text + WHOLE_LEN, len - 1 - WHOLE_LEN, &fraction))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > days_in(year, month) || hour > 23 || minute > 59 || second > 59)
        return false;
    days = days_before_year(year) + day - 1;
    for (int m = 1; m < month; m++)
        days += days_in(year, m);
    *ms = days * DAY_MS + ((hour * 60 + minute) * 60 + second) * INT64_C(1000) + fraction;
    return true;
}

void rfc3339_format(int64_t ms, char out[RFC3339_MAX])
{
    int64_t days = ms / DAY_MS, rest = ms % DAY_MS, year;
    int month = 1, len;

    if (rest < 0) {
        rest += DAY_MS;
        days--;
    }
    year = 1970 + days / 366; /* at or before the year for times after 1970, and put right below */
    while (days < days_before_year(year))
        year--;
    while (days >= days_before_year(year + 1))
        year++;
    days -= days_before_year(year);
    for (; days >= days_in(year, month); month++)
        days -= days_in(year, month);
    len = snprintf(out, RFC3339_MAX, "%04u-%02u-%02uT%02u:%02u:%02u", (unsigned)(year % 10000), (unsigned)month % 100,
                   (unsigned)(days + 1) % 100, (unsigned)(rest / 3600000) % 100, (unsigned)(rest / 60000 % 60),
                   (unsigned)(rest / 1000 % 60));
    if (rest % 1000 != 0)
        len += snprintf(out + len, (size_t)(RFC3339_MAX - len), ".%03u", (unsigned)(rest % 1000));
    snprintf(out + len, (size_t)(RFC3339_MAX - len), "Z");
}
