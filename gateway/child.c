#include "gateway/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/slice.h"

static void on_restart(loop_timer_t *timer)
{
    child_t *child = timer->data;
    child_start(child, timer->_loop);
}

void child_init(child_t *child, loop_t *loop)
{
    (void)loop;
    child->pause_ms = CHILD_PAUSE_MIN_MS;
    loop_timer_init(&child->restart, on_restart, child);
}

/* Runs in the new process: nothing but system calls, as the fork left locks behind. */
static void become(const child_t *child, int death_signal)
{
    enum { PARKED = 100 };
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, death_signal);
    /* first out of the way, then into place: source and target numbers may overlap */
    for (int i = 0; i < child->fd_count; i++)
        if (child->fds[i] >= 0 && dup2(child->fds[i], PARKED + i) < 0)
            _exit(127);
    for (int i = 0; i < child->fd_count; i++)
        if (child->fds[i] >= 0 && dup2(PARKED + i, 3 + i) < 0)
            _exit(127);
    close_range((unsigned)(3 + child->fd_count), ~0U, 0);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    if (child->quiet) {
        dup2(null, 1);
        dup2(null, 2);
    }
    if (null > 2)
        close(null);
    if (child->uid >= 0 && geteuid() == 0 &&
        (setgroups(0, NULL) != 0 || setresgid((gid_t)child->gid, (gid_t)child->gid, (gid_t)child->gid) != 0 ||
         setresuid((uid_t)child->uid, (uid_t)child->uid, (uid_t)child->uid) != 0))
        _exit(126);
    /* a change of user takes the death signal away */
    prctl(PR_SET_PDEATHSIG, death_signal);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    /* a run's way leads through several of these one after the other, and guests' code is busy meanwhile */
    slice_set(SLICE_SHORT_US, 0);
    /* a terminal's Ctrl-C goes to the whole group, a reload by name to every process of that name; both are the
     * parent's to act on */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (child->own_group)
        setpgid(0, 0);
    execvpe(child->program, child->argv, child->env);
    _exit(127);
}

static void pause_then_restart(child_t *child, loop_t *loop)
{
    loop_timer_start(loop, &child->restart, child->pause_ms);
    child->pause_ms = child->pause_ms * 2 < CHILD_PAUSE_MAX_MS ? child->pause_ms * 2 : CHILD_PAUSE_MAX_MS;
}

bool child_start(child_t *child, loop_t *loop)
{
    if (child->before_start != NULL)
        child->before_start(child);
    pid_t pid = fork();
    if (pid == 0)
        become(child, SIGTERM);
    if (child->after_start != NULL)
        child->after_start(child);
    if (pid < 0) {
        log_event(LOG_ERROR, "a process could not be started", log_str("process", child->name),
                  log_str("error", strerror(errno)));
        pause_then_restart(child, loop);
        return false;
    }
    child->pid = pid;
    child->started_ms = clock_mono_ms();
    log_event(LOG_INFO, child->deaths == 0 ? "process started" : "process restarted", log_str("process", child->name),
              log_int("pid", pid), log_uint("deaths", child->deaths));
    return true;
}

void child_ended(child_t *child, loop_t *loop, int status, bool final)
{
    bool signaled = WIFSIGNALED(status);
    child->pid = 0;
    if (final) {
        log_event(LOG_INFO, "process ended", log_str("process", child->name),
                  log_int(signaled ? "signal" : "status", signaled ? WTERMSIG(status) : WEXITSTATUS(status)));
        return;
    }
    child->deaths++;
    if (clock_mono_ms() - child->started_ms >= CHILD_STEADY_MS)
        child->pause_ms = CHILD_PAUSE_MIN_MS;
    log_event(LOG_ERROR, "process died", log_str("process", child->name),
              log_int(signaled ? "signal" : "status", signaled ? WTERMSIG(status) : WEXITSTATUS(status)),
              log_uint("restart_in_ms", child->pause_ms));
    pause_then_restart(child, loop);
}
