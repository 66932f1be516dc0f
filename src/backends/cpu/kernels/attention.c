/* attention.c (cpu) -- FlashAttention (Dao et al. 2022, alg. 1; Dao 2023, alg. 2) on micro-panels.
 *
 * Scores are computed transposed, S^T = K q^T: rows are keys and lanes are queries.  So row max and
 * sum need no reduction across lanes, and exp(S^T) already is the right operand of
 * out^T = v^T exp(S^T).  A block is 32 keys x 32 queries; T x T is never stored.
 * Order    Forward: a panel of queries visits its keys in order, with online softmax.
 *          Backward: one task owns a key/value head of a row and visits query heads, queries and
 *          keys in order.
 *          Neither depends on the number of threads.
 * Memory   Forward packs the keys and values of one row, once for all its queries.  Backward takes
 *          about 14 (F32: 20) bytes for each element of a head's keys in each thread.
 * Tiles    With AMX, tile products are interleaved with the softmax: attention_tiles_forward.h,
 *          attention_tiles_backward.h, attention_softmax.h.
 * Limits   With fewer (row, key/value head) pairs than threads, backward leaves threads idle.  With
 *          AMX, backward waits for panels from L2.
 * Speed    21-65 % of the bf16 register peak; 60-80 % of the f32 peak without bf16 hardware
 *          (docs/cpu-kernels.md). */
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "backends/cpu/kernels/attention_decode.h"
#include "backends/cpu/kernels/attention_pack.h"
#include "backends/cpu/kernels/attention_tiles_forward.h"
#include "backends/cpu/kernels/vector.h"
#include "tensor/queue.h"

#include <math.h>
#include <omp.h>

_Static_assert((int)KEY_GROUP == (int)FORWARD_GROUP, "buffers hold KEY_GROUP panels");
_Static_assert((int)DECODE_MAX_QUERIES < (int)PANEL,
               "attention_decode cannot read the panel layout");

/* One thread's buffers: a panel of queries and KEY_GROUP key panels. */
struct forward_buffers {
    float *scores;         /* [KEY_GROUP][32 keys][32 queries] */
    float *out;            /* [head_panels][32 of K][32 queries] */
    void *queries, *probs; /* [head_panels] and [2 KEY_GROUP] k-steps of right panels */
    float row_max[PANEL], sum[PANEL];
    const char *keys, *values; /* packed, of the queries' head */
    struct attention_mask mask;
};

/* Pads per-thread buffers by a page, so that hardware prefetch past the end of one does not cause
 * false sharing with the next. */
static size_t forward_bytes(const struct attention_plan *p)
{
    enum { PADDING = 4096 };
    return (KEY_GROUP + p->head_panels) * MICRO_TILE * sizeof(float) +
           (2 * KEY_GROUP + p->head_panels) * p->step_bytes + PADDING;
}

static struct forward_buffers forward_at(const struct attention_plan *p, char *at)
{
    struct forward_buffers f = {.scores = (float *)at, .out = (float *)at + KEY_GROUP * MICRO_TILE};
    f.queries = f.out + p->head_panels * MICRO_TILE;
    f.probs = (char *)f.queries + p->head_panels * p->step_bytes;
    for (size_t i = 0; i < PANEL; i++) f.row_max[i] = -1e30f;
    memset(f.out, 0, p->head_panels * MICRO_TILE * sizeof *f.out);
    return f;
}

/* Updates each query's row max.  Sums and out stay relative to the old one until the new one
 * exceeds it by so much that they might grow large (lazy rescaling). */
