#include "config/options.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_text.h"
#include "config/options_rules.h"
#include "config/quote.h"
#include "core/mem.h"

extern char **environ;

enum { NAME_MAX_SHOWN = 128, DAEMON_ROLES = ROLE_PARENT | ROLE_FRONT | ROLE_BACKEND | ROLE_BROKER };

typedef struct {
    bool given;
    char *text; /* what holds: given or default; NULL = unset. Of a secret, in locked memory. */
    int64_t number;
    char **words;
} value_t;

static value_t values[OPTION_COUNT];
static unsigned roles_loaded = ~0u; /* before any load every row has its default */

static void value_forget(option_id_t id)
{
    value_t *value = &values[id];

    if (OPTIONS[id].type == OPTION_SECRET)
        sodium_free(value->text); /* wipes it */
    else
        free(value->text);
    free(value->words);
    *value = (value_t){.given = false};
}

static char *secret_keep(const char *text)
{
    size_t size = strlen(text) + 1;
    char *kept = sodium_malloc(size);

    if (kept == NULL)
        mem_fatal("no locked memory for a secret");
    return memcpy(kept, text, size);
}

static void value_keep(option_id_t id, const char *text, int64_t number)
{
    value_t *value = &values[id];

    value->text = OPTIONS[id].type == OPTION_SECRET ? secret_keep(text) : mem_strdup(text);
    value->number = number;
    if (OPTIONS[id].type == OPTION_LIST)
        value->words = list_split(text);
}

static void value_default(option_id_t id)
{
    char takes[OPTION_TAKES_MAX];
    int64_t number;

    value_forget(id);
    if (OPTIONS[id].fallback == NULL)
        return;
    if (option_text_parse(id, OPTIONS[id].fallback, &number, takes) != NULL)
        mem_fatal("a setting's default fails its own check");
    value_keep(id, OPTIONS[id].fallback, number);
}

static void defaults(void)
{
    if (sodium_init() < 0)
        mem_fatal("libsodium cannot start");
    for (int id = 0; id < OPTION_COUNT; id++)
        value_default((option_id_t)id);
}

static void ensure_defaults(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, defaults);
}

static void problem_of_text(problems_t *problems, const option_t *option, const char *text, const char *takes)
{
    char quoted[QUOTE_BYTES];

    if (option->type == OPTION_SECRET)
        problems_add(problems, "%s is malformed: %s", option->name, takes);
    else
        problems_add(problems, "%s is %s: %s", option->name, quote(quoted, text, strlen(text)), takes);
}

/* A value that fails its check counts as given, so no rule between rows complains that it is missing, and holds the
 * default. */
static void row_load(option_id_t id, problems_t *problems)
{
    const option_t *option = &OPTIONS[id];
    const char *begin = getenv(option->name), *takes;
    char limits[OPTION_TAKES_MAX], *text;
    int64_t number;
    size_t len;

    value_default(id);
    if (begin == NULL)
        return;
    begin += strspn(begin, " \t\n\v\f\r");
    len = strlen(begin);
    while (len > 0 && strchr(" \t\n\v\f\r", begin[len - 1]) != NULL)
        len--;
    if (len == 0)
        return;
    text = mem_strndup(begin, len);
    takes = option_text_parse(id, text, &number, limits);
    if (takes != NULL)
        problem_of_text(problems, option, text, takes);
    else {
        value_forget(id);
        value_keep(id, text, number);
    }
    values[id].given = true;
    explicit_bzero(text, len);
    free(text);
}

static bool is_row(const char *name)
{
    for (int id = 0; id < OPTION_COUNT; id++)
        if (strcmp(OPTIONS[id].name, name) == 0)
            return true;
    return false;
}

static bool is_ours(const char *entry)
{
    return strncmp(entry, "PLIMSOLL_", 9) == 0 || strncmp(entry, "SANDBOX_", 8) == 0;
}

