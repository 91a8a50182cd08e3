#include "backends/docker/smoke_places.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/smoke_words.h"

enum {
    PLACES_MAX = 3,
    FILL_MARGIN = 1024 * 1024, /* a place of exactly half the memory is filled to its own end */
    LIST_MAX = 256,            /* mounts, as the probe reads; each is looked for among the writes */
};

/* The only places that may be written to, with the bytes each takes. */
typedef struct {
    const char *at;
    uint64_t bytes;
} promised_t;

static size_t promised(const smoke_expect_t *expect, promised_t out[PLACES_MAX])
{
    const docker_promise_t *promise = expect->promise;
    out[0] = (promised_t){"/tmp", promise->tmp_bytes};
    out[1] = (promised_t){"/dev/shm", promise->shm_bytes};
    out[2] = (promised_t){"/work", promise->work_bytes};
    return expect->kind == DOCKER_PROJECT ? 3 : 2;
}

static bool is_promised(const smoke_expect_t *expect, const char *at)
{
    promised_t places[PLACES_MAX];
    size_t count = promised(expect, places);
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(places[i].at, at) == 0)
            return true;
    }
    return false;
}

/* The element with "at"; NULL when there is none, or more than one and `is_only`. */
static const json_t *element_at(const json_t *list, const char *at, bool is_only)
{
    const json_t *found = NULL;
    size_t i;
    json_t *element;
    json_array_foreach(list, i, element)
    {
        if (strcmp(smoke_word(element, "at"), at) != 0)
            continue;
        if (found != NULL && is_only)
            return NULL;
        found = element;
    }
    return found;
}

/* --- S6 --- */

static bool has_option(const char *options, const char *name)
{
    for (const char *p = options; *p != '\0';) {
        size_t len = strcspn(p, ",");
        if (len == strlen(name) && strncmp(p, name, len) == 0)
            return true;
        p += len + (p[len] == ',');
    }
    return false;
}

bool smoke_places_size(const char *options, uint64_t *out)
{
    uint64_t value = 0, unit = 1;
    const char *p = options;
    while (strncmp(p, "size=", 5) != 0) {
        p += strcspn(p, ",");
        if (*p == '\0')
            return false;
        ++p;
    }
    p += 5;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; ++p) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (*p == 'k' || *p == 'K')
        unit = UINT64_C(1) << 10;
    else if (*p == 'm' || *p == 'M')
        unit = UINT64_C(1) << 20;
    else if (*p == 'g' || *p == 'G')
        unit = UINT64_C(1) << 30;
    p += unit != 1;
    if ((*p != '\0' && *p != ',') || value > UINT64_MAX / unit)
        return false;
    *out = value * unit;
    return true;
}

static bool judge_mount(const json_t *report, const smoke_expect_t *expect, const promised_t *place,
                        char why[BACKEND_TEXT_MAX])
{
    const json_t *mount = element_at(json_object_get(report, "mounts"), place->at, true);
    const char *options = smoke_word(mount, "options");
    uint64_t bytes = 0;
    if (mount == NULL || strcmp(smoke_word(mount, "type"), "tmpfs") != 0)
        return smoke_fail_word(why, "S6: not exactly one tmpfs is mounted at ", place->at);
    if (!has_option(options, "rw") || !has_option(options, "noexec"))
        return smoke_fail_word(why, "S6: not mounted rw and noexec: ", place->at);
    /* gVisor 20221219 reports neither; without capabilities (S2) and privileges to gain, they decide nothing. */
    if (!expect->is_gvisor && (!has_option(options, "nosuid") || !has_option(options, "nodev")))
        return smoke_fail_word(why, "S6: not mounted nosuid and nodev: ", place->at);
    if (smoke_places_size(options, &bytes) && bytes == place->bytes)
        return true;
    snprintf(why, BACKEND_TEXT_MAX, "S6: the tmpfs at %s takes %llu bytes, not %llu", place->at,
             (unsigned long long)bytes, (unsigned long long)place->bytes);
    return false;
}

static bool is_at_or_below(const char *at, const char *place)
{
    size_t len = strlen(place);
    return strncmp(at, place, len) == 0 && (at[len] == '\0' || at[len] == '/');
}

/* The root, what the Engine puts into every container, and what was promised. Anything else is somebody's: a volume, or
 * a directory of the machine that guests could read. */
static bool is_known_place(const smoke_expect_t *expect, const char *at)
{
    static const char *const kernels[] = {"/proc", "/sys", "/dev"};
    static const char *const engines[] = {"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"};
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); ++i) {
        if (is_at_or_below(at, kernels[i]))
            return true;
    }
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); ++i) {
        if (strcmp(at, engines[i]) == 0)
            return true;
    }
    return is_promised(expect, at) || (expect->has_socket && strcmp(at, SMOKE_HOST_SOCKET) == 0);
}

static bool judge_table(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    size_t i;
    json_t *element;
    json_array_foreach(json_object_get(report, "mounts"), i, element)
    {
        if (!is_known_place(expect, smoke_word(element, "at")))
            return smoke_fail_word(why, "S6: something is mounted that was not asked for, at ",
                                   smoke_word(element, "at"));
    }
    return true;
}

/* --- S7 --- */

