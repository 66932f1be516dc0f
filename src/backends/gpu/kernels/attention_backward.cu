/* Flash attention, backward, with the scores computed anew: one kernel has a tile of queries and
 * meets the keys, for dq; the other has a tile of keys and meets the queries of all heads that
 * share it, for dk and dv.  So nothing is added to by two blocks, and every sum has its order.
 *
 * With p = exp(score - lse): dv += p dout; ds = p (dout.v - dout.out); dq += ds k, dk += ds q. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/attention_common.h"

extern "C" {
#include "backends/gpu/flash_attention.h"
}

/* Rows of a block's own and of those it meets at a time.  SHARES waves have the same own rows, and
 * each a share of the columns of dk and dv. */
template <typename T, int KP> struct backward_shape {
    enum : int {
        NARROW = sizeof(T) == sizeof(bf16),
        LARGE = KP > 128,
        SHARES = !NARROW                    ? KP / 64
                 : LARGE && TILE_WAVE == 32 ? 2
                                            : 1,
        GROUPS = !NARROW                    ? 4 / SHARES
                 : LARGE && TILE_WAVE == 64 ? 2
                                            : 4,
        ROWS = GROUPS * TILE,
        MEETS = LARGE && (TILE_WAVE == 64 || !NARROW) ? 16
                : NARROW && KP == 64                  ? 64
                                                      : 32,
        THREADS = GROUPS * TILE_WAVE,
        SHARED_THREADS = THREADS * SHARES,
        LENGTH = shared_row<T, KP>::LENGTH,
        LEFT = NARROW ? ROWS * LENGTH : 0,
        TILES = (2 * LEFT + 2 * MEETS * LENGTH) * sizeof(T),
        BYTES = TILES + 2 * MEETS * sizeof(float),
    };
};

struct backward_work {
    struct attention a;
    struct attention_bwd io;
    struct result dq, dk, dv;
    float *delta_BHT;     /* dout.out */
    struct sight *sights; /* of each block of queries that keys meet; NULL: they have no bounds */
    int tiles, meets;     /* own tiles; blocks that they meet */
    bool fast, dense, more;
};

/* ---- what both kernels want first ---- */

template <typename T>
static __global__ void __launch_bounds__(256) attention_delta(const struct backward_work w)
{
    const struct attention &a = w.a;
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / WAVE) + wave_index(), T_ = a.T, H = a.H;
    if (row >= a.B * H * T_) return; /* row: of out */
    const T *out = (const T *)w.io.out_BTHK + row * a.K;
    const T *dout = (const T *)w.io.dout_BTHK + row * a.K;
    float sum = 0;
    for (int k = lane_index(); k < a.K; k += WAVE) sum += to_f32(out[k]) * to_f32(dout[k]);
    sum = wave_sum(sum);
    int64_t h = row % H, t = row / H % T_, b = row / H / T_;
    if (lane_index() == 0) w.delta_BHT[(b * H + h) * T_ + t] = sum;
}

static __global__ void __launch_bounds__(256)
    attention_survey(const struct backward_work w, int queries, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / WAVE) + wave_index();
    if (i >= count) return;
    int b = (int)(i / w.meets), first = (int)(i % w.meets) * queries;
    struct bounds in = {w.io.start_BT, w.io.end_BT};
    struct sight s = look(&w.a, in, b, first, min(first + queries, w.a.T) - 1);
    if (lane_index() == 0) w.sights[i] = s;
}

/* ---- dq ---- */

/* ds in the place of scores, for rows of queries. */
template <int N>
static __device__ __forceinline__ void
query_shares(const struct backward_work &w, struct tile_sums (&s)[1][N],
             const struct tile_sums (&dp)[1][N], const float *lse2, const float *delta)
{
    float scale = w.a.scale * LOG2_E;
    UNROLL
    for (int i = 0; i < N * HELD_ROWS * HELD_COLUMNS; i++) {
        int n = i / HELD_COLUMNS / HELD_ROWS, r = i / HELD_COLUMNS % HELD_ROWS;
        float *x = &s[0][n].x[r][i % HELD_COLUMNS];
        *x = exp2_fast(fmaf(*x, scale, -lse2[r])) * (dp[0][n].x[r][i % HELD_COLUMNS] - delta[r]);
    }
}

