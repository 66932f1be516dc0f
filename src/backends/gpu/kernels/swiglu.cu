/* swiglu.cu -- each thread takes one vector of the gate and the matching one of up; a block stays
 * within one row. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/swiglu.h"

extern "C" {
#include "ops/swiglu.h"
}

enum { THREADS = 256 };

/* This thread's vector. */
struct row_position {
    size_t row;
    int column; /* of its first element; F or more: none */
};
static __device__ __forceinline__ struct row_position thread_position(unsigned blocks_per_row,
                                                                      int width)
{
    unsigned block = blockIdx.x % blocks_per_row;
    return {blockIdx.x / blocks_per_row, (int)(block * THREADS + threadIdx.x) * width};
}

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    swiglu_forward_kernel(unsigned blocks_per_row, int F, const T *gate_up_N2F, T *out_NF,
                          float *amax)
{
    struct row_position at = thread_position(blocks_per_row, WIDTH);
    unsigned max = 0;
    if (at.column < F) {
        float gate[WIDTH], up[WIDTH];
        const T *row = gate_up_N2F + at.row * 2 * F;
        load<WIDTH>(row + at.column, gate);
        load<WIDTH>(row + F + at.column, up);
        for (int k = 0; k < WIDTH; k++) {
            up[k] = swiglu_of(gate[k], up[k]);
            max = larger(max, abs_bits<T>(up[k]));
        }
        store<WIDTH>(up, out_NF + at.row * F + at.column);
    }
    update_amax(max, amax);
}

/* dgate_up may be gate_up. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    swiglu_backward_kernel(unsigned blocks_per_row, int F, const T *gate_up_N2F, const T *dout_NF,
                           T *dgate_up_N2F, float *amax)
{
    struct row_position at = thread_position(blocks_per_row, WIDTH);
    unsigned max = 0;
    if (at.column < F) {
        float gate[WIDTH], up[WIDTH], dout[WIDTH];
        const T *row = gate_up_N2F + at.row * 2 * F;
        T *drow = dgate_up_N2F + at.row * 2 * F;
        load<WIDTH>(row + at.column, gate);
        load<WIDTH>(row + F + at.column, up);
        load<WIDTH>(dout_NF + at.row * F + at.column, dout);
        for (int k = 0; k < WIDTH; k++) {
            swiglu_gradients(dout[k], gate[k], up[k]);
            max = larger(max, larger(abs_bits<T>(gate[k]), abs_bits<T>(up[k])));
        }
        store<WIDTH>(gate, drow + at.column);
        store<WIDTH>(up, drow + F + at.column);
    }
    update_amax(max, amax);
}

struct swiglu_grid {
    unsigned blocks_per_row, blocks;
};
static enum status make_grid(const struct swiglu *a, int width, struct swiglu_grid *out)
{
    size_t per_row = ceil_div((size_t)a->F, (size_t)THREADS * (size_t)width);
    if (per_row * (size_t)a->N > INT32_MAX)
        FAIL(UNSUPPORTED, "swiglu: %d rows of %d exceed the maximum grid size", a->N, a->F);
    *out = {(unsigned)per_row, (unsigned)(per_row * (size_t)a->N)};
    return STATUS_OK;
}

template <typename T, int WIDTH>
static enum status launch_forward(const struct swiglu *a, const struct swiglu_fwd *io,
                                  struct queue *queue)
{
    struct swiglu_grid g;
    TRY(make_grid(a, WIDTH, &g));
    TRY(zero_amax(io->amax, queue));
    LAUNCH((swiglu_forward_kernel<T, WIDTH>), g.blocks, THREADS, 0, queue, g.blocks_per_row, a->F,
           (const T *)io->gate_up_N2F, (T *)io->out_NF, io->amax);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(swiglu_forward)(const struct swiglu *a, const struct swiglu_fwd *io,
                                                struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->F, a->dtype) && is_aligned(io->gate_up_N2F) &&
                   is_aligned(io->out_NF);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_forward, a, io, queue);
}

template <typename T, int WIDTH>
static enum status launch_backward(const struct swiglu *a, const struct swiglu_bwd *io,
                                   struct queue *queue)
{
    struct swiglu_grid g;
    TRY(make_grid(a, WIDTH, &g));
    TRY(zero_amax(io->amax, queue));
    LAUNCH((swiglu_backward_kernel<T, WIDTH>), g.blocks, THREADS, 0, queue, g.blocks_per_row, a->F,
           (const T *)io->gate_up_N2F, (const T *)io->dout_NF, (T *)io->dgate_up_N2F, io->amax);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(swiglu_backward)(const struct swiglu *a,
                                                 const struct swiglu_bwd *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->F, a->dtype) && is_aligned(io->gate_up_N2F) &&
                   is_aligned(io->dout_NF) && is_aligned(io->dgate_up_N2F);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_backward, a, io, queue);
}
