/* What a run becomes at a provider: files, directories, commands and artifacts under absolute paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/cloud/cloud_plan.h"
#include "core/random.h"
#include "records/project_rules.h"

static const cloud_layout_t FIXED = {.project = "/home/user/project", .scripts = "/home/user/.gw-*"};
static const cloud_layout_t MOVING = {.project = "/tmp/*/work", .scripts = "/tmp/*/run"};

static struct {
    Plimsoll__V1__RunRequest request;
    Plimsoll__V1__ProjectRun project;
    Plimsoll__V1__ProjectFile file[FILES_MAX + 1];
    Plimsoll__V1__ProjectFile *files[FILES_MAX + 1];
    char *steps[STEPS_MAX + 1], *artifacts[ARTIFACTS_MAX + 1];
    char names[ARTIFACTS_MAX + FILES_MAX + 2][16];
} job;
static char why[CLOUD_PATH_MAX + 128];
static cloud_plan_t plan;

static void project(size_t files, size_t steps, size_t artifacts)
{
    memset(&job, 0, sizeof(job));
    plimsoll__v1__run_request__init(&job.request);
    plimsoll__v1__project_run__init(&job.project);
    for (size_t i = 0; i < files; ++i) {
        plimsoll__v1__project_file__init(&job.file[i]);
        snprintf(job.names[i], sizeof(job.names[i]), "f%zu.js", i);
        job.file[i].path = job.names[i];
        job.file[i].content = (ProtobufCBinaryData){2, (uint8_t *)"1;"};
        job.files[i] = &job.file[i];
    }
    for (size_t i = 0; i < steps; ++i)
        job.steps[i] = (char *)"echo hi";
    for (size_t i = 0; i < artifacts; ++i) {
        snprintf(job.names[FILES_MAX + 1 + i], sizeof(job.names[0]), "a%zu", i);
        job.artifacts[i] = job.names[FILES_MAX + 1 + i];
    }
    job.project.files = job.files;
    job.project.n_files = files;
    job.project.steps = job.steps;
    job.project.n_steps = steps;
    job.project.artifacts = job.artifacts;
    job.project.n_artifacts = artifacts;
    job.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT;
    job.request.project = &job.project;
}

static cloud_planned_t planned(const cloud_layout_t *layout)
{
    cloud_planned_t result = cloud_plan_make(&plan, layout, &job.request, why);
    assert_int_equal(why[0] == '\0', result == CLOUD_PLAN_MADE);
    return result;
}

static void assert_planned(cloud_planned_t expected)
{
    cloud_planned_t result = planned(&FIXED);
    if (result != expected)
        print_error("%d, not %d: %s\n", result, expected, why);
    assert_int_equal(result, expected);
    cloud_plan_dispose(&plan);
}

static void a_snippet_is_a_file_and_never_an_argument(void **state)
{
    Plimsoll__V1__JavaScriptRun js = PLIMSOLL__V1__JAVA_SCRIPT_RUN__INIT;
    (void)state;
    memset(&job, 0, sizeof(job));
    plimsoll__v1__run_request__init(&job.request);
    js.code = (char *)"console.log('hi')";
    job.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT;
    job.request.javascript = &js;
    assert_int_equal(planned(&FIXED), CLOUD_PLAN_MADE);
    assert_int_equal(plan.file_count, 1);
    assert_string_equal(plan.files[0].path, "/home/user/project/main.cjs");
    assert_ptr_equal(plan.files[0].content, js.code);
    assert_int_equal(plan.files[0].len, 17);
    assert_int_equal(plan.bytes, 17);
    assert_int_equal(plan.step_count, 1);
    assert_string_equal(plan.steps[0].argv[0], "node");
    assert_string_equal(plan.steps[0].argv[1], "/home/user/project/main.cjs");
    assert_null(plan.steps[0].argv[2]);
    assert_int_equal(plan.steps[0].argc, 2);
    assert_string_equal(plan.steps[0].cwd, "/home/user/project");
    assert_int_equal(plan.directory_count, 1);
    assert_int_equal(plan.artifact_count, 0);
    assert_int_equal(plan.stream_max, 65536);
    cloud_plan_dispose(&plan);
}

static void a_project_has_its_files_a_script_for_each_step_and_all_directories(void **state)
{
    static const char *const directories[] = {"/home/user/project", "/home/user/project/src",
                                              "/home/user/project/src-2", "/home/user/project/src/deep",
                                              "/home/user/project/src/deep/er"};
    (void)state;
    project(4, 2, 1);
    job.file[0].path = (char *)"src/deep/er/a.js";
    job.file[1].path = (char *)"src-2/b.js";
    job.file[2].path = (char *)"src/c.js";
    job.file[3].path = (char *)"d \xe2\x98\x95.txt";
    job.file[3].content = (ProtobufCBinaryData){0, NULL};
    job.artifacts[0] = (char *)"out/result.json";
    assert_int_equal(planned(&FIXED), CLOUD_PLAN_MADE);
    assert_int_equal(plan.file_count, 6);
    assert_string_equal(plan.files[0].path, "/home/user/project/src/deep/er/a.js");
    assert_int_equal(plan.files[0].mode, 0644);
    assert_false(plan.files[0].is_ours);
    assert_string_equal(plan.files[3].path, "/home/user/project/d \xe2\x98\x95.txt");
    assert_int_equal(plan.files[3].len, 0);
    assert_true(plan.files[4].is_ours);
    assert_int_equal(plan.files[5].mode, 0755);
    assert_memory_equal(plan.files[5].content, "echo hi", 7);
    assert_int_equal(plan.bytes, 3 * 2 + 2 * 7);
    /* the scripts' directory sorts first: '.' is before 'p' */
    assert_int_equal(plan.directory_count, 6);
    assert_string_equal(plan.directories[0], plan.scripts_directory);
    assert_int_equal(strncmp(plan.scripts_directory, "/home/user/.gw-", 15), 0);
    assert_int_equal(strlen(plan.scripts_directory), 15 + 32);
    for (size_t i = 0; i < 5; ++i)
        assert_string_equal(plan.directories[i + 1], directories[i]);
    char script[128];
    snprintf(script, sizeof(script), "%s/step-2.sh", plan.scripts_directory);
    assert_string_equal(plan.files[5].path, script);
    assert_string_equal(plan.steps[1].argv[0], "/bin/sh");
    assert_string_equal(plan.steps[1].argv[1], script);
    assert_string_equal(plan.steps[1].cwd, "/home/user/project");
    assert_string_equal(plan.artifacts[0], "out/result.json");
    assert_string_equal(plan.artifact_paths[0], "/home/user/project/out/result.json");
    assert_int_equal(plan.artifacts_max, 8 * 1024 * 1024);
    cloud_plan_dispose(&plan);
}

