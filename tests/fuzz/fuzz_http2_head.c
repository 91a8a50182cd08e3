/* Heads of HTTP/2 requests: any names and values, as a compressed block could hold them. Whatever is taken says what
 * the fields said and nothing more: no field becomes two, none becomes another, none is lost. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http2_head.h"
#include "gateway/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIELDS_MAX = 200 };

typedef struct {
    const uint8_t *name, *value;
    size_t name_len, value_len;
} pair_t;

static bool is(const pair_t *p, const char *name)
{
    return p->name_len == strlen(name) && memcmp(p->name, name, p->name_len) == 0;
}

static void check_once(const pair_t *pairs, size_t count, const char *name, const char *text, size_t len)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is(&pairs[i], name))
            continue;
        found++;
        if (pairs[i].value_len != len || memcmp(pairs[i].value, text, len) != 0)
            abort();
    }
    if (found != 1)
        abort();
}

/* A field the head found is one of the given, with its very value but for white space around it. */
static void check_field(const pair_t *pairs, size_t count, const char *name, const head_field_t *field)
{
    unsigned found = 0;
    const pair_t *first = NULL;
    for (size_t i = 0; i < count; i++)
        if (is(&pairs[i], name) && found++ == 0)
            first = &pairs[i];
    if (found != field->count)
        abort();
    if (first != NULL && memmem(first->value, first->value_len, field->base, field->len) == NULL)
        abort();
}

static size_t lines_of(const buffer_t *text)
{
    size_t lines = 0;
    for (size_t i = 0; i + 1 < text->len; i++)
        lines += text->base[i] == '\r' && text->base[i + 1] == '\n';
    return lines;
}

static void check(const http2_head_t *h, const head_t *head, const pair_t *pairs, size_t count)
{
    size_t pseudo = 0, hosts = 0;
    for (size_t i = 0; i < count; i++) {
        pseudo += pairs[i].name_len != 0 && pairs[i].name[0] == ':';
        hosts += is(&pairs[i], "host");
    }
    if (pseudo < 3 || pseudo > 4 || hosts > 1 || hosts + pseudo < 4)
        abort();
    /* the request line, one Host, the other fields, the empty line */
    if (lines_of(&h->text) != 3 + count - pseudo - hosts || head->bytes != h->text.len)
        abort();
    size_t target = head->path.len + (head->query.base != NULL ? head->query.len + 1 : 0);
    check_once(pairs, count, ":path", head->path.base, target);
    check_once(pairs, count, ":method", head->method.base, head->method.len);
    check_field(pairs, count, "authorization", &head->authorization);
    check_field(pairs, count, "plimsoll-request-id", &head->request_id);
    check_field(pairs, count, "content-type", &head->content_type);
    check_field(pairs, count, "content-encoding", &head->content_encoding);
    check_field(pairs, count, "x-request-id", &head->x_request_id);
    if (head->chunked || !head->persistent || head->minor != 1)
        abort();
}

/* Each field: a byte of the name's length, the name, two bytes of the value's, the value. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pair_t pairs[FIELDS_MAX];
    size_t count = 0, at = 0;
    http2_head_t h;
    head_t head;
    const char *why;
    http2_head_init(&h);
    while (count < FIELDS_MAX && size - at >= 3) {
        pair_t p = {.name_len = data[at]};
        p.name = data + at + 1;
        if (size - at - 1 < p.name_len + 2)
            break;
        at += 1 + p.name_len;
        p.value_len = (size_t)data[at] << 8 | data[at + 1];
        p.value = data + at + 2;
        if (size - at - 2 < p.value_len)
            break;
        at += 2 + p.value_len;
        http2_head_add(&h, p.name, p.name_len, p.value, p.value_len);
        pairs[count++] = p;
    }
    head_result_t result = http2_head_parse(&h, &head, &why);
    if (result == HEAD_INCOMPLETE || (result == HEAD_OK) != (why == NULL))
        abort();
    if (result == HEAD_OK)
        check(&h, &head, pairs, count);
    http2_head_dispose(&h);
    return 0;
}
