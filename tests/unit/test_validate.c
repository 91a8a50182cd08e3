/* Every limit of spec 2.2 and 2.5 at limit - 1, limit and limit + 1, and the order of checks of 4.3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "gateway/validate.h"

/* A text of `len` bytes `c`. */
static char *fill(char *buf, size_t len, char c)
{
    memset(buf, c, len);
    buf[len] = '\0';
    return buf;
}

static char big[CODE_BYTES_MAX + 16], file_big[FILES_BYTES_MAX + 16];

static ProtobufCBinaryData bytes_of(char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}

typedef struct {
    Plimsoll__V1__RunRequest request;
    Plimsoll__V1__JavaScriptRun javascript;
    Plimsoll__V1__ProjectRun project;
    Plimsoll__V1__ModuleRun module;
    Plimsoll__V1__CellRun cell;
    Plimsoll__V1__SoftwareRule rule;
    char *steps[STEPS_MAX + 1];
    char *identities[IDENTITIES_MAX + 1];
    char *artifacts[ARTIFACTS_MAX + 1];
    Plimsoll__V1__ProjectFile file[FILES_MAX + 1], *files[FILES_MAX + 1];
    char names[FILES_MAX + 1][16];
    double values[ROW_WIDTH_MAX + 1];
    Plimsoll__V1__ModuleRow row, *rows[ROWS_MAX + 1];
} subject_t;

static subject_t s;
static refusal_t refusal;
static run_terms_t terms;

static void use_javascript(void)
{
    s.request = (Plimsoll__V1__RunRequest)PLIMSOLL__V1__RUN_REQUEST__INIT;
    s.request.protocol = 4;
    s.javascript = (Plimsoll__V1__JavaScriptRun)PLIMSOLL__V1__JAVA_SCRIPT_RUN__INIT;
    s.javascript.code = (char *)"1";
    s.rule = (Plimsoll__V1__SoftwareRule)PLIMSOLL__V1__SOFTWARE_RULE__INIT;
    s.rule.identities = s.identities;
    s.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT;
    s.request.javascript = &s.javascript;
}

static void use_project(void)
{
    use_javascript();
    s.project = (Plimsoll__V1__ProjectRun)PLIMSOLL__V1__PROJECT_RUN__INIT;
    s.project.steps = s.steps;
    s.project.n_steps = 1;
    s.project.files = s.files;
    s.project.artifacts = s.artifacts;
    for (size_t i = 0; i <= STEPS_MAX; i++)
        s.steps[i] = (char *)"true";
    for (size_t i = 0; i <= FILES_MAX; i++) {
        snprintf(s.names[i], sizeof(s.names[i]), "f%zu", i);
        s.file[i] = (Plimsoll__V1__ProjectFile)PLIMSOLL__V1__PROJECT_FILE__INIT;
        s.file[i].path = s.names[i];
        s.files[i] = &s.file[i];
        if (i <= ARTIFACTS_MAX)
            s.artifacts[i] = s.names[i];
    }
    s.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
    s.request.project = &s.project;
}

static void use_module(void)
{
    use_javascript();
    s.module = (Plimsoll__V1__ModuleRun)PLIMSOLL__V1__MODULE_RUN__INIT;
    s.module.model = (char *)"VanDerPol";
    s.row = (Plimsoll__V1__ModuleRow)PLIMSOLL__V1__MODULE_ROW__INIT;
    s.row.values = s.values;
    s.row.n_values = 1;
    for (size_t i = 0; i <= ROW_WIDTH_MAX; i++)
        s.values[i] = 1;
    for (size_t i = 0; i <= ROWS_MAX; i++)
        s.rows[i] = &s.row;
    s.module.rows = s.rows;
    s.module.n_rows = 1;
    s.module.end_time = 1;
    s.module.step = 1;
    s.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE;
    s.request.module = &s.module;
}

static void accepted_(int line)
{
    if (!validate_run(&s.request, &terms, &refusal)) {
        print_error("line %d: %s\n", line, refusal.message);
        fail();
    }
}
#define accepted() accepted_(__LINE__)

