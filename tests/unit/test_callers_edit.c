/* The tool's edits of a set of callers, and the discipline with which the file is locked and replaced (spec
 * section 1.6). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/callers_edit.h"
#include "config/callers_store.h"
#include "config/token.h"
#include "core/random.h"

static const int64_t NOW = INT64_C(1796155200123); /* 2026-12-01T20:00:00.123Z */
static const int64_t HOUR = 3600000;

static const uint8_t *hash_of(const char *text)
{
    static uint8_t hashes[8][32];
    static int next;
    uint8_t *out = hashes[next++ % 8];

    token_sha256(text, strlen(text), out);
    return out;
}

static void expect_refused_at(callers_t *callers, problems_t *problems, const char *text, int line)
{
    _assert_true(callers == NULL, "refused", __FILE__, line);
    if (problems->count != 1 || strcmp(problems->texts[0], text) != 0) {
        print_message("wanted:  %s\n", text);
        for (size_t i = 0; i < problems->count; i++)
            print_message("problem: %s\n", problems->texts[i]);
        _assert_true(0, "the problem", __FILE__, line);
    }
    problems_dispose(problems);
}
#define expect_refused(callers, text) expect_refused_at(callers, &problems, text, __LINE__)

/* Two callers: "b" with one plain token, and "a" with scopes and an allowance. */
static callers_t *two(void)
{
    const char *scopes[] = {"code:run", "reports"};
    problems_t problems = {NULL, 0};
    callers_t *none = callers_edit_empty(), *one, *both;

    one = callers_edit_add(none, "b", hash_of("token of b"), NULL, 0, 0, &problems);
    assert_non_null(one);
    both = callers_edit_add(one, " a ", hash_of("token of a"), scopes, 2, 60, &problems);
    assert_non_null(both);
    assert_int_equal(problems.count, 0);
    assert_int_equal(callers_count(none), 0);
    assert_int_equal(callers_count(one), 1);
    callers_unref(none);
    callers_unref(one);
    return both;
}

static void a_caller_is_added(void **state)
{
    callers_t *callers = two();
    const caller_t *a, *b;

    (void)state;
    assert_int_equal(callers_count(callers), 2);
    b = callers_at(callers, 0);
    a = callers_at(callers, 1);
    assert_string_equal(b->id, "b");
    assert_int_equal(b->scope_count, 1);
    assert_string_equal(b->scopes[0], "code:run");
    assert_true(b->runs);
    assert_string_equal(a->id, "a");
    assert_string_equal(a->scopes[1], "reports");
    assert_int_equal(a->paid_seconds_per_day, 60);
    assert_ptr_equal(callers_find(callers, hash_of("token of a"), NOW), a);
    assert_ptr_equal(callers_find(callers, hash_of("token of b"), NOW), b);
    callers_unref(callers);
}

static void a_caller_that_cannot_be_added(void **state)
{
    const char *bad[] = {"a b"}, *twice[] = {"x", "x"}, *binary[] = {"\xff"};
    callers_t *callers = two();
    problems_t problems = {NULL, 0};

    (void)state;
    expect_refused(callers_edit_add(callers, "a", hash_of("new"), NULL, 0, 0, &problems),
                   "there is a caller \"a\" already");
    expect_refused(callers_edit_add(callers, " ", hash_of("new"), NULL, 0, 0, &problems), "\"id\" is empty");
    expect_refused(callers_edit_add(callers, "*", hash_of("new"), NULL, 0, 0, &problems), "\"id\" must not be \"*\"");
    expect_refused(callers_edit_add(callers, "\xff", hash_of("new"), NULL, 0, 0, &problems), "\"id\" is not UTF-8");
    expect_refused(callers_edit_add(callers, "c", hash_of("new"), bad, 1, 0, &problems),
                   "scope \"a b\": a scope has white space or a control character");
    expect_refused(callers_edit_add(callers, "c", hash_of("new"), twice, 2, 0, &problems),
                   "scope \"x\": a scope is there twice");
    expect_refused(callers_edit_add(callers, "c", hash_of("new"), binary, 1, 0, &problems),
                   "scope \"?\": a scope is not UTF-8");
    expect_refused(callers_edit_add(callers, "c", hash_of("new"), NULL, 0, (uint64_t)CALLER_PAID_MAX + 1, &problems),
                   "paid seconds per day must be a whole number from 0 to 1000000000000");
    expect_refused(callers_edit_add(callers, "c", hash_of("token of a"), NULL, 0, 0, &problems),
                   "clients[2] (\"c\"): has the \"token_sha256\" of clients[1] (\"a\")");
    callers_unref(callers);
}

