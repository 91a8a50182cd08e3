#include "backends/docker/container.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

enum {
    TMPFS_OPTIONS_MAX = 96,
    HARDENING_LISTS = 2,
    NEUTRAL_DEPTH_MAX = 8, /* the Engine's own HostConfig nests three deep */
};

#define SECCOMP_OPTION "seccomp="

static json_t *made(json_t *value)
{
    if (value == NULL)
        mem_fatal("a container's description could not be made");
    return value;
}

/* --- what is asked for (spec 1.2) --- */

static void add_tmpfs(json_t *to, const char *path, uint32_t mb)
{
    char options[TMPFS_OPTIONS_MAX];
    snprintf(options, sizeof(options), "rw,noexec,nosuid,nodev,size=%um,mode=1777", (unsigned)mb);
    json_object_set_new(to, path, made(json_string(options)));
}

static json_t *tmpfs_of(const container_spec_t *spec)
{
    json_t *tmpfs = made(json_object());
    add_tmpfs(tmpfs, "/tmp", spec->tmp_mb);
    add_tmpfs(tmpfs, "/dev/shm", spec->shm_mb);
    if (spec->work_mb != 0)
        add_tmpfs(tmpfs, "/work", spec->work_mb);
    return tmpfs;
}

static json_t *security_of(const container_spec_t *spec)
{
    json_t *options = made(json_pack("[s]", "no-new-privileges"));
    if (spec->seccomp != NULL) {
        size_t len = strlen(spec->seccomp);
        char *text = mem_alloc(sizeof(SECCOMP_OPTION) + len);
        memcpy(text, SECCOMP_OPTION, sizeof(SECCOMP_OPTION) - 1);
        memcpy(text + sizeof(SECCOMP_OPTION) - 1, spec->seccomp, len);
        json_array_append_new(options, made(json_string(text)));
        free(text);
    }
    return options;
}

static json_t *ulimit(const char *name, int value)
{
    return made(json_pack("{s:s, s:i, s:i}", "Name", name, "Soft", value, "Hard", value));
}

static json_t *host_config(const container_spec_t *spec)
{
    json_t *binds = made(json_array());
    if (spec->bind != NULL)
        json_array_append_new(binds, made(json_string(spec->bind)));
    json_t *config = made(json_pack(
        "{s:s, s:s, s:b, s:b, s:[], s:[s], s:o, s:I, s:I, s:I, s:I, s:o, s:I, s:[o, o], s:{s:s}, s:s, s:s, s:b, s:b, "
        "s:{s:s}, s:o}",
        "Runtime", spec->runtime, "NetworkMode", "none", "ReadonlyRootfs", 1, "Privileged", 0, "CapAdd", "CapDrop",
        "ALL", "SecurityOpt", security_of(spec), "PidsLimit", (json_int_t)spec->pids, "Memory",
        (json_int_t)spec->memory_bytes, "MemorySwap", (json_int_t)spec->memory_bytes, "NanoCpus",
        (json_int_t)spec->nano_cpus, "Tmpfs", tmpfs_of(spec), "ShmSize", (json_int_t)spec->shm_mb * 1024 * 1024,
        "Ulimits", ulimit("core", 0), ulimit("nofile", CONTAINER_NOFILE), "LogConfig", "Type", "none", "IpcMode",
        "private", "CgroupnsMode", "private", "Init", 0, "AutoRemove", 0, "RestartPolicy", "Name", "no", "Binds",
        binds));
    return config;
}

static void digest_of(const json_t *value, char out[SHA256_HEX + 1])
{
    char *text = json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL)
        mem_fatal("a container's description could not be written down");
    sha256_hex(text, strlen(text), out);
    free(text);
}

void container_spec_digest(const container_spec_t *spec, char out[SHA256_HEX + 1])
{
    json_t *config = host_config(spec);
    digest_of(config, out);
    json_decref(config);
}

static const char *preboot_argument(guest_preboot_t preboot)
{
    return preboot == GUEST_PREBOOT_JAVASCRIPT ? "--preboot=node" : "--preboot=none";
}

static void user_text(const container_spec_t *spec, char out[24])
{
    snprintf(out, 24, "%u:%u", (unsigned)spec->uid, (unsigned)spec->uid);
}

