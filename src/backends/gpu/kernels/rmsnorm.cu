/* A block takes a row, each thread HELD vectors of it in registers; what a longer row has beyond
 * them is read twice, the second time from a cache.  Backward walks over the rows of a group and
 * keeps its part of dw, then the groups are added in order; how rows are grouped depends on N only.
 */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/rmsnorm.h"
}

enum { GROUPS = 512 }; /* of rows, at most: some for each multiprocessor of any device */

template <typename T, int WIDTH, int HELD>
static __global__ void __launch_bounds__(BLOCK_MOST)
    forward(int D, float eps, const T *x_ND, const T *w_D, T *y_ND, float *rstd_N, float *largest)
{
    int vectors = D / WIDTH, threads = (int)blockDim.x, self = (int)threadIdx.x;
    const T *x = x_ND + (size_t)blockIdx.x * D;
    T *y = y_ND + (size_t)blockIdx.x * D;
    float held[HELD][WIDTH], squares = 0;
    for (int i = 0; i < HELD; i++)
        if (self + i * threads < vectors) {
            load<WIDTH>(x + (self + i * threads) * WIDTH, held[i]);
            for (int k = 0; k < WIDTH; k++) squares += held[i][k] * held[i][k];
        }
    for (int v = self + HELD * threads; v < vectors; v += threads) {
        float more[WIDTH];
        load<WIDTH>(x + v * WIDTH, more);
        for (int k = 0; k < WIDTH; k++) squares += more[k] * more[k];
    }
    unsigned most = 0;
    float rstd = 1 / sqrtf(block_sum(squares) / (float)D + eps);
    if (self == 0) rstd_N[blockIdx.x] = rstd;
    auto finish = [&](int v, float(&row)[WIDTH]) {
        float w[WIDTH];
        load<WIDTH>(w_D + v * WIDTH, w);
        for (int k = 0; k < WIDTH; k++) {
            row[k] = rounded<T>(row[k] * rstd) * w[k];
            most = larger(most, size_bits<T>(row[k]));
        }
        store<WIDTH>(row, y + v * WIDTH);
    };
    for (int i = 0; i < HELD; i++)
        if (self + i * threads < vectors) finish(self + i * threads, held[i]);
    for (int v = self + HELD * threads; v < vectors; v += threads) {
        float more[WIDTH];
        load<WIDTH>(x + v * WIDTH, more);
        finish(v, more);
    }
    add_largest(most, largest);
}

/* Rows of a group; dw over them goes to partial_GD. */
template <typename T, int WIDTH, int HELD>
static __global__ void __launch_bounds__(BLOCK_MOST)
    backward(struct rmsnorm a, struct rmsnorm_bwd io, int rows, float *partial_GD)
{
    int vectors = a.D / WIDTH, threads = (int)blockDim.x, self = (int)threadIdx.x;
    size_t first = (size_t)blockIdx.x * rows, end = min(first + rows, (size_t)a.N);
    float *partial = partial_GD + (size_t)blockIdx.x * a.D, sums[HELD][WIDTH] = {};
    const T *w_D = (const T *)io.w_D;
    for (size_t n = first; n < end; n++) {
        const T *x_row = (const T *)io.x_ND + n * a.D, *dy_row = (const T *)io.dy_ND + n * a.D;
        T *dx_row = (T *)io.dx_ND + n * a.D;
        float x[HELD][WIDTH] = {}, dy[HELD][WIDTH] = {}, dx[HELD][WIDTH] = {};
        float rstd = io.rstd_N[n], dot = 0;
        auto begin = [&](int v, float(&x)[WIDTH], float(&dy)[WIDTH], float(&dx)[WIDTH]) {
            float w[WIDTH];
            load<WIDTH>(x_row + v * WIDTH, x);
            load<WIDTH>(dy_row + v * WIDTH, dy);
            load<WIDTH>(w_D + v * WIDTH, w);
            if (a.accumulate) load<WIDTH>(dx_row + v * WIDTH, dx);
            for (int k = 0; k < WIDTH; k++) dot += dy[k] * w[k] * (x[k] * rstd);
        };
        /* Leaves dy times x as the forward pass normalised it in dy. */
        auto finish = [&](int v, float(&x)[WIDTH], float(&dy)[WIDTH], float(&dx)[WIDTH]) {
            float w[WIDTH];
            load<WIDTH>(w_D + v * WIDTH, w);
            for (int k = 0; k < WIDTH; k++) {
                dx[k] += rstd * (dy[k] * w[k] - x[k] * rstd * dot);
                dy[k] *= rounded<T>(x[k] * rstd);
            }
            store<WIDTH>(dx, dx_row + v * WIDTH);
        };
        for (int i = 0; i < HELD; i++)
            if (self + i * threads < vectors) begin(self + i * threads, x[i], dy[i], dx[i]);
        for (int v = self + HELD * threads; v < vectors; v += threads) {
            float more[WIDTH], dmore[WIDTH], old[WIDTH];
            begin(v, more, dmore, old);
        }
        dot = block_sum(dot) / (float)a.D;
        for (int i = 0; i < HELD; i++)
            if (self + i * threads < vectors) {
                finish(self + i * threads, x[i], dy[i], dx[i]);
                for (int k = 0; k < WIDTH; k++) sums[i][k] += dy[i][k];
            }
        for (int v = self + HELD * threads; v < vectors; v += threads) {
            float more[WIDTH], dmore[WIDTH], old[WIDTH] = {}, kept = dot;
            begin(v, more, dmore, old);
            dot = kept;
            finish(v, more, dmore, old);
            for (int k = 0; k < WIDTH; k++)
                partial[v * WIDTH + k] = (n > first ? partial[v * WIDTH + k] : 0) + dmore[k];
        }
    }
    for (int i = 0; i < HELD; i++)
        if (self + i * threads < vectors)
            for (int k = 0; k < WIDTH; k++) partial[(self + i * threads) * WIDTH + k] = sums[i][k];
}

