/* What an Engine says of a container, in any JSON: nothing but the promised container may pass the read-back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "backends/docker/container.h"
#include "backends/docker/reaper.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROFILE                                                                                                        \
    "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[{\"names\":[\"ptrace\"],\"action\":\"SCMP_ACT_ERRNO\"}]}\n"

static bool never(void *data, const char *text)
{
    (void)data;
    (void)text;
    return false;
}

static void must(bool holds)
{
    if (!holds)
        abort();
}

static const json_t *host(const json_t *inspect, const char *key)
{
    return json_object_get(json_object_get(inspect, "HostConfig"), key);
}

/* What a container that passed must have said, looked at in another way than the code does. */
static void check_passed(const json_t *inspect, const container_spec_t *spec)
{
    const char *image = json_string_value(json_object_get(inspect, "Image"));
    char seal[SHA256_HEX + 1];
    must(image != NULL && strcmp(image, spec->image) == 0);
    must(!json_is_true(host(inspect, "Privileged")));
    must(json_is_true(host(inspect, "ReadonlyRootfs")));
    must(strcmp(json_string_value(host(inspect, "NetworkMode")), "none") == 0);
    must(strcmp(json_string_value(host(inspect, "Runtime")), spec->runtime) == 0);
    must(json_array_size(host(inspect, "CapDrop")) == 1 && json_array_size(host(inspect, "Devices")) == 0);
    must(json_integer_value(host(inspect, "Memory")) == json_integer_value(host(inspect, "MemorySwap")));
    must(json_array_size(json_object_get(inspect, "Mounts")) == 0);
    must(json_object_size(json_object_get(json_object_get(inspect, "NetworkSettings"), "Networks")) <= 1);
    container_seal(inspect, seal);
    must(strlen(seal) == SHA256_HEX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const reaper_view_t view = {.instance = "me", .host = "h", .now_s = 1000, .is_alive = never, .is_owned = never};
    container_spec_t spec = {.runtime = "runc",
                             .uid = 61000,
                             .memory_bytes = 268435456,
                             .nano_cpus = 1000000000,
                             .pids = 256,
                             .tmp_mb = 16,
                             .shm_mb = 16,
                             .work_mb = 128,
                             .seccomp = PROFILE};
    char difference[CONTAINER_TEXT_MAX], seal[SHA256_HEX + 1];
    container_state_t state;
    const char *name, *id;
    json_t *inspect = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

    if (inspect == NULL)
        return 0;
    const char *image = json_string_value(json_object_get(inspect, "Image"));
    if (image != NULL && strlen(image) < sizeof(spec.image))
        memcpy(spec.image, image, strlen(image) + 1);
    for (int i = 0; i < 2; ++i) {
        if (container_matches(inspect, &spec, difference))
            check_passed(inspect, &spec);
        else
            must(difference[0] != '\0' && strlen(difference) < sizeof(difference));
        spec.work_mb = 0;
        spec.preboot = GUEST_PREBOOT_JAVASCRIPT;
    }
    container_seal(inspect, seal);
    container_state(inspect, &state);
    if (reaper_is_due(inspect, &view, &name, &id))
        must(name != NULL && id != NULL);
    json_decref(inspect);
    return 0;
}
