/* What libh2o calls with every complete request: finds what it asks for and hands it there. */
#ifndef GATEWAY_HANDLER_H
#define GATEWAY_HANDLER_H

#include "gateway/front.h"

void handler_register(front_t *front);

#endif
