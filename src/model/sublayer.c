// SPDX-License-Identifier: Apache-2.0
#include "model/sublayer.h"

#include "model/residual.h"
#include "model/unit.h"
#include "ops/rmsnorm.h"

struct matmul_call sublayer_matmul(const struct block_call *k, enum matmul_id id)
{
    bool is_quantized = id == MATMUL_mlp_down
                            ? matmul_quantizes_result(k->m, id, k->layer)
                            : id != MATMUL_attn_out && matmul_quantizes_norm(k->m, id, k->layer);
    return (struct matmul_call){id,
                                k->layer,
                                k->N,
                                .input_scales = k->a->input_scales,
                                .x_quantized = is_quantized,
                                .has_scales = k->a->has_scales};
}

/* What backward recomputes, forward does not keep for it. */
unsigned sublayer_summed_axes(const struct block_call *k, enum matmul_id id)
{
    const struct activations *a = k->a;
    bool is_saved = a->recompute == RECOMPUTE_NONE && a->input_scales;
    if (!a->has_scales) return is_saved ? OVER_COLUMNS | OVER_ROWS : OVER_COLUMNS;
    bool multiplies =
        a->recompute == RECOMPUTE_FULL && (id != MATMUL_mlp_down || k->m->shape.post_norm);
    return multiplies ? OVER_COLUMNS | OVER_ROWS : OVER_ROWS;
}

static struct rmsnorm norm_of(const struct block_call *k)
{
    const struct model *m = k->m;
    return (struct rmsnorm){.N = (int)residual_rows(m, k->N),
                            .D = m->shape.D,
                            .eps = (float)m->shape.norm_eps,
                            .dtype = m->dtype,
                            .y_packed = matmul_norm_is_packed(m)};
}

enum status sublayer_norm(const struct block_call *k, enum param_id id, const void *x_SD,
                          void *y_ND, float *rstd_S)
{
    const struct model *m = k->m;
    struct rmsnorm op = norm_of(k);
    enum matmul_id reader = id == PARAM_attn_norm ? MATMUL_attn_q : MATMUL_mlp_gate;
    enum boundary at = matmul_input_boundary(reader);
    if (m->shape.post_norm) {
        TRY(residual_copy(m, k->N, x_SD, residual_local(m, y_ND, k->N), 1));
        return residual_cross(m, at, FORWARD, y_ND, k->N);
    }
    if (matmul_quantizes_norm(m, reader, k->layer)) {
        struct matmul_call call = sublayer_matmul(k, reader);
        struct matmul_source norm = {.of = FUSED_RMSNORM,
                                     .C = m->shape.D,
                                     .x = x_SD,
                                     .w_C = unit_weight(m, id, k->layer),
                                     .rstd_N = rstd_S,
                                     .summed = sublayer_summed_axes(k, reader),
                                     .gathers = true,
                                     .at = at,
                                     .direction = FORWARD};
        norm.has_rstd = k->a->has_scales && k->a->recompute == RECOMPUTE_SELECTIVE;
        return matmul_quantize(m, &call, FLOAT8_INPUT, &norm, y_ND);
    }
    struct rmsnorm_fwd io = {x_SD, unit_weight(m, id, k->layer), residual_local(m, y_ND, k->N),
                             rstd_S, matmul_amax_target(m, reader, k->layer)};
    TRY(rmsnorm_forward(m->ops, &op, &io, m->queue));
    TRY(residual_cross(m, at, FORWARD, y_ND, k->N));
    return STATUS_OK;
}

