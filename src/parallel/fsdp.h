/* fsdp.h -- weights, gradients and optimizer state that data-parallel ranks share out.
 *
 * A unit's weights are gathered before it is used, the next one's while it computes; its gradients
 * are summed over the ranks and cut apart while the next one computes.
 *
 * Memory   Every flat buffer of a rank holds its part of each unit, one behind the other: element i
 *          of part p of a unit at offset o is o / parts + i there.  Gathered units lie in slots
 *          that blocks take in turn (reshard), or all stay (keep).
 * Ranks    Every rank of the shard group opens and closes units in the same order.
 * Order    Gradients are summed over the shard group's ranks for each micro-batch, over the
 *          replicas once a step; in the order of comm.h.
 * Sources  Rajbhandari et al. 2020 (ZeRO, stages 1 to 3); Zhao et al. 2023 (FSDP, hybrid shards) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "model/model.h"

struct fsdp_state;

/* What is not said to be set by fsdp_take is set by the caller before it. */
struct fsdp {
    struct units units; /* what the model is given; fsdp_take */
    const struct layout *layout;
    const struct comm *shard, *replicate;
    const struct ops *ops;
    struct queue *on;
    enum dtype dtype;     /* of the weights the model computes with */
    bool tied;            /* the embedding is the head: both may be open at once */
    bool keep;            /* weights stay gathered until they change (ZeRO-2) */
    bool forward_only;    /* there are no gradients */
    bool whole_gradients; /* gradients stay whole until the step's last micro-batch (ZeRO-1) */
    const void *weights;  /* this rank's parts, dtype; set after fsdp_take where they lie then */
    float *gradients;     /* this rank's parts, f32: sums over what was reduced; likewise */
    struct fsdp_state *state; /* owned; fsdp_take */
};

/* Takes slots, and what transfers work with, from `run`. */
void fsdp_take(struct fsdp *f, struct arena *run);
/* Waits for what is under way: until then buffers are not the caller's. */
void fsdp_release(struct fsdp *f);

/* Of one rank's flat buffers. */
size_t fsdp_elements(const struct fsdp *f);

/* Before the first micro-batch of a step: no gradients yet, whatever lies in f->gradients.  Each
 * unit is opened with gradients in the step. */
void fsdp_begin(struct fsdp *f);
/* After the last: f->gradients are the sums over every rank and micro-batch. */
enum status fsdp_finish(struct fsdp *f);
/* f->weights have changed: what was gathered is old. */
void fsdp_changed(struct fsdp *f);
