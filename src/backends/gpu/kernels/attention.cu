/* Flash attention, forward: a block has a tile of queries of a head, and meets the keys block after
 * block, with the largest score and the sum of each query so far.
 *
 * Few queries  the heads that share a key head are rows of one tile, and several blocks share the
 *              keys, each with a result of its own, which are joined in order. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/attention_common.h"

extern "C" {
#include "backends/gpu/flash_attention.h"
}

/* Rows of queries and of keys that a block has at a time; shared memory is at most 64 KiB where a
 * wave is 64 lanes. */
template <typename T, int KP> struct forward_shape {
    enum : int {
        NARROW = sizeof(T) == sizeof(bf16),
        LARGE = KP > 128,
        PANELS = NARROW && !LARGE && TILE_WAVE == 32 ? 2 : 1,
        WAVES = TILE_WAVE == 32 || !NARROW ? 4
                : LARGE                    ? 2
                                           : 8,
        THREADS = WAVES * TILE_WAVE,
        OWN = PANELS * TILE, /* rows of a wave */
        ROWS = WAVES * OWN,
        KEYS = (NARROW || !LARGE) ? (NARROW && KP == 64 && TILE_WAVE == 32 ? 64 : 32) : 16,
        LENGTH = shared_row<T, KP>::LENGTH,
        LEFT = NARROW ? ROWS * LENGTH : 0,
        BYTES = (LEFT + 2 * KEYS * LENGTH) * sizeof(T),
    };
};

struct forward_work {
    struct attention a;
    struct attention_fwd io;
    struct result out;
    int per, heads, tiles;      /* heads of a tile, tiles' heads, tiles of a head */
    int splits, span;           /* blocks of keys that one of several takes */
    int64_t out_step, lse_step; /* between the results of several */
    float scale;                /* above 0, to units of log2 */
    int sign;                   /* of the scale */
    bool fast, more;
};

/* The rows of a wave so far. */
template <int PANELS, int COLUMNS> struct progress {
    struct tile_sums out[PANELS][COLUMNS];
    float top[PANELS][HELD_ROWS], sum[PANELS][HELD_ROWS];
};

/* Which query of which head a row of the tile is. */
struct place {
    int b, t, h;
};

static __device__ __forceinline__ struct place place_of(const struct forward_work &w, int b,
                                                        int head, int row)
{
    if (w.per == 1) return {b, row, head};
    return {b, row / w.per, head * w.per + row % w.per};
}

/* So that the largest score is the largest of products, whatever the scale. */
template <int PANELS, int N>
static __device__ __forceinline__ void turn(struct tile_sums (&s)[PANELS][N], int sign)
{
    UNROLL
    for (int i = 0; i < PANELS * N * HELD_ROWS * HELD_COLUMNS; i++) {
        float *x = &s[0][0].x[0][0] + i;
        *x = sign ? -*x : 0;
    }
}

/* What the mask forbids becomes -inf. */
template <int PANELS, int N>
static __device__ __forceinline__ void
mask(const struct forward_work &w, struct tile_sums (&s)[PANELS][N], int b, int row, int key)
{
    struct bounds in = {w.io.start_BT, w.io.end_BT};
    UNROLL
    for (int p = 0; p < PANELS; p++) {
        UNROLL
        for (int r = 0; r < HELD_ROWS; r++) {
            int t = place_of(w, b, 0, row + p * TILE + tile_row(r)).t;
            struct keys_seen seen = keys_seen_by(&w.a, in, b, min(t, w.a.T - 1));
            UNROLL
            for (int i = 0; i < N * HELD_COLUMNS; i++) {
                int k = key + i / HELD_COLUMNS * TILE + tile_column(i % HELD_COLUMNS);
                if (k < seen.begin || k >= seen.end)
                    s[p][i / HELD_COLUMNS].x[r][i % HELD_COLUMNS] = -INFINITY;
            }
        }
    }
}