template <int N>
static __device__ __forceinline__ void
query_mask(const struct backward_work &w, struct tile_sums (&s)[1][N], int b, int row, int key)
{
    struct bounds in = {w.io.start_BT, w.io.end_BT};
    UNROLL
    for (int r = 0; r < HELD_ROWS; r++) {
        struct keys_seen seen = keys_seen_by(&w.a, in, b, min(row + tile_row(r), w.a.T - 1));
        UNROLL
        for (int i = 0; i < N * HELD_COLUMNS; i++) {
            int k = key + i / HELD_COLUMNS * TILE + tile_column(i % HELD_COLUMNS);
            if (k < seen.begin || k >= seen.end) s[0][i / HELD_COLUMNS].x[r][i % HELD_COLUMNS] = 0;
        }
    }
}

template <typename T, int KP>
static __global__ void __launch_bounds__((backward_shape<T, KP>::THREADS))
    attention_dq(const struct backward_work w)
{
    using S = backward_shape<T, KP>;
    DYNAMIC_SHARED(T, queries);
    T *douts = queries + S::LEFT, *keys = douts + S::LEFT, *values = keys + S::MEETS * S::LENGTH;
    const struct attention &a = w.a;
    int block = (int)blockIdx.x, first = (w.tiles - 1 - block % w.tiles) * S::ROWS;
    int head = (block /= w.tiles) % a.H, b = block / a.H, group = head / (a.H / a.G);
    int rows_left = min(a.T - first, S::ROWS), own = wave_index() * TILE;
    int64_t token = (int64_t)b * a.T + first, dense = (int64_t)a.H * a.K;
    const struct rows<T> q = {
        (const T *)w.io.q_BTHK + token *(int64_t)a.q_stride + (int64_t)head *a.K,
            (int64_t)a.q_stride, rows_left, 1, a.K, w.fast
    };
    const struct rows<T> dout = {
        (const T *)w.io.dout_BTHK + token *dense + (int64_t)head *a.K, dense, rows_left,
            1, a.K, w.fast
    };
    int64_t to_keys = (int64_t)b * a.S * (int64_t)a.kv_stride + (int64_t)group * a.K;
    const struct rows<T> k = {
        (const T *)w.io.k_BSGK + to_keys, (int64_t)a.kv_stride, 0, 1, a.K, w.fast
    };
    struct rows<T> v = k;
    v.at = (const T *)w.io.v_BSGK + to_keys;

    struct bounds in = {w.io.start_BT, w.io.end_BT};
    int last = first + rows_left - 1;
    struct sight all = look(&a, in, b, first, last);
    struct sight mine = look(&a, in, b, min(first + own, last), min(first + own + TILE - 1, last));
    int i = all.some_begin / S::MEETS, end = (all.some_end + S::MEETS - 1) / S::MEETS;
    auto stage_block = [&](T *to, struct rows<T> from, int at) {
        from.at += (int64_t)at * S::MEETS * from.stride;
        from.count = a.S - at * S::MEETS;
        stage<T, KP, S::MEETS, S::THREADS>(to, from);
    };
    float lse2[HELD_ROWS], delta[HELD_ROWS];
    UNROLL
    for (int r = 0; r < HELD_ROWS; r++) {
        int row = own + tile_row(r);
        int64_t at = ((int64_t)b * a.H + head) * a.T + first + row;
        lse2[r] = row < rows_left ? w.io.lse_BHT[at] * LOG2_E : 0;
        delta[r] = row < rows_left ? w.delta_BHT[at] : 0;
    }
    struct tile_sums sums[1][KP / TILE];
    UNROLL
    for (int n = 0; n < KP / TILE; n++) sums[0][n] = tile_sums{};
    if (S::NARROW) stage<T, KP, S::ROWS, S::THREADS>(queries, q);
    if (S::NARROW) stage<T, KP, S::ROWS, S::THREADS>(douts, dout);
    if (i < end) stage_block(values, v, i), stage_block(keys, k, i);
    for (; i < end; i++) {
        int key = i * S::MEETS;
        bool seen = own < rows_left && some_see(mine, key, S::MEETS);
        struct tile_sums s[1][S::MEETS / TILE], dp[1][S::MEETS / TILE];
        copies_wait<1>();
        __syncthreads(); /* the values are here */
        if (seen) multiply_rows<T, KP>(dp, douts, dout, own, values);
        copies_wait<0>();
        __syncthreads(); /* the keys are here, and the values are done with */
        if (i + 1 < end) stage_block(values, v, i + 1);
        if (seen) {
            multiply_rows<T, KP>(s, queries, q, own, keys);
            query_shares(w, s, dp, lse2, delta);
            if (!all_see(mine, key, S::MEETS)) query_mask(w, s, b, first + own, key);
            multiply_sums<T, KP>(sums, s, keys);
        }
        __syncthreads(); /* the keys are done with */
        if (i + 1 < end) stage_block(keys, k, i + 1);
    }
    UNROLL
    for (int r = 0; r < HELD_ROWS; r++) {
        int row = own + tile_row(r);
        if (row >= rows_left) continue;
        int64_t at = (token + row) * (w.dense ? dense : (int64_t)a.q_stride) + (int64_t)head * a.K;
        result_row(w.dq, at, 0, a.K, sums[0], r, a.scale, w.more ? 1 : 0);
    }
}

