/*
 * What an OpenShell gateway may answer: a byte that picks what it is, then the message. Read, compared with what was
 * asked for, and told to logs. Checks that nothing but the very policy and resources that were asked for holds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/openshell/messages.h"
#include "backends/openshell/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const owner_t OWNER = {.stamp = "0123456789abcd0123456789abcdef01",
                              .installation = "fedcba9876543210fedcba9876543210",
                              .instance = "00112233445566aa",
                              .lifetime_s = 40};

static bool is_same(ProtobufCBinaryData bytes, const buffer_t *want)
{
    return bytes.len == want->len && (want->len == 0 || memcmp(bytes.data, want->base, want->len) == 0);
}

static void look_at(const Plimsoll__Openshell__Sandbox *sandbox, const shape_t *shape)
{
    char why[OPENSHELL_WHY_MAX], stamp[LEDGER_STAMP + 1], id[OPENSHELL_ID_MAX + 1], text[64];
    if (sandbox_holds(sandbox, shape, &OWNER, why) && !is_same(sandbox->spec->policy, &shape->policy))
        abort();
    if (stamp_of(sandbox, stamp) && strlen(stamp) != LEDGER_STAMP)
        abort();
    if (id_of(sandbox, id) && (id[0] == '\0' || strchr(id, '/') != NULL))
        abort();
    conditions_of(sandbox, text, sizeof(text));
    if (strlen(text) >= sizeof(text) || phase_name(phase_of(sandbox)) == NULL)
        abort();
}

static void take_sandbox(const buffer_t *bytes, const shape_t *shape)
{
    Plimsoll__Openshell__Sandbox *sandbox = read_sandbox(bytes);
    if (sandbox == NULL)
        return;
    look_at(sandbox, shape);
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
}

static void take_list(const buffer_t *bytes, const shape_t *shape)
{
    Plimsoll__Openshell__ListResponse *page = read_list(bytes);
    if (page == NULL)
        return;
    for (size_t i = 0; i < page->n_sandboxes; ++i)
        look_at(page->sandboxes[i], shape);
    protobuf_c_message_free_unpacked(&page->base, NULL);
}

static void take_config(const buffer_t *bytes, const shape_t *shape)
{
    char why[OPENSHELL_WHY_MAX];
    Plimsoll__Openshell__Config *config = read_config(bytes);
    if (config == NULL)
        return;
    if (config_holds(config, shape, why) && !is_same(config->policy, &shape->policy))
        abort();
    protobuf_c_message_free_unpacked(&config->base, NULL);
}

static void take_info(const buffer_t *bytes)
{
    char why[OPENSHELL_WHY_MAX];
    Plimsoll__Openshell__GatewayInfo *info = read_info(bytes);
    if (info == NULL)
        return;
    if (info_holds(info, NULL, why) && info->n_compute_drivers != 1)
        abort();
    protobuf_c_message_free_unpacked(&info->base, NULL);
}

/* Equal to itself or no struct at all; equality has two directions. */
static void take_structs(const uint8_t *data, size_t size)
{
    size_t half = size / 2;
    if (wire_struct_equal(data, half, data + half, size - half) !=
        wire_struct_equal(data + half, size - half, data, half))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static shape_t shape;
    char hash[SHA256_HEX + 1];
    buffer_t bytes;
    if (size < 1)
        return 0;
    if (shape.image == NULL)
        shape_init(&shape, "default", "guest@sha256:00", "1", 256, 64);
    buffer_init(&bytes, size);
    buffer_append(&bytes, data + 1, size - 1);
    switch (data[0] % 6) {
    case 0:
        take_sandbox(&bytes, &shape);
        break;
    case 1:
        take_list(&bytes, &shape);
        break;
    case 2:
        take_config(&bytes, &shape);
        break;
    case 3:
        take_info(&bytes);
        break;
    case 4:
        take_structs(data + 1, size - 1);
        break;
    default:
        read_deletion(&bytes);
        if (policy_hash(data + 1, size - 1, hash) && strlen(hash) != SHA256_HEX)
            abort();
        break;
    }
    buffer_dispose(&bytes);
    return 0;
}
