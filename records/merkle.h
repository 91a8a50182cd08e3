/*
 * The Merkle tree of an append-only log, as RFC 6962 section 2.1 has it (RFC 9162 section 2.1 with SHA-256 is the same
 * tree): hashing, the root of a growing list, and proofs, made from whatever keeps the nodes and verified without it.
 */
#ifndef RECORDS_MERKLE_H
#define RECORDS_MERKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sha256.h"

enum {
    MERKLE_LEVELS = 63,                         /* of a tree of at most MERKLE_SIZE_MAX leaves, above the leaves */
    MERKLE_INCLUSION_MAX = MERKLE_LEVELS,       /* hashes of a path: one a level */
    MERKLE_CONSISTENCY_MAX = MERKLE_LEVELS + 1, /* and the subtree both trees share */
};
#define MERKLE_SIZE_MAX ((uint64_t)INT64_MAX) /* leaves: what a JSON reader's integer holds */

typedef struct {
    uint8_t bytes[SHA256_BYTES];
} merkle_hash_t;

/* ---- hashing ---- */

void merkle_empty_root(merkle_hash_t *out);
void merkle_leaf(const void *data, size_t len, merkle_hash_t *out);
void merkle_node(const merkle_hash_t *left, const merkle_hash_t *right, merkle_hash_t *out);
/* The leaf of a run: its data are the 32 bytes of the record's digest. false when that is not 64 lowercase hex. */
bool merkle_leaf_of_record(const char *record_sha256, merkle_hash_t *out);
void merkle_hex(const merkle_hash_t *hash, char out[SHA256_HEX + 1]);
bool merkle_parse(const char *hex, merkle_hash_t *out);

/* ---- a growing list: the roots of its perfect subtrees, largest first, one for each bit of its size ---- */

typedef struct {
    uint64_t size;
    unsigned count;
    merkle_hash_t nodes[MERKLE_LEVELS];
} merkle_range_t;

void merkle_range_init(merkle_range_t *range);
/* false, and nothing changed, at MERKLE_SIZE_MAX leaves. */
bool merkle_range_append(merkle_range_t *range, const merkle_hash_t *leaf);
void merkle_range_root(const merkle_range_t *range, merkle_hash_t *out);

/* ---- proofs ---- */

/* The root of the perfect subtree over leaves [index << level, (index + 1) << level); false when it cannot be had. */
typedef bool merkle_node_at_t(void *data, unsigned level, uint64_t index, merkle_hash_t *out);

/* false when a node cannot be had, or the sizes make no proof: index < size; 0 < first <= second. */
bool merkle_root_at(merkle_node_at_t *node_at, void *data, uint64_t size, merkle_hash_t *out);
bool merkle_prove_inclusion(merkle_node_at_t *node_at, void *data, uint64_t index, uint64_t size,
                            merkle_hash_t path[MERKLE_INCLUSION_MAX], size_t *count);
bool merkle_prove_consistency(merkle_node_at_t *node_at, void *data, uint64_t first, uint64_t second,
                              merkle_hash_t path[MERKLE_CONSISTENCY_MAX], size_t *count);

/* RFC 9162 sections 2.1.3.2 and 2.1.4.2. An empty first tree is consistent with any (the path is empty), as is a tree
 * with itself. */
bool merkle_verify_inclusion(const merkle_hash_t *leaf, uint64_t index, uint64_t size, const merkle_hash_t *path,
                             size_t count, const merkle_hash_t *root);
bool merkle_verify_consistency(uint64_t first, const merkle_hash_t *first_root, uint64_t second,
                               const merkle_hash_t *second_root, const merkle_hash_t *path, size_t count);

/* ---- a whole tree in memory ---- */

typedef struct merkle_tree merkle_tree_t;
merkle_tree_t *merkle_tree_create(void);
void merkle_tree_destroy(merkle_tree_t *tree);
void merkle_tree_append(merkle_tree_t *tree, const merkle_hash_t *leaf);
uint64_t merkle_tree_size(const merkle_tree_t *tree);
/* A merkle_node_at_t; `data` is the tree. */
bool merkle_tree_node_at(void *data, unsigned level, uint64_t index, merkle_hash_t *out);

#endif