/* Scores to shares of the sum, which grows, with all that came before brought to the new top. */
template <int PANELS, int N, int COLUMNS>
static __device__ __forceinline__ void soften(struct tile_sums (&s)[PANELS][N], float scale,
                                              struct progress<PANELS, COLUMNS> *so)
{
    UNROLL
    for (int p = 0; p < PANELS; p++) {
        UNROLL
        for (int r = 0; r < HELD_ROWS; r++) {
            float top = so->top[p][r], sum = 0;
            UNROLL
            for (int i = 0; i < N * HELD_COLUMNS; i++)
                top = fmaxf(top, s[p][i / HELD_COLUMNS].x[r][i % HELD_COLUMNS]);
            top = tile_row_max(top);
            float base = top == -INFINITY ? 0 : top * scale;
            float shrink = exp2_fast(fmaf(so->top[p][r], scale, -base));
            UNROLL
            for (int i = 0; i < N * HELD_COLUMNS; i++) {
                float *x = &s[p][i / HELD_COLUMNS].x[r][i % HELD_COLUMNS];
                sum += *x = exp2_fast(fmaf(*x, scale, -base));
            }
            UNROLL
            for (int i = 0; i < COLUMNS * HELD_COLUMNS; i++)
                so->out[p][i / HELD_COLUMNS].x[r][i % HELD_COLUMNS] *= shrink;
            so->sum[p][r] = so->sum[p][r] * shrink + sum, so->top[p][r] = top;
        }
    }
}

/* out = kept * before + new / sum */
template <int PANELS, int COLUMNS>
static __device__ __forceinline__ void finish(const struct forward_work &w,
                                              const struct progress<PANELS, COLUMNS> &so, int b,
                                              int head, int split, int first, int count)
{
    UNROLL
    for (int p = 0; p < PANELS; p++) {
        UNROLL
        for (int r = 0; r < HELD_ROWS; r++) {
            int row = p * TILE + tile_row(r);
            struct place at = place_of(w, b, head, first + min(row, count - 1));
            int64_t H = w.a.H, query = ((int64_t)b * H + at.h) * w.a.T + at.t;
            int64_t out = (((int64_t)b * w.a.T + at.t) * H + at.h) * w.a.K;
            float *place = w.io.lse_BHT + split * w.lse_step + query,
                  sum = tile_row_sum(so.sum[p][r]);
            float before = w.more ? *place : -INFINITY;
            wave_barrier(); /* all lanes of the row have read it */
            if (row >= count) continue;
            float here = sum == 0 ? -INFINITY : (so.top[p][r] * w.scale + log2f(sum)) * LN_2;
            float lse = before == -INFINITY ? here : before;
            float factor = sum == 0 ? 0 : 1 / sum, kept = 0;
            if (before != -INFINITY) {
                if (here != -INFINITY) {
                    float high = here > before ? here : before, low = here > before ? before : here;
                    lse = high + log1pf(expf(low - high));
                }
                kept = expf(before - lse), factor = sum == 0 ? 0 : expf(here - lse) / sum;
            }
            result_row(w.out, out + split * w.out_step, 0, w.a.K, so.out[p], r, factor, kept);
            if (tile_column(0) == 0) *place = lse;
        }
    }
}

/* Block i of a row's keys or values. */
template <typename T, int KP>
static __device__ __forceinline__ void stage_keys(const struct forward_work &w, T *to,
                                                  const T *from, int i)
{
    using S = forward_shape<T, KP>;
    int64_t first = (int64_t)i * S::KEYS, stride = (int64_t)w.a.kv_stride;
    struct rows<T> r = {
        from + first *stride, stride, w.a.S - (int)first, 1, w.a.K, w.fast
    };
    stage<T, KP, S::KEYS, S::THREADS>(to, r);
}

