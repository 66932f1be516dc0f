/* attention_stage.h -- what the kernels of attention share: which keys queries see, rows of tokens
 * on their way to shared memory, products of such rows, and rows of results.
 *
 * Axes     A wave has PANELS x 16 rows of a block's; K is rounded up to KP, with zeros.
 * Masks    A block meets all keys between the first and the last that one of its queries sees;
 *          the mask takes away what a query does not see. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/tile.h"

extern "C" {
#include "ops/attention.h"
}

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* Of a block: AMD's LDS; what sm_80 and sm_90 both have. */
enum { SHARED_MOST = (TILE_WAVE == 64 ? 64 : 163) << 10 };

/* 2^x: 0 of -inf; what is not a number stays so. */
static __device__ __forceinline__ float exp2_fast(float x)
{
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#elif defined(__HIP_DEVICE_COMPILE__) && __has_builtin(__builtin_amdgcn_exp2f)
    return __builtin_amdgcn_exp2f(x);
#else
    return exp2f(x);
#endif
}

/* ---- masks ---- */

struct keys_seen {
    int begin, end; /* 0, 0: none */
};
/* Keys that any and that every query of some sees. */
struct sight {
    int some_begin, some_end, every_begin, every_end;
};
struct bounds {
    const int32_t *start_BT, *end_BT;
};

static __device__ __forceinline__ struct keys_seen keys_seen_by(const struct attention *a,
                                                                struct bounds in, int b, int t)
{
    struct keys_seen r = {0, a->S};
    if (in.start_BT) {
        int64_t at = (int64_t)b * a->T + t;
        r.begin = max(in.start_BT[at], 0), r.end = min(in.end_BT[at], a->S);
    }
    if (a->causal) r.end = min(r.end, t + a->S - a->T + 1);
    if (r.begin >= r.end) r.begin = r.end = 0;
    return r;
}

/* Of queries [first, last], by a whole wave. */
static __device__ __forceinline__ struct sight look(const struct attention *a, struct bounds in,
                                                    int b, int first, int last)
{
    struct sight s = {0, a->S, 0, a->S};
    if (!in.start_BT) {
        if (a->causal) s.some_end = last + a->S - a->T + 1, s.every_end = first + a->S - a->T + 1;
        return s;
    }
    s.some_begin = a->S, s.some_end = 0;
    for (int t = first + lane_index(); t <= last; t += TILE_WAVE) {
        struct keys_seen r = keys_seen_by(a, in, b, t);
        if (r.end) s.some_begin = min(s.some_begin, r.begin), s.some_end = max(s.some_end, r.end);
        s.every_begin = max(s.every_begin, r.begin), s.every_end = min(s.every_end, r.end);
    }
    for (int step = TILE_WAVE / 2; step; step /= 2) {
        s.some_begin = min(s.some_begin, shuffle_xor(s.some_begin, step));
        s.some_end = max(s.some_end, shuffle_xor(s.some_end, step));
        s.every_begin = max(s.every_begin, shuffle_xor(s.every_begin, step));
        s.every_end = min(s.every_end, shuffle_xor(s.every_end, step));
    }
    return s;
}

static __device__ __forceinline__ bool some_see(struct sight s, int key, int count)
{
    return key < s.some_end && key + count > s.some_begin;
}

static __device__ __forceinline__ bool all_see(struct sight s, int key, int count)
{
    return key >= s.every_begin && key + count <= s.every_end;
}

/* ---- rows of tokens ---- */

/* Row r is at (r / per) * stride + (r % per) * K: `per` heads of a token are rows of their own. */
template <typename T> struct rows {
    const T *at;
    int64_t stride;
    int count, per, K;
    bool fast; /* they lie on boundaries of 16 bytes, K of them are a multiple */
};

template <typename T>
static __device__ __forceinline__ const T *row_of(const struct rows<T> &from, int r)
{
    if (from.per == 1) return from.at + r * from.stride;
    return from.at + r / from.per * from.stride + r % from.per * from.K;
}

