// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_graph.h"

#include "base/text.h"

#include <cudnn.h>
#include <stdlib.h>

typedef cudnnBackendDescriptor_t descriptor;

enum { MAX_OPERATIONS = 48, MAX_DESCRIPTORS = 256, MAX_ENGINES = 16, ALIGNMENT = 16 };

struct cudnn_graph {
    descriptor descriptors[MAX_DESCRIPTORS], operations[MAX_OPERATIONS];
    int num_descriptors, num_operations;
    int64_t next_id; /* of virtual tensors */
    struct failure failure;
};

static const cudnnDataType_t types[GRAPH_TYPE_COUNT] = {
    [GRAPH_F32] = CUDNN_DATA_FLOAT,    [GRAPH_BF16] = CUDNN_DATA_BFLOAT16,
    [GRAPH_I32] = CUDNN_DATA_INT32,    [GRAPH_I64] = CUDNN_DATA_INT64,
    [GRAPH_BOOL] = CUDNN_DATA_BOOLEAN,
};

static const cudnnPointwiseMode_t pointwise_modes[GRAPH_POINTWISE_COUNT] = {
    [GRAPH_ADD] = CUDNN_POINTWISE_ADD,
    [GRAPH_SUB] = CUDNN_POINTWISE_SUB,
    [GRAPH_MUL] = CUDNN_POINTWISE_MUL,
    [GRAPH_DIV] = CUDNN_POINTWISE_DIV,
    [GRAPH_EXP] = CUDNN_POINTWISE_EXP,
    [GRAPH_LOG] = CUDNN_POINTWISE_LOG,
    [GRAPH_IDENTITY] = CUDNN_POINTWISE_IDENTITY,
    [GRAPH_GEN_INDEX] = CUDNN_POINTWISE_GEN_INDEX,
    [GRAPH_CMP_LT] = CUDNN_POINTWISE_CMP_LT,
    [GRAPH_CMP_GE] = CUDNN_POINTWISE_CMP_GE,
    [GRAPH_CMP_GT] = CUDNN_POINTWISE_CMP_GT,
    [GRAPH_AND] = CUDNN_POINTWISE_LOGICAL_AND,
    [GRAPH_SELECT] = CUDNN_POINTWISE_BINARY_SELECT,
};

/* cuDNN's last error string is more specific than the name of the status. */
static enum status check(cudnnStatus_t status, const char *action)
{
    if (status == CUDNN_STATUS_SUCCESS) return STATUS_OK;
    char detail[512] = "";
    cudnnGetLastErrorString(detail, sizeof detail);
    FAIL(UNSUPPORTED, "cuDNN: %s: %s%s%s", action, cudnnGetErrorString(status), *detail ? ": " : "",
         detail);
}

static void keep_failure(struct cudnn_graph *g, cudnnStatus_t status, const char *action)
{
    enum status st = check(status, action);
    if (st) status_save(&g->failure, st);
}

static descriptor create(struct cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    BUG_IF(g->num_descriptors == MAX_DESCRIPTORS);
    descriptor d = NULL;
    if (g->failure.status) return NULL;
    keep_failure(g, cudnnBackendCreateDescriptor(type, &d), "creating a descriptor");
    if (d) g->descriptors[g->num_descriptors++] = d;
    return d;
}

static void set_attribute(struct cudnn_graph *g, descriptor d, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->failure.status) return;
    keep_failure(g, cudnnBackendSetAttribute(d, name, type, count, values), "setting an attribute");
}

