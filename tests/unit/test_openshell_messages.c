/* OpenShell's messages against bytes of independent origin (spec backend-openshell 2.10, 3.4), and every difference
 * that a read-back must not let through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/openshell/messages.h"
#include "backends/openshell/openshell_internal.h"
#include "backends/openshell/wire.h"
#include "core/hex.h"

static const char STAMP[] = "0123456789abcd0123456789abcdef01", INSTALLATION[] = "fedcba9876543210fedcba9876543210",
                  INSTANCE[] = "00112233445566aa", NAME[] = "plp-0123456789abcd";

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; ++i)
        out[i] = (uint8_t)(hex_digit(hex[2 * i]) * 16 + hex_digit(hex[2 * i + 1]));
    return n;
}

static void expect_bytes(buffer_t *got, const char *hex)
{
    uint8_t want[512];
    size_t len = unhex(hex, want);
    assert_int_equal(got->len, len);
    assert_memory_equal(got->base, want, len);
    buffer_dispose(got);
}

static shape_t shape;

static int make_shape(void **state)
{
    (void)state;
    shape_init(&shape, "default", "guest@sha256:00", "1", 256, 64);
    return 0;
}

static int drop_shape(void **state)
{
    (void)state;
    shape_dispose(&shape);
    return 0;
}

/* --- vectors --- */

static void requests(void **state)
{
    (void)state;
    static const char *const argv[] = {"node", "-", NULL};
    const command_t command = {.argv = argv};
    char name[OPENSHELL_NAME + 1];
    buffer_t out;
    buffer_init(&out, OPENSHELL_REQUEST_MAX);
    openshell_name(STAMP, name);
    assert_string_equal(name, NAME);
    message_get(&shape, name, &out);
    expect_bytes(&out, "0a12706c702d303132333435363738396162636412090a0764656661756c74");
    message_delete(&shape, name, &out);
    expect_bytes(&out, "0a12706c702d303132333435363738396162636412090a0764656661756c741801");
    message_config(&shape, name, &out);
    expect_bytes(&out, "0a12706c702d30313233343536373839616263641a090a0764656661756c74");
    message_exec(&shape, name, &command, 15, &out);
    expect_bytes(&out, "0a2f0a12706c702d303132333435363738396162636412046e6f646512012d500162090a0764656661756c74ca06020"
                       "80f");
    message_stdin((const uint8_t *)"1", 1, &out);
    expect_bytes(&out, "120131");
}

static void structs(void **state)
{
    (void)state;
    uint8_t want[256];
    size_t len =
        unhex("0a2b0a066c696d69747312212a1f0a0a0a0363707512031a01310a110a066d656d6f727912071a053235364d69", want);
    assert_int_equal(shape.resources.len, len);
    assert_memory_equal(shape.resources.base, want, len);
    len =
        unhex("0a730a06646f636b657212692a670a650a066d6f756e7473125b32590a572a550a170a076f7074696f6e73120c320a0a081a066e"
              "6f657865630a170a0a73697a655f627974657312091100000000000090410a100a0674617267657412061a042f746d700a0f0a"
              "047479706512071a05746d706673",
              want);
    assert_int_equal(shape.driver_config.len, len);
    assert_memory_equal(shape.driver_config.base, want, len);
}

static void events(void **state)
{
    (void)state;
    static const struct {
        const char *hex;
        int exit;
    } exits[] = {{"1a00", 0}, {"1a020807", 7}, {"1a0b08ffffffffffffffffff01", -1}};
    uint8_t bytes[32];
    size_t len = unhex("0a040a026869", bytes);
    Plimsoll__Openshell__ExecEvent *event = plimsoll__openshell__exec_event__unpack(NULL, len, bytes);
    assert_int_equal(event->event_case, PLIMSOLL__OPENSHELL__EXEC_EVENT__EVENT_STDOUT);
    assert_memory_equal(event->stdout->data.data, "hi", 2);
    plimsoll__openshell__exec_event__free_unpacked(event, NULL);
    for (size_t i = 0; i < sizeof(exits) / sizeof(exits[0]); ++i) {
        len = unhex(exits[i].hex, bytes);
        event = plimsoll__openshell__exec_event__unpack(NULL, len, bytes);
        assert_int_equal(event->event_case, PLIMSOLL__OPENSHELL__EXEC_EVENT__EVENT_EXIT);
        assert_int_equal(event->exit->exit_code, exits[i].exit);
        plimsoll__openshell__exec_event__free_unpacked(event, NULL);
    }
}

