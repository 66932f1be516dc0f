/* cross_entropy.cu -- a block per row of logits: one pass for softmax statistics (online softmax),
 * a second pass that replaces the logits with their gradient.
 *
 * Order    A thread reads its logits in ascending order and rescales its sum of exp(x - max) when
 *          it finds a new maximum; then lanes are merged, then warps.
 * Bytes    2 N V e to read, N V e to write the gradient.  The second pass goes backwards, so that
 *          it first reads what the first pass has read last, which is in L2.
 * Sources  Milakov and Gimelshein 2018 (online softmax) */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/kernels/kernel.h"

extern "C" {
#include "ops/cross_entropy.h"
}

enum { UNROLLED = 4 }; /* vectors that a thread loads before it uses the first */
enum { MAX_THREADS = 512, MIN_BLOCKS = 2 }; /* MIN_BLOCKS: per multiprocessor */

/* Of some logits: their maximum, the lowest index that has it, and the sum of exp(x - max). */
struct softmax_stats {
    float max, sum;
    int argmax;
};

/* Avoids -inf - -inf = NaN; exp(-inf - 0) is 0, as it should be. */
__device__ static float finite_max(float max) { return max == -INFINITY ? 0 : max; }

template <int WIDTH>
__device__ static void update_stats(struct softmax_stats *s, const float (&x)[WIDTH], int first)
{
    const float before = s->max;
    for (int i = 0; i < WIDTH; i++)
        if (x[i] > s->max) s->max = x[i], s->argmax = first + i;
    const float max = finite_max(s->max);
    if (s->max > before) s->sum *= expf(before - max);
    for (int i = 0; i < WIDTH; i++) s->sum += expf(x[i] - max);
}

__device__ static struct softmax_stats merge(struct softmax_stats a, struct softmax_stats b)
{
    struct softmax_stats both = {a.max > b.max ? a.max : b.max, 0,
                                 a.argmax < b.argmax ? a.argmax : b.argmax};
    if (a.max != b.max) both.argmax = a.max > b.max ? a.argmax : b.argmax;
    const float max = finite_max(both.max);
    both.sum = a.sum * expf(a.max - max) + b.sum * expf(b.max - max);
    return both;
}

__device__ static struct softmax_stats merge_warp(struct softmax_stats stats)
{
    for (int mask = WARP_SIZE / 2; mask; mask /= 2) {
        struct softmax_stats other = {shuffle_xor(stats.max, mask), shuffle_xor(stats.sum, mask),
                                      shuffle_xor(stats.argmax, mask)};
        stats = merge(stats, other);
    }
    return stats;
}

/* Returns the statistics of all threads of the block to each of them. */
__device__ static struct softmax_stats merge_block(struct softmax_stats stats)
{
    __shared__ struct softmax_stats warps[MAX_THREADS / 32];
    stats = merge_warp(stats);
    if (lane_index() == 0) warps[warp_index()] = stats;
    __syncthreads();
    if (warp_index() == 0) {
        struct softmax_stats none = {-INFINITY, 0, 0};
        stats = merge_warp(lane_index() < (int)blockDim.x / WARP_SIZE ? warps[lane_index()] : none);
        if (lane_index() == 0) warps[0] = stats;
    }
    __syncthreads();
    return warps[0];
}

/* A row whose start need not be aligned: single elements up to a 16-byte boundary (head), vectors,
 * single elements (tail). */
template <typename T> struct vector_split {
    enum { VECTOR = 16 / sizeof(T) };
    size_t head, vectors, tail;
    __device__ vector_split(const T *row, size_t V)
    {
        size_t past = (uintptr_t)row % 16 / sizeof(T), left = past ? VECTOR - past : 0;
        head = left < V ? left : V;
        vectors = (V - head) / VECTOR, tail = head + vectors * VECTOR;
    }
};