static void update_row_max(const struct attention_plan *p, struct forward_buffers *f, size_t count)
{
    enum { RESCALE_THRESHOLD = 8 };
    float row_max[PANEL], rescale[PANEL];
    int needs_rescale = 0;
    memcpy(row_max, f->row_max, sizeof row_max);
    for (size_t k = 0; k < count * PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            float x = f->scores[k * PANEL + i];
            row_max[i] = x > row_max[i] ? x : row_max[i];
        }
    for (size_t i = 0; i < PANEL; i++)
        needs_rescale |= row_max[i] > f->row_max[i] + RESCALE_THRESHOLD;
    if (!needs_rescale) return;
    for (size_t i = 0; i < PANEL; i++) rescale[i] = vector_exp(f->row_max[i] - row_max[i]);
    for (size_t i = 0; i < PANEL; i++) f->sum[i] *= rescale[i], f->row_max[i] = row_max[i];
    for (size_t k = 0; k < p->head_panels * PANEL; k++)
        for (size_t i = 0; i < PANEL; i++) f->out[k * PANEL + i] *= rescale[i];
}

/* Turns scores into exp(score - row_max), as k-steps of a right panel, and adds them to the row
 * sums. */
static inline void softmax_tile(struct forward_buffers *f, enum panel_kind kind, enum dtype dtype,
                                size_t count)
{
    float sum[PANEL] = {0};
    for (size_t k = 0; k < count * PANEL; k += 2) {
        float *low = f->scores + k * PANEL, *high = low + PANEL;
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) {
            low[i] = vector_exp_for(dtype, low[i] - f->row_max[i]);
            high[i] = vector_exp_for(dtype, high[i] - f->row_max[i]);
            sum[i] += low[i] + high[i];
        }
        if (kind == PANEL_BF16)
            store_pair(low, high, k % PANEL / 2,
                       (uint32_t *)f->probs + k / PANEL * (MICRO_TILE / 2));
    }
    for (size_t i = 0; i < PANEL; i++) f->sum[i] += sum[i];
}

/* One panel of queries times key panels [first, first + count). */
static void forward_panels(const struct attention_plan *p, struct forward_buffers *f, size_t first,
                           size_t count)
{
    float scale = p->a->scale;
    for (size_t i = 0; i < count; i++) {
        float *scores = f->scores + i * MICRO_TILE;
        struct left_panel k =
            left_panel_packed(p->kind, f->keys + (first + i) * p->head_panels * p->step_bytes);
        KERNEL(panel_multiply)(p->kind, p->head_panels, k, f->queries, scores, false);
        for (size_t n = 0; n < MICRO_TILE; n++) scores[n] *= scale;
        attention_mask_apply(&f->mask, first + i, scores);
    }
    update_row_max(p, f, count);
    if (p->a->dtype == F32)
        softmax_tile(f, PANEL_F32, F32, count);
    else if (p->kind == PANEL_F32)
        softmax_tile(f, PANEL_F32, BF16, count);
    else
        softmax_tile(f, PANEL_BF16, BF16, count);
    const void *probs = p->kind == PANEL_BF16 ? f->probs : f->scores;
    for (size_t w = 0; w < p->head_panels; w++) {
        struct left_panel v =
            left_panel_packed(p->kind, f->values + (w * p->key_panels + first) * p->step_bytes);
        KERNEL(panel_multiply)(p->kind, count, v, probs, f->out + w * MICRO_TILE, true);
    }
}

/* The same for all visible key panels, with AMX. */
static void forward_tiled(const struct attention_plan *p, struct forward_buffers *f,
                          const struct attention_prefetch *prefetch)
{
    const struct attention_mask *mask = &f->mask;
    size_t begin = (size_t)mask->any_begin / PANEL, end = panel_count((size_t)mask->any_end);
    const float log_2 = 0.693147181f;
    struct tiles_forward tiles = {.head_panels = p->head_panels,
                                  .key_panels = p->key_panels,
                                  .keys = f->keys,
                                  .values = f->values,
                                  .queries = f->queries,
                                  .scores = f->scores,
                                  .probs = f->probs,
                                  .out = f->out,
                                  .scale_log2 = p->a->scale / log_2,
                                  .prefetch = *prefetch};
    memcpy(tiles.row_max, f->row_max, sizeof tiles.row_max);
    memset(tiles.sum, 0, sizeof tiles.sum);
    KERNEL(attention_tiles_forward)(&tiles, mask, begin, end);
    memcpy(f->sum, tiles.sum, sizeof f->sum);
    for (size_t i = 0; i < PANEL; i++)
        f->row_max[i] = tiles.row_max[i] * p->a->scale + tiles.headroom * log_2;
}

