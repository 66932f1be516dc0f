/* update.c (cpu) -- one pass over flat ranges, bound by memory bandwidth. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/update.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/rounding_bits.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>

enum {
    BLOCK = 4096,          /* elements of one partial sum, and of one work item */
    PREFETCH_AHEAD = 1024, /* prefetch distance in elements */
    LINE = 32              /* elements of BF16 in a cache line */
};

static size_t blocks_of(size_t n) { return n / BLOCK + (n % BLOCK != 0); }
static size_t block_size(size_t n, size_t begin) { return n - begin < BLOCK ? n - begin : BLOCK; }

enum status KERNEL(sum_squares)(const struct sum_squares *a, const struct sum_squares_io *io,
                                struct queue *queue)
{
    size_t sums = sum_squares_count(a), blocks = blocks_of(a->n);
    size_t mark = arena_mark(&queue->scratch);
    double *parts = arena_alloc(&queue->scratch, sums * blocks, sizeof *parts);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t part = 0; part < sums * blocks; part++) {
        float copy[BLOCK];
        size_t begin = part % blocks * BLOCK, at = part / blocks * a->n + begin;
        const float *x = a->dtype == F32 ? (const float *)io->x_Sn + at : copy;
        size_t n = block_size(a->n, begin);
        double sum = 0;
        if (a->dtype != F32) vector_load(io->x_Sn, at, a->dtype, n, copy);
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        parts[part] = sum;
    }
    for (size_t s = 0; s < sums; s++) {
        double total = 0;
        for (size_t block = 0; block < blocks; block++) total += parts[s * blocks + block];
        io->sum_S[s] = total;
    }
    return STATUS_OK;
}

static void join_block(const bf16 *half, const uint16_t *low, size_t n, float *restrict w)
{
    for (size_t i = 0; i < n; i++) w[i] = split_to_f32(half[i], low[i]);
}

static void split_block(const float *restrict w, size_t n, bf16 *half, uint16_t *low)
{
    for (size_t i = 0; i < n; i++) split_from_f32(w[i], &half[i], &low[i]);
}

static void store_second_moment(const struct adamw *a, size_t begin, size_t n, const float *v,
                                bf16 *v_n)
{
    const struct random_position random = {RNG_MOMENTS, a->seed, (uint64_t)a->step,
                                           a->position, a->run,  a->stride};
    uint16_t bits[BLOCK];
    rounding_bits_fill(&random, begin, n, bits);
    for (size_t i = 0; i < n; i++) v_n[begin + i] = bf16_from_f32_stochastic(v[i], bits[i]);
}

/* Weights, moments and gradients of one block. */
struct adamw_arrays {
    float *w, *m, *v;
    const float *g;
};

/* One register's worth of elements: n, at most LANES.  Returns the new weights. */
static inline vector adamw_lanes(const struct adamw_coefficients *c, struct adamw_arrays x,
                                 size_t i, size_t n)
{
    vector g = vector_get(x.g, i, F32, n) * c->scale;
    vector m = vector_fma(vector_broadcast(c->new1), g, c->beta1 * vector_get(x.m, i, F32, n));
    vector v = vector_fma(c->new2 * g, g, c->beta2 * vector_get(x.v, i, F32, n));
    vector root = vector_fma(vector_sqrt(v), vector_broadcast(c->root), vector_broadcast(c->eps));
    vector w =
        vector_fma(vector_broadcast(c->keep), vector_get(x.w, i, F32, n), -(c->rate * m / root));
    vector_set(x.m, i, F32, n, m);
    vector_set(x.v, i, F32, n, v);
    vector_set(x.w, i, F32, n, w);
    return w;
}

/* The bf16 copy uses NT stores: it is not read before the next step. */
static size_t adamw_lines(const struct adamw_coefficients *c, struct adamw_arrays x, bf16 *copy,
                          size_t n)
{
    size_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        bf16 line[LINE] __attribute__((aligned(64)));
        for (size_t k = 0; k < LINE; k += 16) {
            vector_prefetch(x.g, i + k + PREFETCH_AHEAD, F32);
            vector_prefetch(x.w, i + k + PREFETCH_AHEAD, F32);
            vector_prefetch(x.m, i + k + PREFETCH_AHEAD, F32);
            vector_prefetch(x.v, i + k + PREFETCH_AHEAD, F32);
        }
        for (size_t k = 0; k < LINE; k += LANES)
            vector_set(line, k, BF16, LANES, adamw_lanes(c, x, i + k, LANES));
        if (copy) vector_stream_line(copy + i, line);
    }
    return i;
}