template <typename T> __device__ static struct softmax_stats row_stats(const T *row, size_t V)
{
    enum { VECTOR = vector_split<T>::VECTOR };
    const struct vector_split<T> split(row, V);
    struct softmax_stats s = {-INFINITY, 0, 0};
    float one[1], x[UNROLLED][VECTOR];
    if (threadIdx.x < split.head) {
        load<1>(row + threadIdx.x, one);
        update_stats<1>(&s, one, (int)threadIdx.x);
    }
    const size_t stride = blockDim.x;
    size_t v = threadIdx.x;
    for (; v + (UNROLLED - 1) * stride < split.vectors; v += UNROLLED * stride) {
        for (int i = 0; i < UNROLLED; i++)
            load<VECTOR>(row + split.head + (v + i * stride) * VECTOR, x[i]);
        for (int i = 0; i < UNROLLED; i++)
            update_stats<VECTOR>(&s, x[i], (int)(split.head + (v + i * stride) * VECTOR));
    }
    for (; v < split.vectors; v += stride) {
        load<VECTOR>(row + split.head + v * VECTOR, x[0]);
        update_stats<VECTOR>(&s, x[0], (int)(split.head + v * VECTOR));
    }
    if (split.tail + threadIdx.x < V) {
        load<1>(row + split.tail + threadIdx.x, one);
        update_stats<1>(&s, one, (int)(split.tail + threadIdx.x));
    }
    return s;
}

/* What all elements of a row's gradient have in common. */
struct row_gradient {
    float lse, scale, z_factor; /* z_factor: of cross_entropy_z_factor */
    int label;                  /* its index in this row, or -1 */
};

