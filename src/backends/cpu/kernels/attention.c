/* attention.c (cpu) -- flash attention (Dao et al. 2022, alg. 1; Dao 2023, alg. 2) on panels.
 *
 * Scores are computed transposed, S^T = K q^T: a row is a key, a lane is a query, so that the top
 * and the sum of a query need no sums across lanes, and exp(S^T) is already the right operand of
 * out^T = v^T exp(S^T).  32 keys meet 32 queries in one product of panels; T x T is never stored.
 * Order    Forward: a panel of queries passes over its keys in order.  Backward: one task owns a
 *          key/value head of a row and passes over query heads, queries, keys in order.  Neither
 *          depends on the number of threads.
 * Memory   Forward packs the keys and values of one row, once for all its queries.  Backward takes
 *          about 14 (F32: 20) bytes for each element of a head's keys in each thread.
 * Tiles    Where there are some, products lie between the rows that are softened: attention_pass.h,
 *          attention_back.h, attention_soften.h.
 * Limits   With fewer key/value heads times rows than threads, backward leaves threads idle.  On
 *          tiles, backward waits for panels from the second cache.
 * Speed    `llamero bench` on Zen 5, two threads, T=1024, K=64, causal: forward 47 %, backward 65 %
 *          of the bf16 register peak; less where a head's keys and values outgrow the second cache
 *          (from T=8192).  AMX, two threads, causal, of 6.25 TFLOP/s that a burst reaches on rested
 *          cores: T=1024, K=64 forward 21 %, backward 22 %; T=2048, K=64 27 and 25 %, K=128 37 and
 *          26 %.  Right after these kernels a burst reaches a fifth less, and the shares of that
 *          are larger: a comparison wants times, not shares. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "backends/cpu/kernels/attention_few.h"
#include "backends/cpu/kernels/attention_pack.h"
#include "backends/cpu/kernels/attention_pass.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

_Static_assert((int)GROUP == (int)PASS_GROUP, "buffers are of GROUP panels");
_Static_assert((int)FEW_QUERIES < (int)PANEL, "attention_few knows rows only");

/* One thread's buffers: a panel of queries meets GROUP panels of keys. */
struct forward {
    float *scores;        /* [GROUP][32 keys][32 queries] */
    float *out;           /* [widths][32 of K][32 queries] */
    void *queries, *odds; /* [widths] and [2 GROUP] steps of right panels */
    float top[PANEL], sum[PANEL];
};

/* Between threads' buffers lies a page: processors read ahead past the end of one, and would take
 * from another what that is writing. */
static size_t forward_bytes(const struct plan *p)
{
    enum { APART = 4096 };
    return (GROUP + p->widths) * SUMS * sizeof(float) + (2 * GROUP + p->widths) * p->step + APART;
}

static struct forward forward_at(const struct plan *p, char *at)
{
    struct forward f = {.scores = (float *)at, .out = (float *)at + GROUP * SUMS};
    f.queries = f.out + p->widths * SUMS;
    f.odds = (char *)f.queries + p->widths * p->step;
    for (size_t i = 0; i < PANEL; i++) f.top[i] = -1e30f;
    memset(f.out, 0, p->widths * SUMS * sizeof *f.out);
    return f;
}

/* The top of each query's scores so far.  Sums stay relative to the old top until a new one is so
 * far above it that numbers might grow large. */
static void raise_top(const struct plan *p, struct forward *f, size_t count)
{
    enum { FAR = 8 };
    float top[PANEL], keep[PANEL];
    int higher = 0;
    memcpy(top, f->top, sizeof top);
    for (size_t k = 0; k < count * PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            float x = f->scores[k * PANEL + i];
            top[i] = x > top[i] ? x : top[i];
        }
    for (size_t i = 0; i < PANEL; i++) higher |= top[i] > f->top[i] + FAR;
    if (!higher) return;
    for (size_t i = 0; i < PANEL; i++) keep[i] = vector_exp(f->top[i] - top[i]);
    for (size_t i = 0; i < PANEL; i++) f->sum[i] *= keep[i], f->top[i] = top[i];
    for (size_t k = 0; k < p->widths * PANEL; k++)
        for (size_t i = 0; i < PANEL; i++) f->out[k * PANEL + i] *= keep[i];
}