static void set_reference(struct cudnn_graph *g, descriptor d, cudnnBackendAttributeName_t name,
                          descriptor to)
{
    if (to) set_attribute(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void finalize(struct cudnn_graph *g, descriptor d)
{
    if (!g->failure.status) keep_failure(g, cudnnBackendFinalize(d), "finalizing a descriptor");
}

static void finalize_operation(struct cudnn_graph *g, descriptor d)
{
    finalize(g, d);
    BUG_IF(g->num_operations == MAX_OPERATIONS);
    g->operations[g->num_operations++] = d;
}

void cudnn_graph_open(struct cudnn_graph **out)
{
    struct cudnn_graph *g = heap(sizeof *g);
    g->next_id = GRAPH_MAX_ID;
    *out = g;
}

void cudnn_graph_close(struct cudnn_graph *g)
{
    if (!g) return;
    while (g->num_descriptors) cudnnBackendDestroyDescriptor(g->descriptors[--g->num_descriptors]);
    free(g);
}

cudnn_tensor cudnn_graph_tensor(struct cudnn_graph *g, const struct cudnn_tensor_spec *spec)
{
    descriptor t = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t id = spec->id ? spec->id : g->next_id++, alignment = ALIGNMENT;
    bool yes = true;
    set_attribute(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[spec->type]);
    set_attribute(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, spec->dims.of);
    set_attribute(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, spec->strides.of);
    set_attribute(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_attribute(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (!spec->id) set_attribute(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (spec->by_value)
        set_attribute(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    set_reference(g, t, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, spec->offsets);
    finalize(g, t);
    return t;
}

cudnn_tensor cudnn_graph_virtual(struct cudnn_graph *g, enum graph_type type,
                                 struct cudnn_dims dims)
{
    const int64_t *n = dims.of;
    struct cudnn_tensor_spec spec = {
        .type = type, .dims = dims, .strides = {{n[1] * n[2] * n[3], n[2] * n[3], n[3], 1}}};
    return cudnn_graph_tensor(g, &spec);
}

void cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b, cudnn_tensor c,
                        struct cudnn_lengths lengths)
{
    descriptor m = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_attribute(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[GRAPH_F32]);
    finalize(g, m);
    descriptor o = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths.m);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths.n);
    set_reference(g, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths.k);
    finalize_operation(g, o);
}

void cudnn_graph_pointwise(struct cudnn_graph *g, struct cudnn_pointwise p)
{
    descriptor d = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set_attribute(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
                  &pointwise_modes[p.mode]);
    set_attribute(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &types[p.compute]);
    int64_t axis = p.axis;
    if (p.mode == GRAPH_GEN_INDEX)
        set_attribute(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, d);
    descriptor o = create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_reference(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    set_reference(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    set_reference(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    set_reference(g, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.mask);
    set_reference(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
    finalize_operation(g, o);
}

static void reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t reduction, cudnn_tensor x,
                   cudnn_tensor y)
{
    descriptor d = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_attribute(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &types[GRAPH_F32]);
    set_attribute(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                  &reduction);
    finalize(g, d);
    descriptor o = create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_reference(g, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    set_reference(g, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_reference(g, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finalize_operation(g, o);
}

void cudnn_graph_reduce_sum(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y)
{
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, x, y);
}

void cudnn_graph_reduce_max(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y)
{
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, y);
}

void cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y)
{
    descriptor o = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_reference(g, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_reference(g, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finalize_operation(g, o);
}

static descriptor finish_graph(struct cudnn_graph *g, const struct cudnn_target *target)
{
    descriptor graph = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    void *handle = target->handle;
    if (handle)
        set_attribute(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_attribute(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  g->num_operations, g->operations);
    finalize(g, graph);
    return graph;
}

/* NULL: that engine does not support the graph, or has no such knobs. */
static descriptor configure_engine(struct cudnn_graph *g, const struct cudnn_target *target,
                                   descriptor graph, const struct cudnn_engine *e)
{
    if (g->failure.status) return NULL;
    descriptor engine = create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    descriptor config = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), knobs[CUDNN_MAX_KNOBS];
    set_reference(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    set_attribute(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->index);
    set_reference(g, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, target->device);
    finalize(g, engine);
    for (int i = 0; i < e->num_knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)e->knobs[i].type;
        knobs[i] = create(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        set_attribute(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                      &type);
        set_attribute(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                      &e->knobs[i].value);
        finalize(g, knobs[i]);
    }
    set_reference(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    set_attribute(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  e->num_knobs, knobs);
    finalize(g, config);
    if (!g->failure.status) return config;
    g->failure.status = STATUS_OK;
    return NULL;
}

/* Writes the engine configs that the heuristics propose, best first; returns their number. */
static int query_heuristics(struct cudnn_graph *g, const struct cudnn_target *target,
                            descriptor graph, descriptor *out)
{
    descriptor heuristics = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    set_reference(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_attribute(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_reference(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->device);
    finalize(g, heuristics);
    for (int i = 0; i < MAX_ENGINES; i++) out[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    if (g->failure.status) return 0;
    keep_failure(g,
                 cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_ENGINES, &count, out),
                 "querying engine heuristics");
    return count < MAX_ENGINES ? (int)count : MAX_ENGINES;
}

/* Global index of the engine config's engine. */
static int engine_index(struct cudnn_graph *g, descriptor config)
{
    descriptor engine = create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0, number = 0;
    if (g->failure.status) return 0;
    keep_failure(g,
                 cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
                 "querying an engine config");
    keep_failure(g,
                 cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                          1, &count, &number),
                 "querying an engine's index");
    return (int)number;
}

/* NULL: the engine config cannot be compiled for the target. */
static descriptor compile_plan(const struct cudnn_target *target, descriptor config,
                               size_t *workspace)
{
    descriptor plan = NULL, device = target->device;
    void *handle = target->handle;
    int64_t count = 0, bytes = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan)) return NULL;
    cudnnStatus_t status = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (!status && handle)
        status = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                          1, &handle);
    if (!status && device)
        status = cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    if (!status) status = cudnnBackendFinalize(plan);
    if (!status)
        status = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count, &bytes);
    *workspace = (size_t)bytes;
    if (!status) return plan;
    cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* The first of the heuristics' engine configs that can be compiled. */
static void compile_proposals(struct cudnn_graph *g, const struct cudnn_target *target,
                              descriptor graph, struct cudnn_plan *out)
{
    descriptor configs[MAX_ENGINES];
    out->num_engines = query_heuristics(g, target, graph, configs);
    for (int i = 0; i < out->num_engines && !out->plan; i++) {
        out->engine = engine_index(g, configs[i]);
        if (g->failure.status) break;
        out->plan = compile_plan(target, configs[i], &out->workspace);
    }
}

enum status cudnn_graph_build_plan(struct cudnn_graph *g, const struct cudnn_target *target,
                                   const struct cudnn_engine *engine, struct cudnn_plan *out)
{
    descriptor graph = finish_graph(g, target), config;
    *out = (struct cudnn_plan){0};
    if (!engine)
        compile_proposals(g, target, graph, out);
    else if ((config = configure_engine(g, target, graph, engine)))
        out->plan = compile_plan(target, config, &out->workspace);
    if (engine && out->plan) out->engine = (int)engine->index;
    TRY(status_restore(&g->failure));
    return STATUS_OK;
}

void cudnn_graph_release_plan(struct cudnn_plan *p)
{
    if (p->plan) cudnnBackendDestroyDescriptor(p->plan);
    *p = (struct cudnn_plan){0};
}

static enum status bind_pack(descriptor d, const struct cudnn_variant_pack *pack)
{
    TRY(check(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                       pack->count, pack->ids),
              "binding tensor ids"));
    TRY(check(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                       CUDNN_TYPE_VOID_PTR, pack->count, pack->pointers),
              "binding tensor memory"));
    TRY(check(cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                       &pack->workspace),
              "binding the workspace"));
    TRY(check(cudnnBackendFinalize(d), "finalizing the variant pack"));
    return STATUS_OK;
}

enum status cudnn_graph_execute(const struct cudnn_plan *p, void *handle,
                                const struct cudnn_variant_pack *pack)
{
    descriptor d = NULL;
    enum status st = STATUS_OK;
    TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d),
              "creating a descriptor"));
    TRY_OUT(bind_pack(d, pack));
    cudnnStatus_t status = cudnnBackendExecute(handle, p->plan, d);
    if (status != CUDNN_STATUS_SUCCESS)
        FAIL_OUT(DEVICE, "cuDNN: executing engine %d: %s", p->engine, cudnnGetErrorString(status));
out:
    cudnnBackendDestroyDescriptor(d);
    return st;
}

enum status cudnn_graph_describe_device(const char *json, size_t length, void **out)
{
    descriptor d = NULL;
    *out = NULL;
    TRY(check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d),
              "creating a descriptor"));
    cudnnStatus_t status = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                    CUDNN_TYPE_CHAR, (int64_t)length, json);
    if (!status) status = cudnnBackendFinalize(d);
    if (status) cudnnBackendDestroyDescriptor(d);
    TRY(check(status, "parsing a device description"));
    *out = d;
    return STATUS_OK;
}

void cudnn_graph_free_device(void *device)
{
    if (device) cudnnBackendDestroyDescriptor(device);
}
