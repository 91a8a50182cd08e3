/* Allocation that cannot fail: out of memory ends the process, as every path that could go on would have to lie. */
#ifndef CORE_MEM_H
#define CORE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t size);                 /* zeroed */
void *mem_alloc_array(size_t n, size_t size); /* zeroed; aborts on n*size overflow */
void *mem_realloc(void *p, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t len);
/* Ends the process with a log line; for broken invariants only, never for input. */
void mem_fatal(const char *why) __attribute__((noreturn));

#endif
