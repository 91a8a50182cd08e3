/* Binary protobuf from a stranger. Bytes are written by hand from the field numbers of spec section 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/protowire.h"
#include "records/plimsoll.pb-c.h"

static char error[PROTOWIRE_ERROR_MAX];

static void *read_(const ProtobufCMessageDescriptor *of, const char *bytes, size_t len)
{
    char *exact = malloc(len != 0 ? len : 1);
    memcpy(exact, bytes, len);
    void *m = protowire_parse(of, exact, len, error);
    free(exact);
    return m;
}

#define READ(message, bytes) read_(&plimsoll__v1__##message##__descriptor, bytes, sizeof(bytes) - 1)

static void drop(void *m)
{
    protobuf_c_message_free_unpacked(m, NULL);
}

#define MALFORMED(message, bytes, naming)                                                                              \
    do {                                                                                                               \
        assert_null(READ(message, bytes));                                                                             \
        if (strstr(error, naming) == NULL)                                                                             \
            print_error("%s\n", error);                                                                                \
        assert_non_null(strstr(error, naming));                                                                        \
    } while (0)

static void test_empty_body_is_an_empty_message(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m = (void *)protowire_parse(&plimsoll__v1__run_request__descriptor, NULL, 0, error);
    assert_non_null(m);
    assert_int_equal(m->protocol, 0);
    drop(m);
}

static void test_fields(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m = READ(run_request, "\x08\x03\x12\x02vm\x20\x88\x27\x52\x05\x0a\x03\x31\x2b\x31");
    assert_non_null(m);
    assert_int_equal(m->protocol, 3);
    assert_string_equal(m->minimum_isolation, "vm");
    assert_int_equal(m->timeout_ms, 5000);
    assert_string_equal(m->javascript->code, "1+1");
    drop(m);
    m = READ(run_request, "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    assert_int_equal(m->timeout_ms, -1);
    drop(m);
}

static void test_last_member_of_a_choice_wins(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m = READ(run_request, "\x52\x03\x0a\x01\x31\x5a\x03\x12\x01s");
    assert_non_null(m);
    assert_int_equal(m->payload_case, PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT);
    assert_string_equal(m->project->steps[0], "s");
    drop(m);
    m = READ(run_request, "\x08\x03\x08\x04");
    assert_int_equal(m->protocol, 4);
    drop(m);
}

static void test_doubles_packed_or_not(void **state)
{
    (void)state;
    static const char ONE[] = "\x00\x00\x00\x00\x00\x00\xf0\x3f";
    Plimsoll__V1__ModuleRow *m =
        READ(module_row, "\x0a\x10\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x40");
    assert_non_null(m);
    assert_int_equal(m->n_values, 2);
    assert_true(m->values[0] == 1 && m->values[1] == 2);
    drop(m);
    char bytes[18];
    for (int i = 0; i < 2; i++) {
        bytes[9 * i] = 0x09;
        memcpy(bytes + 9 * i + 1, ONE, 8);
    }
    m = read_(&plimsoll__v1__module_row__descriptor, bytes, 18);
    assert_non_null(m);
    assert_int_equal(m->n_values, 2);
    assert_true(m->values[1] == 1);
    drop(m);
    MALFORMED(module_row, "\x0a\x07\x00\x00\x00\x00\x00\x00\xf0", "values");
}

/* Field 200 of each wire type, around a known one. */
static void test_unknown_fields_are_skipped(void **state)
{
    (void)state;
    Plimsoll__V1__RunRequest *m = READ(
        run_request,
        "\xc0\x0c\x05\xc1\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x08\x03\xc2\x0c\x02\x00\xff\xc5\x0c\x01\x02\x03\x04");
    assert_non_null(m);
    assert_int_equal(m->protocol, 3);
    drop(m);
}

/* protobuf-c would hand on "a", and that would be run, digested and recorded. */
static void test_text_with_nul_is_refused(void **state)
{
    (void)state;
    MALFORMED(run_request,
              "\x52\x05\x0a\x03"
              "a\0b",
              "javascript.code: a string with a NUL");
    MALFORMED(run_request, "\x12\x01\0", "minimum_isolation");
    MALFORMED(run_request, "\x5a\x07\x0a\x05\x0a\x03x\0y", "project.files.path");
}

