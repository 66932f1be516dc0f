// SPDX-License-Identifier: Apache-2.0
#include "model/pass.h"

#include "base/text.h"
#include "model/head.h"
#include "ops/embedding.h"

#include <stdlib.h>

void pass_init(struct pass *p, const struct stage *s)
{
    *p = (struct pass){.stage = s};
    p->blocks = heap((size_t)(s->end - s->begin) * sizeof *p->blocks);
}

void pass_release(struct pass *p)
{
    free(p->blocks);
    *p = (struct pass){0};
}

enum status pass_check(const struct model *m, const struct micro_batch *b)
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

static size_t tokens(const struct micro_batch *b) { return (size_t)b->B * (size_t)b->T; }

size_t pass_elements(const struct model *m, const struct micro_batch *b)
{
    return stream_rows(m, tokens(b)) * (size_t)m->shape.D;
}

static void *stream(const struct model *m, const struct micro_batch *b, struct arena *step)
{
    return arena_take(step, pass_elements(m, b), dtype_bytes(m->dtype));
}

/* --- what is kept -------------------------------------------------------------------------- */

static enum recompute recompute_of(const struct model *m, int layer)
{
    if (m->recompute != RECOMPUTE_FULL || m->recompute_every <= 1) return m->recompute;
    return (layer + 1) % m->recompute_every ? RECOMPUTE_NONE : RECOMPUTE_FULL;
}

void pass_share(const struct model *m, const struct micro_batch *b, struct activations *shared,
                struct arena *step)
{
    enum recompute most = RECOMPUTE_NONE;
    for (int layer = 0; layer < m->shape.L; layer++)
        if (layout_unit(&m->layout, PARAM_attn_norm, layer) >= 0 && recompute_of(m, layer) > most)
            most = recompute_of(m, layer);
    activations_share(m, tokens(b), most, shared, step);
}

void pass_take(const struct model *m, const struct micro_batch *b, const struct activations *shared,
               struct pass *p, struct arena *step)
{
    const struct stage *s = p->stage;
    int blocks = s->end - s->begin;
    p->shared = shared;
    if (s->embeds && blocks) p->in_SD = stream(m, b, step);
    for (int i = 0; i < blocks; i++) {
        enum recompute recompute = recompute_of(m, s->begin + i);
        activations_take(m, tokens(b), recompute, shared, &p->blocks[i], step);
        if (i) p->blocks[i].x_SD = stream(m, b, step);
    }
    if (s->heads && blocks) p->out_SD = stream(m, b, step);
}

/* --- forward ------------------------------------------------------------------------------- */

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
    TRY(model_open(m, PARAM_embed, -1, USE_WEIGHTS));
    struct embedding_fwd io = {b->ids_BT, model_weight(m, PARAM_embed, -1), cut ? wide : x};
    TRY(embedding_forward(m->ops, &what, &io, m->on));
    TRY(model_close(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(model_cross(m, EMBED_OUT, FORWARD, io.y_ND, N, what.D));
    if (cut) TRY(stream_copy(m, N, stream_part(m, wide, N), x, false));
    return STATUS_OK;
}

enum status pass_forward(const struct model *m, const struct micro_batch *b, const struct pass *p)
{
    const struct stage *s = p->stage;
    int blocks = s->end - s->begin;
    if (s->embeds) TRY(model_embed(m, b, p->shared->wide_ND, p->in_SD));
    for (int i = 0; i < blocks; i++) {
        int layer = s->begin + i;
        struct activations *a = &p->blocks[i];
        if (!i) a->x_SD = p->in_SD;
        void *out = i + 1 < blocks ? a[1].x_SD : p->out_SD;
        TRY(model_open(m, PARAM_attn_norm, layer, USE_WEIGHTS));
        TRY(block_forward(m, b, layer, a, false, out));
        TRY(model_close(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    }
    return STATUS_OK;
}

static enum status head(const struct model *m, const struct micro_batch *b, const void *x,
                        unsigned use, void *dx, struct arena *step)
{
    TRY(model_open(m, PARAM_last_norm, -1, use));
    if (m->shape.tied) TRY(model_open(m, PARAM_embed, -1, use));
    TRY(head_run(m, b, x, use & USE_GRADIENTS, dx, step));
    TRY(model_close(m, PARAM_last_norm, -1, use));
    return STATUS_OK;
}

enum status pass_infer(const struct model *m, const struct micro_batch *b, const struct stage *s,
                       const struct activations *shared, void *x, struct arena *step)
{
    struct activations a = *shared;
    a.x_SD = a.middle_SD = x;
    if (s->embeds) TRY(model_embed(m, b, a.wide_ND, x));
    for (int layer = s->begin; layer < s->end; layer++) {
        TRY(model_open(m, PARAM_attn_norm, layer, USE_WEIGHTS));
        TRY(block_forward(m, b, layer, &a, true, x));
        TRY(model_close(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    }
    if (!s->heads) return STATUS_OK;
    TRY(head(m, b, x, USE_WEIGHTS, NULL, step));
    if (m->shape.tied) TRY(model_close(m, PARAM_embed, -1, USE_WEIGHTS));
    return STATUS_OK;
}

/* --- backward ------------------------------------------------------------------------------ */

/* A tied embedding of the same stage is open already: the head has begun its gradient. */
static enum status embed_backward(const struct model *m, const struct micro_batch *b, void *wide,
                                  void *dx, unsigned use, bool is_open)
{
    struct embedding what = embedding_of(m, b);
    bool cut = m->plan->parts > 1;
    size_t N = (size_t)what.N;
    if (cut) TRY(stream_copy(m, N, dx, stream_part(m, wide, N), false));
    TRY(model_cross(m, EMBED_OUT, BACKWARD, cut ? wide : dx, N, what.D));
    if (!is_open) {
        TRY(model_open(m, PARAM_embed, -1, use));
        if (model_is_fresh(m, PARAM_embed, -1)) TRY(model_clear(m, PARAM_embed, -1));
    }
    struct embedding_bwd io = {b->ids_BT, cut ? wide : dx, model_gradient(m, PARAM_embed, -1)};
    TRY(embedding_backward(m->ops, &what, &io, m->on));
    TRY(model_close(m, PARAM_embed, -1, use));
    return STATUS_OK;
}

enum status pass_backward(const struct model *m, const struct micro_batch *b, const struct pass *p,
                          void *dx, struct arena *step)
{
    const struct stage *s = p->stage;
    const unsigned gradients = USE_GRADIENTS | (b->last ? USE_LAST : 0);
    const unsigned both = USE_WEIGHTS | gradients;
    bool tied = s->heads && m->shape.tied;
    BUG_IF(!m->gradients && !m->units && !m->on->measuring);
    if (s->heads) TRY(head(m, b, p->out_SD, both, dx, step));
    if (tied && !s->embeds) TRY(model_close(m, PARAM_embed, -1, both));
    for (int layer = s->end - 1; layer >= s->begin; layer--) {
        TRY(model_open(m, PARAM_attn_norm, layer, both));
        TRY(block_backward(m, b, layer, &p->blocks[layer - s->begin], dx, step));
        TRY(model_close(m, PARAM_attn_norm, layer, both));
    }
    if (s->embeds) TRY(embed_backward(m, b, p->shared->wide_ND, dx, gradients, tied));
    return STATUS_OK;
}
