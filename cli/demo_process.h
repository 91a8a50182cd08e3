/* Processes a demo starts: each in a group of its own, with an environment of its own, ended in order and gone when the
 * demo is. A signal that asks the demo to end is noted here; the demo looks at it and cleans up. */
#ifndef CLI_DEMO_PROCESS_H
#define CLI_DEMO_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

enum {
    DEMO_POLL_MS = 50,
    DEMO_PROGRESS_MS = 3000, /* between lines that say what is waited for */
    DEMO_PATH_MAX = 4096,
};

/* SIGINT, SIGTERM and SIGHUP no longer end the demo; whether one came. */
void demo_catch_signals(void);
bool demo_was_interrupted(void);
/* What such a signal ends (SIGTERM) at once, so that nobody waits for it; 0 = nothing. */
void demo_interrupt_ends(pid_t pid);
void demo_sleep_ms(unsigned ms);

/* Starts the program argv[0], a path, with nothing on its stdin and its output in the file `log_path`, made anew, or on
 * this process's stderr when that is NULL. It gets SIGTERM when this process ends. 0 with errno set. */
pid_t demo_process_spawn(char *const *argv, char *const *env, const char *log_path);
/* Whether it has ended; then *status is its wait status, *pid is 0, and what was left of its group is killed. */
bool demo_process_has_ended(pid_t *pid, int *status);
/* SIGTERM, at most `ms`, SIGKILL for the group. True when it ended with status 0 by itself; otherwise says how, calling
 * it `what`. */
bool demo_process_end(pid_t *pid, const char *what, unsigned ms);
/* The end of a log, for a person to find the reason in. */
void demo_process_show_log(const char *log_path, const char *what);
/* Whether the end of a log has this text. */
bool demo_process_log_has(const char *log_path, const char *text);

/* The program's path by its name, from PATH and the folders of administrators' programs; false when there is none. */
bool demo_process_find(const char *name, char out[DEMO_PATH_MAX]);
/* Removes a directory with all that is below it, on this file system alone; false with errno. */
bool demo_remove_tree(const char *dir);

#endif
