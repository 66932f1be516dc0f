/* counted.h -- a number with its noun, for people: "1 token", "2 tokens". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

struct counted {
    char text[64];
};
/* `noun` is the singular of a noun whose plural ends in s, in at most 40 bytes. */
struct counted counted_format(int64_t count, const char *noun);
