/* embedding.cu -- gathers rows of the table; backward adds gradients in token order.
 *
 * Order     Backward sorts the tokens by row with a stable radix sort, 9 bits per pass.  The thread
 *           at a row's first token then adds all of its tokens: the sum is split over columns only,
 *           so its order is the reference's.
 * Memory    Scratch: 16 N bytes, and 2 KiB per 1024 tokens.
 * Bytes     Forward 2 N D e; backward N D e, and 8 D per distinct row. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/embedding.h"
}

enum { BLOCK = 256 };

/* As embedding_row, but V for a row of another rank, which sorts behind all others. */
__device__ static int row_of(const struct embedding a, int32_t id)
{
    return id >= a.first && id - a.first < a.V ? id - a.first : a.V;
}

/* `across` threads, a power of two, copy one row of `units`. */
template <typename UNIT>
__global__ static void gather_kernel(struct embedding a, size_t units, unsigned across,
                                     const int32_t *ids, const UNIT *w, UNIT *y)
{
    size_t n = (size_t)blockIdx.x * (BLOCK / across) + threadIdx.x / across;
    if (n >= (size_t)a.N) return;
    int row = row_of(a, ids[n]);
    const UNIT *from = w + (size_t)row * units;
    UNIT *to = y + n * units, zeros = {};
    for (size_t u = threadIdx.x & (across - 1); u < units; u += across)
        if (row < a.V)
            to[u] = from[u];
        else
            to[u] = zeros; /* not `?:`, which selects an address: HIP's uint4 is a class */
}

