// SPDX-License-Identifier: Apache-2.0
#include "model/block.h"

#include "model/product.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>

static enum status zero(const struct model *m, float *x, size_t elements)
{
    double begin = trace_begin(m->on->trace);
    TRY(queue_zero(m->on, x, elements * sizeof *x));
    trace_end(m->on->trace, "zero gradients", begin);
    return STATUS_OK;
}

/* What no product writes as a whole: norms, and the gap at the unit's end. */
static enum status clear(const struct model *m, const struct unit *unit, float *gradients)
{
    const struct tensor_place *t = &m->layout.tensors[unit->first_tensor];
    size_t end = 0;
    for (int i = 0; i < unit->num_tensors; i++, t++) {
        size_t at = t->offset - unit->offset;
        end = at + t->elements;
        if (params[t->id].is_norm) TRY(zero(m, element(gradients, at, F32), t->elements));
    }
    TRY(zero(m, element(gradients, end, F32), unit->elements - end));
    return STATUS_OK;
}

enum status model_open(const struct model *m, enum param_id id, int layer, unsigned use)
{
    int unit = layout_unit(&m->layout, id, layer);
    struct unit_place *place = &m->places[unit];
    if (m->units) {
        TRY(m->units->open(m->units, unit, use, place));
        if (place->fresh) TRY(clear(m, &m->layout.units[unit], place->gradients));
        return STATUS_OK;
    }
    size_t offset = m->layout.units[unit].offset;
    place->weights = element(m->weights, offset, m->dtype);
    place->gradients = element(m->gradients, offset, F32);
    place->fresh = false;
    return STATUS_OK;
}

enum status model_close(const struct model *m, enum param_id id, int layer, unsigned use)
{
    if (m->units) TRY(m->units->close(m->units, layout_unit(&m->layout, id, layer), use));
    return STATUS_OK;
}

/* The unit's place, and how far behind it the tensor lies. */
static const struct unit_place *place_of(const struct model *m, enum param_id id, int layer,
                                         size_t *offset)
{
    int unit = layout_unit(&m->layout, id, layer);
    *offset = layout_find(&m->layout, id, layer)->offset - m->layout.units[unit].offset;
    return &m->places[unit];
}

const void *model_weight(const struct model *m, enum param_id id, int layer)
{
    size_t offset;
    const struct unit_place *place = place_of(m, id, layer, &offset);
    return element(place->weights, offset, m->dtype);
}

float *model_gradient(const struct model *m, enum param_id id, int layer)
{
    size_t offset;
    const struct unit_place *place = place_of(m, id, layer, &offset);
    return element(place->gradients, offset, F32);
}

bool model_is_fresh(const struct model *m, enum param_id id, int layer)
{
    return m->places[layout_unit(&m->layout, id, layer)].fresh;
}

enum status model_clear(const struct model *m, enum param_id id, int layer)
{
    TRY(zero(m, model_gradient(m, id, layer), layout_find(&m->layout, id, layer)->elements));
    return STATUS_OK;
}

enum status model_cross(const struct model *m, enum boundary at, enum direction way, void *x,
                        size_t rows, int columns)
{
    struct crossing c = {x, (int)rows, columns, m->dtype};
    TRY(m->plan->cross(m->plan, at, way, &c, m->on));
    return STATUS_OK;
}

size_t stream_rows(const struct model *m, size_t N)
{
    return m->plan->stream_cut ? N / (size_t)m->plan->parts : N;
}

void *stream_part(const struct model *m, void *wide_ND, size_t N)
{
    size_t part = m->plan->stream_cut ? (size_t)m->plan->part : 0;
    return element(wide_ND, part * stream_rows(m, N) * (size_t)m->shape.D, m->dtype);
}

enum status stream_copy(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                        bool accumulate)
{
    struct cast what = {.n = stream_rows(m, N) * (size_t)m->shape.D,
                        .from = m->dtype,
                        .to = m->dtype,
                        .accumulate = accumulate};
    TRY(cast(m->ops, &what, &(struct cast_io){x_SD, y_SD}, m->on));
    return STATUS_OK;
}

