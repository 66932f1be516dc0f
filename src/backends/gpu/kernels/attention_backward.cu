/* attention_backward.cu -- flash attention, backward, recomputing the scores: one kernel owns a
 * tile of queries and visits the keys, for dq; another owns a tile of keys and visits the queries
 * of all heads that share it, for dk and dv.
 *
 * With p = exp(score - lse): dv += p dout; ds = p (dout.v - delta), delta = dout.out; dq += ds k,
 * dk += ds q.
 * Order    No two blocks add to the same element, so no atomics, and every sum has a fixed order.
 * Sources  Dao et al. 2022 (FlashAttention) */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/attention_common.h"

extern "C" {
#include "backends/gpu/flash_attention.h"
}

/* Tile sizes: rows that a block owns, and rows that it visits at a time.  In the dk/dv kernel
 * COLUMN_SPLIT warps own the same keys and split the columns of dk and dv between them.  In bf16
 * they also split the visited queries: each computes p and ds of its part, and all exchange them
 * through shared memory.  In f32 each computes all of p and ds.  With warps of 32, bf16 heads of up
 * to 128 elements get at most 168 registers per thread (docs/gpu-kernels.md). */
template <typename T, int KP> struct backward_tiles {
    enum : int {
        IS_BF16 = sizeof(T) == sizeof(bf16),
        LARGE = KP > 128,
        SMALL_32 = IS_BF16 && !LARGE && TILE_WARP == 32,
        STRIDE = shared_row<T, KP>::STRIDE,
        STAGED = IS_BF16 && TILE_WARP == 32, /* rows that the block owns */
        HELD = IS_BF16 && TILE_WARP == 64,   /* a warp keeps its rows in registers */

        DQ_WARPS = !IS_BF16 ? 4 / (KP / 64) : 4,
        DQ_BLOCKS = SMALL_32 || (HELD && KP == 64) ? 3 : (HELD ? 2 : 1), /* per multiprocessor */
        DQ_THREADS = DQ_WARPS * TILE_WARP,
        DQ_ROWS = DQ_WARPS * TILE,
        DQ_VISITED = LARGE && (TILE_WARP == 64 || !IS_BF16) ? 16 : (SMALL_32 && KP == 64 ? 64 : 32),
        DQ_OWN_ELEMENTS = STAGED ? DQ_ROWS * STRIDE : 0,
        DQ_BYTES = (2 * DQ_OWN_ELEMENTS + 2 * DQ_VISITED * STRIDE) * sizeof(T),

        WIDE = SMALL_32 && KP == 128,
        COLUMN_SPLIT = !IS_BF16 ? KP / 64 : (TILE_WARP == 64 || KP == 64 ? 1 : 2),
        QUERY_SPLIT = IS_BF16 ? COLUMN_SPLIT : 1,
        ROW_WARPS = WIDE || (IS_BF16 && LARGE && TILE_WARP == 32) ? 3 : DQ_WARPS,
        ROWS = ROW_WARPS * TILE,
        VISITED = WIDE ? 64 : (SMALL_32 ? 32 : DQ_VISITED),
        BLOCKS = WIDE ? 2 : (HELD && LARGE ? 1 : DQ_BLOCKS),
        THREADS = ROW_WARPS * COLUMN_SPLIT * TILE_WARP,
        OWN_ELEMENTS = STAGED ? ROWS * STRIDE : 0,
        VISITED_ELEMENTS = VISITED * STRIDE,
        EXCHANGE_STRIDE = VISITED + 8, /* 8 consecutive rows hit different banks */
        EXCHANGE_ELEMENTS = QUERY_SPLIT > 1 ? ROWS *EXCHANGE_STRIDE : 0,
        BYTES = (2 * OWN_ELEMENTS + 2 * VISITED_ELEMENTS + 2 * EXCHANGE_ELEMENTS) * sizeof(T) +
                2 * VISITED * sizeof(float), /* and lse and delta */
    };
};

