/* matrix.h (gpu) -- the matrix unit: a wave multiplies tiles of 16 x 16 numbers of bf16, with sums
 * in f32.  C[r][c] += sum over k of A[r][k] B[k][c].
 *
 * Axes     r, k, c of 16.  Each lane has an equal part of a tile: NVIDIA's layouts where a wave is
 *          32 lanes, AMD's where it is 64, emulated or not.
 * Memory   Tiles are loaded from shared memory; rows begin on 16 bytes.
 * Waves    All lanes of a wave call together, in blocks of one dimension. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/kernel.h"

enum { TILE = 16, TILE_PART = TILE * TILE / WAVE };

/* A or B: pairs of neighbours in k, the lower one in the lower half. */
struct tile {
    uint32_t x[TILE_PART / 2];
};
struct tile_sums {
    float x[TILE_PART];
};

__device__ static inline int tile_lane(void) { return (int)(threadIdx.x % WAVE); }

/* Where sum i of this lane lies.  The lanes that share a row are neighbours: TILE_ACROSS of them,
 * so their sum or largest takes shuffles of 1, 2 and so on, below TILE_ACROSS. */
enum { TILE_ACROSS = WAVE == 32 ? 4 : 16 };
__device__ static inline int tile_row(int i)
{
    return WAVE == 32 ? tile_lane() / 4 + i / 2 % 2 * 8 : tile_lane() / 16 * 4 + i;
}
__device__ static inline int tile_column(int i)
{
    return WAVE == 32 ? tile_lane() % 4 * 2 + i % 2 + i / 4 * 8 : tile_lane() % 16;
}

/* Where pair i of this lane lies in A, and which r it is of; of B, which c. */
__device__ static inline int tile_left_row(int i)
{
    return WAVE == 32 ? tile_lane() / 4 + i % 2 * 8 : tile_lane() % 16;
}
__device__ static inline int tile_left_k(int i)
{
    return WAVE == 32 ? tile_lane() % 4 * 2 + i / 2 * 8 : tile_lane() / 16 * 4 + i * 2;
}
__device__ static inline int tile_right_column(int i)
{
    return WAVE == 32 ? tile_lane() / 4 + i / 2 * 8 : tile_lane() % 16;
}
__device__ static inline int tile_right_k(int i)
{
    return WAVE == 32 ? tile_lane() % 4 * 2 + i % 2 * 8 : tile_lane() / 16 * 4 + i * 2;
}

__device__ static inline uint32_t tile_pair(bf16 low, bf16 high)
{
    return low | (uint32_t)high << 16;
}

#ifdef __CUDA_ARCH__
/* Four 8 x 8 parts at once, each from eight rows that eight lanes name. */
__device__ static inline void tile_fetch(struct tile *t, const bf16 *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(t->x[0]), "=r"(t->x[1]), "=r"(t->x[2]), "=r"(t->x[3])
                 : "r"(at)
                 : "memory");
}
__device__ static inline void tile_fetch_turned(struct tile *t, const bf16 *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(t->x[0]), "=r"(t->x[1]), "=r"(t->x[2]), "=r"(t->x[3])
                 : "r"(at)
                 : "memory");
}
#endif

/* A[r][k] = p[r * stride + k] */
__device__ static inline struct tile tile_left(const bf16 *p, int stride)
{
    struct tile t;
#ifdef __CUDA_ARCH__
    tile_fetch(&t, p + tile_lane() % 16 * stride + tile_lane() / 16 * 8);
#else
    for (int i = 0; i < TILE_PART / 2; i++) {
        const bf16 *at = p + tile_left_row(i) * stride + tile_left_k(i);
        t.x[i] = tile_pair(at[0], at[1]);
    }
#endif
    return t;
}

/* A[r][k] = p[k * stride + r] */
__device__ static inline struct tile tile_left_turned(const bf16 *p, int stride)
{
    struct tile t;
#ifdef __CUDA_ARCH__
    int lane = tile_lane();
    tile_fetch_turned(&t, p + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
#else
    for (int i = 0; i < TILE_PART / 2; i++) {
        const bf16 *at = p + tile_left_k(i) * stride + tile_left_row(i);
        t.x[i] = tile_pair(at[0], at[stride]);
    }
#endif
    return t;
}

/* B[k][c] = p[c * stride + k] */
__device__ static inline struct tile tile_right_turned(const bf16 *p, int stride)
{
    struct tile t;
#ifdef __CUDA_ARCH__
    int lane = tile_lane();
    tile_fetch(&t, p + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
#else
    for (int i = 0; i < TILE_PART / 2; i++) {
        const bf16 *at = p + tile_right_column(i) * stride + tile_right_k(i);
        t.x[i] = tile_pair(at[0], at[1]);
    }
#endif
    return t;
}

/* B[k][c] = p[k * stride + c] */
__device__ static inline struct tile tile_right(const bf16 *p, int stride)
{
    struct tile t;
#ifdef __CUDA_ARCH__
    tile_fetch_turned(&t, p + tile_lane() % 16 * stride + tile_lane() / 16 * 8);
#else
    for (int i = 0; i < TILE_PART / 2; i++) {
        const bf16 *at = p + tile_right_k(i) * stride + tile_right_column(i);
        t.x[i] = tile_pair(at[0], at[stride]);
    }
#endif
    return t;
}

/* sum += A B */
__device__ static inline void tile_multiply(struct tile_sums *sum, const struct tile *left,
                                            const struct tile *right)
{
    float *s = sum->x;
    const uint32_t *a = left->x, *b = right->x;
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int half = 0; half < 2; half++, s += 4, b += 2)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__HIP_DEVICE_COMPILE__)
    typedef short four __attribute__((ext_vector_type(4)));
    typedef float sums __attribute__((ext_vector_type(4)));
    four x, y;
    sums c = {s[0], s[1], s[2], s[3]};
    memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y);
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, c, 0, 0, 0);
    for (int i = 0; i < 4; i++) s[i] = c[i];