static void refused_(int line, code_t code, mark_t mark, const char *naming)
{
    memset(&refusal, 0x5a, sizeof(refusal));
    if (validate_run(&s.request, &terms, &refusal)) {
        print_error("line %d: accepted\n", line);
        fail();
    }
    if (refusal.code != code || refusal.mark != mark || !refusal.detail || strstr(refusal.message, naming) == NULL) {
        print_error("line %d: %s/%s: %s\n", line, code_name(refusal.code), mark_name(refusal.mark), refusal.message);
        fail();
    }
}
#define refused(naming) refused_(__LINE__, CODE_INVALID_ARGUMENT, MARK_REQUEST, naming)

static void test_protocol_number(void **state)
{
    (void)state;
    use_javascript();
    s.request.protocol = 0;
    refused_(__LINE__, CODE_INVALID_ARGUMENT, MARK_PROTOCOL, "protocol");
    const uint32_t OTHERS[] = {1, 2, 5, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        s.request.protocol = OTHERS[i];
        refused_(__LINE__, CODE_UNIMPLEMENTED, MARK_PROTOCOL, "protocol");
    }
    s.request.protocol = 3;
    accepted();
    s.request.protocol = 4;
    accepted();
}

static void test_floor(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tier_t tier;
    } GOOD[] = {{"", TIER_UNKNOWN},
                {"process", TIER_PROCESS},
                {"container", TIER_CONTAINER},
                {"kernel", TIER_KERNEL},
                {"vm", TIER_VM}};
    static const char *const BAD[] = {"none", "unknown", "VM", "vm ", "contain", "x"};
    use_javascript();
    for (size_t i = 0; i < 5; i++) {
        s.request.minimum_isolation = (char *)GOOD[i].text;
        accepted();
        assert_int_equal(terms.floor, GOOD[i].tier);
    }
    for (size_t i = 0; i < 6; i++) {
        s.request.minimum_isolation = (char *)BAD[i];
        refused("minimum_isolation");
    }
}

static void test_trace_id_is_kept_or_dropped(void **state)
{
    (void)state;
    static const char *const DROPPED[] = {"a b", "\xc3\xa9", "a/b", "a\n"};
    use_javascript();
    accepted();
    assert_string_equal(terms.trace_id, "");
    assert_false(terms.trace_id_dropped);
    s.request.trace_id = (char *)"Az09._:-";
    accepted();
    assert_ptr_equal(terms.trace_id, s.request.trace_id);
    for (size_t len = TRACE_ID_BYTES_MAX - 1; len <= TRACE_ID_BYTES_MAX + 1; len++) {
        s.request.trace_id = fill(big, len, 'x');
        accepted();
        assert_int_equal(terms.trace_id_dropped, len > TRACE_ID_BYTES_MAX);
        assert_int_equal(strlen(terms.trace_id), len > TRACE_ID_BYTES_MAX ? 0 : len);
    }
    for (size_t i = 0; i < 4; i++) {
        s.request.trace_id = (char *)DROPPED[i];
        accepted();
        assert_true(terms.trace_id_dropped);
        assert_string_equal(terms.trace_id, "");
    }
}

static void test_timeout_is_clamped(void **state)
{
    (void)state;
    static const struct {
        int32_t asked;
        uint32_t got;
    } CASES[] = {{INT32_MIN, 0},   {-1, 0},          {0, 0},           {1, 1},
                 {299999, 299999}, {300000, 300000}, {300001, 300000}, {INT32_MAX, 300000}};
    assert_int_equal(RUN_CEILING_MS, 300000);
    use_javascript();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        s.request.timeout_ms = CASES[i].asked;
        accepted();
        assert_int_equal(terms.timeout_ms, CASES[i].got);
    }
}

