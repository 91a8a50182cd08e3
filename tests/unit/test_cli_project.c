/* A directory as a project, and artifacts as files: the limits of spec protocol 2.5 one below, at and one above, and
 * that nothing outside is read or written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/artifacts.h"
#include "cli/project.h"
#include "core/mem.h"
#include "core/random.h"

static char root[64], why[PROJECT_ERROR_MAX];
static project_t project;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static int begin(void **state)
{
    (void)state;
    random_init();
    strcpy(root, "/tmp/test_cli_project_XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(mkdir("p", 0755), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_int_equal(chdir("/"), 0);
    project_dispose(&project);
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static void reads(size_t count, size_t bytes)
{
    project_dispose(&project);
    if (!project_read("p", &project, why))
        fail_msg("%s", why);
    assert_int_equal(project.count, count);
    assert_int_equal(project.bytes, bytes);
}

static void refuses(const char *text)
{
    project_dispose(&project);
    if (project_read("p", &project, why))
        fail_msg("it was read; wanted: %s", text);
    if (strcmp(why, text) != 0)
        fail_msg("it said %s; wanted: %s", why, text);
    assert_int_equal(project.count, 0);
}

static void test_files_by_their_paths(void **state)
{
    (void)state;
    mkdir("p/a", 0755);
    mkdir("p/empty", 0755);
    put_text("p/a/z", "1");
    put_text("p/a.js", "22");
    put_text("p/.hidden", "");
    put("p/nul", "x\0y", 3);
    reads(4, 6);
    static const char *const paths[] = {".hidden", "a.js", "a/z", "nul"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(project.files[i]->path, paths[i]);
    assert_int_equal(project.files[0]->content.len, 0);
    assert_memory_equal(project.files[3]->content.data, "x\0y", 3);
}

static void test_what_is_left_out(void **state)
{
    (void)state;
    mkdir("p/.git", 0755);
    mkdir("p/node_modules", 0755);
    mkdir("p/sub", 0755);
    mkdir("p/sub/node_modules", 0755);
    put("p/.git/objects", "\xff", 1);
    put("p/node_modules/x", "\xff", 1);
    put("p/sub/node_modules/x", "\xff", 1);
    put_text("p/sub/kept", "1");
    reads(1, 1);
    assert_string_equal(project.files[0]->path, "sub/kept");
}

static void test_nothing_that_is_no_plain_file(void **state)
{
    (void)state;
    put_text("secret", "s");
    assert_int_equal(symlink("../secret", "p/link"), 0);
    refuses("link: is a symbolic link: a project holds plain files");
    unlink("p/link");
    assert_int_equal(symlink("/etc", "p/dir"), 0);
    refuses("dir: is a symbolic link: a project holds plain files");
    unlink("p/dir");
    assert_int_equal(mkfifo("p/fifo", 0644), 0);
    refuses("fifo: is no plain file and no directory");
    unlink("p/fifo");
    reads(0, 0);
}

static void test_text_only(void **state)
{
    (void)state;
    mkdir("p/img", 0755);
    put("p/img/a.png", "\x89PNG", 4);
    refuses("img/a.png: is not valid UTF-8: a project holds text files");
}

static void test_count_of_files(void **state)
{
    char path[32];
    (void)state;
    for (int i = 0; i < FILES_MAX - 1; i++) {
        snprintf(path, sizeof(path), "p/f%03d", i);
        put_text(path, "x");
    }
    reads(FILES_MAX - 1, FILES_MAX - 1);
    put_text("p/f199", "x");
    reads(FILES_MAX, FILES_MAX);
    put_text("p/f200", "x");
    refuses("f200: is one file too many: a project has at most 200");
}

static void test_bytes_of_all_files(void **state)
{
    char *big = mem_alloc(FILES_BYTES_MAX + 1);
    (void)state;
    memset(big, 'x', FILES_BYTES_MAX + 1);
    put("p/a", big, FILES_BYTES_MAX - 1);
    reads(1, FILES_BYTES_MAX - 1);
    put("p/a", big, FILES_BYTES_MAX);
    reads(1, FILES_BYTES_MAX);
    put_text("p/b", "");
    reads(2, FILES_BYTES_MAX);
    put_text("p/b", "y");
    refuses("b: with it the project's files hold more than 4194304 bytes together, which is the most");
    unlink("p/b");
    put("p/a", big, FILES_BYTES_MAX + 1);
    refuses("a: with it the project's files hold more than 4194304 bytes together, which is the most");
    free(big);
}

/* Makes p/<depth directories "d">/f. */
static void nest(int depth)
{
    assert_int_equal(chdir("p"), 0);
    for (int i = 0; i < depth; i++) {
        assert_true(mkdir("d", 0755) == 0 || errno == EEXIST);
        assert_int_equal(chdir("d"), 0);
    }
    put_text("f", "x");
    assert_int_equal(chdir(root), 0);
}

