#include "records/attest_statement.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/attest_statement_names.h"
#include "records/digest.h"

const attest_kind_names_t ATTEST_KIND_NAMES[4] = {
    [ATTEST_RECORD] = {"run-record", "run-record/v1"},
    [ATTEST_CLOSE] = {"session", "session-close/v1"},
    [ATTEST_LINK] = {"bundle-line", "bundle-link/v1"},
    [ATTEST_HEAD] = {"log-head", "log-head/v1"},
};

/* Takes members out of one object: whatever is left over at the end is a member nobody knows. */
typedef struct {
    json_t *object;
    size_t taken;
    bool ok;
} reader_t;

static reader_t reader_of(json_t *object)
{
    return (reader_t){.object = object, .ok = json_is_object(object)};
}

static bool has_ended_well(const reader_t *r)
{
    return r->ok && json_object_size(r->object) == r->taken;
}

static json_t *take(reader_t *r, const char *name, bool is_optional)
{
    json_t *value = json_object_get(r->object, name);
    if (value != NULL)
        r->taken++;
    else if (!is_optional)
        r->ok = false;
    return value;
}

static const char *take_text(reader_t *r, const char *name, bool is_optional)
{
    json_t *value = take(r, name, is_optional);
    if (value != NULL && !json_is_string(value))
        r->ok = false;
    const char *text = json_string_value(value);
    return text != NULL ? text : "";
}

/* A text of 64 hex digits or, where it may be, of none. */
static void take_digest(reader_t *r, const char *name, bool is_optional, bool may_be_empty, char out[SHA256_HEX + 1])
{
    const char *text = take_text(r, name, is_optional);
    out[0] = '\0';
    if (attest_is_digest(text))
        memcpy(out, text, SHA256_HEX + 1);
    else if (text[0] != '\0' || !may_be_empty)
        r->ok = false;
}

static int64_t take_int(reader_t *r, const char *name, bool is_optional)
{
    json_t *value = take(r, name, is_optional);
    if (value != NULL && !json_is_integer(value))
        r->ok = false;
    return json_integer_value(value);
}

static uint64_t take_uint(reader_t *r, const char *name, bool is_optional)
{
    int64_t value = take_int(r, name, is_optional);
    if (value < 0)
        r->ok = false;
    return value < 0 ? 0 : (uint64_t)value;
}

/* ---- predicates ---- */

static bool is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

/* Section 4.3 and, for version 4, docs/protocol-notes.md: which fields a version may carry. */
static const char *check_version(const Plimsoll__V1__RunRecord *r)
{
    bool is_unanswered = !is_empty(r->unanswered);
    if (r->version < 1 || r->version > 4)
        return "a record's version is not known";
    if (r->version == 1 && (!is_empty(r->software_identity) || !is_empty(r->software_rule_id)))
        return "a version 1 record carries software fields";
    if (r->version < 4 && !is_empty(r->instance))
        return "a record carries a field its version does not cover";
    if (r->version < 4 && (r->version == 3) != is_unanswered)
        return "a record's version does not say whether the call was answered";
    if (is_unanswered && !is_empty(r->result_sha256))
        return "the record of an unanswered call carries a result";
    return NULL;
}

static const char *read_record(json_t *predicate, const char *subject, attest_statement_t *out)
{
    char digest[SHA256_HEX + 1];
    reader_t r = reader_of(predicate);
    Plimsoll__V1__RunRecord *record = mem_alloc(sizeof(*record));
    plimsoll__v1__run_record__init(record);
    out->record = record;
    uint64_t version = take_uint(&r, "version", false);
    record->version = version <= UINT32_MAX ? (uint32_t)version : 0;
    record->request_sha256 = mem_strdup(take_text(&r, "request_sha256", false));
    record->result_sha256 = mem_strdup(take_text(&r, "result_sha256", false));
    record->provider = mem_strdup(take_text(&r, "provider", false));
    record->isolation = mem_strdup(take_text(&r, "isolation", false));
    record->environment = mem_strdup(take_text(&r, "environment", false));
    record->software_identity = mem_strdup(take_text(&r, "software_identity", true));
    record->software_rule_id = mem_strdup(take_text(&r, "software_rule_id", true));
    record->instance = mem_strdup(take_text(&r, "instance", true));
    record->policy = mem_strdup(take_text(&r, "policy", false));
    record->started_unix_ms = take_int(&r, "started_unix_ms", false);
    record->ended_unix_ms = take_int(&r, "ended_unix_ms", false);
    record->session = mem_strdup(take_text(&r, "session", false));
    record->sequence = take_uint(&r, "sequence", false);
    record->previous_sha256 = mem_strdup(take_text(&r, "previous_sha256", false));
    record->unanswered = mem_strdup(take_text(&r, "unanswered", true));
    record->record_sha256 = mem_strdup(take_text(&r, "record_sha256", false));
    if (!has_ended_well(&r))
        return "a run record's predicate is not well-formed";
    const char *why = check_version(record);
    if (why != NULL)
        return why;
    if (digest_record(record, digest) != NULL || strcmp(record->record_sha256, digest) != 0)
        return "a record's digest is not that of its fields";
    return strcmp(subject, digest) == 0 ? NULL : "a statement's subject is not its record";
}