static void test_software_rule(void **state)
{
    (void)state;
    char names[IDENTITIES_MAX + 1][8];
    use_javascript();
    s.request.software_rule = &s.rule;
    accepted(); /* an empty rule is none */
    for (size_t i = 0; i <= IDENTITIES_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "i%zu", i);
        s.identities[i] = names[i];
    }
    s.rule.n_identities = 1;
    refused("software_rule.mode");
    s.rule.mode = (char *)"Exact";
    refused("software_rule.mode");
    s.rule.mode = (char *)"exact";
    accepted();
    s.rule.n_identities = 0;
    refused("needs 1");
    s.rule.n_identities = 2;
    refused("needs 1");
    s.rule.mode = (char *)"approved";
    accepted();
    s.rule.n_identities = 0;
    refused("1 to 32");
    for (size_t n = IDENTITIES_MAX - 1; n <= IDENTITIES_MAX; n++) {
        s.rule.n_identities = n;
        accepted();
    }
    s.rule.n_identities = IDENTITIES_MAX + 1;
    refused("has 33 identities");
    s.rule.n_identities = 3;
    s.identities[2] = names[0];
    refused("software_rule.identities[2]");
    s.rule.n_identities = 1;
    s.identities[0] = (char *)"oci-manifest:linux/amd64@sha256:a+B_.9";
    accepted();
    s.identities[0] = (char *)"";
    refused("software_rule.identities[0]");
    s.identities[0] = (char *)"a b";
    refused("software_rule.identities[0]");
    s.identities[0] = fill(big, IDENTITY_BYTES_MAX - 1, 'x');
    accepted();
    s.identities[0] = fill(big, IDENTITY_BYTES_MAX, 'x');
    accepted();
    s.identities[0] = fill(big, IDENTITY_BYTES_MAX + 1, 'x');
    refused("software_rule.identities[0] is 257 bytes; at most 256 are accepted");
}

static void test_payload_is_there_and_no_cell(void **state)
{
    (void)state;
    use_javascript();
    s.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD__NOT_SET;
    refused("no payload");
    s.cell = (Plimsoll__V1__CellRun)PLIMSOLL__V1__CELL_RUN__INIT;
    s.cell.language = (char *)"python";
    s.cell.code = (char *)"1";
    s.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_CELL;
    s.request.cell = &s.cell;
    refused("cell");
}

static void test_code(void **state)
{
    (void)state;
    use_javascript();
    s.javascript.code = (char *)"";
    refused("javascript.code is empty");
    s.javascript.code = fill(big, CODE_BYTES_MAX - 1, 'x');
    accepted();
    s.javascript.code = fill(big, CODE_BYTES_MAX, 'x');
    accepted();
    s.javascript.code = fill(big, CODE_BYTES_MAX + 1, 'x');
    refused("javascript.code is 262145 bytes; at most 262144 are accepted");
    s.javascript.code = (char *)"a\xff";
    refused("javascript.code is not valid UTF-8");
    s.javascript.code = (char *)"\xed\xa0\x80"; /* a surrogate */
    refused("javascript.code is not valid UTF-8");
}

static void test_grant_profile(void **state)
{
    (void)state;
    use_javascript();
    for (size_t len = GRANT_PROFILE_BYTES_MAX - 1; len <= GRANT_PROFILE_BYTES_MAX; len++) {
        s.javascript.grant_profile = fill(big, len, 'g');
        accepted();
    }
    s.javascript.grant_profile = fill(big, GRANT_PROFILE_BYTES_MAX + 1, 'g');
    refused("javascript.grant_profile is 129 bytes; at most 128 are accepted");
    use_project();
    s.project.grant_profile = fill(big, GRANT_PROFILE_BYTES_MAX, 'g');
    accepted();
    s.project.grant_profile = fill(big, GRANT_PROFILE_BYTES_MAX + 1, 'g');
    refused("project.grant_profile is 129 bytes");
}

static void test_steps(void **state)
{
    (void)state;
    use_project();
    accepted();
    s.project.n_steps = 0;
    refused("project.steps has 0 steps; 1 to 20 are accepted");
    s.project.n_steps = STEPS_MAX - 1;
    accepted();
    s.project.n_steps = STEPS_MAX;
    accepted();
    s.project.n_steps = STEPS_MAX + 1;
    refused("project.steps has 21 steps");
    s.project.n_steps = 2;
    s.steps[1] = (char *)""; /* official clients send it */
    accepted();
    s.steps[1] = fill(big, STEP_BYTES_MAX - 1, 's');
    accepted();
    s.steps[1] = fill(big, STEP_BYTES_MAX, 's');
    accepted();
    s.steps[1] = fill(big, STEP_BYTES_MAX + 1, 's');
    refused("project.steps[1] is 16385 bytes; at most 16384 are accepted");
    s.steps[1] = (char *)"\x80";
    refused("project.steps[1] is not valid UTF-8");
}

