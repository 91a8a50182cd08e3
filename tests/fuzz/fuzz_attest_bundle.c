/*
 * What a stranger may hand to `plimsoll attest verify` and its kin. The first byte picks the reader: a whole bundle;
 * one line, which when taken must be what writing it again gives; a statement likewise; a call whose pieces are the
 * input's and whose signatures are right, so that what stands behind them is reached; a list of digests; a key.
 */
#include <stdlib.h>
#include <string.h>

#include "records/attest_expect.h"
#include "tests/unit/attest_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static attest_key_t *key;

static void verify_bundle(const char *data, size_t size)
{
    attest_verifier_t *v = attest_verifier_create(attest_key_public(key), NULL, NULL);
    const char *line = data, *end = data + size, *newline, *why = NULL;
    while (why == NULL && line < end && (newline = memchr(line, '\n', (size_t)(end - line))) != NULL) {
        why = attest_verifier_line(v, line, (size_t)(newline - line));
        line = newline + 1;
    }
    if (why != NULL && strlen(why) == 0)
        abort();
    attest_verifier_end(v);
    attest_verifier_destroy(v);
}

/* ---- a line in one spelling ---- */

static void put_base64(buffer_t *out, const char *before, const uint8_t *data, size_t len)
{
    buffer_append_str(out, before);
    base64_encode(out, data, len, true);
    buffer_append_str(out, "\"");
}

static void put_envelope(buffer_t *out, const attest_envelope_t *envelope)
{
    put_base64(out, "{\"payloadType\":\"" ATTEST_PAYLOAD_TYPE "\",\"payload\":\"", envelope->payload,
               envelope->payload_len);
    buffer_append_str(out, ",\"signatures\":[");
    for (size_t i = 0; i < envelope->signature_count; i++) {
        buffer_append_str(out, i == 0 ? "{\"keyid\":" : ",{\"keyid\":");
        attest_json_string(out, envelope->signatures[i].keyid);
        put_base64(out, ",\"sig\":\"", envelope->signatures[i].sig, envelope->signatures[i].sig_len);
        buffer_append_str(out, "}");
    }
    buffer_append_str(out, "]}");
}

static void read_line(const char *data, size_t size, bool has_link)
{
    attest_line_t line;
    if (attest_line_read(data, size, has_link, &line) == NULL) {
        buffer_t again;
        buffer_init(&again, (size_t)1 << 28);
        const char *comma = "{";
        if (line.request != NULL) {
            put_base64(&again, "{\"request\":\"", line.request, line.request_len);
            comma = ",";
        }
        if (line.response != NULL)
            put_base64(&again, ",\"response\":\"", line.response, line.response_len);
        if (line.envelope.signature_count != 0) {
            buffer_printf(&again, "%s\"envelope\":", comma);
            put_envelope(&again, &line.envelope);
            comma = ",";
        }
        if (line.link.signature_count != 0) {
            buffer_printf(&again, "%s\"link\":", comma);
            put_envelope(&again, &line.link);
        }
        buffer_append_str(&again, "}");
        if (again.len != size || memcmp(again.base, data, size) != 0)
            abort();
        buffer_dispose(&again);
    }
    attest_line_dispose(&line);
}

/* ---- a statement ---- */

static bool write_statement(buffer_t *out, const attest_statement_t *s)
{
    switch (s->kind) {
    case ATTEST_RECORD:
        return attest_statement_record(out, s->prefix, s->record);
    case ATTEST_CLOSE:
        return attest_statement_close(out, s->prefix, &s->close);
    case ATTEST_LINK:
        return attest_statement_link(out, s->prefix, &s->link);
    default:
        return attest_statement_head(out, &s->head);
    }
}

