/* accumulate_gradients.c (cpu) -- one pass; the random numbers take most of the time. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate_gradients.h"
#include "backends/cpu/kernels/kernels.h"
#include "base/rng.h"
#include "ops/update.h"
#include "tensor/queue.h"

enum { BLOCK = 4096 /* elements of a work item */ };

/* Random bits of n elements from `begin` on. */
static void rounding_bits(const struct accumulate_gradients *a, size_t begin, size_t n,
                          uint16_t *bits)
{
    uint64_t have_block = UINT64_MAX, step = accumulate_gradients_step(a);
    struct rng_block b = {{0}};
    for (size_t i = 0; i < n; i++) {
        uint64_t at = accumulate_gradients_position(a, begin + i);
        if (at / ADAMW_BLOCK != have_block) {
            have_block = at / ADAMW_BLOCK;
            b = rng_bits(a->seed, RNG_GRADIENTS, step, have_block);
        }
        bits[i] = (uint16_t)(b.bits[at % ADAMW_BLOCK / 2] >> 16 * (at % 2));
    }
}

static void accumulate_block(const struct accumulate_gradients *a,
                             const struct accumulate_gradients_io *io, size_t begin, size_t n)
{
    uint16_t bits[BLOCK];
    const float *x = io->x_n + begin;
    bf16 *y = io->y_n + begin;
    rounding_bits(a, begin, n, bits);
    if (a->accumulate)
        for (size_t i = 0; i < n; i++)
            y[i] = bf16_from_f32_stochastic(x[i] + bf16_to_f32(y[i]), bits[i]);
    else
        for (size_t i = 0; i < n; i++) y[i] = bf16_from_f32_stochastic(x[i], bits[i]);
}

enum status KERNEL(accumulate_gradients)(const struct accumulate_gradients *a,
                                         const struct accumulate_gradients_io *io,
                                         struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = a->n / BLOCK + (a->n % BLOCK != 0);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        size_t begin = block * BLOCK, rest = a->n - begin;
        accumulate_block(a, io, begin, rest < BLOCK ? rest : BLOCK);
    }
    return STATUS_OK;
}