template <typename T, int KP>
static __global__ void __launch_bounds__((forward_shape<T, KP>::THREADS))
    attention_tile(const struct forward_work w)
{
    using S = forward_shape<T, KP>;
    DYNAMIC_SHARED(T, queries);
    T *keys = queries + S::LEFT, *values = keys + S::KEYS * S::LENGTH;
    const struct attention &a = w.a;
    int block = (int)blockIdx.x, first = (w.tiles - 1 - block % w.tiles) * S::ROWS;
    int head = (block /= w.tiles) % w.heads, split = (block /= w.heads) % w.splits;
    int b = block / w.splits, rows_left = min(a.T * w.per - first, S::ROWS);
    int group = head * w.per / (a.H / a.G), own = wave_index() * S::OWN;
    const struct rows<T> q = {
        (const T *)w.io.q_BTHK + ((int64_t)b * a.T + first) * a.q_stride + (int64_t)head *w.per *a.K
            ,
            (int64_t)a.q_stride, rows_left, w.per, a.K, w.fast
    };
    int64_t to_keys = (int64_t)b * a.S * a.kv_stride + (int64_t)group * a.K;
    const T *key_rows = (const T *)w.io.k_BSGK + to_keys;
    const T *value_rows = (const T *)w.io.v_BSGK + to_keys;

    struct bounds in = {w.io.start_BT, w.io.end_BT};
    int last = first + rows_left - 1; /* row */
    struct sight all = look(&a, in, b, first / w.per, last / w.per);
    struct sight mine = look(&a, in, b, min(first + own, last) / w.per,
                             min(first + own + S::OWN - 1, last) / w.per);
    int i = max(all.some_begin / S::KEYS, split * w.span);
    int end = min((all.some_end + S::KEYS - 1) / S::KEYS, (split + 1) * w.span);

    struct progress<S::PANELS, KP / TILE> so;
    UNROLL
    for (int p = 0; p < S::PANELS; p++) {
        UNROLL
        for (int r = 0; r < HELD_ROWS; r++) so.top[p][r] = -INFINITY, so.sum[p][r] = 0;
        UNROLL
        for (int n = 0; n < KP / TILE; n++) so.out[p][n] = tile_sums{};
    }
    if (S::NARROW) stage<T, KP, S::ROWS, S::THREADS>(queries, q);
    if (i < end) stage_keys<T, KP>(w, keys, key_rows, i);
    for (; i < end; i++) {
        int key = i * S::KEYS;
        bool seen = own < rows_left && some_see(mine, key, S::KEYS);
        struct tile_sums s[S::PANELS][S::KEYS / TILE];
        copies_wait<0>();
        __syncthreads(); /* the keys are here, and the values are done with */
        stage_keys<T, KP>(w, values, value_rows, i);
        if (seen) multiply_rows<T, KP>(s, queries, q, own, keys);
        copies_wait<0>();
        __syncthreads(); /* the values are here, and the keys are done with */
        if (i + 1 < end) stage_keys<T, KP>(w, keys, key_rows, i + 1);
        if (!seen) continue;
        if (w.sign <= 0) turn(s, w.sign);
        if (!all_see(mine, key, S::KEYS)) mask(w, s, b, first + own, key);
        soften(s, w.scale, &so);
        multiply_sums<T, KP>(so.out, s, values);
    }
    if (own < rows_left) finish(w, so, b, head, split, first + own, rows_left - own);
}

/* One wave for each query of a head: the results of several blocks become one. */
static __global__ void __launch_bounds__(256)
    attention_join(const struct forward_work w, const float *outs, const float *lses)
{
    const struct attention &a = w.a;
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / WAVE) + wave_index(), T = a.T, H = a.H;
    if (row >= a.B * H * T) return;
    int64_t t = row % T, h = row / T % H, b = row / T / H, at = ((b * T + t) * H + h) * a.K;
    float before = w.more ? w.io.lse_BHT[row] : -INFINITY, top = before, sum = 0;
    for (int i = 0; i < w.splits; i++) top = fmaxf(top, lses[i * w.lse_step + row]);
    if (top == -INFINITY) top = 0;
    sum = expf(before - top);
    for (int i = 0; i < w.splits; i++) sum += expf(lses[i * w.lse_step + row] - top);
    float lse = top + logf(sum), kept = before == -INFINITY ? 0 : expf(before - lse);
    wave_barrier(); /* the lanes have read `before` */
    for (int k = lane_index(); k < a.K; k += WAVE) {
        float x = kept != 0 ? kept * ((const float *)w.out.at)[at + k] : 0;
        for (int i = 0; i < w.splits; i++) {
            float of = lses[i * w.lse_step + row];
            if (of != -INFINITY) x += expf(of - lse) * outs[i * w.out_step + at + k];
        }
        result_put(w.out, at + k, x, 0, 1);
    }
    if (lane_index() == 0) w.io.lse_BHT[row] = lse;
}

