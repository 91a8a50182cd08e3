#include "config/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/mem.h"

static void keep(problems_t *p, const char *text)
{
    p->texts = mem_realloc(p->texts, (p->count + 1) * sizeof(p->texts[0]));
    p->texts[p->count++] = mem_strdup(text);
}

void problems_add(problems_t *p, const char *fmt, ...)
{
    char text[PROBLEM_TEXT_MAX];
    va_list args;

    if (p->count > PROBLEMS_MAX)
        return;
    if (p->count == PROBLEMS_MAX) {
        keep(p, "there are more problems than these");
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    keep(p, text);
}

void problems_dispose(problems_t *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->texts[i]);
    free(p->texts);
    *p = (problems_t){NULL, 0};
}
