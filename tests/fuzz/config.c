/* config.c -- fuzzes the TOML parser: any bytes must yield a tree that can be walked, or an error.
 */
// SPDX-License-Identifier: Apache-2.0
#include "base/option.h"
#include "base/toml_parse.h"
#include "config/sections.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static size_t walk(const struct toml *t, const struct option *rows, size_t count, void *into)
{
    size_t n = 1;
    for (size_t r = 0; r < count; r++)
        if (t->key && option_set(&rows[r], into, t) == STATUS_OK) option_release(&rows[r], into);
    for (const struct toml *c = t->first; c; c = c->next) n += walk(c, rows, count, into);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct toml *t;
    struct config c = {0};
    const struct config_section *s =
        &config_sections[8]; /* checkpoint: has options of every kind */
    if (!toml_parse((const char *)bytes, len, "fuzz", &t)) {
        if (!walk(t, s->rows, s->count, (char *)&c + s->offset)) abort();
        toml_free(t);
    }
    if (!toml_parse_value((const char *)bytes, len, "fuzz", &t)) toml_free(t);
    return 0;
}
