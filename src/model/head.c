// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include "model/block.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"

enum { CHUNK_BYTES = 128 << 20, LEAST_ROWS = 1024, WHOLE_ROWS = 64 };

enum param_id head_param(const struct model *m) { return m->shape.tied ? PARAM_embed : PARAM_head; }

static int chunk_rows(const struct model *m, int N)
{
    size_t rows = CHUNK_BYTES / ((size_t)m->shape.V * dtype_bytes(m->dtype));
    if (rows < LEAST_ROWS) rows = LEAST_ROWS;
    size_t chunks = ((size_t)N + rows - 1) / rows, each = ((size_t)N + chunks - 1) / chunks;
    each = (each + WHOLE_ROWS - 1) / WHOLE_ROWS * WHOLE_ROWS; /* even, and whole for products */
    return each < (size_t)N ? (int)each : N;
}

/* What a chunk's logits say; with `backward` they become their gradient. */
static enum status losses(const struct model *m, const struct micro_batch *b, int first, int rows,
                          void *logits, float *stats_PN4, bool backward)
{
    size_t at = (size_t)first, part = (size_t)rows * LOSS_STATS_COUNT;
    const struct plan *plan = m->plan;
    struct cross_entropy what = {.N = rows,
                                 .V = m->shape.V,
                                 .dtype = m->dtype,
                                 .scale = b->scale,
                                 .gradient = backward,
                                 .is_private = true,
                                 .first = plan->part * m->shape.V,
                                 .parts = plan->parts};
    struct cross_entropy_io io = {.logits_NV = logits,
                                  .labels_N = element(b->labels_BT, at, F32),
                                  .loss_N = element(b->loss_BT, at, F32),
                                  .best_N = element(b->best_BT, at, F32)};
    if (plan->parts > 1) { /* what every part of the vocabulary knows of these tokens */
        what.step = LOSS_STATS;
        io.stats_PN4 = element(stats_PN4, (size_t)plan->part * part, F32);
        TRY(cross_entropy(m->ops, &what, &io, m->on));
        struct crossing c = {stats_PN4, plan->parts * rows, LOSS_STATS_COUNT, F32};
        TRY(plan->cross(plan, LOSS, FORWARD, &c, m->on));
        what.step = LOSS_JOINED;
        io.stats_PN4 = stats_PN4;
    }
    TRY(cross_entropy(m->ops, &what, &io, m->on));
    return STATUS_OK;
}

/* Rows first..first+rows-1; backward leaves dy where y was. */
static enum status chunk(const struct model *m, const struct micro_batch *b, int first, int rows,
                         void *y_ND, void *logits, float *stats_PN4, bool backward)
{
    const void *w = model_weight(m, head_param(m), -1);
    void *y = element(y_ND, (size_t)first * (size_t)m->shape.D, m->dtype);
    struct linear what = {
        .N = rows, .D = m->shape.D, .F = m->shape.V, .dtype = m->dtype, .y_private = true};
    TRY(linear_forward(m->ops, &what, &(struct linear_fwd){.x_ND = y, .w_FD = w, .y_NF = logits},
                       m->on));
    TRY(losses(m, b, first, rows, logits, stats_PN4, backward));
    if (!backward) return STATUS_OK;
    what.accumulate = first > 0 || !model_is_fresh(m, head_param(m), -1);
    struct linear_bwd_weight dw = {
        .dy_NF = logits, .x_ND = y, .dw_FD = model_gradient(m, head_param(m), -1)};
    TRY(linear_backward_weight(m->ops, &what, &dw, m->on));
    what.accumulate = false;
    TRY(linear_backward_input(
        m->ops, &what, &(struct linear_bwd_input){.dy_NF = logits, .w_FD = w, .dx_ND = y}, m->on));
    return STATUS_OK;
}

enum status head_run(const struct model *m, const struct micro_batch *b, const void *x_SD,
                     bool backward, void *dx_SD, struct arena *step)
{
    int N = b->B * b->T, D = m->shape.D, rows = chunk_rows(m, N);
    size_t mark = arena_mark(step), bytes = dtype_bytes(m->dtype), S = stream_rows(m, (size_t)N);
    size_t stats = (size_t)m->plan->parts * (size_t)rows * LOSS_STATS_COUNT;
    void *y = arena_take(step, (size_t)N * (size_t)D, bytes);
    void *here = stream_part(m, y, (size_t)N);
    float *rstd = arena_take(step, S, sizeof *rstd);
    void *logits = arena_take(step, (size_t)rows * (size_t)m->shape.V, bytes);
    float *known = m->plan->parts > 1 ? arena_take(step, stats, sizeof *known) : NULL;
    const void *w = model_weight(m, PARAM_last_norm, -1);
    struct rmsnorm what = {.N = (int)S, .D = D, .eps = (float)m->shape.norm_eps, .dtype = m->dtype};
    TRY(rmsnorm_forward(m->ops, &what, &(struct rmsnorm_fwd){x_SD, w, here, rstd, NULL}, m->on));
    TRY(model_cross(m, HEAD_IN, FORWARD, y, (size_t)N, D));
    for (int first = 0; first < N; first += rows)
        TRY(chunk(m, b, first, rows < N - first ? rows : N - first, y, logits, known, backward));
    if (backward) {
        struct rmsnorm_bwd io = {here, x_SD,  w,
                                 rstd, dx_SD, model_gradient(m, PARAM_last_norm, -1)};
        TRY(model_cross(m, HEAD_IN, BACKWARD, y, (size_t)N, D));
        TRY(rmsnorm_backward(m->ops, &what, &io, m->on));
    }
    arena_reset(step, mark);
    return STATUS_OK;
}
