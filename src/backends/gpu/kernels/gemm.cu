/* gemm.cu -- tiled GEMM: each thread block computes one tile of C, in steps of TILE_K along K.
 * While it multiplies one k-tile from shared memory, the next one is loaded into registers
 * (double buffering).
 *
 * bf16 uses the matrix units (tile.h); FP8 is widened to bf16 on load; f32 uses multiply-adds.
 * Order    Every element of C accumulates along K in order, 16 at a time, so the bits depend on the
 *          sizes only.
 * Memory   No scratch. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/fp8.h"
#include "backends/gpu/kernels/tile.h"

extern "C" {
#include "backends/gpu/gemm.h"
#include "ops/float8.h"
}

enum {
    THREADS = 256,
    TILE_K = 32, /* of bf16 */
    VECTOR = 8,  /* bf16 elements in 16 bytes */
    PAD = 8,     /* between shared-memory rows, against bank conflicts */
    LARGE = 128, /* side of a block tile of C */
    SMALL = 64,  /* the same, where large tiles would leave multiprocessors idle */
    MIN_LARGE_TILES = 64,
    SWIZZLE = 8, /* rows of block tiles that are walked column by column, for L2 hits */
};

static __device__ __forceinline__ float inverse_scale(const struct float8_scale *a,
                                                      const struct float8_scale *b)
{
    return a ? a->inverse * b->inverse : 1;
}

/* First row and column of this block's tile of C, in swizzled order. */
static __device__ __forceinline__ void locate_tile(int M, int N, int side, int *row, int *column)
{
    int tile_rows = (M + side - 1) / side, tile_columns = (N + side - 1) / side;
    int band = (int)blockIdx.x / (SWIZZLE * tile_columns), first = band * SWIZZLE;
    int rows = min(tile_rows - first, (int)SWIZZLE);
    int index = (int)blockIdx.x - first * tile_columns;
    *row = (first + index % rows) * side, *column = index / rows * side;
}

/* The epilogue: C = scale acc (+ D), WIDTH elements from `at` on. */
template <int WIDTH, typename C>
static __device__ __forceinline__ void store_elements(C *c, const C *d, size_t at, float scale,
                                                      float (&sums)[WIDTH])
{
    float addends[WIDTH];
    if (d) load<WIDTH>(d + at, addends);
    for (int i = 0; i < WIDTH; i++) sums[i] = d ? addends[i] + scale * sums[i] : scale * sums[i];
    store<WIDTH>(sums, c + at);
}
template <typename C>
static __device__ __forceinline__ void store_element(C *c, const C *d, size_t at, float scale,
                                                     float sum)
{
    float sums[1] = {sum};
    store_elements<1>(c, d, at, scale, sums);
}

/* --- bf16 and FP8 on the matrix units --- */

static __device__ __forceinline__ bf16 to_bf16(bf16 x) { return x; }

/* VECTOR consecutive elements as bf16, from an address aligned to their size. */
static __device__ __forceinline__ uint4 load_vector(const bf16 *at) { return *(const uint4 *)at; }
template <typename E> static __device__ __forceinline__ uint4 load_vector(const E *at)
{
    uint2 bits = *(const uint2 *)at;
    E narrow[VECTOR];
    bf16 wide[VECTOR];
    uint4 x;
    memcpy(narrow, &bits, sizeof bits);
    UNROLL
    for (int k = 0; k < VECTOR; k++) wide[k] = to_bf16(narrow[k]);
    memcpy(&x, wide, sizeof x);
    return x;
}

/* A HEIGHT x WIDTH tile of a matrix on its way from global through registers to shared memory; each
 * thread moves COUNT vectors. */
template <typename E, int HEIGHT, int WIDTH> struct staged_tile {
    enum { COUNT = HEIGHT * WIDTH / VECTOR / THREADS, STRIDE = WIDTH + PAD };
    uint4 x[COUNT];

    static __device__ __forceinline__ int vector(int i) { return i * THREADS + (int)threadIdx.x; }
    static __device__ __forceinline__ int vector_row(int i) { return vector(i) / (WIDTH / VECTOR); }
    static __device__ __forceinline__ int vector_column(int i)
    {
        return vector(i) % (WIDTH / VECTOR) * VECTOR;
    }

    /* The tile at (row, column) of a rows x columns matrix, with zeros beyond its edges. */
    __device__ __forceinline__ void load(const E *from, int rows, int columns, int row, int column,
                                         bool aligned)
    {
        UNROLL
        for (int i = 0; i < COUNT; i++) {
            int r = row + vector_row(i), c = column + vector_column(i);
            const E *at = from + (size_t)r * columns + c;
            if (aligned && r < rows && c + VECTOR <= columns) {
                x[i] = load_vector(at);
                continue;
            }
            bf16 elements[VECTOR];
            for (int k = 0; k < VECTOR; k++)
                elements[k] = r < rows && c + k < columns ? to_bf16(at[k]) : (bf16)0;
            memcpy(&x[i], elements, sizeof elements);
        }
    }

    __device__ __forceinline__ void store(bf16 *shared) const
    {
        UNROLL
        for (int i = 0; i < COUNT; i++)
            *(uint4 *)(shared + vector_row(i) * STRIDE + vector_column(i)) =
                swizzle_vector<bf16>(x[i], vector_row(i));
    }
};

