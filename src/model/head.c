// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include "model/residual.h"
#include "model/unit.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/update.h"
#include "tensor/element.h"

enum { CHUNK_BYTES = 128 << 20, MIN_ROWS = 1024, ROW_MULTIPLE = 64 }; /* MIN_ROWS: by default */

enum param_id head_param(const struct model *m) { return m->shape.tied ? PARAM_embed : PARAM_head; }

/* Logits of a token, padding included. */
static size_t logit_columns(const struct model *m)
{
    return (size_t)model_shape_vocab(&m->shape, m->shape.slice).rows;
}

/* Tokens of a chunk: all chunks about equal, a multiple of ROW_MULTIPLE, so that GEMM tiles are
 * full. */
static int chunk_rows(const struct model *m, int N)
{
    size_t rows = CHUNK_BYTES / (logit_columns(m) * dtype_bytes(m->dtype));
    size_t min_rows = (size_t)(m->ops->logit_rows ? m->ops->logit_rows : MIN_ROWS);
    if (rows < min_rows) rows = min_rows;
    size_t chunks = ((size_t)N + rows - 1) / rows, each = ((size_t)N + chunks - 1) / chunks;
    each = (each + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
    return each < (size_t)N ? (int)each : N;
}

/* Tokens first..first+rows-1 of the microbatch, and buffers of a chunk. */
struct head_chunk {
    const struct microbatch *b;
    int first, rows;
    void *y;          /* normalized inputs of these tokens; backward leaves their gradients */
    void *logits;     /* [rows, logit_columns]; backward leaves their gradients */
    float *stats_PN4; /* vocabulary-parallel cross entropy: statistics of every slice */
    bool backward;
};

/* Loss, best and, with `backward`, the gradient of the logits. */
static enum status cross_entropy_of(const struct model *m, const struct head_chunk *k)
{
    size_t first = (size_t)k->first, slice = (size_t)k->rows * LOSS_STATS_COUNT;
    const struct parallel_plan *plan = m->plan;
    struct vocab_slice vocab = model_shape_vocab(&m->shape, m->shape.slice);
    struct cross_entropy op = {.N = k->rows,
                               .V = vocab.tokens,
                               .row = vocab.rows,
                               .dtype = m->dtype,
                               .scale = k->b->scale,
                               .z_loss = k->b->z_loss,
                               .gradient = k->backward,
                               .is_packed = true,
                               .first = vocab.first,
                               .parts = plan->parts};
    struct cross_entropy_io io = {.logits_NV = k->logits,
                                  .labels_N = element(k->b->labels_BT, first, F32),
                                  .loss_N = element(k->b->loss_BT, first, F32),
                                  .argmax_N = element(k->b->best_BT, first, F32),
                                  .weight_N = element(k->b->weight_BT, first, F32),
                                  .scale_1 = k->b->scale_1};
    if (plan->parts > 1) { /* first gather the statistics of every slice of the vocabulary */
        op.step = LOSS_STATS;
        io.stats_PN4 = element(k->stats_PN4, (size_t)plan->part * slice, F32);
        TRY(cross_entropy(m->ops, &op, &io, m->queue));
        struct crossing c = {.x = k->stats_PN4,
                             .rows = plan->parts * k->rows,
                             .columns = LOSS_STATS_COUNT,
                             .dtype = F32};
        TRY(plan->cross(plan, LOSS, FORWARD, &c, m->queue));
        op.step = LOSS_FROM_STATS;
        io.stats_PN4 = k->stats_PN4;
    }
    TRY(cross_entropy(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

static enum status run_chunk(const struct model *m, const struct head_chunk *k)
{
    const void *w = unit_weight(m, head_param(m), -1);
    struct linear op = {.N = k->rows,
                        .D = m->shape.D,
                        .F = (int)logit_columns(m),
                        .dtype = m->dtype,
                        .y_packed = true};
    struct linear_fwd io = {.x_ND = k->y, .w_FD = w, .y_NF = k->logits};
    TRY(linear_forward(m->ops, &op, &io, m->queue));
    TRY(cross_entropy_of(m, k));
    if (!k->backward) return STATUS_OK;
    op.accumulate = k->first > 0 || !unit_overwrites_gradients(m, head_param(m), -1);
    struct linear_bwd_weight dw = {
        .dy_NF = k->logits, .x_ND = k->y, .dw_FD = unit_gradient(m, head_param(m), -1)};
    TRY(linear_backward_weight(m->ops, &op, &dw, m->queue));
    op.accumulate = false;
    struct linear_bwd_input dx = {.dy_NF = k->logits, .w_FD = w, .dx_ND = k->y};
    TRY(linear_backward_input(m->ops, &op, &dx, m->queue));
    return STATUS_OK;
}

enum status head_scale(const struct model *m, void *y_ND, size_t N)
{
    if (!(m->shape.logits_scaling > 0)) return STATUS_OK;
    struct cast op = {.n = N * (size_t)m->shape.D,
                      .from = m->dtype,
                      .to = m->dtype,
                      .scale = (float)(1 / m->shape.logits_scaling)};
    TRY(cast(m->ops, &op, &(struct cast_io){y_ND, y_ND}, m->queue));
    return STATUS_OK;
}

enum status head_loss(const struct model *m, const struct microbatch *b, struct head_io io,
                      struct arena *step)
{
    int N = b->B * b->T, D = m->shape.D, rows = chunk_rows(m, N);
    size_t mark = arena_mark(step), bytes = dtype_bytes(m->dtype), S = residual_rows(m, (size_t)N);
    size_t stats = (size_t)m->plan->parts * (size_t)rows * LOSS_STATS_COUNT;
    struct head_chunk k = {.b = b, .backward = io.backward};
    void *y = arena_alloc(step, (size_t)N * (size_t)D, bytes);
    void *local = residual_local(m, y, (size_t)N);
    float *rstd = arena_alloc(step, S, sizeof *rstd);
    k.logits = arena_alloc(step, (size_t)rows * logit_columns(m), bytes);
    if (m->plan->parts > 1) k.stats_PN4 = arena_alloc(step, stats, sizeof *k.stats_PN4);
    const void *w = unit_weight(m, PARAM_last_norm, -1);
    struct rmsnorm op = {.N = (int)S, .D = D, .eps = (float)m->shape.norm_eps, .dtype = m->dtype};
    struct rmsnorm_fwd forward = {io.x_SD, w, local, rstd, NULL};
    TRY(rmsnorm_forward(m->ops, &op, &forward, m->queue));
    TRY(head_scale(m, local, S));
    TRY(residual_cross(m, HEAD_IN, FORWARD, y, (size_t)N));
    for (k.first = 0; k.first < N; k.first += rows) {
        k.rows = rows < N - k.first ? rows : N - k.first;
        k.y = element(y, (size_t)k.first * (size_t)D, m->dtype);
        TRY(run_chunk(m, &k));
    }
    if (io.backward) {
        float *dw = unit_gradient(m, PARAM_last_norm, -1);
        struct rmsnorm_bwd backward = {local, io.x_SD, w, rstd, io.dx_SD, dw, NULL};
        TRY(residual_cross(m, HEAD_IN, BACKWARD, y, (size_t)N));
        TRY(head_scale(m, local, S));
        TRY(rmsnorm_backward(m->ops, &op, &backward, m->queue));
    }
    arena_reset(step, mark);
    return STATUS_OK;
}
