/* For the tests of the proof: recorded documents with one thing changed, each of which must be refused by name. */
#ifndef TESTS_PROOF_FIXTURE_H
#define TESTS_PROOF_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <cmocka.h>

/* `at` is a dotted path of object keys and list positions; `value` JSON, or NULL to remove what is there. */
typedef struct {
    const char *at, *value;
    const char *refusal; /* words of the sentence; NULL: still taken */
} change_t;

static inline json_t *fixture_parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (json == NULL)
        fail_msg("a document of the test is no JSON: %s (%s)", error.text, text);
    return json;
}

static inline json_t *fixture_step(json_t *at, const char *key)
{
    json_t *next = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
    if (next == NULL)
        fail_msg("a document of the test has no %s", key);
    return next;
}

static inline void fixture_change(json_t *document, const char *path, const char *value)
{
    char keys[256], *rest = keys, *key;
    snprintf(keys, sizeof(keys), "%s", path);
    for (key = strsep(&rest, "."); rest != NULL; key = strsep(&rest, "."))
        document = fixture_step(document, key);
    if (json_is_array(document) && value == NULL)
        assert_int_equal(json_array_remove(document, (size_t)atoi(key)), 0);
    else if (json_is_array(document) && strcmp(key, "+") == 0)
        assert_int_equal(json_array_append_new(document, fixture_parse(value)), 0);
    else if (json_is_array(document))
        assert_int_equal(json_array_set_new(document, (size_t)atoi(key), fixture_parse(value)), 0);
    else if (value == NULL)
        assert_int_equal(json_object_del(document, key), 0);
    else
        assert_int_equal(json_object_set_new(document, key, fixture_parse(value)), 0);
}

static inline json_t *fixture_changed(const char *text, const change_t *change)
{
    json_t *document = fixture_parse(text);
    fixture_change(document, change->at, change->value);
    return document;
}

/* A sentence for an operator: one line, and it fits. */
static inline void fixture_expect(const change_t *change, bool is_taken, const char *failure)
{
    if (is_taken != (change->refusal == NULL) || (!is_taken && strstr(failure, change->refusal) == NULL))
        fail_msg("%s = %s: %s, expected %s", change->at, change->value != NULL ? change->value : "(removed)",
                 is_taken ? "taken" : failure, change->refusal != NULL ? change->refusal : "to be taken");
    if (!is_taken)
        assert_null(strchr(failure, '\n'));
}

#endif
