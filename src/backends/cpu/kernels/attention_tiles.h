/* attention_tiles.h -- matrix multiplies of micro-panels on AMX tiles, in steps that can be
 * interleaved with vector code.
 *
 * The processor runs tile and vector instructions in parallel, but its out-of-order window covers
 * only a few hundred instructions.  So a matrix multiply is a sequence of k-steps of four TDPBF16PS
 * each, and callers put vector code between them.  Accumulators are stored during the first k-step
 * of the next matrix multiply, tile by tile, which hides the latency of the last one.  Panels
 * bypass L1, which is too small for all of them: it keeps accumulators, what the vector code
 * reads, and right panels with right_l1. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"

#if defined(TILES)
enum { ACC_ROW_BYTES = PANEL * sizeof(float) };

/* acc[32][32] = init + left x right over bf16 panels. init: accumulators, one row for all rows
 * (broadcast_row), or NULL for zeros. */
struct tile_matmul {
    const char *left, *right;
    size_t left_step, right_step, steps; /* bytes from a k-step to the next; number of k-steps */
    bool right_l1;
    const float *init;
    bool broadcast_row;
    float *to;
};

/* acc += left x right over one k-step. */
static inline void tiles_k_step(const char *left, const char *right, bool right_l1)
{
    TILE_STREAM(4, left, 64);
    TILE_LOAD_VIA(6, right, right_l1);
    TILE_DOT(0, 4, 6);
    TILE_LOAD_VIA(7, right + 1024, right_l1);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
}

/* Stores a tile's accumulators to `pending` and loads the next ones. */
#define TILE_SWAP(t, pending, init, row_bytes)                                                     \
    do {                                                                                           \
        TILE_STORE(t, pending, ACC_ROW_BYTES);                                                     \
        if (init)                                                                                  \
            TILE_LOAD(t, init, row_bytes);                                                         \
        else                                                                                       \
            TILE_ZERO(t);                                                                          \
    } while (0)

/* The first k-step: stores the tiles' old accumulators to `pending`, each as late as possible. */
static inline void tiles_first_k_step(const struct tile_matmul *p, float *pending)
{
    const char *left = p->left, *right = p->right;
    const float *init = p->init;
    const size_t row_bytes = p->broadcast_row ? 0 : ACC_ROW_BYTES;
    const size_t lower = p->broadcast_row ? 0 : MICRO_TILE_LOWER;
    TILE_STREAM(4, left, 64);
    TILE_LOAD_VIA(6, right, p->right_l1);
    TILE_SWAP(0, pending, init, row_bytes);
    TILE_DOT(0, 4, 6);
    TILE_LOAD_VIA(7, right + 1024, p->right_l1);
    TILE_SWAP(1, pending + 16, init ? init + 16 : NULL, row_bytes);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_SWAP(2, pending + MICRO_TILE_LOWER, init ? init + lower : NULL, row_bytes);
    TILE_DOT(2, 5, 6);
    TILE_SWAP(3, pending + MICRO_TILE_LOWER + 16, init ? init + lower + 16 : NULL, row_bytes);
    TILE_DOT(3, 5, 7);
}

/* Runs k-step `step`.  *pending: destination of the accumulators that the tiles hold. */
static inline void tile_matmul_step(const struct tile_matmul *p, size_t step, float **pending)
{
    if (step) {
        tiles_k_step(p->left + step * p->left_step, p->right + step * p->right_step, p->right_l1);
        return;
    }
    tiles_first_k_step(p, *pending);
    *pending = p->to;
}

static inline void tile_matmul_run(const struct tile_matmul *p, float **pending)
{
    for (size_t i = 0; i < p->steps; i++) tile_matmul_step(p, i, pending);
}

/* Stores the accumulators; the tiles may be stored again, to `discard`. */
static inline void tile_matmul_flush(float **pending, float *discard)
{
    TILES_STORE(*pending);
    *pending = discard;
}
#endif
