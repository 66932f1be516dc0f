// SPDX-License-Identifier: Apache-2.0
#include "model/matmul.h"

#include "model/unit.h"
#include "ops/linear.h"

/* A matrix multiply of a block; adjacent weights form one matrix. */
struct matmul {
    const struct model *m;
    struct linear op;
    enum matmul_id id;
    enum param_id param; /* the first of its weights */
    int layer;
};

static bool is_float8(const struct model *m, enum matmul_id id, int layer)
{
    return m->float8 && m->float8->enabled[(size_t)layer * MATMUL_COUNT + id];
}

static struct matmul matmul_of(const struct model *m, const struct matmul_call *call)
{
    const struct model_shape *s = &m->shape;
    int Q = s->H * s->K, P = s->G * s->K;
    bool norm = matmul_norm_is_packed(m), qkv = call->qkv_packed;
    const struct {
        enum param_id param;
        int D, F;
        bool x_packed, y_packed;
    } rows[] = {[MATMUL_attn_q] = {PARAM_attn_q, s->D, Q + 2 * P, norm, qkv},
                [MATMUL_attn_out] = {PARAM_attn_out, Q, s->D, qkv, false},
                [MATMUL_mlp_gate] = {PARAM_mlp_gate, s->D, 2 * s->F, norm, true},
                [MATMUL_mlp_down] = {PARAM_mlp_down, s->F, s->D, true, false}};
    struct linear op = {.N = (int)call->N,
                        .D = rows[call->id].D,
                        .F = rows[call->id].F,
                        .dtype = m->dtype,
                        .x_packed = rows[call->id].x_packed,
                        .y_packed = rows[call->id].y_packed,
                        .float8 = is_float8(m, call->id, call->layer)};
    return (struct matmul){m, op, call->id, rows[call->id].param, call->layer};
}

static size_t elements_of(const struct matmul *p, enum float8_role role)
{
    size_t N = (size_t)p->op.N, D = (size_t)p->op.D, F = (size_t)p->op.F;
    return role == FLOAT8_INPUT ? N * D : role == FLOAT8_WEIGHT ? F * D : N * F;
}

/* Under tensor parallelism each rank has a slice of the weights, of the output of the
 * column-parallel matrices (the first of each half of a block), and of the input of the
 * row-parallel ones. */
static bool is_sliced(const struct matmul *p, enum float8_role role)
{
    bool column_parallel = p->id == MATMUL_attn_q || p->id == MATMUL_mlp_gate;
    if (p->m->plan->parts == 1) return false;
    return role == FLOAT8_WEIGHT || (role == FLOAT8_GRADIENT) == column_parallel;
}

bool matmul_fuses_amax(const struct model *m, enum matmul_id id, int layer)
{
    return m->ops->computes_amax && is_float8(m, id, layer) && m->plan->parts == 1;
}

float *matmul_amax_target(const struct model *m, enum matmul_id id, int layer)
{
    return matmul_fuses_amax(m, id, layer) ? m->float8->amax : NULL;
}

/* Writes a tensor's scale to *scale.  `amax_known`: the op before has written its amax. */
static enum status compute_scale(const struct matmul *p, enum float8_role role, const void *x,
                                 bool amax_known, struct float8_scale *scale)
{
    const struct model *m = p->m;
    const struct float8_state *f = m->float8;
    struct amax op = {elements_of(p, role), m->dtype};
    float *to = m->plan->parts == 1 ? f->amax : f->slice_amax;
    struct float8_delayed delayed = float8_delayed_scale(f, p->layer, p->id, role);
    struct find_scale_io io = {
        .amax = to, .delayed = delayed.scale, .running = delayed.amax, .scale = scale};
    if (!amax_known) TRY(amax(m->ops, &op, &(struct amax_io){x, to}, m->queue));
    bool has_scale = m->queue->sizing ? f->delayed[role] : delayed.scale && *delayed.scale > 0;
    if (!has_scale && is_sliced(p, role)) TRY(m->plan->all_reduce_max(m->plan, to, m->queue));
    TRY(find_scale(m->ops, &(struct find_scale){float8_format(role)}, &io, m->queue));
    return STATUS_OK;
}

/* The first forward after the weights changed computes it.  NULL in a sizing pass. */
static struct float8_scale *weight_scale(const struct matmul *p)
{
    const struct float8_state *f = p->m->float8;
    size_t i = (size_t)p->layer * MATMUL_COUNT + p->id;
    return f->weight_scales ? &f->weight_scales[i] : NULL;
}

/* Whether `x` counts as computed from now on: in a sizing pass only if it has no memory. */
static bool is_computed(const struct matmul *p, const void *x)
{
    return !p->m->queue->sizing || !x;
}

static enum status find_weight_scale(const struct matmul *p, const void *w)
{
    bool *has_scale = &p->m->float8->has_weight_scale[(size_t)p->layer * MATMUL_COUNT + p->id];
    if (*has_scale) return STATUS_OK;
    TRY(compute_scale(p, FLOAT8_WEIGHT, w, false, weight_scale(p)));
    *has_scale = is_computed(p, weight_scale(p));
    return STATUS_OK;
}

/* What is to be quantized; summed: over which of its axes the GEMM sums (ops/float8.h). */
struct fp8_operand {
    enum float8_role role;
    const void *x;
    const struct float8_scale *scale;
    unsigned summed;
};

