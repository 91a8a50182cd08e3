#include "cli/command.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/exit_codes.h"

int usage_hint(const char *command)
{
    fprintf(stderr, "See `%s --help`.\n", command);
    return CLI_USAGE;
}

int usage_error(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s: ", command);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return usage_hint(command);
}

int print_help(const char *text)
{
    return fputs(text, stdout) != EOF && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}
