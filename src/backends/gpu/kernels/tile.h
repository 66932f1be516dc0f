/* tile.h -- tiles of 16 x 16 numbers that the lanes of a wave hold together, and their products:
 * sum[m][n] += left[m][k] right[k][n], with sums in f32.
 *
 * Types    bf16 goes through the matrix unit, f32 through multiplications and additions.
 * Axes     m, n, k of 16.  A lane holds the sums of HELD_ROWS rows and HELD_COLUMNS columns.
 * Layouts  NVIDIA's of mma.m16n8k16 where a wave is 32 lanes; where it is 64, AMD's of mfma
 *          16x16x16, with its two operands and so rows and columns changed over.  In both a lane's
 *          sums are, as they lie, its part of a left operand.  The emulator has both.
 * Memory   Operands of bf16 lie in shared memory, each row on a boundary of 16 bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

/* What the host reckons with, too. */
#if defined(GPU_HIP)
#define TILE_WAVE 64
#if defined(__HIP_DEVICE_COMPILE__) && WAVE != TILE_WAVE
#error "matrix units of waves of 32 are not written"
#endif
#else
#define TILE_WAVE WAVE
#endif

enum {
    TILE = 16,
    HELD_ROWS = TILE_WAVE == 32 ? 2 : 1,
    HELD_COLUMNS = 4,
    TILE_WORDS = 128 / TILE_WAVE
};

#ifdef GPU_EMULATED
#define UNROLL
#define UNROLL_BY(n)
#else
#define UNROLL         _Pragma("unroll")
#define UNROLL_TEXT(x) _Pragma(#x)
#define UNROLL_BY(n)   UNROLL_TEXT(unroll n)
#endif

struct tile_sums {
    float x[HELD_ROWS][HELD_COLUMNS];
};

/* Which row and column of a tile its lane's sums are. */
static __device__ __forceinline__ int tile_row(int i)
{
    return TILE_WAVE == 32 ? lane_index() / 4 + 8 * i : lane_index() % 16;
}

static __device__ __forceinline__ int tile_column(int i)
{
    return TILE_WAVE == 32 ? lane_index() % 4 * 2 + i % 2 + i / 2 * 8 : lane_index() / 16 * 4 + i;
}

/* Over the lanes that hold a row: all get it.  fmaxf steps over what is not a number. */
static __device__ __forceinline__ float tile_row_max(float x)
{
    for (int step = TILE_WAVE == 32 ? 1 : 16; step < (TILE_WAVE == 32 ? 4 : 64); step *= 2)
        x = fmaxf(x, shuffle_xor(x, step));
    return x;
}

static __device__ __forceinline__ float tile_row_sum(float x)
{
    for (int step = TILE_WAVE == 32 ? 1 : 16; step < (TILE_WAVE == 32 ? 4 : 64); step *= 2)
        x += shuffle_xor(x, step);
    return x;
}

/* ---- bf16 ---- */

template <typename T> struct tile_left;
template <typename T> struct tile_right;
template <> struct tile_left<bf16> {
    uint32_t x[TILE_WORDS];
};
template <> struct tile_right<bf16> {
    uint32_t x[TILE_WORDS];
};

