/* The digests against the published and derived vectors, and the checks built on them. Run from the root of the tree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/protojson.h"
#include "records/digest.h"
#include "records/vectors.h"

#define PROTOCOL3 "tests/vectors/protocol-vectors.json"
#define PROTOCOL4 "tests/vectors/protocol-4-vectors.json"

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    *len = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

static void all_pass(const char *path, size_t at_least)
{
    vectors_result_t r;
    assert_null(vectors_check_file(path, stderr, &r));
    assert_int_equal(r.failed, 0);
    assert_true(r.passed >= at_least);
}

/* 14 published and the derived ones; record versions 1, 2 and 3. */
static void test_vectors_of_protocol_3(void **state)
{
    (void)state;
    all_pass(PROTOCOL3, 100);
}

/* Record version 4, computed by make_protocol4.py. */
static void test_vectors_of_protocol_4(void **state)
{
    (void)state;
    all_pass(PROTOCOL4, 10);
}

/* Each change of one character makes at least one comparison fail, so no section passes unread. */
static void test_changed_vectors_fail(void **state)
{
    (void)state;
    static const struct {
        const char *file, *from, *to;
    } CHANGES[] = {
        {PROTOCOL3, "console.log(1+1)", "console.log(1+2)"},
        {PROTOCOL3, "585a1b46", "585a1b47"},
        {PROTOCOL3, "\"Mgo=\"", "\"Mwo=\""},
        {PROTOCOL3, "openshell-policy:sha256:cd", "openshell-policy:sha256:ce"},
        {PROTOCOL3, "\"unanswered\": \"unavailable\"", "\"unanswered\": \"internal\""},
        {PROTOCOL3, "5947d7c33d783f94b3b4c1a96ebc8991ed28f1b069b71e03376cba8caa98a720\"\n   }\n  ]\n },",
         "5947d7c33d783f94b3b4c1a96ebc8991ed28f1b069b71e03376cba8caa98a721\"\n   }\n  ]\n },"},
        {PROTOCOL3, "-0.0,\n         1e-07", "0.0,\n         1e-07"},
        {PROTOCOL3, "\"-Infinity\",\n         -0.0", "\"-Infinity\",\n         0.0"},
        {PROTOCOL3, "\"stdout\": \"aMOpIPCfmYIK\"", "\"stdout\": \"aMOpIPCfmYIJ\""},
        {PROTOCOL3, "while(1){}", "while(2){}"},
        {PROTOCOL3, "CvADCAMSQDA3", "CvADCAMSQDA4"},
        {PROTOCOL3, "\"calls\": \"3\"", "\"calls\": \"4\""},
        {PROTOCOL3, "approved:sha256:def36ca5", "approved:sha256:def36ca6"},
        {PROTOCOL3, "\"owner\": \"alice\"", "\"owner\": \"alicf\""},
        {PROTOCOL3, "\"hex\": \"0805\"", "\"hex\": \"0806\""},
        {PROTOCOL3, "\"base64_unpadded\": \"CAY\"", "\"base64_unpadded\": \"CAc\""},
        {PROTOCOL3, "\"detail\": \"unknown session\"", "\"detail\": \"unknown sessions\""},
        {PROTOCOL3, "080362290a016d", "080362290a016e"},
        {PROTOCOL3, "0000000000000017706c", "0000000000000018706c"},
        {PROTOCOL3, "\"owner_values\"", "\"owner_volues\""},
        {PROTOCOL4, "k8s-pod-uid:0b1f", "k8s-pod-uid:0b1e"},
        {PROTOCOL4, "PROJECT_OUTCOME_RUNNER_FAILED", "PROJECT_OUTCOME_COMPLETED"},
        {PROTOCOL4, "\"unanswered\": \"unavailable\"", "\"unanswered\": \"internal\""},
    };
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        size_t len;
        vectors_result_t r;
        char *text = read_file(CHANGES[i].file, &len), *at = strstr(text, CHANGES[i].from);
        assert_non_null(at);
        size_t from = strlen(CHANGES[i].from), to = strlen(CHANGES[i].to);
        memmove(at + to, at + from, len - (size_t)(at - text) - from + 1);
        memcpy(at, CHANGES[i].to, to);
        FILE *out = tmpfile();
        assert_null(vectors_check(text, len - from + to, out, &r));
        if (r.failed == 0)
            print_error("not noticed: %s\n", CHANGES[i].to);
        assert_true(r.failed > 0);
        assert_true(ftell(out) > 0);
        fclose(out);
        free(text);
    }
}

static void test_no_vectors(void **state)
{
    (void)state;
    vectors_result_t r;
    assert_non_null(vectors_check("{", 1, stderr, &r));
    assert_non_null(vectors_check("{}", 2, stderr, &r));
    assert_non_null(vectors_check_file("/nonexistent", stderr, &r));
}

