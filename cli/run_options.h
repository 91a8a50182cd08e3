/* The arguments of `plimsoll run`, of a file and of a project. */
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/connection.h"
#include "records/project_rules.h"

typedef struct {
    connection_options_t connection;
    const char *file;    /* "-" = standard input; NULL with a project */
    const char *project; /* its directory; NULL with a file */
    char *steps[STEPS_MAX], *artifacts[ARTIFACTS_MAX];
    size_t step_count, artifact_count;
    const char *out;        /* where artifacts are written; NULL = nowhere */
    const char *floor;      /* "" = none */
    const char *trace_id;   /* "" = none */
    const char *request_id; /* NULL = a fresh one */
    int32_t timeout_ms;     /* 0 = the backend's default */
    bool json, verbose, help;
} run_options_t;

/* false: a usage error, already told on stderr. Strings point into argv. */
bool run_options_parse(int argc, char **argv, run_options_t *options);

extern const char RUN_HELP[];

#endif
