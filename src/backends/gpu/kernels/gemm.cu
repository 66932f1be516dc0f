/* gemm.cu -- products by tiles: a block makes a square of C, in steps of DEPTH along K.  While it
 * multiplies one step from shared memory the next one is on its way into registers.
 *
 * bf16 goes through the matrix unit (tile.h), and so do numbers of eight bits, as the bf16 that
 * they are, too; f32 goes through multiply-adds.  Each number of C is summed along K in order, 16
 * by 16, so its bits depend on the sizes alone.  No memory beside A, B and C.
 */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/fp8.h"
#include "backends/gpu/kernels/tile.h"

extern "C" {
#include "backends/gpu/gemm.h"
#include "ops/float8.h"
}

enum {
    THREADS = 256,
    DEPTH = 32,  /* of a step, of bf16 */
    VECTOR = 8,  /* numbers of 16 bytes */
    PAD = 8,     /* so that rows of shared memory begin at different banks */
    LARGE = 128, /* sides of a block's square of C, */
    SMALL = 64,  /* where there would be too few large ones */
    LARGE_BLOCKS = 64,
    BAND = 8, /* rows of squares that are walked through column by column, for the caches */
};

/* What multiplies the sums. */
static __device__ __forceinline__ float scale_of(const struct float8_scale *a,
                                                 const struct float8_scale *b)
{
    return a ? a->inverse * b->inverse : 1;
}

/* Where this block's square of C begins. */
static __device__ __forceinline__ void place(int M, int N, int side, int *row, int *column)
{
    int down = (M + side - 1) / side, across = (N + side - 1) / side;
    int band = (int)blockIdx.x / (BAND * across), first = band * BAND;
    int rows = min(down - first, (int)BAND), at = (int)blockIdx.x - first * across;
    *row = (first + at % rows) * side, *column = at / rows * side;
}

template <typename C>
static __device__ __forceinline__ void put(C *c, const C *d, size_t at, float scale, float sum)
{
    sum *= scale;
    from_f32(d ? to_f32(d[at]) + sum : sum, c + at);
}

/* --- by the matrix unit
 * ----------------------------------------------------------------------------------- */

static __device__ __forceinline__ bf16 to_bf16(bf16 x) { return x; }

/* VECTOR numbers that lie behind each other, at a multiple of their size. */
static __device__ __forceinline__ uint4 vector_of(const bf16 *at) { return *(const uint4 *)at; }
template <typename E> static __device__ __forceinline__ uint4 vector_of(const E *at)
{
    uint2 bits = *(const uint2 *)at;
    E each[VECTOR];
    bf16 wide[VECTOR];
    uint4 x;
    memcpy(each, &bits, sizeof bits);
    UNROLL
    for (int k = 0; k < VECTOR; k++) wide[k] = to_bf16(each[k]);
    memcpy(&x, wide, sizeof x);
    return x;
}

/* A piece of a matrix of rows x columns, of HEIGHT x WIDTH numbers from (row, column), zeros beyond
 * the matrix: each thread has COUNT vectors of it. */
template <typename E, int HEIGHT, int WIDTH> struct piece {
    enum { COUNT = HEIGHT * WIDTH / VECTOR / THREADS, STRIDE = WIDTH + PAD };
    uint4 x[COUNT];

    static __device__ __forceinline__ int vector(int i) { return i * THREADS + (int)threadIdx.x; }
    static __device__ __forceinline__ int vector_row(int i) { return vector(i) / (WIDTH / VECTOR); }
    static __device__ __forceinline__ int vector_column(int i)
    {
        return vector(i) % (WIDTH / VECTOR) * VECTOR;
    }

    __device__ __forceinline__ void fetch(const E *from, int rows, int columns, int row, int column,
                                          bool aligned)
    {
        UNROLL
        for (int i = 0; i < COUNT; i++) {
            int r = row + vector_row(i), c = column + vector_column(i);
            const E *at = from + (size_t)r * columns + c;
            if (aligned && r < rows && c + VECTOR <= columns) {
                x[i] = vector_of(at);
                continue;
            }
            bf16 each[VECTOR];
            for (int k = 0; k < VECTOR; k++)
                each[k] = r < rows && c + k < columns ? to_bf16(at[k]) : (bf16)0;
            memcpy(&x[i], each, sizeof each);
        }
    }

    __device__ __forceinline__ void keep(bf16 *shared) const
    {
        UNROLL
        for (int i = 0; i < COUNT; i++)
            *(uint4 *)(shared + vector_row(i) * STRIDE + vector_column(i)) = x[i];
    }
};

