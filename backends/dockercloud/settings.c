#include "backends/dockercloud/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/options.h"

static void copy_url(char out[BASE_URL_MAX + 1], const char *url)
{
    if (url != NULL)
        snprintf(out, BASE_URL_MAX + 1, "%.*s", (int)base_url_len(url), url);
}

/* "IMAGE@sha256:...": the digest; "" without one. Returns the bytes before the "@". */
static size_t split_digest(const char *reference, char digest[DC_DIGEST_MAX + 1])
{
    const char *at = strrchr(reference, '@');
    digest[0] = '\0';
    if (at == NULL)
        return strlen(reference);
    for (size_t i = 0; i < DC_DIGEST_MAX && at[1 + i] != '\0'; ++i) {
        digest[i] = (char)tolower((unsigned char)at[1 + i]);
        digest[i + 1] = '\0';
    }
    return (size_t)(at - reference);
}

void dc_settings_read(dc_settings_t *out)
{
    const char *image = option_str(OPT_SANDBOX_DOCKERCLOUD_IMAGE);
    const char *stored = option_str(OPT_SANDBOX_DOCKERCLOUD_STORE_IMAGE);
    const dc_size_t *size = dockercloud_size();

    *out = (dc_settings_t){.api = dockercloud_api()};
    copy_url(out->auth_url, option_str(OPT_SANDBOX_DOCKERCLOUD_AUTH_URL));
    copy_url(out->api_url, dockercloud_api_url());
    out->username = option_str(OPT_DOCKER_SBX_USERNAME);
    out->token = option_str(OPT_DOCKER_SBX_TOKEN);
    if (stored != NULL) {
        size_t len = split_digest(stored, out->digest);
        snprintf(out->store_image, sizeof(out->store_image), "%.*s", (int)len, stored);
    } else if (image != NULL) {
        split_digest(image, out->digest);
        snprintf(out->image, sizeof(out->image), "%s", image);
    }
    if (option_str(OPT_SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX) != NULL)
        snprintf(out->endpoint_suffix, sizeof(out->endpoint_suffix), "%s",
                 option_str(OPT_SANDBOX_DOCKERCLOUD_ENDPOINT_SUFFIX));
    if (size != NULL)
        out->size = *size;
}
