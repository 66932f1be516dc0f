/* cudnn_graph.h -- builds cuDNN 9 operation graphs and their execution plans (backend graph API).
 *
 * cuDNN has no call for attention: its engines recognize a pattern of matmul, reduction and
 * pointwise operations, and compile it into one fused kernel.
 * Axes     Every tensor has four: rows, heads, tokens, and the last one; strides are in elements.
 * Errors   The first failure is kept until cudnn_graph_build_plan returns it; the calls in between
 *          do nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum graph_type { GRAPH_F32, GRAPH_BF16, GRAPH_I32, GRAPH_I64, GRAPH_BOOL, GRAPH_TYPE_COUNT };

/* y from x and b, element by element. */
enum graph_pointwise {
    GRAPH_ADD,
    GRAPH_SUB,
    GRAPH_MUL,
    GRAPH_DIV,
    GRAPH_EXP,
    GRAPH_LOG,
    GRAPH_IDENTITY,
    GRAPH_GEN_INDEX, /* the element's index along an axis */
    GRAPH_CMP_LT,
    GRAPH_CMP_GE,
    GRAPH_CMP_GT,
    GRAPH_AND,
    GRAPH_SELECT, /* x where `mask`, else b */
    GRAPH_POINTWISE_COUNT
};

struct cudnn_dims {
    int64_t of[4];
};

/* A tensor descriptor of the graph. */
typedef void *cudnn_tensor;

struct cudnn_tensor_spec {
    int64_t id; /* 1 .. GRAPH_MAX_ID-1, bound to memory at execution; 0: a virtual tensor */
    enum graph_type type;
    struct cudnn_dims dims, strides;
    bool by_value;        /* a scalar in host memory */
    cudnn_tensor offsets; /* ragged offsets of the rows, in elements; NULL: not ragged */
};
enum { GRAPH_MAX_ID = 64 };

/* What a plan is built for: a handle, or the properties of a device that need not be present. */
struct cudnn_target {
    void *handle; /* cudnnHandle_t, or NULL */
    void *device; /* of cudnn_graph_describe_device, or NULL */
};
struct cudnn_plan {
    void *plan; /* execution plan descriptor; NULL: no engine supports the graph */
    size_t workspace;
    int num_engines, engine; /* proposals of the heuristics; global index of the engine in use */
};

/* An engine by its global index, with knobs that are not at their defaults. */
enum { CUDNN_MAX_KNOBS = 6 };
struct cudnn_engine {
    int64_t index;
    int num_knobs;
    struct {
        int type; /* cudnnBackendKnobType_t */
        int64_t value;
    } knobs[CUDNN_MAX_KNOBS];
};

struct cudnn_graph;

void cudnn_graph_open(struct cudnn_graph **out);
void cudnn_graph_close(struct cudnn_graph *g);

cudnn_tensor cudnn_graph_tensor(struct cudnn_graph *g, const struct cudnn_tensor_spec *spec);
/* A dense virtual tensor: an intermediate result that is never stored. */
cudnn_tensor cudnn_graph_virtual(struct cudnn_graph *g, enum graph_type type,
                                 struct cudnn_dims dims);

/* Sequence lengths that override m, n and k of each row's matmul; NULL: as the tensors' dims. */
struct cudnn_lengths {
    cudnn_tensor m, n, k;
};
/* c = a b for each row and head; b broadcasts where a has more heads (GQA). */
void cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b, cudnn_tensor c,
                        struct cudnn_lengths lengths);
struct cudnn_pointwise {
    enum graph_pointwise mode;
    enum graph_type compute;
    int axis; /* of GRAPH_GEN_INDEX */
    cudnn_tensor x, b, mask, y;
};
void cudnn_graph_pointwise(struct cudnn_graph *g, struct cudnn_pointwise p);
/* Reduces x along the axes where y's size is 1 (or y has fewer heads). */
void cudnn_graph_reduce_sum(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y);
void cudnn_graph_reduce_max(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y);
/* y views x with its own dims and strides. */
void cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y);

/* Compiles the graph for that engine, or (NULL) for the first that the heuristics propose and that
 * can be compiled; out->plan is NULL if that fails.  UNSUPPORTED: cuDNN rejects the graph. */
enum status cudnn_graph_build_plan(struct cudnn_graph *g, const struct cudnn_target *target,
                                   const struct cudnn_engine *engine, struct cudnn_plan *out);
void cudnn_graph_release_plan(struct cudnn_plan *p);

/* Binds tensors to memory: ids[i] is at pointers[i]. */
struct cudnn_variant_pack {
    int count;
    const int64_t *ids;
    void *const *pointers;
    void *workspace;
};
/* Launches the plan on the handle's stream. */
enum status cudnn_graph_execute(const struct cudnn_plan *p, void *handle,
                                const struct cudnn_variant_pack *pack);

/* A device described by its properties in cuDNN's JSON format.  UNSUPPORTED: not valid. */
enum status cudnn_graph_describe_device(const char *json, size_t length, void **out);
void cudnn_graph_free_device(void *device);
