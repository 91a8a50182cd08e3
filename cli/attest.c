/* `plimsoll attest` and `plimsoll log`: their verbs, and what those share. */
#include "cli/attest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/exchange.h"
#include "cli/input.h"
#include "cli/run_print.h"
#include "cli/terminal.h"
#include "config/options.h"
#include "core/protojson.h"

enum { FAILURE_TEXT_MAX = 4096 };

typedef struct {
    const char *name, *title;
    int (*run)(int argc, char **argv);
} verb_t;

static const verb_t ATTEST_VERBS[] = {
    {"keygen", "plimsoll attest keygen", attest_keygen}, {"run", "plimsoll attest run", attest_run},
    {"verify", "plimsoll attest verify", attest_verify}, {"chain", "plimsoll attest chain", attest_chain},
    {"replay", "plimsoll attest replay", attest_replay}, {"sign", "plimsoll attest sign", attest_sign},
    {"bundle", "plimsoll attest bundle", attest_bundle}, {"sign-head", "plimsoll attest sign-head", attest_sign_head},
};
static const verb_t LOG_VERBS[] = {
    {"head", "plimsoll log head", log_head},
    {"prove", "plimsoll log prove", log_prove},
    {"verify", "plimsoll log verify", log_verify},
};

static const char ATTEST_HELP[] =
    "Usage: plimsoll attest VERB [OPTION]...\n"
    "\n"
    "Signed evidence of runs, kept by you and not by the gateway: a bundle holds each call's request, its answer and\n"
    "your signature over the record you checked, each line linked to the one before, so that nothing in it can be\n"
    "changed, dropped or put in between without showing.\n"
    "\n"
    "  keygen -out PREFIX             make a key: PREFIX.key (private, to sign) and PREFIX.pub (public, to verify)\n"
    "  run -bundle FILE REQUEST.json  send one Run request, check the answer, and append both to the bundle\n"
    "  verify -pub KEY BUNDLE         check everything a bundle says; -expect LIST: and that it is complete\n"
    "  chain -pub KEY BUNDLE          the same, and print every session's calls\n"
    "  replay -pub KEY BUNDLE         verify, then send every call again and compare the results\n"
    "  sign -request FILE -response FILE\n"
    "                                 check one stored exchange and print its signed envelope\n"
    "  bundle -bundle FILE FILE...    append stored exchanges, or entries a failed `run` set aside\n"
    "  sign-head HEAD.json            sign a head of the gateway's log (see `plimsoll log verify`)\n"
    "\n"
    "`plimsoll attest VERB -help` says more about each. -json gives every verb's result as one JSON object.\n"
    "Options may begin with one dash or two.\n"
    "\n"
    "Environment:\n"
    "  PLIMSOLL_ATTEST_KEY    the private key (PEM) when -key is absent\n"
    "  PLIMSOLL_CALLER_TOKEN  the bearer token of run and replay\n"
    "\n"
    "A first bundle:\n"
    "  plimsoll attest keygen -out harness\n"
    "  echo '{\"protocol\":4,\"javascript\":{\"code\":\"console.log(6*7)\"}}' > request.json\n"
    "  plimsoll attest run -key harness.key -bundle runs.jsonl request.json\n"
    "  plimsoll attest verify -pub harness.pub runs.jsonl\n"
    "\n"
    "Exit codes: 0 done; 1 any failure, with one line on stderr; 2 no verb, or none that is known.\n";

static const char LOG_HELP[] =
    "Usage: plimsoll log VERB [OPTION]...\n"
    "\n"
    "The gateway's log of records, which cannot be rewritten without showing (RFC 6962).\n"
    "\n"
    "  head             print the gateway's newest head, to be kept\n"
    "  prove RUN        print the proof that a run of yours is in the log\n"
    "  verify -run RUN  check that it is, and with -old FILE that the log only grew since an older head\n"
    "  verify FILE...   check heads and proofs that were kept; no gateway is asked\n"
    "\n"
    "`plimsoll log VERB -help` says more.\n"
    "\n"
    "Exit codes: 0 done; 1 any failure, with one line on stderr; 2 no verb, or none that is known.\n";