struct backward_params {
    struct attention a;
    struct attention_bwd io;
    struct attention_output dq, dk, dv;
    float *delta_BHT;
    struct tile_mask *masks; /* of each block of visited queries; NULL: no document mask */
    int own_tiles;           /* per row and head */
    int query_blocks;        /* visited blocks of queries per row */
    bool aligned;
    bool dense_dq, accumulate_dq; /* dq [B, T, H, K] in f32; add to it (ring attention) */
};

/* --- preparation --- */

/* delta = rowsum(dout * out); one warp per query of a head. */
template <typename T>
static __global__ void __launch_bounds__(256) delta_kernel(const struct backward_params p)
{
    const struct attention &a = p.a;
    int64_t T_ = a.T, H = a.H, row = (int64_t)blockIdx.x * (blockDim.x / WARP_SIZE) + warp_index();
    if (row >= a.B * H * T_) return;
    const T *out = (const T *)p.io.out_BTHK + row * a.K;
    const T *dout = (const T *)p.io.dout_BTHK + row * a.K;
    float sum = 0;
    for (int k = lane_index(); k < a.K; k += WARP_SIZE) sum += to_f32(out[k]) * to_f32(dout[k]);
    sum = warp_sum(sum);
    int64_t h = row % H, t = row / H % T_, b = row / H / T_;
    if (lane_index() == 0) p.delta_BHT[(b * H + h) * T_ + t] = sum;
}

/* One warp per block of queries. */
static __global__ void __launch_bounds__(256)
    tile_masks_kernel(const struct backward_params p, int queries, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / WARP_SIZE) + warp_index();
    if (i >= count) return;
    int b = (int)(i / p.query_blocks), first = (int)(i % p.query_blocks) * queries;
    struct document_bounds bounds = {p.io.start_BT, p.io.end_BT};
    int last = min(first + queries, p.a.T) - 1;
    struct tile_mask m = make_tile_mask(&p.a, bounds, b, first, last);
    if (lane_index() == 0) p.masks[i] = m;
}

/* --- dq --- */

/* Replaces scores by ds; rows are queries. */
template <int N>
static __device__ __forceinline__ void
scores_to_ds(const struct backward_params &p, struct tile_acc (&s)[1][N],
             const struct tile_acc (&dp)[1][N], const float *lse2, const float *delta)
{
    float scale = p.a.scale * LOG2_E;
    UNROLL
    for (int i = 0; i < N * ACC_ROWS * ACC_COLUMNS; i++) {
        int n = i / ACC_COLUMNS / ACC_ROWS, r = i / ACC_COLUMNS % ACC_ROWS;
        float *x = &s[0][n].x[r][i % ACC_COLUMNS];
        *x = exp2_fast(fmaf(*x, scale, -lse2[r])) * (dp[0][n].x[r][i % ACC_COLUMNS] - delta[r]);
    }
}

/* Zeros ds of masked keys. */
template <int N>
static __device__ __forceinline__ void mask_ds(const struct backward_params &p,
                                               struct tile_acc (&s)[1][N], int b, int row, int key)
{
    struct document_bounds bounds = {p.io.start_BT, p.io.end_BT};
    UNROLL
    for (int r = 0; r < ACC_ROWS; r++) {
        int t = min(row + tile_row(r), p.a.T - 1);
        struct visible_keys keys = visible_keys_of(&p.a, bounds, b, t);
        UNROLL
        for (int i = 0; i < N * ACC_COLUMNS; i++) {
            int k = key + i / ACC_COLUMNS * TILE + tile_column(i % ACC_COLUMNS);
            if (k < keys.begin || k >= keys.end) s[0][i / ACC_COLUMNS].x[r][i % ACC_COLUMNS] = 0;
        }
    }
}