/* An operand's k-tile in its storage order: SIDE rows or columns of C by TILE_K, or transposed. */
template <typename E, int SIDE, bool TRANSPOSED> struct staged_operand {
    using type = staged_tile<E, TRANSPOSED ? (int)TILE_K : SIDE, TRANSPOSED ? SIDE : (int)TILE_K>;
    enum { ELEMENTS = (TRANSPOSED ? (int)TILE_K : SIDE) * type::STRIDE };
};

/* A block's SIDE x SIDE tile of C; each warp accumulates a HEIGHT x WIDTH part of it.
 * TA: A is stored [K, M].  TB: B is stored [N, K]. */
template <typename A, typename B, int SIDE, bool TA, bool TB> struct block_tile {
    enum {
        WARP_ROWS = 2,
        WARP_COLUMNS = THREADS / WARP_SIZE / WARP_ROWS,
        HEIGHT = SIDE / WARP_ROWS,
        WIDTH = SIDE / WARP_COLUMNS,
        TILE_ROWS = HEIGHT / TILE,
        TILE_COLUMNS = WIDTH / TILE,
    };
    using staged_a = typename staged_operand<A, SIDE, TA>::type;
    using staged_b = typename staged_operand<B, SIDE, !TB>::type;
    struct tile_acc acc[TILE_ROWS][TILE_COLUMNS];

    static __device__ __forceinline__ int row() { return warp_index() / WARP_COLUMNS * HEIGHT; }
    static __device__ __forceinline__ int column() { return warp_index() % WARP_COLUMNS * WIDTH; }

    /* Multiplies one k-tile.  `rows` and `columns` count what remains of C from this tile on; a
     * small block tile skips the 16 x 16 tiles beyond the edges. */
    __device__ __forceinline__ void multiply(const bf16 *shared_a, const bf16 *shared_b, int rows,
                                             int columns)
    {
        UNROLL
        for (int k = 0; k < TILE_K; k += TILE) {
            struct tile_a<bf16> a[TILE_ROWS];
            UNROLL
            for (int i = 0; i < TILE_ROWS; i++) {
                int r = row() + i * TILE, stride = staged_a::STRIDE;
                if (SIDE == SMALL && r >= rows) break;
                if constexpr (TA)
                    tile_load_transposed(&a[i], shared_a + k * stride + r, stride);
                else
                    tile_load(&a[i], shared_a + r * stride + k, stride);
            }
            UNROLL
            for (int j = 0; j < TILE_COLUMNS; j++) {
                struct tile_b<bf16> b;
                int c = column() + j * TILE, stride = staged_b::STRIDE;
                if (SIDE == SMALL && c >= columns) break;
                if constexpr (TB)
                    tile_load(&b, shared_b + c * stride + k, stride);
                else
                    tile_load_transposed(&b, shared_b + k * stride + c, stride);
                UNROLL
                for (int i = 0; i < TILE_ROWS; i++)
                    if (SIDE != SMALL || row() + i * TILE < rows) tile_mma(&acc[i][j], &a[i], &b);
            }
        }
    }

    template <typename C>
    __device__ __forceinline__ void store(C *c, const C *d, int M, int N, int row0, int column0,
                                          float scale)
    {
        UNROLL
        for (int t = 0; t < TILE_ROWS * TILE_COLUMNS; t++) {
            int i = t / TILE_COLUMNS, j = t % TILE_COLUMNS;
            UNROLL
            for (int e = 0; e < ACC_ROWS * ACC_COLUMNS; e++) {
                int p = e / ACC_COLUMNS, q = e % ACC_COLUMNS;
                int m = row0 + row() + i * TILE + tile_row(p);
                int n = column0 + column() + j * TILE + tile_column(q);
                if (m < M && n < N)
                    store_element(c, d, (size_t)m * N + n, scale, acc[i][j].x[p][q]);
            }
        }
    }
};

