/* yaml_tree.h -- parses one YAML 1.1 document into a tree, with libyaml.
 *
 * Aliases become copies, and merge keys (<<) are merged.  The limits below also bound these, which
 * defeats "billion laughs" inputs.  Scalars stay text (`3e-4`): the caller interprets them.
 * Memory   yaml_tree_parse returns a tree with its strings, which yaml_tree_free frees.
 * Limits   64 levels of nesting, 20000 nodes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum yaml_tree_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_tree {
    enum yaml_tree_kind kind;
    int line, column; /* from 1; 0 if not parsed from a file */
    char *key;        /* in its mapping; NULL in a list */
    char *text;       /* of a scalar; NUL-terminated */
    bool plain;       /* unquoted: may be a null, a number or a bool */
    struct yaml_tree *parent, *first, *last, *next;
    size_t count;
};

/* DATA: not valid YAML, or beyond the limits; the message has name:line:column. */
enum status yaml_tree_parse(const char *bytes, size_t len, const char *name,
                            struct yaml_tree **out);
void yaml_tree_free(struct yaml_tree *root);

struct yaml_tree *yaml_tree_get(const struct yaml_tree *map, const char *key); /* NULL if absent */
bool yaml_tree_is_null(const struct yaml_tree *v);          /* absent, ~, null or empty */
const char *yaml_tree_kind_name(const struct yaml_tree *v); /* "a list" */
