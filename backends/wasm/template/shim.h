/* The guest's set-up script (shim.js), compiled once for all workers. */
#ifndef TEMPLATE_SHIM_H
#define TEMPLATE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the template, once the engine stands: has a child of its own compile the script, as that takes a context, and no
 * worker may inherit one (its Math.random would be every worker's). Parsing it in each worker would take a third of its
 * start. */
bool shim_compile(void);
const uint8_t *shim_bytes(size_t *len);

#endif
