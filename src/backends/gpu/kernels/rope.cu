/* rope.cu -- each thread loads the angles of one vector of a head's coordinates once and rotates
 * that vector, with the matching one J further on, in several heads of a token: slot, slot + slots
 * and so on.  A block takes as many whole tokens as occupy its threads. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/rope.h"
}

enum {
    THREADS = 256,
    MAX_THREADS = 512,
    MAX_SLOTS = 8,
    IN_FLIGHT = 2
}; /* IN_FLIGHT: heads loaded at once */

/* How tokens and heads are distributed over threads. */
struct rope_grid {
    unsigned vectors, slots, lanes; /* of J; threads along heads; vectors * slots */
    unsigned tokens, all;           /* per block; in all */
};

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(MAX_THREADS)
    rope_kernel(struct rope a, struct rope_grid g, T *x_BTHK, const float *cos_TJ,
                const float *sin_TJ, const int32_t *positions_BT)
{
    const int J = a.J;
    const unsigned in_block = threadIdx.x / g.lanes, lane = threadIdx.x - in_block * g.lanes;
    const unsigned token = blockIdx.x * g.tokens + in_block;
    if (in_block >= g.tokens || token >= g.all) return;
    const unsigned slot = lane / g.vectors, j = (lane - slot * g.vectors) * WIDTH;
    const size_t position = (size_t)a.first + token % (unsigned)a.T;
    const size_t angle = (positions_BT ? (size_t)positions_BT[token] : position) * J + j;
    const float sign = a.inverse ? -1 : 1;
    T *row = x_BTHK + token * a.stride + j;
    float c[WIDTH], s[WIDTH];
    load<WIDTH>(cos_TJ + angle, c);
    load<WIDTH>(sin_TJ + angle, s);
    for (int first = (int)slot; first < a.H; first += IN_FLIGHT * (int)g.slots) {
        float x[IN_FLIGHT][WIDTH], y[IN_FLIGHT][WIDTH];
        for (int i = 0; i < IN_FLIGHT; i++) {
            int head = first + i * (int)g.slots;
            if (head >= a.H) break;
            load<WIDTH>(row + head * a.K, x[i]);
            load<WIDTH>(row + head * a.K + J, y[i]);
        }
        for (int i = 0; i < IN_FLIGHT; i++) {
            int head = first + i * (int)g.slots;
            if (head >= a.H) break;
            for (int k = 0; k < WIDTH; k++) {
                float lower = x[i][k];
                x[i][k] = lower * c[k] - sign * y[i][k] * s[k];
                y[i][k] = y[i][k] * c[k] + sign * lower * s[k];
            }
            store<WIDTH>(x[i], row + head * a.K);
            store<WIDTH>(y[i], row + head * a.K + J);
        }
    }
}

template <typename T, int WIDTH>
static enum status launch(const struct rope *a, const struct rope_io *io, struct queue *queue)
{
    size_t all = (size_t)a->B * (size_t)a->T, H = (size_t)a->H;
    size_t vectors = (size_t)a->J / WIDTH, slots = ceil_div(H, ceil_div(H, MAX_SLOTS));
    if (vectors * slots > MAX_THREADS) slots = MAX_THREADS / vectors;
    if (all > INT32_MAX || !slots)
        FAIL(UNSUPPORTED,
             "rope: %zu tokens with %d rotary pairs a head: the GPU's kernel takes at "
             "most %d tokens and %d pairs",
             all, a->J, INT32_MAX, MAX_THREADS);
    size_t lanes = vectors * slots, tokens = lanes < THREADS ? THREADS / lanes : 1;
    struct rope_grid g = {(unsigned)vectors, (unsigned)slots, (unsigned)lanes, (unsigned)tokens,
                          (unsigned)all};
    LAUNCH((rope_kernel<T, WIDTH>), (unsigned)ceil_div(all, tokens),
           block_size(tokens * lanes, MAX_THREADS), 0, queue, *a, g, (T *)io->x_BTHK, io->cos_TJ,
           io->sin_TJ, io->positions_BT);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rope)(const struct rope *a, const struct rope_io *io,
                                      struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->J, a->dtype) &&
                   rows_are_aligned((size_t)a->K, a->dtype) &&
                   rows_are_aligned(a->stride, a->dtype) && is_aligned(io->x_BTHK) &&
                   is_aligned(io->cos_TJ) && is_aligned(io->sin_TJ);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch, a, io, queue);
}
