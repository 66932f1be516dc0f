/* cross_entropy.cu -- a block has a row of logits: it reads them once for their log-sum-exp, and
 * once more where it puts their gradient in their place.
 *
 * Order     A thread meets its logits in ascending order; its sum is of exp(x - the largest so
 *           far), and becomes less where a larger one comes.  Then lanes, then waves are joined.
 * Bytes     2 N V e, and N V e for the gradient; what is read again is in the L2 cache where that
 *           holds a row for each multiprocessor.
 * Sources   Milakov and Gimelshein 2018 (online softmax) */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/cross_entropy.h"
}

enum { AT_ONCE = 4 }; /* vectors that a thread has under way */

/* Of logits: their largest, the lowest number that has it, and the sum of exp(x - largest). */
struct look {
    float top, sum;
    int best;
};

/* -inf - -inf would be no number; what is -inf adds nothing. */
__device__ static float finite(float top) { return top == -INFINITY ? 0 : top; }

template <int WIDTH>
__device__ static void look_at(struct look *s, const float (&x)[WIDTH], int first)
{
    const float before = s->top;
    for (int i = 0; i < WIDTH; i++)
        if (x[i] > s->top) s->top = x[i], s->best = first + i;
    const float top = finite(s->top);
    if (s->top > before) s->sum *= expf(before - top);
    for (int i = 0; i < WIDTH; i++) s->sum += expf(x[i] - top);
}

__device__ static struct look join(struct look a, struct look b)
{
    struct look both = {a.top > b.top ? a.top : b.top, 0, a.best < b.best ? a.best : b.best};
    if (a.top != b.top) both.best = a.top > b.top ? a.best : b.best;
    const float top = finite(both.top);
    both.sum = a.sum * expf(a.top - top) + b.sum * expf(b.top - top);
    return both;
}

__device__ static struct look join_wave(struct look own)
{
    for (int mask = WAVE / 2; mask; mask /= 2) {
        struct look other = {shuffle_xor(own.top, mask), shuffle_xor(own.sum, mask),
                             shuffle_xor(own.best, mask)};
        own = join(own, other);
    }
    return own;
}

/* To every thread of the block what all have seen. */
__device__ static struct look join_block(struct look own)
{
    __shared__ struct look waves[BLOCK_MOST / 32];
    own = join_wave(own);
    if (lane_index() == 0) waves[wave_index()] = own;
    __syncthreads();
    if (wave_index() == 0) {
        struct look none = {-INFINITY, 0, 0};
        own = join_wave(lane_index() < (int)blockDim.x / WAVE ? waves[lane_index()] : none);
        if (lane_index() == 0) waves[0] = own;
    }
    __syncthreads();
    return waves[0];
}

/* How a row is shared out: single logits up to a multiple of 16 bytes, vectors, single logits. */
template <typename T> struct share {
    enum { EACH = 16 / sizeof(T) };
    size_t head, vectors, tail;
    __device__ share(const T *row, size_t V)
    {
        size_t past = (uintptr_t)row % 16 / sizeof(T), left = past ? EACH - past : 0;
        head = left < V ? left : V;
        vectors = (V - head) / EACH, tail = head + vectors * EACH;
    }
};

template <typename T> __device__ static struct look look_at_row(const T *row, size_t V)
{
    enum { EACH = share<T>::EACH };
    const struct share<T> of(row, V);
    struct look s = {-INFINITY, 0, 0};
    float one[1], x[AT_ONCE][EACH];
    if (threadIdx.x < of.head) {
        load<1>(row + threadIdx.x, one);
        look_at<1>(&s, one, (int)threadIdx.x);
    }
    const size_t apart = blockDim.x;
    size_t v = threadIdx.x;
    for (; v + (AT_ONCE - 1) * apart < of.vectors; v += AT_ONCE * apart) {
        for (int i = 0; i < AT_ONCE; i++) load<EACH>(row + of.head + (v + i * apart) * EACH, x[i]);
        for (int i = 0; i < AT_ONCE; i++)
            look_at<EACH>(&s, x[i], (int)(of.head + (v + i * apart) * EACH));
    }
    for (; v < of.vectors; v += apart) {
        load<EACH>(row + of.head + v * EACH, x[0]);
        look_at<EACH>(&s, x[0], (int)(of.head + v * EACH));
    }
    if (of.tail + threadIdx.x < V) {
        load<1>(row + of.tail + threadIdx.x, one);
        look_at<1>(&s, one, (int)(of.tail + threadIdx.x));
    }
    return s;
}

/* What of a row's gradient is the same for all its logits. */
struct slope {
    float lse, scale;
    int label; /* its number in this row, or -1 */
};