template <typename T, int KP, bool ALIGNED>
static __global__ void KERNEL_BOUNDS((backward_tiles<T, KP>::DQ_THREADS),
                                     (backward_tiles<T, KP>::DQ_BLOCKS))
    flash_dq_kernel(const struct backward_params p)
{
    using S = backward_tiles<T, KP>;
    DYNAMIC_SHARED(T, queries);
    T *douts = queries + S::DQ_OWN_ELEMENTS, *keys = douts + S::DQ_OWN_ELEMENTS;
    T *values = keys + S::DQ_VISITED * S::STRIDE;
    const struct attention &a = p.a;
    int block = (int)blockIdx.x, first = (p.own_tiles - 1 - block % p.own_tiles) * S::DQ_ROWS;
    int head = (block /= p.own_tiles) % a.H, b = block / a.H, group = head / (a.H / a.G);
    int rows_left = min(a.T - first, S::DQ_ROWS), own = warp_index() * TILE;
    int64_t token = (int64_t)b * a.T + first, dense = (int64_t)a.H * a.K;
    int64_t q_stride = (int64_t)a.q_stride, kv_stride = (int64_t)a.kv_stride;
    int64_t to_head = (int64_t)head * a.K, to_group = (int64_t)group * a.K;
    struct token_rows<T> q = {
        (const T *)p.io.q_BTHK, q_stride, rows_left, 1, a.K, ALIGNED || p.aligned
    };
    struct token_rows<T> dout = {
        (const T *)p.io.dout_BTHK, dense, rows_left, 1, a.K, ALIGNED || p.aligned
    };
    struct token_rows<T> k = {(const T *)p.io.k_BSGK, kv_stride, 0, 1, a.K, ALIGNED || p.aligned},
                         v = k;
    q.base += token * q_stride + to_head, dout.base += token * dense + to_head;
    v.base = (const T *)p.io.v_BSGK;
    k.base += (int64_t)b * a.S * kv_stride + to_group;
    v.base += (int64_t)b * a.S * kv_stride + to_group;

    struct document_bounds bounds = {p.io.start_BT, p.io.end_BT};
    int last = first + rows_left - 1;
    struct tile_mask block_mask = make_tile_mask(&a, bounds, b, first, last);
    struct tile_mask warp_mask =
        make_tile_mask(&a, bounds, b, min(first + own, last), min(first + own + TILE - 1, last));
    int i = block_mask.any_begin / S::DQ_VISITED;
    int end = (block_mask.any_end + S::DQ_VISITED - 1) / S::DQ_VISITED;
    auto stage_block = [&](T *to, struct token_rows<T> rows, int index) {
        rows.base += (int64_t)index * S::DQ_VISITED * rows.stride;
        rows.count = a.S - index * S::DQ_VISITED;
        stage_rows<T, KP, S::DQ_VISITED, S::DQ_THREADS>(to, rows);
    };
    float lse2[ACC_ROWS], delta[ACC_ROWS]; /* lse2: in units of log2 */
    UNROLL
    for (int r = 0; r < ACC_ROWS; r++) {
        int row = own + tile_row(r);
        int64_t at = ((int64_t)b * a.H + head) * a.T + first + row;
        lse2[r] = row < rows_left ? p.io.lse_BHT[at] * LOG2_E : 0;
        delta[r] = row < rows_left ? p.delta_BHT[at] : 0;
    }
    struct tile_a<T> held[2][S::HELD ? KP / TILE : 1];
    UNROLL
    for (int c = 0; S::HELD && c < KP; c += TILE) {
        load_a<KP>(&held[0][c / TILE], queries, q, own, c);
        load_a<KP>(&held[1][c / TILE], douts, dout, own, c);
    }
    auto load_query = [&](struct tile_a<T> *x, int, int c) {
        *x = own_a<KP, S::HELD>(held[0], queries, q, own, c);
    };
    auto load_dout = [&](struct tile_a<T> *x, int, int c) {
        *x = own_a<KP, S::HELD>(held[1], douts, dout, own, c);
    };
    struct tile_acc dq[1][KP / TILE];
    UNROLL
    for (int n = 0; n < KP / TILE; n++) dq[0][n] = tile_acc{};
    if (S::STAGED) stage_rows<T, KP, S::DQ_ROWS, S::DQ_THREADS>(queries, q);
    if (S::STAGED) stage_rows<T, KP, S::DQ_ROWS, S::DQ_THREADS>(douts, dout);
    if (i < end) stage_block(values, v, i), stage_block(keys, k, i);
    for (; i < end; i++) {
        int key = i * S::DQ_VISITED;
        bool active = own < rows_left && any_visible(warp_mask, key, S::DQ_VISITED);
        struct tile_acc s[1][S::DQ_VISITED / TILE], dp[1][S::DQ_VISITED / TILE];
        cp_async_wait<1>();
        __syncthreads(); /* the values have arrived */
        if (active) multiply_abt<T, KP>(dp, load_dout, values);
        cp_async_wait<0>();
        __syncthreads(); /* the keys have arrived, and the values are free */
        if (i + 1 < end) stage_block(values, v, i + 1);
        if (active) {
            multiply_abt<T, KP>(s, load_query, keys);
            scores_to_ds(p, s, dp, lse2, delta);
            if (!all_visible(warp_mask, key, S::DQ_VISITED)) mask_ds(p, s, b, first + own, key);
            multiply_ab<T, KP>(dq, s, keys);
        }
        __syncthreads(); /* the keys are free */
        if (i + 1 < end) stage_block(keys, k, i + 1);
    }
    cp_async_wait<0>(); /* of a block without keys */
    UNROLL
    for (int r = 0; r < ACC_ROWS; r++) {
        int row = own + tile_row(r);
        if (row >= rows_left) continue;
        int64_t at = (token + row) * (p.dense_dq ? dense : q_stride) + to_head;
        store_row(p.dq, at, 0, a.K, dq[0], r, a.scale, p.accumulate_dq ? 1 : 0);
    }
}