static void test_text_is_utf8(void **state)
{
    (void)state;
    MALFORMED(run_request, "\x52\x03\x0a\x01\xff", "javascript.code: invalid UTF-8");
    MALFORMED(run_request, "\x5a\x05\x12\x03\xed\xa0\x80", "project.steps: invalid UTF-8");
    Plimsoll__V1__RunRequest *m = READ(run_request, "\x52\x04\x0a\x02\xc3\xa9");
    assert_non_null(m);
    drop(m);
    /* bytes are any bytes */
    Plimsoll__V1__CellResult *r = READ(cell_result, "\x0a\x03\x00\xff\xed");
    assert_non_null(r);
    assert_int_equal(r->stdout.len, 3);
    drop(r);
}

/* ProjectFile.content: bytes in our schema, a string in everybody's. */
static void test_text_that_may_hold_nul(void **state)
{
    (void)state;
    Plimsoll__V1__ProjectRun *m = READ(project_run, "\x0a\x08\x0a\x01p\x12\x03"
                                                    "a\0b");
    assert_non_null(m);
    assert_int_equal(m->files[0]->content.len, 3);
    assert_memory_equal(m->files[0]->content.data, "a\0b", 3);
    drop(m);
    MALFORMED(project_run,
              "\x0a\x05\x12\x03"
              "a\0\xff",
              "files.content: invalid UTF-8");
    MALFORMED(cell_run, "\x1a\x04\x12\x02\xc0\x80", "files.content: invalid UTF-8");
    m = READ(project_run, "\x0a\x06\x12\x01"
                          "a\x12\x01"
                          "b"); /* the last one counts */
    assert_non_null(m);
    assert_memory_equal(m->files[0]->content.data, "b", 1);
    drop(m);
    m = READ(project_run, "\x0a\x02\x12\x00");
    assert_non_null(m);
    assert_int_equal(m->files[0]->content.len, 0);
    drop(m);
    /* what is not text stays bytes */
    Plimsoll__V1__Artifact *artifact = READ(artifact, "\x12\x01\xff");
    assert_non_null(artifact);
    drop(artifact);
}

