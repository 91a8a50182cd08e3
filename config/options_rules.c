#include "config/options_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/docker.h"
#include "config/dockercloud.h"
#include "config/e2b.h"
#include "config/openshell.h"
#include "config/network.h"
#include "config/options_budgets.h"
#include "config/provider.h"
#include "config/quote.h"
#include "config/redis_settings.h"
#include "config/token.h"

static const char *quoted(char out[QUOTE_BYTES], option_id_t id)
{
    const char *text = option_str(id);
    return quote(out, text, strlen(text));
}

static bool is_repeated(const char *const *words, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(words[i], words[at]) == 0)
            return true;
    return false;
}

static void check_providers(problems_t *problems)
{
    const char *const *words = option_list(OPT_SANDBOX_PROVIDER);
    char text[QUOTE_BYTES], names[PROVIDER_NAMES_MAX];

    for (size_t i = 0; words[i] != NULL; i++) {
        if (is_repeated(words, i))
            problems_add(problems, "SANDBOX_PROVIDER names %s more than once", quote(text, words[i], strlen(words[i])));
        else if (provider_find(words[i]) == NULL)
            problems_add(problems, "SANDBOX_PROVIDER names %s, which is not built in: there is %s",
                         quote(text, words[i], strlen(words[i])), provider_names(names));
    }
}

/* Spec section 1.1. */
static void check_callers(problems_t *problems)
{
    const char *token = option_str(OPT_PLIMSOLL_TOKEN);
    const char *err = token != NULL ? token_check(token, strlen(token)) : NULL;

    if (err != NULL)
        problems_add(problems, "PLIMSOLL_TOKEN %s", err);
    if (options_callers_mode() == CALLERS_OPEN && !option_bool(OPT_PLIMSOLL_INSECURE))
        problems_add(problems, "nobody is asked for a token: set PLIMSOLL_CLIENTS_FILE or PLIMSOLL_TOKEN, or "
                               "PLIMSOLL_INSECURE=1 to serve everybody who can connect");
}

