/* attention_backward.c (cpu) -- the gradients of attention; see the head of attention.c. */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "backends/cpu/kernels/attention_pack.h"
#include "backends/cpu/kernels/attention_tiles_backward.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

_Static_assert((int)KEY_GROUP <= (int)BACKWARD_GROUP, "buffers hold a group of panels");

/* Panels of queries that visit the keys together. */
static size_t query_group(const struct attention_plan *p)
{
    return p->tiled ? BACKWARD_GROUP : KEY_GROUP;
}

/* Packs a tile [32 k][32 columns] as a k-step of a right panel. */
static void pack_right_tile(enum panel_kind kind, const float *tile, void *to)
{
    if (kind == PANEL_F32) {
        memcpy(to, tile, MICRO_TILE * sizeof *tile);
        return;
    }
    for (size_t pair = 0; pair < 16; pair++)
        store_pair(tile + 2 * pair * PANEL, tile + (2 * pair + 1) * PANEL, pair, to);
}

/* Packs a tile [32 rows][32 k] as a k-step of a left panel; PANEL_F32: overwrites the tile. */
static void pack_left_tile(enum panel_kind kind, float *tile, void *to)
{
    if (kind == PANEL_BF16) {
        for (size_t i = 0; i < MICRO_TILE; i++)
            ((bf16 *)to)[i] = (bf16)(bf16_rounded_bits(tile[i]) >> 16);
        return;
    }
    KERNEL(panel_transpose)(tile);
    memcpy(to, tile, MICRO_TILE * sizeof *tile);
}

/* One thread's buffers for a key/value head of a row, and for a group of panels of its queries.
 * "left" and "right": the side of a matrix multiply that a panel is used on; shapes are in
 * k-steps. */
struct backward_buffers {
    char *keys, *keys_transposed,
        *values;            /* left: [key_panels][head_panels], [head_panels][key_panels],
                               [key_panels][head_panels] */
    float *dkeys, *dvalues; /* accumulators, [key_panels][head_panels] */
    char *queries, *dout;   /* right: [group][head_panels] */
    char *queries_transposed, *dout_transposed; /* right: [head_panels][query_panels] */
    char *probs, *dscores;  /* left: [group], for one key panel; tiled: for two */
    char *dscores_right;    /* right: [group queries][group keys] */
    float *dqueries;        /* accumulators, transposed: [group][head_panels] */
    float *scores, *dprobs; /* [32 keys][32 queries]; tiled: [3], [2] */
    size_t query_panels;    /* in the current group; their row statistics and masks follow */
    float lse[BACKWARD_GROUP * PANEL], delta[BACKWARD_GROUP * PANEL];
    struct attention_mask mask[BACKWARD_GROUP];
};

static size_t backward_bytes(const struct attention_plan *p)
{
    size_t group = query_group(p), all = p->key_panels * p->head_panels,
           any = group * p->head_panels;
    return (3 * all + 4 * any + 4 * group + group * group) * p->step_bytes +
           (2 * all + any + 5) * MICRO_TILE * sizeof(float);
}

static struct backward_buffers backward_at(const struct attention_plan *p, char *at)
{
    size_t group = query_group(p);
    size_t all = p->key_panels * p->head_panels * p->step_bytes,
           any = group * p->head_panels * p->step_bytes;
    struct backward_buffers w = {.keys = at};
    w.keys_transposed = w.keys + all;
    w.values = w.keys_transposed + all;
    w.queries = w.values + all;
    w.dout = w.queries + any;
    w.queries_transposed = w.dout + any;
    w.dout_transposed = w.queries_transposed + any;
    w.probs = w.dout_transposed + any;
    w.dscores = w.probs + 2 * group * p->step_bytes;
    w.dscores_right = w.dscores + 2 * group * p->step_bytes;
    w.dkeys = (float *)(w.dscores_right + group * group * p->step_bytes);
    w.dvalues = w.dkeys + p->key_panels * p->head_panels * MICRO_TILE;
    w.dqueries = w.dvalues + p->key_panels * p->head_panels * MICRO_TILE;
    w.scores = w.dqueries + group * p->head_panels * MICRO_TILE;
    w.dprobs = w.scores + 3 * MICRO_TILE;
    return w;
}

