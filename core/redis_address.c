/*
 * Where Redis is, from one URL. Follows the redis: and redis+unix: forms the Redis clients share, on the syntax of RFC
 * 3986; stricter than they are, since a typing error that still parses would point the gateway at another store. The
 * texts returned are static: a URL holds a password.
 */
#include "core/redis.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/mem.h"

enum {
    HOST_MAX = 253, /* RFC 1035 section 2.3.4, written out with dots */
    PATH_MAX_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path) - 1, /* and its NUL */
};

/* A part of the URL; `base` NULL = absent. */
typedef struct {
    const char *base;
    size_t len;
} span_t;

static span_t span(const char *from, const char *to)
{
    return (span_t){.base = from, .len = (size_t)(to - from)};
}

static const char *span_end(span_t s)
{
    return s.base + s.len;
}

static const char *find_first(span_t s, char c)
{
    return s.base != NULL ? memchr(s.base, c, s.len) : NULL;
}

static const char *find_last(span_t s, char c)
{
    return s.base != NULL ? memrchr(s.base, c, s.len) : NULL;
}

static bool span_is(span_t s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.base, text, s.len) == 0;
}

static bool is_printable_ascii(const char *s)
{
    for (; *s != '\0'; s++)
        if (*s <= 0x20 || *s >= 0x7f)
            return false;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* NULL when an escape is malformed, makes a NUL, or the result is longer than `max`. */
static char *decode(span_t s, size_t max)
{
    char *out = mem_alloc(s.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++, n++) {
        out[n] = s.base[i];
        if (s.base[i] != '%')
            continue;
        int high = i + 2 < s.len ? hex_digit(s.base[i + 1]) : -1, low = i + 2 < s.len ? hex_digit(s.base[i + 2]) : -1;
        if (high < 0 || low < 0 || high + low == 0)
            goto Malformed;
        out[n] = (char)(high << 4 | low);
        i += 2;
    }
    if (n > max)
        goto Malformed;
    return out;

Malformed:
    explicit_bzero(out, s.len);
    free(out);
    return NULL;
}

/* Digits without a leading zero, up to `max`. */
static bool parse_number(span_t s, int max, int *out)
{
    int n = 0;
    if (s.len == 0 || s.len > 5 || (s.len > 1 && s.base[0] == '0'))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.base[i] < '0' || s.base[i] > '9')
            return false;
        n = n * 10 + (s.base[i] - '0');
    }
    *out = n;
    return n <= max;
}