/* ZEROS: writes zeros without reading the logits. */
template <bool ZEROS, int WIDTH, typename T>
__device__ static void store_gradient_vector(const struct row_gradient &s, const float (&x)[WIDTH],
                                             size_t at, T *row)
{
    float d[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        d[i] = ZEROS ? 0 : (expf(x[i] - s.lse) * s.z_factor - ((int)at + i == s.label)) * s.scale;
    store<WIDTH>(d, row + at);
}

template <bool ZEROS, typename T>
__device__ static void store_gradient(const struct row_gradient &s, T *row, size_t V)
{
    enum { VECTOR = vector_split<T>::VECTOR };
    const struct vector_split<T> split(row, V);
    const size_t stride = blockDim.x, t = threadIdx.x;
    float one[1] = {}, x[UNROLLED][VECTOR] = {};
    if (t < split.head) {
        if (!ZEROS) load<1>(row + t, one);
        store_gradient_vector<ZEROS, 1>(s, one, t, row);
    }
    if (split.tail + t < V) {
        if (!ZEROS) load<1>(row + split.tail + t, one);
        store_gradient_vector<ZEROS, 1>(s, one, split.tail + t, row);
    }
    size_t mine = split.vectors > t ? (split.vectors - t - 1) / stride + 1 : 0; /* t + i stride */
    for (; mine % UNROLLED; mine--) {
        const size_t at = split.head + (t + (mine - 1) * stride) * VECTOR;
        if (!ZEROS) load<VECTOR>(row + at, x[0]);
        store_gradient_vector<ZEROS, VECTOR>(s, x[0], at, row);
    }
    for (; mine; mine -= UNROLLED) {
        const size_t v = t + (mine - UNROLLED) * stride;
        for (int i = 0; i < UNROLLED && !ZEROS; i++)
            load<VECTOR>(row + split.head + (v + i * stride) * VECTOR, x[i]);
        for (int i = 0; i < UNROLLED; i++)
            store_gradient_vector<ZEROS, VECTOR>(s, x[i], split.head + (v + i * stride) * VECTOR,
                                                 row);
    }
}

/* Merges the statistics of a vocabulary split over ranks, as cross_entropy_merge of
 * ops/cross_entropy.c. */
__device__ static float merge_parts(const struct cross_entropy &a, const float *stats_PN4, size_t n,
                                    float *label_logit, int *argmax)
{
    float max = -INFINITY, sum = 0;
    *label_logit = -INFINITY, *argmax = 0;
    for (size_t p = 0; p < (size_t)a.parts; p++) {
        const float *s = stats_PN4 + (p * (size_t)a.N + n) * LOSS_STATS_COUNT;
        if (s[STAT_MAX] > max) max = s[STAT_MAX], *argmax = (int)s[STAT_ARGMAX];
        if (s[STAT_LABEL] > *label_logit) *label_logit = s[STAT_LABEL];
    }
    for (size_t p = 0; p < (size_t)a.parts; p++)
        sum += expf(stats_PN4[(p * (size_t)a.N + n) * LOSS_STATS_COUNT + STAT_LSE] - max);
    return max + logf(sum);
}

/* A row with the ignored label has no loss and no gradient; its logits are only read if the caller
 * needs their argmax. */
template <typename T>
__global__ static void __launch_bounds__(MAX_THREADS, MIN_BLOCKS)
    cross_entropy_kernel(struct cross_entropy a, T *logits_NV, const int32_t *labels_N,
                         float *loss_N, int32_t *argmax_N, float *stats_PN4, const float *weight_N,
                         const float *scale_1)
{
    const size_t n = blockIdx.x, V = (size_t)a.V;
    const int32_t label = labels_N[n];
    const bool ignored = label == LABEL_IGNORED, is_merged = a.step == LOSS_FROM_STATS;
    const bool has_label = !ignored && label >= a.first && label - a.first < a.V;
    const size_t row_size = (size_t)(a.row ? a.row : a.V);
    const float weight = weight_N ? weight_N[n] : 1;
    T *row = logits_NV + n * row_size;
    float label_logit = has_label && !is_merged ? to_f32(row[label - a.first]) : -INFINITY, lse = 0;
    struct softmax_stats s = {-INFINITY, 0, 0};
    if (is_merged) {
        lse = merge_parts(a, stats_PN4, n, &label_logit, &s.argmax);
    } else if (!ignored || argmax_N || a.step == LOSS_STATS) {
        s = merge_block(row_stats<T>(row, V));
        s.argmax += a.first, lse = s.max + logf(s.sum);
    }
    if (threadIdx.x == 0 && a.step == LOSS_STATS) {
        float *stats = stats_PN4 + n * LOSS_STATS_COUNT;
        stats[STAT_LSE] = lse, stats[STAT_MAX] = s.max;
        stats[STAT_ARGMAX] = (float)s.argmax, stats[STAT_LABEL] = label_logit;
    } else if (threadIdx.x == 0) {
        if (argmax_N) argmax_N[n] = s.argmax;
        loss_N[n] = ignored ? 0 : (lse - label_logit) * weight;
    }
    if (!a.gradient || a.step == LOSS_STATS) return;
    const float scale = scale_1 ? *scale_1 : a.scale;
    const struct row_gradient gradient = {lse, scale * weight,
                                          a.z_loss > 0 ? 1 + 2 * a.z_loss * lse : 1,
                                          has_label ? label - a.first : -1};
    if (ignored)
        store_gradient<true, T>(gradient, row, V);
    else
        store_gradient<false, T>(gradient, row, V);
    const float zero[1] = {};
    for (size_t v = V + threadIdx.x; v < row_size; v += blockDim.x) store<1>(zero, row + v);
}

template <typename T>
static enum status launch(const struct cross_entropy *a, const struct cross_entropy_io *io,
                          struct queue *queue)
{
    unsigned threads = block_size(ceil_div((size_t)a->V, 16 / sizeof(T)), MAX_THREADS);
    LAUNCH(cross_entropy_kernel<T>, (unsigned)a->N, threads, 0, queue, *a, (T *)io->logits_NV,
           io->labels_N, io->loss_N, io->argmax_N, io->stats_PN4, io->weight_N, io->scale_1);
    return STATUS_OK;
}

extern "C" enum status GPU_NAME(cross_entropy)(const struct cross_entropy *a,
                                               const struct cross_entropy_io *io,
                                               struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    return a->dtype == F32 ? launch<float>(a, io, queue) : launch<bf16>(a, io, queue);
}
