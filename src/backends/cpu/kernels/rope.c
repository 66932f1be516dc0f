// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"
#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

enum { PREFETCH_TOKENS = 4 }; /* prefetch distance: one token ahead would be too late */

/* Rotates `count` pairs of one head: elements at u_at and v_at. */
static inline void rotate_pairs(void *x, enum dtype dtype, size_t u_at, size_t v_at, vector cos,
                                vector sin, size_t count)
{
    vector u = vector_get(x, u_at, dtype, count), v = vector_get(x, v_at, dtype, count);
    vector_set(x, u_at, dtype, count, u * cos - v * sin);
    vector_set(x, v_at, dtype, count, v * cos + u * sin);
}

/* Rotates pairs j to j + count - 1 of a token in all its heads; pair j is elements j and J + j. */
static inline void rotate_heads(const struct rope *a, enum dtype dtype, void *x, size_t at,
                                vector cos, vector sin, size_t count)
{
    size_t J = (size_t)a->K / 2;
    for (size_t h = 0; h < (size_t)a->H; h++, at += 2 * J) {
        vector_prefetch(x, at + PREFETCH_TOKENS * a->stride, dtype);
        vector_prefetch(x, at + J + PREFETCH_TOKENS * a->stride, dtype);
        rotate_pairs(x, dtype, at, at + J, cos, sin, count);
    }
}

static inline void rotate(const struct rope *a, const struct rope_io *io, enum dtype dtype,
                          size_t n)
{
    size_t J = (size_t)a->K / 2, at = n * a->stride, j = 0;
    size_t position = ((size_t)a->first + n % (size_t)a->T) * J;
    const float *cos_J = io->cos_TJ + position, *sin_J = io->sin_TJ + position;
    float sign = a->inverse ? -1 : 1;
    for (; j + LANES <= J; j += LANES)
        rotate_heads(a, dtype, io->x_BTHK, at + j, vector_loadu(cos_J + j),
                     sign * vector_loadu(sin_J + j), LANES);
    if (j == J) return;
    vector cos = vector_get(cos_J, j, F32, J - j), sin = vector_get(sin_J, j, F32, J - j);
    rotate_heads(a, dtype, io->x_BTHK, at + j, cos, sign * sin, J - j);
}

/* Rotates a panel of tokens in the panel layout, where a head is K/32 blocks of 32 rows. */
static void rotate_panel(const struct rope *a, const struct rope_io *io, size_t panel)
{
    size_t K = (size_t)a->K, J = K / 2, first = panel * PANEL, next_head = PANEL * K;
    const size_t position = ((size_t)a->first + first % (size_t)a->T) * J;
    float sign = a->inverse ? -1 : 1;
    BUG_IF(a->K % PANEL || a->T % PANEL);
    for (size_t h = 0; h < (size_t)a->H; h++)
        for (size_t n = 0; n < PANEL; n++)
            for (size_t j = 0; j < J; j += LANES) {
                size_t u = panel_offset(true, first + n, h * K + j, a->stride);
                size_t v = panel_offset(true, first + n, h * K + J + j, a->stride);
                vector_prefetch(io->x_BTHK, u + next_head, BF16);
                vector_prefetch(io->x_BTHK, v + next_head, BF16);
                rotate_pairs(io->x_BTHK, BF16, u, v,
                             vector_loadu(io->cos_TJ + position + n * J + j),
                             sign * vector_loadu(io->sin_TJ + position + n * J + j), LANES);
            }
}

enum status KERNEL(rope)(const struct rope *a, const struct rope_io *io, struct queue *queue)
{
    if (queue->measuring) return STATUS_OK;
    size_t tokens = (size_t)a->B * (size_t)a->T, panels = tokens / PANEL;
    if (KERNEL(panel_layout_used)(a->is_private, a->dtype, a->B * a->T, (int)a->stride)) {
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
        for (size_t n = 0; n < panels; n++) rotate_panel(a, io, n);
        return STATUS_OK;
    }
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t n = 0; n < tokens; n++)
        if (a->dtype == F32)
            rotate(a, io, F32, n);
        else
            rotate(a, io, BF16, n);
    return STATUS_OK;
}
