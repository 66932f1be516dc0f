/* toml.h -- TOML values as a tree; toml_parse.h makes one from text.
 *
 * Memory   toml_free frees the tree; its strings are owned by the tree. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum toml_kind {
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOL,
    TOML_DATETIME, /* with offset; `text` is normalized: 'T' in between, 'Z' in upper case */
    TOML_DATETIME_LOCAL,
    TOML_DATE_LOCAL,
    TOML_TIME_LOCAL,
    TOML_ARRAY,
    TOML_TABLE,
};

struct toml {
    enum toml_kind kind;
    int line, column; /* of the value, or of the header or key of a table; from 1 */
    char *key;        /* NULL in an array; NUL-terminated */
    size_t key_len;
    char *text; /* string, date or time; NUL-terminated, and `len` bytes long */
    size_t len;
    int64_t integer;
    double real;
    bool boolean;
    struct toml *first, *last, *next; /* members of a table or array; next sibling */
    size_t count;
    int made_by; /* private to the parser: enum made_by */
};

void toml_free(struct toml *root);

/* The member of a table, or NULL. */
struct toml *toml_find(const struct toml *table, const char *key, size_t len);
const struct toml *toml_get(const struct toml *table, const char *key); /* NULL: absent */
const char *toml_kind_name(enum toml_kind kind);                        /* "a string" */
