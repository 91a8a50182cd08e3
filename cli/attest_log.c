/* `plimsoll log verify`: a head of the log, and what is proved about it, out of files or from a gateway. Whatever the
 * gateway says is checked as a file's word is. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/attest_head.h"
#include "cli/attest_input.h"
#include "cli/command.h"
#include "cli/exchange.h"
#include "cli/log_pages.h"
#include "cli/log_receipt.h"
#include "records/attest_bundle.h"
#include "records/merkle.h"

static const char HELP[] =
    "Usage: plimsoll log verify [-pub FILE] [-old FILE] [-records FILE] [-json] FILE...\n"
    "       plimsoll log verify [-run RUN] [-old FILE] [-pub FILE] [-out FILE] [-json] [OPTION]... [FILE...]\n"
    "\n"
    "Checks a head of the gateway's log of records and the proofs that come with it. Each FILE (- for standard input)\n"
    "is one JSON object: a head, signed or bare; a proof; or several of them as members `head`, `old_head`, "
    "`inclusion`\n"
    "(one or a list), `consistency` and `receipt` (of a leaf whose run's outcome is unknown).\n"
    "\n"
    "  head         {\"size\":N,\"root_sha256\":H}, or what `attest sign-head` prints\n"
    "  inclusion    {\"size\":N,\"index\":I,\"record_sha256\":H,\"path\":[H,...]}: the record is leaf I of the head's "
    "N\n"
    "  consistency  {\"first_size\":M,\"second_size\":N,\"path\":[H,...]}: the old head's log is the beginning of this "
    "one\n"
    "\n"
    "With -run, or without a FILE, the gateway is asked for what is missing: the newest head, the proof that the run "
    "is\n"
    "in the log, the proof that the log of the older head only grew.\n"
    "\n"
    "  -run RUN          a run of the caller's: its record must hold, and be in the log\n"
    "  -old FILE         an older head, such as one you signed\n"
    "  -pub FILE         heads out of files must be signed, by this key\n"
    "  -out FILE         when all holds, write the head to a new file (mode 0600): the next time's -old\n"
    "  -records FILE     the digest of every record in order, the first word of each line: the roots are computed "
    "anew\n"
    "\n"
    "A head with nothing to check it by is refused: by itself it says nothing.\n"
    "\n" CONNECTION_HELP "  -daemon URL        the same as --url\n";

enum { PATH_COUNT_MAX = MERKLE_CONSISTENCY_MAX };

typedef struct {
    const attest_options_t *options;
    const attest_public_t *key; /* NULL = heads are bare */
    bool has_head, has_old;
    attest_given_head_t head, old;
    json_t *inclusions, *consistency; /* NULL = none */
    json_t *receipt;                  /* of a leaf whose run's outcome is unknown; NULL = none */
    json_t *told;                     /* with -json: an object */
    unsigned checked;                 /* proofs and lists that held */
} log_t;

/* ---- what is given ---- */

static const char *take_head(log_t *log, const json_t *json, bool is_old)
{
    bool *has = is_old ? &log->has_old : &log->has_head;
    attest_given_head_t *out = is_old ? &log->old : &log->head;
    if (*has)
        return is_old ? "there are two older heads" : "there are two heads";
    *has = true;
    const char *why = attest_head_read(json, log->key, out);
    if (why != NULL)
        return why;
    return log->key != NULL && !out->is_signed ? "a head is not signed" : NULL;
}

static const char *take_inclusion(log_t *log, json_t *json)
{
    if (json_is_array(json))
        json_array_extend(log->inclusions, json);
    else
        json_array_append(log->inclusions, json);
    return NULL;
}

static const char *take_consistency(log_t *log, json_t *json)
{
    if (log->consistency != NULL)
        return "there are two consistency proofs";
    log->consistency = json_incref(json);
    return NULL;
}

static const char *take_receipt(log_t *log, json_t *json)
{
    char digest[SHA256_HEX + 1];
    if (log->receipt != NULL)
        return "there are two receipts";
    log->receipt = json_incref(json);
    return log_receipt_digest(json, digest);
}

/* A document that is one thing by itself. */
static const char *take_single(log_t *log, json_t *json)
{
    if (json_object_get(json, "path") == NULL)
        return take_head(log, json, false);
    return json_object_get(json, "index") != NULL ? take_inclusion(log, json) : take_consistency(log, json);
}

