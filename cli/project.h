/* A directory as a project: its files' paths and contents, as the protocol takes them. The walk is bounded, follows no
 * symbolic link and stops at the first thing a project cannot hold, naming it. */
#ifndef CLI_PROJECT_H
#define CLI_PROJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "records/plimsoll.pb-c.h"
#include "records/project_rules.h"

enum {
    PROJECT_ERROR_MAX = 1536,   /* a path and what is wrong with it */
    PROJECT_DEPTH_MAX = 64,     /* directories in directories; each takes a descriptor while it is read */
    PROJECT_ENTRIES_MAX = 10000 /* names looked at, directories included */
};

typedef struct {
    Plimsoll__V1__ProjectFile **files; /* in the order of their paths' bytes */
    size_t count, bytes;
} project_t;

/* Every regular file below `dir`, left out what is below a directory called .git or node_modules. false with the
 * reason; `project` is then empty. */
bool project_read(const char *dir, project_t *project, char why[PROJECT_ERROR_MAX]);
void project_dispose(project_t *project);
/* What is wrong with the path of a file or artifact; NULL when nothing is. */
const char *project_path_problem(const char *path);

#endif
