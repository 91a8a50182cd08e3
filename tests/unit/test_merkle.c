/* The log's tree: against the published vectors of Certificate Transparency, RFC 9162's worked example, and all small
 * trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "records/merkle.h"

/* The eight leaves everybody's tests of RFC 6962 have, and the roots of the first 0 to 8 of them. */
static const struct {
    const char *data;
    size_t len;
} LEAVES[8] = {{"", 0},
               {"\x00", 1},
               {"\x10", 1},
               {"\x20\x21", 2},
               {"\x30\x31", 2},
               {"\x40\x41\x42\x43", 4},
               {"\x50\x51\x52\x53\x54\x55\x56\x57", 8},
               {"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f", 16}};
static const char *const ROOTS[9] = {
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
};
#define H1 "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
#define H23 "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
#define H47 "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
#define H4 "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
#define H67 "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
#define H03 "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
#define H45 "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
#define H01 "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
#define H0 "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"

static merkle_tree_t *published_tree(size_t size)
{
    merkle_tree_t *tree = merkle_tree_create();
    for (size_t i = 0; i < size; i++) {
        merkle_hash_t leaf;
        merkle_leaf(LEAVES[i].data, LEAVES[i].len, &leaf);
        merkle_tree_append(tree, &leaf);
    }
    return tree;
}

static void is_hash(const merkle_hash_t *hash, const char *wanted)
{
    char hex[SHA256_HEX + 1];
    merkle_hex(hash, hex);
    assert_string_equal(hex, wanted);
}

static void test_roots_are_the_published_ones(void **state)
{
    (void)state;
    merkle_tree_t *tree = published_tree(8);
    merkle_range_t range;
    merkle_hash_t root;
    merkle_range_init(&range);
    for (size_t size = 0; size <= 8; size++) {
        merkle_range_root(&range, &root);
        is_hash(&root, ROOTS[size]);
        assert_true(merkle_root_at(merkle_tree_node_at, tree, size, &root));
        is_hash(&root, ROOTS[size]);
        if (size < 8) {
            merkle_leaf(LEAVES[size].data, LEAVES[size].len, &root);
            assert_true(merkle_range_append(&range, &root));
        }
    }
    assert_int_equal(merkle_tree_size(tree), 8);
    assert_false(merkle_root_at(merkle_tree_node_at, tree, 9, &root));
    merkle_tree_destroy(tree);
}

static void test_inclusion_paths_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        uint64_t index, size;
        const char *path[3];
        size_t count;
    } VECTORS[] = {
        {0, 1, {NULL}, 0}, {0, 8, {H1, H23, H47}, 3}, {5, 8, {H4, H67, H03}, 3},
        {2, 3, {H01}, 1},  {1, 5, {H0, H23, H4}, 3},
    };
    merkle_tree_t *tree = published_tree(8);
    for (size_t i = 0; i < sizeof(VECTORS) / sizeof(VECTORS[0]); i++) {
        merkle_hash_t path[MERKLE_INCLUSION_MAX], leaf, root;
        size_t count;
        assert_true(merkle_prove_inclusion(merkle_tree_node_at, tree, VECTORS[i].index, VECTORS[i].size, path, &count));
        assert_int_equal(count, VECTORS[i].count);
        for (size_t j = 0; j < count; j++)
            is_hash(&path[j], VECTORS[i].path[j]);
        assert_true(merkle_tree_node_at(tree, 0, VECTORS[i].index, &leaf));
        assert_true(merkle_parse(ROOTS[VECTORS[i].size], &root));
        assert_true(merkle_verify_inclusion(&leaf, VECTORS[i].index, VECTORS[i].size, path, count, &root));
    }
    merkle_tree_destroy(tree);
}

