/* yaml_tree.h -- YAML 1.1 by libyaml: one document as a tree.
 *
 * Anchors are copied to where they are named, merge keys (<<) are merged; both bounded, so that a
 * few bytes cannot become many.  What a scalar means is left to who asks: `3e-4` stays text.
 * Memory   yaml_tree_parse gives a tree that yaml_tree_free frees; its strings live as long.
 * Limits   Nesting 64 deep, 20000 nodes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum yaml_tree_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_tree {
    enum yaml_tree_kind kind;
    int line, column; /* from 1; 0: made, not read */
    char *key;        /* name in its map, or NULL in a list */
    char *text;       /* of a scalar; NUL-terminated */
    bool plain;       /* written without quotes: it may mean null, a number or a truth */
    struct yaml_tree *parent, *first, *last, *next;
    size_t count;
};

/* DATA: not YAML, or more than the limits; name:line:column and what is wrong. */
enum status yaml_tree_parse(const char *bytes, size_t len, const char *name,
                            struct yaml_tree **out);
void yaml_tree_free(struct yaml_tree *root);

struct yaml_tree *yaml_tree_get(const struct yaml_tree *map, const char *key); /* NULL: absent */
bool yaml_tree_is_null(const struct yaml_tree *v);          /* absent, ~, null or nothing */
const char *yaml_tree_kind_name(const struct yaml_tree *v); /* "a list" */