/* An operand's piece as it is stored: SIDE of C's rows or columns by DEPTH of K, or turned. */
template <typename E, int SIDE, bool TURNED> struct stored {
    using type = piece<E, TURNED ? (int)DEPTH : SIDE, TURNED ? SIDE : (int)DEPTH>;
    enum { NUMBERS = (TURNED ? (int)DEPTH : SIDE) * type::STRIDE };
};

/* TA: A is stored [K, M].  TB: B is stored [N, K]. */
template <typename A, typename B, int SIDE, bool TA, bool TB> struct square {
    enum {
        WAVES_DOWN = 2,
        WAVES_ACROSS = THREADS / WAVE / WAVES_DOWN,
        HEIGHT = SIDE / WAVES_DOWN,
        WIDTH = SIDE / WAVES_ACROSS,
        DOWN = HEIGHT / TILE,
        ACROSS = WIDTH / TILE,
    };
    using left_piece = typename stored<A, SIDE, TA>::type;
    using right_piece = typename stored<B, SIDE, !TB>::type;
    struct tile_sums sums[DOWN][ACROSS];

    static __device__ __forceinline__ int row() { return wave_index() / WAVES_ACROSS * HEIGHT; }
    static __device__ __forceinline__ int column() { return wave_index() % WAVES_ACROSS * WIDTH; }

    /* Tiles beyond the last row and column are not multiplied: `rows` and `columns` are of C from
     * the square's on. */
    __device__ __forceinline__ void step(const bf16 *a, const bf16 *b, int rows, int columns)
    {
        UNROLL
        for (int k = 0; k < DEPTH; k += TILE) {
            struct tile_left<bf16> left[DOWN];
            UNROLL
            for (int i = 0; i < DOWN; i++) {
                int r = row() + i * TILE;
                if (SIDE == SMALL && r >= rows) break;
                if constexpr (TA)
                    tile_load_across(&left[i], a + k * left_piece::STRIDE + r, left_piece::STRIDE);
                else
                    tile_load(&left[i], a + r * left_piece::STRIDE + k, left_piece::STRIDE);
            }
            UNROLL
            for (int j = 0; j < ACROSS; j++) {
                struct tile_right<bf16> right;
                int c = column() + j * TILE;
                if (SIDE == SMALL && c >= columns) break;
                if constexpr (TB)
                    tile_load(&right, b + c * right_piece::STRIDE + k, right_piece::STRIDE);
                else
                    tile_load_across(&right, b + k * right_piece::STRIDE + c, right_piece::STRIDE);
                UNROLL
                for (int i = 0; i < DOWN; i++)
                    if (SIDE != SMALL || row() + i * TILE < rows)
                        tile_multiply(&sums[i][j], &left[i], &right);
            }
        }
    }

    template <typename C>
    __device__ __forceinline__ void finish(C *c, const C *d, int M, int N, int row0, int column0,
                                           float scale)
    {
        UNROLL
        for (int i = 0; i < DOWN; i++) UNROLL
        for (int j = 0; j < ACROSS; j++) UNROLL
        for (int p = 0; p < HELD_ROWS; p++) UNROLL
        for (int q = 0; q < HELD_COLUMNS; q++) {
            int m = row0 + row() + i * TILE + tile_row(p);
            int n = column0 + column() + j * TILE + tile_column(q);
            if (m < M && n < N) put(c, d, (size_t)m * N + n, scale, sums[i][j].x[p][q]);
        }
    }
};