static bool is_single(const json_t *json)
{
    return json_object_get(json, "payloadType") != NULL || json_object_get(json, "root_sha256") != NULL ||
           json_object_get(json, "path") != NULL;
}

static const char *take_document(log_t *log, json_t *json)
{
    const char *name, *why = NULL;
    json_t *value;
    if (is_single(json))
        return take_single(log, json);
    json_object_foreach(json, name, value)
    {
        if (why != NULL)
            break;
        if (strcmp(name, "head") == 0)
            why = take_head(log, value, false);
        else if (strcmp(name, "old_head") == 0)
            why = take_head(log, value, true);
        else if (strcmp(name, "inclusion") == 0)
            why = take_inclusion(log, value);
        else if (strcmp(name, "consistency") == 0)
            why = take_consistency(log, value);
        else if (strcmp(name, "receipt") == 0)
            why = take_receipt(log, value);
        else
            why = "a document has a member that is not known";
    }
    return why;
}

/* ---- proofs ---- */

static bool read_size(const json_t *json, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(json, name);
    *out = json_integer_value(value) < 0 ? 0 : (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static bool read_hash(const json_t *json, merkle_hash_t *out)
{
    const char *text = json_string_value(json);
    return text != NULL && merkle_parse(text, out);
}

static bool read_path(const json_t *json, merkle_hash_t path[PATH_COUNT_MAX], size_t *count)
{
    const json_t *list = json_object_get(json, "path");
    *count = json_array_size(list);
    if (!json_is_array(list) || *count > PATH_COUNT_MAX)
        return false;
    for (size_t i = 0; i < *count; i++)
        if (!read_hash(json_array_get(list, i), &path[i]))
            return false;
    return true;
}

/* The leaf of `record_sha256`, or the one given as `leaf_sha256`. */
static bool read_leaf(const json_t *json, merkle_hash_t *out)
{
    const char *record = json_string_value(json_object_get(json, "record_sha256"));
    const json_t *leaf = json_object_get(json, "leaf_sha256");
    if ((record != NULL) == (leaf != NULL))
        return false;
    return record != NULL ? merkle_leaf_of_record(record, out) : read_hash(leaf, out);
}

static merkle_hash_t root_of(const attest_given_head_t *given)
{
    merkle_hash_t root = {{0}};
    (void)merkle_parse(given->head.root_sha256, &root); /* it was read as a digest */
    return root;
}

static const char *leaf_name(const json_t *json)
{
    const char *record = json_string_value(json_object_get(json, "record_sha256"));
    return record != NULL ? record : json_string_value(json_object_get(json, "leaf_sha256"));
}

static bool check_inclusion(log_t *log, const json_t *json)
{
    merkle_hash_t path[PATH_COUNT_MAX], leaf, root = root_of(&log->head);
    uint64_t size, index;
    size_t count;
    if (!read_size(json, "size", &size) || !read_size(json, "index", &index) || !read_leaf(json, &leaf) ||
        !read_path(json, path, &count) || json_object_size(json) != 4) {
        attest_fail(log->options, "an inclusion proof is not well-formed");
        return false;
    }
    if (size != log->head.head.size) {
        attest_fail(log->options, "an inclusion proof is for a log of %" PRIu64 ", the head has %" PRIu64, size,
                    log->head.head.size);
        return false;
    }
    if (!merkle_verify_inclusion(&leaf, index, size, path, count, &root)) {
        attest_fail(log->options, "%.16s is not leaf %" PRIu64 " of the head's log", leaf_name(json), index);
        return false;
    }
    log->checked++;
    if (log->told == NULL)
        printf("%.16s is leaf %" PRIu64 "\n", leaf_name(json), index);
    else
        json_array_append_new(json_object_get(log->told, "inclusion"),
                              json_pack("{s:I, s:s}", "index", (json_int_t)index, "sha256", leaf_name(json)));
    return true;
}

/* What the receipt says is what the leaf is made of. */
static bool check_receipt(log_t *log)
{
    char digest[SHA256_HEX + 1];
    size_t i;
    json_t *inclusion;
    const char *why = log_receipt_digest(log->receipt, digest);
    json_array_foreach(log->inclusions, i, inclusion)
    {
        const char *leaf = json_string_value(json_object_get(inclusion, "record_sha256"));
        if (why == NULL && leaf != NULL && strcmp(leaf, digest) == 0)
            return true;
    }
    attest_fail(log->options, "%s", why != NULL ? why : "the receipt is of another leaf than those that are proved");
    return false;
}

static void tell_growth(log_t *log)
{
    log->checked++;
    if (log->told == NULL)
        printf("it grew from the older head's %" PRIu64 " without being rewritten\n", log->old.head.size);
    else
        json_object_set_new(log->told, "consistent_from", json_integer((json_int_t)log->old.head.size));
}

static bool check_consistency(log_t *log)
{
    merkle_hash_t path[PATH_COUNT_MAX], root = root_of(&log->head), old_root = root_of(&log->old);
    uint64_t first, second;
    size_t count;
    if (!log->has_old) {
        attest_fail(log->options, "a consistency proof needs the older head it speaks of: -old FILE");
        return false;
    }
    if (!read_size(log->consistency, "first_size", &first) || !read_size(log->consistency, "second_size", &second) ||
        !read_path(log->consistency, path, &count) || json_object_size(log->consistency) != 3) {
        attest_fail(log->options, "a consistency proof is not well-formed");
        return false;
    }
    if (first != log->old.head.size || second != log->head.head.size) {
        attest_fail(log->options, "the consistency proof is for other sizes than the heads'");
        return false;
    }
    if (!merkle_verify_consistency(first, &old_root, second, &root, path, count)) {
        attest_fail(log->options, "the older head's log is not the beginning of this one: it was rewritten");
        return false;
    }
    tell_growth(log);
    return true;
}

/* ---- the whole list ---- */

/* Whether the list, so far, is the head's when it has the head's size. */
static bool is_heads(const merkle_range_t *range, const attest_given_head_t *given)
{
    merkle_hash_t root, wanted = root_of(given);
    merkle_range_root(range, &root);
    return memcmp(&root, &wanted, sizeof(root)) == 0;
}

static const char *check_line(log_t *log, merkle_range_t *range, const char *line, size_t len, bool *is_old_met)
{
    char digest[SHA256_HEX + 1] = "";
    merkle_hash_t leaf;
    size_t word = 0;
    while (word < len && line[word] != ' ' && line[word] != '\t' && line[word] != '\r')
        word++;
    if (word == SHA256_HEX)
        memcpy(digest, line, SHA256_HEX);
    if (!merkle_leaf_of_record(digest, &leaf) || !merkle_range_append(range, &leaf))
        return "a line does not begin with 64 lowercase hex digits";
    if (log->has_old && range->size == log->old.head.size)
        *is_old_met = is_heads(range, &log->old);
    return NULL;
}

static bool check_records(log_t *log)
{
    merkle_range_t range;
    attest_lines_t lines;
    const char *line, *why = NULL, *err = NULL;
    size_t len;
    bool is_old_met = log->has_old && log->old.head.size == 0;
    int fd = attest_open_bundle(log->options, log->options->records);
    if (fd < 0)
        return false;
    merkle_range_init(&range);
    attest_lines_init(&lines, fd);
    if (is_old_met)
        is_old_met = is_heads(&range, &log->old);
    while (why == NULL && range.size < log->head.head.size && attest_lines_next(&lines, &line, &len, &err))
        why = check_line(log, &range, line, len, &is_old_met);
    attest_lines_dispose(&lines);
    close(fd);
    if (why != NULL || err != NULL)
        attest_fail(log->options, "line %" PRIu64 " of the records: %s", range.size + 1, why != NULL ? why : err);
    else if (range.size != log->head.head.size)
        attest_fail(log->options, "the list has %" PRIu64 " records, the head %" PRIu64, range.size,
                    log->head.head.size);
    else if (!is_heads(&range, &log->head))
        attest_fail(log->options, "the list's root is not the head's");
    else if (log->has_old && !is_old_met)
        attest_fail(log->options, "the beginning of the list is not the older head's log: it was rewritten");
    else {
        log->checked++;
        if (log->told == NULL)
            printf("the records have this root\n");
        else
            json_object_set_new(log->told, "is_recomputed", json_true());
        if (log->has_old)
            tell_growth(log);
        return true;
    }
    return false;
}

/* ---- the verb ---- */

static void tell_head(const log_t *log)
{
    const attest_head_t *head = &log->head.head;
    if (log->told == NULL) {
        printf("head of %" PRIu64 " %s, root %s, %s%s\n", head->size, head->size == 1 ? "record" : "records",
               head->root_sha256, log->head.is_signed ? "signed by " : "not signed",
               log->head.is_signed ? log->key->id : "");
        return;
    }
    json_object_set_new(log->told, "head", attest_head_json(head));
    json_object_set_new(log->told, "key_id", log->head.is_signed ? json_string(log->key->id) : json_null());
    json_object_set_new(log->told, "inclusion", json_array());
}

/* Two heads say something of each other only where they can be compared. */
static bool check_heads(log_t *log)
{
    if (log->has_old && log->old.head.size > log->head.head.size) {
        attest_fail(log->options, "the older head has %" PRIu64 " records, this one %" PRIu64 ": the log was cut",
                    log->old.head.size, log->head.head.size);
        return false;
    }
    if (!log->has_old || log->consistency != NULL || log->options->records != NULL)
        return true;
    if (log->old.head.size != log->head.head.size) {
        attest_fail(log->options, "a consistency proof from %" PRIu64 " to %" PRIu64 " is needed", log->old.head.size,
                    log->head.head.size);
        return false;
    }
    if (strcmp(log->old.head.root_sha256, log->head.head.root_sha256) != 0) {
        attest_fail(log->options, "both heads have %" PRIu64 " records and other roots: the log was rewritten",
                    log->head.head.size);
        return false;
    }
    log->checked++;
    return true;
}

static bool check_all(log_t *log)
{
    size_t i;
    json_t *inclusion;
    if (!log->has_head) {
        attest_fail(log->options, "there is no head");
        return false;
    }
    tell_head(log);
    if (!check_heads(log))
        return false;
    json_array_foreach(log->inclusions, i, inclusion)
    {
        if (!check_inclusion(log, inclusion))
            return false;
    }
    if (log->receipt != NULL && !check_receipt(log))
        return false;
    if (log->consistency != NULL && !check_consistency(log))
        return false;
    if (log->options->records != NULL && !check_records(log))
        return false;
    if (log->checked == 0 && !log->head.is_signed) {
        attest_fail(log->options, "there is nothing to check the head by: a signature, a proof or the records");
        return false;
    }
    return true;
}

/* ---- what the gateway is asked for ---- */

static bool take_newest(log_t *log, const json_t *json)
{
    const char *why = attest_head_read(json, NULL, &log->head);
    log->has_head = why == NULL;
    if (why != NULL)
        attest_fail(log->options, "the gateway's head does not hold: %s", why);
    return why == NULL;
}

/* The leaf that the run is: its record's digest, or that of the receipt, which must be this run's. */
static const char *leaf_of_run(log_t *log, const json_t *run, const json_t *receipt, char leaf[SHA256_HEX + 1])
{
    if (leaf[0] != '\0')
        return NULL;
    const char *why = log_receipt_digest(receipt, leaf);
    if (why == NULL && !log_receipt_is_of(receipt, run))
        why = "the receipt is of another run";
    if (why == NULL && log->told == NULL)
        printf("its outcome is unknown: the leaf is the digest of a receipt, not of a record\n");
    return why;
}

/* The proof must be of this very run: the gateway chose which one it is an answer to. */
static bool ask_inclusion(log_t *log, const log_pages_t *pages)
{
    char leaf[SHA256_HEX + 1];
    json_t *run = log_pages_run(pages, log->options->run, leaf);
    if (run == NULL)
        return false;
    json_t *page = log_pages_inclusion(pages, log->options->run, log->has_head ? &log->head.head.size : NULL);
    bool ok = page != NULL && (log->has_head || take_newest(log, json_object_get(page, "head")));
    if (ok) {
        json_t *inclusion = json_object_get(page, "inclusion");
        const char *proved = json_string_value(json_object_get(inclusion, "record_sha256"));
        const char *why = leaf_of_run(log, run, json_object_get(page, "receipt"), leaf);
        if (why == NULL && (proved == NULL || strcmp(proved, leaf) != 0))
            why = "the proof is of another record than the run's";
        ok = why == NULL;
        if (ok)
            take_inclusion(log, inclusion);
        else
            attest_fail(log->options, "%s", why);
    }
    json_decref(page);
    json_decref(run);
    return ok;
}

static bool ask_growth(log_t *log, const log_pages_t *pages)
{
    json_t *page = log_pages_consistency(pages, log->old.head.size, &log->head.head.size);
    if (page == NULL)
        return false;
    json_t *consistency = json_object_get(page, "consistency");
    bool ok = json_is_object(consistency);
    if (ok)
        take_consistency(log, consistency);
    else
        attest_fail(log->options, "the gateway gave no proof");
    json_decref(page);
    return ok;
}

static bool ask_all(log_t *log)
{
    log_pages_t pages;
    bool ok = true;
    if (log->options->run == NULL && log->options->file_count != 0)
        return true;
    if (!log_pages_open(&pages, log->options))
        return false;
    if (log->options->run != NULL) {
        ok = ask_inclusion(log, &pages);
    } else {
        json_t *head = log_pages_head(&pages);
        ok = head != NULL && take_newest(log, head);
        json_decref(head);
    }
    /* an older head that is longer, or as long, is compared without a proof */
    if (ok && log->has_old && log->consistency == NULL && log->old.head.size < log->head.head.size)
        ok = ask_growth(log, &pages);
    log_pages_close(&pages);
    return ok;
}

/* What was checked is kept for the next time. */
static bool keep_head(const log_t *log)
{
    buffer_t text;
    if (log->options->out == NULL)
        return true;
    json_t *json = attest_head_json(&log->head.head);
    char *line = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    buffer_init(&text, ATTEST_HEAD_FILE_MAX);
    const char *why = buffer_append_str(&text, line) ? attest_write_new(log->options->out, &text) : "it is too large";
    if (why != NULL)
        attest_fail(log->options, "the head cannot be written: %s", why);
    buffer_dispose(&text);
    free(line);
    return why == NULL;
}

static bool read_all(log_t *log)
{
    const attest_options_t *options = log->options;
    for (int i = options->old != NULL ? -1 : 0; i < options->file_count; i++) {
        const char *path = i < 0 ? options->old : options->files[i], *why = NULL;
        json_t *json = attest_head_load(options, path);
        if (json == NULL)
            return false;
        if (i >= 0) {
            why = take_document(log, json);
        } else {
            json_t *inside = json_object_get(json, "head");
            why = take_head(log, inside != NULL ? inside : json, true);
        }
        json_decref(json);
        if (why != NULL) {
            attest_fail(options, "%.200s: %s", path, why);
            return false;
        }
    }
    return true;
}

enum { FILES_MAX = 1024 };

int log_verify(int argc, char **argv)
{
    attest_options_t options;
    attest_public_t key;
    int status = ATTEST_FAILED;
    if (!attest_options_parse(argc, argv,
                              ATTEST_TAKES_CONNECTION | ATTEST_TAKES_PUB | ATTEST_TAKES_OLD | ATTEST_TAKES_RECORDS |
                                  ATTEST_TAKES_RUN | ATTEST_TAKES_OUT,
                              0, FILES_MAX, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(HELP);
    if (options.run != NULL && !request_id_is_valid(options.run))
        return attest_fail(&options, "-run takes 32 lowercase hex digits, as `plimsoll runs list` shows them");
    if (options.run == NULL && options.file_count == 0 && options.old == NULL)
        return attest_fail(&options, "there is nothing to check: give a FILE, -run RUN or -old FILE; see `%s -help`",
                           options.verb);
    if (options.pub != NULL && !attest_open_pub(&options, &key))
        return ATTEST_FAILED;
    log_t log = {.options = &options,
                 .key = options.pub != NULL ? &key : NULL,
                 .inclusions = json_array(),
                 .told = options.json ? json_object() : NULL};
    if (read_all(&log) && ask_all(&log) && check_all(&log) && keep_head(&log))
        status = options.json ? attest_print_json(&options, json_incref(log.told)) : attest_end_output(&options);
    json_decref(log.told);
    json_decref(log.inclusions);
    json_decref(log.consistency);
    json_decref(log.receipt);
    return status;
}
