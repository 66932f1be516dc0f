// SPDX-License-Identifier: Apache-2.0
#include "perf/op_sizes.h"

static void add_fused(struct text *out, enum fused_result of, int N, int C)
{
    static const char *const words[] = {"tensor", "rmsnorm", "swiglu", "swiglu backward",
                                        "FP8 transpose"};
    text_addf(out, "%s %d x %d", words[of], N, C);
}

static void add_flat(struct text *out, size_t n, bool split)
{
    text_addf(out, "%zu%s", n, split ? " split" : "");
}

static void add_sum_squares(struct text *out, const struct sum_squares *a)
{
    if (a->sums) text_addf(out, "%zu x ", a->sums);
    text_addf(out, "%zu", a->n);
    if (a->dtype != F32) text_addf(out, " %s", dtype_name(a->dtype));
}

static void add_divide_by_norm(struct text *out, const struct divide_by_norm *a)
{
    text_addf(out, "%zu -> %s", a->n, dtype_name(a->to));
}

static void add_matrix_polynomial(struct text *out, const struct matrix_polynomial *a)
{
    text_addf(out, "%d x %d %s", a->n, a->n, dtype_name(a->dtype));
}

static void add_linear(struct text *out, const struct linear *a)
{
    text_addf(out, "%d x %d -> %d%s", a->N, a->D, a->F, a->accumulate ? " +=" : "");
    if (a->float8) text_adds(out, " float8");
}

void op_sizes(const struct op_call *c, struct text *out)
{
    switch (c->op) {
    case OP_embedding_forward:
    case OP_embedding_backward: {
        const struct embedding *a = &c->what.embedding_forward;
        text_addf(out, "%d of %d x %d", a->N, a->V, a->D);
        break;
    }
    case OP_linear_forward:
    case OP_linear_backward_input:
    case OP_linear_backward_weight: add_linear(out, &c->what.linear_forward); break;
    case OP_bias_forward:
    case OP_bias_backward: {
        const struct bias *a = &c->what.bias_forward;
        text_addf(out, "%d x %d", a->N, a->F);
        break;
    }
    case OP_rmsnorm_forward:
    case OP_rmsnorm_backward: {
        const struct rmsnorm *a = &c->what.rmsnorm_forward;
        static const char *const parts[] = {"", " sums", " from sums"};
        text_addf(out, "%d x %d%s%s", a->N, a->D, a->accumulate ? " +=" : "", parts[a->part]);
        break;
    }
    case OP_rope: {
        const struct rope *a = &c->what.rope;
        text_addf(out, "%d x %d x %d x %d", a->B, a->T, a->H, a->K);
        if (2 * a->J < a->K) text_addf(out, " (%d rotated)", 2 * a->J);
        break;
    }
    case OP_context_bounds: {
        const struct context_bounds *a = &c->what.context_bounds;
        text_addf(out, "%d x %d of %d", a->B, a->T, a->queries.parts);
        break;
    }
    case OP_attention_forward:
    case OP_attention_backward: {
        const struct attention *a = &c->what.attention_forward;
        text_addf(out, "%d x %d x %d/%d x %d%s", a->B, a->T, a->H, a->G, a->K,
                  a->causal ? "" : " all");
        if (a->window) text_addf(out, " window %d", a->window);
        break;
    }
    case OP_kv_append: text_addf(out, "%d x %d", c->what.kv_append.N, c->what.kv_append.P); break;
    case OP_swiglu_forward:
    case OP_swiglu_backward: {
        const struct swiglu *a = &c->what.swiglu_forward;
        text_addf(out, "%d x %d", a->N, a->F);
        break;
    }
    case OP_cross_entropy: {
        const struct cross_entropy *a = &c->what.cross_entropy;
        text_addf(out, "%d x %d", a->N, a->V);
        break;
    }
    case OP_sum_squares: add_sum_squares(out, &c->what.sum_squares); break;
    case OP_accumulate_gradients: {
        const struct accumulate_gradients *a = &c->what.accumulate_gradients;
        text_addf(out, "%zu%s", a->n, a->accumulate ? " added" : "");
        break;
    }
    case OP_adamw: {
        const struct adamw *a = &c->what.adamw;
        add_flat(out, a->n, a->split);
        if (a->moments != F32) text_addf(out, ", moments %s", dtype_name(a->moments));
        if (a->gradients != F32) text_addf(out, ", gradients %s", dtype_name(a->gradients));
        break;
    }
    case OP_adamw_8bit: {
        const struct adamw *a = &c->what.adamw_8bit.adamw;
        add_flat(out, a->n, a->split);
        if (a->gradients != F32) text_addf(out, ", gradients %s", dtype_name(a->gradients));
        break;
    }
    case OP_axpby: text_addf(out, "%zu", c->what.axpby.n); break;
    case OP_divide_by_norm: add_divide_by_norm(out, &c->what.divide_by_norm); break;
    case OP_matrix_polynomial: add_matrix_polynomial(out, &c->what.matrix_polynomial); break;
    case OP_apply_update: add_flat(out, c->what.apply_update.n, c->what.apply_update.split); break;
    case OP_update_ema: add_flat(out, c->what.update_ema.n, c->what.update_ema.split); break;
    case OP_cast: {
        const struct cast *a = &c->what.cast;
        if (a->rows > 1) text_addf(out, "%zu x ", a->rows);
        text_addf(out, "%zu %s", a->n, dtype_name(a->from));
        if (a->from != a->to) text_addf(out, " -> %s", dtype_name(a->to));
        break;
    }
    case OP_unsplit: text_addf(out, "%zu", c->what.unsplit.n); break;
    case OP_amax: {
        const struct amax *a = &c->what.amax;
        text_addf(out, "%zu %s", a->n, dtype_name(a->dtype));
        break;
    }
    case OP_find_scale: {
        const struct find_scale *a = &c->what.find_scale;
        text_adds(out, a->to == E4M3 ? "E4M3" : "E5M2");
        if (a->amaxes > 1) text_addf(out, " of %d", a->amaxes);
        break;
    }
    case OP_quantize: {
        const struct quantize *a = &c->what.quantize;
        text_addf(out, "%zu %s -> %s", a->n, dtype_name(a->dtype), a->to == E4M3 ? "E4M3" : "E5M2");
        break;
    }
    case OP_fused_amax:
        add_fused(out, c->what.fused_amax.of, c->what.fused_amax.N, c->what.fused_amax.C);
        break;
    case OP_fused_quantize: {
        const struct fused_quantize *a = &c->what.fused_quantize;
        add_fused(out, a->of, a->N, a->C);
        text_addf(out, " -> %s%s", a->to == E4M3 ? "E4M3" : "E5M2",
                  a->summed == OVER_COLUMNS ? ", rows"
                  : a->summed == OVER_ROWS  ? ", columns"
                                            : "");
        break;
    }
    case OP_COUNT: break;
    }
}