/* ZEROS: whatever the logits are, which are not read then. */
template <bool ZEROS, int WIDTH, typename T>
__device__ static void put_slope(const struct slope &s, const float (&x)[WIDTH], size_t at, T *row)
{
    float d[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        d[i] = ZEROS ? 0 : (expf(x[i] - s.lse) - ((int)at + i == s.label)) * s.scale;
    store<WIDTH>(d, row + at);
}

template <bool ZEROS, typename T>
__device__ static void put_slopes(const struct slope &s, T *row, size_t V)
{
    enum { EACH = share<T>::EACH };
    const struct share<T> of(row, V);
    const size_t apart = blockDim.x, t = threadIdx.x;
    float one[1] = {}, x[AT_ONCE][EACH] = {};
    if (t < of.head) {
        if (!ZEROS) load<1>(row + t, one);
        put_slope<ZEROS, 1>(s, one, t, row);
    }
    size_t v = t;
    for (; v + (AT_ONCE - 1) * apart < of.vectors; v += AT_ONCE * apart) {
        for (int i = 0; i < AT_ONCE && !ZEROS; i++)
            load<EACH>(row + of.head + (v + i * apart) * EACH, x[i]);
        for (int i = 0; i < AT_ONCE; i++)
            put_slope<ZEROS, EACH>(s, x[i], of.head + (v + i * apart) * EACH, row);
    }
    for (; v < of.vectors; v += apart) {
        if (!ZEROS) load<EACH>(row + of.head + v * EACH, x[0]);
        put_slope<ZEROS, EACH>(s, x[0], of.head + v * EACH, row);
    }
    if (of.tail + t < V) {
        if (!ZEROS) load<1>(row + of.tail + t, one);
        put_slope<ZEROS, 1>(s, one, of.tail + t, row);
    }
}

/* As loss_join of ops/cross_entropy.c. */
__device__ static float join_parts(const struct cross_entropy &a, const float *stats_PN4, size_t n,
                                   float *chosen, int *best)
{
    float top = -INFINITY, sum = 0;
    *chosen = -INFINITY, *best = 0;
    for (size_t p = 0; p < (size_t)a.parts; p++) {
        const float *s = stats_PN4 + (p * (size_t)a.N + n) * LOSS_STATS_COUNT;
        if (s[STAT_TOP] > top) top = s[STAT_TOP], *best = (int)s[STAT_BEST];
        if (s[STAT_CHOSEN] > *chosen) *chosen = s[STAT_CHOSEN];
    }
    for (size_t p = 0; p < (size_t)a.parts; p++)
        sum += expf(stats_PN4[(p * (size_t)a.N + n) * LOSS_STATS_COUNT + STAT_LSE] - top);
    return top + logf(sum);
}

/* A row without a label has no loss and no gradient; its logits are looked at only where somebody
 * asks which is the largest. */
template <typename T>
__global__ static void __launch_bounds__(BLOCK_MOST)
    cross_entropy_kernel(struct cross_entropy a, T *logits_NV, const int32_t *labels_N,
                         float *loss_N, int32_t *best_N, float *stats_PN4)
{
    const size_t n = blockIdx.x, V = (size_t)a.V;
    const int32_t label = labels_N[n];
    const bool ignored = label == LABEL_IGNORED, joined = a.step == LOSS_JOINED;
    const bool here = !ignored && label >= a.first && label - a.first < a.V;
    T *row = logits_NV + n * V;
    float chosen = here && !joined ? to_f32(row[label - a.first]) : -INFINITY, lse = 0;
    struct look s = {-INFINITY, 0, 0};
    if (joined) {
        lse = join_parts(a, stats_PN4, n, &chosen, &s.best);
    } else if (!ignored || best_N || a.step == LOSS_STATS) {
        s = join_block(look_at_row<T>(row, V));
        s.best += a.first, lse = s.top + logf(s.sum);
    }
    if (threadIdx.x == 0 && a.step == LOSS_STATS) {
        float *stats = stats_PN4 + n * LOSS_STATS_COUNT;
        stats[STAT_LSE] = lse, stats[STAT_TOP] = s.top;
        stats[STAT_BEST] = (float)s.best, stats[STAT_CHOSEN] = chosen;
    } else if (threadIdx.x == 0) {
        if (best_N) best_N[n] = s.best;
        loss_N[n] = ignored ? 0 : lse - chosen;
    }
    if (!a.gradient || a.step == LOSS_STATS) return;
    const struct slope slope = {lse, a.scale, here ? label - a.first : -1};
    if (ignored)
        put_slopes<true, T>(slope, row, V);
    else
        put_slopes<false, T>(slope, row, V);
}

template <typename T>
static enum status run(const struct cross_entropy *a, const struct cross_entropy_io *io,
                       struct queue *on)
{
    unsigned block = block_of(ceil_div((size_t)a->V, 16 / sizeof(T)), BLOCK_MOST);
    LAUNCH(cross_entropy_kernel<T>, (unsigned)a->N, block, 0, on, *a, (T *)io->logits_NV,
           io->labels_N, io->loss_N, io->best_N, io->stats_PN4);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(cross_entropy)(const struct cross_entropy *a,
                                               const struct cross_entropy_io *io, struct queue *on)
{
    if (on->measuring) return STATUS_OK;
    return a->dtype == F32 ? run<float>(a, io, on) : run<bf16>(a, io, on);
}
