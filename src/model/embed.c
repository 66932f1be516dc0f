// SPDX-License-Identifier: Apache-2.0
#include "model/embed.h"

#include "model/residual.h"
#include "model/unit.h"
#include "ops/embedding.h"

static struct embedding embedding_of(const struct model *m, const struct microbatch *b)
{
    struct vocab_slice vocab = model_shape_vocab(&m->shape, m->shape.slice);
    return (struct embedding){.N = b->B * b->T,
                              .V = vocab.tokens,
                              .D = m->shape.D,
                              .dtype = m->dtype,
                              .first = vocab.first};
}

enum status embed_forward(const struct model *m, const struct microbatch *b, void *gathered,
                          void *x)
{
    struct embedding op = embedding_of(m, b);
    bool sliced = m->plan->parts > 1;
    double scale = model_shape_multiplier(m->shape.embedding_multiplier);
    size_t N = (size_t)op.N;
    TRY(unit_open(m, PARAM_embed, -1, USE_WEIGHTS));
    struct embedding_fwd io = {b->ids_BT, unit_weight(m, PARAM_embed, -1), sliced ? gathered : x};
    TRY(embedding_forward(m->ops, &op, &io, m->queue));
    TRY(unit_close(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(residual_cross(m, EMBED_OUT, FORWARD, io.y_ND, N));
    if (sliced)
        TRY(residual_copy(m, N, residual_local(m, gathered, N), x, scale));
    else if (m->shape.embedding_multiplier > 0)
        TRY(residual_copy(m, N, x, x, scale));
    return STATUS_OK;
}

enum status embed_backward(const struct model *m, const struct microbatch *b,
                           struct embed_gradients d)
{
    struct embedding op = embedding_of(m, b);
    bool sliced = m->plan->parts > 1;
    double scale = model_shape_multiplier(m->shape.embedding_multiplier);
    void *dx_ND = sliced ? d.gathered_ND : d.dx_SD;
    size_t N = (size_t)op.N;
    if (sliced)
        TRY(residual_copy(m, N, d.dx_SD, residual_local(m, dx_ND, N), scale));
    else if (m->shape.embedding_multiplier > 0)
        TRY(residual_copy(m, N, d.dx_SD, d.dx_SD, scale));
    TRY(residual_cross(m, EMBED_OUT, BACKWARD, dx_ND, N));
    if (!d.is_open) {
        TRY(unit_open(m, PARAM_embed, -1, d.use));
        if (unit_overwrites_gradients(m, PARAM_embed, -1))
            TRY(unit_zero_gradient(m, PARAM_embed, -1));
    }
    struct embedding_bwd io = {b->ids_BT, dx_ND, unit_gradient(m, PARAM_embed, -1)};
    TRY(embedding_backward(m->ops, &op, &io, m->queue));
    TRY(unit_close(m, PARAM_embed, -1, d.use));
    return STATUS_OK;
}
