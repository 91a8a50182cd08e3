/* Guest images as the Engine describes them: what is taken, and each single reason why one is not. */
#include <stdbool.h>

#include "tests/unit/proof_fixture.h"

#include "backends/docker/image.h"
#include "backends/docker/image_env.h"

#define HEX64 "9629b2423296806da6140a7ad6702edbf3c253e14e8437a1346ba9fad18a4dcb"
#define OTHER64 "a19ef0b2df9fa5c23a891df8dc680bdd8e13e0a6eac70ece80ab3628757e0711"

/* An Engine 20.10's answer, less what nothing here reads. */
static const char INSPECT[] =
    "{\"Id\":\"sha256:" HEX64 "\",\"RepoTags\":[\"plimsoll/snippet:latest\"],\"RepoDigests\":[],\"Parent\":\"\","
    "\"Created\":\"2026-11-29T23:36:47.491730877Z\",\"DockerVersion\":\"20.10.24+dfsg1\","
    "\"Config\":{\"Hostname\":\"\",\"User\":\"61000:61000\",\"AttachStdin\":false,\"Tty\":false,"
    "\"Env\":[\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\",\"LANG=C.UTF-8\"],\"Cmd\":null,"
    "\"Volumes\":null,\"WorkingDir\":\"\",\"Entrypoint\":[\"/opt/sbx/runner\"],\"OnBuild\":null,"
    "\"Labels\":{\"sbx.node\":\"22.23.5\",\"sbx.runner.protocol\":\"1\"}},"
    "\"Architecture\":\"amd64\",\"Os\":\"linux\",\"Size\":151014736,"
    "\"RootFS\":{\"Type\":\"layers\",\"Layers\":[\"sha256:" OTHER64 "\"]}}";

static const image_want_t WANT = {.reference = "plimsoll/snippet:latest", .arch = "amd64"};

static bool vet(const json_t *inspect, const image_want_t *want, image_t *out, char failure[BACKEND_TEXT_MAX])
{
    failure[0] = '\0';
    return image_vet(inspect, want, out, failure);
}

