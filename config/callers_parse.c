/* Reading the callers file. Strict: what is not understood is refused, since a misspelt limit would otherwise be no
 * limit. */
#include "config/callers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/callers_set.h"
#include "config/quote.h"
#include "config/rfc3339.h"
#include "config/text.h"
#include "core/mem.h"

/* One entry being read: where problems are said to be. */
typedef struct {
    caller_t *caller;
    size_t index;
    problems_t *problems;
} entry_t;

static void entry_problem(const entry_t *entry, const char *what)
{
    char where[CALLER_WHERE_MAX];
    problems_add(entry->problems, "%s: %s", caller_where(where, entry->index, entry->caller->id), what);
}

static void entry_unknown_member(const entry_t *entry, const char *key)
{
    char where[CALLER_WHERE_MAX], quoted[QUOTE_BYTES];
    problems_add(entry->problems, "%s: unknown member %s", caller_where(where, entry->index, entry->caller->id),
                 quote(quoted, key, strlen(key)));
}

static void read_id(entry_t *entry, const json_t *value)
{
    const char *id = json_string_value(value), *err;
    size_t len = json_string_length(value);

    if (value == NULL || id == NULL) {
        entry_problem(entry, value == NULL ? "\"id\" is missing" : "\"id\" must be a string");
        return;
    }
    text_trim(&id, &len);
    err = caller_id_check(id, len);
    if (err != NULL)
        entry_problem(entry, err);
    else
        entry->caller->id = mem_strndup(id, len);
}

/* false: the value is not a hash, and that was said. */
static bool read_hash(entry_t *entry, const json_t *value, uint8_t out[32])
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);

    if (text != NULL)
        text_trim(&text, &len);
    if (text != NULL && caller_hash_parse(text, len, out))
        return true;
    entry_problem(entry, "\"token_sha256\" must be a string of 64 hex digits");
    return false;
}

static void read_time(entry_t *entry, const char *key, const json_t *value, int64_t *out)
{
    if (json_is_string(value) && rfc3339_parse(json_string_value(value), json_string_length(value), out))
        return;
    entry_problem(entry, strcmp(key, "not_before") == 0
                             ? "\"not_before\" must be a UTC time such as \"2026-11-29T20:00:00Z\""
                             : "\"not_after\" must be a UTC time such as \"2026-11-29T20:00:00Z\"");
}

static caller_token_t *token_append(caller_t *caller)
{
    caller_token_t *token = &caller->tokens[caller->token_count++];
    *token = (caller_token_t){.not_before_ms = INT64_MIN, .not_after_ms = INT64_MAX};
    return token;
}

static void read_token(entry_t *entry, json_t *value)
{
    caller_token_t *token = token_append(entry->caller);
    const char *key, *err;
    bool has_hash = false;
    json_t *member;

    if (!json_is_object(value)) {
        entry_problem(entry, "each of \"tokens\" must be an object");
        entry->caller->token_count--;
        return;
    }
    json_object_foreach(value, key, member)
    {
        if (strcmp(key, "token_sha256") == 0)
            has_hash = read_hash(entry, member, token->sha256);
        else if (strcmp(key, "not_before") == 0)
            read_time(entry, key, member, &token->not_before_ms);
        else if (strcmp(key, "not_after") == 0)
            read_time(entry, key, member, &token->not_after_ms);
        else
            entry_unknown_member(entry, key);
    }
    if (json_object_get(value, "token_sha256") == NULL)
        entry_problem(entry, "one of \"tokens\" has no \"token_sha256\"");
    err = caller_window_check(token);
    if (err != NULL)
        entry_problem(entry, err);
    if (!has_hash)
        entry->caller->token_count--; /* so the missing hash is not taken for one that others share */
}

static void read_tokens(entry_t *entry, const json_t *list)
{
    size_t count = json_array_size(list);

    if (!json_is_array(list) || count < 1 || count > CALLER_TOKENS_MAX) {
        entry_problem(entry, "\"tokens\" must be an array of one or two");
        return;
    }
    for (size_t i = 0; i < count; i++)
        read_token(entry, json_array_get(list, i));
}

static void read_credentials(entry_t *entry, const json_t *object)
{
    const json_t *one = json_object_get(object, "token_sha256"), *list = json_object_get(object, "tokens");

    if (one != NULL && list != NULL)
        entry_problem(entry, "\"token_sha256\" and \"tokens\" exclude each other");
    else if (list != NULL)
        read_tokens(entry, list);
    else if (one == NULL)
        entry_problem(entry, "\"token_sha256\" is missing");
    else if (!read_hash(entry, one, token_append(entry->caller)->sha256))
        entry->caller->token_count--;
}

static void read_scope(entry_t *entry, const json_t *value)
{
    const char *scope = json_string_value(value), *err;
    size_t len = json_string_length(value);

    if (scope == NULL) {
        entry_problem(entry, "each of \"scopes\" must be a string");
        return;
    }
    err = caller_scope_check(scope, len);
    if (err == NULL && caller_has_scope(entry->caller, scope))
        err = "a scope is there twice";
    if (err != NULL)
        entry_problem(entry, err);
    else
        caller_add_scope(entry->caller, scope, len);
}