void *model_wide(const struct model *m, size_t N, struct arena *step)
{
    if (m->plan->parts == 1) return NULL;
    return arena_take(step, N * (size_t)m->shape.D, dtype_bytes(m->dtype));
}

#define AXES(m)                                                                                    \
    __attribute__((unused)) const size_t D = (size_t)(m)->shape.D, H = (size_t)(m)->shape.H,       \
                                         F = (size_t)(m)->shape.F,                                 \
                                         Q = (size_t)(m)->shape.H * (size_t)(m)->shape.K,          \
                                         P = (size_t)(m)->shape.G * (size_t)(m)->shape.K

void activations_take(const struct model *m, size_t N, enum recompute recompute,
                      const struct activations *shared, struct activations *a, struct arena *step)
{
    AXES(m);
    size_t S = stream_rows(m, N);
    *a = (struct activations){.recompute = recompute, .wide_ND = shared->wide_ND};
#define X(type, name, elements, dtype, level)                                                      \
    a->name = recompute < level ? arena_take(step, elements, dtype_bytes(dtype)) : shared->name;
    ACTIVATION_LIST(X)
#undef X
}

void activations_share(const struct model *m, size_t N, enum recompute recompute,
                       struct activations *shared, struct arena *step)
{
    AXES(m);
    size_t S = stream_rows(m, N);
    *shared = (struct activations){.wide_ND = model_wide(m, N, step)};
#define X(type, name, elements, dtype, level)                                                      \
    if (recompute >= level) shared->name = arena_take(step, elements, dtype_bytes(dtype));
    ACTIVATION_LIST(X)
#undef X
}

/* Of the stream's rows, to all rows of y. */
static enum status norm(const struct model *m, size_t N, enum param_id id, int layer,
                        const void *x_SD, void *y_ND, float *rstd_S)
{
    struct rmsnorm what = {.N = (int)stream_rows(m, N),
                           .D = m->shape.D,
                           .eps = (float)m->shape.norm_eps,
                           .dtype = m->dtype,
                           .y_private = norm_is_private(m)};
    enum product_id reader = id == PARAM_attn_norm ? PRODUCT_attn_q : PRODUCT_mlp_gate;
    struct rmsnorm_fwd io = {x_SD, model_weight(m, id, layer), stream_part(m, y_ND, N), rstd_S,
                             product_largest(m, reader, layer)};
    TRY(rmsnorm_forward(m->ops, &what, &io, m->on));
    TRY(model_cross(m, id == PARAM_attn_norm ? ATTN_IN : MLP_IN, FORWARD, y_ND, N, m->shape.D));
    return STATUS_OK;
}

/* dx += the norm's part: the residual stream's gradient is already there. */
static enum status norm_backward(const struct model *m, size_t N, enum param_id id, int layer,
                                 void *dy_ND, const void *x_SD, const float *rstd_S, void *dx_SD)
{
    struct rmsnorm what = {.N = (int)stream_rows(m, N),
                           .D = m->shape.D,
                           .eps = (float)m->shape.norm_eps,
                           .dtype = m->dtype,
                           .accumulate = true,
                           .y_private = norm_is_private(m)};
    struct rmsnorm_bwd io = {
        stream_part(m, dy_ND, N),    x_SD, model_weight(m, id, layer), rstd_S, dx_SD,
        model_gradient(m, id, layer)};
    TRY(model_cross(m, id == PARAM_attn_norm ? ATTN_IN : MLP_IN, BACKWARD, dy_ND, N, m->shape.D));
    TRY(rmsnorm_backward(m->ops, &what, &io, m->on));
    return STATUS_OK;
}

/* Where a block's input and output are; in_place: both are x. */
struct residual {
    const void *x_SD;
    void *out_SD;
    bool in_place;
};

/* out = x + y w^T.  Where the matrix is cut, what is here is a part of the sum for all rows. */
static enum status add_product(const struct model *m, const struct product_call *call,
                               const void *y, const struct activations *a, struct residual r)
{
    size_t N = call->N;
    bool cut = m->plan->parts > 1;
    void *sum = cut ? a->wide_ND : r.out_SD;
    enum boundary out = call->id == PRODUCT_attn_out ? ATTN_OUT : MLP_OUT;
    TRY(product_forward(m, call, y, sum, r.x_SD, !cut));
    TRY(model_cross(m, out, FORWARD, sum, N, m->shape.D));
    if (cut && !r.in_place) TRY(stream_copy(m, N, r.x_SD, r.out_SD, false));
    if (cut) TRY(stream_copy(m, N, stream_part(m, sum, N), r.out_SD, true));
    return STATUS_OK;
}

