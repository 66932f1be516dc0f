/* adamw_8bit.c (cpu) -- one pass over quantized moments, block by block; the compiler vectorizes
 * the loops, with gathers from the quantization maps where the ISA has them. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw_8bit.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/blockwise.h"
#include "tensor/queue.h"

#include <math.h>

enum { BLOCK = BLOCKWISE_BLOCK, WORK_BLOCKS = 16 /* per work item */ };

/* Moments and weights of a block in f32. */
struct block {
    float m[BLOCK], v[BLOCK], w[BLOCK];
};

static void load_block(const struct adamw *a, const struct adamw_8bit_io *io, size_t at, size_t n,
                       float *restrict w)
{
    const bf16 *half = io->copy_n;
    if (a->split)
        for (size_t i = 0; i < n; i++) w[i] = split_to_f32(half[at + i], io->low_n[at + i]);
    else
        memcpy(w, io->w_n + at, n * sizeof *w);
}

static void store_block(const struct adamw *a, const struct adamw_8bit_io *io, size_t at, size_t n,
                        const float *restrict w)
{
    bf16 *half = io->copy_n;
    if (a->split) {
        for (size_t i = 0; i < n; i++) split_from_f32(w[i], &half[at + i], &io->low_n[at + i]);
        return;
    }
    memcpy(io->w_n + at, w, n * sizeof *w);
    if (io->copy_n) vector_store(io->copy_n, at, a->copy_dtype, n, w);
}

/* The explicit FMAs of the reference, so that both round to the same codes. */
static void update_block(const struct adamw_coefficients *c, const float *restrict g, size_t n,
                         struct block *restrict b)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float grad = g[i] * c->scale;
        float m = fmaf(c->new1, grad, c->beta1 * b->m[i]);
        float v = fmaf(c->new2 * grad, grad, c->beta2 * b->v[i]);
        b->m[i] = m, b->v[i] = v;
        b->w[i] = fmaf(c->keep, b->w[i], -(c->rate * m / fmaf(sqrtf(v), c->root, c->eps)));
    }
}

enum status KERNEL(adamw_8bit)(const struct adamw_8bit *op, const struct adamw_8bit_io *io,
                               struct queue *queue)
{
    const struct adamw *a = &op->adamw;
    struct blockwise_map first, second;
    if (queue->sizing) return STATUS_OK;
    const struct adamw_coefficients c = adamw_coefficients_of(a);
    size_t blocks = blockwise_num_blocks(a->n);
    blockwise_map_init(&first, true), blockwise_map_init(&second, false);
#pragma omp parallel for schedule(static, WORK_BLOCKS) num_threads(queue->num_threads)
    for (size_t i = 0; i < blocks; i++) {
        struct block b;
        float g[BLOCK];
        size_t at = i * BLOCK, n = a->n - at < BLOCK ? a->n - at : BLOCK;
        blockwise_dequantize(&first, io->m_n + at, n, io->m_scale[i], b.m);
        blockwise_dequantize(&second, io->v_n + at, n, io->v_scale[i], b.v);
        load_block(a, io, at, n, b.w);
        vector_load(io->g_n, at, a->gradients, n, g);
        update_block(&c, g, n, &b);
        store_block(a, io, at, n, b.w);
        blockwise_quantize(&first, b.m, n, io->m_n + at, &io->m_scale[i]);
        blockwise_quantize(&second, b.v, n, io->v_n + at, &io->v_scale[i]);
    }
    return STATUS_OK;
}
