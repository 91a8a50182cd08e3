#include "cli/demo_engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/demo_process.h"
#include "cli/exchange.h"
#include "config/docker.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/mem.h"

enum {
    ASK_MS = 10 * 1000,
    ARGUMENTS_MAX = 24,
    LINE_MAX_BYTES = 8192, /* of /proc/self/mountinfo */
    GROUP_PATH_MAX = 512,
    GROUP_DEPTH = 2, /* the Engine's, a container's, one more */
    GROUP_TRIES = 40,
};

struct demo_engine {
    char socket[DOCKER_SOCKET_MAX + 1];
    bool is_ours, has_gvisor;
    pid_t pid;
    char dir[64], name[32], log_path[96];
};

/* ---- what it says ---- */

/* GET of the Engine's API: the answer's JSON, or NULL. */
static json_t *ask(const demo_engine_t *engine, const char *path, int *status)
{
    char url[512];
    exchange_t exchange;
    json_t *answer = NULL;
    snprintf(url, sizeof(url), "http://engine%s", path);
    exchange_request_t asked = {.url = url, .whole_ms = ASK_MS, .unix_socket = engine->socket};
    exchange_perform(&asked, &exchange);
    *status = exchange.outcome == EXCHANGE_DONE ? exchange.status : 0;
    if (*status == 200 && exchange.body.len != 0)
        answer = json_loadb((const char *)exchange.body.base, exchange.body.len, JSON_ALLOW_NUL, NULL);
    exchange_dispose(&exchange);
    return answer;
}

static bool answers(const demo_engine_t *engine)
{
    int status;
    json_decref(ask(engine, "/_ping", &status));
    return status == 200;
}

static bool knows_gvisor(const demo_engine_t *engine)
{
    int status;
    json_t *info = ask(engine, "/info", &status);
    bool has = json_object_get(json_object_get(info, "Runtimes"), "runsc") != NULL;
    json_decref(info);
    return has;
}

bool demo_engine_has_image(const demo_engine_t *engine, const char *name)
{
    char path[256];
    int status;
    snprintf(path, sizeof(path), "/images/%s/json", name);
    json_decref(ask(engine, path, &status));
    return status == 200;
}

const char *demo_engine_socket(const demo_engine_t *engine)
{
    return engine->socket;
}

bool demo_engine_has_gvisor(const demo_engine_t *engine)
{
    return engine->has_gvisor;
}

/* 0 when somebody listens there, else why not. */
static int try_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;
    if (fd < 0)
        return errno;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        error = errno;
    close(fd);
    return error;
}

/* ---- one of our own ---- */

static bool write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    bool ok = fputs(text, file) != EOF;
    return fclose(file) == 0 && ok;
}

/* What an Engine of our own needs; false with what is missing told. */
static bool find_programs(char dockerd[DEMO_PATH_MAX], char runsc[DEMO_PATH_MAX], bool *has_runsc)
{
    static const char *const needed[] = {"containerd", "containerd-shim-runc-v2", "runc"};
    char path[DEMO_PATH_MAX];
    if (geteuid() != 0) {
        fputs("plimsoll demo: to start an Engine of its own this must be run as root\n", stderr);
        return false;
    }
    if (!demo_process_find("dockerd", dockerd)) {
        fputs("plimsoll demo: there is no dockerd here either (Debian: apt-get install docker.io runsc)\n", stderr);
        return false;
    }
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (!demo_process_find(needed[i], path)) {
            fprintf(stderr, "plimsoll demo: dockerd is here, but %s is not (Debian: apt-get install docker.io)\n",
                    needed[i]);
            return false;
        }
    }
    *has_runsc = demo_process_find("runsc", runsc);
    return true;
}

static bool write_config(const char *path, const char *runsc, bool has_runsc)
{
    json_t *config = has_runsc ? json_pack("{s:{s:{s:s,s:[s]}}}", "runtimes", "runsc", "path", runsc, "runtimeArgs",
                                           "--network=none")
                               : json_object();
    char *text = json_dumps(config, 0);
    json_decref(config);
    if (text == NULL)
        mem_fatal("out of memory");
    bool ok = write_file(path, text);
    free(text);
    return ok;
}

