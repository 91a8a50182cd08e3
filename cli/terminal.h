/*
 * Text of strangers on a terminal: what a gateway says must not move a cursor or set a title. Guest output does not
 * pass here, it is written verbatim by its own path.
 */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stddef.h>
#include <stdio.h>

/* Copies at most size-1 bytes of `text`, never ending inside a UTF-8 sequence; control characters and invalid UTF-8
 * become '?'. */
void terminal_copy(char *out, size_t size, const char *text, size_t len);
/* Prints the text with control characters and invalid UTF-8 as '?'. */
void terminal_print(FILE *out, const char *text);

#endif
