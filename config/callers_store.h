/*
 * The callers file on disk as the tool edits it (spec section 1.6): a regular file (by lstat), locked by creating the
 * directory PATH.lock, replaced by a finished temporary file in the same directory, so a reader sees the old set or the
 * new one and never a part. A lock left behind by a tool that was killed is the operator's to remove.
 */
#ifndef CONFIG_CALLERS_STORE_H
#define CONFIG_CALLERS_STORE_H

#include <stdbool.h>

#include "config/callers.h"

typedef struct callers_store callers_store_t;

/* Locks and reads the file; an absent one is an empty set when `may_create`. NULL with problems, unlocked. */
callers_store_t *callers_store_open(const char *path, bool may_create, problems_t *problems);
/* What the file held; owned by the store. */
const callers_t *callers_store_callers(const callers_store_t *store);
/* Whether there was no file. */
bool callers_store_is_new(const callers_store_t *store);

typedef enum {
    CALLERS_WRITTEN,   /* replaced, and on disk */
    CALLERS_UNTOUCHED, /* failed before the replacement: the old file is as it was */
    CALLERS_REPLACED,  /* replaced, but something failed afterwards: it may not survive a power cut */
} callers_written_t;

/* Keeps the old file's mode and owner; a new file has mode 0600. Adds a problem unless CALLERS_WRITTEN. */
callers_written_t callers_store_write(callers_store_t *store, const callers_t *callers, problems_t *problems);
/* Unlocks and frees. A lock that cannot be removed is a problem, as it keeps the next edit from starting. */
void callers_store_close(callers_store_t *store, problems_t *problems);

/* Reads without a lock, for listing. Same rules for the path. NULL with problems; unref the result. */
callers_t *callers_store_read(const char *path, problems_t *problems);

#endif
