/* Keys, envelopes and statements of attestation: against RFC 8410's example key and two envelopes that the reference
 * published, and everything that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/protojson.h"
#include "records/attest_dsse.h"
#include "records/attest_key.h"
#include "records/attest_line.h"
#include "records/attest_statement.h"
#include "records/attest_verify.h"
#include "records/digest.h"

/* RFC 8410 section 10.3 and 10.1. */
static const char RFC_KEY[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
                              "-----END PRIVATE KEY-----\n";
/* The same with an attribute and its public key, as section 10.3 has it too. */
static const char RFC_KEY_2[] = "-----BEGIN PRIVATE KEY-----\n"
                                "MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
                                "oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB\n"
                                "Z9w7lshQhqowtrbLDFw4rXAxZuE=\n"
                                "-----END PRIVATE KEY-----\n";
static const char RFC_PUBLIC[] = "-----BEGIN PUBLIC KEY-----\n"
                                 "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
                                 "-----END PUBLIC KEY-----\n";
/* Of that SubjectPublicKeyInfo, by `openssl pkey -pubin -outform DER | sha256sum`. */
#define RFC_KEY_ID "a1e9156054e04fac899ae9f275132cdc07a5dbc4ea2c2ad3a1ffc6e0d253681f"

/* The reference's published session example: its harness's key, the statement of its last call and that of its close.
 */
static const char PUBLISHED_KEY[] = "-----BEGIN PUBLIC KEY-----\n"
                                    "MCowBQYDK2VwAyEA1gsHKOKF0HAVh1AwLeu/wlMZHH00EdgzbRfg1vPGWsU=\n"
                                    "-----END PUBLIC KEY-----\n";
#define PUBLISHED_KEY_ID "13a2affd2e0551725ef91ee535828c16b5bbd327143b40ec23b476a5bbcadf42"
#define PUBLISHED_SESSION "7388fb93a024d2e80e7f2be09386994002a4a88768a5b2e78f2c09ae994f3d65"
#define PUBLISHED_RECORD "295aa158f4e89eed5be69adf628cdccde23bfeb1c909877c566495ebeb2e44b1"
static const char PUBLISHED_CALL[] =
    "{\"payloadType\":\"application/vnd.in-toto+json\",\"payload\":"
    "\"eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJzdWJqZWN0IjpbeyJuYW1lIjoicnVuLXJlY29yZCIsImRpZ2VzdCI6"
    "eyJzaGEyNTYiOiIyOTVhYTE1OGY0ZTg5ZWVkNWJlNjlhZGY2MjhjZGNjZGUyM2JmZWIxYzkwOTg3N2M1NjY0OTVlYmViMmU0NGIxIn19XSwicHJl"
    "ZGljYXRlVHlwZSI6Imh0dHBzOi8vcGxpbXNvbGxtYXJrLmdpdGh1Yi5pby9wbGltc29sbC9ydW4tcmVjb3JkL3YxIiwicHJlZGljYXRlIjp7InZl"
    "cnNpb24iOjEsInJlcXVlc3Rfc2hhMjU2IjoiZDZhOTk1OTg0NzZiZjNhM2E1NjQwOWI4OWM4OTBlODUwNDM1OTU4MTQzZTRmYjA0ZGQ3N2FmYWZh"
    "MzFkNGU4NCIsInJlc3VsdF9zaGEyNTYiOiI3MmJjMDI0ZjJhYmVmZWMyNDcyNzM2YzYzNzBlODMwNTdiNTQ2YzI3YTY3ZDMxMjQ2MDg3MjIwZDY0"
    "ZjNjMjc5IiwicHJvdmlkZXIiOiJvcGVuc2hlbGwiLCJpc29sYXRpb24iOiJjb250YWluZXIiLCJlbnZpcm9ubWVudCI6IiIsInBvbGljeSI6Im9w"
    "ZW5zaGVsbC1wb2xpY3k6c2hhMjU2OmQxYzU2ODAxYzNmY2YwYjFkODQ3MzMzOWYzYjYyNWIxY2JmNDNkNTQwMWMxMjY4MDI2NTUxZGQyOGEzOWQ4"
    "NzEiLCJzdGFydGVkX3VuaXhfbXMiOjE3OTA2MzgwMzkwMTYsImVuZGVkX3VuaXhfbXMiOjE3OTA2MzgwMzkwODksInNlc3Npb24iOiI3Mzg4ZmI5"
    "M2EwMjRkMmU4MGU3ZjJiZTA5Mzg2OTk0MDAyYTRhODg3NjhhNWIyZTc4ZjJjMDlhZTk5NGYzZDY1Iiwic2VxdWVuY2UiOjUsInByZXZpb3VzX3No"
    "YTI1NiI6IjQ5Y2ZjZTQwMWM4OGY1NTM4NjhhNDBmNTQzZTNhMWRiOGZkMzY0NTJmMThmODQ4OTE1ZTdjZWM5YzY4YmM2YzUiLCJyZWNvcmRfc2hh"
    "MjU2IjoiMjk1YWExNThmNGU4OWVlZDViZTY5YWRmNjI4Y2RjY2RlMjNiZmViMWM5MDk4NzdjNTY2NDk1ZWJlYjJlNDRiMSJ9fQ==\","
    "\"signatures\":[{\"keyid\":\"" PUBLISHED_KEY_ID "\",\"sig\":"
    "\"2f9RYBlfVocFmo6yN3D7RexrphVYTwC9NbN0FD5mZyLbSPcrber9Fe4ODbZhk66JduEDegLsbG9OnbhWqpLXAQ==\"}]}";
static const char PUBLISHED_CLOSE[] =
    "{\"payloadType\":\"application/vnd.in-toto+json\",\"payload\":"
    "\"eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEiLCJzdWJqZWN0IjpbeyJuYW1lIjoic2Vzc2lvbiIsImRpZ2VzdCI6eyJz"
    "aGEyNTYiOiI3Mzg4ZmI5M2EwMjRkMmU4MGU3ZjJiZTA5Mzg2OTk0MDAyYTRhODg3NjhhNWIyZTc4ZjJjMDlhZTk5NGYzZDY1In19XSwicHJlZGlj"
    "YXRlVHlwZSI6Imh0dHBzOi8vcGxpbXNvbGxtYXJrLmdpdGh1Yi5pby9wbGltc29sbC9zZXNzaW9uLWNsb3NlL3YxIiwicHJlZGljYXRlIjp7InNl"
    "c3Npb24iOiI3Mzg4ZmI5M2EwMjRkMmU4MGU3ZjJiZTA5Mzg2OTk0MDAyYTRhODg3NjhhNWIyZTc4ZjJjMDlhZTk5NGYzZDY1IiwiY2FsbHMiOjUs"
    "Imxhc3RfcmVjb3JkX3NoYTI1NiI6IjI5NWFhMTU4ZjRlODllZWQ1YmU2OWFkZjYyOGNkY2NkZTIzYmZlYjFjOTA5ODc3YzU2NjQ5NWViZWIyZTQ0"
    "YjEifX0=\",\"signatures\":[{\"keyid\":\"" PUBLISHED_KEY_ID "\",\"sig\":"
    "\"PZ4GDwp/mDF6Dw7Rx+JsuJyhvek+Yda4oiKAi9StuElAGg/LKOXX0uWuPiEDJ/jQvdrNrF41NHU28se8xQn+CQ==\"}]}";

static attest_key_t *rfc_key(void)
{
    const char *err = NULL;
    attest_key_t *key = attest_key_parse(RFC_KEY, strlen(RFC_KEY), &err);
    assert_null(err);
    assert_non_null(key);
    return key;
}

static attest_public_t public_of(const char *pem)
{
    attest_public_t key;
    assert_null(attest_public_parse(&key, pem, strlen(pem)));
    return key;
}

/* ---- keys ---- */

static void test_a_key_is_read_and_written_as_the_rfc_has_it(void **state)
{
    (void)state;
    attest_key_t *key = rfc_key();
    attest_public_t public = public_of(RFC_PUBLIC);
    char public_pem[ATTEST_PUBLIC_PEM_MAX];
    assert_memory_equal(attest_key_public(key)->bytes, public.bytes, sizeof(public.bytes));
    assert_string_equal(attest_key_public(key)->id, RFC_KEY_ID);
    assert_string_equal(public.id, RFC_KEY_ID);
    char *pem = attest_key_pem(key);
    assert_string_equal(pem, RFC_KEY);
    sodium_free(pem);
    attest_public_pem(&public, public_pem);
    assert_string_equal(public_pem, RFC_PUBLIC);
    assert_string_equal(public_of(PUBLISHED_KEY).id, PUBLISHED_KEY_ID);
    attest_key_destroy(key);
}

static void test_generated_keys_differ_and_come_back(void **state)
{
    (void)state;
    const char *err = NULL;
    attest_key_t *one = attest_key_generate(), *other = attest_key_generate();
    assert_string_not_equal(attest_key_public(one)->id, attest_key_public(other)->id);
    char *pem = attest_key_pem(one);
    attest_key_t *back = attest_key_parse(pem, strlen(pem), &err);
    assert_non_null(back);
    uint8_t sig[ATTEST_SIGNATURE_BYTES];
    attest_key_sign(back, "x", 1, sig);
    assert_true(attest_public_verify(attest_key_public(one), "x", 1, sig, sizeof(sig)));
    assert_false(attest_public_verify(attest_key_public(one), "y", 1, sig, sizeof(sig)));
    assert_false(attest_public_verify(attest_key_public(other), "x", 1, sig, sizeof(sig)));
    assert_false(attest_public_verify(attest_key_public(one), "x", 1, sig, sizeof(sig) - 1));
    sodium_free(pem);
    attest_key_destroy(back);
    attest_key_destroy(one);
    attest_key_destroy(other);
    attest_key_destroy(NULL);
}

static void refuse_key(const char *pem, const char *why)
{
    const char *err = NULL;
    assert_null(attest_key_parse(pem, strlen(pem), &err));
    assert_string_equal(err, why);
}

static void test_other_private_keys_are_refused(void **state)
{
    (void)state;
    char twice[sizeof(RFC_KEY) * 2];
    snprintf(twice, sizeof(twice), "%s%s", RFC_KEY, RFC_KEY);
    refuse_key("", "it holds no PEM block");
    refuse_key("junk\n", "it holds no PEM block");
    refuse_key(RFC_PUBLIC, "its PEM block is not a PRIVATE KEY");
    refuse_key(twice, "it holds more than one PEM block");
    /* RFC 8410's curve25519: another algorithm of the same shape. */
    refuse_key("-----BEGIN PRIVATE KEY-----\n"
               "MC4CAQAwBQYDK2VuBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
               "-----END PRIVATE KEY-----\n",
               "its key is not an Ed25519 key");
    refuse_key("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n",
               "its PEM block is not a PRIVATE KEY");
    refuse_key("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMHcCAQEE\n-----END ENCRYPTED PRIVATE KEY-----\n",
               "its PEM block is not a PRIVATE KEY");
    refuse_key("-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMHcCAQEE\n-----END PRIVATE KEY-----\n",
               "its PEM block has headers; an encrypted key is not read");
    refuse_key("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTu", "its PEM block is not whole");
    refuse_key("-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PUBLIC KEY-----\n", "its PEM block is not whole");
    refuse_key("-----BEGIN PRIVATE KEY----- x\nMC4CAQAw\n-----END PRIVATE KEY-----\n", "its PEM block is not whole");
    refuse_key("-----BEGIN PRIVATE KEY-----\nMC4CAQ!w\n-----END PRIVATE KEY-----\n", "its PEM block is not base64");
    refuse_key("-----BEGIN PRIVATE KEY-----\nMC4C-_Aw\n-----END PRIVATE KEY-----\n", "its PEM block is not base64");
    refuse_key("x -----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n", "it holds no PEM block");
    refuse_key("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----", "its PEM block is not PKCS #8");
    refuse_key("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIE\n-----END PRIVATE KEY-----\n",
               "its PEM block is not PKCS #8");
    /* one more byte behind the structure */
    refuse_key("-----BEGIN PRIVATE KEY-----\n"
               "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhCAA==\n"
               "-----END PRIVATE KEY-----\n",
               "its PEM block is not PKCS #8");
    char *large = calloc(1, ATTEST_PEM_MAX + 2);
    memset(large, ' ', ATTEST_PEM_MAX + 1);
    refuse_key(large, "it is larger than 16 KiB");
    large[ATTEST_PEM_MAX] = '\0';
    refuse_key(large, "it holds no PEM block");
    memcpy(large + ATTEST_PEM_MAX - strlen(RFC_KEY), RFC_KEY, strlen(RFC_KEY));
    large[ATTEST_PEM_MAX - strlen(RFC_KEY) - 1] = '\n';
    const char *err = NULL;
    attest_key_t *key = attest_key_parse(large, ATTEST_PEM_MAX, &err);
    assert_non_null(key);
    attest_key_destroy(key);
    free(large);
}

static void test_a_key_with_attributes_is_the_same_key(void **state)
{
    (void)state;
    const char *err = NULL;
    attest_key_t *key = attest_key_parse(RFC_KEY_2, strlen(RFC_KEY_2), &err);
    if (key == NULL) /* OpenSSL versions without version 2 of PKCS #8 refuse it whole */
        assert_string_equal(err, "its PEM block is not PKCS #8");
    else
        assert_string_equal(attest_key_public(key)->id, RFC_KEY_ID);
    attest_key_destroy(key);
}

/* Text before the block, CRLF, short lines and blanks at a line's end are what other tools and hands write. */
static void test_a_key_in_other_dress_is_the_same_key(void **state)
{
    (void)state;
    static const char DRESSED[] = "Made by hand:\r\n\r\n-----BEGIN PRIVATE KEY-----  \r\n"
                                  "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8f\r\ndp+K06/nwoy/HU++CXqI9EdVhC \r\n"
                                  "-----END PRIVATE KEY-----\t\r\n\r\nthe end";
    const char *err = NULL;
    attest_key_t *key = attest_key_parse(DRESSED, strlen(DRESSED), &err);
    assert_non_null(key);
    assert_string_equal(attest_key_public(key)->id, RFC_KEY_ID);
    attest_key_destroy(key);
}

static void test_other_public_keys_are_refused(void **state)
{
    (void)state;
    attest_public_t key;
    assert_string_equal(attest_public_parse(&key, RFC_KEY, strlen(RFC_KEY)), "its PEM block is not a PUBLIC KEY");
    const char *x25519 = "-----BEGIN PUBLIC KEY-----\n"
                         "MCowBQYDK2VuAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
                         "-----END PUBLIC KEY-----\n";
    assert_string_equal(attest_public_parse(&key, x25519, strlen(x25519)), "its key is not an Ed25519 key");
    const char *large = "-----BEGIN PUBLIC KEY-----\n"
                        "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuEA\n"
                        "-----END PUBLIC KEY-----\n";
    assert_string_equal(attest_public_parse(&key, large, strlen(large)), "its key is not an Ed25519 key");
}

static void test_a_key_file_says_who_may_read_it(void **state)
{
    (void)state;
    char path[] = "/tmp/attest-key-XXXXXX", error[ATTEST_KEY_FILE_ERROR_MAX];
    int fd = mkstemp(path);
    bool is_open = true;
    assert_int_equal(write(fd, RFC_KEY, strlen(RFC_KEY)), strlen(RFC_KEY));
    attest_key_t *key = attest_key_load(path, &is_open, error);
    assert_non_null(key);
    assert_false(is_open);
    attest_key_destroy(key);
    assert_int_equal(fchmod(fd, 0640), 0);
    key = attest_key_load(path, &is_open, error);
    assert_true(is_open);
    attest_key_destroy(key);
    assert_int_equal(ftruncate(fd, 30), 0);
    assert_null(attest_key_load(path, &is_open, error));
    assert_string_equal(error, "the private key cannot be read: its PEM block is not whole");
    close(fd);
    unlink(path);
    assert_null(attest_key_load(path, NULL, error));
    assert_string_equal(error, "the private key cannot be read: No such file or directory");
}

/* ---- envelopes ---- */

static const char *read_envelope(const char *text, attest_envelope_t *out)
{
    attest_cursor_t cursor = {.at = text, .end = text + strlen(text)};
    const char *why = attest_envelope_read(&cursor, out);
    if (why == NULL)
        assert_ptr_equal(cursor.at, cursor.end);
    return why;
}

static void test_the_published_call_verifies(void **state)
{
    (void)state;
    attest_public_t key = public_of(PUBLISHED_KEY), other = public_of(RFC_PUBLIC);
    attest_envelope_t envelope;
    attest_statement_t statement;
    assert_null(read_envelope(PUBLISHED_CALL, &envelope));
    assert_true(attest_envelope_is_signed_by_alone(&envelope, &key));
    assert_null(attest_verify_envelope(&envelope, &key, &statement));
    assert_int_equal(statement.prefix, ATTEST_REFERENCE);
    assert_int_equal(statement.record->version, 1);
    assert_string_equal(statement.record->record_sha256, PUBLISHED_RECORD);
    assert_string_equal(statement.record->session, PUBLISHED_SESSION);
    assert_int_equal(statement.record->sequence, 5);
    /* Written again it is the same statement. */
    buffer_t again;
    buffer_init(&again, 1 << 16);
    assert_true(attest_statement_record(&again, ATTEST_REFERENCE, statement.record));
    assert_int_equal(again.len, envelope.payload_len);
    assert_memory_equal(again.base, envelope.payload, again.len);
    buffer_dispose(&again);
    attest_statement_dispose(&statement);
    assert_string_equal(attest_verify_envelope(&envelope, &other, &statement),
                        "an envelope's signature does not verify under this key");
    attest_statement_dispose(&statement);
    envelope.payload[5] ^= 1;
    assert_string_equal(attest_verify_envelope(&envelope, &key, &statement),
                        "an envelope's signature does not verify under this key");
    attest_statement_dispose(&statement);
    attest_envelope_dispose(&envelope);
}

static void test_the_published_close_verifies(void **state)
{
    (void)state;
    attest_public_t key = public_of(PUBLISHED_KEY);
    attest_envelope_t envelope;
    attest_statement_t statement;
    assert_null(read_envelope(PUBLISHED_CLOSE, &envelope));
    assert_true(attest_envelope_is_signed_by(&envelope, &key));
    assert_null(attest_statement_read(envelope.payload, envelope.payload_len, &statement));
    assert_int_equal(statement.kind, ATTEST_CLOSE);
    assert_string_equal(statement.close.session, PUBLISHED_SESSION);
    assert_int_equal(statement.close.calls, 5);
    assert_string_equal(statement.close.last_record_sha256, PUBLISHED_RECORD);
    buffer_t again;
    buffer_init(&again, 1 << 16);
    assert_true(attest_statement_close(&again, ATTEST_REFERENCE, &statement.close));
    assert_int_equal(again.len, envelope.payload_len);
    assert_memory_equal(again.base, envelope.payload, again.len);
    buffer_dispose(&again);
    attest_statement_dispose(&statement);
    /* A close is no run record. */
    assert_string_equal(attest_verify_envelope(&envelope, &key, &statement),
                        "the envelope does not state a run record");
    attest_statement_dispose(&statement);
    attest_envelope_dispose(&envelope);
}

static void test_signing_gives_what_verifies(void **state)
{
    (void)state;
    attest_key_t *key = rfc_key();
    buffer_t text;
    attest_envelope_t envelope;
    buffer_init(&text, 4096);
    assert_true(attest_envelope_sign(&text, key, "{}", 2));
    /* Ed25519 is deterministic: the value is that of another implementation over DSSEv1 28 ... 2 {} */
    assert_non_null(strstr((char *)text.base, "\"payload\":\"e30=\",\"signatures\":[{\"keyid\":\"" RFC_KEY_ID "\""));
    assert_non_null(strstr(
        (char *)text.base,
        "\"sig\":\"d8eT+UUnCwvNo2ZGJB+ek2W+f00qj/Cu1x+lK0DeiA4vev0Zw72qyOxjCjqc84O1Zt2UGok3ITqTr23dCNktDQ==\"}]}"));
    assert_null(read_envelope((char *)text.base, &envelope));
    assert_true(attest_envelope_is_signed_by_alone(&envelope, attest_key_public(key)));
    /* An empty key ID is enough for an envelope, not for a link. */
    envelope.signatures[0].keyid[0] = '\0';
    assert_true(attest_envelope_is_signed_by(&envelope, attest_key_public(key)));
    assert_false(attest_envelope_is_signed_by_alone(&envelope, attest_key_public(key)));
    envelope.signatures[0].keyid[0] = 'x';
    assert_false(attest_envelope_is_signed_by(&envelope, attest_key_public(key)));
    attest_envelope_dispose(&envelope);
    buffer_dispose(&text);
    buffer_init(&text, 100);
    assert_false(attest_envelope_sign(&text, key, "{}", 2));
    buffer_dispose(&text);
    attest_key_destroy(key);
}

static void test_one_spelling_of_an_envelope(void **state)
{
    (void)state;
#define HEAD "{\"payloadType\":\"application/vnd.in-toto+json\",\"payload\":"
#define SIG "{\"keyid\":\"\",\"sig\":\"AA==\"}"
    static const char *const GOOD[] = {
        HEAD "\"e30=\",\"signatures\":[" SIG "]}",
        HEAD "\"e30=\",\"signatures\":[" SIG "," SIG "]}",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\u003c\\n\\u2028\\u0001\\\"/\",\"sig\":\"AA==\"}]}",
    };
    static const char *const BAD[] = {
        "",
        "{}",
        HEAD "\"e30\",\"signatures\":[" SIG "]}",          /* no padding */
        HEAD "\"e31=\",\"signatures\":[" SIG "]}",         /* left-over bits */
        HEAD "\"e30=\",\"signatures\":[]}",                /* no signature */
        HEAD "\"e30=\", \"signatures\":[" SIG "]}",        /* a space */
        HEAD "\"e30=\",\"signatures\":[" SIG ",]}",        /* a comma */
        HEAD "\"e30=\",\"signatures\":[" SIG "],\"x\":1}", /* another member */
        HEAD "\"\",\"signatures\":[" SIG "]}",             /* nothing signed */
        HEAD "\"e30\\u003d\",\"signatures\":[" SIG "]}",   /* an escape for '=' */
        HEAD "\"e30=\",\"signatures\":[{\"sig\":\"AA==\",\"keyid\":\"\"}]}",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"<\",\"sig\":\"AA==\"}]}",       /* not escaped */
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\u000a\",\"sig\":\"AA==\"}]}", /* not the short escape */
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\u0041\",\"sig\":\"AA==\"}]}", /* not needed */
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\u003C\",\"sig\":\"AA==\"}]}", /* capitals */
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\u0000\",\"sig\":\"AA==\"}]}",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\/\",\"sig\":\"AA==\"}]}",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\xff\",\"sig\":\"AA==\"}]}",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\xe2\x80\xa8\",\"sig\":\"AA==\"}]}",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"",
        HEAD "\"e30=\",\"signatures\":[{\"keyid\":\"\\",
        "{\"payloadType\":\"application/json\",\"payload\":\"e30=\",\"signatures\":[" SIG "]}",
    };
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        attest_envelope_t envelope;
        assert_null(read_envelope(GOOD[i], &envelope));
        attest_envelope_dispose(&envelope);
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        attest_envelope_t envelope;
        if (read_envelope(BAD[i], &envelope) == NULL)
            fail_msg("taken: %s", BAD[i]);
        attest_envelope_dispose(&envelope);
    }
}

