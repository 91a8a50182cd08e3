/* The value of a run's key: texts and records come back byte for byte, however they are kept; how small it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/digest.h"
#include "records/store_internal.h"

static const char RUN_ID[] = "0123456789abcdef0123456789abcdef",
                  SHA[] = "585a1b46c55ebacc1dfdd4336e302328c32ed3e2e7e8a8b460d252d0454be8fc";

/* ---- texts ---- */

static size_t expect_text(const char *text)
{
    uint8_t base[2 + STORE_STRING_MAX];
    char out[STORE_STRING_MAX + 1];
    uint8_t *end = store_text_put(base, text);
    size_t len = (size_t)(end - base);
    assert_true(len <= sizeof(base));
    assert_ptr_equal(store_text_get(base, end, out), end);
    assert_string_equal(out, text);
    for (size_t cut = 0; cut != len; ++cut) {
        uint8_t *part = mem_alloc(cut != 0 ? cut : 1); /* memory of its own length */
        memcpy(part, base, cut);
        assert_null(store_text_get(part, part + cut, out));
        free(part);
    }
    return len;
}

static void texts_come_back(void **state)
{
    (void)state;
    char text[STORE_STRING_MAX + 1];
    for (size_t len = 0; len <= STORE_STRING_MAX; ++len) {
        memset(text, 'z', len);
        text[len] = '\0';
        assert_int_equal(expect_text(text), len <= 127 ? 1 + len : 2 + len);
        memset(text, 'a', len); /* hex, if of even length */
        assert_int_equal(expect_text(text), len != 0 && len % 2 == 0 && len <= 128 ? 1 + len / 2
                                            : len <= 127                           ? 1 + len
                                                                                   : 2 + len);
    }
    assert_int_equal(expect_text("container"), 1);
    assert_int_equal(expect_text("containers"), 11);
    assert_int_equal(expect_text("Container"), 10);
    assert_int_equal(expect_text("sha256:"), 1);
    assert_int_equal(expect_text("sha256:0"), 3);
    snprintf(text, sizeof(text), "docker-image:sha256:%s", SHA);
    assert_int_equal(expect_text(text), 34);
    snprintf(text, sizeof(text), "exact:%0250d", 7);
    expect_text(text);
}

static void texts_that_are_none_are_refused(void **state)
{
    (void)state;
    char out[STORE_STRING_MAX + 1];
    uint8_t base[3 * STORE_STRING_MAX];
    static const uint8_t heads[] = {0xff, 0xdf /* no such word */, 0xfd};
    memset(base, 'x', sizeof(base));
    for (size_t i = 0; i != sizeof(heads); ++i) {
        base[0] = heads[i];
        assert_null(store_text_get(base, base + sizeof(base), out));
    }
    memset(base, 0xe0, sizeof(base)); /* words without end: more than a text may have */
    assert_null(store_text_get(base, base + sizeof(base), out));
    base[0] = 0xfe;
    base[1] = 129; /* 257 bytes */
    memset(base + 2, 'x', sizeof(base) - 2);
    assert_null(store_text_get(base, base + sizeof(base), out));
    base[1] = 128;
    assert_ptr_equal(store_text_get(base, base + sizeof(base), out), base + 2 + 256);
    memcpy(base, "\3a\0b", 4); /* a text has no NUL */
    assert_null(store_text_get(base, base + sizeof(base), out));
    memset(base, 0xe0, 12); /* 240 bytes of words, 16 more fit */
    base[12] = 16;
    memset(base + 13, 'y', 17);
    assert_non_null(store_text_get(base, base + sizeof(base), out));
    assert_int_equal(strlen(out), 256);
    base[12] = 17;
    assert_null(store_text_get(base, base + sizeof(base), out));
    base[12] = 0x80 + 8 - 1; /* 16 hex digits */
    assert_non_null(store_text_get(base, base + sizeof(base), out));
    base[12] = 0x80 + 9 - 1;
    assert_null(store_text_get(base, base + sizeof(base), out));
}

/* ---- records ---- */

typedef struct {
    store_settlement_t s;
    char record_sha256[65];
    uint8_t record[8192];
} made_t;

static Plimsoll__V1__RunRecord plain_record(void)
{
    Plimsoll__V1__RunRecord r = PLIMSOLL__V1__RUN_RECORD__INIT;
    r.version = 2;
    r.request_sha256 = r.result_sha256 = (char *)SHA;
    r.provider = "docker";
    r.isolation = "container";
    r.environment = "docker-image:sha256:585a1b46c55ebacc1dfdd4336e302328c32ed3e2e7e8a8b460d252d0454be8fc";
    r.started_unix_ms = 1790000000000;
    r.ended_unix_ms = 1790000004210;
    return r;
}

