#include "gateway/route.h"

#include <string.h>

typedef struct {
    const char *at;
    size_t len;
} rest_t;

static bool eats(rest_t *r, const char *text)
{
    size_t n = strlen(text);
    if (r->len < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    r->len -= n;
    return true;
}

static bool is(const rest_t *r, const char *text)
{
    return r->len == strlen(text) && memcmp(r->at, text, r->len) == 0;
}

static bool is_name_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '_' ||
           c == '-';
}

static bool eats_name(rest_t *r, char out[ROUTE_NAME_MAX])
{
    size_t n = 0;
    while (n < r->len && is_name_char(r->at[n]))
        n++;
    if (n == 0 || n >= ROUTE_NAME_MAX)
        return false;
    memcpy(out, r->at, n);
    out[n] = '\0';
    r->at += n;
    r->len -= n;
    return true;
}

void route_parse(const char *path, size_t len, const char *prefix, size_t prefix_len, route_t *out)
{
    static const struct {
        const char *name;
        route_kind_t kind;
    } procedures[] = {
        {"Describe", ROUTE_DESCRIBE},          {"Run", ROUTE_RUN},
        {"OpenSession", ROUTE_OPEN_SESSION},   {"SessionRun", ROUTE_SESSION_RUN},
        {"CloseSession", ROUTE_CLOSE_SESSION},
    };
    rest_t r = {path, len};
    *out = (route_t){.kind = ROUTE_NONE};
    bool prefixed =
        prefix_len == 0 || (len > prefix_len && memcmp(path, prefix, prefix_len) == 0 && path[prefix_len] == '/');
    if (prefixed) {
        r.at += prefix_len;
        r.len -= prefix_len;
    }
    if (is(&r, "/healthz"))
        out->kind = ROUTE_HEALTHZ;
    else if (is(&r, "/readyz"))
        out->kind = ROUTE_READYZ;
    else if (is(&r, "/metrics"))
        out->kind = ROUTE_METRICS;
    if (out->kind != ROUTE_NONE || !prefixed)
        return;
    if (eats(&r, "/backends/")) {
        if (!eats_name(&r, out->backend))
            return;
        out->pinned = true;
    }
    if (eats(&r, "/plimsoll.v1.SandboxService/")) {
        out->kind = ROUTE_UNKNOWN_PROCEDURE;
        for (size_t i = 0; i < sizeof(procedures) / sizeof(procedures[0]); i++)
            if (is(&r, procedures[i].name))
                out->kind = procedures[i].kind;
    } else if (!out->pinned && is(&r, "/v1/backends")) {
        out->kind = ROUTE_BACKENDS;
    } else if (!out->pinned && is(&r, "/v1/log/head")) {
        out->kind = ROUTE_LOG_HEAD;
    } else if (!out->pinned && is(&r, "/v1/log/inclusion")) {
        out->kind = ROUTE_LOG_INCLUSION;
    } else if (!out->pinned && is(&r, "/v1/log/consistency")) {
        out->kind = ROUTE_LOG_CONSISTENCY;
    } else if (!out->pinned && is(&r, "/v1/runs")) {
        out->kind = ROUTE_RUNS;
    } else if (!out->pinned && is(&r, "/v1/usage")) {
        out->kind = ROUTE_USAGE;
    } else if (!out->pinned && eats(&r, "/v1/runs/by-key/")) {
        out->kind = ROUTE_RUN_BY_KEY;
        out->key = r.at;
        out->key_len = r.len;
    } else if (!out->pinned && eats(&r, "/v1/runs/") && eats_name(&r, out->argument) && r.len == 0) {
        out->kind = ROUTE_RUN_RECORD;
    }
}

bool route_is_procedure(route_kind_t kind)
{
    return kind >= ROUTE_DESCRIBE && kind <= ROUTE_CLOSE_SESSION;
}

bool route_needs_caller(route_kind_t kind)
{
    return kind >= ROUTE_DESCRIBE;
}
