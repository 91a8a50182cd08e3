#include "cli/demo_process.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "config/options.h"
#include "core/clock.h"

enum { LOG_TAIL_MAX = 4096, OPEN_DIRECTORIES = 16 };

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t ended_by_signal; /* at the next signal */
static volatile sig_atomic_t told_by_signal;  /* a second SIGTERM would mean "at once", which leaves things behind */

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
    if (ended_by_signal > 0) {
        kill((pid_t)ended_by_signal, SIGTERM);
        told_by_signal = ended_by_signal;
        ended_by_signal = 0;
    }
}

void demo_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

bool demo_was_interrupted(void)
{
    return interrupted != 0;
}

void demo_interrupt_ends(pid_t pid)
{
    ended_by_signal = pid;
}

void demo_sleep_ms(unsigned ms)
{
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&span, NULL);
}

/* The child after fork: only calls that are safe there. */
static void __attribute__((noreturn)) become(char *const *argv, char *const *env, int out_fd, pid_t parent)
{
    int null_fd = open("/dev/null", O_RDONLY);
    setpgid(0, 0); /* the terminal's Ctrl-C reaches the demo, which ends the others in order */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || null_fd < 0)
        _exit(127);
    signal(SIGPIPE, SIG_DFL);
    if (dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(out_fd, 2) < 0)
        _exit(127);
    execve(argv[0], argv, env);
    _exit(127);
}

pid_t demo_process_spawn(char *const *argv, char *const *env, const char *log_path)
{
    int out_fd = log_path != NULL ? open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
                                  : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    pid_t parent = getpid(), pid = -1;
    if (out_fd >= 0)
        pid = fork();
    if (pid == 0)
        become(argv, env, out_fd, parent);
    int error = errno;
    if (pid > 0)
        setpgid(pid, pid); /* whoever of the two comes first */
    if (out_fd >= 0)
        close(out_fd);
    errno = error;
    return pid > 0 ? pid : 0;
}

bool demo_process_has_ended(pid_t *pid, int *status)
{
    if (*pid == 0)
        return true;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)*pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
        return false;
    /* what it may have left of its group goes with it, before the group's number is free for others */
    kill(-*pid, SIGKILL);
    if (ended_by_signal == *pid)
        ended_by_signal = 0; /* before the number is free: the signal handler uses it */
    if (told_by_signal == *pid)
        told_by_signal = 0;
    waitpid(*pid, status, 0);
    *pid = 0;
    return true;
}

bool demo_process_end(pid_t *pid, const char *what, unsigned ms)
{
    if (*pid == 0)
        return true;
    uint64_t begun = clock_mono_ms();
    int status = 0;
    bool killed = false;
    demo_interrupt_ends(0);
    if (told_by_signal != *pid)
        kill(*pid, SIGTERM);
    while (!demo_process_has_ended(pid, &status)) {
        if (!killed && clock_mono_ms() - begun >= ms) {
            fprintf(stderr, "plimsoll demo: the %s did not stop within %u s and is killed\n", what, ms / 1000);
            kill(-*pid, SIGKILL);
            killed = true;
        }
        demo_sleep_ms(DEMO_POLL_MS);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    fprintf(stderr, "plimsoll demo: the %s ended with %s %d\n", what, WIFEXITED(status) ? "status" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return false;
}

/* ---- logs ---- */

/* "" when there is none. */
static void read_log(const char *path, char text[LOG_TAIL_MAX + 1])
{
    text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) > LOG_TAIL_MAX)
        fseek(file, -LOG_TAIL_MAX, SEEK_END);
    else
        rewind(file);
    text[fread(text, 1, LOG_TAIL_MAX, file)] = '\0';
    fclose(file);
}

void demo_process_show_log(const char *log_path, const char *what)
{
    char text[LOG_TAIL_MAX + 1];
    read_log(log_path, text);
    fprintf(stderr, "plimsoll demo: the end of the %s's log:\n", what);
    for (char *at = text, *next; at != NULL && *at != '\0'; at = next) {
        next = strchr(at, '\n');
        if (next != NULL)
            *next++ = '\0';
        fputs("  ", stderr);
        terminal_print(stderr, at);
        fputc('\n', stderr);
    }
}

bool demo_process_log_has(const char *log_path, const char *text)
{
    char tail[LOG_TAIL_MAX + 1];
    read_log(log_path, tail);
    return strstr(tail, text) != NULL;
}

/* ---- files ---- */

bool demo_process_find(const char *name, char out[DEMO_PATH_MAX])
{
    const char *const lists[] = {options_path(), "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const char *at = lists[i]; *at != '\0';) {
            size_t len = strcspn(at, ":");
            if (len != 0 && snprintf(out, DEMO_PATH_MAX, "%.*s/%s", (int)len, at, name) < DEMO_PATH_MAX &&
                out[0] == '/' && access(out, X_OK) == 0)
                return true;
            at += len + (at[len] == ':');
        }
    }
    return false;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

bool demo_remove_tree(const char *dir)
{
    return nftw(dir, remove_entry, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0;
}
