/* Where a credential may be sent, taken apart. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/cloud/cloud_http.h"

enum { PORT_HTTP = 80, PORT_HTTPS = 443 };

/* Of a text without a problem: digits after the last ':' behind the host, or none. */
static uint16_t port_of(const char *authority, size_t len, uint16_t usual)
{
    const char *end = authority + len, *colon = end;
    while (colon > authority && colon[-1] != ':' && colon[-1] != ']')
        --colon;
    return colon > authority && colon[-1] == ':' && colon < end ? (uint16_t)strtoul(colon, NULL, 10) : usual;
}

const char *cloud_base_parse(const char *text, cloud_base_t *out)
{
    const char *problem = base_url_problem(text);
    *out = (cloud_base_t){.port = 0};
    if (problem != NULL)
        return problem;
    size_t len = base_url_len(text), scheme_len = strncasecmp(text, "https", 5) == 0 ? 8 : 7;
    memcpy(out->url, text, len);
    out->url[len] = '\0';
    out->is_https = scheme_len == 8;
    base_url_host(text, out->host);
    out->port = port_of(text + scheme_len, strcspn(text + scheme_len, "/"), out->is_https ? PORT_HTTPS : PORT_HTTP);
    return NULL;
}

bool cloud_url_escape(buffer_t *out, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t before = out->len;
    for (; *text != '\0'; ++text) {
        unsigned char c = (unsigned char)*text;
        char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
        bool is_plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || strchr("-._~", c) != NULL;
        if (is_plain ? !buffer_append(out, text, 1) : !buffer_append(out, escaped, sizeof(escaped))) {
            out->len = before;
            if (out->base != NULL)
                out->base[before] = '\0';
            return false;
        }
    }
    return true;
}
