#include "cli/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <curl/curl.h>

#include "cli/input.h"
#include "config/options.h"
#include "config/token.h"
#include "core/mem.h"

bool connection_option(connection_options_t *options, int opt, const char *value)
{
    switch (opt) {
    case CONNECTION_OPT_URL:
        options->url = value;
        return true;
    case CONNECTION_OPT_TOKEN_FILE:
        options->token_file = value;
        return true;
    case CONNECTION_OPT_CA_FILE:
        options->ca_file = value;
        return true;
    case CONNECTION_OPT_INSECURE_HTTP:
        options->insecure_http = true;
        return true;
    default:
        return false;
    }
}

static bool has_part(CURLU *url, CURLUPart part)
{
    char *text = NULL;
    bool found = curl_url_get(url, part, &text, 0) == CURLUE_OK;
    curl_free(text);
    return found;
}

/* Whether cleartext is allowed to this host: "[::1]" comes with its brackets. */
static bool host_is_loopback(const char *host)
{
    char bare[256];
    size_t len = strlen(host);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof(bare))
        return false;
    memcpy(bare, host, len);
    bare[len] = '\0';
    return address_is_loopback(bare);
}

static const char *url_problem(CURLU *url, bool insecure_http)
{
    if (has_part(url, CURLUPART_USER) || has_part(url, CURLUPART_PASSWORD))
        return "it must not carry a user or password";
    if (has_part(url, CURLUPART_QUERY) || has_part(url, CURLUPART_FRAGMENT))
        return "it must not carry a query or fragment";
    char *scheme = NULL, *host = NULL;
    const char *problem = NULL;
    if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK || host[0] == '\0')
        problem = "it needs a scheme and a host";
    else if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        problem = "only https and http are spoken";
    else if (strcmp(scheme, "http") == 0 && !insecure_http && !host_is_loopback(host))
        problem = "http is allowed to loopback only: use https, or --insecure-http if the network is trusted";
    curl_free(scheme);
    curl_free(host);
    return problem;
}

static bool backend_name_is_valid(const char *name)
{
    size_t len = strlen(name);
    return len >= 1 && len <= CONNECTION_BACKEND_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

char *base_url_check(const char *text, const char *backend, bool insecure_http, char error[CONNECTION_ERROR_MAX])
{
    char *base = NULL, *whole = NULL;
    const char *problem = NULL;
    if (backend != NULL && !backend_name_is_valid(backend)) {
        snprintf(error, CONNECTION_ERROR_MAX, "a backend's name is 1 to %d of a-z 0-9 _ -", CONNECTION_BACKEND_MAX);
        return NULL;
    }
    CURLU *url = curl_url();
    if (url == NULL)
        mem_fatal("libcurl is out of memory");
    if (strlen(text) > CONNECTION_URL_MAX)
        problem = "it is too long";
    else if (strstr(text, "://") == NULL || curl_url_set(url, CURLUPART_URL, text, 0) != CURLUE_OK)
        problem = "it is not an absolute URL";
    else
        problem = url_problem(url, insecure_http);
    if (problem == NULL && curl_url_get(url, CURLUPART_URL, &whole, 0) != CURLUE_OK)
        problem = "it is not an absolute URL";
    if (problem != NULL) {
        snprintf(error, CONNECTION_ERROR_MAX, "the gateway's URL is not usable: %s", problem);
    } else {
        size_t len = strlen(whole);
        while (len > 0 && whole[len - 1] == '/')
            len--;
        buffer_t out;
        buffer_init(&out, 2 * CONNECTION_URL_MAX + CONNECTION_BACKEND_MAX);
        if (buffer_append(&out, whole, len) && (backend == NULL || buffer_printf(&out, "/backends/%s", backend)))
            base = mem_strdup((const char *)out.base);
        else
            snprintf(error, CONNECTION_ERROR_MAX, "the gateway's URL is not usable: it is too long");
        buffer_dispose(&out);
    }
    curl_free(whole);
    curl_url_cleanup(url);
    return base;
}

/* The token of a file, one trailing LF or CRLF removed; NULL with a line in `error`. */
static char *token_from_file(const char *path, char error[CONNECTION_ERROR_MAX])
{
    buffer_t text;
    buffer_init(&text, TOKEN_MAX + 2);
    char *token = NULL;
    const char *why = input_read(path, &text);
    if (why != NULL) {
        snprintf(error, CONNECTION_ERROR_MAX, "cannot read the token file: %s", why);
        goto done;
    }
    const char *start = text.len == 0 ? "" : (const char *)text.base;
    size_t len = token_strip_newline(start, text.len);
    why = token_check(start, len);
    if (why != NULL)
        snprintf(error, CONNECTION_ERROR_MAX, "the token file does not hold a token: %s", why);
    else
        token = mem_strndup(start, len);
done:
    if (text.base != NULL)
        explicit_bzero(text.base, text.cap);
    buffer_dispose(&text);
    return token;
}

/* The environment's part; false with the first problem in `error`. */
static bool load_environment(char error[CONNECTION_ERROR_MAX])
{
    problems_t problems = {0};
    options_load_role(ROLE_CLI, &problems, NULL);
    bool ok = problems.count == 0;
    if (!ok)
        snprintf(error, CONNECTION_ERROR_MAX, "%s", problems.texts[0]);
    problems_dispose(&problems);
    return ok;
}

bool connection_open(const connection_options_t *options, connection_t *connection, char error[CONNECTION_ERROR_MAX])
{
    memset(connection, 0, sizeof(*connection));
    if (!load_environment(error))
        return false;
    connection->ca_file = options->ca_file;
    const char *url = options->url != NULL ? options->url : option_str(OPT_PLIMSOLL_URL);
    connection->base = base_url_check(url, options->backend, options->insecure_http, error);
    if (connection->base == NULL)
        return false;
    const char *token = option_str(OPT_PLIMSOLL_CALLER_TOKEN);
    if (options->token_file != NULL) {
        connection->token = token_from_file(options->token_file, error);
        if (connection->token == NULL)
            goto fail;
    } else if (token != NULL) {
        /* The row checks the length, not the characters. */
        const char *why = token_check(token, strlen(token));
        if (why != NULL) {
            snprintf(error, CONNECTION_ERROR_MAX, "PLIMSOLL_CALLER_TOKEN does not hold a token: %s", why);
            goto fail;
        }
        connection->token = mem_strdup(token);
    }
    return true;
fail:
    connection_dispose(connection);
    return false;
}

void connection_dispose(connection_t *connection)
{
    free(connection->base);
    if (connection->token != NULL)
        explicit_bzero(connection->token, strlen(connection->token));
    free(connection->token);
    memset(connection, 0, sizeof(*connection));
}

char *connection_url(const connection_t *connection, const char *path)
{
    size_t base_len = strlen(connection->base), path_len = strlen(path);
    char *url = mem_alloc(base_len + path_len + 1);
    memcpy(url, connection->base, base_len);
    memcpy(url + base_len, path, path_len);
    return url;
}
