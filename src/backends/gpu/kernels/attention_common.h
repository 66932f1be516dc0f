/* attention_common.h -- what the flash attention kernels share: masks, staging of rows in shared
 * memory, tile multiplies, and stores of results.
 *
 * Axes     A warp owns ROW_TILES x 16 of a block's rows; K is padded to KP with zeros.
 * Masks    A block visits the keys between the first and the last that any of its queries sees, and
 *          masks tiles that some query does not see completely. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/kernels/tile.h"

extern "C" {
#include "ops/attention.h"
}

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* Shared memory per block: AMD's LDS; what sm_86, sm_89 and sm_120 allow, the least since sm_80. */
enum { MAX_SHARED_BYTES = (TILE_WARP == 64 ? 64 : 99) << 10 };

/* 2^x; 0 for -inf, NaN for NaN. */
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

/* --- masks --- */

struct visible_keys {
    int begin, end; /* 0, 0: none */
};
/* Of a tile of queries: the keys that any of them sees, and those that all of them see. */
struct tile_mask {
    int any_begin, any_end, all_begin, all_end;
};
struct document_bounds {
    const int32_t *start_BT, *end_BT; /* NULL: no document mask */
};

static __device__ __forceinline__ struct visible_keys
visible_keys_of(const struct attention *a, struct document_bounds bounds, int b, int t)
{
    struct visible_keys r = {0, a->S};
    if (bounds.start_BT) {
        int64_t at = (int64_t)b * a->T + t;
        r.begin = max(bounds.start_BT[at], 0), r.end = min(bounds.end_BT[at], a->S);
    }
    int causal_end = t + a->S - a->T + 1;
    if (a->causal) r.end = min(r.end, causal_end);
    if (a->window) r.begin = max(r.begin, causal_end - a->window);
    if (r.begin >= r.end) r.begin = r.end = 0;
    return r;
}

/* Of queries first to last, inclusive.  All lanes of the warp must call it. */
static __device__ __forceinline__ struct tile_mask
make_tile_mask(const struct attention *a, struct document_bounds bounds, int b, int first, int last)
{
    struct tile_mask m = {0, a->S, 0, a->S};
    if (!bounds.start_BT) {
        int first_end = first + a->S - a->T + 1, last_end = last + a->S - a->T + 1;
        if (a->causal) m.any_end = last_end, m.all_end = first_end;
        if (a->window) m.any_begin = max(first_end - a->window, 0);
        if (a->window) m.all_begin = max(last_end - a->window, 0);
        return m;
    }
    m.any_begin = a->S, m.any_end = 0;
    for (int t = first + lane_index(); t <= last; t += TILE_WARP) {
        struct visible_keys r = visible_keys_of(a, bounds, b, t);
        if (r.end) m.any_begin = min(m.any_begin, r.begin), m.any_end = max(m.any_end, r.end);
        m.all_begin = max(m.all_begin, r.begin), m.all_end = min(m.all_end, r.end);
    }
    for (int step = TILE_WARP / 2; step; step /= 2) {
        m.any_begin = min(m.any_begin, shuffle_xor(m.any_begin, step));
        m.any_end = max(m.any_end, shuffle_xor(m.any_end, step));
        m.all_begin = max(m.all_begin, shuffle_xor(m.all_begin, step));
        m.all_end = min(m.all_end, shuffle_xor(m.all_end, step));
    }
    return m;
}

/* Whether any query sees any of `count` keys from `key` on. */
static __device__ __forceinline__ bool any_visible(struct tile_mask m, int key, int count)
{
    return key < m.any_end && key + count > m.any_begin;
}

/* Whether every query sees all of them, so that no mask is needed. */
static __device__ __forceinline__ bool all_visible(struct tile_mask m, int key, int count)
{
    return key >= m.all_begin && key + count <= m.all_end;
}

/* --- staging rows of tokens in shared memory --- */

/* Row r is at (r / heads) * stride + (r % heads) * K: several heads of a token are separate
 * rows. */
template <typename T> struct token_rows {
    const T *base;
    int64_t stride;
    int count, heads, K;
    bool aligned; /* rows are whole 16-byte vectors, aligned */
};

template <typename T>
static __device__ __forceinline__ const T *row_pointer(const struct token_rows<T> &rows, int r)
{
    if (rows.heads == 1) return rows.base + r * rows.stride;
    return rows.base + r / rows.heads * rows.stride + r % rows.heads * rows.K;
}

