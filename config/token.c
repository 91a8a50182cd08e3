#include "config/token.h"

#include "core/random.h"
#include "core/sha256.h"

const char *token_check(const char *text, size_t len)
{
    if (len < TOKEN_MIN || len > TOKEN_MAX)
        return "must have 32 to 4096 characters";
    for (size_t i = 0; i < len; i++)
        if (text[i] < 0x21 || text[i] > 0x7e)
            return "must be of visible ASCII characters, without spaces";
    return NULL;
}

size_t token_strip_newline(const char *text, size_t len)
{
    if (len > 0 && text[len - 1] == '\n') {
        len--;
        if (len > 0 && text[len - 1] == '\r')
            len--;
    }
    return len;
}

void token_sha256(const char *text, size_t len, uint8_t out[32])
{
    sha256_t *s = sha256_begin();
    sha256_add(s, text, len);
    sha256_end(s, out);
}

void token_generate(char out[TOKEN_GENERATED + 1])
{
    random_hex(out, TOKEN_GENERATED / 2);
}
