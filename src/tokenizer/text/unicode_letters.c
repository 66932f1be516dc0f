// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/unicode_letters.h"

#include <stddef.h>

struct unicode_lower {
    uint32_t code, lower[2];
};
struct unicode_range {
    uint32_t first, last;
};
#include "tokenizer/text/unicode_letters.inc"

int unicode_letters_lower(uint32_t code, uint32_t lower[2])
{
    size_t low = 0, high = sizeof unicode_lowers / sizeof *unicode_lowers;
    lower[0] = code;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct unicode_lower *l = &unicode_lowers[middle];
        if (l->code == code) {
            lower[0] = l->lower[0], lower[1] = l->lower[1];
            return l->lower[1] ? 2 : 1;
        }
        if (code < l->code)
            high = middle;
        else
            low = middle + 1;
    }
    return 1;
}

bool unicode_letters_is_accent(uint32_t code)
{
    size_t low = 0, high = sizeof unicode_accents / sizeof *unicode_accents;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code < unicode_accents[middle].first)
            high = middle;
        else if (code > unicode_accents[middle].last)
            low = middle + 1;
        else
            return true;
    }
    return false;
}