/* One call of the operation. */
struct forward_call {
    struct attention_plan plan;
    const struct attention_fwd *io;
    size_t head_bytes;   /* of a head's packed keys, or values */
    char *keys, *values; /* packed, of all key/value heads of one row */
};

static void pack_kv(const struct forward_call *c, size_t b)
{
    const struct attention_plan *p = &c->plan;
    const struct attention *a = p->a;
#pragma omp for schedule(static)
    for (size_t g = 0; g < (size_t)a->G; g++) {
        size_t k_at = key_offset(p, b, g, a->k_column), v_at = key_offset(p, b, g, a->v_column);
        struct head_rows values = {c->io->v_BSGK, v_at, a->kv_stride, (size_t)a->S};
        struct operand v = operand_of_rows(p, values, true);
        KERNEL(attention_pack_keys)(p, c->io->k_BSGK, k_at, c->keys + g * c->head_bytes);
        KERNEL(panel_pack)(&v, p->left, 0, p->head_panels, c->values + g * c->head_bytes);
    }
}

/* Stores out and lse of a panel, merged with those of earlier keys if a->keys is MORE_KEYS. */
static void store_out(const struct forward_call *c, struct forward_buffers *f,
                      struct attention_task task)
{
    const struct attention_plan *p = &c->plan;
    const struct attention *a = p->a;
    bool accumulates = a->keys == MORE_KEYS;
    size_t T = (size_t)a->T, count = size_min(PANEL, T - task.first);
    float *lse = c->io->lse_BHT + (task.b * (size_t)a->H + task.h) * T + task.first;
    float scale[PANEL], old_scale[PANEL] = {0};
    struct attention_unpack_to to = {.x = c->io->out_BTHK,
                                     .at = out_offset(p, task.b, task.h, task.first),
                                     .stride = row_stride(p, out_columns(p)),
                                     .panel_stride = head_panel_stride(p),
                                     .dtype = a->keys ? F32 : a->dtype,
                                     .scale = scale,
                                     .old_scale = accumulates ? old_scale : NULL};
    for (size_t i = 0; i < count; i++) {
        bool has_keys = f->sum[i] != 0; /* NaN counts as true and propagates */
        float part_lse = has_keys ? f->row_max[i] + logf(f->sum[i]) : -INFINITY;
        float lse_sum = accumulates ? lse_merge(lse[i], part_lse) : part_lse;
        scale[i] = !has_keys ? 0 : accumulates ? expf(f->row_max[i] - lse_sum) : 1 / f->sum[i];
        if (accumulates && lse[i] != -INFINITY) old_scale[i] = expf(lse[i] - lse_sum);
        lse[i] = lse_sum;
    }
    KERNEL(attention_unpack)(p, f->out, count, &to);
}

/* Task n of a row.  Tasks that read the same keys are adjacent; those with the most visible keys
 * under a causal mask come first. */
static struct attention_task task_at(const struct attention_plan *p, size_t b, size_t n)
{
    size_t heads = heads_per_group(p->a), group = n / (p->query_panels * heads),
           i = n % (p->query_panels * heads);
    return (struct attention_task){b, group * heads + i % heads,
                                   (p->query_panels - 1 - i / heads) * PANEL};
}

/* The queries of a task. */
static struct head_rows query_rows(const struct forward_call *c, struct attention_task task)
{
    const struct attention *a = c->plan.a;
    return (struct head_rows){.x = c->io->q_BTHK,
                              .at = query_offset(&c->plan, task.b, task.h, task.first),
                              .columns = a->q_stride,
                              .count = size_min(PANEL, (size_t)a->T - task.first)};
}

