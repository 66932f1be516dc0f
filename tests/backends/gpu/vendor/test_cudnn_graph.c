// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cudnn_graph.h"
#include "backends/gpu/vendor/h200.h"

static struct cudnn_dims axes(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct cudnn_dims){{a, b, c, d}};
}

static cudnn_tensor tensor(struct cudnn_graph *g, int64_t id, int64_t rows, int64_t columns)
{
    struct cudnn_tensor_spec spec = {.id = id,
                                     .type = GRAPH_BF16,
                                     .dims = axes(1, 1, rows, columns),
                                     .strides = axes(rows * columns, rows * columns, columns, 1)};
    return cudnn_graph_tensor(g, &spec);
}

static enum status plan_matmul(int64_t columns_of_a, int64_t rows_of_b, struct cudnn_plan *plan)
{
    size_t length;
    char *json = h200_properties(&length);
    struct cudnn_target target = {0};
    struct cudnn_graph *g;
    CHECK_STATUS(OK, cudnn_graph_describe_device(json, length, &target.device));
    cudnn_graph_open(&g);
    cudnn_tensor a = tensor(g, 1, 128, columns_of_a), b = tensor(g, 2, rows_of_b, 256);
    cudnn_graph_matmul(g, a, b, tensor(g, 3, 128, 256), (struct cudnn_lengths){0});
    enum status st = cudnn_graph_build_plan(g, &target, NULL, plan);
    cudnn_graph_close(g);
    cudnn_graph_free_device(target.device);
    free(json);
    return st;
}

/* The engines for a lone matmul need a device that is present. */
TEST(a_graph_without_an_engine_has_no_plan)
{
    struct cudnn_plan plan;
    CHECK_STATUS(OK, plan_matmul(64, 64, &plan));
    CHECK(!plan.plan && !plan.workspace);
    cudnn_graph_release_plan(&plan);
}

TEST(mismatched_matmul_sizes_fail_with_the_error_of_cudnn)
{
    struct cudnn_plan plan;
    CHECK_STATUS(UNSUPPORTED, plan_matmul(64, 32, &plan));
    CHECK_MESSAGE("cuDNN: ");
    CHECK_MESSAGE("BAD_PARAM");
    CHECK(!plan.plan);
}

TEST(an_invalid_tensor_fails_and_later_calls_do_nothing)
{
    struct cudnn_plan plan;
    CHECK_STATUS(UNSUPPORTED, plan_matmul(-1, 64, &plan));
    CHECK(!plan.plan);
}

TEST(an_invalid_device_description_fails)
{
    void *device;
    CHECK_STATUS(UNSUPPORTED, cudnn_graph_describe_device("{\"deviceName\": ", 15, &device));
    CHECK_MESSAGE("description");
    CHECK(!device);
}
