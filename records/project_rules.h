/* What a project may be (spec protocol 2.5), for both ends. */
#ifndef RECORDS_PROJECT_RULES_H
#define RECORDS_PROJECT_RULES_H

enum {
    STEPS_MAX = 20,
    STEP_BYTES_MAX = 16 * 1024,
    FILES_MAX = 200,
    FILES_BYTES_MAX = 4 * 1024 * 1024, /* all contents together */
    ARTIFACTS_MAX = 100,
    PATH_BYTES_MAX = 1024,
};

/* The first rule a file's or artifact's path breaks, in this order. */
typedef enum {
    PATH_HOLDS,
    PATH_LENGTH,    /* it takes 1 to PATH_BYTES_MAX bytes */
    PATH_ENCODING,  /* UTF-8 */
    PATH_SEGMENTS,  /* relative, without empty, . and .. segments */
    PATH_CHARACTERS /* no backslash, no control character (U+0000 to U+001F, U+007F to U+009F) */
} path_rule_t;
path_rule_t path_check(const char *path);

#endif
