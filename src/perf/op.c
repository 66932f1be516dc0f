// SPDX-License-Identifier: Apache-2.0
#include "perf/op.h"

#include "tensor/blockwise.h"

#include <string.h>

const char *op_name(enum op_id op)
{
    static const char *const names[] = {
#define OP(name, what, io) #name,
#include "ops/ops.def"
#undef OP
    };
    return names[op];
}

/* Appends a buffer, of which `moved` elements are read or written. */
static struct op_buffer *add_buffer(struct op_work *w, size_t count, enum dtype dtype, size_t moved)
{
    BUG_IF(w->num_buffers == OP_BUFFERS);
    struct op_buffer *b = &w->buffers[w->num_buffers++];
    *b = (struct op_buffer){.count = count, .dtype = dtype};
    w->bytes += (double)moved * (double)dtype_bytes(dtype);
    return b;
}

static void add_null(struct op_work *w) { add_buffer(w, 0, F32, 0)->content = CONTENT_NONE; }
static void add_positive(struct op_work *w, size_t n, size_t moved)
{
    add_buffer(w, n, F32, moved)->content = CONTENT_POSITIVE;
}
static void add_ids(struct op_work *w, size_t n, int below)
{
    struct op_buffer *b = add_buffer(w, n, F32, n);
    b->content = CONTENT_IDS, b->below = below;
}

static void embedding_work(const struct op_call *c, struct op_work *w)
{
    const struct embedding *a = &c->what.embedding_forward;
    size_t ND = (size_t)a->N * (size_t)a->D, VD = (size_t)a->V * (size_t)a->D;
    bool forward = c->op == OP_embedding_forward;
    w->bound = forward ? BOUND_COPY : BOUND_UPDATE;
    add_ids(w, (size_t)a->N, a->V);
    if (forward) add_buffer(w, VD, a->dtype, ND);
    add_buffer(w, ND, a->dtype, ND);
    if (!forward) add_buffer(w, VD, F32, 2 * ND);
}

static void linear_work(const struct op_call *c, struct op_work *w)
{
    const struct linear *a = &c->what.linear_forward;
    size_t x = (size_t)a->N * (size_t)a->D, y = (size_t)a->N * (size_t)a->F;
    size_t weight = (size_t)a->F * (size_t)a->D, times = a->accumulate ? 2 : 1;
    enum dtype operand = linear_operand(a);
    size_t outputs = c->op == OP_linear_forward          ? y
                     : c->op == OP_linear_backward_input ? x
                                                         : weight;
    enum dtype result = c->op == OP_linear_backward_weight ? F32 : a->dtype;
    w->scaling_bytes = (double)outputs * (double)(dtype_bytes(F32) + times * dtype_bytes(result));
    w->flops = 2.0 * (double)x * a->F, w->float8 = a->float8;
    if (c->op == OP_linear_forward) {
        add_buffer(w, x, operand, x);
        add_buffer(w, weight, operand, weight);
        add_buffer(w, y, a->dtype, y);
    } else if (c->op == OP_linear_backward_input) {
        add_buffer(w, y, operand, y);
        add_buffer(w, weight, operand, weight);
        add_buffer(w, x, a->dtype, times * x);
    } else {
        add_buffer(w, y, operand, y);
        add_buffer(w, x, operand, x);
        add_buffer(w, weight, F32, times * weight);
    }
    for (int i = 0; i < 2; i++)
        if (a->float8)
            add_positive(w, 2, 2);
        else
            add_null(w);
    if (c->op != OP_linear_forward) return;
    if (a->accumulate)
        add_buffer(w, y, a->dtype, y);
    else
        add_null(w);
}

static void bias_work(const struct op_call *c, struct op_work *w)
{
    const struct bias *a = &c->what.bias_forward;
    size_t F = (size_t)a->F, NF = (size_t)a->N * F;
    bool forward = c->op == OP_bias_forward;
    w->bound = forward ? BOUND_UPDATE : BOUND_READ;
    if (forward) add_buffer(w, F, a->dtype, F);
    add_buffer(w, NF, a->dtype, forward ? 2 * NF : NF);
    if (!forward) add_buffer(w, F, F32, 2 * F);
}

