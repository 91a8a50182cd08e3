/* The log of records over a real Redis: what it answers is what a whole tree in memory says, and a log that is not what
 * it was is noticed. */
#include "store_fixture.h"

#include "records/merkle.h"
#include "records/record_log.h"
#include "records/record_tree.h"

#define KEY "plimsoll:2:{test}:log"

static record_log_t *rlog;
static merkle_tree_t *whole; /* what the log should be */
static uint64_t pushed;
static struct {
    uint64_t size;
    bool is_current, is_changed;
} state_seen;

static void note_state(void *data, uint64_t size, bool is_current, bool is_changed)
{
    (void)data;
    state_seen.size = size;
    state_seen.is_current = is_current;
    state_seen.is_changed = is_changed;
}

/* The n-th record's digest. */
static void leaf_of(uint64_t n, uint8_t out[32])
{
    sha256_t *s = sha256_begin();
    sha256_add(s, &n, sizeof(n));
    sha256_end(s, out);
}

static void push(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint8_t data[32];
        merkle_hash_t leaf;
        leaf_of(pushed++, data);
        merkle_leaf(data, sizeof(data), &leaf);
        merkle_tree_append(whole, &leaf);
        redisAppendCommand(fx.direct, "RPUSH " KEY " %b", data, sizeof(data));
    }
    for (uint64_t i = 0; i < count; i++) {
        redisReply *reply;
        assert_int_equal(redisGetReply(fx.direct, (void **)&reply), REDIS_OK);
        assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
        freeReplyObject(reply);
    }
}

static void log_open(void)
{
    state_seen.is_current = state_seen.is_changed = false;
    rlog = record_log_create(fx.loop, &fx.address, KEY, note_state, NULL);
}

