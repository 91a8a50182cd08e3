/* Whether a gateway and its sandboxes are what was asked for (spec backend-openshell 2.2 and 3.3). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/openshell/messages.h"
#include "backends/openshell/wire.h"

enum { SOURCE_SANDBOX = 1, NUMBER_MAX = 24 };

static const char PROPOSALS[] = "agent_policy_proposals_enabled";

static bool differs(char why[OPENSHELL_WHY_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool differs(char why[OPENSHELL_WHY_MAX], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, OPENSHELL_WHY_MAX, format, arguments);
    va_end(arguments);
    return false;
}

static bool is_same(ProtobufCBinaryData bytes, const buffer_t *want)
{
    return bytes.len == want->len && (bytes.len == 0 || memcmp(bytes.data, want->base, bytes.len) == 0);
}

static bool is_same_struct(ProtobufCBinaryData bytes, const buffer_t *want)
{
    return is_same(bytes, want) || wire_struct_equal(bytes.data, bytes.len, want->base, want->len);
}

/* --- the gateway --- */

static bool has_version(const Plimsoll__Openshell__GatewayInfo *info, const char *other)
{
    static const char line[] = "0.1.";
    ProtobufCBinaryData version = info->gateway_version;
    if (other != NULL && bytes_are(version, other))
        return true;
    return version.len > sizeof(line) - 1 && memcmp(version.data, line, sizeof(line) - 1) == 0;
}

static bool limits(const Plimsoll__Openshell__Limit *limit)
{
    return limit != NULL && limit->limit_supported;
}

bool info_holds(const Plimsoll__Openshell__GatewayInfo *info, const char *other, char why[OPENSHELL_WHY_MAX])
{
    char text[64];
    if (!has_version(info, other))
        return differs(why, "the gateway's version is %s, not 0.1.x",
                       bytes_text(info->gateway_version, text, sizeof(text)));
    if (info->n_compute_drivers != 1)
        return differs(why, "the gateway has %zu compute drivers, not one", info->n_compute_drivers);
    const Plimsoll__Openshell__Driver *driver = info->compute_drivers[0];
    if (!bytes_are(driver->name, "docker"))
        return differs(why, "the gateway's compute driver is %s, not docker",
                       bytes_text(driver->name, text, sizeof(text)));
    if (driver->capabilities == NULL || !bytes_are(driver->capabilities->driver_name, "docker"))
        return differs(why, "the gateway's compute driver does not call itself docker");
    const Plimsoll__Openshell__ResourceCapabilities *resources = driver->capabilities->resource_capabilities;
    if (resources == NULL || !limits(resources->memory) || !limits(resources->cpu))
        return differs(why, "the gateway's compute driver does not limit memory and processors");
    return true;
}

/* --- a sandbox --- */

static bool has_label(const Plimsoll__Openshell__Sandbox *sandbox, const char *key, const char *value)
{
    const ProtobufCBinaryData *label = label_of(sandbox, key);
    return label != NULL && bytes_are(*label, value);
}

static bool metadata_holds(const Plimsoll__Openshell__Sandbox *sandbox, const owner_t *owner,
                           char why[OPENSHELL_WHY_MAX])
{
    char name[OPENSHELL_NAME + 1], lifetime[NUMBER_MAX];
    const char *const labels[OPENSHELL_LABELS][2] = {{"plimsoll.installation", owner->installation},
                                                     {"plimsoll.instance", owner->instance},
                                                     {"plimsoll.lifetime", lifetime},
                                                     {"plimsoll.run", "1"},
                                                     {"plimsoll.stamp", owner->stamp}};
    snprintf(lifetime, sizeof(lifetime), "%u", owner->lifetime_s);
    openshell_name(owner->stamp, name);
    if (sandbox->metadata == NULL || sandbox->metadata->id.len == 0)
        return differs(why, "the sandbox has no ID");
    if (!bytes_are(sandbox->metadata->name, name))
        return differs(why, "the sandbox has another name");
    for (size_t i = 0; i < OPENSHELL_LABELS; ++i) {
        if (!has_label(sandbox, labels[i][0], labels[i][1]))
            return differs(why, "the sandbox's label %s differs", labels[i][0]);
    }
    return true;
}