/* The gradient of all rows from that of the stream. */
static enum status widen_gradient(const struct model *m, size_t N, enum boundary at,
                                  const struct activations *a, void *dx_SD, void **dx_ND)
{
    bool cut = m->plan->parts > 1;
    *dx_ND = cut ? a->wide_ND : dx_SD;
    if (cut) TRY(stream_copy(m, N, dx_SD, stream_part(m, *dx_ND, N), false));
    TRY(model_cross(m, at, BACKWARD, *dx_ND, N, m->shape.D));
    return STATUS_OK;
}

/* Rotates q and k where they lie in the fused row; inverse: their gradients. */
static enum status rotate(const struct model *m, const struct micro_batch *b,
                          const struct attention *attention, void *qkv, bool inverse)
{
    struct rope what = {.H = m->shape.H + m->shape.G, /* heads of k lie behind those of q */
                        .K = m->shape.K,
                        .stride = attention->q_stride,
                        .dtype = m->dtype,
                        .inverse = inverse,
                        .is_private = attention->is_private};
    struct context cut = {m->plan->contexts, m->plan->context, b->causal};
    struct token_run runs[MOST_RUNS];
    int num_runs = context_runs(&cut, b->T, runs);
    what.B = num_runs == 1 ? b->B : 1; /* rows of one run follow each other */
    for (int row = 0; row < b->B; row += what.B)
        for (int i = 0; i < num_runs; i++) {
            size_t token = (size_t)row * (size_t)b->T + (size_t)runs[i].at;
            what.T = runs[i].count, what.first = runs[i].first;
            struct rope_io io = {element(qkv, token * what.stride, m->dtype), m->rope_cos,
                                 m->rope_sin};
            TRY(rope(m->ops, &what, &io, m->on));
        }
    return STATUS_OK;
}

static struct attention attention_of(const struct model *m, const struct micro_batch *b)
{
    AXES(m);
    struct attention what = {.B = b->B,
                             .T = b->T,
                             .S = b->T,
                             .H = m->shape.H,
                             .G = m->shape.G,
                             .K = m->shape.K,
                             .q_stride = Q + 2 * P,
                             .kv_stride = Q + 2 * P,
                             .scale = 1 / sqrtf((float)m->shape.K),
                             .causal = b->causal,
                             .dtype = m->dtype,
                             .k_column = Q,
                             .v_column = Q + P};
    what.is_private = !m->plan->attend && attention_may_be_private(m->ops, &what);
    return what;
}

/* Keys or values of fused rows, as attention wants to be told. */
static void *from_column(const struct attention *a, void *qkv, size_t column)
{
    return a->is_private ? qkv : element(qkv, column, a->dtype);
}

/* out = x + attended w^T */
static enum status join(const struct model *m, size_t N, int layer, const struct activations *a,
                        bool attends, struct residual r)
{
    struct product_call call = {PRODUCT_attn_out, layer, N, a->input_scales, .attends = attends};
    TRY(add_product(m, &call, a->attended_NQ, a, r));
    return STATUS_OK;
}

/* out = x + attention(norm(x)) w^T */
static enum status attend(const struct model *m, const struct micro_batch *b, int layer,
                          const struct activations *a, struct residual r)
{
    size_t N = (size_t)b->B * (size_t)b->T;
    struct attention what = attention_of(m, b);
    struct attention_fwd io = {.q_BTHK = a->qkv_NC,
                               .k_BSGK = from_column(&what, a->qkv_NC, what.k_column),
                               .v_BSGK = from_column(&what, a->qkv_NC, what.v_column),
                               .start_BT = b->start_BT,
                               .end_BT = b->end_BT,
                               .out_BTHK = a->attended_NQ,
                               .lse_BHT = a->lse_BHT};
    struct product_call call = {PRODUCT_attn_q, layer, N, a->input_scales,
                                .attends = what.is_private};
    call.found = product_finds(m, PRODUCT_attn_q, layer);
    TRY(norm(m, N, PARAM_attn_norm, layer, a->x_SD, a->norm1_ND, a->rstd1_S));
    TRY(product_forward(m, &call, a->norm1_ND, a->qkv_NC, NULL, false));
    TRY(rotate(m, b, &what, a->qkv_NC, false));
    if (m->plan->attend)
        TRY(m->plan->attend(m->plan, m->ops, &what, &io, m->on));
    else
        TRY(attention_forward(m->ops, &what, &io, m->on));
    TRY(join(m, N, layer, a, what.is_private, r));
    return STATUS_OK;
}

