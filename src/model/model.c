// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include "base/text.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/embedding.h"

#include <limits.h>
#include <stdlib.h>

enum status model_init(struct model *m, const struct model_shape *shape, int max_tokens, int parts,
                       struct arena *run)
{
    TRY(model_shape_check(shape));
    if (max_tokens < 1) FAIL(SHAPE, "a model for rows of %d tokens: at least 1", max_tokens);
    m->shape = *shape;
    m->max_tokens = max_tokens;
    size_t angles = (size_t)max_tokens * (size_t)(shape->K / 2);
    m->rope_cos = arena_take(run, angles, sizeof(float));
    m->rope_sin = arena_take(run, angles, sizeof(float));
    if (m->rope_cos)
        rope_table(max_tokens, shape->K, shape->rope_theta, &shape->scaling, m->rope_cos,
                   m->rope_sin);
    layout_init(&m->layout, shape, parts);
    m->blocks = heap((size_t)shape->L * sizeof *m->blocks);
    m->places = heap((size_t)m->layout.num_units * sizeof *m->places);
    return STATUS_OK;
}

void model_release(struct model *m)
{
    free(m->blocks);
    free(m->places);
    m->blocks = NULL, m->places = NULL;
    layout_release(&m->layout);
}

static enum status check(const struct model *m, const struct micro_batch *b)
{
    int N, contexts = m->plan->contexts > 1 ? m->plan->contexts : 1;
    int most = m->max_tokens / contexts;
    if (b->B < 1 || b->T < 1 || b->T > most || __builtin_mul_overflow(b->B, b->T, &N))
        FAIL(SHAPE, "a batch of %d rows of %d tokens: at least 1 of 1..%d, together below 2^31",
             b->B, b->T, most);
    if (contexts > 1 && b->causal && b->T % 2)
        FAIL(SHAPE, "rows of %d tokens for each of %d contexts: an even number", b->T, contexts);
    if (N % (m->plan->stream_cut ? m->plan->parts : 1))
        FAIL(SHAPE, "%d rows of %d tokens cannot be cut into %d parts", b->B, b->T, m->plan->parts);
    BUG_IF(!b->start_BT != !b->end_BT);
    return STATUS_OK;
}

static struct embedding embedding_of(const struct model *m, const struct micro_batch *b)
{
    return (struct embedding){.N = b->B * b->T,
                              .V = m->shape.V,
                              .D = m->shape.D,
                              .dtype = m->dtype,
                              .first = m->plan->part * m->shape.V};
}

enum status model_embed(const struct model *m, const struct micro_batch *b, void *wide, void *x)
{
    struct embedding what = embedding_of(m, b);
    bool cut = m->plan->parts > 1;
    size_t N = (size_t)what.N;
    TRY(model_open(m, 0, USE_WEIGHTS));
    struct embedding_fwd io = {b->ids_BT, model_weight(m, PARAM_embed, -1), cut ? wide : x};
    TRY(embedding_forward(m->ops, &what, &io, m->on));
    TRY(model_close(m, 0, USE_WEIGHTS));
    TRY(model_cross(m, EMBED_OUT, FORWARD, io.y_ND, N, what.D));
    if (cut) TRY(stream_copy(m, N, stream_part(m, wide, N), x, false));
    return STATUS_OK;
}

/* A tied embedding is open already: the head has begun its gradient. */
static enum status embed_backward(const struct model *m, const struct micro_batch *b, void *wide,
                                  void *dx)
{
    struct embedding what = embedding_of(m, b);
    bool cut = m->plan->parts > 1;
    size_t N = (size_t)what.N;
    if (cut) TRY(stream_copy(m, N, dx, stream_part(m, wide, N), false));
    TRY(model_cross(m, EMBED_OUT, BACKWARD, cut ? wide : dx, N, what.D));
    if (!m->shape.tied) TRY(model_open(m, 0, USE_GRADIENTS));
    struct embedding_bwd io = {b->ids_BT, cut ? wide : dx, model_gradient(m, PARAM_embed, -1)};
    TRY(embedding_backward(m->ops, &what, &io, m->on));
    TRY(model_close(m, 0, USE_GRADIENTS));
    return STATUS_OK;
}

