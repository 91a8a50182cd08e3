/* What an error answer of Redis speaks of. The words are those Redis' errors begin with; one that a command of a script
 * met stands, before Redis 7, behind the script's own words as "-WORD ". */
#include "records/store_internal.h"

#include <stdio.h>
#include <string.h>

static bool says(const char *err, const char *word)
{
    char inner[24];
    snprintf(inner, sizeof(inner), "-%s ", word);
    return strncmp(err, word, strlen(word)) == 0 || strstr(err, inner) != NULL;
}

store_error_t store_error_of(const char *err)
{
    static const struct {
        const char *word;
        store_error_t error;
    } rows[] = {
        {"OOM", STORE_ERROR_SERVER},         {"MISCONF", STORE_ERROR_SERVER},  {"NOREPLICAS", STORE_ERROR_SERVER},
        {"CLUSTERDOWN", STORE_ERROR_SERVER}, {"NOAUTH", STORE_ERROR_SERVER},   {"NOPERM", STORE_ERROR_SERVER},
        {"WRONGPASS", STORE_ERROR_SERVER},   {"BUSY", STORE_ERROR_SERVER},     {"READONLY", STORE_ERROR_NODE},
        {"LOADING", STORE_ERROR_NODE},       {"MASTERDOWN", STORE_ERROR_NODE}, {"MOVED", STORE_ERROR_NODE},
        {"ASK", STORE_ERROR_NODE},           {"TRYAGAIN", STORE_ERROR_NODE},   {"NOSCRIPT", STORE_ERROR_NODE},
    };
    for (size_t i = 0; i != sizeof(rows) / sizeof(rows[0]); ++i)
        if (says(err, rows[i].word))
            return rows[i].error;
    return STORE_ERROR_COMMAND;
}
