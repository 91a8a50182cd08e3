/* The answer to an attach, of arbitrary bytes and at every length: once it is judged, more bytes change nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/attach.h"
#include "backends/docker/attach_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static attach_head_result_t read_copy(const uint8_t *data, size_t len, attach_head_t *head)
{
    /* An exact copy, so that a read past its end is seen. */
    uint8_t *copy = malloc(len != 0 ? len : 1);
    if (len != 0)
        memcpy(copy, data, len);
    attach_head_result_t result = attach_head_read(copy, len, head);
    free(copy);
    if ((result == ATTACH_HEAD_BAD) != (head->why != NULL))
        abort();
    if (result == ATTACH_HEAD_UPGRADED && head->status != 101 && head->status != 200)
        abort();
    if (result == ATTACH_HEAD_REFUSED && (head->status < 201 || head->status > 599))
        abort();
    if ((result == ATTACH_HEAD_UPGRADED || result == ATTACH_HEAD_REFUSED) &&
        (head->head_len > len || memcmp(data + head->head_len - 4, "\r\n\r\n", 4) != 0))
        abort();
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attach_head_t whole, part;
    if (size > ATTACH_HEAD_MAX)
        size = ATTACH_HEAD_MAX;
    attach_head_result_t result = read_copy(data, size, &whole);
    size_t step = size / 64 + 1;
    for (size_t len = 0; len < size; len += step) {
        attach_head_result_t early = read_copy(data, len, &part);
        if (early != ATTACH_HEAD_MORE && (early != result || part.status != whole.status ||
                                          part.head_len != whole.head_len || part.why != whole.why))
            abort();
    }
    return 0;
}