static void check_readable(problems_t *problems, option_id_t id)
{
    char text[QUOTE_BYTES];
    struct stat st;
    /* O_NONBLOCK: a FIFO at the path must not stop the start */
    int fd = open(option_str(id), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        problems_add(problems, "%s is %s, which cannot be read: %s", OPTIONS[id].name, quoted(text, id),
                     strerror(errno));
    else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        problems_add(problems, "%s is %s, which is not a regular file", OPTIONS[id].name, quoted(text, id));
    if (fd >= 0)
        close(fd);
}

static void check_tls(problems_t *problems)
{
    bool cert = option_is_set(OPT_PLIMSOLL_TLS_CERT), key = option_is_set(OPT_PLIMSOLL_TLS_KEY);

    if (cert != key)
        problems_add(problems, "%s is set without %s: TLS takes both", cert ? "PLIMSOLL_TLS_CERT" : "PLIMSOLL_TLS_KEY",
                     cert ? "PLIMSOLL_TLS_KEY" : "PLIMSOLL_TLS_CERT");
    if (option_str(OPT_PLIMSOLL_TLS_CERT) != NULL)
        check_readable(problems, OPT_PLIMSOLL_TLS_CERT);
    if (option_str(OPT_PLIMSOLL_TLS_KEY) != NULL)
        check_readable(problems, OPT_PLIMSOLL_TLS_KEY);
}

static void check_floor(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    const char *floor = option_str(OPT_SANDBOX_MIN_ISOLATION);
    char text[QUOTE_BYTES];
    int rank;

    if (floor == NULL)
        return;
    rank = provider_tier_rank(floor);
    if (rank == 0) {
        problems_add(problems, "SANDBOX_MIN_ISOLATION is %s: it takes process, container, kernel or vm",
                     quoted(text, OPT_SANDBOX_MIN_ISOLATION));
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (provider_tier_rank(provider_tier(enabled[i])) < rank)
            problems_add(problems, "SANDBOX_MIN_ISOLATION is \"%s\", and the wall of the backend %s is at most %s",
                         floor, enabled[i]->name, provider_tier(enabled[i]));
}

bool is_cpu_count(const char *text)
{
    enum { WHOLE_MAX = 4, FRACTION_MAX = 9, CPUS_MAX = 1024 };
    size_t whole = strspn(text, "0123456789"), fraction = 0;
    int value = 0;
    bool above_zero = false;

    if (text[whole] == '.')
        fraction = strspn(text + whole + 1, "0123456789");
    if (whole == 0 || whole > WHOLE_MAX || fraction > FRACTION_MAX)
        return false;
    if (text[whole] != '\0' && (fraction == 0 || text[whole + 1 + fraction] != '\0'))
        return false;
    for (size_t i = 0; i < whole; i++)
        value = value * 10 + (text[i] - '0');
    for (size_t i = 0; i < fraction; i++)
        above_zero = above_zero || text[whole + 1 + i] != '0';
    return value < CPUS_MAX ? value > 0 || above_zero : value == CPUS_MAX && !above_zero;
}

static void check_enforced(problems_t *problems, option_id_t id, const provider_t *provider, bool enforced)
{
    if (option_is_set(id) && !enforced)
        problems_add(problems, "%s is set, and the backend %s cannot enforce it", OPTIONS[id].name, provider->name);
}

static void check_resources(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    const char *cpus = option_str(OPT_SANDBOX_CPUS);
    char text[QUOTE_BYTES];

    if (cpus != NULL && !is_cpu_count(cpus))
        problems_add(problems, "SANDBOX_CPUS is %s: it takes a number above 0 and up to 1024, such as 2 or 0.5",
                     quoted(text, OPT_SANDBOX_CPUS));
    for (size_t i = 0; i < count; i++) {
        check_enforced(problems, OPT_SANDBOX_CPUS, enabled[i], enabled[i]->enforces_cpus);
        check_enforced(problems, OPT_SANDBOX_PIDS, enabled[i], enabled[i]->enforces_pids);
        check_enforced(problems, OPT_SANDBOX_DISK_MB, enabled[i], enabled[i]->enforces_disk);
        if (option_int(OPT_SANDBOX_MEMORY_MB) < provider_memory_min_mb(enabled[i]))
            problems_add(problems, "SANDBOX_MEMORY_MB is %" PRId64 ", and the backend %s needs at least %u",
                         option_int(OPT_SANDBOX_MEMORY_MB), enabled[i]->name, provider_memory_min_mb(enabled[i]));
        if (option_is_set(OPT_SANDBOX_PIDS) && enabled[i]->enforces_pids &&
            option_int(OPT_SANDBOX_PIDS) < provider_pids_min(enabled[i]))
            problems_add(problems, "SANDBOX_PIDS is %" PRId64 ", and the backend %s needs at least %u",
                         option_int(OPT_SANDBOX_PIDS), enabled[i]->name, provider_pids_min(enabled[i]));
    }
}

static bool any(const provider_t *const *enabled, size_t count, bool (*has)(const provider_t *))
{
    for (size_t i = 0; i < count; i++)
        if (has(enabled[i]))
            return true;
    return false;
}

static bool bills(const provider_t *provider)
{
    return provider->billed;
}

static bool keeps_sessions(const provider_t *provider)
{
    return provider->sessions;
}

static bool serves_guard(const provider_t *provider)
{
    return provider->guard;
}

static void check_limits(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    if (option_int(OPT_SANDBOX_PER_KEY_CONCURRENT) > option_int(OPT_SANDBOX_MAX_CONCURRENT))
        problems_add(problems,
                     "SANDBOX_PER_KEY_CONCURRENT is %" PRId64 ", above SANDBOX_MAX_CONCURRENT, which is %" PRId64,
                     option_int(OPT_SANDBOX_PER_KEY_CONCURRENT), option_int(OPT_SANDBOX_MAX_CONCURRENT));
    if (option_int(OPT_SANDBOX_PAID_SECONDS_PER_DAY) > 0 && !any(enabled, count, bills))
        problems_add(problems, "SANDBOX_PAID_SECONDS_PER_DAY is set, and no configured backend bills");
    if (options_memory_fit() < 1)
        problems_add(problems,
                     "SANDBOX_TOTAL_MEMORY_MB is %" PRId64 ", in which not one run of %" PRId64
                     " MiB (SANDBOX_MEMORY_MB) fits beside %" PRId64 " pooled sessions%s",
                     option_int(OPT_SANDBOX_TOTAL_MEMORY_MB), option_int(OPT_SANDBOX_MEMORY_MB),
                     option_int(OPT_SANDBOX_SESSION_POOL),
                     docker_pools_mb() > 0 ? " and the sandboxes that SANDBOX_DOCKER_POOL and "
                                             "SANDBOX_DOCKER_PROJECT_POOL keep started"
                                           : "");
}

/* Values are checked even when sessions are off (spec section 8.3), so turning them on later brings no surprise. */
static void check_sessions(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    int64_t most = option_int(OPT_SANDBOX_MAX_SESSIONS), idle = option_int(OPT_SANDBOX_SESSION_IDLE);

    if (most > 0 && !any(enabled, count, keeps_sessions))
        problems_add(problems, "SANDBOX_MAX_SESSIONS is %" PRId64 ", and no configured backend keeps sessions", most);
    if (option_int(OPT_SANDBOX_SESSION_POOL) > most)
        problems_add(problems, "SANDBOX_SESSION_POOL is %" PRId64 ", above SANDBOX_MAX_SESSIONS, which is %" PRId64,
                     option_int(OPT_SANDBOX_SESSION_POOL), most);
    if (idle > 0 && idle < 1000)
        problems_add(problems, "SANDBOX_SESSION_IDLE is %" PRId64 "ms: it takes 0, or 1s to 12h", idle);
    if (idle == 0 && any(enabled, count, bills))
        problems_add(problems,
                     "SANDBOX_SESSION_IDLE is 0 with a backend that bills: an unused session would cost for ever");
}

static void check_not_served(problems_t *problems, const provider_t *const *enabled, size_t count)
{
    if (option_is_set(OPT_PLIMSOLL_GUARD_ADDR) && !any(enabled, count, serves_guard))
        problems_add(problems, "PLIMSOLL_GUARD_ADDR is set, and no configured backend serves a guard");
    if (option_is_set(OPT_PLIMSOLL_GRANTS_FILE))
        problems_add(problems, "PLIMSOLL_GRANTS_FILE is set, and this build has no broker that could serve a grant");
}

/* Only combinations with which nothing could ever succeed. */
static void check_times(problems_t *problems)
{
    if (option_int(OPT_PLIMSOLL_READ_TIMEOUT) < option_int(OPT_PLIMSOLL_HEADER_TIMEOUT))
        problems_add(problems, "PLIMSOLL_READ_TIMEOUT is shorter than PLIMSOLL_HEADER_TIMEOUT, which is a part of it");
    if (option_int(OPT_PLIMSOLL_EVIDENCE_MAX_AGE) <= option_int(OPT_PLIMSOLL_PROOF_INTERVAL))
        problems_add(
            problems,
            "PLIMSOLL_EVIDENCE_MAX_AGE is not longer than PLIMSOLL_PROOF_INTERVAL: the evidence would be stale "
            "before each new proof");
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

static bool is_dot_segment(const char *segment, size_t len)
{
    return (len == 1 && segment[0] == '.') || (len == 2 && segment[0] == '.' && segment[1] == '.');
}

/* "/a/b": segments of RFC 3986 unreserved characters, so there is one spelling and no proxy rewrites it. */
static bool is_path_prefix(const char *text)
{
    while (*text == '/') {
        const char *segment = ++text;
        while (is_unreserved(*text))
            text++;
        if (text == segment || is_dot_segment(segment, (size_t)(text - segment)))
            return false;
        if (*text == '\0')
            return true;
    }
    return false;
}

static void check_edge(problems_t *problems)
{
    const char *prefix = option_str(OPT_PLIMSOLL_PATH_PREFIX);
    const char *const *proxies = option_list(OPT_PLIMSOLL_TRUSTED_PROXIES);
    char text[QUOTE_BYTES];
    network_t network;

    if (prefix != NULL && !is_path_prefix(prefix))
        problems_add(
            problems,
            "PLIMSOLL_PATH_PREFIX is %s: it takes segments of letters, digits and - . _ ~, each after a /, with "
            "none at the end",
            quoted(text, OPT_PLIMSOLL_PATH_PREFIX));
    for (; *proxies != NULL; proxies++)
        if (!network_parse(*proxies, &network))
            problems_add(
                problems,
                "PLIMSOLL_TRUSTED_PROXIES names %s: it takes addresses and networks such as 10.0.0.7, 10.0.0.0/8 "
                "or fd00::/8, with no bit set past the prefix",
                quote(text, *proxies, strlen(*proxies)));
}

bool is_installation_name(const char *text)
{
    size_t len = strlen(text);
    return len > 0 && len <= INSTALLATION_NAME_MAX && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

/* Records of SPOOL_RECORD_MAX that a MiB holds; the rest of the last one is for the files' own headers. */
enum { SPOOL_RUNS_PER_MIB = 64 };

static void check_spool(problems_t *problems)
{
    int64_t mib = option_int(OPT_PLIMSOLL_SPOOL_MB), runs = options_max_concurrent();
    if (runs >= mib * SPOOL_RUNS_PER_MIB)
        problems_add(problems,
                     "PLIMSOLL_SPOOL_MB is %" PRId64 ": %" PRId64 " runs at once need %" PRId64
                     " for their records alone (64 a MiB)",
                     mib, runs, runs / SPOOL_RUNS_PER_MIB + 1);
}

static void check_records(problems_t *problems)
{
    const char *url = option_str(OPT_PLIMSOLL_REDIS_URL), *dir = option_str(OPT_PLIMSOLL_STATE_DIR);
    char text[QUOTE_BYTES];
    redis_address_t address;

    if (dir[0] != '/')
        problems_add(problems, "PLIMSOLL_STATE_DIR is %s: it takes an absolute path",
                     quoted(text, OPT_PLIMSOLL_STATE_DIR));
    if (strlen(dir) > STATE_DIR_MAX)
        problems_add(problems, "PLIMSOLL_STATE_DIR is %s: it takes at most %d bytes, as sockets are made in it",
                     quoted(text, OPT_PLIMSOLL_STATE_DIR), STATE_DIR_MAX);
    if (strcmp(option_str(OPT_PLIMSOLL_REDIS_DOWN), "refuse") != 0 &&
        strcmp(option_str(OPT_PLIMSOLL_REDIS_DOWN), "serve") != 0)
        problems_add(problems, "PLIMSOLL_REDIS_DOWN is %s: it takes refuse or serve",
                     quoted(text, OPT_PLIMSOLL_REDIS_DOWN));
    if (!is_installation_name(option_str(OPT_PLIMSOLL_INSTALLATION)))
        problems_add(problems, "PLIMSOLL_INSTALLATION is %s: it takes 1 to %d of a-z, 0-9 and -",
                     quoted(text, OPT_PLIMSOLL_INSTALLATION), INSTALLATION_NAME_MAX);
    if (url == NULL)
        return;
    if (redis_settings_read(&address, problems))
        redis_address_dispose(&address);
}

static void check_operation(problems_t *problems)
{
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    const char *level = option_str(OPT_PLIMSOLL_LOG_LEVEL);
    char text[QUOTE_BYTES];
    size_t i = 0;

    while (levels[i] != NULL && strcmp(levels[i], level) != 0)
        i++;
    if (levels[i] == NULL)
        problems_add(problems, "PLIMSOLL_LOG_LEVEL is %s: it takes debug, info, warn or error",
                     quoted(text, OPT_PLIMSOLL_LOG_LEVEL));
    if (geteuid() != 0)
        return;
    const struct passwd *user = getpwnam(option_str(OPT_PLIMSOLL_USER));
    if (user == NULL)
        problems_add(problems, "PLIMSOLL_USER is %s, and this machine has no such user",
                     quoted(text, OPT_PLIMSOLL_USER));
    else if (user->pw_uid == 0)
        problems_add(problems, "PLIMSOLL_USER is %s, which is root: it must name a user that root can be given up for",
                     quoted(text, OPT_PLIMSOLL_USER));
}

void options_rules(problems_t *problems)
{
    const provider_t *enabled[PROVIDERS_MAX];
    size_t count = providers_enabled(enabled);

    check_providers(problems);
    check_callers(problems);
    check_tls(problems);
    check_floor(problems, enabled, count);
    check_resources(problems, enabled, count);
    docker_rules(problems, enabled, count);
    e2b_rules(problems, enabled, count);
    openshell_rules(problems, enabled, count);
    dockercloud_rules(problems, enabled, count);
    check_limits(problems, enabled, count);
    check_sessions(problems, enabled, count);
    check_not_served(problems, enabled, count);
    check_times(problems);
    check_edge(problems);
    check_records(problems);
    check_spool(problems);
    options_budget_rules(problems);
    check_operation(problems);
}