json_t *container_body(const container_spec_t *spec, const container_labels_t *labels)
{
    char digest[SHA256_HEX + 1], user[24], expires[24];
    json_t *config = host_config(spec);

    digest_of(config, digest);
    user_text(spec, user);
    snprintf(expires, sizeof(expires), "%lld", (long long)labels->expires_s);
    /* Entrypoint and Cmd both, or the image's own would run. WorkingDir is the root: an empty one would be the image's,
     * and with any other an older runc gives a place in memory the wrong mode (spec 1.2). */
    json_t *body = made(json_pack(
        "{s:s, s:[s], s:[s, s], s:s, s:s, s:[], s:b, s:b, s:b, s:b, s:b, s:b, s:{s:[s]}, s:s, s:i, "
        "s:{s:s, s:s, s:s, s:s, s:s, s:s}, s:o}",
        "Image", spec->image, "Entrypoint", CONTAINER_RUNNER, "Cmd", "--mode=run", preboot_argument(spec->preboot),
        "User", user, "WorkingDir", "/", "Env", "Tty", 0, "OpenStdin", 1, "StdinOnce", 1, "AttachStdin", 1,
        "AttachStdout", 1, "AttachStderr", 1, "Healthcheck", "Test", "NONE", "StopSignal", "SIGKILL", "StopTimeout", 0,
        "Labels", "sbx.gateway", "1", "sbx.instance", labels->instance, "sbx.host", labels->host, "sbx.role",
        labels->role, "sbx.expires", expires, "sbx.spec", digest, "HostConfig", config));
    if (labels->installation != NULL && labels->installation[0] != '\0')
        json_object_set_new(json_object_get(body, "Labels"), "sbx.installation",
                            made(json_string(labels->installation)));
    return body;
}

/* --- what the Engine says it is (spec 1.7) --- */

static bool differs(char difference[CONTAINER_TEXT_MAX], const char *prefix, const char *field)
{
    size_t used = 0;
    /* Field names come from the Engine: printable ASCII only, and cut. */
    used = (size_t)snprintf(difference, CONTAINER_TEXT_MAX, "%s", prefix);
    for (const char *p = field; *p != '\0' && used + 1 < CONTAINER_TEXT_MAX; ++p)
        difference[used++] = *p > ' ' && *p < 0x7f ? *p : '?';
    difference[used] = '\0';
    return false;
}

/* Nothing was asked for and nothing was given: null, false, 0, "", and lists and objects of nothing else. */
static bool is_neutral(const json_t *value, int depth)
{
    const char *key;
    json_t *item;
    size_t i;

    if (depth > NEUTRAL_DEPTH_MAX)
        return false;
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
        return json_integer_value(value) == 0;
    case JSON_REAL:
        return json_real_value(value) == 0;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_ARRAY:
        json_array_foreach(value, i, item)
        {
            if (!is_neutral(item, depth + 1))
                return false;
        }
        return true;
    case JSON_OBJECT:
        json_object_foreach((json_t *)value, key, item)
        {
            if (!is_neutral(item, depth + 1))
                return false;
        }
        return true;
    default:
        return false;
    }
}

static bool has_name(const json_t *entry, const char *name)
{
    const char *its = json_string_value(json_object_get(entry, "Name"));
    return its != NULL && strcmp(its, name) == 0;
}

/* Ours exactly; an Engine configured with limits of its own adds those of other names when it starts a container. */
static bool same_ulimits(const json_t *asked, const json_t *got)
{
    const json_t *ours, *theirs;
    size_t i, k;

    json_array_foreach(asked, i, ours)
    {
        const char *name = json_string_value(json_object_get(ours, "Name"));
        size_t found = 0;
        json_array_foreach(got, k, theirs)
        {
            if (!has_name(theirs, name))
                continue;
            if (!json_equal(ours, theirs))
                return false;
            ++found;
        }
        if (found != 1)
            return false;
    }
    return true;
}

/* Objects the Engine completes with fields nobody asked for: ours exactly, the others neutral. */
static bool same_and_else_neutral(const json_t *asked, const json_t *got)
{
    const char *key;
    json_t *value;

    if (!json_is_object(got))
        return false;
    json_object_foreach((json_t *)asked, key, value)
    {
        if (!json_equal(value, json_object_get(got, key)))
            return false;
    }
    json_object_foreach((json_t *)got, key, value)
    {
        if (json_object_get(asked, key) == NULL && !is_neutral(value, 0))
            return false;
    }
    return true;
}