static const policy_t WITH_RUNNER = {
    .read_only = {"/bin", "/usr", "/lib", "/etc", "/proc", "/dev/urandom", "/sys/fs/cgroup", "/runner.mjs"},
    .read_write = {"/tmp", "/dev/null"},
    .compatibility = "hard_requirement"};

static void hashes(void **state)
{
    (void)state;
    static const policy_t second = {.include_workdir = true,
                                    .read_only = {"/bin", "/usr", "/lib", "/proc", "/dev/urandom", "/etc", "/var/log"},
                                    .read_write = {"/tmp", "/dev/null"},
                                    .compatibility = "best_effort"};
    static const policy_t third = {
        .read_only = {"/bin", "/usr", "/lib", "/proc", "/dev/urandom", "/etc", "/runner.mjs"},
        .read_write = {"/sandbox/work", "/tmp", "/dev/null"},
        .compatibility = "best_effort"};
    static const policy_t fourth = {
        .read_only = {"/bin", "/usr", "/lib", "/proc", "/dev/urandom", "/etc", "/runner.mjs", "/sys/fs/cgroup"},
        .read_write = {"/sandbox/work", "/tmp", "/dev/null"},
        .compatibility = "best_effort",
        .user = "1000",
        .group = "1000"};
    const struct {
        const policy_t *policy;
        const char *hash;
    } rows[] = {{&WITH_RUNNER, "d1c56801c3fcf0b1d8473339f3b625b1cbf43d5401c1268026551dd28a39d871"},
                {&second, "a45a8ff3564f00ae26cbd66f1131f37eedd8b54a66fbfec103d65a204c19c6e8"},
                {&third, "cb87d045a485ed8bbbd10c0580ef19f61a72312572b48664000d6c68014653bc"},
                {&fourth, "a407726e71fc08e1452222192dafdfffe9676ce9c3c6ff3f6e7ae1d1ffd24917"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        char hash[SHA256_HEX + 1];
        buffer_t encoded;
        buffer_init(&encoded, POLICY_BYTES_MAX);
        assert_true(policy_encode(rows[i].policy, &encoded));
        assert_true(policy_hash(encoded.base, encoded.len, hash));
        assert_string_equal(hash, rows[i].hash);
        if (i == 0)
            expect_bytes(&encoded,
                         "0801125b12042f62696e12042f75737212042f6c696212042f65746312052f70726f63120c2f6465762f"
                         "7572616e646f6d120e2f7379732f66732f6367726f7570120b2f72756e6e65722e6d6a731a042f746d70"
                         "1a092f6465762f6e756c6c1a120a10686172645f726571756972656d656e74");
        buffer_dispose(&encoded);
    }
}

/* A policy that lets something through has no hash here: it is never ours. */
static void a_policy_with_rules_is_refused(void **state)
{
    (void)state;
    char hash[SHA256_HEX + 1];
    uint8_t bytes[POLICY_BYTES_MAX];
    memcpy(bytes, shape.policy.base, shape.policy.len);
    assert_true(policy_hash(bytes, shape.policy.len, hash));
    assert_string_equal(hash, shape.policy_hash);
    static const uint8_t endings[][4] = {
        {0x2a, 2, 0x0a, 0}, {0x32, 2, 0x0a, 0}, {0x2a, 9, 0, 0}, {0x80, 0x80, 0x80, 0x80}};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); ++i) {
        memcpy(bytes + shape.policy.len, endings[i], sizeof(endings[i]));
        assert_false(policy_hash(bytes, shape.policy.len + sizeof(endings[i]), hash));
    }
}

