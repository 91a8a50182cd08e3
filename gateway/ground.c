#include "gateway/ground.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/callers.h"
#include "config/prices.h"
#include "config/provider.h"
#include "config/quote.h"
#include "core/clock.h"
#include "core/log.h"
#include "gateway/control.h"
#include "gateway/tls.h"
#include "gateway/user.h"

static void print_problems(const problems_t *p)
{
    fprintf(stderr, "plimsolld: %zu problem%s in the configuration; nothing was started:\n", p->count,
            p->count == 1 ? "" : "s");
    for (size_t i = 0; i < p->count; i++)
        fprintf(stderr, "  - %s\n", p->texts[i]);
    fprintf(stderr, "plimsolld -h explains every setting.\n");
}

/* Names are said once the log's own settings are known. */
typedef struct {
    char names[32][64];
    size_t count;
} unknown_t;

static unknown_t *unknown_names;

static void on_unknown(const char *name)
{
    unknown_t *u = unknown_names;
    if (u->count < sizeof(u->names) / sizeof(u->names[0]))
        snprintf(u->names[u->count++], sizeof(u->names[0]), "%s", name);
}

/* Rule 19 of the hardened mode (spec callers-and-limits 4). */
static void check_allowances(const callers_t *callers, problems_t *problems)
{
    const provider_t *enabled[PROVIDERS_MAX];
    size_t count = option_bool(OPT_PLIMSOLL_HARDENED) ? providers_enabled(enabled) : 0;
    bool bills = false;
    char quoted[QUOTE_BYTES];
    for (size_t i = 0; i < count; i++)
        bills |= enabled[i]->billed;
    for (size_t i = 0; bills && i < callers_count(callers); i++) {
        const caller_t *caller = callers_at(callers, i);
        if (caller->paid_seconds_per_day == 0)
            problems_add(problems, "hardened: caller %s has no paid_seconds_per_day, and a backend bills",
                         quote(quoted, caller->id, strlen(caller->id)));
    }
}

bool ground_load_callers(ground_t *ground, problems_t *problems)
{
    size_t len;
    char *json = callers_read_file(option_str(OPT_PLIMSOLL_CLIENTS_FILE), &len, problems);
    if (json == NULL)
        return false;
    callers_t *callers = callers_parse(json, len, false, problems);
    if (callers == NULL) {
        free(json);
        return false;
    }
    size_t before = problems->count;
    check_allowances(callers, problems);
    callers_unref(callers);
    if (problems->count != before) {
        free(json);
        return false;
    }
    free(ground->callers_json);
    ground->callers_json = json;
    ground->callers_len = len;
    return true;
}

bool ground_load_prices(ground_t *ground, problems_t *problems)
{
    size_t len;
    char *json = prices_read_file(option_str(OPT_PLIMSOLL_PRICES_FILE), &len, problems);
    if (json == NULL)
        return false;
    prices_t *prices = prices_parse(json, len, problems);
    if (prices == NULL) {
        free(json);
        return false;
    }
    if (!prices_are_current(prices, clock_wall_ms(), option_int(OPT_PLIMSOLL_PRICES_MAX_AGE)))
        log_event(LOG_WARN, "the price file is out of date: costs are unknown until it is renewed",
                  log_str("date", prices_date(prices)));
    prices_unref(prices);
    free(ground->prices_json);
    ground->prices_json = json;
    ground->prices_len = len;
    return true;
}

void ground_dispose(ground_t *ground)
{
    free(ground->callers_json);
    free(ground->prices_json);
}

