/* Each block rotates as many whole tokens as occupy its threads; each thread rotates a vector of a
 * head's lower half with the matching one of its upper half.  All heads of a token read the same
 * row of the cos and sin tables, which stays in cache. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/rope.h"
}

enum { THREADS = 256 };

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    rope_kernel(struct rope a, int tokens, T *x_BTHK, const float *cos_TJ, const float *sin_TJ)
{
    int J = a.K / 2, vectors = J / WIDTH, per_token = a.H * vectors;
    size_t first = (size_t)blockIdx.x * tokens, all = (size_t)a.B * a.T;
    int work = (int)min((size_t)tokens, all - first) * per_token;
    float sign = a.inverse ? -1 : 1;
    for (int i = (int)threadIdx.x; i < work; i += THREADS) {
        size_t token = first + i / per_token;
        int head = i % per_token / vectors, j = i % vectors * WIDTH;
        size_t angle = (a.first + token % a.T) * J + j;
        T *low = x_BTHK + token * a.stride + head * a.K + j;
        float x[WIDTH], y[WIDTH], c[WIDTH], s[WIDTH];
        load<WIDTH>(low, x);
        load<WIDTH>(low + J, y);
        load<WIDTH>(cos_TJ + angle, c);
        load<WIDTH>(sin_TJ + angle, s);
        for (int k = 0; k < WIDTH; k++) {
            float lower = x[k];
            x[k] = lower * c[k] - sign * y[k] * s[k];
            y[k] = y[k] * c[k] + sign * lower * s[k];
        }
        store<WIDTH>(x, low);
        store<WIDTH>(y, low + J);
    }
}

template <typename T, int WIDTH>
static enum status launch(const struct rope *a, const struct rope_io *io, struct queue *queue)
{
    size_t per_token = (size_t)a->H * (size_t)a->K / 2 / WIDTH, all = (size_t)a->B * (size_t)a->T;
    size_t tokens = per_token < THREADS ? THREADS / per_token : 1;
    if (ceil_div(all, tokens) > INT32_MAX)
        FAIL(UNSUPPORTED, "rope: %zu tokens exceed the maximum grid size", all);
    LAUNCH((rope_kernel<T, WIDTH>), (unsigned)ceil_div(all, tokens), THREADS, 0, queue, *a,
           (int)tokens, (T *)io->x_BTHK, io->cos_TJ, io->sin_TJ);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rope)(const struct rope *a, const struct rope_io *io,
                                      struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->K / 2, a->dtype) && a->K % 8 == 0 &&
                   rows_are_aligned(a->stride, a->dtype) && is_aligned(io->x_BTHK) &&
                   is_aligned(io->cos_TJ) && is_aligned(io->sin_TJ);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch, a, io, queue);
}