/* ---- record_check ---- */

typedef struct {
    Plimsoll__V1__RunRequest *request;
    Plimsoll__V1__RunResponse *response;
} exchange_t;

static const char *const IDENTITY = "oci-manifest:linux/amd64@sha256:aaaa";

static void set(char **member, const char *text)
{
    if (*member != protobuf_c_empty_string)
        free(*member);
    *member = strdup(text);
}

/* Digests of what the record holds now, as a server would make them. */
static void seal(exchange_t *x)
{
    char digest[SHA256_HEX + 1];
    Plimsoll__V1__RunRecord *r = x->response->record;
    digest_request(x->request, digest);
    set(&r->request_sha256, digest);
    digest_result(x->response, digest);
    set(&r->result_sha256, digest);
    assert_null(digest_record(r, digest));
    set(&r->record_sha256, digest);
}

/* A file may hold U+0000, and all of it is digested; the digest is of section 6.1's encoding written by hand. */
static void test_file_with_nul(void **state)
{
    (void)state;
    static const char JSON[] =
        "{\"protocol\":4,\"project\":{\"files\":[{\"path\":\"a\",\"content\":\"a\\u0000b\\u00e9\\u0000\"},"
        "{\"path\":\"b\"}],\"steps\":[\"true\"]}}";
    char error[PROTOJSON_ERROR_MAX], digest[SHA256_HEX + 1];
    Plimsoll__V1__RunRequest *m =
        (void *)protojson_parse(&plimsoll__v1__run_request__descriptor, JSON, strlen(JSON), error);
    assert_non_null(m);
    digest_request(m, digest);
    assert_string_equal(digest, "b37da3f85c81c5851141ed40645a7acdc6d887b37c3b07e45809431b14fffc9c");
    plimsoll__v1__run_request__free_unpacked(m, NULL);
}

static exchange_t exchange_create(uint32_t protocol, uint32_t version)
{
    char error[PROTOJSON_ERROR_MAX], text[1024];
    snprintf(text, sizeof(text),
             "{\"protocol\":%u,\"minimumIsolation\":\"container\",\"softwareRule\":{\"mode\":\"exact\",\"identities\":["
             "\"%s\"]},"
             "\"javascript\":{\"code\":\"1\"}}",
             protocol, IDENTITY);
    exchange_t x;
    x.request = (void *)protojson_parse(&plimsoll__v1__run_request__descriptor, text, strlen(text), error);
    snprintf(
        text, sizeof(text),
        "{\"sandbox\":\"docker\",\"isolation\":\"container\",\"environment\":\"e\",\"softwareIdentity\":\"%s\","
        "\"javascript\":{\"stdout\":\"aGk=\"},\"record\":{\"version\":%u,\"provider\":\"docker\",\"isolation\":"
        "\"container\","
        "\"environment\":\"e\",\"softwareIdentity\":\"%s\",\"softwareRuleId\":\"exact:%s\",\"startedUnixMs\":\"1\"}}",
        IDENTITY, version, IDENTITY, IDENTITY);
    x.response = (void *)protojson_parse(&plimsoll__v1__run_response__descriptor, text, strlen(text), error);
    assert_non_null(x.request);
    assert_non_null(x.response);
    seal(&x);
    return x;
}

static void exchange_dispose(exchange_t *x)
{
    plimsoll__v1__run_request__free_unpacked(x->request, NULL);
    plimsoll__v1__run_response__free_unpacked(x->response, NULL);
}

static void test_record_versions_by_protocol(void **state)
{
    (void)state;
    for (uint32_t protocol = 1; protocol <= 5; protocol++) {
        for (uint32_t version = 0; version <= 5; version++) {
            if (version < 1 || version > 4)
                continue; /* no digest to seal with */
            exchange_t x = exchange_create(protocol, version);
            bool ok = (protocol == 1 && version == 2) || ((protocol == 2 || protocol == 3) && version == 2) ||
                      (protocol == 4 && version == 4);
            /* version 1 fails for protocol 1 too: this record carries software fields */
            assert_int_equal(record_check(x.request, x.response) == NULL, ok);
            exchange_dispose(&x);
        }
    }
}

static void test_version_1_record_holds(void **state)
{
    (void)state;
    exchange_t x = exchange_create(1, 1);
    set(&x.response->record->software_identity, "");
    set(&x.response->record->software_rule_id, "");
    seal(&x);
    assert_null(record_check(x.request, x.response));
    exchange_dispose(&x);
}

typedef void (*change_fn)(exchange_t *x);