static void an_allowance_is_set_and_removed(void **state)
{
    callers_t *callers = two(), *set, *removed;
    problems_t problems = {NULL, 0};

    (void)state;
    set = callers_edit_allowance(callers, "b", (uint64_t)CALLER_PAID_MAX, &problems);
    assert_non_null(set);
    assert_int_equal(callers_at(set, 0)->paid_seconds_per_day, CALLER_PAID_MAX);
    assert_int_equal(callers_at(callers, 0)->paid_seconds_per_day, 0);
    removed = callers_edit_allowance(set, "b", 0, &problems);
    assert_int_equal(callers_at(removed, 0)->paid_seconds_per_day, 0);
    assert_int_equal(callers_at(removed, 1)->paid_seconds_per_day, 60);
    expect_refused(callers_edit_allowance(callers, "c", 1, &problems), "there is no caller \"c\"");
    expect_refused(callers_edit_allowance(callers, "b", (uint64_t)CALLER_PAID_MAX + 1, &problems),
                   "paid seconds per day must be a whole number from 0 to 1000000000000");
    callers_unref(removed);
    callers_unref(set);
    callers_unref(callers);
}

static void a_rotation_is_a_cutover(void **state)
{
    callers_t *callers = two(), *now;
    problems_t problems = {NULL, 0};

    (void)state;
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, 0, &problems);
    assert_non_null(now);
    assert_null(callers_find(now, hash_of("token of a"), NOW));
    assert_string_equal(callers_find(now, hash_of("second"), NOW)->id, "a");
    assert_int_equal(callers_at(now, 1)->token_count, 1);
    assert_int_equal(callers_at(now, 1)->scope_count, 2);
    assert_int_equal(callers_at(now, 1)->paid_seconds_per_day, 60);
    assert_non_null(callers_find(now, hash_of("token of b"), NOW));
    expect_refused(callers_edit_rotate(callers, "a", hash_of("token of a"), NOW, 0, &problems),
                   "the token is one the caller already has");
    expect_refused(callers_edit_rotate(callers, "a", hash_of("token of b"), NOW, 0, &problems),
                   "clients[1] (\"a\"): has the \"token_sha256\" of clients[0] (\"b\")");
    expect_refused(callers_edit_rotate(callers, "c", hash_of("new"), NOW, 0, &problems), "there is no caller \"c\"");
    callers_unref(now);
    callers_unref(callers);
}

static void a_rotation_may_overlap(void **state)
{
    const int64_t end = NOW - 123 + 1000 + HOUR; /* up to the second */
    callers_t *callers = two(), *now, *later;
    problems_t problems = {NULL, 0};

    (void)state;
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, HOUR, &problems);
    assert_non_null(now);
    assert_string_equal(callers_find(now, hash_of("token of a"), NOW)->id, "a");
    assert_string_equal(callers_find(now, hash_of("token of a"), end - 1)->id, "a");
    assert_null(callers_find(now, hash_of("token of a"), end));
    assert_string_equal(callers_find(now, hash_of("second"), NOW)->id, "a");
    assert_string_equal(callers_find(now, hash_of("second"), end)->id, "a");

    expect_refused(
        callers_edit_rotate(now, "a", hash_of("third"), end - 1, HOUR, &problems),
        "an earlier rotation still overlaps: wait until its old token has ended, or rotate without an overlap");
    later = callers_edit_rotate(now, "a", hash_of("third"), end, HOUR, &problems);
    assert_non_null(later);
    assert_null(callers_find(later, hash_of("token of a"), NOW)); /* it had ended, and is gone */
    assert_non_null(callers_find(later, hash_of("second"), end));
    assert_non_null(callers_find(later, hash_of("third"), end));
    callers_unref(later);

    later = callers_edit_rotate(now, "a", hash_of("third"), NOW, 0, &problems); /* without an overlap it always goes */
    assert_non_null(later);
    assert_int_equal(callers_at(later, 1)->token_count, 1);
    assert_null(callers_find(later, hash_of("second"), NOW));
    callers_unref(later);
    callers_unref(now);
    callers_unref(callers);
}