enum status block_join(const struct model *m, size_t N, int layer, const struct activations *a,
                       void *x_SD)
{
    TRY(join(m, N, layer, a, false, (struct residual){x_SD, x_SD, true}));
    return STATUS_OK;
}

static enum status gate(const struct model *m, size_t N, int layer, const struct activations *a)
{
    struct swiglu what = {.N = (int)N, .F = m->shape.F, .dtype = m->dtype, .is_private = true};
    struct swiglu_fwd io = {a->gate_up_N2F, a->hidden_NF,
                            product_largest(m, PRODUCT_mlp_down, layer)};
    TRY(swiglu_forward(m->ops, &what, &io, m->on));
    return STATUS_OK;
}

static enum status widen(const struct model *m, size_t N, int layer, const struct activations *a)
{
    struct product_call call = {PRODUCT_mlp_gate, layer, N, a->input_scales,
                                .found = product_finds(m, PRODUCT_mlp_gate, layer)};
    TRY(norm(m, N, PARAM_mlp_norm, layer, a->middle_SD, a->norm2_ND, a->rstd2_S));
    TRY(product_forward(m, &call, a->norm2_ND, a->gate_up_N2F, NULL, false));
    TRY(gate(m, N, layer, a));
    return STATUS_OK;
}

/* out = x + hidden w^T */
static enum status narrow(const struct model *m, size_t N, int layer, const struct activations *a,
                          struct residual r)
{
    struct product_call call = {PRODUCT_mlp_down, layer, N, a->input_scales,
                                .found = product_finds(m, PRODUCT_mlp_down, layer)};
    TRY(add_product(m, &call, a->hidden_NF, a, r));
    return STATUS_OK;
}

enum status block_mlp(const struct model *m, int N, int layer, const struct activations *a,
                      void *x_SD)
{
    struct activations here = *a;
    here.middle_SD = x_SD;
    TRY(widen(m, (size_t)N, layer, &here));
    TRY(narrow(m, (size_t)N, layer, &here, (struct residual){x_SD, x_SD, true}));
    return STATUS_OK;
}

enum status block_forward(const struct model *m, const struct micro_batch *b, int layer,
                          const struct activations *a, bool in_place, void *out_SD)
{
    size_t N = (size_t)b->B * (size_t)b->T;
    TRY(attend(m, b, layer, a, (struct residual){a->x_SD, a->middle_SD, in_place}));
    TRY(widen(m, N, layer, a));
    TRY(narrow(m, N, layer, a, (struct residual){a->middle_SD, out_SD, in_place}));
    return STATUS_OK;
}

/* Redoes what was not kept, by the same calls on the same inputs: the same bits. */
static enum status redo(const struct model *m, const struct micro_batch *b, int layer,
                        const struct activations *a)
{
    size_t N = (size_t)b->B * (size_t)b->T;
    if (a->recompute == RECOMPUTE_SELECTIVE) {
        TRY(norm(m, N, PARAM_attn_norm, layer, a->x_SD, a->norm1_ND, a->rstd1_S));
        TRY(norm(m, N, PARAM_mlp_norm, layer, a->middle_SD, a->norm2_ND, a->rstd2_S));
        TRY(gate(m, N, layer, a));
    }
    if (a->recompute == RECOMPUTE_FULL) {
        TRY(attend(m, b, layer, a, (struct residual){a->x_SD, a->middle_SD, false}));
        TRY(widen(m, N, layer, a));
    }
    return STATUS_OK;
}