/* delta = dout . out of one row, as one partial sum per lane. */
static inline vector delta_parts(const struct attention_plan *p, const struct attention_bwd *io,
                                 size_t at)
{
    const size_t K = (size_t)p->a->K, two_registers = 2 * LANES;
    const void *x = io->out_BTHK, *y = io->dout_BTHK;
    enum dtype dtype = p->a->dtype;
    vector sum = {0};
    size_t k = 0;
    for (; k + two_registers <= K; k += two_registers) {
        size_t offset = at + offset_in_head(p, k);
        struct vectors out = vector_get_two(x, offset, dtype);
        struct vectors dout = vector_get_two(y, offset, dtype);
        sum += out.a * dout.a + out.b * dout.b;
    }
    for (; k < K; k += LANES) {
        size_t offset = at + offset_in_head(p, k);
        sum += vector_get(x, offset, dtype, size_min(LANES, K - k)) *
               vector_get(y, offset, dtype, size_min(LANES, K - k));
    }
    return sum;
}

/* Deltas of `count` rows from `at` on; 0 for the rest of the panel. */
static void compute_deltas(const struct attention_plan *p, const struct attention_bwd *io,
                           size_t at, size_t count, float *delta)
{
    float parts[MICRO_TILE];
    size_t row = row_stride(p, out_columns(p));
    memset(parts, 0, sizeof parts);
    for (size_t i = 0; i < count; i++)
        vector_storeu(parts + i * PANEL, delta_parts(p, io, at + i * row));
    KERNEL(panel_transpose)(parts);
    for (size_t i = 0; i < PANEL; i++) delta[i] = parts[i];
    for (size_t lane = 1; lane < LANES; lane++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) delta[i] += parts[lane * PANEL + i];
}

/* Computes the masks of a task's group of query panels; returns whether any key is visible. */
static bool init_masks(const struct attention_plan *p, const struct attention_bwd *io,
                       struct backward_buffers *w, struct attention_task task)
{
    const struct mask_source bounds = {p->a, io->start_BT, io->end_BT};
    bool any = false;
    w->query_panels = panel_count(size_min(query_group(p) * PANEL, (size_t)p->a->T - task.first));
    for (size_t j = 0; j < w->query_panels; j++) {
        attention_mask_init(&w->mask[j], &bounds, task.b, task.first + j * PANEL);
        any = any || w->mask[j].any_begin < w->mask[j].any_end;
    }
    return any;
}

/* The rows of q, out or dout of a task's group of query panels. */
static struct head_rows query_rows(const struct attention_plan *p, const void *q_BTHK,
                                   struct attention_task task)
{
    size_t count = size_min(query_group(p) * PANEL, (size_t)p->a->T - task.first);
    return (struct head_rows){q_BTHK, query_offset(p, task.b, task.h, task.first), p->a->q_stride,
                              count};
}
static struct head_rows out_rows(const struct attention_plan *p, const void *out_BTHK,
                                 struct attention_task task)
{
    size_t count = size_min(query_group(p) * PANEL, (size_t)p->a->T - task.first);
    return (struct head_rows){out_BTHK, out_offset(p, task.b, task.h, task.first), out_columns(p),
                              count};
}

/* Packs a task's group of query panels, and loads lse and delta. */
static void load_queries(const struct attention_plan *p, const struct attention_bwd *io,
                         struct backward_buffers *w, struct attention_task task)
{
    const struct attention *a = p->a;
    size_t T = (size_t)a->T, panels = w->query_panels, split_step = panels * p->step_bytes;
    struct head_rows queries = query_rows(p, io->q_BTHK, task);
    struct head_rows douts = out_rows(p, io->dout_BTHK, task);
    const float *lse_T = io->lse_BHT + (task.b * (size_t)a->H + task.h) * T + task.first;
    for (int transposed = 0; transposed < 2 && !p->tiled; transposed++) {
        struct operand q = operand_of_rows(p, queries, transposed);
        struct operand d = operand_of_rows(p, douts, transposed);
        size_t num_panels = transposed ? p->head_panels : panels;
        KERNEL(panel_pack)
        (&q, p->right, 0, num_panels, transposed ? w->queries_transposed : w->queries);
        KERNEL(panel_pack)(&d, p->right, 0, num_panels, transposed ? w->dout_transposed : w->dout);
    }
    for (size_t j = 0; p->tiled && j < panels; j++) {
        size_t to = j * p->head_panels * p->step_bytes, skip = j * PANEL;
        struct attention_rows q = panel_of_rows(p, queries, skip);
        struct attention_rows d = panel_of_rows(p, douts, skip);
        KERNEL(attention_pack_right)(&q, w->queries + to, p->step_bytes);
        KERNEL(attention_pack_right)(&d, w->dout + to, p->step_bytes);
        KERNEL(attention_pack_split)(&q, w->queries_transposed + j * p->step_bytes, split_step);
        KERNEL(attention_pack_split)(&d, w->dout_transposed + j * p->step_bytes, split_step);
    }
    for (size_t i = 0; i < panels * PANEL; i++) {
        float lse = i < queries.count ? lse_T[i] : 0;
        w->lse[i] = lse == -INFINITY ? 0 : lse; /* of a query without keys: any finite value */
    }
    for (size_t j = 0; j < panels; j++)
        compute_deltas(p, io, out_offset(p, task.b, task.h, task.first + j * PANEL),
                       size_min(PANEL, queries.count - j * PANEL), w->delta + j * PANEL);
    memset(w->dqueries, 0, query_group(p) * p->head_panels * MICRO_TILE * sizeof *w->dqueries);
}

