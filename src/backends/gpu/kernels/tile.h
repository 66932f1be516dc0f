/* tile.h -- warp-level matrix multiply-accumulate of 16 x 16 x 16 tiles whose elements are spread
 * over the lanes of a warp as fragments: acc[m][n] += a[m][k] b[k][n], accumulated in f32.
 *
 * Types    bf16 uses the matrix units (mma.sync, MFMA), f32 plain multiply-adds.
 * Layouts  Warps of 32: fragments of mma.m16n8k16.  Warps of 64: fragments of mfma 16x16x16 with
 *          its operands swapped, which transposes the accumulator.  In both, a lane's accumulator
 *          elements are exactly its elements of an A fragment (tile_from_acc needs no exchange).
 *          The emulator implements both.
 * Memory   bf16 operands are in shared memory, tiles at multiples of 16 rows and columns, each row
 *          an odd multiple of 16 bytes, so that rows r and r + 8 begin in the same bank.  A warp of
 *          64 reads 8 bytes of 16 rows in one pass: to avoid bank conflicts, rows 8 to 15 of each
 *          16 hold the halves of every 16 bytes swapped there. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

/* The warp size, known to host code as well: launch configurations depend on it. */
#if defined(GPU_HIP)
#define TILE_WARP 64
#if defined(__HIP_DEVICE_COMPILE__) && WARP_SIZE != TILE_WARP
#error "matrix units of AMD devices with wavefronts of 32 are not supported"
#endif
#else
#define TILE_WARP WARP_SIZE
#endif

enum {
    TILE = 16,
    ACC_ROWS = TILE_WARP == 32 ? 2 : 1, /* rows and columns of the accumulator per lane */
    ACC_COLUMNS = 4,
    FRAGMENT_WORDS = 128 / TILE_WARP /* of 32 bits, per lane, of A or B in bf16 */
};

#ifdef GPU_EMULATED
#define UNROLL
#define UNROLL_BY(n)
#else
#define UNROLL         _Pragma("unroll")
#define UNROLL_TEXT(x) _Pragma(#x)
#define UNROLL_BY(n)   UNROLL_TEXT(unroll n)
#endif

/* Limits a kernel's registers so that `blocks` blocks of `threads` fit on a multiprocessor.  HIP's
 * second argument is the number of wavefronts per SIMD, of which a compute unit has four. */
#if defined(GPU_HIP)
#define KERNEL_BOUNDS(threads, blocks)                                                             \
    __launch_bounds__(threads, ((blocks) * (threads) + 255) / 256)
#else
#define KERNEL_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#endif

struct tile_acc {
    float x[ACC_ROWS][ACC_COLUMNS];
};

/* The tile's row and column of this lane's accumulator row i, column i. */
static __device__ __forceinline__ int tile_row(int i)
{
    return TILE_WARP == 32 ? lane_index() / 4 + 8 * i : lane_index() % 16;
}

static __device__ __forceinline__ int tile_column(int i)
{
    return TILE_WARP == 32 ? lane_index() % 4 * 2 + i % 2 + i / 2 * 8 : lane_index() / 16 * 4 + i;
}

/* Reduces a row over the lanes that hold it; all of them get the result.  fmaxf ignores NaN. */
static __device__ __forceinline__ float tile_row_max(float x)
{
    for (int step = TILE_WARP == 32 ? 1 : 16; step < (TILE_WARP == 32 ? 4 : 64); step *= 2)
        x = fmaxf(x, shuffle_xor(x, step));
    return x;
}

static __device__ __forceinline__ float tile_row_sum(float x)
{
    for (int step = TILE_WARP == 32 ? 1 : 16; step < (TILE_WARP == 32 ? 4 : 64); step *= 2)
        x += shuffle_xor(x, step);
    return x;
}

/* --- bf16 --- */

template <typename T> struct tile_a;
template <typename T> struct tile_b;
template <> struct tile_a<bf16> {
    uint32_t x[FRAGMENT_WORDS];
};
template <> struct tile_b<bf16> {
    uint32_t x[FRAGMENT_WORDS];
};