static enum status mlp_backward(const struct model *m, size_t N, int layer,
                                const struct activations *a, void *dx, struct arena *step)
{
    AXES(m);
    void *dhidden = arena_take(step, N * F, dtype_bytes(m->dtype));
    void *dnorm = arena_take(step, N * D, dtype_bytes(m->dtype));
    struct swiglu what = {.N = (int)N, .F = m->shape.F, .dtype = m->dtype, .is_private = true};
    struct swiglu_bwd io = {a->gate_up_N2F, dhidden, a->gate_up_N2F,
                            product_largest(m, PRODUCT_mlp_gate, layer)};
    struct product_call down = {PRODUCT_mlp_down, layer, N, a->input_scales, .found = false};
    struct product_call up = {PRODUCT_mlp_gate, layer, N, a->input_scales,
                              .found = product_finds(m, PRODUCT_mlp_gate, layer)};
    void *dx_ND;
    TRY(widen_gradient(m, N, MLP_OUT, a, dx, &dx_ND));
    TRY(product_backward(m, &down, dx_ND, a->hidden_NF, dhidden));
    TRY(swiglu_backward(m->ops, &what, &io, m->on));
    TRY(product_backward(m, &up, a->gate_up_N2F, a->norm2_ND, dnorm));
    TRY(norm_backward(m, N, PARAM_mlp_norm, layer, dnorm, a->middle_SD, a->rstd2_S, dx));
    return STATUS_OK;
}

static enum status attend_backward(const struct model *m, const struct micro_batch *b, int layer,
                                   const struct activations *a, void *dx, struct arena *step)
{
    AXES(m);
    size_t N = (size_t)b->B * (size_t)b->T;
    void *dattended = arena_take(step, N * Q, dtype_bytes(m->dtype));
    void *dqkv = arena_take(step, N * (Q + 2 * P), dtype_bytes(m->dtype));
    void *dnorm = arena_take(step, N * D, dtype_bytes(m->dtype));
    struct attention what = attention_of(m, b);
    struct attention_bwd io = {.q_BTHK = a->qkv_NC,
                               .k_BSGK = from_column(&what, a->qkv_NC, what.k_column),
                               .v_BSGK = from_column(&what, a->qkv_NC, what.v_column),
                               .out_BTHK = a->attended_NQ,
                               .dout_BTHK = dattended,
                               .start_BT = b->start_BT,
                               .end_BT = b->end_BT,
                               .lse_BHT = a->lse_BHT,
                               .dq_BTHK = dqkv,
                               .dk_BSGK = from_column(&what, dqkv, what.k_column),
                               .dv_BSGK = from_column(&what, dqkv, what.v_column)};
    bool attends = what.is_private;
    struct product_call out = {PRODUCT_attn_out, layer, N, a->input_scales, .attends = attends};
    struct product_call in = {PRODUCT_attn_q, layer, N, a->input_scales, .attends = attends};
    void *dx_ND;
    TRY(widen_gradient(m, N, ATTN_OUT, a, dx, &dx_ND));
    TRY(product_backward(m, &out, dx_ND, a->attended_NQ, dattended));
    if (m->plan->attend_backward)
        TRY(m->plan->attend_backward(m->plan, m->ops, &what, &io, m->on));
    else
        TRY(attention_backward(m->ops, &what, &io, m->on));
    TRY(rotate(m, b, &what, dqkv, true));
    TRY(product_backward(m, &in, dqkv, a->norm1_ND, dnorm));
    TRY(norm_backward(m, N, PARAM_attn_norm, layer, dnorm, a->x_SD, a->rstd1_S, dx));
    return STATUS_OK;
}

enum status block_backward(const struct model *m, const struct micro_batch *b, int layer,
                           const struct activations *a, void *dx_SD, struct arena *step)
{
    size_t N = (size_t)b->B * (size_t)b->T, mark = arena_mark(step);
    TRY(redo(m, b, layer, a));
    TRY(mlp_backward(m, N, layer, a, dx_SD, step));
    arena_reset(step, mark);
    TRY(attend_backward(m, b, layer, a, dx_SD, step));
    arena_reset(step, mark);
    return STATUS_OK;
}