#elif defined(GPU_EMULATED)
    struct both {
        struct tile left, right;
    } mine = {*left, *right};
    const struct both *all = (const struct both *)emulator_share(&mine, sizeof mine);
    for (int i = 0; i < TILE_PART; i++) {
        int r = tile_row(i), c = tile_column(i);
        for (int k = 0; k < TILE; k++) {
            /* whose they are, and which */
            int near = WAVE == 32 ? k % 8 / 2 : k / 4 * 16;
            int from_a = WAVE == 32 ? r % 8 * 4 + near : near + r;
            int from_b = WAVE == 32 ? c % 8 * 4 + near : near + c;
            int pair_a = WAVE == 32 ? r / 8 + k / 8 * 2 : k % 4 / 2;
            int pair_b = WAVE == 32 ? k / 8 + c / 8 * 2 : k % 4 / 2;
            bf16 x = (bf16)(all[from_a].left.x[pair_a] >> k % 2 * 16);
            bf16 y = (bf16)(all[from_b].right.x[pair_b] >> k % 2 * 16);
            s[i] += bf16_to_f32(x) * bf16_to_f32(y);
        }
    }
    emulator_shared(); /* the others have read, too */
#endif
}

/* --- sums as the next product's A, rounded to bf16 ------------------------------------------ */

/* The pairs in which sums lie: of a row in NVIDIA's layout, of a column in AMD's. */
__device__ static inline struct tile tile_rounded(const struct tile_sums *sum)
{
    struct tile t;
    for (int i = 0; i < TILE_PART / 2; i++)
        t.x[i] = tile_pair(bf16_from_f32(sum->x[2 * i]), bf16_from_f32(sum->x[2 * i + 1]));
    return t;
}

#if defined(__CUDA_ARCH__)
__device__ static inline uint32_t tile_turn_part(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
#endif

/* Row and column change places, and with them the layouts of A and of sums. */
__device__ static inline struct tile tile_turn(struct tile t)
{
    struct tile y;
#if defined(__CUDA_ARCH__)
    for (int i = 0; i < 4; i++) y.x[i] = tile_turn_part(t.x[i / 2 + i % 2 * 2]);
#elif defined(__HIP_DEVICE_COMPILE__)
    int lane = tile_lane(), shift = lane % 2 * 16;
    for (int i = 0; i < 2; i++) {
        uint32_t got[2];
        for (int j = 0; j < 2; j++) {
            int from = lane % 16 / 4 * 16 + lane / 16 * 4 + i * 2 + j;
            uint32_t low = (uint32_t)__shfl((int)t.x[0], from, WAVE);
            uint32_t high = (uint32_t)__shfl((int)t.x[1], from, WAVE);
            got[j] = (lane % 4 < 2 ? low : high) >> shift & 0xFFFF;
        }
        y.x[i] = got[0] | got[1] << 16;
    }
#elif defined(GPU_EMULATED)
    const struct tile *all = (const struct tile *)emulator_share(&t, sizeof t);
    for (int i = 0; i < TILE_PART / 2; i++) {
        uint32_t got[2];
        for (int j = 0; j < 2; j++) {
            /* what is wanted, and where it lies: a row of what is turned, a column of what comes */
            int r = tile_left_row(i), k = tile_left_k(i) + j;
            int from = WAVE == 32 ? k % 8 * 4 + r % 8 / 2 : r / 4 * 16 + k;
            int pair = WAVE == 32 ? k / 8 + r / 8 * 2 : r % 4 / 2;
            got[j] = all[from].x[pair] >> r % 2 * 16 & 0xFFFF;
        }
        y.x[i] = got[0] | got[1] << 16;
    }
    emulator_shared();
#endif
    return y;
}

/* A[r][k] = sum[r][k] */
__device__ static inline struct tile tile_left_of(const struct tile_sums *sum)
{
    return WAVE == 32 ? tile_rounded(sum) : tile_turn(tile_rounded(sum));
}
/* A[r][k] = sum[k][r] */
__device__ static inline struct tile tile_left_of_turned(const struct tile_sums *sum)
{
    return WAVE == 32 ? tile_turn(tile_rounded(sum)) : tile_rounded(sum);
}
