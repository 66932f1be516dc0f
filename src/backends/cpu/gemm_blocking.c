/* way.c (cpu) -- of a block only the rows count where there are tiles (gemm_tiles.c).  On Zen 5,
 * two threads, the layers of a 124.7M Llama, processor time over the usual way's: far wide 0.92 to
 * 0.99 forward and for the input's gradient, but 1.08 to 1.16 where sums are over 4096 tokens or a
 * vocabulary; near is never the fastest there, and is for smaller caches.
 */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/gemm_blocking.h"

#include <stddef.h>
#include <string.h>

static const struct gemm_blocking blockings[] = {
    {"usual", 8, 8, 2}, {"near", 8, 8, 1},      {"far", 8, 8, 4},
    {"wide", 4, 16, 2}, {"far wide", 4, 16, 8},
};

const struct gemm_blocking *gemm_blocking_at(int i)
{
    return i < (int)(sizeof blockings / sizeof *blockings) ? &blockings[i] : NULL;
}

const struct gemm_blocking *gemm_blocking_named(const char *name)
{
    for (int i = 0; gemm_blocking_at(i); i++)
        if (!strcmp(blockings[i].name, name)) return &blockings[i];
    return NULL;
}
