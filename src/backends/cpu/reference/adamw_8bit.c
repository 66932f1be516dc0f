// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw_8bit.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"
#include "tensor/blockwise.h"

#include <math.h>

/* The explicit FMAs are those of reference_adamw. */
static void update_weight(const struct adamw *a, const struct adamw_8bit_io *io, size_t i,
                          const struct adamw_coefficients *c, const float moments[2])
{
    bf16 *half = io->copy_n;
    float m = moments[0], v = moments[1];
    float w = a->split ? split_to_f32(half[i], io->low_n[i]) : io->w_n[i];
    w = fmaf(c->keep, w, -(c->rate * m / fmaf(sqrtf(v), c->root, c->eps)));
    if (a->split) {
        split_from_f32(w, &half[i], &io->low_n[i]);
        return;
    }
    io->w_n[i] = w;
    if (io->copy_n) element_set(io->copy_n, i, a->copy_dtype, w);
}

enum status reference_adamw_8bit(const struct adamw_8bit *op, const struct adamw_8bit_io *io,
                                 struct queue *queue)
{
    const struct adamw *a = &op->adamw;
    struct blockwise_map first, second;
    if (queue->sizing) return STATUS_OK;
    const struct adamw_coefficients c = adamw_coefficients_of(a);
    blockwise_map_init(&first, true), blockwise_map_init(&second, false);
    for (size_t block = 0; block < blockwise_num_blocks(a->n); block++) {
        float m[BLOCKWISE_BLOCK], v[BLOCKWISE_BLOCK];
        size_t at = block * BLOCKWISE_BLOCK, n = a->n - at;
        if (n > BLOCKWISE_BLOCK) n = BLOCKWISE_BLOCK;
        blockwise_dequantize(&first, io->m_n + at, n, io->m_scale[block], m);
        blockwise_dequantize(&second, io->v_n + at, n, io->v_scale[block], v);
        for (size_t i = 0; i < n; i++) {
            float g = element_get(io->g_n, at + i, a->gradients) * c.scale;
            m[i] = fmaf(c.new1, g, c.beta1 * m[i]);
            v[i] = fmaf(c.new2 * g, g, c.beta2 * v[i]);
            update_weight(a, io, at + i, &c, (const float[]){m[i], v[i]});
        }
        blockwise_quantize(&first, m, n, io->m_n + at, &io->m_scale[block]);
        blockwise_quantize(&second, v, n, io->v_n + at, &io->v_scale[block]);
    }
    return STATUS_OK;
}
