// SPDX-License-Identifier: Apache-2.0
#include "model/block.h"

#include "model/qk_norm.h"
#include "model/sublayer.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "tensor/element.h"

/* --- attention --- */

/* Where attention finds queries and keys. */
static void *queries_of(const struct block_call *k)
{
    return k->m->shape.qk_norm ? k->a->qk_NC : k->a->qkv_NC;
}

/* The norms of q and k, from qkv_NC to y_NC. */
static struct qk_norm qk_norm_of(const struct block_call *k, void *y_NC)
{
    const struct model *m = k->m;
    const struct model_shape *s = &m->shape;
    size_t Q = (size_t)s->H * (size_t)s->K, C = Q + 2 * (size_t)s->G * (size_t)s->K;
    return (struct qk_norm){.layer = k->layer,
                            .N = (int)k->N,
                            .x = {k->a->qkv_NC, element(k->a->qkv_NC, Q, m->dtype)},
                            .y = {y_NC, element(y_NC, Q, m->dtype)},
                            .stride = {C, C},
                            .rstd_NR = k->a->qk_rstd_NR};
}

/* Normalizes q and k, from qkv_NC to qk_NC. */
static enum status normalize_qk(const struct block_call *k)
{
    if (!k->m->shape.qk_norm) return STATUS_OK;
    struct qk_norm n = qk_norm_of(k, k->a->qk_NC);
    return qk_norm_forward(k->m, &n);
}

/* Replaces the gradients of normalized q and k, in dqkv, by those of their projections. */
static enum status differentiate_qk_norm(const struct block_call *k, void *dqkv_NC,
                                         struct arena *step)
{
    if (!k->m->shape.qk_norm) return STATUS_OK;
    struct qk_norm n = qk_norm_of(k, dqkv_NC);
    return qk_norm_backward(k->m, &n, step);
}

/* The bias of q, k and v, which are columns of one row. */
static struct bias qkv_bias(const struct block_call *k)
{
    const struct model_shape *s = &k->m->shape;
    return sublayer_bias(k, k->N, (s->H + 2 * s->G) * s->K);
}

/* Rotates q and k in place in the fused rows, in layers with RoPE; inverse: their gradients. */
static enum status apply_rope(const struct block_call *k, const struct microbatch *b,
                              const struct attention *attention, void *qkv, bool inverse)
{
    const struct model *m = k->m;
    if (!model_shape_has_rope(&m->shape, k->layer)) return STATUS_OK;
    struct rope op = {.H = m->shape.H + m->shape.G, /* k's heads follow q's */
                      .K = m->shape.K,
                      .J = model_shape_rotary_pairs(&m->shape),
                      .stride = attention->q_stride,
                      .dtype = m->dtype,
                      .inverse = inverse,
                      .is_packed = attention->is_packed};
    struct context context = {m->plan->contexts, m->plan->context, b->causal};
    struct token_run runs[MAX_TOKEN_RUNS];
    int num_runs = context_runs(&context, b->T, runs);
    op.B = num_runs == 1 ? b->B : 1; /* rows of one run are contiguous */
    for (int row = 0; row < b->B; row += op.B)
        for (int i = 0; i < num_runs; i++) {
            size_t token = (size_t)row * (size_t)b->T + (size_t)runs[i].at;
            op.T = runs[i].count, op.first = runs[i].first;
            struct rope_io io = {element(qkv, token * op.stride, m->dtype), m->rope_cos,
                                 m->rope_sin, NULL};
            TRY(rope(m->ops, &op, &io, m->queue));
        }
    return STATUS_OK;
}

static struct attention attention_of(const struct model *m, const struct microbatch *b)
{
    size_t Q = (size_t)m->shape.H * (size_t)m->shape.K, P = (size_t)m->shape.G * (size_t)m->shape.K;
    struct attention op = {.B = b->B,
                           .T = b->T,
                           .S = b->T,
                           .H = m->shape.H,
                           .G = m->shape.G,
                           .K = m->shape.K,
                           .q_stride = Q + 2 * P,
                           .kv_stride = Q + 2 * P,
                           .scale = model_shape_attention_scale(&m->shape),
                           .causal = b->causal,
                           .dtype = m->dtype,
                           .k_column = Q,
                           .v_column = Q + P};
    if (b->causal) op.window = m->shape.window;
    op.is_packed = !m->plan->attend && !m->shape.qk_norm && !m->shape.qkv_bias &&
                   attention_can_pack(m->ops, &op);
    return op;
}

