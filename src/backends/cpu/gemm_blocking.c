/* gemm_blocking.c (cpu) -- the AMX kernels (gemm_tiles.c) use only MC and KC.  The names are stored
 * in tuning files. */
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
