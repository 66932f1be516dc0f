// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_graph.h"

#include "base/text.h"

#include <cudnn.h>
#include <stdlib.h>

typedef cudnnBackendDescriptor_t descriptor;

enum { MOST_OPERATIONS = 48, MOST_DESCRIPTORS = 256, MOST_ENGINES = 16, ALIGNMENT = 16 };

struct graph {
    descriptor all[MOST_DESCRIPTORS], operations[MOST_OPERATIONS];
    int num_all, num_operations;
    int64_t next_id; /* of tensors in between */
    struct failure failure;
};

static const cudnnDataType_t types[GRAPH_TYPE_COUNT] = {
    [GRAPH_F32] = CUDNN_DATA_FLOAT,    [GRAPH_BF16] = CUDNN_DATA_BFLOAT16,
    [GRAPH_I32] = CUDNN_DATA_INT32,    [GRAPH_I64] = CUDNN_DATA_INT64,
    [GRAPH_BOOL] = CUDNN_DATA_BOOLEAN,
};

static const cudnnPointwiseMode_t points[GRAPH_POINT_COUNT] = {
    [GRAPH_ADD] = CUDNN_POINTWISE_ADD,         [GRAPH_SUBTRACT] = CUDNN_POINTWISE_SUB,
    [GRAPH_MULTIPLY] = CUDNN_POINTWISE_MUL,    [GRAPH_DIVIDE] = CUDNN_POINTWISE_DIV,
    [GRAPH_EXP] = CUDNN_POINTWISE_EXP,         [GRAPH_LOG] = CUDNN_POINTWISE_LOG,
    [GRAPH_COPY] = CUDNN_POINTWISE_IDENTITY,   [GRAPH_INDEX] = CUDNN_POINTWISE_GEN_INDEX,
    [GRAPH_LESS] = CUDNN_POINTWISE_CMP_LT,     [GRAPH_NOT_LESS] = CUDNN_POINTWISE_CMP_GE,
    [GRAPH_AND] = CUDNN_POINTWISE_LOGICAL_AND, [GRAPH_CHOOSE] = CUDNN_POINTWISE_BINARY_SELECT,
};

/* cuDNN's own sentence says more than the name of its status. */
static enum status check(cudnnStatus_t got, const char *doing)
{
    if (got == CUDNN_STATUS_SUCCESS) return STATUS_OK;
    char why[512] = "";
    cudnnGetLastErrorString(why, sizeof why);
    FAIL(UNSUPPORTED, "cuDNN: %s: %s%s%s", doing, cudnnGetErrorString(got), *why ? ": " : "", why);
}

static void keep(struct graph *g, cudnnStatus_t got, const char *doing)
{
    enum status st = check(got, doing);
    if (st) failure_keep(&g->failure, st);
}

static descriptor make(struct graph *g, cudnnBackendDescriptorType_t type)
{
    BUG_IF(g->num_all == MOST_DESCRIPTORS);
    descriptor d = NULL;
    if (g->failure.status) return NULL;
    keep(g, cudnnBackendCreateDescriptor(type, &d), "making a descriptor");
    if (d) g->all[g->num_all++] = d;
    return d;
}

static void set(struct graph *g, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->failure.status) return;
    keep(g, cudnnBackendSetAttribute(d, name, type, count, values), "describing");
}

static void refer(struct graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor to)
{
    if (to) set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void finish(struct graph *g, descriptor d)
{
    if (!g->failure.status) keep(g, cudnnBackendFinalize(d), "completing a descriptor");
}

static void finish_operation(struct graph *g, descriptor d)
{
    finish(g, d);
    BUG_IF(g->num_operations == MOST_OPERATIONS);
    g->operations[g->num_operations++] = d;
}

void graph_open(struct graph **out)
{
    struct graph *g = heap(sizeof *g);
    g->next_id = GRAPH_IDS;
    *out = g;
}

void graph_close(struct graph *g)
{
    if (!g) return;
    while (g->num_all) cudnnBackendDestroyDescriptor(g->all[--g->num_all]);
    free(g);
}

graph_tensor graph_memory(struct graph *g, const struct graph_memory *what)
{
    descriptor t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t id = what->id ? what->id : g->next_id++, alignment = ALIGNMENT;
    bool yes = true;
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[what->type]);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, what->dims.of);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, what->strides.of);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (!what->id) set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (what->is_value) set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    refer(g, t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, what->ragged);
    finish(g, t);
    return t;
}

graph_tensor graph_between(struct graph *g, enum graph_type type, struct graph_axes dims)
{
    const int64_t *n = dims.of;
    struct graph_memory what = {
        .type = type, .dims = dims, .strides = {{n[1] * n[2] * n[3], n[2] * n[3], n[3], 1}}};
    return graph_memory(g, &what);
}

void graph_multiply(struct graph *g, graph_tensor a, graph_tensor b, graph_tensor c,
                    struct graph_lengths lengths)
{
    descriptor m = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[GRAPH_F32]);
    finish(g, m);
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths.rows);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths.columns);
    refer(g, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths.inner);
    finish_operation(g, o);
}