/* Keys or values of fused rows: attention finds those of a packed tensor by their column. */
static void *from_column(const struct attention *a, void *qkv, size_t column)
{
    return a->is_packed ? qkv : element(qkv, column, a->dtype);
}

/* out = x + attended w^T */
static enum status project_attention(const struct block_call *k, bool qkv_packed,
                                     struct sublayer_residual r)
{
    struct matmul_call call = sublayer_matmul(k, MATMUL_attn_out);
    call.qkv_packed = qkv_packed;
    TRY(sublayer_add(k, call, k->a->attended_NQ, r));
    return STATUS_OK;
}

/* out = x + attention(norm(x)) w^T */
static enum status attention_half(const struct block_call *k, const struct microbatch *b,
                                  struct sublayer_residual r)
{
    const struct model *m = k->m;
    const struct activations *a = k->a;
    struct attention op = attention_of(m, b);
    struct attention_fwd io = {.q_BTHK = queries_of(k),
                               .k_BSGK = from_column(&op, queries_of(k), op.k_column),
                               .v_BSGK = from_column(&op, a->qkv_NC, op.v_column),
                               .start_BT = b->start_BT,
                               .end_BT = b->end_BT,
                               .out_BTHK = a->attended_NQ,
                               .lse_BHT = a->lse_BHT};
    struct matmul_call qkv = sublayer_matmul(k, MATMUL_attn_q);
    qkv.qkv_packed = op.is_packed;
    qkv.amax_known = !m->shape.post_norm && matmul_fuses_amax(m, MATMUL_attn_q, k->layer);
    TRY(sublayer_norm(k, PARAM_attn_norm, a->x_SD, a->norm1_ND, a->rstd1_S));
    TRY(matmul_forward(m, &qkv, a->norm1_ND, a->qkv_NC, NULL));
    if (m->shape.qkv_bias) TRY(sublayer_add_bias(k, PARAM_q_bias, qkv_bias(k), a->qkv_NC));
    TRY(normalize_qk(k));
    TRY(apply_rope(k, b, &op, queries_of(k), false));
    if (m->plan->attend)
        TRY(m->plan->attend(m->plan, m->ops, &op, &io, m->queue));
    else
        TRY(attention_forward(m->ops, &op, &io, m->queue));
    TRY(project_attention(k, op.is_packed, r));
    return STATUS_OK;
}

enum status block_add_attention(const struct block_call *k, void *x_SD)
{
    TRY(project_attention(k, false, (struct sublayer_residual){x_SD, x_SD, true}));
    return STATUS_OK;
}

/* --- feed-forward layer --- */

static struct swiglu swiglu_of(const struct block_call *k)
{
    const struct model *m = k->m;
    return (struct swiglu){
        .N = (int)k->N, .F = m->shape.F, .dtype = m->dtype, .is_packed = matmul_mlp_is_packed(m)};
}