static void report_unknown(void (*on_unknown)(const char *name))
{
    char name[NAME_MAX_SHOWN];

    if (on_unknown == NULL || environ == NULL)
        return;
    for (char **entry = environ; *entry != NULL; entry++) {
        if (!is_ours(*entry))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (!is_row(name))
            on_unknown(name);
    }
}

static void load(unsigned roles, problems_t *problems, void (*on_unknown)(const char *name))
{
    ensure_defaults();
    roles_loaded = roles;
    for (int id = 0; id < OPTION_COUNT; id++) {
        if ((OPTIONS[id].roles & roles) != 0)
            row_load((option_id_t)id, problems);
        else
            value_default((option_id_t)id);
    }
    report_unknown(on_unknown);
}

void options_load(problems_t *problems, void (*on_unknown)(const char *name))
{
    load(DAEMON_ROLES, problems, on_unknown);
    options_rules(problems);
    options_hardened_rules(problems);
}

void options_load_role(unsigned role, problems_t *problems, void (*on_unknown)(const char *name))
{
    load(role, problems, on_unknown);
}

void options_set(option_id_t id, const char *text)
{
    char takes[OPTION_TAKES_MAX];
    int64_t number;

    ensure_defaults();
    if (option_text_parse(id, text, &number, takes) != NULL)
        mem_fatal("a setting was given a value it does not take");
    value_forget(id);
    value_keep(id, text, number);
    values[id].given = true;
}

void options_scrub_environment(void)
{
    for (int id = 0; id < OPTION_COUNT; id++) {
        char *text = OPTIONS[id].type == OPTION_SECRET ? getenv(OPTIONS[id].name) : NULL;
        if (text != NULL)
            explicit_bzero(text, strlen(text));
    }
}

static const value_t *value_of(option_id_t id)
{
    ensure_defaults();
    if ((OPTIONS[id].roles & roles_loaded) == 0) {
        char why[NAME_MAX_SHOWN];
        snprintf(why, sizeof(why), "this process may not read %s", OPTIONS[id].name);
        mem_fatal(why);
    }
    return &values[id];
}

bool option_is_set(option_id_t id)
{
    return value_of(id)->given;
}

const char *option_str(option_id_t id)
{
    return value_of(id)->text;
}

int64_t option_int(option_id_t id)
{
    return value_of(id)->number;
}

bool option_bool(option_id_t id)
{
    return value_of(id)->number != 0;
}

const char *const *option_list(option_id_t id)
{
    static const char *const none[] = {NULL};
    const value_t *value = value_of(id);

    return value->words != NULL ? (const char *const *)value->words : none;
}

const char *options_path(void)
{
    const char *path = getenv("PATH");
    return path != NULL ? path : "/usr/local/bin:/usr/bin:/bin";
}

char **options_environ(unsigned role)
{
    const char *path = options_path();
    size_t count = 1, bytes = sizeof("PATH=") + strlen(path);
    char **list, *at;

    ensure_defaults();
    for (int id = 0; id < OPTION_COUNT; id++)
        if ((OPTIONS[id].roles & role) != 0 && values[id].given && values[id].text != NULL) {
            count++;
            bytes += strlen(OPTIONS[id].name) + 1 + strlen(values[id].text) + 1;
        }
    list = mem_alloc((count + 1) * sizeof(list[0]) + bytes);
    at = (char *)(list + count + 1);
    list[0] = at;
    at += sprintf(at, "PATH=%s", path) + 1;
    count = 1;
    for (int id = 0; id < OPTION_COUNT; id++)
        if ((OPTIONS[id].roles & role) != 0 && values[id].given && values[id].text != NULL) {
            list[count++] = at;
            at += sprintf(at, "%s=%s", OPTIONS[id].name, values[id].text) + 1;
        }
    return list;
}

void options_environ_free(char **env)
{
    if (env == NULL)
        return;
    for (char **entry = env; *entry != NULL; entry++)
        explicit_bzero(*entry, strlen(*entry));
    free(env);
}

char *const *options_inherited(void)
{
    return environ;
}
