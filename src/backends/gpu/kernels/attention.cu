/* attention.cu -- flash attention, forward: a block owns a tile of queries of one head, visits the
 * keys block by block and keeps the row max and row sum of an online softmax in registers.
 *
 * Decoding  With few queries, the heads that share a key/value head become rows of one tile, and
 *           the keys are split over several blocks (split-KV), whose partial results a second
 *           kernel combines in order.
 * Sources   Dao 2023 (FlashAttention-2) */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/attention_common.h"

extern "C" {
#include "backends/gpu/flash_attention.h"
}

/* Tile sizes.  Shared memory stays below 64 KiB with warps of 64.  With warps of 32, BLOCKS of a
 * multiprocessor limit a thread to 168 registers for bf16 heads of up to 128 elements. */
template <typename T, int KP> struct forward_tiles {
    enum : int {
        IS_BF16 = sizeof(T) == sizeof(bf16),
        LARGE = KP > 128,
        SMALL_32 = IS_BF16 && !LARGE && TILE_WARP == 32,
        ROW_TILES = SMALL_32 && KP == 64 ? 2 : 1, /* per warp */
        WARPS = SMALL_32 && KP == 128 ? 6 : (TILE_WARP == 32 || !IS_BF16 ? 4 : 8),
        BLOCKS = SMALL_32 ? 12 / WARPS : 1,
        THREADS = WARPS * TILE_WARP,
        WARP_ROWS = ROW_TILES * TILE,
        ROWS = WARPS * WARP_ROWS, /* queries of a block */
        KEYS = SMALL_32 ? 48 : (IS_BF16 || !LARGE ? 32 : 16),
        STAGED = IS_BF16 && TILE_WARP == 32, /* queries */
        /* A warp keeps its queries in registers. */
        HELD = IS_BF16 && (TILE_WARP == 64 || (!LARGE && ROW_TILES == 1)),
        STRIDE = shared_row<T, KP>::STRIDE,
        QUERY_ELEMENTS = STAGED ? ROWS * STRIDE : 0,
        SHARED_BYTES = (QUERY_ELEMENTS + 2 * KEYS * STRIDE) * sizeof(T),
    };
};

struct forward_params {
    struct attention a;
    struct attention_fwd io;
    struct attention_output out;
    int heads_per_tile, head_tiles; /* query heads that share a tile; groups of them */
    int query_tiles;                /* per group of heads */
    int splits, split_blocks;       /* of the keys; key blocks per split */
    int first_block;                /* of keys that any query's window reaches */
    int64_t out_split_stride, lse_split_stride;
    float scale;         /* |scale| in units of log2, above 0 */
    int sign;            /* of the scale; 0: all scores are 0 */
    bool aligned, merge; /* merge: into the result of earlier keys */
};

/* The online softmax of a warp's rows.  row_max is the rounded, scaled maximum (units of log2) that
 * exp2 subtracts.  Storing it rounded makes the rescaling factor exactly 1 while the maximum stays,
 * so no error accumulates over key blocks. */
template <int ROW_TILES, int COLUMNS> struct softmax_state {
    struct tile_acc out[ROW_TILES][COLUMNS];
    float row_max[ROW_TILES][ACC_ROWS], row_sum[ROW_TILES][ACC_ROWS];
};

struct query_position {
    int b, t, h;
};

/* The query of a tile's row. */
static __device__ __forceinline__ struct query_position query_of(const struct forward_params &p,
                                                                 int b, int head, int row)
{
    if (p.heads_per_tile == 1) return {b, row, head};
    return {b, row / p.heads_per_tile, head * p.heads_per_tile + row % p.heads_per_tile};
}

/* Applies the sign of the scale to the scores, so that the softmax can multiply its row max by a
 * positive scale. */
template <int ROW_TILES, int N>
static __device__ __forceinline__ void apply_sign(struct tile_acc (&s)[ROW_TILES][N], int sign)
{
    UNROLL
    for (int i = 0; i < ROW_TILES * N * ACC_ROWS * ACC_COLUMNS; i++) {
        float *x = &s[0][0].x[0][0] + i;
        *x = sign ? -*x : 0;
    }
}

