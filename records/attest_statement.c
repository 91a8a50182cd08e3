/* Writing; attest_statement_read.c is the other half. Member names and their order are the format. */
#include "records/attest_statement.h"

#include <inttypes.h>
#include <string.h>

#include "records/attest_json.h"
#include "records/attest_statement_names.h"

bool attest_is_digest(const char *text)
{
    return strlen(text) == SHA256_HEX && strspn(text, "0123456789abcdef") == SHA256_HEX;
}

static bool is_empty(const char *text)
{
    return text == NULL || text[0] == '\0';
}

static bool put_text(buffer_t *out, const char *name, const char *text)
{
    return attest_json_member(out, name, false) && attest_json_string(out, text != NULL ? text : "");
}

static bool put_int(buffer_t *out, const char *name, int64_t value)
{
    return attest_json_member(out, name, false) && buffer_printf(out, "%" PRId64, value);
}

static bool put_uint(buffer_t *out, const char *name, uint64_t value)
{
    return attest_json_member(out, name, false) && buffer_printf(out, "%" PRIu64, value);
}

/* Everything up to the predicate's first member; end with "}}". */
static bool begin(buffer_t *out, attest_kind_t kind, attest_prefix_t prefix, const char *sha256)
{
    const attest_kind_names_t *names = &ATTEST_KIND_NAMES[kind];
    return buffer_append_str(out, "{\"_type\":\"" ATTEST_STATEMENT_TYPE "\",\"subject\":[{\"name\":") &&
           attest_json_string(out, names->subject) && buffer_append_str(out, ",\"digest\":{\"sha256\":") &&
           attest_json_string(out, sha256) && buffer_append_str(out, "}}],\"predicateType\":\"") &&
           buffer_append_str(out, prefix == ATTEST_OURS ? ATTEST_PREFIX_OURS : ATTEST_PREFIX_REFERENCE) &&
           buffer_append_str(out, names->type) && buffer_append_str(out, "\",\"predicate\":{");
}

bool attest_statement_record(buffer_t *out, attest_prefix_t prefix, const Plimsoll__V1__RunRecord *r)
{
    return begin(out, ATTEST_RECORD, prefix, r->record_sha256) && attest_json_member(out, "version", true) &&
           buffer_printf(out, "%" PRIu32, r->version) && put_text(out, "request_sha256", r->request_sha256) &&
           put_text(out, "result_sha256", r->result_sha256) && put_text(out, "provider", r->provider) &&
           put_text(out, "isolation", r->isolation) && put_text(out, "environment", r->environment) &&
           (is_empty(r->software_identity) || put_text(out, "software_identity", r->software_identity)) &&
           (is_empty(r->software_rule_id) || put_text(out, "software_rule_id", r->software_rule_id)) &&
           (is_empty(r->instance) || put_text(out, "instance", r->instance)) && put_text(out, "policy", r->policy) &&
           put_int(out, "started_unix_ms", r->started_unix_ms) && put_int(out, "ended_unix_ms", r->ended_unix_ms) &&
           put_text(out, "session", r->session) && put_uint(out, "sequence", r->sequence) &&
           put_text(out, "previous_sha256", r->previous_sha256) &&
           (is_empty(r->unanswered) || put_text(out, "unanswered", r->unanswered)) &&
           put_text(out, "record_sha256", r->record_sha256) && buffer_append_str(out, "}}");
}

bool attest_statement_close(buffer_t *out, attest_prefix_t prefix, const attest_close_t *close)
{
    return begin(out, ATTEST_CLOSE, prefix, close->session) && attest_json_member(out, "session", true) &&
           attest_json_string(out, close->session) && put_uint(out, "calls", close->calls) &&
           put_text(out, "last_record_sha256", close->last_record_sha256) && buffer_append_str(out, "}}");
}

bool attest_statement_link(buffer_t *out, attest_prefix_t prefix, const attest_link_t *link)
{
    const char *subject = link->is_checkpoint ? link->previous_sha256 : link->entry_sha256;
    bool ok = begin(out, ATTEST_LINK, prefix, subject) && attest_json_member(out, "index", true) &&
              buffer_printf(out, "%" PRIu64, link->index) && put_text(out, "previous_sha256", link->previous_sha256);
    if (link->is_checkpoint)
        ok = ok && buffer_append_str(out, ",\"checkpoint\":true") && put_uint(out, "lines", link->lines);
    else
        ok = ok && put_text(out, "entry_sha256", link->entry_sha256);
    return ok && buffer_append_str(out, "}}");
}

bool attest_statement_head(buffer_t *out, const attest_head_t *head)
{
    return begin(out, ATTEST_HEAD, ATTEST_OURS, head->root_sha256) && attest_json_member(out, "size", true) &&
           buffer_printf(out, "%" PRIu64, head->size) && put_text(out, "root_sha256", head->root_sha256) &&
           (head->time_unix_ms == 0 || put_int(out, "time_unix_ms", head->time_unix_ms)) &&
           (is_empty(head->origin) || put_text(out, "origin", head->origin)) && buffer_append_str(out, "}}");
}