static bool spawn(demo_engine_t *engine, char *dockerd, const char *config)
{
    char data[96], exec[96], host[DOCKER_SOCKET_MAX + 16], pidfile[96], group[48], plugins[48];
    char *env[] = {(char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    snprintf(data, sizeof(data), "%s/data", engine->dir);
    snprintf(exec, sizeof(exec), "%s/exec", engine->dir);
    snprintf(host, sizeof(host), "unix://%s", engine->socket);
    snprintf(pidfile, sizeof(pidfile), "%s/pid", engine->dir);
    snprintf(group, sizeof(group), "/%s", engine->name);
    snprintf(plugins, sizeof(plugins), "%s-plugins", engine->name);
    char *argv[ARGUMENTS_MAX] = {dockerd,
                                 (char *)"--data-root",
                                 data,
                                 (char *)"--exec-root",
                                 exec,
                                 (char *)"-H",
                                 host,
                                 (char *)"--pidfile",
                                 pidfile,
                                 (char *)"--config-file",
                                 (char *)config,
                                 (char *)"--bridge=none",
                                 (char *)"--iptables=false",
                                 (char *)"--ip6tables=false",
                                 (char *)"--exec-opt=native.cgroupdriver=cgroupfs",
                                 (char *)"--cgroup-parent",
                                 group,
                                 (char *)"--containerd-namespace",
                                 engine->name,
                                 (char *)"--containerd-plugins-namespace",
                                 plugins,
                                 (char *)"--shutdown-timeout=2",
                                 NULL};
    engine->pid = demo_process_spawn(argv, env, engine->log_path);
    if (engine->pid == 0)
        fprintf(stderr, "plimsoll demo: cannot start %s: %s\n", dockerd, strerror(errno));
    return engine->pid != 0;
}

static bool wait_until_up(demo_engine_t *engine)
{
    uint64_t begun = clock_mono_ms(), told = begun;
    int status;
    while (clock_mono_ms() - begun < DEMO_ENGINE_UP_MS) {
        if (demo_was_interrupted())
            return false;
        if (demo_process_has_ended(&engine->pid, &status)) {
            fputs("plimsoll demo: the Engine ended at its start\n", stderr);
            demo_process_show_log(engine->log_path, "Engine");
            return false;
        }
        if (try_socket(engine->socket) == 0 && answers(engine)) {
            fprintf(stderr, "plimsoll demo: the Engine is up after %.1f s\n", (double)(clock_mono_ms() - begun) / 1000);
            return true;
        }
        if (clock_mono_ms() - told >= DEMO_PROGRESS_MS) {
            told = clock_mono_ms();
            fprintf(stderr, "plimsoll demo: waiting for the Engine, %.0f s so far\n", (double)(told - begun) / 1000);
        }
        demo_sleep_ms(DEMO_POLL_MS);
    }
    fprintf(stderr, "plimsoll demo: the Engine did not answer within %d s\n", DEMO_ENGINE_UP_MS / 1000);
    demo_process_show_log(engine->log_path, "Engine");
    return false;
}

static bool start_own(demo_engine_t *engine)
{
    char dockerd[DEMO_PATH_MAX], runsc[DEMO_PATH_MAX], config[96];
    bool has_runsc;
    if (!find_programs(dockerd, runsc, &has_runsc))
        return false;
    strcpy(engine->dir, "/tmp/plimsoll-engine-XXXXXX");
    if (mkdtemp(engine->dir) == NULL || chmod(engine->dir, 0711) != 0) { /* the gateway's processes reach the socket */
        fprintf(stderr, "plimsoll demo: cannot make a directory in /tmp: %s\n", strerror(errno));
        return false;
    }
    engine->is_ours = true;
    snprintf(engine->name, sizeof(engine->name), "%s", engine->dir + strlen("/tmp/"));
    snprintf(engine->socket, sizeof(engine->socket), "%s/docker.sock", engine->dir);
    snprintf(engine->log_path, sizeof(engine->log_path), "%s/log", engine->dir);
    snprintf(config, sizeof(config), "%s/daemon.json", engine->dir);
    if (!write_config(config, runsc, has_runsc)) {
        fprintf(stderr, "plimsoll demo: cannot write %s: %s\n", config, strerror(errno));
        return false;
    }
    fprintf(stderr, "plimsoll demo: starting an Engine of its own in %s\n", engine->dir);
    return spawn(engine, dockerd, config) && wait_until_up(engine);
}

demo_engine_t *demo_engine_start(void)
{
    problems_t problems = {0};
    options_load_role(ROLE_CLI, &problems, NULL);
    problems_dispose(&problems);
    demo_engine_t *engine = mem_alloc(sizeof(*engine));
    const char *path = docker_socket_path();
    int error = strlen(path) > DOCKER_SOCKET_MAX ? ENAMETOOLONG : try_socket(path);
    snprintf(engine->socket, sizeof(engine->socket), "%s", path);
    if (error == 0 && answers(engine)) {
        fprintf(stderr, "plimsoll demo: using the Engine at %s\n", engine->socket);
    } else if (error == EACCES || error == EPERM) {
        fprintf(
            stderr,
            "plimsoll demo: there is an Engine at %s which this user may not use: join the group of that socket, or "
            "run this as root\n",
            engine->socket);
        goto Fail;
    } else {
        fprintf(stderr, "plimsoll demo: no Engine answers at %s (%s)\n", engine->socket,
                error != 0 ? strerror(error) : "it does not speak the Engine's API");
        if (!start_own(engine))
            goto Fail;
    }
    engine->has_gvisor = knows_gvisor(engine);
    return engine;
Fail:
    demo_engine_stop(engine);
    return NULL;
}

/* ---- its end ---- */

/* What our own Engine left running has our directory, a name nobody else has, in its command line. */
static void kill_rest(const demo_engine_t *engine)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        char path[300], line[4096];
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 1 || pid == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "re");
        size_t len = file != NULL ? fread(line, 1, sizeof(line), file) : 0;
        if (file != NULL)
            fclose(file);
        if (memmem(line, len, engine->name, strlen(engine->name)) != NULL)
            kill(pid, SIGKILL);
    }
    if (proc != NULL)
        closedir(proc);
}

