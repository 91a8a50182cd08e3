#include "backends/openshell/policy.h"

#include "backends/openshell/openshell.pb-c.h"
#include "backends/openshell/wire.h"

enum { FIELD_RULES = 5, FIELD_MIDDLEWARES = 6 };

const policy_t POLICY_RUN = {
    /* only what the image has: what becomes of a path that is missing differs by release */
    .read_only = {"/bin", "/usr", "/lib", "/etc", "/proc", "/dev/urandom", "/sys/fs/cgroup"},
    .read_write = {"/tmp", "/dev/null"},
    .compatibility = "hard_requirement",
};

static size_t count_of(const char *const *list)
{
    size_t count = 0;
    while (list[count] != NULL)
        ++count;
    return count;
}

bool policy_encode(const policy_t *policy, buffer_t *out)
{
    Plimsoll__Openshell__Policy message = PLIMSOLL__OPENSHELL__POLICY__INIT;
    Plimsoll__Openshell__Filesystem filesystem = PLIMSOLL__OPENSHELL__FILESYSTEM__INIT;
    Plimsoll__Openshell__Landlock landlock = PLIMSOLL__OPENSHELL__LANDLOCK__INIT;
    Plimsoll__Openshell__Process process = PLIMSOLL__OPENSHELL__PROCESS__INIT;

    message.version = 1;
    message.filesystem = &filesystem;
    filesystem.include_workdir = policy->include_workdir;
    filesystem.read_only = (char **)policy->read_only;
    filesystem.n_read_only = count_of(policy->read_only);
    filesystem.read_write = (char **)policy->read_write;
    filesystem.n_read_write = count_of(policy->read_write);
    message.landlock = &landlock;
    landlock.compatibility = (char *)policy->compatibility;
    if (policy->user != NULL) {
        message.process = &process;
        process.run_as_user = (char *)policy->user;
        process.run_as_group = (char *)policy->group;
    }
    return wire_pack(&message.base, out);
}

static void add_number(sha256_t *sum, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i)
        bytes[i] = (uint8_t)(value >> (8 * i));
    sha256_add(sum, bytes, sizeof(bytes));
}

static void add_empty_map(sha256_t *sum, const char *name, size_t len)
{
    add_number(sum, len);
    sha256_add(sum, name, len);
    add_number(sum, 0);
}

static bool has_rules(const uint8_t *encoded, size_t len, bool *is_message)
{
    wire_t wire = {encoded, len};
    wire_field_t field;
    while (wire_next(&wire, &field)) {
        if (field.number == FIELD_RULES || field.number == FIELD_MIDDLEWARES)
            return true;
    }
    *is_message = wire.left == 0;
    return false;
}

bool policy_hash(const uint8_t *encoded, size_t len, char hex[SHA256_HEX + 1])
{
    static const char rules[] = "network_policies", middlewares[] = "network_middlewares";
    bool is_message = false;
    if (has_rules(encoded, len, &is_message) || !is_message)
        return false;
    sha256_t *sum = sha256_begin();
    add_number(sum, len);
    sha256_add(sum, encoded, len);
    add_empty_map(sum, rules, sizeof(rules) - 1);
    add_empty_map(sum, middlewares, sizeof(middlewares) - 1);
    sha256_end_hex(sum, hex);
    return true;
}