static void test_consistency_paths_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, second;
        const char *path[3];
        size_t count;
    } VECTORS[] = {
        {1, 1, {NULL}, 0},
        {1, 8, {H1, H23, H47}, 3},
        {6, 8, {H45, H67, H03}, 3},
        {2, 5, {H23, H4}, 2},
    };
    merkle_tree_t *tree = published_tree(8);
    for (size_t i = 0; i < sizeof(VECTORS) / sizeof(VECTORS[0]); i++) {
        merkle_hash_t path[MERKLE_CONSISTENCY_MAX], first, second;
        size_t count;
        assert_true(
            merkle_prove_consistency(merkle_tree_node_at, tree, VECTORS[i].first, VECTORS[i].second, path, &count));
        assert_int_equal(count, VECTORS[i].count);
        for (size_t j = 0; j < count; j++)
            is_hash(&path[j], VECTORS[i].path[j]);
        assert_true(merkle_parse(ROOTS[VECTORS[i].first], &first));
        assert_true(merkle_parse(ROOTS[VECTORS[i].second], &second));
        assert_true(merkle_verify_consistency(VECTORS[i].first, &first, VECTORS[i].second, &second, path, count));
    }
    merkle_tree_destroy(tree);
}

/* RFC 9162 section 2.1.5: a tree of seven leaves d0 to d6, whose nodes the text names. */
static void test_the_rfcs_example(void **state)
{
    (void)state;
    merkle_hash_t a, b, c, d, e, f, g, h, i, j, k, l, path[MERKLE_CONSISTENCY_MAX];
    merkle_hash_t *leaves[] = {&a, &b, &c, &d, &e, &f, &j};
    merkle_tree_t *tree = merkle_tree_create();
    for (int n = 0; n < 7; n++) {
        char data[3];
        snprintf(data, sizeof(data), "d%d", n);
        merkle_leaf(data, 2, leaves[n]);
        merkle_tree_append(tree, leaves[n]);
    }
    merkle_node(&a, &b, &g);
    merkle_node(&c, &d, &h);
    merkle_node(&e, &f, &i);
    merkle_node(&g, &h, &k);
    merkle_node(&i, &j, &l);
    const struct {
        uint64_t index;
        const merkle_hash_t *path[3];
        size_t count;
    } PATHS[] = {{0, {&b, &h, &l}, 3}, {3, {&c, &g, &l}, 3}, {4, {&f, &j, &k}, 3}, {6, {&i, &k}, 2}};
    const struct {
        uint64_t first;
        const merkle_hash_t *path[4];
        size_t count;
    } PROOFS[] = {{3, {&c, &d, &g, &l}, 4}, {4, {&l}, 1}, {6, {&i, &j, &k}, 3}};
    size_t count;
    for (size_t n = 0; n < 4; n++) {
        assert_true(merkle_prove_inclusion(merkle_tree_node_at, tree, PATHS[n].index, 7, path, &count));
        assert_int_equal(count, PATHS[n].count);
        for (size_t m = 0; m < count; m++)
            assert_memory_equal(&path[m], PATHS[n].path[m], sizeof(path[m]));
    }
    for (size_t n = 0; n < 3; n++) {
        assert_true(merkle_prove_consistency(merkle_tree_node_at, tree, PROOFS[n].first, 7, path, &count));
        assert_int_equal(count, PROOFS[n].count);
        for (size_t m = 0; m < count; m++)
            assert_memory_equal(&path[m], PROOFS[n].path[m], sizeof(path[m]));
    }
    merkle_tree_destroy(tree);
}

/* ---- all small trees ---- */

enum { SMALL = 34 };

typedef struct {
    merkle_tree_t *tree;
    merkle_hash_t roots[SMALL + 1];
} small_t;

static void small_init(small_t *s)
{
    merkle_range_t range;
    merkle_range_init(&range);
    s->tree = merkle_tree_create();
    for (uint64_t size = 0; size <= SMALL; size++) {
        merkle_hash_t leaf;
        merkle_range_root(&range, &s->roots[size]);
        merkle_leaf(&size, sizeof(size), &leaf);
        merkle_tree_append(s->tree, &leaf);
        merkle_range_append(&range, &leaf);
    }
}

