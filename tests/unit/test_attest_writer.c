/* Reading a bundle's lines within their bound, and appending to one: whole lines and a checkpoint, or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/unit/attest_fixture.h"

typedef struct {
    fixture_t f;
    int fd;
} file_t;

static int setup(void **state)
{
    file_t *file = calloc(1, sizeof(*file));
    char path[] = "/tmp/attest-XXXXXX";
    fixture_of_vectors(&file->f);
    file->fd = mkstemp(path);
    unlink(path);
    *state = file;
    return file->fd < 0;
}

static int teardown(void **state)
{
    file_t *file = *state;
    fixture_dispose(&file->f);
    close(file->fd);
    free(file);
    return 0;
}

static uint64_t size_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_size;
}

static const char *verify(const file_t *file, attest_summary_t *summary)
{
    static char why[1024];
    attest_verifier_t *v = attest_verifier_create(attest_key_public(file->f.key), NULL, NULL);
    const char *told = attest_bundle_verify(file->fd, v);
    *summary = attest_verifier_summary(v);
    if (told != NULL)
        snprintf(why, sizeof(why), "%s", told);
    attest_verifier_destroy(v);
    return told != NULL ? why : NULL;
}

/* Contents `first` to `last`, appended as one. NULL or why not; valid until the next call. */
static const char *append(const file_t *file, size_t first, size_t last, attest_prefix_t prefix)
{
    static char why[ATTEST_WRITER_ERROR_MAX];
    uint64_t size = 0;
    attest_verifier_t *v = attest_verifier_create(attest_key_public(file->f.key), NULL, NULL);
    attest_writer_t w;
    assert_null(attest_bundle_read_to_continue(file->fd, v, &size));
    attest_writer_init(&w, file->fd, size, v, file->f.key);
    const char *told = NULL;
    for (size_t i = first; told == NULL && i <= last; i++) {
        buffer_t entry = fixture_entry(&file->f, i, prefix);
        told = attest_writer_add(&w, &entry);
        buffer_dispose(&entry);
    }
    if (told == NULL)
        told = attest_writer_finish(&w);
    if (told != NULL)
        snprintf(why, sizeof(why), "%s", told);
    attest_writer_dispose(&w);
    attest_verifier_destroy(v);
    return told != NULL ? why : NULL;
}

static void test_what_is_appended_verifies(void **state)
{
    file_t *file = *state;
    attest_summary_t s;
    assert_string_equal(verify(file, &s), "the bundle is empty");
    assert_null(append(file, 0, 0, ATTEST_OURS));
    assert_null(verify(file, &s));
    assert_int_equal(s.lines, 2);
    assert_null(append(file, 0, 0, ATTEST_OURS)); /* the same call may have been made twice */
    assert_null(append(file, 1, 4, ATTEST_OURS));
    assert_null(verify(file, &s));
    assert_int_equal(s.lines, 9);
    assert_int_equal(s.single_runs, 2);
    assert_int_equal(s.prefix, ATTEST_OURS);
}

static void test_a_chain_without_its_end_is_not_appended(void **state)
{
    file_t *file = *state;
    attest_summary_t s;
    assert_null(append(file, 0, 0, ATTEST_OURS));
    uint64_t size = size_of(file->fd);
    assert_string_equal(append(file, 1, 3, ATTEST_OURS),
                        "session 5947d7c33d78 is never closed; the bundle is as it was");
    assert_string_equal(append(file, 2, 4, ATTEST_OURS),
                        "line 3: a session's calls are not numbered without a gap; the bundle is as it was");
    assert_int_equal(size_of(file->fd), size);
    assert_null(verify(file, &s));
}

/* A bundle that the reference began goes on under the reference's types, so that its tool still reads it. */
static void test_the_prefix_is_the_bundles(void **state)
{
    file_t *file = *state;
    attest_summary_t s;
    forged_t forged;
    buffer_t entry = fixture_entry(&file->f, 0, ATTEST_REFERENCE);
    forge_init(&forged, file->f.key);
    assert_true(attest_line_write(&forged.text, file->f.key, ATTEST_REFERENCE, &entry, 0, forged.last));
    sha256_hex(forged.text.base, forged.text.len - 1, forged.last);
    assert_true(attest_line_write(&forged.text, file->f.key, ATTEST_REFERENCE, NULL, 1, forged.last));
    assert_int_equal(write(file->fd, forged.text.base, forged.text.len), forged.text.len);
    buffer_dispose(&forged.text);
    buffer_dispose(&entry);
    assert_null(append(file, 1, 4, ATTEST_REFERENCE));
    assert_null(verify(file, &s));
    assert_int_equal(s.prefix, ATTEST_REFERENCE);
    char text[32768] = "";
    assert_in_range(pread(file->fd, text, sizeof(text) - 1, 0), 1, sizeof(text) - 1);
    /* base64 of urn:plimsoll-gateway at each of its three offsets */
    assert_null(strstr(text, "dXJuOnBsaW1zb2xsLWdhdGV3YX"));
    assert_null(strstr(text, "VybjpwbGltc29sbC1nYXRld2F5"));
    assert_null(strstr(text, "1cm46cGxpbXNvbGwtZ2F0ZXdheT"));
}