static void change_code(exchange_t *x)
{
    set(&x->request->javascript->code, "2");
}
static void change_stdout(exchange_t *x)
{
    x->response->javascript->stdout.data[0] ^= 1;
}
static void change_cut_flag(exchange_t *x)
{
    x->response->javascript->stdout_truncated = 1;
}
static void change_provider(exchange_t *x)
{
    set(&x->response->sandbox, "e2b");
}
static void change_tier(exchange_t *x)
{
    set(&x->response->isolation, "vm");
}
static void change_environment(exchange_t *x)
{
    set(&x->response->environment, "f");
}
static void change_software(exchange_t *x)
{
    set(&x->response->software_identity, "b");
}
static void change_instance(exchange_t *x)
{
    set(&x->response->instance, "pod:1");
}
static void change_policy(exchange_t *x)
{
    set(&x->response->record->policy, "p");
}
static void change_own_digest(exchange_t *x)
{
    x->response->record->record_sha256[0] ^= 1;
}

static void test_changes_are_noticed(void **state)
{
    (void)state;
    static const change_fn CHANGES[] = {change_code,   change_stdout,      change_cut_flag, change_provider,
                                        change_tier,   change_environment, change_software, change_instance,
                                        change_policy, change_own_digest};
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        exchange_t x = exchange_create(4, 4);
        assert_null(record_check(x.request, x.response));
        CHANGES[i](&x);
        assert_non_null(record_check(x.request, x.response));
        exchange_dispose(&x);
    }
}

static void seal_session(exchange_t *x)
{
    set(&x->response->record->session, "s");
}
static void seal_sequence(exchange_t *x)
{
    x->response->record->sequence = 1;
}
static void seal_previous(exchange_t *x)
{
    set(&x->response->record->previous_sha256, "s");
}
static void seal_unanswered(exchange_t *x)
{
    set(&x->response->record->unanswered, "internal");
}
static void seal_weak_tier(exchange_t *x)
{
    set(&x->response->isolation, "process");
    set(&x->response->record->isolation, "process");
}
static void seal_unknown_tier(exchange_t *x)
{
    set(&x->response->isolation, "unknown");
    set(&x->response->record->isolation, "unknown");
}
static void seal_other_software(exchange_t *x)
{
    set(&x->response->software_identity, "b");
    set(&x->response->record->software_identity, "b");
}
static void seal_no_software(exchange_t *x)
{
    set(&x->response->software_identity, "");
    set(&x->response->record->software_identity, "");
}
static void seal_other_rule(exchange_t *x)
{
    set(&x->response->record->software_rule_id, "exact:b");
}
static void seal_bad_instance(exchange_t *x)
{
    set(&x->response->instance, "Pod:1");
    set(&x->response->record->instance, "Pod:1");
}
static void seal_bare_instance(exchange_t *x)
{
    set(&x->response->instance, "pod:");
    set(&x->response->record->instance, "pod:");
}
static void seal_other_kind(exchange_t *x)
{
    plimsoll__v1__java_script_result__free_unpacked(x->response->javascript, NULL);
    x->response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_CELL;
    x->response->cell = calloc(1, sizeof(*x->response->cell));
    plimsoll__v1__cell_result__init(x->response->cell);
}

/* Records whose digests all hold, and which still state what a single run of this request may not. */
static void test_sealed_records_that_do_not_hold(void **state)
{
    (void)state;
    static const change_fn CHANGES[] = {seal_session,    seal_sequence,     seal_previous,       seal_unanswered,
                                        seal_weak_tier,  seal_unknown_tier, seal_other_software, seal_no_software,
                                        seal_other_rule, seal_bad_instance, seal_bare_instance,  seal_other_kind};
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        exchange_t x = exchange_create(4, 4);
        CHANGES[i](&x);
        seal(&x);
        assert_non_null(record_check(x.request, x.response));
        exchange_dispose(&x);
    }
}

static void test_instance_is_covered_from_version_4_on(void **state)
{
    (void)state;
    exchange_t x = exchange_create(4, 4);
    set(&x.response->instance, "k8s-pod-uid:1.2:3_a-B");
    set(&x.response->record->instance, "k8s-pod-uid:1.2:3_a-B");
    seal(&x);
    assert_null(record_check(x.request, x.response));
    exchange_dispose(&x);
    x = exchange_create(3, 2);
    set(&x.response->record->instance, "pod:1");
    seal(&x);
    assert_non_null(record_check(x.request, x.response));
    exchange_dispose(&x);
}

static void test_missing_record(void **state)
{
    (void)state;
    exchange_t x = exchange_create(4, 4);
    plimsoll__v1__run_record__free_unpacked(x.response->record, NULL);
    x.response->record = NULL;
    assert_non_null(record_check(x.request, x.response));
    exchange_dispose(&x);
}

/* ---- small pieces ---- */

static void test_record_versions_without_digest(void **state)
{
    (void)state;
    char digest[SHA256_HEX + 1];
    Plimsoll__V1__RunRecord r = PLIMSOLL__V1__RUN_RECORD__INIT;
    for (uint32_t version = 0; version <= 5; version++) {
        r.version = version;
        assert_int_equal(digest_record(&r, digest) == NULL, version >= 1 && version <= 4);
    }
}

