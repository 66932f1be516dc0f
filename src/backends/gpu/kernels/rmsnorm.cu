/* rmsnorm.cu -- a block per row; each thread keeps HELD vectors of the row in registers, and reads
 * the rest of a longer row twice, the second time from cache.  Short rows, such as the heads of QK
 * norm, share a block: as many lanes own a row as it has vectors.
 *
 * Order    The squares of a row have the same order, and explicit FMAs, in rmsnorm_amax_kernel of
 *          fp8.cu.  Backward accumulates dw within groups of rows (row_groups.h). */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/row_groups.h"

extern "C" {
#include "ops/rmsnorm.h"
}

/* Backward: threads per block where the next row is prefetched, and in longer rows, where 1024
 * would leave a lane of AMD's 128 registers; and the longest row whose dw a block keeps in shared
 * memory, of which AMD's processors have 64 KiB. */
enum { PREFETCH_THREADS = 512 };
enum { SHORT_ROW_THREADS = 256, MAX_SHORT_ROW_LANES = 32 };
#if defined(GPU_CUDA) || GPU_EMULATED == 32
enum { LONG_ROW_THREADS = MAX_BLOCK_SIZE, MAX_SHARED_COLUMNS = 16384 };
#else
enum { LONG_ROW_THREADS = 512, MAX_SHARED_COLUMNS = 15360 };
#endif

/* As rmsnorm_row of ops/rmsnorm.h. */
__device__ static size_t row_offset(const struct rmsnorm &a, unsigned n)
{
    if (!a.heads) return (size_t)n * a.D;
    unsigned heads = (unsigned)a.heads;
    return n / heads * a.stride + (size_t)(n % heads) * a.D;
}

/* As rmsnorm_width of ops/rmsnorm.h. */
__device__ static int row_width(const struct rmsnorm &a)
{
    return a.part == RMSNORM_WHOLE ? a.D : a.width;
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
            for (int k = 0; k < WIDTH; k++) squares = fmaf(held[i][k], held[i][k], squares);
        }
    for (int v = thread + HELD * threads; v < vectors; v += threads) {
        float extra[WIDTH];
        load<WIDTH>(x + v * WIDTH, extra);
        for (int k = 0; k < WIDTH; k++) squares = fmaf(extra[k], extra[k], squares);
    }
    unsigned max = 0;
    /* Read before the barriers of block_sum, as thread 0 overwrites it. */
    float total = a.part == RMSNORM_APPLY ? rstd_N[blockIdx.x] : 0;
    float own = block_sum(squares);
    if (a.part != RMSNORM_APPLY) total = own;
    float rstd = 1 / sqrtf(total / (float)row_width(a) + a.eps);
    if (thread == 0) rstd_N[blockIdx.x] = a.part == RMSNORM_SUMS ? total : rstd;
    if (a.part == RMSNORM_SUMS) return;
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

/* WIDTH elements as they are stored: half the registers of f32. */
template <typename T, int WIDTH> struct row_vector {
    uint4 bits[WIDTH * sizeof(T) / 16];
    __device__ __forceinline__ void fetch(const T *x)
    {
        for (int i = 0; i < (int)(WIDTH * sizeof(T) / 16); i++) bits[i] = ((const uint4 *)x)[i];
    }
    __device__ __forceinline__ void expand(float (&to)[WIDTH]) const
    {
        T part[WIDTH];
        memcpy(part, bits, sizeof bits);
        for (int k = 0; k < WIDTH; k++) to[k] = to_f32(part[k]);
    }
};
template <typename T> struct row_vector<T, 1> {
    T value;
    __device__ __forceinline__ void fetch(const T *x) { value = *x; }
    __device__ __forceinline__ void expand(float (&to)[1]) const { to[0] = to_f32(value); }
};

/* Pointers to one row. */
template <typename T> struct backward_row {
    const T *x, *dy;
    T *dx;
    __device__ __forceinline__ backward_row(const struct rmsnorm &a, const struct rmsnorm_bwd &io,
                                            size_t n)
    {
        const size_t at = row_offset(a, (unsigned)n);
        x = (const T *)io.x_ND + at, dy = (const T *)io.dy_ND + at, dx = (T *)io.dx_ND + at;
    }
};