#ifdef GPU_EMULATED
/* The instructions, as their manuals define them. */
static __device__ __forceinline__ void tile_matrices_of(uint32_t *x, const bf16 *row, bool turned)
{
    const struct gpu_emulator_slot *all = gpu_emulator_gather(&row, sizeof row, __FILE__, __LINE__);
    int lane = lane_index();
    for (int i = 0; i < 4; i++) {
        bf16 pair[2];
        for (int j = 0; j < 2; j++) {
            int r = turned ? lane % 4 * 2 + j : lane / 4, c = turned ? lane / 4 : lane % 4 * 2 + j;
            const bf16 *of;
            memcpy(&of, all[8 * i + r].bytes, sizeof of);
            pair[j] = of[c];
        }
        x[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

static __device__ __forceinline__ float tile_half(const unsigned char *slot, int i)
{
    bf16 x;
    memcpy(&x, slot + 2 * i, sizeof x);
    return bf16_to_f32(x);
}

/* a and b: the instruction's first and second operand. */
static __device__ __forceinline__ void tile_unit_of(float *sum, const uint32_t *a,
                                                    const uint32_t *b)
{
    enum { A = 2 * TILE_WORDS };
    uint32_t mine[TILE_WORDS + 2];
    memcpy(mine, a, sizeof(uint32_t[TILE_WORDS])), memcpy(mine + TILE_WORDS, b, 8);
    const struct gpu_emulator_slot *all =
        gpu_emulator_gather(mine, sizeof mine, __FILE__, __LINE__);
    int lane = lane_index();
    for (int i = 0; i < 4; i++) {
        int row = TILE_WAVE == 32 ? lane / 4 + i / 2 * 8 : lane / 16 * 4 + i;
        int column = TILE_WAVE == 32 ? lane % 4 * 2 + i % 2 : lane % 16;
        for (int k = 0; k < TILE; k++) {
            int from_a = TILE_WAVE == 32 ? row % 8 * 4 + k % 8 / 2 : row + k / 4 * 16;
            int from_b = TILE_WAVE == 32 ? column * 4 + k % 8 / 2 : column + k / 4 * 16;
            int at_a = TILE_WAVE == 32 ? k % 2 + row / 8 * 2 + k / 8 * 4 : k % 4;
            int at_b = TILE_WAVE == 32 ? k % 2 + k / 8 * 2 : k % 4;
            sum[i] += tile_half(all[from_a].bytes, at_a) * tile_half(all[from_b].bytes, A + at_b);
        }
    }
}
#endif

/* Four parts of 8 x 8 from shared memory: each lane says where one row of them lies.  Wave 32. */
static __device__ __forceinline__ void tile_matrices(uint32_t *x, const bf16 *row)
{
#if defined(__CUDA_ARCH__)
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
#elif defined(GPU_EMULATED)
    tile_matrices_of(x, row, false);
#endif
}

static __device__ __forceinline__ void tile_matrices_turned(uint32_t *x, const bf16 *row)
{
#if defined(__CUDA_ARCH__)
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
#elif defined(GPU_EMULATED)
    tile_matrices_of(x, row, true);
#endif
}

/* Wave 32: half of the columns; else all, and the instruction's first operand is our right one. */
static __device__ __forceinline__ void tile_unit(float *sum, const uint32_t *left,
                                                 const uint32_t *right)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]),
                   "r"(right[1]));
#elif defined(__HIP_DEVICE_COMPILE__)
    typedef uint32_t pairs __attribute__((ext_vector_type(2)));
    typedef short four __attribute__((ext_vector_type(4)));
    typedef float sums __attribute__((ext_vector_type(4)));
    const pairs x = {right[0], right[1]}, y = {left[0], left[1]};
    sums c = {sum[0], sum[1], sum[2], sum[3]};
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k((four)x, (four)y, c, 0, 0, 0);
    for (int i = 0; i < 4; i++) sum[i] = c[i];
#elif defined(GPU_EMULATED)
    tile_unit_of(sum, TILE_WAVE == 32 ? left : right, TILE_WAVE == 32 ? right : left);
#endif
}

/* Two numbers rounded to bf16, the first in the lower half. */
static __device__ __forceinline__ uint32_t tile_pair(float low, float high)
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

/* left[m][k] = at[m * stride + k] */
static __device__ __forceinline__ void tile_load(struct tile_left<bf16> *t, const bf16 *at,
                                                 int stride)
{
    int lane = lane_index();
#if TILE_WAVE == 32
    tile_matrices(t->x, at + lane % 16 * stride + lane / 16 * 8);
#else
    memcpy(t->x, __builtin_assume_aligned(at + lane % 16 * stride + lane / 16 * 4, 8), 8);
#endif
}