static void test_malformed(void **state)
{
    (void)state;
    MALFORMED(run_request, "\x08", "protocol");
    MALFORMED(run_request, "\x00\x01", "field number");
    MALFORMED(run_request, "\x02\x00", "field number");
    MALFORMED(run_request, "\x12\x03vm", "minimum_isolation");
    MALFORMED(run_request, "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "minimum_isolation");
    MALFORMED(run_request, "\x0a\x01\x03", "protocol: a value of another type");
    MALFORMED(run_request, "\x10\x01", "minimum_isolation: a value of another type");
    MALFORMED(run_request, "\x0b\x0c", "protocol");                                         /* a group */
    MALFORMED(run_request, "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", "protocol");     /* past 64 bits */
    MALFORMED(run_request, "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "protocol"); /* 11 bytes */
    MALFORMED(run_request, "\x80\x80\x80\x80\x80\x01\x01", "field number");                 /* past 2^29 */
    MALFORMED(run_request, "\x52\x04\x0a\x03\x31", "javascript");
    MALFORMED(run_request, "\xc1\x0c\x01", "cut");
    MALFORMED(module_run, "\x19\x00\x00", "end_time");
    MALFORMED(run_request, "<html>", "");
}

static void test_every_cut_is_clean(void **state)
{
    (void)state;
    static const char WHOLE[] = "\x08\x03\x12\x09"
                                "container\x2a\x0a\x0a\x05"
                                "exact\x12\x01i\x5a\x0d\x0a\x06\x0a\x01p\x12\x01"
                                "c\x12\x01s\x22\x00";
    for (size_t len = 0; len < sizeof(WHOLE); len++)
        drop(read_(&plimsoll__v1__run_request__descriptor, WHOLE, len));
    Plimsoll__V1__RunRequest *m = READ(run_request, WHOLE);
    assert_non_null(m);
    assert_int_equal(m->project->files[0]->content.len, 1);
    assert_memory_equal(m->project->files[0]->content.data, "c", 1);
    drop(m);
}

/* A message that holds itself, as none of the protocol does: node { node child = 1; } */
typedef struct {
    ProtobufCMessage base;
    void *child;
} node_t;

static const ProtobufCMessageDescriptor NODE;
static void node_init(ProtobufCMessage *m)
{
    *(node_t *)m = (node_t){.base = {.descriptor = &NODE}};
}
static const ProtobufCFieldDescriptor NODE_FIELDS[] = {
    {.name = "child",
     .id = 1,
     .label = PROTOBUF_C_LABEL_NONE,
     .type = PROTOBUF_C_TYPE_MESSAGE,
     .offset = offsetof(node_t, child),
     .descriptor = &NODE},
};
static const unsigned NODE_NAMES[] = {0};
static const ProtobufCIntRange NODE_RANGES[] = {{1, 0}, {0, 1}};
static const ProtobufCMessageDescriptor NODE = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "node",
    .short_name = "node",
    .c_name = "node",
    .package_name = "",
    .sizeof_message = sizeof(node_t),
    .n_fields = 1,
    .fields = NODE_FIELDS,
    .fields_sorted_by_name = NODE_NAMES,
    .n_field_ranges = 1,
    .field_ranges = NODE_RANGES,
    .message_init = node_init,
};

static void test_depth(void **state)
{
    (void)state;
    for (size_t depth = PROTOWIRE_DEPTH_MAX - 1; depth <= PROTOWIRE_DEPTH_MAX + 1; depth++) {
        char bytes[4 * PROTOWIRE_DEPTH_MAX], *p = bytes + sizeof(bytes);
        for (size_t i = 1; i < depth; i++) {
            size_t len = (size_t)(bytes + sizeof(bytes) - p);
            *--p = (char)(len & 0x7f);
            if (len >= 0x80) { /* the first byte of two */
                *p = (char)(len >> 7);
                *--p = (char)(len | 0x80);
            }
            *--p = 0x0a;
        }
        void *m = read_(&NODE, p, (size_t)(bytes + sizeof(bytes) - p));
        assert_int_equal(m != NULL, depth <= PROTOWIRE_DEPTH_MAX);
        drop(m);
    }
    assert_non_null(strstr(error, "nested too deeply"));
}

/* n times the two bytes of an empty row in a module. */
static void *rows(size_t n, const char *row, size_t row_len)
{
    size_t body = n * row_len, len = 0;
    char *bytes = malloc(body + 16);
    bytes[len++] = 0x62;
    for (size_t v = body;; v >>= 7) {
        bytes[len++] = (char)((v & 0x7f) | (v >= 0x80 ? 0x80 : 0));
        if (v < 0x80)
            break;
    }
    for (size_t i = 0; i < n; i++, len += row_len)
        memcpy(bytes + len, row, row_len);
    void *m = protowire_parse(&plimsoll__v1__run_request__descriptor, bytes, len, error);
    free(bytes);
    return m;
}

/* Each member of a message costs 40, each row its structure, 16, and 8 in the list: against 16 MiB and 8 times the
 * body, which is 2 n and the module's tag and three bytes of length. */
static void test_memory_limit(void **state)
{
    (void)state;
    size_t fixed = sizeof(Plimsoll__V1__RunRequest) + 16 + 40 + sizeof(Plimsoll__V1__ModuleRun) + 16;
    size_t row = 40 + 8 + sizeof(Plimsoll__V1__ModuleRow) + 16;
    size_t n = (PROTOWIRE_MEMORY_BASE + PROTOWIRE_MEMORY_FACTOR * 4 - fixed) / (row - PROTOWIRE_MEMORY_FACTOR * 2);
    assert_true(n > 100000 && 2 * n >= 1 << 14 && 2 * n < 1 << 21); /* three bytes of length */
    for (size_t i = n - 1; i <= n; i++) {
        Plimsoll__V1__RunRequest *m = rows(i, "\x12\x00", 2);
        assert_non_null(m);
        assert_int_equal(m->module->n_rows, i);
        drop(m);
    }
    assert_null(rows(n + 1, "\x12\x00", 2));
}

static void test_memory_is_bounded_by_the_body(void **state)
{
    (void)state;
    assert_null(rows(4000000, "\x12\x00", 2));
    assert_non_null(strstr(error, "module.rows: the message needs more memory"));
    assert_null(rows(2000000, "\xf8\x01\x00", 3)); /* unknown fields are kept too */
    assert_non_null(strstr(error, "more memory"));
    Plimsoll__V1__RunRequest *m = rows(100000, "\x12\x0a\x0a\x08\x00\x00\x00\x00\x00\x00\xf0\x3f", 12);
    assert_non_null(m);
    assert_int_equal(m->module->n_rows, 100000);
    drop(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_body_is_an_empty_message),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_last_member_of_a_choice_wins),
        cmocka_unit_test(test_doubles_packed_or_not),
        cmocka_unit_test(test_unknown_fields_are_skipped),
        cmocka_unit_test(test_text_with_nul_is_refused),
        cmocka_unit_test(test_text_is_utf8),
        cmocka_unit_test(test_text_that_may_hold_nul),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_every_cut_is_clean),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_memory_is_bounded_by_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
