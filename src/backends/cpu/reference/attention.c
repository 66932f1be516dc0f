/* attention.c (cpu reference) -- the plain loops that every other attention kernel is tested
 * against. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/element.h"

#include <math.h>

#define get element_get
#define set element_set

/* Keys [begin, end) that are visible to query t of row b. */
struct visible_range {
    size_t begin, end;
};

static struct visible_range visible_range_of(const struct attention *a, const int32_t *start,
                                             const int32_t *end, size_t b, size_t t)
{
    size_t T = (size_t)a->T, S = (size_t)a->S, position = t + S - T;
    struct visible_range r = {0, S};
    if (start) r = (struct visible_range){(size_t)start[b * T + t], (size_t)end[b * T + t]};
    size_t hidden =
        a->window && position + 1 > (size_t)a->window ? position + 1 - (size_t)a->window : 0;
    if (a->causal && r.end > position + 1) r.end = position + 1;
    if (r.begin < hidden) r.begin = hidden;
    return r;
}

/* Offsets of a query row, a key or value row, and a row of `out`. */
static size_t query_offset(const struct attention *a, size_t b, size_t t, size_t h)
{
    return (b * (size_t)a->T + t) * a->q_stride + h * (size_t)a->K;
}

static size_t key_offset(const struct attention *a, size_t b, size_t s, size_t h)
{
    size_t g = h / ((size_t)a->H / (size_t)a->G);
    return (b * (size_t)a->S + s) * a->kv_stride + g * (size_t)a->K;
}

static size_t out_offset(const struct attention *a, size_t b, size_t t, size_t h)
{
    return ((b * (size_t)a->T + t) * (size_t)a->H + h) * (size_t)a->K;
}

static enum dtype result_dtype(const struct attention *a) { return a->keys ? F32 : a->dtype; }

static float dot(const struct attention *a, const void *x, size_t i, const void *y, size_t j)
{
    float sum = 0;
    for (size_t k = 0; k < (size_t)a->K; k++)
        sum += get(x, i + k, a->dtype) * get(y, j + k, a->dtype);
    return sum;
}

/* Elements of a row that are summed at once, from element k0 of K: each with a sum of its own. */
enum { MAX_SUMS = 64 };
static size_t sums_from(const struct attention *a, size_t k0)
{
    size_t left = (size_t)a->K - k0;
    return left < MAX_SUMS ? left : MAX_SUMS;
}

static void attend_row(const struct attention *a, const struct attention_fwd *io, size_t b,
                       size_t t, size_t h)
{
    struct visible_range keys = visible_range_of(a, io->start_BT, io->end_BT, b, t);
    size_t q = query_offset(a, b, t, h), out = out_offset(a, b, t, h);
    float row_max = -INFINITY, sum = 0;
    for (size_t s = keys.begin; s < keys.end; s++)
        row_max =
            fmaxf(row_max, a->scale * dot(a, io->q_BTHK, q, io->k_BSGK, key_offset(a, b, s, h)));
    for (size_t s = keys.begin; s < keys.end; s++)
        sum += expf(a->scale * dot(a, io->q_BTHK, q, io->k_BSGK, key_offset(a, b, s, h)) - row_max);
    float *row = io->lse_BHT + (b * (size_t)a->H + h) * (size_t)a->T + t;
    float old_lse = a->keys == MORE_KEYS ? *row : -INFINITY,
          lse = lse_merge(old_lse, row_max + logf(sum));
    float old_scale = old_lse == -INFINITY ? 0 : expf(old_lse - lse);
    for (size_t k0 = 0; k0 < (size_t)a->K; k0 += MAX_SUMS) {
        const size_t count = sums_from(a, k0);
        float value[MAX_SUMS];
        for (size_t k = 0; k < count; k++)
            value[k] = old_scale != 0 ? old_scale * get(io->out_BTHK, out + k0 + k, F32) : 0;
        for (size_t s = keys.begin; s < keys.end; s++) {
            size_t key = key_offset(a, b, s, h);
            float p = expf(a->scale * dot(a, io->q_BTHK, q, io->k_BSGK, key) - lse);
            for (size_t k = 0; k < count; k++)
                value[k] += p * get(io->v_BSGK, key + k0 + k, a->dtype);
        }
        for (size_t k = 0; k < count; k++)
            set(io->out_BTHK, out + k0 + k, result_dtype(a), value[k]);
    }
    *row = lse;
}

