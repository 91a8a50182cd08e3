/* The body that writes a run's files to its sandbox (2.8), and the proof that they arrived: silent losses of uploads
 * are known of services like this one. */
#ifndef BACKENDS_E2B_UPLOAD_H
#define BACKENDS_E2B_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/e2b/limits.h"
#include "core/buffer.h"
#include "core/sha256.h"

enum {
    E2B_BOUNDARY = 40,                      /* characters of a boundary; 128 of its bits are random */
    E2B_PATH_MAX = 512,                     /* bytes of an absolute path in the guest */
    E2B_PART_HEAD_MAX = 256 + E2B_PATH_MAX, /* what a part takes beside its content */
};

/* Nothing in `content` can hold it: it is drawn anew for every body. */
void e2b_boundary(char out[E2B_BOUNDARY + 1]);
/* Whether a path can be a part's name: absolute, valid UTF-8, without a byte that would end the name or be taken for
 * something else (the daemon decodes no escapes). */
bool e2b_is_part_name(const char *path);
/* Appends one file. False when it does not fit, or the path cannot be a part's name: the body is of no use then. */
bool e2b_upload_add(buffer_t *body, const char *boundary, const char *path, const void *content, size_t len);
bool e2b_upload_end(buffer_t *body, const char *boundary);

/* One line of sha256sum for each path, in order, and nothing else: true. Else false with the path that is missing or
 * not what was sent. `hashes` are those of what was sent. */
bool e2b_hashes_match(const void *output, size_t len, const char *const *paths, char (*hashes)[SHA256_HEX + 1],
                      size_t count, char why[E2B_TEXT_MAX]);

#endif