template <typename UNIT>
static enum status launch_gather(const struct embedding *a, const struct embedding_fwd *io,
                                 struct queue *queue)
{
    size_t units = (size_t)a->D * dtype_bytes(a->dtype) / sizeof(UNIT);
    unsigned across = BLOCK;
    while (across > 1 && across / 2 >= units) across /= 2;
    unsigned grid = (unsigned)ceil_div((size_t)a->N, BLOCK / across);
    LAUNCH(gather_kernel<UNIT>, grid, BLOCK, 0, queue, *a, units, across, io->ids_N,
           (const UNIT *)io->w_VD, (UNIT *)io->y_ND);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(embedding_forward)(const struct embedding *a,
                                                   const struct embedding_fwd *io,
                                                   struct queue *queue)
{
    size_t row = (size_t)a->D * dtype_bytes(a->dtype);
    if (queue->sizing) return STATUS_OK;
    if (row % 16 == 0 && is_aligned(io->w_VD) && is_aligned(io->y_ND))
        return launch_gather<uint4>(a, io, queue);
    return launch_gather<bf16>(a, io, queue);
}

/* --- radix sort of the tokens by row --- */

enum { DIGIT_BITS = 9, DIGITS = 1 << DIGIT_BITS };
enum { SORT_STEPS = 4, SORT_WARPS = BLOCK / WARP_SIZE, TILE = SORT_STEPS * BLOCK }; /* tokens */

/* One pass, by the digit at `shift`: of the ids, or of the previous pass's output. */
struct sort_pass {
    struct embedding a;
    const int32_t *keys, *tokens; /* NULL: the first pass */
    int32_t *keys_out, *tokens_out;
    int32_t *counts; /* [DIGITS, tiles]: histogram; then its exclusive prefix sum */
    int tiles, shift;
};

__device__ static int32_t key_of(const struct sort_pass *p, const int32_t *ids, size_t n)
{
    return p->keys ? p->keys[n] : row_of(p->a, ids[n]);
}

__device__ static int digit_of(const struct sort_pass *p, int32_t key)
{
    return key >> p->shift & (DIGITS - 1);
}

__global__ static void histogram_kernel(struct sort_pass p, const int32_t *ids)
{
    __shared__ int counts[DIGITS];
    size_t begin = (size_t)blockIdx.x * TILE;
    for (int d = (int)threadIdx.x; d < DIGITS; d += BLOCK) counts[d] = 0;
    __syncthreads();
    for (size_t n = begin + threadIdx.x; n < begin + TILE && n < (size_t)p.a.N; n += BLOCK)
        atomicAdd(&counts[digit_of(&p, key_of(&p, ids, n))], 1);
    __syncthreads();
    for (int d = (int)threadIdx.x; d < DIGITS; d += BLOCK)
        p.counts[(size_t)d * (size_t)p.tiles + blockIdx.x] = counts[d];
}

/* One block, one thread per digit: how many tokens precede those of a digit in a tile. */
__global__ static void __launch_bounds__(DIGITS) prefix_sum_kernel(struct sort_pass p)
{
    __shared__ int sums[2][DIGITS];
    int *counts = p.counts + (size_t)threadIdx.x * (size_t)p.tiles, total = 0, from = 0;
    for (int i = 0; i < p.tiles; i++) total += counts[i];
    sums[0][threadIdx.x] = total;
    for (unsigned distance = 1; distance < DIGITS; distance *= 2, from = !from) {
        __syncthreads();
        int sum = sums[from][threadIdx.x];
        if (threadIdx.x >= distance) sum += sums[from][threadIdx.x - distance];
        sums[!from][threadIdx.x] = sum;
    }
    int before = sums[from][threadIdx.x] - total;
    for (int i = 0; i < p.tiles; i++) {
        int count = counts[i];
        counts[i] = before, before += count;
    }
}

/* Each warp takes consecutive tokens in order, which keeps the sort stable. */
__global__ static void __launch_bounds__(BLOCK)
    scatter_kernel(struct sort_pass p, const int32_t *ids)
{
    __shared__ int seen[SORT_WARPS][DIGITS];
    const int lane = lane_index(), warp = warp_index();
    const size_t begin = (size_t)blockIdx.x * TILE + (size_t)(warp * SORT_STEPS * WARP_SIZE + lane);
    int32_t keys[SORT_STEPS];
    int rank[SORT_STEPS];
    for (int d = lane; d < DIGITS; d += WARP_SIZE) seen[warp][d] = 0;
    for (int i = 0; i < SORT_STEPS; i++) {
        size_t n = begin + (size_t)(i * WARP_SIZE);
        bool is_token = n < (size_t)p.a.N;
        keys[i] = is_token ? key_of(&p, ids, n) : 0;
        int digit = is_token ? digit_of(&p, keys[i]) : -1, before = 0, last = lane;
        for (int other = 0; other < WARP_SIZE; other++) {
            bool same = shuffle_from(digit, other) == digit;
            before += same && other < lane;
            last = same && other > last ? other : last;
        }
        __syncthreads();
        rank[i] = is_token ? seen[warp][digit] + before : 0;
        __syncthreads();
        if (is_token && last == lane) seen[warp][digit] = rank[i] + 1;
    }
    __syncthreads();
    for (int d = (int)threadIdx.x; d < DIGITS; d += BLOCK) {
        int before = p.counts[(size_t)d * (size_t)p.tiles + blockIdx.x];
        for (int w = 0; w < SORT_WARPS; w++) {
            int count = seen[w][d];
            seen[w][d] = before, before += count;
        }
    }
    __syncthreads();
    for (int i = 0; i < SORT_STEPS; i++) {
        size_t n = begin + (size_t)(i * WARP_SIZE);
        if (n >= (size_t)p.a.N) continue;
        int to = seen[warp][digit_of(&p, keys[i])] + rank[i];
        p.keys_out[to] = keys[i];
        p.tokens_out[to] = p.tokens ? p.tokens[n] : (int32_t)n;
    }
}

/* Scratch of the sort. */
struct sort_buffers {
    int32_t *keys[2], *tokens[2], *counts;
    int tiles;
};

static void alloc_sort_buffers(struct sort_buffers *s, const struct embedding *a,
                               struct arena *scratch)
{
    s->tiles = (int)ceil_div((size_t)a->N, TILE);
    for (int i = 0; i < 2; i++) {
        s->keys[i] = (int32_t *)arena_alloc(scratch, (size_t)a->N, sizeof(int32_t));
        s->tokens[i] = (int32_t *)arena_alloc(scratch, (size_t)a->N, sizeof(int32_t));
    }
    s->counts = (int32_t *)arena_alloc(scratch, (size_t)s->tiles * DIGITS, sizeof(int32_t));
}

/* The result is in keys[0] and tokens[0]. */
static enum status sort_tokens(struct sort_buffers *s, const struct embedding *a,
                               const int32_t *ids, struct queue *queue)
{
    struct sort_pass p = {};
    p.a = *a, p.counts = s->counts, p.tiles = s->tiles;
    for (; p.shift < 31 && (!p.shift || a->V >> p.shift); p.shift += DIGIT_BITS) {
        p.keys_out = s->keys[1], p.tokens_out = s->tokens[1];
        LAUNCH(histogram_kernel, (unsigned)s->tiles, BLOCK, 0, queue, p, ids);
        LAUNCH(prefix_sum_kernel, 1, DIGITS, 0, queue, p);
        LAUNCH(scatter_kernel, (unsigned)s->tiles, BLOCK, 0, queue, p, ids);
        s->keys[1] = s->keys[0], s->tokens[1] = s->tokens[0];
        s->keys[0] = p.keys_out, s->tokens[0] = p.tokens_out;
        p.keys = s->keys[0], p.tokens = s->tokens[0];
    }
    return STATUS_OK;
}

/* --- sums over the tokens of a row --- */

enum { ADD_BLOCK = 128, TOKENS_PER_BLOCK = 32, UNROLLED = 16 };

template <typename T, int WIDTH> struct alignas(WIDTH * sizeof(T)) column_vector {
    T x[WIDTH];
};

template <typename T, int WIDTH>
__device__ static void add_vector(struct column_vector<float, WIDTH> *sum,
                                  struct column_vector<T, WIDTH> x)
{
    for (int c = 0; c < WIDTH; c++) sum->x[c] += to_f32(x.x[c]);
}

/* Adds the remaining tokens of a row, from `next` on; loads UNROLLED of them before adding any. */
template <typename T, int WIDTH>
__device__ static void add_remaining(struct column_vector<float, WIDTH> *sum, size_t next, size_t N,
                                     const int32_t *keys, const int32_t *tokens, const T *dy,
                                     size_t D)
{
    const int32_t row = keys[next - 1];
    while (next < N && keys[next] == row) {
        struct column_vector<T, WIDTH> x[UNROLLED];
        size_t from[UNROLLED];
        bool same[UNROLLED];
        for (int i = 0; i < UNROLLED; i++, next++) {
            const size_t at = next < N ? next : N - 1;
            same[i] = (next < N) & (keys[at] == row); /* & avoids a branch between the loads */
            from[i] = (size_t)tokens[at] * D;
        }
        for (int i = 0; i < UNROLLED; i++)
            if (same[i]) x[i] = *(const struct column_vector<T, WIDTH> *)(dy + from[i]);
        for (int i = 0; i < UNROLLED; i++)
            if (same[i]) add_vector(sum, x[i]);
        if (!same[UNROLLED - 1]) return;
    }
}

/* A block takes TOKENS_PER_BLOCK sorted tokens and a piece of the columns, WIDTH per thread. */
template <typename T, int WIDTH>
__global__ static void __launch_bounds__(ADD_BLOCK)
    add_rows_kernel(struct embedding a, unsigned column_blocks, const int32_t *keys,
                    const int32_t *tokens, const T *dy, float *dw)
{
    const size_t N = (size_t)a.N, D = (size_t)a.D;
    const size_t begin = (size_t)(blockIdx.x / column_blocks) * TOKENS_PER_BLOCK;
    const size_t column = ((size_t)(blockIdx.x % column_blocks) * ADD_BLOCK + threadIdx.x) * WIDTH;
    int32_t before = begin ? keys[begin - 1] : -1;
    if (column >= D) return;
    for (size_t i = begin; i < begin + TOKENS_PER_BLOCK && i < N; i++) {
        const int32_t row = keys[i];
        if (row >= a.V) return;
        if (row == before) continue;
        before = row;
        float *to = dw + (size_t)row * D + column;
        struct column_vector<float, WIDTH> sum = *(const struct column_vector<float, WIDTH> *)to;
        const T *from = dy + (size_t)tokens[i] * D + column;
        add_vector(&sum, *(const struct column_vector<T, WIDTH> *)from);
        add_remaining(&sum, i + 1, N, keys, tokens, dy + column, D);
        *(struct column_vector<float, WIDTH> *)to = sum;
    }
}

template <typename T, int WIDTH>
static enum status launch_add(const struct sort_buffers *s, const struct embedding *a,
                              const struct embedding_bwd *io, struct queue *queue)
{
    unsigned column_blocks = (unsigned)ceil_div((size_t)a->D, ADD_BLOCK * WIDTH);
    unsigned groups = (unsigned)ceil_div((size_t)a->N, TOKENS_PER_BLOCK);
    LAUNCH((add_rows_kernel<T, WIDTH>), groups * column_blocks, ADD_BLOCK, 0, queue, *a,
           column_blocks, s->keys[0], s->tokens[0], (const T *)io->dy_ND, io->dw_VD);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(embedding_backward)(const struct embedding *a,
                                                    const struct embedding_bwd *io,
                                                    struct queue *queue)
{
    struct sort_buffers s;
    size_t mark = arena_mark(&queue->scratch);
    alloc_sort_buffers(&s, a, &queue->scratch);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    TRY(sort_tokens(&s, a, io->ids_N, queue));
    bool wide = a->D % 4 == 0 && is_aligned(io->dw_VD) && is_aligned(io->dy_ND);
    if (a->dtype == F32)
        return wide ? launch_add<float, 4>(&s, a, io, queue)
                    : launch_add<float, 1>(&s, a, io, queue);
    return wide ? launch_add<bf16, 4>(&s, a, io, queue) : launch_add<bf16, 1>(&s, a, io, queue);
}
