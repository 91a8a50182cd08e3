#include "config/dockercloud.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/base_url.h"
#include "config/docker.h"
#include "config/options_rules.h"
#include "config/quote.h"

static const char REST_API_URL[] = "https://connect.docker.com/sandboxes";

const dc_size_t DC_SIZE_TABLE[DC_SIZES] = {
    {"micro", 1, 2048}, {"small", 2, 4096}, {"medium", 4, 8192}, {"large", 8, 16384}, {"xl", 16, 32768},
};

static const char *quoted(char out[QUOTE_BYTES], option_id_t id)
{
    const char *text = option_str(id);
    return quote(out, text, strlen(text));
}

dc_api_t dockercloud_api(void)
{
    return strcmp(option_str(OPT_SANDBOX_DOCKERCLOUD_API), "rest") == 0 ? DC_REST : DC_CONNECT;
}

const char *dockercloud_api_url(void)
{
    const char *url = option_str(OPT_SANDBOX_DOCKERCLOUD_API_URL);
    if (url != NULL)
        return url;
    return dockercloud_api() == DC_REST ? REST_API_URL : NULL;
}

/* A whole number of processors; 0 for a part of one. */
static uint32_t whole_cpus(void)
{
    const char *text = option_str(OPT_SANDBOX_CPUS);
    char *end;
    if (text == NULL || !is_cpu_count(text))
        return 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*end == '.' && end[1 + strspn(end + 1, "0")] != '\0')
        return 0;
    return (uint32_t)value;
}

const dc_size_t *dockercloud_size(void)
{
    bool has_cpus = option_is_set(OPT_SANDBOX_CPUS), has_memory = option_is_set(OPT_SANDBOX_MEMORY_MB);
    for (size_t i = 0; i < DC_SIZES; i++)
        if ((!has_cpus || DC_SIZE_TABLE[i].cpus == whole_cpus()) &&
            (!has_memory || DC_SIZE_TABLE[i].memory_mib == option_int(OPT_SANDBOX_MEMORY_MB)))
            return &DC_SIZE_TABLE[i];
    return NULL;
}

/* "@sha256:" and 64 hex digits, at the end. */
static bool is_digest(const char *text)
{
    static const char mark[] = "@sha256:";
    return strncmp(text, mark, sizeof(mark) - 1) == 0 &&
           strspn(text + sizeof(mark) - 1, "0123456789abcdefABCDEF") == 64 && text[sizeof(mark) - 1 + 64] == '\0';
}

bool dockercloud_is_store_image(const char *text)
{
    enum { ID_MAX = 128 };
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return len > 0 && len <= ID_MAX && is_digest(text + len);
}

static bool is_pinned_image(const char *text)
{
    const char *at = strchr(text, '@');
    return at != NULL && at != text && is_digest(at);
}

bool dockercloud_is_pinned(void)
{
    const char *image = option_str(OPT_SANDBOX_DOCKERCLOUD_IMAGE);
    return option_is_set(OPT_SANDBOX_DOCKERCLOUD_STORE_IMAGE) || (image != NULL && is_pinned_image(image));
}

static bool is_reference(const char *text)
{
    return text[0] != '-' && text[0] != '@' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@")] == '\0';
}

/* --- how each value is written --- */

static void check_api(problems_t *problems)
{
    const char *api = option_str(OPT_SANDBOX_DOCKERCLOUD_API);
    char text[QUOTE_BYTES];
    if (strcmp(api, "connect") != 0 && strcmp(api, "rest") != 0)
        problems_add(problems, "SANDBOX_DOCKERCLOUD_API is %s: it takes connect or rest",
                     quoted(text, OPT_SANDBOX_DOCKERCLOUD_API));
}

static void check_url(problems_t *problems, option_id_t id)
{
    char text[QUOTE_BYTES];
    const char *why = option_str(id) != NULL ? base_url_problem(option_str(id)) : NULL;
    if (why != NULL)
        problems_add(problems, "%s is %s: %s", OPTIONS[id].name, quoted(text, id), why);
}

