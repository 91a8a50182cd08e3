#include "records/vectors.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/vectors_internal.h"

static const struct {
    const char *name;
    void (*check)(vectors_check_t *c, const json_t *entry);
} SECTIONS[] = {
    {"requests", vectors_check_request},
    {"results", vectors_check_result},
    {"records", vectors_check_record},
    {"fingerprints", vectors_check_fingerprint},
    {"exchanges", vectors_check_exchange},
    {"session_chains", vectors_check_chain},
    {"software_rule_ids", vectors_check_rule_id},
    {"owner_values", vectors_check_owner_value},
    {"not_dispatched_details", vectors_check_not_dispatched},
    {"session_ended_details", vectors_check_session_ended},
    {"binary_messages", vectors_check_binary},
    {"encodings", vectors_check_encoding},
};
enum { SECTION_COUNT = sizeof(SECTIONS) / sizeof(SECTIONS[0]) };

static void check_section(vectors_check_t *c, const char *name, const json_t *entries)
{
    size_t s = 0, i;
    json_t *entry;
    c->section = name;
    while (s < SECTION_COUNT && strcmp(SECTIONS[s].name, name) != 0)
        s++;
    if (s == SECTION_COUNT || !json_is_array(entries)) {
        vectors_report(c, false, "(section)", "not a list of vectors this program knows");
        return;
    }
    json_array_foreach(entries, i, entry) SECTIONS[s].check(c, entry);
}

static const char *check_root(vectors_check_t *c, json_t *root)
{
    static const char *const PARTS[] = {"published", "derived"};
    size_t parts = 0;
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
        json_t *part = json_object_get(root, PARTS[i]), *entries;
        const char *name;
        parts += part != NULL;
        json_object_foreach(part, name, entries) check_section(c, name, entries);
    }
    return parts != 0 ? NULL : "neither published nor derived vectors in it";
}

const char *vectors_check(const char *json, size_t len, FILE *failures, vectors_result_t *result)
{
    vectors_check_t c = {.failures = failures, .result = result};
    *result = (vectors_result_t){0};
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    if (root == NULL)
        return "not JSON";
    const char *err = check_root(&c, root);
    json_decref(root);
    return err;
}

const char *vectors_check_file(const char *path, FILE *failures, vectors_result_t *result)
{
    const char *err = "the file could not be read";
    *result = (vectors_result_t){0};
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return err;
    char *text = mem_alloc(VECTORS_FILE_MAX + 1);
    size_t len = fread(text, 1, VECTORS_FILE_MAX + 1, f);
    if (len > VECTORS_FILE_MAX)
        err = "the file is larger than a file of vectors may be";
    else if (!ferror(f))
        err = vectors_check(text, len, failures, result);
    free(text);
    fclose(f);
    return err;
}
