/* schedule.h -- pipeline schedules: the order of each rank's forward and backward passes, computed
 * without communication.
 *
 * A rank holds `chunks` stages: chunk c of rank r is stage c * pp + r of pp * chunks, so the output
 * of a stage always goes to the next rank, and from the last one to the first.
 *
 * Order    The microbatches of a stage run forward in ascending order, and backward in the same, so
 *          gradients are summed in one order under every schedule.
 * Ranks    Every rank computes its own list; receives match sends one to one.  All messages of one
 *          direction between two ranks have one tag: their stages send and receive them in the same
 *          order, whatever the chunk, so that no message waits for one that is due later.  A rank
 *          needs a channel each to send and to receive in each direction.  A send must not
 *          block its rank (comm_start): in the steady state two neighbors both have something to
 *          send.  A chunk sends from schedule_send_buffers buffers or more in turn, in each
 *          direction.
 *          Waiting for a buffer's last send before refilling it never deadlocks, even if a send
 *          completes only when it is received, and each receive is posted only when its action is
 *          due.
 * Memory   At most schedule_max_in_flight microbatches of a chunk are between their forward and
 *          their backward, first in, first out: microbatch i may use buffer i % max_in_flight.
 * Sources  Huang et al. 2019 (GPipe); Narayanan et al. 2019 (1F1B), 2021 (interleaved 1F1B); rounds
 *          of other than pp microbatches as in torch.distributed.pipelining. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "comm/comm.h"
#include "ops/boundary.h"
#include "parallel/parallel_config.h"

/* GPipe: all forwards, then all backwards.  1F1B: after a warmup alternately one forward and one
 * backward.  Interleaved1F1B: 1F1B with several chunks per rank, for a smaller bubble. */
enum { SCHEDULE_COUNT = SCHEDULE_GPipe + 1, SCHEDULE_MAX_MICROBATCHES = 1 << 20 };

struct schedule {
    enum schedule_kind kind;
    int pp;               /* ranks of the pipeline */
    int chunks;           /* stages per rank */
    int num_microbatches; /* microbatches per step */
};

struct action {
    enum direction direction;
    int micro, chunk;
};

/* CONFIG: a number of chunks or microbatches that the kind does not support, with the closest
 * numbers of microbatches that it does: max(1, num_microbatches / pp) rounds must have equal
 * size. */
enum status schedule_check(const struct schedule *s);

/* Actions of each rank: a forward and a backward for each microbatch and chunk. */
int schedule_length(const struct schedule *s);
/* The actions of a rank, in order, under a valid schedule. */
void schedule_actions(const struct schedule *s, int rank, struct action *actions);

/* The actions without backward, for any number of microbatches: num_microbatches * chunks, the same
 * for all ranks, in rounds of pp microbatches.  They need one send buffer. */
void schedule_forward_actions(const struct schedule *s, struct action *actions);

/* Largest number of microbatches of a chunk in flight: forward begun and backward not finished. */
int schedule_max_in_flight(const struct schedule *s, int rank, int chunk);

/* Send buffers that a chunk needs in each direction so that ranks cannot deadlock. */
int schedule_send_buffers(const struct schedule *s);

static inline int schedule_stage(const struct schedule *s, int rank, int chunk)
{
    return chunk * s->pp + rank;
}

/* Where an action's input comes from and where its output goes; peer -1: nowhere, at the first and
 * last stage.  A rank's messages of one direction all have the same peer and tag. */
struct p2p_message schedule_input(const struct schedule *s, int rank, const struct action *a);
struct p2p_message schedule_output(const struct schedule *s, int rank, const struct action *a);
