// SPDX-License-Identifier: Apache-2.0
#include "model/matmul.h"

#include "model/residual.h"
#include "model/unit.h"
#include "ops/linear.h"
#include "tensor/element.h"

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
    bool norm = matmul_norm_is_packed(m), qkv = call->qkv_packed, mlp = matmul_mlp_is_packed(m);
    const struct {
        enum param_id param;
        int D, F;
        bool x_packed, y_packed;
    } rows[] = {[MATMUL_attn_q] = {PARAM_attn_q, s->D, Q + 2 * P, norm, qkv},
                [MATMUL_attn_out] = {PARAM_attn_out, Q, s->D, qkv, false},
                [MATMUL_mlp_gate] = {PARAM_mlp_gate, s->D, 2 * s->F, norm, mlp},
                [MATMUL_mlp_down] = {PARAM_mlp_down, s->F, s->D, mlp, false}};
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

/* The first of each half of a block; the others are row-parallel. */
static bool is_column_parallel(enum matmul_id id)
{
    return id == MATMUL_attn_q || id == MATMUL_mlp_gate;
}

enum boundary matmul_input_boundary(enum matmul_id id)
{
    BUG_IF(!is_column_parallel(id));
    return id == MATMUL_attn_q ? ATTN_IN : MLP_IN;
}

/* Under tensor parallelism each rank has a slice of the weights, of the output of the
 * column-parallel matrices, and of the input of the row-parallel ones. */
static bool is_sliced(const struct matmul *p, enum float8_role role)
{
    if (p->m->plan->parts == 1) return false;
    return role == FLOAT8_WEIGHT || (role == FLOAT8_GRADIENT) == is_column_parallel(p->id);
}

bool matmul_fuses_amax(const struct model *m, enum matmul_id id, int layer)
{
    return m->ops->computes_amax && is_float8(m, id, layer) && m->plan->parts == 1;
}

float *matmul_amax_target(const struct model *m, enum matmul_id id, int layer)
{
    return matmul_fuses_amax(m, id, layer) ? m->float8->amax : NULL;
}

static bool is_native(const struct model *m) { return m->float8 && m->float8->device.queue; }

bool matmul_quantizes_result(const struct model *m, enum matmul_id id, int layer)
{
    return is_native(m) && is_float8(m, id, layer);
}

bool matmul_quantizes_norm(const struct model *m, enum matmul_id id, int layer)
{
    return matmul_quantizes_result(m, id, layer) && !m->shape.post_norm;
}