static void a_star_is_the_same_for_both_and_never_again(void **state)
{
    char first[64];
    (void)state;
    project(1, 1, 1);
    assert_int_equal(planned(&MOVING), CLOUD_PLAN_MADE);
    assert_int_equal(strlen(plan.project_directory), strlen("/tmp//work") + 32);
    assert_memory_equal(plan.project_directory, plan.scripts_directory, strlen("/tmp/") + 32);
    assert_string_equal(plan.project_directory + 5 + 32, "/work");
    assert_string_equal(plan.scripts_directory + 5 + 32, "/run");
    assert_int_equal(strncmp(plan.files[0].path, plan.project_directory, strlen(plan.project_directory)), 0);
    assert_string_equal(plan.steps[0].cwd, plan.project_directory);
    snprintf(first, sizeof(first), "%s", plan.project_directory);
    cloud_plan_dispose(&plan);
    assert_int_equal(planned(&MOVING), CLOUD_PLAN_MADE);
    assert_string_not_equal(plan.project_directory, first);
    cloud_plan_dispose(&plan);
}

static void a_path_that_leads_elsewhere_is_refused(void **state)
{
    static const char *const paths[] = {"",     "/etc/passwd", "../x", "a/../../x", "a//b", "./a",  "a/.", "a/",
                                        "a\\b", "a\nb",        "a\rb", "a\x7f",     "\xff", "a/..", "."};
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
        project(1, 1, 1);
        job.file[0].path = (char *)paths[i];
        assert_planned(CLOUD_PLAN_REQUEST);
        project(1, 1, 1);
        job.artifacts[0] = (char *)paths[i];
        assert_planned(CLOUD_PLAN_REQUEST);
    }
}

