/*
 * A bundle as a file (attest sections 5 and 9.1): reading its lines within their bound, and appending so that it is
 * either longer by whole, verified lines that end in a checkpoint, or as it was.
 */
#ifndef RECORDS_ATTEST_BUNDLE_H
#define RECORDS_ATTEST_BUNDLE_H

#include "records/attest_verify.h"

/* ---- reading ---- */

typedef struct {
    int fd;
    uint64_t offset; /* in the file, of the next line */
    uint8_t *_base;
    size_t _start, _len, _cap, _scanned;
    bool _at_end;
} attest_lines_t;

/* The descriptor stays the caller's; of a file its own position is not used. */
void attest_lines_init(attest_lines_t *lines, int fd);
/* The next line without its newline, good until the next call. false at the end of the file, and with *err (a literal
 * or strerror's text) when the file is not lines that end in a newline or cannot be read. */
bool attest_lines_next(attest_lines_t *lines, const char **line, size_t *len, const char **err);
void attest_lines_dispose(attest_lines_t *lines);

/* Reads the whole file through the verifier, its end not judged: an empty file passes. NULL and the file's size, or why
 * not. */
const char *attest_bundle_read(int fd, attest_verifier_t *verifier, uint64_t *size);
/* The same, and the end judged. */
const char *attest_bundle_verify(int fd, attest_verifier_t *verifier);
/* Whether it may be continued: it is empty, or it verifies. NULL and its size, or why not. */
const char *attest_bundle_read_to_continue(int fd, attest_verifier_t *verifier, uint64_t *size);

/* ---- appending ---- */

/* Takes the exclusive lock, waiting at most `wait_ms`; false with errno (EWOULDBLOCK: somebody else holds it). */
bool attest_bundle_lock(int fd, int64_t wait_ms);

enum { ATTEST_WRITER_ERROR_MAX = 512 };
typedef struct {
    attest_verifier_t *_verifier;
    const attest_key_t *_key;
    int _fd;
    uint64_t _start, _at; /* where the file ended, and ends */
    attest_prefix_t _prefix;
    buffer_t _pending;
    bool _has_failed;
    char error[ATTEST_WRITER_ERROR_MAX];
} attest_writer_t;

/* Appends to a locked file that attest_bundle_read_to_continue has just read through this verifier; `size` is what it
 * told. */
void attest_writer_init(attest_writer_t *writer, int fd, uint64_t size, attest_verifier_t *verifier,
                        const attest_key_t *key);
/* Links one entry (canonical, without newline) and writes it. After any failure the file is as it was (truncated and
 * synced), or the error says that even that failed; every later call fails. */
const char *attest_writer_add(attest_writer_t *writer, const buffer_t *entry);
/* Takes back what was added, for a reason of the caller's. */
const char *attest_writer_abort(attest_writer_t *writer, const char *why);
/* Writes the checkpoint and syncs. */
const char *attest_writer_finish(attest_writer_t *writer);
void attest_writer_dispose(attest_writer_t *writer);

#endif
