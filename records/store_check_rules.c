/* What store_check.c has seen, judged: pure functions over texts. */
#include "records/store_check.h"

#include <stdlib.h>
#include <string.h>

/* --- taking values --- */

static const struct {
    const char *name;
    store_seen_t seen;
} OF_INFO[] = {{"redis_version", SEEN_VERSION},
               {"run_id", SEEN_RUN_ID},
               {"role", SEEN_ROLE},
               {"connected_slaves", SEEN_REPLICAS},
               {"aof_enabled", SEEN_AOF_ENABLED},
               {"aof_last_write_status", SEEN_AOF_STATUS},
               {"maxmemory_policy", SEEN_POLICY}},
  OF_CONFIG[] = {{"appendonly", SEEN_APPENDONLY},
                 {"appendfsync", SEEN_APPENDFSYNC},
                 {"maxmemory-policy", SEEN_POLICY},
                 {"min-replicas-to-write", SEEN_MIN_REPLICAS},
                 {"save", SEEN_SAVE}};

static void take(store_seen_values_t *seen, store_seen_t which, const char *value, size_t len)
{
    if (len > STORE_CHECK_VALUE_MAX)
        len = STORE_CHECK_VALUE_MAX;
    memcpy(seen->values[which], value, len);
    seen->values[which][len] = '\0';
}

static void take_line(store_seen_values_t *seen, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (colon == NULL)
        return;
    size_t name_len = (size_t)(colon - line);
    for (size_t i = 0; i < sizeof(OF_INFO) / sizeof(OF_INFO[0]); i++)
        if (strlen(OF_INFO[i].name) == name_len && memcmp(OF_INFO[i].name, line, name_len) == 0)
            take(seen, OF_INFO[i].seen, colon + 1, len - name_len - 1);
}

void store_check_take_info(store_seen_values_t *seen, const char *text, size_t len)
{
    const char *end = text + len;
    while (text < end) {
        const char *feed = memchr(text, '\n', (size_t)(end - text));
        size_t line = (size_t)((feed != NULL ? feed : end) - text);
        take_line(seen, text, line != 0 && text[line - 1] == '\r' ? line - 1 : line);
        text += line + 1;
    }
}

void store_check_take_config(store_seen_values_t *seen, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof(OF_CONFIG) / sizeof(OF_CONFIG[0]); i++)
        if (strcmp(OF_CONFIG[i].name, name) == 0)
            take(seen, OF_CONFIG[i].seen, value, strlen(value));
}

/* --- rules: each gives the reason for a warning, or NULL --- */

static bool is(const store_seen_values_t *seen, store_seen_t which, const char *value)
{
    return strcmp(seen->values[which], value) == 0;
}

static bool is_told(const store_seen_values_t *seen, store_seen_t which)
{
    return seen->values[which][0] != '\0';
}

static bool is_told_other(const store_seen_values_t *seen, store_seen_t which, const char *value)
{
    return is_told(seen, which) && !is(seen, which, value);
}

static bool has_log(const store_seen_values_t *seen)
{
    return is(seen, SEEN_APPENDONLY, "yes") || is(seen, SEEN_AOF_ENABLED, "1");
}

static const char *judge_version(const store_seen_values_t *seen)
{
    char *end;
    long major = strtol(seen->values[SEEN_VERSION], &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (!is_told(seen, SEEN_VERSION) || major > 6 || (major == 6 && minor >= 2))
        return NULL;
    return "the scripts use commands that came with 6.2: runs will be refused";
}

static const char *judge_role(const store_seen_values_t *seen)
{
    return is_told_other(seen, SEEN_ROLE, "master") ? "a replica takes no write: runs are refused until it is a master"
                                                    : NULL;
}

static const char *judge_appendonly(const store_seen_values_t *seen)
{
    if (has_log(seen) || (!is_told(seen, SEEN_APPENDONLY) && !is_told(seen, SEEN_AOF_ENABLED)))
        return NULL;
    if (is_told(seen, SEEN_SAVE))
        return "only snapshots are kept: after a crash the request IDs used since the last one may run again";
    return "nothing may be kept: after a restart every used request ID may run again and the records are gone";
}

static const char *judge_appendfsync(const store_seen_values_t *seen)
{
    if (!has_log(seen) || !is_told_other(seen, SEEN_APPENDFSYNC, "always"))
        return NULL;
    return is(seen, SEEN_APPENDFSYNC, "everysec")
               ? "a crash of the machine loses about a second: its request IDs may run again"
               : "a crash of the machine loses what the system had not written yet: those request IDs may run again";
}

static const char *judge_policy(const store_seen_values_t *seen)
{
    return is_told_other(seen, SEEN_POLICY, "noeviction")
               ? "when memory is short claims and records are evicted: an evicted request ID may run again"
               : NULL;
}

static const char *judge_min_replicas(const store_seen_values_t *seen)
{
    bool has_replicas = is_told_other(seen, SEEN_REPLICAS, "0");
    return has_replicas && is(seen, SEEN_MIN_REPLICAS, "0")
               ? "a master cut off from its replicas goes on taking writes that a fail-over forgets"
               : NULL;
}

static const char *judge_aof_status(const store_seen_values_t *seen)
{
    return has_log(seen) && is_told_other(seen, SEEN_AOF_STATUS, "ok")
               ? "the append-only file cannot be written: look at the disk"
               : NULL;
}

static const char *judge_info(const store_seen_values_t *seen)
{
    return seen->info_denied ? "INFO is not allowed: version, role and the append-only file's state are not known"
                             : NULL;
}

static const char *judge_config(const store_seen_values_t *seen)
{
    return seen->config_denied ? "CONFIG GET is not allowed: not every setting is known" : NULL;
}

static const struct {
    const char *setting, *wanted;
    store_seen_t seen; /* SEEN_COUNT: none */
    const char *(*judge)(const store_seen_values_t *seen);
} RULES[WARN_COUNT] = {
    [WARN_VERSION] = {"version", "6.2 or newer", SEEN_VERSION, judge_version},
    [WARN_ROLE] = {"role", "master", SEEN_ROLE, judge_role},
    [WARN_APPENDONLY] = {"appendonly", "yes", SEEN_APPENDONLY, judge_appendonly},
    [WARN_APPENDFSYNC] = {"appendfsync", "always", SEEN_APPENDFSYNC, judge_appendfsync},
    [WARN_POLICY] = {"maxmemory-policy", "noeviction", SEEN_POLICY, judge_policy},
    [WARN_MIN_REPLICAS] = {"min-replicas-to-write", "1 or more", SEEN_MIN_REPLICAS, judge_min_replicas},
    [WARN_AOF_STATUS] = {"aof_last_write_status", "ok", SEEN_AOF_STATUS, judge_aof_status},
    [WARN_INFO_DENIED] = {"info", "allowed", SEEN_COUNT, judge_info},
    [WARN_CONFIG_DENIED] = {"config", "allowed", SEEN_COUNT, judge_config},
};

static const char *value_of(const store_seen_values_t *seen, store_warning_t warning)
{
    store_seen_t which = RULES[warning].seen;
    if (which == SEEN_COUNT)
        return "denied";
    if (warning == WARN_APPENDONLY && !is_told(seen, which))
        return "no"; /* as INFO has it */
    return seen->values[which];
}

store_judgment_t store_check_judge(const store_seen_values_t *seen, store_warning_t warning)
{
    return (store_judgment_t){.setting = RULES[warning].setting,
                              .wanted = RULES[warning].wanted,
                              .value = value_of(seen, warning),
                              .why = RULES[warning].judge(seen)};
}