/* Within the protocol, and no name in these APIs: another wall may take it. */
static void a_path_that_cannot_be_named_here_is_not_supported(void **state)
{
    char path[CLOUD_PATH_MAX + 2];
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        memset(path, 'p', sizeof(path));
        path[CLOUD_PATH_MAX + over] = '\0';
        project(1, 1, 1);
        job.file[0].path = path;
        assert_planned(over <= 0 ? CLOUD_PLAN_MADE : CLOUD_PLAN_UNSUPPORTED);
        project(1, 1, 1);
        job.artifacts[0] = path;
        assert_planned(over <= 0 ? CLOUD_PLAN_MADE : CLOUD_PLAN_UNSUPPORTED);
    }
    project(1, 1, 0);
    job.file[0].path = (char *)"say \"hi\".txt";
    assert_planned(CLOUD_PLAN_UNSUPPORTED);
    project(1, 1, 0);
    job.request.payload_case = PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_MODULE;
    assert_planned(CLOUD_PLAN_UNSUPPORTED);
}

static void counts_and_sizes_are_the_protocols(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; ++over) {
        cloud_planned_t expected = over <= 0 ? CLOUD_PLAN_MADE : CLOUD_PLAN_REQUEST;
        project((size_t)(FILES_MAX + over), 1, 0);
        assert_planned(expected);
        project(1, (size_t)(STEPS_MAX + over), 0);
        assert_planned(expected);
        project(1, 1, (size_t)(ARTIFACTS_MAX + over));
        assert_planned(expected);
        project(2, 1, 0);
        uint8_t *content = calloc(1, FILES_BYTES_MAX + 1);
        job.file[0].content = (ProtobufCBinaryData){(size_t)(FILES_BYTES_MAX + over - 2), content};
        assert_planned(expected);
        free(content);
    }
    project(0, 1, 0);
    assert_planned(CLOUD_PLAN_MADE);
    project(1, 0, 0);
    assert_planned(CLOUD_PLAN_REQUEST);
    project(2, 1, 0);
    job.file[1].path = job.file[0].path;
    assert_planned(CLOUD_PLAN_REQUEST);
}

static void a_file_that_is_a_directory_too_is_the_projects_fault(void **state)
{
    (void)state;
    project(3, 1, 0);
    job.file[0].path = (char *)"a/b";
    job.file[1].path = (char *)"a-b";
    job.file[2].path = (char *)"a/b/c";
    assert_int_equal(planned(&FIXED), CLOUD_PLAN_SETUP);
    assert_string_equal(why, "a/b is a file and a directory of other files");
    cloud_plan_dispose(&plan);
    job.file[2].path = (char *)"a/bc";
    assert_planned(CLOUD_PLAN_MADE);
}

static int start(void **state)
{
    (void)state;
    random_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snippet_is_a_file_and_never_an_argument),
        cmocka_unit_test(a_project_has_its_files_a_script_for_each_step_and_all_directories),
        cmocka_unit_test(a_star_is_the_same_for_both_and_never_again),
        cmocka_unit_test(a_path_that_leads_elsewhere_is_refused),
        cmocka_unit_test(a_path_that_cannot_be_named_here_is_not_supported),
        cmocka_unit_test(counts_and_sizes_are_the_protocols),
        cmocka_unit_test(a_file_that_is_a_directory_too_is_the_projects_fault),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
