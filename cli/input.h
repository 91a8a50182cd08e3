/* Reading a whole file or standard input within a limit, and writing bytes so that a failure is seen. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/buffer.h"

/* Appends the file's bytes ("-" = standard input) up to the buffer's limit. NULL, or why not: valid until the next
 * call. */
const char *input_read(const char *path, buffer_t *out);
/* Writes all bytes to the descriptor; false with errno set. */
bool output_write(int fd, const void *data, size_t len);

#endif
