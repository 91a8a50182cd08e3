#include "cli/attest_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/input.h"
#include "core/mem.h"
#include "core/json_read.h"
#include "records/attest_bundle.h"
#include "records/attest_entry.h"

enum { ERROR_MAX = 768, WHY_MAX = PROTOJSON_ERROR_MAX + 64 };

struct attest_input {
    char **paths;
    int count, at;
    bool is_open;
    attest_lines_t lines; /* of the file at `at` */
    uint64_t number;      /* of the line in its file */
    char error[ERROR_MAX];
    char why[WHY_MAX];
};

attest_input_t *attest_input_open(char **paths, int count)
{
    attest_input_t *input = mem_alloc(sizeof(*input));
    input->paths = paths;
    input->count = count;
    return input;
}

static void end_file(attest_input_t *input)
{
    if (input->is_open && input->lines.fd != STDIN_FILENO)
        close(input->lines.fd);
    if (input->is_open)
        attest_lines_dispose(&input->lines);
    input->is_open = false;
    input->number = 0;
}

void attest_input_close(attest_input_t *input)
{
    end_file(input);
    free(input);
}

static const char *fail(attest_input_t *input, const char *why)
{
    snprintf(input->error, sizeof(input->error), "%.200s, line %llu: %s", input->paths[input->at],
             (unsigned long long)input->number, why);
    return input->error;
}