static void make_dir(const ground_t *ground, const char *path, problems_t *problems)
{
    struct stat st;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        problems_add(problems, "PLIMSOLL_STATE_DIR: %s cannot be created (%s)", path, strerror(errno));
        return;
    }
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        problems_add(problems, "PLIMSOLL_STATE_DIR: %s is not a directory", path);
        return;
    }
    if (geteuid() == 0 && chown(path, (uid_t)ground->uid, (gid_t)ground->gid) != 0)
        problems_add(problems, "PLIMSOLL_STATE_DIR: %s cannot be given to PLIMSOLL_USER (%s)", path, strerror(errno));
    if (access(path, R_OK | W_OK | X_OK) != 0)
        problems_add(problems, "PLIMSOLL_STATE_DIR: %s cannot be written (%s)", path, strerror(errno));
}

static void prepare_state_dir(ground_t *ground, problems_t *problems)
{
    enum { PATH_BYTES = 4200 };
    char path[PATH_BYTES];
    size_t before = problems->count;
    const char *state = option_str(OPT_PLIMSOLL_STATE_DIR);
    const char *const parts[] = {"", "/run", "/redis", "/spool"};
    char *longest = control_backend_path("dockercloud");
    if (strlen(longest) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        problems_add(problems, "PLIMSOLL_STATE_DIR: %s is too long for the sockets in it (at most %zu bytes)", state,
                     sizeof(((struct sockaddr_un *)0)->sun_path) - 1 - (strlen(longest) - strlen(state)));
    free(longest);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && problems->count == before; i++) {
        snprintf(path, sizeof(path), "%s%s", state, parts[i]);
        make_dir(ground, path, problems);
    }
    if (problems->count != before)
        return;
    snprintf(path, sizeof(path), "%s/lock", state);
    ground->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (ground->lock_fd < 0)
        problems_add(problems, "PLIMSOLL_STATE_DIR: %s cannot be opened (%s)", path, strerror(errno));
    else if (flock(ground->lock_fd, LOCK_EX | LOCK_NB) != 0)
        problems_add(problems, "PLIMSOLL_STATE_DIR: another gateway is using %s", state);
}

bool ground_check(ground_t *ground)
{
    problems_t problems = {0}, warnings = {0};
    unknown_t unknown = {.count = 0};
    unknown_names = &unknown;
    options_load(&problems, on_unknown);
    options_scrub_environment();
    const char *format = option_str(OPT_PLIMSOLL_LOG_FORMAT), *level = option_str(OPT_PLIMSOLL_LOG_LEVEL);
    log_init("parent", format != NULL && strcmp(format, "text") == 0 ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON,
             log_level_parse(level));
    for (size_t i = 0; i < unknown.count; i++)
        log_event(LOG_WARN, "unknown setting ignored", log_str("name", unknown.names[i]));
    ground->uid = ground->gid = -1;
    /* the rules have reported a user that does not exist */
    bool has_user = geteuid() != 0 || user_lookup(option_str(OPT_PLIMSOLL_USER), &ground->uid, &ground->gid);
    if (option_is_set(OPT_PLIMSOLL_CLIENTS_FILE))
        ground_load_callers(ground, &problems);
    if (option_is_set(OPT_PLIMSOLL_PRICES_FILE))
        ground_load_prices(ground, &problems);
    if (option_is_set(OPT_PLIMSOLL_TLS_CERT) && option_is_set(OPT_PLIMSOLL_TLS_KEY)) {
        SSL_CTX *tls = tls_load(option_str(OPT_PLIMSOLL_TLS_CERT), option_str(OPT_PLIMSOLL_TLS_KEY),
                                option_bool(OPT_PLIMSOLL_HTTP2), &problems);
        SSL_CTX_free(tls);
    }
    if (problems.count == 0 && has_user)
        prepare_state_dir(ground, &problems);
    bool fine = problems.count == 0;
    if (!fine)
        print_problems(&problems);
    problems_dispose(&problems);
    if (!fine)
        return false;
    options_warnings(&warnings);
    for (size_t i = 0; i < warnings.count; i++)
        log_event(LOG_WARN, "configuration", log_str("warning", warnings.texts[i]));
    problems_dispose(&warnings);
    return true;
}
