#include "backends/e2b/upload.h"

#include <stdio.h>
#include <string.h>

#include "core/random.h"
#include "core/utf8.h"

void e2b_boundary(char out[E2B_BOUNDARY + 1])
{
    char random[33];
    random_hex(random, 16);
    snprintf(out, E2B_BOUNDARY + 1, "plimsoll%s", random);
}

bool e2b_is_part_name(const char *path)
{
    size_t len = strnlen(path, E2B_PATH_MAX + 1);
    if (path[0] != '/' || len > E2B_PATH_MAX || !utf8_is_valid(path, len))
        return false;
    for (size_t i = 0; i < len; ++i) {
        unsigned char c = (unsigned char)path[i];
        if (c < ' ' || c == 0x7f || c == '"' || c == '\\')
            return false;
    }
    return true;
}

bool e2b_upload_add(buffer_t *body, const char *boundary, const char *path, const void *content, size_t len)
{
    return e2b_is_part_name(path) &&
           buffer_printf(body,
                         "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n"
                         "Content-Type: application/octet-stream\r\n\r\n",
                         boundary, path) &&
           (len == 0 || buffer_append(body, content, len)) && buffer_append_str(body, "\r\n");
}

bool e2b_upload_end(buffer_t *body, const char *boundary)
{
    return buffer_printf(body, "--%s--\r\n", boundary);
}

/* "HASH  PATH\n", or "HASH *PATH\n" where it reads in binary. Past it when it is this one. */
static bool take_line(const char **at, const char *end, const char *path, const char hash[SHA256_HEX + 1])
{
    size_t path_len = strlen(path), need = SHA256_HEX + 2 + path_len + 1;
    const char *p = *at;
    if ((size_t)(end - p) < need || memcmp(p, hash, SHA256_HEX) != 0 || p[SHA256_HEX] != ' ' ||
        (p[SHA256_HEX + 1] != ' ' && p[SHA256_HEX + 1] != '*') || memcmp(p + SHA256_HEX + 2, path, path_len) != 0 ||
        p[need - 1] != '\n')
        return false;
    *at = p + need;
    return true;
}

bool e2b_hashes_match(const void *output, size_t len, const char *const *paths, char (*hashes)[SHA256_HEX + 1],
                      size_t count, char why[E2B_TEXT_MAX])
{
    const char *at = output, *end = at + len;
    for (size_t i = 0; i < count; ++i) {
        if (!take_line(&at, end, paths[i], hashes[i])) {
            snprintf(why, E2B_TEXT_MAX, "the sandbox does not hold what was sent: %s", paths[i]);
            return false;
        }
    }
    why[0] = '\0';
    if (at != end)
        snprintf(why, E2B_TEXT_MAX, "the check of the files said more than was asked");
    return at == end;
}