static void test_files(void **state)
{
    (void)state;
    use_project();
    s.project.n_files = FILES_MAX - 1;
    accepted();
    s.project.n_files = FILES_MAX;
    accepted();
    s.project.n_files = FILES_MAX + 1;
    refused("project.files has 201 files; at most 200 are accepted");
    s.project.n_files = FILES_MAX;
    s.file[199].path = s.file[0].path;
    refused("twice");
    s.project.n_files = 1;
    s.file[0].content = bytes_of(fill(file_big, FILES_BYTES_MAX - 1, 'c'));
    accepted();
    s.file[0].content = bytes_of(fill(file_big, FILES_BYTES_MAX, 'c'));
    accepted();
    s.file[0].content = bytes_of(fill(file_big, FILES_BYTES_MAX + 1, 'c'));
    refused("project.files hold 4194305 bytes; at most 4194304 are accepted");
    s.file[0].content = bytes_of(fill(file_big, FILES_BYTES_MAX, 'c'));
    s.project.n_files = 2;
    accepted();
    s.file[1].content = bytes_of((char *)"x"); /* the limit is for all together */
    refused("project.files hold 4194305 bytes");
    s.file[0].content = bytes_of((char *)"\xc0\x80");
    refused("project.files[0].content is not valid UTF-8");
    s.file[0].content = (ProtobufCBinaryData){.len = 3, .data = (uint8_t *)"a\0b"};
    accepted();
}

static void test_artifacts(void **state)
{
    (void)state;
    use_project();
    s.project.n_artifacts = ARTIFACTS_MAX - 1;
    accepted();
    s.project.n_artifacts = ARTIFACTS_MAX;
    accepted();
    s.project.n_artifacts = ARTIFACTS_MAX + 1;
    refused("project.artifacts has 101 paths; at most 100 are accepted");
    s.project.n_artifacts = 2;
    s.artifacts[1] = s.artifacts[0];
    refused("project.artifacts has a path twice");
    s.artifacts[1] = (char *)"../x";
    refused("project.artifacts[1]");
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const GOOD[] = {"a",   "a/b",      ".a",        "..a", "a..",     "...",
                                       "a b", "\xc3\xa9", "a/.b/c..d", "~",   "\xc2\xa0"};
    static const char *const BAD[] = {
        "",     "/",    "/a",    "a/",   "a//b",  ".",    "..",       "a/.",       "./a",          "a/../b",     "../a",
        "a\\b", "a\nb", "a\x1f", "\x01", "a\x7f", "\xff", "\xc2\x80", "a\xc2\x9f", "\xed\xa0\x80", "a/\xc0\xae",
    };
    use_project();
    s.project.n_files = 1;
    s.project.n_artifacts = 1;
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        s.file[0].path = s.artifacts[0] = (char *)GOOD[i];
        accepted();
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        s.file[0].path = (char *)BAD[i];
        s.artifacts[0] = (char *)"a";
        refused("project.files[0].path");
        s.file[0].path = (char *)"a";
        s.artifacts[0] = (char *)BAD[i];
        refused("project.artifacts[0]");
    }
    s.artifacts[0] = (char *)"a";
    s.file[0].path = fill(big, PATH_BYTES_MAX - 1, 'p');
    accepted();
    s.file[0].path = fill(big, PATH_BYTES_MAX, 'p');
    accepted();
    s.file[0].path = fill(big, PATH_BYTES_MAX + 1, 'p');
    refused("project.files[0].path is 1025 bytes; 1 to 1024 are accepted");
}

static void test_model(void **state)
{
    (void)state;
    static const char *const BAD[] = {"", ".a", "_a", "-a", "a/b", "a b", "\xc3\xa9"};
    use_module();
    s.module.model = (char *)"9a._-Z";
    accepted();
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        s.module.model = (char *)BAD[i];
        refused("module.model");
    }
    s.module.model = fill(big, MODEL_BYTES_MAX - 1, 'm');
    accepted();
    s.module.model = fill(big, MODEL_BYTES_MAX, 'm');
    accepted();
    s.module.model = fill(big, MODEL_BYTES_MAX + 1, 'm');
    refused("module.model");
}

