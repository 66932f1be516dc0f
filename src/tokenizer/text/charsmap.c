// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/charsmap.h"

#include "base/file.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum status charsmap_init(struct charsmap *c, const void *blob, size_t len)
{
    struct reader r = {blob, (const unsigned char *)blob + len, "precompiled_charsmap"};
    const unsigned char *trie;
    uint32_t trie_bytes;
    *c = (struct charsmap){0};
    TRY(reader_u32(&r, &trie_bytes, "the size of the trie"));
    TRY(reader_bytes(&r, trie_bytes, &trie, "the trie"));
    size_t left = reader_left(&r);
    if (trie_bytes < 4 || trie_bytes % 4)
        FAIL(DATA, "precompiled_charsmap: the trie has %u bytes; expected a multiple of 4",
             trie_bytes);
    if (!left || r.at[left - 1])
        FAIL(DATA, "precompiled_charsmap: the strings do not end in a NUL");
    c->num_units = trie_bytes / 4;
    c->units = heap(trie_bytes);
    for (size_t i = 0; i < c->num_units; i++)
        for (size_t k = 0; k < 4; k++) c->units[i] |= (uint32_t)trie[4 * i + k] << (8 * k);
    c->strings_bytes = left;
    c->strings = heap(left);
    memcpy(c->strings, r.at, left);
    return STATUS_OK;
}

void charsmap_release(struct charsmap *c)
{
    free(c->units);
    free(c->strings);
    *c = (struct charsmap){0};
}

static size_t unit_offset(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 0x200) >> 6); }

static const char *find(const struct charsmap *c, const unsigned char *bytes, size_t left,
                        size_t *len, bool shortest)
{
    const char *found = NULL;
    size_t node = c->num_units ? unit_offset(c->units[0]) : 0;
    for (size_t i = 0; i < left; i++) {
        node ^= bytes[i];
        if (node >= c->num_units) break;
        uint32_t unit = c->units[node];
        if ((unit & 0x800000FFu) != bytes[i]) break;
        node ^= unit_offset(unit);
        if (!(unit & 0x100)) continue;
        size_t value = node < c->num_units ? c->units[node] & 0x7FFFFFFFu : SIZE_MAX;
        if (value >= c->strings_bytes) break;
        found = c->strings + value;
        *len = i + 1;
        if (shortest) break;
    }
    return found;
}

const char *charsmap_find(const struct charsmap *c, const unsigned char *bytes, size_t left,
                          size_t *len)
{
    return find(c, bytes, left, len, false);
}

const char *charsmap_find_shortest(const struct charsmap *c, const unsigned char *bytes,
                                   size_t left)
{
    size_t len;
    return find(c, bytes, left, &len, true);
}
