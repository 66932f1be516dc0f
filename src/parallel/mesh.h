/* mesh.h -- the device mesh: the ranks of a run as pp x dp_replicate x dp_shard x cp x tp.
 *
 * Ranks    tp varies fastest: rank = tp + TP (cp + CP (dp_shard + SHARD (dp_replicate + REPLICATE
 *          pp))), so tensor-parallel ranks, which communicate most, are neighbors in a node.
 * Groups   One for each axis, and some that span several axes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "parallel/parallel_config.h"

/* From the slowest to the fastest. */
#define AXIS_LIST(X)                                                                               \
    X(pp, "pipeline_parallel_degree")                                                              \
    X(dp_replicate, "data_parallel_replicate_degree")                                              \
    X(dp_shard, "data_parallel_shard_degree")                                                      \
    X(cp, "context_parallel_degree")                                                               \
    X(tp, "tensor_parallel_degree")

enum axis {
#define X(name, key) AXIS_##name,
    AXIS_LIST(X)
#undef X
        AXIS_COUNT
};
const char *mesh_axis_name(enum axis a);
/* Its degree in [parallelism]. */
const char *mesh_axis_key(enum axis a);

/* Degrees of the axes, and the coordinates of one rank. */
struct mesh {
    int degree[AXIS_COUNT], at[AXIS_COUNT];
};

/* Resolves the degrees for `size` ranks; data_parallel_shard_degree -1 is what the others leave.
 * CONFIG: the product of the degrees is not `size`. */
enum status mesh_resolve(struct mesh *m, const struct parallelism_config *c, int rank, int size);
/* The smallest number of ranks with these degrees: their product; 0: it overflows. */
int64_t mesh_min_ranks(const struct parallelism_config *c);
/* The mesh of a single rank. */
struct mesh mesh_single_rank(void);
/* The rank with these coordinates, and the reverse. */
int mesh_rank(const struct mesh *m, const int at[AXIS_COUNT]);
void mesh_set_rank(struct mesh *m, int rank);

/* name, the axes it spans, its ranks */
#define GROUP_LIST(X)                                                                              \
    X(pp, 1 << AXIS_pp, "stages of a pipeline")                                                    \
    X(replicate, 1 << AXIS_dp_replicate, "replicas of a shard")                                    \
    X(shard, 1 << AXIS_dp_shard | 1 << AXIS_cp, "ranks that one replica is sharded over")          \
    X(cp, 1 << AXIS_cp, "ranks with parts of the same rows")                                       \
    X(tp, 1 << AXIS_tp, "ranks with slices of the same matrices")                                  \
    X(data, 1 << AXIS_dp_replicate | 1 << AXIS_dp_shard, "ranks with different rows")              \
    X(peers, 1 << AXIS_pp | 1 << AXIS_cp | 1 << AXIS_tp, "ranks with the same rows")               \
    X(world, (1 << AXIS_COUNT) - 1, "all ranks of the run")

enum group {
#define X(name, axes, text) GROUP_##name,
    GROUP_LIST(X)
#undef X
        GROUP_COUNT
};
const char *mesh_group_name(enum group g);
/* Size of a group and this rank's place in it, computed without communication. */
int mesh_group_size(const struct mesh *m, enum group g);
int mesh_group_rank(const struct mesh *m, enum group g);
/* Ranks of the group on this rank's node, where each node has `node_ranks` consecutive ranks. */
int mesh_group_on_node(const struct mesh *m, enum group g, int node_ranks);
/* The coordinates on all other axes as one number, which is the same for the ranks of one group. */
int mesh_group_color(const struct mesh *m, enum group g);
