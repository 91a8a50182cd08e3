/*
 * A file of protocol vectors (the form of tests/vectors/protocol-vectors.json) checked against this program: what
 * stands behind `plimsoll digest --vectors FILE`. Knows every section of such a file; one it does not know is a
 * failure, so that nothing passes by being skipped.
 */
#ifndef RECORDS_VECTORS_H
#define RECORDS_VECTORS_H

#include <stddef.h>
#include <stdio.h>

enum { VECTORS_FILE_MAX = 16 * 1024 * 1024 }; /* bytes */

typedef struct {
    size_t passed; /* comparisons, not entries: an entry may make several */
    size_t failed;
} vectors_result_t;

/* NULL when the text could be read as such a file (then *result says how it went, and `failures` got a line for each
 * failed comparison), else why not. */
const char *vectors_check(const char *json, size_t len, FILE *failures, vectors_result_t *result);
/* The same for a file's content. The error is a literal; errno tells more when the file could not be read. */
const char *vectors_check_file(const char *path, FILE *failures, vectors_result_t *result);

#endif
