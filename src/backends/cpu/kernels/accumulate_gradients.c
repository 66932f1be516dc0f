/* accumulate_gradients.c (cpu) -- one pass; the random numbers take most of the time. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/accumulate_gradients.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/rounding_bits.h"
#include "tensor/queue.h"

enum { BLOCK = 4096 /* elements of a work item */ };

static void accumulate_block(const struct accumulate_gradients *a,
                             const struct accumulate_gradients_io *io, size_t begin, size_t n)
{
    const struct random_position random = {RNG_GRADIENTS, a->seed, accumulate_gradients_step(a),
                                           a->position,   a->run,  a->stride};
    uint16_t bits[BLOCK];
    const float *x = io->x_n + begin;
    bf16 *y = io->y_n + begin;
    rounding_bits_fill(&random, begin, n, bits);
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
