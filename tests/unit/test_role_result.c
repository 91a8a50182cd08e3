/* What every wall's answer becomes before it is digested: valid UTF-8, and a project within 15 MiB (spec protocol 5).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "backends/role_result.h"
#include "core/buffer.h"
#include "core/mem.h"
#include "core/protojson.h"
#include "records/project_outcome.h"

static Plimsoll__V1__RunResponse *response;
static Plimsoll__V1__ProjectResult *project;

static int begin(void **state)
{
    (void)state;
    response = mem_alloc(sizeof(*response));
    project = mem_alloc(sizeof(*project));
    plimsoll__v1__run_response__init(response);
    plimsoll__v1__project_result__init(project);
    project->outcome = PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED;
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_PROJECT;
    response->project = project;
    return 0;
}

static int end(void **state)
{
    (void)state;
    plimsoll__v1__run_response__free_unpacked(response, NULL);
    return 0;
}

static ProtobufCBinaryData bytes(size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = len != 0 ? mem_alloc(len) : NULL};
}

static void add_step(const char *command, size_t out, size_t err)
{
    Plimsoll__V1__StepResult *step = mem_alloc(sizeof(*step));
    plimsoll__v1__step_result__init(step);
    step->command = mem_strdup(command);
    step->stdout = bytes(out);
    step->stderr = bytes(err);
    step->exit_code = 3;
    project->steps = mem_realloc(project->steps, (project->n_steps + 1) * sizeof(project->steps[0]));
    project->steps[project->n_steps++] = step;
}

static void add_artifact(const char *path, size_t len)
{
    Plimsoll__V1__Artifact *artifact = mem_alloc(sizeof(*artifact));
    plimsoll__v1__artifact__init(artifact);
    artifact->path = mem_strdup(path);
    artifact->content = bytes(len);
    project->artifacts = mem_realloc(project->artifacts, (project->n_artifacts + 1) * sizeof(project->artifacts[0]));
    project->artifacts[project->n_artifacts++] = artifact;
}

static size_t printed_size(void)
{
    buffer_t out;
    buffer_init(&out, 64 * 1024 * 1024);
    assert_true(protojson_print(&project->base, &out));
    size_t len = out.len;
    buffer_dispose(&out);
    return len;
}

static void test_texts_are_repaired(void **state)
{
    (void)state;
    add_step("a\xff"
             "b",
             0, 0);
    add_step("\xe2\x82", 0, 0); /* the start of a sequence: one replacement */
    add_artifact("p\xc0\x80", 1);
    project->outcome_detail = mem_strdup("\xed\xa0\x80ok\xf0\x9f\x99\x82");
    role_result_settle(response);
    assert_string_equal(project->steps[0]->command, "a\xef\xbf\xbd"
                                                    "b");
    assert_string_equal(project->steps[1]->command, "\xef\xbf\xbd");
    assert_string_equal(project->artifacts[0]->path, "p\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(project->outcome_detail, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdok\xf0\x9f\x99\x82");
    assert_int_equal(project->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED);
}

/* The size counted is never below the size printed. */
static void test_the_size_is_no_less_than_what_is_printed(void **state)
{
    (void)state;
    assert_true(role_result_size(project) >= printed_size());
    for (size_t len = 0; len < 7; len++) {
        add_step("\x01\x1f\"\\\n\xc3\xa9", len, 6 - len);
        add_artifact("a\x02", len);
    }
    for (size_t i = 0; i < project->n_steps; i++) {
        Plimsoll__V1__StepResult *s = project->steps[i];
        s->exit_code = INT32_MIN;
        s->duration_ms = INT64_MIN;
        s->timed_out = s->stdout_truncated = s->stderr_truncated = 1;
    }
    project->outcome = PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_PROTOCOL_ERROR;
    project->outcome_detail = mem_strdup("\x03");
    project->artifacts_truncated = 1;
    assert_true(role_result_size(project) >= printed_size());
}

static void fill_to(size_t target)
{
    char detail[8] = "";
    add_step("", 3, 0);
    size_t rest = target - role_result_size(project) + 4;
    free(project->steps[0]->stdout.data);
    project->steps[0]->stdout = bytes(rest / 4 * 3);
    memset(detail, 'd', rest % 4);
    project->outcome_detail = mem_strdup(detail);
    assert_int_equal(role_result_size(project), target);
}

