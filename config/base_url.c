#include "config/base_url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "config/options.h"

/* What follows "://", and whether that is TLS; NULL for another scheme. */
static const char *authority_of(const char *text, bool *is_tls)
{
    *is_tls = strncasecmp(text, "https://", 8) == 0;
    if (*is_tls)
        return text + 8;
    return strncasecmp(text, "http://", 7) == 0 ? text + 7 : NULL;
}

static size_t authority_len(const char *authority)
{
    return strcspn(authority, "/?#");
}

/* "[...]" or a name; false when it is malformed. `len` counts the brackets. */
static bool host_span(const char *authority, size_t *len)
{
    if (authority[0] != '[') {
        *len = strspn(authority, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
        return *len > 0 && *len <= BASE_URL_HOST_MAX && isalnum((unsigned char)authority[0]);
    }
    const char *end = strchr(authority, ']');
    char inside[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (end == NULL || (size_t)(end - authority - 1) >= sizeof(inside))
        return false;
    memcpy(inside, authority + 1, (size_t)(end - authority - 1));
    inside[end - authority - 1] = '\0';
    *len = (size_t)(end - authority) + 1;
    return inet_pton(AF_INET6, inside, &address) == 1;
}

/* ":1" to ":65535", or nothing. */
static bool is_port(const char *text, size_t len)
{
    enum { PORT_MAX = 65535, DIGITS_MAX = 5 };
    int value = 0;

    if (len == 0)
        return true;
    if (text[0] != ':' || len < 2 || len > DIGITS_MAX + 1)
        return false;
    for (size_t i = 1; i < len; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (text[i] - '0');
    }
    return value > 0 && value <= PORT_MAX;
}

static bool has_dot_segment(const char *path)
{
    for (const char *at = path; (at = strchr(at, '/')) != NULL;) {
        size_t len = strcspn(++at, "/");
        if ((len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.'))
            return true;
    }
    return false;
}

void base_url_host(const char *text, char host[BASE_URL_HOST_MAX + 1])
{
    bool is_tls;
    const char *authority = authority_of(text, &is_tls);
    size_t len = 0;

    host[0] = '\0';
    if (authority == NULL || !host_span(authority, &len))
        return;
    if (authority[0] == '[') {
        authority++;
        len -= 2;
    }
    for (size_t i = 0; i < len; i++)
        host[i] = (char)tolower((unsigned char)authority[i]);
    host[len] = '\0';
}

bool base_url_is_loopback(const char *text)
{
    char host[BASE_URL_HOST_MAX + 1];

    base_url_host(text, host);
    return address_is_loopback(host);
}

const char *base_url_problem(const char *text)
{
    bool is_tls;
    const char *authority = authority_of(text, &is_tls);
    size_t len, host_len;

    if (strlen(text) > BASE_URL_MAX)
        return "it is too long";
    if (authority == NULL)
        return "it takes an absolute URL, https://...";
    len = authority_len(authority);
    if (memchr(authority, '@', len) != NULL)
        return "it takes no user or password";
    if (strpbrk(text, "?#") != NULL)
        return "it takes no query or fragment";
    if (!host_span(authority, &host_len) || !is_port(authority + host_len, len - host_len))
        return "it takes a host, and perhaps a port, after https://";
    if (authority[len + strspn(authority + len, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
                                                "/:@!$&'()*+,;=")] != '\0')
        return "its path holds a character that no path has";
    if (has_dot_segment(authority + len))
        return "its path has a . or .. in it";
    if (!is_tls && !base_url_is_loopback(text))
        return "http is for a loopback host only: it takes https://...";
    return NULL;
}

size_t base_url_len(const char *text)
{
    size_t len = strlen(text);

    while (len > 0 && text[len - 1] == '/')
        len--;
    return len;
}