template <typename A, typename B, int SIDE, bool TA, bool TB, typename C>
static __global__ void __launch_bounds__(THREADS, 2)
    multiply(int M, int N, int K, const A *a, const B *b, C *c, const C *d,
             const struct float8_scale *a_scale, const struct float8_scale *b_scale)
{
    using shape = square<A, B, SIDE, TA, TB>;
    enum { LEFT = stored<A, SIDE, TA>::NUMBERS, RIGHT = stored<B, SIDE, !TB>::NUMBERS };
    alignas(16) __shared__ bf16 kept[2][LEFT + RIGHT];
    bool a_aligned = (uintptr_t)a % (VECTOR * sizeof *a) == 0 && (TA ? M : K) % VECTOR == 0;
    bool b_aligned = (uintptr_t)b % (VECTOR * sizeof *b) == 0 && (TB ? K : N) % VECTOR == 0;
    typename shape::left_piece left;
    typename shape::right_piece right;
    shape here = {};
    int row, column;
    place(M, N, SIDE, &row, &column);
    auto fetch = [&](int k) {
        left.fetch(a, TA ? K : M, TA ? M : K, TA ? k : row, TA ? row : k, a_aligned);
        right.fetch(b, TB ? N : K, TB ? K : N, TB ? column : k, TB ? k : column, b_aligned);
    };
    auto keep = [&](bf16 *to) {
        left.keep(to);
        right.keep(to + LEFT);
    };
    fetch(0);
    keep(kept[0]);
    __syncthreads();
    for (int k = 0, now = 0; k < K; k += DEPTH, now ^= 1) {
        bool more = k + DEPTH < K;
        if (more) fetch(k + DEPTH);
        here.step(kept[now], kept[now] + LEFT, M - row, N - column);
        if (more) keep(kept[now ^ 1]);
        __syncthreads();
    }
    here.finish(c, d, M, N, row, column, scale_of(a_scale, b_scale));
}

/* --- f32 ------------------------------------------------------------------------------------ */

enum { FLOAT_DEPTH = 16, EACH = 4, FLOAT_STRIDE = SMALL + 4 };

/* SMALL numbers by FLOAT_DEPTH of K, from (first, k) of `sides` x K: one row of `to` for each k. */
static __device__ __forceinline__ void bring(float to[FLOAT_DEPTH][FLOAT_STRIDE], const float *x,
                                             int sides, int K, bool turned, int first, int k)
{
    for (int i = (int)threadIdx.x; i < SMALL * FLOAT_DEPTH; i += THREADS) {
        int s = turned ? i % SMALL : i / FLOAT_DEPTH, d = turned ? i / SMALL : i % FLOAT_DEPTH;
        bool inside = first + s < sides && k + d < K;
        size_t at =
            turned ? (size_t)(k + d) * sides + (first + s) : (size_t)(first + s) * K + (k + d);
        to[d][s] = inside ? x[at] : 0;
    }
}

