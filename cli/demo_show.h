/* How a demo speaks: what it expects of each step, whether that held, and a table at the end. */
#ifndef CLI_DEMO_SHOW_H
#define CLI_DEMO_SHOW_H

#include <stdbool.h>

#include "cli/connection.h"
#include "cli/table.h"

typedef struct {
    const connection_t *connection;
    table_t *table;
    bool all_held;
} demo_t;

/* One expectation, told as it came out. */
void demo_expect(demo_t *demo, bool holds, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "name: text", made safe for a terminal. */
void demo_say(const char *name, const char *text);
/* What `plimsoll demo --docker` shows; the exit status. */
int demo_docker(void);

#endif