/* An Engine may leave out what is empty. */
static bool same_or_left_out(const json_t *asked, const json_t *got)
{
    return got == NULL ? is_neutral(asked, 0) : json_equal(asked, got);
}

static bool same_field(const char *key, const json_t *asked, const json_t *got)
{
    if (got == NULL)
        return is_neutral(asked, 0);
    if (strcmp(key, "Ulimits") == 0)
        return same_ulimits(asked, got);
    if (strcmp(key, "LogConfig") == 0 || strcmp(key, "RestartPolicy") == 0)
        return same_and_else_neutral(asked, got);
    if (json_is_array(asked) && json_array_size(asked) == 0)
        return is_neutral(got, 0);
    return json_equal(asked, got);
}

/* Not sent: the Engine hides these itself, and an empty list would show them (moby's oci/defaults.go; all of them since
 * before API 1.41). More of them is no difference. */
static const struct {
    const char *key;
    const char *paths[10];
} HARDENING[HARDENING_LISTS] = {
    {"MaskedPaths",
     {"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
      "/proc/sched_debug", "/proc/scsi", "/sys/firmware"}},
    {"ReadonlyPaths", {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}},
};

static bool has_text(const json_t *list, const char *text)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *value = json_string_value(item);
        if (value != NULL && strcmp(value, text) == 0)
            return true;
    }
    return false;
}

static bool is_hardening(const char *key)
{
    for (size_t i = 0; i < HARDENING_LISTS; ++i) {
        if (strcmp(key, HARDENING[i].key) == 0)
            return true;
    }
    return false;
}

static bool is_hardened(const json_t *config, char difference[CONTAINER_TEXT_MAX])
{
    for (size_t i = 0; i < HARDENING_LISTS; ++i) {
        const json_t *list = json_object_get(config, HARDENING[i].key);
        for (size_t k = 0; k < sizeof(HARDENING[i].paths) / sizeof(HARDENING[i].paths[0]); ++k) {
            if (HARDENING[i].paths[k] != NULL && !has_text(list, HARDENING[i].paths[k]))
                return differs(difference, "HostConfig.", HARDENING[i].key);
        }
    }
    return true;
}

static bool same_host_config(const json_t *inspect, const container_spec_t *spec, char difference[CONTAINER_TEXT_MAX])
{
    const json_t *got = json_object_get(inspect, "HostConfig");
    json_t *asked = host_config(spec), *value;
    const char *key;
    bool is_same = false;

    if (!json_is_object(got)) {
        differs(difference, "HostConfig", "");
        goto Exit;
    }
    json_object_foreach(asked, key, value)
    {
        if (!same_field(key, value, json_object_get(got, key))) {
            differs(difference, "HostConfig.", key);
            goto Exit;
        }
    }
    json_object_foreach((json_t *)got, key, value)
    {
        if (json_object_get(asked, key) == NULL && !is_hardening(key) && !is_neutral(value, 0)) {
            differs(difference, "HostConfig.", key);
            goto Exit;
        }
    }
    is_same = is_hardened(got, difference);

Exit:
    json_decref(asked);
    return is_same;
}

/* The Engine completes it with the intervals of an image's own check; switched off, they time nothing. */
static bool is_check_off(const json_t *asked, const json_t *got)
{
    return json_equal(json_object_get(asked, "Test"), json_object_get(got, "Test"));
}

static bool same_config_field(const char *key, const json_t *asked, const json_t *got)
{
    return strcmp(key, "Healthcheck") == 0 ? is_check_off(asked, got) : same_or_left_out(asked, got);
}

