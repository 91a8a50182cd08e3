#include "cli/table.h"

#include <stdlib.h>
#include <string.h>

#include "cli/terminal.h"
#include "core/mem.h"

/* Columns the text takes, one a code point. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

struct table {
    size_t columns, rows, cap;
    char **_cells; /* rows * columns, the headings first */
};

table_t *table_create(const char *const *headings, size_t columns)
{
    table_t *table = mem_alloc(sizeof(*table));
    table->columns = columns < TABLE_COLUMNS_MAX ? columns : TABLE_COLUMNS_MAX;
    table_add(table, headings);
    return table;
}

void table_add(table_t *table, const char *const *cells)
{
    if (table->rows == table->cap) {
        table->cap = table->cap == 0 ? 16 : 2 * table->cap;
        table->_cells = mem_realloc(table->_cells, table->cap * table->columns * sizeof(char *));
    }
    for (size_t i = 0; i < table->columns; i++) {
        const char *cell = cells[i] == NULL || cells[i][0] == '\0' ? "-" : cells[i];
        size_t size = strlen(cell) + 1;
        char *copy = mem_alloc(size);
        terminal_copy(copy, size, cell, size - 1);
        table->_cells[table->rows * table->columns + i] = copy;
    }
    table->rows++;
}

void table_print(const table_t *table, FILE *out)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        size_t width = width_of(table->_cells[i]), *widest = &widths[i % table->columns];
        *widest = width > *widest ? width : *widest;
    }
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        size_t column = i % table->columns;
        fputs(table->_cells[i], out);
        if (column + 1 == table->columns)
            fputc('\n', out);
        else
            fprintf(out, "%*s", (int)(widths[column] - width_of(table->_cells[i]) + 2), "");
    }
}

void table_destroy(table_t *table)
{
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->_cells[i]);
    free(table->_cells);
    free(table);
}