/* 16 bytes to shared memory, or zeros; there after copies_wait and __syncthreads. */
static __device__ __forceinline__ void copy_16(void *to, const void *from, bool here)
{
#if defined(__CUDA_ARCH__)
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(here ? 16 : 0)
                 : "memory");
#else
    uint4 x = {0, 0, 0, 0};
    if (here) x = *(const uint4 *)from;
    *(uint4 *)to = x;
#endif
}

/* Ends a group of copies. */
static __device__ __forceinline__ void copies_end(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Until at most OPEN groups are under way. */
template <int OPEN> static __device__ __forceinline__ void copies_wait(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
#endif
}

/* Shared rows of KP numbers: so long that 8 of them meet every bank once. */
template <typename T, int KP> struct shared_row {
    enum : int { EACH = 16 / sizeof(T), CHUNKS = KP / EACH, LENGTH = KP + EACH };
};

/* By all THREADS of a block, as one group of copies; zeros beyond `count` rows and K. */
template <typename T, int KP, int ROWS, int THREADS>
static __device__ __forceinline__ void stage(T *to, const struct rows<T> &from)
{
    using R = shared_row<T, KP>;
    UNROLL_BY(2)
    for (int first = 0; first < ROWS * R::CHUNKS; first += THREADS) {
        int i = first + (int)threadIdx.x, r = i / R::CHUNKS, k = i % R::CHUNKS * R::EACH;
        if (ROWS * R::CHUNKS % THREADS && i >= ROWS * R::CHUNKS) break;
        T *at = to + r * R::LENGTH + k;
        bool here = r < from.count && k < from.K;
        const T *source = here ? row_of(from, r) + k : from.at;
        if (from.fast) {
            copy_16(at, source, here);
            continue;
        }
        for (int e = 0; e < R::EACH; e++) at[e] = here && k + e < from.K ? source[e] : (T)0;
    }
    copies_end();
}

/* Left operands: of bf16 they are staged; of f32, where there is less room, read as they are. */
template <int KP>
static __device__ __forceinline__ void left_load(struct tile_left<bf16> *t, const bf16 *staged,
                                                 const struct rows<bf16> &, int row, int k)
{
    constexpr int LENGTH = shared_row<bf16, KP>::LENGTH;
    tile_load(t, staged + row * LENGTH + k, LENGTH);
}

template <int KP>
static __device__ __forceinline__ void left_load(struct tile_left<float> *t, const float *,
                                                 const struct rows<float> &from, int row, int k)
{
    UNROLL
    for (int r = 0; r < HELD_ROWS; r++) {
        int i = row + tile_row(r);
        const float *at = i < from.count ? row_of(from, i) : from.at;
        int most = i < from.count ? from.K : 0;
        UNROLL
        for (int c = 0; c < TILE; c++) t->x[r][c] = k + c < most ? at[k + c] : 0;
    }
}

/* ---- products of rows; N: 16 times so many rows of `right`, or columns ---- */

/* s[row][n] = left[row] . right[n] */
template <typename T, int KP, int PANELS, int N>
static __device__ __forceinline__ void multiply_rows(struct tile_sums (&s)[PANELS][N],
                                                     const T *staged, const struct rows<T> &left,
                                                     int row, const T *right)
{
    constexpr int LENGTH = shared_row<T, KP>::LENGTH;
    UNROLL
    for (int p = 0; p < PANELS; p++) {
        UNROLL
        for (int n = 0; n < N; n++) s[p][n] = tile_sums{};
    }
    /* Of f32 a step has so many multiplications that more of them fill no gaps. */
    enum : int { STEPS = sizeof(T) == sizeof(bf16) ? KP / TILE : 1 };
    UNROLL_BY(STEPS)
    for (int k = 0; k < KP; k += TILE) {
        struct tile_left<T> x[PANELS];
        UNROLL
        for (int p = 0; p < PANELS; p++) left_load<KP>(&x[p], staged, left, row + p * TILE, k);
        UNROLL
        for (int n = 0; n < N; n++) {
            struct tile_right<T> y;
            tile_load(&y, right + n * TILE * LENGTH + k, LENGTH);
            UNROLL
            for (int p = 0; p < PANELS; p++) tile_multiply(&s[p][n], &x[p], &y);
        }
    }
}

/* out[row][n] += sum over k of s[row][k] right[k][n] */
template <typename T, int KP, int PANELS, int S, int N>
static __device__ __forceinline__ void multiply_sums(struct tile_sums (&out)[PANELS][N],
                                                     const struct tile_sums (&s)[PANELS][S],
                                                     const T *right)
{
    constexpr int LENGTH = shared_row<T, KP>::LENGTH;
    UNROLL
    for (int k = 0; k < S; k++) {
        struct tile_left<T> x[PANELS];
        UNROLL
        for (int p = 0; p < PANELS; p++) tile_of_sums(&x[p], &s[p][k]);
        UNROLL
        for (int n = 0; n < N; n++) {
            struct tile_right<T> y;
            tile_load_across(&y, right + k * TILE * LENGTH + n * TILE, LENGTH);
            UNROLL
            for (int p = 0; p < PANELS; p++) tile_multiply(&out[p][n], &x[p], &y);
        }
    }
}

/* ---- results ---- */

/* Where a kernel's result goes; two neighbours at once where they lie on a boundary of both. */
struct result {
    void *at;
    bool wide, pairs; /* f32; may be written in pairs */
};

static inline struct result result_of(const struct attention *a, void *at, size_t stride)
{
    bool wide = a->keys != ALL_KEYS || a->dtype == F32;
    bool pairs = !(stride % 2) && !(a->K % 2) && !((uintptr_t)at % (wide ? 8 : 4));
    return {at, wide, pairs};
}

static __device__ __forceinline__ void result_put(const struct result &to, int64_t at, float x,
                                                  float y, int count)
{
    float *wide = (float *)to.at + at;
    bf16 *narrow = (bf16 *)to.at + at;
    if (count == 2 && to.pairs) {
        if (to.wide)
            *(float2 *)wide = {x, y};
        else
            *(uint32_t *)narrow = tile_pair(x, y);
        return;
    }
    for (int i = 0; i < count; i++)
        if (to.wide)
            wide[i] = i ? y : x;
        else
            from_f32(i ? y : x, narrow + i);
}

/* A row of sums, `factor` times, from column k on; plus `kept` times what is there, if that is not
 * 0. */
template <int N>
static __device__ __forceinline__ void result_row(const struct result &to, int64_t row, int k,
                                                  int K, const struct tile_sums (&s)[N], int r,
                                                  float factor, float kept)
{
    UNROLL
    for (int n = 0; n < N; n++) {
        UNROLL
        for (int c = 0; c < HELD_COLUMNS; c += 2) {
            int column = k + n * TILE + tile_column(c);
            float x = s[n].x[r][c] * factor, y = s[n].x[r][c + 1] * factor;
            if (column >= K) continue;
            const float *old = (const float *)to.at + row + column;
            if (kept != 0) x += kept * old[0];
            if (kept != 0 && column + 1 < K) y += kept * old[1];
            result_put(to, row + column, x, y, min(K - column, 2));
        }
    }
}

/* run<T, KP>(a, io, on) of the type and the head size. */
#define FLASH_OF(run, a, io, on)                                                                   \
    do {                                                                                           \
        if ((a)->K > FLASH_K_MOST)                                                                 \
            FAIL(UNSUPPORTED, "attention: heads of %d on a GPU; expected at most %d", (a)->K,      \
                 (int)FLASH_K_MOST);                                                               \
        int size = (a)->K <= 64 ? 0 : (a)->K <= 128 ? 1 : 2;                                       \
        decltype(&run<float, 64>) const of[][3] = {                                                \
            {run<float, 64>, run<float, 128>, run<float, 256>},                                    \
            {run<bf16, 64>, run<bf16, 128>, run<bf16, 256>},                                       \
        };                                                                                         \
        TRY(of[(a)->dtype][size](a, io, on));                                                      \
        return STATUS_OK;                                                                          \
    } while (0)