enum status sublayer_norm_backward(const struct block_call *k, enum param_id id, const void *x_SD,
                                   const float *rstd_S, struct sublayer_gradients d)
{
    const struct model *m = k->m;
    struct rmsnorm op = norm_of(k);
    void *dy_SD = residual_local(m, d.dy_ND, k->N);
    op.accumulate = true;
    if (m->shape.post_norm) return residual_add(m, k->N, dy_SD, d.dx_SD, 1);
    struct rmsnorm_bwd io = {.dy_ND = dy_SD,
                             .x_ND = x_SD,
                             .w_D = unit_weight(m, id, k->layer),
                             .rstd_N = rstd_S,
                             .dx_ND = d.dx_SD,
                             .dw_D = unit_gradient(m, id, k->layer)};
    TRY(rmsnorm_backward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

struct bias sublayer_bias(const struct block_call *k, size_t rows, int F)
{
    return (struct bias){(int)rows, F, k->m->dtype};
}

enum status sublayer_add_bias(const struct block_call *k, enum param_id id, struct bias op, void *y)
{
    const struct model *m = k->m;
    struct bias_fwd io = {unit_weight(m, id, k->layer), y};
    TRY(bias_forward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

enum status sublayer_add_bias_gradient(const struct block_call *k, enum param_id id, struct bias op,
                                       const void *dy)
{
    const struct model *m = k->m;
    struct bias_bwd io = {dy, unit_gradient(m, id, k->layer)};
    TRY(bias_backward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* The bias of a matrix whose output is added to the residual stream; PARAM_COUNT: none. */
static enum param_id output_bias(const struct model *m, enum matmul_id id)
{
    if (id == MATMUL_mlp_down) return m->shape.mlp_bias ? PARAM_down_bias : PARAM_COUNT;
    return m->shape.out_bias ? PARAM_out_bias : PARAM_COUNT;
}

/* With model.post_norm: the norm of what a matrix multiply adds to the residual stream. */
struct output_norm {
    enum param_id id;
    void *x_SD; /* what it normalizes */
    float *rstd_S;
};

static struct output_norm output_norm_of(const struct block_call *k, enum matmul_id id)
{
    const struct activations *a = k->a;
    if (id == MATMUL_attn_out)
        return (struct output_norm){PARAM_post_attn_norm, a->attn_sum_SD, a->rstd1_S};
    return (struct output_norm){PARAM_post_mlp_norm, a->mlp_sum_SD, a->rstd2_S};
}

/* y = norm(y); saves y for backward. */
static enum status output_norm_forward(const struct block_call *k, enum matmul_id id, void *y_SD)
{
    const struct model *m = k->m;
    struct output_norm n = output_norm_of(k, id);
    struct rmsnorm op = norm_of(k);
    struct rmsnorm_fwd io = {n.x_SD, unit_weight(m, n.id, k->layer), y_SD, n.rstd_S, NULL};
    TRY(residual_copy(m, k->N, y_SD, n.x_SD, 1));
    TRY(rmsnorm_forward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

static enum status output_norm_backward(const struct block_call *k, enum matmul_id id,
                                        const void *dy_SD, void *dx_SD)
{
    const struct model *m = k->m;
    struct output_norm n = output_norm_of(k, id);
    struct rmsnorm op = norm_of(k);
    struct rmsnorm_bwd io = {.dy_ND = dy_SD,
                             .x_ND = n.x_SD,
                             .w_D = unit_weight(m, n.id, k->layer),
                             .rstd_N = n.rstd_S,
                             .dx_ND = dx_SD,
                             .dw_D = unit_gradient(m, n.id, k->layer)};
    TRY(rmsnorm_backward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

enum status sublayer_output(const struct block_call *k, struct matmul_call call, const void *y,
                            struct sublayer_residual r, void **added_SD)
{
    const struct model *m = k->m;
    bool apart = residual_is_apart(m);
    void *sum = apart ? k->a->gathered_ND : r.out_SD;
    enum boundary out = call.id == MATMUL_attn_out ? ATTN_OUT : MLP_OUT;
    enum param_id bias = output_bias(m, call.id);
    call.accumulate = !apart;
    TRY(matmul_forward(m, &call, y, sum, r.x_SD));
    TRY(residual_cross(m, out, FORWARD, sum, k->N));
    *added_SD = apart ? residual_local(m, sum, k->N) : r.out_SD;
    if (bias != PARAM_COUNT)
        TRY(sublayer_add_bias(k, bias, sublayer_bias(k, residual_rows(m, k->N), m->shape.D),
                              *added_SD));
    if (m->shape.post_norm) TRY(output_norm_forward(k, call.id, *added_SD));
    return STATUS_OK;
}

enum status sublayer_add(const struct block_call *k, struct matmul_call call, const void *y,
                         struct sublayer_residual r)
{
    const struct model *m = k->m;
    double scale = model_shape_multiplier(m->shape.residual_multiplier);
    void *added_SD;
    TRY(sublayer_output(k, call, y, r, &added_SD));
    if (!residual_is_apart(m)) return STATUS_OK;
    if (!r.in_place) TRY(residual_copy(m, k->N, r.x_SD, r.out_SD, 1));
    TRY(residual_add(m, k->N, added_SD, r.out_SD, scale));
    return STATUS_OK;
}

/* From the gradient of a matrix's output. */
static enum status output_bias_gradient(const struct block_call *k, enum matmul_id id,
                                        const void *dy_SD)
{
    const struct model *m = k->m;
    enum param_id bias = output_bias(m, id);
    if (bias == PARAM_COUNT) return STATUS_OK;
    return sublayer_add_bias_gradient(k, bias, sublayer_bias(k, residual_rows(m, k->N), m->shape.D),
                                      dy_SD);
}

enum status sublayer_gather_gradient(const struct block_call *k, struct matmul_call *call,
                                     void *dx_SD, void **dx_ND)
{
    const struct model *m = k->m;
    enum matmul_id id = call->id;
    bool apart = residual_is_apart(m);
    double scale = model_shape_multiplier(m->shape.residual_multiplier);
    enum boundary at = id == MATMUL_attn_out ? ATTN_OUT : MLP_OUT;
    *dx_ND = apart ? k->a->gathered_ND : dx_SD;
    void *added = apart ? residual_local(m, *dx_ND, k->N) : dx_SD;
    /* Else the gradient of what is added is stored where the FP8 values would go. */
    if (m->plan->sequence_parallel && !m->shape.post_norm && scale == 1)
        call->dy_quantized = matmul_quantizes_result(m, id, k->layer);
    if (call->dy_quantized) {
        struct matmul_source gradient = {.of = FUSED_TENSOR,
                                         .C = m->shape.D,
                                         .x = dx_SD,
                                         .summed = OVER_COLUMNS | OVER_ROWS,
                                         .gathers = true,
                                         .at = at,
                                         .direction = BACKWARD};
        TRY(output_bias_gradient(k, id, dx_SD));
        return matmul_quantize(m, call, FLOAT8_GRADIENT, &gradient, *dx_ND);
    }
    if (m->shape.post_norm)
        TRY(output_norm_backward(k, id, dx_SD, added));
    else if (apart)
        TRY(residual_copy(m, k->N, dx_SD, added, scale));
    TRY(output_bias_gradient(k, id, added));
    TRY(residual_cross(m, at, BACKWARD, *dx_ND, k->N));
    return STATUS_OK;
}
