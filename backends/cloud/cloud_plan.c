#include "backends/cloud/cloud_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/random.h"
#include "records/project_rules.h"

enum {
    WHY_MAX = CLOUD_PATH_MAX + 128,
    MODE_FILE = 0644,
    MODE_SCRIPT = 0755,
    FIRST_CAP = 16,
    UNIQUE_BYTES = 16,
};

static const char NODE[] = "node", SHELL[] = "/bin/sh", SNIPPET_FILE[] = "main.cjs";

/* --- texts the plan owns --- */

static void keep(cloud_plan_t *plan, char *text)
{
    if (plan->_text_count == plan->_text_cap) {
        plan->_text_cap = plan->_text_cap != 0 ? plan->_text_cap * 2 : FIRST_CAP;
        plan->_texts = mem_realloc(plan->_texts, plan->_text_cap * sizeof(*plan->_texts));
    }
    plan->_texts[plan->_text_count++] = text;
}

static char *join(cloud_plan_t *plan, const char *a, const char *separator, const char *b)
{
    size_t a_len = strlen(a), s_len = strlen(separator), b_len = strlen(b);
    char *text = mem_alloc(a_len + s_len + b_len + 1);
    memcpy(text, a, a_len);
    memcpy(text + a_len, separator, s_len);
    memcpy(text + a_len + s_len, b, b_len);
    keep(plan, text);
    return text;
}

/* The pattern with its '*' replaced. */
static const char *place(cloud_plan_t *plan, const char *pattern, const char *unique)
{
    const char *star = strchr(pattern, '*');
    if (star == NULL)
        return pattern;
    char *before = mem_strndup(pattern, (size_t)(star - pattern));
    const char *text = join(plan, before, unique, star + 1);
    free(before);
    return text;
}

static void place_all(cloud_plan_t *plan, const cloud_layout_t *layout)
{
    char unique[2 * UNIQUE_BYTES + 1];
    random_hex(unique, UNIQUE_BYTES);
    plan->project_directory = place(plan, layout->project, unique);
    plan->scripts_directory = place(plan, layout->scripts, unique);
}

static void add_file(cloud_plan_t *plan, cloud_file_t file)
{
    if (plan->file_count == plan->file_cap)
        mem_fatal("a plan has more files than were counted");
    plan->files[plan->file_count++] = file;
    plan->bytes += file.len;
}

static void add_step(cloud_plan_t *plan, const char *program, const char *script, const char *cwd)
{
    cloud_command_t *step = &plan->steps[plan->step_count++];
    *step = (cloud_command_t){.argv = {program, script}, .argc = 2, .cwd = cwd};
}

/* --- paths: what the protocol allows, and what can be named in every provider's API --- */

static bool is_nameable(const char *path)
{
    return strlen(path) <= CLOUD_PATH_MAX && strchr(path, '"') == NULL;
}

/* Every part of a path that is a file of the caller's is one of the protocol's: what it says of it is in
 * records/project_rules.h. */
static cloud_planned_t check_path(const char *path, char why[WHY_MAX])
{
    if (path_check(path) != PATH_HOLDS) {
        snprintf(why, WHY_MAX, "a path of the project is not one");
        return CLOUD_PLAN_REQUEST;
    }
    if (is_nameable(path))
        return CLOUD_PLAN_MADE;
    snprintf(why, WHY_MAX, "this backend takes paths of at most %d bytes without quotation marks", CLOUD_PATH_MAX);
    return CLOUD_PLAN_UNSUPPORTED;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t each_once(const char **texts, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i)
        if (kept == 0 || strcmp(texts[kept - 1], texts[i]) != 0)
            texts[kept++] = texts[i];
    return kept;
}

/* --- directories --- */

typedef struct {
    const char **list;
    size_t count, cap;
} texts_t;

static void texts_add(texts_t *texts, const char *text)
{
    if (texts->count == texts->cap) {
        texts->cap = texts->cap != 0 ? texts->cap * 2 : FIRST_CAP;
        texts->list = mem_realloc(texts->list, texts->cap * sizeof(*texts->list));
    }
    texts->list[texts->count++] = text;
}