/* ---- dk, dv ---- */

/* p and ds in the place of scores and of dout.v, for rows of keys. */
template <int N>
static __device__ __forceinline__ void
key_shares(const struct backward_work &w, struct tile_sums (&s)[1][N], struct tile_sums (&dp)[1][N],
           const float *lse2, const float *delta)
{
    float scale = w.a.scale * LOG2_E;
    UNROLL
    for (int n = 0; n < N; n++) {
        UNROLL
        for (int i = 0; i < HELD_ROWS * HELD_COLUMNS; i++) {
            int r = i % HELD_ROWS, c = i / HELD_ROWS, at = n * TILE + tile_column(c);
            float *x = &s[0][n].x[r][c], *d = &dp[0][n].x[r][c];
            *x = exp2_fast(fmaf(*x, scale, -lse2[at])), *d = *x * (*d - delta[at]);
        }
    }
}

template <int N>
static __device__ __forceinline__ void key_mask(const struct backward_work &w,
                                                struct tile_sums (&s)[1][N],
                                                struct tile_sums (&dp)[1][N], int b, int t, int key)
{
    struct bounds in = {w.io.start_BT, w.io.end_BT};
    UNROLL
    for (int n = 0; n < N; n++) {
        UNROLL
        for (int c = 0; c < HELD_COLUMNS; c++) {
            int of = min(t + n * TILE + tile_column(c), w.a.T - 1);
            struct keys_seen seen = keys_seen_by(&w.a, in, b, of);
            UNROLL
            for (int r = 0; r < HELD_ROWS; r++) {
                int k = key + tile_row(r);
                if (k < seen.begin || k >= seen.end) s[0][n].x[r][c] = dp[0][n].x[r][c] = 0;
            }
        }
    }
}

/* The first block of queries from i on, some of which see some of the keys; w.meets: none. */
static __device__ __forceinline__ int next_block(const struct backward_work &w, int b, int key,
                                                 int count, int i)
{
    if (!w.sights) return i;
    for (; i < w.meets; i += WAVE) {
        int at = i + lane_index(), found = w.meets;
        if (at < w.meets && some_see(w.sights[(int64_t)b * w.meets + at], key, count)) found = at;
        for (int step = WAVE / 2; step; step /= 2) found = min(found, shuffle_xor(found, step));
        if (found < w.meets) return found;
    }
    return w.meets;
}

