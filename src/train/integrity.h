/* integrity.h -- finds silent data corruption: a rank whose memory changes weights or optimizer
 * state, or whose processor computes something else the second time.
 *
 * State    The fingerprint of a rank's weights and moments, one CRC-32C per buffer, is taken after
 *          the update of every guard.hash_every-th step, compared with other ranks' fingerprints of
 *          the same elements, and compared again before the next update: in between nothing writes
 *          those buffers.
 * Replay   In every guard.replay_every-th step forward and backward run twice on the same batch;
 *          losses and gradients must have the same bits.
 * Ranks    All failures are DEVICE, common to all ranks; the ranks that are suspect report them.
 * Memory   Of the arena in integrity_alloc; nothing if both options are 0. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "optim/optim.h"
#include "parallel/fsdp.h"
#include "parallel/groups.h"
#include "parallel/replicas.h"

enum state_buffer {
    STATE_WEIGHTS,
    STATE_LOW,
    STATE_COMPUTE_WEIGHTS,
    STATE_EXP_AVG,
    STATE_EXP_AVG_SQ,
    STATE_EMA,
    STATE_COUNT
};

/* What a rank holds, for comparisons with other ranks. */
struct fingerprint {
    uint32_t crc[STATE_COUNT]; /* 0: no such buffer */
    int32_t world_rank;
    char host[64];
};

/* CRC-32C of what one pass of forward and backward computed on this rank. */
struct pass_digest {
    uint32_t losses;
    uint32_t own;     /* gradients before they are summed over ranks */
    uint32_t reduced; /* afterwards */
};

/* The caller sets the fields above `mine`. */
struct integrity {
    const struct guard_config *guard; /* borrowed */
    const struct groups *groups;      /* borrowed */
    const struct optim *optim;        /* borrowed */
    struct replicas *replicas;        /* REPLICATED_COUNT of them; borrowed */
    struct queue *queue;              /* borrowed */
    struct fingerprint mine;
    bool is_current;         /* `mine` is of the state that the next update reads */
    bool is_suspect;         /* a check failed: the state must not be saved */
    int64_t good;            /* if so: checkpoints of later steps may be corrupted */
    int64_t step;            /* of that state */
    int64_t trusted;         /* the last step whose state is known to be good; -1: none yet */
    int64_t replayed;        /* the last step whose replay was equal; -1: none yet */
    struct fingerprint *all; /* of a group */
    char *chunk; /* host memory for device memory or moments in INT8; NULL: not needed */
    struct gradient_observer observer; /* for struct fsdp during a replay */
    struct pass_digest passes[2];
    int pass;
};

void integrity_alloc(struct integrity *g, struct arena *shared);

/* After the update of this step.  Collective over the world.  DEVICE: ranks that hold the same
 * weights or moments have different bits. */
enum status integrity_record(struct integrity *g, int64_t step);
/* Before an update; `done`: steps before it.  Collective over the world.  DEVICE: weights or
 * moments have changed since integrity_record. */
enum status integrity_check(struct integrity *g, int64_t done);
/* The state was replaced from outside, as by a checkpoint. */
void integrity_forget(struct integrity *g);

/* Whether forward and backward of this step run twice. */
bool integrity_is_replayed(const struct integrity *g, int64_t step);
/* Around each of both passes; begin_pass returns the observer for struct fsdp.  `losses` are in
 * host memory. */
struct gradient_observer *integrity_begin_pass(struct integrity *g, int pass);
enum status integrity_end_pass(struct integrity *g, const float *losses, int num_losses,
                               const void *gradients);
/* After both passes of this step.  Collective over the world.  DEVICE: they differ on a rank. */
enum status integrity_compare_passes(struct integrity *g, int64_t step);

/* After a failure, when a run that saves ends: sets aside the checkpoints that may be corrupted, so
 * that no run resumes from them.  Collective over the checkpointer's ranks.  Wait for a pending
 * save first. */
void integrity_abandon(const struct integrity *g, struct checkpointer *c);
