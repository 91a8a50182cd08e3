#include "backends/docker/smoke_words.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/smoke_report.h"

const char *smoke_word(const json_t *object, const char *name)
{
    const char *word = json_string_value(json_object_get(object, name));
    return word != NULL ? word : "";
}

bool smoke_is_errno(const char *word)
{
    size_t len = strlen(word);
    return len >= 2 && len < 32 && word[0] == 'E' && strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == len;
}

bool smoke_is_denied(const char *word)
{
    return strcmp(word, "EPERM") == 0 || strcmp(word, "ENOSYS") == 0;
}

void smoke_printable(const char *text, char *out, size_t size)
{
    size_t len = 0;
    for (; *text != '\0' && len < size - 1; ++text) {
        if (*text >= 0x20 && *text < 0x7f)
            out[len++] = *text;
    }
    out[len] = '\0';
}

bool smoke_fail(char why[BACKEND_TEXT_MAX], const char *what)
{
    snprintf(why, BACKEND_TEXT_MAX, "%s", what);
    return false;
}

bool smoke_fail_word(char why[BACKEND_TEXT_MAX], const char *what, const char *word)
{
    char shown[SMOKE_WORD_MAX];
    smoke_printable(word != NULL ? word : "?", shown, sizeof(shown));
    snprintf(why, BACKEND_TEXT_MAX, "%s%s", what, shown);
    return false;
}