static void test_a_guest_image_is_taken(void **state)
{
    char failure[BACKEND_TEXT_MAX];
    image_t image, copy;
    json_t *inspect = fixture_parse(INSPECT);
    (void)state;
    assert_true(vet(inspect, &WANT, &image, failure));
    json_decref(inspect);
    assert_string_equal(image.id, "sha256:" HEX64);
    assert_string_equal(image.environment, "docker-image:sha256:" HEX64);
    assert_string_equal(image.software_identity, "");
    assert_int_equal(image.env_count, 2);
    assert_string_equal(image.env[1], "LANG=C.UTF-8");
    image_copy(&copy, &image);
    memset(&image, 0x5a, sizeof(image));
    assert_string_equal(copy.env[0], "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    assert_string_equal(copy.env[1], "LANG=C.UTF-8");
}

static void test_each_single_reason_is_named(void **state)
{
    static const change_t changes[] = {
        {"Id", "\"" HEX64 "\"", "without a content ID"},
        {"Id", "\"sha256:" HEX64 "0\"", "without a content ID"},
        {"Id", "\"sha512:" HEX64 "\"", "without a content ID"},
        {"Id", "\"sha256:9629B2423296806da6140a7ad6702edbf3c253e14e8437a1346ba9fad18a4dcb\"", "without a content ID"},
        {"Id", "7", "without a content ID"},
        {"Config", "null", "without a content ID"},
        {"Os", "\"windows\"", "is for windows/amd64"},
        {"Architecture", "\"arm64\"", "is for linux/arm64"},
        {"Variant", "\"v8\"", NULL},
        {"Variant", "\"v8@sha256:0\"", "is for"},
        {"Config.Volumes", "{\"/data\":{}}", "VOLUME"},
        {"Config.Volumes", "[]", "VOLUME"},
        {"Config.Volumes", "{}", NULL},
        {"Config.Labels", "null", "no label sbx.runner.protocol"},
        {"Config.Labels", "{\"sbx.runner.protocol\":\"2\"}", "protocol 2"},
        {"Config.Labels", "{\"sbx.runner.protocol\":1}", "no label"},
        {"Config.Env", "null", NULL},
        {"Config.Env", "{}", "too many"},
        {"Config.Env", "[7]", "environment"},
        {"Config.Env.+", "\"LD_PRELOAD=/usr/lib/x.so\"", "LD_PRELOAD"},
        {"Config.Env.+", "\"NODE_OPTIONS=\"", "NODE_OPTIONS"},
        {"Config.Env.+", "\"PATH=/usr/bin\"", "twice"},
        {"Config.Env.0", "\"PATH=/usr/bin:/tmp/bin\"", "PATH with a relative entry or one where guests can write"},
        {"Config.Env.+", "\"NOVALUE\"", "not a plain NAME=value"},
        {"Config.Env.+", "\"A=\\u0000LD_PRELOAD=x\"", "not a plain NAME=value"},
        {"Config.Healthcheck", "{\"Test\":[\"CMD\",\"/bin/true\"]}", NULL}, /* switched off in every container (1.2) */
        {"RootFS", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); ++i) {
        char failure[BACKEND_TEXT_MAX];
        image_t image;
        json_t *inspect = fixture_changed(INSPECT, &changes[i]);
        bool is_taken = vet(inspect, &WANT, &image, failure);
        json_decref(inspect);
        fixture_expect(&changes[i], is_taken, failure);
        if (!is_taken)
            assert_non_null(strstr(failure, "plimsoll/snippet:latest"));
    }
}

static void test_variables_that_load_code_are_refused(void **state)
{
    /* Spec backend-docker 3.1 item 6. */
    static const char *const loaders[] = {"LD_PRELOAD",
                                          "LD_LIBRARY_PATH",
                                          "LD_",
                                          "DYLD_INSERT_LIBRARIES",
                                          "NODE_OPTIONS",
                                          "NODE_REPL_EXTERNAL_MODULE",
                                          "NODE_EXTRA_CA_CERTS",
                                          "NODE_TLS_REJECT_UNAUTHORIZED",
                                          "NODE_V8_COVERAGE",
                                          "NODE_ICU_DATA",
                                          "NODE_COMPILE_CACHE",
                                          "BASH_ENV",
                                          "ENV",
                                          "GLIBC_TUNABLES",
                                          "GCONV_PATH",
                                          "LOCPATH",
                                          "HOSTALIASES",
                                          "PERL5OPT",
                                          "RUBYOPT",
                                          "JAVA_TOOL_OPTIONS",
                                          "_JAVA_OPTIONS",
                                          "JDK_JAVA_OPTIONS",
                                          "PYTHONSTARTUP",
                                          "PYTHONHOME",
                                          "PYTHONUSERBASE",
                                          "PYTHONBREAKPOINT",
                                          "PYTHONINSPECT",
                                          "PYTHONEXECUTABLE",
                                          "PYTHONPYCACHEPREFIX"};
    static const char *const harmless[] = {"LANG=C.UTF-8",
                                           "OPENBLAS_NUM_THREADS=1",
                                           "PYTHONUNBUFFERED=1",
                                           "PYTHONDONTWRITEBYTECODE=1",
                                           "NODE_ENV=production",
                                           "ENVIRONMENT=x",
                                           "OLD_PATH=/tmp",
                                           "ld_preload=x",
                                           "A=",
                                           "A==b=c"};
    char why[IMAGE_WHY_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(loaders) / sizeof(loaders[0]); ++i) {
        char text[64];
        int len = snprintf(text, sizeof(text), "%s=", loaders[i]);
        assert_false(image_env_vet(text, (size_t)len, why));
        assert_non_null(strstr(why, loaders[i]));
    }
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); ++i)
        assert_true(image_env_vet(harmless[i], strlen(harmless[i]), why));
}

static void test_search_paths_are_compared_clean(void **state)
{
    static const char *const refused[] = {"",
                                          "bin",
                                          "/usr/bin:",
                                          ":/usr/bin",
                                          "/usr/bin::/bin",
                                          "/usr/bin:.",
                                          "/usr/bin:./x",
                                          "/tmp",
                                          "/tmp/",
                                          "//tmp",
                                          "/./tmp/x",
                                          "/usr/../tmp/x",
                                          "/usr/bin/../../work",
                                          "/work"
                                          "/node_modules/.bin",
                                          "/var/tmp/x",
                                          "/var/./tmp",
                                          "/dev/shm",
                                          "/proc/self/cwd",
                                          "/sys",
                                          "/run/x",
                                          "/usr/bin:/bin:/run"};
    static const char *const taken[] = {"/usr/bin",      "/",         "/usr/bin:/bin",   "/tmpfs",
                                        "/workshop/bin", "/var/tmpx", "/tmp/../usr/bin", "/runner",
                                        "/opt/tmp",      "/..",       "/usr/bin/"};
    static const char *const names[] = {"PATH", "NODE_PATH", "PYTHONPATH", "PERL5LIB", "PERLLIB", "RUBYLIB"};
    char text[128], why[IMAGE_WHY_MAX];
    (void)state;
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); ++n) {
        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i) {
            int len = snprintf(text, sizeof(text), "%s=%s", names[n], refused[i]);
            if (image_env_vet(text, (size_t)len, why))
                fail_msg("taken: %s", text);
            assert_non_null(strstr(why, names[n]));
        }
        for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); ++i) {
            int len = snprintf(text, sizeof(text), "%s=%s", names[n], taken[i]);
            if (!image_env_vet(text, (size_t)len, why))
                fail_msg("refused: %s", text);
        }
    }
    /* A place that does not fit is not taken for another one. */
    char *longest = malloc(4096);
    int len = snprintf(longest, 4096, "PATH=/%02000d/../tmp", 0);
    assert_false(image_env_vet(longest, (size_t)len, why));
    free(longest);
}