static void limits_of_an_overlap(void **state)
{
    callers_t *callers = two(), *now;
    problems_t problems = {NULL, 0};

    (void)state;
    for (int64_t ms = CALLERS_OVERLAP_MAX_MS - 1; ms <= CALLERS_OVERLAP_MAX_MS; ms++) {
        now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, ms, &problems);
        assert_non_null(now);
        callers_unref(now);
    }
    expect_refused(callers_edit_rotate(callers, "a", hash_of("second"), NOW, CALLERS_OVERLAP_MAX_MS + 1, &problems),
                   "an overlap takes 0 to 30 days");
    expect_refused(callers_edit_rotate(callers, "a", hash_of("second"), NOW, -1, &problems),
                   "an overlap takes 0 to 30 days");
    callers_unref(callers);
}

/* An end the file already sets is not put off by a rotation. */
static void an_overlap_never_prolongs_a_token(void **state)
{
    static const char text[] = "{\"clients\":[{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\""
                               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\",\"not_after\":"
                               "\"2026-12-01T20:30:00Z\"}]}]}";
    problems_t problems = {NULL, 0};
    callers_t *callers = callers_parse(text, strlen(text), false, &problems), *now;

    (void)state;
    assert_non_null(callers);
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, HOUR, &problems);
    assert_non_null(now);
    assert_non_null(callers_find(now, hash_of("abc"), INT64_C(1796156999999)));
    assert_null(callers_find(now, hash_of("abc"), INT64_C(1796157000000)));
    callers_unref(now);
    callers_unref(callers);
}

/* A token that would begin only after the overlap has no time to be valid in, and must not stand in the way. */
static void a_token_of_later_gives_way(void **state)
{
    static const char text[] = "{\"clients\":[{\"id\":\"a\",\"tokens\":[{\"token_sha256\":\""
                               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\",\"not_before\":"
                               "\"2026-12-01T21:00:01Z\"}]}]}";
    problems_t problems = {NULL, 0};
    callers_t *callers = callers_parse(text, strlen(text), false, &problems), *now;

    (void)state;
    assert_non_null(callers);
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, HOUR, &problems);
    assert_non_null(now);
    assert_int_equal(callers_at(now, 0)->token_count, 1);
    assert_non_null(callers_find(now, hash_of("second"), NOW));
    callers_unref(now);
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, HOUR + 1000, &problems);
    assert_non_null(now);
    assert_int_equal(callers_at(now, 0)->token_count, 2);
    callers_unref(now);
    callers_unref(callers);
}

static void a_caller_is_revoked(void **state)
{
    callers_t *callers = two(), *one, *none;
    problems_t problems = {NULL, 0};

    (void)state;
    one = callers_edit_revoke(callers, "b", &problems);
    assert_int_equal(callers_count(one), 1);
    assert_null(callers_find(one, hash_of("token of b"), NOW));
    assert_non_null(callers_find(one, hash_of("token of a"), NOW));
    none = callers_edit_revoke(one, "a", &problems);
    assert_int_equal(callers_count(none), 0);
    expect_refused(callers_edit_revoke(none, "a", &problems), "there is no caller \"a\"");
    callers_unref(none);
    callers_unref(one);
    callers_unref(callers);
}