static void make(made_t *out, Plimsoll__V1__RunRecord *r, bool own_digest)
{
    memset(out, 0, sizeof(*out));
    if (own_digest)
        assert_null(digest_record(r, out->record_sha256));
    else
        strcpy(out->record_sha256, SHA);
    r->record_sha256 = out->record_sha256;
    assert_true(plimsoll__v1__run_record__get_packed_size(r) <= sizeof(out->record));
    out->s = (store_settlement_t){.caller = "alice",
                                  .request_id = RUN_ID,
                                  .run_id = RUN_ID,
                                  .verdict = VERDICT_ANSWERED,
                                  .backend = "docker",
                                  .tier = "container",
                                  .kind = "javascript",
                                  .request_sha256 = SHA,
                                  .result_sha256 = SHA,
                                  .record_sha256 = out->record_sha256,
                                  .started_unix_ms = 1790000000000,
                                  .ended_unix_ms = 1790000004210,
                                  .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                                  .record = out->record,
                                  .record_len = plimsoll__v1__run_record__pack(r, out->record)};
}

/* The same record again. Returns the value's length. */
static size_t expect_record(const made_t *made)
{
    uint8_t *value;
    size_t len;
    store_run_text_t *text = mem_alloc(sizeof(*text));
    store_run_pack(&made->s, &value, &len);
    for (size_t cut = 0; cut != len; ++cut) {
        uint8_t *part = mem_alloc(cut != 0 ? cut : 1);
        memcpy(part, value, cut);
        store_run_unpack(RUN_ID, part, cut, text);
        free(part);
    }
    const char *wrong = store_run_unpack(RUN_ID, value, len, text);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    assert_string_equal(text->run.record_sha256, made->record_sha256);
    assert_string_equal(text->run.request_id, RUN_ID);
    assert_string_equal(text->run.kind, "javascript");
    assert_int_equal(text->run.record_len, made->s.record_len);
    assert_memory_equal(text->run.record, made->s.record, made->s.record_len);
    free(text);
    free(value);
    return len;
}

/* 192 bytes with Redis' own four: what 0.7 KiB a finished run leaves for it. */
static void an_ordinary_run_is_small(void **state)
{
    (void)state;
    static made_t made;
    Plimsoll__V1__RunRecord r = plain_record();
    make(&made, &r, true);
    assert_in_range(expect_record(&made), 1, 188);
    make(&made, &r, false); /* a digest of its own is kept */
    assert_in_range(expect_record(&made), 1, 188 + 33);
}

static void every_other_record_comes_back_too(void **state)
{
    (void)state;
    static made_t made;
    static char text[258];
    memset(text, 'q', sizeof(text) - 1);
    Plimsoll__V1__RunRecord r;
    for (size_t field = 0; field != 12; ++field) {
        for (size_t len = 255; len <= 257; ++len) {
            text[len] = '\0';
            r = plain_record();
            char **texts[] = {&r.environment, &r.policy,          &r.software_identity, &r.software_rule_id,
                              &r.session,     &r.previous_sha256, &r.unanswered,        &r.instance,
                              &r.provider,    &r.isolation,       &r.request_sha256,    &r.result_sha256};
            *texts[field] = text;
            make(&made, &r, false);
            expect_record(&made);
            text[len] = 'q';
        }
    }
    for (uint32_t version = 0; version <= 6; ++version) {
        r = plain_record();
        r.version = version;
        make(&made, &r, false);
        expect_record(&made);
    }
    r = plain_record();
    r.sequence = 1;
    make(&made, &r, false);
    expect_record(&made);
    r = plain_record();
    r.started_unix_ms = 1;
    make(&made, &r, false);
    expect_record(&made);
    r = plain_record();
    r.environment = "";
    make(&made, &r, true);
    expect_record(&made);
}

static void bytes_that_are_no_record_come_back_too(void **state)
{
    (void)state;
    static made_t made;
    Plimsoll__V1__RunRecord r = plain_record();
    static const struct {
        const char *bytes;
        size_t len;
    } ends[] = {{"\x08\x02", 2} /* the version again */, {"\xa2\x06\x01x", 4} /* a field nobody knows */, {"\xff", 1}};
    for (size_t i = 0; i != sizeof(ends) / sizeof(ends[0]); ++i) {
        make(&made, &r, true);
        memcpy(made.record + made.s.record_len, ends[i].bytes, ends[i].len);
        made.s.record_len += ends[i].len;
        expect_record(&made);
    }
    make(&made, &r, true);
    memset(made.record, 0, sizeof(made.record));
    for (size_t len = STORE_RECORD_MAX - 1; len <= STORE_RECORD_MAX + 1; ++len) {
        made.s.record_len = len;
        expect_record(&made);
    }
    made.s.record_len = 0;
    expect_record(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(texts_that_are_none_are_refused),
        cmocka_unit_test(an_ordinary_run_is_small),
        cmocka_unit_test(every_other_record_comes_back_too),
        cmocka_unit_test(bytes_that_are_no_record_come_back_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