enum status reference_attention_forward(const struct attention *a, const struct attention_fwd *io,
                                        struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    for (size_t b = 0; b < (size_t)a->B; b++)
        for (size_t t = 0; t < (size_t)a->T; t++)
            for (size_t h = 0; h < (size_t)a->H; h++) attend_row(a, io, b, t, h);
    return STATUS_OK;
}

/* p = exp(scale q.k - lse), dp = dout.v, delta = dout.out, ds = scale p (dp - delta). */
struct score_gradient {
    float p, ds;
};

struct score_position {
    size_t b, t, s, h;
};

static struct score_gradient score_gradient_of(const struct attention *a,
                                               const struct attention_bwd *io,
                                               struct score_position at)
{
    size_t q = query_offset(a, at.b, at.t, at.h), key = key_offset(a, at.b, at.s, at.h);
    size_t out = out_offset(a, at.b, at.t, at.h);
    float lse = io->lse_BHT[(at.b * (size_t)a->H + at.h) * (size_t)a->T + at.t];
    float p = expf(a->scale * dot(a, io->q_BTHK, q, io->k_BSGK, key) - lse);
    float dp = dot(a, io->dout_BTHK, out, io->v_BSGK, key);
    float delta = dot(a, io->dout_BTHK, out, io->out_BTHK, out);
    return (struct score_gradient){p, a->scale * p * (dp - delta)};
}

/* Each gradient element is one f32 sum over a whole row or column. */
static void query_gradient(const struct attention *a, const struct attention_bwd *io, size_t b,
                           size_t t, size_t h)
{
    struct visible_range keys = visible_range_of(a, io->start_BT, io->end_BT, b, t);
    size_t to = a->keys ? out_offset(a, b, t, h) : query_offset(a, b, t, h);
    for (size_t k0 = 0; k0 < (size_t)a->K; k0 += MAX_SUMS) {
        const size_t count = sums_from(a, k0);
        float dq[MAX_SUMS];
        for (size_t k = 0; k < count; k++)
            dq[k] = a->keys == MORE_KEYS ? get(io->dq_BTHK, to + k0 + k, F32) : 0;
        for (size_t s = keys.begin; s < keys.end; s++) {
            float ds = score_gradient_of(a, io, (struct score_position){b, t, s, h}).ds;
            size_t key = key_offset(a, b, s, h) + k0;
            for (size_t k = 0; k < count; k++) dq[k] += ds * get(io->k_BSGK, key + k, a->dtype);
        }
        for (size_t k = 0; k < count; k++) set(io->dq_BTHK, to + k0 + k, result_dtype(a), dq[k]);
    }
}

static void key_gradient(const struct attention *a, const struct attention_bwd *io, size_t b,
                         size_t s, size_t g)
{
    size_t heads_per_group = (size_t)a->H / (size_t)a->G,
           at = key_offset(a, b, s, g * heads_per_group);
    for (size_t k0 = 0; k0 < (size_t)a->K; k0 += MAX_SUMS) {
        const size_t count = sums_from(a, k0);
        float dk[MAX_SUMS] = {0}, dv[MAX_SUMS] = {0};
        for (size_t h = g * heads_per_group; h < (g + 1) * heads_per_group; h++)
            for (size_t t = 0; t < (size_t)a->T; t++) {
                struct visible_range keys = visible_range_of(a, io->start_BT, io->end_BT, b, t);
                if (s < keys.begin || s >= keys.end) continue;
                struct score_gradient x =
                    score_gradient_of(a, io, (struct score_position){b, t, s, h});
                size_t q = query_offset(a, b, t, h) + k0, out = out_offset(a, b, t, h) + k0;
                for (size_t k = 0; k < count; k++) {
                    dk[k] += x.ds * get(io->q_BTHK, q + k, a->dtype);
                    dv[k] += x.p * get(io->dout_BTHK, out + k, a->dtype);
                }
            }
        for (size_t k = 0; k < count; k++) {
            set(io->dk_BSGK, at + k0 + k, result_dtype(a), dk[k]);
            set(io->dv_BSGK, at + k0 + k, result_dtype(a), dv[k]);
        }
    }
}

enum status reference_attention_backward(const struct attention *a, const struct attention_bwd *io,
                                         struct queue *queue)
{
    if (queue->sizing) return STATUS_OK;
    for (size_t b = 0; b < (size_t)a->B; b++) {
        for (size_t t = 0; t < (size_t)a->T; t++)
            for (size_t h = 0; h < (size_t)a->H; h++) query_gradient(a, io, b, t, h);
        for (size_t s = 0; s < (size_t)a->S; s++)
            for (size_t g = 0; g < (size_t)a->G; g++) key_gradient(a, io, b, s, g);
    }
    return STATUS_OK;
}
