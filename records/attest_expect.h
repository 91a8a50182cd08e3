/*
 * What a bundle cannot show by itself (attest section 6.4): that it holds every call it should. The caller's own list
 * of request digests closes that, compared as a multiset.
 */
#ifndef RECORDS_ATTEST_EXPECT_H
#define RECORDS_ATTEST_EXPECT_H

#include <stdbool.h>

#include "core/buffer.h"
#include "core/sha256.h"

typedef struct attest_expect attest_expect_t;

attest_expect_t *attest_expect_create(void);
void attest_expect_destroy(attest_expect_t *expect);
/* Takes the list's text: the first word of each line that is not blank is a digest, the rest of it a label. NULL, or
 * what is wrong, kept until destroyed. */
const char *attest_expect_list(attest_expect_t *expect, const char *text, size_t len);
/* A call of the bundle; `trace_id` may be "". */
void attest_expect_seen(attest_expect_t *expect, const char request_sha256[SHA256_HEX + 1], const char *trace_id);
/* true when both are the same multiset; else appends what is missing and what is unexpected, each named by 16 digits,
 * its trace ID or label, at most ATTEST_EXPECT_NAMED of them. */
enum { ATTEST_EXPECT_NAMED = 8 };
bool attest_expect_holds(attest_expect_t *expect, buffer_t *out);

#endif
