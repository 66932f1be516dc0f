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
enum { LINE = PANEL * sizeof(float) };

/* sums[32][32] = from + left x right over panels of pairs.  From: sums, or one row for all, or
 * NULL: zeros. */
struct product {
    const char *left, *right;
    size_t left_step, right_step, steps; /* bytes from a step to the next; how many */
    bool right_near;
    const float *from;
    bool one_row;
    float *to;
};

/* sums += left x right, over one step. */
static inline void tiles_multiply(const char *left, const char *right, bool near)
{
    TILE_STREAM(4, left, 64);
    TILE_TAKE(6, right, near);
    TILE_DOT(0, 4, 6);
    TILE_TAKE(7, right + 1024, near);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
}

/* A tile's sums to where they belong, and others into it. */
#define TILE_CHANGE(t, held, from, line)                                                           \
    do {                                                                                           \
        TILE_STORE(t, held, LINE);                                                                 \
        if (from)                                                                                  \
            TILE_LOAD(t, from, line);                                                              \
        else                                                                                       \
            TILE_ZERO(t);                                                                          \
    } while (0)

/* The first step: what the tiles hold goes to `held`, each as late as it may. */
static inline void tiles_begin(const char *left, const char *right, bool near, float *held,
                               const float *from, bool one_row)
{
    const size_t line = one_row ? 0 : LINE, lower = one_row ? 0 : LOWER;
    TILE_STREAM(4, left, 64);
    TILE_TAKE(6, right, near);
    TILE_CHANGE(0, held, from, line);
    TILE_DOT(0, 4, 6);
    TILE_TAKE(7, right + 1024, near);
    TILE_CHANGE(1, held + 16, from ? from + 16 : NULL, line);
    TILE_DOT(1, 4, 7);
    TILE_STREAM(5, left + 1024, 64);
    TILE_CHANGE(2, held + LOWER, from ? from + lower : NULL, line);
    TILE_DOT(2, 5, 6);
    TILE_CHANGE(3, held + LOWER + 16, from ? from + lower + 16 : NULL, line);
    TILE_DOT(3, 5, 7);
}

/* Step `step` of a product; *held: where the sums belong that the tiles hold. */
static inline void product_step(const struct product *p, size_t step, float **held)
{
    const char *left = p->left + step * p->left_step, *right = p->right + step * p->right_step;
    if (step) {
        tiles_multiply(left, right, p->right_near);
        return;
    }
    tiles_begin(left, right, p->right_near, *held, p->from, p->one_row);
    *held = p->to;
}

static inline void product_run(const struct product *p, float **held)
{
    for (size_t i = 0; i < p->steps; i++) product_step(p, i, held);
}

/* Stores what the tiles hold; it may be stored again, to `nowhere`. */
static inline void product_end(float **held, float *nowhere)
{
    TILES_STORE(*held);
    *held = nowhere;
}
#endif
