/*
 * What has to hold before a record is signed, and again whenever a bundle is verified (attest section 4.2): the record
 * against the harness's own copy of request and answer. A session's call stands there as the equivalent Run request.
 */
#ifndef RECORDS_ATTEST_EXCHANGE_H
#define RECORDS_ATTEST_EXCHANGE_H

#include <stdbool.h>

#include "records/plimsoll.pb-c.h"

/* An answered call. NULL, or a literal that says what does not hold. */
const char *attest_check_answered(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunResponse *response);
/* A session's call that may have run and ended in an error: there is no answer, only its record. */
const char *attest_check_unanswered(const Plimsoll__V1__RunRequest *request, const Plimsoll__V1__RunRecord *record);
/* Equal in every field this program knows. */
bool attest_records_are_equal(const Plimsoll__V1__RunRecord *a, const Plimsoll__V1__RunRecord *b);

#endif