static void adamw_block(const struct adamw *a, const struct adamw_coefficients *r,
                        const struct adamw_io *io, size_t begin, size_t n)
{
    bool bf16_moments = a->moments == BF16;
    float joined[BLOCK], first[BLOCK], second[BLOCK], widened[BLOCK];
    float *w = a->split ? joined : io->w_n + begin;
    float *m = bf16_moments ? first : (float *)io->m_n + begin;
    float *v = bf16_moments ? second : (float *)io->v_n + begin;
    const float *g = a->gradients == F32 ? (const float *)io->g_n + begin : widened;
    const struct adamw_arrays x = {w, m, v, g};
    const struct adamw_coefficients c = *r;
    bool has_copy = !a->split && io->copy_n;
    bf16 *copy = has_copy && a->copy_dtype == BF16 ? (bf16 *)io->copy_n + begin : NULL;
    bool nt_store = copy && vector_is_aligned(copy);
    if (a->split) join_block((bf16 *)io->copy_n + begin, io->low_n + begin, n, w);
    if (a->gradients != F32) vector_load(io->g_n, begin, a->gradients, n, widened);
    if (bf16_moments)
        vector_load(io->m_n, begin, BF16, n, m), vector_load(io->v_n, begin, BF16, n, v);
    size_t done = adamw_lines(&c, x, nt_store ? copy : NULL, n);
    for (size_t i = done; i < n; i += LANES)
        (void)adamw_lanes(&c, x, i, n - i < LANES ? n - i : LANES);
    if (bf16_moments)
        vector_store(io->m_n, begin, BF16, n, m), store_second_moment(a, begin, n, v, io->v_n);
    if (a->split)
        split_block(w, n, (bf16 *)io->copy_n + begin, io->low_n + begin);
    else if (nt_store)
        vector_store(copy, done, BF16, n - done, w + done);
    else if (has_copy)
        vector_store(io->copy_n, begin, a->copy_dtype, n, w);
    if (nt_store) vector_stream_fence();
}

enum status KERNEL(adamw)(const struct adamw *a, const struct adamw_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    const struct adamw_coefficients r = adamw_coefficients_of(a);
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++)
        adamw_block(a, &r, io, block * BLOCK, block_size(a->n, block * BLOCK));
    return STATUS_OK;
}

/* n: at most LANES. */
static inline void axpby_lanes(const struct axpby *a, const struct axpby_io *io, size_t at,
                               size_t n)
{
    vector x = vector_get(io->x_n, at, F32, n), z = {0};
    if (a->beta != 0) z = (float)a->beta * vector_get(io->y_n, at, F32, n);
    vector_set(io->z_n, at, F32, n, vector_fma(vector_broadcast((float)a->alpha), x, z));
}

static void axpby_block(const struct axpby *a, const struct axpby_io *io, size_t begin, size_t n)
{
    const struct axpby op = *a;
    const struct axpby_io x = *io;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) axpby_lanes(&op, &x, begin + i, LANES);
    if (i < n) axpby_lanes(&op, &x, begin + i, n - i);
}

enum status KERNEL(axpby)(const struct axpby *a, const struct axpby_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++)
        axpby_block(a, io, block * BLOCK, block_size(a->n, block * BLOCK));
    return STATUS_OK;
}

enum status KERNEL(divide_by_norm)(const struct divide_by_norm *a,
                                   const struct divide_by_norm_io *io, struct queue *queue)
{
    double squares;
    const struct sum_squares all = {.n = a->n};
    TRY(KERNEL(sum_squares)(&all, &(struct sum_squares_io){io->x_n, &squares}, queue));
    if (queue->sizing) return STATUS_OK;
    const float factor = (float)(1 / fmax(sqrt(squares), a->min_norm));
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        float y[BLOCK];
        size_t begin = block * BLOCK, n = block_size(a->n, begin);
        for (size_t i = 0; i < n; i++) y[i] = factor * io->x_n[begin + i];
        vector_store(io->y_n, begin, a->to, n, y);
    }
    return STATUS_OK;
}

/* One row; its element on the diagonal is computed apart, before x is replaced. */
static void matrix_polynomial_row(const struct matrix_polynomial *p,
                                  const struct matrix_polynomial_io *io, size_t row)
{
    const size_t n = (size_t)p->n, begin = row * n, at = begin + row;
    const vector b = vector_broadcast((float)p->b), c = vector_broadcast((float)p->c);
    const vector one = vector_fma(c, vector_get(io->square_nn, at, F32, 1),
                                  b * vector_get(io->x_nn, at, p->dtype, 1));
    for (size_t i = begin, left = n; left; i += LANES, left -= left < LANES ? left : LANES) {
        size_t some = left < LANES ? left : LANES;
        vector x = vector_get(io->x_nn, i, p->dtype, some);
        vector_set(io->x_nn, i, p->dtype, some,
                   vector_fma(c, vector_get(io->square_nn, i, F32, some), b * x));
    }
    vector_set(io->x_nn, at, p->dtype, 1, one + vector_broadcast((float)p->a));
}

enum status KERNEL(matrix_polynomial)(const struct matrix_polynomial *p,
                                      const struct matrix_polynomial_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t row = 0; row < (size_t)p->n; row++) matrix_polynomial_row(p, io, row);
    return STATUS_OK;
}

