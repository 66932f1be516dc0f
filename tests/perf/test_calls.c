// SPDX-License-Identifier: Apache-2.0
#include "perf/calls.h"

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

static int calls_of(const struct call_list *l, enum op_id op)
{
    int count = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->calls[i].call.op == op) count += l->calls[i].per_step;
    return count;
}

TEST(a_step_is_listed_as_the_model_makes_it)
{
    struct config c;
    struct model_shape shape;
    struct call_list l;
    load(&c, &shape, "training.global_batch_size=-1");
    CHECK_STATUS(OK, calls_of_step(&l, &c, &shape, &ops_cpu_reference));
    CHECK(calls_of(&l, OP_embedding_forward) == 1 && calls_of(&l, OP_sum_squares) == 1);
    CHECK(calls_of(&l, OP_attention_forward) == 3 && calls_of(&l, OP_attention_backward) == 3);
    CHECK(calls_of(&l, OP_linear_forward) == 3 * 4 + 1);
    CHECK(calls_of(&l, OP_linear_backward_weight) == 3 * 4 + 1);
    CHECK(calls_of(&l, OP_rmsnorm_forward) == 3 * 2 + 1);
    /* the residual stream is added where products are put, and all weights are cast before */
    CHECK(calls_of(&l, OP_cast) == 0);
    int sum = 0;
    for (size_t i = 0; i < l.count; i++) sum += l.calls[i].per_step;
    CHECK((size_t)sum == l.length);
    CHECK(l.calls[l.order[0]].call.op == OP_embedding_forward);
    CHECK(l.calls[l.order[l.length - 1]].call.op == OP_adamw);
    CHECK(!strcmp(l.calls[l.order[0]].sizes, "48 of 70 x 32"));
    calls_release(&l);
    config_release(&c);
}

TEST(accumulated_rows_repeat_the_model_and_not_the_update)
{
    struct config c;
    struct model_shape shape;
    struct call_list one, three;
    load(&c, &shape, "training.global_batch_size=-1");
    CHECK_STATUS(OK, calls_of_step(&one, &c, &shape, &ops_cpu_reference));
    c.training.global_batch_size = 6;
    CHECK_STATUS(OK, calls_of_step(&three, &c, &shape, &ops_cpu_reference));
    CHECK(calls_of(&three, OP_attention_forward) == 9 && calls_of(&three, OP_sum_squares) == 1);
    CHECK(calls_of(&three, OP_adamw) == calls_of(&one, OP_adamw));
    int weights = calls_of(&one, OP_linear_backward_weight), replaced = 0;
    CHECK(calls_of(&three, OP_linear_backward_weight) == 3 * weights);
    for (size_t i = 0; i < three.count; i++) {
        const struct call *call = &three.calls[i];
        if (call->call.op == OP_linear_backward_weight &&
            !call->call.what.linear_forward.accumulate)
            replaced += call->per_step;
    }
    CHECK(replaced == weights); /* those of the first batch: others add to them */
    calls_release(&one);
    calls_release(&three);
    shape.G = 3;
    CHECK_STATUS(CONFIG, calls_of_step(&one, &c, &shape, &ops_cpu_reference));
    config_release(&c);
}

TEST(what_kernels_find_on_their_way_is_not_looked_for)
{
    struct ops finding = ops_cpu_reference;
    struct config c;
    struct model_shape shape;
    struct call_list l;
    finding.computes_amax = true;
    load(&c, &shape, "model.converters=[\"float8\"]");
    c.training.global_batch_size = -1;
    CHECK_STATUS(OK, calls_of_step(&l, &c, &shape, &ops_cpu_reference));
    CHECK(calls_of(&l, OP_amax) == 3 * 4 * 3 && calls_of(&l, OP_find_scale) == 3 * 4 * 3);
    calls_release(&l);
    CHECK_STATUS(OK, calls_of_step(&l, &c, &shape, &finding));
    CHECK(calls_of(&l, OP_amax) == 3 * (4 * 3 - 4) && calls_of(&l, OP_find_scale) == 3 * 4 * 3);
    calls_release(&l);
    config_release(&c);
}