static int run_verb(const verb_t *verbs, size_t count, const char *help, int argc, char **argv)
{
    const char *word = argc < 2 ? "" : argv[1];
    if (strcmp(word, "-h") == 0 || strcmp(word, "-help") == 0 || strcmp(word, "--help") == 0 ||
        strcmp(word, "help") == 0)
        return print_help(help);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(verbs[i].name, word) != 0)
            continue;
        /* A key may be about to be read: no core of this process. */
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        argv[1] = (char *)verbs[i].title;
        return verbs[i].run(argc - 1, argv + 1);
    }
    fputs(help, stderr);
    return ATTEST_USAGE;
}

int command_attest(int argc, char **argv)
{
    return run_verb(ATTEST_VERBS, sizeof(ATTEST_VERBS) / sizeof(ATTEST_VERBS[0]), ATTEST_HELP, argc, argv);
}

int command_log(int argc, char **argv)
{
    return run_verb(LOG_VERBS, sizeof(LOG_VERBS) / sizeof(LOG_VERBS[0]), LOG_HELP, argc, argv);
}

/* ---- telling ---- */

static int fail(const attest_options_t *options, json_t *more, const char *fmt, va_list args)
{
    char text[FAILURE_TEXT_MAX], safe[FAILURE_TEXT_MAX];
    vsnprintf(text, sizeof(text), fmt, args);
    terminal_copy(safe, sizeof(safe), text, strlen(text));
    fprintf(stderr, "%s: %s\n", options->verb, safe);
    if (options->json) {
        json_t *object = json_pack("{s:b, s:s}", "ok", false, "error", safe);
        json_object_update(object, more);
        json_print(object);
        json_decref(object);
    }
    json_decref(more);
    return ATTEST_FAILED;
}

int attest_fail(const attest_options_t *options, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail(options, NULL, fmt, args);
    va_end(args);
    return ATTEST_FAILED;
}

int attest_fail_with(const attest_options_t *options, json_t *more, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail(options, more, fmt, args);
    va_end(args);
    return ATTEST_FAILED;
}

static int output_failed(const attest_options_t *options)
{
    fprintf(stderr, "%s: the result could not be written: %s\n", options->verb, strerror(errno));
    return ATTEST_FAILED;
}

int attest_print_json(const attest_options_t *options, json_t *object)
{
    json_object_set_new(object, "ok", json_true());
    bool told = json_print(object);
    json_decref(object);
    return told ? ATTEST_OK : output_failed(options);
}

int attest_end_output(const attest_options_t *options)
{
    return ferror(stdout) == 0 && fflush(stdout) == 0 ? ATTEST_OK : output_failed(options);
}

void attest_print_line(const char *name, const char *value)
{
    printf("%-10s ", name);
    terminal_print(stdout, value);
    putchar('\n');
}

json_t *attest_summary_json(const attest_summary_t *summary)
{
    json_t *sessions = json_array();
    for (size_t i = 0; i < summary->session_count; i++)
        json_array_append_new(sessions, json_pack("{s:s, s:I}", "session", summary->sessions[i].session, "calls",
                                                  (json_int_t)summary->sessions[i].calls));
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "lines", (json_int_t)summary->lines, "entries",
                     (json_int_t)summary->entries, "calls", (json_int_t)summary->calls, "single_runs",
                     (json_int_t)summary->single_runs, "sessions", sessions);
}

/* ---- files and keys ---- */

bool attest_read_file(const attest_options_t *options, const char *what, const char *path, buffer_t *out)
{
    const char *why = input_read(path, out);
    if (why != NULL)
        attest_fail(options, "%s %.200s cannot be read: %s", what, path, why);
    return why == NULL;
}

/* Whether `name` is a field's name, in lowerCamelCase or as it is. */
static bool is_name_of(const char *name, const ProtobufCFieldDescriptor *field)
{
    if (strcmp(name, field->name) == 0)
        return true;
    for (const char *at = field->name; *at != '\0'; at++) {
        bool is_hump = *at == '_' && at[1] >= 'a' && at[1] <= 'z';
        char wanted = is_hump ? (char)(*++at - 'a' + 'A') : *at;
        if (*name++ != wanted)
            return false;
    }
    return *name == '\0';
}