/* --- structs compared --- */

static void structs_compared(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool is_equal;
    } rows[] = {
        {"", "", true},
        {"0a080a01611203"
         "1a0131",
         "", false},
        /* {"a":"1","b":"2"} in either order */
        {"0a080a016112031a0131"
         "0a080a016212031a0132",
         "0a080a016212031a0132"
         "0a080a016112031a0131",
         true},
        {"0a080a016112031a0131"
         "0a080a016212031a0132",
         "0a080a016212031a0131"
         "0a080a016112031a0131",
         false},
        /* a key twice, on one side or both */
        {"0a080a016112031a0131"
         "0a080a016112031a0131",
         "0a080a016112031a0131"
         "0a080a016112031a0131",
         false},
        /* another kind of value: "1" and 1.0 */
        {"0a080a016112031a0131", "0a0e0a0161120911000000000000f03f", false},
        {"0a0e0a0161120911000000000000f03f", "0a0e0a0161120911000000000000f03f", true},
        /* a field that Struct has not; a value that is two; a cut one */
        {"1001", "1001", false},
        {"0a0b0a016112061a01311a0132", "0a0b0a016112061a01311a0132", false},
        {"0a080a016112031a01", "0a080a016112031a01", false},
        {"0a030a0161", "0a030a0161", false},
        /* lists keep their order */
        {"0a0f0a0161120a32080a031a01310a011a", "0a0f0a0161120a32080a031a01310a011a", false},
        {"0a110a0161120c320a0a031a01310a031a0132", "0a110a0161120c320a0a031a01310a031a0132", true},
        {"0a110a0161120c320a0a031a01310a031a0132", "0a110a0161120c320a0a031a01320a031a0131", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        uint8_t a[128], b[128];
        size_t a_len = unhex(rows[i].a, a), b_len = unhex(rows[i].b, b);
        if (wire_struct_equal(a, a_len, b, b_len) != rows[i].is_equal)
            fail_msg("row %zu", i);
    }
}

static void deep_structs(void **state)
{
    (void)state;
    buffer_t inner, outer;
    buffer_init(&inner, 4096);
    assert_true(wire_struct_text(&inner, "a", "1"));
    for (int depth = 1; depth <= WIRE_STRUCT_DEPTH_MAX + 1; ++depth) {
        buffer_init(&outer, 4096);
        assert_true(wire_struct_struct(&outer, "a", &inner));
        buffer_dispose(&inner);
        inner = outer;
        assert_int_equal(wire_struct_equal(inner.base, inner.len, inner.base, inner.len),
                         depth <= WIRE_STRUCT_DEPTH_MAX);
    }
    buffer_dispose(&inner);
}

/* --- read-back --- */

static const owner_t OWNER = {.stamp = STAMP, .installation = INSTALLATION, .instance = INSTANCE, .lifetime_s = 40};

/* As a gateway answers: the request of the create, its name and labels in the metadata, its additions beside. `extra`
 * is put at the end of a part. */
typedef enum { IN_NOTHING, IN_METADATA, IN_SPEC, IN_TEMPLATE, IN_POLICY } place_t;

static void put(buffer_t *out, uint8_t tag, const void *bytes, size_t len)
{
    uint8_t head[3] = {tag, (uint8_t)(len & 0x7f), (uint8_t)(len >> 7)};
    if (len >= 0x80)
        head[1] |= 0x80;
    assert_true(buffer_append(out, head, len >= 0x80 ? 3 : 2) && buffer_append(out, bytes, len));
}

typedef struct {
    const char *key; /* of a field of the answer, as below; NULL: none is changed */
    const char *hex; /* what it is instead; NULL: left out */
} change_t;

