#include "cli/log_receipt.h"

#include <string.h>

#include "records/merkle.h"
#include "records/store.h"

enum { TEXT_MAX = 256, TAG_HEX = 32 };

static const char *const TEXTS[] = {"run_id", "caller_tag", "request_sha256", "verdict", "backend", "unanswered"};
static const char *const TIMES[] = {"started_unix_ms", "ended_unix_ms"};
enum { TEXT_COUNT = sizeof(TEXTS) / sizeof(TEXTS[0]), TIME_COUNT = sizeof(TIMES) / sizeof(TIMES[0]) };

const char *log_receipt_digest(const json_t *receipt, char out[SHA256_HEX + 1])
{
    const char *texts[TEXT_COUNT];
    merkle_hash_t digest;
    if (!json_is_object(receipt) || json_object_size(receipt) != TEXT_COUNT + TIME_COUNT)
        return "a receipt is not well-formed";
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        texts[i] = json_string_value(json_object_get(receipt, TEXTS[i]));
        if (texts[i] == NULL || strlen(texts[i]) > TEXT_MAX)
            return "a receipt is not well-formed";
    }
    for (size_t i = 0; i < TIME_COUNT; i++)
        if (!json_is_integer(json_object_get(receipt, TIMES[i])))
            return "a receipt is not well-formed";
    if (strlen(texts[1]) != TAG_HEX)
        return "a receipt is not well-formed";
    store_run_t run = {
        .run_id = texts[0],
        .request_sha256 = texts[2],
        .verdict = texts[3],
        .backend = texts[4],
        .unknown_code = texts[5],
        .started_unix_ms = json_integer_value(json_object_get(receipt, TIMES[0])),
        .ended_unix_ms = json_integer_value(json_object_get(receipt, TIMES[1])),
    };
    store_receipt_sha256_of(texts[1], &run, digest.bytes);
    merkle_hex(&digest, out);
    return NULL;
}

bool log_receipt_is_of(const json_t *receipt, const json_t *run)
{
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        /* the caller's tag is not shown with a run: who may read the run is the caller */
        if (strcmp(TEXTS[i], "caller_tag") != 0 &&
            !json_equal(json_object_get(receipt, TEXTS[i]), json_object_get(run, TEXTS[i])))
            return false;
    }
    for (size_t i = 0; i < TIME_COUNT; i++)
        if (!json_equal(json_object_get(receipt, TIMES[i]), json_object_get(run, TIMES[i])))
            return false;
    return true;
}