static void check_suffix(problems_t *problems)
{
    const char *suffix = option_str(OPT_SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX);
    char text[QUOTE_BYTES];
    if (suffix != NULL &&
        (suffix[0] != '.' || suffix[1] == '\0' || suffix[1] == '.' ||
         suffix[strspn(suffix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")] != '\0'))
        problems_add(problems,
                     "SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX is %s: it takes the end of a host's name with the point "
                     "before it, such as .sandboxes.example.com",
                     quoted(text, OPT_SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX));
}

static void check_images(problems_t *problems)
{
    const char *image = option_str(OPT_SANDBOX_DOCKERCLOUD_IMAGE);
    const char *stored = option_str(OPT_SANDBOX_DOCKERCLOUD_STORE_IMAGE);
    char text[QUOTE_BYTES];
    if (image != NULL && (!is_reference(image) || (strchr(image, '@') != NULL && !is_pinned_image(image))))
        problems_add(problems,
                     "SANDBOX_DOCKERCLOUD_IMAGE is %s: it takes an image's reference, perhaps with @sha256: and 64 hex "
                     "digits",
                     quoted(text, OPT_SANDBOX_DOCKERCLOUD_IMAGE));
    if (stored != NULL && !dockercloud_is_store_image(stored))
        problems_add(problems,
                     "SANDBOX_DOCKERCLOUD_STORE_IMAGE is %s: it takes the ID of an image in the account's store, "
                     "@sha256: and 64 hex digits",
                     quoted(text, OPT_SANDBOX_DOCKERCLOUD_STORE_IMAGE));
}

/* --- what must hold when it is used --- */

static void need(problems_t *problems, option_id_t id)
{
    if (!option_is_set(id))
        problems_add(problems, "%s is not set, and the backend dockercloud needs it", OPTIONS[id].name);
}

static void check_choice_of_image(problems_t *problems)
{
    bool has_image = option_is_set(OPT_SANDBOX_DOCKERCLOUD_IMAGE);
    bool has_stored = option_is_set(OPT_SANDBOX_DOCKERCLOUD_STORE_IMAGE);
    if (has_image == has_stored)
        problems_add(problems,
                     "%s of SANDBOX_DOCKERCLOUD_IMAGE and SANDBOX_DOCKERCLOUD_STORE_IMAGE %s set: the backend "
                     "dockercloud takes exactly one",
                     has_image ? "both" : "neither", has_image ? "are" : "is");
    if (has_stored && dockercloud_api() == DC_REST)
        problems_add(problems, "SANDBOX_DOCKERCLOUD_STORE_IMAGE is set with SANDBOX_DOCKERCLOUD_API=rest: only "
                               "connect starts an image of the store");
    if (option_bool(OPT_SANDBOX_REQUIRE_PINNED_IMAGES) && has_image && !dockercloud_is_pinned())
        problems_add(problems, "SANDBOX_DOCKERCLOUD_IMAGE names no digest, which SANDBOX_REQUIRE_PINNED_IMAGES does "
                               "not take: it must end in @sha256: and 64 hex digits");
}

static void check_size(problems_t *problems)
{
    if (dockercloud_size() == NULL)
        problems_add(problems, "SANDBOX_CPUS and SANDBOX_MEMORY_MB name no size of Docker Cloud's, which has 1 "
                               "processor with 2048 MiB, 2 with 4096, 4 with 8192, 8 with 16384 and 16 with 32768");
}

static void check_ceiling(problems_t *problems)
{
    int64_t ceiling = option_int(OPT_SANDBOX_CLOUD_TIMEOUT_MAX);
    if (dockercloud_api() == DC_REST && ceiling > DC_REST_TIMEOUT_MAX_MS)
        problems_add(problems,
                     "SANDBOX_CLOUD_TIMEOUT_MAX is %" PRId64 "s, and with SANDBOX_DOCKERCLOUD_API=rest a run ends "
                     "after %ds at the latest: its credential lives 300s",
                     ceiling / 1000, DC_REST_TIMEOUT_MAX_MS / 1000);
}

static bool is_enabled(const provider_t *const *enabled, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(enabled[i]->name, "dockercloud") == 0)
            return true;
    return false;
}

void dockercloud_rules(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    /* how a value is written is checked whether it is used or not, so enabling the backend brings no surprise */
    check_api(problems);
    check_url(problems, OPT_SANDBOX_DOCKERCLOUD_AUTH_URL);
    check_url(problems, OPT_SANDBOX_DOCKERCLOUD_API_URL);
    check_suffix(problems);
    check_images(problems);
    if (!is_enabled(enabled, count))
        return;
    need(problems, OPT_DOCKER_SBX_TOKEN);
    need(problems, OPT_DOCKER_SBX_USERNAME);
    if (dockercloud_api_url() == NULL)
        problems_add(problems, "SANDBOX_DOCKERCLOUD_API_URL is not set, and SANDBOX_DOCKERCLOUD_API=connect has no "
                               "documented address");
    check_choice_of_image(problems);
    check_size(problems);
    check_ceiling(problems);
}

void dockercloud_hardened_rules(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    if (!is_enabled(enabled, count))
        return;
    if (!dockercloud_is_pinned())
        problems_add(problems, "hardened: SANDBOX_DOCKERCLOUD_IMAGE must name its digest, or "
                               "SANDBOX_DOCKERCLOUD_STORE_IMAGE be set");
    if (!option_is_set(OPT_SANDBOX_DOCKERCLOUD_API) || dockercloud_api() != DC_CONNECT)
        problems_add(problems, "hardened: SANDBOX_DOCKERCLOUD_API must be set, to connect: the other API does not tell "
                               "which image started");
}