static bool is_host_name(span_t s)
{
    static const char ALLOWED[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (s.len == 0 || s.len > HOST_MAX || s.base[0] == '-' || s.base[0] == '.')
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (strchr(ALLOWED, s.base[i]) == NULL)
            return false;
    return true;
}

static const char *parse_userinfo(span_t s, redis_address_t *out)
{
    const char *colon = find_first(s, ':');
    span_t user = span(s.base, colon != NULL ? colon : span_end(s));
    if (find_first(s, '@') != NULL)
        return "an '@' in the user or password must be written %40";
    if (user.len == 0 && colon == NULL)
        return "nothing stands before the '@'";
    if (user.len != 0 && (out->user = decode(user, REDIS_CREDENTIAL_MAX)) == NULL)
        return "the user is too long or its percent-encoding is malformed";
    if (colon != NULL && (out->password = decode(span(colon + 1, span_end(s)), REDIS_CREDENTIAL_MAX)) == NULL)
        return "the password is too long or its percent-encoding is malformed";
    return NULL;
}

static const char *parse_host(span_t s, redis_address_t *out)
{
    const char *colon;
    if (s.len != 0 && s.base[0] == '[') {
        const char *bracket = find_first(s, ']');
        uint8_t binary[sizeof(struct in6_addr)];
        if (bracket == NULL)
            return "the IPv6 address lacks its ']'";
        out->host = mem_strndup(s.base + 1, (size_t)(bracket - s.base - 1));
        if (inet_pton(AF_INET6, out->host, binary) != 1)
            return "what is in brackets is not an IPv6 address";
        colon = bracket + 1;
        if (colon != span_end(s) && *colon != ':')
            return "only a port may follow the ']'";
    } else {
        colon = find_first(s, ':');
        if (colon == NULL)
            colon = span_end(s);
        span_t host = span(s.base, colon);
        if (!is_host_name(host))
            return "the host is missing or not a host name";
        out->host = mem_strndup(host.base, host.len);
    }
    if (colon != span_end(s) && (!parse_number(span(colon + 1, span_end(s)), 65535, &out->port) || out->port == 0))
        return "the port must be 1 to 65535";
    return NULL;
}

/* [user[:password]@]host[:port][/db] */
static const char *parse_tcp(span_t s, redis_address_t *out)
{
    const char *slash, *at, *err;
    if (find_first(s, '?') != NULL || find_first(s, '#') != NULL)
        return "a redis:// URL has no '?' or '#'";
    slash = find_first(s, '/');
    span_t authority = span(s.base, slash != NULL ? slash : span_end(s));
    if ((at = find_last(authority, '@')) != NULL) {
        if ((err = parse_userinfo(span(authority.base, at), out)) != NULL)
            return err;
        authority = span(at + 1, span_end(authority));
    }
    out->port = REDIS_PORT;
    if ((err = parse_host(authority, out)) != NULL)
        return err;
    if (slash != NULL && slash + 1 != span_end(s) &&
        !parse_number(span(slash + 1, span_end(s)), REDIS_DATABASE_MAX, &out->database))
        return "the database must be a number";
    return NULL;
}

static const char *parse_parameter(span_t s, redis_address_t *out, unsigned *seen)
{
    enum { DB = 1, PASSWORD = 2, USER = 4 };
    const char *equals = find_first(s, '=');
    if (equals == NULL)
        return "a parameter must be written name=value";
    span_t name = span(s.base, equals), value = span(equals + 1, span_end(s));
    unsigned which = span_is(name, "db") ? DB : span_is(name, "password") ? PASSWORD : span_is(name, "user") ? USER : 0;
    if (which == 0)
        return "the parameters are db, user and password";
    if ((*seen & which) != 0)
        return "a parameter is repeated";
    *seen |= which;
    if (which == DB && !parse_number(value, REDIS_DATABASE_MAX, &out->database))
        return "the database must be a number";
    if (which == PASSWORD && (out->password = decode(value, REDIS_CREDENTIAL_MAX)) == NULL)
        return "the password is too long or its percent-encoding is malformed";
    if (which == USER && (value.len == 0 || (out->user = decode(value, REDIS_CREDENTIAL_MAX)) == NULL))
        return "the user is empty, too long or its percent-encoding is malformed";
    return NULL;
}

/* /path[?db=N][&user=U][&password=P] */
static const char *parse_unix(span_t s, redis_address_t *out)
{
    const char *question = find_first(s, '?'), *err;
    unsigned seen = 0;
    span_t path = span(s.base, question != NULL ? question : span_end(s));
    if (find_first(s, '#') != NULL)
        return "a '#' must be written %23";
    if (path.len < 2 || path.base[0] != '/')
        return "the socket must be an absolute path, after three slashes";
    if ((out->path = decode(path, PATH_MAX_BYTES)) == NULL)
        return "the path is too long for a Unix socket or its percent-encoding is malformed";
    while (question != NULL) {
        span_t rest = span(question + 1, span_end(s));
        const char *next = find_first(rest, '&');
        if ((err = parse_parameter(span(rest.base, next != NULL ? next : span_end(rest)), out, &seen)) != NULL)
            return err;
        question = next;
    }
    return NULL;
}

const char *redis_address_parse(const char *url, redis_address_t *out)
{
    static const struct {
        const char *scheme;
        const char *(*parse)(span_t, redis_address_t *);
    } FORMS[] = {{"redis://", parse_tcp}, {"redis+unix://", parse_unix}, {"unix://", parse_unix}};
    const char *err = "it must start redis://, redis+unix:// or unix://";
    *out = (redis_address_t){0};
    if (strnlen(url, REDIS_URL_MAX + 1) > REDIS_URL_MAX)
        return "it is too long";
    if (!is_printable_ascii(url))
        return "spaces, control bytes and bytes past ASCII must be percent-encoded";
    for (size_t i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++) {
        size_t len = strlen(FORMS[i].scheme);
        if (strncmp(url, FORMS[i].scheme, len) == 0)
            err = FORMS[i].parse(span(url + len, url + strlen(url)), out);
    }
    if (err != NULL)
        redis_address_dispose(out);
    return err;
}

static void wipe(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void redis_address_dispose(redis_address_t *a)
{
    free(a->host);
    free(a->path);
    free(a->user);
    wipe(a->password);
    *a = (redis_address_t){0};
}