/* Sets the scores of masked keys to -inf. */
template <int ROW_TILES, int N>
static __device__ __forceinline__ void apply_mask(const struct forward_params &p,
                                                  struct tile_acc (&s)[ROW_TILES][N], int b,
                                                  int row, int key)
{
    struct document_bounds bounds = {p.io.start_BT, p.io.end_BT};
    UNROLL
    for (int m = 0; m < ROW_TILES; m++) {
        UNROLL
        for (int r = 0; r < ACC_ROWS; r++) {
            int t = query_of(p, b, 0, row + m * TILE + tile_row(r)).t;
            struct visible_keys keys = visible_keys_of(&p.a, bounds, b, min(t, p.a.T - 1));
            UNROLL
            for (int i = 0; i < N * ACC_COLUMNS; i++) {
                int k = key + i / ACC_COLUMNS * TILE + tile_column(i % ACC_COLUMNS);
                if (k < keys.begin || k >= keys.end)
                    s[m][i / ACC_COLUMNS].x[r][i % ACC_COLUMNS] = -INFINITY;
            }
        }
    }
}

/* Replaces scores by exp(score - row max), and rescales the earlier results to the new row max. */
template <int ROW_TILES, int N, int COLUMNS>
static __device__ __forceinline__ void online_softmax(struct tile_acc (&s)[ROW_TILES][N],
                                                      float scale,
                                                      struct softmax_state<ROW_TILES, COLUMNS> *so)
{
    UNROLL
    for (int p = 0; p < ROW_TILES; p++) {
        UNROLL
        for (int r = 0; r < ACC_ROWS; r++) {
            float max = -INFINITY, sum = 0;
            UNROLL
            for (int i = 0; i < N * ACC_COLUMNS; i++)
                max = fmaxf(max, s[p][i / ACC_COLUMNS].x[r][i % ACC_COLUMNS]);
            max = fmaxf(so->row_max[p][r], tile_row_max(max) * scale);
            float base = max == -INFINITY ? 0 : max;
            float rescale = exp2_fast(so->row_max[p][r] - base);
            UNROLL
            for (int i = 0; i < N * ACC_COLUMNS; i++) {
                float *x = &s[p][i / ACC_COLUMNS].x[r][i % ACC_COLUMNS];
                sum += *x = exp2_fast(fmaf(*x, scale, -base));
            }
            UNROLL
            for (int i = 0; i < COLUMNS * ACC_COLUMNS; i++)
                so->out[p][i / ACC_COLUMNS].x[r][i % ACC_COLUMNS] *= rescale;
            so->row_sum[p][r] = so->row_sum[p][r] * rescale + sum, so->row_max[p][r] = max;
        }
    }
}

/* Which rows of out and lse a warp writes. */
struct output_rows {
    int b, head, split, first, count;
};

/* Stores lse and out / row sum; with `merge` combines them with the result of earlier keys:
 * out = keep * old + factor * acc. */
template <int ROW_TILES, int COLUMNS>
static __device__ __forceinline__ void
store_results(const struct forward_params &p, const struct softmax_state<ROW_TILES, COLUMNS> &so,
              const struct output_rows &rows)
{
    UNROLL
    for (int m = 0; m < ROW_TILES; m++) {
        UNROLL
        for (int r = 0; r < ACC_ROWS; r++) {
            int row = m * TILE + tile_row(r), within = rows.first + min(row, rows.count - 1);
            struct query_position at = query_of(p, rows.b, rows.head, within);
            int64_t H = p.a.H, query = ((int64_t)at.b * H + at.h) * p.a.T + at.t;
            int64_t out = (((int64_t)at.b * p.a.T + at.t) * H + at.h) * p.a.K;
            float *lse_pointer = p.io.lse_BHT + rows.split * p.lse_split_stride + query;
            float sum = tile_row_sum(so.row_sum[m][r]);
            float before = p.merge && row < rows.count ? *lse_pointer : -INFINITY;
            warp_sync(); /* all lanes of the row have read it */
            if (row >= rows.count) continue;
            float own = sum == 0 ? -INFINITY : (so.row_max[m][r] + log2f(sum)) * LN_2;
            float lse = before == -INFINITY ? own : before;
            float factor = sum == 0 ? 0 : 1 / sum, keep = 0;
            if (before != -INFINITY) {
                if (own != -INFINITY) {
                    float high = own > before ? own : before, low = own > before ? before : own;
                    lse = high + log1pf(expf(low - high));
                }
                keep = expf(before - lse), factor = sum == 0 ? 0 : expf(own - lse) / sum;
            }
            store_row(p.out, out + rows.split * p.out_split_stride, 0, p.a.K, so.out[m], r, factor,
                      keep);
            if (tile_column(0) == 0) *lse_pointer = lse;
        }
    }
}

