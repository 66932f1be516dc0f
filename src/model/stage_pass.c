// SPDX-License-Identifier: Apache-2.0
#include "model/stage_pass.h"

#include "base/text.h"
#include "model/activation_offload.h"
#include "model/block.h"
#include "model/embed.h"
#include "model/head.h"
#include "model/residual.h"
#include "model/unit.h"

#include <limits.h>
#include <stdlib.h>

void stage_pass_init(struct stage_pass *p, const struct stage *s)
{
    *p = (struct stage_pass){.stage = s};
    p->blocks = heap((size_t)(s->end - s->begin) * sizeof *p->blocks);
}

void stage_pass_release(struct stage_pass *p)
{
    free(p->blocks);
    *p = (struct stage_pass){0};
}

enum status stage_pass_check(const struct model *m, const struct microbatch *b)
{
    int N, contexts = m->plan->contexts > 1 ? m->plan->contexts : 1;
    int max = m->max_tokens / contexts;
    if (b->B < 1 || b->T < 1 || b->T > max || __builtin_mul_overflow(b->B, b->T, &N))
        FAIL(SHAPE,
             "a batch of %d rows of %d tokens: expected at least 1 row of 1 to %d tokens, fewer "
             "than 2^31 tokens in all",
             b->B, b->T, max);
    if (contexts > 1 && b->causal && b->T % 2)
        FAIL(SHAPE,
             "%d tokens of each row with context parallelism over %d: must be even for causal "
             "attention",
             b->T, contexts);
    if (m->shape.qk_norm && N > INT_MAX / m->shape.H)
        FAIL(SHAPE,
             "a batch of %d rows of %d tokens: with QK norm, tokens times %d query heads must "
             "be below 2^31",
             b->B, b->T, m->shape.H);
    if (N % (m->plan->sequence_parallel ? m->plan->parts : 1))
        FAIL(SHAPE, "%d rows of %d tokens are not divisible by tensor-parallel size %d", b->B, b->T,
             m->plan->parts);
    BUG_IF(!b->start_BT != !b->end_BT);
    return STATUS_OK;
}

static size_t num_tokens(const struct microbatch *b) { return (size_t)b->B * (size_t)b->T; }

size_t stage_pass_residual_elements(const struct model *m, const struct microbatch *b)
{
    return residual_rows(m, num_tokens(b)) * (size_t)m->shape.D;
}

static void *alloc_stream(const struct model *m, const struct microbatch *b, struct arena *step)
{
    return arena_alloc(step, stage_pass_residual_elements(m, b), dtype_bytes(m->dtype));
}

/* --- saved activations --- */

static enum recompute recompute_of(const struct model *m, int layer)
{
    if (m->recompute != RECOMPUTE_FULL || m->recompute_every <= 1) return m->recompute;
    return (layer + 1) % m->recompute_every ? RECOMPUTE_NONE : RECOMPUTE_FULL;
}

void stage_pass_alloc_shared(const struct model *m, const struct microbatch *b,
                             struct activations *shared, struct arena *step)
{
    enum recompute most = RECOMPUTE_NONE, least = m->recompute;
    for (int layer = 0; layer < m->shape.L; layer++) {
        enum recompute kind = recompute_of(m, layer);
        if (layout_unit(&m->layout, PARAM_attn_norm, layer) < 0) continue;
        if (kind > most) most = kind;
        if (kind < least) least = kind;
    }
    activations_alloc_shared(m, num_tokens(b), most, shared, step);
    if (m->offload) activation_offload_alloc(m, num_tokens(b), least, step);
}

void stage_pass_alloc(const struct model *m, const struct microbatch *b,
                      const struct activations *shared, struct stage_pass *p, struct arena *step)
{
    const struct stage *s = p->stage;
    int blocks = s->end - s->begin;
    p->shared = shared;
    if (s->embeds && blocks) p->in_SD = alloc_stream(m, b, step);
    for (int i = 0; i < blocks; i++) {
        struct activations *a = &p->blocks[i];
        *a = *shared;
        a->recompute = recompute_of(m, s->begin + i);
        if (m->offload) {
            activation_offload_place(m, num_tokens(b), i, blocks, a);
            continue;
        }
        activations_alloc_saved(m, num_tokens(b), a, step);
        if (i) a->x_SD = alloc_stream(m, b, step);
    }
    if (s->heads && blocks) p->out_SD = alloc_stream(m, b, step);
}

/* --- forward --- */