static buffer_t changed(const char *key, const buffer_t *was, const change_t *change)
{
    buffer_t out;
    uint8_t bytes[512];
    buffer_init(&out, 4096);
    if (change->key == NULL || strcmp(change->key, key) != 0)
        assert_true(buffer_append(&out, was->base, was->len));
    else if (change->hex != NULL)
        assert_true(buffer_append(&out, bytes, unhex(change->hex, bytes)));
    return out;
}

static void put_text(buffer_t *out, uint8_t tag, const char *key, const char *value, const change_t *change)
{
    buffer_t text, now;
    buffer_init(&text, 4096);
    assert_true(buffer_append_str(&text, value));
    now = changed(key, &text, change);
    if (now.len > 0)
        put(out, tag, now.base, now.len);
    buffer_dispose(&text);
    buffer_dispose(&now);
}

static void put_buffer(buffer_t *out, uint8_t tag, const char *key, const buffer_t *value, const change_t *change)
{
    buffer_t now = changed(key, value, change);
    if (now.len > 0)
        put(out, tag, now.base, now.len);
    buffer_dispose(&now);
}

static void put_extra(buffer_t *out, const char *key, const change_t *change)
{
    uint8_t bytes[512];
    if (change->key != NULL && strcmp(change->key, key) == 0 && change->hex != NULL)
        assert_true(buffer_append(out, bytes, unhex(change->hex, bytes)));
}

static Plimsoll__Openshell__Sandbox *answer(change_t change)
{
    static const char *const labels[][2] = {{"plimsoll.installation", INSTALLATION},
                                            {"plimsoll.instance", INSTANCE},
                                            {"plimsoll.lifetime", "40"},
                                            {"plimsoll.run", "1"},
                                            {"plimsoll.stamp", STAMP},
                                            {"somebody.else", "x"}};
    buffer_t metadata, template, spec, sandbox, response;
    buffer_init(&metadata, 4096);
    buffer_init(&template, 4096);
    buffer_init(&spec, 4096);
    buffer_init(&sandbox, 8192);
    buffer_init(&response, 8192);
    put_text(&metadata, 0x0a, "id", "3f2b0c1e-0000-4000-8000-000000000001", &change);
    put_text(&metadata, 0x12, "name", NAME, &change);
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); ++i) {
        buffer_t pair;
        buffer_init(&pair, 512);
        put(&pair, 0x0a, labels[i][0], strlen(labels[i][0]));
        put_text(&pair, 0x12, labels[i][0], labels[i][1], &change);
        put(&metadata, 0x22, pair.base, pair.len);
        buffer_dispose(&pair);
    }
    put_extra(&metadata, "+metadata", &change);
    put_text(&template, 0x0a, "image", "guest@sha256:00", &change);
    put_buffer(&template, 0x3a, "resources", &shape.resources, &change);
    put_buffer(&template, 0x5a, "driver_config", &shape.driver_config, &change);
    put_extra(&template, "+template", &change);
    put(&spec, 0x0a, "info", 4); /* log_level: the gateway's */
    put(&spec, 0x32, template.base, template.len);
    put_buffer(&spec, 0x3a, "policy", &shape.policy, &change);
    put_text(&spec, 0x62, "command", "sleep", &change);
    put(&spec, 0x62, "2147483647", 10);
    assert_true(buffer_append(&spec, "\x68\x01", 2)); /* tty */
    put_extra(&spec, "+spec", &change);
    put(&sandbox, 0x0a, metadata.base, metadata.len);
    put(&sandbox, 0x12, spec.base, spec.len);
    put(&sandbox, 0x1a, "\x30\x02", 2);
    put(&response, 0x0a, sandbox.base, sandbox.len);
    Plimsoll__Openshell__Sandbox *read = read_sandbox(&response);
    buffer_dispose(&metadata);
    buffer_dispose(&template);
    buffer_dispose(&spec);
    buffer_dispose(&sandbox);
    buffer_dispose(&response);
    return read;
}

