/* graph_cudnn.h -- a computation described to cuDNN 9 operation by operation, and the plan that its
 * heuristics make of it.
 *
 * cuDNN's attention is no call but a pattern of products, sums and point-wise operations, which its
 * engines know again and compile into one kernel.
 * Axes     Every tensor has four: rows, heads, tokens, and the last one; strides are in elements.
 * Errors   A failure is kept until graph_plan tells it; after one the other calls do nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum graph_type { GRAPH_F32, GRAPH_BF16, GRAPH_I32, GRAPH_I64, GRAPH_BOOL, GRAPH_TYPE_COUNT };

enum graph_point { /* y from x and b, one by one */
                   GRAPH_ADD,
                   GRAPH_SUBTRACT,
                   GRAPH_MULTIPLY,
                   GRAPH_DIVIDE,
                   GRAPH_EXP,
                   GRAPH_LOG,
                   GRAPH_COPY,
                   GRAPH_INDEX,    /* of an axis */
                   GRAPH_LESS,     /* x < b */
                   GRAPH_NOT_LESS, /* x >= b */
                   GRAPH_AND,
                   GRAPH_CHOOSE, /* where `mask`: x, else b */
                   GRAPH_POINT_COUNT
};

struct graph_axes {
    int64_t of[4];
};

/* A tensor of the graph, cuDNN's descriptor. */
typedef void *graph_tensor;

struct graph_memory { /* a tensor of the caller's */
    int64_t id;       /* 1 .. GRAPH_IDS-1; 0: none, it lies between two operations only */
    enum graph_type type;
    struct graph_axes dims, strides;
    bool is_value;       /* one number on the host */
    graph_tensor ragged; /* where each row begins, in elements; NULL: by the stride */
};
enum { GRAPH_IDS = 64 };

/* What plans are made for. */
struct graph_target {
    void *handle; /* cuDNN's, or NULL */
    void *device; /* a described device (graph_describe), or NULL */
};
struct graph_plan {
    void *plan; /* NULL: no engine takes the graph */
    size_t workspace;
    int num_engines, engine; /* the heuristics' proposals; cuDNN's number of the one taken */
};

struct graph;

void graph_open(struct graph **out);
void graph_close(struct graph *g);

graph_tensor graph_memory(struct graph *g, const struct graph_memory *what);
/* A tensor between operations, dense. */
graph_tensor graph_between(struct graph *g, enum graph_type type, struct graph_axes dims);

struct graph_lengths { /* of each row's products; NULL: as the tensors say */
    graph_tensor rows, columns, inner;
};
/* c = a b for each row and head; heads of b go round where a has more. */
void graph_multiply(struct graph *g, graph_tensor a, graph_tensor b, graph_tensor c,
                    struct graph_lengths lengths);
struct graph_points {
    enum graph_point kind;
    enum graph_type in; /* the type that is computed in */
    int axis;           /* of GRAPH_INDEX */
    graph_tensor x, b, mask, y;
};
void graph_points(struct graph *g, struct graph_points p);
/* y: the sum, or the largest, of x along the axes where y has 1 (or fewer heads). */
void graph_sum(struct graph *g, graph_tensor x, graph_tensor y);
void graph_largest(struct graph *g, graph_tensor x, graph_tensor y);
/* y is x with the sizes and strides that y has. */
void graph_turn(struct graph *g, graph_tensor x, graph_tensor y);

/* The first of the heuristics' engines that can be compiled.  UNSUPPORTED: cuDNN refuses the
 * description. */
enum status graph_plan(struct graph *g, const struct graph_target *target, struct graph_plan *out);
void graph_plan_release(struct graph_plan *p);

/* Starts the plan on the handle's stream; ids[i] lies at memory[i]. */
enum status graph_run(const struct graph_plan *p, void *handle, int count, const int64_t *ids,
                      void *const *memory, void *workspace);

/* A device that need not be there, by its properties in cuDNN's JSON. */
enum status graph_describe(const char *json, size_t length, void **out);
void graph_forget(void *device);
