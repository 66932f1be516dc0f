/* embedding.cu -- rows by number, and their gradients added in token order.
 *
 * Backward  Tokens are sorted by their row, those of a row stay in order: a radix sort, nine bits
 *           a pass.  Then who stands at a row's first token adds all of them.  Its columns are
 *           shared out, its tokens are not, so the order of a sum is that of the reference.
 * Memory    Scratch: 16 N bytes, and 2 KiB for every 1024 tokens.
 * Bytes     Forward 2 N D e; backward N D e and, of each row that occurs, 8 D. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/embedding.h"
}

enum { BLOCK = 256 };

/* As embedding_row, but a row that is not here is V: it is sorted behind the others. */
__device__ static int row_of(const struct embedding a, int32_t id)
{
    return id >= a.first && id - a.first < a.V ? id - a.first : a.V;
}

/* `across` threads, a power of two, share a row of `units`. */
template <typename UNIT>
__global__ static void gather(struct embedding a, size_t units, unsigned across, const int32_t *ids,
                              const UNIT *w, UNIT *y)
{
    size_t n = (size_t)blockIdx.x * (BLOCK / across) + threadIdx.x / across;
    if (n >= (size_t)a.N) return;
    int row = row_of(a, ids[n]);
    const UNIT *from = w + (size_t)row * units;
    UNIT *to = y + n * units, zeros = {};
    for (size_t u = threadIdx.x & (across - 1); u < units; u += across)
        to[u] = row < a.V ? from[u] : zeros;
}

