/* rmsnorm.cu -- a block per row; each thread keeps HELD vectors of the row in registers, and reads
 * the rest of a longer row twice, the second time from cache.
 *
 * Order    Backward splits the rows into groups, accumulates dw within each and then adds the
 *          groups in order.  The grouping depends on N only. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/rmsnorm.h"
}

enum { MAX_GROUPS = 512 }; /* of rows; enough for all multiprocessors of current devices */

/* As rmsnorm_row of ops/rmsnorm.h. */
__device__ static size_t row_offset(const struct rmsnorm &a, unsigned n)
{
    if (!a.heads) return (size_t)n * a.D;
    unsigned heads = (unsigned)a.heads;
    return n / heads * a.stride + (size_t)(n % heads) * a.D;
}

template <typename T, int WIDTH, int HELD>
static __global__ void __launch_bounds__(MAX_BLOCK_SIZE)
    rmsnorm_forward_kernel(struct rmsnorm a, const T *x_ND, const T *w_D, T *y_ND, float *rstd_N,
                           float *amax)
{
    int vectors = a.D / WIDTH, threads = (int)blockDim.x, thread = (int)threadIdx.x;
    const size_t at = row_offset(a, blockIdx.x);
    const T *x = x_ND + at;
    T *y = y_ND + at;
    float held[HELD][WIDTH], squares = 0;
    for (int i = 0; i < HELD; i++)
        if (thread + i * threads < vectors) {
            load<WIDTH>(x + (thread + i * threads) * WIDTH, held[i]);
            for (int k = 0; k < WIDTH; k++) squares += held[i][k] * held[i][k];
        }
    for (int v = thread + HELD * threads; v < vectors; v += threads) {
        float extra[WIDTH];
        load<WIDTH>(x + v * WIDTH, extra);
        for (int k = 0; k < WIDTH; k++) squares += extra[k] * extra[k];
    }
    unsigned max = 0;
    float rstd = 1 / sqrtf(block_sum(squares) / (float)a.D + a.eps);
    if (thread == 0) rstd_N[blockIdx.x] = rstd;
    auto normalize = [&](int v, float(&row)[WIDTH]) {
        float w[WIDTH];
        load<WIDTH>(w_D + v * WIDTH, w);
        for (int k = 0; k < WIDTH; k++) {
            row[k] = round_to<T>(row[k] * rstd) * w[k];
            max = larger(max, abs_bits<T>(row[k]));
        }
        store<WIDTH>(row, y + v * WIDTH);
    };
    for (int i = 0; i < HELD; i++)
        if (thread + i * threads < vectors) normalize(thread + i * threads, held[i]);
    for (int v = thread + HELD * threads; v < vectors; v += threads) {
        float extra[WIDTH];
        load<WIDTH>(x + v * WIDTH, extra);
        normalize(v, extra);
    }
    update_amax(max, amax);
}

/* Processes one group of rows; their dw goes to partial_GD. */
template <typename T, int WIDTH, int HELD>
static __global__ void __launch_bounds__(MAX_BLOCK_SIZE)
    rmsnorm_backward_kernel(struct rmsnorm a, struct rmsnorm_bwd io, int rows, float *partial_GD)
{
    int vectors = a.D / WIDTH, threads = (int)blockDim.x, thread = (int)threadIdx.x;
    size_t first = (size_t)blockIdx.x * rows, end = min(first + rows, (size_t)a.N);
    float *partial = partial_GD + (size_t)blockIdx.x * a.D, sums[HELD][WIDTH] = {};
    const T *w_D = (const T *)io.w_D;
    for (size_t n = first; n < end; n++) {
        const size_t at = row_offset(a, (unsigned)n);
        const T *x_row = (const T *)io.x_ND + at, *dy_row = (const T *)io.dy_ND + at;
        T *dx_row = (T *)io.dx_ND + at;
        float x[HELD][WIDTH] = {}, dy[HELD][WIDTH] = {}, dx[HELD][WIDTH] = {};
        float rstd = io.rstd_N[n], dot = 0;
        auto load_and_dot = [&](int v, float(&x)[WIDTH], float(&dy)[WIDTH], float(&dx)[WIDTH]) {
            float w[WIDTH];
            load<WIDTH>(x_row + v * WIDTH, x);
            load<WIDTH>(dy_row + v * WIDTH, dy);
            load<WIDTH>(w_D + v * WIDTH, w);
            if (a.accumulate) load<WIDTH>(dx_row + v * WIDTH, dx);
            for (int k = 0; k < WIDTH; k++) dot += dy[k] * w[k] * (x[k] * rstd);
        };
        /* Replaces dy by its product with the normalized x, as forward rounded it. */
        auto store_dx = [&](int v, float(&x)[WIDTH], float(&dy)[WIDTH], float(&dx)[WIDTH]) {
            float w[WIDTH];
            load<WIDTH>(w_D + v * WIDTH, w);
            for (int k = 0; k < WIDTH; k++) {
                dx[k] += rstd * (dy[k] * w[k] - x[k] * rstd * dot);
                dy[k] *= round_to<T>(x[k] * rstd);
            }
            store<WIDTH>(dx, dx_row + v * WIDTH);
        };
        for (int i = 0; i < HELD; i++)
            if (thread + i * threads < vectors)
                load_and_dot(thread + i * threads, x[i], dy[i], dx[i]);
        for (int v = thread + HELD * threads; v < vectors; v += threads) {
            float extra[WIDTH], dextra[WIDTH], old[WIDTH];
            load_and_dot(v, extra, dextra, old);
        }
        dot = block_sum(dot) / (float)a.D;
        for (int i = 0; i < HELD; i++)
            if (thread + i * threads < vectors) {
                store_dx(thread + i * threads, x[i], dy[i], dx[i]);
                for (int k = 0; k < WIDTH; k++) sums[i][k] += dy[i][k];
            }
        for (int v = thread + HELD * threads; v < vectors; v += threads) {
            float extra[WIDTH], dextra[WIDTH], old[WIDTH] = {}, kept = dot;
            load_and_dot(v, extra, dextra, old);
            dot = kept; /* load_and_dot has added to it again */
            store_dx(v, extra, dextra, old);
            for (int k = 0; k < WIDTH; k++)
                partial[v * WIDTH + k] = (n > first ? partial[v * WIDTH + k] : 0) + dextra[k];
        }
    }
    for (int i = 0; i < HELD; i++)
        if (thread + i * threads < vectors)
            for (int k = 0; k < WIDTH; k++)
                partial[(thread + i * threads) * WIDTH + k] = sums[i][k];
}

