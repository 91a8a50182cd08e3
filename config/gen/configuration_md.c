/* Prints docs/configuration.md. */
#include <stdio.h>

#include "config/options.h"

int main(void)
{
    enum { MARKDOWN_MAX = 1024 * 1024 };
    buffer_t out;
    size_t written;

    buffer_init(&out, MARKDOWN_MAX);
    options_print_markdown(&out);
    written = fwrite(out.base, 1, out.len, stdout);
    if (written != out.len || fflush(stdout) != 0)
        return 1;
    buffer_dispose(&out);
    return 0;
}
