// SPDX-License-Identifier: Apache-2.0
#include "perf/op_calls.h"

#include "backends/cpu/cpu.h"
#include "test.h"

static void load(struct config *c, struct model_shape *shape, const char *rows)
{
    const char *settings[] = {"model.n_layers=3",
                              "model.dim=32",
                              "model.n_heads=4",
                              "model.n_kv_heads=2",
                              "model.ffn_hidden=48",
                              "model.vocab_size=70",
                              "training.local_batch_size=2",
                              "training.seq_len=24",
                              "activation_checkpoint.mode=none",
                              rows};
    CHECK_STATUS(OK, config_load(c, NULL, settings, sizeof settings / sizeof *settings));
    CHECK_STATUS(OK, model_shape_resolve(shape, &c->model, 0));
}

static int calls_of(const struct op_calls *l, enum op_id op)
{
    int count = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->calls[i].call.op == op) count += l->calls[i].per_step;
    return count;
}

TEST(op_calls_record_the_step_of_the_model)
{
    struct config c;
    struct model_shape shape;
    struct op_calls l;
    load(&c, &shape, "training.global_batch_size=-1");
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, false));
    CHECK(calls_of(&l, OP_embedding_forward) == 1 && calls_of(&l, OP_sum_squares) == 1);
    CHECK(calls_of(&l, OP_attention_forward) == 3 && calls_of(&l, OP_attention_backward) == 3);
    CHECK(calls_of(&l, OP_linear_forward) == 3 * 4 + 1);
    CHECK(calls_of(&l, OP_linear_backward_weight) == 3 * 4 + 1);
    CHECK(calls_of(&l, OP_rmsnorm_forward) == 3 * 2 + 1);
    /* GEMM epilogues add the residual stream, and all weights are cast before the step */
    CHECK(calls_of(&l, OP_cast) == 0);
    int sum = 0;
    for (size_t i = 0; i < l.count; i++) sum += l.calls[i].per_step;
    CHECK((size_t)sum == l.length);
    CHECK(l.calls[l.order[0]].call.op == OP_embedding_forward);
    CHECK(l.calls[l.order[l.length - 1]].call.op == OP_adamw);
    CHECK(!strcmp(l.calls[l.order[0]].sizes, "48 of 70 x 32"));
    op_calls_release(&l);
    config_release(&c);
}

/* Of 7 matrices a block.  In float32 each iteration copies its result back.  In bfloat16 it rounds
 * the Gram matrices of the 2 that have more rows than columns, and a cast widens each result. */
TEST(op_calls_record_the_casts_of_muon)
{
    struct config c;
    struct model_shape shape;
    struct op_calls l;
    load(&c, &shape, "optimizer.name=Muon");
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, false));
    CHECK(calls_of(&l, OP_cast) == 3 * (5 * 2 + 7));
    op_calls_release(&l);
    c.training.mixed_precision_param = COMPUTE_DTYPE_float32;
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, false));
    CHECK(calls_of(&l, OP_cast) == 3 * 7 * 5);
    op_calls_release(&l);
    config_release(&c);
}

TEST(gradient_accumulation_repeats_the_model_but_not_the_update)
{
    struct config c;
    struct model_shape shape;
    struct op_calls one, three;
    load(&c, &shape, "training.global_batch_size=-1");
    CHECK_STATUS(OK, op_calls_record_step(&one, &c, &shape, &ops_cpu_reference, false));
    c.training.global_batch_size = 6;
    CHECK_STATUS(OK, op_calls_record_step(&three, &c, &shape, &ops_cpu_reference, false));
    CHECK(calls_of(&three, OP_attention_forward) == 9 && calls_of(&three, OP_sum_squares) == 1);
    CHECK(calls_of(&three, OP_adamw) == calls_of(&one, OP_adamw));
    int weights = calls_of(&one, OP_linear_backward_weight), overwrites = 0;
    CHECK(calls_of(&three, OP_linear_backward_weight) == 3 * weights);
    for (size_t i = 0; i < three.count; i++) {
        const struct step_call *call = &three.calls[i];
        if (call->call.op == OP_linear_backward_weight &&
            !call->call.what.linear_forward.accumulate)
            overwrites += call->per_step;
    }
    CHECK(overwrites ==
          weights); /* the first microbatch overwrites gradients, the others accumulate */
    op_calls_release(&one);
    op_calls_release(&three);
    shape.G = 3;
    CHECK_STATUS(CONFIG, op_calls_record_step(&one, &c, &shape, &ops_cpu_reference, false));
    config_release(&c);
}

TEST(gradient_accumulation_quantizes_weights_once)
{
    struct config c;
    struct model_shape shape;
    struct op_calls l;
    load(&c, &shape, "model.converters=[\"float8\"]");
    c.training.global_batch_size = 6;
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, false));
    CHECK(calls_of(&l, OP_attention_forward) == 9);
    CHECK(calls_of(&l, OP_quantize) == 3 * 12 * 3 + 12);
    op_calls_release(&l);
    config_release(&c);
}

/* Of a block and a microbatch, with current scaling: 4 weights, wo's input in both directions, dqkv
 * and both dx are stored; the results of norms and SwiGLU are not. */
TEST(native_fp8_quantizes_instead_of_storing)
{
    struct config c;
    struct model_shape shape;
    struct op_calls l;
    load(&c, &shape, "model.converters=[\"float8\"]");
    c.training.global_batch_size = -1;
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, true));
    CHECK(calls_of(&l, OP_rmsnorm_forward) == 1 && calls_of(&l, OP_swiglu_forward) == 0);
    CHECK(calls_of(&l, OP_swiglu_backward) == 0);
    CHECK(calls_of(&l, OP_fused_amax) == 3 * 12 && calls_of(&l, OP_fused_quantize) == 3 * 12);
    CHECK(calls_of(&l, OP_quantize) == 3 && calls_of(&l, OP_amax) == 0);
    op_calls_release(&l);
    c.float8.recipe_name = FLOAT8_RECIPE_delayed;
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, true));
    CHECK(calls_of(&l, OP_fused_amax) == 3 * (4 + 2)); /* weights, and the rstd of norms */
    op_calls_release(&l);
    config_release(&c);
}

TEST(kernels_that_compute_amax_need_no_amax_calls)
{
    struct ops computing = ops_cpu_reference;
    struct config c;
    struct model_shape shape;
    struct op_calls l;
    computing.computes_amax = true;
    load(&c, &shape, "model.converters=[\"float8\"]");
    c.training.global_batch_size = -1;
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &ops_cpu_reference, false));
    CHECK(calls_of(&l, OP_amax) == 3 * 4 * 3 && calls_of(&l, OP_find_scale) == 3 * 4 * 3);
    op_calls_release(&l);
    CHECK_STATUS(OK, op_calls_record_step(&l, &c, &shape, &computing, false));
    CHECK(calls_of(&l, OP_amax) == 3 * (4 * 3 - 4) && calls_of(&l, OP_find_scale) == 3 * 4 * 3);
    op_calls_release(&l);
    config_release(&c);
}