static void test_every_leaf_of_a_small_tree_is_in_it_and_nowhere_else(void **state)
{
    (void)state;
    small_t s;
    small_init(&s);
    for (uint64_t size = 1; size <= SMALL; size++) {
        for (uint64_t index = 0; index < size; index++) {
            merkle_hash_t path[MERKLE_INCLUSION_MAX + 1], leaf, other;
            size_t count;
            merkle_tree_node_at(s.tree, 0, index, &leaf);
            assert_true(merkle_prove_inclusion(merkle_tree_node_at, s.tree, index, size, path, &count));
            assert_true(merkle_verify_inclusion(&leaf, index, size, path, count, &s.roots[size]));
            for (uint64_t wrong = 0; wrong <= SMALL; wrong++) {
                assert_int_equal(merkle_verify_inclusion(&leaf, wrong, size, path, count, &s.roots[size]),
                                 wrong == index);
                if (wrong != size)
                    assert_false(merkle_verify_inclusion(&leaf, index, size, path, count, &s.roots[wrong]));
            }
            for (size_t i = 0; i < count; i++) {
                path[i].bytes[i] ^= 1;
                assert_false(merkle_verify_inclusion(&leaf, index, size, path, count, &s.roots[size]));
                path[i].bytes[i] ^= 1;
            }
            merkle_tree_node_at(s.tree, 0, (index + 1) % SMALL, &other);
            assert_false(merkle_verify_inclusion(&other, index, size, path, count, &s.roots[size]));
            path[count] = leaf;
            assert_false(merkle_verify_inclusion(&leaf, index, size, path, count + 1, &s.roots[size]));
            if (count != 0)
                assert_false(merkle_verify_inclusion(&leaf, index, size, path, count - 1, &s.roots[size]));
        }
    }
    merkle_tree_destroy(s.tree);
}

static void test_every_small_tree_grew_from_those_before_it_and_no_other(void **state)
{
    (void)state;
    small_t s;
    small_init(&s);
    for (uint64_t second = 1; second <= SMALL; second++) {
        for (uint64_t first = 1; first <= second; first++) {
            merkle_hash_t path[MERKLE_CONSISTENCY_MAX + 1];
            const merkle_hash_t *old = &s.roots[first], *new = &s.roots[second];
            size_t count;
            assert_true(merkle_prove_consistency(merkle_tree_node_at, s.tree, first, second, path, &count));
            assert_true(merkle_verify_consistency(first, old, second, new, path, count));
            for (uint64_t wrong = 0; wrong <= SMALL; wrong++) {
                if (wrong != first)
                    assert_false(merkle_verify_consistency(first, &s.roots[wrong], second, new, path, count));
                if (wrong != second)
                    assert_false(merkle_verify_consistency(first, old, second, &s.roots[wrong], path, count));
            }
            for (size_t i = 0; i < count; i++) {
                path[i].bytes[i] ^= 1;
                assert_false(merkle_verify_consistency(first, old, second, new, path, count));
                path[i].bytes[i] ^= 1;
            }
            path[count] = *old;
            assert_false(merkle_verify_consistency(first, old, second, new, path, count + 1));
            if (count != 0)
                assert_false(merkle_verify_consistency(first, old, second, new, path, count - 1));
            assert_int_equal(merkle_verify_consistency(second, new, first, old, path, count), first == second);
        }
        assert_true(merkle_verify_consistency(0, &s.roots[0], second, &s.roots[second], NULL, 0));
        assert_false(merkle_verify_consistency(0, &s.roots[1], second, &s.roots[second], NULL, 0));
    }
    merkle_tree_destroy(s.tree);
}

/* ---- at the limits ---- */

/* A tree whose leaves are all alike: a node's hash is its level's. Counts what is asked for. */
typedef struct {
    merkle_hash_t levels[MERKLE_LEVELS];
    size_t asked;
} uniform_t;

static bool uniform_node_at(void *data, unsigned level, uint64_t index, merkle_hash_t *out)
{
    uniform_t *u = data;
    (void)index;
    u->asked++;
    *out = u->levels[level];
    return true;
}

