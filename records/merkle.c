#include "records/merkle.h"

#include <string.h>

#include "records/attest_statement.h"

/* ---- hashing, RFC 6962 section 2.1 ---- */

void merkle_empty_root(merkle_hash_t *out)
{
    sha256_end(sha256_begin(), out->bytes);
}

void merkle_leaf(const void *data, size_t len, merkle_hash_t *out)
{
    sha256_t *s = sha256_begin();
    sha256_add(s, "\0", 1);
    if (len != 0)
        sha256_add(s, data, len);
    sha256_end(s, out->bytes);
}

void merkle_node(const merkle_hash_t *left, const merkle_hash_t *right, merkle_hash_t *out)
{
    sha256_t *s = sha256_begin();
    sha256_add(s, "\1", 1);
    sha256_add(s, left->bytes, sizeof(left->bytes));
    sha256_add(s, right->bytes, sizeof(right->bytes));
    sha256_end(s, out->bytes);
}

void merkle_hex(const merkle_hash_t *hash, char out[SHA256_HEX + 1])
{
    static const char DIGITS[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(hash->bytes); i++) {
        out[2 * i] = DIGITS[hash->bytes[i] >> 4];
        out[2 * i + 1] = DIGITS[hash->bytes[i] & 15];
    }
    out[SHA256_HEX] = '\0';
}

