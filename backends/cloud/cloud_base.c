/* Where a credential may be sent. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/cloud/cloud_http.h"
#include "config/options.h"

enum { PORT_HTTP = 80, PORT_HTTPS = 443, PORT_MAX = 65535, PORT_DIGITS_MAX = 5 };

static bool is_visible_ascii(const char *text)
{
    for (; *text != '\0'; ++text)
        if (*text < 0x21 || *text > 0x7e)
            return false;
    return true;
}

/* Letters, digits, points and dashes; or an IPv6 address, whose brackets are gone. */
static bool is_host(const char *host, bool is_bracketed)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    struct in6_addr v6;
    struct in_addr v4;
    if (is_bracketed)
        return inet_pton(AF_INET6, host, &v6) == 1;
    if (host[0] == '\0' || host[strspn(host, letters)] != '\0' || host[0] == '.' || host[0] == '-')
        return false;
    /* digits and points alone: a resolver reads 127.1 as 127.0.0.1 */
    return host[strspn(host, "0123456789.")] != '\0' || inet_pton(AF_INET, host, &v4) == 1;
}

static bool read_port(const char *text, uint16_t *port)
{
    size_t len = strlen(text);
    unsigned value = 0;
    if (len == 0 || len > PORT_DIGITS_MAX || strspn(text, "0123456789") != len || text[0] == '0')
        return false;
    for (; *text != '\0'; ++text)
        value = value * 10 + (unsigned)(*text - '0');
    *port = (uint16_t)value;
    return value <= PORT_MAX;
}

static bool read_authority(char *text, cloud_base_t *out)
{
    char *host = text, *rest;
    bool is_bracketed = text[0] == '[';
    if (is_bracketed) {
        host = text + 1;
        if ((rest = strchr(host, ']')) == NULL)
            return false;
        *rest++ = '\0';
    } else if ((rest = strchr(host, ':')) == NULL) {
        rest = host + strlen(host);
    }
    const char *port = NULL;
    if (*rest == ':') {
        *rest = '\0';
        port = rest + 1;
    } else if (*rest != '\0') {
        return false;
    }
    if (!is_host(host, is_bracketed) || strlen(host) >= sizeof(out->host))
        return false;
    snprintf(out->host, sizeof(out->host), "%s", host);
    out->port = out->is_https ? PORT_HTTPS : PORT_HTTP;
    return port == NULL || read_port(port, &out->port);
}

static bool is_plain_path(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:@!$&'()*+,;=";
    if (path[strspn(path, letters)] != '\0')
        return false;
    for (const char *part = path; *part == '/';) {
        size_t len = strcspn(++part, "/");
        if ((len == 0 && part[len] == '/') || (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0))
            return false;
        part += len;
    }
    return true;
}

const char *cloud_base_parse(const char *text, cloud_base_t *out)
{
    char authority[CLOUD_BASE_MAX + 1];
    size_t len = strnlen(text, CLOUD_BASE_MAX + 1), scheme_len;
    *out = (cloud_base_t){.port = 0};
    if (len > CLOUD_BASE_MAX)
        return "is too long";
    if (!is_visible_ascii(text))
        return "holds something that is not visible ASCII";
    if (strncasecmp(text, "https://", 8) == 0)
        scheme_len = 8;
    else if (strncasecmp(text, "http://", 7) == 0)
        scheme_len = 7;
    else
        return "is no absolute https URL";
    out->is_https = scheme_len == 8;
    if (strpbrk(text, "?#") != NULL)
        return "has a query or a fragment";
    size_t authority_len = strcspn(text + scheme_len, "/");
    memcpy(authority, text + scheme_len, authority_len);
    authority[authority_len] = '\0';
    if (strchr(authority, '@') != NULL)
        return "holds a user or a password";
    if (!read_authority(authority, out))
        return "has no valid host and port";
    if (!out->is_https && !address_is_loopback(out->host))
        return "is http to another machine: a credential would cross the network in the clear";
    while (len > scheme_len && text[len - 1] == '/')
        --len;
    memcpy(out->url, text, len);
    out->url[len] = '\0';
    if (len > scheme_len + authority_len && !is_plain_path(out->url + scheme_len + authority_len))
        return "has a path that is not plain";
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
            return false;
        }
    }
    return true;
}