static void test_sixteen_signatures_are_read_and_no_more(void **state)
{
    (void)state;
    for (int count = ATTEST_SIGNATURES_MAX - 1; count <= ATTEST_SIGNATURES_MAX + 1; count++) {
        buffer_t text;
        attest_envelope_t envelope;
        buffer_init(&text, 1 << 16);
        buffer_append_str(&text, HEAD "\"e30=\",\"signatures\":[");
        for (int i = 0; i < count; i++)
            buffer_append_str(&text, i == 0 ? SIG : "," SIG);
        buffer_append_str(&text, "]}");
        const char *why = read_envelope((char *)text.base, &envelope);
        assert_int_equal(why == NULL, count <= ATTEST_SIGNATURES_MAX);
        attest_envelope_dispose(&envelope);
        buffer_dispose(&text);
    }
}

/* ---- statements ---- */

#define STATEMENT(subject, type, predicate)                                                                            \
    "{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":" subject ",\"predicateType\":\"" type                 \
    "\",\"predicate\":" predicate "}"
#define D0 "0000000000000000000000000000000000000000000000000000000000000000"
#define SUBJECT(name, digest) "[{\"name\":\"" name "\",\"digest\":{\"sha256\":\"" digest "\"}}]"
#define LINK_TYPE "https://plimsollmark.github.io/plimsoll/bundle-link/v1"
#define LINK "{\"index\":2,\"previous_sha256\":\"" D0 "\",\"checkpoint\":true,\"lines\":1}"

