/* accumulate_gradients.cu -- gradient accumulation in bf16 with stochastic rounding; memory-bound,
 * a thread has eight consecutive elements. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"
#include "backends/gpu/kernels/stochastic.h"

extern "C" {
#include "ops/accumulate_gradients.h"
#include "tensor/queue.h"
}

enum { BLOCK = 256, WIDTH = 8, MAX_GRID = 4096 };

template <int WIDTH>
static __device__ void accumulate_vector(const struct random_position &r, bool accumulate,
                                         const float *x_n, size_t at, bf16 *y_n)
{
    float sum[WIDTH], old[WIDTH];
    load<WIDTH>(x_n + at, sum);
    if (accumulate) {
        load<WIDTH>(y_n + at, old);
        for (int i = 0; i < WIDTH; i++) sum[i] += old[i];
    }
    store_stochastic<WIDTH>(r, sum, at, y_n);
}

template <int WIDTH>
__global__ static void __launch_bounds__(BLOCK)
    accumulate_kernel(struct random_position r, bool accumulate, size_t n, const float *x_n,
                      bf16 *y_n)
{
    const size_t threads = (size_t)gridDim.x * BLOCK, vectors = n / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    for (size_t i = first; i < vectors; i += threads)
        accumulate_vector<WIDTH>(r, accumulate, x_n, i * WIDTH, y_n);
    for (size_t i = vectors * WIDTH + first; i < n; i += threads)
        accumulate_vector<1>(r, accumulate, x_n, i, y_n);
}

extern "C" enum status GPU_NAME(accumulate_gradients)(const struct accumulate_gradients *a,
                                                      const struct accumulate_gradients_io *io,
                                                      struct queue *queue)
{
    if (queue->sizing || !a->n) return STATUS_OK;
    struct random_position r = {RNG_GRADIENTS, a->seed, accumulate_gradients_step(a),
                                a->position,   a->run,  a->stride};
    const bool wide = is_aligned(io->x_n) && is_aligned(io->y_n);
    const size_t blocks = ceil_div(a->n, (size_t)BLOCK * (wide ? (size_t)WIDTH : 1));
    const unsigned grid = blocks < MAX_GRID ? (unsigned)blocks : (unsigned)MAX_GRID;
    if (wide)
        LAUNCH(accumulate_kernel<WIDTH>, grid, BLOCK, 0, queue, r, a->accumulate, a->n, io->x_n,
               io->y_n);
    else
        LAUNCH(accumulate_kernel<1>, grid, BLOCK, 0, queue, r, a->accumulate, a->n, io->x_n,
               io->y_n);
    return STATUS_OK;
}
