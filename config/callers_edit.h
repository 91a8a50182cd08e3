/*
 * Changes to a set of callers, for the command line tool. Pure: each makes a new set from an old one, which stays as it
 * is, and checks the result by the rules of the callers file. NULL with at least one problem when it cannot be done. No
 * text names a hash or a token.
 */
#ifndef CONFIG_CALLERS_EDIT_H
#define CONFIG_CALLERS_EDIT_H

#include <stdint.h>

#include "config/callers.h"
#include "core/buffer.h"

enum {
    CALLERS_OVERLAP_MAX_MS = 30 * 24 * 3600 * INT64_C(1000)
}; /* two tokens at once is for a change-over, not for good */

/* No callers at all: what a tool starts from when there is no file. */
callers_t *callers_edit_empty(void);
/* A new caller. Without scopes (count 0) it gets "code:run". */
callers_t *callers_edit_add(const callers_t *from, const char *id, const uint8_t sha256[32], const char *const *scopes,
                            size_t scope_count, uint64_t paid_seconds_per_day, problems_t *problems);
/* 0 removes the allowance. */
callers_t *callers_edit_allowance(const callers_t *from, const char *id, uint64_t paid_seconds_per_day,
                                  problems_t *problems);
/* A new token in place of the caller's. overlap_ms 0: the old one ends at once. Otherwise (up to
 * CALLERS_OVERLAP_MAX_MS) the old one stays valid until now_ms + overlap_ms, rounded up to the second. Refused when the
 * token is not new to the caller, and, with an overlap, while an earlier overlap lasts. */
callers_t *callers_edit_rotate(const callers_t *from, const char *id, const uint8_t sha256[32], int64_t now_ms,
                               int64_t overlap_ms, problems_t *problems);
/* Removes the caller. The set may become empty, which the daemon refuses to start with. */
callers_t *callers_edit_revoke(const callers_t *from, const char *id, problems_t *problems);

/* Callers sorted by ID, with scopes, allowances and the windows of tokens that have one; never hashes. Text: a line
 * each. JSON: an array of {"id","scopes","paid_seconds_per_day"?,"tokens"?:[{"not_before"?,"not_after"?}]}, two-space
 * indented. false when `out` is too small. */
bool callers_list_text(const callers_t *callers, int64_t now_ms, buffer_t *out);
bool callers_list_json(const callers_t *callers, buffer_t *out);

#endif