static const char *read_statement(const char *text)
{
    attest_statement_t statement;
    const char *why = attest_statement_read(text, strlen(text), &statement);
    attest_statement_dispose(&statement);
    return why;
}

static void test_statements_are_read_strictly(void **state)
{
    (void)state;
    assert_null(read_statement(STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE, LINK)));
    assert_null(read_statement(STATEMENT(SUBJECT("bundle-line", D0), "urn:plimsoll-gateway:bundle-link/v1", LINK)));
    static const char *const BAD[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"_type\":\"https://in-toto.io/Statement/v1\"}",
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE, LINK) " x",
        STATEMENT(SUBJECT("run-record", D0), LINK_TYPE, LINK),
        STATEMENT(SUBJECT("bundle-line", ""), LINK_TYPE, LINK),
        STATEMENT("[]", LINK_TYPE, LINK),
        STATEMENT("[1]", LINK_TYPE, LINK),
        STATEMENT("[{\"name\":\"bundle-line\",\"digest\":{\"sha256\":\"" D0 "\"}},{\"name\":\"bundle-line\","
                  "\"digest\":{\"sha256\":\"" D0 "\"}}]",
                  LINK_TYPE, LINK),
        STATEMENT("[{\"name\":\"bundle-line\",\"digest\":{\"sha256\":\"" D0 "\",\"sha1\":\"\"}}]", LINK_TYPE, LINK),
        STATEMENT("[{\"name\":\"bundle-line\",\"uri\":\"\",\"digest\":{\"sha256\":\"" D0 "\"}}]", LINK_TYPE, LINK),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE, LINK ",\"x\":1"),
        STATEMENT(SUBJECT("bundle-line", D0), "bundle-link/v1", LINK),
        STATEMENT(SUBJECT("bundle-line", D0), "https://plimsollmark.github.io/plimsoll/bundle-link/v2", LINK),
        STATEMENT(SUBJECT("log-head", D0), "https://plimsollmark.github.io/plimsoll/log-head/v1",
                  "{\"size\":1,\"root_sha256\":\"" D0 "\"}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"index\":2,\"index\":2,\"previous_sha256\":\"" D0 "\",\"checkpoint\":true,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"Index\":2,\"previous_sha256\":\"" D0 "\",\"checkpoint\":true,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"index\":-2,\"previous_sha256\":\"" D0 "\",\"checkpoint\":true,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"index\":\"2\",\"previous_sha256\":\"" D0 "\",\"checkpoint\":true,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"index\":2.0,\"previous_sha256\":\"" D0 "\",\"checkpoint\":true,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"index\":2,\"previous_sha256\":\"" D0 "\",\"checkpoint\":1,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE, "{\"index\":2,\"checkpoint\":true,\"lines\":1}"),
        STATEMENT(SUBJECT("bundle-line", D0), LINK_TYPE,
                  "{\"index\":2,\"previous_sha256\":\"xyz\",\"checkpoint\":true,\"lines\":1}"),
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        if (read_statement(BAD[i]) == NULL)
            fail_msg("taken: %s", BAD[i]);
}

