/* The probe's report as it is written: one JSON document in memory of a fixed size, printed when it is whole. */
#ifndef BACKENDS_GUEST_RUNNER_PROBE_JSON_H
#define BACKENDS_GUEST_RUNNER_PROBE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROBE_REPORT_MAX = 192 * 1024 }; /* 256 mounts with a path and options of some hundred bytes each, twice over */

/* Values and containers; `name` is NULL inside a list. Names are literals that need no escaping. */
void probe_open(const char *name, char bracket);
void probe_close(char bracket);
/* Any bytes: what is not printable ASCII is written as \u00XX. NULL is null. */
void probe_text(const char *name, const char *value);
void probe_number(const char *name, uint64_t value);
void probe_bool(const char *name, bool value);
/* Outcome of a call: "ok" when it did not fail, else the errno's name. */
void probe_outcome(const char *name, long result, int error);
/* "EACCES"; "E999" for a number without a name. */
const char *probe_errno(int error);
/* Prints the document. False when it did not fit, or could not be written. */
bool probe_print(void);

#endif
