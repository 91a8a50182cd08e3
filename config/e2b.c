#include "config/e2b.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/quote.h"

static bool is_enabled(const provider_t *const *enabled, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(enabled[i]->name, "e2b") == 0)
            return true;
    return false;
}

static bool is_word(option_id_t id, const char *word)
{
    return strcmp(option_str(id), word) == 0;
}

static void url_of(option_id_t id, const char *host, char out[BASE_URL_MAX + 1])
{
    const char *given = option_str(id);
    if (given != NULL)
        snprintf(out, BASE_URL_MAX + 1, "%.*s", (int)base_url_len(given), given);
    else
        snprintf(out, BASE_URL_MAX + 1, "https://%s.%s", host, option_str(OPT_E2B_DOMAIN));
}

void e2b_api_url(char out[BASE_URL_MAX + 1])
{
    url_of(OPT_E2B_API_URL, "api", out);
}

void e2b_sandbox_url(char out[BASE_URL_MAX + 1])
{
    if (option_str(OPT_E2B_SANDBOX_URL) == NULL && is_word(OPT_E2B_SANDBOX_HOST, "own"))
        out[0] = '\0';
    else
        url_of(OPT_E2B_SANDBOX_URL, "sandbox", out);
}

bool e2b_is_flavour_v1(void)
{
    return is_word(OPT_E2B_API_FLAVOUR, "v1");
}

/* The default of SANDBOX_MEMORY_MB is of walls that size their sandboxes; here it is a limit, so only one that was
 * given counts. */
uint32_t e2b_memory_max_mb(void)
{
    return option_is_set(OPT_SANDBOX_MEMORY_MB) ? (uint32_t)option_int(OPT_SANDBOX_MEMORY_MB) : 0;
}

uint32_t e2b_disk_max_mb(void)
{
    return option_is_set(OPT_SANDBOX_DISK_MB) ? (uint32_t)option_int(OPT_SANDBOX_DISK_MB) : 0;
}

uint32_t e2b_cpus_max(void)
{
    return option_is_set(OPT_SANDBOX_CPUS) ? (uint32_t)strtoul(option_str(OPT_SANDBOX_CPUS), NULL, 10) : 0;
}

static const char *quoted(char out[QUOTE_BYTES], option_id_t id)
{
    const char *text = option_str(id);
    return quote(out, text, strlen(text));
}

static bool is_made_of(const char *text, const char *characters)
{
    return text[strspn(text, characters)] == '\0';
}

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define LETTERS LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Labels with a dot between them; a port or a scheme has no place in it. */
static bool is_domain(const char *text)
{
    size_t label = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '.' && (label == 0 || p[-1] == '-'))
            return false;
        if (*p == '-' && label == 0)
            return false;
        label = *p == '.' ? 0 : label + 1;
        if (label > 63)
            return false;
    }
    return is_made_of(text, LOWER "-.") && label > 0 && text[strlen(text) - 1] != '-';
}

static void check_url(problems_t *problems, option_id_t id)
{
    char text[QUOTE_BYTES];
    const char *given = option_str(id), *problem = given != NULL ? base_url_problem(given) : NULL;
    if (problem != NULL)
        problems_add(problems, "%s is %s: %s", OPTIONS[id].name, quoted(text, id), problem);
}

static void check_domains(problems_t *problems)
{
    char text[QUOTE_BYTES];
    if (!is_domain(option_str(OPT_E2B_DOMAIN)))
        problems_add(problems, "E2B_DOMAIN is %s: it takes a domain such as e2b.app", quoted(text, OPT_E2B_DOMAIN));
    for (const char *const *more = option_list(OPT_E2B_OTHER_DOMAINS); *more != NULL; more++)
        if (!is_domain(*more))
            problems_add(problems, "E2B_OTHER_DOMAINS names %s: it takes domains such as e2b.app",
                         quote(text, *more, strlen(*more)));
}

static void check_words(problems_t *problems, option_id_t id, const char *one, const char *other)
{
    char text[QUOTE_BYTES];
    if (!is_word(id, one) && !is_word(id, other))
        problems_add(problems, "%s is %s: it takes %s or %s", OPTIONS[id].name, quoted(text, id), one, other);
}

/* It stands in a header. */
static bool is_key(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static bool is_whole(const char *text)
{
    size_t dot = strcspn(text, ".");
    return text[dot] == '\0' || is_made_of(text + dot + 1, "0");
}

void e2b_rules(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    char text[QUOTE_BYTES];
    const char *key = option_str(OPT_E2B_API_KEY);

    if (key != NULL && !is_key(key))
        problems_add(problems, "E2B_API_KEY holds a character that no key has: it takes visible ASCII");
    if (!is_made_of(option_str(OPT_E2B_TEMPLATE), LETTERS "-_./:"))
        problems_add(problems,
                     "E2B_TEMPLATE is %s: it takes letters, digits and - _ . / :", quoted(text, OPT_E2B_TEMPLATE));
    check_domains(problems);
    check_url(problems, OPT_E2B_API_URL);
    check_url(problems, OPT_E2B_SANDBOX_URL);
    check_words(problems, OPT_E2B_SANDBOX_HOST, "shared", "own");
    if (option_str(OPT_E2B_CA_FILE) != NULL && access(option_str(OPT_E2B_CA_FILE), R_OK) != 0)
        problems_add(problems, "E2B_CA_FILE is %s, which cannot be read: %s", quoted(text, OPT_E2B_CA_FILE),
                     strerror(errno));
    check_words(problems, OPT_E2B_API_FLAVOUR, "v2", "v1");
    if (!is_enabled(enabled, count))
        return;
    if (key == NULL)
        problems_add(problems, "E2B_API_KEY is not set, and the backend e2b cannot ask for sandboxes without it");
    if (option_is_set(OPT_SANDBOX_CPUS) && !is_whole(option_str(OPT_SANDBOX_CPUS)))
        problems_add(problems, "SANDBOX_CPUS is %s: the backend e2b takes a whole number of processors",
                     quoted(text, OPT_SANDBOX_CPUS));
}

void e2b_hardened_rules(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    if (is_enabled(enabled, count) && !option_is_set(OPT_E2B_TEMPLATE))
        problems_add(problems, "hardened: E2B_TEMPLATE must be set");
}