static void test_depth(void **state)
{
    (void)state;
    nest(PROJECT_DEPTH_MAX);
    reads(1, 1);
    nest(PROJECT_DEPTH_MAX + 1);
    project_dispose(&project);
    assert_false(project_read("p", &project, why));
    assert_non_null(strstr(why, "d: is nested deeper than 64 directories"));
}

static void test_length_of_a_path(void **state)
{
    char name[256];
    (void)state;
    /* four directories of 204 characters and their slashes, so that 204 are left for the file */
    memset(name, 'n', sizeof(name));
    name[204] = '\0';
    assert_int_equal(chdir("p"), 0);
    for (int i = 0; i < 4; i++) {
        mkdir(name, 0755);
        assert_int_equal(chdir(name), 0);
    }
    put_text(name, "x"); /* 4 * 205 + 204 = 1024 */
    assert_int_equal(chdir(root), 0);
    reads(1, 1);
    assert_int_equal(strlen(project.files[0]->path), PATH_BYTES_MAX);
    assert_int_equal(chdir("p"), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(chdir(name), 0);
    name[204] = 'o';
    name[205] = '\0';
    put_text(name, "x");
    assert_int_equal(chdir(root), 0);
    project_dispose(&project);
    assert_false(project_read("p", &project, why));
    assert_non_null(strstr(why, "with which the path is longer than 1024 bytes"));
}

static void test_names_a_project_cannot_hold(void **state)
{
    (void)state;
    put_text("p/a\nb", "");
    refuses("a?b: a path must not hold a backslash or a control character");
    unlink("p/a\nb");
    put_text("p/a\\b", "");
    refuses("a\\b: a path must not hold a backslash or a control character");
    unlink("p/a\\b");
    put_text("p/\xff", "");
    refuses("?: a path must be valid UTF-8");
}

static void test_entries_are_bounded(void **state)
{
    char path[32];
    (void)state;
    for (int i = 0; i < PROJECT_ENTRIES_MAX; i++) {
        snprintf(path, sizeof(path), "p/d%05d", i);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    reads(0, 0);
    assert_int_equal(mkdir("p/one more", 0755), 0);
    refuses(".: more than 10000 files and directories are below the project's directory");
}

static void test_a_directory_that_is_none(void **state)
{
    (void)state;
    put_text("f", "x");
    assert_false(project_read("f", &project, why));
    assert_string_equal(why, strerror(ENOTDIR));
    assert_false(project_read("nowhere", &project, why));
    assert_string_equal(why, strerror(ENOENT));
}

/* ---- artifacts ---- */

static Plimsoll__V1__Artifact artifacts[4], *list[4];

static Plimsoll__V1__ProjectResult result_of(size_t count, const char *const *paths, const char *content)
{
    Plimsoll__V1__ProjectResult result = PLIMSOLL__V1__PROJECT_RESULT__INIT;
    for (size_t i = 0; i < count; i++) {
        plimsoll__v1__artifact__init(&artifacts[i]);
        artifacts[i].path = (char *)paths[i];
        artifacts[i].content = (ProtobufCBinaryData){.len = strlen(content), .data = (uint8_t *)content};
        list[i] = &artifacts[i];
    }
    result.n_artifacts = count;
    result.artifacts = list;
    return result;
}

static void holds(const char *path, const char *content)
{
    char text[64] = "";
    int fd = open(path, O_RDONLY | O_NOFOLLOW);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(read(fd, text, sizeof(text) - 1), strlen(content));
    assert_string_equal(text, content);
    close(fd);
}

static bool writes(const char *path, const char *content)
{
    Plimsoll__V1__ProjectResult result = result_of(1, &path, content);
    why[0] = '\0';
    return artifacts_write(&result, "out", why);
}

static void test_artifacts_are_written(void **state)
{
    (void)state;
    assert_true(writes("a/b/c.txt", "one"));
    holds("out/a/b/c.txt", "one");
    assert_true(writes("a/b/c.txt", "two")); /* a file in the way is replaced */
    holds("out/a/b/c.txt", "two");
    assert_true(writes("empty", ""));
    holds("out/empty", "");
}

static void test_no_link_is_followed(void **state)
{
    (void)state;
    put_text("outside", "kept");
    mkdir("elsewhere", 0755);
    mkdir("out", 0755);
    assert_int_equal(symlink("../outside", "out/f"), 0);
    assert_int_equal(symlink("../elsewhere", "out/d"), 0);
    assert_true(writes("f", "new")); /* the link is replaced, what it named is not touched */
    holds("out/f", "new");
    holds("outside", "kept");
    assert_false(writes("d/x", "new"));
    assert_string_equal(why, "d/x: a directory of its path is a symbolic link or a file");
    assert_int_equal(access("elsewhere/x", F_OK), -1);
}

static void test_paths_that_lead_out(void **state)
{
    static const char *const bad[] = {"../x", "/tmp/x", "a/../../x", "", ".", "a//b", "a\\b", "a\nb"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (writes(bad[i], "x"))
            fail_msg("written: %s", bad[i]);
    assert_int_equal(access("x", F_OK), -1);
}

static void test_what_is_in_the_way(void **state)
{
    (void)state;
    mkdir("out", 0755);
    mkdir("out/d", 0755);
    assert_false(writes("d", "x"));
    assert_string_equal(why, "d: a directory is in its place");
    put_text("out/f", "x");
    assert_false(writes("f/g", "x"));
    assert_string_equal(why, "f/g: a directory of its path is a symbolic link or a file");
    /* nothing of a failed try is left */
    assert_int_equal(rmdir("out/d"), 0);
    unlink("out/f");
    assert_int_equal(rmdir("out"), 0);
}

static void test_only_what_was_asked_for_in_its_order(void **state)
{
    static const char *const asked[] = {"a", "b", "c"};
    static const struct {
        const char *paths[3];
        size_t count;
        bool holds;
    } rows[] = {{{NULL}, 0, true}, {{"a", "b", "c"}, 3, true}, {{"b"}, 1, true},       {{"a", "c"}, 2, true},
                {{"d"}, 1, false}, {{"b", "a"}, 2, false},     {{"a", "a"}, 2, false}, {{"a", "../x"}, 2, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        Plimsoll__V1__ProjectResult result = result_of(rows[i].count, rows[i].paths, "");
        assert_int_equal(artifacts_check(&result, (char *const *)asked, 3) == NULL, rows[i].holds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files_by_their_paths, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_left_out, begin, end),
        cmocka_unit_test_setup_teardown(test_nothing_that_is_no_plain_file, begin, end),
        cmocka_unit_test_setup_teardown(test_text_only, begin, end),
        cmocka_unit_test_setup_teardown(test_count_of_files, begin, end),
        cmocka_unit_test_setup_teardown(test_bytes_of_all_files, begin, end),
        cmocka_unit_test_setup_teardown(test_depth, begin, end),
        cmocka_unit_test_setup_teardown(test_length_of_a_path, begin, end),
        cmocka_unit_test_setup_teardown(test_names_a_project_cannot_hold, begin, end),
        cmocka_unit_test_setup_teardown(test_entries_are_bounded, begin, end),
        cmocka_unit_test_setup_teardown(test_a_directory_that_is_none, begin, end),
        cmocka_unit_test_setup_teardown(test_artifacts_are_written, begin, end),
        cmocka_unit_test_setup_teardown(test_no_link_is_followed, begin, end),
        cmocka_unit_test_setup_teardown(test_paths_that_lead_out, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_in_the_way, begin, end),
        cmocka_unit_test_setup_teardown(test_only_what_was_asked_for_in_its_order, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
