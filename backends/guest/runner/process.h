/*
 * Processes of the guest: started with pipes for their streams, a session of their own and the guests' environment, and
 * ended all together. The runner is PID 1: what it reaps is every process there is (spec backend-docker 2.2).
 */
#ifndef BACKENDS_GUEST_RUNNER_PROCESS_H
#define BACKENDS_GUEST_RUNNER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    /* Spec 2.2: 50 rounds of 20 ms. A round that reaped something is progress and does not count, so a sandbox full of
     * processes on a busy machine is given longer, up to the second bound. */
    PROCESS_ROUNDS = 50,
    PROCESS_ROUND_MS = 20,
    PROCESS_KILL_MS = 3000,
};

typedef struct {
    char **env;            /* NULL-terminated */
    const char *directory; /* where guests start */
    int signals;           /* a signalfd of SIGCHLD, non-blocking */
    bool is_among_others;  /* not PID 1: only its own children are ended, and what they leave becomes them */
} process_world_t;

typedef struct {
    pid_t pid;        /* 0 = none */
    int in, out, err; /* our ends, non-blocking; -1 = none */
    bool has_ended;
    int status; /* of waitpid */
} process_t;

/* Blocks every signal and makes world->signals. NULL, or what failed. */
const char *process_init(process_world_t *world);
/* argv[0] is looked for in the PATH of the guests' environment unless it holds a slash. Without input, stdin is
 * /dev/null. 0, or errno; nothing is left over then. */
int process_start(process_world_t *world, process_t *process, char *const argv[], bool has_input);
/* The same set-up around a function of our own, in a forked child. `prepare` runs first and forgets the runner's
 * secrets. */
int process_fork(process_world_t *world, process_t *process, void (*prepare)(void *data), int (*run)(void *data),
                 void *data);
/* Reaps what has ended. True when the process itself has ended, now or before. */
bool process_reap(process_world_t *world, process_t *process);
/* Ends every process but the caller, or, among others, all its children come from. false: some would not end. `process`
 * (may be NULL) takes its status. */
bool process_kill_all(process_world_t *world, process_t *process);
void process_close(process_t *process);

/* CLOCK_MONOTONIC. */
uint64_t process_now_us(void);

#endif
