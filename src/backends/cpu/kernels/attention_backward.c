/* attention_backward.c (cpu) -- the gradients of attention.c: its head says how. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "backends/cpu/kernels/attention_back.h"
#include "backends/cpu/kernels/attention_pack.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

_Static_assert((int)GROUP <= (int)BACK_GROUP, "buffers are of a group of panels");

/* Panels of queries that pass over the keys at once. */
static size_t group_of(const struct plan *p) { return p->tiled ? BACK_GROUP : GROUP; }

/* Sums [32 k][32 lines] as a step of a right panel. */
static void to_right(enum panel_kind kind, const float *sums, void *to)
{
    if (kind == FLOATS) {
        memcpy(to, sums, SUMS * sizeof *sums);
        return;
    }
    for (size_t pair = 0; pair < 16; pair++)
        put_pair(sums + 2 * pair * PANEL, sums + (2 * pair + 1) * PANEL, pair, to);
}

/* Sums [32 lines][32 k] as a step of a left panel; FLOATS: uses up the sums. */
static void to_left(enum panel_kind kind, float *sums, void *to)
{
    if (kind == PAIRS) {
        for (size_t i = 0; i < SUMS; i++) ((bf16 *)to)[i] = (bf16)(rounded(sums[i]) >> 16);
        return;
    }
    KERNEL(panel_turn)(sums);
    memcpy(to, sums, SUMS * sizeof *sums);
}

/* One thread's buffers for a key/value head of a row, and for a group of panels of its queries.
 * Steps are of panels; left, right: which side of a product they stand on. */
struct backward {
    char *keys, *keys_turned, *values;  /* left: [keys][widths], [widths][keys], [keys][widths] */
    float *dkeys, *dvalues;             /* [keys][widths] sums */
    char *queries, *dout;               /* right: [group][widths] */
    char *queries_turned, *dout_turned; /* right: [widths][panels] */
    char *odds, *dscores;               /* left: [group], of one panel of keys; tiled: of two */
    char *dscores_right;                /* right: [group queries][group keys] */
    float *dqueries;                    /* [group][widths] sums, turned */
    float *scores, *dodds;              /* [32 keys][32 queries]; tiled: [3], [2] */
    size_t panels;                      /* of queries that are there, and what belongs to them: */
    float lse[BACK_GROUP * PANEL], delta[BACK_GROUP * PANEL];
    struct sight sight[BACK_GROUP];
};

static size_t backward_bytes(const struct plan *p)
{
    size_t group = group_of(p), all = p->keys * p->widths, some = group * p->widths;
    return (3 * all + 4 * some + 4 * group + group * group) * p->step +
           (2 * all + some + 5) * SUMS * sizeof(float);
}

static struct backward backward_at(const struct plan *p, char *at)
{
    size_t group = group_of(p);
    size_t all = p->keys * p->widths * p->step, some = group * p->widths * p->step;
    struct backward w = {.keys = at};
    w.keys_turned = w.keys + all;
    w.values = w.keys_turned + all;
    w.queries = w.values + all;
    w.dout = w.queries + some;
    w.queries_turned = w.dout + some;
    w.dout_turned = w.queries_turned + some;
    w.odds = w.dout_turned + some;
    w.dscores = w.odds + 2 * group * p->step;
    w.dscores_right = w.dscores + 2 * group * p->step;
    w.dkeys = (float *)(w.dscores_right + group * group * p->step);
    w.dvalues = w.dkeys + p->keys * p->widths * SUMS;
    w.dqueries = w.dvalues + p->keys * p->widths * SUMS;
    w.scores = w.dqueries + group * p->widths * SUMS;
    w.dodds = w.scores + 3 * SUMS;
    return w;
}

/* A part for each lane of delta = dout . out of a row. */
static inline vector delta_parts(const struct plan *p, const struct attention_bwd *io, size_t at)
{
    const size_t K = (size_t)p->a->K, wide = 2 * LANES;
    const void *x = io->out_BTHK, *y = io->dout_BTHK;
    enum dtype dtype = p->a->dtype;
    vector sum = {0};
    size_t k = 0;
    for (; k + wide <= K; k += wide) {
        size_t here = at + along_head(p, k);
        struct vectors out = vector_get_two(x, here, dtype);
        struct vectors dout = vector_get_two(y, here, dtype);
        sum += out.a * dout.a + out.b * dout.b;
    }
    for (; k < K; k += LANES) {
        size_t here = at + along_head(p, k);
        sum += vector_get(x, here, dtype, least(LANES, K - k)) *
               vector_get(y, here, dtype, least(LANES, K - k));
    }
    return sum;
}