static void test_rows(void **state)
{
    (void)state;
    use_module();
    s.module.n_rows = 0;
    refused("module.rows has 0 rows");
    s.module.n_rows = ROWS_MAX - 1;
    accepted();
    s.module.n_rows = ROWS_MAX;
    accepted();
    s.module.n_rows = ROWS_MAX + 1;
    refused("module.rows has 100001 rows; 1 to 100000 are accepted");
    s.module.n_rows = 1;
    s.row.n_values = 0;
    refused("module.rows[0] has 0 values");
    s.row.n_values = ROW_WIDTH_MAX - 1;
    accepted();
    s.row.n_values = ROW_WIDTH_MAX;
    accepted();
    s.row.n_values = ROW_WIDTH_MAX + 1;
    refused("module.rows[0] has 65 values; 1 to 64 are accepted");
    Plimsoll__V1__ModuleRow narrow = PLIMSOLL__V1__MODULE_ROW__INIT;
    narrow.values = s.values;
    narrow.n_values = 1;
    s.row.n_values = 2;
    s.module.n_rows = 2;
    s.rows[1] = &narrow;
    refused("module.rows[1] has 1 values; module.rows[0] has 2");
    const double BAD[] = {NAN, INFINITY, -INFINITY};
    s.module.n_rows = 1;
    for (size_t i = 0; i < 3; i++) {
        s.values[1] = BAD[i];
        refused("module.rows[0].values[1] is not finite");
    }
    s.values[1] = -1e308;
    accepted();
}

static void test_times(void **state)
{
    (void)state;
    const double BAD[] = {0, -0.0, -1, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        use_module();
        s.module.end_time = BAD[i];
        refused("module.end_time");
        use_module();
        s.module.step = BAD[i];
        refused("module.step");
    }
    use_module();
    s.module.step = 1;
    s.module.end_time = MODULE_STEPS_MAX - 1; /* S = 1000001: 20 + 4 + 8 * 1000001 = 8000032 */
    accepted();
    s.module.end_time = MODULE_STEPS_MAX;
    accepted();
    s.module.end_time = MODULE_STEPS_MAX + 1;
    refused("over 1000000 steps");
    s.module.end_time = 1e308;
    s.module.step = 5e-324; /* the quotient is infinite */
    refused("over 1000000 steps");
}

/* n rows of r steps take 20 + n * (4 + 8 * (r + 2)) bytes, which is 8388608 exactly for n = 3, r = 349522 and n =
 * 53773, r = 17. */
static void test_result_budget(void **state)
{
    (void)state;
    use_module();
    s.module.n_rows = 3;
    s.module.step = 1;
    s.module.end_time = 349521;
    accepted();
    s.module.end_time = 349522;
    accepted();
    s.module.end_time = 349522.75; /* whole steps count */
    accepted();
    s.module.end_time = 349523;
    refused("could be 8388632 bytes; at most 8388608 are accepted");
    s.module.end_time = 17;
    s.module.n_rows = 53772;
    accepted();
    s.module.n_rows = 53773;
    accepted();
    s.module.n_rows = 53774;
    refused("could be 8388764 bytes");
}

/* Each earlier failing check is told before the later ones. */
static void test_order(void **state)
{
    (void)state;
    use_project();
    s.project.grant_profile = fill(big, GRANT_PROFILE_BYTES_MAX + 1, 'g');
    s.project.n_artifacts = ARTIFACTS_MAX + 1;
    s.project.n_files = FILES_MAX + 1;
    s.project.n_steps = 0;
    s.rule.mode = (char *)"x";
    s.request.software_rule = &s.rule;
    s.request.minimum_isolation = (char *)"none";
    s.request.protocol = 9;
    refused_(__LINE__, CODE_UNIMPLEMENTED, MARK_PROTOCOL, "protocol 9");
    s.request.protocol = 4;
    refused("minimum_isolation");
    s.request.minimum_isolation = (char *)"vm";
    refused("software_rule");
    s.rule.mode = (char *)"";
    refused("project.steps");
    s.project.n_steps = 1;
    refused("project.files");
    s.project.n_files = 0;
    refused("project.artifacts");
    s.project.n_artifacts = 0;
    refused("project.grant_profile");
    s.project.grant_profile = (char *)"";
    accepted();
}

/* ---- sessions ---- */

static void expect_refusal(code_t code, mark_t mark, int session_end)
{
    assert_int_equal(refusal.code, code);
    assert_int_equal(refusal.mark, mark);
    assert_int_equal(refusal.session_end, session_end);
    assert_true(refusal.detail);
}

