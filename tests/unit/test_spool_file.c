/* One spool file: every cut and every changed byte is told apart, and nothing before it is lost. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/random.h"
#include "records/spool_file.h"

enum { RECORDS = 4, IMAGE_MAX = 4096 };

/* Lengths with and without padding, and an empty one. */
static const char *const TEXTS[RECORDS] = {"one record of odd length!!", "", "exactly8", "the last of them"};

static uint8_t image[IMAGE_MAX];
static size_t image_len;
static uint64_t frame_at[RECORDS + 1]; /* where each begins, and the end */

static int memory_file(const uint8_t *base, size_t len)
{
    int fd = memfd_create("spool", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, base, len, 0), (ssize_t)len);
    return fd;
}

static uint64_t size_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_size;
}

static bool append_text(spool_file_t *f, uint32_t key, const char *text)
{
    size_t half = strlen(text) / 2;
    spool_piece_t pieces[2] = {{text, half}, {text + half, strlen(text) - half}};
    return spool_file_append(f, key, 1790000000000 + key, pieces, 2);
}

static int make_image(void **state)
{
    (void)state;
    random_init();
    spool_file_t *f = spool_file_begin(memory_file(NULL, 0), 7);
    assert_non_null(f);
    for (uint32_t i = 0; i != RECORDS; ++i) {
        frame_at[i] = f->end;
        assert_true(append_text(f, i, TEXTS[i]));
    }
    frame_at[RECORDS] = f->end;
    assert_true(spool_file_sync(f));
    image_len = (size_t)f->end;
    assert_true(image_len <= IMAGE_MAX);
    assert_int_equal(pread(f->fd, image, image_len, 0), (ssize_t)image_len);
    spool_file_close(f);
    return 0;
}

static void check_records(const spool_file_t *f, uint32_t count)
{
    uint64_t at = SPOOL_FILE_HEADER;
    spool_frame_t frame;
    for (uint32_t i = 0; i != count; ++i) {
        assert_int_equal(spool_file_read(f, at, f->end, true, &frame), SPOOL_FRAME);
        assert_int_equal(frame.len, strlen(TEXTS[i]));
        assert_memory_equal(frame.payload, TEXTS[i], frame.len);
        assert_int_equal(frame.order_key, i);
        assert_int_equal(frame.appended_ms, 1790000000000 + i);
        free(frame.payload);
        at += spool_frame_size(frame.len);
    }
    assert_int_equal(at, f->end);
}

static void test_what_was_written_is_read(void **state)
{
    (void)state;
    uint64_t cut;
    spool_file_t *f = spool_file_adopt(memory_file(image, image_len), &cut);
    assert_non_null(f);
    assert_int_equal(cut, 0);
    assert_false(f->corrupt);
    assert_int_equal(f->number, 7);
    assert_int_equal(f->count, RECORDS);
    assert_int_equal(f->taken, 0);
    check_records(f, RECORDS);
    assert_int_equal(spool_file_oldest_ms(f), 1790000000000);
    spool_file_close(f);
}

static uint32_t whole_frames(uint64_t len)
{
    uint32_t n = 0;
    while (n != RECORDS && frame_at[n + 1] <= len)
        ++n;
    return n;
}

static void test_a_tail_torn_at_any_byte_is_cut_and_the_rest_stands(void **state)
{
    (void)state;
    for (size_t len = 0; len != image_len; ++len) {
        uint64_t cut;
        spool_file_t *f = spool_file_adopt(memory_file(image, len), &cut);
        assert_non_null(f);
        assert_false(f->corrupt);
        uint32_t whole = whole_frames(len);
        assert_int_equal(f->count, whole);
        if (len < SPOOL_FILE_HEADER) {
            assert_int_equal(cut, len);
            assert_true(spool_file_is_done(f));
        } else {
            assert_int_equal(cut, len - frame_at[whole]);
            assert_int_equal(size_of(f->fd), frame_at[whole]);
            check_records(f, whole);
        }
        spool_file_close(f);
    }
}

static void test_a_tail_of_zeros_is_torn_too(void **state)
{
    (void)state;
    for (uint32_t whole = 0; whole <= RECORDS; ++whole) {
        uint64_t cut;
        uint8_t padded[IMAGE_MAX + 512] = {0};
        memcpy(padded, image, (size_t)frame_at[whole]);
        spool_file_t *f = spool_file_adopt(memory_file(padded, (size_t)frame_at[whole] + 512), &cut);
        assert_false(f->corrupt);
        assert_int_equal(cut, 512);
        check_records(f, whole);
        spool_file_close(f);
    }
    uint64_t cut;
    uint8_t zeros[300] = {0};
    spool_file_t *f = spool_file_adopt(memory_file(zeros, sizeof(zeros)), &cut);
    assert_false(f->corrupt);
    assert_int_equal(f->count, 0);
    spool_file_close(f);
}

static bool is_in_a_mark(size_t at)
{
    for (uint32_t i = 0; i != RECORDS; ++i)
        if (at >= frame_at[i] + 40 && at < frame_at[i] + 48)
            return true;
    return false;
}

