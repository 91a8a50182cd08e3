/* What E2B answers, from hostile bytes: never a crash; what is accepted may go into a header, a path and the ledger.
 * The first byte chooses who reads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/e2b/answer.h"
#include "backends/e2b/upload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char why[E2B_TEXT_MAX];

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_created(const uint8_t *data, size_t size)
{
    static const char *const more[] = {"e2b.example", NULL};
    e2b_created_rules_t rules = {.domain = "e2b.app", .more_domains = more, .needs_label = size % 2 != 0};
    static e2b_created_t out;
    e2b_created_end_t end = e2b_created_read(data, size, &rules, &out, why);
    check((end == E2B_CREATED_UNREADABLE) == (out.id[0] == '\0'));
    check((end == E2B_CREATED_USABLE) == (why[0] == '\0'));
    if (end != E2B_CREATED_UNREADABLE)
        check(e2b_is_id(out.id) && strpbrk(out.id, "/.?#% \r\n") == NULL);
    if (end == E2B_CREATED_USABLE) {
        check(out.token[0] != '\0' && strlen(out.token) <= E2B_TOKEN_MAX);
        for (const char *c = out.token; *c != '\0'; ++c)
            check(*c > ' ' && *c <= '~');
        check(!rules.needs_label || e2b_is_label_id(out.id));
    }
}

static void check_detail(const uint8_t *data, size_t size)
{
    e2b_expected_t expected = {.id = "iabc",
                               .installation = "0123456789abcdef",
                               .stamp = "fedcba9876543210",
                               .cpus_max = 4,
                               .memory_max_mb = 4096};
    e2b_size_t box;
    if (e2b_detail_read(data, size, &expected, &box, why) == E2B_DETAIL_RIGHT) {
        check(box.cpus >= 1 && box.cpus <= 4 && box.memory_mb >= 1 && box.memory_mb <= 4096);
        check(e2b_detail_is_ours(data, size, &expected, why));
    } else {
        check(why[0] != '\0');
    }
}

static void on_listed(void *data, const char *id, const char *stamp)
{
    check(e2b_is_id(id) && ledger_is_stamp(stamp));
    ++*(size_t *)data;
}

static void check_page(const uint8_t *data, size_t size)
{
    size_t count = 0;
    if (!e2b_page_read(data, size, "00112233445566778899aabbccddeeff", NULL, on_listed, &count, why))
        check(count == 0 && why[0] != '\0');
}

static void check_error(const uint8_t *data, size_t size)
{
    e2b_error_t error;
    e2b_error_read(data, size, NULL, &error);
    check(error.is_shaped || (error.message[0] == '\0' && error.code[0] == '\0'));
    /* the two that say that nothing was made need the body's word for it */
    e2b_create_end_t end = e2b_create_judge(429, data, size, 0);
    check(end == E2B_CREATE_FULL || end == E2B_CREATE_UNKNOWN);
    check(end != E2B_CREATE_FULL || error.is_shaped);
    check(e2b_create_judge(503, data, size, 1000) == E2B_CREATE_UNKNOWN);
}

static void check_files(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"/a", "/b"};
    static char hashes[2][SHA256_HEX + 1];
    uint64_t bytes;
    if (hashes[0][0] == '\0') {
        sha256_hex("", 0, hashes[0]);
        sha256_hex("abc", 3, hashes[1]);
    }
    e2b_written_read(data, size, paths, 2, why);
    e2b_stat_read(data, size, &bytes);
    if (e2b_hashes_match(data, size, paths, hashes, 2, why))
        check(size == 2 * (SHA256_HEX + 2 + 2 + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const uint8_t *, size_t) = {check_created, check_detail, check_page, check_error,
                                                               check_files};
    if (size > 0)
        readers[data[0] % 5](data + 1, size - 1);
    return 0;
}
