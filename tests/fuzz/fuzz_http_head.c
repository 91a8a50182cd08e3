/* The parser of answers' heads: any bytes, cut into lines as libcurl cuts them. Checks its bounds and what it stores.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_fields(const http_head_t *head, size_t max)
{
    const char *at = (const char *)head->fields.base;
    size_t len = head->fields.len;
    if (len > max)
        abort();
    if (len == 0)
        return;
    if (at[len - 1] != '\0')
        abort();
    for (size_t i = 0; i < len;) {
        size_t name_len = strlen(at + i);
        if (!http_is_token(at + i, name_len))
            abort();
        const char *found = http_head_find(at, len, at + i);
        const char *value = at + i + name_len + 1;
        if (found != NULL && found != value)
            abort();
        i = (size_t)(value - at) + strlen(value) + 1;
        if (i > len)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t max = data[0] * 8u;
    const char *at = (const char *)data + 1, *end = (const char *)data + size;
    http_head_t head;
    http_head_init(&head, max);
    size_t fed = 0;
    while (at < end) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        size_t len = feed != NULL ? (size_t)(feed - at) + 1 : (size_t)(end - at);
        bool had_ended = head.has_ended;
        http_head_result_t result = http_head_line(&head, at, len);
        fed += len;
        if ((result == HTTP_HEAD_TOO_LARGE) != (fed > max))
            abort();
        if (result == HTTP_HEAD_END && (had_ended || !head.has_ended || head.status < 100 || head.status > 999))
            abort();
        check_fields(&head, max);
        if (result != HTTP_HEAD_MORE && result != HTTP_HEAD_END)
            break;
        at += len;
    }
    http_head_dispose(&head);
    return 0;
}