static void sandboxes_read_back(void **state)
{
    (void)state;
    char policy_plus[1024], policy_short[1024], why[OPENSHELL_WHY_MAX];
    for (size_t i = 0; i < shape.policy.len; ++i)
        snprintf(policy_plus + 2 * i, 3, "%02x", shape.policy.base[i]);
    snprintf(policy_short, sizeof(policy_short), "%.*s", (int)(2 * shape.policy.len - 2), policy_plus);
    snprintf(policy_plus + 2 * shape.policy.len, 16, "980601"); /* a field nobody knows */
    const struct {
        change_t change;
        bool holds;
    } rows[] = {
        {{NULL, NULL}, true},
        {{"somebody.else", NULL}, true},
        {{"+spec", "7a00"}, true}, /* restart_policy: newer gateways' own */
        {{"id", NULL}, false},
        {{"name", "706c702d30"}, false},
        {{"name", "706c702d303132333435363738396162636400"}, false}, /* ours, a NUL, and more */
        {{"plimsoll.installation", "61"}, false},
        {{"plimsoll.instance", NULL}, false},
        {{"plimsoll.lifetime", "3431"}, false},
        {{"plimsoll.run", "32"}, false},
        {{"plimsoll.stamp", "61"}, false},
        {{"+metadata", "22120a0c706c696d736f6c6c2e72756e12023131"}, false}, /* a label twice */
        {{"image", "6f74686572"}, false},
        {{"image", NULL}, false},
        {{"resources", NULL}, false},
        /* 512Mi */
        {{"resources", "0a2b0a066c696d69747312212a1f0a0a0a0363707512031a01310a110a066d656d6f727912071a053531324d69"},
         false},
        /* memory before cpu */
        {{"resources", "0a2b0a066c696d69747312212a1f0a110a066d656d6f727912071a053235364d690a0a0a0363707512031a0131"},
         true},
        {{"driver_config", NULL}, false},
        {{"policy", NULL}, false},
        {{"policy", policy_plus}, false},
        {{"policy", policy_short}, false},
        {{"+spec", "420178"}, false},               /* a provider */
        {{"+spec", "2a060a016112017a"}, false},     /* an environment */
        {{"+spec", "620178"}, false},               /* a further argument */
        {{"command", "62617368"}, false},           /* bash */
        {{"+template", "32060a016112017a"}, false}, /* an environment */
        {{"+template", "22060a016112017a"}, false}, /* labels */
        {{"+template", "2a060a016112017a"}, false}, /* annotations */
        {{"+template", "1a0178"}, false},           /* agent_socket */
        {{"+template", "120178"}, false},           /* runtime_class_name */
        {{"+template", "5000"}, false},             /* user_namespaces, present and false */
        {{"+template", "5001"}, false},             /* and true */
        {{"+template", "a00601"}, false},           /* a field nobody knows */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        Plimsoll__Openshell__Sandbox *sandbox = answer(rows[i].change);
        assert_non_null(sandbox);
        why[0] = '\0';
        bool holds = sandbox_holds(sandbox, &shape, &OWNER, why);
        if (holds != rows[i].holds)
            fail_msg("row %zu (%s): %s", i, rows[i].change.key, why);
        assert_int_equal(why[0] == '\0', holds);
        protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    }
}

static void stamps(void **state)
{
    (void)state;
    char stamp[LEDGER_STAMP + 1], id[OPENSHELL_ID_MAX + 1];
    Plimsoll__Openshell__Sandbox *sandbox = answer((change_t){NULL, NULL});
    assert_true(stamp_of(sandbox, stamp) && id_of(sandbox, id));
    assert_string_equal(stamp, STAMP);
    assert_string_equal(id, "3f2b0c1e-0000-4000-8000-000000000001");
    assert_int_equal(phase_of(sandbox), PHASE_READY);
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    /* a name that is another stamp's; an ID that is a path */
    sandbox = answer((change_t){"name", "706c702d3939393939393939393939393939"});
    assert_false(stamp_of(sandbox, stamp));
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    sandbox = answer((change_t){"id", "2e2e2f61"});
    assert_false(id_of(sandbox, id));
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
}