/* AMD's shared memory has room for one block of large tiles. */
template <typename A, typename B, int SIDE, bool TA, bool TB, typename C>
static __global__ void KERNEL_BOUNDS(THREADS, (SIDE == LARGE && TILE_WARP == 64 ? 1 : 2))
    gemm_kernel(int M, int N, int K, const A *a, const B *b, C *c, const C *d,
                const struct float8_scale *a_scale, const struct float8_scale *b_scale)
{
    using tile_type = block_tile<A, B, SIDE, TA, TB>;
    enum {
        A_ELEMENTS = staged_operand<A, SIDE, TA>::ELEMENTS,
        B_ELEMENTS = staged_operand<B, SIDE, !TB>::ELEMENTS
    };
    alignas(16) __shared__ bf16 shared[2][A_ELEMENTS + B_ELEMENTS];
    bool a_aligned = (uintptr_t)a % (VECTOR * sizeof *a) == 0 && (TA ? M : K) % VECTOR == 0;
    bool b_aligned = (uintptr_t)b % (VECTOR * sizeof *b) == 0 && (TB ? K : N) % VECTOR == 0;
    typename tile_type::staged_a staged_a;
    typename tile_type::staged_b staged_b;
    tile_type tile = {};
    int row, column;
    locate_tile(M, N, SIDE, &row, &column);
    auto load_operands = [&](int k) {
        staged_a.load(a, TA ? K : M, TA ? M : K, TA ? k : row, TA ? row : k, a_aligned);
        staged_b.load(b, TB ? N : K, TB ? K : N, TB ? column : k, TB ? k : column, b_aligned);
    };
    auto store_operands = [&](bf16 *to) {
        staged_a.store(to);
        staged_b.store(to + A_ELEMENTS);
    };
    load_operands(0);
    store_operands(shared[0]);
    __syncthreads();
    for (int k = 0, stage = 0; k < K; k += TILE_K, stage ^= 1) {
        bool more = k + TILE_K < K;
        if (more) load_operands(k + TILE_K);
        tile.multiply(shared[stage], shared[stage] + A_ELEMENTS, M - row, N - column);
        if (more) store_operands(shared[stage ^ 1]);
        __syncthreads();
    }
    tile.store(c, d, M, N, row, column, inverse_scale(a_scale, b_scale));
}

/* --- f32 --- */

enum { F32_TILE_K = 16, PER_THREAD = 4, F32_STRIDE = SMALL + 4 };

/* An f32 operand: [K, side] if transposed, else [side, K]. */
struct f32_operand {
    const float *x;
    int side, K;
    bool transposed;
};

/* Loads SMALL rows or columns of C by F32_TILE_K of K, with zeros beyond the edges: to[k][side]. */
static __device__ __forceinline__ void load_f32(float to[F32_TILE_K][F32_STRIDE],
                                                const struct f32_operand &from, int first, int k)
{
    for (int i = (int)threadIdx.x; i < SMALL * F32_TILE_K; i += THREADS) {
        int s = from.transposed ? i % SMALL : i / F32_TILE_K;
        int d = from.transposed ? i / SMALL : i % F32_TILE_K;
        bool inside = first + s < from.side && k + d < from.K;
        size_t at = from.transposed ? (size_t)(k + d) * from.side + (first + s)
                                    : (size_t)(first + s) * from.K + (k + d);
        to[d][s] = inside ? from.x[at] : 0;
    }
}

