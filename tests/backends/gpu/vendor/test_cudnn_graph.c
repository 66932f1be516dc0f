// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cudnn_graph.h"
#include "backends/gpu/vendor/h200.h"

static struct graph_axes axes(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct graph_axes){{a, b, c, d}};
}

static graph_tensor tensor(struct graph *g, int64_t id, int64_t rows, int64_t columns)
{
    struct graph_memory what = {.id = id,
                                .type = GRAPH_BF16,
                                .dims = axes(1, 1, rows, columns),
                                .strides = axes(rows * columns, rows * columns, columns, 1)};
    return graph_memory(g, &what);
}

static enum status plan_product(int64_t inner_of_a, int64_t inner_of_b, struct graph_plan *plan)
{
    size_t length;
    char *json = described_h200(&length);
    struct graph_target target = {0};
    struct graph *g;
    CHECK_STATUS(OK, graph_describe(json, length, &target.device));
    graph_open(&g);
    graph_tensor a = tensor(g, 1, 128, inner_of_a), b = tensor(g, 2, inner_of_b, 256);
    graph_multiply(g, a, b, tensor(g, 3, 128, 256), (struct graph_lengths){0});
    enum status st = graph_plan(g, &target, plan);
    graph_close(g);
    graph_forget(target.device);
    free(json);
    return st;
}

/* A product alone is for a library that asks a device that is there. */
TEST(a_graph_that_no_engine_takes_has_no_plan)
{
    struct graph_plan plan;
    CHECK_STATUS(OK, plan_product(64, 64, &plan));
    CHECK(!plan.plan && !plan.workspace);
    graph_plan_release(&plan);
}

TEST(a_product_of_sizes_that_do_not_fit_is_refused_in_cudnns_words)
{
    struct graph_plan plan;
    CHECK_STATUS(UNSUPPORTED, plan_product(64, 32, &plan));
    CHECK_MESSAGE("cuDNN: ");
    CHECK_MESSAGE("BAD_PARAM");
    CHECK(!plan.plan);
}

TEST(a_tensor_of_no_size_is_refused_and_what_follows_does_nothing)
{
    struct graph_plan plan;
    CHECK_STATUS(UNSUPPORTED, plan_product(-1, 64, &plan));
    CHECK(!plan.plan);
}

TEST(a_description_that_is_no_json_is_refused)
{
    void *device;
    CHECK_STATUS(UNSUPPORTED, graph_describe("{\"deviceName\": ", 15, &device));
    CHECK_MESSAGE("description");
    CHECK(!device);
}