static __global__ void __launch_bounds__(THREADS)
    multiply_f32(int M, int N, int K, bool transpose_a, bool transpose_b, const float *a,
                 const float *b, float *c, const float *d)
{
    __shared__ float left[FLOAT_DEPTH][FLOAT_STRIDE], right[FLOAT_DEPTH][FLOAT_STRIDE];
    enum { ACROSS = SMALL / EACH };
    int self = (int)threadIdx.x, down = self / ACROSS * EACH, across = self % ACROSS * EACH;
    int row, column;
    float sums[EACH][EACH] = {};
    place(M, N, SMALL, &row, &column);
    for (int k = 0; k < K; k += FLOAT_DEPTH) {
        bring(left, a, M, K, transpose_a, row, k);
        bring(right, b, N, K, !transpose_b, column, k);
        __syncthreads();
        UNROLL
        for (int d = 0; d < FLOAT_DEPTH; d++) UNROLL
        for (int i = 0; i < EACH; i++) UNROLL
        for (int j = 0; j < EACH; j++) sums[i][j] += left[d][down + i] * right[d][across + j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int m = row + down + i, n = column + across + j;
            if (m < M && n < N) put(c, d, (size_t)m * N + n, 1, sums[i][j]);
        }
}

static __global__ void find_factors(const struct float8_scale *a, const struct float8_scale *b,
                                    float beta, struct gemm_factors *to)
{
    *to = {scale_of(a, b), beta};
}

/* --- on the host ---------------------------------------------------------------------------- */

static size_t squares(const struct gemm *g, size_t side)
{
    return ceil_div((size_t)g->M, side) * ceil_div((size_t)g->N, side);
}

static const void *added(const struct gemm *g, const struct gemm_io *io)
{
    return g->accumulate ? io->d : NULL;
}

template <typename A, typename B, int SIDE, bool TA, bool TB, typename C>
static enum status run(const struct gemm *g, const struct gemm_io *io, struct queue *on)
{
    LAUNCH((multiply<A, B, SIDE, TA, TB, C>), (unsigned)squares(g, SIDE), THREADS, 0, on, g->M,
           g->N, g->K, (const A *)io->a, (const B *)io->b, (C *)io->c, (const C *)added(g, io),
           g->scaled ? io->a_scale : NULL, g->scaled ? io->b_scale : NULL);
    return STATUS_OK;
}

template <int SIDE, typename C>
static enum status run_stored(const struct gemm *g, const struct gemm_io *io, struct queue *on)
{
    if (g->transpose_a)
        return g->transpose_b ? run<bf16, bf16, SIDE, true, true, C>(g, io, on)
                              : run<bf16, bf16, SIDE, true, false, C>(g, io, on);
    return g->transpose_b ? run<bf16, bf16, SIDE, false, true, C>(g, io, on)
                          : run<bf16, bf16, SIDE, false, false, C>(g, io, on);
}

template <int SIDE>
static enum status run_bf16(const struct gemm *g, const struct gemm_io *io, struct queue *on)
{
    return g->out == F32 ? run_stored<SIDE, float>(g, io, on) : run_stored<SIDE, bf16>(g, io, on);
}

template <typename A>
static enum status run_eight(const struct gemm *g, const struct gemm_io *io, struct queue *on)
{
    BUG_IF(g->transpose_a || !g->transpose_b || g->b != GEMM_E4M3);
    return g->out == F32 ? run<A, struct e4m3, SMALL, false, true, float>(g, io, on)
                         : run<A, struct e4m3, SMALL, false, true, bf16>(g, io, on);
}

extern "C" enum status GPU_NAME(gemm_tiled)(const struct gemm *g, const struct gemm_io *io,
                                            struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    if (g->a == GEMM_F32) {
        LAUNCH(multiply_f32, (unsigned)squares(g, SMALL), THREADS, 0, on, g->M, g->N, g->K,
               g->transpose_a, g->transpose_b, (const float *)io->a, (const float *)io->b,
               (float *)io->c, (const float *)added(g, io));
        return STATUS_OK;
    }
    if (g->a == GEMM_E4M3) return run_eight<struct e4m3>(g, io, on);
    if (g->a == GEMM_E5M2) return run_eight<struct e5m2>(g, io, on);
    bool large = g->M >= LARGE && g->N >= LARGE && squares(g, LARGE) >= LARGE_BLOCKS;
    return large ? run_bf16<LARGE>(g, io, on) : run_bf16<SMALL>(g, io, on);
}

extern "C" enum status GPU_NAME(gemm_factors)(const struct gemm *g, const struct gemm_io *io,
                                              struct gemm_factors *to, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    LAUNCH(find_factors, 1, 1, 0, on, io->a_scale, io->b_scale, g->accumulate ? 1.0f : 0.0f, to);
    return STATUS_OK;
}