static void rmsnorm_work(const struct op_call *c, struct op_work *w)
{
    const struct rmsnorm *a = &c->what.rmsnorm_forward;
    size_t N = (size_t)a->N, D = (size_t)a->D, ND = N * D;
    size_t all = rmsnorm_row(a, N - 1) + D;
    bool writes = a->part != RMSNORM_SUMS;
    w->bound = writes ? BOUND_COPY : BOUND_READ;
    add_buffer(w, all, a->dtype, ND);
    if (c->op == OP_rmsnorm_forward) {
        add_buffer(w, D, a->dtype, writes ? D : 0);
        add_buffer(w, all, a->dtype, writes ? ND : 0);
        add_positive(w, N, N);
        add_null(w);
        return;
    }
    add_buffer(w, all, a->dtype, ND);
    add_buffer(w, D, a->dtype, D);
    add_positive(w, N, N);
    add_buffer(w, all, a->dtype, !writes ? 0 : a->accumulate ? 2 * ND : ND);
    add_buffer(w, D, F32, writes ? 2 * D : 0);
    if (a->part == RMSNORM_WHOLE)
        add_null(w);
    else
        add_positive(w, N, N);
}

static void rope_work(const struct op_call *c, struct op_work *w)
{
    const struct rope *a = &c->what.rope;
    size_t tokens = (size_t)a->B * (size_t)a->T, J = (size_t)a->J, T = (size_t)a->T;
    size_t angles = ((size_t)a->first + T) * J;
    w->bound = BOUND_UPDATE;
    add_buffer(w, tokens * a->stride, a->dtype, 4 * tokens * (size_t)a->H * J);
    add_buffer(w, angles, F32, T * J);
    add_buffer(w, angles, F32, T * J);
    add_null(w);
}

static void context_bounds_work(const struct op_call *c, struct op_work *w)
{
    const struct context_bounds *a = &c->what.context_bounds;
    size_t N = (size_t)a->B * (size_t)a->T;
    w->bound = BOUND_COPY;
    add_null(w), add_null(w);
    add_ids(w, N, a->T);
    add_ids(w, N, a->T);
}

static void attention_work(const struct op_call *c, struct op_work *w)
{
    const struct attention *a = &c->what.attention_forward;
    bool forward = c->op == OP_attention_forward;
    size_t queries = (size_t)a->B * (size_t)a->T, keys = (size_t)a->B * (size_t)a->S;
    size_t q = queries * (size_t)a->H * (size_t)a->K, kv = keys * (size_t)a->G * (size_t)a->K;
    size_t lse = queries * (size_t)a->H;
    enum dtype result = a->keys ? F32 : a->dtype;
    double pairs = a->T * (a->causal ? a->S - a->T / 2.0 : a->S);
    if (a->window && a->window < a->S) { /* the first `full` queries see all keys before them */
        double full = a->window > a->S - a->T ? a->window - (a->S - a->T) : 0;
        pairs = full * (a->S - a->T + full / 2) + (a->T - full) * a->window;
    }
    if (a->visible > 0) pairs = (double)a->visible * a->T * a->S;
    w->flops = 4.0 * a->B * a->H * pairs * a->K * (forward ? 1 : 2.5);
    add_buffer(w, queries * a->q_stride, a->dtype, q);
    add_buffer(w, keys * a->kv_stride, a->dtype, kv);
    add_buffer(w, keys * a->kv_stride, a->dtype, kv);
    if (!forward) add_buffer(w, q, a->dtype, q), add_buffer(w, q, a->dtype, q);
    add_null(w), add_null(w);
    if (forward) add_buffer(w, q, result, q);
    add_positive(w, lse, lse);
    if (forward) return;
    add_buffer(w, a->keys ? q : queries * a->q_stride, result, q);
    add_buffer(w, keys * a->kv_stride, result, kv);
    add_buffer(w, keys * a->kv_stride, result, kv);
}

/* In a cache of more slots, among which CONTENT_IDS gives different ones: fractional parts of
 * multiples of the golden ratio are far enough apart. */
