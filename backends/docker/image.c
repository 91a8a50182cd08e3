#include "backends/docker/image.h"

#include <stdio.h>
#include <string.h>

#include "backends/docker/image_env.h"

static const char ID_PREFIX[] = "sha256:";
enum { ID_DIGITS = 64, REFERENCE_SHOWN = 112 };

static bool is_digest(const char *text)
{
    if (strncmp(text, ID_PREFIX, strlen(ID_PREFIX)) != 0)
        return false;
    text += strlen(ID_PREFIX);
    return strspn(text, "0123456789abcdef") == ID_DIGITS && text[ID_DIGITS] == '\0';
}

/* The "sha256:..." of a reference that names its content; NULL for one that does not. */
static const char *pin_of(const char *reference)
{
    const char *at = strrchr(reference, '@');
    const char *digest = at != NULL && at != reference ? at + 1 : reference;
    return is_digest(digest) ? digest : NULL;
}

static const char *string_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

static bool refuse(const image_want_t *want, char failure[BACKEND_TEXT_MAX], const char *why)
{
    snprintf(failure, BACKEND_TEXT_MAX, "image %.*s %s", REFERENCE_SHOWN, want->reference, why);
    return false;
}

/* The names as the Engine gives them; anything else is no part of an identity. */
static bool is_platform_word(const char *word)
{
    return strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(word) && strlen(word) <= 32;
}

static bool vet_platform(const json_t *inspect, const image_want_t *want, char failure[BACKEND_TEXT_MAX])
{
    char why[192];
    const char *os = string_of(inspect, "Os"), *arch = string_of(inspect, "Architecture");
    if (strcmp(os, "linux") == 0 && strcmp(arch, want->arch) == 0 && is_platform_word(string_of(inspect, "Variant")))
        return true;
    snprintf(why, sizeof(why), "is for %.32s/%.32s, and the Engine's machine is linux/%.32s: build it there", os, arch,
             want->arch);
    return refuse(want, failure, why);
}

/* The daemon would give each a host directory that is writable and has no limit, whatever the root is. */
static bool vet_volumes(const json_t *config, const image_want_t *want, char failure[BACKEND_TEXT_MAX])
{
    const json_t *volumes = json_object_get(config, "Volumes");
    if (volumes == NULL || json_is_null(volumes) || (json_is_object(volumes) && json_object_size(volumes) == 0))
        return true;
    return refuse(want, failure, "declares a VOLUME, which would be writable without a limit: build it without");
}

static bool vet_protocol(const json_t *config, const image_want_t *want, char failure[BACKEND_TEXT_MAX])
{
    char ours[16], why[160];
    const json_t *labels = json_object_get(config, "Labels");
    const char *label = json_string_value(json_object_get(labels, "sbx.runner.protocol"));
    snprintf(ours, sizeof(ours), "%d", IMAGE_RUNNER_PROTOCOL);
    if (label != NULL && strcmp(label, ours) == 0)
        return true;
    if (label == NULL)
        return refuse(want, failure,
                      "is not a guest image, it has no label sbx.runner.protocol: `make images` builds "
                      "those, docs/guest-images.md tells how to derive one");
    snprintf(why, sizeof(why), "speaks the runner's protocol %.16s, this gateway speaks %s: `make images`", label,
             ours);
    return refuse(want, failure, why);
}

static bool vet_env(const json_t *config, const image_want_t *want, image_t *out, char failure[BACKEND_TEXT_MAX])
{
    char why[IMAGE_WHY_MAX];
    size_t used = 0, i;
    json_t *element;
    const json_t *env = json_object_get(config, "Env");

    if (env == NULL || json_is_null(env))
        return true;
    if (!json_is_array(env) || json_array_size(env) > IMAGE_ENV_MAX)
        return refuse(want, failure, "has too many environment variables (at most 64)");
    json_array_foreach(env, i, element)
    {
        const char *text = json_string_value(element);
        size_t size = json_string_length(element) + 1;
        if (text == NULL || size > sizeof(out->_env) - used)
            return refuse(want, failure, "has an environment of more than 8192 bytes");
        if (!image_env_vet(text, size - 1, why))
            return refuse(want, failure, why);
        for (size_t k = 0; k < out->env_count; ++k) {
            if (image_env_is_same_name(out->env[k], text))
                return refuse(want, failure, "sets an environment variable twice");
        }
        memcpy(out->_env + used, text, size);
        out->env[out->env_count++] = out->_env + used;
        used += size;
    }
    return true;
}