/* Quantizes to FP8 values in *y; NULL: in scratch memory. */
static enum status quantize_operand(const struct matmul *p, struct fp8_operand o, bf16 **y)
{
    size_t n = elements_of(p, o.role);
    struct quantize op = {.n = n,
                          .columns = (size_t)(o.role == FLOAT8_GRADIENT ? p->op.F : p->op.D),
                          .dtype = p->m->dtype,
                          .to = float8_format(o.role),
                          .summed = o.summed};
    if (!*y) *y = arena_alloc(&p->m->queue->scratch, n, sizeof **y);
    TRY(quantize(p->m->ops, &op, &(struct quantize_io){o.x, *y, o.scale}, p->m->queue));
    return STATUS_OK;
}

/* *w8: the FP8 values of the weights, for GEMMs that sum over those axes; quantized only if they
 * are not kept or not current. */
static enum status quantized_weight(const struct matmul *p, unsigned summed, bf16 **w8)
{
    struct fp8_operand o = {FLOAT8_WEIGHT, unit_weight(p->m, p->param, p->layer), weight_scale(p),
                            summed};
    struct float8_weights *kept = unit_float8_weight(p->m, p->param, p->layer, w8);
    if (kept && kept->is_current[p->id]) return STATUS_OK;
    TRY(find_weight_scale(p, o.x));
    if (kept) o.summed = OVER_COLUMNS | OVER_ROWS;
    if (kept) kept->is_current[p->id] = is_computed(p, kept->x);
    TRY(quantize_operand(p, o, w8));
    return STATUS_OK;
}

enum status matmul_forward(const struct model *m, const struct matmul_call *call, const void *x,
                           void *y, const void *add_NF)
{
    struct matmul p = matmul_of(m, call);
    const void *w = unit_weight(m, p.param, p.layer);
    size_t mark = arena_mark(&m->queue->scratch);
    struct linear_fwd io = {.x_ND = x, .w_FD = w, .y_NF = y, .add_NF = add_NF};
    p.op.accumulate = call->accumulate;
    if (p.op.float8) {
        struct float8_scale *input = arena_alloc(&m->queue->scratch, 1, sizeof *input);
        if (call->input_scales) input = &call->input_scales[p.id];
        bf16 *x8 = NULL, *w8 = NULL;
        TRY(compute_scale(&p, FLOAT8_INPUT, x, call->amax_known, input));
        TRY(quantize_operand(&p, (struct fp8_operand){FLOAT8_INPUT, x, input, OVER_COLUMNS}, &x8));
        TRY(quantized_weight(&p, OVER_COLUMNS, &w8));
        io = (struct linear_fwd){x8, w8, y, input, weight_scale(&p), add_NF};
    }
    TRY(linear_forward(m->ops, &p.op, &io, m->queue));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}

static enum status backward_input(const struct matmul *p, const void *dy,
                                  const struct float8_scale *dy_scale, void *dx)
{
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->queue->scratch);
    struct linear_bwd_input io = {dy, unit_weight(m, p->param, p->layer), dx, dy_scale, NULL};
    if (p->op.float8) {
        bf16 *w8 = NULL;
        TRY(quantized_weight(p, OVER_ROWS, &w8));
        io.w_FD = w8, io.w_scale = weight_scale(p);
    }
    TRY(linear_backward_input(m->ops, &p->op, &io, m->queue));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}

static enum status backward_weight(const struct matmul *p, const void *dy,
                                   const struct float8_scale *dy_scale, const void *x,
                                   const struct float8_scale *x_scale)
{
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->queue->scratch);
    struct linear op = p->op;
    struct linear_bwd_weight io = {dy, x, unit_gradient(m, p->param, p->layer), dy_scale, x_scale};
    op.accumulate = !unit_overwrites_gradients(m, p->param, p->layer);
    if (op.float8) {
        bf16 *x8 = NULL;
        TRY(quantize_operand(p, (struct fp8_operand){FLOAT8_INPUT, x, x_scale, OVER_ROWS}, &x8));
        io.x_ND = x8;
    }
    TRY(linear_backward_weight(m->ops, &op, &io, m->queue));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}

enum status matmul_backward(const struct model *m, const struct matmul_call *call, const void *dy,
                            const void *x, void *dx)
{
    struct matmul p = matmul_of(m, call);
    size_t mark = arena_mark(&m->queue->scratch);
    const struct float8_scale *x_scale = call->input_scales ? &call->input_scales[p.id] : NULL;
    struct float8_scale *dy_scale = NULL;
    if (p.op.float8) {
        bf16 *dy8 = NULL;
        dy_scale = arena_alloc(&m->queue->scratch, 1, sizeof *dy_scale);
        TRY(compute_scale(&p, FLOAT8_GRADIENT, dy, call->amax_known, dy_scale));
        TRY(quantize_operand(
            &p, (struct fp8_operand){FLOAT8_GRADIENT, dy, dy_scale, OVER_COLUMNS | OVER_ROWS},
            &dy8));
        dy = dy8;
    }
    TRY(backward_input(&p, dy, dy_scale, dx));
    TRY(backward_weight(&p, dy, dy_scale, x, x_scale));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}