static void kv_append_work(const struct op_call *c, struct op_work *w)
{
    const struct kv_append *a = &c->what.kv_append;
    size_t slots = 16 * (size_t)a->N, NP = (size_t)a->N * (size_t)a->P;
    w->bound = BOUND_COPY;
    add_buffer(w, NP, a->dtype, NP), add_buffer(w, NP, a->dtype, NP);
    add_ids(w, (size_t)a->N, (int)slots);
    add_buffer(w, slots * (size_t)a->P, a->dtype, NP);
    add_buffer(w, slots * (size_t)a->P, a->dtype, NP);
}

static void swiglu_work(const struct op_call *c, struct op_work *w)
{
    const struct swiglu *a = &c->what.swiglu_forward;
    size_t NF = (size_t)a->N * (size_t)a->F;
    bool forward = c->op == OP_swiglu_forward;
    w->bound = forward ? BOUND_COPY : BOUND_UPDATE;
    add_buffer(w, 2 * NF, a->dtype, 2 * NF);
    add_buffer(w, NF, a->dtype, NF);
    if (!forward) add_buffer(w, 0, a->dtype, 2 * NF)->content = CONTENT_FIRST;
    add_null(w);
}

static void cross_entropy_work(const struct op_call *c, struct op_work *w)
{
    const struct cross_entropy *a = &c->what.cross_entropy;
    size_t N = (size_t)a->N, NV = N * (size_t)cross_entropy_row(a);
    w->bound = a->gradient ? BOUND_UPDATE : BOUND_READ;
    add_buffer(w, NV, a->dtype, a->gradient ? 2 * NV : NV);
    add_ids(w, N, a->V);
    add_buffer(w, N, F32, N);
    add_null(w), add_null(w), add_null(w), add_null(w);
}

static void sum_squares_work(const struct op_call *c, struct op_work *w)
{
    const struct sum_squares *a = &c->what.sum_squares;
    size_t sums = sum_squares_count(a), n = sums * a->n;
    w->bound = BOUND_READ;
    add_buffer(w, n, a->dtype, n);
    add_buffer(w, sums * sizeof(double) / sizeof(float), F32, 0);
}

/* The buffer before the moments. */
static void add_masters(const struct adamw *a, struct op_work *w)
{
    w->bound = BOUND_UPDATE;
    if (a->split)
        add_null(w);
    else
        add_buffer(w, a->n, F32, 2 * a->n);
}

/* The weights that the model computes with and, of split masters, their low 16 bits. */
static void add_copy(size_t n, enum dtype dtype, bool split, struct op_work *w)
{
    if (dtype == F32) /* the model computes with the master weights themselves */
        add_null(w);
    else
        add_buffer(w, n, dtype, split ? 2 * n : n);
    if (split)
        add_buffer(w, n, BF16, 2 * n); /* any value is valid */
    else
        add_null(w);
}

/* The buffers after the moments. */
static void add_gradients_and_copy(const struct adamw *a, struct op_work *w)
{
    add_buffer(w, a->n, a->gradients, a->n);
    add_copy(a->n, a->copy_dtype, a->split, w);
}

static void adamw_work(const struct op_call *c, struct op_work *w)
{
    const struct adamw *a = &c->what.adamw;
    add_masters(a, w);
    add_buffer(w, a->n, a->moments, 2 * a->n);
    add_buffer(w, a->n, a->moments, 2 * a->n)->content = CONTENT_POSITIVE;
    add_gradients_and_copy(a, w);
}

static void adamw_8bit_work(const struct op_call *c, struct op_work *w)
{
    const struct adamw *a = &c->what.adamw_8bit.adamw;
    size_t blocks = blockwise_num_blocks(a->n);
    add_masters(a, w);
    for (int i = 0; i < 2; i++) add_buffer(w, a->n, INT8, 2 * a->n); /* any code is valid */
    for (int i = 0; i < 2; i++) add_positive(w, blocks, 2 * blocks);
    add_gradients_and_copy(a, w);
}

static void accumulate_gradients_work(const struct op_call *c, struct op_work *w)
{
    const struct accumulate_gradients *a = &c->what.accumulate_gradients;
    w->bound = BOUND_UPDATE;
    add_buffer(w, a->n, F32, a->n);
    add_buffer(w, a->n, BF16, a->accumulate ? 2 * a->n : a->n);
}

