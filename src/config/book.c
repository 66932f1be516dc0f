// SPDX-License-Identifier: Apache-2.0
#include "config/book.h"

#include <stdlib.h>
#include <string.h>

void book_release(struct config_book *b)
{
    for (size_t i = 0; i < b->num_trees; i++) toml_free(b->trees[i]);
    for (size_t i = 0; i < b->num_origins; i++) free(b->origins[i].where);
    free(b->trees);
    free(b->origins);
    text_release(&b->without_effect);
    refusals_release(&b->refusals);
    free(b->path);
}

void book_keep_tree(struct config_book *b, struct toml *tree)
{
    if (!tree) return;
    b->trees = heap_grow(b->trees, b->num_trees + 1, sizeof *b->trees);
    b->trees[b->num_trees++] = tree;
}

void book_note_origin(struct config_book *b, const struct option *row, const char *file, int line)
{
    struct text t = {0};
    text_adds(&t, file);
    if (line) text_addf(&t, ":%d", line);
    for (size_t i = 0; i < b->num_origins; i++)
        if (b->origins[i].row == row) {
            free(b->origins[i].where);
            b->origins[i].where = t.data;
            return;
        }
    b->origins = heap_grow(b->origins, b->num_origins + 1, sizeof *b->origins);
    b->origins[b->num_origins++] = (struct value_origin){row, t.data};
}

const char *book_origin(const struct config_book *b, const struct option *row)
{
    for (size_t i = 0; i < b->num_origins; i++)
        if (b->origins[i].row == row) return b->origins[i].where;
    return "default";
}

bool book_is_default(const struct config_book *b, const char *key)
{
    const struct config_section *section;
    return !strcmp(book_origin(b, config_find(key, &section)), "default");
}
