/* The one place time is read. Durations, deadlines and leases use the monotonic clock; wall time is for records only.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>

/* Milliseconds on the monotonic clock. Never goes backwards; the origin is unspecified. */
uint64_t clock_mono_ms(void);
/* Microseconds on the monotonic clock, same origin as clock_mono_ms. */
uint64_t clock_mono_us(void);
/* Milliseconds since 1970 (UTC). May step; for records and token validity windows only. */
int64_t clock_wall_ms(void);

#endif