/* Section 11: a write failure in the middle of a line. */
static void test_a_failed_write_leaves_the_bundle_as_it_was(void **state)
{
    file_t *file = *state;
    attest_summary_t s;
    struct rlimit kept, small;
    assert_null(append(file, 0, 0, ATTEST_OURS));
    uint64_t size = size_of(file->fd);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &kept);
    small = kept;
    for (size_t more = 0; more < 3000; more += 599) {
        small.rlim_cur = size + more;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        const char *why = append(file, 0, 0, ATTEST_OURS);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
        assert_string_equal(why, "the bundle cannot be written: File too large; the bundle is as it was");
        assert_int_equal(size_of(file->fd), size);
        assert_null(verify(file, &s));
    }
    assert_null(append(file, 0, 0, ATTEST_OURS));
    assert_null(verify(file, &s));
    assert_int_equal(s.lines, 4);
}

static void test_a_file_that_takes_nothing_is_told(void **state)
{
    file_t *file = *state;
    assert_null(append(file, 0, 0, ATTEST_OURS));
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC), kept = file->fd;
    assert_true(fd >= 0);
    file->fd = fd;
    const char *why = append(file, 0, 0, ATTEST_OURS);
    file->fd = kept;
    close(fd);
    assert_string_equal(why, "the bundle cannot be written: Bad file descriptor; the bundle is as it was");
}

/* The one failure that leaves a bundle damaged says where to cut it. */
static void test_a_bundle_that_cannot_be_put_back_is_told(void **state)
{
    file_t *file = *state;
    struct rlimit kept, small;
    close(file->fd);
    file->fd = memfd_create("bundle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_null(append(file, 0, 0, ATTEST_OURS));
    uint64_t size = size_of(file->fd);
    assert_int_equal(fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &kept);
    small = kept;
    small.rlim_cur = size + 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const char *why = append(file, 0, 0, ATTEST_OURS);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
    char wanted[256];
    snprintf(wanted, sizeof(wanted),
             "the bundle cannot be written: File too large; and it could not be put back (Operation not permitted): "
             "cut it to %llu bytes before using it again",
             (unsigned long long)size);
    assert_string_equal(why, wanted);
    assert_int_equal(size_of(file->fd), size + 100);
}

static void test_what_does_not_verify_is_not_continued(void **state)
{
    file_t *file = *state;
    uint64_t size = 0;
    attest_verifier_t *v = attest_verifier_create(attest_key_public(file->f.key), NULL, NULL);
    assert_null(append(file, 0, 0, ATTEST_OURS));
    assert_int_equal(pwrite(file->fd, "{", 1, (off_t)size_of(file->fd)), 1);
    assert_string_equal(attest_bundle_read_to_continue(file->fd, v, &size), "line 3: it does not end in a newline");
    attest_verifier_destroy(v);
}

static void test_one_holds_the_lock(void **state)
{
    file_t *file = *state;
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
    int other = open(path, O_RDWR | O_CLOEXEC);
    assert_true(attest_bundle_lock(file->fd, 0));
    assert_false(attest_bundle_lock(other, 50));
    assert_int_equal(errno, EWOULDBLOCK);
    close(file->fd);
    assert_true(attest_bundle_lock(other, 0));
    file->fd = other;
}

static void test_a_line_has_64_mib(void **state)
{
    file_t *file = *state;
    const char *line, *err;
    size_t len;
    for (int over = -1; over <= 1; over++) {
        attest_lines_t lines;
        off_t newline = (off_t)ATTEST_LINE_MAX - 1 + over;
        assert_int_equal(ftruncate(file->fd, 0), 0);
        assert_int_equal(pwrite(file->fd, "\n", 1, newline), 1); /* zeros before it */
        attest_lines_init(&lines, file->fd);
        bool got = attest_lines_next(&lines, &line, &len, &err);
        assert_int_equal(got, over <= 0);
        if (got) {
            assert_int_equal(len, newline);
            assert_false(attest_lines_next(&lines, &line, &len, &err));
            assert_null(err);
        } else {
            assert_string_equal(err, "it is longer than 64 MiB");
        }
        attest_lines_dispose(&lines);
    }
    /* no newline at all: refused without reading on for ever */
    attest_lines_t lines;
    assert_int_equal(ftruncate(file->fd, 0), 0);
    assert_int_equal(ftruncate(file->fd, (off_t)1 << 40), 0);
    attest_lines_init(&lines, file->fd);
    assert_false(attest_lines_next(&lines, &line, &len, &err));
    assert_string_equal(err, "it is longer than 64 MiB");
    attest_lines_dispose(&lines);
}

static void test_an_entry_too_large_for_a_line(void **state)
{
    file_t *file = *state;
    buffer_t entry;
    forged_t forged;
    for (int over = -1; over <= 1; over++) {
        forge_init(&forged, file->f.key);
        buffer_init(&entry, (size_t)1 << 28);
        /* The link around an entry of one byte tells how much a link takes. */
        buffer_append_str(&entry, "{}");
        forge_line(&forged, &entry);
        size_t link = forged.text.len - entry.len;
        buffer_clear(&forged.text);
        forged.lines = 0;
        forged.last[0] = '\0';
        buffer_clear(&entry);
        size_t size = (size_t)ATTEST_LINE_MAX - link + (size_t)over;
        memset(buffer_reserve(&entry, size), 'x', size);
        buffer_commit(&entry, size);
        assert_int_equal(attest_line_write(&forged.text, file->f.key, ATTEST_OURS, &entry, 0, forged.last), over <= 0);
        buffer_dispose(&entry);
        buffer_dispose(&forged.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_appended_verifies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_chain_without_its_end_is_not_appended, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_prefix_is_the_bundles, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_failed_write_leaves_the_bundle_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_takes_nothing_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_bundle_that_cannot_be_put_back_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_does_not_verify_is_not_continued, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_holds_the_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_line_has_64_mib, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_entry_too_large_for_a_line, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
