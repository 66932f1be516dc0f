// SPDX-License-Identifier: Apache-2.0
#include "perf/op.h"

#include "backends/cpu/cpu.h"
#include "test.h"

static struct op_work work_of(struct op_call c)
{
    struct op_work w;
    op_work(&c, &w);
    return w;
}

TEST(gemms_count_two_flops_per_multiply_add_and_each_operand_once)
{
    struct linear l = {.N = 3, .D = 5, .F = 7, .dtype = BF16};
    struct op_work w = work_of((struct op_call){OP_linear_forward, .what.linear_forward = l});
    CHECK(w.bound == BOUND_PEAK && w.num_buffers == 6 && w.flops == 2 * 3 * 5 * 7);
    CHECK(w.bytes == 2 * (3 * 5 + 5 * 7 + 3 * 7));
    CHECK(w.buffers[3].content == CONTENT_NONE && w.buffers[5].content == CONTENT_NONE);
    l.accumulate = true;
    w = work_of((struct op_call){OP_linear_forward, .what.linear_forward = l});
    CHECK(w.bytes == 2 * (3 * 5 + 5 * 7 + 2 * 3 * 7) && w.buffers[5].count == 3 * 7);
    w = work_of((struct op_call){OP_linear_backward_weight, .what.linear_backward_weight = l});
    CHECK(w.flops == 2 * 3 * 5 * 7 && w.bytes == 2 * (3 * 7 + 3 * 5) + 4 * 2 * 5 * 7);
    CHECK(w.buffers[2].dtype == F32 && w.buffers[2].count == 35);
}

TEST(partial_attention_counts_visible_keys_and_accumulates_in_f32)
{
    struct attention a = {
        .B = 1, .T = 8, .S = 6, .H = 4, .G = 2, .K = 16, .q_stride = 128, .kv_stride = 64};
    a.dtype = BF16, a.keys = MORE_KEYS, a.visible = 0.5f;
    struct op_work w =
        work_of((struct op_call){OP_attention_backward, .what.attention_backward = a});
    CHECK(w.flops == 2.5 * 4 * 4 * (0.5 * 8 * 6) * 16);
    CHECK(w.buffers[8].dtype == F32 && w.buffers[8].count == 8 * 64);
    CHECK(w.buffers[9].dtype == F32 && w.buffers[9].count == 6 * 64);
    w = work_of((struct op_call){OP_attention_forward, .what.attention_forward = a});
    CHECK(w.buffers[5].dtype == F32 && w.buffers[5].count == 8 * 64);
}

TEST(causal_attention_counts_half_and_backward_2_5_times)
{
    struct attention a = {.B = 2, .T = 8, .S = 8, .H = 4, .G = 2, .K = 16};
    a.q_stride = a.kv_stride = 8 * 16;
    struct op_work all = work_of((struct op_call){OP_attention_forward, .what = {.rope = {0}}});
    CHECK(all.flops == 0);
    all = work_of((struct op_call){OP_attention_forward, .what.attention_forward = a});
    CHECK(all.flops == 2 * 4 * (2.0 * 2 * 8 * 8 * 16));
    CHECK(all.buffers[3].content == CONTENT_NONE && all.buffers[0].count == 2 * 8 * 8 * 16);
    a.causal = true;
    struct op_work half =
        work_of((struct op_call){OP_attention_forward, .what.attention_forward = a});
    struct op_work back =
        work_of((struct op_call){OP_attention_backward, .what.attention_backward = a});
    CHECK(half.flops == all.flops / 2 && back.flops == 2.5 * half.flops);
    CHECK(half.num_buffers == 7 && back.num_buffers == 11);
}

TEST(windowed_attention_counts_the_keys_of_each_window)
{
    struct attention a = {.B = 1, .T = 8, .S = 8, .H = 1, .G = 1, .K = 16, .causal = true};
    a.q_stride = a.kv_stride = 16, a.window = 3;
    struct op_call c = {OP_attention_forward, .what.attention_forward = a};
    CHECK(work_of(c).flops == 4 * (3 * 1.5 + 5 * 3) * 16);
    c.what.attention_forward.T = 1; /* one query, of a KV cache */
    CHECK(work_of(c).flops == 4 * 3 * 16);
}

TEST(context_bounds_writes_two_indices_per_token)
{
    struct context_bounds a = {2, 8, {4, 1, true}, {4, 3, true}, true, 0};
    struct op_call c = {OP_context_bounds, .what.context_bounds = a};
    struct op_work w = work_of(c);
    CHECK(w.num_buffers == 4 && w.bytes == 2 * 2 * 8 * 4 && w.flops == 0);
    CHECK(w.buffers[0].content == CONTENT_NONE && w.buffers[3].below == 8);
}

TEST(in_place_updates_count_bytes_twice)
{
    struct op_call c = {OP_adamw, .what.adamw = {.n = 100, .step = 1, .copy_dtype = BF16}};
    CHECK(work_of(c).bytes == 100 * (3 * 8 + 4 + 2));
    c.what.adamw.copy_dtype = F32;
    CHECK(work_of(c).bytes == 100 * (3 * 8 + 4));
    CHECK(work_of(c).buffers[4].content == CONTENT_NONE);
    c.what.adamw.copy_dtype = BF16, c.what.adamw.split = true;
    CHECK(work_of(c).bytes == 100 * (2 * 8 + 4 + 2 * 4));
    CHECK(work_of(c).buffers[0].content == CONTENT_NONE);
    c.what.adamw.moments = BF16;
    CHECK(work_of(c).bytes == 100 * (2 * 4 + 4 + 2 * 4));
    struct op_call update = {OP_apply_update, .what.apply_update = {.n = 100, .copy_dtype = BF16}};
    CHECK(work_of(update).bytes == 100 * (8 + 4 + 2));
    update.what.apply_update.split = true;
    CHECK(work_of(update).bytes == 100 * (4 + 2 * 4));
    struct op_call average = {OP_update_ema, .what.update_ema = {.n = 100}};
    CHECK(work_of(average).bytes == 100 * 12);
    average.what.update_ema.split = true;
    CHECK(work_of(average).bytes == 100 * 12);
    struct op_call sum = {OP_axpby, .what.axpby = {100, 1, 0}};
    CHECK(work_of(sum).bytes == 100 * 8 && work_of(sum).buffers[1].content == CONTENT_NONE);
    sum.what.axpby.beta = 1;
    CHECK(work_of(sum).bytes == 100 * 12);
}

