/*
 * Every setting of the daemon: one row in config/options.def gives its name, type, range, default, the roles that read
 * it and its doc line; `plimsolld -h`, docs/configuration.md, the checks and each role's environment come from there.
 * No other file reads the environment.
 */
#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buffer.h"

typedef enum {
    OPTION_STRING,   /* min, max: bytes */
    OPTION_INT,      /* decimal; min, max inclusive */
    OPTION_BOOL,     /* 1 true yes on / 0 false no off, any case */
    OPTION_DURATION, /* 250ms 5s 30m 2h; kept in milliseconds; min, max in milliseconds */
    OPTION_ADDRESS,  /* host:port, [v6]:port, :port */
    OPTION_PATH,
    OPTION_LIST,   /* comma-separated words */
    OPTION_SECRET, /* as STRING; never printed, logged or shown */
} option_type_t;

/* ROLE_LEDGER: what a backend role is given beside ROLE_BACKEND's rows when its wall keeps the ledger of sandboxes.
 * ROLE_E2B and the two after it: what the role of that backend alone is given, its credential above all. */
enum {
    ROLE_PARENT = 1,
    ROLE_FRONT = 2,
    ROLE_BACKEND = 4,
    ROLE_BROKER = 8,
    ROLE_CLI = 16,
    ROLE_LEDGER = 32,
    ROLE_E2B = 64,
    ROLE_DOCKERCLOUD = 128,
    ROLE_OPENSHELL = 256,
};

typedef struct {
    const char *name; /* the environment variable */
    option_type_t type;
    const char *fallback; /* default as text; NULL = unset */
    int64_t min, max;
    unsigned roles;
    const char *group; /* heading in help and docs */
    const char *doc;
} option_t;

/* The group of rows that only builds with PLIMSOLL_STANDIN have: left out of the page of settings. */
#define OPTIONS_STANDIN_GROUP "Stand-ins"

/* OPT_<NAME> for every row. */
typedef enum {
#define OPTION(name, type, fallback, min, max, roles, group, doc) OPT_##name,
#include "config/options.def"
#undef OPTION
    OPTION_COUNT
} option_id_t;

extern const option_t OPTIONS[OPTION_COUNT];

/* Problems are collected, never stop at the first: each a sentence naming the variable, what it holds (unless secret)
 * and what it may hold. */
typedef struct {
    char **texts;
    size_t count;
} problems_t;
void problems_add(problems_t *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void problems_dispose(problems_t *p);

enum {
    PROBLEMS_MAX = 1000,           /* texts kept; one more text says that others were dropped */
    PROBLEM_TEXT_MAX = 1024,       /* bytes of one text */
    OPTION_QUOTED_MAX = 64,        /* bytes of a value a text repeats */
    RUN_CEILING_MS = 5 * 60 * 1000 /* longest timeout a request may ask for (spec section 2, step 9) */
};

/* For the parent: reads the environment once (trimmed values, empty = unset), checks type and range of every row and
 * the rules between rows, those of the hardened mode included. Names starting PLIMSOLL_ or SANDBOX_ that no row has are
 * passed to `on_unknown` (may be NULL). Not while other threads read options. */
void options_load(problems_t *problems, void (*on_unknown)(const char *name));
/* For a role the parent started with options_environ(role), and for the command (ROLE_CLI): reads that role's rows and
 * checks each, but not the rules between rows, as these speak of rows it was not given. Reading any other row
 * afterwards ends the process: its default would pass for the operator's value. */
void options_load_role(unsigned role, problems_t *problems, void (*on_unknown)(const char *name));
/* What does not stop the start but must be said: a sentence each, after options_load without problems. */
void options_warnings(problems_t *warnings);
/* The hardened mode's rules that can be told from the configuration (spec section 4); none unless PLIMSOLL_HARDENED is
 * on. */
void options_hardened_rules(problems_t *problems);
/* Overwrites the values of secret rows in this process's own environment, which /proc and a core dump show. The loaded
 * values stay. */
void options_scrub_environment(void);
/* For the parent: gives a row a value as if the operator had, before options_environ (such as the private Redis' URL).
 * The text must pass the row's own check. */
void options_set(option_id_t id, const char *text);

bool option_is_set(option_id_t id);     /* given by the operator */
const char *option_str(option_id_t id); /* NULL when unset without default */
int64_t option_int(option_id_t id);     /* INT and DURATION (milliseconds) */
bool option_bool(option_id_t id);
/* Words of a LIST; NULL-terminated, owned by the table. */
const char *const *option_list(option_id_t id);

/* Effective values that depend on others (spec sections 3.1 and 3.2). */
uint32_t options_max_concurrent(void);        /* what SANDBOX_TOTAL_MEMORY_MB leaves of it; at least 1 */
uint32_t options_per_caller_concurrent(void); /* 0 = only the global cap */
uint32_t options_rate_burst(void);
uint32_t options_total_rate_burst(void);
/* A cost setting in micros of the currency; 0 = no cap. Of a text that options_load accepted. */
uint64_t options_cost_micro(option_id_t id);

/* How callers are told apart (spec section 1.1): the callers file first, then the shared token, else open. */
typedef enum { CALLERS_FROM_FILE, CALLERS_SHARE_TOKEN, CALLERS_OPEN } callers_mode_t;
callers_mode_t options_callers_mode(void);

/* host may be empty (all addresses). false: malformed. host is at most 255 bytes. */
bool address_parse(const char *text, char host[256], uint16_t *port);
/* "localhost" or a literal loopback address; an empty host is not. */
bool address_is_loopback(const char *host);

/* The environment of a role: a NULL-terminated "NAME=value" array of exactly the rows that role reads and that are set,
 * plus PATH. Malloc'ed in one piece with its strings; give it to options_environ_free, which wipes the secrets in it.
 */
char **options_environ(unsigned role);
void options_environ_free(char **env);
/* PATH, or a usual one: no setting of ours, yet what starts a program needs it. */
const char *options_path(void);
/* The whole environment this process was given, for a program that a person would start with it themselves. */
char *const *options_inherited(void);

/* `plimsolld -h` (plain text) and docs/configuration.md. */
void options_print_help(buffer_t *out);
void options_print_markdown(buffer_t *out);

#endif