/* The first member that no field has, in an object or in any of a list; NULL when there is none. */
static const char *unknown_member(json_t *json, const ProtobufCMessageDescriptor *type)
{
    const char *name, *unknown = NULL;
    size_t i;
    json_t *value;
    if (json_is_array(json)) {
        json_array_foreach(json, i, value)
        {
            if ((unknown = unknown_member(value, type)) != NULL)
                return unknown;
        }
        return NULL;
    }
    json_object_foreach(json, name, value)
    {
        unsigned n = 0;
        while (n < type->n_fields && !is_name_of(name, &type->fields[n]))
            n++;
        if (n == type->n_fields)
            return name;
        if (type->fields[n].type == PROTOBUF_C_TYPE_MESSAGE &&
            (unknown = unknown_member(value, type->fields[n].descriptor)) != NULL)
            return unknown;
    }
    return NULL;
}

static bool has_only_known_members(const attest_options_t *options, const char *what, const buffer_t *text,
                                   const ProtobufCMessageDescriptor *type)
{
    json_t *json = json_loadb((const char *)text->base, text->len, JSON_ALLOW_NUL, NULL);
    const char *unknown = unknown_member(json, type);
    if (unknown != NULL)
        attest_fail(options, "%s is malformed: there is no member %.64s", what, unknown);
    json_decref(json);
    return unknown == NULL;
}

static void *read_message(const attest_options_t *options, const char *what, const char *path,
                          const ProtobufCMessageDescriptor *type, bool is_strict)
{
    char error[PROTOJSON_ERROR_MAX] = "";
    ProtobufCMessage *message = NULL;
    buffer_t text;
    buffer_init(&text, EXCHANGE_ANSWER_MAX);
    if (attest_read_file(options, what, path, &text)) {
        message = protojson_parse(type, text.len == 0 ? "" : (const char *)text.base, text.len, error);
        if (message == NULL) {
            attest_fail(options, "%s is malformed: %s", what, error);
        } else if (is_strict && !has_only_known_members(options, what, &text, type)) {
            protobuf_c_message_free_unpacked(message, NULL);
            message = NULL;
        }
    }
    buffer_dispose(&text);
    return message;
}

void *attest_read_message(const attest_options_t *options, const char *what, const char *path,
                          const ProtobufCMessageDescriptor *type)
{
    return read_message(options, what, path, type, false);
}

void *attest_read_message_strictly(const attest_options_t *options, const char *what, const char *path,
                                   const ProtobufCMessageDescriptor *type)
{
    return read_message(options, what, path, type, true);
}

int attest_open_bundle(const attest_options_t *options, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        attest_fail(options, "the bundle %.200s cannot be read: %s", path, strerror(errno));
    return fd;
}

static attest_key_t *key_of_environment(const attest_options_t *options)
{
    problems_t problems = {0};
    const char *err = NULL;
    attest_key_t *key = NULL;
    options_load_role(ROLE_CLI, &problems, NULL);
    const char *pem = option_str(OPT_PLIMSOLL_ATTEST_KEY);
    if (pem != NULL)
        key = attest_key_parse(pem, strlen(pem), &err);
    options_scrub_environment(); /* no lock keeps it out of a swap file */
    if (key == NULL && problems.count != 0)
        attest_fail(options, "%s", problems.texts[0]);
    else if (key == NULL)
        attest_fail(options,
                    pem == NULL ? "no key: give -key FILE, or set PLIMSOLL_ATTEST_KEY"
                                : "PLIMSOLL_ATTEST_KEY does not hold a private key: %s",
                    err);
    problems_dispose(&problems);
    return key;
}

attest_key_t *attest_open_key(const attest_options_t *options)
{
    char error[ATTEST_KEY_FILE_ERROR_MAX];
    bool is_open = false;
    if (options->key == NULL)
        return key_of_environment(options);
    attest_key_t *key = attest_key_load(options->key, &is_open, error);
    if (key == NULL)
        attest_fail(options, "%s", error);
    else if (is_open)
        fprintf(stderr, "%s: note: others than its owner may read the private key's file\n", options->verb);
    return key;
}

bool attest_open_pub(const attest_options_t *options, attest_public_t *key)
{
    char error[ATTEST_KEY_FILE_ERROR_MAX];
    if (options->pub == NULL) {
        attest_fail(options, "-pub FILE is needed: the public key to verify with");
        return false;
    }
    const char *why = attest_public_load(key, options->pub, error);
    if (why != NULL)
        attest_fail(options, "%s", why);
    return why == NULL;
}