static enum status swiglu_half(const struct block_call *k)
{
    const struct model *m = k->m;
    struct swiglu op = swiglu_of(k);
    struct swiglu_fwd io = {k->a->gate_up_N2F, k->a->hidden_NF,
                            matmul_amax_target(m, MATMUL_mlp_down, k->layer)};
    if (matmul_quantizes_result(m, MATMUL_mlp_down, k->layer)) {
        struct matmul_call call = sublayer_matmul(k, MATMUL_mlp_down);
        struct matmul_source swiglu = {.of = FUSED_SWIGLU,
                                       .C = m->shape.F,
                                       .x = k->a->gate_up_N2F,
                                       .summed = sublayer_summed_axes(k, MATMUL_mlp_down)};
        return matmul_quantize(m, &call, FLOAT8_INPUT, &swiglu, k->a->hidden_NF);
    }
    TRY(swiglu_forward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* hidden = swiglu(norm(middle) w^T) */
static enum status mlp_up(const struct block_call *k)
{
    const struct activations *a = k->a;
    struct matmul_call call = sublayer_matmul(k, MATMUL_mlp_gate);
    call.amax_known = !k->m->shape.post_norm && matmul_fuses_amax(k->m, MATMUL_mlp_gate, k->layer);
    TRY(sublayer_norm(k, PARAM_mlp_norm, a->middle_SD, a->norm2_ND, a->rstd2_S));
    TRY(matmul_forward(k->m, &call, a->norm2_ND, a->gate_up_N2F, NULL));
    if (k->m->shape.mlp_bias)
        TRY(sublayer_add_bias(k, PARAM_gate_bias, sublayer_bias(k, k->N, 2 * k->m->shape.F),
                              a->gate_up_N2F));
    TRY(swiglu_half(k));
    return STATUS_OK;
}

static struct matmul_call mlp_down_call(const struct block_call *k)
{
    struct matmul_call call = sublayer_matmul(k, MATMUL_mlp_down);
    call.amax_known = matmul_fuses_amax(k->m, MATMUL_mlp_down, k->layer);
    return call;
}

/* out = x + hidden w^T */
static enum status mlp_down(const struct block_call *k, struct sublayer_residual r)
{
    return sublayer_add(k, mlp_down_call(k), k->a->hidden_NF, r);
}

enum status block_add_mlp(const struct block_call *k, void *x_SD)
{
    struct activations a = *k->a;
    struct block_call in_place = *k;
    a.middle_SD = x_SD, in_place.a = &a;
    TRY(mlp_up(&in_place));
    TRY(mlp_down(&in_place, (struct sublayer_residual){x_SD, x_SD, true}));
    return STATUS_OK;
}

enum status block_forward(const struct block_call *k, const struct microbatch *b, bool in_place,
                          void *out_SD)
{
    TRY(attention_half(k, b, (struct sublayer_residual){k->a->x_SD, k->a->middle_SD, in_place}));
    TRY(mlp_up(k));
    TRY(mlp_down(k, (struct sublayer_residual){k->a->middle_SD, out_SD, in_place}));
    return STATUS_OK;
}

/* --- backward --- */

/* Recomputes activations that were not saved, by the same calls on the same inputs: bit for bit the
 * same. */
static enum status recompute(const struct block_call *block, const struct microbatch *b)
{
    struct activations again = *block->a, *a = &again;
    struct block_call call = *block, *k = &call;
    a->has_scales = true, call.a = a;
    if (a->recompute == RECOMPUTE_SELECTIVE) {
        TRY(sublayer_norm(k, PARAM_attn_norm, a->x_SD, a->norm1_ND, a->rstd1_S));
        TRY(sublayer_norm(k, PARAM_mlp_norm, a->middle_SD, a->norm2_ND, a->rstd2_S));
        TRY(swiglu_half(k));
        struct attention op = attention_of(k->m, b);
        TRY(normalize_qk(k));
        if (k->m->shape.qk_norm) TRY(apply_rope(k, b, &op, a->qk_NC, false));
    }
    if (a->recompute == RECOMPUTE_FULL) {
        TRY(attention_half(k, b, (struct sublayer_residual){a->x_SD, a->middle_SD, false}));
        TRY(mlp_up(k));
        void *added_SD;
        if (k->m->shape.post_norm) /* what its norm saves */
            TRY(sublayer_output(k, mlp_down_call(k), a->hidden_NF, (struct sublayer_residual){0},
                                &added_SD));
    }
    return STATUS_OK;
}

/* A gradient of all tokens, `width` elements each. */
static void *alloc_gradient(const struct block_call *k, size_t width, struct arena *step)
{
    return arena_alloc(step, k->N * width, dtype_bytes(k->m->dtype));
}

/* dgate_up from dhidden, then the matrix multiply's dnorm = dgate_up w. */
static enum status gate_up_backward(const struct block_call *k, const void *dhidden, void *dnorm)
{
    const struct model *m = k->m;
    const struct activations *a = k->a;
    size_t mark = arena_mark(&m->queue->scratch);
    struct swiglu op = swiglu_of(k);
    struct swiglu_bwd io = {a->gate_up_N2F, dhidden, a->gate_up_N2F,
                            matmul_amax_target(m, MATMUL_mlp_gate, k->layer)};
    struct matmul_call up = sublayer_matmul(k, MATMUL_mlp_gate);
    const void *dgate_up = a->gate_up_N2F;
    up.amax_known = matmul_fuses_amax(m, MATMUL_mlp_gate, k->layer);
    /* The gradient of a bias is a sum of what is not quantized. */
    up.dy_quantized = matmul_quantizes_result(m, MATMUL_mlp_gate, k->layer) && !m->shape.mlp_bias;
    if (up.dy_quantized) {
        struct matmul_source gradient = {.of = FUSED_SWIGLU_GRAD,
                                         .C = m->shape.F,
                                         .x = a->gate_up_N2F,
                                         .dout_NF = dhidden,
                                         .summed = OVER_COLUMNS | OVER_ROWS};
        size_t elements = 2 * k->N * (size_t)m->shape.F;
        bf16 *quantized = arena_alloc(&m->queue->scratch, elements, sizeof *quantized);
        TRY(matmul_quantize(m, &up, FLOAT8_GRADIENT, &gradient, quantized));
        dgate_up = quantized;
    } else {
        TRY(swiglu_backward(m->ops, &op, &io, m->queue));
    }
    if (m->shape.mlp_bias)
        TRY(sublayer_add_bias_gradient(k, PARAM_gate_bias, sublayer_bias(k, k->N, 2 * m->shape.F),
                                       dgate_up));
    TRY(matmul_backward(m, &up, dgate_up, a->norm2_ND, dnorm));
    arena_reset(&m->queue->scratch, mark);
    return STATUS_OK;
}

static enum status mlp_backward(const struct block_call *k, void *dx, struct arena *step)
{
    const struct model *m = k->m;
    const struct activations *a = k->a;
    void *dhidden = alloc_gradient(k, (size_t)m->shape.F, step);
    void *dnorm = alloc_gradient(k, (size_t)m->shape.D, step);
    struct matmul_call down = sublayer_matmul(k, MATMUL_mlp_down);
    void *dx_ND;
    TRY(sublayer_gather_gradient(k, &down, dx, &dx_ND));
    TRY(matmul_backward(m, &down, dx_ND, a->hidden_NF, dhidden));
    TRY(gate_up_backward(k, dhidden, dnorm));
    TRY(sublayer_norm_backward(k, PARAM_mlp_norm, a->middle_SD, a->rstd2_S,
                               (struct sublayer_gradients){dnorm, dx}));
    return STATUS_OK;
}

static enum status attention_backward_half(const struct block_call *k, const struct microbatch *b,
                                           void *dx, struct arena *step)
{
    const struct model *m = k->m;
    const struct activations *a = k->a;
    struct attention op = attention_of(m, b);
    void *dattended = alloc_gradient(k, op.k_column, step);
    void *dqkv = alloc_gradient(k, op.q_stride, step);
    void *dnorm = alloc_gradient(k, (size_t)m->shape.D, step);
    struct attention_bwd io = {.q_BTHK = queries_of(k),
                               .k_BSGK = from_column(&op, queries_of(k), op.k_column),
                               .v_BSGK = from_column(&op, a->qkv_NC, op.v_column),
                               .out_BTHK = a->attended_NQ,
                               .dout_BTHK = dattended,
                               .start_BT = b->start_BT,
                               .end_BT = b->end_BT,
                               .lse_BHT = a->lse_BHT,
                               .dq_BTHK = dqkv,
                               .dk_BSGK = from_column(&op, dqkv, op.k_column),
                               .dv_BSGK = from_column(&op, dqkv, op.v_column)};
    struct matmul_call out = sublayer_matmul(k, MATMUL_attn_out),
                       qkv = sublayer_matmul(k, MATMUL_attn_q);
    out.qkv_packed = qkv.qkv_packed = op.is_packed;
    void *dx_ND;
    TRY(sublayer_gather_gradient(k, &out, dx, &dx_ND));
    TRY(matmul_backward(m, &out, dx_ND, a->attended_NQ, dattended));
    if (m->plan->attend_backward)
        TRY(m->plan->attend_backward(m->plan, m->ops, &op, &io, m->queue));
    else
        TRY(attention_backward(m->ops, &op, &io, m->queue));
    TRY(apply_rope(k, b, &op, dqkv, true));
    TRY(differentiate_qk_norm(k, dqkv, step));
    if (m->shape.qkv_bias) TRY(sublayer_add_bias_gradient(k, PARAM_q_bias, qkv_bias(k), dqkv));
    TRY(matmul_backward(m, &qkv, dqkv, a->norm1_ND, dnorm));
    TRY(sublayer_norm_backward(k, PARAM_attn_norm, a->x_SD, a->rstd1_S,
                               (struct sublayer_gradients){dnorm, dx}));
    return STATUS_OK;
}

enum status block_backward(const struct block_call *k, const struct microbatch *b, void *dx_SD,
                           struct arena *step)
{
    size_t mark = arena_mark(step);
    TRY(recompute(k, b));
    TRY(mlp_backward(k, dx_SD, step));
    arena_reset(step, mark);
    TRY(attention_backward_half(k, b, dx_SD, step));
    arena_reset(step, mark);
    return STATUS_OK;
}