/* Asynchronously copies 16 bytes to shared memory, or zeros it.  Visible to the block after
 * cp_async_wait and __syncthreads. */
static __device__ __forceinline__ void cp_async_16(void *to, const void *from, bool valid)
{
#if defined(__CUDA_ARCH__)
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
#elif defined(GPU_EMULATED)
    thread_block_copy_async(to, valid ? from : NULL, __FILE__, __LINE__);
#else
    uint4 x = {0, 0, 0, 0};
    if (valid) x = *(const uint4 *)from;
    *(uint4 *)to = x;
#endif
}

/* Closes a group of copies. */
static __device__ __forceinline__ void cp_async_commit(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(GPU_EMULATED)
    thread_block_commit_copies();
#endif
}

/* Waits until at most PENDING groups are in flight. */
template <int PENDING> static __device__ __forceinline__ void cp_async_wait(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#elif defined(GPU_EMULATED)
    thread_block_wait_copies(PENDING);
#endif
}

/* A row of KP elements in shared memory, padded so that 8 consecutive rows hit different banks. */
template <typename T, int KP> struct shared_row {
    enum : int { VECTOR = 16 / sizeof(T), VECTORS = KP / VECTOR, STRIDE = KP + VECTOR };
};

/* The block's THREADS copy ROWS rows as one cp.async group, with zeros beyond `count` rows and
 * K. */
template <typename T, int KP, int ROWS, int THREADS>
static __device__ __forceinline__ void stage_rows(T *to, const struct token_rows<T> &rows)
{
    using R = shared_row<T, KP>;
    constexpr int COUNT = ROWS * R::VECTORS;
    constexpr bool WHOLE_ROWS = THREADS % R::VECTORS == 0; /* at a time: k does not change */
    int thread = (int)threadIdx.x;
    if (TILE_WARP == 64 && sizeof(T) == sizeof(bf16) && rows.aligned) {
        /* Without cp.async.  No branch separates the loads, so that several can be in flight. */
        constexpr int LOADS = (COUNT + THREADS - 1) / THREADS;
        uint4 x[LOADS];
        UNROLL
        for (int n = 0; n < LOADS; n++) {
            int i = n * THREADS + thread, r = i / R::VECTORS, k = i % R::VECTORS * R::VECTOR;
            bool valid = i < COUNT && r < rows.count && k < rows.K;
            x[n] = *(const uint4 *)(valid ? row_pointer(rows, r) + k : rows.base);
            if (!valid) x[n] = {0, 0, 0, 0};
        }
        UNROLL
        for (int n = 0; n < LOADS; n++) {
            int i = n * THREADS + thread, r = i / R::VECTORS, k = i % R::VECTORS * R::VECTOR;
            if (i < COUNT) *(uint4 *)(to + r * R::STRIDE + k) = swizzle_vector<T>(x[n], r);
        }
        return;
    }
    UNROLL_BY(1)
    for (int first = 0; first < COUNT; first += THREADS) {
        int i = first + thread, k = (WHOLE_ROWS ? thread : i) % R::VECTORS * R::VECTOR;
        int r = WHOLE_ROWS ? first / R::VECTORS + thread / R::VECTORS : i / R::VECTORS;
        if (COUNT % THREADS && i >= COUNT) break;
        T *at = to + r * R::STRIDE + k;
        bool valid = r < rows.count && k < rows.K;
        const T *source = valid ? row_pointer(rows, r) + k : rows.base;
        if (rows.aligned) {
            cp_async_16(at, source, valid);
            continue;
        }
        for (int e = 0; e < R::VECTOR; e++)
            at[e ^ tile_swizzle<T>(r)] = valid && k + e < rows.K ? source[e] : (T)0;
    }
    cp_async_commit();
}

/* Loads an A operand of rows that the block owns: bf16 with warps of 32 from its staged rows; bf16
 * with warps of 64, which keep it in registers, and f32, whose rows would not fit into shared
 * memory, from global memory. */
