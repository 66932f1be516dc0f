// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include "base/text.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>

/* Tables that the host cannot write go through a buffer of the host. */
static enum status fill_rope(const struct model *m, size_t angles)
{
    const struct model_shape *s = &m->shape;
    const struct rope_angles angle = {model_shape_rotary_pairs(s), s->rope_theta, &s->scaling,
                                      m->max_tokens};
    if (!queue_device_allocator(m->queue)) {
        rope_table(m->max_tokens, &angle, m->rope_cos, m->rope_sin);
        return STATUS_OK;
    }
    float *tables = heap(2 * angles * sizeof *tables);
    rope_table(m->max_tokens, &angle, tables, tables + angles);
    enum status st = queue_copy(m->queue, m->rope_cos, tables, angles * sizeof *tables);
    if (!st) st = queue_copy(m->queue, m->rope_sin, tables + angles, angles * sizeof *tables);
    free(tables);
    TRY(st);
    return STATUS_OK;
}

enum status model_init_stages(struct model *m, const struct model_shape *shape, int max_tokens,
                              const struct model_part *part, struct arena *run)
{
    TRY(model_shape_check(shape));
    if (max_tokens < 1) FAIL(SHAPE, "rows of %d tokens: must be at least 1", max_tokens);
    m->shape = *shape;
    m->max_tokens = max_tokens;
    size_t angles = (size_t)max_tokens * (size_t)model_shape_rotary_pairs(shape);
    m->rope_cos = arena_alloc(run, angles, sizeof(float));
    m->rope_sin = arena_alloc(run, angles, sizeof(float));
    if (m->rope_cos) TRY(fill_rope(m, angles));
    layout_init_part(&m->layout, shape, part);
    m->unit_buffers = heap((size_t)m->layout.num_units * sizeof *m->unit_buffers);
    return STATUS_OK;
}

enum status model_init(struct model *m, const struct model_shape *shape, int max_tokens,
                       int num_shards, struct arena *run)
{
    const struct stage whole = layout_whole_stage(shape);
    TRY(model_init_stages(m, shape, max_tokens, &(struct model_part){&whole, 1, num_shards, 0},
                          run));
    return STATUS_OK;
}

void model_release(struct model *m)
{
    free(m->unit_buffers);
    m->unit_buffers = NULL;
    layout_release(&m->layout);
}

/* Parameters of a block's norms and biases. */
static double block_vectors(const struct model_shape *s)
{
    double n = 2.0 * s->D;
    if (s->qk_norm) n += s->post_norm ? (s->H + 1.0 * s->G) * s->K : 2.0 * s->K;
    if (s->qkv_bias) n += (s->H + 2.0 * s->G) * s->K;
    if (s->out_bias) n += s->D;
    return n + (s->mlp_bias ? 2.0 * s->F + s->D : 0);
}

/* Keys that a query counts for: those of a window, or all of the row. */
static double attended_keys(const struct model_shape *s, int T)
{
    return s->window && s->window < T ? s->window : T;
}

double model_flops_per_token(const struct model_shape *s, int T)
{
    double V = s->V, D = s->D, L = s->L, Q = (double)s->H * s->K, P = (double)s->G * s->K;
    double block = block_vectors(s) + D * (2 * Q + 2 * P) + 3 * D * s->F;
    double parameters = L * block + D + V * D; /* V D of them the head, tied or not */
    return 6 * parameters + 12 * L * Q * attended_keys(s, T);
}

double model_causal_flops_per_token(const struct model_shape *s, int T)
{
    double L = s->L, D = s->D, Q = (double)s->H * s->K, keys = attended_keys(s, T);
    return model_flops_per_token(s, T) - 6 * (L * block_vectors(s) + D) -
           6 * L * Q * (keys * keys / T);
}