/* --- dk and dv --- */

/* Replaces scores by p, and dout.v by ds; rows are keys. */
template <int N>
static __device__ __forceinline__ void
scores_to_p_and_ds(const struct backward_params &params, struct tile_acc (&s)[1][N],
                   struct tile_acc (&dp)[1][N], const float *lse2, const float *delta)
{
    float scale = params.a.scale * LOG2_E;
    UNROLL
    for (int n = 0; n < N; n++) {
        UNROLL
        for (int i = 0; i < ACC_ROWS * ACC_COLUMNS; i++) {
            int r = i % ACC_ROWS, c = i / ACC_ROWS, at = n * TILE + tile_column(c);
            float *x = &s[0][n].x[r][c], *d = &dp[0][n].x[r][c];
            *x = exp2_fast(fmaf(*x, scale, -lse2[at])), *d = *x * (*d - delta[at]);
        }
    }
}

/* Zeros p and ds of keys that a query does not see. */
template <int N>
static __device__ __forceinline__ void
mask_p_and_ds(const struct backward_params &params, struct tile_acc (&s)[1][N],
              struct tile_acc (&dp)[1][N], int b, int t, int key)
{
    struct document_bounds bounds = {params.io.start_BT, params.io.end_BT};
    UNROLL
    for (int n = 0; n < N; n++) {
        UNROLL
        for (int c = 0; c < ACC_COLUMNS; c++) {
            int query = min(t + n * TILE + tile_column(c), params.a.T - 1);
            struct visible_keys keys = visible_keys_of(&params.a, bounds, b, query);
            UNROLL
            for (int r = 0; r < ACC_ROWS; r++) {
                int k = key + tile_row(r);
                if (k < keys.begin || k >= keys.end) s[0][n].x[r][c] = dp[0][n].x[r][c] = 0;
            }
        }
    }
}

/* Stores accumulators, rounded to bf16, in shared memory. */
template <int STRIDE, int N>
static __device__ __forceinline__ void store_tiles(bf16 *to, const struct tile_acc (&s)[1][N])
{
    UNROLL
    for (int i = 0; i < N * ACC_ROWS; i++) {
        int n = i / ACC_ROWS, r = i % ACC_ROWS;
        bf16 *row = to + tile_row(r) * STRIDE + n * TILE;
        UNROLL
        for (int c = 0; c < ACC_COLUMNS; c += 2)
            *(uint32_t *)(row + tile_column(c)) = pack_bf16x2(s[0][n].x[r][c], s[0][n].x[r][c + 1]);
    }
}

/* Tile `step` of p or ds: of all queries, if the warps have exchanged it, else of this warp's
 * accumulators. */
