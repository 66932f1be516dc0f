/* mesh.h -- the ranks of a run as a block of pp x dp_replicate x dp_shard x cp x tp.
 *
 * Ranks    tp runs fastest: rank = tp + TP (cp + CP (dp_shard + SHARD (dp_replicate + REPLICATE
 *          pp))), so neighbours in a node talk most.
 * Groups   One for each axis, and those that are several axes at once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "parallel/parallel_config.h"
#include "tensor/queue.h"

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
const char *axis_name(enum axis a);

/* Degrees of the axes, and where one rank stands on each. */
struct mesh {
    int degree[AXIS_COUNT], at[AXIS_COUNT];
};

/* Degrees that make exactly `size` ranks; data_parallel_shard_degree -1 is what the others leave.
 * CONFIG: they do not; the message names them. */
enum status mesh_resolve(struct mesh *m, const struct parallelism_config *c, int rank, int size);
/* One rank and no other. */
struct mesh mesh_alone(void);
/* The rank that stands there, and the reverse. */
int mesh_rank(const struct mesh *m, const int at[AXIS_COUNT]);
void mesh_place(struct mesh *m, int rank);

/* name, the axes it spans, who is in it */
#define GROUP_LIST(X)                                                                              \
    X(pp, 1 << AXIS_pp, "stages of a pipeline")                                                    \
    X(replicate, 1 << AXIS_dp_replicate, "copies of a shard")                                      \
    X(shard, 1 << AXIS_dp_shard | 1 << AXIS_cp, "ranks that share out one copy of the weights")    \
    X(cp, 1 << AXIS_cp, "ranks that share out a row's tokens")                                     \
    X(tp, 1 << AXIS_tp, "ranks that share out a block's matrices")                                 \
    X(data, 1 << AXIS_dp_replicate | 1 << AXIS_dp_shard, "ranks that compute on different rows")   \
    X(peers, 1 << AXIS_pp | 1 << AXIS_cp | 1 << AXIS_tp, "ranks that compute on the same rows")    \
    X(world, (1 << AXIS_COUNT) - 1, "every rank of the run")

enum group {
#define X(name, axes, text) GROUP_##name,
    GROUP_LIST(X)
#undef X
        GROUP_COUNT
};
const char *group_name(enum group g);
/* Ranks of a group, and one's place among them, without any communication. */
int mesh_group_size(const struct mesh *m, enum group g);
int mesh_group_rank(const struct mesh *m, enum group g);
/* Those of them that are on this rank's node, where nodes are filled with so many ranks in turn. */
int mesh_group_near(const struct mesh *m, enum group g, int node_ranks);

/* Every group that this rank is in.  Collective over `world`. */
struct groups {
    struct comm of[GROUP_COUNT];
    struct comm_counts planned[GROUP_COUNT]; /* of groups_plan's */
};
enum status groups_open(struct groups *g, const struct mesh *m, const struct comm *world);
/* `wrap` makes the groups that tensors of the model go over, pp to tp, carry a device's memory
 * (staged.h, nccl.h); the others carry the host's.  Groups of one stay.  Collective. */
enum status groups_carry(struct groups *g,
                         enum status (*wrap)(struct comm *c, const char *name, void *context),
                         void *context);
void groups_close(struct groups *g);
/* As a single rank sees them, for planning: sizes and ranks are the mesh's, and what would move is
 * counted.  They point into *g, which is not to be moved. */
void groups_plan(struct groups *g, const struct mesh *m);
