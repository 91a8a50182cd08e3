/* Which version of the API is spoken (spec backend-docker 1.1). A fixed one breaks: an Engine drops its oldest. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/docker/engine_call.h"
#include "backends/docker/engine_json.h"
#include "backends/docker/engine_text.h"
#include "core/clock.h"

typedef struct {
    unsigned major, minor;
} version_t;

/* The calls of engine.h are the same in all of these; what a newer one means by them nobody has looked at. */
static const version_t lowest = {1, 41}, highest_tested = {1, 52};

/* Up to three digits; the place after them, or NULL. */
static const char *read_number(const char *text, unsigned *out)
{
    size_t len = strspn(text, "0123456789");
    *out = 0;
    if (len == 0 || len > 3)
        return NULL;
    for (size_t i = 0; i < len; ++i)
        *out = *out * 10 + (unsigned)(text[i] - '0');
    return text + len;
}

static bool read_version(const char *text, version_t *out)
{
    if (text == NULL || (text = read_number(text, &out->major)) == NULL || *text != '.')
        return false;
    return (text = read_number(text + 1, &out->minor)) != NULL && *text == '\0';
}

static bool is_below(version_t a, version_t b)
{
    return a.major != b.major ? a.major < b.major : a.minor < b.minor;
}

static bool fail(char failure[ENGINE_TEXT_MAX], const char *what, const char *detail)
{
    char text[ENGINE_TEXT_MAX];
    snprintf(text, sizeof(text), "%s%s%s", what, detail[0] != '\0' ? ": " : "", detail);
    engine_text_set(failure, ENGINE_TEXT_MAX, text);
    return false;
}

/* What both sides speak. */
static bool settle(const json_t *answer, const char *pinged, version_t *out, char failure[ENGINE_TEXT_MAX])
{
    const char *api = engine_json_text(answer, "ApiVersion"), *min = engine_json_text(answer, "MinAPIVersion");
    const char *os = engine_json_text(answer, "Os");
    version_t theirs, minimum;

    if (os == NULL || strcmp(os, "linux") != 0)
        return fail(failure, "the Engine runs no Linux containers", os != NULL ? os : "");
    if (!read_version(api, &theirs))
        return fail(failure, "the Engine tells no API version", api != NULL ? api : "");
    if (!read_version(min, &minimum))
        return fail(failure, "the Engine tells no lowest API version", min != NULL ? min : "");
    if (strcmp(api, pinged) != 0)
        return fail(failure, "the Engine changed while it was asked for its version", api);
    *out = is_below(theirs, highest_tested) ? theirs : highest_tested;
    if (is_below(*out, lowest))
        return fail(failure, "the Engine is too old: at least API 1.41 is needed, it has", api);
    if (is_below(*out, minimum))
        return fail(failure, "the Engine is too new: at most API 1.52 was tested, it needs", min);
    return true;
}

static bool ask(engine_t *engine, uint32_t deadline_ms, version_t *out, char failure[ENGINE_TEXT_MAX])
{
    static const engine_request_t ping = {
        .method = "GET", .path = "/_ping", .is_unversioned = true, .is_read = true, .is_text = true, .success = 200};
    static const engine_request_t version = {
        .method = "GET", .path = "/version", .is_unversioned = true, .is_read = true, .success = 200};
    uint64_t end = clock_mono_ms() + deadline_ms, now;
    engine_answer_t answer;
    char pinged[ENGINE_VERSION_MAX], detail[ENGINE_TEXT_MAX];

    engine_call_header(engine, &ping, deadline_ms, "api-version", pinged, sizeof(pinged), &answer);
    if (answer.outcome != ENGINE_OK)
        return fail(failure, "the Engine does not answer", answer.text);
    if ((now = clock_mono_ms()) >= end)
        return fail(failure, "the Engine does not answer", "the deadline passed");
    engine_call(engine, &version, (uint32_t)(end - now), &answer);
    if (answer.outcome != ENGINE_OK) {
        engine_text_set(detail, sizeof(detail), answer.text);
        return fail(failure, "the Engine does not tell its version", detail);
    }
    bool is_settled = settle(answer.json, pinged, out, failure);
    engine_answer_dispose(&answer);
    return is_settled;
}

bool engine_negotiate(engine_t *engine, uint32_t deadline_ms, char failure[ENGINE_TEXT_MAX])
{
    version_t version;
    failure[0] = '\0';
    /* A failure changes nothing: what was made under the old version may still have to be removed. */
    if (!ask(engine, deadline_ms, &version, failure))
        return false;
    snprintf(engine->version, sizeof(engine->version), "%u.%u", version.major, version.minor);
    return true;
}

const char *engine_api_version(const engine_t *engine)
{
    return engine->version;
}
