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

static bool is_chosen(const struct model *m, enum product_id id, int layer)
{
    return m->float8 && m->float8->chosen[(size_t)layer * PRODUCTS + id];
}

static struct product product(const struct model *m, const struct product_call *call)
{
    const struct model_shape *s = &m->shape;
    int Q = s->H * s->K, P = s->G * s->K;
    bool norm = norm_is_private(m), attends = call->attends;
    const struct {
        enum param_id param;
        int D, F;
        bool x_private, y_private;
    } rows[] = {[PRODUCT_attn_q] = {PARAM_attn_q, s->D, Q + 2 * P, norm, attends},
                [PRODUCT_attn_out] = {PARAM_attn_out, Q, s->D, attends, false},
                [PRODUCT_mlp_gate] = {PARAM_mlp_gate, s->D, 2 * s->F, norm, true},
                [PRODUCT_mlp_down] = {PARAM_mlp_down, s->F, s->D, true, false}};
    struct linear what = {.N = (int)call->N,
                          .D = rows[call->id].D,
                          .F = rows[call->id].F,
                          .dtype = m->dtype,
                          .x_private = rows[call->id].x_private,
                          .y_private = rows[call->id].y_private,
                          .float8 = is_chosen(m, call->id, call->layer)};
    return (struct product){m, what, call->id, rows[call->id].param, call->layer};
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

bool product_finds(const struct model *m, enum product_id id, int layer)
{
    return m->ops->finds_largest && is_chosen(m, id, layer) && m->plan->parts == 1;
}

float *product_largest(const struct model *m, enum product_id id, int layer)
{
    return product_finds(m, id, layer) ? m->float8->largest : NULL;
}

/* *at: where an operation finds it.  `known`: the largest number is where it is looked for. */
static enum status scale_of(const struct product *p, enum float8_role role, const void *x,
                            bool known, struct float8_scale *at)
{
    const struct model *m = p->m;
    const struct float8_state *f = m->float8;
    struct amax what = {elements_of(p, role), m->dtype};
    float *largest = m->plan->parts == 1 ? f->largest : f->largest_of_part;
    struct find_scale_io io = {.largest = largest, .scale = at};
    if (!known) TRY(amax(m->ops, &what, &(struct amax_io){x, largest}, m->on));
    float8_held(f, p->layer, p->id, role, &io.seen, &io.held);
    bool held = m->on->measuring ? f->delayed[role] : io.held && *io.held > 0;
    if (!held && is_cut(p, role)) TRY(m->plan->largest(m->plan, largest, m->on));
    TRY(find_scale(m->ops, &(struct find_scale){float8_format(role)}, &io, m->on));
    return STATUS_OK;
}

/* Of weights in every forward, which its backward follows before they change; NULL: measuring. */
static struct float8_scale *weight_scale(const struct product *p)
{
    const struct float8_state *f = p->m->float8;
    size_t at = (size_t)p->layer * PRODUCTS + p->id;
    return f->weight_scales ? &f->weight_scales[at] : NULL;
}

static enum status rounded(const struct product *p, enum float8_role role, const void *x,
                           const struct float8_scale *scale, unsigned summed, bf16 **y)
{
    size_t n = elements_of(p, role);
    struct quantize what = {.n = n,
                            .columns = (size_t)(role == FLOAT8_GRADIENT ? p->what.F : p->what.D),
                            .dtype = p->m->dtype,
                            .to = float8_format(role),
                            .summed = summed};
    *y = arena_take(&p->m->on->scratch, n, sizeof **y);
    TRY(quantize(p->m->ops, &what, &(struct quantize_io){x, *y, scale}, p->m->on));
    return STATUS_OK;
}

enum status product_forward(const struct model *m, const struct product_call *call, const void *x,
                            void *y, const void *add_NF, bool adds)
{
    struct product p = product(m, call);
    const void *w = model_weight(m, p.param, p.layer);
    size_t mark = arena_mark(&m->on->scratch);
    struct linear_fwd io = {.x_ND = x, .w_FD = w, .y_NF = y, .add_NF = add_NF};
    p.what.accumulate = adds;
    if (p.what.float8) {
        struct float8_scale *input = arena_take(&m->on->scratch, 1, sizeof *input);
        struct float8_scale *weight = weight_scale(&p);
        if (call->input_scales) input = &call->input_scales[p.id];
        bf16 *x8, *w8;
        TRY(scale_of(&p, FLOAT8_INPUT, x, call->found, input));
        TRY(scale_of(&p, FLOAT8_WEIGHT, w, false, weight));
        TRY(rounded(&p, FLOAT8_INPUT, x, input, OVER_COLUMNS, &x8));
        TRY(rounded(&p, FLOAT8_WEIGHT, w, weight, OVER_COLUMNS, &w8));
        io = (struct linear_fwd){x8, w8, y, input, weight, add_NF};
    }
    TRY(linear_forward(m->ops, &p.what, &io, m->on));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}

static enum status backward_input(const struct product *p, const void *dy,
                                  const struct float8_scale *dy_scale, void *dx)
{
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->on->scratch);
    struct linear_bwd_input io = {dy, model_weight(m, p->param, p->layer), dx, dy_scale, NULL};
    if (p->what.float8) {
        bf16 *w8;
        io.w_scale = weight_scale(p);
        TRY(rounded(p, FLOAT8_WEIGHT, io.w_FD, io.w_scale, OVER_ROWS, &w8));
        io.w_FD = w8;
    }
    TRY(linear_backward_input(m->ops, &p->what, &io, m->on));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}

static enum status backward_weight(const struct product *p, const void *dy,
                                   const struct float8_scale *dy_scale, const void *x,
                                   const struct float8_scale *x_scale)
{
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->on->scratch);
    struct linear what = p->what;
    struct linear_bwd_weight io = {dy, x, model_gradient(m, p->param, p->layer), dy_scale, x_scale};
    what.accumulate = !model_is_fresh(m, p->param, p->layer);
    if (what.float8) {
        bf16 *x8;
        TRY(rounded(p, FLOAT8_INPUT, x, x_scale, OVER_ROWS, &x8));
        io.x_ND = x8;
    }
    TRY(linear_backward_weight(m->ops, &what, &io, m->on));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}

enum status product_backward(const struct model *m, const struct product_call *call, const void *dy,
                             const void *x, void *dx)
{
    struct product p = product(m, call);
    size_t mark = arena_mark(&m->on->scratch);
    const struct float8_scale *x_scale = call->input_scales ? &call->input_scales[p.id] : NULL;
    struct float8_scale *dy_scale = NULL;
    if (p.what.float8) {
        bf16 *dy8;
        dy_scale = arena_take(&m->on->scratch, 1, sizeof *dy_scale);
        TRY(scale_of(&p, FLOAT8_GRADIENT, dy, call->found, dy_scale));
        TRY(rounded(&p, FLOAT8_GRADIENT, dy, dy_scale, OVER_COLUMNS | OVER_ROWS, &dy8));
        dy = dy8;
    }
    TRY(backward_input(&p, dy, dy_scale, dx));
    TRY(backward_weight(&p, dy, dy_scale, x, x_scale));
    arena_reset(&m->on->scratch, mark);
    return STATUS_OK;
}
