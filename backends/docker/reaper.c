#include "backends/docker/reaper.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/docker/docker_internal.h"
#include "backends/meters.h"
#include "core/clock.h"
#include "core/co.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/watch.h"

enum {
    REAPER_MAGIC = 0x72656170,
    LIVENESS_BACKLOG = 64,
    INSTANCE_MAX = 64, /* bytes of another gateway's instance that are believed */
    EXPIRES_MAX = 20,
};

struct reaper {
    unsigned magic;
    docker_t *docker;
    int fd;
    watch_t *watch;
    co_t *co;
    co_t *waiter;
    bool is_ending;
    bool is_away; /* the Engine, at the last look */
};

/* --- the liveness socket: abstract (unix(7)), so that nothing of it can outlive the process --- */

static socklen_t liveness_address(const char *instance, struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    int len = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "plimsoll-docker-%s", instance);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static int liveness_open(const char *instance)
{
    struct sockaddr_un address;
    socklen_t len = liveness_address(instance, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, LIVENESS_BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Only a refusal says that nobody is there; whatever else may be wrong, the container stays. */
bool reaper_is_alive(const char *instance)
{
    struct sockaddr_un address;
    socklen_t len = liveness_address(instance, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true;
    bool is_refused = connect(fd, (struct sockaddr *)&address, len) != 0 && errno == ECONNREFUSED;
    close(fd);
    return !is_refused;
}

static bool is_alive(void *data, const char *instance)
{
    (void)data;
    return reaper_is_alive(instance);
}

static void on_liveness(void *data, unsigned events)
{
    reaper_t *reaper = data;
    int fd;
    (void)events;
    /* Being accepted is all the answer there is. */
    while ((fd = accept4(reaper->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(fd);
}

/* --- what is due (spec 1.10) --- */

static bool is_word(const char *text, size_t max)
{
    size_t len = strlen(text);
    return len > 0 && len <= max && strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz-") == len;
}

static bool parse_expires(const char *text, int64_t *out)
{
    size_t len = strlen(text);
    if (len == 0 || len > EXPIRES_MAX - 2 || strspn(text, "0123456789") != len)
        return false;
    *out = strtoll(text, NULL, 10);
    return true;
}

/* The container's name without the Engine's slash, its ID when it has none any more (its removal has begun), or NULL
 * when it is no gateway's name. */
static const char *name_of(const json_t *entry, bool *is_nameless)
{
    const json_t *names = json_object_get(entry, "Names");
    const char *name = json_string_value(json_array_get(names, 0));
    *is_nameless = json_is_array(names) && json_array_size(names) == 0;
    if (*is_nameless)
        return json_string_value(json_object_get(entry, "Id"));
    if (json_array_size(names) != 1 || name == NULL || name[0] != '/')
        return NULL;
    ++name;
    return strncmp(name, REAPER_NAME_PREFIX, sizeof(REAPER_NAME_PREFIX) - 1) == 0 && strlen(name) < ENGINE_NAME_MAX
               ? name
               : NULL;
}

/* Another installation's is not ours to judge, whatever its other labels say. Without the label it is nobody's in
 * particular: made while the identity was not known, or before there was one. */
static bool is_foreign(const json_t *labels, const reaper_view_t *view)
{
    const char *label = json_string_value(json_object_get(labels, "sbx.installation"));
    return label != NULL && label[0] != '\0' && (view->installation == NULL || strcmp(label, view->installation) != 0);
}

bool reaper_is_due(const json_t *entry, const reaper_view_t *view, const char **name, const char **id)
{
    const json_t *labels = json_object_get(entry, "Labels");
    const char *gateway = json_string_value(json_object_get(labels, "sbx.gateway"));
    const char *instance = json_string_value(json_object_get(labels, "sbx.instance"));
    const char *host = json_string_value(json_object_get(labels, "sbx.host"));
    const char *expires = json_string_value(json_object_get(labels, "sbx.expires"));
    int64_t expires_s;
    bool is_nameless;

    *name = name_of(entry, &is_nameless);
    *id = json_string_value(json_object_get(entry, "Id"));
    if (*name == NULL || *id == NULL || gateway == NULL || strcmp(gateway, "1") != 0 || instance == NULL ||
        !is_word(instance, INSTANCE_MAX) || expires == NULL || !parse_expires(expires, &expires_s))
        return false;
    if (strcmp(instance, view->instance) == 0)
        return !is_nameless && !view->is_owned(view->data, *name);
    if (is_foreign(labels, view))
        return false;
    if (expires_s + REAPER_EXPIRED_MARGIN_S < view->now_s)
        return true;
    return host != NULL && view->host[0] != '\0' && strcmp(host, view->host) == 0 &&
           !view->is_alive(view->data, instance);
}

/* --- rounds --- */

static bool is_owned(void *data, const char *name)
{
    return docker_owns(data, name);
}

/* The Engine's list can go on naming one that it has removed; an exact look-up is what counts (spec 1.6). */
static bool is_there(docker_t *docker, const char *id)
{
    engine_answer_t answer;
    engine_container_inspect(docker->engine, id, REAPER_LIST_MS, &answer);
    bool is_absent = answer.outcome == ENGINE_ABSENT;
    engine_answer_dispose(&answer);
    return !is_absent;
}

/* The Engine may be starting it for a gateway that died meanwhile. Removed under that start, it leaves its shim behind
 * for good (spec 8 (9)). */
static bool may_be_starting(const json_t *entry, int64_t now_s)
{
    const char *state = json_string_value(json_object_get(entry, "State"));
    json_int_t created_s = json_integer_value(json_object_get(entry, "Created"));
    return state != NULL && strcmp(state, "created") == 0 && created_s <= now_s && now_s - created_s < REAPER_START_S;
}

/* False with the reason when the Engine did not answer. `soon`: something is better removed a little later. */
static bool look_round(docker_t *docker, bool *soon, char why[ENGINE_TEXT_MAX])
{
    static const char *const labels[] = {"sbx.gateway=1"};
    reaper_view_t view = {.instance = docker->instance,
                          .host = docker->host_id,
                          .installation = role_ledger_installation(docker->host->ledger),
                          .now_s = clock_wall_ms() / 1000,
                          .is_alive = is_alive,
                          .is_owned = is_owned,
                          .data = docker};
    engine_answer_t answer;
    const json_t *entry;
    const char *name, *id;
    size_t i;

    engine_container_list(docker->engine, labels, 1, REAPER_LIST_MS, &answer);
    bool is_answered = answer.outcome == ENGINE_OK;
    json_array_foreach(answer.json, i, entry)
    {
        if (!reaper_is_due(entry, &view, &name, &id) || teardown_has(docker->teardown, name) || !is_there(docker, id))
            continue;
        if (may_be_starting(entry, view.now_s)) {
            *soon = true;
            continue;
        }
        log_event(LOG_WARN, "sandbox found left behind", log_str("backend", docker->name), log_str("name", name),
                  log_str("container", id));
        meter_inc(METER_REAPED);
        teardown_add(docker->teardown, name, id, TEARDOWN_NOW);
    }
    snprintf(why, ENGINE_TEXT_MAX, "%s", answer.text);
    engine_answer_dispose(&answer);
    return is_answered;
}

/* An Engine that comes back is soon told so: what could not be removed is tried again, and the wall proven, before the
 * pauses they have come to are over. */
static void note(reaper_t *reaper, bool is_answered, const char *why)
{
    docker_t *docker = reaper->docker;
    if (is_answered != reaper->is_away)
        return;
    reaper->is_away = !is_answered;
    log_event(LOG_WARN, is_answered ? "engine back" : "engine away", log_str("backend", docker->name),
              log_str("reason", why));
    if (is_answered) {
        teardown_retry(docker->teardown);
        docker->host->reprove(docker->host->data);
    }
}

static void reaper_main(void *arg)
{
    reaper_t *reaper = arg;
    char why[ENGINE_TEXT_MAX];
    while (!reaper->is_ending) {
        bool soon = false, is_answered = look_round(reaper->docker, &soon, why);
        if (!reaper->is_ending)
            note(reaper, is_answered, why);
        if (reaper->is_ending || co_sleep(is_answered && !soon ? REAPER_PERIOD_MS : REAPER_RETRY_MS) == CO_CANCELED)
            return;
    }
}

static void on_reaper_end(void *arg)
{
    reaper_t *reaper = arg;
    reaper->co = NULL;
    if (reaper->waiter != NULL)
        co_wake(reaper->waiter);
}

reaper_t *reaper_create(docker_t *docker)
{
    int fd = liveness_open(docker->instance);
    if (fd < 0)
        return NULL;
    reaper_t *reaper = mem_alloc(sizeof(*reaper));
    reaper->magic = REAPER_MAGIC;
    reaper->docker = docker;
    reaper->fd = fd;
    reaper->watch = watch_create(docker->host->loop, fd, on_liveness, reaper);
    if (reaper->watch == NULL) {
        int error = errno;
        close(fd);
        free(reaper);
        errno = error;
        return NULL;
    }
    watch_set(reaper->watch, WATCH_READ);
    return reaper;
}

void reaper_begin(reaper_t *reaper)
{
    if (reaper->magic != REAPER_MAGIC)
        mem_fatal("not a reaper");
    if (reaper->co == NULL && !reaper->is_ending)
        reaper->co = co_start(reaper->docker->host->loop, reaper_main, reaper, on_reaper_end);
}

void reaper_end(reaper_t *reaper)
{
    if (reaper->magic != REAPER_MAGIC)
        mem_fatal("not a reaper");
    reaper->is_ending = true;
    if (reaper->co != NULL) {
        co_cancel(reaper->co);
        reaper->waiter = co_self();
        while (reaper->co != NULL)
            co_wait(UINT64_MAX);
    }
}

void reaper_destroy(reaper_t *reaper)
{
    if (reaper->magic != REAPER_MAGIC || reaper->co != NULL)
        mem_fatal("not a reaper that has ended");
    watch_destroy(reaper->watch);
    close(reaper->fd);
    reaper->magic = 0;
    free(reaper);
}