static enum status begin_float8_pass(const struct model *m, const struct stage *s,
                                     enum float8_role role)
{
    return m->float8 ? float8_begin_pass(m->float8, role, s->begin, s->end) : STATUS_OK;
}

enum status stage_pass_forward(const struct model *m, const struct microbatch *b,
                               const struct stage_pass *p)
{
    const struct stage *s = p->stage;
    int blocks = s->end - s->begin;
    TRY(begin_float8_pass(m, s, FLOAT8_INPUT));
    if (s->embeds) TRY(embed_forward(m, b, p->shared->gathered_ND, p->in_SD));
    for (int i = 0; i < blocks; i++) {
        struct activations *a = &p->blocks[i];
        struct block_call block = {m, s->begin + i, num_tokens(b), a};
        if (!i) a->x_SD = p->in_SD;
        void *out = i + 1 < blocks ? a[1].x_SD : p->out_SD;
        TRY(unit_open(m, PARAM_attn_norm, block.layer, USE_WEIGHTS));
        if (m->offload) TRY(activation_offload_begin_forward(m, i, blocks));
        TRY(block_forward(&block, b, false, out));
        if (m->offload) TRY(activation_offload_end_forward(m, p->blocks, i, blocks));
        TRY(unit_close(m, PARAM_attn_norm, block.layer, USE_WEIGHTS));
    }
    return STATUS_OK;
}

/* The head's units; a tied embedding is left open. */
static enum status run_head(const struct model *m, const struct microbatch *b, struct head_io io,
                            unsigned use, struct arena *step)
{
    TRY(unit_open(m, PARAM_last_norm, -1, use));
    if (m->shape.tied) TRY(unit_open(m, PARAM_embed, -1, use));
    TRY(head_loss(m, b, io, step));
    TRY(unit_close(m, PARAM_last_norm, -1, use));
    return STATUS_OK;
}

enum status stage_pass_infer(const struct model *m, const struct microbatch *b,
                             const struct stage_pass *p, void *x, struct arena *step)
{
    const struct stage *s = p->stage;
    struct activations a = *p->shared;
    a.x_SD = a.middle_SD = x;
    TRY(begin_float8_pass(m, s, FLOAT8_INPUT));
    if (s->embeds) TRY(embed_forward(m, b, a.gathered_ND, x));
    for (int layer = s->begin; layer < s->end; layer++) {
        struct block_call block = {m, layer, num_tokens(b), &a};
        TRY(unit_open(m, PARAM_attn_norm, layer, USE_WEIGHTS));
        TRY(block_forward(&block, b, true, x));
        TRY(unit_close(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    }
    if (!s->heads) return STATUS_OK;
    void *scratch = a.gathered_ND ? a.gathered_ND : x;
    TRY(run_head(m, b, (struct head_io){.x_SD = x, .scratch_ND = scratch}, USE_WEIGHTS, step));
    if (m->shape.tied) TRY(unit_close(m, PARAM_embed, -1, USE_WEIGHTS));
    return STATUS_OK;
}

/* --- backward --- */

enum status stage_pass_backward(const struct model *m, const struct microbatch *b,
                                const struct stage_pass *p, void *dx, struct arena *step)
{
    const struct stage *s = p->stage;
    const unsigned gradients = USE_GRADIENTS | (b->last ? USE_FINAL : 0);
    const unsigned both = USE_WEIGHTS | gradients;
    bool tied = s->heads && m->shape.tied;
    BUG_IF(!m->gradients && !m->units && !m->queue->sizing);
    TRY(begin_float8_pass(m, s, FLOAT8_GRADIENT));
    void *scratch = p->shared->gathered_ND ? p->shared->gathered_ND : dx;
    if (s->heads) TRY(run_head(m, b, (struct head_io){p->out_SD, true, dx, scratch}, both, step));
    if (tied && !s->embeds) TRY(unit_close(m, PARAM_embed, -1, both));
    for (int layer = s->end - 1; layer >= s->begin; layer--) {
        int i = layer - s->begin;
        struct block_call block = {m, layer, num_tokens(b), &p->blocks[i]};
        TRY(unit_open(m, PARAM_attn_norm, layer, both));
        if (m->offload) TRY(activation_offload_begin_backward(m, p->blocks, i));
        TRY(block_backward(&block, b, dx, step));
        TRY(unit_close(m, PARAM_attn_norm, layer, both));
    }
    if (m->offload) TRY(activation_offload_finish(m));
    struct embed_gradients d = {p->shared->gathered_ND, dx, gradients, tied};
    if (s->embeds) TRY(embed_backward(m, b, d));
    return STATUS_OK;
}