static void axpby_work(const struct op_call *c, struct op_work *w)
{
    const struct axpby *a = &c->what.axpby;
    w->bound = BOUND_COPY;
    add_buffer(w, a->n, F32, a->n);
    if (a->beta != 0)
        add_buffer(w, a->n, F32, a->n);
    else
        add_null(w);
    add_buffer(w, a->n, F32, a->n);
}

static void divide_by_norm_work(const struct op_call *c, struct op_work *w)
{
    const struct divide_by_norm *a = &c->what.divide_by_norm;
    w->bound = BOUND_COPY;
    add_buffer(w, a->n, F32, 2 * a->n); /* once for the norm */
    add_buffer(w, a->n, a->to, a->n);
}

static void matrix_polynomial_work(const struct op_call *c, struct op_work *w)
{
    const struct matrix_polynomial *a = &c->what.matrix_polynomial;
    size_t n = (size_t)a->n * (size_t)a->n;
    w->bound = BOUND_UPDATE;
    add_buffer(w, n, F32, n);
    add_buffer(w, n, a->dtype, 2 * n);
}

static void update_ema_work(const struct op_call *c, struct op_work *w)
{
    const struct update_ema *a = &c->what.update_ema;
    w->bound = BOUND_UPDATE;
    if (a->split)
        add_null(w), add_buffer(w, a->n, BF16, a->n), add_buffer(w, a->n, BF16, a->n);
    else
        add_buffer(w, a->n, F32, a->n), add_null(w), add_null(w);
    add_buffer(w, a->n, F32, 2 * a->n);
}

static void apply_update_work(const struct op_call *c, struct op_work *w)
{
    const struct apply_update *a = &c->what.apply_update;
    w->bound = BOUND_UPDATE;
    if (a->split)
        add_null(w);
    else
        add_buffer(w, a->n, F32, 2 * a->n);
    add_buffer(w, a->n, F32, a->n);
    add_copy(a->n, a->copy_dtype, a->split, w);
}

static void cast_work(const struct op_call *c, struct op_work *w)
{
    const struct cast *a = &c->what.cast;
    size_t rows = a->rows ? a->rows : 1, all = rows * a->n;
    w->bound = BOUND_COPY;
    add_buffer(w, (rows - 1) * a->from_stride + a->n, a->from, all);
    add_buffer(w, (rows - 1) * a->to_stride + a->n, a->to, a->accumulate ? 2 * all : all);
}

static void unsplit_work(const struct op_call *c, struct op_work *w)
{
    size_t n = c->what.unsplit.n;
    w->bound = BOUND_COPY;
    add_buffer(w, n, BF16, n);
    add_buffer(w, n, BF16, n); /* the low 16 bits: any value is valid */
    add_buffer(w, n, F32, n);
}

static void amax_work(const struct op_call *c, struct op_work *w)
{
    const struct amax *a = &c->what.amax;
    w->bound = BOUND_READ;
    add_buffer(w, a->n, a->dtype, a->n);
    add_buffer(w, 1, F32, 0);
}

static void find_scale_work(const struct op_call *c, struct op_work *w)
{
    size_t amaxes = c->what.find_scale.amaxes ? (size_t)c->what.find_scale.amaxes : 1;
    w->bound = BOUND_READ;
    add_positive(w, amaxes, amaxes);
    add_null(w), add_null(w); /* no amax history */
    add_positive(w, 2, 2);
}

static void quantize_work(const struct op_call *c, struct op_work *w)
{
    const struct quantize *a = &c->what.quantize;
    w->bound = BOUND_COPY;
    add_buffer(w, a->n, a->dtype, a->n);
    add_buffer(w, a->n, BF16, a->n);
    add_positive(w, 2, 2);
}