/* dw += the groups' sums: a block takes COLUMNS, SLICES threads share the groups of one. */
enum { COLUMNS = 32, SLICES = 16 };
static __global__ void __launch_bounds__(COLUMNS *SLICES)
    add_groups(int D, int groups, const float *partial_GD, float *dw_D)
{
    __shared__ float sums[SLICES][COLUMNS];
    int column = (int)threadIdx.x % COLUMNS, slice = (int)threadIdx.x / COLUMNS;
    int d = (int)blockIdx.x * COLUMNS + column, each = (groups + SLICES - 1) / SLICES;
    float sum = 0;
    if (d < D)
        for (int g = slice * each; g < min((slice + 1) * each, groups); g++)
            sum += partial_GD[(size_t)g * D + d];
    sums[slice][column] = sum;
    __syncthreads();
    if (slice || d >= D) return;
    for (int i = 1; i < SLICES; i++) sum += sums[i][column];
    dw_D[d] += sum;
}

template <typename T, int WIDTH>
static enum status run_forward(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                               struct queue *on)
{
    enum { HELD = 2 };
    unsigned threads = block_of(ceil_div((size_t)a->D / WIDTH, HELD), BLOCK_MOST);
    TRY(begin_largest(io->largest, on));
    LAUNCH((forward<T, WIDTH, HELD>), (unsigned)a->N, threads, 0, on, a->D, a->eps,
           (const T *)io->x_ND, (const T *)io->w_D, (T *)io->y_ND, io->rstd_N, io->largest);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rmsnorm_forward)(const struct rmsnorm *a,
                                                 const struct rmsnorm_fwd *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->D, a->dtype) && is_aligned(io->x_ND) &&
                   is_aligned(io->w_D) && is_aligned(io->y_ND);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, run_forward, a, io, on);
}

struct grouping {
    int rows, groups;
    float *partial_GD;
};

template <typename T, int WIDTH>
static enum status run_backward(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                const struct grouping *g, struct queue *on)
{
    size_t vectors = (size_t)a->D / WIDTH;
    if (vectors <= BLOCK_MOST)
        LAUNCH((backward<T, WIDTH, 1>), (unsigned)g->groups, block_of(vectors, BLOCK_MOST), 0, on,
               *a, *io, g->rows, g->partial_GD);
    else
        LAUNCH((backward<T, WIDTH, 2>), (unsigned)g->groups, BLOCK_MOST, 0, on, *a, *io, g->rows,
               g->partial_GD);
    LAUNCH(add_groups, (unsigned)ceil_div((size_t)a->D, COLUMNS), COLUMNS * SLICES, 0, on, a->D,
           g->groups, (const float *)g->partial_GD, io->dw_D);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rmsnorm_backward)(const struct rmsnorm *a,
                                                  const struct rmsnorm_bwd *io, struct queue *on)
{
    int rows = (int)ceil_div((size_t)a->N, GROUPS);
    struct grouping g = {rows, (int)ceil_div((size_t)a->N, (size_t)rows), NULL};
    size_t mark = arena_mark(&on->scratch);
    g.partial_GD =
        (float *)arena_take(&on->scratch, (size_t)g.groups * (size_t)a->D, sizeof(float));
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->D, a->dtype) && is_aligned(io->dy_ND) &&
                   is_aligned(io->x_ND) && is_aligned(io->w_D) && is_aligned(io->dx_ND);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, run_backward, a, io, &g, on);
}