/* Stages block i of the keys or values. */
template <typename T, int KP, bool ALIGNED>
static __device__ __forceinline__ void stage_keys(const struct forward_params &p, T *to,
                                                  const T *from, int i)
{
    using S = forward_tiles<T, KP>;
    int64_t stride = (int64_t)p.a.kv_stride, first = (int64_t)i * S::KEYS;
    struct token_rows<T> rows = {
        from, stride, p.a.S - (int)first, 1, p.a.K, ALIGNED || p.aligned
    };
    rows.base += first * stride;
    stage_rows<T, KP, S::KEYS, S::THREADS>(to, rows);
}

template <typename T, int KP, bool ALIGNED>
static __global__ void KERNEL_BOUNDS((forward_tiles<T, KP>::THREADS),
                                     (forward_tiles<T, KP>::BLOCKS))
    flash_forward_kernel(const struct forward_params p)
{
    using S = forward_tiles<T, KP>;
    DYNAMIC_SHARED(T, queries);
    T *keys = queries + S::QUERY_ELEMENTS, *values = keys + S::KEYS * S::STRIDE;
    const struct attention &a = p.a;
    /* The last query tiles first: with a causal mask they take the longest. */
    int block = (int)blockIdx.x;
    int first = (p.query_tiles - 1 - block % p.query_tiles) * S::ROWS;
    int head = (block /= p.query_tiles) % p.head_tiles;
    int split = (block /= p.head_tiles) % p.splits, b = block / p.splits;
    int rows_left = min(a.T * p.heads_per_tile - first, S::ROWS);
    int group = head * p.heads_per_tile / (a.H / a.G), own = warp_index() * S::WARP_ROWS;
    struct token_rows<T> q = {
        (const T *)p.io.q_BTHK,
            (int64_t)a.q_stride, rows_left, p.heads_per_tile, a.K, ALIGNED || p.aligned
    };
    q.base += ((int64_t)b * a.T + first) * q.stride + (int64_t)head * p.heads_per_tile * a.K;
    int64_t to_keys = (int64_t)b * a.S * (int64_t)a.kv_stride + (int64_t)group * a.K;
    const T *key_rows = (const T *)p.io.k_BSGK + to_keys;
    const T *value_rows = (const T *)p.io.v_BSGK + to_keys;

    struct document_bounds bounds = {p.io.start_BT, p.io.end_BT};
    int last = first + rows_left - 1, last_own = min(first + own + S::WARP_ROWS - 1, last);
    struct tile_mask block_mask =
        make_tile_mask(&a, bounds, b, first / p.heads_per_tile, last / p.heads_per_tile);
    struct tile_mask warp_mask = make_tile_mask(
        &a, bounds, b, min(first + own, last) / p.heads_per_tile, last_own / p.heads_per_tile);
    int i = p.first_block + split * p.split_blocks, end = i + p.split_blocks;
    i = max(block_mask.any_begin / S::KEYS, i);
    end = min((block_mask.any_end + S::KEYS - 1) / S::KEYS, end);

    struct softmax_state<S::ROW_TILES, KP / TILE> so;
    UNROLL
    for (int m = 0; m < S::ROW_TILES; m++) {
        UNROLL
        for (int r = 0; r < ACC_ROWS; r++) so.row_max[m][r] = -INFINITY, so.row_sum[m][r] = 0;
        UNROLL
        for (int n = 0; n < KP / TILE; n++) so.out[m][n] = tile_acc{};
    }
    if (S::STAGED) stage_rows<T, KP, S::ROWS, S::THREADS>(queries, q);
    if (i < end) stage_keys<T, KP, ALIGNED>(p, keys, key_rows, i);
    struct tile_a<T> held[S::HELD ? KP / TILE : 1];
    if (S::HELD && i < end) {
        cp_async_wait<1>();
        if (S::STAGED) __syncthreads(); /* the queries have arrived */
        UNROLL
        for (int k = 0; S::HELD && k < KP; k += TILE)
            load_a<KP>(&held[k / TILE], queries, q, own, k);
    }
    auto load_query = [&](struct tile_a<T> *x, int m, int k) {
        *x = own_a<KP, S::HELD>(held, queries, q, own + m * TILE, k);
    };
    for (; i < end; i++) {
        int key = i * S::KEYS;
        bool active = own < rows_left && any_visible(warp_mask, key, S::KEYS);
        struct tile_acc s[S::ROW_TILES][S::KEYS / TILE];
        cp_async_wait<0>();
        __syncthreads(); /* the keys have arrived, and the values are free */
        stage_keys<T, KP, ALIGNED>(p, values, value_rows, i);
        if (active) multiply_abt<T, KP>(s, load_query, keys);
        cp_async_wait<0>();
        __syncthreads(); /* the values have arrived, and the keys are free */
        if (i + 1 < end) stage_keys<T, KP, ALIGNED>(p, keys, key_rows, i + 1);
        if (!active) continue;
        if (p.sign <= 0) apply_sign(s, p.sign);
        if (!all_visible(warp_mask, key, S::KEYS)) apply_mask(p, s, b, first + own, key);
        online_softmax(s, p.scale, &so);
        multiply_ab<T, KP>(so.out, s, values);
    }
    cp_async_wait<0>(); /* of a block without keys */
    if (own < rows_left) store_results(p, so, {b, head, split, first + own, rows_left - own});
}