/* A thread's vectors of a row. */
template <typename T, int WIDTH, int HELD> struct held_row {
    struct row_vector<T, WIDTH> x[HELD], dy[HELD], dx[HELD];
    float rstd;
    __device__ __forceinline__ void fetch(const struct rmsnorm &a, const struct rmsnorm_bwd &io,
                                          size_t n)
    {
        const struct backward_row<T> row(a, io, n);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            int at = ((int)threadIdx.x + i * (int)blockDim.x) * WIDTH;
            if (at >= a.D) continue;
            x[i].fetch(row.x + at), dy[i].fetch(row.dy + at);
            if (a.accumulate) dx[i].fetch(row.dx + at);
        }
        rstd = io.rstd_N[n];
    }
};

/* One vector of a row, in f32. */
template <int WIDTH> struct backward_vector {
    float x[WIDTH], dy[WIDTH], w[WIDTH];
};

template <int WIDTH>
static __device__ __forceinline__ float dot_of(const struct backward_vector<WIDTH> &v, float rstd)
{
    float dot = 0;
    for (int k = 0; k < WIDTH; k++) dot += v.dy[k] * v.w[k] * (v.x[k] * rstd);
    return dot;
}

template <int WIDTH> static __device__ __forceinline__ void clear(float (&x)[WIDTH])
{
    for (int k = 0; k < WIDTH; k++) x[k] = 0;
}

/* dw of a block's rows, in shared memory or in partial_GD.  In shared memory vectors of 8 elements
 * are split into halves, each contiguous over threads: 32 bytes apart, a warp's accesses of 16
 * bytes would take twice as long (bank conflicts). */
template <int WIDTH, bool SHARED> struct dw_sums {
    float *x;
    int D;
    __device__ __forceinline__ void get(int d, float (&to)[WIDTH]) const
    {
        if constexpr (SHARED && WIDTH == 8)
            for (int half = 0; half < 2; half++) {
                float part[4];
                load<4>(x + (half * D + d) / 2, part);
                for (int k = 0; k < 4; k++) to[half * 4 + k] = part[k];
            }
        else
            load<WIDTH>(x + d, to);
    }
    __device__ __forceinline__ void set(int d, const float (&from)[WIDTH]) const
    {
        if constexpr (SHARED && WIDTH == 8)
            for (int half = 0; half < 2; half++) {
                float part[4];
                for (int k = 0; k < 4; k++) part[k] = from[half * 4 + k];
                store<4>(part, x + (half * D + d) / 2);
            }
        else
            store<WIDTH>(from, x + d);
    }
};

/* What the gradients of a row's elements have in common. */
struct row_factors {
    float rstd, dot;
};

/* dx += the gradient; the sums (dw_sums) of column d += the part of dw. */
template <typename T, int WIDTH, typename Sums>
static __device__ __forceinline__ void add_gradients(const struct backward_vector<WIDTH> &v,
                                                     const struct row_factors &f,
                                                     float (&dx)[WIDTH], const Sums &sums, int d)
{
    const float rstd = f.rstd, dot = f.dot;
    float sum[WIDTH];
    sums.get(d, sum);
    for (int k = 0; k < WIDTH; k++) {
        dx[k] += rstd * (v.dy[k] * v.w[k] - v.x[k] * rstd * dot);
        sum[k] += v.dy[k] * round_to<T>(v.x[k] * rstd); /* as forward rounded it */
    }
    sums.set(d, sum);
}

/* Processes one group of rows; their dw goes to partial_GD.  Each thread owns some columns and
 * keeps the dw of these in shared memory, or, in longer rows, in partial_GD itself.  With PREFETCH
 * it loads the next row before the barriers of this one. */
