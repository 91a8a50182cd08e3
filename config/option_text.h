/* From a setting's text to its value and back, row by row; knows nothing of other rows or of the environment. */
#ifndef CONFIG_OPTION_TEXT_H
#define CONFIG_OPTION_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/options.h"

enum { OPTION_RANGE_MAX = 128, OPTION_TAKES_MAX = 256, DURATION_TEXT_MAX = 64 };

/* Checks `text` (trimmed, not empty) against the row's type and range. `number` is set for INT, BOOL (0, 1) and
 * DURATION (ms). NULL when it is right, else what the row takes, as a text without the variable's name, written to
 * `takes`. */
const char *option_text_parse(option_id_t id, const char *text, int64_t *number, char takes[OPTION_TAKES_MAX]);
/* The row's type as a word: "whole number", "yes or no", "duration", ... */
const char *option_type_name(option_type_t type);
/* The range of the row for people, "1 to 1024"; empty when there is nothing to tell. Returns `out`. */
const char *option_range(const option_t *option, char out[OPTION_RANGE_MAX]);

/* 250ms 5s 30m 2h 1h30m: whole numbers with a unit, larger units first; 0 needs no unit. false when malformed or out of
 * 64 bits. */
bool duration_parse(const char *text, int64_t *ms);
const char *duration_format(int64_t ms, char out[DURATION_TEXT_MAX]);

/* The words of a list in one piece of memory, NULL-terminated: free() it. White space around a word is dropped; empty
 * words stay. */
char **list_split(const char *text);

#endif