uint64_t smoke_fill_max(const docker_promise_t *promise)
{
    return promise->memory_bytes / 2 + FILL_MARGIN;
}

static bool judge_fill(const json_t *report, const smoke_expect_t *expect, const promised_t *place,
                       char why[BACKEND_TEXT_MAX])
{
    const json_t *fill = element_at(json_object_get(report, "fills"), place->at, true);
    const json_t *bytes = json_object_get(fill, "bytes");
    const char *end = smoke_word(fill, "end");
    if (expect->fill_max == 0)
        return true;
    /* What the memory limit would end first cannot be filled: the mount table has its size, and it must not end early.
     */
    bool is_filled =
        json_is_integer(bytes) && json_integer_value(bytes) == (json_int_t)place->bytes && strcmp(end, "ENOSPC") == 0;
    bool is_beyond = place->bytes > expect->fill_max && json_is_integer(bytes) &&
                     json_integer_value(bytes) >= (json_int_t)expect->fill_max && strcmp(end, "limit") == 0;
    if (is_filled || is_beyond)
        return true;
    snprintf(why, BACKEND_TEXT_MAX, "S7: %s took %lld bytes, not %llu (%s)", place->at,
             (long long)json_integer_value(bytes), (unsigned long long)place->bytes,
             smoke_is_errno(end) ? end : "no end was met");
    return false;
}

/* --- S5 and S8 --- */

static bool judge_write(const json_t *write, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    const char *at = smoke_word(write, "at"), *outcome = smoke_word(write, "outcome");
    bool is_wanted = is_promised(expect, at);
    if (strcmp(outcome, "ok") == 0)
        return is_wanted || smoke_fail_word(why, "S8: a guest can write to ", at);
    if (is_wanted)
        return smoke_fail_word(why, "S8: a guest cannot write to ", at);
    if (strcmp(outcome, "socket") == 0)
        return (expect->has_socket && strcmp(at, SMOKE_HOST_SOCKET) == 0) ||
               smoke_fail_word(why, "S8: a socket is mounted at ", at);
    return smoke_is_errno(outcome) || strcmp(outcome, "device") == 0 ||
           smoke_fail_word(why, "S8: whether a guest can write is not known of ", at);
}

static bool judge_writes(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    static const char *const beside[] = {"/", "/var/tmp", "/run", "/home"};
    const json_t *writes = json_object_get(report, "writes");
    size_t i;
    json_t *element;
    json_array_foreach(json_object_get(report, "mounts"), i, element)
    {
        if (element_at(writes, smoke_word(element, "at"), false) == NULL)
            return smoke_fail_word(why, "S8: no write was tried at the mount ", smoke_word(element, "at"));
    }
    for (i = 0; i < sizeof(beside) / sizeof(beside[0]); ++i) {
        if (element_at(writes, beside[i], false) == NULL)
            return smoke_fail_word(why, "S8: no write was tried at ", beside[i]);
    }
    json_array_foreach(writes, i, element)
    {
        if (!judge_write(element, expect, why))
            return false;
    }
    /* All may write to that directory, so only the mount can be the reason. */
    const char *outcome = smoke_word(element_at(writes, "/var/tmp", false), "outcome");
    if (strcmp(outcome, "EROFS") == 0)
        return true;
    if (strcmp(outcome, "ENOENT") == 0)
        return smoke_fail(why, "S5: the image has no /var/tmp with mode 1777, which shows the read-only root");
    return smoke_fail_word(why, "S5: the root is not shown to be read-only, a write to /var/tmp gives ", outcome);
}

/* --- S9 --- */

static bool judge_exec(const json_t *report, const smoke_expect_t *expect, const promised_t *place,
                       char why[BACKEND_TEXT_MAX])
{
    const json_t *exec = element_at(json_object_get(report, "execs"), place->at, true);
    if (strcmp(smoke_word(exec, "outcome"), "EACCES") != 0)
        return smoke_fail_word(why, "S9: a guest can execute a file of its own in ", place->at);
    /* Linux refuses to map such a file for execution as well. */
    return expect->is_gvisor || smoke_is_errno(smoke_word(exec, "mapped")) ||
           smoke_fail_word(why, "S9: a guest can map code of its own from ", place->at);
}

bool smoke_places_judge(const json_t *report, const smoke_expect_t *expect, char why[BACKEND_TEXT_MAX])
{
    promised_t places[PLACES_MAX];
    size_t count = promised(expect, places);
    if (!json_is_true(json_object_get(report, "mounts_whole")) ||
        json_array_size(json_object_get(report, "mounts")) == 0)
        return smoke_fail(why, "S6: the mount table could not be read whole");
    if (json_array_size(json_object_get(report, "mounts")) > LIST_MAX ||
        json_array_size(json_object_get(report, "writes")) > LIST_MAX * 2)
        return smoke_fail(why, "S6: the mount table is longer than any sandbox's");
    for (size_t i = 0; i < count; ++i) {
        if (!judge_mount(report, expect, &places[i], why))
            return false;
    }
    if (!judge_table(report, expect, why))
        return false;
    if (!judge_writes(report, expect, why))
        return false;
    for (size_t i = 0; i < count; ++i) {
        if (!judge_fill(report, expect, &places[i], why) || !judge_exec(report, expect, &places[i], why))
            return false;
    }
    return true;
}
