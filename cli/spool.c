/* `plimsoll spool`: the records that wait for Redis on this machine's disk, and those of files that were set aside. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/page.h"
#include "cli/run_print.h"
#include "cli/spool_rescue.h"
#include "cli/table.h"
#include "config/options.h"
#include "core/clock.h"
#include "core/mem.h"
#include "records/spool.h"
#include "records/spool_record.h"

static const char HELP[] =
    "Usage: plimsoll spool [list] [--dir DIR] [--all] [--json]\n"
    "       plimsoll spool rescue FILE\n"
    "\n"
    "The records that Redis has not taken yet, on the disk of one gateway. `list` shows those that wait, and the "
    "whole\n"
    "records in files that were set aside; it changes nothing, and may run beside the gateway. `rescue` writes the "
    "whole\n"
    "records of a file that was set aside into a new file beside it, which the gateway there takes over within\n"
    "seconds: what is not exactly as it was written is left out and told.\n"
    "\n"
    "  --dir DIR          the directory (PLIMSOLL_STATE_DIR/spool)\n"
    "  --all              records that Redis took, too\n"
    "  --json             a JSON object a line\n"
    "  -h, --help         this text\n"
    "\n"
    "Exit codes: 0 done, 1 failed, or a file has bytes that are no record; 2 usage; 78 a setting is wrong.\n";

typedef struct {
    const char *dir, *file;
    bool is_rescue, is_all, is_json, is_help;
} options_t;

static int parse(int argc, char **argv, options_t *o)
{
    enum { OPT_DIR = 256, OPT_ALL, OPT_JSON };
    static const struct option table[] = {{"dir", required_argument, NULL, OPT_DIR},
                                          {"all", no_argument, NULL, OPT_ALL},
                                          {"json", no_argument, NULL, OPT_JSON},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int opt;
    *o = (options_t){.dir = NULL};
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        switch (opt) {
        case OPT_DIR:
            o->dir = optarg;
            break;
        case OPT_ALL:
            o->is_all = true;
            break;
        case OPT_JSON:
            o->is_json = true;
            break;
        case 'h':
            o->is_help = true;
            return CLI_OK;
        default:
            return usage_hint(argv[0]);
        }
    }
    const char *verb = optind < argc ? argv[optind] : "list";
    o->is_rescue = strcmp(verb, "rescue") == 0;
    if (!o->is_rescue && strcmp(verb, "list") != 0)
        return usage_error(argv[0], "it takes list or rescue, not %.64s", verb);
    int most = o->is_rescue ? optind + 2 : optind + 1;
    if (argc > most)
        return usage_error(argv[0], "too many arguments");
    if (o->is_rescue && (optind + 1 >= argc || o->dir != NULL || o->is_all || o->is_json))
        return usage_error(argv[0], "rescue takes one file that was set aside, and no options");
    o->file = o->is_rescue ? argv[optind + 1] : NULL;
    return CLI_OK;
}

/* --- list --- */

typedef struct {
    const options_t *options;
    table_t *table; /* NULL: JSON */
    uint64_t waiting, aside, shown, bad_files;
    int64_t now_ms;
    bool told;
} listing_t;

static const char *state_of(const spool_frame_t *frame, bool is_aside)
{
    return frame->taken ? "taken" : is_aside ? "set_aside" : "waiting";
}

static void list_json(listing_t *l, const char *file, const spool_frame_t *frame, const char *state,
                      const store_settlement_t *s, const char *wrong)
{
    json_t *row = json_pack("{s:s, s:I, s:s, s:I, s:i}", "file", file, "offset", (json_int_t)frame->offset, "state",
                            state, "appended_unix_ms", (json_int_t)frame->appended_ms, "bytes", (int)frame->len);
    if (wrong != NULL) {
        json_object_set_new(row, "error", json_string(wrong));
    } else {
        /* a caller's name may hold bytes JSON has no text for */
        json_t *caller = json_string(s->caller);
        json_object_set_new(row, "caller", caller != NULL ? caller : json_null());
        json_object_set_new(row, "run_id", json_string(s->run_id));
        json_object_set_new(row, "claim", s->request_id != NULL ? json_string(s->request_id) : json_null());
        json_object_set_new(row, "verdict", json_string(verdict_name(s->verdict)));
        json_object_set_new(row, "backend", s->backend != NULL ? json_string(s->backend) : json_null());
        json_object_set_new(row, "has_output", json_boolean(s->answer_len != 0));
    }
    l->told = json_print(row) && l->told;
    json_decref(row);
}