/* What was asked for by digest is what the Engine has by that digest. */
static bool is_confirmed(const json_t *inspect, const char *digest)
{
    size_t i;
    json_t *element;
    json_array_foreach(json_object_get(inspect, "RepoDigests"), i, element)
    {
        const char *at = json_is_string(element) ? strrchr(json_string_value(element), '@') : NULL;
        if (at != NULL && strcmp(at + 1, digest) == 0)
            return true;
    }
    return false;
}

static bool vet_pin(const json_t *inspect, const image_want_t *want, image_t *out, char failure[BACKEND_TEXT_MAX])
{
    const char *digest = pin_of(want->reference), *variant = string_of(inspect, "Variant");
    bool is_by_digest = digest != NULL && digest != want->reference;
    if (!is_by_digest && want->is_pinned_only)
        return refuse(want, failure,
                      "is a name that can move, and SANDBOX_REQUIRE_PINNED_IMAGES is on: give name@sha256:...");
    if (digest != NULL && !is_by_digest && strcmp(digest, out->id) != 0)
        return refuse(want, failure, "is answered by the Engine with another content ID");
    if (is_by_digest && !is_confirmed(inspect, digest))
        return refuse(want, failure, "is not what the Engine has by that digest: pull it by its digest");
    if (is_by_digest)
        snprintf(out->software_identity, sizeof(out->software_identity), "oci-manifest:linux/%s%s%s@%s", want->arch,
                 variant[0] != '\0' ? "/" : "", variant, digest);
    return true;
}

bool image_vet(const json_t *inspect, const image_want_t *want, image_t *out, char failure[BACKEND_TEXT_MAX])
{
    const char *id = string_of(inspect, "Id");
    const json_t *config = json_object_get(inspect, "Config");
    memset(out, 0, sizeof(*out));
    if (!is_digest(id) || !json_is_object(config))
        return refuse(want, failure, "is described by the Engine without a content ID: is it a Docker Engine?");
    snprintf(out->id, sizeof(out->id), "%s", id);
    snprintf(out->environment, sizeof(out->environment), "docker-image:%s", id);
    return vet_platform(inspect, want, failure) && vet_volumes(config, want, failure) &&
           vet_protocol(config, want, failure) && vet_env(config, want, out, failure) &&
           vet_pin(inspect, want, out, failure);
}

bool image_find(engine_t *engine, const image_want_t *want, uint32_t deadline_ms, image_t *out, bool *is_untried,
                char failure[BACKEND_TEXT_MAX])
{
    engine_answer_t answer;
    bool is_vetted = false;
    engine_image_inspect(engine, want->reference, deadline_ms, &answer);
    *is_untried = answer.outcome == ENGINE_UNKNOWN || answer.outcome == ENGINE_CANCELED;
    if (answer.outcome == ENGINE_OK)
        is_vetted = image_vet(answer.json, want, out, failure);
    else if (answer.outcome == ENGINE_ABSENT)
        refuse(want, failure,
               pin_of(want->reference) != NULL
                   ? "is not in the Engine: pull it by its digest, the gateway pulls nothing"
                   : "is not in the Engine: `make images` builds and imports the guest images");
    else
        snprintf(failure, BACKEND_TEXT_MAX, "image %.*s could not be inspected: %s %.100s", REFERENCE_SHOWN,
                 want->reference, engine_outcome_name(answer.outcome), answer.text);
    engine_answer_dispose(&answer);
    return is_vetted;
}

void image_copy(image_t *to, const image_t *from)
{
    *to = *from;
    for (size_t i = 0; i < from->env_count; ++i)
        to->env[i] = to->_env + (from->env[i] - from->_env);
}