static bool template_holds(const Plimsoll__Openshell__SandboxTemplate *template, const shape_t *shape,
                           char why[OPENSHELL_WHY_MAX])
{
    if (template == NULL)
        return differs(why, "the sandbox has no template");
    if (!bytes_are(template->image, shape->image))
        return differs(why, "the sandbox's image differs");
    if (!is_same_struct(template->resources, &shape->resources))
        return differs(why, "the sandbox's resources differ");
    if (!is_same_struct(template->driver_config, &shape->driver_config))
        return differs(why, "the sandbox's driver configuration differs");
    if (template->n_environment > 0 || template->n_labels > 0 || template->n_annotations > 0)
        return differs(why, "the sandbox's template has an environment, labels or annotations");
    if (template->agent_socket.len > 0 || template->runtime_class_name.len > 0)
        return differs(why, "the sandbox's template names a socket or a runtime class");
    /* present is already too much, whatever it says */
    if (template->presence_case != PLIMSOLL__OPENSHELL__SANDBOX_TEMPLATE__PRESENCE__NOT_SET)
        return differs(why, "the sandbox's template speaks of user namespaces");
    if (template->base.n_unknown_fields > 0)
        return differs(why, "the sandbox's template has a field that was not asked for");
    return true;
}

static bool command_holds(const Plimsoll__Openshell__SandboxSpec *spec, char why[OPENSHELL_WHY_MAX])
{
    if (spec->n_command != 2 || !bytes_are(spec->command[0], "sleep") || !bytes_are(spec->command[1], "2147483647"))
        return differs(why, "the sandbox's main process differs");
    return true;
}

bool sandbox_holds(const Plimsoll__Openshell__Sandbox *sandbox, const shape_t *shape, const owner_t *owner,
                   char why[OPENSHELL_WHY_MAX])
{
    const Plimsoll__Openshell__SandboxSpec *spec = sandbox->spec;
    if (!metadata_holds(sandbox, owner, why))
        return false;
    if (spec == NULL)
        return differs(why, "the sandbox has no specification");
    if (!is_same(spec->policy, &shape->policy))
        return differs(why, "the sandbox's policy differs");
    if (spec->n_providers > 0)
        return differs(why, "the sandbox has a provider attached");
    if (spec->n_environment > 0)
        return differs(why, "the sandbox has an environment");
    return template_holds(spec->template_, shape, why) && command_holds(spec, why);
}

/* --- what is in force --- */

static const Plimsoll__Openshell__Setting *setting_of(const Plimsoll__Openshell__Config *config, const char *key,
                                                      size_t *count)
{
    const Plimsoll__Openshell__Setting *found = NULL;
    *count = 0;
    for (size_t i = 0; i < config->n_settings; ++i) {
        if (bytes_are(config->settings[i]->key, key)) {
            found = config->settings[i]->value;
            ++*count;
        }
    }
    return found;
}

/* Known to the gateway, and unset or false. */
static bool is_off(const Plimsoll__Openshell__Config *config, const char *key)
{
    size_t count;
    const Plimsoll__Openshell__Setting *setting = setting_of(config, key, &count);
    if (count != 1)
        return false;
    if (setting == NULL || setting->value == NULL)
        return true;
    const Plimsoll__Openshell__SettingValue *value = setting->value;
    if (value->base.n_unknown_fields > 0)
        return false;
    return value->value_case == PLIMSOLL__OPENSHELL__SETTING_VALUE__VALUE_BOOL_VALUE && !value->bool_value;
}

bool config_holds(const Plimsoll__Openshell__Config *config, const shape_t *shape, char why[OPENSHELL_WHY_MAX])
{
    char text[96];
    if (config->policy_source != SOURCE_SANDBOX)
        return differs(why, "another policy than the sandbox's own is in force (source %d)", config->policy_source);
    if (!config->configuration_admitted)
        return differs(why, "the sandbox's configuration was not admitted: %s",
                       bytes_text(config->configuration_error, text, sizeof(text)));
    if (!bytes_are(config->policy_hash, shape->policy_hash))
        return differs(why, "the hash of the policy in force differs");
    if (!is_same(config->policy, &shape->policy))
        return differs(why, "the policy in force differs");
    if (!is_off(config, PROPOSALS))
        return differs(why, "the setting %s is not known to be off", PROPOSALS);
    return true;
}