static uint8_t digit_of(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

bool merkle_parse(const char *hex, merkle_hash_t *out)
{
    if (!attest_is_digest(hex))
        return false;
    for (size_t i = 0; i < sizeof(out->bytes); i++)
        out->bytes[i] = (uint8_t)(digit_of(hex[2 * i]) << 4 | digit_of(hex[2 * i + 1]));
    return true;
}

bool merkle_leaf_of_record(const char *record_sha256, merkle_hash_t *out)
{
    merkle_hash_t digest;
    if (!merkle_parse(record_sha256, &digest))
        return false;
    merkle_leaf(digest.bytes, sizeof(digest.bytes), out);
    return true;
}

/* ---- a growing list ---- */

void merkle_range_init(merkle_range_t *range)
{
    range->size = 0;
    range->count = 0;
}

bool merkle_range_append(merkle_range_t *range, const merkle_hash_t *leaf)
{
    merkle_hash_t node = *leaf;
    if (range->size == MERKLE_SIZE_MAX)
        return false;
    /* As a carry in binary: each trailing one of the size is a subtree as large as what has been joined so far. */
    for (uint64_t bits = range->size; (bits & 1) != 0; bits >>= 1)
        merkle_node(&range->nodes[--range->count], &node, &node);
    range->nodes[range->count++] = node;
    range->size++;
    return true;
}

void merkle_range_root(const merkle_range_t *range, merkle_hash_t *out)
{
    if (range->count == 0) {
        merkle_empty_root(out);
        return;
    }
    *out = range->nodes[range->count - 1];
    for (unsigned i = range->count - 1; i-- > 0;)
        merkle_node(&range->nodes[i], out, out);
}

/* ---- making proofs ---- */

typedef struct {
    merkle_node_at_t *node_at;
    void *data;
    merkle_hash_t *path;
    size_t count;
} prover_t;

static bool is_power_of_two(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

/* The largest power of two smaller than n, which is at least 2. */
static uint64_t split_of(uint64_t n)
{
    return (uint64_t)1 << (63 - __builtin_clzll(n - 1));
}

/* MTH of the n leaves from `begin`, which is a multiple of every power of two up to the first one that is at least n.
 */
static bool hash_of(const prover_t *p, uint64_t begin, uint64_t n, merkle_hash_t *out)
{
    merkle_hash_t right;
    if (is_power_of_two(n)) {
        unsigned level = (unsigned)__builtin_ctzll(n);
        return p->node_at(p->data, level, begin >> level, out);
    }
    uint64_t k = split_of(n);
    if (!hash_of(p, begin, k, out) || !hash_of(p, begin + k, n - k, &right))
        return false;
    merkle_node(out, &right, out);
    return true;
}

static bool add_hash_of(prover_t *p, uint64_t begin, uint64_t n)
{
    return hash_of(p, begin, n, &p->path[p->count++]);
}

/* PATH of RFC 6962 section 2.1.1, deepest first. */
static bool add_path(prover_t *p, uint64_t index, uint64_t begin, uint64_t n)
{
    if (n == 1)
        return true;
    uint64_t k = split_of(n);
    return index < k ? add_path(p, index, begin, k) && add_hash_of(p, begin + k, n - k)
                     : add_path(p, index - k, begin + k, n - k) && add_hash_of(p, begin, k);
}

/* SUBPROOF of section 2.1.2. `is_whole`: the older tree's root is this subtree, and its owner has it. */
static bool add_subproof(prover_t *p, uint64_t first, uint64_t begin, uint64_t n, bool is_whole)
{
    if (first == n)
        return is_whole || add_hash_of(p, begin, n);
    uint64_t k = split_of(n);
    return first <= k ? add_subproof(p, first, begin, k, is_whole) && add_hash_of(p, begin + k, n - k)
                      : add_subproof(p, first - k, begin + k, n - k, false) && add_hash_of(p, begin, k);
}

bool merkle_root_at(merkle_node_at_t *node_at, void *data, uint64_t size, merkle_hash_t *out)
{
    prover_t p = {.node_at = node_at, .data = data};
    if (size > MERKLE_SIZE_MAX)
        return false;
    if (size == 0)
        merkle_empty_root(out);
    return size == 0 || hash_of(&p, 0, size, out);
}

bool merkle_prove_inclusion(merkle_node_at_t *node_at, void *data, uint64_t index, uint64_t size,
                            merkle_hash_t path[MERKLE_INCLUSION_MAX], size_t *count)
{
    prover_t p = {.node_at = node_at, .data = data, .path = path};
    bool ok = index < size && size <= MERKLE_SIZE_MAX && add_path(&p, index, 0, size);
    *count = ok ? p.count : 0;
    return ok;
}

bool merkle_prove_consistency(merkle_node_at_t *node_at, void *data, uint64_t first, uint64_t second,
                              merkle_hash_t path[MERKLE_CONSISTENCY_MAX], size_t *count)
{
    prover_t p = {.node_at = node_at, .data = data, .path = path};
    bool ok = first != 0 && first <= second && second <= MERKLE_SIZE_MAX && add_subproof(&p, first, 0, second, true);
    *count = ok ? p.count : 0;
    return ok;
}

/* ---- verifying proofs, RFC 9162 ---- */

static bool is_equal(const merkle_hash_t *a, const merkle_hash_t *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Section 2.1.3.2. */
bool merkle_verify_inclusion(const merkle_hash_t *leaf, uint64_t index, uint64_t size, const merkle_hash_t *path,
                             size_t count, const merkle_hash_t *root)
{
    if (index >= size || size > MERKLE_SIZE_MAX)
        return false;
    uint64_t fn = index, sn = size - 1;
    merkle_hash_t r = *leaf;
    for (size_t i = 0; i < count; i++) {
        if (sn == 0)
            return false;
        if ((fn & 1) != 0 || fn == sn) {
            merkle_node(&path[i], &r, &r);
            while ((fn & 1) == 0 && fn != 0) {
                fn >>= 1;
                sn >>= 1;
            }
        } else {
            merkle_node(&r, &path[i], &r);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && is_equal(&r, root);
}

/* Section 2.1.4.2. */
bool merkle_verify_consistency(uint64_t first, const merkle_hash_t *first_root, uint64_t second,
                               const merkle_hash_t *second_root, const merkle_hash_t *path, size_t count)
{
    merkle_hash_t empty;
    if (first > second || second > MERKLE_SIZE_MAX)
        return false;
    if (first == second)
        return count == 0 && is_equal(first_root, second_root);
    if (first == 0) {
        merkle_empty_root(&empty);
        return count == 0 && is_equal(first_root, &empty);
    }
    if (count == 0)
        return false;
    /* A first tree that is perfect is a node of the second, and its root stands for the path's first hash. */
    size_t next = is_power_of_two(first) ? 0 : 1;
    merkle_hash_t fr = next == 0 ? *first_root : path[0], sr = fr;
    uint64_t fn = first - 1, sn = second - 1;
    for (; (fn & 1) != 0; fn >>= 1, sn >>= 1)
        ;
    for (; next < count; next++) {
        if (sn == 0)
            return false;
        if ((fn & 1) != 0 || fn == sn) {
            merkle_node(&path[next], &fr, &fr);
            merkle_node(&path[next], &sr, &sr);
            while ((fn & 1) == 0 && fn != 0) {
                fn >>= 1;
                sn >>= 1;
            }
        } else {
            merkle_node(&sr, &path[next], &sr);
        }
        fn >>= 1;
        sn >>= 1;
    }
    return sn == 0 && is_equal(&fr, first_root) && is_equal(&sr, second_root);
}