template <typename T, int WIDTH, int HELD, bool PREFETCH, bool SHARED>
static __global__ void __launch_bounds__(PREFETCH ? (int)PREFETCH_THREADS : (int)LONG_ROW_THREADS)
    rmsnorm_backward_kernel(struct rmsnorm a, struct rmsnorm_bwd io, int rows, float *partial_GD)
{
    DYNAMIC_SHARED(float, shared_D);
    const int first_column = (int)threadIdx.x * WIDTH, step = (int)blockDim.x * WIDTH;
    const size_t begin = (size_t)blockIdx.x * rows, end = min(begin + rows, (size_t)a.N);
    float *partial = partial_GD + (size_t)blockIdx.x * a.D;
    struct dw_sums<WIDTH, SHARED> sums;
    sums.x = SHARED ? shared_D : partial, sums.D = a.D;
    const T *w_D = (const T *)io.w_D;
    const float zeros[WIDTH] = {};
    const bool only_sums = a.part == RMSNORM_SUMS;
    struct held_row<T, WIDTH, HELD> row, next;
    for (int d = first_column; d < a.D; d += step) sums.set(d, zeros);
    row.fetch(a, io, begin);
    for (size_t n = begin; n < end; n++) {
        const struct backward_row<T> at(a, io, n);
        struct backward_vector<WIDTH> v;
        float dot = 0, dx[WIDTH] = {};
        if (PREFETCH && n + 1 < end) next.fetch(a, io, n + 1);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const int d = first_column + i * step;
            if (d >= a.D) continue;
            row.x[i].expand(v.x), row.dy[i].expand(v.dy);
            load<WIDTH>(w_D + d, v.w);
            dot += dot_of(v, row.rstd);
        }
        for (int d = first_column + HELD * step; d < a.D; d += step) {
            load<WIDTH>(at.x + d, v.x), load<WIDTH>(at.dy + d, v.dy), load<WIDTH>(w_D + d, v.w);
            dot += dot_of(v, row.rstd);
        }
        dot = block_sum(dot);
        if (only_sums && threadIdx.x == 0) io.dot_N[n] = dot;
        if (a.part == RMSNORM_APPLY) dot = io.dot_N[n];
        const struct row_factors factors = {row.rstd, dot / (float)row_width(a)};
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const int d = first_column + i * step;
            if (d >= a.D || only_sums) continue;
            row.x[i].expand(v.x), row.dy[i].expand(v.dy);
            load<WIDTH>(w_D + d, v.w);
            if (a.accumulate) row.dx[i].expand(dx);
            add_gradients<T>(v, factors, dx, sums, d);
            store<WIDTH>(dx, at.dx + d);
            if (!a.accumulate) clear(dx);
        }
        for (int d = first_column + HELD * step; d < a.D && !only_sums; d += step) {
            load<WIDTH>(at.x + d, v.x), load<WIDTH>(at.dy + d, v.dy), load<WIDTH>(w_D + d, v.w);
            if (a.accumulate) load<WIDTH>(at.dx + d, dx);
            add_gradients<T>(v, factors, dx, sums, d);
            store<WIDTH>(dx, at.dx + d);
            if (!a.accumulate) clear(dx);
        }
        if (PREFETCH)
            row = next;
        else if (n + 1 < end)
            row.fetch(a, io, n + 1);
    }
    for (int d = first_column; SHARED && d < a.D; d += step) {
        float sum[WIDTH];
        sums.get(d, sum);
        store<WIDTH>(sum, partial + d);
    }
}

/* --- short rows: lanes, a power of two that divides a warp, own a row, one vector each --- */

template <int WIDTH> static bool rows_are_short(const struct rmsnorm *a)
{
    const int lanes = a->D / WIDTH;
    return a->part == RMSNORM_WHOLE && lanes <= MAX_SHORT_ROW_LANES && !(lanes & (lanes - 1));
}

