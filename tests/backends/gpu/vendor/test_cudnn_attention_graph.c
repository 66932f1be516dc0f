// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cudnn_attention_graph.h"
#include "backends/gpu/vendor/h200.h"

static struct attention_graph small(bool backward)
{
    return (struct attention_graph){.B = 2,
                                    .T = 128,
                                    .H = 4,
                                    .G = 2,
                                    .K = 64,
                                    .q_row = 8 * 64,
                                    .kv_row = 8 * 64,
                                    .out_row = 4 * 64,
                                    .all_heads = 4,
                                    .causal = true,
                                    .backward = backward};
}

static struct graph_plan plan_of(const struct attention_graph *a)
{
    size_t length;
    char *json = described_h200(&length);
    struct graph_target target = {0};
    struct graph_plan plan;
    struct graph *g;
    CHECK_STATUS(OK, graph_describe(json, length, &target.device));
    graph_open(&g);
    attention_graph_build(a, g);
    CHECK_STATUS(OK, graph_plan(g, &target, &plan));
    graph_close(g);
    graph_forget(target.device);
    free(json);
    return plan;
}

static void check_has_plan(const struct attention_graph *a)
{
    struct graph_plan plan = plan_of(a);
    CHECK(plan.plan);
    graph_plan_release(&plan);
}

TEST(attention_has_plans_with_and_without_later_tokens)
{
    for (int backward = 0; backward < 2; backward++) {
        struct attention_graph a = small(backward);
        check_has_plan(&a);
        a.causal = false;
        check_has_plan(&a);
    }
}

TEST(attention_with_as_many_key_heads_as_queries_has_plans)
{
    for (int backward = 0; backward < 2; backward++) {
        struct attention_graph a = small(backward);
        a.G = a.H, a.q_row = a.kv_row = 12 * 64;
        check_has_plan(&a);
    }
}

TEST(documents_have_plans_of_as_many_as_there_may_be)
{
    for (int backward = 0; backward < 2; backward++) {
        struct attention_graph a = small(backward);
        a.documents = true, a.B = 100;
        check_has_plan(&a);
    }
}

TEST(a_reproducible_backward_stores_scores_and_the_other_adds_up_dq)
{
    struct attention_graph fast = small(true), same = fast;
    same.deterministic = true;
    CHECK(attention_graph_bytes(&fast, ATTENTION_DQ_SUM, 256) == 256 * 4 * 64 * 4);
    CHECK(!attention_graph_bytes(&same, ATTENTION_DQ_SUM, 256));
    struct graph_plan of_fast = plan_of(&fast), of_same = plan_of(&same);
    size_t scores = 2 * 4 * 128 * 128 * 2;
    CHECK(of_fast.plan && of_fast.workspace < scores + 2 * 256 * 4 * 64 * 2);
    CHECK(of_same.plan && of_same.workspace >= scores);
    graph_plan_release(&of_fast), graph_plan_release(&of_same);
}

TEST(only_backward_has_working_memory)
{
    struct attention_graph a = small(false);
    for (int id = 0; id < ATTENTION_TENSOR_COUNT; id++)
        CHECK(!attention_graph_bytes(&a, (enum attention_tensor)id, 256));
    a = small(true);
    CHECK(attention_graph_bytes(&a, ATTENTION_DELTA, 256) == 256 * 4 * 4);
    CHECK(!attention_graph_bytes(&a, ATTENTION_DK_ALL, 256));
    a.documents = true;
    CHECK(attention_graph_bytes(&a, ATTENTION_DK_ALL, 256) == 256 * 2 * 8 * 64 * 4);
}
