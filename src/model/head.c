// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include "model/block.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"

enum { CHUNK_BYTES = 64 << 20, LEAST_ROWS = 1024, WHOLE_ROWS = 64 };

enum param_id head_param(const struct model *m) { return m->shape.tied ? PARAM_embed : PARAM_head; }

static int chunk_rows(const struct model *m, int N)
{
    size_t rows = CHUNK_BYTES / ((size_t)m->shape.V * dtype_bytes(m->dtype));
    if (rows < LEAST_ROWS) rows = LEAST_ROWS;
    size_t chunks = ((size_t)N + rows - 1) / rows, each = ((size_t)N + chunks - 1) / chunks;
    each = (each + WHOLE_ROWS - 1) / WHOLE_ROWS * WHOLE_ROWS; /* even, and whole for products */
    return each < (size_t)N ? (int)each : N;
}

/* Rows first..first+rows-1; backward leaves dy where y was. */
static enum status chunk(const struct model *m, const struct micro_batch *b, int first, int rows,
                         void *y_ND, void *logits, bool backward)
{
    size_t at = (size_t)first;
    const void *w = model_weight(m, head_param(m), -1);
    void *y = element(y_ND, at * (size_t)m->shape.D, m->dtype);
    struct linear what = {.N = rows, .D = m->shape.D, .F = m->shape.V, .dtype = m->dtype};
    struct cross_entropy loss = {
        .N = rows, .V = m->shape.V, .dtype = m->dtype, .scale = b->scale, .gradient = backward};
    struct cross_entropy_io io = {.logits_NV = logits,
                                  .labels_N = element(b->labels_BT, at, F32),
                                  .loss_N = element(b->loss_BT, at, F32),
                                  .best_N = element(b->best_BT, at, F32)};
    TRY(linear_forward(m->ops, &what, &(struct linear_fwd){y, w, logits}, m->on));
    TRY(cross_entropy(m->ops, &loss, &io, m->on));
    if (!backward) return STATUS_OK;
    what.accumulate = true;
    struct linear_bwd_weight dw = {logits, y, model_gradient(m, head_param(m), -1)};
    TRY(linear_backward_weight(m->ops, &what, &dw, m->on));
    what.accumulate = false;
    TRY(linear_backward_input(m->ops, &what, &(struct linear_bwd_input){logits, w, y}, m->on));
    return STATUS_OK;
}

enum status head_run(const struct model *m, const struct micro_batch *b, const void *x_ND,
                     bool backward, void *dx_ND, struct arena *step)
{
    int N = b->B * b->T, D = m->shape.D, rows = chunk_rows(m, N);
    size_t mark = arena_mark(step), bytes = dtype_bytes(m->dtype);
    void *y = arena_take(step, (size_t)N * (size_t)D, bytes);
    float *rstd = arena_take(step, (size_t)N, sizeof *rstd);
    void *logits = arena_take(step, (size_t)rows * (size_t)m->shape.V, bytes);
    const void *w = model_weight(m, PARAM_last_norm, -1);
    struct rmsnorm what = {.N = N, .D = D, .eps = (float)m->shape.norm_eps, .dtype = m->dtype};
    TRY(rmsnorm_forward(m->ops, &what, &(struct rmsnorm_fwd){x_ND, w, y, rstd}, m->on));
    TRY(model_cross(m, HEAD_IN, FORWARD, y, (size_t)N, D));
    for (int first = 0; first < N; first += rows)
        TRY(chunk(m, b, first, rows < N - first ? rows : N - first, y, logits, backward));
    if (backward) {
        struct rmsnorm_bwd io = {y, x_ND, w, rstd, dx_ND, model_gradient(m, PARAM_last_norm, -1)};
        TRY(model_cross(m, HEAD_IN, BACKWARD, y, (size_t)N, D));
        TRY(rmsnorm_backward(m->ops, &what, &io, m->on));
    }
    arena_reset(step, mark);
    return STATUS_OK;
}
