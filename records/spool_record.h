/* A settlement as the spool keeps it: records/spool.proto. */
#ifndef RECORDS_SPOOL_RECORD_H
#define RECORDS_SPOOL_RECORD_H

#include "records/store.h"

enum { SPOOL_ANSWER_HEAD_MAX = 2 + 5 }; /* the answer's tag and its length */

/* Everything but the answer's bytes, which are to follow directly when `answer_len` is not 0. `*out` is the caller's to
 * free; `*without_answer` is its length when the answer is left out after all. Returns the length. */
size_t spool_record_pack(const store_settlement_t *settlement, size_t answer_len, uint8_t **out,
                         size_t *without_answer);

typedef struct {
    store_settlement_t settlement; /* points into what follows */
    void *_message;
} spool_record_t;
/* NULL, or why the bytes are no settlement this version can settle. Dispose of `out` when NULL was returned. */
const char *spool_record_unpack(const uint8_t *base, size_t len, spool_record_t *out);
void spool_record_dispose(spool_record_t *record);

#endif