/* A step and two artifacts that fill the answer to its last byte, one less and one more. */
static void test_artifacts_are_dropped_from_the_end(void **state)
{
    enum { BOTH = 2 * (PROJECT_ARTIFACT_FRAME + 3 + 4) }; /* a path of one character, content of one to three bytes */
    (void)state;
    for (int over = -1; over <= 1; over++) {
        end(NULL), begin(NULL);
        fill_to((size_t)(PROJECT_ANSWER_MAX - BOTH + over));
        add_artifact("a", 1);
        add_artifact("b", 3);
        assert_int_equal(role_result_size(project), PROJECT_ANSWER_MAX + over);
        role_result_settle(response);
        assert_int_equal(project->artifacts_truncated, over > 0);
        assert_int_equal(project->n_artifacts, over > 0 ? 1 : 2);
        assert_string_equal(project->artifacts[0]->path, "a");
        assert_int_equal(project->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED);
        assert_int_equal(project->steps[0]->stdout_truncated, 0);
        assert_true(printed_size() <= PROJECT_ANSWER_MAX);
    }
}

static void test_the_limit_to_the_byte(void **state)
{
    (void)state;
    for (size_t target = PROJECT_ANSWER_MAX - 1; target <= PROJECT_ANSWER_MAX + 1; target++) {
        bool fits = target <= PROJECT_ANSWER_MAX;
        end(NULL), begin(NULL);
        fill_to(target);
        role_result_settle(response);
        assert_int_equal(project->outcome, fits ? PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED
                                                : PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_RUNNER_FAILED);
        assert_int_equal(project->steps[0]->stdout_truncated, !fits);
        assert_int_equal(project->steps[0]->stderr_truncated, 0);
        assert_int_equal(project->steps[0]->stdout.len == 0, !fits);
        assert_int_equal(project->steps[0]->exit_code, 3);
        assert_true(printed_size() <= PROJECT_ANSWER_MAX);
    }
}

static void test_all_artifacts_go_before_any_output(void **state)
{
    (void)state;
    fill_to(PROJECT_ANSWER_MAX);
    add_artifact("a", 1);
    add_artifact("b", 1);
    role_result_settle(response);
    assert_int_equal(project->n_artifacts, 0);
    assert_int_equal(project->artifacts_truncated, 1);
    assert_int_equal(project->outcome, PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_COMPLETED);
    assert_int_equal(project->steps[0]->stdout_truncated, 0);
}

static void test_other_kinds_pass(void **state)
{
    (void)state;
    plimsoll__v1__project_result__free_unpacked(project, NULL);
    response->result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_MODULE;
    response->module = mem_alloc(sizeof(*response->module));
    plimsoll__v1__module_result__init(response->module);
    response->module->outcome_detail = mem_strdup("\x80");
    role_result_settle(response);
    assert_string_equal(response->module->outcome_detail, "\xef\xbf\xbd");
}

static void test_outcomes_in_words(void **state)
{
    (void)state;
    assert_string_equal(project_outcome_name(0), "");
    assert_string_equal(project_outcome_name(1), "completed");
    assert_string_equal(project_outcome_name(5), "runner_failed");
    assert_string_equal(project_outcome_name(6), "");
    assert_string_equal(project_outcome_name(-1), "");
    assert_int_equal(project_exit_code(project), 0);
    add_step("", 0, 0);
    assert_int_equal(project_exit_code(project), 3);
    project->outcome = PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_TIMED_OUT;
    assert_int_equal(project_exit_code(project), 124);
    project->outcome = PLIMSOLL__V1__PROJECT_OUTCOME__PROJECT_OUTCOME_PROTOCOL_ERROR;
    assert_int_equal(project_exit_code(project), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_texts_are_repaired, begin, end),
        cmocka_unit_test_setup_teardown(test_the_size_is_no_less_than_what_is_printed, begin, end),
        cmocka_unit_test_setup_teardown(test_artifacts_are_dropped_from_the_end, begin, end),
        cmocka_unit_test_setup_teardown(test_the_limit_to_the_byte, begin, end),
        cmocka_unit_test_setup_teardown(test_all_artifacts_go_before_any_output, begin, end),
        cmocka_unit_test_setup_teardown(test_other_kinds_pass, begin, end),
        cmocka_unit_test_setup_teardown(test_outcomes_in_words, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