static void lists_are_sorted_and_show_no_hash(void **state)
{
    callers_t *callers = two(), *now;
    problems_t problems = {NULL, 0};
    buffer_t out;

    (void)state;
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, HOUR, &problems);
    buffer_init(&out, 4096);
    assert_true(callers_list_text(now, NOW, &out));
    assert_string_equal((char *)out.base, "a  scopes: code:run,reports  paid seconds per day: 60\n"
                                          "  token 1: valid, until 2026-12-01T21:00:01Z\n"
                                          "  token 2: valid\n"
                                          "b  scopes: code:run\n");
    buffer_clear(&out);
    assert_true(callers_list_text(now, NOW + 2 * HOUR, &out));
    assert_non_null(strstr((char *)out.base, "token 1: ended, until"));
    buffer_clear(&out);
    assert_true(callers_list_json(now, &out));
    assert_string_equal((char *)out.base, "[\n"
                                          "  {\n"
                                          "    \"id\": \"a\",\n"
                                          "    \"tokens\": [\n"
                                          "      {\n"
                                          "        \"not_after\": \"2026-12-01T21:00:01Z\"\n"
                                          "      },\n"
                                          "      {}\n"
                                          "    ],\n"
                                          "    \"scopes\": [\n"
                                          "      \"code:run\",\n"
                                          "      \"reports\"\n"
                                          "    ],\n"
                                          "    \"paid_seconds_per_day\": 60\n"
                                          "  },\n"
                                          "  {\n"
                                          "    \"id\": \"b\",\n"
                                          "    \"scopes\": [\n"
                                          "      \"code:run\"\n"
                                          "    ]\n"
                                          "  }\n"
                                          "]\n");
    buffer_dispose(&out);
    buffer_init(&out, 60);
    assert_false(callers_list_text(now, NOW, &out));
    buffer_dispose(&out);
    buffer_init(&out, 60);
    assert_false(callers_list_json(now, &out));
    buffer_dispose(&out);
    callers_unref(now);
    callers_unref(callers);
}

static void an_edited_set_reads_back(void **state)
{
    callers_t *callers = two(), *now, *again;
    problems_t problems = {NULL, 0};
    char *text, *second;

    (void)state;
    now = callers_edit_rotate(callers, "a", hash_of("second"), NOW, HOUR, &problems);
    text = callers_format(now);
    again = callers_parse(text, strlen(text), false, &problems);
    assert_non_null(again);
    second = callers_format(again);
    assert_string_equal(text, second);
    free(second);
    free(text);
    callers_unref(again);
    callers_unref(now);
    callers_unref(callers);
}

/* -- the file -- */

typedef struct {
    char dir[32], path[64], lock[64];
} place_t;

static int place_make(void **state)
{
    place_t *place = calloc(1, sizeof(*place));

    strcpy(place->dir, "/tmp/test_callers_XXXXXX");
    if (mkdtemp(place->dir) == NULL)
        return -1;
    snprintf(place->path, sizeof(place->path), "%s/clients.json", place->dir);
    snprintf(place->lock, sizeof(place->lock), "%s/clients.json.lock", place->dir);
    *state = place;
    return 0;
}

static size_t entries_in(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count - 2;
}

