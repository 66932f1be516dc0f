// SPDX-License-Identifier: Apache-2.0
#include "model/qk_norm.h"

#include "model/unit.h"
#include "ops/rmsnorm.h"
#include "tensor/element.h"

/* The norm of q or k. */
struct one_norm {
    enum param_id id;
    size_t row; /* its first rstd in rstd_NR */
    struct rmsnorm op;
};

static struct one_norm norm_of(const struct model *m, const struct qk_norm *n, int which,
                               enum rmsnorm_part part)
{
    const struct model_shape *s = &m->shape;
    const bool wide = s->post_norm;
    int heads = which ? s->G : s->H, rows = wide ? 1 : heads;
    struct rmsnorm op = {.N = n->N * rows,
                         .D = heads / rows * s->K,
                         .eps = (float)s->norm_eps,
                         .dtype = m->dtype,
                         .heads = rows,
                         .stride = n->stride[which],
                         .part = part,
                         .width = heads / rows * s->K * m->plan->parts};
    enum param_id id = wide    ? which ? PARAM_wide_k_norm : PARAM_wide_q_norm
                       : which ? PARAM_k_norm
                               : PARAM_q_norm;
    return (struct one_norm){id, which ? (size_t)n->N * (size_t)(wide ? 1 : s->H) : 0, op};
}

static enum status normalize(const struct model *m, const struct qk_norm *n, enum rmsnorm_part part)
{
    for (int i = 0; i < 2; i++) {
        struct one_norm one = norm_of(m, n, i, part);
        struct rmsnorm_fwd io = {n->x[i], unit_weight(m, one.id, n->layer), n->y[i],
                                 element(n->rstd_NR, one.row, F32), NULL};
        TRY(rmsnorm_forward(m->ops, &one.op, &io, m->queue));
    }
    return STATUS_OK;
}

static enum status differentiate(const struct model *m, const struct qk_norm *n, float *dot_2N,
                                 enum rmsnorm_part part)
{
    for (int i = 0; i < 2; i++) {
        struct one_norm one = norm_of(m, n, i, part);
        struct rmsnorm_bwd io = {.dy_ND = n->y[i],
                                 .x_ND = n->x[i],
                                 .w_D = unit_weight(m, one.id, n->layer),
                                 .rstd_N = element(n->rstd_NR, one.row, F32),
                                 .dx_ND = n->y[i],
                                 .dw_D = unit_gradient(m, one.id, n->layer)};
        if (dot_2N) io.dot_N = element(dot_2N, one.row, F32);
        TRY(rmsnorm_backward(m->ops, &one.op, &io, m->queue));
    }
    return STATUS_OK;
}

/* Whether ranks have parts of the rows that are normalized. */
static bool is_sharded(const struct model *m) { return m->shape.post_norm && m->plan->parts > 1; }

/* Adds up the sums of all ranks. */
static enum status cross_sums(const struct model *m, enum direction direction, int N, float *sum_2N)
{
    struct crossing c = {.x = sum_2N, .rows = N, .columns = 2, .dtype = F32};
    TRY(m->plan->cross(m->plan, QK_NORM, direction, &c, m->queue));
    return STATUS_OK;
}

enum status qk_norm_forward(const struct model *m, const struct qk_norm *n)
{
    if (!is_sharded(m)) return normalize(m, n, RMSNORM_WHOLE);
    TRY(normalize(m, n, RMSNORM_SUMS));
    TRY(cross_sums(m, FORWARD, n->N, n->rstd_NR));
    TRY(normalize(m, n, RMSNORM_APPLY));
    return STATUS_OK;
}

enum status qk_norm_backward(const struct model *m, const struct qk_norm *n, struct arena *step)
{
    if (!is_sharded(m)) return differentiate(m, n, NULL, RMSNORM_WHOLE);
    float *dot_2N = arena_alloc(step, 2 * (size_t)n->N, sizeof *dot_2N);
    TRY(differentiate(m, n, dot_2N, RMSNORM_SUMS));
    TRY(cross_sums(m, BACKWARD, n->N, dot_2N));
    TRY(differentiate(m, n, dot_2N, RMSNORM_APPLY));
    return STATUS_OK;
}
