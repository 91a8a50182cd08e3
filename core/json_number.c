#include "core/json_number.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

/*
 * No part of the program sets a locale, so strtod and printf are those of the C locale, which is what JSON asks for.
 */

enum {
    EXPONENT_MAX =
        1000000000,     /* exponents are read up to here: past any that could matter for a text that fits in memory */
    FAST_DIGITS = 15,   /* 10^15 < 2^53: so many digits are exact in a double */
    FAST_POWER = 22,    /* 10^22 is the largest power of ten a double holds exactly */
    NUMBER_STACK = 128, /* longer texts are copied to the heap for strtod */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

size_t json_number_scan(const char *text, size_t len)
{
    const char *p = text, *end = text + len;
    if (p != end && *p == '-')
        p++;
    if (p == end || !is_digit(*p))
        return 0;
    if (*p++ != '0') {
        while (p != end && is_digit(*p))
            p++;
    }
    if (p != end && *p == '.') {
        if (++p == end || !is_digit(*p))
            return 0;
        while (p != end && is_digit(*p))
            p++;
    }
    if (p != end && (*p == 'e' || *p == 'E')) {
        if (++p != end && (*p == '+' || *p == '-'))
            p++;
        if (p == end || !is_digit(*p))
            return 0;
        while (p != end && is_digit(*p))
            p++;
    }
    return (size_t)(p - text);
}

/* A number as digits times a power of ten: value = 0.d1d2d3... with the point after `point` digits. */
typedef struct {
    bool negative;
    const char *digits, *end; /* the digits and at most one '.', from the first digit that is not zero to the last */
    size_t count;             /* digits between them */
    int64_t point;            /* digits before the decimal point, exponent applied */
} decimal_t;

static decimal_t decimal_of(const char *text, size_t len)
{
    decimal_t d = {.digits = text, .end = text};
    const char *p = text, *end = text + len;
    if (*p == '-') {
        d.negative = true;
        p++;
    }
    int64_t before = 0; /* digits before the point, from the first that is not zero; negative: zeros after it */
    bool after_point = false;
    size_t seen = 0; /* digits since the first that is not zero, zeros at the end included */
    for (; p != end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            after_point = true;
            continue;
        }
        if (seen == 0 && *p == '0') {
            before -= after_point;
            continue;
        }
        if (seen++ == 0)
            d.digits = p;
        before += !after_point;
        if (*p != '0') {
            d.end = p + 1;
            d.count = seen;
        }
    }
    int64_t exponent = 0;
    if (p != end) {
        p++;
        bool negative = *p == '-';
        if (*p == '-' || *p == '+')
            p++;
        for (; p != end; p++) {
            if (exponent < EXPONENT_MAX)
                exponent = exponent * 10 + (*p - '0');
        }
        if (negative)
            exponent = -exponent;
    }
    d.point = before + exponent;
    return d;
}

/* The magnitude of an integer, up to `max`. */
static number_result_t magnitude_of(const decimal_t *d, uint64_t max, uint64_t *out)
{
    *out = 0;
    if (d->count == 0)
        return NUMBER_OK;
    if (d->point < (int64_t)d->count)
        return NUMBER_FRACTION;
    if (d->point > 20) /* 2^64 has 20 digits */
        return NUMBER_RANGE;
    uint64_t value = 0;
    const char *p = d->digits;
    for (int64_t i = 0; i < d->point; i++) {
        if (p != d->end && *p == '.')
            p++;
        unsigned digit = p != d->end ? (unsigned)(*p++ - '0') : 0;
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, digit, &value))
            return NUMBER_RANGE;
    }
    *out = value;
    return value <= max ? NUMBER_OK : NUMBER_RANGE;
}

number_result_t json_number_i64(const char *text, size_t len, int64_t min, int64_t max, int64_t *out)
{
    decimal_t d = decimal_of(text, len);
    uint64_t magnitude;
    number_result_t result = magnitude_of(&d, (uint64_t)INT64_MAX + 1, &magnitude);
    if (result != NUMBER_OK)
        return result;
    if (!d.negative && magnitude > (uint64_t)INT64_MAX)
        return NUMBER_RANGE;
    int64_t value = d.negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    if (value < min || value > max)
        return NUMBER_RANGE;
    *out = value;
    return NUMBER_OK;
}

number_result_t json_number_u64(const char *text, size_t len, uint64_t max, uint64_t *out)
{
    decimal_t d = decimal_of(text, len);
    number_result_t result = magnitude_of(&d, max, out);
    if (result == NUMBER_OK && d.negative && *out != 0)
        return NUMBER_RANGE;
    return result;
}

/* Clinger's exact case: few digits and a small power of ten are both doubles, so one rounding, the division's or the
 * multiplication's, gives the nearest double. Anything else is left to strtod. */
static bool fast_double(const char *text, size_t len, double *out)
{
    static const double POWERS[FAST_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *p = text, *end = text + len;
    bool negative = *p == '-';
    p += negative;
    int64_t mantissa = 0;
    int digits = 0, fraction = 0;
    bool after_point = false;
    for (; p != end; p++) {
        if (*p == '.') {
            after_point = true;
            continue;
        }
        if (!is_digit(*p) || ++digits > FAST_DIGITS)
            return false;
        mantissa = mantissa * 10 + (*p - '0');
        fraction += after_point;
    }
    double value = (double)mantissa / POWERS[fraction];
    *out = negative ? -value : value;
    return true;
}

number_result_t json_number_double(const char *text, size_t len, double *out)
{
    if (fast_double(text, len, out))
        return NUMBER_OK;
    char stack[NUMBER_STACK], *copy = stack;
    if (len >= sizeof(stack))
        copy = mem_realloc(NULL, len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    *out = strtod(copy, NULL);
    if (copy != stack)
        free(copy);
    return isinf(*out) ? NUMBER_RANGE : NUMBER_OK;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

size_t json_number_format(double value, char out[JSON_DOUBLE_MAX])
{
    if (fabs(value) < 1e15 && value == (double)(int64_t)value && !(value == 0 && signbit(value)))
        return (size_t)snprintf(out, JSON_DOUBLE_MAX, "%lld", (long long)value);
    /* Up to 15 digits survive the way through any normal double, so the first try is the shortest whenever 15 are
     * enough; a subnormal holds fewer, and is short only when asked for few. */
    int precision = value != 0 && fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    int n;
    for (;; precision++) {
        n = snprintf(out, JSON_DOUBLE_MAX, "%.*g", precision, value);
        if (precision >= DBL_DECIMAL_DIG || same_bits(strtod(out, NULL), value))
            return (size_t)n;
    }
}