static int place_remove(void **state)
{
    place_t *place = *state;
    char path[320];
    DIR *dir = opendir(place->dir);
    struct dirent *entry;

    while ((entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", place->dir, entry->d_name);
        if (unlink(path) != 0)
            rmdir(path);
    }
    closedir(dir);
    rmdir(place->dir);
    free(place);
    return 0;
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
}

static char *read_file(const char *path)
{
    problems_t problems = {NULL, 0};
    size_t len;
    char *text = callers_read_file(path, &len, &problems);

    problems_dispose(&problems);
    return text;
}

static void a_new_file_is_0600_whatever_the_umask(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_t *callers = two(), *read;
    callers_store_t *store;
    struct stat st;
    mode_t mask = umask(0);

    store = callers_store_open(place->path, true, &problems);
    assert_non_null(store);
    assert_true(callers_store_is_new(store));
    assert_int_equal(callers_count(callers_store_callers(store)), 0);
    assert_int_equal(stat(place->lock, &st), 0);
    assert_int_equal(callers_store_write(store, callers, &problems), CALLERS_WRITTEN);
    callers_store_close(store, &problems);
    umask(mask);
    assert_int_equal(problems.count, 0);
    assert_int_equal(stat(place->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(entries_in(place->dir), 1); /* neither the lock nor the temporary file stays */
    read = callers_store_read(place->path, &problems);
    assert_int_equal(callers_count(read), 2);
    callers_unref(read);
    callers_unref(callers);
}

static void an_old_file_keeps_its_mode_and_owner(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_t *callers = two();
    callers_store_t *store;
    struct stat st;

    write_file(place->path, "{\"clients\":[]}", 0640);
    if (geteuid() == 0)
        assert_int_equal(chown(place->path, 65534, 65534), 0);
    store = callers_store_open(place->path, false, &problems);
    assert_non_null(store);
    assert_false(callers_store_is_new(store));
    assert_int_equal(callers_store_write(store, callers, &problems), CALLERS_WRITTEN);
    callers_store_close(store, &problems);
    assert_int_equal(stat(place->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    if (geteuid() == 0) {
        assert_int_equal(st.st_uid, 65534);
        assert_int_equal(st.st_gid, 65534);
    }
    callers_unref(callers);
}

static void an_absent_file_is_only_made_on_purpose(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};

    assert_null(callers_store_open(place->path, false, &problems));
    assert_non_null(strstr(problems.texts[0], "cannot be read: No such file or directory"));
    assert_int_equal(problems.count, 1);
    assert_int_equal(entries_in(place->dir), 0); /* unlocked again */
    assert_null(callers_store_read(place->path, &problems));
    problems_dispose(&problems);
}

static void only_a_regular_file_is_edited(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    char target[80];

    snprintf(target, sizeof(target), "%s/target", place->dir);
    write_file(target, "{\"clients\":[]}", 0600);
    assert_int_equal(symlink(target, place->path), 0);
    assert_null(callers_store_open(place->path, true, &problems));
    assert_non_null(strstr(problems.texts[0], "is not a regular file"));
    assert_null(callers_store_read(place->path, &problems));
    unlink(place->path);
    assert_int_equal(symlink("nowhere", place->path), 0);
    assert_null(callers_store_open(place->path, true, &problems));
    unlink(place->path);
    assert_int_equal(mkfifo(place->path, 0600), 0);
    assert_null(callers_store_open(place->path, true, &problems));
    unlink(place->path);
    assert_int_equal(mkdir(place->path, 0700), 0);
    assert_null(callers_store_open(place->path, true, &problems));
    assert_int_equal(problems.count, 5);
    assert_int_equal(entries_in(place->dir), 2);
    problems_dispose(&problems);
    assert_null(callers_store_open("/tmp/", true, &problems));
    assert_null(callers_store_open("..", true, &problems));
    assert_null(callers_store_open("", true, &problems));
    assert_null(callers_store_open("/nowhere/at/all/clients.json", true, &problems));
    assert_int_equal(problems.count, 4);
    problems_dispose(&problems);
}

static void one_edit_at_a_time(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_store_t *store;
    callers_t *read;
    struct stat st;

    write_file(place->path, "{\"clients\":[]}", 0600);
    store = callers_store_open(place->path, false, &problems);
    assert_non_null(store);
    assert_null(callers_store_open(place->path, false, &problems));
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.texts[0], "is being edited by another command"));
    assert_int_equal(stat(place->lock, &st), 0); /* the loser leaves the winner's lock */
    read = callers_store_read(place->path, &problems);
    assert_non_null(read); /* reading needs none */
    callers_unref(read);
    callers_store_close(store, &problems);
    store = callers_store_open(place->path, false, &problems);
    assert_non_null(store);
    callers_store_close(store, &problems);
    assert_int_equal(problems.count, 1);
    /* a lock a killed command left is the operator's to remove, and the text says so */
    assert_int_equal(mkdir(place->lock, 0700), 0);
    assert_null(callers_store_open(place->path, false, &problems));
    assert_non_null(strstr(problems.texts[1], "remove the empty directory"));
    problems_dispose(&problems);
}

static void a_broken_file_is_told_and_left(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    char *text;

    write_file(place->path, "{\"clients\":[{\"id\":\"a\"}]}", 0600);
    assert_null(callers_store_open(place->path, true, &problems));
    assert_string_equal(problems.texts[0], "clients[0] (\"a\"): \"token_sha256\" is missing");
    problems_dispose(&problems);
    text = read_file(place->path);
    assert_string_equal(text, "{\"clients\":[{\"id\":\"a\"}]}");
    free(text);
    assert_int_equal(entries_in(place->dir), 1);
}

static void a_file_changed_meanwhile_is_not_overwritten(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_t *callers = two();
    callers_store_t *store;
    char other[80], *text;

    write_file(place->path, "{\"clients\":[]}", 0600);
    store = callers_store_open(place->path, false, &problems);
    assert_non_null(store);
    snprintf(other, sizeof(other), "%s/other", place->dir);
    write_file(other, "{\"clients\": []}", 0600);
    assert_int_equal(rename(other, place->path), 0);
    assert_int_equal(callers_store_write(store, callers, &problems), CALLERS_UNTOUCHED);
    assert_non_null(strstr(problems.texts[0], "was changed by something else meanwhile"));
    callers_store_close(store, &problems);
    problems_dispose(&problems);
    text = read_file(place->path);
    assert_string_equal(text, "{\"clients\": []}");
    free(text);
    assert_int_equal(entries_in(place->dir), 1);

    unlink(place->path);
    store = callers_store_open(place->path, true, &problems);
    write_file(place->path, "mine", 0600);
    assert_int_equal(callers_store_write(store, callers, &problems), CALLERS_UNTOUCHED);
    callers_store_close(store, &problems);
    problems_dispose(&problems);
    callers_unref(callers);
}

/* A full disk, as the file size limit can play it: the write fails half-way. */
static void a_write_that_fails_leaves_the_old_file(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_t *callers = two();
    struct rlimit old, small;
    callers_store_t *store;
    char *text;

    write_file(place->path, "{\"clients\":[]}", 0600);
    store = callers_store_open(place->path, false, &problems);
    assert_non_null(store);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 100;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(callers_store_write(store, callers, &problems), CALLERS_UNTOUCHED);
    setrlimit(RLIMIT_FSIZE, &old);
    callers_store_close(store, &problems);
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.texts[0], "cannot be finished: File too large"));
    problems_dispose(&problems);
    text = read_file(place->path);
    assert_string_equal(text, "{\"clients\":[]}");
    free(text);
    assert_int_equal(entries_in(place->dir), 1);
    callers_unref(callers);
}

