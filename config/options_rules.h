/* What must hold between rows. Each rule adds its own problems, so all are told at once. */
#ifndef CONFIG_OPTIONS_RULES_H
#define CONFIG_OPTIONS_RULES_H

#include <stdint.h>

#include "config/options.h"

enum {
    /* A Unix socket's path has 108 bytes with its NUL (unix(7)); 27 are left for the name of one in the state
       directory. */
    STATE_DIR_MAX = 108 - 1 - 27,
};

void options_rules(problems_t *problems);

/* What fits into SANDBOX_TOTAL_MEMORY_MB (spec section 3.2): (total - sandboxes kept started) / memory of a
 * run - pooled sessions. INT64_MAX when there is no
 * total or no enabled backend runs on this machine; may be below 1. */
int64_t options_memory_fit(void);
/* What PLIMSOLL_INSTALLATION takes: part of every key's name, hash tag and channel. */
enum { INSTALLATION_NAME_MAX = 32 };
bool is_installation_name(const char *text);
/* A number of processors: digits with at most one point, above 0 and at most 1024. */
bool is_cpu_count(const char *text);

#endif
