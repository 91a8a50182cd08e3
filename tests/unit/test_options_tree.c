/*
 * The settings against the rest of the tree: the page is up to date, nothing else reads the environment, and every
 * setting is read. The tree is argv[1], or TREE, or the working directory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/options.h"

static const char *tree = ".";

static char *file_text(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t len = 0;

    if (file == NULL)
        return NULL;
    if (getdelim(&text, &len, EOF, file) < 0) {
        free(text);
        text = strdup("");
    }
    fclose(file);
    return text;
}

static void the_page_of_settings_is_up_to_date(void **state)
{
    char path[512], *text;
    buffer_t markdown;

    (void)state;
    snprintf(path, sizeof(path), "%s/docs/configuration.md", tree);
    text = file_text(path);
    if (text == NULL)
        fail_msg("%s is missing", path);
    buffer_init(&markdown, 1024 * 1024);
    options_print_markdown(&markdown);
    if (strcmp(text, (char *)markdown.base) != 0)
        fail_msg("%s is not what the table says: write it anew", path);
    buffer_dispose(&markdown);
    free(text);
}

typedef void (*visit_fn)(const char *path, const char *text, void *data);

static bool ends_in(const char *name, const char *end)
{
    return strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
}

static void visit(const char *folder, visit_fn fn, void *data)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        char path[1024];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            visit(path, fn, data);
        else if (ends_in(entry->d_name, ".c") || ends_in(entry->d_name, ".h")) {
            char *text = file_text(path);
            assert_non_null(text);
            fn(path, text, data);
            free(text);
        }
    }
    closedir(dir);
}

static bool is_word_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The word at its own, with `after` right behind it. */
static bool has_word(const char *text, const char *word, const char *after)
{
    size_t len = strlen(word);

    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        if ((at == text || !is_word_character(at[-1])) && !is_word_character(at[len]) &&
            strncmp(at + len, after, strlen(after)) == 0)
            return true;
    return false;
}

static void no_environment(const char *path, const char *text, void *data)
{
    /* the program that is PID 1 in a sandbox: it clears its environment, and its probes look at that of others */
    if (strstr(path, "/backends/guest/runner/") != NULL)
        return;
    if (has_word(text, "getenv", "(") || has_word(text, "secure_getenv", "(") || has_word(text, "environ", "")) {
        print_message("%s reads the environment\n", path);
        (*(int *)data)++;
    }
}

static void nothing_but_the_settings_reads_the_environment(void **state)
{
    static const char *const folders[] = {"core", "records", "broker", "backends", "gateway", "cli"};
    char path[512];
    int found = 0;

    (void)state;
    assert_true(has_word("x = getenv(\"A\");", "getenv", "("));
    assert_true(has_word("execve(a, b, environ);", "environ", ""));
    assert_false(has_word("options_environ(role); environment", "environ", ""));
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", tree, folders[i]);
        visit(path, no_environment, &found);
    }
    assert_int_equal(found, 0);
}

static void note_read_rows(const char *path, const char *text, void *data)
{
    char word[128];

    (void)path;
    for (int id = 0; id < OPTION_COUNT; id++) {
        snprintf(word, sizeof(word), "OPT_%s", OPTIONS[id].name);
        ((bool *)data)[id] = ((bool *)data)[id] || has_word(text, word, "");
    }
}

/* A setting nobody reads is a promise nobody keeps. */
static void every_setting_is_read(void **state)
{
    /* settled by the rules and effective values in config alone: refused for now, or read through a function there */
    static const option_id_t in_config[] = {
        OPT_PLIMSOLL_GUARD_ADDR,
        OPT_PLIMSOLL_GRANTS_FILE,
        OPT_SANDBOX_CPUS,
        OPT_SANDBOX_PIDS,
        OPT_SANDBOX_DISK_MB,
        OPT_PLIMSOLL_TOTAL_RATE_BURST,
        OPT_PLIMSOLL_REDIS_CA,
        OPT_PLIMSOLL_REDIS_CERT,
        OPT_PLIMSOLL_REDIS_KEY,
        OPT_SANDBOX_TOTAL_MEMORY_MB,
        OPT_SANDBOX_MAX_CONCURRENT,
        OPT_SANDBOX_PER_KEY_CONCURRENT,
        OPT_SANDBOX_RATE_BURST,
        OPT_PLIMSOLL_HARDENED,
        OPT_PLIMSOLL_INSECURE,
        OPT_SANDBOX_MAX_SESSIONS,
        OPT_SANDBOX_MAX_SESSIONS_PER_CALLER,
        OPT_SANDBOX_MAX_SESSIONS_PER_OWNER,
        OPT_SANDBOX_SESSION_POOL,
        OPT_SANDBOX_SESSION_LIFETIME,
        OPT_SANDBOX_SESSION_IDLE,
        OPT_SANDBOX_SESSION_DISK_MB,
        OPT_SANDBOX_DOCKER_SOCKET,
        OPT_E2B_API_URL,
        OPT_E2B_SANDBOX_URL,
        OPT_E2B_SANDBOX_HOST,
        OPT_E2B_API_FLAVOUR,
        OPT_SANDBOX_DOCKERCLOUD_API,
        OPT_SANDBOX_DOCKERCLOUD_API_URL,
        OPT_SANDBOX_OPENSHELL_PLAINTEXT,
    };
    static const char *const folders[] = {"core", "records", "broker", "backends", "gateway", "cli", "loadtest"};
    bool read[OPTION_COUNT] = {false};
    char path[512];
    int unread = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", tree, folders[i]);
        visit(path, note_read_rows, read);
    }
    for (size_t i = 0; i < sizeof(in_config) / sizeof(in_config[0]); i++)
        read[in_config[i]] = true;
    for (int id = 0; id < OPTION_COUNT; id++)
        if (!read[id]) {
            print_message("nobody reads %s\n", OPTIONS[id].name);
            unread++;
        }
    assert_int_equal(unread, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_of_settings_is_up_to_date),
        cmocka_unit_test(nothing_but_the_settings_reads_the_environment),
        cmocka_unit_test(every_setting_is_read),
    };

    if (argc > 1)
        tree = argv[1];
    else if (getenv("TREE") != NULL)
        tree = getenv("TREE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