/* Of `count` rows from `at` on; 0 for those of the panel that are not there. */
static void take_deltas(const struct plan *p, const struct attention_bwd *io, size_t at,
                        size_t count, float *delta)
{
    float parts[SUMS];
    size_t row = row_stride(p, out_columns(p));
    memset(parts, 0, sizeof parts);
    for (size_t i = 0; i < count; i++)
        vector_put(parts + i * PANEL, delta_parts(p, io, at + i * row));
    KERNEL(panel_turn)(parts);
    for (size_t i = 0; i < PANEL; i++) delta[i] = parts[i];
    for (size_t lane = 1; lane < LANES; lane++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) delta[i] += parts[lane * PANEL + i];
}

/* What a group of panels of queries sees, from query `first`; whether that is any key. */
static bool look_around(const struct plan *p, const struct attention_bwd *io, struct backward *w,
                        size_t b, size_t first)
{
    const struct attention *a = p->a;
    bool some = false;
    w->panels = panels_of(least(group_of(p) * PANEL, (size_t)a->T - first));
    for (size_t j = 0; j < w->panels; j++) {
        look(a, io->start_BT, io->end_BT, b, first + j * PANEL, &w->sight[j]);
        some = some || w->sight[j].some_begin < w->sight[j].some_end;
    }
    return some;
}

/* A group of panels of queries of head h, from query `first`, and what belongs to them. */
static void take_queries(const struct plan *p, const struct attention_bwd *io, struct backward *w,
                         size_t b, size_t h, size_t first)
{
    const struct attention *a = p->a;
    size_t T = (size_t)a->T, group = group_of(p), count = least(group * PANEL, T - first);
    size_t panels = w->panels, split = panels * p->step;
    size_t q_at = query_at(p, b, h, first), o_at = out_at(p, b, h, first);
    for (int across = 0; across < 2 && !p->tiled; across++) {
        struct lines q = rows(p, io->q_BTHK, q_at, a->q_stride, count, across);
        struct lines d = rows(p, io->dout_BTHK, o_at, out_columns(p), count, across);
        size_t lines = across ? p->widths : panels;
        KERNEL(panel_pack)(&q, p->right, 0, lines, across ? w->queries_turned : w->queries);
        KERNEL(panel_pack)(&d, p->right, 0, lines, across ? w->dout_turned : w->dout);
    }
    for (size_t j = 0; p->tiled && j < panels; j++) {
        size_t to = j * p->widths * p->step, skip = j * PANEL;
        struct attention_rows q = rows_of(p, io->q_BTHK, q_at, a->q_stride, count, skip);
        struct attention_rows d = rows_of(p, io->dout_BTHK, o_at, out_columns(p), count, skip);
        KERNEL(attention_pack_right)(&q, w->queries + to, p->step);
        KERNEL(attention_pack_right)(&d, w->dout + to, p->step);
        KERNEL(attention_pack_split)(&q, w->queries_turned + j * p->step, split);
        KERNEL(attention_pack_split)(&d, w->dout_turned + j * p->step, split);
    }
    for (size_t i = 0; i < panels * PANEL; i++) {
        bool there = i < count;
        float lse = there ? io->lse_BHT[(b * (size_t)a->H + h) * T + first + i] : 0;
        w->lse[i] = lse == -INFINITY ? 0 : lse; /* of a query without keys: any number */
    }
    for (size_t j = 0; j < panels; j++)
        take_deltas(p, io, out_at(p, b, h, first + j * PANEL), least(PANEL, count - j * PANEL),
                    w->delta + j * PANEL);
    memset(w->dqueries, 0, group * p->widths * SUMS * sizeof *w->dqueries);
}

/* p = exp(scale s - lse), ds = p (dp - delta) scale, in place. */
static inline void soften_backward(const struct plan *p, const struct backward *w, size_t j,
                                   enum dtype dtype)
{
    const float scale = p->a->scale, *lse = w->lse + j * PANEL, *delta = w->delta + j * PANEL;
    for (size_t k = 0; k < PANEL; k++) {
        float *s = w->scores + k * PANEL, *d = w->dodds + k * PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            s[i] = vector_exp_for(dtype, s[i] * scale - lse[i]);
            d[i] = s[i] * (d[i] - delta[i]) * scale;
        }
    }
}

/* One panel of keys meets one of queries, of which it sees some: odds and their gradients. */
static void meet_backward(const struct plan *p, const struct backward *w, size_t key, size_t i,
                          size_t j)
{
    size_t left = (key + i) * p->widths * p->step, right = j * p->widths * p->step;
    KERNEL(panel_multiply)
    (p->kind, p->widths, panel_packed(p->kind, w->keys + left), w->queries + right, w->scores,
     false);
    KERNEL(panel_multiply)
    (p->kind, p->widths, panel_packed(p->kind, w->values + left), w->dout + right, w->dodds, false);
    mask(&w->sight[j], key + i, w->scores);
    if (p->a->dtype == F32)
        soften_backward(p, w, j, F32);
    else
        soften_backward(p, w, j, BF16);
    to_right(p->kind, w->dodds, w->dscores_right + (j * GROUP + i) * p->step);
    to_left(p->kind, w->scores, w->odds + j * p->step);
    to_left(p->kind, w->dodds, w->dscores + j * p->step);
}

