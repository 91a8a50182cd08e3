/* Values from outside as texts for people repeat them: short, and without anything that moves a terminal's cursor. */
#ifndef CONFIG_QUOTE_H
#define CONFIG_QUOTE_H

#include <stddef.h>

#include "config/options.h"

enum { QUOTE_BYTES = OPTION_QUOTED_MAX + 2 + 3 + 1 }; /* quotation marks, "..." and the NUL */

/* Writes "text" with its quotation marks. Past OPTION_QUOTED_MAX bytes it is cut between characters and "..." follows.
 * Control characters, and every byte past ASCII unless the text is UTF-8, become '?'. Returns `out`. */
const char *quote(char out[QUOTE_BYTES], const char *text, size_t len);

#endif
