/* attention_tiles.h -- products of panels on tiles, in pieces that other work can lie between.
 *
 * A processor with tiles computes with them and with its vectors at once, but looks only some
 * hundred operations ahead.  So a product is a row of steps, each of four products of tiles, and
 * vector code goes between steps.  What a product came to is stored in the first step of the next
 * one, tile by tile: so nothing waits for the last of its sums.  Panels are read past the first
 * cache, which does not hold all that goes round: so it keeps the sums, what vector code works on,
 * and those right panels that are said to be near. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"

#if defined(TILES)
enum { ACC_ROW_BYTES = PANEL * sizeof(float) };

/* sums[32][32] = from + left x right over panels of pairs.  From: sums, or one row for all, or
 * NULL: zeros. */
struct tile_matmul {
    const char *left, *right;
    size_t left_step, right_step, steps; /* bytes from a step to the next; how many */
    bool right_l1;
    const float *init;
    bool broadcast_row;
    float *to;
};

/* sums += left x right, over one step. */
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

/* A tile's sums to where they belong, and others into it. */
#define TILE_SWAP(t, pending, init, row_bytes)                                                     \
    do {                                                                                           \
        TILE_STORE(t, pending, ACC_ROW_BYTES);                                                     \
        if (init)                                                                                  \
            TILE_LOAD(t, init, row_bytes);                                                         \
        else                                                                                       \
            TILE_ZERO(t);                                                                          \
    } while (0)

/* The first step: what the tiles hold goes to `held`, each as late as it may. */
static inline void tiles_first_k_step(const char *left, const char *right, bool right_l1,
                                      float *pending, const float *init, bool broadcast_row)
{
    const size_t row_bytes = broadcast_row ? 0 : ACC_ROW_BYTES,
                 lower = broadcast_row ? 0 : MICRO_TILE_LOWER;
    TILE_STREAM(4, left, 64);
    TILE_LOAD_VIA(6, right, right_l1);
    TILE_SWAP(0, pending, init, row_bytes);
    TILE_DOT(0, 4, 6);
    TILE_LOAD_VIA(7, right + 1024, right_l1);
    TILE_SWAP(1, pending + 16, init ? init + 16 : NULL, row_bytes);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_SWAP(2, pending + MICRO_TILE_LOWER, init ? init + lower : NULL, row_bytes);
    TILE_DOT(2, 5, 6);
    TILE_SWAP(3, pending + MICRO_TILE_LOWER + 16, init ? init + lower + 16 : NULL, row_bytes);
    TILE_DOT(3, 5, 7);
}

/* Step `step` of a product; *held: where the sums belong that the tiles hold. */
static inline void tile_matmul_step(const struct tile_matmul *p, size_t step, float **pending)
{
    const char *left = p->left + step * p->left_step, *right = p->right + step * p->right_step;
    if (step) {
        tiles_k_step(left, right, p->right_l1);
        return;
    }
    tiles_first_k_step(left, right, p->right_l1, *pending, p->init, p->broadcast_row);
    *pending = p->to;
}

static inline void tile_matmul_run(const struct tile_matmul *p, float **pending)
{
    for (size_t i = 0; i < p->steps; i++) tile_matmul_step(p, i, pending);
}

/* Stores what the tiles hold; it may be stored again, to `nowhere`. */
static inline void tile_matmul_flush(float **pending, float *discard)
{
    TILES_STORE(*pending);
    *pending = discard;
}
#endif
