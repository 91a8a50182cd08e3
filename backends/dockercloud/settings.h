/* What the configuration makes of the wall: one API, one image, one size. Read once; a run changes nothing of it. */
#ifndef BACKENDS_DOCKERCLOUD_SETTINGS_H
#define BACKENDS_DOCKERCLOUD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base_url.h"
#include "config/dockercloud.h"

enum {
    DC_IMAGE_MAX = 511,    /* bytes of an image's reference */
    DC_DIGEST_MAX = 71,    /* "sha256:" and 64 hex digits */
    DC_IMAGE_ID_MAX = 128, /* of a store image */
    DC_SUFFIX_MAX = 253,   /* of the hosts that sandboxes' endpoints may have */
};

typedef struct {
    dc_api_t api;
    char auth_url[BASE_URL_MAX + 1];
    char api_url[BASE_URL_MAX + 1]; /* without a slash at the end */
    const char *username, *token;   /* borrowed from the options: locked memory */
    char image[DC_IMAGE_MAX + 1];   /* "" with a store image */
    char store_image[DC_IMAGE_ID_MAX + 1];
    char digest[DC_DIGEST_MAX + 1];          /* that must have booted, in lower case; "" when the image is not pinned */
    char endpoint_suffix[DC_SUFFIX_MAX + 1]; /* ".example.com"; "" = any host */
    dc_size_t size;
} dc_settings_t;

/* Of options without problems. */
void dc_settings_read(dc_settings_t *out);

#endif
