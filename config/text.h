/* Classes of characters in valid UTF-8, by the Unicode standard's Cc and White_Space, as the callers file's rules name
 * them. */
#ifndef CONFIG_TEXT_H
#define CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at `s`, which must be valid UTF-8 and not at its end; returns its width in bytes, 1 to 4. */
size_t text_next(const char *s, uint32_t *c);
/* U+0000 to U+001F and U+007F to U+009F. */
bool text_is_control(uint32_t c);
bool text_is_space(uint32_t c);
/* Narrows *s and *len to the text without white space at either end. Valid UTF-8 only. */
void text_trim(const char **s, size_t *len);

#endif
