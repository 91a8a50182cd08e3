/* `plimsoll attest sign-head`: a harness says which head of the log it has seen. */
#include "cli/attest_head.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "cli/attest_input.h"
#include "cli/command.h"
#include "records/attest_dsse.h"

static const char HELP[] =
    "Usage: plimsoll attest sign-head [-key FILE] [-out FILE] HEAD.json\n"
    "\n"
    "Signs a head of the gateway's log of records: its size and its root. Whoever keeps signed heads can show\n"
    "later that the log was rewritten. HEAD.json (- for standard input) is an object\n"
    "\n"
    "  {\"size\":N,\"root_sha256\":\"64 hex\",\"time_unix_ms\":T,\"origin\":\"which log\"}\n"
    "\n"
    "or one with that object as its `head`; time and origin may be left out. Prints a DSSE envelope in one line, as\n"
    "`plimsoll log verify -pub` takes it.\n"
    "\n"
    "  -key FILE         the private key (default: PLIMSOLL_ATTEST_KEY)\n"
    "  -out FILE         write to a new file (mode 0600) instead of standard output\n";

static bool read_text(const json_t *json, const char *name, char *out, size_t size)
{
    const json_t *value = json_object_get(json, name);
    if (value == NULL)
        return true;
    const char *text = json_string_value(value);
    return text != NULL && snprintf(out, size, "%s", text) < (int)size;
}

static const char *read_bare(const json_t *json, attest_head_t *out)
{
    const json_t *size = json_object_get(json, "size"), *time = json_object_get(json, "time_unix_ms");
    size_t known = 2 + (time != NULL) + (json_object_get(json, "origin") != NULL);
    if (!json_is_integer(size) || json_integer_value(size) < 0 || (time != NULL && !json_is_integer(time)) ||
        !read_text(json, "root_sha256", out->root_sha256, sizeof(out->root_sha256)) ||
        !attest_is_digest(out->root_sha256) || !read_text(json, "origin", out->origin, sizeof(out->origin)) ||
        json_object_size(json) != known)
        return "a head is {\"size\":N,\"root_sha256\":\"64 hex\"}, with time_unix_ms and origin or without";
    out->size = (uint64_t)json_integer_value(size);
    out->time_unix_ms = json_integer_value(time);
    return NULL;
}

static const char *read_signed(const json_t *json, const attest_public_t *key, attest_head_t *out)
{
    attest_envelope_t envelope;
    attest_statement_t statement = {.record = NULL};
    if (key == NULL)
        return "a head is signed: -pub FILE is needed to verify it";
    char *text = json_dumps(json, JSON_COMPACT);
    attest_cursor_t cursor = {.at = text, .end = text != NULL ? text + strlen(text) : NULL};
    const char *why = attest_envelope_read(&cursor, &envelope);
    if (why == NULL && cursor.at != cursor.end)
        why = "an envelope is not in canonical form";
    if (why == NULL && !attest_envelope_is_signed_by(&envelope, key))
        why = "a head's signature does not verify under this key";
    if (why == NULL)
        why = attest_statement_read(envelope.payload, envelope.payload_len, &statement);
    if (why == NULL && statement.kind != ATTEST_HEAD)
        why = "an envelope does not state a head of the log";
    if (why == NULL)
        *out = statement.head;
    attest_statement_dispose(&statement);
    attest_envelope_dispose(&envelope);
    free(text);
    return why;
}

const char *attest_head_read(const json_t *json, const attest_public_t *key, attest_given_head_t *out)
{
    *out = (attest_given_head_t){.is_signed = json_object_get(json, "payloadType") != NULL};
    return out->is_signed ? read_signed(json, key, &out->head) : read_bare(json, &out->head);
}

json_t *attest_head_load(const attest_options_t *options, const char *path)
{
    json_t *json = NULL;
    buffer_t text;
    buffer_init(&text, ATTEST_HEAD_FILE_MAX);
    if (attest_read_file(options, "the file", path, &text)) {
        json_error_t error;
        json = json_loadb(text.len == 0 ? "" : (const char *)text.base, text.len, JSON_REJECT_DUPLICATES, &error);
        if (!json_is_object(json)) {
            attest_fail(options, "%.200s is not one JSON object: %s", path,
                        json == NULL ? error.text : "another value");
            json_decref(json);
            json = NULL;
        }
    }
    buffer_dispose(&text);
    return json;
}

json_t *attest_head_json(const attest_head_t *head)
{
    json_t *object = json_pack("{s:I, s:s}", "size", (json_int_t)head->size, "root_sha256", head->root_sha256);
    if (head->time_unix_ms != 0)
        json_object_set_new(object, "time_unix_ms", json_integer(head->time_unix_ms));
    if (head->origin[0] != '\0')
        json_object_set_new(object, "origin", json_string(head->origin));
    return object;
}

static int sign(const attest_options_t *options, const attest_key_t *key, const attest_head_t *head)
{
    int status = ATTEST_OK;
    buffer_t statement, envelope;
    buffer_init(&statement, ATTEST_HEAD_FILE_MAX);
    buffer_init(&envelope, ATTEST_HEAD_FILE_MAX);
    const char *why =
        attest_statement_head(&statement, head) && attest_envelope_sign(&envelope, key, statement.base, statement.len)
            ? NULL
            : "it is too large";
    if (why == NULL && options->out != NULL)
        why = attest_write_new(options->out, &envelope);
    if (why != NULL) {
        status = attest_fail(options, "the signed head cannot be written: %s", why);
    } else if (options->out == NULL) {
        fwrite(envelope.base, 1, envelope.len, stdout);
        putchar('\n');
        status = attest_end_output(options);
    }
    buffer_dispose(&statement);
    buffer_dispose(&envelope);
    return status;
}

int attest_sign_head(int argc, char **argv)
{
    attest_options_t options;
    attest_given_head_t given;
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_KEY | ATTEST_TAKES_OUT, 1, 1, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(HELP);
    attest_key_t *key = attest_open_key(&options);
    if (key == NULL)
        return ATTEST_FAILED;
    json_t *json = attest_head_load(&options, options.files[0]);
    if (json != NULL) {
        const json_t *inside = json_object_get(json, "head");
        const char *why = attest_head_read(inside != NULL ? inside : json, NULL, &given);
        status = why != NULL ? attest_fail(&options, "%s", why) : sign(&options, key, &given.head);
    }
    json_decref(json);
    attest_key_destroy(key);
    return status;
}
