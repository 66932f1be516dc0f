// SPDX-License-Identifier: Apache-2.0
#include "base/toml.h"

#include <stdlib.h>
#include <string.h>

const char *toml_kind_name(enum toml_kind kind)
{
    static const char *const names[] = {
        [TOML_STRING] = "a string",   [TOML_INTEGER] = "a whole number",
        [TOML_FLOAT] = "a number",    [TOML_BOOL] = "true or false",
        [TOML_DATETIME] = "a date",   [TOML_DATETIME_LOCAL] = "a date",
        [TOML_DATE_LOCAL] = "a date", [TOML_TIME_LOCAL] = "a time",
        [TOML_ARRAY] = "an array",    [TOML_TABLE] = "a table"};
    return names[kind];
}

void toml_free(struct toml *root)
{
    if (!root) return;
    for (struct toml *c = root->first, *next; c; c = next) {
        next = c->next;
        toml_free(c); /* the parser bounds the depth */
    }
    free(root->key);
    free(root->text);
    free(root);
}

struct toml *toml_find(const struct toml *table, const char *key, size_t len)
{
    for (struct toml *c = table->first; c; c = c->next)
        if (c->key_len == len && !memcmp(c->key, key, len)) return c;
    return NULL;
}

const struct toml *toml_get(const struct toml *table, const char *key)
{
    return table && table->kind == TOML_TABLE ? toml_find(table, key, strlen(key)) : NULL;
}