/* Scores to e^(score - top), as steps of a right panel; their sums. */
static inline void soften(struct forward *f, enum panel_kind kind, enum dtype dtype, size_t count)
{
    float sum[PANEL] = {0};
    for (size_t k = 0; k < count * PANEL; k += 2) {
        float *low = f->scores + k * PANEL, *high = low + PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            low[i] = vector_exp_for(dtype, low[i] - f->top[i]);
            high[i] = vector_exp_for(dtype, high[i] - f->top[i]);
            sum[i] += low[i] + high[i];
        }
        if (kind == PAIRS)
            put_pair(low, high, k % PANEL / 2, (uint32_t *)f->odds + k / PANEL * (SUMS / 2));
    }
    for (size_t i = 0; i < PANEL; i++) f->sum[i] += sum[i];
}

/* The panel of queries meets panels of keys [first, first + count). */
static void meet(const struct plan *p, struct forward *f, const struct sight *s, const char *keys,
                 const char *values, size_t first, size_t count)
{
    float factor = p->a->scale;
    for (size_t i = 0; i < count; i++) {
        float *scores = f->scores + i * SUMS;
        struct left_panel k = panel_packed(p->kind, keys + (first + i) * p->widths * p->step);
        KERNEL(panel_multiply)(p->kind, p->widths, k, f->queries, scores, false);
        for (size_t n = 0; n < SUMS; n++) scores[n] *= factor;
        mask(s, first + i, scores);
    }
    raise_top(p, f, count);
    if (p->a->dtype == F32)
        soften(f, FLOATS, F32, count);
    else if (p->kind == FLOATS)
        soften(f, FLOATS, BF16, count);
    else
        soften(f, PAIRS, BF16, count);
    const void *odds = p->kind == PAIRS ? f->odds : f->scores;
    for (size_t w = 0; w < p->widths; w++) {
        struct left_panel v = panel_packed(p->kind, values + (w * p->keys + first) * p->step);
        KERNEL(panel_multiply)(p->kind, count, v, odds, f->out + w * SUMS, true);
    }
}

/* The same with all panels of keys that it sees, where there are tiles. */
static void pass(const struct plan *p, struct forward *f, const struct sight *s, const char *keys,
                 const char *values, const struct ahead *ahead)
{
    size_t begin = (size_t)s->some_begin / PANEL, end = panels_of((size_t)s->some_end);
    const float log_2 = 0.693147181f;
    struct pass on = {.widths = p->widths,
                      .keys = p->keys,
                      .left = keys,
                      .values = values,
                      .queries = f->queries,
                      .scores = f->scores,
                      .odds = f->odds,
                      .out = f->out,
                      .factor = p->a->scale / log_2,
                      .ahead = *ahead};
    memcpy(on.top, f->top, sizeof on.top);
    memset(on.sum, 0, sizeof on.sum);
    KERNEL(attention_pass)(&on, s, begin, end);
    memcpy(f->sum, on.sum, sizeof f->sum);
    for (size_t i = 0; i < PANEL; i++) f->top[i] = on.top[i] * p->a->scale + on.room * log_2;
}

/* What a row's queries read: packed keys and values of all its key/value heads. */
struct packed {
    char *keys, *values;
};

static void pack_row(const struct plan *p, const struct attention_fwd *io, const struct packed *to,
                     size_t b)
{
    const struct attention *a = p->a;
    size_t head = p->keys * p->widths * p->step, S = (size_t)a->S;
#pragma omp for schedule(static)
    for (size_t g = 0; g < (size_t)a->G; g++) {
        size_t v_at = key_at(p, b, g, a->v_column);
        struct lines v = rows(p, io->v_BSGK, v_at, a->kv_stride, S, true);
        KERNEL(attention_pack_keys)
        (p, io->k_BSGK, key_at(p, b, g, a->k_column), to->keys + g * head);
        KERNEL(panel_pack)(&v, p->left, 0, p->widths, to->values + g * head);
    }
}

/* A panel's out and lse, joined with those of the keys before where there are some. */
static void put_out(const struct plan *p, const struct attention_fwd *io, struct forward *f,
                    size_t b, size_t h, size_t first, size_t count)
{
    const struct attention *a = p->a;
    bool more = a->keys == MORE_KEYS;
    float *lse = io->lse_BHT + (b * (size_t)a->H + h) * (size_t)a->T + first;
    float factor[PANEL], kept[PANEL] = {0};
    struct rows_put to = {.x = io->out_BTHK,
                          .at = out_at(p, b, h, first),
                          .stride = row_stride(p, out_columns(p)),
                          .width = width_stride(p),
                          .dtype = a->keys ? F32 : a->dtype,
                          .factor = factor,
                          .kept = more ? kept : NULL};
    for (size_t i = 0; i < count; i++) {
        bool sees = f->sum[i] != 0; /* NaN goes on as NaN */
        float here = sees ? f->top[i] + logf(f->sum[i]) : -INFINITY;
        float all = more ? lse_join(lse[i], here) : here;
        factor[i] = !sees ? 0 : more ? expf(f->top[i] - all) : 1 / f->sum[i];
        if (more && lse[i] != -INFINITY) kept[i] = expf(lse[i] - all);
        lse[i] = all;
    }
    KERNEL(attention_put)(p, f->out, count, &to);
}