/* The directories between `from` (absolute, not among them) and the file. */
static void add_parents(cloud_plan_t *plan, texts_t *directories, size_t from_len, const char *path)
{
    for (const char *slash = strchr(path + from_len + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        char *directory = join(plan, path, "", "");
        directory[slash - path] = '\0';
        texts_add(directories, directory);
    }
}

/* A parent sorts before what is in it, as its path is the start of theirs. */
static void set_directories(cloud_plan_t *plan, texts_t *directories)
{
    qsort(directories->list, directories->count, sizeof(*directories->list), by_text);
    plan->directories = directories->list;
    plan->directory_count = each_once(directories->list, directories->count);
}

static const char *file_that_is_a_directory(const cloud_plan_t *plan)
{
    for (size_t i = 0; i < plan->file_count; ++i)
        if (bsearch(&plan->files[i].path, plan->directories, plan->directory_count, sizeof(*plan->directories),
                    by_text) != NULL)
            return plan->files[i].path;
    return NULL;
}

static const char *twin(const char *const *texts, size_t count)
{
    const char *found = NULL, **sorted = mem_alloc_array(count + 1, sizeof(*sorted));
    memcpy(sorted, texts, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_text);
    for (size_t i = 1; i < count && found == NULL; ++i)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            found = sorted[i];
    free(sorted);
    return found;
}

/* --- projects --- */

static cloud_planned_t check_project(const Plimsoll__V1__ProjectRun *project, char why[WHY_MAX])
{
    const char *paths[FILES_MAX];
    cloud_planned_t planned = CLOUD_PLAN_MADE;
    size_t bytes = 0;
    if (project->n_files > FILES_MAX || project->n_steps > STEPS_MAX || project->n_steps == 0 ||
        project->n_artifacts > ARTIFACTS_MAX) {
        snprintf(why, WHY_MAX, "the project is larger than a project may be, or has no step");
        return CLOUD_PLAN_REQUEST;
    }
    for (size_t i = 0; i < project->n_files && planned == CLOUD_PLAN_MADE; ++i) {
        paths[i] = project->files[i]->path;
        bytes += project->files[i]->content.len;
        planned = check_path(paths[i], why);
    }
    for (size_t i = 0; i < project->n_artifacts && planned == CLOUD_PLAN_MADE; ++i)
        planned = check_path(project->artifacts[i], why);
    if (planned != CLOUD_PLAN_MADE)
        return planned;
    if (bytes > FILES_BYTES_MAX || twin(paths, project->n_files) != NULL) {
        snprintf(why, WHY_MAX, "the project's files are too large, or one is there twice");
        return CLOUD_PLAN_REQUEST;
    }
    return CLOUD_PLAN_MADE;
}

static void plan_files(cloud_plan_t *plan, const Plimsoll__V1__ProjectRun *project, texts_t *directories)
{
    size_t from_len = strlen(plan->project_directory);
    texts_add(directories, plan->project_directory);
    for (size_t i = 0; i < project->n_files; ++i) {
        const char *path = join(plan, plan->project_directory, "/", project->files[i]->path);
        add_file(plan, (cloud_file_t){.path = path,
                                      .content = project->files[i]->content.data,
                                      .len = project->files[i]->content.len,
                                      .mode = MODE_FILE});
        add_parents(plan, directories, from_len, path);
    }
}

/* A script a step: an argument is limited to 128 KiB in many guests, and a file is not. */
static void plan_steps(cloud_plan_t *plan, const Plimsoll__V1__ProjectRun *project, texts_t *directories)
{
    texts_add(directories, plan->scripts_directory);
    plan->steps = mem_alloc_array(project->n_steps, sizeof(*plan->steps));
    for (size_t i = 0; i < project->n_steps; ++i) {
        char name[32];
        snprintf(name, sizeof(name), "step-%zu.sh", i + 1);
        const char *path = join(plan, plan->scripts_directory, "/", name);
        add_file(plan, (cloud_file_t){.path = path,
                                      .content = project->steps[i],
                                      .len = strlen(project->steps[i]),
                                      .mode = MODE_SCRIPT,
                                      .is_ours = true});
        add_step(plan, SHELL, path, plan->project_directory);
    }
}

static void plan_artifacts(cloud_plan_t *plan, const Plimsoll__V1__ProjectRun *project)
{
    plan->artifacts = mem_alloc_array(project->n_artifacts + 1, sizeof(*plan->artifacts));
    plan->artifact_paths = mem_alloc_array(project->n_artifacts + 1, sizeof(*plan->artifact_paths));
    for (size_t i = 0; i < project->n_artifacts; ++i) {
        plan->artifacts[i] = project->artifacts[i];
        plan->artifact_paths[i] = join(plan, plan->project_directory, "/", project->artifacts[i]);
    }
    plan->artifact_count = project->n_artifacts;
}

static cloud_planned_t plan_project(cloud_plan_t *plan, const cloud_layout_t *layout,
                                    const Plimsoll__V1__ProjectRun *project, char why[WHY_MAX])
{
    texts_t directories = {NULL, 0, 0};
    cloud_planned_t planned = check_project(project, why);
    if (planned != CLOUD_PLAN_MADE)
        return planned;
    place_all(plan, layout);
    plan->file_cap = project->n_files + project->n_steps;
    plan->files = mem_alloc_array(plan->file_cap, sizeof(*plan->files));
    plan->stream_max = CLOUD_STEP_STREAM_MAX;
    plan->output_max = CLOUD_OUTPUT_MAX;
    plan->artifacts_max = CLOUD_ARTIFACTS_MAX_BYTES;
    plan_files(plan, project, &directories);
    plan_steps(plan, project, &directories);
    plan_artifacts(plan, project);
    set_directories(plan, &directories);
    const char *both = file_that_is_a_directory(plan);
    if (both == NULL)
        return CLOUD_PLAN_MADE;
    snprintf(why, WHY_MAX, "%s is a file and a directory of other files", both + strlen(plan->project_directory) + 1);
    return CLOUD_PLAN_SETUP;
}

/* --- snippets --- */

void cloud_plan_snippet(cloud_plan_t *plan, const cloud_layout_t *layout, const char *code, size_t len)
{
    texts_t directories = {NULL, 0, 0};
    *plan = (cloud_plan_t){
        .file_cap = 1, .stream_max = CLOUD_SNIPPET_STREAM_MAX, .output_max = 2 * CLOUD_SNIPPET_STREAM_MAX};
    place_all(plan, layout);
    plan->files = mem_alloc_array(1, sizeof(*plan->files));
    plan->steps = mem_alloc_array(1, sizeof(*plan->steps));
    const char *path = join(plan, plan->project_directory, "/", SNIPPET_FILE);
    add_file(plan, (cloud_file_t){.path = path, .content = code, .len = len, .mode = MODE_FILE, .is_ours = true});
    add_step(plan, NODE, path, plan->project_directory);
    texts_add(&directories, plan->project_directory);
    set_directories(plan, &directories);
}

cloud_planned_t cloud_plan_make(cloud_plan_t *plan, const cloud_layout_t *layout,
                                const Plimsoll__V1__RunRequest *request, char why[WHY_MAX])
{
    *plan = (cloud_plan_t){.file_count = 0};
    why[0] = '\0';
    switch (request->payload_case) {
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_JAVASCRIPT:
        cloud_plan_snippet(plan, layout, request->javascript->code, strlen(request->javascript->code));
        return CLOUD_PLAN_MADE;
    case PLIMSOLL__V1__RUN_REQUEST__PAYLOAD_PROJECT:
        return plan_project(plan, layout, request->project, why);
    default:
        break;
    }
    snprintf(why, WHY_MAX, "this backend runs JavaScript snippets and projects only");
    return CLOUD_PLAN_UNSUPPORTED;
}

void cloud_plan_dispose(cloud_plan_t *plan)
{
    for (size_t i = 0; i < plan->_text_count; ++i)
        free(plan->_texts[i]);
    free(plan->_texts);
    free(plan->files);
    free(plan->directories);
    free(plan->steps);
    free(plan->artifacts);
    free(plan->artifact_paths);
    *plan = (cloud_plan_t){.file_count = 0};
}
