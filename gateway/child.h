/* A process the parent keeps alive: started, watched for its end, started again after a pause that grows while it keeps
 * dying. */
#ifndef GATEWAY_CHILD_H
#define GATEWAY_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/loop.h"

enum {
    CHILD_PAUSE_MIN_MS = 100,
    CHILD_PAUSE_MAX_MS = 5000,
    CHILD_STEADY_MS = 60 * 1000, /* alive this long: the next death is a first one again */
    CHILD_FDS_MAX = 4,
};

typedef struct child {
    const char *name;    /* for the log */
    const char *program; /* path, or a name looked up in PATH when it has no slash */
    char *const *argv;
    char *const *env;
    int fds[CHILD_FDS_MAX]; /* become descriptors 3, 4, ... there */
    int fd_count;
    bool quiet;     /* stdout and stderr to /dev/null */
    bool own_group; /* a terminal sends it nothing: for a program that takes SIGINT */
    int uid, gid;   /* taken before the exec when >= 0 and this process is root */
    pid_t pid;      /* 0 = not running */
    uint64_t started_ms;
    uint32_t pause_ms;
    unsigned deaths;
    loop_timer_t restart;
    void (*before_start)(struct child *child); /* may replace fds; may be NULL */
    void (*after_start)(struct child *child);  /* may close its own copies of them; may be NULL */
    void *data;
} child_t;

void child_init(child_t *child, loop_t *loop);
/* false: it could not be started (logged); tried again after the pause. */
bool child_start(child_t *child, loop_t *loop);
/* It ended, with this wait status: logs how. Starts it again after a pause unless `final`. */
void child_ended(child_t *child, loop_t *loop, int status, bool final);

#endif