template <int KP>
static __device__ __forceinline__ void load_a(struct tile_a<bf16> *t, const bf16 *staged,
                                              const struct token_rows<bf16> &rows, int row, int k)
{
    if constexpr (TILE_WARP == 32) {
        constexpr int STRIDE = shared_row<bf16, KP>::STRIDE;
        tile_load(t, staged + row * STRIDE + k, STRIDE);
        return;
    }
    int i = row + tile_row(0), column = k + tile_column(0);
    uint64_t four = 0;
    if (i < rows.count && column < rows.K) {
        const bf16 *at = row_pointer(rows, i) + column;
        if (rows.aligned) four = *(const uint64_t *)at;
        for (int e = 0; !rows.aligned && e < 4 && column + e < rows.K; e++)
            four |= (uint64_t)at[e] << 16 * e;
    }
    t->x[0] = (uint32_t)four, t->x[1] = (uint32_t)(four >> 32);
}

template <int KP>
static __device__ __forceinline__ void load_a(struct tile_a<float> *t, const float *,
                                              const struct token_rows<float> &rows, int row, int k)
{
    UNROLL
    for (int r = 0; r < ACC_ROWS; r++) {
        int i = row + tile_row(r);
        const float *at = i < rows.count ? row_pointer(rows, i) : rows.base;
        int end = i < rows.count ? rows.K : 0;
        UNROLL
        for (int c = 0; c < TILE; c++) t->x[r][c] = k + c < end ? at[k + c] : 0;
    }
}

/* Loads it, or, if HELD, takes it from registers, which hold those of columns 0, TILE, ... */
template <int KP, bool HELD, typename T>
static __device__ __forceinline__ tile_a<T> own_a(const struct tile_a<T> *held, const T *staged,
                                                  const struct token_rows<T> &rows, int row, int k)
{
    if constexpr (HELD) return held[k / TILE];
    struct tile_a<T> t;
    load_a<KP>(&t, staged, rows, row, k);
    return t;
}

/* --- tile multiplies; N: number of 16-wide tiles of b's rows or columns --- */

/* s = a b^T: s[row][n] = a[row] . b[n].  load(x, p, k) loads tile p of a's rows from column k
 * on. */
template <typename T, int KP, int ROW_TILES, int N, typename Load>
static __device__ __forceinline__ void multiply_abt(struct tile_acc (&s)[ROW_TILES][N],
                                                    const Load &load, const T *b)
{
    constexpr int STRIDE = shared_row<T, KP>::STRIDE;
    UNROLL
    for (int p = 0; p < ROW_TILES; p++) {
        UNROLL
        for (int n = 0; n < N; n++) s[p][n] = tile_acc{};
    }
    /* An f32 step has enough multiplies by itself; unrolling it would only cost registers. */
    enum : int { STEPS = sizeof(T) == sizeof(bf16) ? KP / TILE : 1 };
    UNROLL_BY(STEPS)
    for (int k = 0; k < KP; k += TILE) {
        struct tile_a<T> x[ROW_TILES];
        UNROLL
        for (int p = 0; p < ROW_TILES; p++) load(&x[p], p, k);
        UNROLL
        for (int n = 0; n < N; n++) {
            struct tile_b<T> y;
            tile_load(&y, b + n * TILE * STRIDE + k, STRIDE);
            UNROLL
            for (int p = 0; p < ROW_TILES; p++) tile_mma(&s[p][n], &x[p], &y);
        }
    }
}

/* out += s b: out[row][n] += sum over k of s[row][k] b[k][n], for STEPS tiles of k.  load(x, p, k)
 * loads tile [p][k] of s. */
template <typename T, int KP, int STEPS, int ROW_TILES, int N, typename Load>
static __device__ __forceinline__ void multiply_ab(struct tile_acc (&out)[ROW_TILES][N],
                                                   const Load &load, const T *b)
{
    constexpr int STRIDE = shared_row<T, KP>::STRIDE;
    UNROLL
    for (int k = 0; k < STEPS; k++) {
        struct tile_a<T> x[ROW_TILES];
        UNROLL
        for (int p = 0; p < ROW_TILES; p++) load(&x[p], p, k);
        UNROLL
        for (int n = 0; n < N; n++) {
            struct tile_b<T> y;
            tile_load_transposed(&y, b + k * TILE * STRIDE + n * TILE, STRIDE);
            UNROLL
            for (int p = 0; p < ROW_TILES; p++) tile_mma(&out[p][n], &x[p], &y);
        }
    }
}

