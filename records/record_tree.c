#include "records/record_tree.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

struct record_tree {
    uint64_t size;
    merkle_tree_t *roots; /* of the full tiles, and above them */
    record_tile_t newest;
};

/* ---- one tile ---- */

void record_tile_begin(record_tile_t *tile, uint64_t number)
{
    tile->number = number;
    tile->count = 0;
}

void record_tile_add(record_tile_t *tile, const record_leaf_t *leaf)
{
    if (tile->count == RECORD_TILE)
        mem_fatal("record tile: it is full");
    tile->leaves[tile->count] = *leaf;
    merkle_leaf(leaf->data, sizeof(leaf->data), &tile->hashes[tile->count++]);
}

/* The root of the perfect subtree of 2^level leaves from `at`, all of which are there. */
static void root_within(const record_tile_t *tile, unsigned level, size_t at, merkle_hash_t *out)
{
    merkle_hash_t nodes[RECORD_TILE];
    size_t count = (size_t)1 << level;
    memcpy(nodes, &tile->hashes[at], count * sizeof(nodes[0]));
    for (; count > 1; count /= 2)
        for (size_t i = 0; i < count / 2; i++)
            merkle_node(&nodes[2 * i], &nodes[2 * i + 1], &nodes[i]);
    *out = nodes[0];
}

/* ---- the tree ---- */

record_tree_t *record_tree_create(void)
{
    record_tree_t *tree = mem_alloc(sizeof(*tree));
    tree->roots = merkle_tree_create();
    return tree;
}

void record_tree_destroy(record_tree_t *tree)
{
    merkle_tree_destroy(tree->roots);
    free(tree);
}

uint64_t record_tree_size(const record_tree_t *tree)
{
    return tree->size;
}

bool record_tree_append(record_tree_t *tree, const record_leaf_t *leaf)
{
    merkle_hash_t root;
    if (tree->size == MERKLE_SIZE_MAX)
        return false;
    /* a full tile stays at hand until the next leaf: the last leaf is always in the newest */
    if (tree->newest.count == RECORD_TILE)
        record_tile_begin(&tree->newest, tree->newest.number + 1);
    record_tile_add(&tree->newest, leaf);
    tree->size++;
    if (tree->newest.count == RECORD_TILE) {
        root_within(&tree->newest, RECORD_TILE_LEVEL, 0, &root);
        merkle_tree_append(tree->roots, &root);
    }
    return true;
}

const record_tile_t *record_tree_newest(const record_tree_t *tree)
{
    return &tree->newest;
}

bool record_tree_has(const record_tree_t *tree, const record_tile_t *tile)
{
    merkle_hash_t kept, root;
    if (tile->number == tree->newest.number)
        return tile->count <= tree->newest.count &&
               memcmp(tile->leaves, tree->newest.leaves, tile->count * sizeof(tile->leaves[0])) == 0;
    if (tile->count != RECORD_TILE || !merkle_tree_node_at(tree->roots, 0, tile->number, &kept))
        return false;
    root_within(tile, RECORD_TILE_LEVEL, 0, &root);
    return memcmp(&root, &kept, sizeof(root)) == 0;
}

/* ---- a view ---- */

static const record_tile_t *tile_of(const record_view_t *view, uint64_t number)
{
    if (view->tree->newest.number == number)
        return &view->tree->newest;
    for (size_t i = 0; i < sizeof(view->tiles) / sizeof(view->tiles[0]); i++)
        if (view->tiles[i] != NULL && view->tiles[i]->number == number)
            return view->tiles[i];
    return NULL;
}

bool record_view_has(const record_view_t *view, uint64_t tile_number)
{
    return tile_of(view, tile_number) != NULL;
}

const record_leaf_t *record_view_leaf(const record_view_t *view, uint64_t index)
{
    const record_tile_t *tile = tile_of(view, index >> RECORD_TILE_LEVEL);
    return tile != NULL && index % RECORD_TILE < tile->count ? &tile->leaves[index % RECORD_TILE] : NULL;
}

bool record_view_node_at(void *data, unsigned level, uint64_t index, merkle_hash_t *out)
{
    const record_view_t *view = data;
    if (level >= RECORD_TILE_LEVEL)
        return merkle_tree_node_at(view->tree->roots, level - RECORD_TILE_LEVEL, index, out);
    unsigned below = RECORD_TILE_LEVEL - level; /* nodes of this level in a tile: 2^below */
    const record_tile_t *tile = tile_of(view, index >> below);
    size_t at = (size_t)(index & (((uint64_t)1 << below) - 1)) << level;
    if (tile == NULL || at + ((size_t)1 << level) > tile->count)
        return false;
    root_within(tile, level, at, out);
    return true;
}