template <typename S, typename T, int N>
static __device__ __forceinline__ void load_exchanged(struct tile_a<T> *x, const T *exchanged,
                                                      const struct tile_acc (&s)[1][N], int step)
{
    if constexpr (S::QUERY_SPLIT > 1)
        tile_load(x, exchanged + step * TILE, S::EXCHANGE_STRIDE);
    else
        tile_from_acc(x, &s[0][step]);
}

/* The next block of queries, from i on, that sees any of `count` keys from `key` on;
 * p.query_blocks: none. */
static __device__ __forceinline__ int next_query_block(const struct backward_params &p, int b,
                                                       int key, int count, int i)
{
    if (!p.masks) return i;
    for (; i < p.query_blocks; i += WARP_SIZE) {
        int at = i + lane_index(), found = p.query_blocks;
        int64_t index = (int64_t)b * p.query_blocks + at;
        if (at < p.query_blocks && any_visible(p.masks[index], key, count)) found = at;
        for (int step = WARP_SIZE / 2; step; step /= 2)
            found = min(found, shuffle_xor(found, step));
        if (found < p.query_blocks) return found;
    }
    return p.query_blocks;
}

template <typename T, int KP, bool ALIGNED>
static __global__ void KERNEL_BOUNDS((backward_tiles<T, KP>::THREADS),
                                     (backward_tiles<T, KP>::BLOCKS))
    flash_dkv_kernel(const struct backward_params p)
{
    using S = backward_tiles<T, KP>;
    constexpr int COLUMNS = KP / TILE / S::COLUMN_SPLIT, STEPS = S::VISITED / TILE;
    constexpr int QUERIES = S::VISITED / S::QUERY_SPLIT;
    DYNAMIC_SHARED(T, keys);
    T *values = keys + S::OWN_ELEMENTS, *queries = values + S::OWN_ELEMENTS;
    T *douts = queries + S::VISITED_ELEMENTS;
    T *all_p = douts + S::VISITED_ELEMENTS, *all_ds = all_p + S::EXCHANGE_ELEMENTS;
    float *lse2 = (float *)(all_ds + S::EXCHANGE_ELEMENTS), *delta = lse2 + S::VISITED;
    const struct attention &a = p.a;
    int block = (int)blockIdx.x, first = block % p.own_tiles * S::ROWS;
    int group = (block /= p.own_tiles) % a.G, b = block / a.G, heads = a.H / a.G;
    int rows_left = min(a.S - first, S::ROWS), part = warp_index() % S::COLUMN_SPLIT;
    int own = warp_index() / S::COLUMN_SPLIT * TILE, column = part * COLUMNS * TILE;
    int own_query = S::QUERY_SPLIT > 1 ? part * QUERIES : 0;
    int64_t kv_stride = (int64_t)a.kv_stride, dense = (int64_t)a.H * a.K;
    int64_t to_keys = ((int64_t)b * a.S + first) * kv_stride + (int64_t)group * a.K;
    struct token_rows<T> k = {
        (const T *)p.io.k_BSGK, kv_stride, rows_left, 1, a.K, ALIGNED || p.aligned
    };
    struct token_rows<T> v = k;
    v.base = (const T *)p.io.v_BSGK;
    k.base += to_keys, v.base += to_keys;

    int i = !p.io.start_BT && a.causal ? max(first - (a.S - a.T), 0) / S::VISITED : 0, h = 0;
    i = next_query_block(p, b, first, S::ROWS, i);
    auto stage_block = [&](T *to, const void *from, int64_t stride, int index, int head) {
        int64_t t = (int64_t)index * S::VISITED, skip = ((int64_t)b * a.T + t) * stride;
        struct token_rows<T> rows = {
            (const T *)from, stride, 0, 1, a.K, ALIGNED || p.aligned
        };
        if (index < p.query_blocks) rows.base += skip + (int64_t)(group * heads + head) * a.K;
        if (index < p.query_blocks) rows.count = (int)(a.T - t);
        stage_rows<T, KP, S::VISITED, S::THREADS>(to, rows);
    };
    auto stage_queries = [&](int index, int head) {
        stage_block(queries, p.io.q_BTHK, (int64_t)a.q_stride, index, head);
        int t = index * S::VISITED + (int)threadIdx.x;
        if ((int)threadIdx.x >= S::VISITED) return;
        int64_t from = ((int64_t)b * a.H + group * heads + head) * a.T + t;
        lse2[threadIdx.x] = t < a.T ? p.io.lse_BHT[from] * LOG2_E : 0;
        delta[threadIdx.x] = t < a.T ? p.delta_BHT[from] : 0;
    };
    struct tile_a<T> held[2][S::HELD ? KP / TILE : 1];
    UNROLL
    for (int c = 0; S::HELD && c < KP; c += TILE) {
        load_a<KP>(&held[0][c / TILE], keys, k, own, c);
        load_a<KP>(&held[1][c / TILE], values, v, own, c);
    }
    auto load_key = [&](struct tile_a<T> *x, int, int c) {
        *x = own_a<KP, S::HELD>(held[0], keys, k, own, c);
    };
    auto load_value = [&](struct tile_a<T> *x, int, int c) {
        *x = own_a<KP, S::HELD>(held[1], values, v, own, c);
    };
    struct tile_acc dk[1][COLUMNS], dv[1][COLUMNS];
    UNROLL
    for (int n = 0; n < COLUMNS; n++) dk[0][n] = dv[0][n] = tile_acc{};
    if (S::STAGED) stage_rows<T, KP, S::ROWS, S::THREADS>(keys, k);
    if (S::STAGED) stage_rows<T, KP, S::ROWS, S::THREADS>(values, v);
    if (i < p.query_blocks) {
        stage_block(douts, p.io.dout_BTHK, dense, i, h);
        stage_queries(i, h);
    }
    while (i < p.query_blocks) {
        int t = i * S::VISITED, last = min(t + S::VISITED, a.T) - 1;
        struct tile_mask mask = p.masks ? p.masks[(int64_t)b * p.query_blocks + i]
                                        : make_tile_mask(&a, {NULL, NULL}, b, t, last);
        bool active = own < rows_left && any_visible(mask, first + own, TILE);
        struct tile_acc s[1][QUERIES / TILE], dp[1][QUERIES / TILE];
        cp_async_wait<0>();
        __syncthreads(); /* the queries and douts have arrived */
        if (active) {
            multiply_abt<T, KP>(s, load_key, queries + own_query * S::STRIDE);
            multiply_abt<T, KP>(dp, load_value, douts + own_query * S::STRIDE);
            scores_to_p_and_ds(p, s, dp, lse2 + own_query, delta + own_query);
            if (!all_visible(mask, first + own, TILE))
                mask_p_and_ds(p, s, dp, b, t + own_query, first + own);
        }
        static_assert(TILE_WARP == 32 || S::QUERY_SPLIT == 1, "store_tiles exchanges no halves");
        if constexpr (S::QUERY_SPLIT > 1) {
            constexpr int STRIDE = S::EXCHANGE_STRIDE;
            if (active) store_tiles<STRIDE>(all_p + own * STRIDE + own_query, s);
            if (active) store_tiles<STRIDE>(all_ds + own * STRIDE + own_query, dp);
            __syncthreads(); /* p and ds of all queries have been stored */
        }
        auto load_p = [&](struct tile_a<T> *x, int, int step) {
            load_exchanged<S>(x, all_p + own * S::EXCHANGE_STRIDE, s, step);
        };
        auto load_ds = [&](struct tile_a<T> *x, int, int step) {
            load_exchanged<S>(x, all_ds + own * S::EXCHANGE_STRIDE, dp, step);
        };
        if (active) multiply_ab<T, KP, STEPS>(dv, load_p, douts + column);
        /* All heads of the group, then the next block of queries. */
        h = (h + 1) % heads, i = h ? i : next_query_block(p, b, first, S::ROWS, i + 1);
        __syncthreads(); /* the douts are free */
        if (i < p.query_blocks) stage_block(douts, p.io.dout_BTHK, dense, i, h);
        if (active) multiply_ab<T, KP, STEPS>(dk, load_ds, queries + column);
        __syncthreads(); /* the queries are free */
        if (i < p.query_blocks) stage_queries(i, h);
    }
    cp_async_wait<0>(); /* of a block that no query sees */
    UNROLL
    for (int r = 0; r < ACC_ROWS; r++) {
        int row = own + tile_row(r);
        if (row >= rows_left) continue;
        int64_t at = to_keys + row * kv_stride;
        store_row(p.dk, at, column, a.K, dk[0], r, a.scale, 0);
        store_row(p.dv, at, column, a.K, dv[0], r, 1, 0);
    }
}

