/*
 * What is to be done for one run, the same for every provider: which files with which bytes under which absolute paths,
 * which commands, which artifacts. Made of the request alone; borrows its bytes.
 */
#ifndef BACKENDS_CLOUD_CLOUD_PLAN_H
#define BACKENDS_CLOUD_CLOUD_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/guest/host.h"
#include "records/plimsoll.pb-c.h"

enum {
    CLOUD_PATH_MAX = 240, /* bytes of a caller's path at a provider (spec backend-e2b 3.3) */
    CLOUD_ARGV_MAX = 8,
    CLOUD_SNIPPET_STREAM_MAX = 64 * 1024,        /* kept of each stream of a snippet */
    CLOUD_STEP_STREAM_MAX = 1024 * 1024,         /* and of each of a step's */
    CLOUD_OUTPUT_MAX = 3 * 1024 * 1024,          /* of all steps together */
    CLOUD_ARTIFACTS_MAX_BYTES = 8 * 1024 * 1024, /* of all artifacts */
    CLOUD_EXIT_FLOOD = 153,                      /* 128 + SIGXFSZ: output past what is carried at all */
};

/* Where things lie in the guest. Literals; absolute, without a slash at the end; a '*' stands for 32 random hex digits,
 * the same in both, which nobody else has. */
typedef struct {
    const char *project; /* "/home/user/project": the working directory, of snippets too */
    const char *scripts; /* "/home/user/.gw-*": of what is ours and no file of the project */
} cloud_layout_t;

typedef struct {
    const char *path; /* absolute */
    const void *content;
    size_t len;
    unsigned mode; /* 0644, or 0755 of a script */
    bool is_ours;  /* a script or the snippet, no file of the caller's */
} cloud_file_t;

typedef struct {
    const char *argv[CLOUD_ARGV_MAX + 1]; /* NULL-terminated */
    size_t argc;
    const char *cwd;
} cloud_command_t;

typedef struct {
    const char *project_directory, *scripts_directory; /* of the layout */
    cloud_file_t *files;                               /* the caller's in its order, then ours */
    size_t file_count, file_cap;
    const char **directories; /* all that must exist, parents first, each once; the project directory is among them */
    size_t directory_count;
    cloud_command_t *steps; /* a snippet is one: node FILE; a project's are /bin/sh FILE */
    size_t step_count;
    const char **artifacts;      /* as asked */
    const char **artifact_paths; /* absolute */
    size_t artifact_count;
    uint32_t stream_max, output_max, artifacts_max;
    uint64_t bytes; /* of all files */
    char **_texts;  /* owned */
    size_t _text_count, _text_cap;
} cloud_plan_t;

typedef enum {
    CLOUD_PLAN_MADE,
    CLOUD_PLAN_REQUEST,     /* the request is wrong for any wall */
    CLOUD_PLAN_UNSUPPORTED, /* within the protocol, and not for this kind of wall: a path that is too long or has a
                               quote in it */
    CLOUD_PLAN_SETUP, /* the files cannot all exist (one is the directory of another): the project's own fault, outcome
                         setup_failed */
} cloud_planned_t;

/* `why` is a text for the caller, without any of its bytes but a path. Dispose of the plan whatever came. */
cloud_planned_t cloud_plan_make(cloud_plan_t *plan, const cloud_layout_t *layout,
                                const Plimsoll__V1__RunRequest *request, char why[CLOUD_PATH_MAX + 128]);
/* Of a snippet of our own: a wall's trial of itself. `code` is borrowed. */
void cloud_plan_snippet(cloud_plan_t *plan, const cloud_layout_t *layout, const char *code, size_t len);
void cloud_plan_dispose(cloud_plan_t *plan);

#endif
