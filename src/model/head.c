// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include "model/residual.h"
#include "model/unit.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/update.h"
#include "tensor/element.h"

/* By default; MASKED_CHUNKS: of a microbatch of masked tokens, unless they would be too small. */
enum { CHUNK_BYTES = 128 << 20, MIN_ROWS = 1024, ROW_MULTIPLE = 64, MASKED_CHUNKS = 16 };

enum param_id head_param(const struct model *m) { return m->shape.tied ? PARAM_embed : PARAM_head; }

/* Logits of a token, padding included. */
static size_t logit_columns(const struct model *m)
{
    return (size_t)model_shape_vocab(&m->shape, m->shape.slice).rows;
}

static int num_tokens(const struct microbatch *b) { return b->B * b->T; }

/* Tokens of a chunk: all chunks about equal, a multiple of ROW_MULTIPLE, so that GEMM tiles are
 * full. */
static int chunk_rows(const struct model *m, const struct microbatch *b)
{
    size_t N = (size_t)num_tokens(b);
    size_t rows = CHUNK_BYTES / (logit_columns(m) * dtype_bytes(m->dtype));
    size_t min_rows = (size_t)(m->ops->logit_rows ? m->ops->logit_rows : MIN_ROWS);
    if (!b->causal) min_rows /= 4;
    if (!b->causal && rows > N / MASKED_CHUNKS) rows = N / MASKED_CHUNKS;
    if (rows < min_rows) rows = min_rows;
    size_t chunks = (N + rows - 1) / rows, each = (N + chunks - 1) / chunks;
    each = (each + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
    return each < N ? (int)each : (int)N;
}

int head_count_tokens(const struct model *m, const struct microbatch *b, int num_labels)
{
    int rows = chunk_rows(m, b), N = num_tokens(b), chunks = (num_labels + rows - 1) / rows;
    if (chunks < 1) chunks = 1; /* it may have to overwrite the gradients */
    return chunks <= N / rows ? chunks * rows : N;
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

/* Copies elements of tokens to the head's order, or `back`, where others become zeros.
 * embedding_forward copies rows bit by bit; F32 stands for any 4 bytes. */
struct token_copy {
    bool back;
    const void *from;
    void *to;
    int columns;
    enum dtype dtype;
};

static enum status copy_tokens(const struct model *m, const struct microbatch *b,
                               const struct token_copy *c)
{
    int N = num_tokens(b), listed = b->head_tokens;
    struct embedding op = {
        .N = c->back ? N : listed, .V = c->back ? listed : N, .D = c->columns, .dtype = c->dtype};
    struct embedding_fwd io = {c->back ? b->inverse_order_BT : b->order_BT, c->from, c->to};
    TRY(embedding_forward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* What cross entropy reads and writes, in the head's order. */
struct listed_tokens {
    int32_t *labels, *best;
    float *weight, *loss;
};

static void alloc_listed(struct listed_tokens *t, size_t N, struct arena *step)
{
    t->labels = arena_alloc(step, N, sizeof *t->labels);
    t->best = arena_alloc(step, N, sizeof *t->best);
    t->weight = arena_alloc(step, N, sizeof *t->weight);
    t->loss = arena_alloc(step, N, sizeof *t->loss);
}

/* *listed is b with these arrays. */
static enum status gather_labels(const struct model *m, const struct microbatch *b,
                                 const struct listed_tokens *t, struct microbatch *listed)
{
    struct token_copy labels = {false, b->labels_BT, t->labels, 1, F32};
    struct token_copy weight = {false, b->weight_BT, t->weight, 1, F32};
    *listed = *b;
    listed->labels_BT = t->labels, listed->loss_BT = t->loss;
    if (b->best_BT) listed->best_BT = t->best;
    if (b->weight_BT) listed->weight_BT = t->weight;
    TRY(copy_tokens(m, b, &labels));
    if (b->weight_BT) TRY(copy_tokens(m, b, &weight));
    return STATUS_OK;
}

static enum status scatter_losses(const struct model *m, const struct microbatch *b,
                                  const struct listed_tokens *t)
{
    struct token_copy loss = {true, t->loss, b->loss_BT, 1, F32};
    struct token_copy best = {true, t->best, b->best_BT, 1, F32};
    TRY(copy_tokens(m, b, &loss));
    if (b->best_BT) TRY(copy_tokens(m, b, &best));
    return STATUS_OK;
}

/* Runs the chunks of the first `count` tokens.  A sizing pass also visits the sizes of microbatches
 * with more labels: a second chunk, which accumulates, and a last one that is smaller. */
static enum status run_chunks(const struct model *m, struct head_chunk *k, void *y, int count)
{
    int N = num_tokens(k->b), rows = chunk_rows(m, k->b);
    for (k->first = 0; k->first < N; k->first += rows) {
        k->rows = rows < N - k->first ? rows : N - k->first;
        bool is_new_size = k->first == rows || k->rows < rows;
        if (k->first >= count && !(m->queue->sizing && is_new_size)) continue;
        k->y = element(y, (size_t)k->first * (size_t)m->shape.D, m->dtype);
        TRY(run_chunk(m, k));
    }
    return STATUS_OK;
}

/* Losses of normalized inputs y, and with `backward` their gradient, in place. */
static enum status run_tokens(const struct model *m, const struct microbatch *b, struct head_io io,
                              void *y_ND, struct arena *step)
{
    int N = num_tokens(b), rows = chunk_rows(m, b);
    size_t mark = arena_mark(step), bytes = dtype_bytes(m->dtype);
    size_t stats = (size_t)m->plan->parts * (size_t)rows * LOSS_STATS_COUNT;
    struct head_chunk k = {.b = b, .backward = io.backward};
    struct listed_tokens t = {0};
    struct microbatch listed;
    k.logits = arena_alloc(step, (size_t)rows * logit_columns(m), bytes);
    if (m->plan->parts > 1) k.stats_PN4 = arena_alloc(step, stats, sizeof *k.stats_PN4);
    if (rows < N) alloc_listed(&t, (size_t)N, step);
    if (b->head_tokens && b->head_tokens < N) {
        struct token_copy in = {false, y_ND, io.scratch_ND, m->shape.D, m->dtype};
        struct token_copy out = {true, io.scratch_ND, y_ND, m->shape.D, m->dtype};
        TRY(gather_labels(m, b, &t, &listed));
        TRY(copy_tokens(m, b, &in));
        k.b = &listed;
        TRY(run_chunks(m, &k, io.scratch_ND, b->head_tokens));
        TRY(scatter_losses(m, b, &t));
        if (io.backward) TRY(copy_tokens(m, b, &out));
    } else {
        TRY(run_chunks(m, &k, y_ND, N));
    }
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status head_loss(const struct model *m, const struct microbatch *b, struct head_io io,
                      struct arena *step)
{
    int N = num_tokens(b), D = m->shape.D;
    size_t mark = arena_mark(step), S = residual_rows(m, (size_t)N);
    void *y = arena_alloc(step, (size_t)N * (size_t)D, dtype_bytes(m->dtype));
    void *local = residual_local(m, y, (size_t)N);
    float *rstd = arena_alloc(step, S, sizeof *rstd);
    const void *w = unit_weight(m, PARAM_last_norm, -1);
    struct rmsnorm op = {.N = (int)S, .D = D, .eps = (float)m->shape.norm_eps, .dtype = m->dtype};
    struct rmsnorm_fwd forward = {io.x_SD, w, local, rstd, NULL};
    TRY(rmsnorm_forward(m->ops, &op, &forward, m->queue));
    TRY(head_scale(m, local, S));
    TRY(residual_cross(m, HEAD_IN, FORWARD, y, (size_t)N));
    TRY(run_tokens(m, b, io, y, step));
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