static void read_scopes(entry_t *entry, const json_t *list)
{
    size_t count = json_array_size(list);

    if (list == NULL)
        return;
    if (!json_is_array(list) || count > CALLER_SCOPES_MAX) {
        entry_problem(entry, "\"scopes\" must be an array of at most 64");
        return;
    }
    for (size_t i = 0; i < count; i++)
        read_scope(entry, json_array_get(list, i));
}

static void read_allowance(entry_t *entry, const json_t *value)
{
    json_int_t seconds = json_integer_value(value);

    if (value == NULL)
        return;
    if (!json_is_integer(value) || seconds < 0 || seconds > CALLER_PAID_MAX)
        entry_problem(entry, "\"paid_seconds_per_day\" must be a whole number from 0 to 1000000000000");
    else
        entry->caller->paid_seconds_per_day = (uint64_t)seconds;
}

static void read_entry(entry_t *entry, json_t *object)
{
    static const char *const known[] = {"id", "token_sha256", "tokens", "scopes", "paid_seconds_per_day"};
    const char *key;
    json_t *member;

    if (!json_is_object(object)) {
        entry_problem(entry, "must be an object");
        return;
    }
    read_id(entry, json_object_get(object, "id"));
    json_object_foreach(object, key, member)
    {
        size_t i = 0;
        while (i < sizeof(known) / sizeof(known[0]) && strcmp(key, known[i]) != 0)
            i++;
        if (i == sizeof(known) / sizeof(known[0]))
            entry_unknown_member(entry, key);
    }
    read_credentials(entry, object);
    read_scopes(entry, json_object_get(object, "scopes"));
    read_allowance(entry, json_object_get(object, "paid_seconds_per_day"));
    caller_settle(entry->caller);
}

/* jansson's own texts repeat the input near the place, which may be a hash. */
static const char *json_problem(const json_error_t *err)
{
    switch (json_error_code(err)) {
    case json_error_duplicate_key:
        return "a member is there twice";
    case json_error_end_of_input_expected:
        return "something follows the object";
    case json_error_invalid_utf8:
        return "not UTF-8";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a text has a NUL character";
    case json_error_numeric_overflow:
        return "a number is too large";
    case json_error_stack_overflow:
        return "nested too deeply";
    default:
        return "not JSON";
    }
}

static json_t *root_read(const char *json, size_t len, problems_t *problems)
{
    json_error_t err;
    json_t *root, *member;
    const char *key;

    if (len > CALLERS_FILE_MAX) {
        problems_add(problems, "the callers file is larger than %d bytes", CALLERS_FILE_MAX);
        return NULL;
    }
    root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &err);
    if (root == NULL) {
        problems_add(problems, "the callers file, line %d, column %d: %s", err.line, err.column, json_problem(&err));
        return NULL;
    }
    json_object_foreach(root, key, member)
    {
        char quoted[QUOTE_BYTES];
        if (strcmp(key, "clients") != 0)
            problems_add(problems, "the callers file: unknown member %s", quote(quoted, key, strlen(key)));
    }
    return root;
}

callers_t *callers_parse(const char *json, size_t len, bool allow_empty, problems_t *problems)
{
    size_t before = problems->count, count;
    json_t *root = root_read(json, len, problems), *list;
    callers_t *callers = NULL;

    if (root == NULL)
        return NULL;
    list = json_object_get(root, "clients");
    count = json_array_size(list);
    if (!json_is_array(list))
        problems_add(problems, "the callers file must be an object whose member \"clients\" is an array");
    else if (count == 0 && !allow_empty)
        problems_add(problems, "the callers file has no callers");
    else if (count > CALLERS_MAX)
        problems_add(problems, "the callers file has %zu callers; the most is %d", count, CALLERS_MAX);
    else {
        callers = callers_begin();
        for (size_t i = 0; i < count; i++) {
            entry_t entry = {callers_append(callers), i, problems};
            read_entry(&entry, json_array_get(list, i));
        }
        callers_seal(callers, problems);
    }
    json_decref(root);
    if (problems->count == before)
        return callers;
    callers_unref(callers);
    return NULL;
}

char *callers_read_fd(int fd, const char *path, size_t *len, problems_t *problems)
{
    char *text = mem_alloc(CALLERS_FILE_MAX + 2), quoted[QUOTE_BYTES];
    ssize_t got = 1;

    *len = 0;
    while (*len <= CALLERS_FILE_MAX && got > 0) {
        got = read(fd, text + *len, CALLERS_FILE_MAX + 1 - *len);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            *len += (size_t)got;
    }
    if (got < 0)
        problems_add(problems, "the callers file %s cannot be read: %s", quote(quoted, path, strlen(path)),
                     strerror(errno));
    else if (*len > CALLERS_FILE_MAX)
        problems_add(problems, "the callers file %s is larger than %d bytes", quote(quoted, path, strlen(path)),
                     CALLERS_FILE_MAX);
    else
        return mem_realloc(text, *len + 1);
    free(text);
    return NULL;
}

char *callers_read_file(const char *path, size_t *len, problems_t *problems)
{
    char quoted[QUOTE_BYTES], *text = NULL;
    struct stat st;
    /* O_NONBLOCK: a FIFO at the path must not stop the start or a reload */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        problems_add(problems, "the callers file %s cannot be read: %s", quote(quoted, path, strlen(path)),
                     strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        problems_add(problems, "the callers file %s is not a regular file", quote(quoted, path, strlen(path)));
    else
        text = callers_read_fd(fd, path, len, problems);
    close(fd);
    return text;
}