/* Task n of a row: of those that read the same keys, one after the other, the longest first. */
static struct task task_of(const struct plan *p, size_t b, size_t n)
{
    size_t E = heads_each(p->a), group = n / (p->queries * E), of = n % (p->queries * E);
    return (struct task){b, group * E + of % E, (p->queries - 1 - of / E) * PANEL};
}

/* A panel of queries; `next`: which is likely this thread's next. */
static void attend(const struct plan *p, const struct attention_fwd *io, const struct packed *kv,
                   struct task at, struct task next, char *buffers)
{
    const struct attention *a = p->a;
    size_t b = at.b, h = at.h, first = at.first;
    size_t T = (size_t)a->T, count = least(PANEL, T - first), q_at = query_at(p, b, h, first);
    size_t head = h / heads_each(a) * p->keys * p->widths * p->step;
    struct forward f = forward_at(p, buffers);
    struct sight s;
    look(a, io->start_BT, io->end_BT, b, first, &s);
    if (a->keys == MORE_KEYS && s.some_begin >= s.some_end) return;
    if (p->tiled) {
        struct attention_rows r = rows_of(p, io->q_BTHK, q_at, a->q_stride, count, 0);
        KERNEL(attention_pack_right)(&r, f.queries, p->step);
    } else {
        struct lines q = rows(p, io->q_BTHK, q_at, a->q_stride, count, false);
        KERNEL(panel_pack)(&q, p->right, 0, 1, f.queries);
    }
    size_t begin = (size_t)s.some_begin / PANEL, end = panels_of((size_t)s.some_end);
    size_t after = query_at(p, b, next.h, next.first);
    struct ahead ahead = ahead_of(p, io->q_BTHK, after, a->q_stride, least(PANEL, T - next.first));
    if (p->tiled)
        pass(p, &f, &s, kv->keys + head, kv->values + head, &ahead);
    else
        for (size_t k = begin; k < end; k += GROUP)
            meet(p, &f, &s, kv->keys + head, kv->values + head, k, least(GROUP, end - k));
    put_out(p, io, &f, b, h, first, count);
}

bool KERNEL(attention_keeps)(const struct attention *a)
{
    bool whole = a->T % PANEL == 0 && a->K % PANEL == 0;
    bool alike = a->S == a->T && a->keys == ALL_KEYS && a->q_stride == a->kv_stride;
    return whole && alike && plan_of(a).tiled && a->q_stride <= INT32_MAX &&
           KERNEL(panels_keep)(true, a->dtype, a->B * a->T, (int)a->q_stride);
}

enum status KERNEL(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                      struct queue *on)
{
    if (a->T <= FEW_QUERIES && a->keys == ALL_KEYS) {
        TRY(KERNEL(attention_few)(a, io, on));
        return STATUS_OK;
    }
    struct plan p = plan_of(a);
    size_t each = forward_bytes(&p), mark = arena_mark(&on->scratch);
    size_t head = p.keys * p.widths * p.step, tasks = p.queries * (size_t)a->H;
    size_t threads = (size_t)on->num_threads;
    struct packed kv;
    kv.keys = arena_take(&on->scratch, (size_t)a->G, head);
    kv.values = arena_take(&on->scratch, (size_t)a->G, head);
    char *buffers = arena_take(&on->scratch, (size_t)on->num_threads, each);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
#pragma omp parallel num_threads(on->num_threads)
    {
        tiles_open();
        for (size_t b = 0; b < (size_t)a->B; b++) {
            pack_row(&p, io, &kv, b);
#pragma omp for schedule(dynamic)
            for (size_t n = 0; n < tasks; n++)
                attend(&p, io, &kv, task_of(&p, b, n),
                       task_of(&p, b, least(n + threads, tasks - 1)),
                       buffers + (size_t)omp_get_thread_num() * each);
        }
        vector_stream_end();
        tiles_close();
    }
    return STATUS_OK;
}