/* Combines the partial results of the splits; one warp per query of a head. */
static __global__ void __launch_bounds__(256)
    combine_splits_kernel(const struct forward_params p, const float *outs, const float *lses)
{
    const struct attention &a = p.a;
    int64_t T = a.T, H = a.H, row = (int64_t)blockIdx.x * (blockDim.x / WARP_SIZE) + warp_index();
    if (row >= a.B * H * T) return;
    int64_t t = row % T, h = row / T % H, b = row / T / H, at = ((b * T + t) * H + h) * a.K;
    float before = p.merge ? p.io.lse_BHT[row] : -INFINITY, max = before, sum = 0;
    for (int i = 0; i < p.splits; i++) max = fmaxf(max, lses[i * p.lse_split_stride + row]);
    if (max == -INFINITY) max = 0;
    sum = expf(before - max);
    for (int i = 0; i < p.splits; i++) sum += expf(lses[i * p.lse_split_stride + row] - max);
    float lse = max + logf(sum), keep = before == -INFINITY ? 0 : expf(before - lse);
    warp_sync(); /* all lanes have read `before` */
    for (int k = lane_index(); k < a.K; k += WARP_SIZE) {
        float x = keep != 0 ? keep * ((const float *)p.out.base)[at + k] : 0;
        for (int i = 0; i < p.splits; i++) {
            float split_lse = lses[i * p.lse_split_stride + row];
            if (split_lse != -INFINITY)
                x += expf(split_lse - lse) * outs[i * p.out_split_stride + at + k];
        }
        store_pair(p.out, at + k, x, 0, 1);
    }
    if (lane_index() == 0) p.io.lse_BHT[row] = lse;
}

/* Splits aim at this many blocks on every device, so that the bits do not depend on it. */
enum { TARGET_BLOCKS = 264, MIN_SPLIT_BLOCKS = 4 };

/* In a sizing pass: the scratch that any T and S up to these need, of which decoding sizes only
 * some.  More keys or queries can have fewer splits; but where keys are split, there are at most
 * TARGET_BLOCKS blocks of tile_rows queries of a head. */
static void reserve_splits(const struct attention *a, size_t tile_rows, size_t tile_keys,
                           struct queue *queue)
{
    size_t key_blocks = ceil_div((size_t)a->S, tile_keys);
    size_t reached =
        a->window ? ceil_div((size_t)a->window + (size_t)a->T - 1, tile_keys) + 1 : key_blocks;
    size_t splits = ceil_div(reached < key_blocks ? reached : key_blocks, MIN_SPLIT_BLOCKS);
    size_t rows = (size_t)a->B * (size_t)a->H * (size_t)a->T, most = tile_rows * TARGET_BLOCKS;
    size_t partials = rows < most / splits ? rows * splits : most;
    size_t mark = arena_mark(&queue->scratch);
    if (splits == 1 || (size_t)a->B * (size_t)a->G * 2 > TARGET_BLOCKS) return;
    (void)arena_alloc(&queue->scratch, partials * (size_t)a->K, sizeof(float));
    (void)arena_alloc(&queue->scratch, partials, sizeof(float));
    arena_reset(&queue->scratch, mark);
}

