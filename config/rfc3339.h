/* Times in the callers file: RFC 3339 section 5.6, UTC only. */
#ifndef CONFIG_RFC3339_H
#define CONFIG_RFC3339_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RFC3339_MAX = sizeof("2026-11-29T20:00:00.123Z") };

/* "2026-11-29T20:00:00Z", with up to nine digits of a fraction, of which three count. Capital T and Z, no other offset,
 * no leap second, a day that exists. `ms` since 1970, negative before. */
bool rfc3339_parse(const char *text, size_t len, int64_t *ms);
/* With a fraction only when there is one. For years 0 to 9999. */
void rfc3339_format(int64_t ms, char out[RFC3339_MAX]);

#endif