/* dw += the sum over groups.  A block takes COLUMNS columns; SLICES threads split the groups of
 * each. */
enum { COLUMNS = 32, SLICES = 16, DW_THREADS = COLUMNS * SLICES };
static __global__ void __launch_bounds__(DW_THREADS)
    rmsnorm_dw_kernel(int D, int groups, const float *partial_GD, float *dw_D)
{
    __shared__ float sums[SLICES][COLUMNS];
    int column = (int)threadIdx.x % COLUMNS, slice = (int)threadIdx.x / COLUMNS;
    int d = (int)blockIdx.x * COLUMNS + column, per_slice = (groups + SLICES - 1) / SLICES;
    float sum = 0;
    if (d < D)
        for (int g = slice * per_slice; g < min((slice + 1) * per_slice, groups); g++)
            sum += partial_GD[(size_t)g * D + d];
    sums[slice][column] = sum;
    __syncthreads();
    if (slice || d >= D) return;
    for (int i = 1; i < SLICES; i++) sum += sums[i][column];
    dw_D[d] += sum;
}

template <typename T, int WIDTH>
static enum status launch_forward(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                  struct queue *queue)
{
    enum { HELD = 2 };
    unsigned threads = block_size(ceil_div((size_t)a->D / WIDTH, HELD), MAX_BLOCK_SIZE);
    TRY(zero_amax(io->amax, queue));
    LAUNCH((rmsnorm_forward_kernel<T, WIDTH, HELD>), (unsigned)a->N, threads, 0, queue, *a,
           (const T *)io->x_ND, (const T *)io->w_D, (T *)io->y_ND, io->rstd_N, io->amax);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rmsnorm_forward)(const struct rmsnorm *a,
                                                 const struct rmsnorm_fwd *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->D, a->dtype) &&
                   rows_are_aligned(a->stride, a->dtype) && is_aligned(io->x_ND) &&
                   is_aligned(io->w_D) && is_aligned(io->y_ND);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_forward, a, io, queue);
}

struct row_groups {
    int rows, groups; /* rows per group */
    float *partial_GD;
};

template <typename T, int WIDTH>
static enum status launch_backward(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                   const struct row_groups *g, struct queue *queue)
{
    size_t vectors = (size_t)a->D / WIDTH;
    if (vectors <= MAX_BLOCK_SIZE)
        LAUNCH((rmsnorm_backward_kernel<T, WIDTH, 1>), (unsigned)g->groups,
               block_size(vectors, MAX_BLOCK_SIZE), 0, queue, *a, *io, g->rows, g->partial_GD);
    else
        LAUNCH((rmsnorm_backward_kernel<T, WIDTH, 2>), (unsigned)g->groups, MAX_BLOCK_SIZE, 0,
               queue, *a, *io, g->rows, g->partial_GD);
    LAUNCH(rmsnorm_dw_kernel, (unsigned)ceil_div((size_t)a->D, COLUMNS), DW_THREADS, 0, queue, a->D,
           g->groups, (const float *)g->partial_GD, io->dw_D);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rmsnorm_backward)(const struct rmsnorm *a,
                                                  const struct rmsnorm_bwd *io, struct queue *queue)
{
    int rows = (int)ceil_div((size_t)a->N, MAX_GROUPS);
    struct row_groups g = {rows, (int)ceil_div((size_t)a->N, (size_t)rows), NULL};
    size_t mark = arena_mark(&queue->scratch);
    g.partial_GD =
        (float *)arena_alloc(&queue->scratch, (size_t)g.groups * (size_t)a->D, sizeof(float));
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->D, a->dtype) &&
                   rows_are_aligned(a->stride, a->dtype) && is_aligned(io->dy_ND) &&
                   is_aligned(io->x_ND) && is_aligned(io->w_D) && is_aligned(io->dx_ND);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_backward, a, io, &g, queue);
}
