/* Decimal numbers of people and files as whole numbers of a stated fraction: exact, without floating point. */
#ifndef CONFIG_DECIMAL_H
#define CONFIG_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DECIMAL_PLACES_MAX = 9, DECIMAL_TEXT_MAX = 32 };

/* "12", "0.5", "12.500000" in units of 10^-places (at most DECIMAL_PLACES_MAX): digits, at most one point with digits
 * on both sides, no sign, no exponent, no superfluous leading zero, no more places than `places`. false: none of that,
 * or above `max`. */
bool decimal_parse(const char *text, size_t len, unsigned places, uint64_t max, uint64_t *out);
/* The shortest text of it: "12", "0.5". */
const char *decimal_print(uint64_t value, unsigned places, char out[DECIMAL_TEXT_MAX]);

#endif