static void test_the_largest_tree(void **state)
{
    (void)state;
    uniform_t u = {.asked = 0};
    merkle_leaf("x", 1, &u.levels[0]);
    for (int i = 1; i < MERKLE_LEVELS; i++)
        merkle_node(&u.levels[i - 1], &u.levels[i - 1], &u.levels[i]);
    merkle_hash_t path[MERKLE_CONSISTENCY_MAX], root, before;
    size_t count;
    uint64_t size = MERKLE_SIZE_MAX;
    assert_true(merkle_root_at(uniform_node_at, &u, size, &root));
    assert_false(merkle_root_at(uniform_node_at, &u, size + 1, &root));
    static const uint64_t INDICES[] = {0, 1, (uint64_t)1 << 62, MERKLE_SIZE_MAX - 1};
    for (int i = 0; i < 4; i++) {
        u.asked = 0;
        assert_true(merkle_prove_inclusion(uniform_node_at, &u, INDICES[i], size, path, &count));
        assert_in_range(count, 1, MERKLE_INCLUSION_MAX);
        assert_in_range(u.asked, 1, 2 * MERKLE_LEVELS);
        assert_true(merkle_verify_inclusion(&u.levels[0], INDICES[i], size, path, count, &root));
    }
    assert_false(merkle_prove_inclusion(uniform_node_at, &u, size, size, path, &count));
    assert_false(merkle_prove_inclusion(uniform_node_at, &u, 0, size + 1, path, &count));
    assert_false(merkle_verify_inclusion(&u.levels[0], size, size, path, 0, &root));
    static const uint64_t FIRSTS[] = {1, 2, 3, ((uint64_t)1 << 62) - 1, (uint64_t)1 << 62, MERKLE_SIZE_MAX - 1};
    for (int i = 0; i < 6; i++) {
        assert_true(merkle_root_at(uniform_node_at, &u, FIRSTS[i], &before));
        assert_true(merkle_prove_consistency(uniform_node_at, &u, FIRSTS[i], size, path, &count));
        assert_in_range(count, 1, MERKLE_CONSISTENCY_MAX);
        assert_true(merkle_verify_consistency(FIRSTS[i], &before, size, &root, path, count));
    }
    assert_false(merkle_prove_consistency(uniform_node_at, &u, 0, size, path, &count));
    assert_false(merkle_prove_consistency(uniform_node_at, &u, size, size - 1, path, &count));
    /* a list that is full stays as it is */
    merkle_range_t range = {.size = MERKLE_SIZE_MAX - 1, .count = MERKLE_LEVELS - 1};
    for (int i = 0; i < MERKLE_LEVELS - 1; i++)
        range.nodes[i] = u.levels[MERKLE_LEVELS - 1 - i];
    assert_true(merkle_range_append(&range, &u.levels[0]));
    merkle_range_root(&range, &before);
    assert_memory_equal(&before, &root, sizeof(root));
    assert_false(merkle_range_append(&range, &u.levels[0]));
    assert_int_equal(range.size, MERKLE_SIZE_MAX);
}

static void test_a_records_leaf(void **state)
{
    (void)state;
    merkle_hash_t leaf;
    /* sha256 of a zero byte and the digest's 32 bytes, by sha256sum */
    assert_true(merkle_leaf_of_record("2ca45c37f90ea7fdf87e6d33b1526714963cb7555bfb4fbb918c8ecf0834d49e", &leaf));
    is_hash(&leaf, "01988424811753cad361a7e40729e8051698834f777465bcd5dcf654f96a5ff0");
    assert_false(merkle_leaf_of_record("2ca45c37f90ea7fdf87e6d33b1526714963cb7555bfb4fbb918c8ecf0834d49", &leaf));
    assert_false(merkle_leaf_of_record("2CA45c37f90ea7fdf87e6d33b1526714963cb7555bfb4fbb918c8ecf0834d49e", &leaf));
    assert_false(merkle_leaf_of_record("", &leaf));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roots_are_the_published_ones),
        cmocka_unit_test(test_inclusion_paths_are_the_published_ones),
        cmocka_unit_test(test_consistency_paths_are_the_published_ones),
        cmocka_unit_test(test_the_rfcs_example),
        cmocka_unit_test(test_every_leaf_of_a_small_tree_is_in_it_and_nowhere_else),
        cmocka_unit_test(test_every_small_tree_grew_from_those_before_it_and_no_other),
        cmocka_unit_test(test_the_largest_tree),
        cmocka_unit_test(test_a_records_leaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
