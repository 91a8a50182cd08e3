/*
 * An answer of arbitrary bytes to each of the wall's readers: the first byte says which, and of which API. Nothing that
 * is read is longer than its place, or holds what could not be sent back.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cloud/cloud_json.h"
#include "backends/dockercloud/answers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t max)
{
    if (strlen(text) > max)
        abort();
    for (; *text != '\0'; ++text)
        if (*text < 0x20 || *text > 0x7e)
            abort();
}

static void read_sandbox(dc_api_t api, const json_t *json)
{
    static const dc_settings_t settings = {.api_url = "https://api.example.com", .size = {"micro", 1, 2048}};
    dc_settings_t mine = settings;
    dc_sandbox_t sandbox;
    const char *why = dc_sandbox_read(api, json, &sandbox), *differs;
    check_text(sandbox.id, LEDGER_PROVIDER_ID_MAX);
    check_text(sandbox.name, DC_NAME_MAX);
    check_text(sandbox.etag, DC_ETAG_MAX);
    check_text(sandbox.uri, BASE_URL_MAX);
    if (sandbox.id[0] != '\0' && (!dc_is_id(sandbox.id) || strchr(sandbox.id, '/') != NULL))
        abort();
    if (why == NULL && sandbox.id[0] == '\0')
        abort();
    mine.api = api;
    if (dc_sandbox_match(&mine, sandbox.name, 1000, &sandbox, &differs) == DC_SAME &&
        (base_url_problem(sandbox.uri) != NULL || base_url_is_loopback(sandbox.uri) || sandbox.cpus > 1))
        abort();
}

static void read_exec(const json_t *json)
{
    enum { CAP = 64 };
    dc_exec_t exec;
    bool is_flood;
    dc_exec_read(json, CAP, &exec, &is_flood);
    if (exec.out.len > CAP || exec.err.len > CAP)
        abort();
    dc_exec_dispose(&exec);
}

static void read_credential(const json_t *json)
{
    static dc_credential_t credential;
    static const dc_sandbox_t sandbox = {.id = "sbx_1", .audience = "a"};
    const char *why = dc_credential_read(json, &sandbox, 0, &credential);
    check_text(credential.token, DC_TOKEN_MAX);
    if (credential.life_ms > DC_CREDENTIAL_MS || (why == NULL && credential.token[0] == '\0'))
        abort();
}

static void read_others(dc_api_t api, const json_t *json)
{
    static const dc_size_t size = {"micro", 1, 2048};
    dc_operation_t operation;
    dc_page_t page;
    const char *token = dc_access_token(json);
    if (dc_operation_read(json, &operation) == NULL && !operation.is_done && operation.id[0] == '\0')
        abort();
    dc_page_read(json, &page);
    dc_policy_problem(api, json);
    dc_written_read(json, 3);
    dc_capabilities_problem(json, &size);
    if (token != NULL)
        check_text(token, DC_TOKEN_MAX);
}

static void read_token(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    int64_t end_s = 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (dc_jwt_expiry(text, &end_s) && end_s <= 0)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { STATUS_BASE = 300, STATUSES = 300 };
    dc_refused_t refused;
    const char *why;
    if (size == 0)
        return 0;
    dc_api_t api = (data[0] & 1) != 0 ? DC_REST : DC_CONNECT;
    /* An exact copy, so that a read past it is seen. */
    uint8_t *copy = malloc(size);
    memcpy(copy, data + 1, size - 1);
    dc_refused_read(api, STATUS_BASE + data[0] % STATUSES, copy, size - 1, &refused);
    if (refused.code >= CODE_COUNT || strlen(refused.message) > REFUSED_MESSAGE_MAX)
        abort();
    check_text(refused.reason, REFUSED_REASON_MAX);
    read_token(copy, size - 1);
    json_t *json = cloud_json_read(copy, size - 1, &why);
    read_sandbox(api, json);
    read_exec(json);
    read_credential(json);
    read_others(api, json);
    json_decref(json);
    free(copy);
    return 0;
}