/* Writes a tensor's scale to *scale.  `amax_known`: the op before has written its amax. */
static enum status compute_scale(const struct matmul *p, enum float8_role role, const void *x,
                                 bool amax_known, struct float8_scale *scale)
{
    const struct model *m = p->m;
    const struct float8_state *f = m->float8;
    struct amax op = {elements_of(p, role), m->dtype};
    struct float8_delayed delayed = float8_delayed_scale(f, p->layer, p->id, role);
    bool has_scale = m->queue->sizing ? f->delayed[role] : delayed.scale && *delayed.scale > 0;
    bool gathers = is_sliced(p, role) && !has_scale;
    float *to = gathers && f->amax ? f->amax + m->plan->part : f->amax;
    struct find_scale what = {float8_format(role), gathers ? m->plan->parts : 1};
    struct find_scale_io io = {
        .amax = f->amax, .delayed = delayed.scale, .running = delayed.amax, .scale = scale};
    if (!amax_known) TRY(amax(m->ops, &op, &(struct amax_io){x, to}, m->queue));
    if (gathers) TRY(m->plan->gather_amaxes(m->plan, f->amax, m->queue));
    TRY(find_scale(m->ops, &what, &io, m->queue));
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

static bool *has_weight_scale(const struct matmul *p)
{
    return &p->m->float8->has_weight_scale[(size_t)p->layer * MATMUL_COUNT + p->id];
}

/* What is to be quantized; summed: over which of its axes the GEMM sums (ops/float8.h). */
struct fp8_operand {
    enum float8_role role;
    const void *x;
    const struct float8_scale *scale;
    unsigned summed;
};

/* Scratch memory for the FP8 values of an operand. */
static bf16 *alloc_quantized(const struct matmul *p, enum float8_role role)
{
    return arena_alloc(&p->m->queue->scratch, elements_of(p, role), sizeof(bf16));
}

static enum status quantize_operand(const struct matmul *p, struct fp8_operand o, bf16 *y)
{
    struct quantize op = {.n = elements_of(p, o.role),
                          .columns = (size_t)(o.role == FLOAT8_GRADIENT ? p->op.F : p->op.D),
                          .dtype = p->m->dtype,
                          .to = float8_format(o.role),
                          .summed = o.summed};
    TRY(quantize(p->m->ops, &op, &(struct quantize_io){o.x, y, o.scale}, p->m->queue));
    return STATUS_OK;
}

/* --- native FP8 --- */

static struct float8_slot slot_of(const struct matmul *p, enum float8_role role)
{
    return float8_slot_of(p->m->float8, p->layer, p->id, role);
}

/* Where the scale of an input or gradient is: `saved`, unless NULL, or in the state. */
static const struct float8_scale *scale_of(const struct matmul *p, enum float8_role role,
                                           const struct float8_scale *saved)
{
    struct float8_slot slot;
    if (!is_native(p->m) || role == FLOAT8_WEIGHT) return saved;
    slot = slot_of(p, role);
    return slot.delayed ? slot.delayed : saved ? saved : slot.unsaved;
}

/* What a fused op quantizes, and what is known of it. */
struct fused_operand {
    struct fused_quantize op;
    struct matmul_source from;
    enum float8_role role;
    struct float8_scale *saved; /* where its scale goes; NULL: to the state */
    bool has_scale;             /* `saved` has it */
    bool is_part;               /* it is a part of the tensor, as sliced ones are */
};

/* Delayed scaling needs one kernel, current scaling two, and a norm always two, for its rstd. */
static enum status quantize_fused(const struct matmul *p, const struct fused_operand *o, bf16 *y8)
{
    const struct model *m = p->m;
    const struct matmul_source *from = &o->from;
    struct float8_slot slot = slot_of(p, o->role);
    bool has_delayed = m->queue->sizing ? m->float8->delayed[o->role] : slot.delayed != NULL;
    /* The amax of a weight counts for more than a step. */
    bool is_known = o->has_scale || (has_delayed && o->role != FLOAT8_WEIGHT);
    bool is_part = o->is_part || is_sliced(p, o->role);
    bool gathers = is_part && !o->has_scale && !has_delayed;
    float *own = gathers && slot.pass_amax ? slot.pass_amax + m->plan->part : slot.pass_amax;
    struct fused_amax amax_op = {o->op.of, o->op.N, o->op.C, (float)m->shape.norm_eps, m->dtype};
    struct fused_amax_io amax_io = {from->x, from->w_C, from->dout_NF, from->rstd_N, own};
    struct fused_quantize op = o->op;
    struct fused_quantize_io io = {
        .x = from->x, .w_C = from->w_C, .dout_NF = from->dout_NF, .rstd_N = from->rstd_N, .y = y8};
    if (from->of == FUSED_RMSNORM ? !from->has_rstd : !is_known)
        TRY(fused_amax(m->ops, &amax_op, &amax_io, m->queue));
    if (gathers) TRY(m->plan->gather_amaxes(m->plan, slot.pass_amax, m->queue));
    if (is_known) io.scale = scale_of(p, o->role, o->saved);
    if (is_known && !o->has_scale) io.amax = slot.step_amax;
    op.amaxes = gathers ? m->plan->parts : 1;
    if (!io.scale)
        io.find =
            (struct find_scale_io){slot.pass_amax, slot.delayed ? &slot.delayed->scale : NULL,
                                   float8_delayed_scale(m->float8, p->layer, p->id, o->role).amax,
                                   o->saved ? o->saved : slot.unsaved};
    TRY(fused_quantize(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

static struct float8_scale *saved_scale(const struct matmul_call *call)
{
    return call->input_scales ? &call->input_scales[call->id] : NULL;
}

/* Gathers the rows of FP8 values, and adds the other storage order if a GEMM needs it. */
static enum status gather_quantized(const struct matmul *p, enum float8_role role,
                                    const struct matmul_source *source, bf16 *y8)
{
    const struct model *m = p->m;
    struct crossing c = {.x = y8, .rows = p->op.N, .columns = source->C, .is_bytes = true};
    struct fused_quantize op = {FUSED_FP8,           p->op.N,   source->C, BF16,
                                float8_format(role), OVER_ROWS, 0};
    TRY(m->plan->cross(m->plan, source->at, source->direction, &c, m->queue));
    if (source->summed & OVER_ROWS)
        TRY(fused_quantize(m->ops, &op, &(struct fused_quantize_io){.x = y8, .y = y8}, m->queue));
    return STATUS_OK;
}

enum status matmul_quantize(const struct model *m, const struct matmul_call *call,
                            enum float8_role role, const struct matmul_source *source, bf16 *y8)
{
    struct matmul p = matmul_of(m, call);
    bool gathers = source->gathers && m->plan->sequence_parallel;
    size_t rows = gathers ? residual_rows(m, call->N) : call->N;
    size_t before = gathers ? (size_t)m->plan->part * rows * (size_t)source->C : 0;
    struct fused_operand o = {
        .op = {source->of, (int)rows, source->C, m->dtype, float8_format(role),
               gathers ? OVER_COLUMNS : source->summed},
        .from = *source,
        .role = role,
        .saved = role == FLOAT8_INPUT ? saved_scale(call) : NULL,
        .has_scale = role == FLOAT8_INPUT && call->has_scales,
        .is_part = gathers,
    };
    TRY(quantize_fused(&p, &o, element(y8, before, INT8)));
    if (gathers) TRY(gather_quantized(&p, role, source, y8));
    return STATUS_OK;
}

/* --- forward and backward --- */

/* An input or gradient that is stored, and how to quantize it. */
struct stored_operand {
    enum float8_role role;
    const void *x;
    struct float8_scale *saved; /* as struct fused_operand */
    unsigned summed;
    bool amax_known, has_scale;
};

/* Finds the scale, unless it has one, and quantizes to FP8 values in y8. */
static enum status scale_and_quantize(const struct matmul *p, struct stored_operand o, bf16 *y8)
{
    int columns = o.role == FLOAT8_GRADIENT ? p->op.F : p->op.D;
    int rows = o.role == FLOAT8_WEIGHT ? p->op.F : p->op.N;
    struct fused_operand fused = {
        .op = {FUSED_TENSOR, rows, columns, p->m->dtype, float8_format(o.role), o.summed},
        .from = {.of = FUSED_TENSOR, .x = o.x},
        .role = o.role,
        .saved = o.saved,
        .has_scale = o.has_scale};
    struct fp8_operand unfused = {o.role, o.x, o.saved, o.summed};
    if (is_native(p->m)) {
        TRY(quantize_fused(p, &fused, y8));
        return STATUS_OK;
    }
    if (!o.has_scale) TRY(compute_scale(p, o.role, o.x, o.amax_known, o.saved));
    TRY(quantize_operand(p, unfused, y8));
    return STATUS_OK;
}

/* *w8: the FP8 values of the weights, for GEMMs that sum over those axes; quantized only if they
 * are not kept or not current. */
static enum status quantized_weight(const struct matmul *p, unsigned summed, bf16 **w8)
{
    const void *w = unit_weight(p->m, p->param, p->layer);
    struct float8_weights *kept = unit_float8_weight(p->m, p->param, p->layer, w8);
    if (kept && kept->is_current[p->id]) return STATUS_OK;
    if (kept) summed = OVER_COLUMNS | OVER_ROWS;
    if (!kept) *w8 = alloc_quantized(p, FLOAT8_WEIGHT);
    if (kept) kept->is_current[p->id] = is_computed(p, kept->x);
    struct stored_operand o = {FLOAT8_WEIGHT, w,     weight_scale(p),
                               summed,        false, *has_weight_scale(p)};
    TRY(scale_and_quantize(p, o, *w8));
    *has_weight_scale(p) = is_computed(p, weight_scale(p));
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
        struct float8_scale *input = saved_scale(call);
        bf16 *x8 = NULL, *w8;
        if (!input) input = arena_alloc(&m->queue->scratch, 1, sizeof *input);
        struct stored_operand o = {FLOAT8_INPUT,    x, input, OVER_COLUMNS, call->amax_known,
                                   call->has_scales};
        if (!call->x_quantized) {
            x8 = alloc_quantized(&p, FLOAT8_INPUT);
            TRY(scale_and_quantize(&p, o, x8));
        }
        TRY(quantized_weight(&p, OVER_COLUMNS, &w8));
        io = (struct linear_fwd){x8, w8, y, input, weight_scale(&p), add_NF};
        if (call->x_quantized) io.x_ND = x, input = saved_scale(call);
        io.x_scale = scale_of(&p, FLOAT8_INPUT, input);
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
        bf16 *w8;
        TRY(quantized_weight(p, OVER_ROWS, &w8));
        io.w_FD = w8, io.w_scale = weight_scale(p);
    }
    TRY(linear_backward_input(m->ops, &p->op, &io, m->queue));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}

/* The input of a matrix multiply, as backward finds it. */
struct saved_input {
    const void *x;
    const struct float8_scale *scale;
    bool is_quantized;
};

/* dw += dy^T x */
struct weight_gradient {
    const struct matmul *p;
    const void *dy;
    const struct float8_scale *dy_scale;
    struct saved_input in;
};

static enum status backward_weight(void *context)
{
    const struct weight_gradient *g = context;
    const struct matmul *p = g->p;
    const struct saved_input in = g->in;
    const struct model *m = p->m;
    size_t mark = arena_mark(&m->queue->scratch);
    struct linear op = p->op;
    struct linear_bwd_weight io = {g->dy, in.x, unit_gradient(m, p->param, p->layer), g->dy_scale,
                                   in.scale};
    op.accumulate = !unit_overwrites_gradients(m, p->param, p->layer);
    if (op.float8 && !in.is_quantized) {
        bf16 *x8 = alloc_quantized(p, FLOAT8_INPUT);
        TRY(quantize_operand(p, (struct fp8_operand){FLOAT8_INPUT, in.x, in.scale, OVER_ROWS}, x8));
        io.x_ND = x8;
    }
    TRY(linear_backward_weight(m->ops, &op, &io, m->queue));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}

/* Crosses the boundary in front of the block's half that the GEMM begins. */
static enum status cross_and_backward_weight(const struct matmul *p, void *dx,
                                             struct weight_gradient *g)
{
    const struct model *m = p->m;
    struct crossing c = {.x = dx,
                         .rows = p->op.N,
                         .columns = p->op.D,
                         .dtype = m->dtype,
                         .overlapped = backward_weight,
                         .work = g};
    TRY(m->plan->cross(m->plan, matmul_input_boundary(p->id), BACKWARD, &c, m->queue));
    return STATUS_OK;
}

enum status matmul_backward(const struct model *m, const struct matmul_call *call, const void *dy,
                            const void *x, void *dx)
{
    struct matmul p = matmul_of(m, call);
    size_t mark = arena_mark(&m->queue->scratch);
    struct saved_input in = {x, saved_scale(call), call->x_quantized};
    const struct float8_scale *dy_scale = NULL;
    if (p.op.float8) {
        struct float8_scale *scale = NULL;
        in.scale = scale_of(&p, FLOAT8_INPUT, in.scale);
        if (!call->dy_quantized) {
            scale = arena_alloc(&m->queue->scratch, 1, sizeof *scale);
            struct stored_operand o = {FLOAT8_GRADIENT,  dy,   scale, OVER_COLUMNS | OVER_ROWS,
                                       call->amax_known, false};
            bf16 *dy8 = alloc_quantized(&p, FLOAT8_GRADIENT);
            TRY(scale_and_quantize(&p, o, dy8));
            dy = dy8;
        }
        dy_scale = scale_of(&p, FLOAT8_GRADIENT, scale);
    }
    TRY(backward_input(&p, dy, dy_scale, dx));
    struct weight_gradient g = {&p, dy, dy_scale, in};
    if (is_column_parallel(p.id))
        TRY(cross_and_backward_weight(&p, dx, &g));
    else
        TRY(backward_weight(&g));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}
