/* The guest's set-up script (shim.js), compiled once for all workers. */
#ifndef TEMPLATE_SHIM_H
#define TEMPLATE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the template, once the engine stands: has a child of its own compile the script, as that takes a context, which is
 * to hold nothing afterwards but what every run finds in it. */
bool shim_compile(void);
const uint8_t *shim_bytes(size_t *len);

#endif