static void fused_inputs(const struct fused_quantize *a, struct op_work *w)
{
    size_t N = (size_t)a->N, C = (size_t)a->C, NC = N * C;
    bool swiglu = a->of == FUSED_SWIGLU || a->of == FUSED_SWIGLU_GRAD;
    if (a->of == FUSED_FP8)
        add_buffer(w, NC, BF16, (NC + 1) / 2);
    else
        add_buffer(w, swiglu ? 2 * NC : NC, a->dtype, swiglu ? 2 * NC : NC);
    if (a->of == FUSED_RMSNORM)
        add_buffer(w, C, a->dtype, C);
    else
        add_null(w);
    if (a->of == FUSED_SWIGLU_GRAD)
        add_buffer(w, NC, a->dtype, NC);
    else
        add_null(w);
    if (a->of == FUSED_RMSNORM)
        add_positive(w, N, N);
    else
        add_null(w);
}

static void fused_amax_work(const struct op_call *c, struct op_work *w)
{
    const struct fused_amax *a = &c->what.fused_amax;
    fused_inputs(&(struct fused_quantize){.of = a->of, .N = a->N, .C = a->C, .dtype = a->dtype}, w);
    w->bound = BOUND_READ;
    add_positive(w, 1, 1);
}

/* FP8 values take a byte in each storage order, or two as bf16. */
static void fused_quantize_work(const struct op_call *c, struct op_work *w)
{
    const struct fused_quantize *a = &c->what.fused_quantize;
    size_t n = (size_t)a->N * fused_columns(a->of, a->C);
    bool both = !a->summed || a->summed == (OVER_COLUMNS | OVER_ROWS);
    w->bound = BOUND_COPY;
    fused_inputs(a, w);
    add_buffer(w, n, BF16, both ? n : (n + 1) / 2);
    add_positive(w, 2, 2);
    for (int i = 0; i < 5; i++) add_null(w); /* the scale is given, amax is not requested */
}

/* The io struct of each operation, which holds nothing but pointers. */
union io {
#define OP(name, what, io) struct io name;
#include "ops/ops.def"
#undef OP
    void *pointers[OP_BUFFERS];
};

void op_work(const struct op_call *c, struct op_work *w)
{
    static const struct {
        void (*work)(const struct op_call *c, struct op_work *w);
        size_t io_bytes;
    } rows[] = {
#define OP(name, what, io) [OP_##name] = {what##_work, sizeof(struct io)},
#include "ops/ops.def"
#undef OP
    };
    *w = (struct op_work){0};
    rows[c->op].work(c, w);
    BUG_IF((size_t)w->num_buffers * sizeof(void *) != rows[c->op].io_bytes);
}

void op_fill(const struct op_buffer *b, void *to)
{
    size_t each = dtype_bytes(b->dtype),
           period = b->count < OP_FILL_REPEATS ? b->count : OP_FILL_REPEATS;
    for (size_t i = 0; i < period; i++) {
        uint32_t bits = (uint32_t)i * 2654435761u + 12345u; /* Knuth's multiplicative hash */
        float unit = ((float)(bits >> 9) + 0.5f) / (float)(1 << 23);
        float x = b->content == CONTENT_POSITIVE ? unit : 2 * unit - 1;
        if (b->content == CONTENT_IDS)
            ((int32_t *)to)[i] = (int32_t)((uint64_t)bits * (uint64_t)b->below >> 32);
        else if (b->dtype == F32)
            ((float *)to)[i] = x;
        else if (b->dtype == INT8)
            ((uint8_t *)to)[i] = (uint8_t)(bits >> 24);
        else
            ((bf16 *)to)[i] = bf16_from_f32(x);
    }
    for (size_t done = period; done < b->count; done += period) {
        size_t more = b->count - done < period ? b->count - done : period;
        memcpy((unsigned char *)to + done * each, to, more * each);
    }
}

enum status op_run(const struct op_call *c, const struct ops *ops, void *const *buffers,
                   struct queue *queue)
{
    union io io;
    memcpy(io.pointers, buffers, sizeof io.pointers);
    switch (c->op) {
#define OP(name, what_type, io_type)                                                               \
    case OP_##name:                                                                                \
        TRY(name(ops, &c->what.name, &io.name, queue));                                            \
        break;
#include "ops/ops.def"
#undef OP
    case OP_COUNT: break;
    }
    return STATUS_OK;
}