static void list_frame(listing_t *l, const char *file, const spool_frame_t *frame, bool is_aside)
{
    spool_record_t record;
    const char *state = state_of(frame, is_aside), *wrong = spool_record_unpack(frame->payload, frame->len, &record);
    const store_settlement_t *s = &record.settlement;
    l->waiting += !frame->taken && !is_aside;
    l->aside += !frame->taken && is_aside;
    if (!frame->taken || l->options->is_all) {
        ++l->shown;
        if (l->table == NULL) {
            list_json(l, file, frame, state, s, wrong);
        } else {
            char age[CELL_MAX], bytes[CELL_MAX];
            snprintf(bytes, sizeof(bytes), "%u", frame->len);
            int64_t ms = l->now_ms - frame->appended_ms;
            const char *cells[] = {file,
                                   state,
                                   cell_span(ms > 0 ? ms : 0, age),
                                   wrong != NULL ? wrong : s->run_id,
                                   wrong != NULL ? "" : s->caller,
                                   wrong != NULL ? "" : verdict_name(s->verdict),
                                   wrong != NULL ? "" : s->backend,
                                   bytes};
            table_add(l->table, cells);
        }
    }
    if (wrong == NULL)
        spool_record_dispose(&record);
}

static void complain(const char *file, uint64_t from, uint64_t to, bool is_tail)
{
    fprintf(stderr, "plimsoll: warning: %s: bytes %" PRIu64 " to %" PRIu64 " are no record%s\n", file, from, to,
            is_tail ? "; at the end of a file that is being written, or was when its gateway died, that is no harm"
                    : "");
}

static void list_file(listing_t *l, int dir_fd, const char *name)
{
    uint64_t size, number = strtoull(name, NULL, 16);
    bool is_aside = strstr(name, ".spool.") != NULL;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    spool_file_t *f = fd >= 0 ? spool_file_look(fd, number, &size) : NULL;
    if (f == NULL) {
        fprintf(stderr, "plimsoll: warning: %s: %s\n", name, strerror(errno));
        ++l->bad_files;
        if (fd >= 0)
            close(fd);
        return;
    }
    spool_frame_t frame;
    uint64_t at = SPOOL_FILE_HEADER;
    if (f->corrupt && f->corrupt_at == 0)
        complain(name, 0, SPOOL_FILE_HEADER, false);
    while (spool_file_find(f, at, size, &frame)) {
        if (frame.offset != at)
            complain(name, at, frame.offset, false);
        list_frame(l, name, &frame, is_aside);
        at = frame.offset + spool_frame_size(frame.len);
        free(frame.payload);
    }
    if (at < size)
        complain(name, at, size, !f->corrupt);
    l->bad_files += f->corrupt;
    spool_file_close(f);
}

static int is_spool_file(const struct dirent *entry)
{
    return strspn(entry->d_name, "0123456789abcdef") == 16 && strncmp(entry->d_name + 16, ".spool", 6) == 0 &&
           (entry->d_name[22] == '\0' || entry->d_name[22] == '.');
}

static int list(const options_t *o, const char *dir)
{
    static const char *const HEADINGS[] = {"FILE", "STATE", "AGE", "RUN", "CALLER", "VERDICT", "BACKEND", "BYTES"};
    struct dirent **names;
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = dir_fd >= 0 ? scandirat(dir_fd, ".", &names, is_spool_file, alphasort) : -1;
    if (count < 0) {
        fprintf(stderr, "plimsoll: error: %s: %s\n", dir, strerror(errno));
        if (dir_fd >= 0)
            close(dir_fd);
        return CLI_FAILED;
    }
    listing_t l = {.options = o, .now_ms = clock_wall_ms(), .told = true};
    if (!o->is_json)
        l.table = table_create(HEADINGS, sizeof(HEADINGS) / sizeof(HEADINGS[0]));
    for (int i = 0; i < count; i++) {
        list_file(&l, dir_fd, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    close(dir_fd);
    if (l.table != NULL) {
        if (l.shown != 0)
            table_print(l.table, stdout);
        printf("%" PRIu64 " record%s for Redis; %" PRIu64 " in files that were set aside\n", l.waiting,
               l.waiting == 1 ? " waits" : "s wait", l.aside);
        table_destroy(l.table);
    }
    return l.told && l.bad_files == 0 && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

/* PLIMSOLL_STATE_DIR/spool; NULL when the setting is wrong, which was told. The caller's to free. */
static char *default_dir(void)
{
    problems_t problems = {0};
    options_load_role(ROLE_CLI, &problems, NULL);
    char *dir = NULL;
    if (problems.count == 0 && asprintf(&dir, "%s/spool", option_str(OPT_PLIMSOLL_STATE_DIR)) < 0)
        mem_fatal("asprintf");
    for (size_t i = 0; i < problems.count; i++)
        fprintf(stderr, "plimsoll: error: %s\n", problems.texts[i]);
    problems_dispose(&problems);
    return dir;
}

int command_spool(int argc, char **argv)
{
    options_t o;
    int status = parse(argc, argv, &o);
    if (status != CLI_OK)
        return status;
    if (o.is_help)
        return print_help(HELP);
    if (o.is_rescue)
        return spool_rescue(o.file);
    char *dir = o.dir != NULL ? mem_strdup(o.dir) : default_dir();
    if (dir == NULL)
        return CLI_CONFIG;
    status = list(&o, dir);
    free(dir);
    return status;
}