template <typename UNIT>
static enum status gather_by(const struct embedding *a, const struct embedding_fwd *io,
                             struct queue *on)
{
    size_t units = (size_t)a->D * dtype_bytes(a->dtype) / sizeof(UNIT);
    unsigned across = BLOCK;
    while (across > 1 && across / 2 >= units) across /= 2;
    unsigned grid = (unsigned)ceil_div((size_t)a->N, BLOCK / across);
    LAUNCH(gather<UNIT>, grid, BLOCK, 0, on, *a, units, across, io->ids_N, (const UNIT *)io->w_VD,
           (UNIT *)io->y_ND);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(embedding_forward)(const struct embedding *a,
                                                   const struct embedding_fwd *io, struct queue *on)
{
    size_t row = (size_t)a->D * dtype_bytes(a->dtype);
    if (on->measuring) return STATUS_OK;
    if (row % 16 == 0 && is_aligned(io->w_VD) && is_aligned(io->y_ND))
        return gather_by<uint4>(a, io, on);
    return gather_by<bf16>(a, io, on);
}

/* ---- tokens by row ---- */

enum { DIGIT_BITS = 9, DIGITS = 1 << DIGIT_BITS };
enum { SORT_STEPS = 4, SORT_WAVES = BLOCK / WAVE, TILE = SORT_STEPS * BLOCK }; /* tokens */

/* One pass: from the ids, or from what the pass before has left, by the digit at `shift`. */
struct sort_pass {
    struct embedding a;
    const int32_t *keys, *tokens; /* NULL: the first pass */
    int32_t *keys_out, *tokens_out;
    int32_t *counts; /* [DIGITS, tiles]: of tokens; then of those that come before */
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

__global__ static void count_digits(struct sort_pass p, const int32_t *ids)
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

/* One block, a thread for each digit: how many tokens come before those of a digit in a tile. */
__global__ static void __launch_bounds__(DIGITS) sum_counts(struct sort_pass p)
{
    __shared__ int sums[2][DIGITS];
    int *counts = p.counts + (size_t)threadIdx.x * (size_t)p.tiles, own = 0, from = 0;
    for (int i = 0; i < p.tiles; i++) own += counts[i];
    sums[0][threadIdx.x] = own;
    for (unsigned apart = 1; apart < DIGITS; apart *= 2, from = !from) {
        __syncthreads();
        int sum = sums[from][threadIdx.x];
        if (threadIdx.x >= apart) sum += sums[from][threadIdx.x - apart];
        sums[!from][threadIdx.x] = sum;
    }
    int before = sums[from][threadIdx.x] - own;
    for (int i = 0; i < p.tiles; i++) {
        int count = counts[i];
        counts[i] = before, before += count;
    }
}

/* Each wave has neighbouring tokens, and takes them in order. */
__global__ static void __launch_bounds__(BLOCK) scatter(struct sort_pass p, const int32_t *ids)
{
    __shared__ int seen[SORT_WAVES][DIGITS];
    const int lane = lane_index(), wave = wave_index();
    const size_t begin = (size_t)blockIdx.x * TILE + (size_t)(wave * SORT_STEPS * WAVE + lane);
    int32_t keys[SORT_STEPS];
    int place[SORT_STEPS];
    for (int d = lane; d < DIGITS; d += WAVE) seen[wave][d] = 0;
    for (int i = 0; i < SORT_STEPS; i++) {
        size_t n = begin + (size_t)(i * WAVE);
        bool is_token = n < (size_t)p.a.N;
        keys[i] = is_token ? key_of(&p, ids, n) : 0;
        int digit = is_token ? digit_of(&p, keys[i]) : -1, before = 0, last = lane;
        for (int other = 0; other < WAVE; other++) {
            bool same = shuffle_from(digit, other) == digit;
            before += same && other < lane;
            last = same && other > last ? other : last;
        }
        __syncthreads();
        place[i] = is_token ? seen[wave][digit] + before : 0;
        __syncthreads();
        if (is_token && last == lane) seen[wave][digit] = place[i] + 1;
    }
    __syncthreads();
    for (int d = (int)threadIdx.x; d < DIGITS; d += BLOCK) {
        int before = p.counts[(size_t)d * (size_t)p.tiles + blockIdx.x];
        for (int w = 0; w < SORT_WAVES; w++) {
            int count = seen[w][d];
            seen[w][d] = before, before += count;
        }
    }
    __syncthreads();
    for (int i = 0; i < SORT_STEPS; i++) {
        size_t n = begin + (size_t)(i * WAVE);
        if (n >= (size_t)p.a.N) continue;
        int to = seen[wave][digit_of(&p, keys[i])] + place[i];
        p.keys_out[to] = keys[i];
        p.tokens_out[to] = p.tokens ? p.tokens[n] : (int32_t)n;
    }
}

/* What backward takes of the queue's scratch. */
struct sorting {
    int32_t *keys[2], *tokens[2], *counts;
    int tiles;
};

static void sorting_take(struct sorting *s, const struct embedding *a, struct arena *scratch)
{
    s->tiles = (int)ceil_div((size_t)a->N, TILE);
    for (int i = 0; i < 2; i++) {
        s->keys[i] = (int32_t *)arena_take(scratch, (size_t)a->N, sizeof(int32_t));
        s->tokens[i] = (int32_t *)arena_take(scratch, (size_t)a->N, sizeof(int32_t));
    }
    s->counts = (int32_t *)arena_take(scratch, (size_t)s->tiles * DIGITS, sizeof(int32_t));
}

/* Leaves them in keys[0] and tokens[0]. */
static enum status sort_tokens(struct sorting *s, const struct embedding *a, const int32_t *ids,
                               struct queue *on)
{
    struct sort_pass p = {};
    p.a = *a, p.counts = s->counts, p.tiles = s->tiles;
    for (; p.shift < 31 && (!p.shift || a->V >> p.shift); p.shift += DIGIT_BITS) {
        p.keys_out = s->keys[1], p.tokens_out = s->tokens[1];
        LAUNCH(count_digits, (unsigned)s->tiles, BLOCK, 0, on, p, ids);
        LAUNCH(sum_counts, 1, DIGITS, 0, on, p);
        LAUNCH(scatter, (unsigned)s->tiles, BLOCK, 0, on, p, ids);
        s->keys[1] = s->keys[0], s->tokens[1] = s->tokens[0];
        s->keys[0] = p.keys_out, s->tokens[0] = p.tokens_out;
        p.keys = s->keys[0], p.tokens = s->tokens[0];
    }
    return STATUS_OK;
}

/* ---- the sums ---- */

enum { ADD_BLOCK = 128, PLACES = 32, AT_ONCE = 16 };

template <typename T, int WIDTH> struct alignas(WIDTH * sizeof(T)) columns {
    T x[WIDTH];
};

template <typename T, int WIDTH>
__device__ static void add(struct columns<float, WIDTH> *sum, struct columns<T, WIDTH> x)
{
    for (int c = 0; c < WIDTH; c++) sum->x[c] += to_f32(x.x[c]);
}

/* Adds the tokens of a row from `next` on.  Many are loaded before the first is added. */
template <typename T, int WIDTH>
__device__ static void add_others(struct columns<float, WIDTH> *sum, size_t next, size_t N,
                                  const int32_t *keys, const int32_t *tokens, const T *dy, size_t D)
{
    const int32_t row = keys[next - 1];
    while (next < N && keys[next] == row) {
        struct columns<T, WIDTH> x[AT_ONCE];
        size_t from[AT_ONCE];
        bool same[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++, next++) {
            const size_t at = next < N ? next : N - 1;
            same[i] = (next < N) & (keys[at] == row); /* no branch: all are loaded at once */
            from[i] = (size_t)tokens[at] * D;
        }
        for (int i = 0; i < AT_ONCE; i++)
            if (same[i]) x[i] = *(const struct columns<T, WIDTH> *)(dy + from[i]);
        for (int i = 0; i < AT_ONCE; i++)
            if (same[i]) add(sum, x[i]);
        if (!same[AT_ONCE - 1]) return;
    }
}

/* Blocks share out columns and PLACES of the sorted tokens; WIDTH columns are a thread's. */
template <typename T, int WIDTH>
__global__ static void __launch_bounds__(ADD_BLOCK)
    add_rows(struct embedding a, unsigned pieces, const int32_t *keys, const int32_t *tokens,
             const T *dy, float *dw)
{
    const size_t N = (size_t)a.N, D = (size_t)a.D, begin = (size_t)(blockIdx.x / pieces) * PLACES;
    const size_t column = ((size_t)(blockIdx.x % pieces) * ADD_BLOCK + threadIdx.x) * WIDTH;
    int32_t before = begin ? keys[begin - 1] : -1;
    if (column >= D) return;
    for (size_t place = begin; place < begin + PLACES && place < N; place++) {
        const int32_t row = keys[place];
        if (row >= a.V) return;
        if (row == before) continue;
        before = row;
        float *to = dw + (size_t)row * D + column;
        struct columns<float, WIDTH> sum = *(const struct columns<float, WIDTH> *)to;
        const T *from = dy + (size_t)tokens[place] * D + column;
        add(&sum, *(const struct columns<T, WIDTH> *)from);
        add_others(&sum, place + 1, N, keys, tokens, dy + column, D);
        *(struct columns<float, WIDTH> *)to = sum;
    }
}

template <typename T, int WIDTH>
static enum status add_all(const struct sorting *s, const struct embedding *a,
                           const struct embedding_bwd *io, struct queue *on)
{
    unsigned pieces = (unsigned)ceil_div((size_t)a->D, ADD_BLOCK * WIDTH);
    unsigned groups = (unsigned)ceil_div((size_t)a->N, PLACES);
    LAUNCH((add_rows<T, WIDTH>), groups * pieces, ADD_BLOCK, 0, on, *a, pieces, s->keys[0],
           s->tokens[0], (const T *)io->dy_ND, io->dw_VD);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(embedding_backward)(const struct embedding *a,
                                                    const struct embedding_bwd *io,
                                                    struct queue *on)
{
    struct sorting s;
    size_t mark = arena_mark(&on->scratch);
    sorting_take(&s, a, &on->scratch);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    TRY(sort_tokens(&s, a, io->ids_N, on));
    bool wide = a->D % 4 == 0 && is_aligned(io->dw_VD) && is_aligned(io->dy_ND);
    if (a->dtype == F32)
        return wide ? add_all<float, 4>(&s, a, io, on) : add_all<float, 1>(&s, a, io, on);
    return wide ? add_all<bf16, 4>(&s, a, io, on) : add_all<bf16, 1>(&s, a, io, on);
}