static json_t *with_env(size_t count, size_t bytes)
{
    json_t *inspect = fixture_parse(INSPECT), *env = json_array();
    for (size_t i = 0; i < count; ++i) {
        size_t size = bytes / count + (i < bytes % count);
        char *text = malloc(size);
        memset(text, 'x', size - 1);
        text[size - 1] = '\0';
        text[0] = (char)('A' + i / 26);
        text[1] = (char)('a' + i % 26);
        text[2] = '=';
        json_array_append_new(env, json_string(text));
        free(text);
    }
    json_object_set_new(json_object_get(inspect, "Config"), "Env", env);
    return inspect;
}

static void test_the_environment_has_limits(void **state)
{
    static const struct {
        size_t count, bytes;
        bool is_taken;
    } cases[] = {{IMAGE_ENV_MAX - 1, 4096, true},  {IMAGE_ENV_MAX, 4096, true},
                 {IMAGE_ENV_MAX + 1, 4096, false}, {4, IMAGE_ENV_BYTES_MAX - 1, true},
                 {4, IMAGE_ENV_BYTES_MAX, true},   {4, IMAGE_ENV_BYTES_MAX + 1, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char failure[BACKEND_TEXT_MAX];
        image_t image;
        json_t *inspect = with_env(cases[i].count, cases[i].bytes);
        assert_int_equal(vet(inspect, &WANT, &image, failure), cases[i].is_taken);
        json_decref(inspect);
        if (cases[i].is_taken)
            assert_int_equal(image.env_count, cases[i].count);
    }
}

static void test_only_a_confirmed_digest_is_an_identity(void **state)
{
#define PIN "registry.example/plimsoll/snippet@sha256:" OTHER64
    static const struct {
        const char *reference, *digests, *variant;
        bool is_pinned_only;
        const char *identity, *refusal;
    } cases[] = {
        {"plimsoll/snippet:latest", "[]", "", false, "", NULL},
        {"plimsoll/snippet:latest", "[\"" PIN "\"]", "", false, "", NULL}, /* a name can move */
        {"plimsoll/snippet:latest", "[]", "", true, NULL, "SANDBOX_REQUIRE_PINNED_IMAGES"},
        {PIN, "[\"" PIN "\"]", "", false, "oci-manifest:linux/amd64@sha256:" OTHER64, NULL},
        {PIN, "[\"" PIN "\"]", "", true, "oci-manifest:linux/amd64@sha256:" OTHER64, NULL},
        {PIN, "[\"" PIN "\"]", "v3", true, "oci-manifest:linux/amd64/v3@sha256:" OTHER64, NULL},
        {PIN, "[]", "", false, NULL, "not what the Engine has by that digest"},
        {PIN, "[\"plimsoll/snippet@sha256:" HEX64 "\"]", "", true, NULL, "not what the Engine has"},
        {PIN, "[7,\"x\"]", "", true, NULL, "not what the Engine has"},
        {"sha256:" HEX64, "[]", "", false, "", NULL},
        {"sha256:" OTHER64, "[]", "", false, NULL, "another content ID"},
        {"sha256:" HEX64, "[]", "", true, NULL, "SANDBOX_REQUIRE_PINNED_IMAGES"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char failure[BACKEND_TEXT_MAX], variant[32];
        image_t image;
        image_want_t want = {
            .reference = cases[i].reference, .is_pinned_only = cases[i].is_pinned_only, .arch = "amd64"};
        json_t *inspect = fixture_parse(INSPECT);
        snprintf(variant, sizeof(variant), "\"%s\"", cases[i].variant);
        fixture_change(inspect, "RepoDigests", cases[i].digests);
        fixture_change(inspect, "Variant", variant);
        bool is_taken = vet(inspect, &want, &image, failure);
        json_decref(inspect);
        assert_int_equal(is_taken, cases[i].refusal == NULL);
        if (is_taken)
            assert_string_equal(image.software_identity, cases[i].identity);
        else
            assert_non_null(strstr(failure, cases[i].refusal));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guest_image_is_taken),
        cmocka_unit_test(test_each_single_reason_is_named),
        cmocka_unit_test(test_variables_that_load_code_are_refused),
        cmocka_unit_test(test_search_paths_are_compared_clean),
        cmocka_unit_test(test_the_environment_has_limits),
        cmocka_unit_test(test_only_a_confirmed_digest_is_an_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
