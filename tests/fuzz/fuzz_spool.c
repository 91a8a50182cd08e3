/*
 * The spool on arbitrary bytes. The first byte chooses: a file as a dead process may have left it, or the payload of a
 * frame, which the checks of a file let nobody guess.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "records/spool_file.h"
#include "records/spool_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void take_payload(const uint8_t *data, size_t size)
{
    spool_record_t record;
    if (spool_record_unpack(data, size, &record) != NULL)
        return;
    const store_settlement_t *s = &record.settlement;
    expect(s->verdict <= VERDICT_UNKNOWN && strlen(s->run_id) == 32);
    expect(s->caller[0] != '\0' && strlen(s->caller) <= 256);
    spool_record_dispose(&record);
}

/* Every record that is told of can be read, and the file ends where the last of them does. */
static void read_all(const spool_file_t *f)
{
    uint64_t at = f->end < SPOOL_FILE_HEADER ? f->end : SPOOL_FILE_HEADER;
    for (uint32_t i = 0; i != f->count; ++i) {
        spool_frame_t frame;
        expect(spool_file_read(f, at, f->end, true, &frame) == SPOOL_FRAME);
        expect(frame.taken == f->entries[i].taken);
        take_payload(frame.payload, frame.len);
        free(frame.payload);
        at += spool_frame_size(frame.len);
    }
    expect(at == f->end);
}

static void take_file(const uint8_t *data, size_t size)
{
    uint64_t cut;
    int fd = memfd_create("spool", MFD_CLOEXEC);
    if (fd < 0)
        return;
    expect(pwrite(fd, data, size, 0) == (ssize_t)size);
    spool_file_t *f = spool_file_adopt(fd, &cut);
    if (f == NULL) {
        close(fd);
        return;
    }
    expect(f->end <= size && cut <= size && f->taken <= f->count);
    read_all(f);
    if (!f->corrupt && f->end >= SPOOL_FILE_HEADER) {
        uint32_t before = f->count;
        expect(spool_file_append(f, 7, 1, &(spool_piece_t){data, size < 100 ? size : 100}, 1));
        expect(f->count == before + 1);
        spool_file_mark(f, SPOOL_FILE_HEADER, 0);
        expect(f->entries[0].taken);
    }
    spool_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0)
        take_file(data + 1, size - 1);
    else
        take_payload(data + 1, size - 1);
    return 0;
}