/* The same with s in accumulators, which are rounded to T. */
template <typename T, int KP, int ROW_TILES, int S, int N>
static __device__ __forceinline__ void multiply_ab(struct tile_acc (&out)[ROW_TILES][N],
                                                   const struct tile_acc (&s)[ROW_TILES][S],
                                                   const T *b)
{
    auto round_tile = [&](struct tile_a<T> *x, int p, int k) { tile_from_acc(x, &s[p][k]); };
    multiply_ab<T, KP, S>(out, round_tile, b);
}

/* --- results --- */

struct attention_output {
    void *base;
    bool is_f32, pairs; /* pairs: two neighboring elements may be stored at once */
};

static inline struct attention_output make_output(const struct attention *a, void *base,
                                                  size_t stride)
{
    bool is_f32 = a->keys != ALL_KEYS || a->dtype == F32;
    bool pairs = !(stride % 2) && !(a->K % 2) && !((uintptr_t)base % (is_f32 ? 8 : 4));
    return {base, is_f32, pairs};
}

/* Stores x, or with count 2 x and y. */
static __device__ __forceinline__ void store_pair(const struct attention_output &to, int64_t at,
                                                  float x, float y, int count)
{
    float *f32 = (float *)to.base + at;
    bf16 *half = (bf16 *)to.base + at;
    if (count == 2 && to.pairs) {
        if (to.is_f32)
            *(float2 *)f32 = {x, y};
        else
            *(uint32_t *)half = pack_bf16x2(x, y);
        return;
    }
    for (int i = 0; i < count; i++)
        if (to.is_f32)
            f32[i] = i ? y : x;
        else
            from_f32(i ? y : x, half + i);
}

/* Stores row r of a warp's accumulators times `factor` from column k on, plus `keep` times the old
 * contents (f32 only), which are not read if keep is 0. */
template <int N>
static __device__ __forceinline__ void store_row(const struct attention_output &to, int64_t row,
                                                 int k, int K, const struct tile_acc (&acc)[N],
                                                 int r, float factor, float keep)
{
    UNROLL
    for (int n = 0; n < N; n++) {
        UNROLL
        for (int c = 0; c < ACC_COLUMNS; c += 2) {
            int column = k + n * TILE + tile_column(c);
            float x = acc[n].x[r][c] * factor, y = acc[n].x[r][c + 1] * factor;
            if (column >= K) continue;
            const float *old = (const float *)to.base + row + column;
            if (keep != 0) x += keep * old[0];
            if (keep != 0 && column + 1 < K) y += keep * old[1];
            store_pair(to, row + column, x, y, min(K - column, 2));
        }
    }
}

/* bf16 kernels with warps of 64 are compiled for aligned rows alone, too: beside the path for
 * others their loops need more registers. */
template <typename T>
constexpr bool KNOWS_ALIGNED_ROWS = TILE_WARP == 64 && sizeof(T) == sizeof(bf16);

/* Launches kernel<T, KP, whether all rows are known to be aligned>. */
#define FLASH_LAUNCH(kernel, T, KP, grid, block, shared_bytes, queue, p)                           \
    do {                                                                                           \
        constexpr bool KNOWN = KNOWS_ALIGNED_ROWS<T>;                                              \
        if (KNOWN && (p).aligned)                                                                  \
            LAUNCH((kernel<T, KP, KNOWN>), grid, block, shared_bytes, queue, p);                   \
        else                                                                                       \
            LAUNCH((kernel<T, KP, false>), grid, block, shared_bytes, queue, p);                   \
    } while (0)

/* Calls run<T, KP>(a, io, queue) for the dtype and the padded head size. */
#define FLASH_DISPATCH(run, a, io, queue)                                                          \
    do {                                                                                           \
        if ((a)->K > FLASH_ATTENTION_MAX_K)                                                        \
            FAIL(UNSUPPORTED, "attention: heads of %d on a GPU; expected at most %d", (a)->K,      \
                 (int)FLASH_ATTENTION_MAX_K);                                                      \
        int size = (a)->K <= 64 ? 0 : (a)->K <= 128 ? 1 : 2;                                       \
        decltype(&run<float, 64>) const table[][3] = {                                             \
            {run<float, 64>, run<float, 128>, run<float, 256>},                                    \
            {run<bf16, 64>, run<bf16, 128>, run<bf16, 256>},                                       \
        };                                                                                         \
        TRY(table[(a)->dtype][size](a, io, queue));                                                \
        return STATUS_OK;                                                                          \
    } while (0)
