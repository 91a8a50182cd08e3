/* What the tests of attestation share: a key, the exchanges of the protocol's vectors, and bundles made of them. Run
 * from the root of the tree. */
#ifndef TESTS_UNIT_ATTEST_FIXTURE_H
#define TESTS_UNIT_ATTEST_FIXTURE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/protojson.h"
#include "records/attest_bundle.h"
#include "records/attest_entry.h"
#include "records/digest.h"

/* RFC 8410 section 10.3. */
static const char FIXTURE_KEY[] = "-----BEGIN PRIVATE KEY-----\n"
                                  "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
                                  "-----END PRIVATE KEY-----\n";

enum { FIXTURE_ENTRIES_MAX = 16 };

/* Entries as a harness would sign them, and the messages they are made of. */
typedef struct {
    attest_key_t *key;
    Plimsoll__V1__RunRequest *requests[FIXTURE_ENTRIES_MAX];
    Plimsoll__V1__RunResponse *responses[FIXTURE_ENTRIES_MAX];
    Plimsoll__V1__RunRecord *records[FIXTURE_ENTRIES_MAX]; /* of unanswered calls */
    attest_close_t closes[FIXTURE_ENTRIES_MAX];
    attest_content_t contents[FIXTURE_ENTRIES_MAX];
    size_t count;
} fixture_t;

static inline attest_key_t *fixture_key(void)
{
    const char *err = NULL;
    attest_key_t *key = attest_key_parse(FIXTURE_KEY, strlen(FIXTURE_KEY), &err);
    if (key == NULL)
        mem_fatal(err);
    return key;
}

static inline void *fixture_message(const ProtobufCMessageDescriptor *type, const json_t *json)
{
    char error[PROTOJSON_ERROR_MAX];
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    void *message = protojson_parse(type, text, strlen(text), error);
    free(text);
    if (message == NULL)
        mem_fatal(error);
    return message;
}

static inline void fixture_add(fixture_t *f, const json_t *request, const json_t *response, const json_t *record)
{
    size_t i = f->count++;
    attest_content_t *content = &f->contents[i];
    content->request = f->requests[i] = fixture_message(&plimsoll__v1__run_request__descriptor, request);
    if (response != NULL)
        content->response = f->responses[i] = fixture_message(&plimsoll__v1__run_response__descriptor, response);
    if (record != NULL)
        content->record = f->records[i] = fixture_message(&plimsoll__v1__run_record__descriptor, record);
}

static inline void fixture_add_close(fixture_t *f, const char *session, uint64_t calls, const char *last)
{
    size_t i = f->count++;
    snprintf(f->closes[i].session, sizeof(f->closes[i].session), "%s", session);
    snprintf(f->closes[i].last_record_sha256, sizeof(f->closes[i].last_record_sha256), "%s", last);
    f->closes[i].calls = calls;
    f->contents[i].close = &f->closes[i];
}

/* The vectors' single exchange; then their session of three calls, the second of them unanswered, and its close. */
static inline void fixture_of_vectors(fixture_t *f)
{
    *f = (fixture_t){.key = fixture_key()};
    json_error_t error;
    json_t *vectors = json_load_file("tests/vectors/protocol-vectors.json", 0, &error);
    if (vectors == NULL)
        mem_fatal("the vectors cannot be read: run from the root of the tree");
    json_t *derived = json_object_get(vectors, "derived"), *call;
    json_t *exchange = json_array_get(json_object_get(derived, "exchanges"), 0);
    fixture_add(f, json_object_get(exchange, "request"), json_object_get(exchange, "response"), NULL);
    json_t *chain = json_array_get(json_object_get(derived, "session_chains"), 0);
    size_t i;
    json_array_foreach(json_object_get(chain, "calls"), i, call)
    {
        json_t *response = json_object_get(json_object_get(call, "response"), "run");
        fixture_add(f, json_object_get(call, "request"), response,
                    response == NULL ? json_object_get(call, "record") : NULL);
    }
    json_t *close = json_object_get(chain, "close");
    fixture_add_close(f, json_string_value(json_object_get(close, "session")), 3,
                      json_string_value(json_object_get(close, "lastRecordSha256")));
    json_decref(vectors);
}

static inline void fixture_dispose(fixture_t *f)
{
    for (size_t i = 0; i < f->count; i++) {
        plimsoll__v1__run_request__free_unpacked(f->requests[i], NULL);
        plimsoll__v1__run_response__free_unpacked(f->responses[i], NULL);
        plimsoll__v1__run_record__free_unpacked(f->records[i], NULL);
    }
    attest_key_destroy(f->key);
}

/* The entry of one content, signed. */
static inline buffer_t fixture_entry(const fixture_t *f, size_t i, attest_prefix_t prefix)
{
    buffer_t entry;
    buffer_init(&entry, ATTEST_LINE_MAX);
    const char *why = attest_entry_sign(&entry, f->key, prefix, &f->contents[i]);
    if (why != NULL)
        mem_fatal(why);
    return entry;
}

/* Lines of a bundle in memory, linked as asked and not verified: what a harness with the key could write. */
typedef struct {
    attest_key_t *key;
    buffer_t text;
    uint64_t lines;
    char last[SHA256_HEX + 1];
} forged_t;

static inline void forge_init(forged_t *forged, attest_key_t *key)
{
    *forged = (forged_t){.key = key};
    buffer_init(&forged->text, (size_t)1 << 30);
}

/* NULL = a checkpoint. */
static inline void forge_line(forged_t *forged, const buffer_t *entry)
{
    size_t start = forged->text.len;
    if (!attest_line_write(&forged->text, forged->key, ATTEST_OURS, entry, forged->lines, forged->last))
        mem_fatal("a line that cannot be forged");
    sha256_hex(forged->text.base + start, forged->text.len - start - 1, forged->last);
    forged->lines++;
}

/* Through a file, as a bundle is: NULL or why it does not verify. Valid until the next call. */
static inline const char *fixture_verify(const attest_public_t *key, const void *text, size_t len)
{
    static char why[1024];
    char path[] = "/tmp/attest-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        mem_fatal("no file to verify");
    attest_verifier_t *verifier = attest_verifier_create(key, NULL, NULL);
    const char *told = attest_bundle_verify(fd, verifier);
    if (told != NULL)
        snprintf(why, sizeof(why), "%s", told);
    attest_verifier_destroy(verifier);
    close(fd);
    return told != NULL ? why : NULL;
}

#endif
