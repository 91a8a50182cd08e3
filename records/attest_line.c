#include "records/attest_line.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/protojson.h"

/* ---- reading ---- */

static bool is_there(const attest_envelope_t *envelope)
{
    return envelope->signature_count != 0;
}

/* The members in their order; *link_at is where the link's begins, its comma included. */
static const char *read_members(attest_cursor_t *cursor, attest_line_t *out, const char **link_at)
{
    bool is_first = true;
    const char *why = NULL;
    if (!attest_cursor_take(cursor, "{"))
        return "it does not begin with an object";
    if (attest_cursor_take(cursor, "\"request\":")) {
        if ((out->request = attest_cursor_base64(cursor, &out->request_len)) == NULL)
            return "its request is not padded standard base64";
        is_first = false;
    }
    if (!is_first && attest_cursor_take(cursor, ",\"response\":")) {
        if ((out->response = attest_cursor_base64(cursor, &out->response_len)) == NULL)
            return "its response is not padded standard base64";
    }
    if (attest_cursor_take(cursor, is_first ? "\"envelope\":" : ",\"envelope\":")) {
        if ((why = attest_envelope_read(cursor, &out->envelope)) != NULL)
            return why;
        is_first = false;
    }
    *link_at = cursor->at;
    if (attest_cursor_take(cursor, is_first ? "\"link\":" : ",\"link\":"))
        why = attest_envelope_read(cursor, &out->link);
    if (why != NULL)
        return why;
    return attest_cursor_take(cursor, "}") && cursor->at == cursor->end
               ? NULL
               : "it is not in canonical form: its members in their order, no white space, nothing after them";
}

static const char *find_shape(attest_line_t *out, bool has_link)
{
    if (is_there(&out->link) != has_link)
        return has_link ? "it carries no link" : "it carries a link already";
    if (is_there(&out->envelope)) {
        out->shape = out->response != NULL  ? ATTEST_LINE_ANSWERED
                     : out->request != NULL ? ATTEST_LINE_UNANSWERED
                                            : ATTEST_LINE_CLOSE;
        return NULL;
    }
    out->shape = ATTEST_LINE_CHECKPOINT;
    return out->request == NULL && has_link ? NULL : "it carries no envelope";
}

static void digest_line(const char *line, size_t len, const char *link_at, attest_line_t *out)
{
    sha256_hex(line, len, out->line_sha256);
    sha256_t *s = sha256_begin();
    sha256_add(s, line, (size_t)(link_at - line));
    sha256_add(s, "}", 1);
    sha256_end_hex(s, out->entry_sha256);
}

const char *attest_line_read(const char *line, size_t len, bool has_link, attest_line_t *out)
{
    *out = (attest_line_t){0};
    attest_cursor_t cursor = {.at = line, .end = line + len};
    const char *link_at = line, *why;
    if (len == 0)
        return "it is blank";
    if (len >= ATTEST_LINE_MAX)
        return "it is longer than 64 MiB";
    why = read_members(&cursor, out, &link_at);
    if (why == NULL)
        why = find_shape(out, has_link);
    if (why == NULL)
        digest_line(line, len, link_at, out);
    return why;
}

void attest_line_dispose(attest_line_t *line)
{
    free(line->request);
    free(line->response);
    attest_envelope_dispose(&line->envelope);
    attest_envelope_dispose(&line->link);
    *line = (attest_line_t){0};
}

/* ---- writing ---- */

static bool put_message(buffer_t *out, const char *name, const ProtobufCMessage *message, bool is_first)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_alloc(len + 1);
    protobuf_c_message_pack(message, bytes);
    bool ok = attest_json_member(out, name, is_first) && buffer_append_str(out, "\"") &&
              base64_encode(out, bytes, len, true) && buffer_append_str(out, "\"");
    free(bytes);
    return ok;
}

bool attest_entry_write(buffer_t *out, const ProtobufCMessage *request, const ProtobufCMessage *response,
                        const buffer_t *envelope)
{
    return buffer_append_str(out, "{") && (request == NULL || put_message(out, "request", request, true)) &&
           (response == NULL || put_message(out, "response", response, false)) &&
           attest_json_member(out, "envelope", request == NULL) && buffer_append(out, envelope->base, envelope->len) &&
           buffer_append_str(out, "}");
}

bool attest_line_write(buffer_t *out, const attest_key_t *key, attest_prefix_t prefix, const buffer_t *entry,
                       uint64_t lines, const char previous_sha256[SHA256_HEX + 1])
{
    attest_link_t link = {.index = lines + 1, .is_checkpoint = entry == NULL, .lines = entry == NULL ? lines : 0};
    memcpy(link.previous_sha256, previous_sha256, sizeof(link.previous_sha256));
    if (entry != NULL)
        sha256_hex(entry->base, entry->len, link.entry_sha256);
    buffer_t statement;
    buffer_init(&statement, ATTEST_LINE_MAX);
    size_t start = out->len;
    bool ok = attest_statement_link(&statement, prefix, &link) &&
              (entry != NULL ? buffer_append(out, entry->base, entry->len - 1) : buffer_append_str(out, "{")) &&
              attest_json_member(out, "link", entry == NULL) &&
              attest_envelope_sign(out, key, statement.base, statement.len) && buffer_append_str(out, "}\n") &&
              out->len - start <= ATTEST_LINE_MAX;
    buffer_dispose(&statement);
    return ok;
}