/* More doubles than are turned at once, against one call over the encoding written out here. */
static void test_long_rows(void **state)
{
    (void)state;
    enum { WIDTH = 131 };
    double values[WIDTH];
    uint8_t encoding[4096], *o = encoding;
    char ours[SHA256_HEX + 1], theirs[SHA256_HEX + 1];
#define VALUE(data, len)                                                                                               \
    do {                                                                                                               \
        for (int shift_ = 56; shift_ >= 0; shift_ -= 8)                                                                \
            *o++ = (uint8_t)((uint64_t)(len) >> shift_);                                                               \
        memcpy(o, data, len);                                                                                          \
        o += (len);                                                                                                    \
    } while (0)
#define FIELD(name, text)                                                                                              \
    do {                                                                                                               \
        VALUE(name, sizeof(name) - 1);                                                                                 \
        VALUE(text, sizeof(text) - 1);                                                                                 \
    } while (0)
    VALUE("plimsoll.run-result.v1", 22);
    FIELD("kind", "module");
    FIELD("outcome", "0");
    FIELD("outcome_detail", "");
    FIELD("width", "131");
    FIELD("stdout", "");
    FIELD("stderr", "");
    FIELD("runs", "1");
    FIELD("run_status", "-1");
    VALUE("run_outputs", 11);
    uint8_t big_endian[WIDTH * 8];
    for (int i = 0; i < WIDTH; i++) {
        uint64_t bits = 0x3ff0000000000000u + (uint64_t)i * 0x0123456789abu;
        memcpy(&values[i], &bits, 8);
        for (int b = 0; b < 8; b++)
            big_endian[i * 8 + b] = (uint8_t)(bits >> (56 - 8 * b));
    }
    VALUE(big_endian, sizeof(big_endian));
    sha256_hex(encoding, (size_t)(o - encoding), theirs);

    Plimsoll__V1__ModuleRowResult row = PLIMSOLL__V1__MODULE_ROW_RESULT__INIT, *rows[] = {&row};
    row.status = -1;
    row.n_outputs = WIDTH;
    row.outputs = values;
    Plimsoll__V1__ModuleResult module = PLIMSOLL__V1__MODULE_RESULT__INIT;
    module.width = WIDTH;
    module.n_runs = 1;
    module.runs = rows;
    Plimsoll__V1__RunResponse response = PLIMSOLL__V1__RUN_RESPONSE__INIT;
    response.result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE;
    response.module = &module;
    digest_result(&response, ours);
    assert_string_equal(ours, theirs);
}

static void test_rules(void **state)
{
    (void)state;
    char id[SOFTWARE_RULE_ID_MAX], longest[257];
    memset(longest, 'x', 256);
    longest[256] = '\0';
    char *one[] = {longest}, *two[] = {(char *)"b", (char *)"a"};
    Plimsoll__V1__SoftwareRule rule = PLIMSOLL__V1__SOFTWARE_RULE__INIT;
    software_rule_id(NULL, id);
    assert_string_equal(id, "");
    software_rule_id(&rule, id);
    assert_string_equal(id, "");
    assert_true(software_rule_allows(NULL, ""));
    assert_true(software_rule_allows(&rule, ""));
    rule.identities = one;
    rule.n_identities = 1;
    software_rule_id(&rule, id);
    assert_int_equal(strlen(id), 6 + 256);
    assert_true(software_rule_allows(&rule, longest));
    assert_false(software_rule_allows(&rule, ""));
    assert_false(software_rule_allows(&rule, longest + 1));
    rule.identities = two;
    rule.n_identities = 2;
    software_rule_id(&rule, id);
    /* printf 'a\0b' | sha256sum */
    assert_string_equal(id, "approved:sha256:59b271ae1bbcb1d31d41929817f4b16fb439eb4f31520b5ad1d5ce98920a7138");
    assert_true(software_rule_allows(&rule, "a"));
    assert_false(software_rule_allows(&rule, "c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_protocol_3),
        cmocka_unit_test(test_vectors_of_protocol_4),
        cmocka_unit_test(test_changed_vectors_fail),
        cmocka_unit_test(test_no_vectors),
        cmocka_unit_test(test_file_with_nul),
        cmocka_unit_test(test_record_versions_by_protocol),
        cmocka_unit_test(test_version_1_record_holds),
        cmocka_unit_test(test_changes_are_noticed),
        cmocka_unit_test(test_sealed_records_that_do_not_hold),
        cmocka_unit_test(test_instance_is_covered_from_version_4_on),
        cmocka_unit_test(test_missing_record),
        cmocka_unit_test(test_record_versions_without_digest),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