/* A record as a statement, and back. */
static const char *read_record_again(Plimsoll__V1__RunRecord *record)
{
    buffer_t text;
    buffer_init(&text, 1 << 16);
    assert_true(attest_statement_record(&text, ATTEST_OURS, record));
    const char *why = read_statement((char *)text.base);
    buffer_dispose(&text);
    return why;
}

static void test_versions_carry_their_fields_and_no_others(void **state)
{
    (void)state;
    char digest[SHA256_HEX + 1], d0[] = D0, text[] = "x";
    static const struct {
        uint32_t version;
        bool software, instance, unanswered, result, good;
    } CASES[] = {
        {1, false, false, false, true, true},  {1, true, false, false, true, false},
        {1, false, true, false, true, false},  {1, false, false, true, false, false},
        {2, true, false, false, true, true},   {2, true, false, true, false, false},
        {2, true, true, false, true, false},   {3, true, false, true, false, true},
        {3, true, false, false, false, false}, {3, true, false, true, true, false},
        {4, true, true, false, true, true},    {4, true, true, true, false, true},
        {4, true, true, true, true, false},    {5, true, true, false, true, false},
        {0, true, true, false, true, false},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Plimsoll__V1__RunRecord record = PLIMSOLL__V1__RUN_RECORD__INIT;
        record.version = CASES[i].version;
        record.request_sha256 = d0;
        record.result_sha256 = CASES[i].result ? d0 : d0 + SHA256_HEX;
        record.software_identity = CASES[i].software ? text : text + 1;
        record.instance = CASES[i].instance ? text : text + 1;
        record.unanswered = CASES[i].unanswered ? text : text + 1;
        record.started_unix_ms = INT64_MIN;
        record.ended_unix_ms = INT64_MAX;
        record.record_sha256 = digest;
        if (digest_record(&record, digest) != NULL)
            memcpy(digest, d0, sizeof(d0));
        if ((read_record_again(&record) == NULL) != CASES[i].good)
            fail_msg("case %zu", i);
        record.started_unix_ms++;
        assert_non_null(read_record_again(&record)); /* the digest is of other fields */
    }
}