/* Of a row of panels the first that is seen, and how many from there to the last. */
struct run {
    size_t first, count;
};

static struct run queries_that_see(const struct backward *w, size_t key)
{
    struct run r = {0};
    while (r.first < w->panels && !is_seen(&w->sight[r.first], key)) r.first++;
    for (size_t j = r.first; j < w->panels; j++)
        if (is_seen(&w->sight[j], key)) r.count = j + 1 - r.first;
    return r;
}

/* dv += p^T do, dk += ds^T q of one panel of keys, over the queries that see it. */
static void add_to_keys(const struct plan *p, const struct backward *w, size_t key, struct run seen)
{
    size_t skip = seen.first * p->step;
    for (size_t n = 0; n < p->widths; n++) {
        size_t to = (key * p->widths + n) * SUMS, right = n * w->panels * p->step + skip;
        KERNEL(panel_multiply)
        (p->kind, seen.count, panel_packed(p->kind, w->odds + skip), w->dout_turned + right,
         w->dvalues + to, true);
        KERNEL(panel_multiply)
        (p->kind, seen.count, panel_packed(p->kind, w->dscores + skip), w->queries_turned + right,
         w->dkeys + to, true);
    }
}

/* dq^T += k^T ds of each panel of queries, over those of `count` panels of keys that it sees. */
static void add_to_queries(const struct plan *p, const struct backward *w, size_t key, size_t count)
{
    for (size_t j = 0; j < w->panels; j++) {
        struct run seen = {0};
        while (seen.first < count && !is_seen(&w->sight[j], key + seen.first)) seen.first++;
        while (seen.first + seen.count < count &&
               is_seen(&w->sight[j], key + seen.first + seen.count))
            seen.count++;
        if (!seen.count) continue;
        const char *right = w->dscores_right + (j * GROUP + seen.first) * p->step;
        for (size_t n = 0; n < p->widths; n++) {
            const char *left = w->keys_turned + (n * p->keys + key + seen.first) * p->step;
            KERNEL(panel_multiply)
            (p->kind, seen.count, panel_packed(p->kind, left), right,
             w->dqueries + (j * p->widths + n) * SUMS, true);
        }
    }
}

/* All panels of keys meet the panels of queries that see them. */
static void meet_keys(const struct plan *p, const struct backward *w)
{
    for (size_t key = 0; key < p->keys; key += GROUP) {
        size_t count = least(GROUP, p->keys - key), met = 0;
        for (size_t i = 0; i < count; i++) {
            struct run seen = queries_that_see(w, key + i);
            for (size_t j = 0; j < seen.count; j++) meet_backward(p, w, key, i, seen.first + j);
            if (seen.count) add_to_keys(p, w, key + i, seen);
            met += seen.count;
        }
        if (met) add_to_queries(p, w, key, count);
    }
}

/* The same on tiles; `next` is what follows. */
static void meet_tiled(const struct plan *p, const struct attention_bwd *io, struct backward *w,
                       struct task next)
{
    const struct attention *a = p->a;
    size_t count = least(group_of(p) * PANEL, (size_t)a->T - next.first);
    size_t q = query_at(p, next.b, next.h, next.first), o = out_at(p, next.b, next.h, next.first);
    struct back on = {.widths = p->widths,
                      .keys = p->keys,
                      .panels = w->panels,
                      .left = w->keys,
                      .left_turned = w->keys_turned,
                      .values = w->values,
                      .queries = w->queries,
                      .dout = w->dout,
                      .queries_split = w->queries_turned,
                      .dout_split = w->dout_turned,
                      .odds = w->odds,
                      .dscores = w->dscores,
                      .dscores_right = w->dscores_right,
                      .dkeys = w->dkeys,
                      .dvalues = w->dvalues,
                      .dqueries = w->dqueries,
                      .scores = w->scores,
                      .dodds = w->dodds,
                      .scale = a->scale,
                      .lse = w->lse,
                      .delta = w->delta,
                      .ahead = {ahead_of(p, io->q_BTHK, q, a->q_stride, count),
                                ahead_of(p, io->out_BTHK, o, out_columns(p), count),
                                ahead_of(p, io->dout_BTHK, o, out_columns(p), count)}};
    KERNEL(attention_back)(&on, w->sight);
}

