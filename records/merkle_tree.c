/* A whole tree in memory: each level's perfect nodes in a list. */
#include "records/merkle.h"

#include <stdlib.h>

#include "core/mem.h"

typedef struct {
    merkle_hash_t *nodes;
    uint64_t count, cap;
} level_t;

struct merkle_tree {
    level_t levels[MERKLE_LEVELS];
};

merkle_tree_t *merkle_tree_create(void)
{
    return mem_alloc(sizeof(merkle_tree_t));
}

void merkle_tree_destroy(merkle_tree_t *tree)
{
    for (unsigned i = 0; i < MERKLE_LEVELS; i++)
        free(tree->levels[i].nodes);
    free(tree);
}

void merkle_tree_append(merkle_tree_t *tree, const merkle_hash_t *leaf)
{
    merkle_hash_t node = *leaf;
    for (unsigned i = 0; i < MERKLE_LEVELS; i++) {
        level_t *level = &tree->levels[i];
        if (level->count == level->cap) {
            level->cap = level->cap == 0 ? 16 : 2 * level->cap;
            level->nodes = mem_realloc(level->nodes, level->cap * sizeof(*level->nodes));
        }
        level->nodes[level->count++] = node;
        if (level->count % 2 != 0)
            return;
        merkle_node(&level->nodes[level->count - 2], &level->nodes[level->count - 1], &node);
    }
}

uint64_t merkle_tree_size(const merkle_tree_t *tree)
{
    return tree->levels[0].count;
}

bool merkle_tree_node_at(void *data, unsigned level, uint64_t index, merkle_hash_t *out)
{
    const merkle_tree_t *tree = data;
    if (level >= MERKLE_LEVELS || index >= tree->levels[level].count)
        return false;
    *out = tree->levels[level].nodes[index];
    return true;
}
