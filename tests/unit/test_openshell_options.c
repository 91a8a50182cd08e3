/* The settings of the backend openshell: what is refused before anything is asked of a gateway. */
#include "options_fixture.h"

#include "config/openshell.h"

#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static int complete(void **state)
{
    fresh(state);
    setenv("SANDBOX_PROVIDER", "openshell", 1);
    setenv("SANDBOX_OPENSHELL_GATEWAY_URL", "https://gateway.example:17670", 1);
    setenv("SANDBOX_OPENSHELL_CA_FILE", "/etc/ca.crt", 1);
    setenv("SANDBOX_OPENSHELL_CERT_FILE", "/etc/client.crt", 1);
    setenv("SANDBOX_OPENSHELL_KEY_FILE", "/etc/client.key", 1);
    setenv("SANDBOX_OPENSHELL_IMAGE", "registry.example/a/b@sha256:" DIGEST, 1);
    return 0;
}

static void a_whole_configuration(void **state)
{
    (void)state;
    expect_fine();
    assert_null(openshell_settings_problem());
    setenv("SANDBOX_CPUS", "0.5", 1);
    setenv("SANDBOX_DISK_MB", "1", 1);
    setenv("SANDBOX_MEMORY_MB", "6", 1);
    setenv("SANDBOX_OPENSHELL_WORKSPACE", "plimsoll-runs", 1);
    expect_fine();
    char cpus[OPENSHELL_CPUS_MAX];
    openshell_cpus(cpus);
    assert_string_equal(cpus, "0.5");
}

static void what_is_missing_or_wrong(void **state)
{
    static const struct {
        const char *name, *value, *says; /* value NULL: unset */
    } rows[] = {
        {"SANDBOX_OPENSHELL_GATEWAY_URL", NULL, "SANDBOX_OPENSHELL_GATEWAY_URL is not set"},
        {"SANDBOX_OPENSHELL_GATEWAY_URL", "gateway.example", "SANDBOX_OPENSHELL_GATEWAY_URL is no address"},
        {"SANDBOX_OPENSHELL_GATEWAY_URL", "https://user@gateway.example",
         "SANDBOX_OPENSHELL_GATEWAY_URL is no address"},
        {"SANDBOX_OPENSHELL_GATEWAY_URL", "http://gateway.example", "SANDBOX_OPENSHELL_GATEWAY_URL is no address"},
        {"SANDBOX_OPENSHELL_GATEWAY_URL", "https://gateway.example/api", "has a path"},
        {"SANDBOX_OPENSHELL_GATEWAY_URL", "http://127.0.0.1:8080", "takes SANDBOX_OPENSHELL_PLAINTEXT"},
        {"SANDBOX_OPENSHELL_CA_FILE", NULL, "must all be set"},
        {"SANDBOX_OPENSHELL_CERT_FILE", NULL, "must all be set"},
        {"SANDBOX_OPENSHELL_KEY_FILE", NULL, "must all be set"},
        {"SANDBOX_OPENSHELL_IMAGE", NULL, "SANDBOX_OPENSHELL_IMAGE is not set"},
        {"SANDBOX_OPENSHELL_WORKSPACE", "Default", "SANDBOX_OPENSHELL_WORKSPACE is no name"},
        {"SANDBOX_OPENSHELL_WORKSPACE", "-a", "SANDBOX_OPENSHELL_WORKSPACE is no name"},
        {"SANDBOX_PIDS", "100", "SANDBOX_PIDS"},
        {"SANDBOX_MEMORY_MB", "5", "SANDBOX_MEMORY_MB"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        complete(state);
        if (rows[i].value != NULL)
            setenv(rows[i].name, rows[i].value, 1);
        else
            unsetenv(rows[i].name);
        problems_t problems = load();
        if (!says(&problems, rows[i].says)) {
            show(&problems);
            fail_msg("row %zu: %s", i, rows[i].says);
        }
        problems_dispose(&problems);
    }
}

/* Of a backend that is not enabled nothing is asked. */
static void of_no_interest_when_it_is_not_enabled(void **state)
{
    fresh(state);
    expect_fine();
    assert_non_null(openshell_settings_problem());
}

static void plaintext_is_for_a_loopback_and_development(void **state)
{
    (void)state;
    setenv("SANDBOX_OPENSHELL_GATEWAY_URL", "http://127.0.0.1:8080", 1);
    setenv("SANDBOX_OPENSHELL_PLAINTEXT", "on", 1);
    unsetenv("SANDBOX_OPENSHELL_CA_FILE");
    unsetenv("SANDBOX_OPENSHELL_CERT_FILE");
    unsetenv("SANDBOX_OPENSHELL_KEY_FILE");
    expect_fine();
    setenv("PLIMSOLL_HARDENED", "on", 1);
    problems_t problems = load();
    assert_true(says(&problems, "hardened: SANDBOX_OPENSHELL_PLAINTEXT must not be on"));
    assert_true(says(&problems, "hardened: the wall of the backend openshell is only container"));
    problems_dispose(&problems);
}

static void pinned_images(void **state)
{
    (void)state;
    char hex[65];
    assert_true(openshell_image_digest("a/b@sha256:" DIGEST, hex));
    assert_string_equal(hex, DIGEST);
    assert_false(openshell_image_digest("a/b:latest", hex));
    assert_false(openshell_image_digest(NULL, hex));
    setenv("SANDBOX_REQUIRE_PINNED_IMAGES", "on", 1);
    expect_fine();
    setenv("SANDBOX_OPENSHELL_IMAGE", "registry.example/a/b:latest", 1);
    problems_t problems = load();
    assert_true(says(&problems, "SANDBOX_OPENSHELL_IMAGE must be pinned"));
    problems_dispose(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_whole_configuration, complete),
        cmocka_unit_test_setup(what_is_missing_or_wrong, complete),
        cmocka_unit_test(of_no_interest_when_it_is_not_enabled),
        cmocka_unit_test_setup(plaintext_is_for_a_loopback_and_development, complete),
        cmocka_unit_test_setup(pinned_images, complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