static void configs_read_back(void **state)
{
    (void)state;
    char why[OPENSHELL_WHY_MAX];
    /* policy | hash | settings | source | admitted, each as it should be or not */
    static const char good_setting[] = "22220a1e6167656e745f706f6c6963795f70726f706f73616c735f656e61626c65641200",
                      none[] = "",
                      off[] = "22260a1e6167656e745f706f6c6963795f70726f706f73616c735f656e61626c656412040a021000",
                      on[] = "22260a1e6167656e745f706f6c6963795f70726f706f73616c735f656e61626c656412040a021001",
                      text[] =
                          "222b0a1e6167656e745f706f6c6963795f70726f706f73616c735f656e61626c656412090a070a0566616c7365",
                      unknown[] = "22270a1e6167656e745f706f6c6963795f70726f706f73616c735f656e61626c656412050a0350013a";
    (void)unknown;
    const struct {
        const char *setting;
        const char *hash;
        int source, admitted;
        bool is_policy_cut, holds;
    } rows[] = {
        {good_setting, NULL, 1, 1, false, true},  {off, NULL, 1, 1, false, true},
        {none, NULL, 1, 1, false, false},         {on, NULL, 1, 1, false, false},
        {text, NULL, 1, 1, false, false},         {good_setting, "00", 1, 1, false, false},
        {good_setting, NULL, 2, 1, false, false}, {good_setting, NULL, 0, 1, false, false},
        {good_setting, NULL, 1, 0, false, false}, {good_setting, NULL, 1, 1, true, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        buffer_t bytes;
        uint8_t setting[128], tail[] = {0x30, (uint8_t)rows[i].source, 0x68, (uint8_t)rows[i].admitted};
        size_t setting_len = unhex(rows[i].setting, setting);
        const char *hash = rows[i].hash != NULL ? rows[i].hash : shape.policy_hash;
        buffer_init(&bytes, 4096);
        put(&bytes, 0x0a, shape.policy.base, shape.policy.len - rows[i].is_policy_cut);
        put(&bytes, 0x1a, hash, strlen(hash));
        assert_true(buffer_append(&bytes, setting, setting_len) && buffer_append(&bytes, tail, sizeof(tail)));
        if (i == 0) /* said twice it says nothing */
            assert_true(buffer_append(&bytes, "\x82\x01\x00", 3));
        Plimsoll__Openshell__Config *config = read_config(&bytes);
        assert_non_null(config);
        if (config_holds(config, &shape, why) != rows[i].holds)
            fail_msg("row %zu: %s", i, why);
        protobuf_c_message_free_unpacked(&config->base, NULL);
        if (rows[i].holds) {
            assert_true(buffer_append(&bytes, setting, setting_len));
            config = read_config(&bytes);
            assert_false(config_holds(config, &shape, why));
            protobuf_c_message_free_unpacked(&config->base, NULL);
        }
        buffer_dispose(&bytes);
    }
}

static void gateways(void **state)
{
    (void)state;
#define NAMED "0a06646f636b6572"
#define PODMAN "0a06706f646d616e"
/* a driver { name, capabilities { driver_name, resources { cpu { limited }, memory { limited } } } } */
#define DRIVER "1a1c" NAMED "1212" NAMED "1a080a02080112020801"
#define VERSION "1205302e312e32" /* 0.1.2 */
    static const struct {
        const char *hex, *other;
        bool holds;
    } rows[] = {
        {VERSION DRIVER, NULL, true},
        {"120d302e312e322d7374616e64696e" DRIVER, NULL, true}, /* 0.1.2-standin */
        {"1205302e322e30" DRIVER, NULL, false},                /* 0.2.0 */
        {"1205302e322e30" DRIVER, "0.2.0", true},
        {"1204302e312e" DRIVER, NULL, false}, /* 0.1. */
        {DRIVER, NULL, false},
        {VERSION, NULL, false},
        {VERSION DRIVER DRIVER, NULL, false},
        {VERSION "1a1c" PODMAN "1212" NAMED "1a080a02080112020801", NULL, false},
        {VERSION "1a1c" NAMED "1212" PODMAN "1a080a02080112020801", NULL, false},
        {VERSION "1a08" NAMED, NULL, false},
        {VERSION "1a12" NAMED "1208" NAMED, NULL, false},
        {VERSION "1a18" NAMED "120e" NAMED "1a040a020801", NULL, false},
        {VERSION "1a1a" NAMED "1210" NAMED "1a060a0208011200", NULL, false},
        {VERSION "1a1a" NAMED "1210" NAMED "1a060a0012020801", NULL, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        char why[OPENSHELL_WHY_MAX];
        buffer_t bytes;
        uint8_t raw[256];
        buffer_init(&bytes, 512);
        assert_true(buffer_append(&bytes, raw, unhex(rows[i].hex, raw)));
        Plimsoll__Openshell__GatewayInfo *info = read_info(&bytes);
        if (info == NULL)
            fail_msg("row %zu cannot be read", i);
        if (info_holds(info, rows[i].other, why) != rows[i].holds)
            fail_msg("row %zu: %s", i, why);
        protobuf_c_message_free_unpacked(&info->base, NULL);
        buffer_dispose(&bytes);
    }
}

static void answers_that_cannot_be_read(void **state)
{
    (void)state;
    buffer_t bytes;
    buffer_init(&bytes, 64);
    assert_null(read_sandbox(&bytes)); /* a response without a sandbox */
    assert_int_equal(read_deletion(&bytes), 0);
    assert_true(buffer_append(&bytes, "\x0a\x05\x01", 3));
    assert_null(read_sandbox(&bytes));
    assert_null(read_info(&bytes));
    assert_null(read_config(&bytes));
    assert_null(read_list(&bytes));
    assert_int_equal(read_deletion(&bytes), -1);
    buffer_clear(&bytes);
    assert_true(buffer_append(&bytes, "\x10\x02", 2));
    assert_int_equal(read_deletion(&bytes), DELETION_ACCEPTED);
    buffer_dispose(&bytes);
}

/* --- what a lost installation left --- */

static ProtobufCBinaryData text(const char *value)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)value, .len = strlen(value)};
}

