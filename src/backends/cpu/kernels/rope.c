/* rope.c (cpu) -- loads the angles of a token once and rotates all of its heads in place; packed
 * tensors: panel by panel, head by head.  Bound by memory bandwidth. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { PREFETCH_TOKENS = 4 }; /* prefetch distance: one token ahead would be too late */

/* Of up to LANES pairs. */
struct rotation {
    vector cos, sin;
    size_t count;
};

/* Rotates pairs of one head: elements at u_at and v_at. */
static inline void rotate_pairs(void *x, enum dtype dtype, size_t u_at, size_t v_at,
                                struct rotation r)
{
    vector u = vector_get(x, u_at, dtype, r.count), v = vector_get(x, v_at, dtype, r.count);
    vector_set(x, u_at, dtype, r.count, u * r.cos - v * r.sin);
    vector_set(x, v_at, dtype, r.count, v * r.cos + u * r.sin);
}

/* Rotates the same pairs in all heads of a token; pair j is elements j and J + j.  at: the first
 * one's in the first head. */
static inline void rotate_heads(const struct rope *a, enum dtype dtype, void *x, size_t at,
                                struct rotation r)
{
    size_t J = (size_t)a->J;
    for (size_t h = 0; h < (size_t)a->H; h++, at += (size_t)a->K) {
        vector_prefetch(x, at + PREFETCH_TOKENS * a->stride, dtype);
        vector_prefetch(x, at + J + PREFETCH_TOKENS * a->stride, dtype);
        rotate_pairs(x, dtype, at, at + J, r);
    }
}

static inline void rotate(const struct rope *a, const struct rope_io *io, enum dtype dtype,
                          size_t n)
{
    size_t J = (size_t)a->J, at = n * a->stride, j = 0;
    size_t first = (size_t)a->first + n % (size_t)a->T;
    size_t position = io->positions_BT ? (size_t)io->positions_BT[n] : first;
    const float *cos_J = io->cos_TJ + position * J, *sin_J = io->sin_TJ + position * J;
    float sign = a->inverse ? -1 : 1;
    for (; j + LANES <= J; j += LANES) {
        struct rotation r = {vector_loadu(cos_J + j), sign * vector_loadu(sin_J + j), LANES};
        rotate_heads(a, dtype, io->x_BTHK, at + j, r);
    }
    if (j == J) return;
    struct rotation r = {.cos = vector_get(cos_J, j, F32, J - j),
                         .sin = sign * vector_get(sin_J, j, F32, J - j),
                         .count = J - j};
    rotate_heads(a, dtype, io->x_BTHK, at + j, r);
}

/* Pairs at a time of which both halves lie in one block of the panel layout. */
static size_t panel_chunk(size_t J)
{
    size_t chunk = LANES;
    while (J % chunk) chunk /= 2;
    return chunk;
}

/* Rotates a panel of tokens in the panel layout, where a head is K/32 blocks of 32 rows. */
static inline void rotate_panel(const struct rope *a, const struct rope_io *io, size_t panel,
                                size_t chunk)
{
    size_t K = (size_t)a->K, J = (size_t)a->J, first = panel * PANEL, next_head = PANEL * K;
    const size_t position = ((size_t)a->first + first % (size_t)a->T) * J;
    float sign = a->inverse ? -1 : 1;
    BUG_IF(a->K % PANEL || a->T % PANEL);
    for (size_t h = 0; h < (size_t)a->H; h++)
        for (size_t n = 0; n < PANEL; n++)
            for (size_t j = 0; j < J; j += chunk) {
                size_t u = panel_offset(true, first + n, h * K + j, a->stride);
                size_t v = panel_offset(true, first + n, h * K + J + j, a->stride);
                vector_prefetch(io->x_BTHK, u + next_head, BF16);
                vector_prefetch(io->x_BTHK, v + next_head, BF16);
                size_t angle = position + n * J + j;
                struct rotation r = {vector_get(io->cos_TJ, angle, F32, chunk),
                                     sign * vector_get(io->sin_TJ, angle, F32, chunk), chunk};
                rotate_pairs(io->x_BTHK, BF16, u, v, r);
            }
}

enum status KERNEL(rope)(const struct rope *a, const struct rope_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t tokens = (size_t)a->B * (size_t)a->T, panels = tokens / PANEL;
    size_t chunk = panel_chunk((size_t)a->J);
    if (KERNEL(panel_layout_used)(a->is_packed, a->dtype, a->B * a->T, (int)a->stride)) {
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
        for (size_t n = 0; n < panels; n++)
            if (chunk == LANES)
                rotate_panel(a, io, n, LANES);
            else
                rotate_panel(a, io, n, chunk);
        return STATUS_OK;
    }
#pragma omp parallel for schedule(static) num_threads(queue->num_threads) if (tokens > 1)
    for (size_t n = 0; n < tokens; n++)
        if (a->dtype == F32)
            rotate(a, io, F32, n);
        else
            rotate(a, io, BF16, n);
    return STATUS_OK;
}