/* Forward for one panel of queries; `next` is probably this thread's next task, for the
 * prefetch. */
static void forward_query_panel(const struct forward_call *c, struct attention_task task,
                                struct attention_task next, char *buffers)
{
    const struct attention_plan *p = &c->plan;
    const struct attention *a = p->a;
    size_t kv_head = task.h / heads_per_group(a);
    struct forward_buffers f = forward_at(p, buffers);
    struct head_rows queries = query_rows(c, task);
    f.keys = c->keys + kv_head * c->head_bytes, f.values = c->values + kv_head * c->head_bytes;
    attention_mask_init(&f.mask, &(struct mask_source){a, c->io->start_BT, c->io->end_BT}, task.b,
                        task.first);
    if (a->keys == MORE_KEYS && f.mask.any_begin >= f.mask.any_end) return;
    if (p->tiled) {
        struct attention_rows r = panel_of_rows(p, queries, 0);
        KERNEL(attention_pack_right)(&r, f.queries, p->step_bytes);
    } else {
        struct operand q = operand_of_rows(p, queries, false);
        KERNEL(panel_pack)(&q, p->right, 0, 1, f.queries);
    }
    size_t begin = (size_t)f.mask.any_begin / PANEL, end = panel_count((size_t)f.mask.any_end);
    struct attention_prefetch prefetch = prefetch_of(p, query_rows(c, next));
    if (p->tiled)
        forward_tiled(p, &f, &prefetch);
    else
        for (size_t k = begin; k < end; k += KEY_GROUP)
            forward_panels(p, &f, k, size_min(KEY_GROUP, end - k));
    store_out(c, &f, task);
}

bool KERNEL(attention_can_pack)(const struct attention *a)
{
    bool full_panels = a->T % PANEL == 0 && a->K % PANEL == 0;
    bool same_layout = a->S == a->T && a->keys == ALL_KEYS && a->q_stride == a->kv_stride;
    return full_panels && same_layout && attention_plan_of(a).tiled && a->q_stride <= INT32_MAX &&
           KERNEL(panel_layout_used)(true, a->dtype, a->B * a->T, (int)a->q_stride);
}

enum status KERNEL(attention_forward)(const struct attention *a, const struct attention_fwd *io,
                                      struct queue *queue)
{
    if (a->T <= DECODE_MAX_QUERIES && a->keys == ALL_KEYS) {
        TRY(KERNEL(attention_decode)(a, io, queue));
        return STATUS_OK;
    }
    struct forward_call c = {.plan = attention_plan_of(a), .io = io};
    const struct attention_plan *p = &c.plan;
    size_t bytes_per_thread = forward_bytes(p), mark = arena_mark(&queue->scratch);
    size_t tasks = p->query_panels * (size_t)a->H, threads = (size_t)queue->num_threads;
    c.head_bytes = p->key_panels * p->head_panels * p->step_bytes;
    c.keys = arena_alloc(&queue->scratch, (size_t)a->G, c.head_bytes);
    c.values = arena_alloc(&queue->scratch, (size_t)a->G, c.head_bytes);
    char *buffers = arena_alloc(&queue->scratch, threads, bytes_per_thread);
    arena_reset(&queue->scratch, mark);
    if (queue->sizing) return STATUS_OK;
#pragma omp parallel num_threads(queue->num_threads)
    {
        tiles_open();
        for (size_t b = 0; b < (size_t)a->B; b++) {
            pack_kv(&c, b);
#pragma omp for schedule(dynamic)
            for (size_t n = 0; n < tasks; n++)
                forward_query_panel(&c, task_at(p, b, n),
                                    task_at(p, b, size_min(n + threads, tasks - 1)),
                                    buffers + (size_t)omp_get_thread_num() * bytes_per_thread);
        }
        vector_stream_fence();
        tiles_close();
    }
    return STATUS_OK;
}
