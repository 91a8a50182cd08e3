/*
 * What a process keeps of the log of records: the roots of its perfect subtrees of 256 leaves and all above them
 * (64 bytes for 256 leaves, so 25 MB for a hundred million), and the newest tile whole. What lies below a kept root is
 * read again from the log when a proof needs it, and must then have that root.
 */
#ifndef RECORDS_RECORD_TREE_H
#define RECORDS_RECORD_TREE_H

#include "records/merkle.h"

enum {
    RECORD_TILE_LEVEL = 8,
    RECORD_TILE = 1 << RECORD_TILE_LEVEL, /* leaves of a tile: 8 KiB of data, 0.2 ms of hashing */
};

typedef struct {
    uint8_t data[SHA256_BYTES]; /* of one leaf: a record's digest */
} record_leaf_t;

/* The leaves of one tile, as they were read again; `count` is less than RECORD_TILE in the newest alone. */
typedef struct {
    uint64_t number; /* its leaves begin at number * RECORD_TILE */
    unsigned count;
    record_leaf_t leaves[RECORD_TILE];
    merkle_hash_t hashes[RECORD_TILE];
} record_tile_t;

typedef struct record_tree record_tree_t;
record_tree_t *record_tree_create(void);
void record_tree_destroy(record_tree_t *tree);
uint64_t record_tree_size(const record_tree_t *tree);
/* false, and nothing changed, at MERKLE_SIZE_MAX leaves. */
bool record_tree_append(record_tree_t *tree, const record_leaf_t *leaf);
/* The tile with the last leaf; count 0 while there is none. Valid until the next append. */
const record_tile_t *record_tree_newest(const record_tree_t *tree);
/* Whether a tile's leaves are those that were appended: of a full one by its root, of the newest one by one (the tile
 * may hold fewer of them). */
bool record_tree_has(const record_tree_t *tree, const record_tile_t *tile);

void record_tile_begin(record_tile_t *tile, uint64_t number);
/* The tile is not full. */
void record_tile_add(record_tile_t *tile, const record_leaf_t *leaf);

/* A merkle_node_at_t over the tree and up to two tiles that were read again; `data` is a view. */
typedef struct {
    const record_tree_t *tree;
    const record_tile_t *tiles[2]; /* NULL = none */
} record_view_t;
bool record_view_node_at(void *data, unsigned level, uint64_t index, merkle_hash_t *out);
/* The leaf's data; NULL when its tile is not at hand. */
const record_leaf_t *record_view_leaf(const record_view_t *view, uint64_t index);
/* Whether the nodes below the tile's root are at hand. */
bool record_view_has(const record_view_t *view, uint64_t tile_number);

#endif
