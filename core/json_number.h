/*
 * The numbers of RFC 8259 section 6, exact: an integer never passes through a double, so all 64 bits survive, and 1e3
 * and 2.0 are the integers they are (proto3 JSON accepts both forms). Pure functions; the texts need no NUL.
 */
#ifndef CORE_JSON_NUMBER_H
#define CORE_JSON_NUMBER_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    NUMBER_OK,
    NUMBER_FRACTION, /* not an integer */
    NUMBER_RANGE,    /* an integer outside what was asked for, or a double past the largest */
} number_result_t;

/* Bytes of the number at the start of the text; 0 when there is none. */
size_t json_number_scan(const char *text, size_t len);

/* The text is a whole number as json_number_scan measures it. */
number_result_t json_number_i64(const char *text, size_t len, int64_t min, int64_t max, int64_t *out);
number_result_t json_number_u64(const char *text, size_t len, uint64_t max, uint64_t *out);
/* Correctly rounded; -0 keeps its sign; too small becomes a subnormal or zero, too large is NUMBER_RANGE. */
number_result_t json_number_double(const char *text, size_t len, double *out);

enum { JSON_DOUBLE_MAX = 32 }; /* bytes of any double printed, with the NUL: "-2.2250738585072014e-308" is 24 */
/* A finite double in the shortest form that reads back as the same bits; bytes written, without the NUL. */
size_t json_number_format(double value, char out[JSON_DOUBLE_MAX]);

#endif