/* The field's octal escapes (proc(5)) are those of blanks and backslashes, which our own paths have none of. */
static void unmount_rest(const demo_engine_t *engine)
{
    for (bool again = true; again;) {
        char line[LINE_MAX_BYTES], point[DEMO_PATH_MAX];
        FILE *file = fopen("/proc/self/mountinfo", "re");
        size_t len = strlen(engine->dir);
        again = false;
        while (file != NULL && !again && fgets(line, sizeof(line), file) != NULL)
            again = sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 && strncmp(point, engine->dir, len) == 0 &&
                    point[len] == '/' && umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW) == 0;
        if (file != NULL)
            fclose(file);
    }
}

static void kill_members(const char *group)
{
    char path[GROUP_PATH_MAX + 16];
    int pid;
    snprintf(path, sizeof(path), "%s/cgroup.procs", group);
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        if (pid > 1)
            kill(pid, SIGKILL);
    if (file != NULL)
        fclose(file);
}

/* A control group and those in it: of containers the Engine did not get to remove. Whether it is gone. */
static bool remove_group(const char *group, int depth)
{
    char path[GROUP_PATH_MAX];
    DIR *dir = opendir(group);
    const struct dirent *entry;
    if (dir == NULL)
        return errno == ENOENT;
    kill_members(group);
    while (depth < GROUP_DEPTH && (entry = readdir(dir)) != NULL)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
            snprintf(path, sizeof(path), "%s/%s", group, entry->d_name) < (int)sizeof(path))
            remove_group(path, depth + 1);
    closedir(dir);
    return rmdir(group) == 0;
}

/* In whichever hierarchies there are. */
static bool remove_groups(const demo_engine_t *engine)
{
    static const char root[] = "/sys/fs/cgroup";
    char path[GROUP_PATH_MAX];
    bool all = true;
    DIR *dir = opendir(root);
    const struct dirent *entry;
    snprintf(path, sizeof(path), "%s/%s", root, engine->name);
    all = remove_group(path, 0);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s/%s", root, entry->d_name, engine->name);
        all = (remove_group(path, 0) || errno == ENOTDIR) && all;
    }
    if (dir != NULL)
        closedir(dir);
    return all;
}

bool demo_engine_stop(demo_engine_t *engine)
{
    bool clean = true;
    if (engine->is_ours) {
        fputs("plimsoll demo: ending the Engine\n", stderr);
        clean = demo_process_end(&engine->pid, "Engine", DEMO_ENGINE_STOP_MS);
        kill_rest(engine);
        unmount_rest(engine);
        /* a process that was killed leaves its group in a moment */
        for (int i = 0; !remove_groups(engine) && i < GROUP_TRIES; i++)
            demo_sleep_ms(DEMO_POLL_MS);
        if (!demo_remove_tree(engine->dir)) {
            fprintf(stderr, "plimsoll demo: cannot remove %s: %s\n", engine->dir, strerror(errno));
            clean = false;
        }
    }
    free(engine);
    return clean;
}