static bool same_config(const json_t *inspect, const container_spec_t *spec, char difference[CONTAINER_TEXT_MAX])
{
    static const container_labels_t no_labels = {"", "", "", "", 0};
    /* The image's own labels and environment are added to ours; the runner clears its environment first of all. */
    static const char *const keys[] = {"User",         "Entrypoint",   "Cmd",        "WorkingDir",
                                       "Tty",          "OpenStdin",    "StdinOnce",  "AttachStdin",
                                       "AttachStdout", "AttachStderr", "StopSignal", "Healthcheck"};
    const json_t *got = json_object_get(inspect, "Config");
    json_t *asked = container_body(spec, &no_labels);
    const char *ours = json_string_value(json_object_get(json_object_get(asked, "Labels"), "sbx.spec"));
    const char *theirs = json_string_value(json_object_get(json_object_get(got, "Labels"), "sbx.spec"));
    bool is_same = false;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
        if (!same_config_field(keys[i], json_object_get(asked, keys[i]), json_object_get(got, keys[i]))) {
            differs(difference, "Config.", keys[i]);
            goto Exit;
        }
    }
    if (theirs == NULL || strcmp(ours, theirs) != 0) {
        differs(difference, "Config.Labels.", "sbx.spec");
        goto Exit;
    }
    is_same = true;

Exit:
    json_decref(asked);
    return is_same;
}

/* tmpfs mounts are not in this list; binds and volumes are. */
static bool same_mounts(const json_t *inspect, const container_spec_t *spec)
{
    const json_t *mounts = json_object_get(inspect, "Mounts"), *mount = json_array_get(mounts, 0);
    size_t count = json_array_size(mounts);

    if (!json_is_array(mounts))
        return false;
    if (spec->bind == NULL)
        return count == 0;
    const char *type = json_string_value(json_object_get(mount, "Type"));
    const char *from = json_string_value(json_object_get(mount, "Source"));
    const char *at = json_string_value(json_object_get(mount, "Destination"));
    if (count != 1 || type == NULL || from == NULL || at == NULL || strcmp(type, "bind") != 0)
        return false;
    size_t from_len = strlen(from), at_len = strlen(at);
    if (strncmp(spec->bind, from, from_len) != 0 || spec->bind[from_len] != ':')
        return false;
    const char *rest = spec->bind + from_len + 1;
    return strncmp(rest, at, at_len) == 0 && (rest[at_len] == '\0' || rest[at_len] == ':');
}

static bool has_no_network(const json_t *inspect)
{
    json_t *networks = json_object_get(json_object_get(inspect, "NetworkSettings"), "Networks"), *network;
    const char *name;

    if (!json_is_object(networks))
        return false;
    json_object_foreach(networks, name, network)
    {
        if (strcmp(name, "none") != 0)
            return false;
    }
    return true;
}

bool container_matches(const json_t *inspect, const container_spec_t *spec, char difference[CONTAINER_TEXT_MAX])
{
    const char *image = json_string_value(json_object_get(inspect, "Image"));

    if (image == NULL || strcmp(image, spec->image) != 0)
        return differs(difference, "Image", "");
    if (!same_host_config(inspect, spec, difference) || !same_config(inspect, spec, difference))
        return false;
    if (!same_mounts(inspect, spec))
        return differs(difference, "Mounts", "");
    if (!has_no_network(inspect))
        return differs(difference, "NetworkSettings.Networks", "");
    return true;
}

void container_seal(const json_t *inspect, char out[SHA256_HEX + 1])
{
    json_t *config = json_object_get(inspect, "HostConfig"), *mounts = json_object_get(inspect, "Mounts"),
           *networks = json_object_get(json_object_get(inspect, "NetworkSettings"), "Networks");
    out[0] = '\0';
    if (!json_is_object(config) || !json_is_array(mounts) || !json_is_object(networks))
        return;
    json_t *whole = made(json_pack("[O, O, O]", config, mounts, networks));
    digest_of(whole, out);
    json_decref(whole);
}

bool container_state(const json_t *inspect, container_state_t *out)
{
    const json_t *state = json_object_get(inspect, "State"), *running = json_object_get(state, "Running"),
                 *paused = json_object_get(state, "Paused"), *oom = json_object_get(state, "OOMKilled"),
                 *pid = json_object_get(state, "Pid"), *exit_code = json_object_get(state, "ExitCode");
    memset(out, 0, sizeof(*out));
    if (!json_is_boolean(running) || !json_is_boolean(paused) || !json_is_integer(pid) || !json_is_integer(exit_code))
        return false;
    out->is_running = json_is_true(running);
    out->is_paused = json_is_true(paused);
    out->is_oom_killed = json_is_true(oom);
    out->pid = json_integer_value(pid);
    out->exit_code = json_integer_value(exit_code);
    return true;
}
