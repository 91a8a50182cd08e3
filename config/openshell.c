#include "config/openshell.h"

#include <stdio.h>
#include <string.h>

#include "config/base_url.h"
#include "config/docker.h"

enum { DIGEST_HEX = 64, NAME_MAX_BYTES = 63 };

void openshell_cpus(char out[OPENSHELL_CPUS_MAX])
{
    snprintf(out, OPENSHELL_CPUS_MAX, "%s", option_is_set(OPT_SANDBOX_CPUS) ? option_str(OPT_SANDBOX_CPUS) : "1");
}

bool openshell_image_digest(const char *image, char hex[65])
{
    if (image == NULL || !docker_image_is_pinned(image))
        return false;
    snprintf(hex, DIGEST_HEX + 1, "%s", image + strlen(image) - DIGEST_HEX);
    return true;
}

static bool is_plain(const char *url)
{
    return strncmp(url, "http://", 7) == 0;
}

/* A DNS label: what the gateway takes for a name. */
static bool is_label(const char *text)
{
    size_t len = strlen(text);
    return len > 0 && len <= NAME_MAX_BYTES && text[0] != '-' && text[len - 1] != '-' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static bool has_path(const char *url)
{
    const char *host = strstr(url, "://") + 3, *slash = strchr(host, '/');
    return slash != NULL && slash[1] != '\0';
}

const char *openshell_settings_problem(void)
{
    const char *url = option_str(OPT_SANDBOX_OPENSHELL_GATEWAY_URL), *why;
    if (url == NULL)
        return "SANDBOX_OPENSHELL_GATEWAY_URL is not set";
    if ((why = base_url_problem(url)) != NULL)
        return "SANDBOX_OPENSHELL_GATEWAY_URL is no address of a gateway: it takes https, a host and perhaps a port";
    if (has_path(url))
        return "SANDBOX_OPENSHELL_GATEWAY_URL has a path: it takes https, a host and perhaps a port";
    if (is_plain(url) && !option_bool(OPT_SANDBOX_OPENSHELL_PLAINTEXT))
        return "SANDBOX_OPENSHELL_GATEWAY_URL is http, which takes SANDBOX_OPENSHELL_PLAINTEXT, for development alone";
    if (!is_plain(url) &&
        (!option_is_set(OPT_SANDBOX_OPENSHELL_CA_FILE) || !option_is_set(OPT_SANDBOX_OPENSHELL_CERT_FILE) ||
         !option_is_set(OPT_SANDBOX_OPENSHELL_KEY_FILE)))
        return "SANDBOX_OPENSHELL_CA_FILE, SANDBOX_OPENSHELL_CERT_FILE and SANDBOX_OPENSHELL_KEY_FILE must all be set";
    if (option_str(OPT_SANDBOX_OPENSHELL_IMAGE) == NULL)
        return "SANDBOX_OPENSHELL_IMAGE is not set";
    if (option_bool(OPT_SANDBOX_REQUIRE_PINNED_IMAGES) &&
        !docker_image_is_pinned(option_str(OPT_SANDBOX_OPENSHELL_IMAGE)))
        return "SANDBOX_OPENSHELL_IMAGE must be pinned, as SANDBOX_REQUIRE_PINNED_IMAGES says: name@sha256:digest";
    if (!is_label(option_str(OPT_SANDBOX_OPENSHELL_WORKSPACE)))
        return "SANDBOX_OPENSHELL_WORKSPACE is no name of a workspace: it takes lower case letters, digits and inner "
               "hyphens";
    return NULL;
}

static bool is_enabled(const provider_t *const *enabled, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(enabled[i]->name, "openshell") == 0)
            return true;
    return false;
}

void openshell_rules(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    const char *problem = is_enabled(enabled, count) ? openshell_settings_problem() : NULL;
    if (problem != NULL)
        problems_add(problems, "%s", problem);
}

void openshell_hardened_rules(problems_t *problems)
{
    if (option_bool(OPT_SANDBOX_OPENSHELL_PLAINTEXT))
        problems_add(problems, "hardened: SANDBOX_OPENSHELL_PLAINTEXT must not be on");
}