static void read_statement(const char *data, size_t size)
{
    attest_statement_t first, second;
    if (attest_statement_read(data, size, &first) == NULL) {
        buffer_t one, other;
        buffer_init(&one, (size_t)1 << 28);
        buffer_init(&other, (size_t)1 << 28);
        /* a link may say `lines` where it is no checkpoint, which its line's verification refuses: not written again */
        bool is_whole = first.kind != ATTEST_LINK || first.link.is_checkpoint || first.link.lines == 0;
        if (!write_statement(&one, &first))
            abort();
        if (is_whole && attest_statement_read(one.base, one.len, &second) == NULL) {
            if (!write_statement(&other, &second) || one.len != other.len || memcmp(one.base, other.base, one.len) != 0)
                abort();
            attest_statement_dispose(&second);
        } else if (is_whole && !(first.kind == ATTEST_LINK && first.link.is_checkpoint)) {
            abort();
        }
        buffer_dispose(&one);
        buffer_dispose(&other);
    }
    attest_statement_dispose(&first);
}

/* ---- a call, rightly signed ---- */

/* A length of two bytes, and that many more; what is left when there are fewer. */
static buffer_t take_piece(const uint8_t **data, size_t *size)
{
    buffer_t piece;
    buffer_init(&piece, (size_t)1 << 24);
    if (*size < 2)
        return piece;
    size_t len = (size_t)(*data)[0] << 8 | (*data)[1];
    *data += 2;
    *size -= 2;
    len = len < *size ? len : *size;
    buffer_append(&piece, *data, len);
    *data += len;
    *size -= len;
    return piece;
}

static void verify_call(const uint8_t *data, size_t size)
{
    buffer_t request = take_piece(&data, &size), response = take_piece(&data, &size);
    buffer_t envelope, entry;
    forged_t forged;
    buffer_init(&envelope, (size_t)1 << 24);
    buffer_init(&entry, (size_t)1 << 24);
    forge_init(&forged, key);
    if (size != 0) {
        if (request.len != 0)
            put_base64(&entry, "{\"request\":\"", request.base, request.len);
        if (request.len != 0 && response.len != 0)
            put_base64(&entry, ",\"response\":\"", response.base, response.len);
        buffer_append_str(&entry, request.len != 0 ? ",\"envelope\":" : "{\"envelope\":");
        attest_envelope_sign(&entry, key, data, size);
        buffer_append_str(&entry, "}");
        forge_line(&forged, &entry);
        forge_line(&forged, NULL);
        verify_bundle((const char *)forged.text.base, forged.text.len);
    }
    buffer_dispose(&forged.text);
    buffer_dispose(&entry);
    buffer_dispose(&envelope);
    buffer_dispose(&request);
    buffer_dispose(&response);
}

/* ---- lists and keys ---- */

static void read_list(const char *data, size_t size)
{
    buffer_t told;
    buffer_init(&told, 4096);
    attest_expect_t *expect = attest_expect_create();
    if (attest_expect_list(expect, data, size) == NULL) {
        attest_expect_seen(expect, attest_key_public(key)->id, "t");
        attest_expect_holds(expect, &told);
    }
    attest_expect_destroy(expect);
    buffer_dispose(&told);
}

static void read_keys(const char *data, size_t size)
{
    attest_public_t public;
    const char *err = NULL;
    attest_key_t *private = attest_key_parse(data, size, &err);
    if ((private == NULL) != (err != NULL))
        abort();
    attest_key_destroy(private);
    if (attest_public_parse(&public, data, size) == NULL) {
        char pem[ATTEST_PUBLIC_PEM_MAX];
        attest_public_pem(&public, pem);
        if (attest_public_parse(&public, pem, strlen(pem)) != NULL)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (key == NULL)
        key = fixture_key();
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    switch (data[0] % 7) {
    case 0:
        verify_bundle(text, size - 1);
        break;
    case 1:
    case 2:
        read_line(text, size - 1, data[0] % 7 == 1);
        break;
    case 3:
        read_statement(text, size - 1);
        break;
    case 4:
        verify_call(data + 1, size - 1);
        break;
    case 5:
        read_list(text, size - 1);
        break;
    default:
        read_keys(text, size - 1);
    }
    return 0;
}
