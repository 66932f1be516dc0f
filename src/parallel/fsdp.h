/* fsdp.h -- FSDP: weights, gradients and optimizer state sharded over data-parallel ranks (ZeRO-1
 * to ZeRO-3, and hybrid sharding over replicas, HSDP).
 *
 * A unit's weights are all-gathered (unsharded) before use, and the next unit's are prefetched
 * while it computes; its gradients are reduce-scattered while the next unit's backward runs.
 *
 * Memory   Every flat buffer of a rank holds its shard of each unit, unit after unit.  A unit at
 *          offset o of the layout starts at o / num_shards in a rank's buffer.  Unsharded units are
 *          in slots: blocks reuse two in turn (reshard after forward), or each unit has its own.
 *          So are FP8 copies of weights; without shards each block has its own.
 * Ranks    Every rank of the shard group opens and closes units in the same order.
 * Order    Gradients are summed over the shard group for each microbatch, over the replicas once a
 *          step; in the order of comm.h.  Sums over ranks are f32, also if f->gradients are BF16:
 *          stochastic rounding then adds each microbatch's sum to them, and the sum over the
 *          replicas is rounded to nearest.  Elastic sums reduce each microbatch over both, and add
 *          microbatches in the order of elastic.h.
 * Sources  Rajbhandari et al. 2020 (ZeRO, stages 1 to 3); Zhao et al. 2023 (FSDP, hybrid
 *          sharding) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "model/model.h"
#include "model/shard.h"
#include "parallel/elastic.h"

struct fsdp_state;

/* Sees the gradients of each unit that this rank has computed, before they are summed over ranks.
 * Work on the queue may be pending. */
struct gradient_observer {
    enum status (*see)(struct gradient_observer *o, const float *x, size_t count);
};

/* The caller sets every field that is not marked `fsdp_alloc` before calling it. */
struct fsdp {
    struct unit_provider units; /* for model.units; fsdp_alloc */
    const struct layout *layout;
    const struct comm *shard, *replicate;
    const struct ops *ops;
    struct queue *queue;
    enum dtype dtype; /* of the compute weights */
    bool tied;        /* the embedding is the head: both may be open at once */
    bool keep; /* no reshard after forward: weights stay gathered until they change (ZeRO-2) */
    bool forward_only;    /* no gradients */
    bool whole_gradients; /* gradients stay unsharded until the step's last microbatch (ZeRO-1) */
    /* FP8 copies of the blocks' weights are kept while the weights stay gathered and unchanged;
     * borrowed; NULL: they are not kept. */
    const struct float8_state *float8;
    const struct elastic *elastic; /* borrowed; NULL: microbatches are summed one after the other */
    const void *weights;           /* this rank's shards, dtype; may be set after fsdp_alloc */
    void *gradients; /* this rank's shards: reduced sums; likewise.  fsdp_gradient_buffers of them,
                        one after the other; the first has the result */
    enum dtype gradient_dtype; /* of f->gradients; default F32.  BF16: not with elastic sums, and */
    const struct shard *runs;  /* needs these and the layout they refer to, borrowed; */
    const struct layout *whole;
    uint64_t seed, step; /* of stochastic rounding; step: to be set before fsdp_begin_step */
    struct gradient_observer *observer; /* borrowed; NULL: none */
    struct fsdp_state *state;           /* owned; fsdp_alloc */
};

/* Allocates slots and the working memory of transfers from `run`. */
void fsdp_alloc(struct fsdp *f, struct arena *run);
/* Waits for pending transfers: only then are the buffers the caller's again. */
void fsdp_release(struct fsdp *f);

/* Elements of one rank's flat buffers. */
size_t fsdp_shard_elements(const struct fsdp *f);
/* Flat buffers of gradients: 1, or those of elastic sums. */
int fsdp_gradient_buffers(const struct fsdp *f);

/* Before the first microbatch of a step: discards the gradients of the step before (zero_grad).
 * Every unit must be opened with gradients in the step. */
void fsdp_begin_step(struct fsdp *f);
/* After the last microbatch: completes the sums of f->gradients over all ranks and microbatches. */
enum status fsdp_finish_gradients(struct fsdp *f);
/* With BF16 gradients: a buffer of *elements f32 that is free between steps. */
float *fsdp_idle_buffer(const struct fsdp *f, size_t *elements);
/* f->weights have changed: gathered and FP8 copies are stale. */
void fsdp_invalidate_weights(struct fsdp *f);
