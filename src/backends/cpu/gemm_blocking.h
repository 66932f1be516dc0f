/* gemm_blocking.h -- the cache blockings (MC, NC, KC) that the bf16 GEMM can use, of which f32
 * takes the first.  All add up each element in the same order: the fastest depends on sizes and
 * processor, the bits do not.
 *
 * Memory   All need the same scratch, so the choice does not change what a step needs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

enum { GEMM_MAX_BLOCK = 64 };

struct gemm_blocking {
    const char *name;
    int mc, nc;    /* MC and NC: micro-panels of a block of C, at most GEMM_MAX_BLOCK */
    int kc_halves; /* KC, in halves of the depth at which a micro-panel fills its share of L1 */
};

/* Blocking i; the first is the default.  NULL past the last. */
const struct gemm_blocking *gemm_blocking_at(int i);
/* NULL: unknown name. */
const struct gemm_blocking *gemm_blocking_named(const char *name);