static bool open_file(attest_input_t *input)
{
    bool is_stdin = strcmp(input->paths[input->at], "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(input->paths[input->at], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    attest_lines_init(&input->lines, fd);
    input->is_open = true;
    return true;
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (strchr(" \t\r", line[i]) == NULL || line[i] == '\0')
            return false;
    return true;
}

/* The next line that is not blank; NULL at the end of all files, or with *err. */
static const char *next_line(attest_input_t *input, size_t *len, const char **err)
{
    for (; input->at < input->count; end_file(input), input->at++) {
        const char *line, *why = NULL;
        if (!input->is_open && !open_file(input)) {
            *err = fail(input, strerror(errno));
            return NULL;
        }
        while (attest_lines_next(&input->lines, &line, len, &why)) {
            input->number++;
            if (!is_blank(line, *len))
                return line;
        }
        if (why != NULL) {
            input->number++;
            *err = fail(input, why);
            return NULL;
        }
    }
    return NULL;
}

/* ---- one line ---- */

/* The members of a line, each as its own piece of JSON text, so that no number is read twice. */
typedef enum { REQUEST, RESPONSE, RECORD, CLOSE, MEMBER_COUNT } member_t;
static const char *const MEMBERS[MEMBER_COUNT] = {"request", "response", "record", "close"};
typedef struct {
    const char *base; /* NULL = not there */
    size_t len;
} piece_t;

static bool take_member(json_reader_t *r, piece_t pieces[MEMBER_COUNT])
{
    json_slice_t name;
    if (!json_read_slice(r, &name))
        return false;
    member_t which = REQUEST;
    while (which < MEMBER_COUNT &&
           (strlen(MEMBERS[which]) != name.len || memcmp(MEMBERS[which], name.base, name.len) != 0))
        which++;
    free(name.owned);
    if (which == MEMBER_COUNT || pieces[which].base != NULL)
        return json_fail(r, which == MEMBER_COUNT ? "it has a member that is not known" : "it has a member twice");
    if (!json_expect(r, ':', "expected ':'"))
        return false;
    json_skip_space(r);
    const char *begin = r->p;
    if (!json_skip_value(r))
        return false;
    pieces[which] = (piece_t){.base = begin, .len = (size_t)(r->p - begin)};
    return true;
}

static bool find_members(const char *text, size_t len, piece_t pieces[MEMBER_COUNT], char error[PROTOJSON_ERROR_MAX])
{
    json_reader_t r = {.start = text, .p = text, .end = text + len, .error = error};
    if (!json_expect(&r, '{', "it is neither a JSON object nor an entry in canonical form"))
        return false;
    if (!json_take(&r, '}')) {
        do {
            if (!take_member(&r, pieces))
                return false;
        } while (json_take(&r, ','));
        if (!json_expect(&r, '}', "expected ',' or '}'"))
            return false;
    }
    json_skip_space(&r);
    return r.p == r.end || json_fail_here(&r, "something follows the object");
}

/* The message of a piece, read as a body would be; NULL when there is none, or with input->why. */
static void *piece_message(attest_input_t *input, const piece_t pieces[MEMBER_COUNT], member_t which,
                           const ProtobufCMessageDescriptor *type)
{
    char error[PROTOJSON_ERROR_MAX];
    if (pieces[which].base == NULL)
        return NULL;
    void *message = protojson_parse(type, pieces[which].base, pieces[which].len, error);
    if (message == NULL)
        snprintf(input->why, sizeof(input->why), "its %s is malformed: %s", MEMBERS[which], error);
    return message;
}

static bool fill_close(const Plimsoll__V1__CloseSessionResponse *answer, attest_close_t *out)
{
    out->calls = answer->calls;
    return snprintf(out->session, sizeof(out->session), "%s", answer->session) < (int)sizeof(out->session) &&
           snprintf(out->last_record_sha256, sizeof(out->last_record_sha256), "%s", answer->last_record_sha256) <
               (int)sizeof(out->last_record_sha256);
}

static const char *sign_messages(attest_input_t *input, const piece_t pieces[MEMBER_COUNT], const attest_key_t *key,
                                 attest_prefix_t prefix, buffer_t *entry)
{
    attest_close_t close = {.calls = 0};
    const char *why = NULL;
    input->why[0] = '\0';
    Plimsoll__V1__RunRequest *request = piece_message(input, pieces, REQUEST, &plimsoll__v1__run_request__descriptor);
    Plimsoll__V1__RunResponse *response =
        piece_message(input, pieces, RESPONSE, &plimsoll__v1__run_response__descriptor);
    Plimsoll__V1__RunRecord *record = piece_message(input, pieces, RECORD, &plimsoll__v1__run_record__descriptor);
    Plimsoll__V1__CloseSessionResponse *answer =
        piece_message(input, pieces, CLOSE, &plimsoll__v1__close_session_response__descriptor);
    bool is_call = request != NULL && (response != NULL) != (record != NULL) && answer == NULL;
    bool is_close = answer != NULL && request == NULL && response == NULL && record == NULL;
    if (input->why[0] != '\0')
        why = input->why;
    else if (!is_call && !is_close)
        why = "it is neither a request with its response or record, nor a close";
    else if (is_close && !fill_close(answer, &close))
        why = "its close states no digests";
    else
        why = attest_entry_sign(
            entry, key, prefix,
            &(attest_content_t){
                .request = request, .response = response, .record = record, .close = is_close ? &close : NULL});
    plimsoll__v1__run_request__free_unpacked(request, NULL);
    plimsoll__v1__run_response__free_unpacked(response, NULL);
    plimsoll__v1__run_record__free_unpacked(record, NULL);
    plimsoll__v1__close_session_response__free_unpacked(answer, NULL);
    return why;
}

static const char *take_line(attest_input_t *input, const char *text, size_t len, const attest_key_t *key,
                             attest_prefix_t prefix, buffer_t *entry)
{
    attest_line_t line;
    /* An entry that is signed already goes in as it is: the bundle's own verification judges it. */
    bool is_entry = attest_line_read(text, len, false, &line) == NULL;
    attest_line_dispose(&line);
    if (is_entry)
        return buffer_append(entry, text, len) ? NULL : "it is longer than 64 MiB";
    piece_t pieces[MEMBER_COUNT] = {{0}};
    if (find_members(text, len, pieces, input->why))
        return sign_messages(input, pieces, key, prefix, entry);
    return input->why;
}

const char *attest_input_next(void *data, const attest_key_t *key, attest_prefix_t prefix, buffer_t *entry,
                              bool *is_end)
{
    attest_input_t *input = data;
    const char *err = NULL;
    size_t len = 0;
    const char *line = next_line(input, &len, &err);
    *is_end = line == NULL && err == NULL;
    if (line == NULL)
        return err;
    const char *why = take_line(input, line, len, key, prefix, entry);
    return why != NULL ? fail(input, why) : NULL;
}

/* ---- a file of one's own ---- */

const char *attest_write_new(const char *path, const buffer_t *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return strerror(errno);
    bool ok = output_write(fd, text->base, text->len) && output_write(fd, "\n", 1) && fsync(fd) == 0;
    int why = errno;
    if (close(fd) == 0 && ok)
        return NULL;
    unlink(path);
    return strerror(ok ? errno : why);
}
