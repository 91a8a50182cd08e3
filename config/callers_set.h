/*
 * How a set of callers is made: begin, append, seal. Only the parser and the editor do; once sealed it never changes
 * and is seen through config/callers.h.
 */
#ifndef CONFIG_CALLERS_SET_H
#define CONFIG_CALLERS_SET_H

#include "config/callers.h"

enum { CALLER_WHERE_MAX = 128 }; /* clients[99999] ("...") */

/* Empty, with one reference. */
callers_t *callers_begin(void);
/* A new, empty entry at the end; the set frees its strings. Valid until the next append. */
caller_t *callers_append(callers_t *callers);
/* An entry like `from`. */
caller_t *callers_append_copy(callers_t *callers, const caller_t *from);
/* Checks what concerns several entries (IDs and hashes are unique, at most CALLERS_MAX) and builds the index by hash.
 */
void callers_seal(callers_t *callers, problems_t *problems);

/* The rules for one value (spec section 1.2). NULL, or what is wrong with it. Texts are valid UTF-8. */
const char *caller_id_check(const char *id, size_t len);
const char *caller_scope_check(const char *scope, size_t len);
const char *caller_window_check(const caller_token_t *token);
/* 64 hex digits of either case. */
bool caller_hash_parse(const char *text, size_t len, uint8_t out[32]);
/* Whether the scopes allow the procedures: sets caller->runs. */
void caller_settle(caller_t *caller);
bool caller_has_scope(const caller_t *caller, const char *scope);
void caller_add_scope(caller_t *caller, const char *scope, size_t len);
/* Reads all of `fd`, at most CALLERS_FILE_MAX bytes; like callers_read_file, which names `path` in its problems. */
char *callers_read_fd(int fd, const char *path, size_t *len, problems_t *problems);
/* "clients[3] ("team-a")", or without the ID when it has none; returns `out`. */
const char *caller_where(char out[CALLER_WHERE_MAX], size_t index, const char *id);

#endif
