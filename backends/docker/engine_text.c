#include "backends/docker/engine_text.h"

#include <string.h>

#include "backends/docker/engine.h"

void engine_text_set(char *out, size_t size, const char *text)
{
    size_t i = 0;
    for (; i + 1 < size && text[i] != '\0'; ++i)
        out[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    out[i] = '\0';
}

bool engine_is_id(const char *text)
{
    return text != NULL && strnlen(text, ENGINE_ID_BYTES + 1) == ENGINE_ID_BYTES &&
           strspn(text, "0123456789abcdef") == ENGINE_ID_BYTES;
}

static bool is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool engine_is_name(const char *text)
{
    size_t len = strnlen(text, ENGINE_NAME_MAX + 1);
    if (len == 0 || len > ENGINE_NAME_MAX || !is_alphanumeric(text[0]))
        return false;
    for (size_t i = 1; i < len; ++i)
        if (!is_alphanumeric(text[i]) && strchr("_.-", text[i]) == NULL)
            return false;
    return true;
}

/* An escaped '/' is a '/' again before the Engine looks for the path, and it walks "..": no such part may be sent. */
static bool is_path_step(const char *part, size_t len)
{
    return len == 0 || (len == 1 && part[0] == '.') || (len == 2 && part[0] == '.' && part[1] == '.');
}

bool engine_is_reference(const char *text)
{
    size_t len = strnlen(text, ENGINE_REFERENCE_MAX + 1);
    if (len == 0 || len > ENGINE_REFERENCE_MAX)
        return false;
    for (size_t i = 0; i < len; ++i)
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return false;
    for (const char *part = text;;) {
        size_t part_len = strcspn(part, "/");
        if (is_path_step(part, part_len))
            return false;
        if (part[part_len] == '\0')
            return true;
        part += part_len + 1;
    }
}

bool engine_text_escape(buffer_t *out, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; *text != '\0'; ++text) {
        unsigned char c = (unsigned char)*text;
        char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
        bool is_plain = is_alphanumeric(*text) || strchr("-._~", *text) != NULL;
        if (is_plain ? !buffer_append(out, text, 1) : !buffer_append(out, escaped, sizeof(escaped)))
            return false;
    }
    return true;
}
