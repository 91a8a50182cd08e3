/* What the front takes from the settings, once, before anything is served. */
#ifndef GATEWAY_FRONT_SETTINGS_H
#define GATEWAY_FRONT_SETTINGS_H

#include "gateway/front.h"

void front_read_settings(front_t *front);

#endif