static __global__ void __launch_bounds__(THREADS)
    gemm_f32_kernel(int M, int N, int K, bool transpose_a, bool transpose_b, const float *a,
                    const float *b, float *c, const float *d)
{
    const struct f32_operand left = {a, M, K, transpose_a}, right = {b, N, K, !transpose_b};
    __shared__ float shared_a[F32_TILE_K][F32_STRIDE], shared_b[F32_TILE_K][F32_STRIDE];
    enum { ACROSS = SMALL / PER_THREAD };
    int thread = (int)threadIdx.x;
    int own_row = thread / ACROSS * PER_THREAD, own_column = thread % ACROSS * PER_THREAD;
    int row, column;
    float acc[PER_THREAD][PER_THREAD] = {};
    locate_tile(M, N, SMALL, &row, &column);
    for (int k = 0; k < K; k += F32_TILE_K) {
        load_f32(shared_a, left, row, k);
        load_f32(shared_b, right, column, k);
        __syncthreads();
        UNROLL
        for (int kk = 0; kk < F32_TILE_K; kk++) {
            UNROLL
            for (int i = 0; i < PER_THREAD; i++) {
                UNROLL
                for (int j = 0; j < PER_THREAD; j++)
                    acc[i][j] += shared_a[kk][own_row + i] * shared_b[kk][own_column + j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < PER_THREAD; i++)
        for (int j = 0; j < PER_THREAD; j++) {
            int m = row + own_row + i, n = column + own_column + j;
            if (m < M && n < N) store_element(c, d, (size_t)m * N + n, 1, acc[i][j]);
        }
}

static __global__ void factors_kernel(const struct float8_scale *a, const struct float8_scale *b,
                                      float beta, struct gemm_factors *to)
{
    *to = {inverse_scale(a, b), beta};
}

template <typename C, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    scale_kernel(size_t n, const float *product, C *c, const C *d,
                 const struct float8_scale *a_scale, const struct float8_scale *b_scale)
{
    size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * WIDTH, end = at + WIDTH;
    float scale = inverse_scale(a_scale, b_scale);
    if (end <= n) {
        float sums[WIDTH];
        load<WIDTH>(product + at, sums);
        store_elements<WIDTH>(c, d, at, scale, sums);
        return;
    }
    for (; at < n; at++) store_element(c, d, at, scale, product[at]);
}

/* --- on the host --- */

static size_t num_tiles(const struct gemm *g, size_t side)
{
    return ceil_div((size_t)g->M, side) * ceil_div((size_t)g->N, side);
}

static const void *addend(const struct gemm *g, const struct gemm_io *io)
{
    return g->accumulate ? io->d : NULL;
}

template <typename A, typename B, int SIDE, bool TA, bool TB, typename C>
static enum status launch(const struct gemm *g, const struct gemm_io *io, struct queue *queue)
{
    LAUNCH((gemm_kernel<A, B, SIDE, TA, TB, C>), (unsigned)num_tiles(g, SIDE), THREADS, 0, queue,
           g->M, g->N, g->K, (const A *)io->a, (const B *)io->b, (C *)io->c,
           (const C *)addend(g, io), g->scaled ? io->a_scale : NULL,
           g->scaled ? io->b_scale : NULL);
    return STATUS_OK;
}

template <int SIDE, typename C>
static enum status launch_bf16_to(const struct gemm *g, const struct gemm_io *io,
                                  struct queue *queue)
{
    if (g->transpose_a)
        return g->transpose_b ? launch<bf16, bf16, SIDE, true, true, C>(g, io, queue)
                              : launch<bf16, bf16, SIDE, true, false, C>(g, io, queue);
    return g->transpose_b ? launch<bf16, bf16, SIDE, false, true, C>(g, io, queue)
                          : launch<bf16, bf16, SIDE, false, false, C>(g, io, queue);
}

template <int SIDE>
static enum status launch_bf16(const struct gemm *g, const struct gemm_io *io, struct queue *queue)
{
    return g->out == F32 ? launch_bf16_to<SIDE, float>(g, io, queue)
                         : launch_bf16_to<SIDE, bf16>(g, io, queue);
}

template <typename A>
static enum status launch_fp8(const struct gemm *g, const struct gemm_io *io, struct queue *queue)
{
    BUG_IF(g->transpose_a || !g->transpose_b || g->b != GEMM_E4M3);
    return g->out == F32 ? launch<A, struct e4m3, SMALL, false, true, float>(g, io, queue)
                         : launch<A, struct e4m3, SMALL, false, true, bf16>(g, io, queue);
}

extern "C" enum status GPU_NAME(gemm_tiled)(const struct gemm *g, const struct gemm_io *io,
                                            struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    if (g->a == GEMM_F32) {
        LAUNCH(gemm_f32_kernel, (unsigned)num_tiles(g, SMALL), THREADS, 0, queue, g->M, g->N, g->K,
               g->transpose_a, g->transpose_b, (const float *)io->a, (const float *)io->b,
               (float *)io->c, (const float *)addend(g, io));
        return STATUS_OK;
    }
    if (g->a == GEMM_E4M3) return launch_fp8<struct e4m3>(g, io, queue);
    if (g->a == GEMM_E5M2) return launch_fp8<struct e5m2>(g, io, queue);
    bool large = g->M >= LARGE && g->N >= LARGE && num_tiles(g, LARGE) >= MIN_LARGE_TILES;
    return large ? launch_bf16<LARGE>(g, io, queue) : launch_bf16<SMALL>(g, io, queue);
}

template <typename C, int WIDTH>
static enum status launch_scale(const struct gemm *g, const struct gemm_io *io,
                                const float *product, struct queue *queue)
{
    size_t n = (size_t)g->M * (size_t)g->N, blocks = ceil_div(n, (size_t)THREADS * WIDTH);
    LAUNCH((scale_kernel<C, WIDTH>), (unsigned)blocks, THREADS, 0, queue, n, product, (C *)io->c,
           (const C *)addend(g, io), io->a_scale, io->b_scale);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(gemm_scale)(const struct gemm *g, const struct gemm_io *io,
                                            const float *product, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    bool aligned = is_aligned(product) && is_aligned(io->c) && is_aligned(addend(g, io));
    BY_DTYPE_AND_WIDTH(g->out, aligned, launch_scale, g, io, product, queue);
}

extern "C" enum status GPU_NAME(gemm_factors)(const struct gemm *g, const struct gemm_io *io,
                                              struct gemm_factors *to, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    LAUNCH(factors_kernel, 1, 1, 0, queue, io->a_scale, io->b_scale, g->accumulate ? 1.0f : 0.0f,
           to);
    return STATUS_OK;
}
