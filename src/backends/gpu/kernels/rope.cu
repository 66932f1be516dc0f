/* A block takes as many whole tokens as give its threads work; a thread rotates a vector of a
 * head's lower half with one of its upper.  The tables' rows come from a cache: all heads read the
 * same. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/rope.h"
}

enum { THREADS = 256 };

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    rotate(struct rope a, int tokens, T *x_BTHK, const float *cos_TJ, const float *sin_TJ)
{
    int J = a.K / 2, vectors = J / WIDTH, each = a.H * vectors;
    size_t first = (size_t)blockIdx.x * tokens, all = (size_t)a.B * a.T;
    int work = (int)min((size_t)tokens, all - first) * each;
    float sign = a.inverse ? -1 : 1;
    for (int i = (int)threadIdx.x; i < work; i += THREADS) {
        size_t token = first + i / each;
        int head = i % each / vectors, j = i % vectors * WIDTH;
        size_t angle = (a.first + token % a.T) * J + j;
        T *low = x_BTHK + token * a.stride + head * a.K + j;
        float x[WIDTH], y[WIDTH], c[WIDTH], s[WIDTH];
        load<WIDTH>(low, x);
        load<WIDTH>(low + J, y);
        load<WIDTH>(cos_TJ + angle, c);
        load<WIDTH>(sin_TJ + angle, s);
        for (int k = 0; k < WIDTH; k++) {
            float kept = x[k];
            x[k] = kept * c[k] - sign * y[k] * s[k];
            y[k] = y[k] * c[k] + sign * kept * s[k];
        }
        store<WIDTH>(x, low);
        store<WIDTH>(y, low + J);
    }
}

template <typename T, int WIDTH>
static enum status run(const struct rope *a, const struct rope_io *io, struct queue *on)
{
    size_t each = (size_t)a->H * (size_t)a->K / 2 / WIDTH, all = (size_t)a->B * (size_t)a->T;
    size_t tokens = each < THREADS ? THREADS / each : 1;
    if (ceil_div(all, tokens) > INT32_MAX)
        FAIL(UNSUPPORTED, "rope: %zu tokens are more than a GPU takes at once", all);
    LAUNCH((rotate<T, WIDTH>), (unsigned)ceil_div(all, tokens), THREADS, 0, on, *a, (int)tokens,
           (T *)io->x_BTHK, io->cos_TJ, io->sin_TJ);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rope)(const struct rope *a, const struct rope_io *io,
                                      struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->K / 2, a->dtype) && a->K % 8 == 0 &&
                   rows_are_aligned(a->stride, a->dtype) && is_aligned(io->x_BTHK) &&
                   is_aligned(io->cos_TJ) && is_aligned(io->sin_TJ);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, run, a, io, on);
}
