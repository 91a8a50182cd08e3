/* A table with aligned columns, printed at once. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stddef.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 12 };

typedef struct table table_t;

/* `headings` and the cells of a row are copied, made safe for a terminal; NULL and "" are shown as "-". */
table_t *table_create(const char *const *headings, size_t columns);
void table_add(table_t *table, const char *const *cells);
void table_print(const table_t *table, FILE *out);
void table_destroy(table_t *table);

#endif