/* A sandbox with our five labels, of which one may be another or (NULL) missing. */
static bool is_stale_with(const char *key, const char *value, int phase, int64_t created_s, int64_t now_ms)
{
    static const char *const keys[] = {"plimsoll.installation", "plimsoll.instance", "plimsoll.lifetime",
                                       "plimsoll.run", "plimsoll.stamp"};
    const char *values[] = {INSTALLATION, INSTANCE, "60", "1", STAMP};
    Plimsoll__Openshell__Pair pairs[5], *list[5];
    Plimsoll__Openshell__Timestamp created = PLIMSOLL__OPENSHELL__TIMESTAMP__INIT;
    Plimsoll__Openshell__ObjectMeta metadata = PLIMSOLL__OPENSHELL__OBJECT_META__INIT;
    Plimsoll__Openshell__SandboxStatus status = PLIMSOLL__OPENSHELL__SANDBOX_STATUS__INIT;
    Plimsoll__Openshell__Sandbox sandbox = PLIMSOLL__OPENSHELL__SANDBOX__INIT;
    size_t count = 0;
    for (size_t i = 0; i < 5; ++i) {
        const char *is = key != NULL && strcmp(key, keys[i]) == 0 ? value : values[i];
        if (is == NULL)
            continue;
        plimsoll__openshell__pair__init(&pairs[count]);
        pairs[count].key = text(keys[i]);
        pairs[count].value = text(is);
        list[count] = &pairs[count];
        ++count;
    }
    created.seconds = created_s;
    metadata.id = text("an-id");
    metadata.name = text(NAME);
    metadata.labels = list;
    metadata.n_labels = count;
    metadata.created_time = created_s != 0 ? &created : NULL;
    status.phase = phase;
    sandbox.metadata = &metadata;
    sandbox.status = &status;
    return sandbox_is_stale(&sandbox, "00000000000000000000000000000001", now_ms);
}