/* p = exp(scale s - lse), ds = p (dp - delta) scale, in place. */
static inline void softmax_backward(const struct attention_plan *p,
                                    const struct backward_buffers *w, size_t j, enum dtype dtype)
{
    const float scale = p->a->scale, *lse = w->lse + j * PANEL, *delta = w->delta + j * PANEL;
    for (size_t k = 0; k < PANEL; k++) {
        float *s = w->scores + k * PANEL, *d = w->dprobs + k * PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            s[i] = vector_exp_for(dtype, s[i] * scale - lse[i]);
            d[i] = s[i] * (d[i] - delta[i]) * scale;
        }
    }
}

/* Probs and score gradients of one block: a key panel and a query panel that sees some of it. */
static void score_gradients(const struct attention_plan *p, const struct backward_buffers *w,
                            size_t key, size_t i, size_t j)
{
    size_t left = (key + i) * p->head_panels * p->step_bytes,
           right = j * p->head_panels * p->step_bytes;
    KERNEL(panel_multiply)
    (p->kind, p->head_panels, left_panel_packed(p->kind, w->keys + left), w->queries + right,
     w->scores, false);
    KERNEL(panel_multiply)
    (p->kind, p->head_panels, left_panel_packed(p->kind, w->values + left), w->dout + right,
     w->dprobs, false);
    attention_mask_apply(&w->mask[j], key + i, w->scores);
    if (p->a->dtype == F32)
        softmax_backward(p, w, j, F32);
    else
        softmax_backward(p, w, j, BF16);
    pack_right_tile(p->kind, w->dprobs, w->dscores_right + (j * KEY_GROUP + i) * p->step_bytes);
    pack_left_tile(p->kind, w->scores, w->probs + j * p->step_bytes);
    pack_left_tile(p->kind, w->dprobs, w->dscores + j * p->step_bytes);
}

/* The first visible panel, and the number of panels up to the last. */
struct panel_range {
    size_t first, count;
};

static struct panel_range visible_query_panels(const struct backward_buffers *w, size_t key)
{
    struct panel_range r = {0};
    while (r.first < w->query_panels && !attention_mask_sees(&w->mask[r.first], key)) r.first++;
    for (size_t j = r.first; j < w->query_panels; j++)
        if (attention_mask_sees(&w->mask[j], key)) r.count = j + 1 - r.first;
    return r;
}

/* dv += p^T do, dk += ds^T q for one key panel, over the queries that see it. */
static void accumulate_dkv(const struct attention_plan *p, const struct backward_buffers *w,
                           size_t key, struct panel_range visible)
{
    size_t skip = visible.first * p->step_bytes;
    for (size_t n = 0; n < p->head_panels; n++) {
        size_t to = (key * p->head_panels + n) * MICRO_TILE,
               right = n * w->query_panels * p->step_bytes + skip;
        KERNEL(panel_multiply)
        (p->kind, visible.count, left_panel_packed(p->kind, w->probs + skip),
         w->dout_transposed + right, w->dvalues + to, true);
        KERNEL(panel_multiply)
        (p->kind, visible.count, left_panel_packed(p->kind, w->dscores + skip),
         w->queries_transposed + right, w->dkeys + to, true);
    }
}