template <typename T, int KP>
static __global__ void __launch_bounds__((backward_shape<T, KP>::SHARED_THREADS))
    attention_dkv(const struct backward_work w)
{
    using S = backward_shape<T, KP>;
    constexpr int COLUMNS = KP / TILE / S::SHARES, THREADS = S::SHARED_THREADS;
    DYNAMIC_SHARED(T, keys);
    T *values = keys + S::LEFT, *queries = values + S::LEFT;
    T *douts = queries + S::MEETS * S::LENGTH;
    float *lse2 = (float *)(douts + S::MEETS * S::LENGTH), *delta = lse2 + S::MEETS;
    const struct attention &a = w.a;
    int block = (int)blockIdx.x, first = block % w.tiles * S::ROWS;
    int group = (block /= w.tiles) % a.G, b = block / a.G, heads = a.H / a.G;
    int rows_left = min(a.S - first, S::ROWS), own = wave_index() / S::SHARES * TILE;
    int column = wave_index() % S::SHARES * COLUMNS * TILE;
    int64_t to_keys = ((int64_t)b * a.S + first) * (int64_t)a.kv_stride + (int64_t)group * a.K;
    const struct rows<T> k = {
        (const T *)w.io.k_BSGK + to_keys, (int64_t)a.kv_stride, rows_left, 1, a.K, w.fast
    };
    struct rows<T> v = k;
    v.at = (const T *)w.io.v_BSGK + to_keys;

    struct bounds in = {w.io.start_BT, w.io.end_BT};
    int i = !in.start_BT && a.causal ? max(first - (a.S - a.T), 0) / S::MEETS : 0, h = 0;
    i = next_block(w, b, first, S::ROWS, i);
    auto stage_block = [&](T *to, const void *from, int64_t stride, int at, int head) {
        int64_t t = (int64_t)at * S::MEETS, skip = ((int64_t)b * a.T + t) * stride;
        struct rows<T> of = {
            (const T *)from, stride, 0, 1, a.K, w.fast
        };
        if (at < w.meets) of.at += skip + (int64_t)(group * heads + head) * a.K;
        if (at < w.meets) of.count = (int)(a.T - t);
        stage<T, KP, S::MEETS, THREADS>(to, of);
    };
    auto stage_queries = [&](int at, int head) {
        stage_block(queries, w.io.q_BTHK, (int64_t)a.q_stride, at, head);
        int t = at * S::MEETS + (int)threadIdx.x;
        if ((int)threadIdx.x >= S::MEETS) return;
        int64_t from = ((int64_t)b * a.H + group * heads + head) * a.T + t;
        lse2[threadIdx.x] = t < a.T ? w.io.lse_BHT[from] * LOG2_E : 0;
        delta[threadIdx.x] = t < a.T ? w.delta_BHT[from] : 0;
    };
    struct tile_sums dk[1][COLUMNS], dv[1][COLUMNS];
    UNROLL
    for (int n = 0; n < COLUMNS; n++) dk[0][n] = dv[0][n] = tile_sums{};
    if (S::NARROW) stage<T, KP, S::ROWS, THREADS>(keys, k);
    if (S::NARROW) stage<T, KP, S::ROWS, THREADS>(values, v);
    if (i < w.meets) {
        stage_block(douts, w.io.dout_BTHK, (int64_t)a.H * a.K, i, h);
        stage_queries(i, h);
    }
    while (i < w.meets) {
        int t = i * S::MEETS;
        struct sight all = w.sights ? w.sights[(int64_t)b * w.meets + i]
                                    : look(&a, in, b, t, min(t + S::MEETS, a.T) - 1);
        bool seen = own < rows_left && some_see(all, first + own, TILE);
        struct tile_sums s[1][S::MEETS / TILE], dp[1][S::MEETS / TILE];
        copies_wait<0>();
        __syncthreads(); /* the queries and douts are here */
        if (seen) {
            multiply_rows<T, KP>(s, keys, k, own, queries);
            multiply_rows<T, KP>(dp, values, v, own, douts);
            key_shares(w, s, dp, lse2, delta);
            if (!all_see(all, first + own, TILE)) key_mask(w, s, dp, b, t, first + own);
            multiply_sums<T, KP>(dv, s, douts + column);
        }
        h = (h + 1) % heads, i = h ? i : next_block(w, b, first, S::ROWS, i + 1);
        __syncthreads(); /* the douts are done with */
        if (i < w.meets) stage_block(douts, w.io.dout_BTHK, (int64_t)a.H * a.K, i, h);
        if (seen) multiply_sums<T, KP>(dk, dp, queries + column);
        __syncthreads(); /* the queries are done with */
        if (i < w.meets) stage_queries(i, h);
    }
    UNROLL
    for (int r = 0; r < HELD_ROWS; r++) {
        int row = own + tile_row(r);
        if (row >= rows_left) continue;
        int64_t at = to_keys + row * (int64_t)a.kv_stride;
        result_row(w.dk, at, column, a.K, dk[0], r, a.scale, 0);
        result_row(w.dv, at, column, a.K, dv[0], r, 1, 0);
    }
}

