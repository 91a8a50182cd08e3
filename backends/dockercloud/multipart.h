/*
 * Files in multipart bodies, as the REST API has them (spec 2.8): the upload's form, made in one piece, and the
 * download's answer, taken apart as the bytes come, however they are split. A delimiter may lie across any pieces;
 * only the closing one says that the answer is whole.
 */
#ifndef BACKENDS_DOCKERCLOUD_MULTIPART_H
#define BACKENDS_DOCKERCLOUD_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

enum {
    MULTIPART_BOUNDARY_MAX = 70, /* RFC 2046 5.1.1 */
    MULTIPART_HEAD_MAX = 8 * 1024,
    MULTIPART_JSON_MAX = 64 * 1024,
    MULTIPART_PREAMBLE_MAX = 1024,
};

/* --- writing --- */

/* A boundary that is in none of the files: 32 random hex digits. */
void multipart_boundary(char out[MULTIPART_BOUNDARY_MAX + 1]);
/* Appends the two parts of one file; `mode` as bits. False when the buffer is full. */
bool multipart_add_file(buffer_t *out, const char *boundary, const char *path, unsigned mode, const void *content,
                        size_t len);
bool multipart_close(buffer_t *out, const char *boundary);

/* --- reading --- */

typedef enum { PART_METADATA, PART_CONTENT, PART_ERROR, PART_STREAM_ERROR, PART_KINDS } part_kind_t;

typedef enum {
    MULTIPART_MORE,    /* goes on */
    MULTIPART_CLOSED,  /* the closing delimiter was seen */
    MULTIPART_BROKEN,  /* no multipart, an unknown kind of part, or one past its limit */
    MULTIPART_STOPPED, /* by a callback */
} multipart_state_t;

typedef struct {
    /* Parts whose body is JSON, whole. False stops. */
    bool (*on_json)(void *data, part_kind_t kind, const uint8_t *body, size_t len);
    /* A file's bytes: begin, as many pieces as there are, end. False stops. */
    bool (*on_content)(void *data, const uint8_t *bytes, size_t len, bool is_end);
} multipart_events_t;

typedef struct {
    const multipart_events_t *events;
    void *data;
    multipart_state_t state;
    const char *problem; /* MULTIPART_BROKEN: a literal */
    enum {
        MULTIPART_AT_PREAMBLE,
        MULTIPART_AT_DELIMITER,
        MULTIPART_AT_HEAD,
        MULTIPART_AT_BODY,
        MULTIPART_AT_END
    } _place;
    char _delimiter[4 + MULTIPART_BOUNDARY_MAX + 1]; /* CR LF "--" boundary */
    size_t _delimiter_len, _matched, _preamble;
    part_kind_t _kind;
    buffer_t _held; /* a head, a JSON body, or what follows a delimiter */
} multipart_t;

/* `content_type` is the answer's header, NULL when it has none. Without a usable boundary the state is BROKEN. */
void multipart_init(multipart_t *m, const char *content_type, const multipart_events_t *events, void *data);
void multipart_dispose(multipart_t *m);
multipart_state_t multipart_take(multipart_t *m, const void *bytes, size_t len);

#endif
