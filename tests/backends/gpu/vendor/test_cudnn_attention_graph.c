// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cudnn_attention_graph.h"
#include "backends/gpu/vendor/h200.h"

static struct cudnn_attention_graph small(bool backward)
{
    return (struct cudnn_attention_graph){.B = 2,
                                          .T = 128,
                                          .H = 4,
                                          .G = 2,
                                          .K = 64,
                                          .q_stride = 8 * 64,
                                          .kv_stride = 8 * 64,
                                          .out_stride = 4 * 64,
                                          .total_heads = 4,
                                          .causal = true,
                                          .backward = backward};
}

static struct cudnn_plan plan_of(const struct cudnn_attention_graph *a)
{
    size_t length;
    char *json = h200_properties(&length);
    struct cudnn_target target = {0};
    struct cudnn_plan plan;
    struct cudnn_graph *g;
    CHECK_STATUS(OK, cudnn_graph_describe_device(json, length, &target.device));
    cudnn_graph_open(&g);
    cudnn_attention_graph_build(a, g);
    CHECK_STATUS(OK, cudnn_graph_build_plan(g, &target, NULL, &plan));
    cudnn_graph_close(g);
    cudnn_graph_free_device(target.device);
    free(json);
    return plan;
}

static void check_has_plan(const struct cudnn_attention_graph *a)
{
    struct cudnn_plan plan = plan_of(a);
    CHECK(plan.plan);
    cudnn_graph_release_plan(&plan);
}

TEST(attention_has_plans_with_and_without_causal_mask)
{
    for (int backward = 0; backward < 2; backward++) {
        struct cudnn_attention_graph a = small(backward);
        check_has_plan(&a);
        a.causal = false;
        check_has_plan(&a);
    }
}

TEST(multi_head_attention_without_gqa_has_plans)
{
    for (int backward = 0; backward < 2; backward++) {
        struct cudnn_attention_graph a = small(backward);
        a.G = a.H, a.q_stride = a.kv_stride = 12 * 64;
        check_has_plan(&a);
    }
}

TEST(varlen_has_plans_for_many_sequences)
{
    for (int backward = 0; backward < 2; backward++) {
        struct cudnn_attention_graph a = small(backward);
        a.varlen = true, a.B = 100;
        check_has_plan(&a);
    }
}

TEST(deterministic_backward_stores_ds_and_the_other_accumulates_dq)
{
    struct cudnn_attention_graph any_order = small(true), deterministic = any_order;
    deterministic.deterministic = true;
    CHECK(cudnn_attention_graph_scratch(&any_order, ATTENTION_DQ_ACCUM, 256) == 256 * 4 * 64 * 4);
    CHECK(!cudnn_attention_graph_scratch(&deterministic, ATTENTION_DQ_ACCUM, 256));
    struct cudnn_plan of_any_order = plan_of(&any_order),
                      of_deterministic = plan_of(&deterministic);
    size_t scores = 2 * 4 * 128 * 128 * 2;
    CHECK(of_any_order.plan && of_any_order.workspace < scores + 2 * 256 * 4 * 64 * 2);
    CHECK(of_deterministic.plan && of_deterministic.workspace >= scores);
    cudnn_graph_release_plan(&of_any_order), cudnn_graph_release_plan(&of_deterministic);
}

TEST(only_backward_needs_scratch)
{
    struct cudnn_attention_graph a = small(false);
    for (int id = 0; id < ATTENTION_TENSOR_COUNT; id++)
        CHECK(!cudnn_attention_graph_scratch(&a, (enum attention_tensor)id, 256));
    a = small(true);
    CHECK(cudnn_attention_graph_scratch(&a, ATTENTION_DELTA, 256) == 256 * 4 * 4);
    CHECK(!cudnn_attention_graph_scratch(&a, ATTENTION_DK_FULL, 256));
    a.varlen = true;
    CHECK(cudnn_attention_graph_scratch(&a, ATTENTION_DK_FULL, 256) == 256 * 2 * 8 * 64 * 4);
}
