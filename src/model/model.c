// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include "base/text.h"
#include "model/pass.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>

/* Where the host writes what operations read, the tables are made in their place. */
static enum status fill_rope(const struct model *m, size_t angles)
{
    const struct model_shape *s = &m->shape;
    const struct rope_angles angle = {s->K, s->rope_theta, &s->scaling};
    if (!queue_memory(m->on)) {
        rope_table(m->max_tokens, &angle, m->rope_cos, m->rope_sin);
        return STATUS_OK;
    }
    float *tables = heap(2 * angles * sizeof *tables);
    rope_table(m->max_tokens, &angle, tables, tables + angles);
    enum status st = queue_copy(m->on, m->rope_cos, tables, angles * sizeof *tables);
    if (!st) st = queue_copy(m->on, m->rope_sin, tables + angles, angles * sizeof *tables);
    free(tables);
    TRY(st);
    return STATUS_OK;
}

enum status model_init_stages(struct model *m, const struct model_shape *shape,
                              const struct stage *stages, int num_stages, int max_tokens, int parts,
                              struct arena *run)
{
    TRY(model_shape_check(shape));
    if (max_tokens < 1) FAIL(SHAPE, "a model for rows of %d tokens: at least 1", max_tokens);
    m->shape = *shape;
    m->max_tokens = max_tokens;
    size_t angles = (size_t)max_tokens * (size_t)(shape->K / 2);
    m->rope_cos = arena_take(run, angles, sizeof(float));
    m->rope_sin = arena_take(run, angles, sizeof(float));
    if (m->rope_cos) TRY(fill_rope(m, angles));
    layout_init_stages(&m->layout, shape, stages, num_stages, parts);
    m->places = heap((size_t)m->layout.num_units * sizeof *m->places);
    return STATUS_OK;
}

enum status model_init(struct model *m, const struct model_shape *shape, int max_tokens, int parts,
                       struct arena *run)
{
    const struct stage whole = stage_whole(shape);
    TRY(model_init_stages(m, shape, &whole, 1, max_tokens, parts, run));
    return STATUS_OK;
}

void model_release(struct model *m)
{
    free(m->places);
    m->places = NULL;
    layout_release(&m->layout);
}

enum status model_evaluate(const struct model *m, const struct micro_batch *b, struct arena *step)
{
    const struct stage whole = stage_whole(&m->shape);
    size_t mark = arena_mark(step);
    struct activations shared;
    TRY(pass_check(m, b));
    activations_share(m, (size_t)b->B * (size_t)b->T, RECOMPUTE_FULL, &shared, step);
    TRY(pass_infer(m, b, &whole, &shared, shared.middle_SD, step));
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status model_train(const struct model *m, const struct micro_batch *b, struct arena *step)
{
    const struct stage whole = stage_whole(&m->shape);
    size_t mark = arena_mark(step);
    struct activations shared;
    struct pass p;
    enum status st = STATUS_OK;
    TRY(pass_check(m, b));
    pass_init(&p, &whole);
    pass_share(m, b, &shared, step);
    pass_take(m, b, &shared, &p, step);
    void *dx = arena_take(step, pass_elements(m, b), dtype_bytes(m->dtype));
    TRY_OUT(pass_forward(m, b, &p));
    TRY_OUT(pass_backward(m, b, &p, dx, step));
    arena_reset(step, mark);
out:
    pass_release(&p);
    return st;
}

double model_flops_per_token(const struct model_shape *s, int T)
{
    double V = s->V, D = s->D, L = s->L, Q = (double)s->H * s->K, P = (double)s->G * s->K;
    double block = 2 * D + D * (2 * Q + 2 * P) + 3 * D * s->F;
    double parameters = L * block + D + V * D; /* of which V D is the head, tied or not */
    return 6 * parameters + 12 * L * Q * T;
}

double model_causal_flops_per_token(const struct model_shape *s, int T)
{
    double L = s->L, D = s->D, Q = (double)s->H * s->K;
    return model_flops_per_token(s, T) - 6 * (2 * L * D + D) - 6 * L * Q * T;
}