static void a_lock_that_is_gone_is_told(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_store_t *store = callers_store_open(place->path, true, &problems);

    assert_non_null(store);
    assert_int_equal(rmdir(place->lock), 0);
    callers_store_close(store, &problems);
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.texts[0], "its lock cannot be removed"));
    problems_dispose(&problems);
}

static void a_relative_path_works(void **state)
{
    place_t *place = *state;
    problems_t problems = {NULL, 0};
    callers_t *callers = two();
    callers_store_t *store;
    char back[4096];
    struct stat st;

    assert_non_null(getcwd(back, sizeof(back)));
    assert_int_equal(chdir(place->dir), 0);
    store = callers_store_open("clients.json", true, &problems);
    assert_non_null(store);
    assert_int_equal(chdir("/"), 0); /* the directory was opened, so it is the same one */
    assert_int_equal(callers_store_write(store, callers, &problems), CALLERS_WRITTEN);
    callers_store_close(store, &problems);
    assert_int_equal(chdir(back), 0);
    assert_int_equal(stat(place->path, &st), 0);
    callers_unref(callers);
}

#define on_disk(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_is_added),
        cmocka_unit_test(a_caller_that_cannot_be_added),
        cmocka_unit_test(an_allowance_is_set_and_removed),
        cmocka_unit_test(a_rotation_is_a_cutover),
        cmocka_unit_test(a_rotation_may_overlap),
        cmocka_unit_test(limits_of_an_overlap),
        cmocka_unit_test(an_overlap_never_prolongs_a_token),
        cmocka_unit_test(a_token_of_later_gives_way),
        cmocka_unit_test(a_caller_is_revoked),
        cmocka_unit_test(lists_are_sorted_and_show_no_hash),
        cmocka_unit_test(an_edited_set_reads_back),
        on_disk(a_new_file_is_0600_whatever_the_umask),
        on_disk(an_old_file_keeps_its_mode_and_owner),
        on_disk(an_absent_file_is_only_made_on_purpose),
        on_disk(only_a_regular_file_is_edited),
        on_disk(one_edit_at_a_time),
        on_disk(a_broken_file_is_told_and_left),
        on_disk(a_file_changed_meanwhile_is_not_overwritten),
        on_disk(a_write_that_fails_leaves_the_old_file),
        on_disk(a_lock_that_is_gone_is_told),
        on_disk(a_relative_path_works),
    };

    random_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