void graph_points(struct graph *g, struct graph_points p)
{
    descriptor d = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &points[p.kind]);
    set(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &types[p.in]);
    int64_t axis = p.axis;
    if (p.kind == GRAPH_INDEX) set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, d);
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    refer(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    refer(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    refer(g, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.mask);
    refer(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
    finish_operation(g, o);
}

static void reduce(struct graph *g, cudnnReduceTensorOp_t how, graph_tensor x, graph_tensor y)
{
    descriptor d = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[GRAPH_F32]);
    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    finish(g, d);
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    refer(g, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    refer(g, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    refer(g, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_operation(g, o);
}

void graph_sum(struct graph *g, graph_tensor x, graph_tensor y)
{
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, x, y);
}

void graph_largest(struct graph *g, graph_tensor x, graph_tensor y)
{
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, y);
}

void graph_turn(struct graph *g, graph_tensor x, graph_tensor y)
{
    descriptor o = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    refer(g, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    refer(g, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_operation(g, o);
}

/* Configurations of engines, the one that the heuristics think fastest first. */
static int ask(struct graph *g, const struct graph_target *target, descriptor *out)
{
    descriptor whole = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    void *handle = target->handle;
    if (handle) set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->num_operations,
        g->operations);
    finish(g, whole);
    descriptor ways = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    refer(g, ways, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
    set(g, ways, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    refer(g, ways, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->device);
    finish(g, ways);
    for (int i = 0; i < MOST_ENGINES; i++) out[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    if (g->failure.status) return 0;
    keep(g,
         cudnnBackendGetAttribute(ways, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_ENGINES, &count, out),
         "asking for engines");
    return count < MOST_ENGINES ? (int)count : MOST_ENGINES;
}

/* cuDNN's number of the engine that a configuration is of. */
static int engine_of(struct graph *g, descriptor configuration)
{
    descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0, number = 0;
    if (g->failure.status) return 0;
    keep(g,
         cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
         "asking for an engine");
    keep(g,
         cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                  &count, &number),
         "asking for an engine's number");
    return (int)number;
}

/* NULL: this configuration cannot be compiled for the target. */
static descriptor compile(const struct graph_target *target, descriptor configuration,
                          size_t *workspace)
{
    descriptor plan = NULL, device = target->device;
    void *handle = target->handle;
    int64_t count = 0, bytes = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan)) return NULL;
    cudnnStatus_t got = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration);
    if (!got && handle)
        got = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                       &handle);
    if (!got && device)
        got = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    if (!got) got = cudnnBackendFinalize(plan);
    if (!got)
        got = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &bytes);
    *workspace = (size_t)bytes;
    if (!got) return plan;
    cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

enum status graph_plan(struct graph *g, const struct graph_target *target, struct graph_plan *out)
{
    descriptor ways[MOST_ENGINES];
    *out = (struct graph_plan){0};
    int count = ask(g, target, ways);
    for (int i = 0; i < count && !out->plan; i++) {
        out->engine = engine_of(g, ways[i]);
        if (g->failure.status) break;
        out->plan = compile(target, ways[i], &out->workspace);
    }
    out->num_engines = count;
    TRY(failure_tell(&g->failure));
    return STATUS_OK;
}

void graph_plan_release(struct graph_plan *p)
{
    if (p->plan) cudnnBackendDestroyDescriptor(p->plan);
    *p = (struct graph_plan){0};
}

static enum status bind(descriptor pack, int count, const int64_t *ids, void *const *memory,
                        void *workspace)
{
    TRY(check(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                       count, ids),
              "naming tensors"));
    TRY(check(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                       CUDNN_TYPE_VOID_PTR, count, memory),
              "placing tensors"));
    TRY(check(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                       1, &workspace),
              "placing the workspace"));
    TRY(check(cudnnBackendFinalize(pack), "binding tensors"));
    return STATUS_OK;
}

enum status graph_run(const struct graph_plan *p, void *handle, int count, const int64_t *ids,
                      void *const *memory, void *workspace)
{
    descriptor pack = NULL;
    enum status st = STATUS_OK;
    TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
              "making a descriptor"));
    TRY_OUT(bind(pack, count, ids, memory, workspace));
    cudnnStatus_t got = cudnnBackendExecute(handle, p->plan, pack);
    if (got != CUDNN_STATUS_SUCCESS)
        FAIL_OUT(DEVICE, "cuDNN: running engine %d: %s", p->engine, cudnnGetErrorString(got));
out:
    cudnnBackendDestroyDescriptor(pack);
    return st;
}

enum status graph_describe(const char *json, size_t length, void **out)
{
    descriptor d = NULL;
    *out = NULL;
    TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d),
              "making a descriptor"));
    cudnnStatus_t got = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                 CUDNN_TYPE_CHAR, (int64_t)length, json);
    if (!got) got = cudnnBackendFinalize(d);
    if (got) cudnnBackendDestroyDescriptor(d);
    TRY(check(got, "reading a device's description"));
    *out = d;
    return STATUS_OK;
}

void graph_forget(void *device)
{
    if (device) cudnnBackendDestroyDescriptor(device);
}
