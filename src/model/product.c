// SPDX-License-Identifier: Apache-2.0
#include "model/product.h"

#include "model/block.h"
#include "ops/linear.h"

/* One of a block's products; adjacent weights are multiplied as one matrix. */
struct product {
    const struct model *m;
    struct linear what;
    enum product_id id;
    enum param_id param; /* of the first of its weights */
    int layer;
};

static struct product product(const struct model *m, enum product_id id, size_t N, int layer)
{
    const struct model_shape *s = &m->shape;
    int Q = s->H * s->K, P = s->G * s->K;
    const struct {
        enum param_id param;
        int D, F;
    } rows[] = {[PRODUCT_attn_q] = {PARAM_attn_q, s->D, Q + 2 * P},
                [PRODUCT_attn_out] = {PARAM_attn_out, Q, s->D},
                [PRODUCT_mlp_gate] = {PARAM_mlp_gate, s->D, 2 * s->F},
                [PRODUCT_mlp_down] = {PARAM_mlp_down, s->F, s->D}};
    bool chosen = m->float8 && m->float8->chosen[(size_t)layer * PRODUCTS + id];
    return (struct product){
        m,
        {.N = (int)N, .D = rows[id].D, .F = rows[id].F, .dtype = m->dtype, .float8 = chosen},
        id,
        rows[id].param,
        layer};
}

static size_t elements_of(const struct product *p, enum float8_role role)
{
    size_t N = (size_t)p->what.N, D = (size_t)p->what.D, F = (size_t)p->what.F;
    return role == FLOAT8_INPUT ? N * D : role == FLOAT8_WEIGHT ? F * D : N * F;
}

/* Each device has a part of the tensor, where matrices are cut: columns of the first products of
 * a half and rows of the second. */
static bool is_cut(const struct product *p, enum float8_role role)
{
    bool first = p->id == PRODUCT_attn_q || p->id == PRODUCT_mlp_gate;
    if (p->m->plan->parts == 1) return false;
    return role == FLOAT8_WEIGHT || (role == FLOAT8_GRADIENT) == first;
}

static enum status find_scale(const struct product *p, enum float8_role role, const void *x,
                              float *scale)
{
    const struct model *m = p->m;
    struct float8_state *f = m->float8;
    struct amax what = {elements_of(p, role), m->dtype};
    bool measuring = m->on->measuring;
    float largest = 0;
    TRY(amax(m->ops, &what, &(struct amax_io){x, &largest}, m->on));
    *scale = measuring ? f->delayed[role] : float8_held(f, p->layer, p->id, role, largest);
    if (*scale > 0) return STATUS_OK;
    if (is_cut(p, role)) TRY(m->plan->largest(m->plan, &largest, m->on));
    *scale = float8_current(largest, float8_format(role));
    return STATUS_OK;
}

/* Of weights in every forward, which its backward follows before they change; NULL: measuring. */
static float *weight_scale(const struct product *p)
{
    const struct float8_state *f = p->m->float8;
    size_t at = (size_t)p->layer * PRODUCTS + p->id;
    return p->m->on->measuring ? NULL : &f->weight_scales[at];
}

static enum status rounded(const struct product *p, enum float8_role role, const void *x,
                           float scale, bf16 **y)
{
    size_t n = elements_of(p, role);
    struct quantize what = {n, p->m->dtype, float8_format(role), scale};
    *y = arena_take(&p->m->on->scratch, n, sizeof **y);
    TRY(quantize(p->m->ops, &what, &(struct quantize_io){x, *y}, p->m->on));
    return STATUS_OK;
}

/* What takes both scales out of a product. */
static float inverse(float one, float other) { return 1 / one * (1 / other); }

enum status product_forward(const struct model *m, enum product_id id, size_t N, int layer,
                            const void *x, void *y, bool accumulate, float *input_scales)
{
    struct product p = product(m, id, N, layer);
    const void *w = model_weight(m, p.param, layer);
    size_t mark = arena_mark(&m->on->scratch);
    struct linear_fwd io = {x, w, y};
    p.what.accumulate = accumulate;
    if (p.what.float8) {
        float input, weight;
        bf16 *x8, *w8;
        TRY(find_scale(&p, FLOAT8_INPUT, x, &input));
        TRY(find_scale(&p, FLOAT8_WEIGHT, w, &weight));
        if (weight_scale(&p)) *weight_scale(&p) = weight;
        if (input_scales) input_scales[id] = input;
        TRY(rounded(&p, FLOAT8_INPUT, x, input, &x8));
        TRY(rounded(&p, FLOAT8_WEIGHT, w, weight, &w8));
        p.what.scale = inverse(input, weight);
        io.x_ND = x8, io.w_FD = w8;
    }
    TRY(linear_forward(m->ops, &p.what, &io, m->on));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}

static enum status backward_input(const struct product *p, const void *dy, float dy_scale, void *dx)
{
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->on->scratch);
    struct linear what = p->what;
    struct linear_bwd_input io = {dy, model_weight(m, p->param, p->layer), dx};
    if (what.float8) {
        float scale = weight_scale(p) ? *weight_scale(p) : 1;
        bf16 *w8;
        TRY(rounded(p, FLOAT8_WEIGHT, io.w_FD, scale, &w8));
        io.w_FD = w8;
        what.scale = inverse(dy_scale, scale);
    }
    TRY(linear_backward_input(m->ops, &what, &io, m->on));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}

static enum status backward_weight(const struct product *p, const void *dy, float dy_scale,
                                   const void *x, float x_scale)
{
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->on->scratch);
    struct linear what = p->what;
    struct linear_bwd_weight io = {dy, x, model_gradient(m, p->param, p->layer)};
    what.accumulate = true;
    if (what.float8) {
        bf16 *x8;
        TRY(rounded(p, FLOAT8_INPUT, x, x_scale, &x8));
        io.x_ND = x8;
        what.scale = inverse(dy_scale, x_scale);
    }
    TRY(linear_backward_weight(m->ops, &what, &io, m->on));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}

enum status product_backward(const struct model *m, enum product_id id, size_t N, int layer,
                             const void *dy, const void *x, void *dx, const float *input_scales)
{
    struct product p = product(m, id, N, layer);
    size_t mark = arena_mark(&m->on->scratch);
    float dy_scale = 1, x_scale = input_scales ? input_scales[id] : 1; /* NULL while measuring */
    if (p.what.float8) {
        bf16 *dy8;
        TRY(find_scale(&p, FLOAT8_GRADIENT, dy, &dy_scale));
        TRY(rounded(&p, FLOAT8_GRADIENT, dy, dy_scale, &dy8));
        dy = dy8;
    }
    TRY(backward_input(&p, dy, dy_scale, dx));
    TRY(backward_weight(&p, dy, dy_scale, x, x_scale));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}