static enum status head(const struct model *m, const struct micro_batch *b, const void *x,
                        unsigned use, void *dx, struct arena *step)
{
    int last = m->layout.num_units - 1;
    TRY(model_open(m, last, use));
    if (m->shape.tied) TRY(model_open(m, 0, use));
    TRY(head_run(m, b, x, use & USE_GRADIENTS, dx, step));
    TRY(model_close(m, last, use));
    if (m->shape.tied && use == USE_WEIGHTS) TRY(model_close(m, 0, use));
    return STATUS_OK;
}

/* The residual stream between two blocks. */
static void *stream(const struct model *m, const struct micro_batch *b, struct arena *step)
{
    size_t S = stream_rows(m, (size_t)b->B * (size_t)b->T);
    return arena_take(step, S * (size_t)m->shape.D, dtype_bytes(m->dtype));
}

enum status model_evaluate(const struct model *m, const struct micro_batch *b, struct arena *step)
{
    TRY(check(m, b));
    size_t mark = arena_mark(step);
    struct activations a;
    activations_share(m, (size_t)b->B * (size_t)b->T, RECOMPUTE_FULL, &a, step);
    a.x_SD = a.middle_SD;
    TRY(model_embed(m, b, a.wide_ND, a.x_SD));
    for (int layer = 0; layer < m->shape.L; layer++) {
        TRY(model_open(m, 1 + layer, USE_WEIGHTS));
        TRY(block_forward(m, b, layer, &a, true, a.x_SD));
        TRY(model_close(m, 1 + layer, USE_WEIGHTS));
    }
    TRY(head(m, b, a.x_SD, USE_WEIGHTS, NULL, step));
    arena_reset(step, mark);
    return STATUS_OK;
}

static enum recompute recompute_of(const struct model *m, int layer)
{
    if (m->recompute != RECOMPUTE_FULL || m->recompute_every <= 1) return m->recompute;
    return (layer + 1) % m->recompute_every ? RECOMPUTE_NONE : RECOMPUTE_FULL;
}

enum status model_train(const struct model *m, const struct micro_batch *b, struct arena *step)
{
    TRY(check(m, b));
    BUG_IF(!m->gradients && !m->units && !m->on->measuring);
    const unsigned both = USE_WEIGHTS | USE_GRADIENTS;
    size_t N = (size_t)b->B * (size_t)b->T, mark = arena_mark(step);
    enum recompute most = RECOMPUTE_NONE;
    for (int layer = 0; layer < m->shape.L; layer++)
        if (recompute_of(m, layer) > most) most = recompute_of(m, layer);
    struct activations shared;
    activations_share(m, N, most, &shared, step);

    void *x = stream(m, b, step);
    TRY(model_embed(m, b, shared.wide_ND, x));
    for (int layer = 0; layer < m->shape.L; layer++) {
        struct activations *a = &m->blocks[layer];
        activations_take(m, N, recompute_of(m, layer), &shared, a, step);
        a->x_SD = x;
        x = stream(m, b, step);
        TRY(model_open(m, 1 + layer, USE_WEIGHTS));
        TRY(block_forward(m, b, layer, a, false, x));
        TRY(model_close(m, 1 + layer, USE_WEIGHTS));
    }
    void *dx = stream(m, b, step);
    TRY(head(m, b, x, both, dx, step));
    for (int layer = m->shape.L - 1; layer >= 0; layer--) {
        TRY(model_open(m, 1 + layer, both));
        TRY(block_backward(m, b, layer, &m->blocks[layer], dx, step));
        TRY(model_close(m, 1 + layer, both));
    }
    TRY(embed_backward(m, b, shared.wide_ND, dx));
    arena_reset(step, mark);
    return STATUS_OK;
}

double model_flops_per_token(const struct model_shape *s, int T)
{
    double V = s->V, D = s->D, L = s->L, Q = (double)s->H * s->K, P = (double)s->G * s->K;
    double block = 2 * D + D * (2 * Q + 2 * P) + 3 * D * s->F;
    double parameters = L * block + D + V * D; /* of which V D is the head, tied or not */
    return 6 * parameters + 12 * L * Q * T;
}