/* In bytes of bf16, of 6 rows of 10 elements. */
TEST(elementwise_operations_count_what_they_read_and_write)
{
    struct bias b = {6, 10, BF16};
    CHECK(work_of((struct op_call){OP_bias_forward, .what.bias_forward = b}).bytes ==
          2 * (2 * 60 + 10));
    CHECK(work_of((struct op_call){OP_bias_backward, .what.bias_backward = b}).bytes ==
          2 * 60 + 4 * 2 * 10);
    struct kv_append k = {6, 10, BF16};
    CHECK(work_of((struct op_call){OP_kv_append, .what.kv_append = k}).bytes == 2 * 4 * 60 + 4 * 6);
    struct rmsnorm n = {.N = 6, .D = 10, .dtype = BF16};
    CHECK(work_of((struct op_call){OP_rmsnorm_forward, .what.rmsnorm_forward = n}).bytes ==
          2 * (2 * 60 + 10) + 4 * 6);
    CHECK(work_of((struct op_call){OP_rmsnorm_backward, .what.rmsnorm_backward = n}).bytes ==
          2 * (3 * 60 + 10) + 4 * (6 + 2 * 10));
    n.accumulate = true;
    CHECK(work_of((struct op_call){OP_rmsnorm_backward, .what.rmsnorm_backward = n}).bytes ==
          2 * (4 * 60 + 10) + 4 * (6 + 2 * 10));
    n.part = RMSNORM_SUMS, n.width = 20;
    CHECK(work_of((struct op_call){OP_rmsnorm_backward, .what.rmsnorm_backward = n}).bytes ==
          2 * (2 * 60 + 10) + 4 * 2 * 6);
    struct swiglu s = {.N = 6, .F = 10, .dtype = BF16};
    CHECK(work_of((struct op_call){OP_swiglu_forward, .what.swiglu_forward = s}).bytes ==
          2 * 3 * 60);
    CHECK(work_of((struct op_call){OP_swiglu_backward, .what.swiglu_backward = s}).bytes ==
          2 * 5 * 60);
    struct rope r = {.B = 1, .T = 6, .H = 1, .K = 10, .J = 5, .stride = 10, .first = 3};
    r.dtype = BF16;
    struct op_work w = work_of((struct op_call){OP_rope, .what.rope = r});
    CHECK(w.bytes == 2 * 2 * 60 + 4 * 2 * 6 * 5 && w.buffers[1].count == (3 + 6) * 5);
    struct cast c = {.n = 10, .rows = 6, .from_stride = 10, .to_stride = 12, .to = BF16};
    CHECK(work_of((struct op_call){OP_cast, .what.cast = c}).bytes == (4 + 2) * 60);
    c.accumulate = true;
    CHECK(work_of((struct op_call){OP_cast, .what.cast = c}).bytes == (4 + 2 * 2) * 60);
}

TEST(op_fill_respects_bounds)
{
    enum { COUNT = 40000 };
    struct op_buffer b = {.count = COUNT, .dtype = F32, .content = CONTENT_IDS, .below = 7};
    float *x = heap((COUNT + 1) * sizeof *x);
    x[COUNT] = 99;
    op_fill(&b, x);
    bool seen[7] = {0};
    for (int i = 0; i < COUNT; i++) {
        int32_t id;
        memcpy(&id, x + i, sizeof id);
        CHECK(id >= 0 && id < 7);
        seen[id] = true;
    }
    for (int i = 0; i < 7; i++) CHECK(seen[i]);
    b.content = CONTENT_POSITIVE;
    op_fill(&b, x);
    for (int i = 0; i < COUNT; i++) CHECK(x[i] > 0 && x[i] < 1);
    b.content = CONTENT_NUMBERS, b.dtype = BF16;
    op_fill(&b, x);
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        float v = bf16_to_f32(((bf16 *)x)[i]);
        CHECK(v >= -1 && v <= 1);
        sum += (double)v;
    }
    CHECK(fabs(sum / COUNT) < 0.05 && x[COUNT] == 99);
    free(x);
}

TEST(an_operation_runs_on_buffers_in_the_order_of_its_struct)
{
    float x[] = {1, 2, 3}, w[] = {4, 5, 6}, y = 0;
    void *buffers[OP_BUFFERS] = {x, w, &y};
    struct op_call c = {OP_linear_forward, .what.linear_forward = {.N = 1, .D = 3, .F = 1}};
    struct queue *queue;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 1 << 12));
    CHECK_STATUS(OK, op_run(&c, &ops_cpu_reference, buffers, queue));
    CHECK(y == 32);
    c.what.linear_forward.N = 0;
    CHECK_STATUS(SHAPE, op_run(&c, &ops_cpu_reference, buffers, queue));
    cpu_queue_close(queue);
}
