#include "gateway/stored_answer.h"

#include <string.h>

#include "core/log.h"
#include "records/digest.h"

static const char *wrong_with(const Plimsoll__V1__RunResponse *r, const store_admitted_t *admitted)
{
    char digest[SHA256_HEX + 1];
    if (r == NULL)
        return "it does not unpack";
    if (r->record == NULL)
        return "it has no record";
    digest_result(r, digest);
    if (strcmp(digest, r->record->result_sha256) != 0)
        return "it is not the result its record has";
    if (digest_record(r->record, digest) != NULL || strcmp(digest, r->record->record_sha256) != 0)
        return "its record does not hold";
    if (admitted->record_sha256[0] != '\0' && strcmp(digest, admitted->record_sha256) != 0)
        return "its record is another run's";
    return NULL;
}

Plimsoll__V1__RunResponse *stored_answer_unpack(const char *caller, const store_admitted_t *admitted)
{
    Plimsoll__V1__RunResponse *r = plimsoll__v1__run_response__unpack(NULL, admitted->answer_len, admitted->answer);
    const char *wrong = wrong_with(r, admitted);
    if (wrong == NULL)
        return r;
    log_event(LOG_ERROR, "stored_answer_corrupt", log_str("caller", caller), log_str("run_id", admitted->run_id),
              log_str("reason", wrong));
    if (r != NULL)
        plimsoll__v1__run_response__free_unpacked(r, NULL);
    return NULL;
}