/* w = keep w - rate u; n: at most LANES. */
static inline void update_lanes(float keep, float rate, float *w, const float *u, size_t n)
{
    vector step = rate * vector_get(u, 0, F32, n);
    vector_set(w, 0, F32, n, vector_fma(vector_broadcast(keep), vector_get(w, 0, F32, n), -step));
}

static void apply_update_block(const struct apply_update *a, const struct apply_update_io *io,
                               size_t begin, size_t n)
{
    float joined[BLOCK], *w = a->split ? joined : io->w_n + begin;
    const float *u = io->u_n + begin;
    float keep = (float)a->keep, rate = (float)a->rate;
    size_t i = 0;
    if (a->split) join_block((bf16 *)io->copy_n + begin, io->low_n + begin, n, w);
    for (; i + LANES <= n; i += LANES) update_lanes(keep, rate, w + i, u + i, LANES);
    if (i < n) update_lanes(keep, rate, w + i, u + i, n - i);
    if (a->split)
        split_block(w, n, (bf16 *)io->copy_n + begin, io->low_n + begin);
    else if (io->copy_n)
        vector_store(io->copy_n, begin, a->copy_dtype, n, w);
}

enum status KERNEL(apply_update)(const struct apply_update *a, const struct apply_update_io *io,
                                 struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++)
        apply_update_block(a, io, block * BLOCK, block_size(a->n, block * BLOCK));
    return STATUS_OK;
}

/* n: at most LANES. */
static inline void ema_lanes(float rate, const float *w, float *ema, size_t n)
{
    vector old = vector_get(ema, 0, F32, n), rates = vector_broadcast(rate);
    vector_set(ema, 0, F32, n, vector_fma(rates, vector_get(w, 0, F32, n) - old, old));
}

static void update_ema_block(const struct update_ema *a, const struct update_ema_io *io,
                             size_t begin, size_t n)
{
    float joined[BLOCK], *ema = io->ema_n + begin, rate = (float)(1 - a->decay);
    const float *w = a->split ? joined : io->w_n + begin;
    size_t i = 0;
    if (a->split) join_block(io->half_n + begin, io->low_n + begin, n, joined);
    for (; i + LANES <= n; i += LANES) ema_lanes(rate, w + i, ema + i, LANES);
    if (i < n) ema_lanes(rate, w + i, ema + i, n - i);
}

enum status KERNEL(update_ema)(const struct update_ema *a, const struct update_ema_io *io,
                               struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++)
        update_ema_block(a, io, block * BLOCK, block_size(a->n, block * BLOCK));
    return STATUS_OK;
}

/* Copies line by line.  Prefetches the destination as well: it is read again soon. */
static void copy_block(const struct cast_io *io, size_t from, size_t to, size_t n, enum dtype dtype)
{
    size_t each = dtype_bytes(dtype), line = 64 / each;
    for (size_t i = 0; i < n; i += line) {
        vector_prefetch(io->x_n, from + i + PREFETCH_AHEAD, dtype);
        vector_prefetch(io->y_n, to + i + PREFETCH_AHEAD, dtype);
        const char *x = (const char *)io->x_n + (from + i) * each;
        char *y = (char *)io->y_n + (to + i) * each;
        if (i + line <= n)
            memcpy(y, x, 64);
        else
            memcpy(y, x, (n - i) * each);
    }
}

enum status KERNEL(cast)(const struct cast *a, const struct cast_io *io, struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = blocks_of(a->n), rows = a->rows ? a->rows : 1;
    const float scale = cast_scale(a);
    const bool scales = scale < 1 || scale > 1;
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < rows * blocks; block++) {
        size_t row = block / blocks, begin = block % blocks * BLOCK, n = block_size(a->n, begin);
        size_t from = row * a->from_stride + begin, to = row * a->to_stride + begin;
        float x[BLOCK], old[BLOCK];
        if (a->from == a->to && !a->accumulate && !scales) {
            copy_block(io, from, to, n, a->to);
            continue;
        }
        vector_load(io->x_n, from, a->from, n, x);
        if (scales)
            for (size_t i = 0; i < n; i++) x[i] *= scale;
        if (a->accumulate) {
            vector_load(io->y_n, to, a->to, n, old);
            for (size_t i = 0; i < n; i++) x[i] += old[i];
        }
        vector_store(io->y_n, to, a->to, n, x);
    }
    return STATUS_OK;
}

enum status KERNEL(unsplit)(const struct unsplit *a, const struct unsplit_io *io,
                            struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    size_t blocks = blocks_of(a->n);
#pragma omp parallel for schedule(static) num_threads(queue->num_threads)
    for (size_t block = 0; block < blocks; block++) {
        size_t at = block * BLOCK;
        join_block(io->half_n + at, io->low_n + at, block_size(a->n, at), io->y_n + at);
    }
    return STATUS_OK;
}
