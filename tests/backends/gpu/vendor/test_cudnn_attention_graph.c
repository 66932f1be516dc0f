// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cudnn_attention_graph.h"
#include "backends/gpu/vendor/h200.h"

static struct cudnn_attention_graph small(bool backward)
{
    return (struct cudnn_attention_graph){.B = 2,
                                          .T = 128,
                                          .S = 128,
                                          .H = 4,
                                          .G = 2,
                                          .K = 64,
                                          .q_stride = 8 * 64,
                                          .kv_stride = 8 * 64,
                                          .out_stride = 4 * 64,
                                          .dq_stride = 8 * 64,
                                          .dkv_stride = 8 * 64,
                                          .row_queries = 128,
                                          .row_keys = 128,
                                          .row_out = 128,
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
        a.G = a.H, a.q_stride = a.kv_stride = a.dq_stride = a.dkv_stride = 12 * 64;
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

/* Of a deterministic backward; -1: the heuristics choose. */
static int named_engine(int capability, size_t version, int *num_knobs)
{
    struct cudnn_attention_graph a = small(true);
    struct cudnn_engine engine = {0};
    a.deterministic = true;
    bool is_named = cudnn_attention_graph_engine(&a, capability, version, &engine);
    *num_knobs = engine.num_knobs;
    return is_named ? (int)engine.index : -1;
}

TEST(engine_without_ds_depends_on_capability_and_version)
{
    static const struct {
        int capability, version, engine, num_knobs;
    } rows[] = {{80, 91900, -1, 0},  {90, 91900, -1, 0},  {100, 91800, 5, 2}, {100, 92299, 5, 2},
                {100, 92300, 5, 6},  {103, 91900, 5, 2},  {103, 92300, 5, 6}, {107, 91900, 17, 2},
                {107, 92300, 17, 6}, {110, 92300, -1, 0}, {120, 91900, -1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int knobs, engine = named_engine(rows[i].capability, (size_t)rows[i].version, &knobs);
        print_message("  %d, cuDNN %d: engine %d, %d knobs\n", rows[i].capability, rows[i].version,
                      engine, knobs);
        CHECK(engine == rows[i].engine && knobs == rows[i].num_knobs);
    }
}

TEST(engine_without_ds_is_only_for_a_deterministic_backward)
{
    struct cudnn_engine engine;
    for (int i = 0; i < 8; i++) {
        struct cudnn_attention_graph a = small(i & 1);
        a.deterministic = i & 2, a.varlen = i & 4;
        CHECK(cudnn_attention_graph_engine(&a, 100, 91900, &engine) == ((i & 3) == 3));
        a.K = 72; /* varlen requires a multiple of 16 */
        CHECK(cudnn_attention_graph_engine(&a, 100, 91900, &engine) == (i == 3));
    }
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