static void only_what_is_ours_by_its_marks_and_well_past_its_time_is_stale(void **state)
{
    (void)state;
    const int64_t born = 1790000000, due = (born + 60 + 5 * 60) * 1000, later = due + 1;
    static const struct {
        const char *key, *value;
    } left_alone[] = {
        {"plimsoll.installation", "00000000000000000000000000000001"}, /* our own: its ledger's business */
        {"plimsoll.installation", NULL},
        {"plimsoll.run", NULL},
        {"plimsoll.run", "0"},
        {"plimsoll.run", "11"},
        {"plimsoll.stamp", NULL},
        {"plimsoll.stamp", "ffffffffffffffffffffffffffffffff"}, /* not the one its name follows from */
        {"plimsoll.lifetime", NULL},
        {"plimsoll.lifetime", ""},
        {"plimsoll.lifetime", "0"},
        {"plimsoll.lifetime", "-60"},
        {"plimsoll.lifetime", "+60"},
        {"plimsoll.lifetime", "60s"},
        {"plimsoll.lifetime", "61"}, /* a second to go */
        {"plimsoll.lifetime", "4294967296"},
        {"plimsoll.lifetime", "18446744073709551676"}, /* 60 in 64 bits */
    };
    assert_true(is_stale_with(NULL, NULL, PHASE_READY, born, later));
    assert_true(is_stale_with(NULL, NULL, PHASE_ERROR, born, later));
    assert_false(is_stale_with(NULL, NULL, PHASE_READY, born, due));
    assert_false(is_stale_with(NULL, NULL, PHASE_DELETING, born, later));
    assert_false(is_stale_with(NULL, NULL, PHASE_READY, 0, later));
    assert_false(is_stale_with(NULL, NULL, PHASE_READY, -1, later));
    assert_false(is_stale_with(NULL, NULL, PHASE_READY, INT64_MAX, later));
    for (size_t i = 0; i < sizeof(left_alone) / sizeof(left_alone[0]); ++i) {
        if (is_stale_with(left_alone[i].key, left_alone[i].value, PHASE_READY, born, later))
            fail_msg("stale with %s=%s", left_alone[i].key, left_alone[i].value != NULL ? left_alone[i].value : "-");
    }
}

/* Spec 4.2, step 6. */
static void the_gateways_clock_is_told_by_what_it_dates(void **state)
{
    (void)state;
    assert_int_equal(clock_skew(9000, 10000, 12000), 0);
    assert_int_equal(clock_skew(8999, 10000, 12000), -1001);
    assert_int_equal(clock_skew(11000, 10000, 12000), 0);
    assert_int_equal(clock_skew(13000, 10000, 12000), 0);
    assert_int_equal(clock_skew(13001, 10000, 12000), 1001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(structs),
        cmocka_unit_test(events),
        cmocka_unit_test(hashes),
        cmocka_unit_test(a_policy_with_rules_is_refused),
        cmocka_unit_test(structs_compared),
        cmocka_unit_test(deep_structs),
        cmocka_unit_test(sandboxes_read_back),
        cmocka_unit_test(stamps),
        cmocka_unit_test(configs_read_back),
        cmocka_unit_test(gateways),
        cmocka_unit_test(answers_that_cannot_be_read),
        cmocka_unit_test(only_what_is_ours_by_its_marks_and_well_past_its_time_is_stale),
        cmocka_unit_test(the_gateways_clock_is_told_by_what_it_dates),
    };
    return cmocka_run_group_tests(tests, make_shape, drop_shape);
}