static void test_open_session(void **state)
{
    (void)state;
    Plimsoll__V1__OpenSessionRequest q = PLIMSOLL__V1__OPEN_SESSION_REQUEST__INIT;
    Plimsoll__V1__SoftwareRule rule = PLIMSOLL__V1__SOFTWARE_RULE__INIT;
    rule.mode = (char *)"exact";
    q.software_rule = &rule;
    q.minimum_isolation = (char *)"x";
    validate_open_session(&q, &refusal);
    expect_refusal(CODE_INVALID_ARGUMENT, MARK_PROTOCOL, 0);
    q.protocol = 2;
    validate_open_session(&q, &refusal);
    expect_refusal(CODE_UNIMPLEMENTED, MARK_PROTOCOL, 0);
    q.protocol = 4;
    validate_open_session(&q, &refusal);
    expect_refusal(CODE_INVALID_ARGUMENT, MARK_REQUEST, 0);
    assert_non_null(strstr(refusal.message, "minimum_isolation"));
    q.minimum_isolation = (char *)"";
    validate_open_session(&q, &refusal);
    expect_refusal(CODE_INVALID_ARGUMENT, MARK_REQUEST, 0);
    assert_non_null(strstr(refusal.message, "software_rule"));
    q.software_rule = NULL;
    q.owner = (char *)"not a valid owner"; /* would be looked at after the sessions themselves */
    for (q.protocol = 3; q.protocol <= 4; q.protocol++) {
        validate_open_session(&q, &refusal);
        expect_refusal(CODE_UNIMPLEMENTED, MARK_UNSUPPORTED, 0);
    }
}

static void test_session_run(void **state)
{
    (void)state;
    Plimsoll__V1__SessionRunRequest q = PLIMSOLL__V1__SESSION_RUN_REQUEST__INIT;
    q.minimum_isolation = (char *)"none";
    validate_session_run(&q, &refusal);
    expect_refusal(CODE_INVALID_ARGUMENT, MARK_PROTOCOL, 0);
    q.protocol = 4;
    validate_session_run(&q, &refusal);
    expect_refusal(CODE_INVALID_ARGUMENT, MARK_REQUEST, 0);
    q.minimum_isolation = (char *)"vm";
    validate_session_run(&q, &refusal); /* no payload either: the session is looked for first */
    expect_refusal(CODE_NOT_FOUND, MARK_REQUEST, PLIMSOLL__V1__SESSION_END__SESSION_END_NOT_FOUND);
    assert_string_equal(refusal.session_text, "unknown session");
}

static void test_close_session(void **state)
{
    (void)state;
    Plimsoll__V1__CloseSessionRequest q = PLIMSOLL__V1__CLOSE_SESSION_REQUEST__INIT;
    validate_close_session(&q, &refusal);
    expect_refusal(CODE_INVALID_ARGUMENT, MARK_PROTOCOL, 0);
    q.protocol = 5;
    validate_close_session(&q, &refusal);
    expect_refusal(CODE_UNIMPLEMENTED, MARK_PROTOCOL, 0);
    q.protocol = 3;
    q.session_id = (char *)"00112233445566778899aabbccddeeff";
    validate_close_session(&q, &refusal);
    expect_refusal(CODE_NOT_FOUND, MARK_REQUEST, PLIMSOLL__V1__SESSION_END__SESSION_END_NOT_FOUND);
}

/* The published pair of details of an unknown session, spec appendix A. */
static void test_unknown_session_on_the_wire(void **state)
{
    (void)state;
    Plimsoll__V1__CloseSessionRequest q = PLIMSOLL__V1__CLOSE_SESSION_REQUEST__INIT;
    buffer_t body;
    buffer_init(&body, 4096);
    q.protocol = 3;
    validate_close_session(&q, &refusal);
    refusal_body(&refusal, &body);
    assert_non_null(strstr((char *)body.base,
                           "{\"type\":\"plimsoll.v1.NotDispatched\",\"value\":\"CAE\"},"
                           "{\"type\":\"plimsoll.v1.SessionEnded\",\"value\":\"CAkSD3Vua25vd24gc2Vzc2lvbg\"}"));
    buffer_dispose(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_protocol_number),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_trace_id_is_kept_or_dropped),
        cmocka_unit_test(test_timeout_is_clamped),
        cmocka_unit_test(test_software_rule),
        cmocka_unit_test(test_payload_is_there_and_no_cell),
        cmocka_unit_test(test_code),
        cmocka_unit_test(test_grant_profile),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_artifacts),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_result_budget),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_open_session),
        cmocka_unit_test(test_session_run),
        cmocka_unit_test(test_close_session),
        cmocka_unit_test(test_unknown_session_on_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
