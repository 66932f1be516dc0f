/* replicas.h -- parameters that several ranks of a group hold copies of, each using them for other
 * tokens, heads or purposes: their gradients are summed over those ranks, and counted once in a
 * norm.
 *
 * The weights of norms are replicated on every tensor-parallel rank; with more of these than
 * key/value heads, so is each such head on neighboring ranks; a tied embedding is on the first and
 * the last stage of a pipeline. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "model/shard.h"
#include "ops/ops.h"
#include "parallel/mesh.h"
#include "tensor/dtype.h"
#include "tensor/queue.h"

enum replicated_kind {
    REPLICATED_UNSLICED,
    REPLICATED_KV_HEADS,
    REPLICATED_TIED_EMBEDDING,
    REPLICATED_COUNT
};

/* The caller sets the fields above `count`, replicas_alloc the others. */
struct replicas {
    const struct comm *group; /* the ranks with copies; borrowed */
    enum replicated_kind kind;
    const struct layout *layout; /* of the whole model; borrowed */
    const struct shard *shard;   /* borrowed */
    const struct ops *ops;       /* borrowed */
    struct queue *queue;         /* borrowed */
    size_t count;                /* replicated elements on this rank */
    float *sums;
    void *work;
};

/* Groups of ranks with replicated parameters that are not an axis of the mesh: those that share
 * key/value heads, if there are fewer heads than ranks, and those with a tied embedding.
 * Collective.  Release both. */
enum status replicas_split_groups(const struct comm *tp, const struct comm *pp,
                                  const struct model_shape *shape, struct comm *kv_head_peers,
                                  struct comm *embedding_peers);
/* How many of them have more than one rank, at the pipeline stage of `mesh`. */
int replicas_count_groups(const struct model_shape *shape, const struct mesh *mesh);
/* Allocates nothing in a group of one. */
void replicas_alloc(struct replicas *r, struct arena *run);
/* Whether the run belongs to the replicated elements. */
bool replicas_include(const struct replicas *r, const struct shard_run *run);
/* All-reduces the replicated elements of the flat gradients, in f32; BF16 ones are rounded to
 * nearest afterwards.  Collective.  COMM. */
enum status replicas_all_reduce(struct replicas *r, void *gradients, enum dtype dtype);
/* Whether the elements of a run are replicated and another rank of the group counts them. */
bool replicas_is_duplicate(const struct replicas *r, const struct shard_run *run);
/* Sum of squares of those elements of a flat buffer that another rank of the group counts: 0 on its
 * first rank. */
enum status replicas_duplicate_squares(const struct replicas *r, const void *flat, enum dtype dtype,
                                       double *squares);