/* dq^T += k^T ds for each query panel, over those of `count` key panels that it sees. */
static void accumulate_dq(const struct attention_plan *p, const struct backward_buffers *w,
                          size_t key, size_t count)
{
    for (size_t j = 0; j < w->query_panels; j++) {
        struct panel_range visible = {0};
        while (visible.first < count && !attention_mask_sees(&w->mask[j], key + visible.first))
            visible.first++;
        while (visible.first + visible.count < count &&
               attention_mask_sees(&w->mask[j], key + visible.first + visible.count))
            visible.count++;
        if (!visible.count) continue;
        const char *right = w->dscores_right + (j * KEY_GROUP + visible.first) * p->step_bytes;
        for (size_t n = 0; n < p->head_panels; n++) {
            const char *left =
                w->keys_transposed + (n * p->key_panels + key + visible.first) * p->step_bytes;
            KERNEL(panel_multiply)
            (p->kind, visible.count, left_panel_packed(p->kind, left), right,
             w->dqueries + (j * p->head_panels + n) * MICRO_TILE, true);
        }
    }
}

/* Visits all blocks of key panels and query panels that are not fully masked. */
static void backward_panels(const struct attention_plan *p, const struct backward_buffers *w)
{
    for (size_t key = 0; key < p->key_panels; key += KEY_GROUP) {
        size_t count = size_min(KEY_GROUP, p->key_panels - key), num_pairs = 0;
        for (size_t i = 0; i < count; i++) {
            struct panel_range visible = visible_query_panels(w, key + i);
            for (size_t j = 0; j < visible.count; j++)
                score_gradients(p, w, key, i, visible.first + j);
            if (visible.count) accumulate_dkv(p, w, key + i, visible);
            num_pairs += visible.count;
        }
        if (num_pairs) accumulate_dq(p, w, key, count);
    }
}

/* The same with AMX; `next` is prefetched. */
static void backward_tiled(const struct attention_plan *p, const struct attention_bwd *io,
                           struct backward_buffers *w, struct attention_task next)
{
    const struct attention *a = p->a;
    struct tiles_backward tiles = {.head_panels = p->head_panels,
                                   .key_panels = p->key_panels,
                                   .query_panels = w->query_panels,
                                   .keys = w->keys,
                                   .keys_transposed = w->keys_transposed,
                                   .values = w->values,
                                   .queries = w->queries,
                                   .dout = w->dout,
                                   .queries_split = w->queries_transposed,
                                   .dout_split = w->dout_transposed,
                                   .probs = w->probs,
                                   .dscores = w->dscores,
                                   .dscores_right = w->dscores_right,
                                   .dkeys = w->dkeys,
                                   .dvalues = w->dvalues,
                                   .dqueries = w->dqueries,
                                   .scores = w->scores,
                                   .dprobs = w->dprobs,
                                   .scale = a->scale,
                                   .lse = w->lse,
                                   .delta = w->delta,
                                   .prefetch = {prefetch_of(p, query_rows(p, io->q_BTHK, next)),
                                                prefetch_of(p, out_rows(p, io->out_BTHK, next)),
                                                prefetch_of(p, out_rows(p, io->dout_BTHK, next))}};
    KERNEL(attention_tiles_backward)(&tiles, w->mask);
}

/* Backward for a group of query panels of head h, over all keys that they see. */
static void backward_queries(const struct attention_plan *p, const struct attention_bwd *io,
                             struct backward_buffers *w, struct attention_task task,
                             struct attention_task next)
{
    const struct attention *a = p->a;
    size_t b = task.b, h = task.h, first = task.first;
    bool is_partial = a->keys != ALL_KEYS, accumulates = a->keys == MORE_KEYS;
    if (!init_masks(p, io, w, task) && accumulates) return;
    load_queries(p, io, w, task);
    if (p->tiled)
        backward_tiled(p, io, w, next);
    else
        backward_panels(p, w);
    float ones[PANEL], scale[PANEL];
    for (size_t i = 0; i < PANEL; i++) ones[i] = 1, scale[i] = p->tiled ? a->scale : 1;
    for (size_t j = 0; j < w->query_panels; j++) {
        size_t t = first + j * PANEL;
        struct attention_unpack_to to = {
            .x = io->dq_BTHK,
            .at = is_partial ? out_offset(p, b, h, t) : query_offset(p, b, h, t),
            .stride = row_stride(p, is_partial ? out_columns(p) : a->q_stride),
            .panel_stride = head_panel_stride(p),
            .dtype = is_partial ? F32 : a->dtype,
            .scale = scale,
            .old_scale = accumulates ? ones : NULL};
        KERNEL(attention_unpack)
        (p, w->dqueries + j * p->head_panels * MICRO_TILE, size_min(PANEL, (size_t)a->T - t), &to);
    }
}