/* ---- the host's part ---- */

static bool is_fast(const struct attention *a, const struct attention_bwd *io)
{
    return rows_are_aligned((size_t)a->K, a->dtype) && rows_are_aligned(a->q_stride, a->dtype) &&
           rows_are_aligned(a->kv_stride, a->dtype) && is_aligned(io->q_BTHK) &&
           is_aligned(io->k_BSGK) && is_aligned(io->v_BSGK) && is_aligned(io->dout_BTHK);
}

template <typename T, int KP>
static enum status backward_of(const struct attention *a, const struct attention_bwd *io,
                               struct queue *on)
{
    using S = backward_shape<T, KP>;
    static_assert((int)S::BYTES <= (int)SHARED_MOST, "so much memory no block has");
    size_t B = (size_t)a->B, H = (size_t)a->H, G = (size_t)a->G, mark = arena_mark(&on->scratch);
    size_t query_tiles = ceil_div((size_t)a->T, S::ROWS), meets = ceil_div((size_t)a->T, S::MEETS);
    size_t key_tiles = ceil_div((size_t)a->S, S::ROWS), rows = B * H * (size_t)a->T;
    size_t most = max(rows / (256 / TILE_WAVE) + 1, max(B * H * query_tiles, B * G * key_tiles));
    if (most > INT32_MAX)
        FAIL(UNSUPPORTED, "attention: %zu tiles are too many for one launch", most);
    struct backward_work w = {};
    w.a = *a, w.io = *io;
    w.dense = a->keys != ALL_KEYS, w.more = a->keys == MORE_KEYS, w.fast = is_fast(a, io);
    w.dq = result_of(a, io->dq_BTHK, w.dense ? 0 : a->q_stride);
    w.dk = result_of(a, io->dk_BSGK, a->kv_stride), w.dv = result_of(a, io->dv_BSGK, a->kv_stride);
    w.meets = (int)meets;
    w.delta_BHT = (float *)arena_take(&on->scratch, rows, sizeof *w.delta_BHT);
    /* A measuring queue has no bounds to show whether there will be some. */
    if (on->measuring || io->start_BT)
        w.sights = (struct sight *)arena_take(&on->scratch, B * meets, sizeof *w.sights);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    unsigned waves = 256 / TILE_WAVE;
    LAUNCH(attention_delta<T>, (unsigned)ceil_div(rows, waves), 256, 0, on, w);
    if (w.sights)
        LAUNCH(attention_survey, (unsigned)ceil_div(B * meets, waves), 256, 0, on, w, S::MEETS,
               (int64_t)(B * meets));
    w.tiles = (int)query_tiles;
    LAUNCH((attention_dq<T, KP>), (unsigned)(B * H * query_tiles), S::THREADS, S::TILES, on, w);
    w.tiles = (int)key_tiles;
    LAUNCH((attention_dkv<T, KP>), (unsigned)(B * G * key_tiles), S::SHARED_THREADS, S::BYTES, on,
           w);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(flash_backward)(const struct attention *a,
                                                const struct attention_bwd *io, struct queue *on)
{
    FLASH_OF(backward_of, a, io, on);
}