static void test_a_head_comes_back(void **state)
{
    (void)state;
    attest_head_t head = {.size = 7, .root_sha256 = D0, .time_unix_ms = 1790000000000};
    memset(head.origin, 'o', ATTEST_ORIGIN_MAX);
    buffer_t text;
    attest_statement_t statement;
    buffer_init(&text, 1 << 16);
    assert_true(attest_statement_head(&text, &head));
    assert_null(attest_statement_read(text.base, text.len, &statement));
    assert_int_equal(statement.kind, ATTEST_HEAD);
    assert_memory_equal(&statement.head, &head, sizeof(head));
    attest_statement_dispose(&statement);
    char *longer = malloc(text.len + 2);
    char *at = strstr((char *)text.base, "oooo");
    size_t before = (size_t)(at - (char *)text.base);
    memcpy(longer, text.base, before);
    longer[before] = 'o';
    memcpy(longer + before + 1, at, text.len - before + 1);
    assert_non_null(read_statement(longer));
    free(longer);
    buffer_dispose(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_is_read_and_written_as_the_rfc_has_it),
        cmocka_unit_test(test_generated_keys_differ_and_come_back),
        cmocka_unit_test(test_other_private_keys_are_refused),
        cmocka_unit_test(test_a_key_with_attributes_is_the_same_key),
        cmocka_unit_test(test_a_key_in_other_dress_is_the_same_key),
        cmocka_unit_test(test_other_public_keys_are_refused),
        cmocka_unit_test(test_a_key_file_says_who_may_read_it),
        cmocka_unit_test(test_the_published_call_verifies),
        cmocka_unit_test(test_the_published_close_verifies),
        cmocka_unit_test(test_signing_gives_what_verifies),
        cmocka_unit_test(test_one_spelling_of_an_envelope),
        cmocka_unit_test(test_sixteen_signatures_are_read_and_no_more),
        cmocka_unit_test(test_statements_are_read_strictly),
        cmocka_unit_test(test_versions_carry_their_fields_and_no_others),
        cmocka_unit_test(test_a_head_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
