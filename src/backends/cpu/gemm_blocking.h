/* way.h -- the ways in which a product of bf16 can be cut, all with the same sums in the same
 * order: which one is the fastest depends on sizes and processor, the bits do not.
 *
 * Memory   All need the same, so which one is taken does not change what a step needs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

enum { GEMM_MAX_BLOCK = 64 };

struct gemm_blocking {
    const char *name;
    int mc, nc;    /* panels of a block of C: at most WAY_BLOCK */
    int kc_halves; /* half as much again of a panel stays in the first level of the cache */
};

/* Way i; the first is the usual one.  NULL past the last. */
const struct gemm_blocking *gemm_blocking_at(int i);
/* NULL: no way has that name. */
const struct gemm_blocking *gemm_blocking_named(const char *name);