/* left[m][k] = at[k * stride + m] */
static __device__ __forceinline__ void tile_load_across(struct tile_left<bf16> *t, const bf16 *at,
                                                        int stride)
{
    int lane = lane_index();
#if TILE_WAVE == 32
    tile_matrices_turned(t->x, at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
#else
    at += lane / 16 * 4 * stride + lane % 16;
    t->x[0] = at[0] | (uint32_t)at[stride] << 16;
    t->x[1] = at[2 * stride] | (uint32_t)at[3 * stride] << 16;
#endif
}

/* right[k][n] = at[n * stride + k] */
static __device__ __forceinline__ void tile_load(struct tile_right<bf16> *t, const bf16 *at,
                                                 int stride)
{
    int lane = lane_index();
#if TILE_WAVE == 32
    tile_matrices(t->x, at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
#else
    memcpy(t->x, __builtin_assume_aligned(at + lane % 16 * stride + lane / 16 * 4, 8), 8);
#endif
}

/* right[k][n] = at[k * stride + n] */
static __device__ __forceinline__ void tile_load_across(struct tile_right<bf16> *t, const bf16 *at,
                                                        int stride)
{
    int lane = lane_index();
#if TILE_WAVE == 32
    tile_matrices_turned(t->x, at + lane % 16 * stride + lane / 16 * 8);
#else
    at += lane / 16 * 4 * stride + lane % 16;
    t->x[0] = at[0] | (uint32_t)at[stride] << 16;
    t->x[1] = at[2 * stride] | (uint32_t)at[3 * stride] << 16;
#endif
}

/* Rounded to bf16. */
static __device__ __forceinline__ void tile_of_sums(struct tile_left<bf16> *t,
                                                    const struct tile_sums *s)
{
    for (int i = 0; i < TILE_WORDS; i++) {
        const float *pair = &s->x[i % HELD_ROWS][i / HELD_ROWS * 2];
        t->x[i] = tile_pair(pair[0], pair[1]);
    }
}

static __device__ __forceinline__ void tile_multiply(struct tile_sums *s,
                                                     const struct tile_left<bf16> *left,
                                                     const struct tile_right<bf16> *right)
{
#if TILE_WAVE == 32
    for (int half = 0; half < 2; half++) {
        float part[4];
        for (int i = 0; i < 4; i++) part[i] = s->x[i / 2][half * 2 + i % 2];
        tile_unit(part, left->x, right->x + half * 2);
        for (int i = 0; i < 4; i++) s->x[i / 2][half * 2 + i % 2] = part[i];
    }
#else
    tile_unit(s->x[0], left->x, right->x);
#endif
}

/* ---- f32: a lane has its rows of the left operand whole, and reads the right one ---- */

template <> struct tile_left<float> {
    float x[HELD_ROWS][TILE];
};
template <> struct tile_right<float> {
    const float *at;
    int k_stride, n_stride;
};

static __device__ __forceinline__ void tile_load(struct tile_right<float> *t, const float *at,
                                                 int stride)
{
    t->at = at, t->k_stride = 1, t->n_stride = stride;
}

static __device__ __forceinline__ void tile_load_across(struct tile_right<float> *t,
                                                        const float *at, int stride)
{
    t->at = at, t->k_stride = stride, t->n_stride = 1;
}

static __device__ __forceinline__ void tile_of_sums(struct tile_left<float> *t,
                                                    const struct tile_sums *s)
{
    int lane = lane_index();
    UNROLL
    for (int k = 0; k < TILE; k++) {
        int from = TILE_WAVE == 32 ? lane / 4 * 4 + k % 8 / 2 : lane % 16 + k / 4 * 16;
        int held = TILE_WAVE == 32 ? k % 2 + k / 8 * 2 : k % 4;
        UNROLL
        for (int r = 0; r < HELD_ROWS; r++) t->x[r][k] = shuffle_from(s->x[r][held], from);
    }
}

static __device__ __forceinline__ void tile_multiply(struct tile_sums *s,
                                                     const struct tile_left<float> *left,
                                                     const struct tile_right<float> *right)
{
    UNROLL
    for (int c = 0; c < HELD_COLUMNS; c++) {
        const float *at = right->at + tile_column(c) * right->n_stride;
        UNROLL
        for (int i = 0; i < TILE * HELD_ROWS; i++) {
            int k = i / HELD_ROWS, r = i % HELD_ROWS;
            s->x[r][c] += left->x[r][k] * at[k * right->k_stride];
        }
    }
}