/* Stores accumulators [key_panels][head_panels], times scale, to rows of keys. */
static void store_keys(const struct attention_plan *p, const float *acc, float scale, void *x,
                       size_t at)
{
    size_t S = (size_t)p->a->S, K = (size_t)p->a->K;
    enum dtype dtype = p->a->keys ? F32 : p->a->dtype;
    for (size_t s = 0; s < S; s++) {
        size_t row = at + element_offset(p, s / PANEL * PANEL, 0, p->a->kv_stride) +
                     s % PANEL * row_stride(p, p->a->kv_stride);
        for (size_t n = 0; n < p->head_panels; n++) {
            const float *acc_row =
                acc + (s / PANEL * p->head_panels + n) * MICRO_TILE + s % PANEL * PANEL;
            size_t to = row + n * head_panel_stride(p), count = size_min(PANEL, K - n * PANEL);
            float scaled[PANEL];
            for (size_t i = 0; i < PANEL; i++) scaled[i] = scale * acc_row[i];
            if (dtype == BF16 && count == PANEL && vector_is_aligned((bf16 *)x + to))
                vector_stream_bf16((bf16 *)x + to, scaled);
            else
                vector_store(x, to, dtype, count, scaled);
        }
    }
}

/* Backward for one key/value head of one row. */
static void backward_head(const struct attention_plan *p, const struct attention_bwd *io, size_t b,
                          size_t g, char *buffers)
{
    const struct attention *a = p->a;
    size_t k_at = key_offset(p, b, g, a->k_column), v_at = key_offset(p, b, g, a->v_column);
    struct backward_buffers w = backward_at(p, buffers);
    struct head_rows key_rows = {io->k_BSGK, k_at, a->kv_stride, (size_t)a->S};
    struct operand keys = operand_of_rows(p, key_rows, true);
    KERNEL(panel_pack)(&keys, p->left, 0, p->head_panels, w.keys_transposed);
    KERNEL(attention_pack_keys)(p, io->k_BSGK, k_at, w.keys);
    KERNEL(attention_pack_keys)(p, io->v_BSGK, v_at, w.values);
    memset(w.dkeys, 0,
           2 * p->key_panels * p->head_panels * MICRO_TILE * sizeof *w.dkeys); /* and dvalues */
    size_t group_rows = query_group(p) * PANEL,
           groups = ((size_t)a->T + group_rows - 1) / group_rows;
    for (size_t n = 0, all = heads_per_group(a) * groups; n < all; n++) {
        size_t h = g * heads_per_group(a), next = size_min(n + 1, all - 1);
        backward_queries(p, io, &w,
                         (struct attention_task){b, h + n / groups, n % groups * group_rows},
                         (struct attention_task){b, h + next / groups, next % groups * group_rows});
    }
    store_keys(p, w.dkeys, p->tiled ? a->scale : 1, io->dk_BSGK, k_at);
    store_keys(p, w.dvalues, 1, io->dv_BSGK, v_at);
}

enum status KERNEL(attention_backward)(const struct attention *a, const struct attention_bwd *io,
                                       struct queue *queue)
{
    struct attention_plan p = attention_plan_of(a);
    size_t bytes_per_thread = backward_bytes(&p), mark = arena_mark(&queue->scratch);
    char *buffers = arena_alloc(&queue->scratch, (size_t)queue->num_threads, bytes_per_thread);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
    long tasks = (long)a->B * a->G;
#pragma omp parallel num_threads(queue->num_threads)
    {
        tiles_open();
#pragma omp for schedule(dynamic)
        for (long task = 0; task < tasks; task++)
            backward_head(&p, io, (size_t)(task / a->G), (size_t)(task % a->G),
                          buffers + (size_t)omp_get_thread_num() * bytes_per_thread);
        vector_stream_fence();
        tiles_close();
    }
    return STATUS_OK;
}
