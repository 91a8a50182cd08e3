/* What the service answers, taken apart: what counts, what is malformed, and what is never believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dockercloud/answers.h"
#include "backends/dockercloud/fields.h"

#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NAME "gw-0123456789abcdef01234567-000102030405060708090a0b0c0d0e0f"
#define INSTALLATION "0123456789abcdef0123456789abcdef"
#define STAMP "000102030405060708090a0b0c0d0e0f"
enum { LIFE_MS = 150 * 1000 };

/* ' for ", so that JSON can be read here. */
static json_t *json_of(const char *text)
{
    char *copy = strdup(text);
    for (char *at = copy; *at != '\0'; ++at)
        if (*at == '\'')
            *at = '"';
    json_t *json = json_loads(copy, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    if (json == NULL)
        fail_msg("the test's own JSON is none: %s", text);
    free(copy);
    return json;
}

/* --- fields --- */

static void numbers(void **state)
{
    static const struct {
        const char *text;
        field_t field;
        uint64_t value;
    } table[] = {
        {"{}", FIELD_ABSENT, 7},
        {"{'n':null}", FIELD_ABSENT, 7},
        {"{'n':0}", FIELD_PRESENT, 0},
        {"{'n':2048}", FIELD_PRESENT, 2048},
        {"{'n':'2048'}", FIELD_PRESENT, 2048},
        {"{'n':'18446744073709551615'}", FIELD_PRESENT, UINT64_MAX},
        {"{'n':'18446744073709551616'}", FIELD_MALFORMED, 7},
        {"{'n':-1}", FIELD_MALFORMED, 7},
        {"{'n':'-1'}", FIELD_MALFORMED, 7},
        {"{'n':'+1'}", FIELD_MALFORMED, 7},
        {"{'n':' 1'}", FIELD_MALFORMED, 7},
        {"{'n':'1.0'}", FIELD_MALFORMED, 7},
        {"{'n':'1e3'}", FIELD_MALFORMED, 7},
        {"{'n':''}", FIELD_MALFORMED, 7},
        {"{'n':1.5}", FIELD_MALFORMED, 7},
        {"{'n':true}", FIELD_MALFORMED, 7},
        {"{'n':[1]}", FIELD_MALFORMED, 7},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        json_t *json = json_of(table[i].text);
        uint64_t value = 7;
        assert_int_equal(field_u64(json, "n", &value), table[i].field);
        assert_true(value == table[i].value);
        json_decref(json);
    }
    assert_int_equal(field_u64(NULL, "n", NULL), FIELD_ABSENT);
}

static void durations(void **state)
{
    static const struct {
        const char *text;
        bool is_one;
        uint64_t ms;
    } table[] = {
        {"150s", true, 150000},
        {"1.5s", true, 1500},
        {"0s", true, 0},
        {"0.000000001s", true, 1},
        {"0.9999999991s", false, 0},
        {"315576000s", true, UINT64_C(315576000000)},
        {"315576001s", false, 0},
        {"s", false, 0},
        {"1", false, 0},
        {"1.s", false, 0},
        {"-1s", false, 0},
        {"1ss", false, 0},
        {" 1s", false, 0},
        {"1m", false, 0},
        {"", false, 0},
        {"99999999999999999999s", false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        uint64_t ms = 0;
        assert_int_equal(field_duration_parse(table[i].text, &ms), table[i].is_one);
        assert_true(ms == table[i].ms);
    }
}

static void texts(void **state)
{
    static const struct {
        const char *text;
        field_t field;
    } table[] = {
        {"{'t':'abc'}", FIELD_PRESENT},        {"{'t':''}", FIELD_ABSENT},
        {"{'t':'12345678'}", FIELD_MALFORMED}, {"{'t':'a\\r\\nb'}", FIELD_MALFORMED},
        {"{'t':'a\\u007f'}", FIELD_MALFORMED}, {"{'t':'\xc3\xa9'}", FIELD_MALFORMED},
        {"{'t':1}", FIELD_MALFORMED},          {"{'t':'1234567'}", FIELD_PRESENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        char out[8] = "old";
        json_t *json = json_of(table[i].text);
        assert_int_equal(field_text(json, "t", out, sizeof(out)), table[i].field);
        if (table[i].field != FIELD_PRESENT)
            assert_string_equal(out, "old");
        json_decref(json);
    }
}

/* --- names --- */

static void names(void **state)
{
    char name[DC_NAME + 1], stamp[LEDGER_STAMP + 1] = "";
    (void)state;
    dc_name_make(name, INSTALLATION, STAMP);
    assert_string_equal(name, NAME);
    assert_int_equal(strlen(name), 60);
    assert_true(dc_name_read(NAME, INSTALLATION, stamp));
    assert_string_equal(stamp, STAMP);
    assert_false(dc_name_read(NAME, "1123456789abcdef0123456789abcdef", stamp));
    static const char *const foreign[] = {"",
                                          "gw-",
                                          "gw-another-run",
                                          NAME "0",
                                          "gx-0123456789abcdef01234567-000102030405060708090a0b0c0d0e0f",
                                          "gw-0123456789abcdef01234567_000102030405060708090a0b0c0d0e0f",
                                          "gw-0123456789abcdef01234567-000102030405060708090a0b0c0d0e0X",
                                          "gw-0123456789abcdef0123456-0000102030405060708090a0b0c0d0e0f"};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); ++i)
        assert_false(dc_name_read(foreign[i], INSTALLATION, stamp));
}

/* --- errors of both shapes --- */

static void errors(void **state)
{
    static const struct {
        dc_api_t api;
        int status;
        const char *body;
        code_t code;
        bool is_told;
    } table[] = {
        {DC_REST, 409, "{'code':'failedPrecondition','message':'m'}", CODE_FAILED_PRECONDITION, true},
        {DC_CONNECT, 400, "{'code':'failed_precondition','message':'m'}", CODE_FAILED_PRECONDITION, true},
        {DC_REST, 404, "{'code':'notFound'}", CODE_NOT_FOUND, true},
        /* nobody signed it: a route that is not served, never a sandbox that is gone */
        {DC_REST, 404, "<html>404</html>", CODE_UNIMPLEMENTED, false},
        {DC_CONNECT, 404, "", CODE_UNIMPLEMENTED, false},
        {DC_CONNECT, 404, "{'message':'no code'}", CODE_UNIMPLEMENTED, false},
        {DC_CONNECT, 404, "{'code':['not_found']}", CODE_UNIMPLEMENTED, false},
        {DC_REST, 404, "{'code':'notFound','code':'x'}", CODE_UNIMPLEMENTED, false},
        {DC_REST, 400, "", CODE_INVALID_ARGUMENT, false},
        {DC_CONNECT, 400, "", CODE_INTERNAL, false},
        {DC_REST, 401, "", CODE_UNAUTHENTICATED, false},
        {DC_REST, 403, "x", CODE_PERMISSION_DENIED, false},
        {DC_REST, 409, "x", CODE_ABORTED, false},
        {DC_CONNECT, 409, "x", CODE_UNKNOWN, false},
        {DC_REST, 412, "x", CODE_FAILED_PRECONDITION, false},
        {DC_REST, 428, "x", CODE_FAILED_PRECONDITION, false},
        {DC_REST, 429, "x", CODE_RESOURCE_EXHAUSTED, false},
        {DC_CONNECT, 429, "x", CODE_UNAVAILABLE, false},
        {DC_REST, 501, "x", CODE_UNIMPLEMENTED, false},
        {DC_REST, 500, "x", CODE_UNKNOWN, false},
        {DC_CONNECT, 503, "x", CODE_UNAVAILABLE, false},
        /* a code of a later version; "ok" on an error */
        {DC_REST, 400, "{'code':'somethingNew'}", CODE_UNKNOWN, true},
        {DC_REST, 500, "{'code':'ok'}", CODE_UNKNOWN, true},
        {DC_CONNECT, 500, "{'code':0}", CODE_UNKNOWN, true},
        {DC_CONNECT, 429, "{'code':8}", CODE_RESOURCE_EXHAUSTED, true},
        {DC_CONNECT, 500, "{'code':17}", CODE_UNKNOWN, true},
        {DC_CONNECT, 500, "{'code':-1}", CODE_UNKNOWN, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        dc_refused_t refused;
        char *body = strdup(table[i].body);
        for (char *at = body; *at != '\0'; ++at)
            if (*at == '\'')
                *at = '"';
        dc_refused_read(table[i].api, table[i].status, body, strlen(body), &refused);
        if (refused.code != table[i].code || refused.is_told != table[i].is_told)
            fail_msg("%d %s: %s, %d", table[i].status, body, dc_code_name(refused.code), refused.is_told);
        free(body);
    }
}

static void details(void **state)
{
    static const char text[] =
        "{'code':'unauthenticated','message':'endpoint_credential_expired','details':["
        "{'@type':'type.googleapis.com/google.rpc.ErrorInfo','reason':'ENDPOINT_CREDENTIAL_EXPIRED'},"
        "{'@type':'type.googleapis.com/google.rpc.RetryInfo','retryDelay':'2.5s'},"
        "{'@type':'type.googleapis.com/google.rpc.QuotaFailure'},7,null]}";
    dc_refused_t refused;
    json_t *json = json_of(text);
    (void)state;
    assert_true(dc_refused_of(json, &refused));
    assert_string_equal(refused.reason, "ENDPOINT_CREDENTIAL_EXPIRED");
    assert_int_equal(refused.retry_after_ms, 2500);
    assert_true(refused.is_quota);
    json_decref(json);
    /* a message is cut between characters */
    char *huge = malloc(4096);
    strcpy(huge, "{'code':5,'message':'x");
    for (int i = 0; i < 600; ++i)
        strcat(huge, "\xc3\xa9");
    strcat(huge, "'}");
    json = json_of(huge);
    assert_true(dc_refused_of(json, &refused));
    assert_int_equal(refused.code, CODE_NOT_FOUND);
    assert_int_equal(strlen(refused.message), REFUSED_MESSAGE_MAX - 1);
    json_decref(json);
    free(huge);
    assert_false(dc_refused_of(NULL, &refused));
    assert_int_equal(refused.code, CODE_UNKNOWN);
}

static void which_creates_may_have_been_taken(void **state)
{
    static const code_t unsure[] = {CODE_UNKNOWN, CODE_INTERNAL, CODE_UNAVAILABLE, CODE_DEADLINE_EXCEEDED,
                                    CODE_ABORTED, CODE_CANCELED, CODE_DATA_LOSS,   CODE_ALREADY_EXISTS};
    (void)state;
    size_t count = 0;
    for (int code = 0; code < CODE_COUNT; ++code)
        count += dc_code_is_unsure((code_t)code);
    assert_int_equal(count, sizeof(unsure) / sizeof(unsure[0]));
    for (size_t i = 0; i < sizeof(unsure) / sizeof(unsure[0]); ++i)
        assert_true(dc_code_is_unsure(unsure[i]));
}

/* --- sandboxes --- */

static const char REST_SANDBOX[] =
    "{'uid':'sbx_1','name':'sandboxes/sbx_1','displayName':'" NAME "','core':{'status':'running','etag':'\\\"e1\\\"',"
    "'imageRef':'registry.example/node@" DIGEST "','resources':{'cpus':1,'memoryMib':'2048'},"
    "'endpoint':{'uri':'https://sbx_1.example.com/"
    "e','protocol':'http','credentialAudience':'aud','sandboxUid':'sbx_1','apiVersion':'v1',"
    "'capabilities':['exec','upload','download','stat'],'authentication':{'scheme':'scopedBearer'}}},"
    "'effectiveFeatures':{'timeouts':{'onTimeout':'delete','initialTimeout':'150s'}}}";
static const char CONNECT_SANDBOX[] =
    "{'core':{'id':'sbx_1','name':'" NAME
    "','status':'SANDBOX_STATUS_RUNNING','resources':{'cpus':1,'memoryMib':'2048'},"
    "'endpoint':{'uri':'https://sbx_1.example.com/"
    "e','protocol':'SANDBOX_ENDPOINT_PROTOCOL_CONNECT'}},'cloud':{'imageDigest':'" DIGEST "'}}";

static dc_settings_t settings_for(dc_api_t api)
{
    dc_settings_t settings = {
        .api = api, .api_url = "https://api.example.com", .digest = DIGEST, .size = {"micro", 1, 2048}};
    return settings;
}

/* The text with the first `from` replaced. */
static char *changed(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (at == NULL)
        fail_msg("%s is not in the text", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static dc_match_t match(dc_api_t api, const char *text, const dc_settings_t *settings)
{
    dc_sandbox_t sandbox;
    json_t *json = json_of(text);
    const char *why = dc_sandbox_read(api, json, &sandbox);
    json_decref(json);
    if (why != NULL)
        return DC_DIFFERENT;
    return dc_sandbox_match(settings, NAME, LIFE_MS, &sandbox, &why);
}

static void sandboxes_as_they_should_be(void **state)
{
    dc_sandbox_t sandbox;
    (void)state;
    for (int api = DC_CONNECT; api <= DC_REST; ++api) {
        dc_settings_t settings = settings_for((dc_api_t)api);
        const char *text = api == DC_REST ? REST_SANDBOX : CONNECT_SANDBOX;
        json_t *json = json_of(text);
        assert_null(dc_sandbox_read((dc_api_t)api, json, &sandbox));
        assert_string_equal(sandbox.id, "sbx_1");
        assert_string_equal(sandbox.name, NAME);
        assert_string_equal(sandbox.uri, "https://sbx_1.example.com/e");
        assert_true(dc_sandbox_is_ready(&sandbox) && !dc_sandbox_is_over(&sandbox));
        json_decref(json);
        assert_int_equal(match((dc_api_t)api, text, &settings), DC_SAME);
        settings.digest[0] = '\0';
        assert_int_equal(match((dc_api_t)api, text, &settings), DC_SAME);
        strcpy(settings.endpoint_suffix, ".Example.com");
        assert_int_equal(match((dc_api_t)api, text, &settings), DC_SAME);
        strcpy(settings.endpoint_suffix, ".example.org");
        assert_int_equal(match((dc_api_t)api, text, &settings), DC_DIFFERENT);
    }
    char *by_number = changed(CONNECT_SANDBOX, "'SANDBOX_STATUS_RUNNING'", "3");
    dc_settings_t settings = settings_for(DC_CONNECT);
    assert_int_equal(match(DC_CONNECT, by_number, &settings), DC_SAME);
    free(by_number);
}

static void sandboxes_that_differ(void **state)
{
    static const struct {
        dc_api_t api;
        const char *from, *to;
        dc_match_t match;
    } table[] = {
        {DC_REST, "'displayName':'gw-0", "'displayName':'gw-1", DC_NOT_OURS},
        {DC_REST, "'displayName'", "'other'", DC_NOT_OURS},
        {DC_CONNECT, "'name':'gw-0", "'name':'gw-1", DC_NOT_OURS},
        {DC_REST, "'uid':'sbx_1'", "'uid':'../x'", DC_DIFFERENT},
        {DC_REST, "'uid':'sbx_1'", "'uid':'a/b'", DC_DIFFERENT},
        {DC_REST, "'uid':'sbx_1'", "'uid':'sbx_2'", DC_DIFFERENT},
        {DC_REST, "'uid':'sbx_1',", "", DC_DIFFERENT},
        {DC_CONNECT, "'id':'sbx_1',", "", DC_DIFFERENT},
        {DC_REST, "'name':'sandboxes/sbx_1'", "'name':'sandboxes/sbx_2'", DC_DIFFERENT},
        {DC_REST, "'sandboxUid':'sbx_1'", "'sandboxUid':'sbx_2'", DC_DIFFERENT},
        {DC_REST, "'apiVersion':'v1'", "'apiVersion':'v2'", DC_DIFFERENT},
        {DC_REST, "scopedBearer", "open", DC_DIFFERENT},
        {DC_REST, "'exec',", "", DC_DIFFERENT},
        {DC_REST, "'upload',", "", DC_DIFFERENT},
        {DC_REST, "'download',", "", DC_DIFFERENT},
        {DC_REST, "'protocol':'http'", "'protocol':'unixSocket'", DC_DIFFERENT},
        {DC_CONNECT, "SANDBOX_ENDPOINT_PROTOCOL_CONNECT", "SANDBOX_ENDPOINT_PROTOCOL_UNIX_SOCKET", DC_DIFFERENT},
        {DC_CONNECT, "'SANDBOX_ENDPOINT_PROTOCOL_CONNECT'", "2", DC_DIFFERENT},
        {DC_REST, "https://sbx_1.example.com/e", "http://sbx_1.example.com/e", DC_DIFFERENT},
        {DC_CONNECT, "https://sbx_1.example.com/e", "https://u:p@sbx_1.example.com/e", DC_DIFFERENT},
        /* a service elsewhere has no business with this machine's own listeners */
        {DC_CONNECT, "https://sbx_1.example.com/e", "http://127.0.0.1:9464/", DC_DIFFERENT},
        {DC_CONNECT, "https://sbx_1.example.com/e", "https://localhost/", DC_DIFFERENT},
        {DC_REST, "'cpus':1", "'cpus':2", DC_DIFFERENT},
        {DC_REST, "'cpus':1", "'cpus':0", DC_DIFFERENT},
        {DC_REST, "'cpus':1,", "", DC_DIFFERENT},
        {DC_CONNECT, "'2048'", "'2049'", DC_DIFFERENT},
        {DC_CONNECT, "'2048'", "'x'", DC_DIFFERENT},
        {DC_CONNECT, "'resources'", "'other'", DC_DIFFERENT},
        {DC_REST, "node@sha256:a", "node@sha256:b", DC_DIFFERENT},
        {DC_REST, "@sha256:", ":", DC_DIFFERENT},
        {DC_CONNECT, "'imageDigest':'sha256:a", "'imageDigest':'sha256:b", DC_DIFFERENT},
        {DC_CONNECT, "'imageDigest'", "'other'", DC_DIFFERENT},
        {DC_CONNECT, "'imageDigest':'sha256:aaaa", "'imageDigest':'SHA256:AAAA", DC_SAME},
        {DC_REST, "'onTimeout':'delete'", "'onTimeout':'stop'", DC_DIFFERENT},
        {DC_REST, "'onTimeout':'delete',", "", DC_SAME},
        {DC_REST, "'onTimeout':'delete'", "'autoResume':true", DC_DIFFERENT},
        {DC_REST, "150s", "151s", DC_DIFFERENT},
        {DC_REST, "150s", "ages", DC_DIFFERENT},
        {DC_REST, "'core':{", "'core':7,'other':{", DC_DIFFERENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        dc_settings_t settings = settings_for(table[i].api);
        char *text = changed(table[i].api == DC_REST ? REST_SANDBOX : CONNECT_SANDBOX, table[i].from, table[i].to);
        if (match(table[i].api, text, &settings) != table[i].match)
            fail_msg("%s -> %s", table[i].from, table[i].to);
        free(text);
    }
}

static void states(void **state)
{
    static const struct {
        dc_api_t api;
        const char *status;
        bool is_ready, is_over;
    } table[] = {
        {DC_REST, "'creating'", false, false},
        {DC_REST, "'starting'", false, false},
        {DC_REST, "'running'", true, false},
        {DC_REST, "'stopping'", false, true},
        {DC_REST, "'stopped'", false, true},
        {DC_REST, "'failed'", false, true},
        {DC_REST, "'deleting'", false, true},
        {DC_REST, "'degraded'", false, true},
        {DC_REST, "'new'", false, false},
        {DC_CONNECT, "1", false, false},
        {DC_CONNECT, "3", true, false},
        {DC_CONNECT, "4", false, true},
        {DC_CONNECT, "6", false, true},
        {DC_CONNECT, "99", false, false},
        {DC_CONNECT, "'SANDBOX_STATUS_STOPPED'", false, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        dc_sandbox_t sandbox;
        char *text = table[i].api == DC_REST ? changed(REST_SANDBOX, "'running'", table[i].status)
                                             : changed(CONNECT_SANDBOX, "'SANDBOX_STATUS_RUNNING'", table[i].status);
        json_t *json = json_of(text);
        assert_null(dc_sandbox_read(table[i].api, json, &sandbox));
        assert_int_equal(dc_sandbox_is_ready(&sandbox), table[i].is_ready);
        assert_int_equal(dc_sandbox_is_over(&sandbox), table[i].is_over);
        json_decref(json);
        free(text);
    }
    /* running without an endpoint is not ready */
    char *text = changed(REST_SANDBOX, "'uri'", "'other'");
    json_t *json = json_of(text);
    dc_sandbox_t sandbox;
    assert_null(dc_sandbox_read(DC_REST, json, &sandbox));
    assert_false(dc_sandbox_is_ready(&sandbox) || dc_sandbox_is_over(&sandbox));
    json_decref(json);
    free(text);
}

static void what_is_malformed_can_still_be_deleted(void **state)
{
    dc_sandbox_t sandbox;
    char *text = changed(REST_SANDBOX, "'\\\"e1\\\"'", "'\\\"a\\r\\nX: 1\\\"'");
    json_t *json = json_of(text);
    (void)state;
    assert_non_null(dc_sandbox_read(DC_REST, json, &sandbox));
    assert_string_equal(sandbox.id, "sbx_1");
    assert_string_equal(sandbox.name, NAME);
    assert_string_equal(sandbox.etag, "");
    json_decref(json);
    free(text);
}

/* --- operations, policies --- */

static void operations(void **state)
{
    static const struct {
        const char *text;
        bool is_fine, is_done, has_failed, has_response;
    } table[] = {
        {"{'id':'op','done':false}", true, false, false, false},
        {"{'id':'op'}", true, false, false, false},
        {"{'id':'op','done':true,'response':{'core':{}}}", true, true, false, true},
        {"{'done':true}", true, true, false, false},
        {"{'id':'op','done':true,'error':{'code':8,'message':'m'}}", true, true, true, false},
        {"{'id':'op','error':{'code':8}}", true, true, true, false},
        {"{}", false, false, false, false},
        {"{'id':''}", false, false, false, false},
        {"{'id':7}", false, false, false, false},
        {"{'id':'op','done':'yes'}", false, false, false, false},
        {"{'id':'op','done':true,'response':7}", false, false, false, false},
        {"{'id':'op','done':true,'error':'no'}", false, false, false, false},
        {"{'id':'op','done':true,'error':{'code':1},'response':{}}", false, false, false, false},
        {"[]", false, false, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        dc_operation_t operation;
        json_t *json = json_of(table[i].text);
        const char *why = dc_operation_read(json, &operation);
        if ((why == NULL) != table[i].is_fine)
            fail_msg("%s", table[i].text);
        if (why == NULL) {
            assert_int_equal(operation.is_done, table[i].is_done);
            assert_int_equal(operation.has_failed, table[i].has_failed);
            assert_int_equal(operation.response != NULL, table[i].has_response);
        }
        json_decref(json);
    }
}

static void policies(void **state)
{
    static const struct {
        dc_api_t api;
        const char *text;
        bool denies_all;
    } table[] = {
        {DC_REST, "{'effective':{'mode':'denyAll'}}", true},
        {DC_REST,
         "{'effective':{'mode':'denyAll','allowNetworks':[],'denyNetworks':[{'network':'x'}]},'exact':{'nodes':[]}}",
         true},
        {DC_CONNECT, "{'mode':'NETWORK_POLICY_MODE_DENY_ALL'}", true},
        {DC_CONNECT, "{'mode':2,'allowNetworks':[]}", true},
        {DC_CONNECT, "{'mode':2,'allowNetworks':null}", true},
        {DC_REST, "{'effective':{'mode':'allowAll'}}", false},
        {DC_REST, "{'effective':{'mode':'denyAll','allowNetworks':[{'network':'a:443','layer':'kit'}]}}", false},
        {DC_REST, "{'effective':{'mode':'denyAll','allowNetworks':{}}}", false},
        {DC_REST, "{'effective':{'mode':'denyAll','allowNetworks':'none'}}", false},
        {DC_REST, "{'effective':{'mode':'denySome'}}", false},
        {DC_REST, "{'effective':{}}", false},
        {DC_REST, "{'effective':[]}", false},
        {DC_REST, "{'mode':'denyAll'}", false},
        {DC_REST, "{}", false},
        {DC_CONNECT, "{'mode':1}", false},
        {DC_CONNECT, "{'mode':0}", false},
        {DC_CONNECT, "{'mode':'denyAll'}", false},
        {DC_CONNECT, "{}", false},
        {DC_CONNECT, "[]", false},
        {DC_CONNECT, "{'mode':2,'allowNetworks':[{}]}", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        json_t *json = json_of(table[i].text);
        if ((dc_policy_problem(table[i].api, json) == NULL) != table[i].denies_all)
            fail_msg("%s", table[i].text);
        json_decref(json);
    }
    assert_non_null(dc_policy_problem(DC_REST, NULL));
}

/* --- credentials --- */

#define ALL_PERMISSIONS "'permissions':['sandboxesFilesRead','sandboxesExec','sandboxesFilesWrite']"
enum { ASKED_WALL_S = 1796040000 }; /* 2026-11-30T12:00:00Z */

static void credentials(void **state)
{
    static const struct {
        const char *text;
        bool is_one;
        uint64_t life_ms;
    } table[] = {
        {"{'token':'abc.DEF-_~+/=','expireTime':'2026-11-30T12:05:00Z'," ALL_PERMISSIONS
         ",'sandbox':'sandboxes/sbx_1','audience':'aud'}",
         true, 300000},
        {"{'token':'t'," ALL_PERMISSIONS "}", true, 300000},
        {"{'token':'t','expireTime':'2026-11-30T12:00:30.5Z'," ALL_PERMISSIONS "}", true, 30500},
        /* a clock that is behind, or a service that promises more, stretches nothing */
        {"{'token':'t','expireTime':'2027-11-30T12:00:00Z'," ALL_PERMISSIONS "}", true, 300000},
        {"{'token':'t','expireTime':'2026-11-30T11:59:59Z'," ALL_PERMISSIONS "}", true, 0},
        {"{'token':'t','expireTime':'soon'," ALL_PERMISSIONS "}", false, 0},
        {"{'token':'','expireTime':'2026-11-30T12:05:00Z'," ALL_PERMISSIONS "}", false, 0},
        {"{'token':'a b'," ALL_PERMISSIONS "}", false, 0},
        {"{'token':'a\\r\\nX: 1'," ALL_PERMISSIONS "}", false, 0},
        {"{'token':7," ALL_PERMISSIONS "}", false, 0},
        {"{'token':'t','permissions':['sandboxesExec','sandboxesFilesRead']}", false, 0},
        {"{'token':'t','permissions':'all'}", false, 0},
        {"{'token':'t'}", false, 0},
        {"{'token':'t'," ALL_PERMISSIONS ",'sandbox':'sandboxes/sbx_2'}", false, 0},
        {"{'token':'t'," ALL_PERMISSIONS ",'sandbox':'sbx_1'}", false, 0},
        {"{'token':'t'," ALL_PERMISSIONS ",'audience':'another'}", false, 0},
        {"[]", false, 0},
    };
    dc_sandbox_t sandbox = {.id = "sbx_1", .audience = "aud"};
    dc_credential_t *read = malloc(sizeof(*read));
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        json_t *json = json_of(table[i].text);
        bool is_one = dc_credential_read(json, &sandbox, (int64_t)ASKED_WALL_S * 1000, read) == NULL;
        if (is_one != table[i].is_one || (is_one && read->life_ms != table[i].life_ms))
            fail_msg("%s: %llu", table[i].text, (unsigned long long)read->life_ms);
        json_decref(json);
    }
    free(read);
}

/* --- commands --- */

static void commands(void **state)
{
    static const struct {
        const char *text;
        bool is_fine, is_flood;
        int exit_code;
        const char *out;
    } table[] = {
        {"{}", true, false, 0, ""},
        {"{'exitCode':3,'stdout':'YWI=','stderr':'Yw=='}", true, false, 3, "ab"},
        {"{'exitCode':0,'stdout':'YWI'}", true, false, 0, "ab"},
        {"{'stdout':'MTIzNDU2Nzg='}", true, false, 0, "12345678"},
        {"{'stdout':'MTIzNDU2Nzg5'}", true, true, 0, ""},
        {"{'stdout':'MTIzNDU2Nzg5MTIzNDU2Nzg5'}", true, true, 0, ""},
        {"{'exitCode':'3'}", false, false, 0, ""},
        {"{'exitCode':256}", false, false, 0, ""},
        {"{'exitCode':-1}", false, false, 0, ""},
        {"{'exitCode':255}", true, false, 255, ""},
        {"{'code':'internal','message':'x'}", false, false, 0, ""},
        {"{'code':'internal','exitCode':0}", false, false, 0, ""},
        {"{'status':'accepted'}", false, false, 0, ""},
        {"{'exitCode':0,'later':'field'}", true, false, 0, ""},
        {"{'exitCode':1.5}", false, false, 0, ""},
        {"{'stdout':'Y'}", false, false, 0, ""},
        {"{'stdout':'YW I='}", false, false, 0, ""},
        {"{'stdout':7}", false, false, 0, ""},
        {"{'incomplete':'yes'}", false, false, 0, ""},
        {"[]", false, false, 0, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        dc_exec_t exec;
        bool is_flood;
        json_t *json = json_of(table[i].text);
        bool is_fine = dc_exec_read(json, 8, &exec, &is_flood) == NULL;
        if (is_fine != table[i].is_fine || (is_fine && is_flood != table[i].is_flood))
            fail_msg("%s", table[i].text);
        if (is_fine) {
            assert_int_equal(exec.exit_code, table[i].exit_code);
            assert_int_equal(exec.out.len, strlen(table[i].out));
            if (exec.out.len > 0)
                assert_memory_equal(exec.out.base, table[i].out, exec.out.len);
        }
        dc_exec_dispose(&exec);
        json_decref(json);
    }
}

static void written_and_pages(void **state)
{
    dc_page_t page;
    json_t *json = json_of("{'filesWritten':'3'}");
    (void)state;
    assert_null(dc_written_read(json, 3));
    assert_non_null(dc_written_read(json, 2));
    json_decref(json);
    json = json_of("{}");
    assert_null(dc_written_read(json, 0));
    assert_non_null(dc_written_read(json, 1));
    assert_null(dc_page_read(json, &page));
    assert_null(page.sandboxes);
    assert_string_equal(page.next, "");
    json_decref(json);
    json = json_of("{'sandboxes':[{},{}],'nextPageToken':'n'}");
    assert_null(dc_page_read(json, &page));
    assert_int_equal(json_array_size(page.sandboxes), 2);
    assert_string_equal(page.next, "n");
    json_decref(json);
    json = json_of("{'sandboxes':{}}");
    assert_non_null(dc_page_read(json, &page));
    json_decref(json);
    json = json_of("{'nextPageToken':'a\\nb'}");
    assert_non_null(dc_page_read(json, &page));
    json_decref(json);
}

static void capabilities(void **state)
{
    static const dc_size_t size = {"small", 2, 4096};
    static const struct {
        const char *text;
        bool is_fine;
    } table[] = {
        {"{}", true},
        {"{'permissions':[]}", true},
        {"{'permissions':[1,2,9,18,77]}", true},
        {"{'permissions':['PERMISSION_SANDBOXES_READ','PERMISSION_SANDBOXES_CREATE','PERMISSION_SANDBOXES_DELETE','"
         "PERMISSION_NETWORK_POLICIES_READ']}",
         true},
        {"{'permissions':[1,2,9]}", false},
        {"{'permissions':[2,9,18]}", false},
        {"{'permissions':['x']}", false},
        {"{'resources':{'cpuMin':1,'cpuMax':4,'memoryMibMin':'2048','memoryMibMax':'8192'}}", true},
        {"{'resources':{'cpuMax':1}}", false},
        {"{'resources':{'memoryMibMin':'8192'}}", false},
        {"{'resources':{'cpuMax':'x'}}", false},
        {"{'resources':7}", false},
        {"{'permissions':7}", false},
        {"[]", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        json_t *json = json_of(table[i].text);
        if ((dc_capabilities_problem(json, &size) == NULL) != table[i].is_fine)
            fail_msg("%s", table[i].text);
        json_decref(json);
    }
}

/* --- tokens --- */

static void tokens(void **state)
{
    int64_t end_s = 0;
    (void)state;
    /* {"alg":"none"}.{"exp":1796040000}. */
    assert_true(dc_jwt_expiry("eyJhbGciOiJub25lIn0.eyJleHAiOjE3OTYwNDAwMDB9.c2ln", &end_s));
    assert_int_equal(end_s, 1796040000);
    static const char *const none[] = {
        "",
        "abc",
        "a.b",
        "a.b.c.d",
        "a.!!.c",
        "eyJhbGciOiJub25lIn0..c2ln",
        "e30.e30.x",                         /* {} */
        "e30.eyJleHAiOjB9.x",                /* 0 */
        "e30.eyJleHAiOi01fQ.x",              /* -5 */
        "e30.eyJleHAiOiIxNzk2MDQwMDAwIn0.x", /* a text */
        "e30.eyJleHAiOjEuNX0.x",             /* 1.5 */
        "e30.eyJleHAiOjk5OTk5OTk5OTk5OTk5OTk5OX0.x",
        "e30.eyJleHAiOjE3OTYwNDAwMDB9=.x",
    };
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i)
        if (dc_jwt_expiry(none[i], &end_s))
            fail_msg("%s", none[i]);
    json_t *json = json_of("{'access_token':'abc','detail':'x'}");
    assert_string_equal(dc_access_token(json), "abc");
    json_decref(json);
    static const char *const bad[] = {"{}", "{'access_token':''}", "{'access_token':'a b'}", "{'access_token':['a']}",
                                      "[]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        json = json_of(bad[i]);
        assert_null(dc_access_token(json));
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(durations),
        cmocka_unit_test(texts),
        cmocka_unit_test(names),
        cmocka_unit_test(errors),
        cmocka_unit_test(details),
        cmocka_unit_test(which_creates_may_have_been_taken),
        cmocka_unit_test(sandboxes_as_they_should_be),
        cmocka_unit_test(sandboxes_that_differ),
        cmocka_unit_test(states),
        cmocka_unit_test(what_is_malformed_can_still_be_deleted),
        cmocka_unit_test(operations),
        cmocka_unit_test(policies),
        cmocka_unit_test(credentials),
        cmocka_unit_test(commands),
        cmocka_unit_test(written_and_pages),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