static void test_a_changed_byte_anywhere_is_never_taken_for_a_record_or_an_end(void **state)
{
    (void)state;
    static const uint8_t changes[] = {0x01, 0x80, 0xff, 0x20};
    for (size_t at = 0; at != image_len; ++at) {
        for (size_t c = 0; c != sizeof(changes); ++c) {
            uint64_t cut;
            image[at] ^= changes[c];
            spool_file_t *f = spool_file_adopt(memory_file(image, image_len), &cut);
            image[at] ^= changes[c];
            assert_non_null(f);
            assert_int_equal(cut, 0);
            if (at < SPOOL_FILE_HEADER) {
                assert_true(f->corrupt);
                assert_int_equal(f->corrupt_at, 0);
                assert_int_equal(f->count, 0);
            } else if (is_in_a_mark(at)) {
                /* no mark of ours: the record is whole and is sent again */
                assert_false(f->corrupt);
                assert_int_equal(f->taken, 0);
                check_records(f, RECORDS);
            } else {
                uint32_t before = whole_frames(at);
                assert_true(f->corrupt);
                assert_int_equal(f->corrupt_at, frame_at[before]);
                assert_int_equal(f->count, before);
                check_records(f, before);
            }
            spool_file_close(f);
        }
    }
}

static void test_a_frame_moved_elsewhere_is_no_record(void **state)
{
    (void)state;
    uint64_t cut;
    uint8_t moved[IMAGE_MAX];
    size_t len = (size_t)(frame_at[1] - frame_at[0]);
    memcpy(moved, image, image_len);
    memcpy(moved + frame_at[1], image + frame_at[0], len); /* the first again, in place of the second and on */
    spool_file_t *f = spool_file_adopt(memory_file(moved, image_len), &cut);
    assert_true(f->corrupt);
    assert_int_equal(f->count, 1);
    spool_file_close(f);
}

static void test_marks_are_found_again(void **state)
{
    (void)state;
    uint64_t cut;
    int fd = memory_file(image, image_len);
    spool_file_t *f = spool_file_adopt(dup(fd), &cut);
    spool_file_mark(f, frame_at[1], 1);
    spool_file_mark(f, frame_at[0], 0);
    spool_file_mark(f, frame_at[0], 0); /* once is enough */
    assert_int_equal(f->taken, 2);
    assert_int_equal(f->lowest, 2);
    assert_int_equal(spool_file_oldest_ms(f), 1790000000002);
    spool_file_close(f);
    f = spool_file_adopt(fd, &cut);
    assert_int_equal(f->taken, 2);
    assert_true(f->entries[0].taken && f->entries[1].taken && !f->entries[2].taken);
    spool_file_mark(f, frame_at[2], 2);
    assert_false(spool_file_is_done(f));
    spool_file_mark(f, frame_at[3], 3);
    assert_true(spool_file_is_done(f));
    assert_int_equal(spool_file_oldest_ms(f), 0);
    assert_true(spool_file_reset(f));
    assert_int_equal(size_of(f->fd), SPOOL_FILE_HEADER);
    assert_true(append_text(f, 0, TEXTS[0]));
    check_records(f, 1);
    spool_file_close(f);
}

static void test_the_largest_payload_and_one_byte_more(void **state)
{
    (void)state;
    uint64_t cut;
    uint8_t *big = mem_alloc(SPOOL_PAYLOAD_MAX + 1);
    spool_file_t *f = spool_file_begin(memory_file(NULL, 0), 1);
    spool_piece_t piece = {big, SPOOL_PAYLOAD_MAX + 1};
    assert_false(spool_file_append(f, 0, 1, &piece, 1));
    assert_int_equal(errno, EFBIG);
    assert_int_equal(f->end, SPOOL_FILE_HEADER);
    piece.len = SPOOL_PAYLOAD_MAX;
    assert_true(spool_file_append(f, 0, 1, &piece, 1));
    piece.len = SPOOL_PAYLOAD_MAX - 1;
    assert_true(spool_file_append(f, 0, 1, &piece, 1));
    int fd = dup(f->fd);
    spool_file_close(f);
    f = spool_file_adopt(fd, &cut);
    assert_int_equal(f->count, 2);
    assert_false(f->corrupt);
    spool_file_close(f);
    free(big);
}

static void test_what_was_not_synced_can_be_cut_back(void **state)
{
    (void)state;
    spool_file_t *f = spool_file_begin(memory_file(NULL, 0), 1);
    assert_true(append_text(f, 0, TEXTS[0]));
    assert_true(spool_file_sync(f));
    assert_true(append_text(f, 1, TEXTS[2]));
    assert_int_equal(f->count, 2);
    spool_file_cut_back(f);
    assert_int_equal(f->count, 1);
    assert_int_equal(size_of(f->fd), f->synced);
    check_records(f, 1);
    spool_file_close(f);
}

static void test_a_directory_or_a_pipe_is_no_file(void **state)
{
    (void)state;
    uint64_t cut;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_null(spool_file_adopt(fds[0], &cut));
    assert_int_equal(errno, EINVAL);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_a_tail_torn_at_any_byte_is_cut_and_the_rest_stands),
        cmocka_unit_test(test_a_tail_of_zeros_is_torn_too),
        cmocka_unit_test(test_a_changed_byte_anywhere_is_never_taken_for_a_record_or_an_end),
        cmocka_unit_test(test_a_frame_moved_elsewhere_is_no_record),
        cmocka_unit_test(test_marks_are_found_again),
        cmocka_unit_test(test_the_largest_payload_and_one_byte_more),
        cmocka_unit_test(test_what_was_not_synced_can_be_cut_back),
        cmocka_unit_test(test_a_directory_or_a_pipe_is_no_file),
    };
    return cmocka_run_group_tests(tests, make_image, NULL);
}