/* Blocks that keep a device busy; of any device, so that bits do not depend on it. */
enum { BLOCKS_ENOUGH = 264, SPAN_LEAST = 4 };

template <typename T, int KP>
static enum status forward_of(const struct attention *a, const struct attention_fwd *io,
                              struct queue *on)
{
    using S = forward_shape<T, KP>;
    static_assert((int)S::BYTES <= (int)SHARED_MOST, "so much memory no block has");
    struct forward_work w = {};
    w.a = *a, w.io = *io, w.out = result_of(a, io->out_BTHK, 0);
    w.sign = (a->scale > 0) - (a->scale < 0), w.scale = w.sign ? fabsf(a->scale) * LOG2_E : 1;
    int share = a->H / a->G, key_blocks = (int)ceil_div((size_t)a->S, S::KEYS);
    w.per = (size_t)a->T * (size_t)share <= S::ROWS ? share : 1, w.heads = a->H / w.per;
    w.tiles = (int)ceil_div((size_t)a->T * (size_t)w.per, S::ROWS);
    size_t blocks = (size_t)a->B * (size_t)w.heads * (size_t)w.tiles, splits = 1;
    if (blocks * 2 <= BLOCKS_ENOUGH)
        splits = min((size_t)BLOCKS_ENOUGH / blocks, ceil_div((size_t)key_blocks, SPAN_LEAST));
    w.span = (int)ceil_div((size_t)key_blocks, splits);
    w.splits = (int)ceil_div((size_t)key_blocks, (size_t)w.span);
    w.more = a->keys == MORE_KEYS;
    w.fast = (size_t)a->K * sizeof(T) % 16 == 0 && rows_are_aligned(a->q_stride, a->dtype) &&
             rows_are_aligned(a->kv_stride, a->dtype) && is_aligned(io->q_BTHK) &&
             is_aligned(io->k_BSGK) && is_aligned(io->v_BSGK);
    if (blocks > (size_t)INT32_MAX / BLOCKS_ENOUGH)
        FAIL(UNSUPPORTED, "attention: %zu tiles of queries are too many for one launch", blocks);
    unsigned grid = (unsigned)(blocks * (size_t)w.splits);
    if (w.splits == 1) {
        if (on->measuring) return STATUS_OK;
        LAUNCH((attention_tile<T, KP>), grid, S::THREADS, S::BYTES, on, w);
        return STATUS_OK;
    }
    struct forward_work part = w;
    size_t rows = (size_t)a->B * (size_t)a->H * (size_t)a->T, mark = arena_mark(&on->scratch);
    part.lse_step = w.lse_step = (int64_t)rows, part.out_step = w.out_step = part.lse_step * a->K;
    float *outs = (float *)arena_take(&on->scratch, (size_t)w.out_step * w.splits, sizeof *outs);
    float *lses = (float *)arena_take(&on->scratch, rows * (size_t)w.splits, sizeof *lses);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    part.more = false, part.io.lse_BHT = lses;
    part.out = {outs, true, a->K % 2 == 0};
    LAUNCH((attention_tile<T, KP>), grid, S::THREADS, S::BYTES, on, part);
    LAUNCH(attention_join, (unsigned)ceil_div(rows, 256 / TILE_WAVE), 256, 0, on, w, outs, lses);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(flash_forward)(const struct attention *a,
                                               const struct attention_fwd *io, struct queue *on)
{
    FLASH_OF(forward_of, a, io, on);
}
