/* One vector of gate and one of up a thread; a block lies within a row. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/swiglu.h"
}

enum { THREADS = 256 };

/* Where this thread's vector of a row is. */
struct place {
    size_t row;
    int at; /* of its first number; F or more: there is none */
};
static __device__ __forceinline__ struct place find(unsigned blocks_of_row, int width)
{
    unsigned block = blockIdx.x % blocks_of_row;
    return {blockIdx.x / blocks_of_row, (int)(block * THREADS + threadIdx.x) * width};
}

/* By the fast units: exact ones would take longer than memory does. */
static __device__ __forceinline__ float sigmoid_of(float x)
{
    return __fdividef(1, 1 + __expf(-x));
}

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    forward(unsigned blocks_of_row, int F, const T *gate_up_N2F, T *out_NF, float *largest)
{
    struct place is = find(blocks_of_row, WIDTH);
    unsigned most = 0;
    if (is.at < F) {
        float gate[WIDTH], up[WIDTH];
        const T *row = gate_up_N2F + is.row * 2 * F;
        load<WIDTH>(row + is.at, gate);
        load<WIDTH>(row + F + is.at, up);
        for (int k = 0; k < WIDTH; k++) {
            up[k] *= gate[k] * sigmoid_of(gate[k]);
            most = larger(most, size_bits<T>(up[k]));
        }
        store<WIDTH>(up, out_NF + is.row * F + is.at);
    }
    add_largest(most, largest);
}

/* silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x))).  dgate_up may be gate_up. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    backward(unsigned blocks_of_row, int F, const T *gate_up_N2F, const T *dout_NF, T *dgate_up_N2F,
             float *largest)
{
    struct place is = find(blocks_of_row, WIDTH);
    unsigned most = 0;
    if (is.at < F) {
        float gate[WIDTH], up[WIDTH], dout[WIDTH];
        const T *row = gate_up_N2F + is.row * 2 * F;
        T *drow = dgate_up_N2F + is.row * 2 * F;
        load<WIDTH>(row + is.at, gate);
        load<WIDTH>(row + F + is.at, up);
        load<WIDTH>(dout_NF + is.row * F + is.at, dout);
        for (int k = 0; k < WIDTH; k++) {
            float g = gate[k], sigmoid = sigmoid_of(g);
            gate[k] = dout[k] * up[k] * sigmoid * (1 + g * (1 - sigmoid));
            up[k] = dout[k] * g * sigmoid;
            most = larger(most, larger(size_bits<T>(gate[k]), size_bits<T>(up[k])));
        }
        store<WIDTH>(gate, drow + is.at);
        store<WIDTH>(up, drow + F + is.at);
    }
    add_largest(most, largest);
}

struct span {
    unsigned blocks_of_row, blocks;
};
static enum status cut(const struct swiglu *a, int width, struct span *out)
{
    size_t each = ceil_div((size_t)a->F, (size_t)THREADS * (size_t)width);
    if (each * (size_t)a->N > INT32_MAX)
        FAIL(UNSUPPORTED, "swiglu: %d rows of %d are more than a GPU takes at once", a->N, a->F);
    *out = {(unsigned)each, (unsigned)(each * (size_t)a->N)};
    return STATUS_OK;
}

template <typename T, int WIDTH>
static enum status run_forward(const struct swiglu *a, const struct swiglu_fwd *io,
                               struct queue *on)
{
    struct span s;
    TRY(cut(a, WIDTH, &s));
    TRY(begin_largest(io->largest, on));
    LAUNCH((forward<T, WIDTH>), s.blocks, THREADS, 0, on, s.blocks_of_row, a->F,
           (const T *)io->gate_up_N2F, (T *)io->out_NF, io->largest);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(swiglu_forward)(const struct swiglu *a, const struct swiglu_fwd *io,
                                                struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->F, a->dtype) && is_aligned(io->gate_up_N2F) &&
                   is_aligned(io->out_NF);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, run_forward, a, io, on);
}

template <typename T, int WIDTH>
static enum status run_backward(const struct swiglu *a, const struct swiglu_bwd *io,
                                struct queue *on)
{
    struct span s;
    TRY(cut(a, WIDTH, &s));
    TRY(begin_largest(io->largest, on));
    LAUNCH((backward<T, WIDTH>), s.blocks, THREADS, 0, on, s.blocks_of_row, a->F,
           (const T *)io->gate_up_N2F, (const T *)io->dout_NF, (T *)io->dgate_up_N2F, io->largest);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(swiglu_backward)(const struct swiglu *a,
                                                 const struct swiglu_bwd *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->F, a->dtype) && is_aligned(io->gate_up_N2F) &&
                   is_aligned(io->dout_NF) && is_aligned(io->dgate_up_N2F);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, run_backward, a, io, on);
}
