#include "backends/docker/smoke_look.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/container.h"
#include "backends/docker/evidence_file.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"

enum {
    LOOK_PAUSE_MS = 50,
    /* From when the runner has the job until the last look began. A probe names itself in its first call. */
    LOOK_SPAN_US = 150 * 1000,
};

static const evidence_host_t *host_of(const smoke_look_t *look)
{
    const evidence_host_t *host = look->_box->test->want->host;
    return host != NULL ? host : &EVIDENCE_HOST;
}

static bool is_probing(const smoke_look_t *look)
{
    const smoke_launcher_t *launcher = &look->_box->test->want->launcher;
    return guest_state(launcher->guest(look->_box->sandbox)) == GUEST_ACCEPTED;
}

static void count_tasks(smoke_look_t *look, uint64_t began_us)
{
    const smoke_launcher_t *launcher = &look->_box->test->want->launcher;
    evidence_tasks_t found;
    if (!evidence_tasks(host_of(look), launcher->pid(look->_box->sandbox), launcher->container_id(look->_box->sandbox),
                        CONTAINER_RUNNER, look->_name, &found, look->_why))
        return;
    if (look->_is_over || !is_probing(look))
        return; /* it ended in between: what is not there any more proves nothing */
    look->tasks.saw_sandbox = look->tasks.saw_sandbox || found.saw_sandbox;
    if (found.by_name == 0 && found.by_program == 0 && !found.saw_sandbox)
        return; /* its end may be on the way here: the same */
    ++look->_looks;
    look->_last_us = began_us;
    look->tasks.by_program = found.by_program > look->tasks.by_program ? found.by_program : look->tasks.by_program;
    look->tasks.by_name = found.by_name > look->tasks.by_name ? found.by_name : look->tasks.by_name;
}

static void look_main(void *arg)
{
    smoke_look_t *look = arg;
    while (!look->_is_over) {
        if (is_probing(look)) {
            uint64_t began_us = clock_mono_us();
            if (look->_first_us == 0)
                look->_first_us = began_us;
            count_tasks(look, began_us);
        }
        if (co_sleep(LOOK_PAUSE_MS) == CO_CANCELED)
            break;
    }
}

static void on_look_end(void *arg)
{
    smoke_look_t *look = arg;
    look->_co = NULL;
    if (look->_waiter != NULL)
        co_wake(look->_waiter);
}

void smoke_look_begin(smoke_look_t *look, const smoke_box_t *box, const char *name)
{
    const smoke_launcher_t *launcher = &box->test->want->launcher;
    const evidence_runtime_t *runtime = &box->test->want->preflight->runtime;
    const char *id = launcher->container_id(box->sandbox);
    int pid = launcher->pid(box->sandbox);
    memset(look, 0, sizeof(*look));
    look->_box = box;
    look->_name = name;
    look->has_limits = evidence_limits(host_of(look), pid, id, &look->limits, look->limits_why);
    look->kernel = EVIDENCE_UNSEEN;
    if (runtime->is_gvisor)
        look->kernel = evidence_sandbox_process(host_of(look), runtime, pid, id, look->kernel_why);
    look->_co = co_start(co_loop(co_self()), look_main, look, on_look_end);
}

/* E4, where E3 holds. */
static void conclude(smoke_look_t *look)
{
    const evidence_tasks_t *tasks = &look->tasks;
    if (tasks->by_program > 0 || tasks->by_name > 0) {
        look->kernel = EVIDENCE_REFUTED;
        snprintf(look->kernel_why, sizeof(look->kernel_why), "the guest's own program runs on this machine's kernel");
    } else if (look->_first_us != 0 && !tasks->saw_sandbox) {
        look->kernel = EVIDENCE_UNSEEN;
        snprintf(look->kernel_why, sizeof(look->kernel_why),
                 "the sandbox's process is hidden from this one: is /proc mounted with hidepid?");
    } else if (look->_looks == 0 || look->_last_us - look->_first_us < LOOK_SPAN_US) {
        look->is_undecided = true;
        snprintf(look->kernel_why, sizeof(look->kernel_why),
                 "E4: the machine's processes could not be looked through while the probe ran%s%.100s",
                 look->_why[0] != '\0' ? ": " : "", look->_why);
    }
}

void smoke_look_end(smoke_look_t *look)
{
    const evidence_tasks_t *tasks = &look->tasks;
    look->_is_over = true;
    look->_waiter = co_self();
    /* It ends by itself within one look and one pause; what it points to must not go before. */
    co_shield_begin();
    while (look->_co != NULL)
        co_wait(UINT64_MAX);
    co_shield_end();
    look->_waiter = NULL;
    if (look->_box->test->want->preflight->runtime.is_gvisor) {
        if (look->kernel == EVIDENCE_HOLDS)
            conclude(look);
    } else if (look->_looks > 0 && (tasks->by_name == 0 || (tasks->saw_sandbox && tasks->by_program == 0))) {
        /* The other half of the contrast: under runc the same look finds them, or it is no look at this machine. */
        log_event(LOG_WARN, "guest tasks not seen", log_int("by_program", tasks->by_program),
                  log_int("by_name", tasks->by_name));
    }
}

/* Without accounting for swap, only a machine without swap keeps memory in its limit. A heading stands first. */
static bool has_machine_swap(void)
{
    char text[1024];
    ssize_t len = evidence_file_read("/proc/swaps", text, sizeof(text));
    const char *line = len > 0 ? strchr(text, '\n') : NULL;
    return line == NULL || line[1] != '\0';
}

bool smoke_look_judge_limits(const evidence_limits_t *limits, const docker_promise_t *promise,
                             char why[BACKEND_TEXT_MAX])
{
    if (limits->pids_max != promise->pids) {
        snprintf(why, BACKEND_TEXT_MAX, "S10: the container's process limit on this machine is not %u",
                 (unsigned)promise->pids);
        return false;
    }
    if (limits->memory_max != promise->memory_bytes) {
        snprintf(why, BACKEND_TEXT_MAX, "S11: the container's memory limit on this machine is not %llu",
                 (unsigned long long)promise->memory_bytes);
        return false;
    }
    if (limits->has_swap_limit) {
        if (limits->memory_and_swap_max == promise->memory_bytes)
            return true;
        snprintf(why, BACKEND_TEXT_MAX, "S11: the container may use swap beyond its memory limit");
        return false;
    }
    snprintf(why, BACKEND_TEXT_MAX,
             "S11: this kernel does not limit swap, and the machine has some: turn it off, or start the kernel with "
             "swapaccount=1");
    return !has_machine_swap();
}