static const char *read_close(json_t *predicate, const char *subject, attest_statement_t *out)
{
    reader_t r = reader_of(predicate);
    take_digest(&r, "session", false, false, out->close.session);
    out->close.calls = take_uint(&r, "calls", false);
    take_digest(&r, "last_record_sha256", false, true, out->close.last_record_sha256);
    if (!has_ended_well(&r))
        return "a session close's predicate is not well-formed";
    return strcmp(subject, out->close.session) == 0 ? NULL : "a statement's subject is not its session";
}

static const char *read_link(json_t *predicate, const char *subject, attest_statement_t *out)
{
    attest_link_t *link = &out->link;
    reader_t r = reader_of(predicate);
    link->index = take_uint(&r, "index", false);
    take_digest(&r, "previous_sha256", false, true, link->previous_sha256);
    take_digest(&r, "entry_sha256", true, true, link->entry_sha256);
    json_t *checkpoint = take(&r, "checkpoint", true);
    link->is_checkpoint = json_is_true(checkpoint);
    link->lines = take_uint(&r, "lines", true);
    if (!has_ended_well(&r) || (checkpoint != NULL && !json_is_boolean(checkpoint)))
        return "a link's predicate is not well-formed";
    return strcmp(subject, link->is_checkpoint ? link->previous_sha256 : link->entry_sha256) == 0
               ? NULL
               : "a statement's subject is not its line";
}

static const char *read_head(json_t *predicate, const char *subject, attest_statement_t *out)
{
    attest_head_t *head = &out->head;
    reader_t r = reader_of(predicate);
    head->size = take_uint(&r, "size", false);
    take_digest(&r, "root_sha256", false, false, head->root_sha256);
    head->time_unix_ms = take_int(&r, "time_unix_ms", true);
    const char *origin = take_text(&r, "origin", true);
    if (strlen(origin) <= ATTEST_ORIGIN_MAX)
        memcpy(head->origin, origin, strlen(origin) + 1);
    else
        r.ok = false;
    if (!has_ended_well(&r))
        return "a log head's predicate is not well-formed";
    return strcmp(subject, head->root_sha256) == 0 ? NULL : "a statement's subject is not its root";
}

/* ---- the statement ---- */

static bool find_type(const char *type, const char *subject_name, attest_statement_t *out)
{
    static const char *const PREFIXES[] = {
        [ATTEST_OURS] = ATTEST_PREFIX_OURS, [ATTEST_REFERENCE] = ATTEST_PREFIX_REFERENCE};
    for (attest_prefix_t prefix = ATTEST_OURS; prefix <= ATTEST_REFERENCE; prefix++) {
        size_t len = strlen(PREFIXES[prefix]);
        if (strncmp(type, PREFIXES[prefix], len) != 0)
            continue;
        for (attest_kind_t kind = ATTEST_RECORD; kind <= ATTEST_HEAD; kind++) {
            bool is_named = strcmp(type + len, ATTEST_KIND_NAMES[kind].type) == 0 &&
                            strcmp(subject_name, ATTEST_KIND_NAMES[kind].subject) == 0;
            if (!is_named || (kind == ATTEST_HEAD && prefix != ATTEST_OURS))
                continue;
            out->kind = kind;
            out->prefix = prefix;
            return true;
        }
    }
    return false;
}

static const char *read_predicate(json_t *predicate, const char *subject, attest_statement_t *out)
{
    switch (out->kind) {
    case ATTEST_RECORD:
        return read_record(predicate, subject, out);
    case ATTEST_CLOSE:
        return read_close(predicate, subject, out);
    case ATTEST_LINK:
        return read_link(predicate, subject, out);
    default:
        return read_head(predicate, subject, out);
    }
}

const char *attest_statement_read(const void *payload, size_t len, attest_statement_t *out)
{
    char sha256[SHA256_HEX + 1];
    *out = (attest_statement_t){0};
    json_t *root = json_loadb(payload, len, JSON_REJECT_DUPLICATES, NULL);
    const char *why = "a statement is not a JSON object of its form";
    reader_t statement = reader_of(root);
    const char *statement_type = take_text(&statement, "_type", false);
    json_t *subjects = take(&statement, "subject", false);
    const char *predicate_type = take_text(&statement, "predicateType", false);
    json_t *predicate = take(&statement, "predicate", false);
    if (!has_ended_well(&statement) || json_array_size(subjects) != 1)
        goto done;
    reader_t subject = reader_of(json_array_get(subjects, 0));
    const char *name = take_text(&subject, "name", false);
    reader_t digest = reader_of(take(&subject, "digest", false));
    take_digest(&digest, "sha256", false, true, sha256);
    if (!has_ended_well(&subject) || !has_ended_well(&digest))
        goto done;
    why = "a statement's type is not known";
    if (strcmp(statement_type, ATTEST_STATEMENT_TYPE) == 0 && find_type(predicate_type, name, out))
        why = read_predicate(predicate, sha256, out);
done:
    json_decref(root);
    return why;
}

void attest_statement_dispose(attest_statement_t *statement)
{
    plimsoll__v1__run_record__free_unpacked(statement->record, NULL);
    statement->record = NULL;
}