/* --- on the host --- */

static bool are_rows_aligned(const struct attention *a, const struct attention_bwd *io)
{
    return rows_are_aligned((size_t)a->K, a->dtype) && rows_are_aligned(a->q_stride, a->dtype) &&
           rows_are_aligned(a->kv_stride, a->dtype) && is_aligned(io->q_BTHK) &&
           is_aligned(io->k_BSGK) && is_aligned(io->v_BSGK) && is_aligned(io->dout_BTHK);
}

template <typename T, int KP>
static enum status launch_backward(const struct attention *a, const struct attention_bwd *io,
                                   struct queue *queue)
{
    using S = backward_tiles<T, KP>;
    static_assert((int)S::BYTES <= (int)MAX_SHARED_BYTES, "shared memory of a block");
    static_assert((int)S::DQ_BYTES <= (int)MAX_SHARED_BYTES, "shared memory of a block");
    size_t B = (size_t)a->B, H = (size_t)a->H, G = (size_t)a->G, rows = B * H * (size_t)a->T;
    size_t query_tiles = ceil_div((size_t)a->T, S::DQ_ROWS);
    size_t key_tiles = ceil_div((size_t)a->S, S::ROWS);
    size_t query_blocks = ceil_div((size_t)a->T, S::VISITED), mark = arena_mark(&queue->scratch);
    size_t warps = 256 / TILE_WARP; /* per block of the preparing kernels */
    size_t max_grid = max(rows / warps + 1, max(B * H * query_tiles, B * G * key_tiles));
    if (max_grid > INT32_MAX)
        FAIL(UNSUPPORTED, "attention: %zu tiles exceed the maximum grid size", max_grid);
    struct backward_params p = {};
    p.a = *a, p.io = *io, p.aligned = are_rows_aligned(a, io);
    p.dense_dq = a->keys != ALL_KEYS, p.accumulate_dq = a->keys == MORE_KEYS;
    p.dq = make_output(a, io->dq_BTHK, p.dense_dq ? 0 : a->q_stride);
    p.dk = make_output(a, io->dk_BSGK, a->kv_stride);
    p.dv = make_output(a, io->dv_BSGK, a->kv_stride);
    p.query_blocks = (int)query_blocks;
    p.delta_BHT = (float *)arena_alloc(&queue->scratch, rows, sizeof *p.delta_BHT);
    /* A sizing pass cannot know whether there will be a document mask. */
    if (queue->sizing || io->start_BT || a->window)
        p.masks =
            (struct tile_mask *)arena_alloc(&queue->scratch, B * query_blocks, sizeof *p.masks);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    LAUNCH(delta_kernel<T>, (unsigned)ceil_div(rows, warps), 256, 0, queue, p);
    if (p.masks)
        LAUNCH(tile_masks_kernel, (unsigned)ceil_div(B * query_blocks, warps), 256, 0, queue, p,
               S::VISITED, (int64_t)(B * query_blocks));
    p.own_tiles = (int)query_tiles;
    FLASH_LAUNCH(flash_dq_kernel, T, KP, (unsigned)(B * H * query_tiles), S::DQ_THREADS,
                 S::DQ_BYTES, queue, p);
    p.own_tiles = (int)key_tiles;
    FLASH_LAUNCH(flash_dkv_kernel, T, KP, (unsigned)(B * G * key_tiles), S::THREADS, S::BYTES,
                 queue, p);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(flash_attention_backward)(const struct attention *a,
                                                          const struct attention_bwd *io,
                                                          struct queue *queue)
{
    FLASH_DISPATCH(launch_backward, a, io, queue);
}