/* The sum over the lanes of a row. */
static __device__ __forceinline__ float row_sum(float x, int lanes)
{
    for (int mask = lanes / 2; mask; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

template <typename T, int WIDTH>
static __global__ void __launch_bounds__(SHORT_ROW_THREADS)
    rmsnorm_forward_short_kernel(struct rmsnorm a, const T *x_ND, const T *w_D, T *y_ND,
                                 float *rstd_N, float *amax)
{
    const unsigned lanes = (unsigned)(a.D / WIDTH), column = threadIdx.x % lanes * WIDTH;
    const unsigned n = blockIdx.x * (SHORT_ROW_THREADS / lanes) + threadIdx.x / lanes;
    const bool exists = n < (unsigned)a.N; /* all lanes reach the shuffles */
    const size_t at = row_offset(a, n) + column;
    float x[WIDTH] = {}, w[WIDTH], squares = 0;
    unsigned max = 0;
    if (exists) load<WIDTH>(x_ND + at, x);
    load<WIDTH>(w_D + column, w);
    for (int k = 0; k < WIDTH; k++) squares = fmaf(x[k], x[k], squares);
    const float rstd = 1 / sqrtf(row_sum(squares, (int)lanes) / (float)a.D + a.eps);
    for (int k = 0; k < WIDTH; k++) {
        x[k] = round_to<T>(x[k] * rstd) * w[k];
        if (exists) max = larger(max, abs_bits<T>(x[k]));
    }
    if (exists) store<WIDTH>(x, y_ND + at);
    if (exists && column == 0) rstd_N[n] = rstd;
    update_amax(max, amax);
}

/* Sums in registers (see dw_sums). */
template <int WIDTH> struct own_sums {
    float *x;
    __device__ __forceinline__ void get(int, float (&to)[WIDTH]) const
    {
        for (int k = 0; k < WIDTH; k++) to[k] = x[k];
    }
    __device__ __forceinline__ void set(int, const float (&from)[WIDTH]) const
    {
        for (int k = 0; k < WIDTH; k++) x[k] = from[k];
    }
};

/* Processes one group of rows, as rmsnorm_backward_kernel does, as many at once as a block has. */
template <typename T, int WIDTH>
static __global__ void __launch_bounds__(SHORT_ROW_THREADS)
    rmsnorm_backward_short_kernel(struct rmsnorm a, struct rmsnorm_bwd io, int rows,
                                  float *partial_GD)
{
    __shared__ float shared_dw[WIDTH][SHORT_ROW_THREADS];
    const unsigned lanes = (unsigned)(a.D / WIDTH), column = threadIdx.x % lanes * WIDTH;
    const unsigned at_once = SHORT_ROW_THREADS / lanes, thread = threadIdx.x;
    const size_t begin = (size_t)blockIdx.x * rows, end = min(begin + rows, (size_t)a.N);
    struct backward_vector<WIDTH> v;
    float dw[WIDTH] = {};
    const struct own_sums<WIDTH> sums = {
        dw
    };
    load<WIDTH>((const T *)io.w_D + column, v.w);
    for (size_t first = begin; first < end; first += at_once) {
        const size_t n = first + thread / lanes;
        const bool exists = n < end; /* all lanes reach the shuffles */
        const struct backward_row<T> row(a, io, n);
        float dx[WIDTH] = {};
        struct row_factors factors = {};
        clear(v.x), clear(v.dy);
        if (exists) {
            load<WIDTH>(row.x + column, v.x), load<WIDTH>(row.dy + column, v.dy);
            if (a.accumulate) load<WIDTH>(row.dx + column, dx);
            factors.rstd = io.rstd_N[n];
        }
        factors.dot = row_sum(dot_of(v, factors.rstd), (int)lanes) / (float)a.D;
        add_gradients<T>(v, factors, dx, sums, 0);
        if (exists) store<WIDTH>(dx, row.dx + column);
    }
    for (int k = 0; k < WIDTH; k++) shared_dw[k][thread] = dw[k];
    __syncthreads();
    for (unsigned d = thread; d < (unsigned)a.D; d += SHORT_ROW_THREADS) {
        float sum = 0;
        for (unsigned i = 0; i < at_once; i++) sum += shared_dw[d % WIDTH][i * lanes + d / WIDTH];
        partial_GD[(size_t)blockIdx.x * a.D + d] = sum;
    }
}

template <typename T, int WIDTH>
static enum status launch_forward_short(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                        struct queue *queue)
{
    const size_t at_once = SHORT_ROW_THREADS / ((size_t)a->D / WIDTH);
    LAUNCH((rmsnorm_forward_short_kernel<T, WIDTH>), (unsigned)ceil_div((size_t)a->N, at_once),
           SHORT_ROW_THREADS, 0, queue, *a, (const T *)io->x_ND, (const T *)io->w_D, (T *)io->y_ND,
           io->rstd_N, io->amax);
    return STATUS_OK;
}

/* --- launches --- */

template <typename T, int WIDTH>
static enum status launch_forward(const struct rmsnorm *a, const struct rmsnorm_fwd *io,
                                  struct queue *queue)
{
    enum { HELD = 2 };
    unsigned threads = block_size(ceil_div((size_t)a->D / WIDTH, HELD), MAX_BLOCK_SIZE);
    TRY(zero_amax(io->amax, queue));
    if (rows_are_short<WIDTH>(a)) return launch_forward_short<T, WIDTH>(a, io, queue);
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

template <typename T, int WIDTH, int HELD, bool PREFETCH>
static enum status launch_groups(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                 const struct row_groups *g, struct queue *queue)
{
    const unsigned max = PREFETCH ? (unsigned)PREFETCH_THREADS : (unsigned)LONG_ROW_THREADS;
    const unsigned threads = block_size((size_t)a->D / WIDTH, max);
    if constexpr (!PREFETCH) /* rows that are prefetched are short */
        if (a->D > MAX_SHARED_COLUMNS) {
            LAUNCH((rmsnorm_backward_kernel<T, WIDTH, HELD, false, false>), (unsigned)g->groups,
                   threads, 0, queue, *a, *io, g->rows, g->partial_GD);
            return STATUS_OK;
        }
    LAUNCH((rmsnorm_backward_kernel<T, WIDTH, HELD, PREFETCH, true>), (unsigned)g->groups, threads,
           (size_t)a->D * sizeof(float), queue, *a, *io, g->rows, g->partial_GD);
    return STATUS_OK;
}

template <typename T, int WIDTH>
static enum status launch_backward(const struct rmsnorm *a, const struct rmsnorm_bwd *io,
                                   const struct row_groups *g, struct queue *queue)
{
    const size_t vectors = (size_t)a->D / WIDTH;
    if (rows_are_short<WIDTH>(a))
        LAUNCH((rmsnorm_backward_short_kernel<T, WIDTH>), (unsigned)g->groups, SHORT_ROW_THREADS, 0,
               queue, *a, *io, g->rows, g->partial_GD);
    else if (vectors <= PREFETCH_THREADS)
        TRY((launch_groups<T, WIDTH, 1, true>(a, io, g, queue)));
    else if (vectors <= 2 * PREFETCH_THREADS)
        TRY((launch_groups<T, WIDTH, 2, true>(a, io, g, queue)));
    else
        TRY((launch_groups<T, WIDTH, 2, false>(a, io, g, queue)));
    if (a->part != RMSNORM_SUMS) TRY(add_row_groups(g, a->D, io->dw_D, queue));
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(rmsnorm_backward)(const struct rmsnorm *a,
                                                  const struct rmsnorm_bwd *io, struct queue *queue)
{
    struct row_groups g = row_groups_of((size_t)a->N, (size_t)a->D, queue);
    if (queue->sizing) return STATUS_OK;
    bool aligned = rows_are_aligned((size_t)a->D, a->dtype) &&
                   rows_are_aligned(a->stride, a->dtype) && is_aligned(io->dy_ND) &&
                   is_aligned(io->x_ND) && is_aligned(io->w_D) && is_aligned(io->dx_ND);
    BY_DTYPE_AND_WIDTH(a->dtype, aligned, launch_backward, a, io, &g, queue);
}
