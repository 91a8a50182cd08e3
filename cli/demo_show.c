#include "cli/demo_show.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/terminal.h"

void demo_expect(demo_t *demo, bool holds, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs(holds ? "   ok: " : "   NOT SO: ", stdout);
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
    demo->all_held = demo->all_held && holds;
}

void demo_say(const char *name, const char *text)
{
    printf("   %s: ", name);
    terminal_print(stdout, text);
    putchar('\n');
}
