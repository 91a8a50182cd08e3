#include "records/project_rules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/utf8.h"

/* U+0000 to U+001F and U+007F to U+009F; the text is valid UTF-8. */
static bool has_control(const char *text)
{
    for (const uint8_t *p = (const uint8_t *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f))
            return true;
    }
    return false;
}

static bool has_bad_segment(const char *path)
{
    for (const char *p = path;; p++) {
        size_t len = strcspn(p, "/");
        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return true;
        p += len;
        if (*p == '\0')
            return false;
    }
}

path_rule_t path_check(const char *path)
{
    size_t len = strlen(path);
    if (len == 0 || len > PATH_BYTES_MAX)
        return PATH_LENGTH;
    if (!utf8_is_valid(path, len))
        return PATH_ENCODING;
    if (has_bad_segment(path))
        return PATH_SEGMENTS;
    return strchr(path, '\\') != NULL || has_control(path) ? PATH_CHARACTERS : PATH_HOLDS;
}