#ifdef GPU_EMULATED
/* The instructions, as the PTX and CDNA manuals define them. */
static __device__ __forceinline__ void emulated_ldmatrix(uint32_t *x, const bf16 *row,
                                                         bool transposed)
{
    uint4 own = *(const uint4 *)row;
    const struct warp_slot *all = thread_block_warp_gather(&own, sizeof own, __FILE__, __LINE__);
    thread_block_check_all_lanes(__FILE__, __LINE__);
    int lane = lane_index();
    for (int i = 0; i < 4; i++) {
        bf16 pair[2];
        for (int j = 0; j < 2; j++) {
            int pair_index = lane % 4 * 2 + j, other = lane / 4;
            int r = transposed ? pair_index : other, c = transposed ? other : pair_index;
            memcpy(&pair[j], all[8 * i + r].bytes + 2 * c, sizeof pair[j]);
        }
        x[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

static __device__ __forceinline__ float slot_bf16(const unsigned char *slot, int i)
{
    bf16 x;
    memcpy(&x, slot + 2 * i, sizeof x);
    return bf16_to_f32(x);
}

/* a and b are the instruction's first and second operand. */
__attribute__((no_sanitize_thread)) static void emulated_mma(float *sum, const uint32_t *a,
                                                             const uint32_t *b)
{
    enum { A_ELEMENTS = 2 * FRAGMENT_WORDS };
    uint32_t operands[FRAGMENT_WORDS + 2];
    memcpy(operands, a, sizeof(uint32_t[FRAGMENT_WORDS])), memcpy(operands + FRAGMENT_WORDS, b, 8);
    const struct warp_slot *all =
        thread_block_warp_gather(operands, sizeof operands, __FILE__, __LINE__);
    thread_block_check_all_lanes(__FILE__, __LINE__);
    enum { ROWS = TILE_WARP == 32 ? 2 : 4, COLUMNS = 4 / ROWS }; /* of a lane's four sums */
    int lane = lane_index();
    for (int k = 0; k < TILE; k++) {
        float x[ROWS], y[COLUMNS];
        for (int i = 0; i < ROWS; i++) {
            int row = TILE_WARP == 32 ? lane / 4 : lane / 16 * 4 + i;
            int from = TILE_WARP == 32 ? row * 4 + k % 8 / 2 : row + k / 4 * 16;
            int at = TILE_WARP == 32 ? k % 2 + i * 2 + k / 8 * 4 : k % 4;
            x[i] = slot_bf16(all[from].bytes, at);
        }
        for (int i = 0; i < COLUMNS; i++) {
            int column = TILE_WARP == 32 ? lane % 4 * 2 + i : lane % 16;
            int from = TILE_WARP == 32 ? column * 4 + k % 8 / 2 : column + k / 4 * 16;
            int at = TILE_WARP == 32 ? k % 2 + k / 8 * 2 : k % 4;
            y[i] = slot_bf16(all[from].bytes, A_ELEMENTS + at);
        }
        for (int i = 0; i < 4; i++) sum[i] += x[i / COLUMNS] * y[i % COLUMNS];
    }
}
#endif

/* Loads four 8 x 8 matrices from shared memory; lane l passes the address of row l % 8 of matrix
 * l / 8.  Warps of 32 only. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void ldmatrix_x4(uint32_t *x, const bf16 *row)
{
#if defined(__CUDA_ARCH__)
#define LDMATRIX(modifier)                                                                         \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0, %1, %2, %3}, [%4];"    \
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])                                  \
                 : "r"(address)                                                                    \
                 : "memory")
    unsigned address = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TRANSPOSED)
        LDMATRIX(".trans");
    else
        LDMATRIX("");
#undef LDMATRIX
#elif defined(GPU_EMULATED)
    emulated_ldmatrix(x, row, TRANSPOSED);
#endif
}

/* Warps of 32: one mma.sync, half of the columns.  Warps of 64: one MFMA, all columns, and b is the
 * instruction's first operand. */
static __device__ __forceinline__ void mma_instruction(float *sum, const uint32_t *a,
                                                       const uint32_t *b)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__HIP_DEVICE_COMPILE__)
    typedef uint32_t pairs __attribute__((ext_vector_type(2)));
    typedef short four __attribute__((ext_vector_type(4)));
    typedef float sums __attribute__((ext_vector_type(4)));
    const pairs x = {b[0], b[1]}, y = {a[0], a[1]};
    sums c = {sum[0], sum[1], sum[2], sum[3]};
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k((four)x, (four)y, c, 0, 0, 0);
    for (int i = 0; i < 4; i++) sum[i] = c[i];
#elif defined(GPU_EMULATED)
    emulated_mma(sum, TILE_WARP == 32 ? a : b, TILE_WARP == 32 ? b : a);
#endif
}

/* Two values rounded to bf16, the first in the lower half of the word. */
static __device__ __forceinline__ uint32_t pack_bf16x2(float low, float high)
{
#if defined(__CUDA_ARCH__)
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    bf16 x, y;
    from_f32(low, &x), from_f32(high, &y);
    return x | (uint32_t)y << 16;
#endif
}

/* A row of T holds column c at c ^ tile_swizzle<T>(row); swizzle_vector returns 16 bytes in that
 * order. */
template <typename T> static __device__ __forceinline__ int tile_swizzle(int row)
{
    return TILE_WARP == 64 && sizeof(T) == sizeof(bf16) ? row / 8 % 2 * 4 : 0;
}

template <typename T> static __device__ __forceinline__ uint4 swizzle_vector(uint4 x, int row)
{
    return tile_swizzle<T>(row) ? uint4{x.z, x.w, x.x, x.y} : x;
}

/* Warps of 64: x[n] = at[lane % 16 * stride + lane / 16 * 4 + n]. */
static __device__ __forceinline__ void load_fragment(uint32_t *x, const bf16 *at, int stride)
{
    int row = lane_index() % 16, column = lane_index() / 16 * 4 ^ tile_swizzle<bf16>(row);
    uint64_t four = *(const uint64_t *)(at + row * stride + column);
    x[0] = (uint32_t)four, x[1] = (uint32_t)(four >> 32);
}

/* Warps of 64: x[n] = at[(lane / 16 * 4 + n) * stride + lane % 16]. */
static __device__ __forceinline__ void load_transposed_fragment(uint32_t *x, const bf16 *at,
                                                                int stride)
{
    int row = lane_index() / 16 * 4, column = lane_index() % 16 ^ tile_swizzle<bf16>(row);
    at += row * stride + column;
    x[0] = at[0] | (uint32_t)at[stride] << 16;
    x[1] = at[2 * stride] | (uint32_t)at[3 * stride] << 16;
}

/* a[m][k] = at[m * stride + k] */
static __device__ __forceinline__ void tile_load(struct tile_a<bf16> *t, const bf16 *at, int stride)
{
#if TILE_WARP == 32
    int lane = lane_index();
    ldmatrix_x4<false>(t->x, at + lane % 16 * stride + lane / 16 * 8);
#else
    load_fragment(t->x, at, stride);
#endif
}

/* a[m][k] = at[k * stride + m] */
static __device__ __forceinline__ void tile_load_transposed(struct tile_a<bf16> *t, const bf16 *at,
                                                            int stride)
{
#if TILE_WARP == 32
    int lane = lane_index();
    ldmatrix_x4<true>(t->x, at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
#else
    load_transposed_fragment(t->x, at, stride);
#endif
}

/* b[k][n] = at[n * stride + k] */
static __device__ __forceinline__ void tile_load(struct tile_b<bf16> *t, const bf16 *at, int stride)
{
#if TILE_WARP == 32
    int lane = lane_index();
    ldmatrix_x4<false>(t->x, at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
#else
    load_fragment(t->x, at, stride);
#endif
}

/* b[k][n] = at[k * stride + n] */
static __device__ __forceinline__ void tile_load_transposed(struct tile_b<bf16> *t, const bf16 *at,
                                                            int stride)
{
#if TILE_WARP == 32
    int lane = lane_index();
    ldmatrix_x4<true>(t->x, at + lane % 16 * stride + lane / 16 * 8);
#else
    load_transposed_fragment(t->x, at, stride);
#endif
}

/* The accumulator, rounded to bf16, as an A operand. */
static __device__ __forceinline__ void tile_from_acc(struct tile_a<bf16> *t,
                                                     const struct tile_acc *s)
{
    for (int i = 0; i < FRAGMENT_WORDS; i++) {
        const float *pair = &s->x[i % ACC_ROWS][i / ACC_ROWS * 2];
        t->x[i] = pack_bf16x2(pair[0], pair[1]);
    }
}

static __device__ __forceinline__ void tile_mma(struct tile_acc *s, const struct tile_a<bf16> *a,
                                                const struct tile_b<bf16> *b)
{
#if TILE_WARP == 32
    for (int half = 0; half < 2; half++) {
        float part[4];
        for (int i = 0; i < 4; i++) part[i] = s->x[i / 2][half * 2 + i % 2];
        mma_instruction(part, a->x, b->x + half * 2);
        for (int i = 0; i < 4; i++) s->x[i / 2][half * 2 + i % 2] = part[i];
    }
#else
    mma_instruction(s->x[0], a->x, b->x);
#endif
}

/* --- f32: a lane holds whole rows of A, and reads B from memory --- */

template <> struct tile_a<float> {
    float x[ACC_ROWS][TILE];
};
template <> struct tile_b<float> {
    const float *at;
    int k_stride, n_stride;
};

static __device__ __forceinline__ void tile_load(struct tile_b<float> *t, const float *at,
                                                 int stride)
{
    t->at = at, t->k_stride = 1, t->n_stride = stride;
}

static __device__ __forceinline__ void tile_load_transposed(struct tile_b<float> *t,
                                                            const float *at, int stride)
{
    t->at = at, t->k_stride = stride, t->n_stride = 1;
}

static __device__ __forceinline__ void tile_from_acc(struct tile_a<float> *t,
                                                     const struct tile_acc *s)
{
    int lane = lane_index();
    UNROLL
    for (int k = 0; k < TILE; k++) {
        int from = TILE_WARP == 32 ? lane / 4 * 4 + k % 8 / 2 : lane % 16 + k / 4 * 16;
        int held = TILE_WARP == 32 ? k % 2 + k / 8 * 2 : k % 4;
        UNROLL
        for (int r = 0; r < ACC_ROWS; r++) t->x[r][k] = shuffle_from(s->x[r][held], from);
    }
}

static __device__ __forceinline__ void tile_mma(struct tile_acc *s, const struct tile_a<float> *a,
                                                const struct tile_b<float> *b)
{
    UNROLL
    for (int c = 0; c < ACC_COLUMNS; c++) {
        const float *at = b->at + tile_column(c) * b->n_stride;
        UNROLL
        for (int k = 0; k < TILE; k++) {
            UNROLL
            for (int r = 0; r < ACC_ROWS; r++) s->x[r][c] += a->x[r][k] * at[k * b->k_stride];
        }
    }
}