template <typename T, int KP>
static enum status launch_forward(const struct attention *a, const struct attention_fwd *io,
                                  struct queue *queue)
{
    using S = forward_tiles<T, KP>;
    static_assert((int)S::SHARED_BYTES <= (int)MAX_SHARED_BYTES, "shared memory of a block");
    struct forward_params p = {};
    p.a = *a, p.io = *io, p.out = make_output(a, io->out_BTHK, 0);
    p.sign = (a->scale > 0) - (a->scale < 0), p.scale = p.sign ? fabsf(a->scale) * LOG2_E : 1;
    int heads_per_group = a->H / a->G, key_blocks = (int)ceil_div((size_t)a->S, S::KEYS);
    if (a->window) p.first_block = max(a->S - a->T + 1 - a->window, 0) / S::KEYS;
    key_blocks -= p.first_block;
    bool few_queries = (size_t)a->T * (size_t)heads_per_group <= S::ROWS;
    p.heads_per_tile = few_queries ? heads_per_group : 1, p.head_tiles = a->H / p.heads_per_tile;
    p.query_tiles = (int)ceil_div((size_t)a->T * (size_t)p.heads_per_tile, S::ROWS);
    size_t blocks = (size_t)a->B * (size_t)p.head_tiles * (size_t)p.query_tiles, splits = 1;
    if (blocks * 2 <= TARGET_BLOCKS)
        splits =
            min((size_t)TARGET_BLOCKS / blocks, ceil_div((size_t)key_blocks, MIN_SPLIT_BLOCKS));
    p.split_blocks = (int)ceil_div((size_t)key_blocks, splits);
    p.splits = (int)ceil_div((size_t)key_blocks, (size_t)p.split_blocks);
    p.merge = a->keys == MORE_KEYS;
    p.aligned = (size_t)a->K * sizeof(T) % 16 == 0 && rows_are_aligned(a->q_stride, a->dtype) &&
                rows_are_aligned(a->kv_stride, a->dtype) && is_aligned(io->q_BTHK) &&
                is_aligned(io->k_BSGK) && is_aligned(io->v_BSGK);
    if (blocks > (size_t)INT32_MAX / TARGET_BLOCKS)
        FAIL(UNSUPPORTED, "attention: %zu query tiles exceed the maximum grid size", blocks);
    unsigned grid = (unsigned)(blocks * (size_t)p.splits);
    if (queue->sizing) {
        reserve_splits(a, S::ROWS, S::KEYS, queue);
        return STATUS_OK;
    }
    if (p.splits == 1) {
        FLASH_LAUNCH(flash_forward_kernel, T, KP, grid, S::THREADS, S::SHARED_BYTES, queue, p);
        return STATUS_OK;
    }
    struct forward_params part = p;
    size_t rows = (size_t)a->B * (size_t)a->H * (size_t)a->T, mark = arena_mark(&queue->scratch);
    part.lse_split_stride = p.lse_split_stride = (int64_t)rows;
    part.out_split_stride = p.out_split_stride = (int64_t)rows * a->K;
    size_t elements = rows * (size_t)a->K * (size_t)p.splits;
    float *outs = (float *)arena_alloc(&queue->scratch, elements, sizeof *outs);
    float *lses = (float *)arena_alloc(&queue->scratch, rows * (size_t)p.splits, sizeof *lses);
    arena_reset(&queue->scratch, mark);
    part.merge = false, part.io.lse_BHT = lses;
    part.out = {outs, true, a->K % 2 == 0};
    FLASH_LAUNCH(flash_forward_kernel, T, KP, grid, S::THREADS, S::SHARED_BYTES, queue, part);
    LAUNCH(combine_splits_kernel, (unsigned)ceil_div(rows, 256 / TILE_WARP), 256, 0, queue, p, outs,
           lses);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(flash_attention_forward)(const struct attention *a,
                                                         const struct attention_fwd *io,
                                                         struct queue *queue)
{
    FLASH_DISPATCH(launch_forward, a, io, queue);
}