/* A group of panels of queries of head h passes over all keys that they see. */
static void queries_backward(const struct plan *p, const struct attention_bwd *io,
                             struct backward *w, struct task task, struct task next)
{
    const struct attention *a = p->a;
    size_t b = task.b, h = task.h, first = task.first;
    bool part = a->keys != ALL_KEYS, more = a->keys == MORE_KEYS;
    if (!look_around(p, io, w, b, first) && more) return;
    take_queries(p, io, w, b, h, first);
    if (p->tiled)
        meet_tiled(p, io, w, next);
    else
        meet_keys(p, w);
    float ones[PANEL], scale[PANEL];
    for (size_t i = 0; i < PANEL; i++) ones[i] = 1, scale[i] = p->tiled ? a->scale : 1;
    for (size_t j = 0; j < w->panels; j++) {
        size_t t = first + j * PANEL;
        struct rows_put to = {.x = io->dq_BTHK,
                              .at = part ? out_at(p, b, h, t) : query_at(p, b, h, t),
                              .stride = row_stride(p, part ? out_columns(p) : a->q_stride),
                              .width = width_stride(p),
                              .dtype = part ? F32 : a->dtype,
                              .factor = scale,
                              .kept = more ? ones : NULL};
        KERNEL(attention_put)
        (p, w->dqueries + j * p->widths * SUMS, least(PANEL, (size_t)a->T - t), &to);
    }
}

/* 32 of K of a row, or those that are there. */
static inline void put_sums(const float *sums, float factor, void *x, size_t at, enum dtype dtype,
                            size_t count)
{
    float row[PANEL];
    for (size_t i = 0; i < PANEL; i++) row[i] = factor * sums[i];
    if (dtype == BF16 && count == PANEL && vector_is_line((bf16 *)x + at))
        vector_stream((bf16 *)x + at, row);
    else
        vector_store(x, at, dtype, count, row);
}

/* [keys][widths] sums, times a factor, to rows of keys. */
static void put_keys(const struct plan *p, const float *sums, float factor, void *x, size_t at)
{
    size_t S = (size_t)p->a->S, K = (size_t)p->a->K;
    enum dtype dtype = p->a->keys ? F32 : p->a->dtype;
    for (size_t s = 0; s < S; s++) {
        size_t row = at + place_of(p, s / PANEL * PANEL, 0, p->a->kv_stride) +
                     s % PANEL * row_stride(p, p->a->kv_stride);
        for (size_t n = 0; n < p->widths; n++)
            put_sums(sums + (s / PANEL * p->widths + n) * SUMS + s % PANEL * PANEL, factor, x,
                     row + n * width_stride(p), dtype, least(PANEL, K - n * PANEL));
    }
}

/* Everything of one key/value head of one row. */
static void head_backward(const struct plan *p, const struct attention_bwd *io, size_t b, size_t g,
                          char *buffers)
{
    const struct attention *a = p->a;
    size_t k_at = key_at(p, b, g, a->k_column), v_at = key_at(p, b, g, a->v_column);
    struct backward w = backward_at(p, buffers);
    struct lines turned = rows(p, io->k_BSGK, k_at, a->kv_stride, (size_t)a->S, true);
    KERNEL(panel_pack)(&turned, p->left, 0, p->widths, w.keys_turned);
    KERNEL(attention_pack_keys)(p, io->k_BSGK, k_at, w.keys);
    KERNEL(attention_pack_keys)(p, io->v_BSGK, v_at, w.values);
    memset(w.dkeys, 0, 2 * p->keys * p->widths * SUMS * sizeof *w.dkeys); /* and dvalues */
    size_t lines = group_of(p) * PANEL, groups = ((size_t)a->T + lines - 1) / lines;
    for (size_t n = 0, all = heads_each(a) * groups; n < all; n++) {
        size_t h = g * heads_each(a), after = least(n + 1, all - 1);
        queries_backward(p, io, &w, (struct task){b, h + n / groups, n % groups * lines},
                         (struct task){b, h + after / groups, after % groups * lines});
    }
    put_keys(p, w.dkeys, p->tiled ? a->scale : 1, io->dk_BSGK, k_at);
    put_keys(p, w.dvalues, 1, io->dv_BSGK, v_at);
}

enum status KERNEL(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                       struct queue *on)
{
    struct plan p = plan_of(a);
    size_t each = backward_bytes(&p), mark = arena_mark(&on->scratch);
    char *buffers = arena_take(&on->scratch, (size_t)on->num_threads, each);
    arena_reset(&on->scratch, mark);
    if (on->measuring) return STATUS_OK;
    long tasks = (long)a->B * a->G;
#pragma omp parallel num_threads(on->num_threads)
    {
        tiles_open();
#pragma omp for schedule(dynamic)
        for (long task = 0; task < tasks; task++)
            head_backward(&p, io, (size_t)(task / a->G), (size_t)(task % a->G),
                          buffers + (size_t)omp_get_thread_num() * each);
        vector_stream_end();
        tiles_close();
    }
    return STATUS_OK;
}