static int set_up(void **state)
{
    (void)state;
    direct_do("DEL " KEY);
    whole = merkle_tree_create();
    pushed = 0;
    log_open();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    record_log_destroy(rlog);
    rlog = NULL;
    merkle_tree_destroy(whole);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    random_init();
    snprintf(fx.dir, sizeof(fx.dir), "%s/plimsoll-log-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(fx.dir));
    snprintf(fx.sock, sizeof(fx.sock), "%s/redis.sock", fx.dir);
    server_start();
    fx.address = (redis_address_t){.path = fx.sock};
    fx.loop = loop_create();
    return 0;
}

static int end(void **state)
{
    (void)state;
    loop_run_once(fx.loop, 0);
    loop_destroy(fx.loop);
    if (fx.pid != 0)
        server_kill();
    return nftw(fx.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

typedef struct {
    unsigned calls;
    record_log_answer_t said;
    char problem[RECORD_LOG_PROBLEM_MAX];
} heard_t;

static void note_answer(void *data, const record_log_answer_t *answer)
{
    heard_t *heard = data;
    heard->calls++;
    heard->said = *answer;
    snprintf(heard->problem, sizeof(heard->problem), "%s", answer->problem);
}

static heard_t ask(record_log_kind_t kind, bool is_newest, uint64_t first, uint64_t size)
{
    heard_t heard = {.calls = 0};
    record_log_question_t q = {.kind = kind, .is_newest = is_newest, .first = first, .size = size};
    record_log_ask(rlog, &q, note_answer, &heard);
    assert_int_equal(heard.calls, 0);
    await_calls(&heard.calls);
    return heard;
}

/* Until the log has read all that was pushed: right after a start, a question may come before the connection. */
static heard_t ask_head(void)
{
    uint64_t until = clock_mono_ms() + WAIT_MS;
    for (;;) {
        heard_t heard = ask(RECORD_LOG_HEAD, true, 0, 0);
        if (heard.said.status != RECORD_LOG_AWAY && heard.said.status != RECORD_LOG_READING)
            return heard;
        assert_true(clock_mono_ms() < until);
        turn_for(10);
    }
}

static void expect_root(const merkle_hash_t *root, uint64_t size)
{
    merkle_hash_t wanted;
    assert_true(merkle_root_at(merkle_tree_node_at, whole, size, &wanted));
    assert_memory_equal(root, &wanted, sizeof(wanted));
}

static void expect_head(uint64_t size)
{
    heard_t heard = ask_head();
    assert_int_equal(heard.said.status, RECORD_LOG_OK);
    assert_int_equal(heard.said.size, size);
    assert_true(heard.said.time_unix_ms > 0);
    expect_root(&heard.said.root, size);
}

static void expect_inclusion(uint64_t index, uint64_t size)
{
    uint8_t data[32];
    merkle_hash_t leaf, root;
    heard_t heard = ask(RECORD_LOG_INCLUSION, false, index, size);
    assert_int_equal(heard.said.status, RECORD_LOG_OK);
    leaf_of(index, data);
    assert_memory_equal(heard.said.leaf, data, sizeof(data));
    merkle_leaf(data, sizeof(data), &leaf);
    assert_true(merkle_root_at(merkle_tree_node_at, whole, size, &root));
    assert_true(merkle_verify_inclusion(&leaf, index, size, heard.said.path, heard.said.path_count, &root));
    expect_root(&heard.said.root, size);
}

static void expect_consistency(uint64_t first, uint64_t size)
{
    merkle_hash_t first_root, root;
    heard_t heard = ask(RECORD_LOG_CONSISTENCY, false, first, size);
    assert_int_equal(heard.said.status, RECORD_LOG_OK);
    assert_true(merkle_root_at(merkle_tree_node_at, whole, first, &first_root));
    assert_true(merkle_root_at(merkle_tree_node_at, whole, size, &root));
    assert_true(merkle_verify_consistency(first, &first_root, size, &root, heard.said.path, heard.said.path_count));
    expect_root(&heard.said.first_root, first);
    expect_root(&heard.said.root, size);
}

/* ---- answers ---- */

static void test_an_empty_log_has_a_head(void **state)
{
    (void)state;
    expect_head(0);
    expect_consistency(0, 0);
}

static void test_each_size_around_a_tile_and_a_page(void **state)
{
    static const uint64_t sizes[] = {1, 2, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 2303, 2304, 2305, 5000};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        push(sizes[i] - pushed);
        expect_head(sizes[i]);
    }
}

static void test_proofs_over_all_places(void **state)
{
    static const uint64_t places[] = {0, 1, 127, 128, 255, 256, 257, 300, 511, 512, 767, 768, 1000, 1023, 1024, 1099};
    enum { COUNT = sizeof(places) / sizeof(places[0]) };
    (void)state;
    push(1100);
    expect_head(1100);
    for (size_t i = 0; i < COUNT; i++)
        for (size_t j = i; j < COUNT; j++) {
            expect_inclusion(places[i], places[j] + 1);
            expect_consistency(places[i], places[j] + 1);
        }
}

static void test_what_was_there_before_the_question_is_in_the_answer(void **state)
{
    (void)state;
    for (uint64_t size = 1; size <= 40; size++) {
        push(1);
        expect_head(size);
    }
}

static void test_a_log_that_grows_under_a_question(void **state)
{
    heard_t heard = {.calls = 0};
    record_log_question_t q = {.kind = RECORD_LOG_INCLUSION, .first = 3, .size = 256};
    (void)state;
    push(256);
    expect_head(256);
    record_log_ask(rlog, &q, note_answer, &heard);
    push(600); /* the leaf's tile is the newest no more when the question is answered */
    await_calls(&heard.calls);
    assert_int_equal(heard.said.status, RECORD_LOG_OK);
    expect_root(&heard.said.root, 256);
}

static void test_a_process_that_starts_reads_what_is_there(void **state)
{
    (void)state;
    push(10000);
    expect_head(10000);
    record_log_destroy(rlog);
    log_open();
    expect_head(10000);
    expect_inclusion(9999, 10000);
    expect_inclusion(0, 10000);
}

/* ---- limits ---- */

static void test_questions_that_have_no_answer(void **state)
{
    (void)state;
    push(10);
    expect_head(10);
    assert_int_equal(ask(RECORD_LOG_HEAD, false, 0, 11).said.status, RECORD_LOG_TOO_LONG);
    assert_int_equal(ask(RECORD_LOG_INCLUSION, false, 9, 11).said.status, RECORD_LOG_TOO_LONG);
    assert_int_equal(ask(RECORD_LOG_INCLUSION, true, 11, 0).said.status, RECORD_LOG_TOO_LONG);
    assert_int_equal(ask(RECORD_LOG_INCLUSION, true, UINT64_MAX, 0).said.status, RECORD_LOG_TOO_LONG);
    assert_int_equal(ask(RECORD_LOG_INCLUSION, true, 10, 0).said.status, RECORD_LOG_NO_PROOF);
    assert_int_equal(ask(RECORD_LOG_INCLUSION, false, 5, 5).said.status, RECORD_LOG_NO_PROOF);
    assert_int_equal(ask(RECORD_LOG_CONSISTENCY, false, 6, 5).said.status, RECORD_LOG_NO_PROOF);
    assert_int_equal(ask(RECORD_LOG_CONSISTENCY, false, 3, UINT64_MAX).said.status, RECORD_LOG_TOO_LONG);
    assert_int_equal(ask(RECORD_LOG_INCLUSION, true, 9, 0).said.status, RECORD_LOG_OK);
}

static void test_the_number_of_questions_is_bounded(void **state)
{
    static heard_t heard[RECORD_LOG_QUESTIONS_MAX + 1];
    record_log_question_t q = {.kind = RECORD_LOG_HEAD, .is_newest = true};
    (void)state;
    push(1);
    expect_head(1);
    memset(heard, 0, sizeof(heard));
    for (size_t i = 0; i <= RECORD_LOG_QUESTIONS_MAX; i++)
        record_log_ask(rlog, &q, note_answer, &heard[i]);
    for (size_t i = 0; i <= RECORD_LOG_QUESTIONS_MAX; i++) {
        await_calls(&heard[i].calls);
        assert_int_equal(heard[i].said.status, i < RECORD_LOG_QUESTIONS_MAX ? RECORD_LOG_OK : RECORD_LOG_BUSY);
    }
    expect_head(1);
}

/* ---- a log that is not what it was ---- */

static void expect_changed(const char *problem)
{
    heard_t heard = ask(RECORD_LOG_HEAD, true, 0, 0);
    assert_int_equal(heard.said.status, RECORD_LOG_CHANGED);
    assert_string_equal(heard.problem, problem);
    assert_true(state_seen.is_changed);
    assert_false(state_seen.is_current);
    /* and so it stays */
    assert_int_equal(ask(RECORD_LOG_INCLUSION, true, 0, 0).said.status, RECORD_LOG_CHANGED);
}

static void test_a_changed_leaf_among_the_newest(void **state)
{
    (void)state;
    push(300);
    expect_head(300);
    direct_do("LSET " KEY " 290 abcdefghijklmnopqrstuvwxyz012345");
    expect_changed("record 290 is another than was read before");
}

static void test_the_last_of_a_full_tile_is_read_again_too(void **state)
{
    (void)state;
    push(256);
    expect_head(256);
    direct_do("LSET " KEY " 255 abcdefghijklmnopqrstuvwxyz012345");
    expect_changed("record 255 is another than was read before");
}

static void test_a_changed_old_leaf_is_noticed_by_a_proof_through_it(void **state)
{
    (void)state;
    push(900);
    expect_head(900);
    direct_do("LSET " KEY " 300 abcdefghijklmnopqrstuvwxyz012345");
    heard_t heard = ask(RECORD_LOG_INCLUSION, true, 400, 0);
    assert_int_equal(heard.said.status, RECORD_LOG_CHANGED);
    expect_changed("one of the records 256 to 511 is another than was read before, or gone");
}

static bool is_changed(void)
{
    return state_seen.is_changed;
}

static void test_a_changed_old_leaf_is_noticed_by_itself(void **state)
{
    (void)state;
    push(900);
    expect_head(900);
    direct_do("LSET " KEY " 600 abcdefghijklmnopqrstuvwxyz012345");
    turn_until(is_changed);
    expect_changed("one of the records 512 to 767 is another than was read before");
}

static void test_a_log_that_shrank(void **state)
{
    (void)state;
    push(300);
    expect_head(300);
    direct_do("RPOP " KEY);
    expect_changed("it has at most 299 records and had 300");
}

static void test_a_log_that_lost_whole_tiles(void **state)
{
    (void)state;
    push(600);
    expect_head(600);
    direct_do("LTRIM " KEY " 0 99");
    expect_changed("it has at most 512 records and had 600");
}

static void test_a_log_that_is_gone(void **state)
{
    (void)state;
    push(5);
    expect_head(5);
    direct_do("DEL " KEY);
    expect_changed("it has at most 0 records and had 5");
}

static void test_a_first_record_that_was_cut_off(void **state)
{
    (void)state;
    push(5);
    expect_head(5);
    direct_do("LPOP " KEY);
    push(1);
    expect_changed("record 0 is another than was read before");
}

static void test_a_leaf_of_another_size(void **state)
{
    (void)state;
    push(5);
    direct_do("RPUSH " KEY " short");
    assert_int_equal(ask_head().said.status, RECORD_LOG_CHANGED);
    expect_changed("from record 0 on: a record's digest has not 32 bytes");
}

static void test_a_key_of_another_type(void **state)
{
    (void)state;
    direct_do("SET " KEY " x");
    assert_int_equal(ask_head().said.status, RECORD_LOG_CHANGED);
    expect_changed("from record 0 on: the key holds no list");
}

/* ---- a Redis that is away ---- */

static bool is_not_current(void)
{
    return !state_seen.is_current;
}

static void test_redis_away_and_back(void **state)
{
    (void)state;
    push(70);
    expect_head(70);
    server_kill();
    assert_int_equal(ask(RECORD_LOG_HEAD, true, 0, 0).said.status, RECORD_LOG_AWAY);
    turn_until(is_not_current);
    server_start();
    expect_head(70);
    push(1);
    expect_head(71);
}

static void test_questions_under_way_are_answered_at_the_end(void **state)
{
    heard_t heard[3] = {{.calls = 0}};
    record_log_question_t q = {.kind = RECORD_LOG_INCLUSION, .first = 3, .size = 300};
    (void)state;
    push(600);
    expect_head(600);
    for (size_t i = 0; i < 3; i++)
        record_log_ask(rlog, &q, note_answer, &heard[i]);
    record_log_destroy(rlog);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(heard[i].calls, 1);
        assert_int_equal(heard[i].said.status, RECORD_LOG_AWAY);
    }
    log_open();
}

/* ---- the tree by itself ---- */

static void test_a_tree_of_many_tiles(void **state)
{
    record_tree_t *tree = record_tree_create();
    record_view_t view = {.tree = tree};
    merkle_hash_t root;
    (void)state;
    for (uint64_t n = 0; n < 3 * RECORD_TILE + 5; n++) {
        record_leaf_t leaf;
        merkle_hash_t hash;
        leaf_of(n, leaf.data);
        merkle_leaf(leaf.data, sizeof(leaf.data), &hash);
        merkle_tree_append(whole, &hash);
        assert_true(record_tree_append(tree, &leaf));
        assert_true(merkle_root_at(record_view_node_at, &view, n + 1, &root));
        expect_root(&root, n + 1);
        assert_non_null(record_view_leaf(&view, n));
        assert_null(record_view_leaf(&view, n + 1));
    }
    /* a tree that ended within an older tile cannot be told without it */
    assert_false(merkle_root_at(record_view_node_at, &view, RECORD_TILE + 1, &root));
    assert_true(merkle_root_at(record_view_node_at, &view, 2 * RECORD_TILE, &root));
    record_tile_t *tile = mem_alloc(sizeof(*tile));
    record_tile_begin(tile, 1);
    for (uint64_t n = RECORD_TILE; n < 2 * RECORD_TILE; n++) {
        record_leaf_t leaf;
        leaf_of(n, leaf.data);
        assert_false(record_tree_has(tree, tile)); /* not while it is short */
        record_tile_add(tile, &leaf);
    }
    assert_true(record_tree_has(tree, tile));
    view.tiles[1] = tile;
    assert_true(merkle_root_at(record_view_node_at, &view, RECORD_TILE + 1, &root));
    expect_root(&root, RECORD_TILE + 1);
    tile->number = 2;
    assert_false(record_tree_has(tree, tile));
    free(tile);
    record_tree_destroy(tree);
}

#define over_redis(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        over_redis(test_an_empty_log_has_a_head),
        over_redis(test_each_size_around_a_tile_and_a_page),
        over_redis(test_proofs_over_all_places),
        over_redis(test_what_was_there_before_the_question_is_in_the_answer),
        over_redis(test_a_log_that_grows_under_a_question),
        over_redis(test_a_process_that_starts_reads_what_is_there),
        over_redis(test_questions_that_have_no_answer),
        over_redis(test_the_number_of_questions_is_bounded),
        over_redis(test_a_changed_leaf_among_the_newest),
        over_redis(test_the_last_of_a_full_tile_is_read_again_too),
        over_redis(test_a_changed_old_leaf_is_noticed_by_a_proof_through_it),
        over_redis(test_a_changed_old_leaf_is_noticed_by_itself),
        over_redis(test_a_log_that_shrank),
        over_redis(test_a_log_that_lost_whole_tiles),
        over_redis(test_a_log_that_is_gone),
        over_redis(test_a_first_record_that_was_cut_off),
        over_redis(test_a_leaf_of_another_size),
        over_redis(test_a_key_of_another_type),
        over_redis(test_redis_away_and_back),
        over_redis(test_questions_under_way_are_answered_at_the_end),
        over_redis(test_a_tree_of_many_tiles),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
