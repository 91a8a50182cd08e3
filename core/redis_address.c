/*
 * Where Redis is, from one URL. Follows the redis:, rediss:, redis+unix: and redis+sentinel: forms the Redis clients
 * share, on the syntax of RFC 3986; stricter than they are, since a typing error that still parses would point the
 * gateway at another store. The texts returned are static: a URL holds a password.
 */
#include "core/hex.h"
#include "core/redis.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/mem.h"
#include "core/tls_stream.h"

enum {
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

static const char NAME_BYTES[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

static bool has_only(span_t s, const char *allowed)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.base[i] == '\0' || strchr(allowed, s.base[i]) == NULL)
            return false;
    return true;
}

static bool is_host_name(span_t s)
{
    return s.len != 0 && s.len <= REDIS_HOST_MAX && s.base[0] != '-' && s.base[0] != '.' && has_only(s, NAME_BYTES);
}

static bool is_ipv6(span_t s)
{
    char text[INET6_ADDRSTRLEN];
    uint8_t binary[sizeof(struct in6_addr)];
    if (s.len >= sizeof(text))
        return false;
    memcpy(text, s.base, s.len);
    text[s.len] = '\0';
    return inet_pton(AF_INET6, text, binary) == 1;
}

bool redis_is_host(const char *host, size_t len)
{
    span_t s = {host, len};
    return is_host_name(s) || is_ipv6(s);
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

static const char *parse_host(span_t s, char **host, int *port)
{
    const char *colon;
    if (s.len != 0 && s.base[0] == '[') {
        const char *bracket = find_first(s, ']');
        if (bracket == NULL)
            return "the IPv6 address lacks its ']'";
        if (!is_ipv6(span(s.base + 1, bracket)))
            return "what is in brackets is not an IPv6 address";
        *host = mem_strndup(s.base + 1, (size_t)(bracket - s.base - 1));
        colon = bracket + 1;
        if (colon != span_end(s) && *colon != ':')
            return "only a port may follow the ']'";
    } else {
        colon = find_first(s, ':');
        if (colon == NULL)
            colon = span_end(s);
        span_t name = span(s.base, colon);
        if (!is_host_name(name))
            return "the host is missing or not a host name";
        *host = mem_strndup(name.base, name.len);
    }
    if (colon != span_end(s) && (!parse_number(span(colon + 1, span_end(s)), 65535, port) || *port == 0))
        return "the port must be 1 to 65535";
    return NULL;
}

/* Takes [user[:password]@] from the front of `authority`. */
static const char *take_userinfo(span_t *authority, redis_address_t *out)
{
    const char *at = find_last(*authority, '@');
    if (at == NULL)
        return NULL;
    span_t info = span(authority->base, at);
    *authority = span(at + 1, span_end(*authority));
    return parse_userinfo(info, out);
}

/* [user[:password]@]host[:port][/db] */
static const char *parse_tcp(span_t s, redis_address_t *out)
{
    const char *slash, *err;
    if (find_first(s, '?') != NULL || find_first(s, '#') != NULL)
        return "a redis:// or rediss:// URL has no '?' or '#'";
    slash = find_first(s, '/');
    span_t authority = span(s.base, slash != NULL ? slash : span_end(s));
    if ((err = take_userinfo(&authority, out)) != NULL)
        return err;
    out->port = REDIS_PORT;
    if ((err = parse_host(authority, &out->host, &out->port)) != NULL)
        return err;
    if (slash != NULL && slash + 1 != span_end(s) &&
        !parse_number(span(slash + 1, span_end(s)), REDIS_DATABASE_MAX, &out->database))
        return "the database must be a number";
    return NULL;
}

static const char *parse_tls(span_t s, redis_address_t *out)
{
    out->is_tls = true;
    return parse_tcp(s, out);
}

/* --- parameters --- */

enum { PARAMETER_DB = 1, PARAMETER_USER = 2, PARAMETER_PASSWORD = 4 };

/* The names the parameters have in a form of the URL, and where their texts go. */
typedef struct {
    const char *user_name, *password_name;
    char **user, **password;
    const char *names_err;
} parameters_t;

static unsigned which_parameter(span_t name, const parameters_t *p)
{
    if (span_is(name, "db"))
        return PARAMETER_DB;
    if (span_is(name, p->user_name))
        return PARAMETER_USER;
    return span_is(name, p->password_name) ? PARAMETER_PASSWORD : 0;
}

static const char *parse_parameter(span_t s, const parameters_t *p, int *database, unsigned *seen)
{
    const char *equals = find_first(s, '=');
    if (equals == NULL)
        return "a parameter must be written name=value";
    span_t value = span(equals + 1, span_end(s));
    unsigned which = which_parameter(span(s.base, equals), p);
    if (which == 0)
        return p->names_err;
    if ((*seen & which) != 0)
        return "a parameter is repeated";
    *seen |= which;
    if (which == PARAMETER_DB && !parse_number(value, REDIS_DATABASE_MAX, database))
        return "the database must be a number";
    if (which == PARAMETER_PASSWORD && (*p->password = decode(value, REDIS_CREDENTIAL_MAX)) == NULL)
        return "the password is too long or its percent-encoding is malformed";
    if (which == PARAMETER_USER && (value.len == 0 || (*p->user = decode(value, REDIS_CREDENTIAL_MAX)) == NULL))
        return "the user is empty, too long or its percent-encoding is malformed";
    return NULL;
}

/* `question` is at the '?', or NULL: there are none. */
static const char *parse_parameters(const char *question, const char *end, const parameters_t *p, int *database)
{
    unsigned seen = 0;
    while (question != NULL) {
        span_t rest = span(question + 1, end);
        const char *next = find_first(rest, '&');
        const char *err = parse_parameter(span(rest.base, next != NULL ? next : end), p, database, &seen);
        if (err != NULL)
            return err;
        question = next;
    }
    return NULL;
}

/* /path[?db=N][&user=U][&password=P] */
static const char *parse_unix(span_t s, redis_address_t *out)
{
    const char *question = find_first(s, '?');
    const parameters_t parameters = {"user", "password", &out->user, &out->password,
                                     "the parameters are db, user and password"};
    span_t path = span(s.base, question != NULL ? question : span_end(s));
    if (find_first(s, '#') != NULL)
        return "a '#' must be written %23";
    if (path.len < 2 || path.base[0] != '/')
        return "the socket must be an absolute path, after three slashes";
    if ((out->path = decode(path, PATH_MAX_BYTES)) == NULL)
        return "the path is too long for a Unix socket or its percent-encoding is malformed";
    return parse_parameters(question, span_end(s), &parameters, &out->database);
}

/* --- Sentinel --- */

static const char *parse_sentinels(span_t hosts, redis_address_t *out)
{
    const char *comma, *err;
    do {
        if (out->sentinel_count == REDIS_SENTINELS_MAX)
            return "there are more than 8 Sentinels";
        redis_node_t *node = &out->sentinels[out->sentinel_count++];
        comma = find_first(hosts, ',');
        node->port = REDIS_SENTINEL_PORT;
        err = parse_host(span(hosts.base, comma != NULL ? comma : span_end(hosts)), &node->host, &node->port);
        if (err != NULL)
            return err;
        if (comma != NULL)
            hosts = span(comma + 1, span_end(hosts));
    } while (comma != NULL);
    return NULL;
}

/* [user[:password]@]host[:port][,host[:port]...]/MASTER[?db=N][&sentinel_user=U][&sentinel_password=P] */
static const char *parse_sentinel(span_t s, redis_address_t *out)
{
    const parameters_t parameters = {"sentinel_user", "sentinel_password", &out->sentinel_user, &out->sentinel_password,
                                     "the parameters are db, sentinel_user and sentinel_password"};
    const char *slash = find_first(s, '/'), *question = find_first(s, '?'), *err;
    if (find_first(s, '#') != NULL)
        return "a '#' must be written %23";
    if (slash == NULL || (question != NULL && question < slash))
        return "the master's name must follow the Sentinels, after a slash";
    span_t authority = span(s.base, slash), name = span(slash + 1, question != NULL ? question : span_end(s));
    if ((err = take_userinfo(&authority, out)) != NULL || (err = parse_sentinels(authority, out)) != NULL)
        return err;
    if (name.len == 0 || name.len > REDIS_MASTER_NAME_MAX || !has_only(name, NAME_BYTES))
        return "the master's name takes 1 to 64 letters, digits and - . _";
    out->master = mem_strndup(name.base, name.len);
    if ((err = parse_parameters(question, span_end(s), &parameters, &out->database)) != NULL)
        return err;
    return out->sentinel_user != NULL && out->sentinel_password == NULL ? "sentinel_user needs sentinel_password"
                                                                        : NULL;
}

static const char *parse_sentinel_tls(span_t s, redis_address_t *out)
{
    out->is_tls = true;
    return parse_sentinel(s, out);
}

const char *redis_address_parse(const char *url, redis_address_t *out)
{
    static const struct {
        const char *scheme;
        const char *(*parse)(span_t, redis_address_t *);
    } FORMS[] = {{"redis://", parse_tcp},
                 {"rediss://", parse_tls},
                 {"redis+unix://", parse_unix},
                 {"unix://", parse_unix},
                 {"redis+sentinel://", parse_sentinel},
                 {"rediss+sentinel://", parse_sentinel_tls}};
    const char *err = "it must start redis://, rediss://, redis+unix://, redis+sentinel:// or rediss+sentinel://";
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

static char *copy_of(const char *s)
{
    return s != NULL ? mem_strdup(s) : NULL;
}

void redis_address_copy(redis_address_t *out, const redis_address_t *from)
{
    *out = *from;
    out->host = copy_of(from->host);
    out->path = copy_of(from->path);
    out->user = copy_of(from->user);
    out->password = copy_of(from->password);
    out->home = copy_of(from->home);
    out->master = copy_of(from->master);
    out->sentinel_user = copy_of(from->sentinel_user);
    out->sentinel_password = copy_of(from->sentinel_password);
    for (size_t i = 0; i < from->sentinel_count; i++)
        out->sentinels[i].host = copy_of(from->sentinels[i].host);
    tls_stream_ref(out->tls);
}

void redis_address_dispose(redis_address_t *a)
{
    free(a->host);
    free(a->path);
    free(a->user);
    free(a->home);
    free(a->master);
    free(a->sentinel_user);
    wipe(a->password);
    wipe(a->sentinel_password);
    for (size_t i = 0; i < a->sentinel_count; i++)
        free(a->sentinels[i].host);
    tls_stream_unref(a->tls);
    *a = (redis_address_t){0};
}

const char *redis_address_secure(redis_address_t *a, const char *ca_file, const char *cert_file, const char *key_file)
{
    const char *err = NULL;
    struct ssl_ctx_st *tls = tls_stream_load(ca_file, cert_file, key_file, &err);
    if (tls == NULL)
        return err;
    tls_stream_unref(a->tls);
    a->tls = tls;
    return NULL;
}

void redis_address_home(redis_address_t *a, const char *key)
{
    free(a->home);
    a->home = mem_strdup(key);
}
