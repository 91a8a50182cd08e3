#include "cli/stored_run.h"

#include <stdbool.h>
#include <string.h>
#include <stdlib.h>

#include "core/protojson.h"
#include "records/digest.h"

/* Whether the run's column, when it states anything, says what the record says. */
static bool agrees(const json_t *run, const char *member, const char *recorded)
{
    const char *column = json_string_value(json_object_get(run, member));
    return column == NULL || column[0] == '\0' || strcmp(column, recorded) == 0;
}

static const char *check(const json_t *run, const Plimsoll__V1__RunRecord *record)
{
    char digest[SHA256_HEX + 1];
    if (digest_record(record, digest) != NULL)
        return "the record's version is not known";
    if (strcmp(digest, record->record_sha256) != 0)
        return "the record's digest is not that of its fields";
    if (!agrees(run, "record_sha256", record->record_sha256))
        return "the run names another record";
    if (!agrees(run, "request_sha256", record->request_sha256))
        return "the record is of another request";
    if (!agrees(run, "result_sha256", record->result_sha256))
        return "the record is of another result";
    if (!agrees(run, "isolation", record->isolation))
        return "the record states another isolation";
    return NULL;
}

const char *stored_run_check(const json_t *run)
{
    const json_t *stored = json_object_get(run, "record");
    if (stored == NULL || json_is_null(stored))
        return NULL;
    char error[PROTOJSON_ERROR_MAX];
    const char *why = "the record is malformed";
    char *text = json_dumps(stored, JSON_COMPACT);
    ProtobufCMessage *message = NULL;
    if (text != NULL)
        message = protojson_parse(&plimsoll__v1__run_record__descriptor, text, strlen(text), error);
    if (message != NULL) {
        why = check(run, (const Plimsoll__V1__RunRecord *)message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    free(text);
    return why;
}
